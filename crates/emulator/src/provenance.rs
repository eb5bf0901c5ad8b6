//! Provenance: the program, machine and time that a record comes from.

use std::iter::once;
use std::time::SystemTime;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde::Serialize;

/// The program that makes a record, with its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its arguments, without its own name.
    pub arguments: Vec<String>,
    /// The commit that it was built from, with `-dirty` if its sources were changed, and then a number for
    /// their contents; none if they were not in a Git tree. The tree of the working directory may differ from
    /// it.
    pub commit: Option<String>,
}

/// The first fields of every record, also of records without a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    /// The command line. The program is always called `lull`.
    pub command: Vec<String>,
    /// The seed of the run.
    pub seed: u64,
    /// The commit that the program was built from; see [`Program::commit`].
    pub commit: Option<String>,
    /// The version of Lull.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// Processors that the run may use.
    pub cores: usize,
    /// The start of the run in seconds since 1970, UTC.
    pub started_unix_s: u64,
}

impl Origin {
    /// Describes a run that begins now, on this machine.
    pub fn new(program: &Program, seed: u64) -> Self {
        let kernel = nix::sys::utsname::uname()
            .map(|name| name.release().to_string_lossy().into_owned())
            .unwrap_or_default();
        Origin {
            command: once("lull".to_owned()).chain(program.arguments.iter().cloned()).collect(),
            seed,
            commit: program.commit.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel,
            cores: cores(),
            started_unix_s: now(),
        }
    }
}

/// Processors that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The processors that this process may use, by number.
pub fn processors() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0));
    let allowed: Vec<usize> = allowed.map_or_else(
        |_| Vec::new(),
        |set| (0..CpuSet::count()).filter(|at| set.is_set(*at).unwrap_or(false)).collect(),
    );
    if allowed.is_empty() { (0..cores()).collect() } else { allowed }
}

/// Seconds since 1970. No other function of the lab reads the date. The emulator reads that clock only
/// to translate the kernel's timestamps.
#[allow(clippy::disallowed_methods)]
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
