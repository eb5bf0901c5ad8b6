//! `lull origin`: where files are written that many places have.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use lull_cc::Bytes;
use lull_replicate::daemon::{BentClock, Clock, MachineClock, OriginOptions, create_origin};
use lull_replicate::http::client::Client;
use lull_replicate::origin::{CaseClashes, Config, Strategy};
use lull_replicate::service::{OriginService, Told, run_origin, runtime};
use lull_replicate::watch::WatchOptions;
use lull_transport::{Dscp, Options};
use serde_json::json;

pub(crate) const EXAMPLES: &str = "\
Examples:
  lull origin init /var/lib/lull/origin
      make one, once
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070
      run it
  lull origin ticket /var/lib/lull/origin paris --address origin.example:7070
      let a replica in

The exit code is 1 if it could not be done, and 2 if the arguments make no sense.";

const INIT_EXAMPLES: &str = "\
Examples:
  lull origin init /var/lib/lull/origin
      makes the folder, with an authority of its own and an empty store

The exit code is 1 if there is an origin already or the folder cannot be written, and 2 if the
arguments make no sense.";

const RUN_EXAMPLES: &str = "\
Examples:
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070
      replicas connect to port 7070; lull publish writes
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070 --http 127.0.0.1:7071 --token-file token
      PUT and DELETE as well, for who knows the token: curl -T page.html -H \"Authorization: Bearer …\" …
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070 --watch /srv/public
      what is in /srv/public, and what is written there later, is what replicas show
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070 --strategy demand
      nothing is pushed: replicas fetch what is read there
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070 --history 500
      half a gigabyte of what was overwritten, for lull rollback; less makes room on a full disk
  lull origin run /var/lib/lull/origin --listen 127.0.0.1:0 --json
      on a free port, which is told as JSON

The exit code is 0 when a signal has ended it; 1 if it could not begin or could not go on, as after a
disk that failed; and 2 if the arguments make no sense.";

const TICKET_EXAMPLES: &str = "\
Examples:
  lull origin ticket /var/lib/lull/origin paris --address origin.example:7070
      the name is yours; what is printed is a secret until it was used
  lull origin ticket /var/lib/lull/origin paris --address origin.example:7070 --valid 600
      for ten minutes

The exit code is 1 if the origin does not run or cannot write, and 2 if the arguments make no sense.";

const REVOKE_EXAMPLES: &str = "\
Examples:
  lull origin revoke /var/lib/lull/origin paris
      its connections end, and no new ones are taken until it joins with a new ticket

The exit code is 1 if the origin does not run or there is no such replica, and 2 if the arguments make
no sense.";

const ROTATE_EXAMPLES: &str = "\
Examples:
  lull origin rotate /var/lib/lull/origin
      makes a new authority; replicas get certificates of it within moments, or when they connect
  lull origin rotate /var/lib/lull/origin --finish
      when all have: the old authority counts no more

The exit code is 1 if the origin does not run or it is not the time for that step, which is told with
the reason, and 2 if the arguments make no sense.";

/// Run the place where files are written that many places have
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Init(InitArgs),
    Run(RunArgs),
    Ticket(TicketArgs),
    Revoke(RevokeArgs),
    Rotate(RotateArgs),
}

/// Make a new origin in a folder
#[derive(Debug, clap::Args)]
#[command(after_help = INIT_EXAMPLES)]
pub(crate) struct InitArgs {
    /// Its folder, which should be there for nothing else
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Run an origin
///
/// What is written is on the disk before it is acknowledged, and replicas hear of it then. Bodies are
/// pushed to them in the background. SIGTERM and SIGINT end it. What happens is told on standard error,
/// one line each.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The folder that lull origin init has made
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Where replicas connect
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,
    /// Where PUT and DELETE are taken, and status, metrics and a page are shown below /.lull/
    #[arg(long, value_name = "HOST:PORT", requires = "token_file")]
    http: Option<String>,
    /// A file whose first line is the token for that: who has it may read all that is below /.lull/, and
    /// write and delete every file. Tickets, revocations, rotations, rollbacks and lull publish are for
    /// who may use the origin's folder, and for nobody else
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// A folder whose files are published as they are written: the replicas show what it has. In which
    /// order two files are seen is not promised; lull publish does that
    #[arg(long, value_name = "FOLDER")]
    watch: Option<PathBuf>,
    /// A file of the watched folder that stays open is published when nothing was written to it for so many
    /// seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "watch")]
    watch_quiet: u64,
    /// So many seconds after a comparison of the watched folder with what is published the next one begins. It
    /// finds what no event told of, and takes 5 % of one core
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "watch")]
    watch_compare: u64,
    /// Which bodies are pushed: none (demand); all, in the background, those first that are worth most
    /// (trip); all (push-all), or those likelier than P to be read before they are overwritten
    /// (threshold=P), in order, each before it is told of, and not in the background
    #[arg(long, value_name = "STRATEGY", default_value = "trip")]
    strategy: Strategy,
    /// Megabytes of overwritten and deleted files to keep, at most: lull rollback goes back as far. What
    /// is above it goes at the start. A replica that was away for longer takes over the differences
    #[arg(long, value_name = "MB", default_value = "10000")]
    history: u64,
    /// The congestion control that what is pushed in the background is sent by; without it in the
    /// kernel, lull paces it itself
    #[arg(long, value_name = "NAME", default_value = "nice", value_parser = congestion_control)]
    cc: String,
    /// The class of its packets: le or none
    #[arg(long, value_name = "DSCP", default_value = "le", value_parser = lull_cli::arguments::dscp)]
    dscp: Dscp,
    /// Refuse a file whose path differs from another's only in case: wherever replicas are copied to a
    /// file system that does not tell cases apart, one of them would be lost. In a watched folder such a
    /// file is told of and left out, and all else published, until one of both is renamed
    #[arg(long)]
    refuse_case_clashes: bool,
    /// Tell what happens as JSON, one object a line
    #[arg(long)]
    json: bool,
    /// A file that bends the clocks: how `lull lab torture` sets them
    #[arg(long, value_name = "FILE", hide = true)]
    lab_clock: Option<PathBuf>,
}

