//! The queue of prefetches that wait for room at the upstream: by priority, which decays while they wait (SSR
//! §3.1.3).

use std::collections::BTreeMap;

use core::cmp::Reverse;
use core::time::Duration;

use lull_cc::Timestamp;

use super::prefetch::{Id, Prefetch};

/// The position of a prefetch: its priority as if it had arrived at time zero; of equal ones, the earlier one
/// first.
///
/// All priorities decay alike, p · 2^(−t / half-life). So the order of two prefetches never changes while they wait, and
/// it is enough to compare log₂ p + (time of arrival) / half-life.
#[derive(Clone, Copy, Debug, PartialEq)]
struct QueuePosition {
    score: f64,
    arrival: Reverse<u64>,
}

impl Eq for QueuePosition {}

impl PartialOrd for QueuePosition {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuePosition {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.score.total_cmp(&other.score).then(self.arrival.cmp(&other.arrival))
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    prefetch: Prefetch,
    position: QueuePosition,
    expires: Timestamp,
}

/// Prefetches that wait.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    most: usize,
    per_client: usize,
    half_life: Duration,
    by_position: BTreeMap<QueuePosition, Id>,
    by_expiry: BTreeMap<(Timestamp, Id), ()>,
    waiting: BTreeMap<Id, Waiting>,
    /// How many wait for each client.
    clients: BTreeMap<u64, usize>,
    arrivals: u64,
}

impl Queue {
    pub(super) fn new(most: usize, per_client: usize, half_life: Duration) -> Self {
        assert!(half_life > Duration::ZERO, "a priority that decays at once is no order");
        Queue {
            most,
            per_client,
            half_life,
            by_position: BTreeMap::new(),
            by_expiry: BTreeMap::new(),
            waiting: BTreeMap::new(),
            clients: BTreeMap::new(),
            arrivals: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn contains(&self, id: Id) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Adds a prefetch. Returns the one that is dropped, if the queue or the client's share of it is full.
    /// That is the least of all, which may be the new one, or the new one of a client that has its share.
    pub(super) fn push(
        &mut self,
        now: Timestamp,
        prefetch: Prefetch,
        expires: Timestamp,
    ) -> Option<Id> {
        let own = self.clients.get(&prefetch.client).copied().unwrap_or(0);
        let is_nothing = prefetch.priority.is_nan() || prefetch.priority <= 0.0;
        if is_nothing || own >= self.per_client {
            return Some(prefetch.id);
        }
        let ages = now.as_nanos() as f64 / self.half_life.as_nanos() as f64;
        let score = libm::log2(prefetch.priority) + ages;
        let position = QueuePosition { score, arrival: Reverse(self.arrivals) };
        self.arrivals += 1;
        self.by_position.insert(position, prefetch.id);
        self.by_expiry.insert((expires, prefetch.id), ());
        *self.clients.entry(prefetch.client).or_default() += 1;
        self.waiting.insert(prefetch.id, Waiting { prefetch, position, expires });
        if self.waiting.len() <= self.most {
            return None;
        }
        let least = self.by_position.first_key_value().map(|(_, id)| *id)?;
        self.remove(least);
        Some(least)
    }

    /// Removes a prefetch, if it waits.
    pub(super) fn remove(&mut self, id: Id) -> Option<Prefetch> {
        let Waiting { prefetch, position, expires } = self.waiting.remove(&id)?;
        self.by_position.remove(&position);
        self.by_expiry.remove(&(expires, id));
        if let Some(count) = self.clients.get_mut(&prefetch.client) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&prefetch.client);
            }
        }
        Some(prefetch)
    }

    /// Removes the prefetch of the highest priority; also returns the time at which it would have expired.
    pub(super) fn pop(&mut self) -> Option<(Prefetch, Timestamp)> {
        let id = self.by_position.last_key_value().map(|(_, id)| *id)?;
        let expires = self.waiting.get(&id)?.expires;
        Some((self.remove(id)?, expires))
    }

    /// When the next one expires.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.by_expiry.first_key_value().map(|((at, _), ())| *at)
    }

    /// Removes one that has expired.
    pub(super) fn expired(&mut self, now: Timestamp) -> Option<Id> {
        let ((at, id), ()) = self.by_expiry.first_key_value()?;
        let (at, id) = (*at, *id);
        if at > now {
            return None;
        }
        self.remove(id);
        Some(id)
    }
}
