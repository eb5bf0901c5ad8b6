//! `lull origin`: the server where replicated files are written.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use lull_cc::Bytes;
use lull_replication::origin::{CaseClashes, Config, Strategy};
use lull_replication_daemon::daemon::{
    Clock, MachineClock, OriginOptions, SkewedClock, create_origin,
};
use lull_replication_daemon::http::client::Client;
use lull_replication_daemon::identity::TicketKind;
use lull_replication_daemon::service::{OriginService, ServiceEvent, run_origin, runtime};
use lull_replication_daemon::shared_log::LogAddress;
use lull_replication_daemon::store::{BucketAddress, Remote};
use lull_replication_daemon::watch::WatchOptions;
use lull_transport::Dscp;
use serde_json::json;

pub(crate) const EXAMPLES: &str = "\
Examples:
  lull origin init /var/lib/lull/origin
      create an origin, once
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070
      run the origin
  lull origin ticket /var/lib/lull/origin paris --address origin.example:7070
      print a ticket, with which one replica joins

The exit code is 0 on success, 1 on failure, and 2 if the arguments are wrong.";

const INIT_EXAMPLES: &str = "\
Examples:
  lull origin init /var/lib/lull/origin
      create the folder with a new certificate authority (CA) and an empty store

The exit code is 1 if the folder has an origin or cannot be written, and 2 if the arguments are wrong.";

const RUN_EXAMPLES: &str = "\
Examples:
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070
      accept replicas on port 7070; write with lull publish
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070 --http 127.0.0.1:7071 --token-file token
      also accept PUT and DELETE with the token: curl -T page.html -H \"Authorization: Bearer …\" …
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070 --watch /srv/public
      publish /srv/public, and later changes there
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070 --strategy demand
      push no bodies: replicas fetch a file when it is read
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070 --history 500
      keep half a gigabyte of overwritten files for lull rollback; a smaller value frees disk space
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070 --store s3://pages/site?region=eu-central-1
      store files over 16 KiB in the bucket pages, below site/
  lull origin run /var/lib/lull/origin --listen 0.0.0.0:7070 --log nats://n1,n2,n3/pages --store s3://pages/site
      write the log to the stream pages of a NATS cluster; run it on two machines, and one takes over from the other
  lull origin run /var/lib/lull/origin --listen 127.0.0.1:0 --json
      listen on a free port, and log it as JSON

The exit code is 0 after SIGTERM or SIGINT; 1 if the origin cannot start, or stops because its disk failed; and
2 if the arguments are wrong.";

const TICKET_EXAMPLES: &str = "\
Examples:
  lull origin ticket /var/lib/lull/origin paris --address origin.example:7070
      print a ticket for a replica that you name paris; keep it secret until it is used
  lull origin ticket /var/lib/lull/origin paris --address origin.example:7070 --valid 600
      print a ticket that is valid for ten minutes
  lull origin ticket /var/lib/lull/origin paris --address one.example:7070,two.example:7070
      print a ticket with the addresses of two origins that share a log
  lull origin ticket /var/lib/lull/origin guests --fetch --valid 3600
      print a ticket with which lull fetch gets files for an hour
  lull origin ticket /var/lib/lull/origin office --relay
      print a ticket for a replica that may serve other replicas

The exit code is 1 if the origin does not run or cannot write, and 2 if the arguments are wrong.";

const REVOKE_EXAMPLES: &str = "\
Examples:
  lull origin revoke /var/lib/lull/origin paris
      disconnect paris, and reject it until it joins with a new ticket

The exit code is 1 if the origin does not run or has no such replica, and 2 if the arguments are wrong.";

const ROTATE_EXAMPLES: &str = "\
Examples:
  lull origin rotate /var/lib/lull/origin
      create a new CA; replicas get new certificates at once, or when they reconnect
  lull origin rotate /var/lib/lull/origin --finish
      drop the old CA, when all replicas have new certificates

The exit code is 1 if the origin does not run or the step is not possible now; the error says why. It is
2 if the arguments are wrong.";

/// Run an origin server: the single place where replicated files are written
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Init(InitArgs),
    Run(Box<RunArgs>),
    Ticket(TicketArgs),
    Revoke(RevokeArgs),
    Rotate(RotateArgs),
}

