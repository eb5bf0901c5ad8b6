//! The loaded congestion controls, and the sockets that run them in every network namespace.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, UNIX_EPOCH};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, MapHandle};
use lull_cc::Window;

use crate::error::{Error, Result};
use crate::mounts::Bpffs;
use crate::parameters::{Algorithm, Parameters};
use crate::paths::{self, Membership, SharedPath};
use crate::skeletons::status::StatusSkelBuilder;
use crate::state::{Place, Record, State};
use crate::{control, machine};

/// A loaded congestion control.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Whether it is still loaded. If not, these sockets keep the earlier control of that name until they are
    /// closed.
    pub is_loaded: bool,
    /// Its parameters; None if another version of Lull loaded it.
    pub parameters: Option<Parameters>,
    /// Loaded by `lull exec`, and unloaded when its last program ends.
    pub automatic: bool,
    /// When it was loaded, since the Unix epoch.
    pub since: Duration,
    /// The sockets that run it.
    pub sockets: Vec<Socket>,
    /// The paths that they share; None if the algorithm has a separate state for each connection.
    pub paths: Option<Vec<SharedPath>>,
}

impl Status {
    /// Connections that run Nice separately, because the table of paths had no room for theirs.
    pub fn alone(&self) -> usize {
        match self.paths {
            Some(_) => self.sockets.iter().filter(|socket| socket.membership.is_none()).count(),
            None => 0,
        }
    }
}

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
    /// Those that detected other traffic.
    pub rounds_congested: u32,
    /// Time spent yielding: in rounds that ended in a reduction or ran below two packets.
    pub yielded: Duration,
}

/// A process that holds a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: i32,
    /// Its short name.
    pub command: String,
}

/// Everything that is loaded, by name.
///
/// # Errors
/// If the process has no permission.
pub fn status() -> Result<Vec<Status>> {
    machine::check_privilege("reading what is loaded")?;
    machine::check_btf()?;
    let bpffs = Bpffs::find()?;
    let state = match &bpffs {
        Some(bpffs) => State::open_existing(bpffs)?,
        None => None,
    };
    let mut all = match &state {
        Some(state) => loaded(state)?,
        None => Vec::new(),
    };
    all.extend(unloaded(state.as_ref())?);
    drop(state);
    if all.iter().any(|status| !status.sockets.is_empty()) {
        let owners = owners();
        for socket in all.iter_mut().flat_map(|status| &mut status.sockets) {
            socket.owner = owners.get(&socket.inode).cloned();
        }
    }
    Ok(all)
}

/// The loaded controls, with their sockets.
fn loaded(state: &State<'_>) -> Result<Vec<Status>> {
    let mut all = Vec::new();
    for name in state.names() {
        let Some(place) = state.find(&name) else { continue };
        let sockets = sockets(&place)?;
        let paths = match (&sockets, place.algorithm()) {
            (Some(sockets), Some(algorithm)) if algorithm.shares_paths() => {
                Some(paths::read(&place.paths(), sockets, place.foreground().exists())?)
            }
            _ => None,
        };
        let record = Record::read(&place.record())?;
        let since =
            place.since().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        all.push(Status {
            name,
            is_loaded: true,
            // Our program cannot read another version's.
            parameters: record.map(|record| record.parameters).filter(|_| sockets.is_some()),
            automatic: record.is_some_and(|record| record.automatic),
            since,
            sockets: sockets.unwrap_or_default(),
            paths,
        });
    }
    Ok(all)
}

/// The sockets that chose a control that was unloaded since, by its name.
///
/// Their maps are those of our programs that are pinned nowhere. Controls that another process of Lull
/// registered for itself are not included.
fn unloaded(state: Option<&State<'_>>) -> Result<Vec<Status>> {
    let places = |state: &State<'_>| {
        let names = state.names().into_iter();
        names.filter_map(|name| state.find(&name)).collect::<Vec<_>>()
    };
    let pinned: Vec<u32> =
        state.map(places).unwrap_or_default().iter().filter_map(Place::sockets_id).collect();
    let mut by_name = BTreeMap::<String, Vec<Socket>>::new();
    for id in control::maps_of_sockets() {
        let Some(map) = Some(id).filter(|id| !pinned.contains(id)).and_then(open_map) else {
            continue;
        };
        for record in ask(&map, Question::Records(Kind::Unknown))?.chunks_exact(RECORD_SIZE) {
            by_name.entry(name_in(record)).or_default().push(parse(record, Kind::Unknown));
        }
    }
    let is_pinned = |name: &str| state.is_some_and(|state| state.find(name).is_some());
    by_name.retain(|name, _| is_pinned(name) || !machine::is_registered(name));
    let status = |(name, sockets)| Status {
        name,
        is_loaded: false,
        parameters: None,
        automatic: false,
        since: Duration::ZERO,
        sockets,
        paths: None,
    };
    Ok(by_name.into_iter().map(status).collect())
}

fn open_map(id: u32) -> Option<MapHandle> {
    MapHandle::from_map_id(id).ok()
}

/// The size of `struct status_record`, which bpf/status.bpf.c asserts.
const RECORD_SIZE: usize = 160;

/// None if another version of Lull keeps another state of them.
fn sockets(place: &Place) -> Result<Option<Vec<Socket>>> {
    let Some(algorithm) = place.algorithm().filter(|_| place.knows_sockets()) else {
        return Ok(None);
    };
    let kind = Kind::of(algorithm);
    let bytes = ask(&open_sockets(place)?, Question::Records(kind))?;
    let records = bytes.chunks_exact(RECORD_SIZE);
    Ok(Some(records.map(|record| parse(record, kind)).collect()))
}

/// How many sockets use a congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Users {
    /// Those that a program holds.
    pub(crate) open: usize,
    /// Those that are closed, and exist until the other side has received everything.
    pub(crate) closed: usize,
}

/// How many sockets run the control loaded at a place, by any version of Lull.
pub(crate) fn count_sockets(place: &Place) -> Result<Users> {
    let bytes = ask(&open_sockets(place)?, Question::Count)?;
    let open = bytes.iter().filter(|&&byte| byte == 1).count();
    Ok(Users { open, closed: bytes.len() - open })
}

fn open_sockets(place: &Place) -> Result<MapHandle> {
    MapHandle::from_pinned_path(place.sockets()).map_err(Error::bpf("open the map of sockets"))
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

/// The holder of every visible socket.
fn owners() -> HashMap<u64, Owner> {
    let mut owners = HashMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let mut command = None;
        for descriptor in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let Some(inode) =
                fs::read_link(descriptor.path()).ok().as_deref().and_then(socket_inode)
            else {
                continue;
            };
            let command = command.get_or_insert_with(|| {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                name.trim_end().to_owned()
            });
            owners.entry(inode).or_insert_with(|| Owner { pid, command: command.clone() });
        }
    }
    owners
}

/// A process that holds the socket with this inode, if one is found.
pub(crate) fn process_with_socket(inode: u64) -> Option<i32> {
    owners().get(&inode).map(|owner| owner.pid)
}

/// The inode in `socket:[123]`.
pub(crate) fn socket_inode(link: &std::path::Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
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

    #[test]
    fn only_sockets_have_a_socket_inode() {
        assert_eq!(socket_inode("socket:[12]".as_ref()), Some(12));
        assert_eq!(socket_inode("pipe:[12]".as_ref()), None);
        assert_eq!(socket_inode("/dev/null".as_ref()), None);
    }
}
