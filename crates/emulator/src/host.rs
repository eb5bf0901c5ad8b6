//! Emulated hosts: network namespaces that exist only as descriptors of this process.
//!
//! They have no name in the file system, so nothing is left behind when the process ends in any way.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic;
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::ReceiveTimestampns;

use super::netlink::Netlink;
use super::{Backend, Error, Topology, sys};

/// The device of every host, within its namespace.
pub(super) const DEVICE: &str = "lull0";

/// The hardware address of all hosts. Without address resolution a host sends to its own address, so that
/// frames reach any other host unchanged.
pub(super) const HARDWARE_ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

/// A side of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

impl Side {
    /// The third byte of a host's address determines its side.
    fn number(self) -> u8 {
        match self {
            Side::Left => 1,
            Side::Right => 2,
        }
    }
}

/// An emulated host: a network namespace with its own addresses and one port.
///
/// Cheap to clone; the namespace exists until the last clone and the last process inside have ended.
#[derive(Clone, Debug)]
pub struct Host {
    name: String,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    namespace: Arc<OwnedFd>,
}

impl Host {
    /// `left1`, `left2`, …, `right1`, ….
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its IPv4 address.
    pub fn v4(&self) -> Ipv4Addr {
        self.v4
    }

    /// Its IPv6 address.
    pub fn v6(&self) -> Ipv6Addr {
        self.v6
    }

    /// The environment variables with a program's addresses: `LULL_LEFT_1` and `LULL_LEFT_1_V6` for left1.
    pub fn variables(&self) -> [(String, String); 2] {
        let digits = self.name().trim_start_matches(|c: char| !c.is_ascii_digit());
        let side = &self.name()[..self.name().len() - digits.len()];
        let name = format!("LULL_{}_{digits}", side.to_ascii_uppercase());
        let v6 = format!("{name}_V6");
        [(name, self.v4().to_string()), (v6, self.v6().to_string())]
    }

    /// Its network namespace.
    pub fn namespace(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    /// Runs `work` on a thread inside the host and returns its result. Sockets made there belong to the host
    /// and may be used anywhere afterwards.
    ///
    /// # Errors
    /// [`Error::System`] if the namespace cannot be entered.
    ///
    /// # Panics
    /// If `work` panics, with the same payload.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        in_namespace(self.namespace.as_fd(), work)
    }

    /// Runs `work` on a new thread inside the host.
    ///
    /// # Errors
    /// [`Error::System`] if no thread can be started. A namespace that cannot be entered makes
    /// the thread panic.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, Error> {
        let host = self.clone();
        let inside = move || {
            setns(host.namespace(), CloneFlags::CLONE_NEWNET).expect("a host can be entered");
            work()
        };
        thread::Builder::new()
            .name(self.name.clone())
            .spawn(inside)
            .map_err(|error| Error::system("starting a thread", error))
    }

    /// A command that will run inside the host, with no signal blocked.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        sys::enter_on_exec(&mut command, Arc::clone(&self.namespace));
        command
    }

    /// Sets a sysctl of the host, such as `net.ipv4.tcp_congestion_control`.
    ///
    /// # Errors
    /// [`Error::Sysctl`] if there is no sysctl of that name, or the kernel rejects the value.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<(), Error> {
        self.enter(|| write_sysctl(name, value))?
    }
}

fn write_sysctl(name: &str, value: &str) -> Result<(), Error> {
    fs::write(format!("/proc/sys/{}", name.replace('.', "/")), value)
        .map_err(|source| Error::Sysctl { name: name.to_owned(), value: value.to_owned(), source })
}

/// Runs `work` on a thread inside a network namespace.
fn in_namespace<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, Error> {
    on_thread(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET)
            .map_err(|error| Error::system("entering a network namespace", error))?;
        Ok(work())
    })
}

/// Runs `work` on a new thread, so that the caller's namespace does not change.
fn on_thread<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        thread::Builder::new()
            .spawn_scoped(scope, work)
            .map_err(|error| Error::system("starting a thread", error))?
            .join()
            .unwrap_or_else(|payload| panic::resume_unwind(payload))
    })
}

