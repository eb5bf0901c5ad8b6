//! Echo requests and their replies (RFC 792, RFC 4443 §4).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrIn, SockaddrIn6, recvmsg, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::sys;

const REQUEST: u8 = 8;
const REPLY: u8 = 0;
const REQUEST_V6: u8 = 128;
const REPLY_V6: u8 = 129;
/// Type, code, checksum, identifier and sequence number.
const HEADER: usize = 8;
/// The data of a request: a secret of this process, the path, the probe, and the time of sending.
const DATA: usize = 8 + 4 + 4 + 8;
/// The longest reply with an IPv4 header.
const LONGEST: usize = 60 + HEADER + DATA;
/// Replies read at once.
const MAX_AT_ONCE: usize = 64;

/// The data of an echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Which path and which probe it belongs to.
    pub(super) path: u32,
    pub(super) number: u32,
    /// When it was sent, in microseconds of CLOCK_MONOTONIC.
    pub(super) sent: u64,
}

/// An echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) request: Request,
    /// When it arrived, in microseconds of CLOCK_MONOTONIC.
    pub(super) arrived: u64,
}

/// Microseconds of a clock.
fn micros(time: TimeSpec) -> u64 {
    time.tv_sec().unsigned_abs() * 1_000_000 + time.tv_nsec().unsigned_abs() / 1_000
}

/// Microseconds of CLOCK_MONOTONIC, which `bpf_ktime_get_ns` reads as well.
pub(super) fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, micros)
}

/// Sends echo requests and receives the replies.
pub(super) struct Echo {
    v4: OwnedFd,
    /// Missing where IPv6 is disabled.
    v6: Option<OwnedFd>,
    secret: [u8; 8],
}

