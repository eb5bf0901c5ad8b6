//! The thread that runs the user-space carrier: one for all sockets of the process, which ends
//! when there are none.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{process, thread};

use lull_cc::{NiceParameters, Timestamp};

use crate::error::{Error, Result};
use crate::info::{Phase, TcpInfo};
use crate::socket_options::set_rate;
use crate::user_space::UserSpaceNice;

/// A socket under control. The thread holds a weak reference: it is dropped with the last guard.
#[derive(Debug)]
pub(crate) struct Control {
    /// A duplicate of the application's descriptor.
    socket: OwnedFd,
    /// The application's own limit, in bytes per second.
    most: u64,
    /// None once it has been stopped.
    nice: Mutex<Option<UserSpaceNice>>,
    /// Set while the data that the application left when it closed is sent.
    rest: Mutex<Option<Rest>>,
}

/// The data that an application left unsent when it closed its socket.
#[derive(Debug)]
struct Rest {
    /// The socket itself, which the application no longer holds.
    _control: Arc<Control>,
    progress: Progress,
}

/// When something was last delivered.
#[derive(Clone, Copy, Debug)]
struct Progress {
    delivered: u32,
    since: Timestamp,
}

impl Progress {
    /// Whether nothing was delivered for [`MAX_STANDSTILL`]: the other end has gone silently, or does not
    /// read. From then on, the kernel's rules for closed sockets apply.
    fn has_ended(&mut self, now: Timestamp, delivered: u32) -> bool {
        if self.delivered != delivered {
            *self = Progress { delivered, since: now };
        }
        now.saturating_since(self.since) >= MAX_STANDSTILL
    }
}

/// When a socket is due. Ordered by time, then by age.
#[derive(Debug)]
struct DueSample {
    at: Timestamp,
    number: u64,
    control: Weak<Control>,
}

impl PartialEq for DueSample {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DueSample {}

impl PartialOrd for DueSample {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DueSample {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[derive(Debug)]
struct Schedule {
    due: BinaryHeap<Reverse<DueSample>>,
    /// Sockets that the thread is handling now, outside the heap.
    busy: usize,
    /// The process that the thread runs in; None if there is no thread.
    thread_in: Option<u32>,
    numbers: u64,
}

impl Schedule {
    const EMPTY: Self = Schedule { due: BinaryHeap::new(), busy: 0, thread_in: None, numbers: 0 };

    /// The number of sockets of the thread of a process.
    fn sockets(&self, process: u32) -> usize {
        if self.thread_in == Some(process) { self.due.len() + self.busy } else { 0 }
    }

    /// Whether a process has no thread yet. Removes the sockets of the parent after a fork: the thread there
    /// continues with them.
    fn lacks_thread(&mut self, process: u32) -> bool {
        if self.thread_in.is_some_and(|other| other != process) {
            *self = Self::EMPTY;
        }
        self.thread_in.is_none()
    }
}

/// Sockets that are due within this time are handled together: a thousand wakes a second are enough for any
/// number of sockets.
const TOGETHER: Duration = Duration::from_millis(1);

/// How long a descriptor is kept for the remaining data while nothing is delivered: TCP's longest wait before
/// a retransmission (TCP_RTO_MAX of Linux).
const MAX_STANDSTILL: Duration = Duration::from_secs(120);

static SCHEDULE: Mutex<Schedule> = Mutex::new(Schedule::EMPTY);
static CHANGED: Condvar = Condvar::new();

/// A panic of another thread leaves consistent data: nothing here panics between two writes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time since the first use, on the monotonic clock.
fn now() -> Timestamp {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    Timestamp::ZERO + EPOCH.get_or_init(Instant::now).elapsed()
}

/// The number of sockets of this process under the user-space carrier. A closed socket counts until the
/// thread's next visit, a second at most.
pub fn controlled_sockets() -> usize {
    lock(&SCHEDULE).sockets(process::id())
}

impl Control {
    /// Puts a connected socket under control, with a pacing rate of at most `most` bytes per second.
    pub(crate) fn start(
        socket: OwnedFd,
        parameters: NiceParameters,
        most: u64,
    ) -> Result<Arc<Self>> {
        let control = Arc::new(Control {
            socket,
            most,
            nice: Mutex::new(Some(UserSpaceNice::new(parameters))),
            rest: Mutex::new(None),
        });
        let Some(at) = control.sample()? else { return Err(Error::NotConnected) };
        let mut schedule = lock(&SCHEDULE);
        let process = process::id();
        if schedule.lacks_thread(process) {
            thread::Builder::new()
                .name("background-tcp".to_owned())
                .spawn(run)
                .map_err(Error::Thread)?;
            schedule.thread_in = Some(process);
        }
        schedule.numbers += 1;
        let number = schedule.numbers;
        schedule.due.push(Reverse(DueSample { at, number, control: Arc::downgrade(&control) }));
        CHANGED.notify_one();
        Ok(control)
    }

