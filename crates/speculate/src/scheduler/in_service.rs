//! Requests at the upstream, as far as they use it.
//!
//! A request uses the upstream until the head of its response has come, and for a short time after that: a
//! body that takes longer waits for its client, or for news, such as an event stream. A head that takes very
//! long waits for something else as well, such as a long poll.

use std::collections::BTreeMap;

use core::time::Duration;

use lull_cc::Timestamp;

/// A response without its head after this time waits for something else than the upstream's resource.
const HEAD: Duration = Duration::from_secs(10);
/// A body that takes longer than this after its head waits for its client. It no longer counts as in service,
/// and is not aborted.
pub const BODY: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
struct One<T> {
    what: T,
    began: Timestamp,
    until: Timestamp,
}

/// Requests in service, by a number.
#[derive(Clone, Debug)]
pub(super) struct InService<T> {
    all: BTreeMap<u64, One<T>>,
    by_end: BTreeMap<(Timestamp, u64), ()>,
}

/// A request that has ended, or no longer counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended<T> {
    pub(super) what: T,
    pub(super) began: Timestamp,
}

impl<T: Copy> InService<T> {
    pub(super) fn new() -> Self {
        InService { all: BTreeMap::new(), by_end: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn add(&mut self, now: Timestamp, id: u64, what: T) {
        let until = now + HEAD;
        self.all.insert(id, One { what, began: now, until });
        self.by_end.insert((until, id), ());
    }

    /// The head of its response has arrived.
    pub(super) fn head(&mut self, now: Timestamp, id: u64) {
        if let Some(one) = self.all.get_mut(&id) {
            self.by_end.remove(&(one.until, id));
            one.until = now + BODY;
            self.by_end.insert((one.until, id), ());
        }
    }

    /// It has ended, if it still counts.
    pub(super) fn end(&mut self, id: u64) -> Option<Ended<T>> {
        let one = self.all.remove(&id)?;
        self.by_end.remove(&(one.until, id));
        Some(Ended { what: one.what, began: one.began })
    }

    /// When the next one stops counting, if nothing happens earlier.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.by_end.first_key_value().map(|((at, _), ())| *at)
    }

    /// One that no longer counts.
    pub(super) fn expired(&mut self, now: Timestamp) -> Option<(u64, Ended<T>)> {
        let ((at, id), ()) = self.by_end.first_key_value()?;
        let (at, id) = (*at, *id);
        if at > now {
            return None;
        }
        self.end(id).map(|ended| (id, ended))
    }

    /// All, by their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Ended<T>)> + '_ {
        self.all.iter().map(|(id, one)| (*id, Ended { what: one.what, began: one.began }))
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.all.contains_key(&id)
    }
}
