//! The cost of files from `lull publish` to a running replica, beside `rsync -a` of the same files in the same run.
//!
//! One process has the origin, the replica and the client, each as in its own process: TLS on the loopback, the client
//! over the origin's socket. Reads of another object take place meanwhile, at fixed times. A read that is not answered
//! when the next one is due counts from when it was due.

use std::path::{Path as FilePath, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lull_replication::origin::{Put, Strategy, Transaction};
use lull_replication::path::Path;
use lull_replication::types::{Metadata, Sequence};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::time::{Instant as Due, sleep_until, timeout};

use super::memory::most_resident;
use super::times::{Spread, Times, rounded};
use super::{SpeedError, clock, name_of, origin, runtime, tickets};
use crate::daemon::{
    OriginDaemon, OriginOptions, ReplicaDaemon, ReplicaHandle, ReplicaOptions, join,
};
use crate::http::OriginHttp;
use crate::http::client::Client;

/// Files in a folder.
const IN_A_FOLDER: u64 = 1_000;
/// How often the other object is read.
const READS: Duration = Duration::from_millis(2);
/// How long the replica may take.
const MOST: Duration = Duration::from_secs(3_600);
/// The object that is read.
const OTHER: &str = "other/file";

/// The published files, and the settings of the publication.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder in which everything is made.
    pub folder: PathBuf,
    /// Numbers of files, each in its own publication.
    pub files: Vec<u64>,
    /// Bytes of each file.
    pub size: usize,
}

/// One publication.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// New files.
    pub files: u64,
    /// Until the replica had all of them.
    pub seconds: f64,
    /// Processor time of origin, replica and client.
    pub processor_seconds: f64,
    /// The same of `rsync -a`.
    pub rsync_seconds: f64,
    /// Its processor time.
    pub rsync_processor_seconds: f64,
    /// How many times as long as `rsync` it took.
    pub ratio: f64,
    /// Reads of another object at the replica meanwhile.
    pub reads: Spread,
}

/// The publications, and their growth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Bytes of each file.
    pub bytes: usize,
    /// From the fewest files to the most.
    pub points: Vec<Point>,
    /// The exponent of the time by the number of files, from the first point to the last; none with one point. A cost
    /// of the same for each file has the exponent 1.
    pub exponent: Option<f64>,
    /// That of the processor time.
    pub processor_exponent: Option<f64>,
    /// Objects at the end.
    pub objects: u64,
    /// Until an origin with all of them has started.
    pub origin_start_seconds: f64,
    /// Until a replica with all of them has started.
    pub replica_start_seconds: f64,
    /// The most memory of this process (`VmHWM`).
    pub most_resident_bytes: u64,
}

/// The exponent of `cost` by the number of files.
fn exponent(points: &[Point], cost: impl Fn(&Point) -> f64) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let growth = (cost(last) / cost(first)).ln() / (last.files as f64 / first.files as f64).ln();
    growth.is_finite().then(|| rounded(growth))
}

