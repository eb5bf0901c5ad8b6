//! `lull replica`: a copy of the origin's files.

use std::ffi::OsString;
use std::io::BufRead;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::Uri;
use lull_cc::{Bytes, Rate};
use lull_replication::origin::Strategy;
use lull_replication::replica::{Config, Order, Staleness};
use lull_replication::subscription::{Pattern, Subscription};
use lull_replication_daemon::daemon::{
    Clock, MachineClock, RelayOptions, ReplicaOptions, ShareOptions, bytes_per_read, join,
};
use lull_replication_daemon::http::Blocked;
use lull_replication_daemon::identity::Ticket;
use lull_replication_daemon::service::{ReplicaService, run_replica, runtime};
use lull_transport::Dscp;

use crate::origin::{clock, congestion_control, logger};
use crate::publish::progress::ReplicaBar;
use lull_cli::arguments::seconds;

pub(crate) const EXAMPLES: &str = "\
Examples:
  lull replica join lull1… /var/lib/lull/replica
      join once, with a ticket of lull origin ticket
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --mount /srv/files
      serve the files over HTTP, and show them in a folder
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --only 'docs/**'
      receive only the files below docs; fetch others when they are read
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --metered
      receive no file before it is read
  lull replica run /var/lib/lull/replica --relay 0.0.0.0:7071
      serve other replicas, which run with --via

The exit code is 0 on success, 1 on failure, and 2 if the arguments are wrong.";

const JOIN_EXAMPLES: &str = "\
Examples:
  lull replica join lull1… /var/lib/lull/replica
      create the folder with a private key, which stays there
  lull replica join - /var/lib/lull/replica
      read the ticket from standard input, so that process lists and the shell's history do not show it

The exit code is 1 if the origin cannot be reached or rejects the ticket, or if the folder belongs to
another replica; and 2 if the arguments are wrong.";

const RUN_EXAMPLES: &str = "\
Examples:
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80
      let a read that cannot be answered now wait
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --blocked error --patience 1
      answer it with 503 after a second
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --blocked https://london.example
      redirect it to another replica
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --metrics 127.0.0.1:9090
      serve status and metrics on this address only, not to all readers
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --via one.example:7071 --via two.example:7071 --or-origin
      get the files from a relay, from another one if that is lost, or from the origin
  lull replica run /var/lib/lull/replica --s3 127.0.0.1:9000
      serve the files as the bucket lull to programs that read from S3
  lull replica run /var/lib/lull/replica --nfs 127.0.0.1:2049
      export the files by NFS
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --origin new.example:7070
      use the new address of the origin; it is remembered
  sudo lull replica run /var/lib/lull/replica --mount /srv/files
      show the files in an empty folder, read-only, to all users of this machine
  sudo lull replica run /var/lib/lull/replica --mount /srv/files --blocked error --patience 1
      let an open that must wait fail with ETIMEDOUT after a second
  sudo lull replica run /var/lib/lull/replica --mount /srv/files --keep 86400
      keep the states of the last day as folders in /srv/files/.lull; ls -l shows their numbers and times
  lull replica run /var/lib/lull/replica --http 0.0.0.0:80 --price-per-gb 1000
      receive a file of 1 MB only if it is likely to be read before it is overwritten, and a smaller one for less
  lull replica run /var/lib/lull/replica --http 127.0.0.1:0 --delta 5 --json
      serve reads that are at most 5 s stale while connected, on a free port that is logged as JSON

The exit code is 0 after SIGTERM or SIGINT; 1 if the replica cannot start, or stops because its disk failed; and
2 if the arguments are wrong.";

/// Run a replica: a server with a copy of the origin's files
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Join(JoinArgs),
    Run(Box<RunArgs>),
}