impl Echo {
    /// # Errors
    /// If this process may not (CAP_NET_RAW).
    pub(super) fn open() -> io::Result<Self> {
        let mut secret = [0; 8];
        io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut secret)?;
        let v6 = open_socket(AddressFamily::Inet6, SockProtocol::IcmpV6).and_then(|socket| {
            // All types but replies are blocked (RFC 3542 §3.2).
            let mut filter = [0xff; 32];
            filter[usize::from(REPLY_V6) / 32 * 4..][..4]
                .copy_from_slice(&(!(1u32 << (REPLY_V6 % 32))).to_ne_bytes());
            const ICMP6_FILTER: i32 = 1;
            sys::set_option(socket.as_fd(), libc::IPPROTO_ICMPV6, ICMP6_FILTER, &filter)?;
            Ok(socket)
        });
        let v4 = open_socket(AddressFamily::Inet, SockProtocol::Icmp)?;
        const SOL_RAW: i32 = 255;
        const ICMP_FILTER: i32 = 1;
        let filter = !(1u32 << REPLY);
        sys::set_option(v4.as_fd(), SOL_RAW, ICMP_FILTER, &filter.to_ne_bytes())?;
        Ok(Echo { v4, v6: v6.ok(), secret })
    }

    /// Readable when replies have arrived.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.v4.as_fd()).chain(self.v6.as_ref().map(AsFd::as_fd))
    }

    /// Cookie of the network namespace in which requests are sent.
    pub(super) fn network_namespace(&self) -> io::Result<u64> {
        sys::network_namespace(self.v4.as_fd())
    }

    fn data(&self, request: &Request) -> [u8; DATA] {
        let mut data = [0; DATA];
        data[..8].copy_from_slice(&self.secret);
        data[8..12].copy_from_slice(&request.path.to_ne_bytes());
        data[12..16].copy_from_slice(&request.number.to_ne_bytes());
        data[16..].copy_from_slice(&request.sent.to_ne_bytes());
        data
    }

    /// Sends a request by an interface. A request that cannot be sent is one that was lost.
    pub(super) fn send(&self, to: IpAddr, interface: u32, request: &Request) -> io::Result<()> {
        let mut message = [0; HEADER + DATA];
        message[0] = if to.is_ipv4() { REQUEST } else { REQUEST_V6 };
        message[4..6].copy_from_slice(&self.secret[..2]);
        message[6..8].copy_from_slice(&(request.number as u16).to_be_bytes());
        message[HEADER..].copy_from_slice(&self.data(request));
        let flags = MsgFlags::MSG_DONTWAIT;
        match to {
            IpAddr::V4(to) => {
                // The kernel computes the one of ICMPv6.
                let sum = checksum(&message);
                message[2..4].copy_from_slice(&sum.to_be_bytes());
                let info = libc::in_pktinfo {
                    ipi_ifindex: interface as i32,
                    ipi_spec_dst: libc::in_addr { s_addr: 0 },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
                let control = [ControlMessage::Ipv4PacketInfo(&info)];
                let data = [IoSlice::new(&message)];
                sendmsg(self.v4.as_raw_fd(), &data, &control, flags, Some(&to))?;
            }
            IpAddr::V6(to) => {
                let Some(socket) = &self.v6 else { return Err(io::ErrorKind::Unsupported.into()) };
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: [0; 16] },
                    ipi6_ifindex: interface,
                };
                let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, interface));
                let control = [ControlMessage::Ipv6PacketInfo(&info)];
                let data = [IoSlice::new(&message)];
                sendmsg(socket.as_raw_fd(), &data, &control, flags, Some(&to))?;
            }
        }
        Ok(())
    }

    /// The replies that have arrived.
    pub(super) fn receive(&self) -> Vec<Reply> {
        let mut replies = Vec::new();
        for (socket, is_v4) in
            std::iter::once((&self.v4, true)).chain(self.v6.iter().map(|socket| (socket, false)))
        {
            for _ in 0..MAX_AT_ONCE {
                match self.receive_from(socket, is_v4) {
                    Ok(reply) => replies.extend(reply),
                    Err(_) => break,
                }
            }
        }
        replies
    }

    /// One message; `None` if it is not an echo of a request of this process.
    fn receive_from(&self, socket: &OwnedFd, is_v4: bool) -> nix::Result<Option<Reply>> {
        let mut buffer = [0; LONGEST];
        let mut space = nix::cmsg_space!(TimeSpec);
        let mut data = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut data, Some(&mut space), flags)?;
        // The time of arrival is that of another clock.
        let stamp = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(time) => Some(micros(time)),
            _ => None,
        });
        let age = match (stamp, clock_gettime(ClockId::CLOCK_REALTIME)) {
            (Some(stamp), Ok(now)) => micros(now).saturating_sub(stamp).min(1_000_000),
            _ => 0,
        };
        let length = message.bytes;
        let arrived = now().saturating_sub(age);
        let request = buffer.get(..length).and_then(|bytes| self.request_in(bytes, is_v4));
        Ok(request.map(|request| Reply { request, arrived }))
    }

    /// The request that a message echoes, if it is one of this process.
    fn request_in(&self, bytes: &[u8], is_v4: bool) -> Option<Request> {
        let header = if is_v4 { usize::from(*bytes.first()? & 0xf) * 4 } else { 0 };
        let message = bytes.get(header..)?;
        let kind = if is_v4 { REPLY } else { REPLY_V6 };
        let data: &[u8; DATA] = message.get(HEADER..)?.first_chunk()?;
        if *message.first()? != kind || data[..8] != self.secret {
            return None;
        }
        Some(Request {
            path: u32::from_ne_bytes(*data[8..].first_chunk()?),
            number: u32::from_ne_bytes(*data[12..].first_chunk()?),
            sent: u64::from_ne_bytes(*data[16..].first_chunk()?),
        })
    }
}

fn open_socket(family: AddressFamily, protocol: SockProtocol) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Raw, flags, protocol)?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    Ok(socket)
}

/// RFC 1071, for a message of even length whose checksum is zero.
fn checksum(message: &[u8]) -> u16 {
    let words = message.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn checksum_of_rfc_1071_example() {
        let message = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&message), !0xddf2);
    }

    #[test]
    fn loopback_echoes_requests_of_both_families() {
        lull_testing::needs!(lull_testing::root());
        let echo = Echo::open().unwrap();
        for to in ["127.0.0.1", "::1"] {
            let request = Request { path: 7, number: 70_000, sent: now() };
            if echo.send(to.parse().unwrap(), 1, &request).is_err() && to == "::1" {
                continue; // IPv6 is disabled.
            }
            let reply = (0..100).find_map(|_| {
                thread::sleep(Duration::from_millis(10));
                echo.receive().into_iter().find(|reply| reply.request == request)
            });
            let arrived = reply.unwrap_or_else(|| panic!("{to} echoes")).arrived;
            assert!((request.sent..=now()).contains(&arrived), "{arrived} {}", request.sent);
        }
    }
}