/// Processor time of this process, or of its ended children.
fn spent(who: UsageWho) -> Result<Duration, SpeedError> {
    let usage = getrusage(who).map_err(|error| SpeedError::System(error.into()))?;
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

/// This many new files.
fn make(folder: &FilePath, files: u64, size: usize) -> Result<(), SpeedError> {
    for file in 0..files {
        let within = folder.join((file / IN_A_FOLDER).to_string());
        let path = within.join(file.to_string());
        let failed = |source| SpeedError::File { path: path.clone(), source };
        if file % IN_A_FOLDER == 0 {
            std::fs::create_dir_all(&within).map_err(failed)?;
        }
        let mut bytes = format!("{file} of {files} ").into_bytes();
        bytes.resize(size, b'.');
        std::fs::write(&path, bytes).map_err(failed)?;
    }
    Ok(())
}

/// An origin with a replica.
struct Site {
    folder: PathBuf,
    origin: OriginDaemon,
    replica: ReplicaDaemon,
}

impl Site {
    async fn new(folder: PathBuf) -> Result<Self, SpeedError> {
        let origin = origin(&folder.join("origin"), Strategy::Trip).await?;
        let [ticket] = <[_; 1]>::try_from(tickets(&origin, 1)?).expect("one was asked for");
        let place = folder.join("replica");
        join(&place, ticket, &clock()).await?;
        let replica = ReplicaDaemon::start(ReplicaOptions::new(place), clock(), |_| {})?;
        let site = Site { folder, origin, replica };
        let handle = site.origin.handle();
        let mut stager = handle.bodies().stage();
        stager.write(b"another file")??;
        let put = Put::Body(stager.finish()??, Metadata::default());
        let path = Path::new(OTHER).expect("a path");
        let written = handle.write(Transaction { changes: [(path, put)].into() }).await?;
        site.wait(written).await?;
        Ok(site)
    }

    async fn wait(&self, at: Sequence) -> Result<(), SpeedError> {
        let names = [name_of(0)];
        let reached = timeout(MOST, self.origin.handle().wait_for(&names, at)).await;
        let late = SpeedError::Late { what: "the files at the replica", after: MOST };
        Ok(reached.map_err(|_| late)??)
    }

    /// Publishes a folder, and waits until the replica has its files.
    async fn publish(&self, source: &FilePath, into: &Path) -> Result<(), SpeedError> {
        let folder = self.folder.join("origin");
        let failed = |source| SpeedError::File { path: folder.clone(), source };
        let face = OriginHttp::open_local(&folder, self.origin.handle(), None).map_err(failed)?;
        let client = Client::new(&folder);
        let published = client.publish(source, Some(into), false).await;
        let published = published.map_err(|error| SpeedError::Sums(error.to_string()))?;
        self.wait(published.sequence).await?;
        face.close().await;
        Ok(())
    }

    async fn stop(self) -> Result<(), SpeedError> {
        self.replica.stop().await?;
        Ok(self.origin.stop().await?)
    }
}

/// Reads the other object at fixed times until the measurement ends.
async fn read(replica: ReplicaHandle, ends: Arc<AtomicBool>) -> Result<Spread, SpeedError> {
    let path = Path::new(OTHER).expect("a path");
    let (mut due, mut times) = (Due::now(), Times::new());
    while !ends.load(Ordering::Relaxed) {
        sleep_until(due).await;
        let found = replica.object(&path, Sequence::ZERO, Some(MOST)).await;
        times.add(due.elapsed());
        if !matches!(found, Ok((_, Some(_)))) {
            return Err(SpeedError::Sums(format!("a read has found {found:?}")));
        }
        // Reads that were due meanwhile have waited as well, for less time.
        due += READS;
        while due.elapsed() > READS {
            times.add(due.elapsed());
            due += READS;
        }
    }
    Ok(times.spread())
}

fn point(
    runtime: &Runtime,
    site: &Site,
    folder: &FilePath,
    (files, size): (u64, usize),
) -> Result<Point, SpeedError> {
    let source = folder.join(format!("source-{files}"));
    make(&source, files, size)?;
    let into = Path::new(&format!("of-{files}")).expect("a path");
    let ends = Arc::new(AtomicBool::new(false));
    let reads = runtime.spawn(read(site.replica.handle(), Arc::clone(&ends)));
    let (before, begun) = (spent(UsageWho::RUSAGE_SELF)?, Instant::now());
    let published = runtime.block_on(site.publish(&source, &into));
    let (seconds, processor) = (begun.elapsed(), spent(UsageWho::RUSAGE_SELF)? - before);
    ends.store(true, Ordering::Relaxed);
    let reads = runtime.block_on(reads).expect("no read panics")?;
    published?;
    let copy = folder.join(format!("copy-{files}"));
    let (before, begun) = (spent(UsageWho::RUSAGE_CHILDREN)?, Instant::now());
    let mut rsync = Command::new("rsync");
    let ended = rsync.arg("-a").arg(&source).arg(&copy).stdin(Stdio::null()).status();
    let ended = ended.map_err(|error| SpeedError::Process(format!("rsync: {error}")))?;
    if !ended.success() {
        return Err(SpeedError::Process(format!("rsync: {ended}")));
    }
    let rsync = begun.elapsed().as_secs_f64();
    let rsync_processor = spent(UsageWho::RUSAGE_CHILDREN)? - before;
    for path in [source, copy] {
        std::fs::remove_dir_all(&path).map_err(|source| SpeedError::File { path, source })?;
    }
    Ok(Point {
        files,
        seconds: rounded(seconds.as_secs_f64()),
        processor_seconds: rounded(processor.as_secs_f64()),
        rsync_seconds: rounded(rsync),
        rsync_processor_seconds: rounded(rsync_processor.as_secs_f64()),
        ratio: rounded(seconds.as_secs_f64() / rsync),
        reads,
    })
}

/// Publishes these numbers of files one after the other, and starts both daemons again with all of them.
///
/// # Errors
/// If a daemon, the client or `rsync` fails.
pub fn run(settings: &Settings) -> Result<Report, SpeedError> {
    let Settings { folder, files, size } = settings;
    let mut files = files.clone();
    files.sort_unstable();
    let runtime = runtime("lull-publish")?;
    let site = runtime.block_on(Site::new(folder.clone()))?;
    let point = |files| point(&runtime, &site, folder, (files, *size));
    let points = files.into_iter().map(point).collect::<Result<Vec<_>, _>>()?;
    let objects = site.origin.handle().status().objects;
    runtime.block_on(site.stop())?;
    let (origin_start, replica_start) = runtime.block_on(async {
        let begun = Instant::now();
        let options = OriginOptions::new(folder.join("origin"), "127.0.0.1:0");
        let origin = OriginDaemon::start(options, clock(), |_| {}).await?;
        let origin_start = begun.elapsed();
        origin.stop().await?;
        let begun = Instant::now();
        let options = ReplicaOptions::new(folder.join("replica"));
        let replica = ReplicaDaemon::start(options, clock(), |_| {})?;
        let replica_start = begun.elapsed();
        replica.stop().await?;
        Ok::<_, SpeedError>((origin_start, replica_start))
    })?;
    Ok(Report {
        bytes: *size,
        exponent: exponent(&points, |point| point.seconds),
        processor_exponent: exponent(&points, |point| point.processor_seconds),
        points,
        objects,
        origin_start_seconds: rounded(origin_start.as_secs_f64()),
        replica_start_seconds: rounded(replica_start.as_secs_f64()),
        most_resident_bytes: most_resident()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(files: u64, seconds: f64) -> Point {
        Point {
            files,
            seconds,
            processor_seconds: seconds,
            rsync_seconds: 1.0,
            rsync_processor_seconds: 1.0,
            ratio: seconds,
            reads: Spread::default(),
        }
    }

    #[test]
    fn exponent_is_one_for_a_constant_cost_per_file() {
        for (last, expected) in [(100.0, 1.0), (10_000.0, 2.0), (1.0, 0.0)] {
            let points = [point(1_000, 1.0), point(5_000, 7.0), point(100_000, last)];
            assert_eq!(exponent(&points, |point| point.seconds), Some(expected));
        }
        assert_eq!(exponent(&[point(1_000, 1.0)], |point| point.seconds), None);
        assert_eq!(exponent(&[], |point| point.seconds), None);
    }
}
