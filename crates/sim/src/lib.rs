//! A deterministic packet-level simulator, and the queue disciplines that it shares with the link
//! emulator.
//!
//! Everything in this crate is pure: time comes in as a [`lull_cc::Timestamp`], randomness from an explicit
//! seed, effects are returned as values. Equal calls give equal results on every machine.

#![forbid(unsafe_code)]

pub mod events;
pub mod fluid;
pub mod link;
mod memory;
pub mod packet;
pub mod queue;
pub mod random;
pub mod simulation;
pub mod tcp;
pub mod topology;
pub mod trace;
pub mod traffic;

pub use simulation::{Simulation, SourceId};
pub use topology::{Dumbbell, LinkId, NodeId, ParkingLot, Topology};
pub use trace::Trace;
