//! The priority scheduler of the upstream ([`lull_speculate::scheduler`]) for the threads that carry traffic:
//! its waiting requests, its aborts, and its timer.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use atomic_waker::AtomicWaker;
use lull_cc::Timestamp;
use lull_speculate::scheduler::{
    Action, End, Figures, Id, Parameters, Prefetch, Refused, Room, Scheduler,
};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::counter::Counter;
use super::error::Failure;

/// The worth of a prefetch among the waiting ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchPriority {
    /// Its client, which may have a share of the queue.
    pub client: u64,
    /// Above zero, in any unit.
    pub priority: f64,
}

/// Interval of its calls when nothing is waiting.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const REFUSED: u8 = 2;
const ABORTED: u8 = 3;

/// The state of a prefetch for its task.
#[derive(Debug, Default)]
struct Slot {
    phase: AtomicU8,
    waker: AtomicWaker,
}

#[derive(Debug)]
struct State {
    scheduler: Scheduler,
    prefetches: BTreeMap<Id, Arc<Slot>>,
    next_id: Id,
    /// When the timer fires; none if it fires by [`CHECK_INTERVAL`] only.
    armed: Option<Timestamp>,
}

/// Counts of the scheduler's actions.
#[derive(Debug, Default)]
pub(crate) struct Done {
    started: Counter,
    aborted: Counter,
    waited: Counter,
    full: Counter,
}

/// Counts of a scheduler since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerTotals {
    /// Prefetches sent to the upstream; each attempt counts.
    pub started: u64,
    /// Prefetches that were stopped.
    pub aborted: u64,
    /// Prefetches that were answered "not now" after their patience.
    pub waited: u64,
    /// Prefetches for which the queue had no room.
    pub full: u64,
}

/// The scheduler of one upstream.
#[derive(Debug)]
pub struct UpstreamScheduler {
    state: Mutex<State>,
    begun: Instant,
    rearm: Notify,
    done: Done,
}

impl UpstreamScheduler {
    /// A scheduler of an unknown upstream.
    pub fn new(parameters: Parameters) -> Arc<Self> {
        Arc::new(UpstreamScheduler {
            state: Mutex::new(State {
                scheduler: Scheduler::new(parameters),
                prefetches: BTreeMap::new(),
                next_id: 0,
                armed: None,
            }),
            begun: Instant::now(),
            rearm: Notify::new(),
            done: Done::default(),
        })
    }

    /// How many hints a client may have now, at most this many.
    pub fn room(&self, hints: u32) -> Room {
        self.with(|state, now| state.scheduler.room(now, hints))
    }

    /// This many proxies send prefetches to the upstream.
    pub fn set_sharers(&self, sharers: usize) {
        self.with(|state, _| state.scheduler.set_sharers(sharers));
    }

    /// The current values.
    pub fn figures(&self) -> Figures {
        self.with(|state, now| state.scheduler.figures(now))
    }

    /// The counters since the start.
    pub fn totals(&self) -> SchedulerTotals {
        SchedulerTotals {
            started: self.done.started.get(),
            aborted: self.done.aborted.get(),
            waited: self.done.waited.get(),
            full: self.done.full.get(),
        }
    }

    /// Carries out actions that are due by the clock alone, until it is dropped. Runs beside the traffic.
    pub async fn keep_time(&self) {
        loop {
            let next = self.with(|state, now| {
                let next = state.scheduler.next_poll(now);
                state.armed = next;
                next.map(|next| next.saturating_since(now))
            });
            // Timers of the runtime are coarse, and an early one would fire again immediately.
            let wait = next.map_or(CHECK_INTERVAL, |next| {
                next.clamp(Duration::from_millis(1), CHECK_INTERVAL)
            });
            let _ = timeout(wait, self.rearm.notified()).await;
        }
    }

    /// A request of demand for `path` goes to the upstream.
    pub(crate) fn demand(self: &Arc<Self>, path: &str) -> UpstreamPermit {
        let class = BuildHasherDefault::<DefaultHasher>::default().hash_one(path) as u8;
        let id = self.with(|state, now| {
            state.next_id += 1;
            state.scheduler.handle_demand(now, state.next_id, class);
            state.next_id
        });
        UpstreamPermit {
            scheduler: Arc::clone(self),
            id,
            slot: None,
            end: End::Served,
            is_over: false,
        }
    }

