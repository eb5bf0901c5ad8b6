//! Access logs on disks.

pub mod contents;
mod input;
mod unpack;

pub use contents::Contents;
pub use input::{LogArgs, Logs, TimeRange};
