//! IP packets on their way through the emulator.

use std::net::IpAddr;

use etherparse::{IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice, TcpHeaderSlice, UdpHeaderSlice};
use lull_cc::Bytes;
use lull_sim::queue::QueuedPacket;

use super::goodput::Segment;
use super::statistics::FlowKey;

/// Room before each packet for the Ethernet header that packet sockets need.
pub(super) const HEADROOM: usize = 14;

/// RFC 3168 §5: both bits of the ECN field.
const CONGESTION_EXPERIENCED: u8 = 0b11;

/// A packet and the values from its headers.
#[derive(Debug)]
pub(super) struct Frame {
    /// [`HEADROOM`], then the IP packet.
    pub(super) buffer: Box<[u8]>,
    /// The flow's number in the statistics.
    pub(super) flow: u32,
    /// The destination host.
    pub(super) port: usize,
    /// Bytes after the transport header.
    pub(super) payload: u32,
    /// For TCP: their position in their flow.
    pub(super) segment: Option<Segment>,
    /// Whether this emulator has marked it.
    pub(super) marked: bool,
}

/// The values of the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) key: FlowKey,
    pub(super) payload: u32,
    pub(super) segment: Option<Segment>,
}

impl Headers {
    /// Reads an IPv4 or IPv6 packet; none for anything else.
    ///
    /// It reads slices of single headers, because etherparse's slicing of whole packets takes 15 times as
    /// long.
    pub(super) fn parse(packet: &[u8]) -> Option<Headers> {
        match packet.first()? >> 4 {
            4 => {
                let ip = Ipv4HeaderSlice::from_slice(packet).ok()?;
                // Only the first fragment has ports.
                let is_first = ip.fragments_offset().value() == 0;
                let content = if is_first { &packet[ip.slice().len()..] } else { &[] };
                let (source, destination) = (ip.source_addr(), ip.destination_addr());
                Some(Self::of(source.into(), destination.into(), ip.protocol(), content))
            }
            6 => {
                // Extension headers are rare: flows with them are identified by addresses only.
                let ip = Ipv6HeaderSlice::from_slice(packet).ok()?;
                let content = &packet[ip.slice().len()..];
                let (source, destination) = (ip.source_addr(), ip.destination_addr());
                Some(Self::of(source.into(), destination.into(), ip.next_header(), content))
            }
            _ => None,
        }
    }

    fn of(source: IpAddr, destination: IpAddr, protocol: IpNumber, content: &[u8]) -> Headers {
        let mut headers = Headers {
            key: FlowKey {
                source,
                destination,
                protocol: protocol.0,
                source_port: 0,
                destination_port: 0,
            },
            payload: content.len() as u32,
            segment: None,
        };
        if protocol == IpNumber::TCP
            && let Ok(tcp) = TcpHeaderSlice::from_slice(content)
        {
            headers.key.source_port = tcp.source_port();
            headers.key.destination_port = tcp.destination_port();
            headers.payload -= tcp.slice().len() as u32;
            headers.segment =
                Some(Segment { sequence: tcp.sequence_number(), is_first: tcp.syn() });
        } else if protocol == IpNumber::UDP
            && let Ok(udp) = UdpHeaderSlice::from_slice(content)
        {
            headers.key.source_port = udp.source_port();
            headers.key.destination_port = udp.destination_port();
            headers.payload -= udp.slice().len() as u32;
        }
        headers
    }
}

impl Frame {
    /// The IP packet.
    pub(super) fn packet(&self) -> &[u8] {
        &self.buffer[HEADROOM..]
    }

    pub(super) fn is_v4(&self) -> bool {
        self.packet()[0] >> 4 == 4
    }

    /// The traffic class: DSCP and ECN.
    fn traffic_class(&self) -> u8 {
        let packet = self.packet();
        if self.is_v4() { packet[1] } else { packet[0] << 4 | packet[1] >> 4 }
    }
}

impl QueuedPacket for Frame {
    fn bytes(&self) -> Bytes {
        Bytes(self.packet().len() as u64)
    }

    fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    fn ecn_capable(&self) -> bool {
        self.traffic_class() & CONGESTION_EXPERIENCED != 0
    }

    fn mark_ce(&mut self) {
        self.marked = true;
        let is_v4 = self.is_v4();
        let packet = &mut self.buffer[HEADROOM..];
        if is_v4 {
            let before = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= CONGESTION_EXPERIENCED;
            let after = u16::from_be_bytes([packet[0], packet[1]]);
            // RFC 1624 §3, equation 3: updates the checksum for a changed word.
            let checksum = u16::from_be_bytes([packet[10], packet[11]]);
            let mut sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
            sum = (sum & 0xffff) + (sum >> 16);
            sum = (sum & 0xffff) + (sum >> 16);
            packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        } else {
            packet[1] |= CONGESTION_EXPERIENCED << 4;
        }
    }

