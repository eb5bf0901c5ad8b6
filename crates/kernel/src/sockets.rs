//! The sockets that run a congestion control of Lull, read from the map with their states.

use std::io::Read;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, MapHandle};
use lull_cc::Window;

use crate::error::{Error, Result};
use crate::owners::Owner;
use crate::parameters::Algorithm;
use crate::skeletons::status::StatusSkelBuilder;
use crate::state::PinFolder;

/// The size of `struct status_record`, which bpf/status.bpf.c asserts.
const RECORD_SIZE: usize = 160;

/// A socket on a congestion control of Lull. Listeners, which run none, are not included.
#[derive(Clone, Debug)]
pub struct Socket {
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
    /// State of the connection, in the words of `ss`.
    pub state: &'static str,
    /// Inode of its network namespace, as in `ls -l /proc/self/ns/net`.
    pub network_namespace: u32,
    /// Inode of the socket, as in `ls -l /proc/PID/fd`; 0 once no process holds it.
    pub inode: u64,
    /// Identity of its cgroup: the inode of the directory.
    pub cgroup: u64,
    /// The window W; None for a socket whose control is no longer loaded.
    pub window: Option<Window>,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// How it yields. None if it keeps no such state itself: TCP-Background does not yield, and Lull keeps
    /// the state for the path.
    pub yielding: Option<Yielding>,
    /// Payload that the other side has acknowledged.
    pub bytes_acked: u64,
    /// Payload sent, including retransmissions.
    pub bytes_sent: u64,
    /// Payload received in order.
    pub bytes_received: u64,
    /// Payload of a full packet, in bytes.
    pub mss: u32,
    /// Bytes that the other side may send before the next acknowledgement, as advertised last.
    pub receive_window: u32,
    /// A process that holds it, if one is found.
    pub owner: Option<Owner>,
    /// The place of its state, if it shares one.
    pub(crate) membership: Option<Membership>,
}

/// The state of a congestion control that yields by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Yielding {
    /// Round-trip time of the empty queue: the lowest of the last 200 seconds or more, without one
    /// outlier.
    pub min_rtt: Duration,
    /// Round-trip time of the full queue: the highest mean of a round, but at least the value around a loss
    /// or, without one, twice min_rtt.
    pub max_rtt: Duration,
    /// Rounds that have passed.
    pub rounds: u32,
    /// Rounds that detected other traffic.
    pub rounds_congested: u32,
    /// Time spent yielding: in rounds that ended in a reduction or ran below two packets.
    pub yielded: Duration,
}

/// The place of a connection's state: number within the path, and epoch of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Membership {
    pub(crate) epoch: u64,
    pub(crate) number: u32,
}

/// The sockets that run the control loaded at a place. None if another version of Lull keeps another state of
/// them.
pub(crate) fn read(folder: &PinFolder) -> Result<Option<Vec<Socket>>> {
    let Some(algorithm) = folder.algorithm().filter(|_| folder.knows_sockets()) else {
        return Ok(None);
    };
    let kind = Kind::of(algorithm);
    let bytes = ask(&open_sockets(folder)?, Question::Records(kind))?;
    let records = bytes.chunks_exact(RECORD_SIZE);
    Ok(Some(records.map(|record| parse(record, kind)).collect()))
}

/// The sockets of a map, possibly of another version of Lull, each with the name of its congestion control.
pub(crate) fn read_unknown(map: &MapHandle) -> Result<Vec<(String, Socket)>> {
    let bytes = ask(map, Question::Records(Kind::Unknown))?;
    let records = bytes.chunks_exact(RECORD_SIZE);
    Ok(records.map(|record| (name_in(record), parse(record, Kind::Unknown))).collect())
}

/// How many sockets use a congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Users {
    /// Sockets that a program holds.
    pub(crate) open: usize,
    /// Closed sockets, which exist until the other side has received everything.
    pub(crate) closed: usize,
}

/// How many sockets run the control loaded at a place, by any version of Lull.
pub(crate) fn count(folder: &PinFolder) -> Result<Users> {
    let bytes = ask(&open_sockets(folder)?, Question::Count)?;
    let open = bytes.iter().filter(|&&byte| byte == 1).count();
    Ok(Users { open, closed: bytes.len() - open })
}

fn open_sockets(folder: &PinFolder) -> Result<MapHandle> {
    MapHandle::from_pinned_path(folder.sockets()).map_err(Error::bpf("open the map of sockets"))
}

/// The kind of a socket's state; the order of `enum status_state` in `bpf/status.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Possibly another version's: it is not read.
    Unknown,
    Nice,
    Background,
    Lull,
}

impl Kind {
    fn of(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Nice | Algorithm::Vegas => Self::Nice,
            Algorithm::Background => Self::Background,
            Algorithm::Lull => Self::Lull,
        }
    }
}

/// The query that a program of `bpf/status.bpf.c` answers for each socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Records(Kind),
    /// A byte.
    Count,
}

