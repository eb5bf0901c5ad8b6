//! The programs of `bpf/exec.bpf.c`, which make the sockets of a cgroup background ones.

use std::cell::{Cell, RefCell};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::libbpf_sys::bpf_attach_type;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{
    Iter, MapCore, MapFlags, MapHandle, OpenObject, ProgramAttachType, RingBuffer,
    RingBufferBuilder,
};
use serde::Serialize;

use crate::admission::{Admission, admit};
use crate::attach::attach_beside_others;
use crate::error::{Error, Result};
use crate::mounts::Bpffs;
use crate::receive::{Attached, Direction, ReceiveHooks};
use crate::skeletons::exec::{ExecSkel, ExecSkelBuilder};
use crate::udp::{Udp, UdpTraffic, Yielding, yield_udp};

/// The traffic class of lower effort (RFC 8622): the code point 000001, and no ECN.
pub(crate) const LOWER_EFFORT: u8 = 1 << 2;

/// The differentiated services code point that packets carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dscp {
    /// Lower effort, 000001 (RFC 8622): networks that support it send it after all other packets.
    #[default]
    Le,
    /// The choice of the program.
    None,
}

impl Dscp {
    /// The TOS byte of IPv4 or traffic class of IPv6, if Lull sets it.
    pub fn traffic_class(self) -> Option<u8> {
        match self {
            Dscp::Le => Some(LOWER_EFFORT),
            Dscp::None => None,
        }
    }
}

/// The words of `struct exec_counters`, which bpf/exec.bpf.c asserts.
const COUNTERS: usize = 10;

/// The counters of the hooks; the mirror of `struct exec_counters`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) tcp_bytes: u64,
    pub(crate) tcp_received: u64,
    pub(crate) udp_bytes: u64,
    pub(crate) connections: u64,
    /// Connections that did not take the congestion control.
    pub(crate) refused: u64,
    /// The total lifetime of the connections.
    pub(crate) lived: Duration,
    /// The part of it that they yielded.
    pub(crate) yielded: Duration,
    /// Connections that could only be established without the mark.
    pub(crate) unmarked: u64,
}

impl Counters {
    /// As one line of numbers.
    pub(crate) fn to_words(self) -> [u64; 8] {
        let micros = |time: Duration| time.as_micros() as u64;
        [
            self.tcp_bytes,
            self.tcp_received,
            self.udp_bytes,
            self.connections,
            self.refused,
            micros(self.lived),
            micros(self.yielded),
            self.unmarked,
        ]
    }

    pub(crate) fn from_words(words: [u64; 8]) -> Self {
        let [tcp_bytes, tcp_received, udp_bytes, connections, refused, lived, yielded, unmarked] =
            words;
        let (lived, yielded) = (Duration::from_micros(lived), Duration::from_micros(yielded));
        Counters {
            tcp_bytes,
            tcp_received,
            udp_bytes,
            connections,
            refused,
            lived,
            yielded,
            unmarked,
        }
    }
}

/// The settings for the programs of a background cgroup.
pub(crate) struct HookSettings<'a> {
    /// The congestion control of its sockets.
    pub(crate) congestion: &'a str,
    /// The mark of its packets.
    pub(crate) dscp: Dscp,
    /// The pinned map of a congestion control of this version of Lull.
    pub(crate) sockets: Option<&'a Path>,
    /// System calls mark IPv4 traffic of IPv6 sockets, as on old kernels.
    pub(crate) mapped_by_parent: bool,
    /// The kernel rejects the programs for received traffic.
    pub(crate) no_receive_hook: bool,
    /// Connections that start together are admitted one after the other.
    pub(crate) admits: bool,
    /// The pinned map with the weights of sockets of `lull`, and the weight of those of this background.
    pub(crate) weights: Option<(&'a Path, u32)>,
    /// Which TCP traffic yields.
    pub(crate) direction: Direction,
    /// The treatment of UDP packets that are sent.
    pub(crate) udp: Udp,
    /// The weight of what is received.
    pub(crate) weight: Option<u32>,
}

/// The loaded programs.
pub(crate) struct Hooks<'obj> {
    skeleton: ExecSkel<'obj>,
    /// The congestion control keeps a readable state.
    pub(crate) knows_yielding: bool,
    /// Connections that start together are admitted one after the other.
    admits: bool,
    /// Why they are not.
    not_admitted: RefCell<Option<String>>,
    /// Which traffic yields, and the weight of downloads.
    direction: Direction,
    weight: Option<u32>,
    no_receive_hook: bool,
    /// Why received traffic does not yield.
    not_received: RefCell<Option<String>>,
    /// The treatment of UDP, and the pinned map of sockets of `lull`.
    udp: Udp,
    sharing: Option<PathBuf>,
    /// Where that is, if only this process sees it.
    pub(crate) elsewhere: Option<Bpffs>,
    /// The virtual queues of UDP, or why there are none.
    yielding: RefCell<Option<Result<Yielding, String>>>,
}

