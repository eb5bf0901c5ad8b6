//! The saved form of a model: numbers as bytes, versions, and why a model cannot be read.

mod format;
mod wire;

pub(crate) use format::{AGED, OLDEST, SHARED};
pub use format::{ReadError, VERSION};
pub(crate) use wire::{Sink, Source};
