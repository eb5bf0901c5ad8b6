//! Errors in a plan, each in one line with a remedy.

use std::path::PathBuf;

/// Why a plan cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There is no plan of that name.
    #[error("there is no plan '{wanted}': the plans are {known}")]
    Unknown {
        /// The requested name or pattern.
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
    /// The contents of the file are invalid.
    #[error("{file}{}: {text}", .line.map(|line| format!(":{line}")).unwrap_or_default())]
    File {
        /// The file's name.
        file: String,
        /// The line, counted from 1, if known.
        line: Option<usize>,
        /// The key, what is wrong with its value, and the allowed values.
        text: String,
    },
    /// A selection has an unknown axis or value.
    #[error("{0}")]
    Selection(String),
}
