//! Measures the paths of a background's UDP uploads, and writes what each path allows.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use libbpf_rs::{RingBuffer, RingBufferBuilder};
use lull_cc::Timestamp;
use lull_cc::datagram::Uploads;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::time::{TimeSpec, TimeValLike};

use super::echo::{self, Echo, Reply, Request};
use super::table::{self, Key, Tables};
use crate::error::{Error, Result};
use crate::sys;

/// Paths without a packet for so long are removed when the table is full.
const KEPT_MICROS: u64 = 10_000_000;
/// A path has no answers if so many requests got none: three seconds of use.
const UNANSWERED_REQUESTS: u32 = 30;
/// Paths that are measured at the same time. Others have a megabit per second each.
const MAX_PATHS: usize = 256;

/// The thread's findings.
#[derive(Debug, Default)]
struct Findings {
    unanswered: AtomicU64,
    other_namespaces: AtomicU64,
}

/// The thread that measures.
pub(super) struct Control {
    stop: Arc<EventFd>,
    findings: Arc<Findings>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Starts it.
    pub(super) fn start(tables: Tables) -> Result<Self> {
        let what = || Error::io("send echo requests");
        let echo = Echo::open().map_err(what())?;
        let own = echo.network_namespace().map_err(what())?;
        let stop = Arc::new(EventFd::new().map_err(|errno| what()(errno.into()))?);
        let findings = Arc::new(Findings::default());
        let (stopped, found) = (Arc::clone(&stop), Arc::clone(&findings));
        let run = move || {
            let mut measuring =
                Measuring { tables, echo, own, findings: found, paths: BTreeMap::new(), next: 0 };
            // Without measurements, the virtual queues allow little.
            let _ = measuring.run(&stopped);
        };
        let thread = thread::Builder::new().name("lull-udp".to_owned()).spawn(run);
        let thread = Some(thread.map_err(Error::io("start a thread"))?);
        Ok(Control { stop, findings, thread })
    }

    /// Networks that answered no echo requests.
    pub(super) fn unanswered(&self) -> u64 {
        self.findings.unanswered.load(Ordering::Relaxed)
    }

    /// Networks that were used from another network namespace.
    pub(super) fn other_namespaces(&self) -> u64 {
        self.findings.other_namespaces.load(Ordering::Relaxed)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A path that is measured.
struct Measured {
    number: u32,
    uploads: Uploads,
    is_unanswered: bool,
}

struct Measuring {
    tables: Tables,
    echo: Echo,
    /// The network namespace of the echo requests.
    own: u64,
    findings: Arc<Findings>,
    paths: BTreeMap<Key, Measured>,
    next: u32,
}

impl Measuring {
    fn run(&mut self, stop: &EventFd) -> libbpf_rs::Result<()> {
        let woken = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&woken);
        // It keeps no reference to the rest of `self`.
        let wakes = libbpf_rs::MapHandle::try_from(&self.tables.wakes)?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&wakes, move |event| {
            seen.borrow_mut().extend(event.first_chunk().copied());
            0
        })?;
        let ring = builder.build()?;
        while !self.wait(stop, &ring) {
            // Events that were lost come again.
            let _ = ring.consume();
            for key in woken.borrow_mut().drain(..) {
                self.handle_wake(key);
            }
            for reply in self.echo.receive() {
                self.handle_reply(&reply);
            }
            self.poll_paths();
        }
        Ok(())
    }

    /// Returns whether the thread is to end.
    fn wait(&self, stop: &EventFd, ring: &RingBuffer<'_>) -> bool {
        let now = Timestamp::from_micros(echo::now());
        let next = self.paths.values().filter_map(|path| path.uploads.next_time(now)).min();
        let pause = next.map(|next| {
            TimeSpec::microseconds(next.saturating_since(now).as_micros().min(1_000_000) as i64)
        });
        let ring = sys::borrow(ring.epoll_fd(), ring);
        let fds = [stop.as_fd(), ring].into_iter().chain(self.echo.descriptors());
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let _ = ppoll(&mut fds, pause, None);
        fds[0].any().unwrap_or(false)
    }

    /// The kernel has a path with traffic and without recent measurements, or no room for another path.
    fn handle_wake(&mut self, key: Key) {
        let now = echo::now();
        if table::is_of_none(&key) {
            self.tables.remove_idle(Timestamp::from_micros(now.saturating_sub(KEPT_MICROS)));
            return;
        }
        let at = Timestamp::from_micros(now);
        if self.paths.len() >= MAX_PATHS {
            self.paths.retain(|_, path| path.uploads.next_time(at).is_some());
        }
        if self.paths.len() < MAX_PATHS && !self.paths.contains_key(&key) {
            let is_foreign = table::network_namespace(&key) != self.own;
            self.findings.other_namespaces.fetch_add(is_foreign.into(), Ordering::Relaxed);
            self.next += 1;
            let uploads = Uploads::default();
            let number = self.next;
            let path = Measured { number, uploads, is_unanswered: is_foreign };
            self.paths.insert(key, path);
        }
        if let (Some(path), Some(entry)) = (self.paths.get_mut(&key), self.tables.entry(&key)) {
            path.uploads.handle_counts(at, entry.counts);
        }
    }

    fn handle_reply(&mut self, reply: &Reply) {
        let request = reply.request;
        let found = self.paths.iter_mut().find(|(_, path)| path.number == request.path);
        let Some((key, path)) = found else { return };
        let Some(entry) = self.tables.entry(key) else { return };
        let now = Timestamp::from_micros(echo::now());
        path.uploads.handle_counts(now, entry.counts);
        let rtt = reply.arrived.saturating_sub(request.sent).clamp(1, u32::MAX.into()) as u32;
        let rtt = rtt.try_into().unwrap_or(std::num::NonZeroU32::MIN);
        path.uploads.handle_reply(now, request.number, rtt);
        let _ = self.tables.allow(key, &path.uploads.allowance(now));
    }

    /// Sends the probes that are due.
    fn poll_paths(&mut self) {
        for (key, path) in &mut self.paths {
            let now = Timestamp::from_micros(echo::now());
            if path.uploads.next_time(now).is_none_or(|next| next > now) {
                continue;
            }
            let Some(entry) = self.tables.entry(key) else { continue };
            path.uploads.handle_counts(now, entry.counts);
            let Some(number) = path.uploads.poll(now) else { continue };
            if table::network_namespace(key) == self.own {
                let request = Request { path: path.number, number, sent: echo::now() };
                let _ = self.echo.send(entry.destination, table::interface(key), &request);
            }
            if path.uploads.last_rtt_micros().is_some() {
                let _ = self.tables.allow(key, &path.uploads.allowance(now));
            } else if !path.is_unanswered && number >= UNANSWERED_REQUESTS {
                path.is_unanswered = true;
                self.findings.unanswered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