/// Make a ticket, by which one replica joins once
#[derive(Debug, clap::Args)]
#[command(after_help = TICKET_EXAMPLES)]
pub(crate) struct TicketArgs {
    /// The folder of the origin, which has to run
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// How the replica is called from now on. A replica of that name can join again by it
    #[arg(value_name = "NAME")]
    name: String,
    /// Where the replica finds the origin [default: where it listens]
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// For how many seconds it can be used
    #[arg(long, value_name = "S", default_value = "86400", value_parser = lull_cli::arguments::seconds)]
    valid: Duration,
}

/// Shut a replica out
#[derive(Debug, clap::Args)]
#[command(after_help = REVOKE_EXAMPLES)]
pub(crate) struct RevokeArgs {
    /// The folder of the origin, which has to run
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The replica
    #[arg(value_name = "NAME")]
    name: String,
}

/// Replace the authority that vouches for origin and replicas
///
/// In two steps, between which both count: first a new one is made, of which replicas get certificates
/// by themselves; then the old one is given up, which is refused while there are replicas that would be
/// shut out, and makes tickets void that were not used. Nobody stops reading.
#[derive(Debug, clap::Args)]
#[command(after_help = ROTATE_EXAMPLES)]
pub(crate) struct RotateArgs {
    /// The folder of the origin, which has to run
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The second step
    #[arg(long)]
    finish: bool,
}

/// A name that the kernel can have for one.
fn congestion_control(text: &str) -> Result<String, String> {
    match text.len() {
        1..=15 => Ok(text.to_owned()),
        _ => Err("a congestion control has a name of 1 to 15 characters".to_owned()),
    }
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Init(InitArgs { folder }) => {
            create_origin(&folder, MachineClock.read().wall)?;
            println!("made an origin in {}", folder.display());
        }
        Command::Run(args) => {
            let token = args.token_file.as_deref().map(lull_cli::arguments::token).transpose()?;
            let service = OriginService {
                daemon: OriginOptions {
                    config: Config {
                        strategy: args.strategy,
                        log_bytes: Bytes(args.history.saturating_mul(1_000_000)),
                        case_clashes: if args.refuse_case_clashes {
                            CaseClashes::Refuse
                        } else {
                            CaseClashes::Allow
                        },
                        ..Config::default()
                    },
                    background: Options::new().congestion_control(args.cc).dscp(args.dscp),
                    ..OriginOptions::new(args.folder, args.listen)
                },
                clock: clock(args.lab_clock.as_deref())?,
                http: args.http.zip(token),
                watch: args.watch,
                watch_options: WatchOptions {
                    quiet: Duration::from_secs(args.watch_quiet),
                    compare: Duration::from_secs(args.watch_compare),
                },
            };
            run_origin(service, teller(args.json))?;
        }
        Command::Ticket(args) => {
            let client = Client::new(args.folder);
            let address = args.address.as_deref();
            let made = client.ticket(&args.name, address, args.valid);
            println!("{}", runtime()?.block_on(made)?);
        }
        Command::Revoke(RevokeArgs { folder, name }) => {
            runtime()?.block_on(Client::new(folder).revoke(&name))?;
            println!("{name} is shut out");
        }
        Command::Rotate(RotateArgs { folder, finish }) => {
            runtime()?.block_on(Client::new(&folder).rotate(finish))?;
            if finish {
                println!(
                    "the old authority counts no more; tickets that were not used are void: make new ones"
                );
            } else {
                let folder = folder.display();
                println!("there is a new authority: lull origin rotate {folder} --finish ends it");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The machine's clocks, unless a lab bends them.
pub(crate) fn clock(bent_by: Option<&Path>) -> anyhow::Result<Arc<dyn Clock>> {
    let Some(path) = bent_by else { return Ok(Arc::new(MachineClock)) };
    let clock = BentClock::open(path);
    Ok(Arc::new(clock.with_context(|| format!("{} cannot be read", path.display()))?))
}

/// Tells on standard error what happens.
pub(crate) fn teller(as_json: bool) -> impl Fn(Told) + Send + Sync + 'static {
    move |told| {
        let line = if as_json {
            let mut object = json!({ "event": told.name(), "text": told.to_string() });
            if let Some(address) = told.address() {
                object["address"] = json!(address.to_string());
                object["port"] = json!(address.port());
            }
            object.to_string()
        } else {
            format!("lull: {told}")
        };
        // Who closes standard error does not want to hear of it.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
}
