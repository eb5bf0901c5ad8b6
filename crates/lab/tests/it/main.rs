//! The integration tests of this crate, in one program so that it is linked once.

mod cells;
mod common;
mod networks;
mod probes;
mod programs;
mod recorded;
mod shipped;
mod simulated;
mod simulated_memory;
mod visitors;
