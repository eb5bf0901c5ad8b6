//! Queue disciplines, written once for the link emulator and for the simulator.
//!
//! Everything in this crate is pure: time comes in as a [`lull_cc::Timestamp`], randomness from
//! an explicit seed, effects go out as values. Equal calls give equal results on every machine.

#![forbid(unsafe_code)]

pub mod fluid;
pub mod queue;
