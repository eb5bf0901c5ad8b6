//! `lull publish`, `lull rollback`, `lull status`: the commands to local daemons.

mod deadline;
mod distribute;
pub(crate) mod progress;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lull_replication::Path;
use lull_replication::types::Sequence;
use lull_replication_daemon::http::client::{Client, Published, Publishing};
use lull_replication_daemon::service::runtime;
use serde_json::{Value, json};

use distribute::Distributing;

/// The exit code if a state is made, and some awaited replicas are not known to have it.
const NOT_EVERYWHERE: u8 = 3;

const PUBLISH_EXAMPLES: &str = "\
Examples:
  lull publish public --origin /var/lib/lull/origin
      replace the files of all replicas by those of the folder public, atomically
  lull publish public --origin /var/lib/lull/origin --wait paris --wait london
      return when these two replicas have all files
  lull publish public --origin /var/lib/lull/origin --wait paris --timeout 30
      stop waiting after 30 seconds; the files are published all the same
  lull publish docs --origin /var/lib/lull/origin --into manual/en
      replace only the files below manual/en
  lull publish public --origin /var/lib/lull/origin --to '*' --by 06:00
      bring the files to all replicas by six o'clock, in the background as long as that is fast enough
  lull publish public --origin /var/lib/lull/origin --to paris --to 'london-*' --by 90m --json
      to these replicas within 90 minutes; print each change and the report as JSON

The exit code is 0 when the state exists and all replicas of --wait or --to have it; 1 if no state was
created, or the origin ended before it confirmed one; 2 if the arguments are wrong; and 3 if the state
exists, but Lull cannot confirm it for all of --wait or --to: --timeout or --by expired, a replica was
revoked, or the origin ended. After that the replicas still get the files.";

const ROLLBACK_EXAMPLES: &str = "\
Examples:
  lull rollback 41 --origin /var/lib/lull/origin
      restore the files of state 41, as a new state
  lull rollback 41 --origin /var/lib/lull/origin --wait paris --timeout 30
      return when paris has it, or after 30 seconds

The exit code is 0 when the state exists and all replicas of --wait have it; 1 if no state was created, or
the origin ended before it confirmed one; 2 if the arguments are wrong; and 3 if the state exists, but
Lull cannot confirm it for all of --wait: --timeout expired, a replica was revoked, or the origin ended.";

const STATUS_EXAMPLES: &str = "\
Examples:
  lull status /var/lib/lull/origin
      print the replicas and the progress of each
  lull status /var/lib/lull/replica --json
      print everything as JSON

The exit code is 1 if nothing runs there or you lack permission, and 2 if the arguments are wrong.";

/// Publish a folder: replace the files of all replicas by its files
///
/// This is one transaction: no reader sees a part of it. Files that are not in the folder are deleted. The number
/// of the new state is printed as soon as it exists.
#[derive(Debug, clap::Args)]
#[command(after_help = PUBLISH_EXAMPLES)]
pub(crate) struct PublishArgs {
    /// Folder with the files
    #[arg(value_name = "DIR")]
    source: PathBuf,
    /// Folder of the origin, which must run
    #[arg(long, value_name = "DIR")]
    origin: PathBuf,
    /// Replace only the files below this folder of the replicas
    #[arg(long, value_name = "FOLDER")]
    into: Option<OsString>,
    /// Accept a folder without files, and delete all published files
    #[arg(long)]
    delete_all: bool,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    distributing: Distributing,
}

#[derive(Debug, clap::Args)]
struct Waiting {
    /// Wait until this replica shows the state and has the bodies of the files that this command wrote. Lull does not
    /// wait for bodies that are never pushed, were overwritten since, or exceed --quota. May be repeated
    #[arg(long, value_name = "NAME")]
    wait: Vec<String>,
    /// Maximum time to wait, in seconds [default: no limit]
    #[arg(long, value_name = "S", value_parser = lull_cli::arguments::seconds)]
    timeout: Option<Duration>,
}

impl Waiting {
    /// The exit code, once all of them have it or it is known why not: the state is made in any case.
    async fn until(&self, client: &Client, sequence: Sequence, within: Option<&Path>) -> ExitCode {
        let waiting = client.wait_for_files(&self.wait, sequence, within, self.timeout);
        match progress::arrivals(client, &self.wait, waiting).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                crate::print_error(&error.into());
                ExitCode::from(NOT_EVERYWHERE)
            }
        }
    }
}

/// Restore the files of an earlier state
#[derive(Debug, clap::Args)]
#[command(after_help = ROLLBACK_EXAMPLES)]
pub(crate) struct RollbackArgs {
    /// Number of the state
    #[arg(value_name = "STATE")]
    to: u64,
    /// Folder of the origin, which must run
    #[arg(long, value_name = "DIR")]
    origin: PathBuf,
    #[command(flatten)]
    waiting: Waiting,
}

