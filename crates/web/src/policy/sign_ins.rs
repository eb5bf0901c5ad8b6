//! Who was given a cookie just now, or did something else of which a while is to be remembered.
//!
//! A visitor with harmless cookies keeps copies without `Vary: Cookie`. The reply that signs such a
//! visitor in clears them (`Clear-Site-Data`); a prefetch that was asked for before, and comes
//! after, would bring one back. So for as long as such a hint is good, a client that was given a
//! cookie gets no more of these.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use lull_cc::Timestamp;

/// How long clients are remembered: as long as a hint to a visitor with cookies is good, and the
/// copy that it leads to.
pub(super) const REMEMBERED_FOR: Duration = Duration::from_secs(120);
/// Clients that are kept. Beyond that nobody with cookies prefetches, until there is room again.
const MOST: usize = 1 << 16;

/// A client, as the proxy tells them apart: a keyed hash of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client(pub u64);

/// Clients that were given a cookie within the last two minutes, or another time.
#[derive(Debug)]
pub struct SignIns {
    kept_for: Duration,
    last: HashMap<Client, Timestamp>,
    /// Each of these once, by when it was noted first.
    order: VecDeque<(Timestamp, Client)>,
    /// Until then somebody may be missing here.
    full_until: Timestamp,
    /// Until then somebody may be meant who was noted before the start.
    past_until: Timestamp,
}

impl Default for SignIns {
    fn default() -> Self {
        SignIns::kept_for(REMEMBERED_FOR)
    }
}

impl SignIns {
    /// Clients are remembered for so long.
    pub fn kept_for(kept_for: Duration) -> Self {
        SignIns {
            kept_for,
            last: HashMap::new(),
            order: VecDeque::new(),
            full_until: Timestamp::ZERO,
            past_until: Timestamp::ZERO,
        }
    }

    /// The same where another process may have been before: for so long after the start everybody is
    /// taken for a client of its.
    pub(super) fn with_a_past(kept_for: Duration) -> Self {
        SignIns { past_until: Timestamp::ZERO + kept_for, ..SignIns::kept_for(kept_for) }
    }

    /// Takes note of a client that was given a cookie.
    pub fn note(&mut self, client: Client, now: Timestamp) {
        if !self.has_room_for(client, now) {
            self.full_until = now + self.kept_for;
        } else if self.last.insert(client, now).is_none() {
            self.order.push_back((now, client));
        }
    }

    /// Whether it can be remembered.
    pub(super) fn has_room_for(&mut self, client: Client, now: Timestamp) -> bool {
        while let Some(&(at, client)) = self.order.front() {
            if now.saturating_since(at) < self.kept_for {
                break;
            }
            self.order.pop_front();
            match self.last.get(&client) {
                // It was noted again since: it is looked at again when that is over.
                Some(&at) if now.saturating_since(at) < self.kept_for => {
                    self.order.push_back((at, client));
                }
                _ => {
                    self.last.remove(&client);
                }
            }
        }
        self.last.contains_key(&client) || self.order.len() < MOST
    }

    /// Whether `client` may have been given a cookie lately.
    pub fn lately(&self, client: Client, now: Timestamp) -> bool {
        self.last(client, now).is_some()
    }

    /// When that may have been at the latest, if it was lately.
    pub(super) fn last(&self, client: Client, now: Timestamp) -> Option<Timestamp> {
        if now < self.full_until {
            return Some(now);
        }
        let noted = self.noted(client).filter(|at| now.saturating_since(*at) < self.kept_for);
        noted.or((now < self.past_until).then_some(Timestamp::ZERO))
    }

    /// When it was noted last, as far as that is known.
    pub(super) fn noted(&self, client: Client) -> Option<Timestamp> {
        self.last.get(&client).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_sign_in_is_remembered_for_as_long_as_a_hint_is_good() {
        let mut sign_ins = SignIns::default();
        sign_ins.note(Client(1), at(10));
        for (client, now, expected) in
            [(1, 10, true), (1, 129, true), (1, 130, false), (2, 11, false)]
        {
            assert_eq!(sign_ins.lately(Client(client), at(now)), expected, "{client} {now}");
        }
        sign_ins.note(Client(1), at(100));
        sign_ins.note(Client(2), at(140));
        assert!(sign_ins.lately(Client(1), at(219)));
    }

    #[test]
    fn who_is_noted_often_takes_one_place() {
        let mut sign_ins = SignIns::default();
        for second in 0..1000 {
            for client in 0..3 {
                sign_ins.note(Client(client), at(second));
            }
            assert_eq!((sign_ins.order.len(), sign_ins.last.len()), (3, 3));
        }
        assert!(sign_ins.lately(Client(2), at(1118)) && !sign_ins.lately(Client(2), at(1119)));
    }

    #[test]
    fn too_many_at_once_count_as_everybody() {
        let mut sign_ins = SignIns::default();
        for client in 0..=MOST as u64 {
            sign_ins.note(Client(client), at(1));
        }
        assert!(sign_ins.order.len() <= MOST);
        assert!(sign_ins.has_room_for(Client(1), at(2)));
        assert!(!sign_ins.has_room_for(Client(u64::MAX), at(2)));
        assert!(sign_ins.lately(Client(u64::MAX), at(2)));
        sign_ins.note(Client(1), at(300));
        assert!(!sign_ins.lately(Client(u64::MAX), at(300)));
        assert_eq!(sign_ins.order.len(), 1);
    }

    #[test]
    fn what_was_before_the_start_counts_as_everybody() {
        let mut sign_ins = SignIns::with_a_past(REMEMBERED_FOR);
        sign_ins.note(Client(1), at(100));
        for (client, now, expected) in
            [(2, 0, true), (2, 119, true), (2, 120, false), (1, 219, true), (1, 220, false)]
        {
            assert_eq!(sign_ins.lately(Client(client), at(now)), expected, "{client} {now}");
        }
    }
}
