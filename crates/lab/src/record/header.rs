//! Where a record comes from.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The first line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The command line. Of the program only the name: where it lies says something about the
    /// machine, and nothing about the run.
    pub command: Vec<String>,
    /// The seed of the first repetition.
    pub seed: u64,
    /// The plan's id, title, and place of the paper.
    pub plan: Value,
    /// SHA-256 of the plan.
    pub plan_hash: String,
    /// The commit of the tree it was run in, with `-dirty` where files were changed; none outside
    /// a tree.
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
    pub fn new(command: Vec<String>, seed: u64, plan: &crate::plan::Plan) -> Self {
        let Origin { command, seed, commit, version, kernel, cores, started_unix_s } =
            Origin::new(command, seed);
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
    pub(crate) fn new(command: Vec<String>, seed: u64) -> Self {
        let kernel = nix::sys::utsname::uname()
            .map(|name| name.release().to_string_lossy().into_owned())
            .unwrap_or_default();
        Origin {
            command: without_folder(command),
            seed,
            commit: commit(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel,
            cores: cores(),
            started_unix_s: now(),
        }
    }
}

/// A command line whose program has lost its folder.
fn without_folder(mut command: Vec<String>) -> Vec<String> {
    if let Some(program) = command.first_mut()
        && let Some(name) = Path::new(program.as_str()).file_name()
    {
        *program = name.to_string_lossy().into_owned();
    }
    command
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

/// The commit of the tree around the working directory, with `-dirty` where files were changed;
/// none outside a tree.
pub fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { commit + "-dirty" })
}
