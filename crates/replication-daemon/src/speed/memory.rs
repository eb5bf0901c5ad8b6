//! The maximum memory of an origin with many objects and replicas.
//!
//! This process is the origin and only writes; a second process has the replicas. They receive every write
//! and take bodies until the origin waits for them, which happens soon. So nearly all bodies wait for all
//! replicas, which is the most that the origin ever has to remember.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lull_replication::origin::Strategy;
use lull_replication::types::{Digest, Position, Sequence};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::swarm::{Board, Swarm, join};
use super::times::rounded;
use super::{Scratch, SpeedError, clock, name_of, origin, raise_files, runtime, tickets, write_of};
use crate::daemon::{OriginDaemon, OriginHandle, OriginOptions};
use crate::identity::Ticket;

/// Connections of a replica; one end is in this process.
const ENDS: u64 = 3;
/// Writes in progress at a time: as many as a durable step takes.
const UNDER_WAY: usize = 256;
/// By how many commits replicas may be behind: half of the log. Beyond the log they would start over.
const BEHIND: u64 = 50_000;
/// How often their progress is checked.
const CHECK_COMMITS: u64 = 5_000;
/// For how long replicas may make no progress.
const MAX_STALL: Duration = Duration::from_secs(120);

/// The size of the run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder in which the origin is created.
    pub folder: PathBuf,
    /// Objects, each written once.
    pub objects: u64,
    /// Replicas.
    pub replicas: u32,
    /// Bytes of each object.
    pub size: usize,
    /// The command that runs [`replicas`] in its own process: a program and its arguments.
    pub program: (PathBuf, Vec<String>),
}

/// The measured resources.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Objects.
    pub objects: u64,
    /// Replicas.
    pub replicas: u32,
    /// Bytes of each object.
    pub bytes: usize,
    /// Until everything was written, and all replicas were informed.
    pub seconds: f64,
    /// Invalidations that they have decoded.
    pub delivered: u64,
    /// Bodies that wait for them, one for each object and replica.
    pub waiting: u64,
    /// Bodies that were sent.
    pub bodies: u64,
    /// The origin's peak memory (`VmHWM`).
    pub most_resident_bytes: u64,
    /// Until an origin with all of them has started again.
    pub start_seconds: f64,
}

/// The order to the process of the replicas, on its standard input.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    folder: PathBuf,
    tickets: Vec<String>,
    sequence: u64,
    chain: [u8; 32],
}

/// Its report at the end, on its standard output.
#[derive(Debug, Serialize, Deserialize)]
struct SwarmReport {
    decoded: u64,
    bodies: u64,
}

/// Its message when all replicas are connected.
const READY: &str = "ready";

/// Writes all objects, and informs all replicas.
///
/// # Errors
/// If the origin, a replica or their process fails, or they make no progress.
pub fn run(settings: &Settings) -> Result<Report, SpeedError> {
    raise_files(settings.replicas, ENDS)?;
    let scratch = Scratch::new(settings.folder.join("memory"))?;
    let runtime = runtime("lull-origin")?;
    let daemon = runtime.block_on(origin(&scratch.0.join("origin"), Strategy::Trip))?;
    let other = Other::start(settings, &scratch.0, &daemon)?;
    let begun = Instant::now();
    let handle = daemon.handle();
    runtime.block_on(write(settings, &handle))?;
    let seconds = rounded(begun.elapsed().as_secs_f64());
    let (sequence, pushed, waiting) = {
        let status = handle.status();
        let waiting: u64 = status.replicas.iter().filter_map(|replica| replica.queue).sum();
        (status.sequence, status.pushed, waiting)
    };
    // Read here, so that it includes nothing after the measurement.
    let most_resident_bytes = most_resident()?;
    let SwarmReport { decoded, bodies } = other.end()?;
    // Some more may have left since the others were counted.
    let sent = handle.status().pushed;
    let expected = settings.objects * u64::from(settings.replicas);
    let adds_up = decoded == expected && waiting + pushed == expected && bodies <= sent;
    if sequence != settings.objects || !adds_up {
        let text = format!(
            "{} objects are {sequence} states; of {expected} invalidations {decoded} were decoded; \
             {waiting} bodies wait, {pushed} were sent, later {sent}, and {bodies} came",
            settings.objects
        );
        return Err(SpeedError::Sums(text));
    }
    runtime.block_on(daemon.stop())?;
    let begun = Instant::now();
    let daemon = runtime.block_on(async {
        let options = OriginOptions::new(scratch.0.join("origin"), "127.0.0.1:0");
        OriginDaemon::start(options, clock(), |_| {}).await
    })?;
    let start_seconds = rounded(begun.elapsed().as_secs_f64());
    runtime.block_on(daemon.stop())?;
    Ok(Report {
        objects: settings.objects,
        replicas: settings.replicas,
        bytes: settings.size,
        seconds,
        delivered: decoded,
        waiting,
        bodies,
        most_resident_bytes,
        start_seconds,
    })
}

