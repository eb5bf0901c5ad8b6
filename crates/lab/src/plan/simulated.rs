//! A network that is simulated: a dumbbell of the packet simulator, or bottlenecks in a row.

use std::time::Duration;

use lull_cc::Rate;
use lull_sim::queue::Limit;
use lull_sim::tcp::{DelayedAck, Parameters, Recovery, RtoParameters};

use super::invalid::Invalid;
use super::network_text::{NetworkText, numbered};
use super::spelled::{Size, Spelled, Time};
use lull_emulator::{Buffer, Discipline};

/// A bottleneck between two routers, or several in a row, which is called a parking lot. Every connection has
/// its own host on either side.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// How many bottlenecks there are from the leftmost router to the rightmost one, all alike.
    pub bottlenecks: usize,
    /// Rate of a bottleneck, in both directions.
    pub capacity: Capacity,
    /// Rate from right to left, if it differs.
    pub reverse_rate: Option<Rate>,
    /// Propagation delay of a bottleneck there and back: twice ns-2's link delay. That of the access links is
    /// added.
    pub rtt: Spelled<Time>,
    /// The buffer at the bottleneck, in each direction. Multiples of the bandwidth-delay product count whole
    /// packets.
    pub buffer: Spelled<Buffer>,
    /// The buffer from right to left, if it differs.
    pub reverse_buffer: Option<Spelled<Buffer>>,
    /// The queue discipline.
    pub queue: Spelled<Discipline>,
    /// The number of host names on the left, `left1` and so on. Connections of one name do not share a host.
    pub left: usize,
    /// The same on the right.
    pub right: usize,
    /// Rate of the links between hosts and routers; none for links that are never busy.
    pub access_rate: Option<Rate>,
    /// Propagation delay of each of them.
    pub access_delay: Duration,
    /// Length of a full packet on the link, including headers, in bytes.
    pub packet: u16,
    /// Length of the headers of every packet, in bytes; also the length of an acknowledgement.
    pub header: u16,
}

/// More in a row than any experiment needs.
const MAX_BOTTLENECKS: usize = 100;

/// The rate of the bottleneck.
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    /// A fixed rate.
    Rate(Spelled<Rate>),
    /// A rate from a group's demand (Nice §4.2): (1 + spare) times its mean.
    Demand {
        /// A group of documents.
        group: String,
        /// S: the spare capacity, as a part of the demand.
        spare: f64,
    },
}

