//! Daily limits of prefetched bytes: for one visitor, and for all.

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use lull_cc::{Bytes, Timestamp};

use super::lock::lock;
use crate::policy::{Client, MAX_TTL};

/// After this time all counts start over.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Copies in visitors' caches that are remembered: this many sets of [`WAYS`], whose oldest entry is
/// replaced. The use of a copy is reported when its page is left, a minute or two later.
const COPIES: usize = 1 << 15;
/// Visitors whose bytes are counted: this many sets of several entries.
const SETS: usize = 1 << 14;
const WAYS: usize = 8;

/// The limits of prefetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteCaps {
    /// For one client, in a day.
    pub visitor: Bytes,
    /// For all clients together, in a day. `None`: unlimited.
    pub daily: Option<Bytes>,
}

impl Default for ByteCaps {
    /// 50 MB per visitor.
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

/// A copy in a visitor's cache. Times are in seconds from the start, plus one.
#[derive(Clone, Copy, Debug, Default)]
struct Copied {
    key: u64,
    /// Prefetched bytes that were not used.
    bytes: u64,
    made: u32,
    /// When its browser asked for the page nevertheless.
    asked: u32,
}

/// After asking for a page, a browser reports within this many seconds that it was shown.
const ASKED: u32 = 60;

fn seconds(now: Timestamp) -> u32 {
    now.saturating_since(Timestamp::ZERO).as_secs().saturating_add(1).try_into().unwrap_or(u32::MAX)
}

/// The bytes prefetched by visitors. Memory is bounded, and so are the bytes of each visitor: if all entries
/// of a set are taken, a new visitor gets the smallest one, and continues from its count. So a count may be
/// too high if very many prefetch within a day, and is never too low.
#[derive(Debug)]
struct Visitors(Box<[[(Client, Spent); WAYS]]>);

impl Visitors {
    fn new() -> Self {
        let unused = (Client(0), Spent { since: Timestamp::ZERO, bytes: 0 });
        Visitors(vec![[unused; WAYS]; SETS].into())
    }

