//! The origin of a record.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The first line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The command line. The program is always `lull`: the name and path of its file depend on the machine,
    /// not on the run.
    pub command: Vec<String>,
    /// The seed of the first repetition.
    pub seed: u64,
    /// The plan's id, title, and source in the paper.
    pub plan: Value,
    /// SHA-256 of the plan.
    pub plan_hash: String,
    /// The commit that the program was built from; see [`Program::commit`](super::Program::commit).
    pub commit: Option<String>,
    /// The version of Lull.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// The number of processors.
    pub cores: usize,
    /// Seconds since 1970, UTC.
    pub started_unix_s: u64,
}
