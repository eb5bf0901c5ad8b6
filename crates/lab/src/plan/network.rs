//! The network between the hosts of an experiment.

use std::time::Duration;

use lull_cc::Rate;
use serde::Deserialize;

use super::invalid::Invalid;
use super::network_text::{NetworkKind, NetworkText, numbered};
use super::simulated::Simulated;
use super::spelled::{Spelled, Time};
use lull_emulator::{Buffer, Discipline, Link, LinkRate, Topology};

/// The network between the hosts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "NetworkText")]
pub enum Network {
    /// An emulated bottleneck.
    Emulated(Box<Emulated>),
    /// A simulated bottleneck: no kernel, no clock, no real packets.
    Simulated(Box<Simulated>),
    /// A wire between two hosts, as fast as the machine is. Such a cell runs alone.
    Wire,
    /// Nothing: programs that need no host, such as their own simulations.
    None {
        /// The number of processors that the programs of a cell use. By default, the share of one that cells
        /// may use.
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
    /// The buffer at the bottleneck, in each direction.
    pub buffer: Spelled<Buffer>,
    /// The queue discipline: `droptail`, `priority`, `priority-single`, `red`, `red-ecn`, `codel`,
    /// `fq-codel`.
    pub queue: Spelled<Discipline>,
    /// Rate from right to left, if it differs.
    pub reverse_rate: Option<Spelled<Rate>>,
    /// The buffer from right to left, if it differs.
    pub reverse_buffer: Option<Spelled<Buffer>>,
    /// The hosts' default congestion control, which programs use.
    pub control: Option<String>,
    /// Hosts on the left, which send.
    pub left: usize,
    /// Hosts on the right.
    pub right: usize,
    /// Whether each host on the right has a link of its own.
    pub separate: bool,
    /// Processors that the programs of a cell use, beside those for their packets.
    pub processors: f64,
}

impl TryFrom<NetworkText> for Network {
    type Error = Invalid;

    fn try_from(text: NetworkText) -> Result<Self, Invalid> {
        let of_programs = text.key_of_programs();
        if text.kind == Some(NetworkKind::Simulator) {
            if let Some(key) = of_programs {
                return Err(Invalid::Foreign {
                    key,
                    owner: "an emulated link: it is that of programs",
                });
            }
            return Simulated::new(text).map(|network| Network::Simulated(Box::new(network)));
        }
        if let Some(key) = text.simulated_key() {
            return Err(Invalid::Foreign { key, owner: "kind = 'simulator'" });
        }
        let NetworkText { kind, rate, rtt, buffer, queue, left, right, processors, .. } = text;
        if let Some(number) = processors.filter(|number| !(0.0..=1000.0).contains(number)) {
            return Err(Invalid::value("processors", number, "write a number from 0 to 1000"));
        }
        let (reverse_rate, reverse_buffer) = (text.reverse_rate, text.reverse_buffer);
        let (control, separate) = (text.control, text.separate);
        let kind = kind.unwrap_or_default();
        if let NetworkKind::Wire | NetworkKind::None = kind {
            let is_bare = rate.is_none() && rtt.is_none() && buffer.is_none() && queue.is_none();
            let is_even = reverse_rate.is_none() && reverse_buffer.is_none() && control.is_none();
            let has_hosts = left.is_some() || right.is_some() || separate.is_some();
            let is_linkless = is_bare && is_even && !has_hosts;
            return match kind {
                NetworkKind::None if is_linkless => Ok(Network::None { processors }),
                NetworkKind::None => Err(Invalid::Rule(
                    "without a link, only the keys 'kind' and 'processors' are allowed",
                )),
                _ if is_linkless && processors.is_none() => Ok(Network::Wire),
                _ => Err(Invalid::Rule("on a wire, only the key 'kind' is allowed")),
            };
        }
        Ok(Network::Emulated(Box::new(Emulated {
            rate: rate.ok_or(Invalid::Missing("rate"))?,
            rtt: rtt.ok_or(Invalid::Missing("rtt"))?,
            buffer: buffer.unwrap_or_else(|| "1bdp".parse().expect("a buffer")),
            queue: queue.unwrap_or_else(|| "droptail".parse().expect("a queue discipline")),
            reverse_rate,
            reverse_buffer,
            control,
            left: left.unwrap_or(1),
            right: right.unwrap_or(1),
            separate: separate.unwrap_or(false),
            processors: processors.unwrap_or(0.0),
        })))
    }
}

impl Network {
    /// The router of a host of this name, counted from 0 at the left.
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

impl Emulated {
    /// In the form of the emulator; `seed` is for the random numbers of the queues.
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
            separate: self.separate,
            series: Some(series),
            ..Topology::symmetric(link)
        }
    }
}