fn ask(map: &MapHandle, question: Question) -> Result<Vec<u8>> {
    let mut object = MaybeUninit::uninit();
    let mut open = StatusSkelBuilder::default()
        .open(&mut object)
        .map_err(Error::bpf("open the program that lists sockets"))?;
    open.maps
        .sockets
        .set_autocreate(false)
        .map_err(Error::bpf("open the program that lists sockets"))?;
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the program has constants");
    rodata.state_kind = match question {
        Question::Records(kind) => kind as u32,
        Question::Count => Kind::Unknown as u32,
    };
    let loaded = open.load().map_err(Error::bpf("load the program that lists sockets"))?;
    let program = match question {
        Question::Records(_) => &loaded.progs.lull_status,
        Question::Count => &loaded.progs.lull_count,
    };
    let link = program.attach_iter(map.as_fd()).map_err(Error::bpf("list sockets"))?;
    let mut bytes = Vec::new();
    Iter::new(&link)
        .map_err(Error::bpf("list sockets"))?
        .read_to_end(&mut bytes)
        .map_err(Error::io("list sockets"))?;
    Ok(bytes)
}

/// Takes fields from the front of a record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, tail) = self.0.split_first_chunk().expect("a record is long enough");
        self.0 = tail;
        *head
    }

    fn long(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    fn word(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn micros(&mut self) -> Duration {
        Duration::from_micros(self.word().into())
    }

    fn port(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }
}

/// The mirror of `struct status_record` in bpf/status.h, in its order.
fn parse(record: &[u8], kind: Kind) -> Socket {
    let mut fields = Fields(record);
    let window = Window::from_raw(fields.long());
    let yielded = Duration::from_micros(fields.long());
    let bytes_acked = fields.long();
    let bytes_sent = fields.long();
    let bytes_received = fields.long();
    let inode = fields.long();
    let cgroup = fields.long();
    let epoch = fields.long();
    let network_namespace = fields.word();
    let family = fields.word() as i32;
    let state = state_name(fields.word());
    let min_rtt = fields.micros();
    let max_rtt = fields.micros();
    let srtt = fields.micros();
    let rounds = fields.word();
    let rounds_congested = fields.word();
    let mss = fields.word();
    let receive_window = fields.word();
    let local_port = fields.port();
    let remote_port = fields.port();
    let number = fields.word();
    let local = address(family, fields.take());
    let remote = address(family, fields.take());
    Socket {
        local: SocketAddr::new(local, local_port),
        remote: SocketAddr::new(remote, remote_port),
        state,
        network_namespace,
        inode,
        cgroup,
        window: (kind != Kind::Unknown).then_some(window),
        srtt,
        yielding: (kind == Kind::Nice).then_some(Yielding {
            min_rtt,
            max_rtt,
            rounds,
            rounds_congested,
            yielded,
        }),
        bytes_acked,
        bytes_sent,
        bytes_received,
        mss,
        receive_window,
        owner: None,
        membership: (epoch != 0).then_some(Membership { epoch, number }),
    }
}

/// The congestion control of the socket of a record.
fn name_in(record: &[u8]) -> String {
    let name = &record[RECORD_SIZE - 16..];
    String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}

fn address(family: i32, bytes: [u8; 16]) -> IpAddr {
    if family == libc::AF_INET {
        let [a, b, c, d, ..] = bytes;
        Ipv4Addr::new(a, b, c, d).into()
    } else {
        Ipv6Addr::from(bytes).into()
    }
}

/// The states of include/net/tcp_states.h.
fn state_name(state: u32) -> &'static str {
    const NAMES: [&str; 13] = [
        "UNKNOWN",
        "ESTAB",
        "SYN-SENT",
        "SYN-RECV",
        "FIN-WAIT-1",
        "FIN-WAIT-2",
        "TIME-WAIT",
        "UNCONN",
        "CLOSE-WAIT",
        "LAST-ACK",
        "LISTEN",
        "CLOSING",
        "NEW-SYN-RECV",
    ];
    NAMES.get(state as usize).copied().unwrap_or(NAMES[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_in_the_order_of_the_header() {
        let mut bytes = Vec::new();
        for long in [1u64 << 16, 2, 3, 4, 15, 5, 6, 13] {
            bytes.extend(long.to_ne_bytes());
        }
        for word in [7u32, libc::AF_INET as u32, 1, 8, 9, 10, 11, 12, 16, 17] {
            bytes.extend(word.to_ne_bytes());
        }
        for port in [80u16, 443] {
            bytes.extend(port.to_ne_bytes());
        }
        bytes.extend(14u32.to_ne_bytes());
        bytes.extend([127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(*b"nice\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(bytes.len(), RECORD_SIZE);
        assert_eq!(name_in(&bytes), "nice");
        let socket = parse(&bytes, Kind::Nice);
        assert_eq!(socket.local, "127.0.0.1:80".parse().unwrap());
        assert_eq!(socket.remote, "10.0.0.2:443".parse().unwrap());
        assert_eq!(socket.state, "ESTAB");
        assert_eq!((socket.bytes_acked, socket.bytes_sent, socket.bytes_received), (3, 4, 15));
        assert_eq!((socket.inode, socket.mss, socket.receive_window), (5, 16, 17));
        assert_eq!(socket.window, Some(Window::ONE));
        assert_eq!(socket.yielding.unwrap().rounds_congested, 12);
        assert_eq!(socket.srtt, Duration::from_micros(10));
        assert_eq!(socket.membership, Some(Membership { epoch: 13, number: 14 }));
        assert_eq!(parse(&bytes, Kind::Background).yielding, None);
        assert_eq!(parse(&bytes, Kind::Unknown).window, None);
    }
}
