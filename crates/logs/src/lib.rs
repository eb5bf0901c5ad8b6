//! Access logs on disks: several of them, rotated, compressed, damaged.
//!
//! - [`Logs`] finds logs, sorts them by their times, and reads them as one
//! - [`Contents`] has the figures of a log that was read, and why lines of it were not
//! - [`LogsError`] is why nothing could be read
//!
//! The lines are parsed by [`lull_speculate::log`].
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("access.log");
//! std::fs::write(&path, "192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 5\n")?;
//! let logs = lull_logs::Logs::named(&[path], Default::default())?.in_order()?;
//! let mut targets = Vec::new();
//! let contents = logs.read(|entry| targets.push(entry.target.to_string()))?;
//! assert_eq!((targets, contents[0].entries()), (vec!["/a".to_owned()], 1));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod contents;
mod error;
mod input;
pub mod text;
mod unpack;

pub use contents::Contents;
pub use error::LogsError;
pub use input::{Logs, Meter, TimeRange};