/// Writes each object once, never too far ahead of the replicas, and waits for them.
async fn write(settings: &Settings, handle: &OriginHandle) -> Result<(), SpeedError> {
    let names: Vec<String> = (0..settings.replicas).map(name_of).collect();
    let places = Arc::new(Semaphore::new(UNDER_WAY));
    let mut under_way = JoinSet::new();
    for object in 0..settings.objects {
        if object % CHECK_COMMITS == 0 && object > BEHIND {
            wait(handle, &names, object - BEHIND).await?;
        }
        let place = timeout(MAX_STALL, Arc::clone(&places).acquire_owned()).await;
        let place = place.map_err(|_| late("the acknowledgement of a write"))?;
        let transaction = write_of(handle, object, object, settings.size)?;
        let handle = handle.clone();
        under_way.spawn(async move {
            let _place = place;
            handle.write(transaction).await
        });
        while let Some(ended) = under_way.try_join_next() {
            ended.expect("no write panics")?;
        }
    }
    while let Some(ended) = timeout(MAX_STALL, under_way.join_next())
        .await
        .map_err(|_| late("the acknowledgement of a write"))?
    {
        ended.expect("no write panics")?;
    }
    wait(handle, &names, settings.objects).await
}

async fn wait(handle: &OriginHandle, names: &[String], at: u64) -> Result<(), SpeedError> {
    let reached = timeout(MAX_STALL, handle.wait_for_state(names, Sequence(at))).await;
    Ok(reached.map_err(|_| late("state at all replicas"))??)
}

fn late(what: &'static str) -> SpeedError {
    SpeedError::Late { what, after: MAX_STALL }
}

/// The peak memory of this process, in bytes.
pub(super) fn most_resident() -> Result<u64, SpeedError> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(SpeedError::System)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let missing = || SpeedError::System(std::io::ErrorKind::InvalidData.into());
    kib.map(|kib| kib * 1024).ok_or_else(missing)
}

/// The process of the replicas. It is ended when this is dropped.
struct Other {
    child: Child,
    says: Lines<BufReader<ChildStdout>>,
}

fn failed(why: impl std::fmt::Display) -> SpeedError {
    SpeedError::Process(why.to_string())
}

impl Other {
    /// Starts it, and waits until all replicas are connected.
    fn start(
        settings: &Settings,
        folder: &FilePath,
        daemon: &OriginDaemon,
    ) -> Result<Self, SpeedError> {
        let Position { sequence, chain } = daemon.handle().tree().position;
        let tickets = tickets(daemon, settings.replicas)?;
        let order = Order {
            folder: folder.to_owned(),
            tickets: tickets.iter().map(ToString::to_string).collect(),
            sequence: sequence.0,
            chain: chain.0,
        };
        let (program, arguments) = &settings.program;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let says = child.stdout.take().ok_or_else(|| failed("it has no output"))?;
        let mut other = Other { child, says: BufReader::new(says).lines() };
        let mut order = serde_json::to_vec(&order).map_err(failed)?;
        order.push(b'\n');
        let input = other.child.stdin.as_mut().ok_or_else(|| failed("it has no input"))?;
        input.write_all(&order).map_err(failed)?;
        match other.next()? {
            said if said == READY => Ok(other),
            said => Err(failed(format!("it printed '{said}'"))),
        }
    }

    /// Its next message. Ends by a timeout if none comes.
    fn next(&mut self) -> Result<String, SpeedError> {
        match self.says.next() {
            Some(line) => line.map_err(failed),
            None => Err(failed(self.last_words())),
        }
    }

    /// The error messages of the process, after its end.
    fn last_words(&mut self) -> String {
        let mut said = String::new();
        if let Some(errors) = &mut self.child.stderr {
            // Output before an error is still worth showing.
            let _ = errors.read_to_string(&mut said);
        }
        match said.lines().rfind(|line| !line.trim().is_empty()) {
            Some(line) => line.trim_start_matches("lull: ").to_owned(),
            None => "it ended too early".to_owned(),
        }
    }

    /// Ends it; returns its counts.
    fn end(mut self) -> Result<SwarmReport, SpeedError> {
        drop(self.child.stdin.take());
        let told = self.next()?;
        serde_json::from_str(&told).map_err(failed)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process: runs the replicas that its standard input names, until that ends.
///
/// # Errors
/// If its order is invalid, or a replica fails.
pub fn replicas(
    input: impl Read + Send + 'static,
    mut output: impl Write,
) -> Result<(), SpeedError> {
    let mut input = BufReader::new(input);
    let mut line = String::new();
    input.read_line(&mut line).map_err(failed)?;
    let order: Order = serde_json::from_str(&line).map_err(failed)?;
    let tickets: Result<Vec<Ticket>, _> = order.tickets.iter().map(|text| text.parse()).collect();
    let tickets = tickets.map_err(failed)?;
    raise_files(u32::try_from(tickets.len()).unwrap_or(u32::MAX), ENDS)?;
    let from = Position { sequence: Sequence(order.sequence), chain: Digest(order.chain) };
    let board = Arc::new(Board::new(from.sequence, 0));
    let runtime = runtime("lull-swarm")?;
    let followed = runtime.block_on(async {
        let identities = join(&order.folder, tickets).await?;
        let mut swarm = Swarm::connect(identities, from, &board).await?;
        writeln!(output, "{READY}").and_then(|()| output.flush()).map_err(failed)?;
        let (end, mut ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            // Any input and any error are ignored: only the end counts.
            let _ = std::io::copy(&mut input, &mut std::io::sink());
            let _ = end.send(());
        });
        loop {
            swarm.check()?;
            if timeout(Duration::from_millis(50), &mut ended).await.is_ok() {
                return swarm.stop().await;
            }
        }
    });
    followed?;
    let told = SwarmReport { decoded: board.decoded(), bodies: board.bodies() };
    let told = serde_json::to_string(&told).map_err(failed)?;
    writeln!(output, "{told}").and_then(|()| output.flush()).map_err(failed)
}