/// Join an origin with a ticket
///
/// You can use the folder of a former replica of the same origin again, for example after a revocation. Its files
/// are not transferred again.
#[derive(Debug, clap::Args)]
#[command(after_help = JOIN_EXAMPLES)]
pub(crate) struct JoinArgs {
    /// Ticket that lull origin ticket printed, or - to read it from standard input
    #[arg(value_name = "TICKET")]
    ticket: String,
    /// Folder of the replica, used for nothing else
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Run a replica
///
/// All replicas show all writes in the same order, and no file is staler than --delta permits. SIGTERM and SIGINT
/// end the replica. It logs to standard error, one line per event.
/// Set RUST_LOG=warn to log only warnings and errors.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
#[command(group(clap::ArgGroup::new("serves").args(["relay", "share"]).multiple(true)))]
pub(crate) struct RunArgs {
    /// Folder that lull replica join created
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Address that answers GET and HEAD
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Address that serves the files as an S3 bucket named lull, read-only and without signatures
    #[arg(long, value_name = "HOST:PORT")]
    s3: Option<String>,
    /// Address that exports the files by NFS, version 3, read-only
    #[arg(long, value_name = "HOST:PORT")]
    nfs: Option<String>,
    /// Address that serves /.lull/status and /.lull/metrics [default: that of the files, for all readers]
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// New address of the origin, which is remembered [default: that of the ticket or of the last --origin]
    #[arg(long, value_name = "HOST:PORT")]
    origin: Option<String>,
    /// Address that serves other replicas; needs a ticket of lull origin ticket --relay
    #[arg(long, value_name = "HOST:PORT")]
    relay: Option<String>,
    /// Address that exchanges pieces of files above 4 MiB with other replicas in the same network that have --share,
    /// too. They learn this address. The host 0.0.0.0 stands for the address of the connection to the origin
    #[arg(long, value_name = "HOST:PORT")]
    share: Option<String>,
    /// With --relay or --share: congestion control of pushes in the background. If the kernel does not have it, Lull
    /// paces them itself [default: lull; or nice, if only that is loaded]
    #[arg(long, value_name = "NAME", value_parser = congestion_control, requires = "serves")]
    cc: Option<String>,
    /// With --relay or --share: DSCP of background packets, le or none [default: le]
    #[arg(long, value_name = "DSCP", value_parser = lull_cli::arguments::dscp, requires = "serves")]
    dscp: Option<Dscp>,
    /// Address of the relay from which this replica receives everything, instead of the origin. May be repeated: each
    /// further relay is tried when those before it do not answer
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "origin")]
    via: Vec<String>,
    /// Connect to the origin if no relay of --via answers
    #[arg(long, requires = "via")]
    or_origin: bool,
    /// Empty folder in which the files are mounted, read-only; needs root
    #[arg(long, value_name = "FOLDER")]
    mount: Option<PathBuf>,
    /// Handling of a read that cannot be answered now: wait, error, or the URL of another replica. That
    /// replica answers it or says why not, and redirects no further. In a mount, a URL means error
    #[arg(long, value_name = "HOW", default_value = "wait")]
    blocked: String,
    /// Seconds until a blocked read fails or is redirected
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    patience: Duration,
    /// Maximum staleness of a read, in seconds, while the origin is connected: for how long the file may have had a
    /// newer version
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    delta: Duration,
    /// Maximum staleness of a read, in seconds, while the origin is not connected; none for no bound [default: 3600, or
    /// --delta if that is more]. After a start, reads wait until the origin was connected once
    #[arg(long, value_name = "S")]
    delta_disconnected: Option<String>,
    /// Maximum difference of the clocks of origin and replica, in seconds, for which these clocks measure staleness. If
    /// they differ more, or the difference is unknown, Lull measures staleness by round trips
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    max_skew: Duration,
    /// Strategy to use instead of the origin's. With trip, a file keeps its old content until the new body
    /// has arrived, for at most Δ. With the others, invalidations are applied at once
    #[arg(long, value_name = "STRATEGY")]
    strategy: Option<Strategy>,
    /// Answer a read although an earlier one still waits, for example for a body. By default later reads wait as well.
    /// Use it if readers do not depend on each other
    #[arg(long)]
    aggressive: bool,
    /// Receive only the bodies of files whose names match this pattern, such as docs/** or **/*.html. * stands for
    /// any part of a name, ** for any number of names. Other files are fetched when they are read. May be repeated
    /// [default: all files]
    #[arg(long, value_name = "PATTERN")]
    only: Vec<OsString>,
    /// The link is metered: receive no file before it is read. Names, sizes and times of all files are received
    #[arg(long, conflicts_with_all = ["only", "price_per_gb", "price_per_hour"])]
    metered: bool,
    /// Price of a gigabyte over this link, in reads: receive a file only if it is likely to be read that often for each
    /// gigabyte before it is overwritten. Other files are fetched when they are read. With 1000, a file of 1 MB must be
    /// expected to be read once [default: no price]
    #[arg(long, value_name = "READS", value_parser = price)]
    price_per_gb: Option<f64>,
    /// The same for a link that is paid by the hour: what an hour costs, in reads. --link-rate says what it carries
    #[arg(long, value_name = "READS", value_parser = price, requires = "link_rate", conflicts_with = "price_per_gb")]
    price_per_hour: Option<f64>,
    /// The rate of the link, such as 2mbit
    #[arg(long, value_name = "RATE", requires = "price_per_hour")]
    link_rate: Option<Rate>,
    /// Maximum size of the stored bodies, in megabytes [default: no limit]
    #[arg(long, value_name = "MB")]
    quota: Option<u64>,
    /// Seconds for which overwritten and deleted files stay readable, within the quota: to programs that have
    /// them open, and below .lull in the mount
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    keep: Duration,
    /// Log events as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// A file that skews the clocks; `lull lab torture` writes it
    #[arg(long, value_name = "FILE", hide = true)]
    lab_clock: Option<PathBuf>,
}

