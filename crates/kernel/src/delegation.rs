//! The traffic that a background program delegates to other processes, and how to slow it.
//!
//! `bpf/delegation.bpf.c` reports it. An old or incomplete kernel reports less, and the program still runs.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys::BPF_CGROUP_UNIX_CONNECT;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{
    Iter, Link, MapCore, MapFlags, OpenObject, ProgramInput, RingBuffer, RingBufferBuilder,
};

use crate::mounts::{self, Mount};
use crate::service::Service;
use crate::skeletons::delegation::{DelegationSkel, DelegationSkelBuilder};
use crate::sys;

/// The sizes of `struct delegation_record` and `struct delegation_event`, which bpf/delegation.bpf.c asserts.
const RECORD_SIZE: usize = 24;
const EVENT_SIZE: usize = 116;

/// `enum delegation_kind` of bpf/delegation.h.
const SOCKET: u32 = 1;
const CONNECTED: u32 = 3;
const MOVED: u32 = 4;

/// The pauses between two scans of all descriptors. A scan takes a share of a processor of 1/20 at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);
const REST: u32 = 20;

/// Limit of looked-up paths of Unix sockets, and of listed moved processes.
const MAX_LISTED: usize = 32;

/// The loaded programs.
pub(crate) struct Delegation<'obj> {
    skeleton: DelegationSkel<'obj>,
    _links: Vec<Link>,
    /// The file systems that other processes write to the network, by their devices.
    networks: BTreeMap<u32, Mount>,
}

impl<'obj> Delegation<'obj> {
    /// Watches a cgroup, as far as this kernel can.
    pub(crate) fn watch(
        storage: &'obj mut [MaybeUninit<OpenObject>; 2],
        cgroup: BorrowedFd<'_>,
        id: u64,
    ) -> Option<Self> {
        let [one, other] = storage;
        // From Linux 6.7 on connections of Unix sockets are seen, too.
        let skeleton = load(one, id, true).or_else(|| load(other, id, false))?;
        let connect = &skeleton.progs.lull_connect_unix;
        if connect.autoload() {
            let _ = sys::attach_to_cgroup(connect.as_fd(), cgroup, BPF_CGROUP_UNIX_CONNECT);
        }
        let (fork, moved) = (&skeleton.progs.lull_fork, &skeleton.progs.lull_move);
        let links = [fork.attach().ok(), moved.attach().ok()].into_iter().flatten().collect();
        let networks: BTreeMap<u32, Mount> =
            mounts::networks().into_iter().map(|mount| (mount.device, mount)).collect();
        for device in networks.keys() {
            let _ = skeleton.maps.devices.update(
                &device.to_ne_bytes(),
                &1u32.to_ne_bytes(),
                MapFlags::ANY,
            );
        }
        Some(Delegation { skeleton, _links: links, networks })
    }

    /// The reports from now on.
    pub(crate) fn reports(&self) -> Option<Reports<'_>> {
        let events = Rc::new(RefCell::new(Vec::new()));
        let heard = Rc::clone(&events);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.skeleton.maps.events, move |bytes| {
                heard.borrow_mut().extend(Event::read(bytes));
                0
            })
            .ok()?;
        let looks = self.skeleton.progs.lull_descriptors.attach().ok()?;
        Some(Reports {
            ring: builder.build().ok()?,
            events,
            looks,
            networks: &self.networks,
            pause: FIRST_PAUSE,
            next_scan: Instant::now() + FIRST_PAUSE,
            written: BTreeSet::new(),
            paths: BTreeSet::new(),
            services: BTreeSet::new(),
            moved: BTreeMap::new(),
        })
    }
}

fn load<'obj>(
    storage: &'obj mut MaybeUninit<OpenObject>,
    id: u64,
    sees_unix: bool,
) -> Option<DelegationSkel<'obj>> {
    let mut open = DelegationSkelBuilder::default().open(storage).ok()?;
    open.maps.rodata_data.as_deref_mut()?.background_id = id;
    open.progs.lull_connect_unix.set_autoload(sees_unix);
    let loaded = open.load().ok()?;
    // Otherwise processes have the numbers of the first namespace, which are ours outside containers.
    let _ = loaded.progs.lull_level.test_run(ProgramInput::default());
    Some(loaded)
}

/// A report of a program of `bpf/delegation.bpf.c`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Connected { path: String },
    Moved { process: i32 },
}

