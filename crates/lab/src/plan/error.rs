//! What can be wrong with a plan, told in one line with the way out.

use std::path::PathBuf;

/// Why a plan cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There is no plan of that name.
    #[error("there is no plan '{wanted}': there are {known}")]
    Unknown {
        /// The name or the pattern that was asked for.
        wanted: String,
        /// The names of all plans.
        known: String,
    },
    /// The folder of plans cannot be read.
    #[error("the plans in {path} cannot be read: {source}")]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file says something that makes no sense.
    #[error("{file}{}: {text}", .line.map(|line| format!(":{line}")).unwrap_or_default())]
    File {
        /// The file's name.
        file: String,
        /// The line, counted from 1, where it is known.
        line: Option<usize>,
        /// The key, what is wrong with its value, and what may be written instead.
        text: String,
    },
    /// A selection names no axis, or no value of it.
    #[error("{0}")]
    Selection(String),
}