impl Simulated {
    /// From the text of a plan; the defaults are those of an emulated link.
    pub(super) fn new(text: NetworkText) -> Result<Self, Invalid> {
        let capacity = match (text.rate, text.demand_of, text.spare) {
            (Some(rate), None, None) => Capacity::Rate(rate),
            (None, Some(group), Some(spare)) => Capacity::Demand { group, spare },
            _ => {
                return Err(Invalid::Rule(
                    "a simulated link needs either the key 'rate', or 'demand_of' and 'spare': \
                     (1 + spare) times the mean demand of a group",
                ));
            }
        };
        let bytes = |key: &'static str, size: Option<Spelled<Size>>, usual: u16| match size {
            None => Ok(usual),
            Some(size) => u16::try_from(size.value.0.0)
                .map_err(|_| Invalid::value(key, size, "it is 65535B at most")),
        };
        let usual = Parameters::default();
        let header = bytes("header", text.header, usual.header_bytes)?;
        let packet = bytes("packet", text.packet, usual.header_bytes + usual.segment_bytes)?;
        if packet <= header {
            let allowed = format!("it has no room behind {header}B of header");
            return Err(Invalid::value("packet", format!("{packet}B"), allowed));
        }
        Ok(Simulated {
            bottlenecks: text.bottlenecks.unwrap_or(1),
            capacity,
            reverse_rate: text.reverse_rate.map(|rate| rate.value),
            rtt: text.rtt.ok_or(Invalid::Missing("rtt"))?,
            buffer: text.buffer.unwrap_or_else(|| "1bdp".parse().expect("a buffer")),
            reverse_buffer: text.reverse_buffer,
            queue: text.queue.unwrap_or_else(|| "droptail".parse().expect("a queue discipline")),
            left: text.left.unwrap_or(1),
            right: text.right.unwrap_or(1),
            access_rate: text.access_rate.map(|rate| rate.value),
            access_delay: text.access_delay.map_or(Duration::ZERO, |delay| delay.value.0),
            packet,
            header,
        })
    }

    /// The router of a host, counted from 0 at the left: `left1` is at the first one, `right1` at the last,
    /// `router2` at the second.
    pub fn router(&self, host: &str) -> Option<usize> {
        let last = self.bottlenecks;
        let sides = [("left", self.left, 0), ("right", self.right, last)];
        let on_a_side = sides.into_iter().find_map(|(side, hosts, router)| {
            let at = numbered(host, side)?;
            (1..=hosts).contains(&at).then_some(router)
        });
        on_a_side.or_else(|| {
            let at = numbered(host, "router")?.checked_sub(1)?;
            (at <= last).then_some(at)
        })
    }

    /// Propagation delay there and back over one bottleneck, with that of the access links.
    pub fn round_trip(&self) -> Duration {
        self.rtt.value.0 + 4 * self.access_delay
    }

    /// The bandwidth-delay product at a rate, in packets.
    pub fn bdp(&self, rate: Rate) -> f64 {
        rate.bytes_per_second() as f64 * self.round_trip().as_secs_f64() / f64::from(self.packet)
    }

    /// The buffer of a bottleneck.
    pub fn limit(&self, rate: Rate) -> Limit {
        self.limit_of(&self.buffer, rate)
    }

    /// The buffer from right to left.
    pub fn reverse_limit(&self, rate: Rate) -> Limit {
        self.limit_of(self.reverse_buffer.as_ref().unwrap_or(&self.buffer), rate)
    }

    fn limit_of(&self, buffer: &Spelled<Buffer>, rate: Rate) -> Limit {
        match buffer.value {
            Buffer::Bytes(bytes) => Limit::Bytes(bytes.0),
            Buffer::Packets(packets) => Limit::Packets(packets),
            // ns-2's queues count packets.
            Buffer::Bdp(multiple) => Limit::Packets(((multiple * self.bdp(rate)) as u64).max(1)),
        }
    }

    /// The first error, in one line.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        match &self.capacity {
            Capacity::Rate(rate) if rate.value.bits_per_second() < 1000 => {
                return Err(Invalid::value("rate", rate, "the minimum is 1 kbit"));
            }
            Capacity::Demand { spare, .. } if !(*spare > -1.0 && *spare <= 1e6) => {
                return Err(Invalid::value("spare", spare, "the link must have some rate"));
            }
            Capacity::Rate(_) | Capacity::Demand { .. } => {}
        }
        if !(1..=MAX_BOTTLENECKS).contains(&self.bottlenecks) {
            let allowed = format!("there may be 1 to {MAX_BOTTLENECKS} in a row");
            return Err(Invalid::value("bottlenecks", self.bottlenecks, allowed));
        }
        let is_even = self.reverse_rate.is_none() && self.reverse_buffer.is_none();
        if self.bottlenecks > 1 && !is_even {
            return Err(Invalid::Rule(
                "bottlenecks in a row are the same both ways: leave out 'reverse_rate' and \
                 'reverse_buffer'",
            ));
        }
        if let Some(rate) = self.reverse_rate.filter(|rate| rate.bits_per_second() < 1000) {
            let rate = format!("{} bit/s", rate.bits_per_second());
            return Err(Invalid::value("reverse_rate", rate, "the minimum is 1 kbit"));
        }
        let round_trip = self.rtt.value.0 * self.bottlenecks as u32 + 4 * self.access_delay;
        if round_trip > Duration::from_secs(120) {
            let sum = format!("{round_trip:?}");
            return Err(Invalid::value("rtt", sum, "all links together have 120 s at most"));
        }
        [Some(&self.buffer), self.reverse_buffer.as_ref()]
            .into_iter()
            .flatten()
            .try_for_each(|buffer| self.validate_buffer(buffer))
    }

    fn validate_buffer(&self, buffer: &Spelled<Buffer>) -> Result<(), Invalid> {
        match buffer.value {
            Buffer::Bytes(bytes) if bytes.0 < u64::from(self.packet) => {
                let packet = format!("it holds no packet of {} B", self.packet);
                Err(Invalid::value("buffer", buffer, packet))
            }
            Buffer::Bdp(_) if self.round_trip().is_zero() => Err(Invalid::Rule(
                "without delay the bandwidth-delay product is 0: give the buffer in packets \
                     (100p) or bytes (64kB)",
            )),
            Buffer::Bytes(_) | Buffer::Packets(_) | Buffer::Bdp(_) => Ok(()),
        }
    }
}

