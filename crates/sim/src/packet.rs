//! Packets.

use lull_cc::{Bytes, Timestamp};

use crate::queue::QueuedPacket;

/// The two ECN bits of a packet (RFC 3168 §5), without the difference between ECT(0) and ECT(1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Its ends do not support ECN: a router can only drop it.
    #[default]
    NotCapable = 0,
    /// Its ends support ECN.
    Capable = 2,
    /// A router has experienced congestion.
    CongestionExperienced = 3,
}

/// A packet on a link, in a queue or before one.
///
/// It is copied often. With the time of its arrival it fits half a cache line, which is why the fields are as
/// narrow as possible.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The connection or datagram source that it belongs to.
    pub(crate) owner: Owner,
    /// The index of its link in the list of all routes.
    pub(crate) hop: u32,
    /// Its length on links, headers included.
    pub bytes: u16,
    /// Distinguishes the connections that have used the same slot one after the other. Each lasts a
    /// round-trip time at least, so the count cannot wrap around while a packet is in flight.
    pub(crate) generation: u8,
    /// Codepoint and ECN bits.
    pub class: TrafficClass,
    /// Its content.
    pub body: Body,
}

/// The owner of a packet: the slot of a connection or the number of a source of datagrams, and its group in
/// statistics. Sixteen million concurrent connections are more than any memory holds, which leaves a byte for
/// the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    pub(crate) fn new(slot: u32, group: u8) -> Self {
        assert!(slot < 1 << 24, "sixteen million connections or sources");
        Owner(u32::from(group) << 24 | slot)
    }

    pub(crate) const fn slot(self) -> u32 {
        self.0 & 0x00ff_ffff
    }

    pub(crate) const fn group(self) -> u8 {
        (self.0 >> 24) as u8
    }
}

/// The traffic class of a packet (RFC 2474 §3, RFC 3168 §5): six bits of codepoint, two of ECN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficClass(u8);

impl TrafficClass {
    /// The class of this codepoint, below 64, and ECN bits.
    pub const fn new(dscp: u8, ecn: Ecn) -> Self {
        assert!(dscp < 64, "a codepoint has six bits");
        TrafficClass(dscp << 2 | ecn as u8)
    }

    /// The differentiated-services codepoint.
    pub const fn dscp(self) -> u8 {
        self.0 >> 2
    }

    /// The ECN bits.
    pub const fn ecn(self) -> Ecn {
        match self.0 & 3 {
            0 => Ecn::NotCapable,
            3 => Ecn::CongestionExperienced,
            _ => Ecn::Capable,
        }
    }
}

/// The content of a packet, in twelve bytes, without data that both ends already have.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// A request for a connection.
    Syn,
    /// The answer to it.
    SynAck,
    /// A TCP segment with data: when it was sent, its number, and bits of its header. Its payload follows
    /// from its length.
    Data(SentAt, u32, DataFlags),
    /// A TCP segment without data, and without blocks of selective acknowledgement. The window is
    /// the connection's.
    Ack {
        /// As in [`AckHeader`].
        cumulative: u32,
        /// As in [`AckHeader`].
        one_way_micros: u32,
        /// As in [`AckHeader`].
        echo: bool,
    },
    /// A TCP segment without data whose header has blocks of selective acknowledgement. The connection stores
    /// the header under this number.
    Selective(u32),
    /// A datagram, and when it was sent.
    Datagram(SentAt),
}

const _: () = assert!(size_of::<Packet>() == 24, "a packet and a time are half a cache line");

/// When a packet was sent: the last 48 bits of the nanoseconds. They wrap around after three days, longer
/// than any packet is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentAt([u16; 3]);

impl SentAt {
    const BITS: u32 = 48;

    /// The full time, given the present time `now`.
    pub const fn seen_at(self, now: Timestamp) -> Timestamp {
        let SentAt([low, middle, high]) = self;
        let sent = (high as u64) << 32 | (middle as u64) << 16 | low as u64;
        let elapsed = now.as_nanos().wrapping_sub(sent) & ((1 << Self::BITS) - 1);
        Timestamp::from_nanos(now.as_nanos() - elapsed)
    }
}

impl From<Timestamp> for SentAt {
    fn from(time: Timestamp) -> Self {
        let nanos = time.as_nanos();
        SentAt([nanos as u16, (nanos >> 16) as u16, (nanos >> 32) as u16])
    }
}

/// The bits of a [`DataHeader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataFlags(u8);

impl DataFlags {
    const WINDOW_REDUCED: u8 = 1;
    const LAST: u8 = 2;
}

