//! The due events and their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::replay::client::Advice;

/// A due event.
#[derive(Debug)]
pub(super) enum TimerEvent {
    /// A client has requested to be woken.
    Wake(u32),
    /// A client's hints for the page of this number.
    Advice(u32, u64, Advice),
    /// The monitor has to look.
    Poll,
    /// The observer is informed.
    Watch,
    /// From now on it counts.
    Settled,
}

/// A time, and the number of earlier timers: those of one time fire in their order.
#[derive(Debug)]
struct Timer(Duration, u64, TimerEvent);

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// All timers that are set.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
    count: u64,
}

impl Timers {
    /// This is due at the given time.
    pub(super) fn at(&mut self, time: Duration, due: TimerEvent) {
        self.count += 1;
        self.heap.push(Reverse(Timer(time, self.count, due)));
    }

    /// When something is due next.
    pub(super) fn next(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse(timer)| timer.0)
    }

    /// The next thing that is due by now.
    pub(super) fn pop(&mut self, now: Duration) -> Option<TimerEvent> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(Timer(_, _, due))| due)
    }
}
