//! URLs that showed themselves unfit, for a day.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use lull_cc::Timestamp;
use sha2::{Digest, Sha256};

use super::Policy;
use super::target::Target;

/// How long a URL is barred after its last offence.
pub const BARRED_FOR: Duration = Duration::from_secs(24 * 3600);
/// URLs that are kept, at some 80 bytes each. Who comes after them takes the place of who has been
/// barred longest: only URLs that five clients got in public are ever suggested, and each reply is
/// looked at again, so what slips past costs one request that is thrown away.
const MOST: usize = 1 << 17;

/// What a URL did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Offence {
    /// It led elsewhere: by a 3xx, by `Refresh`, or by a `<meta>` of that kind.
    #[error("it redirected")]
    Redirect,
    /// It set a cookie.
    #[error("it set a cookie")]
    SetCookie,
    /// Its reply was not for everybody, or not to be kept.
    #[error("its reply was not to be kept")]
    NotPublic,
    /// It was not there, or not for everybody: 401, 403, 404 or 410.
    #[error("it was gone, or forbidden")]
    Gone,
    /// Its reply varied on cookies, which bars it for those who have some.
    #[error("its reply varied on cookies")]
    VariesOnCookies,
    /// Its page said so.
    #[error("its page opts out")]
    OptOut,
    /// Scripts ask it for a part of its page, and it does not say that the page is another reply: they would
    /// be given the page that was fetched ahead.
    #[error("scripts ask it for a part of its page")]
    Part,
}

/// All of them: a kept one is its place in here.
const OFFENCES: [Offence; 7] = [
    Offence::Redirect,
    Offence::SetCookie,
    Offence::NotPublic,
    Offence::Gone,
    Offence::VariesOnCookies,
    Offence::OptOut,
    Offence::Part,
];

/// The URLs that are barred. They are kept by a hash with a key of its own, so that nobody makes
/// two of them collide.
#[derive(Debug)]
pub struct Bars {
    key: [u8; 16],
    until: HashMap<u64, (Timestamp, Offence)>,
    /// All of `until` by the time of the offence, and what has been renewed since.
    order: VecDeque<(Timestamp, u64)>,
    most: usize,
    /// How often one was barred, or barred for longer.
    changes: u64,
}

impl Default for Bars {
    fn default() -> Self {
        Bars::with_limit(MOST)
    }
}

impl Bars {
    fn with_limit(most: usize) -> Self {
        let draws = RandomState::new();
        let key = [draws.hash_one(0), draws.hash_one(1)].map(u64::to_le_bytes).concat();
        Bars {
            // Twice eight bytes.
            key: key.try_into().unwrap_or_default(),
            until: HashMap::new(),
            order: VecDeque::new(),
            most,
            changes: 0,
        }
    }

    /// The hash of `target`, which is the same in another process that has the key.
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

    /// Bars `target` for a day.
    pub fn bar(&mut self, target: &Target, offence: Offence, now: Timestamp) {
        self.forget(now);
        let key = self.hash(target);
        let until = now + BARRED_FOR;
        if let Some(barred) = self.until.get_mut(&key) {
            // Once an hour is often enough to renew one: `order` then stays in proportion.
            if until.saturating_since(barred.0) >= Duration::from_secs(3600) {
                *barred = (until, offence);
                self.order.push_back((until, key));
                self.changes += 1;
            }
            return;
        }
        while self.until.len() >= self.most {
            let Some((until, oldest)) = self.order.pop_front() else {
                break;
            };
            // One that was renewed stands further behind once more.
            if self.until.get(&oldest).is_some_and(|barred| barred.0 == until) {
                self.until.remove(&oldest);
            }
        }
        self.until.insert(key, (until, offence));
        self.order.push_back((until, key));
        self.changes += 1;
    }

    /// Why `target` is barred, if it is.
    pub fn check(&self, target: &Target, now: Timestamp) -> Option<Offence> {
        if self.until.is_empty() {
            return None;
        }
        let (until, offence) = self.until.get(&self.hash(target))?;
        (now < *until).then_some(*offence)
    }

    /// How many are barred.
    pub fn len(&self) -> usize {
        self.until.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    fn forget(&mut self, now: Timestamp) {
        while let Some(&(until, key)) = self.order.front() {
            if until > now {
                break;
            }
            self.order.pop_front();
            if self.until.get(&key).is_some_and(|barred| barred.0 <= now) {
                self.until.remove(&key);
            }
        }
    }
}

/// Where and how long each part of a kept list is: the key and a count, then so many hashes, each with the
/// second from 1970 until which it is barred, and its offence.
const KEY: usize = 16;
const ENTRY: usize = 8 + 8 + 1;

impl Bars {
    fn keep(&self, now: Timestamp, wall: SystemTime, kept: &mut Vec<u8>) {
        kept.extend(self.key);
        let barred: Vec<_> = self.until.iter().filter(|(_, (until, _))| now < *until).collect();
        kept.extend((barred.len() as u64).to_le_bytes());
        for (key, (until, offence)) in barred {
            let until = wall + until.saturating_since(now);
            let until = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let place = OFFENCES.iter().position(|one| one == offence).unwrap_or_default();
            kept.extend(key.to_le_bytes());
            kept.extend(until.as_secs().to_le_bytes());
            kept.push(place as u8);
        }
    }

