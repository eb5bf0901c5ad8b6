//! The integration tests of this crate, in one program so that it is linked once.

mod believable;
mod common;
mod downloads;
mod jitter;
mod lull;
mod lull_faults;
mod nice;
mod simulation;
