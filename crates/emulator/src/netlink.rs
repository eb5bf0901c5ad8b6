//! The requests to the kernel's routing socket (rtnetlink(7)) that make a host: devices, addresses, routes.
//!
//! The messages are those of `netlink-packet-route`; only sending and receiving is done here. The crate `rtnetlink`
//! would need an async runtime in a process that enters one namespace after the other, and may have no threads yet.
//! With `neli` the nested attributes of a pair of devices would have to be laid out by hand.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressHeader, AddressHeaderFlags, AddressMessage,
};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sys::socket::{self, MsgFlags, SockFlag, SockProtocol, SockType, recv, send};

/// Queue between a host's network layer and its device, in packets: long enough that no burst is
/// lost before it reaches the bottleneck.
const TRANSMIT_QUEUE_PACKETS: u32 = 20_000;

/// How long a device may take to become able to transmit after it was switched on.
const MAX_START: Duration = Duration::from_secs(30);

/// Longer than any answer of the kernel to these requests, in bytes.
const MAX_ANSWER_BYTES: usize = 16 << 10;

/// Flags of a request that fails if its object exists already.
const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// The loopback device is the first of every namespace.
const LOOPBACK: u32 = 1;

/// A routing socket in the network namespace of the thread that opened it.
pub(super) struct Netlink {
    socket: OwnedFd,
}

fn unexpected_answer() -> io::Error {
    io::Error::other("unexpected answer of the routing socket")
}

/// The family of an address, and the prefix length of a single host.
fn family_of(address: IpAddr) -> (AddressFamily, u8) {
    match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    }
}

/// A message about the device `index`; 0 for a new one.
fn link(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    message
}

/// Sets flags of a device.
fn switch_on(mut message: LinkMessage, flags: LinkFlags) -> LinkMessage {
    message.header.flags = flags;
    message.header.change_mask = flags;
    message
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let socket = socket::socket(
            socket::AddressFamily::Netlink,
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

    fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(message, flags)?;
        self.acknowledged()
    }

    fn send(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(self.socket.as_raw_fd(), &bytes, MsgFlags::empty())?;
        Ok(())
    }

    /// Receives one message, and returns the error in it as such.
    fn receive(&self) -> io::Result<NetlinkPayload<RouteNetlinkMessage>> {
        let mut bytes = vec![0; MAX_ANSWER_BYTES];
        let length = recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
        let message = NetlinkMessage::deserialize(&bytes[..length]).map_err(io::Error::other)?;
        match message.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
            payload => Ok(payload),
        }
    }

    fn acknowledged(&self) -> io::Result<()> {
        match self.receive()? {
            NetlinkPayload::Error(_) => Ok(()),
            _ => Err(unexpected_answer()),
        }
    }

    /// Waits until a device that is switched on can transmit.
    ///
    /// The first device of a pair gets a carrier when the second one is switched on. Only then a worker thread of the
    /// kernel ("linkwatch") gives it a queue. Before that, the device drops every packet, and the sender sees success.
    /// The worker was up to 84 ms late beside twelve busy threads on two processors.
    pub(super) fn wait_until_running(&self, index: u32) -> io::Result<()> {
        let begun = Instant::now();
        // Since kernel 6.8 this request does the worker's part at once. In older kernels the worker sets the flag.
        while !self.flags(index)?.contains(LinkFlags::Running) {
            if begun.elapsed() > MAX_START {
                let message = format!("device {index} has no carrier after {MAX_START:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn flags(&self, index: u32) -> io::Result<LinkFlags> {
        self.send(RouteNetlinkMessage::GetLink(link(index, Vec::new())), 0)?;
        let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) = self.receive()?
        else {
            return Err(unexpected_answer());
        };
        self.acknowledged()?;
        Ok(link.header.flags)
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
        let peer = link(
            0,
            vec![
                LinkAttribute::IfName(peer.to_owned()),
                LinkAttribute::Address(mac.to_vec()),
                LinkAttribute::NetNsFd(other.as_raw_fd()),
            ],
        );
        let information = vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ];
        let attributes =
            vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::LinkInfo(information)];
        self.request(RouteNetlinkMessage::NewLink(link(0, attributes)), NEW)
    }

    /// Switches a device on, without address resolution: all its packets go to the emulator.
    pub(super) fn set_up(&self, index: u32, mtu: u32) -> io::Result<()> {
        let attributes =
            vec![LinkAttribute::Mtu(mtu), LinkAttribute::TxQueueLen(TRANSMIT_QUEUE_PACKETS)];
        let message = switch_on(link(index, attributes), LinkFlags::Up | LinkFlags::Noarp);
        self.request(RouteNetlinkMessage::NewLink(message), 0)
    }

    /// Gives a device a hardware address.
    pub(super) fn set_hardware_address(&self, index: u32, mac: [u8; 6]) -> io::Result<()> {
        let message = link(index, vec![LinkAttribute::Address(mac.to_vec())]);
        self.request(RouteNetlinkMessage::NewLink(message), 0)
    }

    /// Switches the loopback device on.
    pub(super) fn set_loopback_up(&self) -> io::Result<()> {
        let message = switch_on(link(LOOPBACK, Vec::new()), LinkFlags::Up);
        self.request(RouteNetlinkMessage::NewLink(message), 0)
    }

    /// Gives a device an address that is alone on its network.
    pub(super) fn add_address(&self, index: u32, address: IpAddr) -> io::Result<()> {
        let (family, prefix_len) = family_of(address);
        let mut message = AddressMessage::default();
        // Without duplicate address detection the address works at once.
        let flags = AddressHeaderFlags::Nodad;
        message.header = AddressHeader { family, prefix_len, flags, index, ..Default::default() };
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        self.request(RouteNetlinkMessage::NewAddress(message), NEW)
    }

    /// Routes all traffic of the address's family through a device.
    pub(super) fn add_default_route(&self, index: u32, address: IpAddr) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family_of(address).0,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: RouteScope::Link,
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        message.attributes = vec![RouteAttribute::Oif(index)];
        self.request(RouteNetlinkMessage::NewRoute(message), NEW)
    }
}
