//! URLs that showed themselves unfit, for a day.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use lull_cc::Timestamp;

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
}

/// The URLs that are barred. They are kept by a hash with a key of its own, so that nobody makes
/// two of them collide.
#[derive(Debug)]
pub struct Bars {
    hasher: RandomState,
    until: HashMap<u64, (Timestamp, Offence)>,
    /// All of `until` by the time of the offence, and what has been renewed since.
    order: VecDeque<(Timestamp, u64)>,
    most: usize,
}

impl Default for Bars {
    fn default() -> Self {
        Bars::with_limit(MOST)
    }
}

impl Bars {
    fn with_limit(most: usize) -> Self {
        Bars { hasher: RandomState::new(), until: HashMap::new(), order: VecDeque::new(), most }
    }

    /// Bars `target` for a day.
    pub fn bar(&mut self, target: &Target, offence: Offence, now: Timestamp) {
        self.forget(now);
        let key = self.hasher.hash_one(target);
        let until = now + BARRED_FOR;
        if let Some(barred) = self.until.get_mut(&key) {
            // Once an hour is often enough to renew one: `order` then stays in proportion.
            if until.saturating_since(barred.0) >= Duration::from_secs(3600) {
                *barred = (until, offence);
                self.order.push_back((until, key));
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
    }

    /// Why `target` is barred, if it is.
    pub fn check(&self, target: &Target, now: Timestamp) -> Option<Offence> {
        let (until, offence) = self.until.get(&self.hasher.hash_one(target))?;
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
    fn what_is_over_is_forgotten() {
        let mut bars = Bars::default();
        for n in 0..1000 {
            bars.bar(&target(&format!("/{n}")), Offence::Redirect, Timestamp::ZERO);
        }
        bars.bar(&target("/late"), Offence::Redirect, Timestamp::ZERO + 25 * HOUR);
        assert_eq!((bars.len(), bars.order.len()), (1, 1));
    }
}