    /// A prefetch waits until it may go to the upstream. It has `waited` before, if it was aborted.
    ///
    /// # Errors
    /// [`Failure::NotNow`] if there was no room for too long.
    pub(crate) async fn prefetch(
        self: &Arc<Self>,
        priority: PrefetchPriority,
        waited: Duration,
    ) -> Result<UpstreamPermit, Failure> {
        let slot = Arc::new(Slot::default());
        let id = self.with(|state, now| {
            state.next_id += 1;
            let id = state.next_id;
            state.prefetches.insert(id, Arc::clone(&slot));
            let PrefetchPriority { client, priority } = priority;
            state.scheduler.handle_prefetch(now, Prefetch { id, client, priority }, waited);
            id
        });
        let slot_of_permit = Some(Arc::clone(&slot));
        let scheduler = Arc::clone(self);
        let upstream_permit = UpstreamPermit {
            scheduler,
            id,
            slot: slot_of_permit,
            end: End::Served,
            is_over: false,
        };
        let phase = poll_fn(|cx| {
            slot.waker.register(cx.waker());
            match slot.phase.load(Ordering::Acquire) {
                WAITING => Poll::Pending,
                phase => Poll::Ready(phase),
            }
        })
        .await;
        if phase == REFUSED { Err(Failure::NotNow) } else { Ok(upstream_permit) }
    }

    /// Calls the scheduler, and carries out its actions.
    fn with<T>(&self, call: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Timestamp::ZERO + self.begun.elapsed();
        let result = call(&mut state, now);
        while let Some(action) = state.scheduler.poll(now) {
            let (id, phase, counter) = match action {
                Action::Start(id) => (id, STARTED, &self.done.started),
                Action::Abort(id, _) => (id, ABORTED, &self.done.aborted),
                Action::Refuse(id, Refused::Waited) => (id, REFUSED, &self.done.waited),
                Action::Refuse(id, Refused::Full) => (id, REFUSED, &self.done.full),
            };
            counter.increment();
            let slot = if phase == STARTED {
                state.prefetches.get(&id).cloned()
            } else {
                state.prefetches.remove(&id)
            };
            if let Some(slot) = slot {
                slot.phase.store(phase, Ordering::Release);
                slot.waker.wake();
            }
        }
        let next = state.scheduler.next_poll(now);
        if let Some(next) = next
            && state.armed.is_none_or(|armed| next < armed)
        {
            state.armed = Some(next);
            self.rearm.notify_one();
        }
        result
    }
}

/// A request's permit at the upstream, until it is dropped: then it has ended.
#[derive(Debug)]
pub(crate) struct UpstreamPermit {
    scheduler: Arc<UpstreamScheduler>,
    id: Id,
    /// The slot of a prefetch.
    slot: Option<Arc<Slot>>,
    /// How it ends, if it is not cut off.
    end: End,
    is_over: bool,
}

impl UpstreamPermit {
    /// The head of the response has arrived. `end` is how the exchange counts at its end: failures do not
    /// show how fast the server is.
    pub(crate) fn head(&mut self, end: End) {
        self.end = end;
        self.scheduler.with(|state, now| state.scheduler.handle_head(now, self.id));
    }

    /// The whole response has arrived.
    pub(crate) fn finish(mut self) {
        self.is_over = true;
    }

    /// The upstream has failed.
    pub(crate) fn fail(mut self) {
        self.end = End::Failed;
        self.is_over = true;
    }

    /// Whether it belongs to a prefetch, which may be aborted.
    pub(crate) fn is_prefetch(&self) -> bool {
        self.slot.is_some()
    }

    /// Whether it must stop. The task is woken up when it must.
    pub(crate) fn is_aborted(&self, cx: &Context<'_>) -> bool {
        self.slot.as_ref().is_some_and(|slot| {
            slot.waker.register(cx.waker());
            slot.phase.load(Ordering::Acquire) == ABORTED
        })
    }

    /// Completes when it must stop.
    pub(crate) async fn aborted(&self) {
        poll_fn(|cx| if self.is_aborted(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl Drop for UpstreamPermit {
    fn drop(&mut self) {
        let end = if self.is_over { self.end } else { End::Cancelled };
        self.scheduler.with(|state, now| {
            if self.slot.is_none() {
                state.scheduler.handle_demand_end(now, self.id, end);
                return;
            }
            // It is missing if it was rejected or aborted.
            if state.prefetches.remove(&self.id).is_some() {
                match end {
                    End::Cancelled => state.scheduler.handle_cancel(now, self.id),
                    end => state.scheduler.handle_prefetch_end(now, self.id, end),
                }
            }
        });
    }
}
