//! Where a record comes from.

use std::iter::once;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The program that makes a record, as it was called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// What it was called with, without its own name.
    pub arguments: Vec<String>,
    /// The commit that it was built from, with `-dirty` where its sources were other ones, and then a
    /// number for what they were; none if they were in no tree. The tree that a program runs in may be
    /// elsewhere by then.
    pub commit: Option<String>,
}

/// The first line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The command line. The program is `lull`: what its file is called and where it lies says
    /// something about the machine, and nothing about the run.
    pub command: Vec<String>,
    /// The seed of the first repetition.
    pub seed: u64,
    /// The plan's id, title, and place of the paper.
    pub plan: Value,
    /// SHA-256 of the plan.
    pub plan_hash: String,
    /// The commit that the program was built from; see [`Program::commit`].
    pub commit: Option<String>,
    /// The version of Lull.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// Processors.
    pub cores: usize,
    /// Seconds since 1970, UTC.
    pub started_unix_s: u64,
}

impl Header {
    /// A header for a run that begins now, on this machine.
    pub fn new(program: &Program, seed: u64, plan: &crate::plan::Plan) -> Self {
        let Origin { command, seed, commit, version, kernel, cores, started_unix_s } =
            Origin::new(program, seed);
        Header {
            command,
            seed,
            plan: plan.summary(),
            plan_hash: plan.hash.clone(),
            commit,
            version,
            kernel,
            cores,
            started_unix_s,
        }
    }
}

/// What every record opens with, also one of no plan.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Origin {
    command: Vec<String>,
    seed: u64,
    commit: Option<String>,
    version: String,
    kernel: String,
    cores: usize,
    started_unix_s: u64,
}

impl Origin {
    /// Of what begins now, on this machine.
    pub(crate) fn new(program: &Program, seed: u64) -> Self {
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
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Seconds since 1970. The one place of the lab that asks for the date; the emulator reads that
/// clock only to translate the kernel's stamps.
#[allow(clippy::disallowed_methods)]
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
