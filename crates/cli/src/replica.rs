//! `lull replica`: a place that has the origin's files.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use lull_cc::Bytes;
use lull_replicate::daemon::{Clock, MachineClock, ReplicaOptions, join};
use lull_replicate::http::Blocked;
use lull_replicate::identity::Ticket;
use lull_replicate::origin::Strategy;
use lull_replicate::replica::{Config, Order, Staleness};
use lull_replicate::service::{ReplicaService, run_replica, runtime};

use crate::origin::{clock, teller};
use crate::web::seconds;

pub(crate) const EXAMPLES: &str = "\
Examples:
  lull replica join lull1… /var/lib/lull/replica
      once, with the ticket that lull origin ticket has printed
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --mount /srv/files
      answer reads by HTTP, and have the files in a folder";

const JOIN_EXAMPLES: &str = "\
Examples:
  lull replica join lull1… /var/lib/lull/replica
      makes the folder, and a key that never leaves it";

const RUN_EXAMPLES: &str = "\
Examples:
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80
      reads wait as long as it takes
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --blocked error --patience 1
      or are answered with 503 after a second
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --blocked https://london.example
      or are sent to another replica
  sudo lull replica run /var/lib/lull/replica --mount /srv/files
      the files in an empty folder, for all programs and users of this machine; nobody writes there
  sudo lull replica run /var/lib/lull/replica --mount /srv/files --blocked error --patience 1
      an open that would have to wait fails with ETIMEDOUT after a second
  sudo lull replica run /var/lib/lull/replica --mount /srv/files --keep 86400
      the states of the last day are folders in /srv/files/.lull: ls -l shows their numbers and times
  lull replica run /var/lib/lull/replica --http 127.0.0.1:0 --delta 5 --json
      at most 5 s stale while connected; on a free port, which is told as JSON";

/// Run a place that has the origin's files
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Join(JoinArgs),
    Run(Box<RunArgs>),
}

/// Become a replica, with a ticket of the origin
#[derive(Debug, clap::Args)]
#[command(after_help = JOIN_EXAMPLES)]
pub(crate) struct JoinArgs {
    /// What lull origin ticket has printed
    #[arg(value_name = "TICKET")]
    ticket: String,
    /// The replica's folder, which should be there for nothing else
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Run a replica
///
/// Reads see one order of all writes, at every replica the same, and nothing that is staler than
/// promised. SIGTERM and SIGINT end it. What happens is told on standard error, one line each.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The folder that lull replica join has made
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Where GET and HEAD are answered
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// An empty folder in which the files are shown, as root
    #[arg(long, value_name = "FOLDER")]
    mount: Option<PathBuf>,
    /// What happens to a read that cannot be answered now: wait, error, or the URL of another replica.
    /// A mount knows no other replica, so there the third is an error, too
    #[arg(long, value_name = "HOW", default_value = "wait")]
    blocked: String,
    /// After how many seconds, unless it waits
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    patience: Duration,
    /// How stale reads may be at most while the origin is connected, in seconds
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    delta: Duration,
    /// The same while it is not, or none for no bound
    #[arg(long, value_name = "S", default_value = "3600")]
    delta_disconnected: String,
    /// That of the origin. By all but trip invalidations are applied as they come; by trip a file stays
    /// as it was until its new body is here, for Δ at most
    #[arg(long, value_name = "STRATEGY", default_value = "trip")]
    strategy: Strategy,
    /// Let reads pass others that wait: for readers that do not depend on each other
    #[arg(long)]
    aggressive: bool,
    /// Megabytes of bodies to keep, at most [default: all]
    #[arg(long, value_name = "MB")]
    quota: Option<u64>,
    /// For how many seconds what was overwritten or deleted can still be read, as far as the quota has
    /// room: by who has it open, and below .lull in the mount
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    keep: Duration,
    /// Tell what happens as JSON, one object a line
    #[arg(long)]
    json: bool,
    /// A file that bends the clocks: how `lull lab torture` sets them
    #[arg(long, value_name = "FILE", hide = true)]
    lab_clock: Option<PathBuf>,
}

impl RunArgs {
    fn service(self) -> anyhow::Result<ReplicaService> {
        let blocked = match self.blocked.as_str() {
            "wait" => Blocked::Wait,
            "error" => Blocked::Error(self.patience),
            url => {
                let uri = url.parse::<Uri>().ok().filter(|uri| {
                    uri.authority().is_some() && matches!(uri.scheme_str(), Some("http" | "https"))
                });
                let Some(uri) = uri else {
                    let text = format!("--blocked {url}: write wait, error, or http://HOST:PORT");
                    return Err(crate::Misuse(text).into());
                };
                Blocked::Redirect(self.patience, uri)
            }
        };
        let disconnected = match self.delta_disconnected.as_str() {
            "none" => None,
            text => Some(seconds(text).map_err(|help| {
                crate::Misuse(format!("--delta-disconnected {text}: {help}, or none"))
            })?),
        };
        if disconnected.is_some_and(|larger| larger < self.delta) {
            let text = "--delta-disconnected is less than --delta: make it the larger one";
            return Err(crate::Misuse(text.to_owned()).into());
        }
        let staleness = Staleness { connected: self.delta, disconnected, ..Staleness::default() };
        let order = if self.aggressive { Order::Aggressive } else { Order::Conservative };
        let quota = self.quota.map(|megabytes| Bytes(megabytes.saturating_mul(1_000_000)));
        // Each read needs a heartbeat that is younger than Δ.
        let ping = Config::default().ping.min(self.delta / 4);
        let config = Config {
            staleness,
            eager: self.strategy.is_eager(),
            order,
            quota,
            ping,
            grace: self.keep,
            ..Config::default()
        };
        let daemon = ReplicaOptions { config, ..ReplicaOptions::new(self.folder) };
        let clock = clock(self.lab_clock.as_deref())?;
        Ok(ReplicaService { daemon, clock, http: self.http, mount: self.mount, blocked })
    }
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Join(JoinArgs { ticket, folder }) => {
            let ticket: Ticket = ticket.parse()?;
            let clock: Arc<dyn Clock> = Arc::new(MachineClock);
            let address = ticket.address.clone();
            runtime()?.block_on(join(&folder, ticket, &clock))?;
            println!("{} is a replica of the origin at {address} now", folder.display());
        }
        Command::Run(args) => {
            let json = args.json;
            match args.service() {
                Ok(service) => run_replica(service, teller(json))?,
                Err(error) if error.is::<crate::Misuse>() => {
                    crate::complain(&error);
                    return Ok(ExitCode::from(crate::USAGE));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