/// Show the status of a local origin or replica
#[derive(Debug, clap::Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Folder of the origin or replica
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn publish(args: PublishArgs) -> anyhow::Result<ExitCode> {
    if args.waiting.timeout.is_some()
        && args.waiting.wait.is_empty()
        && args.distributing.to.is_empty()
    {
        let text = "--timeout limits a wait: add --wait or --to".to_owned();
        crate::print_error(&crate::UsageError(text).into());
        return Ok(ExitCode::from(crate::USAGE));
    }
    let into = match args.into.as_deref().map(|into| Path::from_bytes(into.as_bytes())).transpose()
    {
        Ok(into) => into,
        Err(error) => {
            crate::print_error(&crate::UsageError(format!("--into: {error}")).into());
            return Ok(ExitCode::from(crate::USAGE));
        }
    };
    let client = Client::new(args.origin);
    runtime()?.block_on(async {
        // Before any work: a name may be wrong.
        client.joined(&args.waiting.wait).await?;
        let names = args.distributing.names(&client).await?;
        let publishing = Arc::new(Publishing::default());
        let (source, delete_all) = (&args.source, args.delete_all);
        let work = client.publish_showing(source, into.as_ref(), delete_all, &publishing);
        let published = progress::publication(&publishing, work).await?;
        print_published(&published, args.distributing.is_json());
        if !names.is_empty() {
            let what = (&published, into.as_ref());
            return args.distributing.until(&client, &names, what, args.waiting.timeout).await;
        }
        Ok(args.waiting.until(&client, published.sequence, into.as_ref()).await)
    })
}

fn print_published(published: &Published, json: bool) {
    let Published { sequence, put, deleted, unchanged, bytes, .. } = published;
    if json {
        let line = json!({
            "event": "published", "state": sequence.0, "put": put, "deleted": deleted,
            "unchanged": unchanged, "bytes": bytes,
        });
        println!("{line}");
    } else {
        println!(
            "state {}: {put} files put, {deleted} deleted, {unchanged} unchanged; {bytes} bytes sent",
            sequence.0
        );
    }
}

pub(crate) fn rollback(args: RollbackArgs) -> anyhow::Result<ExitCode> {
    if args.waiting.timeout.is_some() && args.waiting.wait.is_empty() {
        let text = "--timeout limits a wait: add --wait".to_owned();
        crate::print_error(&crate::UsageError(text).into());
        return Ok(ExitCode::from(crate::USAGE));
    }
    let client = Client::new(args.origin);
    runtime()?.block_on(async {
        client.joined(&args.waiting.wait).await?;
        let sequence = client.rollback(Sequence(args.to)).await?;
        println!("state {}: as in state {}", sequence.0, args.to);
        Ok(args.waiting.until(&client, sequence, None).await)
    })
}

