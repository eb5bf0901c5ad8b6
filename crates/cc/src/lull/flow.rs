//! A connection with a handle to its path, as a [`Controller`].

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::{HostTraffic, Member, Path};
use crate::controller::{Ack, Controller, Pacing};
use crate::{Timestamp, Window};

/// A path that connections of one process share.
#[derive(Clone, Debug, Default)]
pub struct SharedPath {
    path: Arc<Mutex<Path>>,
    /// The traffic of foreground connections of the same host; nothing where they are not counted.
    seen: Arc<Mutex<Option<HostTraffic>>>,
    /// The path of connections that have turned out to have another one.
    apart: Arc<OnceLock<SharedPath>>,
}

impl SharedPath {
    /// A new connection on the path.
    pub fn join(&self) -> Flow {
        Flow { member: Member::join(&mut self.lock()), path: self.clone() }
    }

    /// A new connection on the path with a weight ([`Member::join_with_weight`]).
    pub fn join_with_weight(&self, weight: u32) -> Flow {
        Flow { member: Member::join_with_weight(&mut self.lock(), weight), path: self.clone() }
    }

    /// The path's state.
    pub fn lock(&self) -> MutexGuard<'_, Path> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a packet of a foreground connection of the same host: with so many bytes of data, or the first one of
    /// a connection. The background reads the counts before each of its own events, as in the kernel.
    pub fn count_foreground(&self, now: Timestamp, connects: bool, bytes: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.get_or_insert_default();
        if connects {
            seen.connected_micros = now.as_micros();
        }
        if bytes > 0 {
            seen.sent_micros = now.as_micros();
            seen.bytes += bytes;
        }
    }

    /// The path's state at the beginning of an event.
    fn begin_event(&self, now: Timestamp) -> MutexGuard<'_, Path> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut path = self.lock();
        if let Some(seen) = seen {
            path.handle_foreground(now, seen);
        }
        path
    }
}

/// A background connection that shares its path's window with others; it leaves the path when it is
/// dropped.
#[derive(Debug)]
pub struct Flow {
    member: Member,
    path: SharedPath,
}

impl Flow {
    /// Joins another path if its own is longer than that of the others.
    fn part(&mut self) {
        if self.member.is_apart() {
            let apart = self.path.apart.get_or_init(SharedPath::default).clone();
            self.member.leave(&mut self.path.lock());
            self.member = Member::join_with_weight(&mut apart.lock(), self.member.weight());
            self.path = apart;
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.member.leave(&mut self.path.lock());
    }
}

impl Controller for Flow {
    fn handle_ack(&mut self, ack: &Ack) {
        self.member.handle_ack(&mut self.path.begin_event(ack.now), ack);
        self.part();
    }

    fn handle_loss(&mut self, now: Timestamp, delivered: u32) {
        self.member.handle_loss(&mut self.path.begin_event(now), now, delivered);
    }

    fn handle_mark(&mut self, now: Timestamp, delivered: u32) {
        self.member.handle_loss(&mut self.path.begin_event(now), now, delivered);
    }

    fn handle_timeout(&mut self, now: Timestamp, delivered: u32) {
        self.member.handle_timeout(&mut self.path.begin_event(now), now, delivered);
    }

    /// The path is remembered by its other connections, and its pairs look at it.
    fn handle_idle(&mut self, _now: Timestamp) {}

    fn handle_send(&mut self, now: Timestamp, delivered: u32) {
        self.member.handle_send(&mut self.path.begin_event(now), now, delivered);
    }

    fn window(&self) -> Window {
        self.member.window()
    }

    fn slow_start_threshold(&self) -> Window {
        Window::MAX
    }

    fn packets(&self, in_flight: u32) -> u32 {
        self.member.packets(in_flight)
    }

    fn pacing(&self, smoothed_rtt_micros: u32, packet_bytes: u32) -> Option<Pacing> {
        self.member.pacing(smoothed_rtt_micros, packet_bytes)
    }
}