impl<'obj> Hooks<'obj> {
    /// Loads the programs into the kernel.
    pub(crate) fn load(
        storage: &'obj mut MaybeUninit<OpenObject>,
        settings: &HookSettings<'_>,
    ) -> Result<Self> {
        let &HookSettings { congestion, dscp, sockets, weights, direction, weight, .. } = settings;
        let mut open = ExecSkelBuilder::default()
            .open(storage)
            .map_err(Error::bpf("open the programs of a background cgroup"))?;
        let rodata = open.maps.rodata_data.as_deref_mut().expect("the programs have constants");
        rodata.congestion.fill(0);
        for (to, &from) in rodata.congestion.iter_mut().zip(congestion.as_bytes()) {
            *to = from as _;
        }
        let dscp = if direction.sends() { dscp } else { Dscp::None };
        rodata.is_sending = direction.sends();
        rodata.traffic_class = dscp.traffic_class().unwrap_or(0);
        rodata.mapped_by_parent = settings.mapped_by_parent;
        if let Some((_, weight)) = weights {
            rodata.weight = weight;
        }
        let mut knows_yielding = false;
        if let Some(path) = sockets {
            let pinned =
                MapHandle::from_pinned_path(path).map_err(Error::bpf("open the map of sockets"))?;
            open.maps
                .sockets
                .reuse_fd(pinned.as_fd())
                .map_err(Error::bpf("share the map of sockets"))?;
            knows_yielding = true;
        }
        if let Some((path, _)) = weights {
            let what = "share the map of weights";
            let pinned = MapHandle::from_pinned_path(path).map_err(Error::bpf(what))?;
            open.maps.weights.reuse_fd(pinned.as_fd()).map_err(Error::bpf(what))?;
        }
        let skeleton =
            open.load().map_err(Error::bpf("load the programs of a background cgroup"))?;
        Ok(Hooks {
            skeleton,
            knows_yielding,
            admits: settings.admits,
            not_admitted: RefCell::default(),
            direction,
            weight,
            no_receive_hook: settings.no_receive_hook,
            not_received: RefCell::default(),
            udp: settings.udp,
            sharing: sockets.filter(|_| settings.admits).map(Path::to_owned),
            elsewhere: None,
            yielding: RefCell::default(),
        })
    }

    /// Attaches the programs to a cgroup while it exists.
    pub(crate) fn attach(&self, cgroup: BorrowedFd<'_>) -> Result<()> {
        let programs = &self.skeleton.progs;
        for (program, kind) in [
            (programs.lull_sock_ops.as_fd(), ProgramAttachType::CgroupSockOps),
            (programs.lull_setsockopt.as_fd(), ProgramAttachType::CgroupSetsockopt),
            (programs.lull_egress.as_fd(), ProgramAttachType::CgroupInetEgress),
            (programs.lull_ingress.as_fd(), ProgramAttachType::CgroupInetIngress),
        ] {
            attach_beside_others(program, cgroup, kind as bpf_attach_type)?;
        }
        // A crowd that starts at once is worse than one that waits, but not a reason to fail.
        if self.admits
            && let Err(error) = admit(cgroup, Admission::default())
        {
            *self.not_admitted.borrow_mut() = Some(error.to_string());
        }
        // On kernels without this feature, sent traffic still yields.
        if self.direction.receives()
            && let Err(error) = self.receive_hooks().attach(cgroup)
        {
            *self.not_received.borrow_mut() = Some(error.to_string());
        }
        if self.udp == Udp::Yield {
            let yielding = yield_udp(cgroup, self.sharing.as_deref());
            *self.yielding.borrow_mut() = Some(yielding.map_err(|error| error.to_string()));
        }
        Ok(())
    }

