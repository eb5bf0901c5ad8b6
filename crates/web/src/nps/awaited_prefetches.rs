//! Prefetches that are awaited by now.
//!
//! A click on a page that is still being prefetched may use the rest of that prefetch, even after the script
//! could end it. So the proxy is informed, and the connection competes like any other from then on. A hover
//! mostly becomes a press within a few round trips. So a prefetch on hover is announced at once, over another
//! connection: the message may come before the prefetch does.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lull_cc::Timestamp;

use super::lock::lock;
use crate::policy::Client;
use crate::proxy::Connection;

/// Number of prefetches that are remembered. If two share a slot the later one counts, so memory is bounded;
/// the other one stays in the background.
const SLOTS: usize = 1 << 12;

/// How long a prefetch that is still to come is awaited.
const SOON: Duration = Duration::from_secs(2);

/// The state of a prefetch.
#[derive(Clone, Debug)]
enum Prefetch {
    /// It arrived over this connection.
    Began(Weak<Connection>),
    /// A navigation waits for it since then, and it has not arrived.
    Wanted(Timestamp),
}

/// A prefetch, and its key.
type Slot = Option<(u64, Prefetch)>;

/// The last prefetches.
#[derive(Debug)]
pub(super) struct AwaitedPrefetches {
    key: RandomState,
    slots: Mutex<Box<[Slot]>>,
}

impl Default for AwaitedPrefetches {
    fn default() -> Self {
        AwaitedPrefetches { key: RandomState::new(), slots: Mutex::new(vec![None; SLOTS].into()) }
    }
}

impl AwaitedPrefetches {
    /// Remembers a prefetch of `target`, whose request is in flight on its connection.
    pub(super) fn began(
        &self,
        client: Client,
        target: &str,
        connection: &Arc<Connection>,
        now: Timestamp,
    ) {
        let (key, slot) = self.slot(client, target);
        let began = Prefetch::Began(Arc::downgrade(connection));
        if let Some((before, Prefetch::Wanted(since))) =
            lock(&self.slots)[slot].replace((key, began))
            && before == key
            && now.saturating_since(since) < SOON
        {
            connection.hurry();
        }
    }

    /// Takes the connection of that prefetch out of the background, if it is still in use; otherwise as soon
    /// as the prefetch arrives.
    pub(super) fn is_wanted(&self, client: Client, target: &str, now: Timestamp) {
        let (key, slot) = self.slot(client, target);
        let known = lock(&self.slots)[slot].replace((key, Prefetch::Wanted(now)));
        if let Some((before, Prefetch::Began(connection))) = known
            && before == key
            && let Some(connection) = connection.upgrade()
        {
            connection.hurry();
        }
    }

    fn slot(&self, client: Client, target: &str) -> (u64, usize) {
        let key = self.key.hash_one((client, target));
        (key, key as usize % SLOTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Client = Client(7);

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    /// Whether a prefetch that came then, and is wanted then, leaves the background.
    fn hurries(began: u64, wanted: u64) -> bool {
        let awaited = AwaitedPrefetches::default();
        let connection = Connection::of_tests();
        let _turn = connection.fetches_ahead();
        let mut steps = [(began, true), (wanted, false)];
        steps.sort_unstable_by_key(|(millis, _)| *millis);
        for (millis, begins) in steps {
            if begins {
                awaited.began(WHO, "/a", &connection, at(millis));
            } else {
                awaited.is_wanted(WHO, "/a", at(millis));
            }
        }
        !connection.yields()
    }

    #[test]
    fn wanted_prefetch_leaves_the_background_in_either_order() {
        assert!(hurries(0, 10));
        assert!(hurries(0, 60_000));
        assert!(hurries(10, 0));
        // That was for another one.
        assert!(!hurries(2_000, 0));
    }

    #[test]
    fn prefetch_stays_in_background_if_another_client_wants_it() {
        let awaited = AwaitedPrefetches::default();
        let connection = Connection::of_tests();
        let _turn = connection.fetches_ahead();
        awaited.is_wanted(Client(8), "/a", at(0));
        awaited.is_wanted(WHO, "/b", at(0));
        awaited.began(WHO, "/a", &connection, at(1));
        assert!(connection.yields());
    }
}
