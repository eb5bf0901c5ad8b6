//! The versions of the format, and why a model cannot be read.

use std::io;

use lull_cc::Bytes;

/// The version of the saved form. Earlier ones are readable as well.
pub const VERSION: u16 = 4;
/// The oldest readable version.
pub(crate) const OLDEST: u16 = 2;
/// The first version whose counts age by answers as well, and whose contexts have undecayed counts.
pub(crate) const AGED: u16 = 3;
/// The first version of models that servers share.
pub(crate) const SHARED: u16 = 4;

/// Why a model cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It does not begin like a model.
    #[error("this is not a model")]
    NoModel,
    /// Another version of the program wrote it.
    #[error(
        "the model has version {0}, and this program reads versions {OLDEST} to {VERSION}: use the program that \
         wrote it, or train a new model"
    )]
    Version(u16),
    /// It ends too early.
    #[error("the model is truncated: use an older copy, or train it again")]
    Truncated,
    /// Its bytes have changed since they were written.
    #[error("the model is damaged, its checksum is wrong: use an older copy, or train it again")]
    Checksum,
    /// It has contents that no model has.
    #[error("the model is damaged, its {0} is invalid: use an older copy, or train it again")]
    Invalid(&'static str),
    /// It may grow beyond the granted memory.
    #[error(
        "the model may need {needed} of memory, and {most} are allowed: train one with lower \
             limits"
    )]
    TooLarge {
        /// Its memory at its limits.
        needed: Bytes,
        /// The granted memory.
        most: Bytes,
    },
    /// It could not be read at all.
    #[error(transparent)]
    Io(io::Error),
}