impl From<&DataHeader> for DataFlags {
    fn from(header: &DataHeader) -> Self {
        let window_reduced = if header.window_reduced { Self::WINDOW_REDUCED } else { 0 };
        let last = if header.last { Self::LAST } else { 0 };
        DataFlags(window_reduced | last)
    }
}

/// The header of a segment with data. Segments are numbered, not bytes: every segment except the last of a
/// message is full, and none is split when it is retransmitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataHeader {
    /// The segment's number, from 0.
    pub number: u32,
    /// Bytes of payload.
    pub payload: u16,
    /// The sender has reduced its window after an echo (RFC 3168 §6.1.2, CWR).
    pub window_reduced: bool,
    /// The last segment of the connection (FIN).
    pub last: bool,
}

impl DataHeader {
    /// The header for the number and the bits in a packet.
    pub const fn new(number: u32, payload: u16, flags: DataFlags) -> Self {
        let window_reduced = flags.0 & DataFlags::WINDOW_REDUCED != 0;
        DataHeader { number, payload, window_reduced, last: flags.0 & DataFlags::LAST != 0 }
    }
}

/// Blocks of selective acknowledgement in a header: three fit beside a timestamp (RFC 2018 §3).
pub const SACK_BLOCKS: usize = 3;

/// Segments from the first number to before the second.
pub type SackBlock = (u32, u32);

/// The header of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckHeader {
    /// The number of the next expected segment: everything before has arrived.
    pub cumulative: u32,
    /// Segments from there that the receiver has room for.
    pub window: u32,
    /// The one-way delay of the newest segment, in microseconds (RFC 7323 §3, time stamps).
    pub one_way_micros: u32,
    /// The blocks that have arrived beyond (RFC 2018); the first `blocks` count.
    pub sack: [SackBlock; SACK_BLOCKS],
    /// How many blocks are used.
    pub blocks: u8,
    /// Congestion was experienced (RFC 3168 §6.1.3, ECE).
    pub echo: bool,
    /// The receiver's time stamp, which the sender echoes (RFC 7323 §3); 0 if it is not needed.
    pub clock: u32,
}

impl AckHeader {
    /// The used blocks, the one with the newest segment first (RFC 2018 §4).
    pub fn sack_blocks(&self) -> &[SackBlock] {
        &self.sack[..usize::from(self.blocks)]
    }
}

impl QueuedPacket for Packet {
    fn bytes(&self) -> Bytes {
        Bytes(u64::from(self.bytes))
    }

    fn dscp(&self) -> u8 {
        self.class.dscp()
    }

    fn ecn_capable(&self) -> bool {
        self.class.ecn() != Ecn::NotCapable
    }

    fn mark_ce(&mut self) {
        assert!(self.ecn_capable(), "a packet that is not ECN-capable can't be marked");
        self.class = TrafficClass::new(self.class.dscp(), Ecn::CongestionExperienced);
    }

    fn flow(&self) -> u64 {
        // The two directions of a connection are two flows to a router, and sources of datagrams are numbered
        // separately.
        let kind = match self.body {
            Body::Syn | Body::Data(..) => 0,
            Body::SynAck | Body::Ack { .. } | Body::Selective(_) => 1,
            Body::Datagram(_) => 2,
        };
        u64::from(self.owner.slot()) << 2 | kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_class_holds_codepoint_and_ecn() {
        for dscp in 0..64 {
            for ecn in [Ecn::NotCapable, Ecn::Capable, Ecn::CongestionExperienced] {
                let class = TrafficClass::new(dscp, ecn);
                assert_eq!((class.dscp(), class.ecn()), (dscp, ecn));
            }
        }
    }

    #[test]
    fn time_is_recognised_for_three_days() {
        for nanos in [0, 1, 0xffff_ffff, 0x1_0000_0000, 0xffff_ffff_ffff, u64::MAX >> 1] {
            let time = Timestamp::from_nanos(nanos);
            for elapsed in [0, 1, 0xffff, 0x1_0000, 0xffff_ffff_ffff] {
                let now = Timestamp::from_nanos(nanos + elapsed);
                assert_eq!(SentAt::from(time).seen_at(now), time);
            }
        }
    }

    #[test]
    fn data_header_survives_its_packet() {
        for (window_reduced, last) in [(false, false), (true, false), (false, true), (true, true)] {
            let header = DataHeader { number: 7, payload: 1_000, window_reduced, last };
            assert_eq!(DataHeader::new(7, 1_000, DataFlags::from(&header)), header);
        }
    }
}