    fn flow(&self) -> u64 {
        u64::from(self.flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL_TCP: u8 = 6;
    const PROTOCOL_UDP: u8 = 17;
    /// RFC 9293 §3.1: the flag that opens a connection.
    const TCP_SYN: u8 = 0b10;

    /// The one's complement sum over an IPv4 header: all ones if its checksum is right.
    fn sum(header: &[u8]) -> u16 {
        let mut sum = 0u32;
        for word in header.chunks(2) {
            sum += u32::from(u16::from_be_bytes([word[0], word[1]]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn v4(traffic_class: u8) -> Vec<u8> {
        let mut packet = vec![0u8; 20 + 32 + 100];
        packet[0] = 0x45;
        packet[1] = traffic_class;
        packet[2..4].copy_from_slice(&152u16.to_be_bytes());
        packet[8] = 64;
        packet[9] = PROTOCOL_TCP;
        packet[12..20].copy_from_slice(&[10, 1, 0, 1, 10, 2, 0, 1]);
        let checksum = !sum(&packet[..20]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet[20..24].copy_from_slice(&[0x12, 0x34, 0, 80]);
        packet[24..28].copy_from_slice(&0x0102_0304u32.to_be_bytes());
        packet[32] = 8 << 4;
        packet
    }

    fn v6(traffic_class: u8) -> Vec<u8> {
        let mut packet = vec![0u8; 40 + 8 + 10];
        packet[0] = 0x60 | traffic_class >> 4;
        packet[1] = traffic_class << 4 | 0xa;
        packet[4..6].copy_from_slice(&18u16.to_be_bytes());
        packet[6] = PROTOCOL_UDP;
        packet[23] = 1;
        packet[39] = 2;
        packet[40..44].copy_from_slice(&[0, 53, 0x12, 0x34]);
        packet[44..46].copy_from_slice(&18u16.to_be_bytes());
        packet
    }

    fn frame(packet: &[u8]) -> Frame {
        let mut buffer = vec![0; HEADROOM];
        buffer.extend_from_slice(packet);
        Frame { buffer: buffer.into(), flow: 0, port: 0, payload: 0, segment: None, marked: false }
    }

    #[test]
    fn addresses_ports_and_payload_are_read() {
        let headers = Headers::parse(&v4(0)).unwrap();
        assert_eq!(headers.payload, 100);
        let segment = Segment { sequence: 0x0102_0304, is_first: false };
        assert_eq!(headers.segment, Some(segment));
        let mut opening = v4(0);
        opening[33] = TCP_SYN;
        let first = Headers::parse(&opening).unwrap().segment;
        assert_eq!(first, Some(Segment { is_first: true, ..segment }));
        assert_eq!(headers.key.to_string(), "10.1.0.1:4660 > 10.2.0.1:80 tcp");
        let headers = Headers::parse(&v6(0)).unwrap();
        assert_eq!((headers.payload, headers.segment), (10, None));
        assert_eq!(headers.key.to_string(), "[::1]:53 > [::2]:4660 udp");
    }

    #[test]
    fn truncated_or_non_ip_frame_is_not_read_past_its_end() {
        for packet in [v4(0), v6(0)] {
            for length in 0..packet.len() {
                let _ = Headers::parse(&packet[..length]);
            }
        }
        assert_eq!(Headers::parse(&[]), None);
        assert_eq!(Headers::parse(&[0xff; 60]), None);
        // A header with a length field that exceeds the packet.
        let mut packet = v4(0);
        packet[0] = 0x4f;
        packet.truncate(30);
        assert_eq!(Headers::parse(&packet), None);
    }

    #[test]
    fn marked_packet_has_ce_and_a_valid_checksum() {
        // Every DSCP with ECT(0) and ECT(1).
        for traffic_class in (0..=255u8).filter(|class| [1, 2].contains(&(class & 3))) {
            for packet in [v4(traffic_class), v6(traffic_class)] {
                let mut frame = frame(&packet);
                assert_eq!(frame.dscp(), traffic_class >> 2);
                assert!(frame.ecn_capable());
                frame.mark_ce();
                assert!(frame.marked);
                assert_eq!(frame.traffic_class(), traffic_class | 3);
                if frame.is_v4() {
                    assert_eq!(sum(&frame.packet()[..20]), 0xffff);
                } else {
                    assert_eq!(frame.packet()[1] & 0xf, 0xa, "the flow label is not touched");
                }
            }
        }
        assert!(!frame(&v4(4)).ecn_capable());
        assert!(!frame(&v6(4)).ecn_capable());
    }
}