    fn receive_hooks(&self) -> ReceiveHooks<'_> {
        let maps = &self.skeleton.maps;
        ReceiveHooks {
            released: maps.lull_released.as_fd(),
            clamps: maps.window_clamps.as_fd(),
            weight: self.weight,
            no_hook: self.no_receive_hook,
        }
    }

    /// Attaches the programs for connections from before to the cgroup in which they were made. Without them, and
    /// where received traffic does not yield, these connections stay as they are.
    pub(crate) fn attach_adopting(
        &self,
        called: &Path,
        cgroup: BorrowedFd<'_>,
    ) -> Option<Attached> {
        self.slows_received().then(|| self.receive_hooks().attach_adopting(called, cgroup).ok())?
    }

    /// The traffic over UDP; `None` if that does not yield.
    pub(crate) fn udp_traffic(&self) -> Result<Option<UdpTraffic>> {
        match &*self.yielding.borrow() {
            Some(Ok(yielding)) => yielding.traffic().map(Some),
            _ => Ok(None),
        }
    }

    /// The requested features that the kernel lacks, one line each.
    pub(crate) fn shortfalls(&self) -> Vec<String> {
        let admitted = self.not_admitted.borrow();
        let admitted = admitted
            .as_ref()
            .map(|why| format!("connections that start together are not spread out: {why}"));
        let received = self.not_received.borrow();
        let received =
            received.as_ref().map(|why| format!("received traffic does not yield: {why}"));
        let yielding = self.yielding.borrow();
        let udp = yielding.as_ref().and_then(|yielding| yielding.as_ref().err());
        let udp = udp.map(|why| format!("what is sent over UDP does not yield: {why}"));
        admitted.into_iter().chain(received).chain(udp).collect()
    }

    /// Whether received traffic yields.
    pub(crate) fn slows_received(&self) -> bool {
        self.direction.receives() && self.not_received.borrow().is_none()
    }

    /// Reads the counters, including the open connections.
    pub(crate) fn counters(&self) -> Result<Counters> {
        // A counter of open connections adds up over calls, so only the difference counts.
        let before = self.read()?;
        let link = self
            .skeleton
            .progs
            .lull_open
            .attach_iter(self.skeleton.maps.opened.as_fd())
            .map_err(Error::bpf("list open connections"))?;
        let mut nothing = Vec::new();
        Iter::new(&link)
            .map_err(Error::bpf("list open connections"))?
            .read_to_end(&mut nothing)
            .map_err(Error::io("list open connections"))?;
        let after = self.read()?;
        let open = |index: usize| after[index] - before[index];
        Ok(counters_in(after, open(8), open(9)))
    }

    fn read(&self) -> Result<[u64; COUNTERS]> {
        read_words(&self.skeleton.maps.counters)
    }

    /// Waits for sockets that only a system call can change.
    pub(crate) fn requests(&self) -> Result<Requests<'_>> {
        let asked = Rc::new(Cell::new(false));
        let seen = Rc::clone(&asked);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.skeleton.maps.requests, move |_| {
                seen.set(true);
                0
            })
            .map_err(Error::bpf("listen to the programs"))?;
        let ring = builder.build().map_err(Error::bpf("listen to the programs"))?;
        Ok(Requests { ring, asked })
    }
}

fn read_words(map: &impl MapCore) -> Result<[u64; COUNTERS]> {
    let bytes = map
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(Error::bpf("read the counters"))?
        .unwrap_or_default();
    let mut words = [0; COUNTERS];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(chunk.try_into().expect("chunks have eight bytes"));
    }
    Ok(words)
}

/// The counters in a map of another process's hooks, without the open connections.
pub(crate) fn read_counters(map: &impl MapCore) -> Result<Counters> {
    Ok(counters_in(read_words(map)?, 0, 0))
}

/// The counters, with the times of open connections in microseconds.
fn counters_in(words: [u64; COUNTERS], open_lived: u64, open_yielded: u64) -> Counters {
    let [tcp_bytes, tcp_received, udp_bytes, connections, refused, lived, yielded, unmarked, ..] =
        words;
    Counters {
        tcp_bytes,
        tcp_received,
        udp_bytes,
        connections,
        refused,
        lived: Duration::from_micros(lived + open_lived),
        yielded: Duration::from_micros(yielded + open_yielded),
        unmarked,
    }
}

/// Requests of the hooks to change sockets that they cannot.
pub(crate) struct Requests<'hooks> {
    ring: RingBuffer<'hooks>,
    asked: Rc<Cell<bool>>,
}

impl Requests<'_> {
    /// Readable when there is a request.
    pub(crate) fn raw_fd(&self) -> i32 {
        self.ring.epoll_fd()
    }

    /// Whether there was one since the last call.
    pub(crate) fn take(&self) -> bool {
        // Overruns do not matter: one request stands for all.
        let _ = self.ring.consume();
        self.asked.replace(false)
    }
}
