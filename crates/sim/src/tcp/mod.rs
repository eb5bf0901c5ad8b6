//! TCP endpoints, sans-IO: a [`Sender`] with data in one direction, and a [`Receiver`].
//!
//! Deliberate simplifications:
//! - Segments are numbered, not bytes (as in ns-2): a message is split into full segments and a last one, and
//!   no segment is split again.
//! - Data flows in one direction. The sender opens a connection with a SYN that the receiver answers; the
//!   request for the data is not simulated.
//! - The sender's half is closed by a FIN on its last segment. The receiver's half sends no data and is not
//!   closed with its own packets.
//! - The receiver's application reads at once, so the advertised window is constant, unless a receiver yields by
//!   it ([`Simulation::steer`](crate::Simulation::steer)).
//! - A lost SYN lengthens the first timeout of the data (RFC 6298 §5.7), but does not shrink the initial
//!   window (RFC 5681 §3.1). That is set by the controller, which begins with the data.

use core::time::Duration;

use serde::{Deserialize, Serialize};

mod counters;
mod delivery;
mod outbox;
mod pacer;
pub(crate) mod receiver;
mod rto;
mod scoreboard;
mod sender;

pub use counters::{ReceiverCounters, SenderCounters};
pub use outbox::Completed;
pub use receiver::Receiver;
pub use rto::RetransmissionTimer;
pub use sender::{Sender, Transmit};

/// How losses are detected and recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// Selective acknowledgements (RFC 2018, RFC 6675).
    #[default]
    Sack,
    /// Only duplicate and partial acknowledgements (RFC 6582).
    NewReno,
    /// Only duplicate acknowledgements, and any new acknowledgement ends the recovery (RFC 5681 §3.2):
    /// several losses in a window usually end in a timeout.
    Reno,
}

/// The retransmission timer (RFC 6298), in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RtoParameters {
    /// Before the first round-trip time.
    pub initial_nanos: u64,
    /// The minimum timeout.
    pub minimum_nanos: u64,
    /// The maximum timeout.
    pub maximum_nanos: u64,
    /// The minimum that is added to the smoothed round-trip time: the clock's granularity, G.
    pub granularity_nanos: u64,
}

impl RtoParameters {
    /// As in Linux: at least 200 ms are added to the smoothed round-trip time.
    pub const LINUX: RtoParameters = RtoParameters {
        initial_nanos: 1_000_000_000,
        minimum_nanos: 200_000_000,
        maximum_nanos: 120_000_000_000,
        granularity_nanos: 200_000_000,
    };

    /// As in RFC 6298 §2, on a clock of a millisecond.
    pub const RFC_6298: RtoParameters = RtoParameters {
        initial_nanos: 1_000_000_000,
        minimum_nanos: 1_000_000_000,
        maximum_nanos: 60_000_000_000,
        granularity_nanos: 1_000_000,
    };
}

impl Default for RtoParameters {
    fn default() -> Self {
        Self::LINUX
    }
}

/// When the receiver acknowledges (RFC 1122 §4.2.3.2, RFC 5681 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DelayedAck {
    /// After this many segments; 1 switches delayed acknowledgements off.
    pub every: u32,
    /// A single segment is acknowledged after this many nanoseconds at the latest.
    pub timeout_nanos: u64,
    /// This many segments at the start of a connection are acknowledged at once. Linux does so while it
    /// assumes that the sender is in slow start.
    pub quick: u32,
}

impl DelayedAck {
    /// Each segment is acknowledged.
    pub const OFF: DelayedAck = DelayedAck { every: 1, timeout_nanos: 0, quick: 0 };
}

impl Default for DelayedAck {
    /// Every second segment (RFC 5681 §4.2); 40 ms is Linux's minimum, and within the 500 ms that RFC 1122
    /// §4.2.3.2 allows.
    fn default() -> Self {
        DelayedAck { every: 2, timeout_nanos: 40_000_000, quick: 0 }
    }
}

/// A TCP connection's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Payload of a full segment in bytes; with headers, a packet is below 64 KiB.
    pub segment_bytes: u16,
    /// Length of the headers of every packet in bytes; also the length of an acknowledgement.
    pub header_bytes: u16,
    /// The advertised window in segments.
    pub receive_window: u32,
    /// How losses are detected and recovered.
    pub recovery: Recovery,
    /// Whether the first two duplicate acknowledgements may send new segments (RFC 3042).
    pub limited_transmit: bool,
    /// Whether both ends support ECN (RFC 3168).
    pub ecn: bool,
    /// Whether the connection begins with a SYN; if not, with the first segment.
    pub handshake: bool,
    /// Whether the controller's pacing rate is used.
    pub pacing: bool,
    /// A limit on the controller's rate, like the socket option `SO_MAX_PACING_RATE`: rate-limited background
    /// flows (Nice §4.2, "other results").
    pub max_pacing_bits_per_second: Option<u64>,
    /// The retransmission timer.
    pub retransmission: RtoParameters,
    /// Delayed acknowledgements.
    pub delayed_ack: DelayedAck,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            // Ethernet's 1500 bytes less IPv4's and TCP's 20 each and 12 of time stamps.
            segment_bytes: 1448,
            header_bytes: 52,
            // No limit in practice: the network's is below.
            receive_window: 1 << 20,
            recovery: Recovery::Sack,
            limited_transmit: true,
            ecn: false,
            handshake: true,
            pacing: true,
            max_pacing_bits_per_second: None,
            retransmission: RtoParameters::default(),
            delayed_ack: DelayedAck::default(),
        }
    }
}

/// Nanoseconds of a duration, which never exceeds 64 bits of them in a simulation.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Whole microseconds of a time in nanoseconds.
fn micros(nanos: u64) -> u32 {
    u32::try_from(nanos / 1_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