    /// The bytes of `client` by now, with these. A query alone takes no entry.
    fn add(&mut self, client: Client, now: Timestamp, bytes: u64) -> u64 {
        let set = &mut self.0[client.0 as usize % SETS];
        for (_, spent) in set.iter_mut() {
            spent.add(now, 0);
        }
        if let Some((_, own)) = set.iter_mut().find(|(requester, _)| *requester == client) {
            return own.add(now, bytes);
        }
        let [first, rest @ ..] = set;
        let least = rest
            .iter_mut()
            .fold(first, |least, one| if one.1.bytes < least.1.bytes { one } else { least });
        if bytes == 0 {
            return least.1.bytes;
        }
        *least = (client, Spent { since: now, bytes: least.1.bytes });
        least.1.add(now, bytes)
    }
}

#[derive(Debug)]
struct State {
    all: Spent,
    /// Bytes of other proxies of the site in their day, how many proxies these are, and the bytes of this one
    /// when they said so.
    elsewhere: u64,
    others: u64,
    own_then: u64,
    visitors: Visitors,
    /// The latest of each set first.
    copies: Box<[[Copied; WAYS]]>,
}

/// The prefetches, by client.
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
            elsewhere: 0,
            others: 0,
            own_then: 0,
            visitors: Visitors::new(),
            // Zeros, which take no memory before they are used.
            copies: vec![[Copied::default(); WAYS]; COPIES].into(),
        };
        Caps { caps, key: RandomState::new(), state: Mutex::new(state) }
    }

    /// The bytes of all clients in this day.
    pub(super) fn spent(&self, now: Timestamp) -> u64 {
        lock(&self.state).all.add(now, 0)
    }

    /// Takes note of the bytes that other proxies of the site have spent, and of their number.
    pub(super) fn spent_elsewhere(&self, bytes: u64, others: u64, now: Timestamp) {
        let mut state = lock(&self.state);
        let own = state.all.add(now, 0);
        (state.elsewhere, state.others, state.own_then) = (bytes, others, own);
    }

    /// Counts bytes that were sent ahead; returns whether more are permitted. Without bytes it only returns
    /// that.
    pub(super) fn spend(&self, client: Client, now: Timestamp, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        let own = state.all.add(now, bytes);
        // Others are assumed to continue as this one does until they say more.
        let since = own.saturating_sub(state.own_then).saturating_mul(state.others);
        let all = own.saturating_add(state.elsewhere).saturating_add(since);
        let own = state.visitors.add(client, now, bytes);
        own < self.caps.visitor.0 && self.caps.daily.is_none_or(|daily| all < daily.0)
    }

    /// A copy of a page, or of a part of one, is in the client's cache, as it was sent.
    pub(super) fn copied(&self, client: Client, path: &str, bytes: u64, now: Timestamp) {
        let key = self.key.hash_one((client, path));
        let set = &mut lock(&self.state).copies[key as usize % COPIES];
        let place = set.iter().position(|one| one.key == key).unwrap_or(WAYS - 1);
        set[..=place].rotate_right(1);
        set[0] = Copied { key, bytes, made: seconds(now), asked: 0 };
    }

    /// A browser asks for a page of which it has a copy, and is permitted to show the copy.
    pub(super) fn asked(&self, client: Client, path: &str, now: Timestamp) {
        self.with(client, path, |copy| copy.asked = seconds(now));
    }

    /// Notes that a page came out of the cache. Returns whether it was a copy, for which the proxy got no
    /// request.
    pub(super) fn shows(&self, client: Client, path: &str, now: Timestamp) -> bool {
        let now = seconds(now);
        let is_shown = self.with(client, path, |copy| {
            let asked = std::mem::take(&mut copy.asked);
            let lives = u64::from(now - copy.made) <= MAX_TTL.as_secs();
            lives && (asked == 0 || now - asked > ASKED)
        });
        is_shown.unwrap_or(false)
    }

    fn with<T>(
        &self,
        client: Client,
        path: &str,
        what: impl FnOnce(&mut Copied) -> T,
    ) -> Option<T> {
        let key = self.key.hash_one((client, path));
        let set = &mut lock(&self.state).copies[key as usize % COPIES];
        set.iter_mut().find(|one| one.key == key && one.made > 0).map(what)
    }

    /// A navigation, or the page that it led to, used a copy. Returns how many prefetched bytes it used.
    pub(super) fn used(&self, client: Client, path: &str) -> u64 {
        // The second time it is in the cache because it was visited before.
        self.with(client, path, |copy| std::mem::take(&mut copy.bytes)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daily_bytes_are_capped_per_visitor_and_in_total() {
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
    fn daily_bytes_of_all_proxies_have_one_limit() {
        let caps = Caps::new(ByteCaps { visitor: Bytes(10_000), daily: Some(Bytes(3_000)) });
        let at = |seconds: u64| Timestamp::ZERO + Duration::from_secs(seconds);
        assert!(caps.spend(Client(1), at(0), 500));
        caps.spent_elsewhere(1_500, 2, at(1));
        assert!(caps.spend(Client(1), at(2), 0));
        // Until they say more, each of the two others is assumed to spend as much as this one.
        assert!(caps.spend(Client(1), at(3), 300));
        assert!(!caps.spend(Client(1), at(4), 100));
        // They have not.
        caps.spent_elsewhere(1_600, 2, at(5));
        assert!(caps.spend(Client(1), at(6), 0));
        assert_eq!(caps.spent(at(6)), 900);
    }

    #[test]
    fn spent_cap_holds_all_day_with_any_number_of_clients() {
        let caps = Caps::new(ByteCaps { visitor: Bytes(1_000), daily: None });
        let at = |seconds: u64| Timestamp::ZERO + Duration::from_secs(seconds);
        // All of these share a set.
        let client = |number: u64| Client(5 + number * SETS as u64);
        assert!(!caps.spend(client(0), at(1), 1_000));
        for number in 1..WAYS as u64 {
            assert!(caps.spend(client(number), at(2), 900));
        }
        for number in 1..1_000 {
            caps.spend(client(number), at(3), 0);
            assert!(!caps.spend(client(0), at(3), 0), "{number}");
        }
        // A later client continues from another count, and gets no more than the day's bytes.
        let sent = (0..1_000).filter(|_| caps.spend(client(1_000), at(4), 10)).count();
        assert!((1..100).contains(&sent), "{sent}");
        // Other clients are not affected, and tomorrow it is over.
        assert!(caps.spend(Client(6), at(5), 0));
        for number in 0..2_000 {
            assert!(caps.spend(client(number), at(90_000), 0), "{number}");
        }
    }

    #[test]
    fn copy_counts_as_used_once_and_only_by_its_client() {
        let caps = Caps::new(ByteCaps::default());
        caps.copied(Client(1), "/a", 700, Timestamp::ZERO);
        assert_eq!(caps.used(Client(2), "/a"), 0);
        assert_eq!(caps.used(Client(1), "/b"), 0);
        assert_eq!(caps.used(Client(1), "/a"), 700);
        assert_eq!(caps.used(Client(1), "/a"), 0);
        caps.copied(Client(1), "/a", 300, Timestamp::ZERO);
        caps.copied(Client(1), "/a", 400, Timestamp::ZERO);
        assert_eq!(caps.used(Client(1), "/a"), 400);
    }

    #[test]
    fn copies_of_the_last_two_minutes_are_remembered() {
        let caps = Caps::new(ByteCaps::default());
        let all = 50_000;
        let (before, since) = (0..all, all..2 * all);
        before
            .clone()
            .chain(since)
            .for_each(|client| caps.copied(Client(client), "/a", 1, Timestamp::ZERO));
        let used: u64 = before.map(|client| caps.used(Client(client), "/a")).sum();
        assert!(used > all * 99 / 100, "{used}");
    }

    #[test]
    fn copy_is_shown_as_long_as_it_lives_unless_its_browser_asked() {
        let caps = Caps::new(ByteCaps::default());
        let at = |seconds: u64| Timestamp::ZERO + Duration::from_secs(seconds);
        assert!(!caps.shows(Client(1), "/a", at(0)));
        caps.copied(Client(1), "/a", 700, at(10));
        assert!(!caps.shows(Client(2), "/a", at(11)));
        for second in [11, 100, 310] {
            assert!(caps.shows(Client(1), "/a", at(second)), "{second}");
        }
        assert!(!caps.shows(Client(1), "/a", at(311)));
        caps.copied(Client(1), "/a", 700, at(400));
        caps.asked(Client(1), "/a", at(401));
        // The request counts for this one.
        assert!(!caps.shows(Client(1), "/a", at(402)) && caps.shows(Client(1), "/a", at(403)));
        caps.asked(Client(1), "/a", at(404));
        assert!(caps.shows(Client(1), "/a", at(500)));
    }
}
