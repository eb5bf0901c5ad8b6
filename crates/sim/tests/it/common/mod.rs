//! Shared functions of tests of whole simulations.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use lull_cc::{Rate, Reno, Timestamp, Window};
use lull_sim::link::LinkParameters;
use lull_sim::queue::Limit;
use lull_sim::tcp::{DelayedAck, Parameters};
use lull_sim::traffic::{ControllerFactory, Demand, Flow, Tcp};
use lull_sim::{Dumbbell, LinkId, NodeId, Simulation, SourceId};

pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) fn seconds(seconds: u64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

pub(crate) fn mbit(megabits: u64) -> Rate {
    Rate::from_bits_per_second(megabits * 1_000_000)
}

/// The seed of the tests: `LULL_SEED`, otherwise a fixed one.
pub(crate) fn seed() -> u64 {
    let seed = lull_testing::trace::seed();
    println!("LULL_SEED={seed}");
    seed
}

/// A simulation of two routers and two links between them.
pub(crate) struct Path {
    pub(crate) simulation: Simulation,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) forward: LinkId,
    pub(crate) back: LinkId,
}

/// A path of one link in each direction.
pub(crate) fn path(forward: LinkParameters, back: LinkParameters, seed: u64) -> Path {
    let built =
        Dumbbell { bottleneck: forward, back: Some(back), access: vec![], pairs: 1 }.build();
    Path {
        simulation: Simulation::new(built.topology, seed),
        from: built.left[0],
        to: built.right[0],
        forward: built.bottleneck,
        back: built.back,
    }
}

/// A bottleneck of this rate, a round-trip time of twice the delay, and a buffer in packets.
pub(crate) fn bottleneck(rate: Rate, delay: Duration, buffer: u64, seed: u64) -> Path {
    let link = LinkParameters::drop_tail(rate, delay, Limit::Packets(buffer));
    path(link, LinkParameters::delay(delay), seed)
}

/// Packets of 1500 bytes, each acknowledged.
pub(crate) fn without_delayed_acks() -> Parameters {
    Parameters { delayed_ack: DelayedAck::OFF, ..Parameters::default() }
}

pub(crate) fn reno() -> ControllerFactory {
    ControllerFactory::new(|| Reno::with_window(Window::TWO))
}

impl Path {
    /// Adds a backlogged flow that starts at once.
    pub(crate) fn backlogged(
        &mut self,
        parameters: Parameters,
        controller: ControllerFactory,
    ) -> SourceId {
        self.flow(parameters, controller, 0, Timestamp::ZERO, Demand::Backlogged)
    }

    pub(crate) fn flow(
        &mut self,
        parameters: Parameters,
        controller: ControllerFactory,
        dscp: u8,
        start: Timestamp,
        demand: Demand,
    ) -> SourceId {
        let tcp = Tcp { parameters: parameters.into(), controller, dscp };
        let (from, to) = (self.from, self.to);
        let flow = Flow { from, to, tcp, start, stop: None, demand };
        self.simulation.add_flow(flow).expect("the path connects its ends")
    }
}