impl RunArgs {
    /// Handling of a read that cannot be answered now.
    fn blocked(&self) -> anyhow::Result<Blocked> {
        Ok(match self.blocked.as_str() {
            "wait" => Blocked::Wait,
            "error" => Blocked::Error(self.patience),
            url => {
                let uri = url.parse::<Uri>().ok().filter(|uri| {
                    uri.authority().is_some() && matches!(uri.scheme_str(), Some("http" | "https"))
                });
                let Some(uri) = uri else {
                    let text = format!("--blocked {url}: write wait, error, or http://HOST:PORT");
                    return Err(crate::UsageError(text).into());
                };
                if url.contains(['?', '#']) {
                    let text = format!(
                        "--blocked {url}: leave out query and fragment: each read has its own \
                         query"
                    );
                    return Err(crate::UsageError(text).into());
                }
                Blocked::Redirect(self.patience, uri)
            }
        })
    }

    fn service(self) -> anyhow::Result<ReplicaService> {
        let blocked = self.blocked()?;
        let disconnected = match self.delta_disconnected.as_deref() {
            None => Staleness::default().disconnected.map(|usual| usual.max(self.delta)),
            Some("none") => None,
            Some(text) => Some(seconds(text).map_err(|help| {
                crate::UsageError(format!("--delta-disconnected {text}: {help}, or none"))
            })?),
        };
        if disconnected.is_some_and(|larger| larger < self.delta) {
            let text = "--delta-disconnected is less than --delta: make it the larger one";
            return Err(crate::UsageError(text.to_owned()).into());
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
        let by_hour = self.price_per_hour.zip(self.link_rate);
        let reads_per_gb = self.price_per_gb.or(by_hour.map(|(reads, rate)| per_gb(reads, rate)));
        let config = Config {
            staleness,
            eager: self.strategy.map(Strategy::is_eager),
            order,
            quota,
            ping,
            grace: self.keep,
            bytes_per_read: reads_per_gb.map(bytes_per_read),
            ..Config::default()
        };
        let origin = self.origin;
        let only = if self.metered { Subscription::nothing() } else { subscription(&self.only)? };
        let (cc, dscp) = (self.cc, self.dscp.unwrap_or(Dscp::Le));
        let background = lull_cli::arguments::background(cc, dscp);
        let share = self.share.map(|listen| {
            let background = background.clone();
            ShareOptions { listen, background }
        });
        let relay = self.relay.map(|listen| RelayOptions { listen, background });
        let (folder, via, or_origin) = (self.folder, self.via, self.or_origin);
        let daemon = ReplicaOptions { folder, config, origin, only, via, or_origin, relay, share };
        let clock = clock(self.lab_clock.as_deref())?;
        let (http, s3, nfs) = (self.http, self.s3, self.nfs);
        let (metrics, mount) = (self.metrics, self.mount);
        Ok(ReplicaService { daemon, clock, http, s3, nfs, metrics, mount, blocked })
    }
}

/// The price of a gigabyte over a link that is paid by the hour, in reads.
fn per_gb(reads_per_hour: f64, rate: Rate) -> f64 {
    let hour = Duration::from_secs(3_600).as_secs_f64();
    reads_per_hour / (rate.bytes_per_second() as f64 * hour / 1e9)
}

/// A number of reads above 0.
fn price(text: &str) -> Result<f64, &'static str> {
    let price = text.parse().ok().filter(|price: &f64| price.is_finite() && *price > 0.0);
    price.ok_or("write a number of reads above 0, such as 1000")
}

/// The names that match one of these patterns; all if there are none.
fn subscription(patterns: &[OsString]) -> anyhow::Result<Subscription> {
    if patterns.iter().any(|pattern| pattern == ".") {
        let text = "--only: `.` matches no file; write `**` for all files, or --metered for none";
        return Err(crate::UsageError(text.to_owned()).into());
    }
    let pattern = |text: &OsString| Pattern::new(text.as_bytes());
    let patterns: Result<Vec<_>, _> = patterns.iter().map(pattern).collect();
    let only = patterns.and_then(Subscription::new);
    only.map_err(|error| crate::UsageError(format!("--only: {error}")).into())
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
            println!("{} is now a replica of the origin at {address}", folder.display());
        }
        Command::Run(args) => {
            let json = args.json;
            match args.service() {
                Ok(service) => {
                    let (bar, on_event) =
                        (ReplicaBar::show(service.daemon.folder.clone()), logger(json)?);
                    run_replica(service, move |told| bar.print_above_bar(|| on_event(told)))?;
                }
                Err(error) if error.is::<crate::UsageError>() => {
                    crate::print_error(&error);
                    return Ok(ExitCode::from(crate::USAGE));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_of_an_hour_is_spread_over_its_bytes() {
        // 0.9 GB.
        let rate = Rate::from_bits_per_second(2_000_000);
        assert!((per_gb(180.0, rate) - 200.0).abs() < 1e-6);
    }
}