/// Makes a network namespace that exists only as the returned descriptor.
pub(super) fn new_namespace() -> Result<OwnedFd, Error> {
    on_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| match error {
            nix::errno::Errno::EPERM => Error::Permission(error.into()),
            other => Error::system("making a network namespace", other),
        })?;
        let namespace = File::open("/proc/thread-self/ns/net")
            .map_err(|error| Error::system("opening /proc/thread-self/ns/net", error))?;
        Ok(namespace.into())
    })
}

fn congestion_control_path(name: &str) -> String {
    format!("/proc/sys/net/ipv4/{name}")
}

/// One of the congestion-control settings of the calling thread's namespace.
fn congestion_control(name: &str) -> io::Result<String> {
    Ok(fs::read_to_string(congestion_control_path(name))?.trim().to_owned())
}

/// Sets the options of every host before its device exists.
pub(super) fn prepare(topology: &Topology) -> Result<(), Error> {
    let set = |name: &str| fs::write(congestion_control_path("tcp_congestion_control"), name);
    match &topology.congestion_control {
        Some(name) => set(name).map_err(|source| Error::CongestionControl {
            name: name.clone(),
            allowed: congestion_control("tcp_allowed_congestion_control").unwrap_or_default(),
            source,
        })?,
        // If it is refused, the hosts keep the machine's default; the record says which.
        None => drop(set(Topology::PREFERRED_CONGESTION_CONTROL)),
    }
    for (name, value) in [
        // A flow starts without state of earlier flows.
        ("net.ipv4.tcp_no_metrics_save", "1"),
        // The TCP window's limit is large enough never to limit a flow.
        ("net.ipv4.tcp_rmem", "4096 131072 67108864"),
        ("net.ipv4.tcp_wmem", "4096 65536 67108864"),
    ] {
        write_sysctl(name, value)?;
    }
    for (name, value) in [
        // No search for routers, neighbours or duplicates: the link carries only the programs' packets.
        ("net.ipv6.conf.default.accept_dad", "0"),
        ("net.ipv6.conf.default.accept_ra", "0"),
        ("net.ipv6.conf.default.router_solicitations", "0"),
        ("net.ipv6.conf.default.addr_gen_mode", "1"),
        // ping without privileges, at least for root's group.
        ("net.ipv4.ping_group_range", "0 0"),
    ] {
        // Without IPv6 in the kernel these do not exist, and are not needed.
        let _ = write_sysctl(name, value);
    }
    Ok(())
}

/// A host's end within the emulator.
#[derive(Debug)]
pub(super) enum Port {
    /// Reads and writes IP packets.
    Tun(OwnedFd),
    /// Reads and writes Ethernet frames.
    Packet(OwnedFd),
}

impl Port {
    pub(super) fn descriptor(&self) -> &OwnedFd {
        match self {
            Port::Tun(descriptor) | Port::Packet(descriptor) => descriptor,
        }
    }
}

/// All hosts of a topology and their ports, left ones first.
pub(super) struct Hosts {
    pub(super) hosts: Vec<Host>,
    pub(super) ports: Vec<Port>,
    pub(super) backend: Backend,
    /// The hosts' default.
    pub(super) congestion_control: String,
}

/// The back end that [`Backend::Auto`] selects on this machine.
fn choose(backend: Backend) -> Backend {
    let usable = || fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok();
    match backend {
        Backend::Auto if usable() => Backend::Tun,
        Backend::Auto => Backend::Packet,
        chosen => chosen,
    }
}

impl Hosts {
    /// Makes the hosts. After an error nothing is left behind: everything made so far was held by descriptors
    /// that are closed now.
    pub(super) fn make(topology: &Topology) -> Result<Self, Error> {
        let backend = choose(topology.backend);
        let wires = match backend {
            Backend::Packet => Some(new_namespace()?),
            _ => None,
        };
        let left = (1..=topology.left).map(|number| (Side::Left, number));
        let right = (1..=topology.right).map(|number| (Side::Right, number));
        let mut made = Hosts {
            hosts: Vec::new(),
            ports: Vec::new(),
            backend,
            congestion_control: String::new(),
        };
        for (side, number) in left.chain(right) {
            let mut host = new_host(side, number)?;
            if topology.separate && side == Side::Right {
                host.v4 = in_own_network(number);
            }
            made.congestion_control = host.enter(|| {
                prepare(topology)?;
                congestion_control("tcp_congestion_control")
                    .map_err(|error| Error::system("reading the congestion control", error))
            })??;
            let wire = format!("wire{}", made.hosts.len());
            let port = match &wires {
                None => Port::Tun(host.enter(|| sys::open_tun(DEVICE).map_err(Error::Tun))??),
                Some(wires) => {
                    let socket = in_namespace(wires.as_fd(), || {
                        attach(&wire, host.namespace(), topology.mtu)
                            .map_err(|error| Error::system("making a pair of devices", error))
                    })??;
                    Port::Packet(socket)
                }
            };
            host.enter(|| configure(&host, &port, topology.mtu))?
                .map_err(|error| Error::system("configuring an emulated host", error))?;
            if let Some(wires) = &wires {
                in_namespace(wires.as_fd(), || wait_until_running(&wire))?
                    .map_err(|error| Error::system("starting a device", error))?;
            }
            made.hosts.push(host);
            made.ports.push(port);
        }
        Ok(made)
    }
}

