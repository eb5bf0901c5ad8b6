//! URLs that turned out to be unfit, for a day.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use lull_cc::Timestamp;
use sha2::{Digest, Sha256};

use super::recent::Client;
use super::target::Target;

/// How long a URL is barred after its last offence.
pub const BARRED_FOR: Duration = Duration::from_secs(24 * 3600);
/// How long if only one client has met it, and the client may be the cause: a banned client is rejected
/// everywhere, and would bar all URLs for everyone.
const SUSPECTED_FOR: Duration = Duration::from_secs(600);
/// The maximum number of bars, at some 80 bytes each. New ones replace the oldest. Only URLs that five
/// clients got publicly are ever suggested, and each reply is checked again, so a lost bar costs one
/// discarded request.
const MAX_BARS: usize = 1 << 17;

/// The offence of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Offence {
    /// It redirected: by a 3xx, by `Refresh`, or by such a `<meta>`.
    #[error("it redirected")]
    Redirect,
    /// It set a cookie.
    #[error("it set a cookie")]
    SetCookie,
    /// Its reply was not public, or not storable.
    #[error("its response may not be cached")]
    NotPublic,
    /// It did not exist: 404 or 410.
    #[error("its response was 404 or 410")]
    Gone,
    /// Its page opts out.
    #[error("its page opts out")]
    OptOut,
    /// Scripts request it for a part of its page, and its headers do not show that the page is another reply.
    /// So the scripts would get the page that was prefetched.
    #[error("scripts request parts of its page")]
    Part,
    /// A `GET` of it changed what other pages return.
    #[error("a request for it changed another page")]
    Acts,
    /// This client had no access: 401 or 403.
    #[error("it was rejected")]
    Refused,
}

impl Offence {
    /// Whether the client may be the cause, and not the URL.
    fn may_be_of_the_client(self) -> bool {
        matches!(self, Offence::Part | Offence::Refused)
    }
}

/// All of them: a saved one is its index here.
const OFFENCES: [Offence; 8] = [
    Offence::Redirect,
    Offence::SetCookie,
    Offence::NotPublic,
    Offence::Gone,
    // Earlier versions kept replies here that vary on cookies. Those are barred for the rest of their day.
    Offence::Acts,
    Offence::OptOut,
    Offence::Part,
    Offence::Refused,
];

/// The barred URLs. They are stored by a hash with a random key, so that no client can cause collisions.
#[derive(Debug)]
pub struct Bars {
    key: [u8; 16],
    barred: HashMap<u64, Barred>,
    /// Each of them once, with the end of its day at the last check.
    order: VecDeque<(Timestamp, u64)>,
    /// Number of them that only one client has met.
    suspected: usize,
    most: usize,
    /// How often one was barred, or barred for longer.
    pub(super) changes: u64,
    /// Bars that other proxies have not got yet; none if there are no others.
    unsent: Option<Vec<SharedBar>>,
}

/// A bar for another proxy with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedBar {
    pub(super) hash: u64,
    pub(super) offence: u8,
    pub(super) until: Timestamp,
}

/// A bar that lasts longer than other proxies know is sent again after this time.
const TOLD_AGAIN: Duration = Duration::from_secs(3600);
/// Bars that wait for other proxies. A lost one costs one discarded request.
const MAX_UNSENT: usize = 1 << 14;

/// The last offence of a URL.
#[derive(Clone, Copy, Debug)]
struct Barred {
    offence: Offence,
    /// A day after its last offence.
    until: Timestamp,
    /// The only client that has met it.
    only: Option<Client>,
    /// The end of its day that other proxies know.
    told: Timestamp,
}

impl Barred {
    fn is_at(&self, now: Timestamp) -> bool {
        let over = if self.only.is_some() { BARRED_FOR - SUSPECTED_FOR } else { Duration::ZERO };
        self.until.saturating_since(now) > over
    }
}

impl Default for Bars {
    fn default() -> Self {
        Bars::with_limit(MAX_BARS)
    }
}

