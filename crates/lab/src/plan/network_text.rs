//! A network in the text of a plan.

use lull_cc::Rate;
use lull_emulator::{Buffer, Discipline};
use serde::Deserialize;

use super::spelled::{Size, Spelled, Time};

/// The keys of a network.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkText {
    pub(super) kind: Option<NetworkKind>,
    pub(super) rate: Option<Spelled<Rate>>,
    pub(super) rtt: Option<Spelled<Time>>,
    pub(super) buffer: Option<Spelled<Buffer>>,
    pub(super) queue: Option<Spelled<Discipline>>,
    pub(super) reverse_rate: Option<Spelled<Rate>>,
    pub(super) reverse_buffer: Option<Spelled<Buffer>>,
    pub(super) control: Option<String>,
    pub(super) processors: Option<f64>,
    pub(super) left: Option<usize>,
    pub(super) right: Option<usize>,
    pub(super) separate: Option<bool>,
    pub(super) bottlenecks: Option<usize>,
    pub(super) demand_of: Option<String>,
    pub(super) spare: Option<f64>,
    pub(super) access_rate: Option<Spelled<Rate>>,
    pub(super) access_delay: Option<Spelled<Time>>,
    pub(super) packet: Option<Spelled<Size>>,
    pub(super) header: Option<Spelled<Size>>,
}

impl NetworkText {
    /// A key of the simulator that is set, if any.
    pub(super) fn simulated_key(&self) -> Option<&'static str> {
        [
            ("bottlenecks", self.bottlenecks.is_some()),
            ("demand_of", self.demand_of.is_some()),
            ("spare", self.spare.is_some()),
            ("access_rate", self.access_rate.is_some()),
            ("access_delay", self.access_delay.is_some()),
            ("packet", self.packet.is_some()),
            ("header", self.header.is_some()),
        ]
        .into_iter()
        .find_map(|(key, is)| is.then_some(key))
    }

    /// A key of programs on emulated hosts that is set, if any.
    pub(super) fn key_of_programs(&self) -> Option<&'static str> {
        [
            ("control", self.control.is_some()),
            ("processors", self.processors.is_some()),
            ("separate", self.separate.is_some()),
        ]
        .into_iter()
        .find_map(|(key, is)| is.then_some(key))
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum NetworkKind {
    #[default]
    Emulator,
    Simulator,
    Wire,
    None,
}

/// The number of a host whose name is `word` and a number.
pub(super) fn numbered(host: &str, word: &str) -> Option<usize> {
    host.strip_prefix(word)?.parse().ok()
}
