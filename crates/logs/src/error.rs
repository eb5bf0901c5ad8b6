use std::io;
use std::path::PathBuf;

/// Why logs cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogsError {
    /// The standard input is named twice.
    #[error("'-' is given twice, but standard input can be read only once")]
    StandardInputTwice,
    /// A folder is named as a log.
    #[error("{} is a folder: name the logs in it", .0.display())]
    Folder(PathBuf),
    /// The system cannot read a log.
    #[error("{name} cannot be read")]
    Unreadable {
        /// The name of the log, as messages show it.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
    /// No log has a request, and one has lines: [`Contents::refusal`](crate::Contents::refusal).
    #[error("{0}")]
    Unusable(String),
    /// All requests are of other sites than these.
    #[error("no request is for {}: the logs belong to other sites", .0.join(" or "))]
    OtherSites(Vec<String>),
}