impl Bars {
    fn with_limit(most: usize) -> Self {
        let draws = RandomState::new();
        let key = [draws.hash_one(0), draws.hash_one(1)].map(u64::to_le_bytes).concat();
        Bars {
            // Twice eight bytes.
            key: key.try_into().unwrap_or_default(),
            barred: HashMap::new(),
            order: VecDeque::new(),
            suspected: 0,
            most,
            changes: 0,
            unsent: None,
        }
    }

    /// From now on bars are remembered for other proxies with this key. Earlier bars stay if they have the
    /// same key.
    pub(super) fn share(&mut self, key: [u8; 16]) {
        if self.key != key {
            *self = Bars { key, changes: self.changes, ..Bars::with_limit(self.most) };
        }
        self.unsent.get_or_insert_default();
    }

    /// Continues with saved bars. Those with another key than the shared one are dropped.
    pub(super) fn continue_with(&mut self, saved: Bars) {
        match self.unsent.take() {
            Some(unsent) if saved.key == self.key => {
                *self = Bars { unsent: Some(unsent), ..saved };
            }
            Some(unsent) => self.unsent = Some(unsent),
            None => *self = saved,
        }
    }

    /// Takes the bars for other proxies.
    pub(super) fn take_unsent(&mut self) -> Vec<SharedBar> {
        self.unsent.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Adds a bar of another proxy.
    pub(super) fn merge(&mut self, bar: SharedBar, now: Timestamp) {
        let Some(offence) = OFFENCES.get(usize::from(bar.offence)) else { return };
        let until = bar.until.min(now + BARRED_FOR);
        if until > now && self.certain_until(bar.hash).is_none_or(|before| before < until) {
            self.set(bar.hash, *offence, None, until, now);
            if let Some(barred) = self.barred.get_mut(&bar.hash) {
                barred.told = until;
            }
        }
    }

    /// The hash of `target`, which is the same in another process with this key.
    fn hash(&self, target: &Target) -> u64 {
        let path = target.path();
        let mut hash = Sha256::new().chain_update(self.key).chain_update(path.len().to_le_bytes());
        hash.update(path);
        if let Some(query) = target.query() {
            hash.update("?");
            hash.update(query);
        }
        hash.finalize().first_chunk().copied().map_or(0, u64::from_le_bytes)
    }

    /// Bars `target` for a day, for an offence that does not depend on the client.
    pub fn bar(&mut self, target: &Target, offence: Offence, now: Timestamp) {
        self.add(target, offence, None, now);
    }

    /// Bars `target` for what `client` has met: for a day, if that cannot be the client's own, or two clients
    /// have met it within a day.
    pub fn met(&mut self, target: &Target, offence: Offence, client: Client, now: Timestamp) {
        let only = Some(client).filter(|_| offence.may_be_of_the_client());
        self.add(target, offence, only, now);
    }

    fn add(&mut self, target: &Target, offence: Offence, only: Option<Client>, now: Timestamp) {
        let hash = self.hash(target);
        self.set(hash, offence, only, now + BARRED_FOR, now);
        let (Some(unsent), Some(barred)) = (&mut self.unsent, self.barred.get_mut(&hash)) else {
            return;
        };
        let is_news = barred.until.saturating_since(barred.told) > TOLD_AGAIN;
        if barred.only.is_none() && is_news && unsent.len() < MAX_UNSENT {
            barred.told = barred.until;
            let offence = OFFENCES.iter().position(|one| *one == barred.offence);
            let offence = offence.unwrap_or_default() as u8;
            unsent.push(SharedBar { hash, offence, until: barred.until });
        }
    }

    /// Until when a URL is barred for all clients.
    fn certain_until(&self, hash: u64) -> Option<Timestamp> {
        self.barred.get(&hash).filter(|barred| barred.only.is_none()).map(|barred| barred.until)
    }

    fn set(
        &mut self,
        key: u64,
        offence: Offence,
        only: Option<Client>,
        until: Timestamp,
        now: Timestamp,
    ) {
        self.forget(now);
        if let Some(barred) = self.barred.get_mut(&key) {
            if barred.only.is_none() && only.is_some() {
                // A single client does not extend it.
                return;
            }
            let stays = barred.only.is_some() && barred.only == only;
            if !stays {
                self.suspected -= usize::from(barred.only.is_some());
                self.changes += 1;
            }
            let only = only.filter(|_| stays);
            *barred = Barred { offence, until, only, told: barred.told };
            return;
        }
        while self.barred.len() >= self.most && self.evict_oldest() {}
        let told = Timestamp::ZERO;
        self.barred.insert(key, Barred { offence, until, only, told });
        self.order.push_back((until, key));
        self.suspected += usize::from(only.is_some());
        self.changes += u64::from(only.is_none());
    }

    /// Why `target` is barred, if it is.
    pub fn check(&self, target: &Target, now: Timestamp) -> Option<Offence> {
        if self.barred.is_empty() {
            return None;
        }
        let barred = self.barred.get(&self.hash(target))?;
        barred.is_at(now).then_some(barred.offence)
    }

    /// How many are barred for a day.
    pub fn len(&self) -> usize {
        self.barred.len() - self.suspected
    }

    /// Whether no URL is barred.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn forget(&mut self, now: Timestamp) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            self.evict_oldest();
        }
    }

    /// Removes the one that was barred longest ago, or moves it to its place if it was used since; false if
    /// there is none.
    fn evict_oldest(&mut self) -> bool {
        let Some((until, key)) = self.order.pop_front() else { return false };
        match self.barred.get(&key) {
            Some(barred) if barred.until > until => self.order.push_back((barred.until, key)),
            Some(barred) => {
                self.suspected -= usize::from(barred.only.is_some());
                self.barred.remove(&key);
            }
            None => {}
        }
        true
    }
}

