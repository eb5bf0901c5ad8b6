//! A link emulator in user space: real TCP stacks over a bottleneck that this process emulates.
//!
//! Every host is a network namespace with one port. A host's packets are routed by destination address. Each
//! direction between the sides has a queue under a discipline of [`lull_sim::queue`], a link of a fixed or
//! recorded rate, and a propagation delay. Hosts of one side are neighbours, without a link between them. With
//! [`Topology::separate`] each right host has such a link of its own.
//!
//! Queue and link run on a virtual clock that depends only on the packets' arrival times. A thread that wakes
//! late loses no capacity. Over packet sockets it adds no queueing either, because the kernel timestamps
//! arrivals. TUN has no timestamps: packets that came while the thread was away count as arriving at once.
//! Every [`Record`] contains how late arrivals were read. It also contains how late packets were delivered at
//! the far end, which depends on timers.
//!
//! ```no_run
//! use lull_emulator::{Emulator, Topology};
//!
//! # fn main() -> Result<(), lull_emulator::Error> {
//! let emulator = Emulator::start(&Topology::default())?;
//! let server = emulator.right(0).clone();
//! let listener = server.enter(|| std::net::TcpListener::bind((server.v4(), 80)))?;
//! emulator.mark("transfer")?;
//! // ... connect from emulator.left(0), or run emulator.left(0).command("curl") ...
//! let record = emulator.finish()?;
//! println!("{:.3} of the link was used", record.total.forward.utilisation());
//! # drop(listener);
//! # Ok(())
//! # }
//! ```
//!
//! One thread moves all packets: 6 % of a processor at 10 Mbit/s, a third at 100 Mbit/s. At
//! 1 Gbit/s it is close to its limit and delivers up to 40 ms late, so keep links at 100 Mbit/s
//! or below.
//!
//! The emulator makes nothing with a name in the file system or a device outside its own namespaces. When the
//! process ends, in any way, everything is removed, and concurrent emulators never interfere.

mod arrival;
mod bottleneck;
mod commands;
mod contain;
mod emulator;
mod engine;
mod error;
mod frame;
mod goodput;
mod host;
mod netlink;
pub mod provenance;
pub mod random;
mod session;
mod socket;
mod statistics;
mod sys;
mod topology;
mod trace;
pub mod traffic;
mod wire;

pub use contain::{Container, Signals, chain, contain};
pub use emulator::Emulator;
pub use error::Error;
pub use host::Host;
pub use lull_sim::Trace;
pub use lull_sim::queue::Discipline;
pub use session::Session;
pub use socket::{set_congestion_control, set_dscp};
pub use statistics::{
    ClassStatistics, Counts, DirectionStatistics, FlowKey, FlowStatistics, LinkDescription, Record,
    Sample, Series, Spread, TopologyDescription, Window, rounded,
};
pub use sys::{end_with_parent, process_exists};
pub use topology::{Backend, Buffer, Link, LinkRate, ParseError, Topology, parse_duration, suited};
pub use trace::read_trace;
pub use wire::Wire;
