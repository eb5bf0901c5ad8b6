//! A network that is simulated: a dumbbell of the packet simulator.

use std::time::Duration;

use lull_cc::Rate;
use lull_sim::queue::Limit;
use lull_sim::tcp::{DelayedAck, Parameters, Recovery, RtoParameters};

use super::group::Size;
use super::network::NetworkText;
use super::spelled::{Spelled, Time};
use crate::emulate::{Buffer, Discipline};

/// A bottleneck between two routers. Every connection has a host of its own on either side.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// Rate of the bottleneck, in both directions.
    pub capacity: Capacity,
    /// Propagation delay of the bottleneck there and back: twice what ns-2 calls a link's delay.
    /// That of the access links comes on top.
    pub rtt: Spelled<Time>,
    /// What may wait at the bottleneck, in each direction. Multiples of the bandwidth-delay product
    /// count whole packets.
    pub buffer: Spelled<Buffer>,
    /// What is done with what waits.
    pub queue: Spelled<Discipline>,
    /// Rate of the links between hosts and routers; none for links that are never busy.
    pub access_rate: Option<Rate>,
    /// Propagation delay of each of them.
    pub access_delay: Duration,
    /// Length of a full packet on the link, headers included.
    pub packet: u16,
    /// What headers add to every packet; also the length of an acknowledgement.
    pub header: u16,
}

/// How fast the bottleneck is.
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    /// So fast.
    Rate(Spelled<Rate>),
    /// By what a group asks for (Nice §4.2): (1 + spare) times its mean demand.
    Demand {
        /// A group of documents.
        group: String,
        /// S: what is spare, as a part of the demand.
        spare: f64,
    },
}

impl Simulated {
    /// From what is written; what is left open is as an emulated link has it.
    pub(super) fn new(text: NetworkText) -> Result<Self, String> {
        let capacity = match (text.rate, text.demand_of, text.spare) {
            (Some(rate), None, None) => Capacity::Rate(rate),
            (None, Some(group), Some(spare)) => Capacity::Demand { group, spare },
            _ => {
                return Err("a simulated link needs either the key 'rate', or 'demand_of' and \
                            'spare': (1 + spare) times the mean demand of a group"
                    .to_owned());
            }
        };
        let bytes = |key: &str, size: Option<Spelled<Size>>, usual: u16| match size {
            None => Ok(usual),
            Some(size) => u16::try_from(size.value.0.0)
                .map_err(|_| format!("{key} = {size}: it is 65535B at most")),
        };
        let usual = Parameters::default();
        let header = bytes("header", text.header, usual.header_bytes)?;
        let packet = bytes("packet", text.packet, usual.header_bytes + usual.segment_bytes)?;
        if packet <= header {
            return Err(format!("packet = {packet}B has no room behind {header}B of header"));
        }
        Ok(Simulated {
            capacity,
            rtt: text.rtt.ok_or("a simulated link needs the key 'rtt'")?,
            buffer: text.buffer.unwrap_or_else(|| "1bdp".parse().expect("a buffer")),
            queue: text.queue.unwrap_or_else(|| "droptail".parse().expect("a queue discipline")),
            access_rate: text.access_rate.map(|rate| rate.value),
            access_delay: text.access_delay.map_or(Duration::ZERO, |delay| delay.value.0),
            packet,
            header,
        })
    }

    /// Propagation delay there and back, with that of the access links.
    pub fn round_trip(&self) -> Duration {
        self.rtt.value.0 + 4 * self.access_delay
    }

    /// The bandwidth-delay product at a rate, in packets.
    pub fn bdp(&self, rate: Rate) -> f64 {
        rate.bytes_per_second() as f64 * self.round_trip().as_secs_f64() / f64::from(self.packet)
    }

    /// What may wait at the bottleneck.
    pub fn limit(&self, rate: Rate) -> Limit {
        match self.buffer.value {
            Buffer::Bytes(bytes) => Limit::Bytes(bytes.0),
            Buffer::Packets(packets) => Limit::Packets(packets),
            // ns-2's queues count packets.
            Buffer::Bdp(multiple) => Limit::Packets(((multiple * self.bdp(rate)) as u64).max(1)),
        }
    }

    /// What cannot be, in one line.
    pub(super) fn validate(&self) -> Result<(), String> {
        match &self.capacity {
            Capacity::Rate(rate) if rate.value.bits_per_second() < 1000 => {
                return Err(format!("a rate of {rate}: the least is 1 kbit"));
            }
            Capacity::Demand { spare, .. } if !(*spare > -1.0 && *spare <= 1e6) => {
                return Err(format!("spare = {spare}: the link must have some rate"));
            }
            Capacity::Rate(_) | Capacity::Demand { .. } => {}
        }
        let round_trip = self.round_trip();
        if round_trip > Duration::from_secs(120) {
            return Err(format!("a round-trip time of {round_trip:?}: the most is 120 s"));
        }
        match self.buffer.value {
            Buffer::Bytes(bytes) if bytes.0 < u64::from(self.packet) => {
                Err(format!("a buffer of {} holds no packet of {} B", self.buffer, self.packet))
            }
            Buffer::Bdp(_) if round_trip.is_zero() => {
                Err("without delay the bandwidth-delay product is 0: give the buffer in packets \
                     (100p) or bytes (64kB)"
                    .to_owned())
            }
            Buffer::Bytes(_) | Buffer::Packets(_) | Buffer::Bdp(_) => Ok(()),
        }
    }
}

/// How a group's connections speak TCP in the simulator. What is left open is as Linux has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TcpOptions {
    /// How losses are found and mended.
    pub recovery: Option<Recovery>,
    /// Whether receivers hold acknowledgements back (RFC 5681 §4.2).
    pub delayed_acks: Option<bool>,
    /// Whether both ends speak ECN.
    pub ecn: Option<bool>,
    /// The advertised window.
    pub receive_window: Option<Spelled<Buffer>>,
    /// Propagation delay of its hosts' access links, where it differs from the others'.
    pub access_delay: Option<Spelled<Time>>,
    /// The retransmission timeout before the first round-trip time is known.
    pub first_timeout: Option<Spelled<Time>>,
    /// The least retransmission timeout after that.
    pub least_timeout: Option<Spelled<Time>>,
}

impl TcpOptions {
    /// A key that is there, if one is.
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

    /// The parameters over a network of this rate.
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
