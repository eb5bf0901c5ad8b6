//! `lull replica`: a place that has the origin's files.

use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::Uri;
use lull_cc::Bytes;
use lull_replicate::daemon::{Clock, MachineClock, ReplicaOptions, join};
use lull_replicate::http::Blocked;
use lull_replicate::identity::Ticket;
use lull_replicate::origin::Strategy;
use lull_replicate::replica::{Config, Order, Staleness};
use lull_replicate::service::{ReplicaService, run_replica, runtime};

use crate::origin::{clock, teller};
use crate::publish::progress::ReplicaBar;
use lull_cli::arguments::seconds;

pub(crate) const EXAMPLES: &str = "\
Examples:
  lull replica join lull1… /var/lib/lull/replica
      once, with the ticket that lull origin ticket has printed
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --mount /srv/files
      answer reads by HTTP, and have the files in a folder

The exit code is 1 if it could not be done, and 2 if the arguments make no sense.";

const JOIN_EXAMPLES: &str = "\
Examples:
  lull replica join lull1… /var/lib/lull/replica
      makes the folder, and a key that never leaves it
  lull replica join - /var/lib/lull/replica
      reads the ticket: a secret until it was used, it is in no list of processes then, and no history

The exit code is 1 if the origin cannot be reached or does not take the ticket, or if the folder
belongs to another replica; and 2 if the arguments make no sense.";

const RUN_EXAMPLES: &str = "\
Examples:
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80
      reads wait as long as it takes
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --blocked error --patience 1
      or are answered with 503 after a second
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --blocked https://london.example
      or are sent to another replica
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --metrics 127.0.0.1:9090
      what tells how the replica is only there: not for all who read
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --origin new.example:7070
      the origin has moved; once is enough
  sudo lull replica run /var/lib/lull/replica --mount /srv/files
      the files in an empty folder, for all programs and users of this machine; nobody writes there
  sudo lull replica run /var/lib/lull/replica --mount /srv/files --blocked error --patience 1
      an open that would have to wait fails with ETIMEDOUT after a second
  sudo lull replica run /var/lib/lull/replica --mount /srv/files --keep 86400
      the states of the last day are folders in /srv/files/.lull: ls -l shows their numbers and times
  lull replica run /var/lib/lull/replica --http 127.0.0.1:0 --delta 5 --json
      at most 5 s stale while connected; on a free port, which is told as JSON

The exit code is 0 when a signal has ended it; 1 if it could not begin or could not go on, as after a
disk that failed; and 2 if the arguments make no sense.";

/// Run a place that has the origin's files
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Join(JoinArgs),
    Run(Box<RunArgs>),
}

/// Become a replica, with a ticket of the origin
///
/// A folder that was a replica of the same origin may be used again, as it is: after a revocation, say. What
/// it has is not transferred once more.
#[derive(Debug, clap::Args)]
#[command(after_help = JOIN_EXAMPLES)]
pub(crate) struct JoinArgs {
    /// What lull origin ticket has printed, or - to read that from standard input
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
    /// Where /.lull/status and /.lull/metrics are shown [default: with the files, to all who read]
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Where the origin is, from now on [default: where the ticket said, or this the last time]
    #[arg(long, value_name = "HOST:PORT")]
    origin: Option<String>,
    /// An empty folder in which the files are shown, as root
    #[arg(long, value_name = "FOLDER")]
    mount: Option<PathBuf>,
    /// What happens to a read that cannot be answered now: wait, error, or the URL of another replica,
    /// which answers it or says why not, and sends nobody on. A mount knows no other replica, so there the
    /// third is an error, too
    #[arg(long, value_name = "HOW", default_value = "wait")]
    blocked: String,
    /// After how many seconds, unless it waits
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    patience: Duration,
    /// How stale reads may be at most while the origin is connected, in seconds
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    delta: Duration,
    /// The same while it is not, or none for no bound [default: 3600, or --delta if that is more]. Whatever
    /// it is, after a start nothing is answered before the origin was heard once: who was away may have
    /// missed anything
    #[arg(long, value_name = "S")]
    delta_disconnected: Option<String>,
    /// By how many seconds the wall clocks of origin and replica may differ for staleness to be counted by
    /// them; else, and until that is measured, it is counted by echoes of the replica's own clock
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    max_skew: Duration,
    /// Another one than that of the origin, which tells its own. By all but trip invalidations are
    /// applied as they come; by trip a file stays as it was until its new body is here, for Δ at most
    #[arg(long, value_name = "STRATEGY")]
    strategy: Option<Strategy>,
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
                if url.contains(['?', '#']) {
                    let text = format!(
                        "--blocked {url}: leave out what follows the path: each read brings its own query"
                    );
                    return Err(crate::Misuse(text).into());
                }
                Blocked::Redirect(self.patience, uri)
            }
        };
        let disconnected = match self.delta_disconnected.as_deref() {
            None => Staleness::default().disconnected.map(|usual| usual.max(self.delta)),
            Some("none") => None,
            Some(text) => Some(seconds(text).map_err(|help| {
                crate::Misuse(format!("--delta-disconnected {text}: {help}, or none"))
            })?),
        };
        if disconnected.is_some_and(|larger| larger < self.delta) {
            let text = "--delta-disconnected is less than --delta: make it the larger one";
            return Err(crate::Misuse(text.to_owned()).into());
        }
        let staleness = Staleness {
            connected: self.delta,
            disconnected,
            max_skew: self.max_skew,
            ..Staleness::default()
        };
        let order = if self.aggressive { Order::Aggressive } else { Order::Conservative };
        let quota = self.quota.map(|megabytes| Bytes(megabytes.saturating_mul(1_000_000)));
        // Each read needs a heartbeat that is younger than Δ, and each ping is answered by one.
        let ping = Config::default().ping.min(self.delta / 4).max(Duration::from_millis(10));
        let config = Config {
            staleness,
            eager: self.strategy.map(Strategy::is_eager),
            order,
            quota,
            ping,
            grace: self.keep,
            ..Config::default()
        };
        let origin = self.origin;
        let daemon = ReplicaOptions { config, origin, ..ReplicaOptions::new(self.folder) };
        let clock = clock(self.lab_clock.as_deref())?;
        let (http, metrics, mount) = (self.http, self.metrics, self.mount);
        Ok(ReplicaService { daemon, clock, http, metrics, mount, blocked })
    }
}

/// A ticket from the command line, or from standard input.
fn ticket(text: &str) -> anyhow::Result<Ticket> {
    if text != "-" {
        return Ok(text.parse()?);
    }
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.context("the ticket cannot be read from standard input")?;
    Ok(line.parse()?)
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Join(args) => {
            let (ticket, folder) = (ticket(&args.ticket)?, args.folder);
            let clock: Arc<dyn Clock> = Arc::new(MachineClock);
            let address = ticket.address.clone();
            runtime()?.block_on(join(&folder, ticket, &clock))?;
            println!("{} is a replica of the origin at {address} now", folder.display());
        }
        Command::Run(args) => {
            let json = args.json;
            match args.service() {
                Ok(service) => {
                    let (bar, tell) =
                        (ReplicaBar::show(service.daemon.folder.clone()), teller(json));
                    run_replica(service, move |told| bar.aside(|| tell(told)))?;
                }
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