impl Event {
    fn read(bytes: &[u8]) -> Option<Self> {
        let event = bytes.get(..EVENT_SIZE)?;
        let path = event[8..].split(|&byte| byte == 0).next()?;
        match word(event, 0) {
            CONNECTED => {
                Some(Event::Connected { path: String::from_utf8_lossy(path).into_owned() })
            }
            MOVED => Some(Event::Moved { process: word(event, 4) as i32 }),
            _ => None,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("a word has four bytes"))
}

/// The reports so far.
pub(crate) struct Reports<'run> {
    ring: RingBuffer<'run>,
    events: Rc<RefCell<Vec<Event>>>,
    looks: Link,
    networks: &'run BTreeMap<u32, Mount>,
    pause: Duration,
    next_scan: Instant,
    /// Devices with writes.
    written: BTreeSet<u32>,
    /// Unix sockets with connections.
    paths: BTreeSet<String>,
    services: BTreeSet<Service>,
    /// Processes that have left, and their cgroups.
    moved: BTreeMap<i32, String>,
}

impl Reports<'_> {
    /// Readable when there is an event.
    pub(crate) fn raw_fd(&self) -> i32 {
        self.ring.epoll_fd()
    }

    /// When the descriptors have to be scanned next.
    pub(crate) fn next_scan(&self) -> Instant {
        self.next_scan
    }

    /// Handles the reports. `delegation` returns the cgroup of a process that is not in the background.
    pub(crate) fn take(&mut self, foreign_cgroup: impl Fn(i32) -> Option<String>) {
        let _ = self.ring.consume();
        for event in self.events.take() {
            match event {
                Event::Moved { process } if self.moved.len() < MAX_LISTED => {
                    self.moved.extend(foreign_cgroup(process).map(|cgroup| (process, cgroup)));
                }
                Event::Connected { path } if self.is_new(&path) => {
                    let service = Service::behind(&path);
                    let outside = |service: &Service| {
                        service.process().is_none_or(|process| foreign_cgroup(process).is_some())
                    };
                    self.services.extend(service.filter(outside));
                }
                _ => {}
            }
        }
    }

    /// Notes a path; returns whether it has to be looked up.
    fn is_new(&mut self, path: &str) -> bool {
        self.paths.len() < MAX_LISTED && self.paths.insert(path.to_owned())
    }

    /// Scans all descriptors of the background, if it is time. Returns the processes with TCP sockets that
    /// were made outside.
    pub(crate) fn scan(&mut self, now: Instant) -> BTreeSet<i32> {
        if now < self.next_scan {
            return BTreeSet::new();
        }
        let mut bytes = Vec::new();
        let is_read =
            Iter::new(&self.looks).is_ok_and(|mut iter| iter.read_to_end(&mut bytes).is_ok());
        let mut processes = BTreeSet::new();
        for record in bytes.chunks_exact(RECORD_SIZE).filter(|_| is_read) {
            match word(record, 0) {
                SOCKET => processes.extend([word(record, 4) as i32]),
                _ => self.written.extend([word(record, 8)]),
            }
        }
        self.pause = (2 * self.pause).min(MAX_PAUSE).max(REST * now.elapsed());
        self.next_scan = Instant::now() + self.pause;
        processes
    }

    /// The traffic of others, one line each, with the remedy. The program itself is not listed.
    pub(crate) fn lines(&self, program: i32) -> Vec<String> {
        let written = self.written.iter().filter_map(|device| self.networks.get(device));
        let written = written.map(|mount| {
            let (point, kind) = (mount.point.display(), mount.kind.display());
            let remedy = match mount.kind.to_str().and_then(|kind| kind.strip_prefix("fuse.")) {
                Some(server) => {
                    format!("move '{server}' with 'lull exec --pid', or mount it under lull exec")
                }
                None => "copy it to the server with rsync or scp instead".to_owned(),
            };
            format!("writes to {point} ({kind}), which was mounted before: {remedy}")
        });
        let moved = self.moved.iter().filter(|&(&process, _)| process != program);
        let moved = moved.map(|(process, cgroup)| {
            format!(
                "process {process}, which was moved to cgroup {cgroup}: if it is still running, move it \
                 with 'lull exec --pid {process} --children'"
            )
        });
        written.chain(self.services.iter().map(Service::description)).chain(moved).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_by_their_fields() {
        let event = |kind: u32, process: u32, path: &[u8]| {
            let mut bytes = [kind.to_ne_bytes(), process.to_ne_bytes()].concat();
            bytes.extend(path);
            bytes.resize(EVENT_SIZE, 0);
            Event::read(&bytes)
        };
        assert_eq!(event(MOVED, 12, b""), Some(Event::Moved { process: 12 }));
        let path = "/run/a".to_owned();
        assert_eq!(event(CONNECTED, 12, b"/run/a\0b"), Some(Event::Connected { path }));
        assert_eq!(event(99, 12, b""), None);
        assert_eq!(Event::read(&[0; 8]), None);
    }
}