/// The TCP options of a group's connections in the simulator. The defaults are those of Linux.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TcpOptions {
    /// Loss detection and recovery.
    pub recovery: Option<Recovery>,
    /// Whether receivers delay acknowledgements (RFC 5681 §4.2).
    pub delayed_acks: Option<bool>,
    /// Whether both ends support ECN.
    pub ecn: Option<bool>,
    /// The advertised window.
    pub receive_window: Option<Spelled<Buffer>>,
    /// Propagation delay of its hosts' access links, if it differs from the others'.
    pub access_delay: Option<Spelled<Time>>,
    /// The retransmission timeout before the first round-trip time is known.
    pub first_timeout: Option<Spelled<Time>>,
    /// The minimum retransmission timeout after that.
    pub least_timeout: Option<Spelled<Time>>,
}

impl TcpOptions {
    /// A key that is set, if any.
    pub(super) fn key(&self) -> Option<&'static str> {
        let TcpOptions {
            recovery,
            delayed_acks,
            ecn,
            receive_window,
            access_delay,
            first_timeout,
            least_timeout,
        } = self;
        [
            ("recovery", recovery.is_some()),
            ("delayed_acks", delayed_acks.is_some()),
            ("ecn", ecn.is_some()),
            ("receive_window", receive_window.is_some()),
            ("access_delay", access_delay.is_some()),
            ("first_timeout", first_timeout.is_some()),
            ("least_timeout", least_timeout.is_some()),
        ]
        .into_iter()
        .find_map(|(key, is)| is.then_some(key))
    }

    /// The parameters on a network of this rate.
    pub fn parameters(&self, network: &Simulated, rate: Rate, pace: Option<Rate>) -> Parameters {
        let segment_bytes = network.packet - network.header;
        let window = |buffer: &Spelled<Buffer>| match buffer.value {
            Buffer::Packets(packets) => packets as f64,
            Buffer::Bytes(bytes) => bytes.0 as f64 / f64::from(segment_bytes),
            Buffer::Bdp(multiple) => multiple * network.bdp(rate),
        };
        let usual = Parameters::default();
        let nanos = |time: &Option<Spelled<Time>>, usual: u64| {
            let nanos = time.as_ref().map(|time| u64::try_from(time.value.0.as_nanos()));
            nanos.map_or(usual, |nanos| nanos.unwrap_or(u64::MAX).min(u64::MAX >> 8))
        };
        Parameters {
            segment_bytes,
            header_bytes: network.header,
            receive_window: self
                .receive_window
                .as_ref()
                .map_or(usual.receive_window, |buffer| (window(buffer) as u32).max(1)),
            recovery: self.recovery.unwrap_or(usual.recovery),
            ecn: self.ecn.unwrap_or(usual.ecn),
            delayed_ack: match self.delayed_acks {
                Some(false) => DelayedAck::OFF,
                Some(true) | None => usual.delayed_ack,
            },
            max_pacing_bits_per_second: pace.map(Rate::bits_per_second),
            retransmission: RtoParameters {
                initial_nanos: nanos(&self.first_timeout, usual.retransmission.initial_nanos),
                minimum_nanos: nanos(&self.least_timeout, usual.retransmission.minimum_nanos),
                ..usual.retransmission
            },
            ..usual
        }
    }
}
