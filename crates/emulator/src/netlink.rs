//! The few requests to the kernel's routing socket (rtnetlink(7)) that make a host: devices,
//! addresses, routes.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

// linux/rtnetlink.h, linux/netlink.h
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_EXCL: u16 = 0x200;
const NLMSG_ERROR: u16 = 2;
const HEADER_BYTES: usize = 16;
// linux/if_link.h
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
// linux/if_addr.h
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// No duplicate address detection: the address works at once.
const IFA_F_NODAD: u8 = 2;
// linux/rtnetlink.h
const RTA_OIF: u16 = 4;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;

/// Queue between a host's network layer and its device, in packets: long enough that no burst is
/// lost before it reaches the bottleneck.
const TRANSMIT_QUEUE_PACKETS: u32 = 20_000;

/// How long a device may take to transmit after it was switched on.
const LONGEST_START: Duration = Duration::from_secs(30);

/// A routing socket in the network namespace of the thread that opened it.
pub(super) struct Netlink {
    socket: OwnedFd,
}

/// A request that is being put together.
struct Request(Vec<u8>);

impl Request {
    fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
        bytes.extend_from_slice(body);
        Request(bytes)
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.nested(kind, |request| request.0.extend_from_slice(value))
    }

    /// An attribute whose value `fill` appends.
    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Request)) -> &mut Self {
        let start = self.0.len();
        self.0.extend_from_slice(&[0, 0]);
        self.0.extend_from_slice(&kind.to_ne_bytes());
        fill(self);
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        while !self.0.len().is_multiple_of(4) {
            self.0.push(0);
        }
        self
    }
}

/// `struct ifinfomsg`.
fn link_message(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut message = [0; 16];
    message[4..8].copy_from_slice(&index.to_ne_bytes());
    message[8..12].copy_from_slice(&flags.to_ne_bytes());
    message[12..16].copy_from_slice(&change.to_ne_bytes());
    message
}

/// Family, address and the length of the prefix that is the host alone.
fn address_parts(address: IpAddr) -> (u8, Vec<u8>, u8) {
    match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, address.octets().to_vec(), 32),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, address.octets().to_vec(), 128),
    }
}