    /// The present controller.
    pub(crate) fn nice(&self) -> Option<UserSpaceNice> {
        lock(&self.nice).clone()
    }

    /// Stops setting the pacing rate, from the return of this on.
    pub(crate) fn stop(&self) {
        *lock(&self.nice) = None;
    }

    /// Keeps the socket under control until its data is sent, or makes no progress: for an application that
    /// closes it now.
    pub(crate) fn linger(self: &Arc<Self>) {
        if let Ok(info) = TcpInfo::of(self.socket.as_fd())
            && has_unsent(&info)
        {
            let progress = Progress { delivered: info.delivered, since: now() };
            *lock(&self.rest) = Some(Rest { _control: Arc::clone(self), progress });
        }
    }

    /// Samples the connection, sets its pacing rate, and returns when to sample again; `None` if there is
    /// nothing left to control.
    fn sample(&self) -> Result<Option<Timestamp>> {
        let info = TcpInfo::of(self.socket.as_fd())?;
        if info.phase == Phase::Closed {
            return Ok(None);
        }
        let mut nice = lock(&self.nice);
        let Some(nice) = nice.as_mut() else { return Ok(None) };
        let now = now();
        nice.handle_sample(now, &info);
        if let Some(rate) = nice.poll_rate() {
            set_rate(self.socket.as_fd(), rate.bytes_per_second().min(self.most))?;
        }
        lock(&self.rest)
            .take_if(|rest| !has_unsent(&info) || rest.progress.has_ended(now, info.delivered));
        Ok(Some(nice.poll_timeout()))
    }
}

fn has_unsent(info: &TcpInfo) -> bool {
    info.phase != Phase::Closed && !info.is_idle()
}

/// The thread.
fn run() {
    let mut ready = Vec::new();
    let mut schedule = lock(&SCHEDULE);
    loop {
        let now = now();
        // Not without a socket that is due on its own, or one socket would be sampled early.
        let is_due = schedule.due.peek().is_some_and(|due| due.0.at <= now);
        let soon = if is_due { now + TOGETHER } else { now };
        while schedule.due.peek().is_some_and(|due| due.0.at <= soon) {
            ready.extend(schedule.due.pop());
        }
        if ready.is_empty() {
            let Some(Reverse(next)) = schedule.due.peek() else {
                schedule.thread_in = None;
                return;
            };
            let wait = next.at.saturating_since(now).max(Duration::from_micros(1));
            schedule =
                CHANGED.wait_timeout(schedule, wait).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        schedule.busy = ready.len();
        drop(schedule);
        ready.retain_mut(|Reverse(due)| {
            let Some(control) = due.control.upgrade() else { return false };
            // An error here means that the socket can no longer be controlled; it keeps its last pacing rate.
            let next = control.sample().ok().flatten();
            if next.is_none() {
                lock(&control.rest).take();
            }
            due.at = next.unwrap_or(Timestamp::FAR_FUTURE);
            next.is_some()
        });
        schedule = lock(&SCHEDULE);
        schedule.busy = 0;
        schedule.due.extend(ready.drain(..));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the moment of the fork, a socket is due, and one is being sampled.
    #[test]
    fn forked_child_has_no_thread_and_no_parent_sockets() {
        const PARENT: u32 = 7;
        const CHILD: u32 = 8;
        let mut schedule = Schedule::EMPTY;
        assert!(schedule.lacks_thread(PARENT));
        schedule.thread_in = Some(PARENT);
        schedule.busy = 1;
        schedule.due.push(Reverse(DueSample {
            at: Timestamp::ZERO,
            number: 1,
            control: Weak::new(),
        }));
        assert!(!schedule.lacks_thread(PARENT));
        assert_eq!((schedule.sockets(PARENT), schedule.sockets(CHILD)), (2, 0));
        assert!(schedule.lacks_thread(CHILD));
        assert!(schedule.due.is_empty());
        schedule.thread_in = Some(CHILD);
        assert!(!schedule.lacks_thread(CHILD));
        assert_eq!(schedule.sockets(CHILD), 0);
    }

    #[test]
    fn remaining_data_is_sent_while_the_peer_reads() {
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        let mut progress = Progress { delivered: 7, since: at(0) };
        assert!(!progress.has_ended(at(119), 7));
        assert!(!progress.has_ended(at(119), 8), "one packet is progress");
        assert!(!progress.has_ended(at(238), 8));
        assert!(progress.has_ended(at(239), 8));
    }
}
