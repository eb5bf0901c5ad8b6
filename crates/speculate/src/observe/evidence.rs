//! The evidence that a URL is public: how many distinct clients got it since it was last private.
//!
//! Clients are counted by classes: a bit for each, chosen by a keyed hash of client and URL. So a client sets
//! the same bit at each request, and at each server that has the key. Servers exchange their evidence, and
//! [`Evidence::join`] it. The result depends neither on the order of the exchanges nor on repetitions: the
//! evidence is a join semilattice, the lexicographic product of an epoch and sets (Shapiro, Preguiça, Baquero
//! and Zawirski, 2011). A bar begins an epoch, so clients that were counted before it stay forgotten.

use std::io::{self, Read, Write};

use lull_cc::Timestamp;

use crate::encoding::{ReadError, SHARED, Sink, Source};

/// Distinct clients whose rejection hides a URL.
const REFUSED: u32 = 2;

/// Evidence about one URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// The second from 1970 in which it was last barred, or a later one: each bar has a larger number than the
    /// one before. At the largest number nothing counts any more.
    epoch: u32,
    /// A bit for each of 32 classes of origins that got it publicly in this epoch.
    origins: u32,
    /// A bit for each of 16 classes that were refused in this epoch.
    refused: u16,
}

impl Evidence {
    /// A client got it publicly. `hash` is that of client and URL.
    pub(super) fn got(&mut self, hash: u64) {
        if self.epoch < u32::MAX {
            self.origins |= 1 << (hash % 32);
        }
    }

    /// A client was refused. Returns whether enough of them were.
    pub(super) fn refuse(&mut self, hash: u64) -> bool {
        self.refused |= 1 << (hash % 16);
        self.is_refused()
    }

    fn is_refused(self) -> bool {
        self.refused.count_ones() >= REFUSED
    }

    /// It was private, or is gone: clients that got it before no longer count.
    pub(super) fn bar(&mut self, now: Timestamp) {
        let now = u32::try_from(now.as_nanos() / 1_000_000_000).unwrap_or(u32::MAX);
        let is_empty = self.origins == 0 && self.refused == 0;
        if !is_empty || self.epoch < now {
            *self =
                Evidence { epoch: self.epoch.saturating_add(1).max(now), ..Evidence::default() };
        }
    }

    /// Adds what another server knows. Enough refused clients at both together bar it.
    pub(super) fn join(&mut self, other: Evidence) {
        if self.epoch < other.epoch {
            *self = other;
        } else if self.epoch == other.epoch {
            self.origins |= other.origins;
            self.refused |= other.refused;
        }
        if self.is_refused() {
            // Each server begins the same epoch.
            self.bar(Timestamp::ZERO);
        }
        if self.epoch == u32::MAX {
            (self.origins, self.refused) = (0, 0);
        }
    }

    /// Distinct clients that got it: a lower bound, and 32 at most.
    pub(super) fn clients(self) -> u32 {
        self.origins.count_ones()
    }

    /// Restarts a count below `enough`.
    pub(super) fn restart(&mut self, enough: u32) {
        self.refused = 0;
        if self.origins.count_ones() < enough {
            self.origins = 0;
        }
    }

    pub(crate) fn write<W: Write>(self, to: &mut Sink<W>) -> io::Result<()> {
        to.u32(self.epoch)?;
        to.u32(self.origins)?;
        to.u16(self.refused)
    }

    pub(crate) fn read<R: Read>(from: &mut Source<R>) -> Result<Self, ReadError> {
        let epoch = if from.version() >= SHARED { from.u32()? } else { 0 };
        Ok(Evidence { epoch, origins: from.u32()?, refused: from.u16()? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_nanos(second * 1_000_000_000)
    }

    fn any_evidence() -> impl Strategy<Value = Evidence> {
        let epoch = prop_oneof![0_u32..3, Just(u32::MAX)];
        (epoch, 0_u32..8, 0_u16..4).prop_map(|(epoch, origins, refused)| {
            let mut one = Evidence { epoch, origins, refused };
            one.join(one);
            one
        })
    }

    fn joined(mut one: Evidence, other: Evidence) -> Evidence {
        one.join(other);
        one
    }

    proptest! {
        #[test]
        fn join_is_associative_commutative_and_idempotent(
            a in any_evidence(), b in any_evidence(), c in any_evidence(),
        ) {
            prop_assert_eq!(joined(a, b), joined(b, a));
            prop_assert_eq!(joined(joined(a, b), c), joined(a, joined(b, c)));
            prop_assert_eq!(joined(a, a), a);
        }
    }

    #[test]
    fn bar_forgets_clients_also_of_late_messages() {
        let mut here = Evidence::default();
        (0..5).for_each(|client| here.got(client));
        let there = here;
        here.bar(at(100));
        assert_eq!(here.clients(), 0);
        // A message from before the bar arrives.
        here.join(there);
        assert_eq!(here.clients(), 0);
        here.got(7);
        assert_eq!((joined(there, here).clients(), joined(here, there).clients()), (1, 1));
        // A second bar in the same second, and one by a clock that is behind.
        for second in [100, 50] {
            let before = here;
            here.bar(at(second));
            here.join(before);
            assert_eq!(here.clients(), 0);
            here.got(7);
        }
    }

    #[test]
    fn url_at_the_last_epoch_is_never_public() {
        let mut one = Evidence::default();
        one.bar(at(u64::from(u32::MAX) + 1));
        (0..32).for_each(|client| one.got(client));
        assert_eq!(one.clients(), 0);
        one.join(Evidence { epoch: u32::MAX, origins: u32::MAX, refused: 0 });
        assert_eq!(one.clients(), 0);
    }

    #[test]
    fn rejections_at_two_servers_hide_a_url() {
        let (mut here, mut there) = (Evidence::default(), Evidence::default());
        (0..5).for_each(|client| here.got(client));
        assert!(!here.refuse(1) && !there.refuse(2));
        assert_eq!(here.clients(), 5);
        here.join(there);
        assert_eq!(here.clients(), 0);
    }
}