fn zero_terminated(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// What the kernel answers.
enum Answer {
    /// The request was carried out.
    Acknowledged,
    /// A message of this type; its content without the header.
    Data(u16, Vec<u8>),
}

fn unexpected_answer() -> io::Error {
    io::Error::other("unexpected answer of the routing socket")
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Netlink { socket })
    }

    /// The socket itself, for requests that any socket takes.
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn request(&self, request: &mut Request) -> io::Result<()> {
        self.send(request)?;
        match self.receive()? {
            Answer::Acknowledged => Ok(()),
            Answer::Data(..) => Err(unexpected_answer()),
        }
    }

    fn send(&self, request: &mut Request) -> io::Result<()> {
        let length = request.0.len() as u32;
        request.0[..4].copy_from_slice(&length.to_ne_bytes());
        send(self.socket.as_raw_fd(), &request.0, MsgFlags::empty())?;
        Ok(())
    }

    /// Receives one message, and returns the error in it as such.
    fn receive(&self) -> io::Result<Answer> {
        let mut answer = vec![0; 16 << 10];
        let read = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        if read < HEADER_BYTES + 4 {
            return Err(unexpected_answer());
        }
        answer.truncate(read);
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        answer.drain(..HEADER_BYTES);
        if kind != NLMSG_ERROR {
            return Ok(Answer::Data(kind, answer));
        }
        match i32::from_ne_bytes([answer[0], answer[1], answer[2], answer[3]]) {
            0 => Ok(Answer::Acknowledged),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    /// Waits until a device that is switched on transmits.
    ///
    /// The first device of a pair gets a carrier when the second one is switched on. Only then a worker thread of the
    /// kernel ("linkwatch") gives it a queue. Before that, the device drops every packet, and the sender sees success.
    /// The worker was up to 84 ms late beside twelve busy threads on two processors.
    pub(super) fn wait_until_running(&self, index: u32) -> io::Result<()> {
        let begun = Instant::now();
        // Since kernel 6.8 this request does the worker's part at once. In older kernels the worker sets the flag.
        while self.flags(index)? & libc::IFF_RUNNING as u32 == 0 {
            if begun.elapsed() > LONGEST_START {
                let message = format!("device {index} has no carrier after {LONGEST_START:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The flags of a device, `IFF_…`.
    fn flags(&self, index: u32) -> io::Result<u32> {
        self.send(&mut Request::new(RTM_GETLINK, 0, &link_message(index, 0, 0)))?;
        let Answer::Data(RTM_NEWLINK, link) = self.receive()? else {
            return Err(unexpected_answer());
        };
        let Answer::Acknowledged = self.receive()? else {
            return Err(unexpected_answer());
        };
        // struct ifinfomsg: family, type, index, flags.
        let flags = link.get(8..12).and_then(|bytes| bytes.try_into().ok());
        flags.map(u32::from_ne_bytes).ok_or_else(unexpected_answer)
    }

    /// Makes a pair of virtual Ethernet devices: `name` here, `peer` in the namespace `other`.
    /// The peer gets the hardware address `mac`.
    pub(super) fn add_veth(
        &self,
        name: &str,
        peer: &str,
        other: BorrowedFd<'_>,
        mac: [u8; 6],
    ) -> io::Result<()> {
        let body = link_message(0, 0, 0);
        let mut request = Request::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &body);
        request.attribute(IFLA_IFNAME, &zero_terminated(name));
        request.nested(IFLA_LINKINFO, |request| {
            request.attribute(IFLA_INFO_KIND, b"veth");
            request.nested(IFLA_INFO_DATA, |request| {
                request.nested(VETH_INFO_PEER, |request| {
                    request.0.extend_from_slice(&link_message(0, 0, 0));
                    request.attribute(IFLA_IFNAME, &zero_terminated(peer));
                    request.attribute(IFLA_ADDRESS, &mac);
                    request.attribute(IFLA_NET_NS_FD, &other.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.request(&mut request)
    }

    /// Switches a device on, without address resolution: whatever leaves it goes to the
    /// emulator.
    pub(super) fn set_up(&self, index: u32, mtu: u32) -> io::Result<()> {
        let flags = (libc::IFF_UP | libc::IFF_NOARP) as u32;
        let mut request = Request::new(RTM_NEWLINK, 0, &link_message(index, flags, flags));
        request.attribute(IFLA_MTU, &mtu.to_ne_bytes());
        request.attribute(IFLA_TXQLEN, &TRANSMIT_QUEUE_PACKETS.to_ne_bytes());
        self.request(&mut request)
    }

    /// Gives a device a hardware address.
    pub(super) fn set_hardware_address(&self, index: u32, mac: [u8; 6]) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWLINK, 0, &link_message(index, 0, 0));
        request.attribute(IFLA_ADDRESS, &mac);
        self.request(&mut request)
    }

    /// Switches the loopback device on.
    pub(super) fn set_loopback_up(&self) -> io::Result<()> {
        let up = libc::IFF_UP as u32;
        // The loopback device is the first of every namespace.
        self.request(&mut Request::new(RTM_NEWLINK, 0, &link_message(1, up, up)))
    }

    /// Gives a device an address of its own, with nothing else on its network.
    pub(super) fn add_address(&self, index: u32, address: IpAddr) -> io::Result<()> {
        let (family, octets, prefix) = address_parts(address);
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        let mut body = [family, prefix, IFA_F_NODAD, 0, 0, 0, 0, 0];
        body[4..].copy_from_slice(&index.to_ne_bytes());
        let mut request = Request::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &body);
        request.attribute(IFA_LOCAL, &octets);
        request.attribute(IFA_ADDRESS, &octets);
        self.request(&mut request)
    }

    /// Sends everything of the address's family through a device.
    pub(super) fn add_default_route(&self, index: u32, family_of: IpAddr) -> io::Result<()> {
        let (family, _, _) = address_parts(family_of);
        // struct rtmsg: family, destination and source prefix, type of service, table, protocol,
        // scope, type, flags.
        let body =
            [family, 0, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST, 0, 0, 0, 0];
        let mut request = Request::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &body);
        request.attribute(RTA_OIF, &index.to_ne_bytes());
        self.request(&mut request)
    }
}