pub(crate) fn status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let (runtime, client) = (runtime()?, Client::new(args.folder));
    let text = runtime.block_on(client.status())?;
    if args.json {
        print!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    let status: Value = serde_json::from_str(&text)?;
    // Twice, for a rate, if anything is in transfer.
    let begun = Instant::now();
    let mut before = status.clone();
    let mut status = status;
    let mut seconds = 1.0;
    if is_moving(&status) {
        std::thread::sleep(CHECK_INTERVAL);
        let later: Value = serde_json::from_str(&runtime.block_on(client.status())?)?;
        before = core::mem::replace(&mut status, later);
        seconds = begun.elapsed().as_secs_f64();
    }
    match (&status["replicas"], &before["replicas"]) {
        (Value::Array(replicas), Value::Array(before)) => {
            of_origin(&status, replicas, before, seconds);
        }
        _ => {
            of_replica(&status);
            if let Some(text) = progress::transfer_text(&before, &status, seconds) {
                println!("  in transit: {text}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Pause between the two checks for a rate.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Whether bodies are in transfer to the replica, or to one of the origin's connected replicas.
fn is_moving(status: &Value) -> bool {
    let moves = |one: &Value| {
        one["connected"] == true
            && progress::transfer_text(one, one, CHECK_INTERVAL.as_secs_f64()).is_some()
    };
    match &status["replicas"] {
        Value::Array(replicas) => replicas.iter().any(moves),
        _ => moves(status),
    }
}

fn of_origin(status: &Value, replicas: &[Value], before: &[Value], seconds: f64) {
    println!(
        "state {}, {} objects, {} bytes; rollbacks reach back to state {}, with {} overwritten bytes",
        status["sequence"],
        status["objects"],
        status["bytes"],
        status["log_after"],
        status["overwritten_bytes"]
    );
    if let Some(lost @ 1..) = status["lost"].as_u64() {
        println!("  {lost} bodies are missing or corrupt: publish their files again");
    }
    if status["disk_full"] == true {
        println!(
            "  the disk was full within the last minute: writes are rejected until there is \
                  space"
        );
    }
    if let Some(store) = status["store"].as_str() {
        match status["store_away"].as_str() {
            Some(why) => println!("  {why}: files over 16 KiB are refused until it answers"),
            None => println!("  files over 16 KiB are stored in {store}"),
        }
    }
    if let Some(log) = status["log"].as_object() {
        println!("  {}", log_text(log));
    }
    if status["rotating"] == true {
        println!("  the CA is being replaced: lull origin rotate --finish ends that");
    }
    for one in replicas {
        println!("  {}", one_replica(one));
        // The relay sends to those below it.
        if one["below"].is_null() {
            println!("    sent: {}", sent_text(one));
        }
        let earlier = before.iter().find(|other| other["name"] == one["name"]).unwrap_or(one);
        if one["connected"] == true
            && let Some(text) = progress::transfer_text(earlier, one, seconds)
        {
            println!("    in transit: {text}");
        }
    }
}

/// The bytes that were sent to a replica, as text.
fn sent_text(one: &Value) -> String {
    let urgent = one["urgent_bytes"].as_u64().unwrap_or(0);
    let background = one["speculative_bytes"].as_u64().unwrap_or(0).saturating_sub(urgent);
    let urgent = match urgent {
        0 => String::new(),
        bytes => format!(", {bytes} to meet a deadline"),
    };
    format!(
        "{} bytes of control, {} on demand, {background} in the background{urgent}",
        one["control_bytes"], one["demand_bytes"]
    )
}

/// The log that several origins share, on one line.
fn log_text(log: &serde_json::Map<String, Value>) -> String {
    if let Some(why) = log["away"].as_str() {
        return format!("{why}: writes are rejected until it answers");
    }
    let text = |name: &str| log[name].as_str().unwrap_or_default().to_owned();
    let standbys: Vec<_> = log["standbys"].as_array().into_iter().flatten().collect();
    let standbys: Vec<_> = standbys.into_iter().filter_map(Value::as_str).collect();
    let standing = match &standbys[..] {
        [] => "no origin stands by".to_owned(),
        all => format!("standing by: {}", all.join(", ")),
    };
    format!(
        "the log is in {}, at message {} with {} replicas; the writer is {}; {standing}",
        text("log"),
        log["last"],
        log["replicas"],
        text("writer")
    )
}

/// A replica's name, state and figures on one line, as its origin knows them.
fn one_replica(one: &Value) -> String {
    let name = one["name"].as_str().unwrap_or_default();
    let state = match (one["admitted"] == true, one["connected"] == true) {
        (false, _) => "not admitted",
        (true, false) => "away",
        (true, true) if one["lag"] == 0 => "up to date",
        (true, true) => "catching up",
    };
    let least = if one["never_connected"] == true { " at least" } else { "" };
    let mut more = String::new();
    if let Some(lag) = one["lag"].as_u64() {
        more += &format!(", {lag} behind{least}");
    }
    // For a connected one the line below has more.
    if let Some(queue @ 1..) = one["queue"].as_u64().filter(|_| one["connected"] != true) {
        more += &format!(", {queue} bodies in its queue");
    }
    if let Some(seconds) = one["staleness_seconds"].as_f64() {
        let bound = if one["stale_at_least"] == true { "least" } else { "most" };
        more += &format!(", stale by {seconds:.1} s at {bound}");
    }
    more += &stock_text(one);
    if let Some(seconds) = one["silent_seconds"].as_f64() {
        more += &format!(", no message for {seconds:.0} s{least}");
    }
    if let Some(seconds) = one["served_while_disconnected_seconds"].as_f64() {
        more += &if one["never_connected"] == true {
            ", reads answered for all of that at most".to_owned()
        } else {
            format!(", reads answered for {seconds:.0} s at most")
        };
    }
    if let [Some(least), Some(most)] = [0, 1].map(|at| one["skew_seconds"][at].as_f64()) {
        more += &format!(", its clock ahead by {least:.3} to {most:.3} s");
    }
    if one["to_renew"] == true {
        more += ", needs a new certificate";
    }
    if let Some(at) = one["to_reach"].as_u64() {
        more += &format!(", old session tokens stay valid until it reaches state {at}");
    }
    let below = one["below"].as_str().map_or_else(String::new, |relay| format!(" below {relay}"));
    format!("{name}: {state}{below}{}", more.replacen(',', ";", 1))
}

/// The shares of objects and bytes that a replica has, and what it leaves out.
fn stock_text(one: &Value) -> String {
    let unsubscribed = unsubscribed_text(one);
    let of = if unsubscribed.is_some() { "the subscribed" } else { "the" };
    let mut text = String::new();
    for what in ["objects", "bytes"] {
        let left = one[format!("unsubscribed_{what}")].as_u64().unwrap_or(0);
        let all = one[what].as_u64().map(|all| all.saturating_sub(left));
        if let (Some(part), Some(all @ 1..)) = (one[format!("valid_{what}")].as_u64(), all) {
            let share = 100.0 * part as f64 / all as f64;
            text += &format!(", has {share:.1} % of {of} {what}");
        }
    }
    let more = unsubscribed.into_iter().chain(costs_text(one));
    text + &more.map(|more| format!(", {more}")).collect::<String>()
}

/// The bytes that a replica leaves out, because it does not subscribe to them; none if it takes all.
fn unsubscribed_text(status: &Value) -> Option<String> {
    status["only"].as_array().filter(|only| !only.is_empty())?;
    let count = |name: &str| status[name].as_u64();
    let (objects, bytes) = (count("unsubscribed_objects")?, count("unsubscribed_bytes")?);
    Some(format!("{objects} objects with {bytes} bytes are not subscribed to"))
}

/// The price of a replica's link, and what was saved; none if it has none.
fn costs_text(status: &Value) -> Option<String> {
    let saved = status["saved_bytes"].as_u64();
    let saved =
        saved.map_or_else(String::new, |bytes| format!(": {bytes} bytes were not transferred"));
    if status["metered"] == true {
        return Some(format!("the link is metered, files come when they are read{saved}"));
    }
    let reads = status["reads_per_gb"].as_f64()?;
    Some(format!("files below {reads} reads per GB come when they are read{saved}"))
}

/// The bytes that a replica has exchanged with neighbours; none if it does not share.
fn neighbours_text(status: &Value) -> Option<String> {
    let count = status["neighbours"].as_u64()?;
    let (got, given) = (&status["neighbour_bytes"], &status["given_bytes"]);
    let noun = if count == 1 { "neighbour" } else { "neighbours" };
    Some(format!("{count} {noun}: {got} bytes received from neighbours, {given} sent to them"))
}

/// The patterns of a replica's subscription, and how many objects each matches.
fn patterns_text(status: &Value) -> String {
    let only = status["only"].as_array().into_iter().flatten();
    let one = |one: &Value| {
        let pattern = one["pattern"].as_str().unwrap_or_default();
        format!("--only {pattern} matches {}", one["objects"])
    };
    only.map(one).collect::<Vec<_>>().join(", ")
}

fn of_replica(status: &Value) {
    let connected = match (status["connected"] == true, status["refused"].is_string()) {
        (true, _) => "connected",
        (false, true) => "rejected by the origin",
        (false, false) => "not connected",
    };
    println!(
        "state {}, {connected}; {} of {} objects and {} of {} bytes are here",
        status["sequence"],
        status["valid_objects"],
        status["objects"],
        status["valid_bytes"],
        status["bytes"]
    );
    if let Some(text) = unsubscribed_text(status) {
        println!("  {text}: {}", patterns_text(status));
    }
    if let Some(text) = costs_text(status) {
        println!("  {text}");
    }
    match status["staleness_seconds"].as_f64() {
        Some(seconds) => println!("  stale by {seconds:.1} s at most"),
        None => println!("  no message from the origin since the start: reads wait"),
    }
    if let (Some(away), Some(served)) = (
        status["disconnected_seconds"].as_f64(),
        status["served_while_disconnected_seconds"].as_f64(),
    ) {
        println!(
            "  no connection for {away:.1} s; for {served:.1} s of that all reads were answered"
        );
    }
    let last = |what: &str| status["last_outage"][what].as_f64();
    if let (Some(began), Some(lasted), Some(served)) =
        (last("began_seconds_ago"), last("lasted_seconds"), last("served_seconds"))
    {
        println!(
            "  a connection was lost {began:.0} s ago, for {lasted:.1} s; for {served:.1} s of that all reads \
             were answered"
        );
    }
    println!(
        "  {} commits wait to be applied, {} reads wait",
        status["buffered"], status["waiting"]
    );
    println!(
        "  received: {} bytes on demand, {} in the background; sent: {} bytes of control",
        status["demand_bytes"], status["speculative_bytes"], status["control_bytes"]
    );
    if let Some(text) = neighbours_text(status) {
        println!("  {text}");
    }
    if let [Some(least), Some(most)] = [0, 1].map(|at| status["skew_seconds"][at].as_f64()) {
        println!("  the clock is ahead of the origin's by {least:.3} to {most:.3} s");
    }
    if status["disk_full"] == true {
        println!(
            "  the disk was full within the last minute: reads of newer state wait until there is \
             space"
        );
    }
    if let Some(why) = status["refused"].as_str() {
        println!("  refused: {why}");
    }
}
