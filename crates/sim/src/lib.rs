//! A deterministic packet-level simulator, and the queue disciplines that it shares with the link
//! emulator.
//!
//! Everything in this crate is pure: time comes in as a [`lull_cc::Timestamp`], randomness from an explicit
//! seed, effects are returned as values. Equal calls give equal results on every machine.
//!
//! A download by CUBIC over 10 Mbit/s and a round-trip time of 40 ms:
//!
//! ```
//! use core::time::Duration;
//! use lull_cc::{Cubic, Rate, Timestamp};
//! use lull_sim::link::LinkParameters;
//! use lull_sim::queue::Limit;
//! use lull_sim::tcp::Parameters;
//! use lull_sim::traffic::{ControllerFactory, Demand, Flow, Tcp};
//! use lull_sim::{Dumbbell, Simulation};
//!
//! let rate = Rate::from_bits_per_second(10_000_000);
//! let bottleneck = LinkParameters::drop_tail(rate, Duration::from_millis(20), Limit::Packets(33));
//! let path = Dumbbell { bottleneck, back: None, access: Vec::new(), pairs: 1 }.build();
//! let mut simulation = Simulation::new(path.topology, 1);
//! let controller = ControllerFactory::new(Cubic::new);
//! let tcp = Tcp { parameters: Parameters::default().into(), controller, dscp: 0 };
//! let (from, to, start) = (path.left[0], path.right[0], Timestamp::ZERO);
//! let flow = Flow { from, to, tcp, start, stop: None, demand: Demand::Backlogged };
//! let download = simulation.add_flow(flow)?;
//! simulation.run_until(Timestamp::from_micros(10_000_000));
//! let bits_per_second = simulation.source(download).goodput_bytes() * 8 / 10;
//! assert!((8_000_000..10_000_000).contains(&bits_per_second), "{bits_per_second}");
//! # Ok::<(), lull_sim::topology::NoRouteError>(())
//! ```

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
