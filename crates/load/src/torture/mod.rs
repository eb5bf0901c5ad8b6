//! The real origin and the real replicas while everything around them fails.
//!
//! Each machine is a network namespace of an emulator, with its own disk that forgets unsynced writes
//! ([`LabDisk`]) and its own clocks. Links are cut, daemons are killed with -9, machines lose their power,
//! and clocks are set wrong, by a seed. Meanwhile clients write by HTTP and by `lull publish`, read by HTTP
//! and through mounts, and record their observations, by one clock. Bodies identify themselves.
//!
//! [`judge`] compares the history with the log on the origin's disk at the end. The caller reads that log
//! ([`Watch::judge`]): this library does not know how an origin stores it.
//!
//! Everything is in namespaces of processes, mounts and networks, and its files are in memory. When the
//! process ends, in any way, all of it disappears.

mod body_server;
mod build;
mod clients;
mod coverage;
mod daemon;
mod disk;
mod history;
mod judge;
mod log;
mod log_servers;
mod private_folder;
mod schedule;
mod site;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::geteuid;
use serde::Serialize;

use lull_emulator::provenance::{Origin, Program};
use lull_emulator::{Signals, chain, contain};

pub use disk::{LabDisk, MountError};
pub use history::{
    Allowed, Bounds, Fault, Happened, History, ObjectState, Read, ReadContents, Skews,
    UNKNOWN_BODY, Write, path_of,
};
pub use judge::judge;
pub use log::{ForgottenLogError, changes_of};

/// The number of violations that are described.
const MAX_LISTED: usize = 20;

/// Why a run was not completed.
#[derive(Debug, thiserror::Error)]
pub enum TortureError {
    /// Only root may mount.
    #[error("only root may mount disks and replicas: run it by sudo")]
    Root,
    /// The network.
    #[error(transparent)]
    Network(#[from] lull_emulator::Error),
    /// A disk.
    #[error(transparent)]
    Disk(#[from] MountError),
    /// A program cannot be run.
    #[error("{what} cannot be run")]
    Program {
        /// Which.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// A program has failed.
    #[error("{what} failed: {why}")]
    Refused {
        /// Which.
        what: String,
        /// Its output.
        why: String,
    },
    /// A daemon does not run.
    #[error("{name} {why}")]
    Daemon {
        /// Which machine.
        name: &'static str,
        /// The result.
        why: String,
    },
    /// A system call failed unexpectedly.
    #[error("{what} failed")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// A deliberate fault, which a run has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The origin's disk confirms writes that it does not keep.
    Disk,
    /// A replica's clocks run at half speed, which no promise covers.
    Clock,
}

/// The parts of a run beside an origin with its own disk and three replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The log is in three NATS servers, one of which is killed every ten seconds.
    pub nats: bool,
    /// The bodies are in an S3 server, which is killed or refuses requests every ten seconds.
    pub s3: bool,
    /// One of the replicas serves another one.
    pub relay: bool,
    /// A second origin takes over. It needs the other servers, because it has neither log nor bodies of its own.
    pub standby: bool,
}

/// A run to be made.
#[derive(Clone, Debug)]
pub struct Torture {
    /// Length of the time with faults.
    pub length: Duration,
    /// Determines the faults, the writes and the reads.
    pub seed: u64,
    /// The program `lull`.
    pub program: PathBuf,
    /// The deliberate fault.
    pub sabotage: Option<Sabotage>,
    /// The additional parts.
    pub parts: Parts,
    /// The requested run, for the results.
    pub asked: Program,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Elapsed time with faults.
    pub elapsed: Duration,
    /// Reads that were answered.
    pub reads: u64,
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Faults.
    pub faults: u64,
}

/// The conclusions from the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// States in the recovered log.
    pub states: u64,
    /// Broken promises, in words.
    pub violations: Vec<String>,
    /// Acknowledged writes among them that the log does not contain.
    pub lost_writes: u64,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    origin: Origin,
    /// Length of the time with faults, in seconds.
    pub seconds: f64,
    /// Replicas.
    pub replicas: usize,
    /// Reads that were answered.
    pub reads: usize,
    /// Reads in progress during a fault, at their replica or at the origin.
    pub reads_during_faults: usize,
    /// Reads at times at which their replica must no longer regard itself as away.
    pub reads_in_calm: usize,
    /// Writes that were acknowledged.
    pub writes: usize,
    /// States in the origin's log, as recovered after the last power cut.
    pub states: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Kills of servers of the log, if it is in NATS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_server_kills: Option<u64>,
    /// Faults of the S3 server, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_server_faults: Option<u64>,
    /// The replicas' knowledge of wrong clocks.
    pub skews: Skews,
    /// Broken promises.
    pub violations: usize,
    /// Acknowledged writes among them that the log does not contain.
    pub lost_writes: u64,
    /// The first of them in words.
    pub first_violations: Vec<String>,
    /// Other failures, and missing events.
    pub failures: Vec<String>,
}

impl Results {
    /// Whether there was no violation or failure, in a run that would have shown one.
    pub fn is_clean(&self) -> bool {
        self.violations == 0 && self.failures.is_empty()
    }
}

/// Observes a run and judges it.
pub trait Watch {
    /// The run has progressed.
    fn progress(&mut self, progress: Progress);

