//! How many bytes are fetched ahead in a day: for one visitor, and for all.

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use lull_cc::{Bytes, Timestamp};

use super::lock;
use crate::policy::Client;

/// After so long everybody begins anew.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Visitors, and copies in their caches, that are remembered. Of two that share a place the later
/// one counts, so memory is bounded.
const PLACES: usize = 1 << 14;

/// What is fetched ahead at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteCaps {
    /// By one client, in a day.
    pub visitor: Bytes,
    /// By all together, in a day. `None`: as much as they like.
    pub daily: Option<Bytes>,
}

impl Default for ByteCaps {
    /// 50 MB for each visitor.
    fn default() -> Self {
        ByteCaps { visitor: Bytes(50_000_000), daily: None }
    }
}

#[derive(Clone, Copy, Debug)]
struct Spent {
    since: Timestamp,
    bytes: u64,
}

impl Spent {
    fn add(&mut self, now: Timestamp, bytes: u64) -> u64 {
        if now.saturating_since(self.since) >= DAY {
            *self = Spent { since: now, bytes: 0 };
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes
    }
}

#[derive(Clone, Copy, Debug)]
struct Copy {
    key: u64,
    bytes: u64,
}

#[derive(Debug)]
struct State {
    all: Spent,
    visitors: Box<[(Client, Spent)]>,
    copies: Box<[Copy]>,
}

/// What was fetched ahead, by whom.
#[derive(Debug)]
pub(super) struct Caps {
    caps: ByteCaps,
    key: RandomState,
    state: Mutex<State>,
}

impl Caps {
    pub(super) fn new(caps: ByteCaps) -> Self {
        let none = Spent { since: Timestamp::ZERO, bytes: 0 };
        let state = State {
            all: none,
            visitors: vec![(Client(0), none); PLACES].into(),
            copies: vec![Copy { key: 0, bytes: 0 }; PLACES].into(),
        };
        Caps { caps, key: RandomState::new(), state: Mutex::new(state) }
    }

    /// Takes note of bytes that were sent ahead; whether there may be more. With no bytes it only
    /// says that.
    pub(super) fn spend(&self, client: Client, now: Timestamp, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        let all = state.all.add(now, bytes);
        let place = &mut state.visitors[client.0 as usize % PLACES];
        if place.0 != client {
            *place = (client, Spent { since: now, bytes: 0 });
        }
        let own = place.1.add(now, bytes);
        own < self.caps.visitor.0 && self.caps.daily.is_none_or(|daily| all < daily.0)
    }

    /// A copy of a page, as it was sent, lies in the client's cache.
    pub(super) fn copied(&self, client: Client, path: &str, bytes: u64) {
        let key = self.key.hash_one((client, path));
        lock(&self.state).copies[key as usize % PLACES] = Copy { key, bytes };
    }

    /// A navigation took a copy: how many bytes that were fetched ahead it has used.
    pub(super) fn used(&self, client: Client, path: &str) -> u64 {
        let key = self.key.hash_one((client, path));
        let copy = &mut lock(&self.state).copies[key as usize % PLACES];
        // The second time it comes out of the cache because it was visited before.
        if copy.key == key { std::mem::take(&mut copy.bytes) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visitor_and_all_together_have_their_bytes_a_day() {
        let caps = ByteCaps { visitor: Bytes(1_000), daily: Some(Bytes(2_500)) };
        let caps = Caps::new(caps);
        let at = |hours: u64| Timestamp::ZERO + Duration::from_secs(hours * 3600);
        assert!(caps.spend(Client(1), at(0), 999) && !caps.spend(Client(1), at(0), 1));
        assert!(caps.spend(Client(2), at(1), 900));
        // All together now.
        assert!(!caps.spend(Client(3), at(2), 700));
        assert!(!caps.spend(Client(4), at(3), 0));
        for client in 1..5 {
            assert!(caps.spend(Client(client), at(26), 0), "{client}");
        }
    }

    #[test]
    fn a_copy_is_used_once_and_by_who_has_it() {
        let caps = Caps::new(ByteCaps::default());
        caps.copied(Client(1), "/a", 700);
        assert_eq!(caps.used(Client(2), "/a"), 0);
        assert_eq!(caps.used(Client(1), "/b"), 0);
        assert_eq!(caps.used(Client(1), "/a"), 700);
        assert_eq!(caps.used(Client(1), "/a"), 0);
    }
}