    /// Takes a list out of `kept`; `None` if it is none.
    fn taken(kept: &mut &[u8], now: Timestamp, wall: SystemTime) -> Option<Self> {
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
            bars.until.insert(hash, (until, offence));
            bars.order.push_back((until, hash));
        }
        Some(bars)
    }
}

/// What is barred is so for a day, however long a process lasts.
impl Policy {
    /// How kept bars begin.
    pub const KEPT_BARS: &'static [u8] = b"lullbar\x01";

    /// The bars as they are now, to be given to [`Policy::take_bars`] of another process. They name no
    /// URL: whoever has this can only find out of one whether it is barred.
    pub fn keep_bars(&self, now: Timestamp, wall: SystemTime) -> Vec<u8> {
        let mut kept = Self::KEPT_BARS.to_vec();
        self.bars.keep(now, wall, &mut kept);
        self.varying.keep(now, wall, &mut kept);
        kept
    }

    /// Goes on with bars of before, in place of those so far; false, and nothing changes, if they are none.
    pub fn take_bars(&mut self, kept: &[u8], now: Timestamp, wall: SystemTime) -> bool {
        let Some(mut kept) = kept.strip_prefix(Self::KEPT_BARS) else { return false };
        let taken = Bars::taken(&mut kept, now, wall).zip(Bars::taken(&mut kept, now, wall));
        let Some((bars, varying)) = taken.filter(|_| kept.is_empty()) else { return false };
        (self.bars, self.varying) = (bars, varying);
        true
    }

    /// A number that another one follows when something is barred.
    pub fn bar_changes(&self) -> u64 {
        self.bars.changes + self.varying.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn target(path: &str) -> Target {
        Target::parse(path).unwrap()
    }

    #[test]
    fn a_redirect_bars_the_url_for_a_day() {
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
    fn a_later_offence_counts_a_day_from_then() {
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
    fn memory_is_bounded_whatever_clients_ask_for() {
        let mut bars = Bars::with_limit(100);
        for n in 0..10_000 {
            let now = Timestamp::ZERO + Duration::from_secs(n);
            bars.bar(&target(&format!("/{n}")), Offence::Redirect, now);
            bars.bar(&target("/always"), Offence::SetCookie, now);
            assert!(bars.len() <= 100 && bars.order.len() <= 200);
        }
        // The latest are the ones that are kept.
        let now = Timestamp::ZERO + Duration::from_secs(10_000);
        assert!((9_910..10_000).all(|n| bars.check(&target(&format!("/{n}")), now).is_some()));
    }

    #[test]
    fn a_day_is_a_day_whatever_process_it_ends_in() {
        let wall = SystemTime::UNIX_EPOCH + 500_000 * HOUR;
        let start = Timestamp::ZERO + HOUR;
        let mut before = Policy::default();
        assert_eq!(before.bar_changes(), 0);
        before.bars.bar(&target("/over"), Offence::Gone, start);
        before.bars.bar(&target("/a?b"), Offence::Redirect, start + 20 * HOUR);
        before.varying.bar(&target("/c"), Offence::VariesOnCookies, start + 20 * HOUR);
        assert_eq!(before.bar_changes(), 3);
        let kept = before.keep_bars(start + 21 * HOUR, wall + 21 * HOUR);

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
        assert_eq!(found(&after.varying, "/c", 18), Some(Offence::VariesOnCookies));
        // A clock that was set back bars nothing for longer than a day.
        assert!(after.take_bars(&kept, Timestamp::ZERO, wall - 100 * HOUR));
        assert_eq!(found(&after.bars, "/a?b", 24), None);
    }

    #[test]
    fn kept_bars_that_are_none_change_nothing() {
        let mut policy = Policy::default();
        policy.bars.bar(&target("/a"), Offence::Redirect, Timestamp::ZERO);
        let wall = SystemTime::UNIX_EPOCH + 500_000 * HOUR;
        let kept = policy.keep_bars(Timestamp::ZERO, wall);
        let flood = [Policy::KEPT_BARS, &[0; KEY], &[0xff; 8]].concat();
        let more = [&kept[..], b"x"].concat();
        let unknown = {
            let mut kept = kept.clone();
            kept[Policy::KEPT_BARS.len() + KEY + 8 + ENTRY - 1] = 7;
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
    fn what_is_over_is_forgotten() {
        let mut bars = Bars::default();
        for n in 0..1000 {
            bars.bar(&target(&format!("/{n}")), Offence::Redirect, Timestamp::ZERO);
        }
        bars.bar(&target("/late"), Offence::Redirect, Timestamp::ZERO + 25 * HOUR);
        assert_eq!((bars.len(), bars.order.len()), (1, 1));
    }
}