/// Create an origin in a folder
#[derive(Debug, clap::Args)]
#[command(after_help = INIT_EXAMPLES)]
pub(crate) struct InitArgs {
    /// Folder of the new origin, used for nothing else
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Run an origin
///
/// A write is on disk before it is acknowledged; then the replicas are notified. File bodies are pushed to them in
/// the background. SIGTERM and SIGINT end the origin. It logs to standard error, one line per event.
/// Set RUST_LOG=warn to log only warnings and errors.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// Folder that lull origin init created
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Address where replicas connect
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,
    /// Address that accepts PUT and DELETE, and serves status, metrics and a dashboard below /.lull/
    #[arg(long, value_name = "HOST:PORT", requires = "token_file")]
    http: Option<String>,
    /// File whose first line is the token for --http. It permits reading everything below /.lull/, and
    /// writing and deleting every file. Tickets, revocations, rotations, rollbacks and lull publish need
    /// access to the origin's folder instead
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// Publish the files of this folder whenever they are written. The order in which replicas see two files
    /// is not guaranteed; use lull publish for that
    #[arg(long, value_name = "FOLDER")]
    watch: Option<PathBuf>,
    /// Publish a file of the watched folder that stays open after this many seconds without a write
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "watch")]
    watch_quiet: u64,
    /// Seconds between comparisons of the watched folder with the published files. A comparison finds changes
    /// without an event, and takes 5 % of one core
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "watch")]
    watch_compare: u64,
    /// Which bodies of files are pushed to replicas:
    /// - trip: all bodies in the background, most valuable first
    /// - demand: no bodies; a replica fetches a file when it is read
    /// - push-all: all bodies in order, each before its notification, and not in the background
    /// - threshold=P: as push-all, but only bodies that are read before the next write with a probability above P
    #[arg(long, value_name = "STRATEGY", default_value = "trip", verbatim_doc_comment)]
    strategy: Strategy,
    /// How many megabytes of overwritten and deleted files are kept for lull rollback, besides the current files. The
    /// oldest are deleted first. A replica that was disconnected for longer than this history compares its files with
    /// the origin's, and transfers those that differ
    #[arg(long, value_name = "MB", default_value = "10000")]
    history: u64,
    /// Congestion control of pushes in the background. If the kernel does not have it, Lull paces them itself
    /// [default: lull; or nice, if only that is loaded]
    #[arg(long, value_name = "NAME", value_parser = congestion_control)]
    cc: Option<String>,
    /// DSCP of background packets: le or none
    #[arg(long, value_name = "DSCP", default_value = "le", value_parser = lull_cli::arguments::dscp)]
    dscp: Dscp,
    /// Reject a file whose path differs from another one only in case, because one of them would be lost on a
    /// file system that ignores case. In a watched folder, such a file is logged and left out until one of
    /// the two is renamed
    #[arg(long)]
    refuse_case_clashes: bool,
    /// Store files over 16 KiB in a bucket of an S3-compatible object store, which must exist:
    /// s3://BUCKET/PREFIX, with ?endpoint=URL&region=NAME for a server other than that of AWS_ENDPOINT_URL and
    /// AWS_REGION. Set the key in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. The folder keeps the address for later
    /// starts [default: the folder]
    #[arg(long, value_name = "URL")]
    store: Option<BucketAddress>,
    /// Maximum size of the files in the folder that are also in the bucket, in megabytes; the least recently used files
    /// are deleted
    #[arg(long, value_name = "MB", default_value = "10000")]
    store_copies: u64,
    /// Write the log to a stream of NATS JetStream, which several origins can share: nats://HOST:PORT,HOST:PORT/STREAM,
    /// or tls://. One origin writes, the others stand by, and one of them takes over within 10 s when the writer has
    /// ended. Set NATS_USER and NATS_PASSWORD, or NATS_TOKEN, and NATS_CA for a CA of your own. The folder keeps the
    /// address for later starts [default: the folder]
    #[arg(long, value_name = "URL")]
    log: Option<LogAddress>,
    /// Force this origin to become the writer of the log. Another writer ends when it reads that in the log. If it
    /// cannot reach the log, first make sure that it has ended. Do not use this option in a service that restarts
    #[arg(long)]
    take_over: bool,
    /// Address of this origin for replicas, which the other origins show [default: where it listens]
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Log events as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// A file that skews the clocks; `lull lab torture` writes it
    #[arg(long, value_name = "FILE", hide = true)]
    lab_clock: Option<PathBuf>,
}

