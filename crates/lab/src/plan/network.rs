//! What lies between the hosts of an experiment.

use std::time::Duration;

use lull_cc::Rate;
use serde::Deserialize;

use super::group::Size;
use super::simulated::Simulated;
use super::spelled::{Spelled, Time};
use lull_emulator::{Buffer, Discipline, Link, LinkRate, Topology};

/// What lies between the hosts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "NetworkText")]
pub enum Network {
    /// An emulated bottleneck.
    Emulated(Box<Emulated>),
    /// A simulated bottleneck: no kernel, no clock, no packet that exists.
    Simulated(Box<Simulated>),
    /// A wire between two hosts, as fast as the machine is. Such a cell runs alone.
    Wire,
    /// Nothing: programs that need no host, such as simulations of their own.
    None {
        /// Processors that the programs of a cell take; by default what cells may take of one.
        processors: Option<f64>,
    },
}

/// Hosts on both sides of one bottleneck.
#[derive(Clone, Debug, PartialEq)]
pub struct Emulated {
    /// Rate of the bottleneck, in both directions.
    pub rate: Spelled<Rate>,
    /// Propagation delay there and back.
    pub rtt: Spelled<Time>,
    /// What may wait at the bottleneck, in each direction.
    pub buffer: Spelled<Buffer>,
    /// What is done with what waits: `droptail`, `priority`, `priority-single`, `red`, `red-ecn`,
    /// `codel`, `fq-codel`.
    pub queue: Spelled<Discipline>,
    /// Rate from right to left, where it differs.
    pub reverse_rate: Option<Spelled<Rate>>,
    /// What may wait from right to left, where it differs.
    pub reverse_buffer: Option<Spelled<Buffer>>,
    /// The hosts' default congestion control: that of programs.
    pub control: Option<String>,
    /// Hosts on the left, which send.
    pub left: usize,
    /// Hosts on the right.
    pub right: usize,
    /// Processors that the programs of a cell take, beside what carries their packets.
    pub processors: f64,
}

/// A network as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkText {
    kind: Option<NetworkKind>,
    pub(super) rate: Option<Spelled<Rate>>,
    pub(super) rtt: Option<Spelled<Time>>,
    pub(super) buffer: Option<Spelled<Buffer>>,
    pub(super) queue: Option<Spelled<Discipline>>,
    pub(super) reverse_rate: Option<Spelled<Rate>>,
    pub(super) reverse_buffer: Option<Spelled<Buffer>>,
    control: Option<String>,
    processors: Option<f64>,
    pub(super) left: Option<usize>,
    pub(super) right: Option<usize>,
    pub(super) bottlenecks: Option<usize>,
    pub(super) demand_of: Option<String>,
    pub(super) spare: Option<f64>,
    pub(super) access_rate: Option<Spelled<Rate>>,
    pub(super) access_delay: Option<Spelled<Time>>,
    pub(super) packet: Option<Spelled<Size>>,
    pub(super) header: Option<Spelled<Size>>,
}

impl NetworkText {
    /// A key of the simulator's that is there, if one is.
    fn simulated_key(&self) -> Option<&'static str> {
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

    /// A key of what runs on emulated hosts that is there, if one is.
    fn key_of_programs(&self) -> Option<&'static str> {
        [("control", self.control.is_some()), ("processors", self.processors.is_some())]
            .into_iter()
            .find_map(|(key, is)| is.then_some(key))
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NetworkKind {
    #[default]
    Emulator,
    Simulator,
    Wire,
    None,
}

impl TryFrom<NetworkText> for Network {
    type Error = String;

    fn try_from(text: NetworkText) -> Result<Self, String> {
        let of_programs = text.key_of_programs();
        if text.kind == Some(NetworkKind::Simulator) {
            if let Some(key) = of_programs {
                return Err(format!("'{key}' belongs to an emulated link: it is that of programs"));
            }
            return Simulated::new(text).map(|network| Network::Simulated(Box::new(network)));
        }
        if let Some(key) = text.simulated_key() {
            return Err(format!("'{key}' belongs to kind = 'simulator'"));
        }
        let NetworkText { kind, rate, rtt, buffer, queue, left, right, processors, .. } = text;
        if let Some(number) = processors.filter(|number| !(0.0..=1000.0).contains(number)) {
            return Err(format!("processors = {number}: write a number from 0 on"));
        }
        let (reverse_rate, reverse_buffer) = (text.reverse_rate, text.reverse_buffer);
        let control = text.control;
        let kind = kind.unwrap_or_default();
        if let NetworkKind::Wire | NetworkKind::None = kind {
            let is_bare = rate.is_none() && rtt.is_none() && buffer.is_none() && queue.is_none();
            let is_even = reverse_rate.is_none() && reverse_buffer.is_none() && control.is_none();
            let is_linkless = is_bare && is_even && left.is_none() && right.is_none();
            return match kind {
                NetworkKind::None if is_linkless => Ok(Network::None { processors }),
                NetworkKind::None => {
                    Err("where there is no link there is no other key than 'kind' and 'processors'"
                        .to_owned())
                }
                _ if is_linkless && processors.is_none() => Ok(Network::Wire),
                _ => Err("on a wire there is no other key than 'kind'".to_owned()),
            };
        }
        let need = |key| format!("an emulated link needs the key '{key}'");
        Ok(Network::Emulated(Box::new(Emulated {
            rate: rate.ok_or_else(|| need("rate"))?,
            rtt: rtt.ok_or_else(|| need("rtt"))?,
            buffer: buffer.unwrap_or_else(|| "1bdp".parse().expect("a buffer")),
            queue: queue.unwrap_or_else(|| "droptail".parse().expect("a queue discipline")),
            reverse_rate,
            reverse_buffer,
            control,
            left: left.unwrap_or(1),
            right: right.unwrap_or(1),
            processors: processors.unwrap_or(0.0),
        })))
    }
}

impl Network {
    /// Where a host of this name is: at which router, counted from 0 at the left.
    pub(super) fn router(&self, host: &str) -> Option<usize> {
        let (left, right) = match self {
            Network::Simulated(simulated) => return simulated.router(host),
            Network::Emulated(emulated) => (emulated.left, emulated.right),
            Network::Wire | Network::None { .. } => (1, 1),
        };
        let is = |side, hosts| numbered(host, side).is_some_and(|at| (1..=hosts).contains(&at));
        if is("left", left) { Some(0) } else { is("right", right).then_some(1) }
    }
}

/// The number of a host that is called `word` and a number.
pub(super) fn numbered(host: &str, word: &str) -> Option<usize> {
    host.strip_prefix(word)?.parse().ok()
}

impl Emulated {
    /// As the emulator takes it; `seed` feeds the queues' randomness.
    pub fn topology(&self, series: Duration, seed: u64) -> Topology {
        let link = Link {
            rate: LinkRate::Fixed(self.rate.value),
            delay: self.rtt.value.0 / 2,
            buffer: self.buffer.value,
            discipline: self.queue.value,
            seed,
        };
        let reverse = Link {
            rate: LinkRate::Fixed(self.reverse_rate.as_ref().unwrap_or(&self.rate).value),
            buffer: self.reverse_buffer.as_ref().unwrap_or(&self.buffer).value,
            ..link.clone()
        };
        Topology {
            reverse,
            congestion_control: self.control.clone(),
            left: self.left,
            right: self.right,
            series: Some(series),
            ..Topology::symmetric(link)
        }
    }
}