    /// The conclusions from the history, by the log in the store of the stopped origin.
    ///
    /// # Errors
    /// If there is no log for the judgement.
    fn judge(
        &mut self,
        history: &History,
        store: &Path,
    ) -> Result<Judgement, Box<dyn std::error::Error + Send + Sync>>;

    /// The results.
    ///
    /// # Errors
    /// If they cannot be shown.
    fn show(&mut self, results: &Results) -> io::Result<()>;
}

impl Torture {
    /// Makes the run; returns the exit code: 0 if there was no violation and enough was done to tell,
    /// otherwise 1. To be called before the first thread is started.
    ///
    /// # Errors
    /// If the machine does not allow it. Later failures are logged, with the exit code 1.
    pub fn run(&self, watch: &mut impl Watch) -> Result<u8, TortureError> {
        if !geteuid().is_root() {
            return Err(TortureError::Root);
        }
        let origin = Origin::new(&self.asked, self.seed);
        Ok(contain(Signals::End, |_| match self.run_contained(watch, origin) {
            Ok(results) => u8::from(!results.is_clean()),
            Err(error) => {
                tracing::error!(target: "lull::torture", "lull: {}", chain(&error));
                1
            }
        })?)
    }

    fn run_contained(
        &self,
        watch: &mut impl Watch,
        origin: Origin,
    ) -> Result<Results, TortureError> {
        let folder = private_folder::PrivateFolder::cover(&self.program)?;
        let mut site = site::Site::build(&folder, self)?;
        let mut history = site.torture(self, |progress| watch.progress(progress))?;
        let judged = watch.judge(&history, &site.recovered_store()?);
        let judgement = judged.unwrap_or_else(|why| {
            history.failures.push(chain(&*why));
            Judgement::default()
        });
        // An aborted run has reported its reason.
        if history.failures.is_empty() {
            history.failures = coverage::missing_events(self.length, &history);
        }
        let faults = history.faults_by_kind();
        let results = Results {
            origin,
            seconds: self.length.as_secs_f64(),
            replicas: history.bounds.len(),
            reads: history.reads.len(),
            reads_during_faults: history.reads_during_faults(),
            reads_in_calm: history.reads_in_calm().iter().sum(),
            writes: history.writes.len(),
            states: judgement.states,
            faults: faults.into_iter().map(|(fault, count)| (fault.name(), count)).collect(),
            log_server_kills: site.log_server_kills(),
            body_server_faults: site.body_server_faults(),
            skews: history.skews,
            violations: judgement.violations.len(),
            lost_writes: judgement.lost_writes,
            first_violations: judgement.violations.into_iter().take(MAX_LISTED).collect(),
            failures: history.failures,
        };
        let shown = watch.show(&results);
        shown.map_err(|source| TortureError::System { what: "showing the results", source })?;
        Ok(results)
    }
}