/// Print a ticket, with which one replica joins once
#[derive(Debug, clap::Args)]
#[command(after_help = TICKET_EXAMPLES)]
pub(crate) struct TicketArgs {
    /// Folder of the origin, which must run
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Name of the replica. A replica of that name can join again with the ticket
    #[arg(value_name = "NAME")]
    name: String,
    /// Address of the origin for the replica; addresses of several origins that share a log are separated by commas
    /// [default: where it listens]
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// Seconds until the ticket expires
    #[arg(long, value_name = "S", default_value = "86400", value_parser = lull_cli::arguments::seconds)]
    valid: Duration,
    /// Permit the replica to serve other replicas, as lull replica run --relay
    #[arg(long)]
    relay: bool,
    /// Print a ticket for lull fetch instead: it is not used up, and its holders are no replicas
    #[arg(long, conflicts_with = "relay")]
    fetch: bool,
}

/// Revoke a replica: disconnect it, and reject its certificate
#[derive(Debug, clap::Args)]
#[command(after_help = REVOKE_EXAMPLES)]
pub(crate) struct RevokeArgs {
    /// Folder of the origin, which must run
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Name of the replica
    #[arg(value_name = "NAME")]
    name: String,
}

/// Replace the certificate authority (CA) of the origin and its replicas
///
/// There are two steps. The first creates a new CA, and replicas get new certificates by themselves; both CAs
/// are valid. The second drops the old CA, and with it all unused tickets. Lull rejects the second step while
/// a replica has only an old certificate. Replicas answer reads throughout.
#[derive(Debug, clap::Args)]
#[command(after_help = ROTATE_EXAMPLES)]
pub(crate) struct RotateArgs {
    /// Folder of the origin, which must run
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Do the second step: drop the old CA
    #[arg(long)]
    finish: bool,
}

/// A name that is valid for a congestion control.
pub(crate) fn congestion_control(text: &str) -> Result<String, String> {
    match text.len() {
        1..=15 => Ok(text.to_owned()),
        _ => Err("a congestion control has a name of 1 to 15 characters".to_owned()),
    }
}

fn serve(args: RunArgs) -> anyhow::Result<()> {
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
            background: lull_cli::arguments::background(args.cc, args.dscp),
            store: args.store.map(Remote::new),
            copies: Bytes(args.store_copies.saturating_mul(1_000_000)),
            log: args.log,
            take_over: args.take_over,
            advertised: args.advertise,
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
    run_origin(service, logger(args.json)?)?;
    Ok(())
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Init(InitArgs { folder }) => {
            create_origin(&folder, MachineClock.read().wall)?;
            println!("made an origin in {}", folder.display());
        }
        Command::Run(args) => serve(*args)?,
        Command::Ticket(args) => {
            let client = Client::new(args.folder);
            let address = args.address.as_deref();
            let kind = match (args.relay, args.fetch) {
                (true, _) => TicketKind::Relay,
                (_, true) => TicketKind::Receiver,
                _ => TicketKind::Replica,
            };
            let made = client.ticket(&args.name, address, args.valid, kind);
            println!("{}", runtime()?.block_on(made)?);
        }
        Command::Revoke(RevokeArgs { folder, name }) => {
            runtime()?.block_on(Client::new(folder).revoke(&name))?;
            println!("{name} is revoked");
        }
        Command::Rotate(RotateArgs { folder, finish }) => {
            runtime()?.block_on(Client::new(&folder).rotate(finish))?;
            if finish {
                println!(
                    "the old CA is no longer valid, and neither are unused tickets: print new \
                     ones"
                );
            } else {
                let folder = folder.display();
                println!(
                    "a new CA is in use beside the old one: lull origin rotate {folder} \
                          --finish drops the old one"
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The machine's clocks, unless a lab skews them.
pub(crate) fn clock(skew_file: Option<&Path>) -> anyhow::Result<Arc<dyn Clock>> {
    let Some(path) = skew_file else { return Ok(Arc::new(MachineClock)) };
    let clock = SkewedClock::open(path);
    Ok(Arc::new(clock.with_context(|| format!("{} cannot be read", path.display()))?))
}

/// Logs events of a service on standard error.
///
/// # Errors
/// If `RUST_LOG` cannot be read.
pub(crate) fn logger(
    as_json: bool,
) -> anyhow::Result<impl Fn(ServiceEvent) + Send + Sync + 'static> {
    lull_cli::log::start(std::io::stderr)?;
    Ok(move |told: ServiceEvent| {
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
        match told.name() {
            "full" | "lost" | "log-away" | "store-away" | "unconfirmed" => {
                tracing::error!(target: "lull::replication", "{line}")
            }
            "crowded" | "disconnected" | "identity" | "not-renewed" | "overflow" | "refused"
            | "rejected" | "skew" | "skipped" | "unmounted" | "unwatched" | "waits" => {
                tracing::warn!(target: "lull::replication", "{line}");
            }
            _ => tracing::info!(target: "lull::replication", "{line}"),
        }
    })
}