/// The layout of a saved list: the key and a count, then the hashes, each with the second from 1970 until
/// which it is barred, and its offence.
const KEY: usize = 16;
const ENTRY: usize = 8 + 8 + 1;

impl Bars {
    pub(super) fn encode(&self, now: Timestamp, wall: SystemTime, kept: &mut Vec<u8>) {
        kept.extend(self.key);
        let is_kept = |barred: &Barred| barred.only.is_none() && barred.is_at(now);
        let barred: Vec<_> = self.barred.iter().filter(|(_, barred)| is_kept(barred)).collect();
        kept.extend((barred.len() as u64).to_le_bytes());
        for (key, Barred { offence, until, .. }) in barred {
            let until = wall + until.saturating_since(now);
            let until = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let place = OFFENCES.iter().position(|one| one == offence).unwrap_or_default();
            kept.extend(key.to_le_bytes());
            kept.extend(until.as_secs().to_le_bytes());
            kept.push(place as u8);
        }
    }

    /// Takes a list out of `kept`; `None` if it is malformed.
    pub(super) fn decode(kept: &mut &[u8], now: Timestamp, wall: SystemTime) -> Option<Self> {
        let (key, rest) = kept.split_first_chunk::<KEY>()?;
        let (count, rest) = rest.split_first_chunk::<8>()?;
        let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
        let (entries, rest) = rest.split_at_checked(count.checked_mul(ENTRY)?)?;
        *kept = rest;
        let wall = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut barred = Vec::new();
        for entry in entries.chunks_exact(ENTRY) {
            let (hash, entry) = entry.split_first_chunk::<8>()?;
            let (until, place) = entry.split_first_chunk::<8>()?;
            let offence = *OFFENCES.get(usize::from(*place.first()?))?;
            let until = Duration::from_secs(u64::from_le_bytes(*until));
            // The clock may have been set in between.
            let left = until.saturating_sub(wall).min(BARRED_FOR);
            barred.push((now + left, u64::from_le_bytes(*hash), offence));
        }
        barred.sort_unstable_by_key(|(until, ..)| *until);
        let mut bars = Bars { key: *key, ..Bars::default() };
        let surplus = barred.len().saturating_sub(bars.most);
        for (until, hash, offence) in barred.into_iter().skip(surplus) {
            bars.barred.insert(hash, Barred { offence, until, only: None, told: until });
            bars.order.push_back((until, hash));
        }
        Some(bars)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    const HOUR: Duration = Duration::from_secs(3600);

    fn target(path: &str) -> Target {
        Target::parse(path).unwrap()
    }

    #[test]
    fn redirect_bars_the_url_for_a_day() {
        let mut bars = Bars::default();
        let start = Timestamp::ZERO + HOUR;
        bars.bar(&target("/a"), Offence::Redirect, start);
        for (path, after, expected) in [
            ("/a", Duration::ZERO, Some(Offence::Redirect)),
            ("/a", 23 * HOUR, Some(Offence::Redirect)),
            ("/a", 24 * HOUR, None),
            ("/%61", HOUR, Some(Offence::Redirect)),
            ("/b", HOUR, None),
            ("/a?x", HOUR, None),
        ] {
            assert_eq!(bars.check(&target(path), start + after), expected, "{path} {after:?}");
        }
    }

    #[test]
    fn later_offence_restarts_the_day() {
        let mut bars = Bars::default();
        bars.bar(&target("/a"), Offence::Redirect, Timestamp::ZERO);
        bars.bar(&target("/a"), Offence::SetCookie, Timestamp::ZERO + 20 * HOUR);
        bars.bar(&target("/b"), Offence::Redirect, Timestamp::ZERO + 25 * HOUR);
        assert_eq!(
            bars.check(&target("/a"), Timestamp::ZERO + 43 * HOUR),
            Some(Offence::SetCookie)
        );
        assert_eq!(bars.check(&target("/a"), Timestamp::ZERO + 44 * HOUR), None);
    }

    #[test]
    fn offence_seen_by_one_client_bars_the_url_for_ten_minutes() {
        const MINUTE: Duration = Duration::from_secs(60);
        for offence in [Offence::Refused, Offence::Part] {
            let mut bars = Bars::default();
            let start = Timestamp::ZERO + HOUR;
            let is_barred =
                |bars: &Bars, after: Duration| bars.check(&target("/a"), start + after).is_some();
            let meets = |bars: &mut Bars, client, after: Duration| {
                bars.met(&target("/a"), offence, Client(client), start + after);
            };
            for after in [Duration::ZERO, 5 * MINUTE, HOUR, 5 * HOUR] {
                meets(&mut bars, 1, after);
                assert!(is_barred(&bars, after + 9 * MINUTE), "{offence} {after:?}");
                assert!(!is_barred(&bars, after + 10 * MINUTE), "{offence} {after:?}");
            }
            assert_eq!((bars.len(), bars.barred.len(), bars.changes), (0, 1, 0));
            // Two clients are evidence about the URL.
            meets(&mut bars, 2, 28 * HOUR);
            assert_eq!((bars.len(), bars.changes), (1, 1));
            assert!(is_barred(&bars, 51 * HOUR) && !is_barred(&bars, 52 * HOUR));
            // After that, one of them does not extend it.
            meets(&mut bars, 1, 40 * HOUR);
            assert!(!is_barred(&bars, 52 * HOUR));
            // A day later the first is forgotten.
            meets(&mut bars, 1, 60 * HOUR);
            meets(&mut bars, 2, 84 * HOUR);
            assert!(!is_barred(&bars, 84 * HOUR + 10 * MINUTE));
            // An offence that cannot come from the client needs no second one.
            bars.met(&target("/a"), Offence::Redirect, Client(2), start + 85 * HOUR);
            assert!(is_barred(&bars, 108 * HOUR));
        }
    }

    #[test]
    fn offence_seen_by_one_client_is_not_saved() {
        let wall = SystemTime::UNIX_EPOCH + 500_000 * HOUR;
        let (mut policy, mut after) = (Policy::default(), Policy::default());
        policy.bars.met(&target("/a"), Offence::Refused, Client(1), Timestamp::ZERO);
        policy.bars.met(&target("/b"), Offence::Gone, Client(1), Timestamp::ZERO);
        assert!(after.take_bars(&policy.encode_bars(Timestamp::ZERO, wall), Timestamp::ZERO, wall));
        let found = |path| after.bars.check(&target(path), Timestamp::ZERO);
        assert_eq!((found("/a"), found("/b")), (None, Some(Offence::Gone)));
    }

    #[test]
    fn memory_is_bounded_for_any_requests() {
        let mut bars = Bars::with_limit(100);
        for n in 0..10_000 {
            let now = Timestamp::ZERO + Duration::from_secs(n);
            bars.bar(&target(&format!("/{n}")), Offence::Redirect, now);
            bars.bar(&target("/always"), Offence::SetCookie, now);
            assert!(bars.len() <= 100 && bars.order.len() == bars.barred.len());
        }
        // The latest ones are kept.
        let now = Timestamp::ZERO + Duration::from_secs(10_000);
        assert!((9_910..10_000).all(|n| bars.check(&target(&format!("/{n}")), now).is_some()));
    }

    #[test]
    fn bars_last_a_day_across_a_restart() {
        let wall = SystemTime::UNIX_EPOCH + 500_000 * HOUR;
        let start = Timestamp::ZERO + HOUR;
        let mut before = Policy::default();
        assert_eq!(before.bar_changes(), 0);
        before.bars.bar(&target("/over"), Offence::Gone, start);
        before.bars.bar(&target("/a?b"), Offence::Redirect, start + 20 * HOUR);
        assert_eq!(before.bar_changes(), 2);
        let kept = before.encode_bars(start + 21 * HOUR, wall + 21 * HOUR);

        // Another clock, four hours later.
        let mut after = Policy::default();
        assert!(after.take_bars(&kept, Timestamp::ZERO, wall + 25 * HOUR));
        assert_eq!(after.bar_changes(), 0);
        let found = |bars: &Bars, path: &str, hours: u32| {
            bars.check(&target(path), Timestamp::ZERO + hours * HOUR)
        };
        assert_eq!(found(&after.bars, "/over", 0), None);
        assert_eq!(found(&after.bars, "/a?b", 18), Some(Offence::Redirect));
        assert_eq!(found(&after.bars, "/a?b", 19), None);
        assert_eq!(found(&after.bars, "/a", 0), None);
        // A clock that was set back bars nothing for longer than a day.
        assert!(after.take_bars(&kept, Timestamp::ZERO, wall - 100 * HOUR));
        assert_eq!(found(&after.bars, "/a?b", 24), None);
    }

    #[test]
    fn invalid_saved_bars_change_nothing() {
        let mut policy = Policy::default();
        policy.bars.bar(&target("/a"), Offence::Redirect, Timestamp::ZERO);
        let wall = SystemTime::UNIX_EPOCH + 500_000 * HOUR;
        let kept = policy.encode_bars(Timestamp::ZERO, wall);
        let flood = [Policy::KEPT_BARS, &[0; KEY], &[0xff; 8]].concat();
        let more = [&kept[..], b"x"].concat();
        let unknown = {
            let mut kept = kept.clone();
            kept[Policy::KEPT_BARS.len() + KEY + 8 + ENTRY - 1] = 8;
            kept
        };
        for none in [&b""[..], b"lullbar\x02", &flood, &more, &unknown] {
            assert!(!policy.take_bars(none, Timestamp::ZERO, wall));
        }
        for length in 0..kept.len() {
            assert!(!policy.take_bars(&kept[..length], Timestamp::ZERO, wall));
        }
        let is_barred = |policy: &Policy| policy.bars.check(&target("/a"), Timestamp::ZERO);
        assert_eq!(is_barred(&policy), Some(Offence::Redirect));
        assert!(policy.take_bars(&kept, Timestamp::ZERO, wall));
        assert_eq!(is_barred(&policy), Some(Offence::Redirect));
    }

    #[test]
    fn expired_bars_are_dropped() {
        let mut bars = Bars::default();
        for n in 0..1000 {
            bars.bar(&target(&format!("/{n}")), Offence::Redirect, Timestamp::ZERO);
        }
        bars.bar(&target("/late"), Offence::Redirect, Timestamp::ZERO + 25 * HOUR);
        assert_eq!((bars.len(), bars.order.len()), (1, 1));
    }
}