pub(super) fn new_host(side: Side, number: usize) -> Result<Host, Error> {
    let [high, low] = (number as u16).to_be_bytes();
    let name = match side {
        Side::Left => format!("left{number}"),
        Side::Right => format!("right{number}"),
    };
    Ok(Host {
        name,
        v4: Ipv4Addr::new(10, side.number(), high, low),
        // A unique local prefix (RFC 4193 §3.1) whose identifier spells "lull".
        v6: Ipv6Addr::new(0xfd6c, 0x756c, 0x6c00, u16::from(side.number()), 0, 0, 0, number as u16),
        namespace: Arc::new(new_namespace()?),
    })
}

/// The address of a right host with a link of its own. Lull's controllers expect hosts of one /24 behind one link.
fn in_own_network(number: usize) -> Ipv4Addr {
    let [high, low] = (number as u16).to_be_bytes();
    Ipv4Addr::new(10, Side::Right.number() + high, low, 1)
}

/// Inside the namespace of the wires: makes a pair of devices, one end in the host, and opens
/// the other end.
fn attach(name: &str, host: BorrowedFd<'_>, mtu: u32) -> io::Result<OwnedFd> {
    // The wires themselves have no IPv6.
    for scope in ["all", "default"] {
        let _ = write_sysctl(&format!("net.ipv6.conf.{scope}.disable_ipv6"), "1");
    }
    let netlink = Netlink::open()?;
    netlink.add_veth(name, DEVICE, host, HARDWARE_ADDRESS)?;
    let index = nix::net::if_::if_nametoindex(name)?;
    netlink.set_up(index, mtu)?;
    sys::disable_offloads(netlink.socket(), name)?;
    let socket = sys::open_packet_socket(index)?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    Ok(socket)
}

/// Waits until a device of the calling thread's namespace can transmit.
pub(super) fn wait_until_running(name: &str) -> io::Result<()> {
    Netlink::open()?.wait_until_running(nix::net::if_::if_nametoindex(name)?)
}

/// Inside a host: switches its device on and gives it addresses.
fn configure(host: &Host, port: &Port, mtu: u32) -> io::Result<()> {
    let netlink = Netlink::open()?;
    let index = nix::net::if_::if_nametoindex(DEVICE)?;
    netlink.set_loopback_up()?;
    if let Port::Packet(_) = port {
        sys::disable_offloads(netlink.socket(), DEVICE)?;
    }
    netlink.set_up(index, mtu)?;
    for address in [IpAddr::V4(host.v4), IpAddr::V6(host.v6)] {
        let added = netlink
            .add_address(index, address)
            .and_then(|()| netlink.add_default_route(index, address));
        // A kernel without IPv6 rejects the family; IPv4 still works.
        if address.is_ipv4() {
            added?;
        }
    }
    Ok(())
}

/// Packets that a host's device dropped before the emulator saw them.
pub(super) fn device_drops(host: &Host) -> Result<u64, Error> {
    let table = host
        .enter(|| fs::read_to_string("/proc/thread-self/net/dev"))?
        .map_err(|error| Error::system("reading /proc/net/dev", error))?;
    let line = table.lines().find_map(|line| line.trim().strip_prefix(DEVICE)?.strip_prefix(':'));
    // proc(5): eight counters of reception, then bytes, packets, errors and drops of transmission.
    let drops = line.and_then(|line| line.split_whitespace().nth(11)?.parse().ok());
    Ok(drops.unwrap_or(0))
}
