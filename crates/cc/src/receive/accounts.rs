//! Which downloads of a path are active, and what they have in flight.

use crate::Timestamp;
use crate::lull::{HostTraffic, Path};

/// Bounds of a period, in round-trip times and microseconds. A sender that its persist timer holds back
/// is heard of in each period.
const PERIOD_RTTS: u64 = 4;
const MIN_PERIOD_MICROS: u64 = 500_000;

/// Sums over downloads that were heard of in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    downloads: u32,
    weight: u64,
    in_flight: u64,
    spare: u64,
}

impl Sums {
    /// Puts `new` in the place of `old`, which counts only if `is_known`.
    fn replace(&mut self, is_known: bool, old: &Account, new: &Account) {
        let (in_flight, spare) = if is_known { (old.in_flight, old.spare) } else { (0, 0) };
        self.in_flight = self.in_flight + u64::from(new.in_flight) - u64::from(in_flight);
        self.spare = self.spare + u64::from(new.spare) - u64::from(spare);
        self.downloads += u32::from(!is_known);
        self.weight += if is_known { 0 } else { u64::from(new.weight) };
    }

    /// Forgets a download that counts.
    fn remove(&mut self, account: &Account) {
        self.downloads -= 1;
        self.weight -= u64::from(account.weight);
    }
}

/// The state of a path that downloads share.
///
/// A receiver cannot see that a sender has nothing to send. So a download is active if packets of it came in
/// this period or the one before, and the others have no part of the window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Downloads {
    pub(super) path: Path,
    /// The number of the period, and when it began.
    period: u32,
    since: u64,
    /// Of those that were heard of in this period so far.
    heard: Sums,
    /// Of those that are active.
    active: Sums,
}

/// The accounts in which a download counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// The period in which it was heard of last.
    period: u32,
    /// Its part of the window, relative to others. It does not change.
    weight: u32,
    in_flight: u32,
    /// Packets of its part of the window that it does not use.
    spare: u32,
}

impl Downloads {
    /// The state that is shared with [`lull`](crate::lull).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Traffic of other connections of this host ([`Path::handle_foreground`]).
    pub fn handle_foreground(&mut self, now: Timestamp, seen: HostTraffic) {
        self.path.handle_foreground(now, seen);
    }

    /// Downloads that are active.
    pub fn active(&self) -> u32 {
        self.active.downloads
    }

    /// The sum of the weights of active downloads.
    pub fn weight(&self) -> u64 {
        self.active.weight
    }

    /// Packets that active downloads have in flight.
    pub fn in_flight(&self) -> u64 {
        self.active.in_flight
    }

    /// Packets of their parts of the window that active downloads do not use.
    pub fn spare(&self) -> u64 {
        self.active.spare
    }

    /// The same without one of them, at most [`u32::MAX`].
    pub(super) fn spare_of_others(&self, account: &Account) -> u32 {
        let others = self.active.spare.saturating_sub(u64::from(account.spare));
        u32::try_from(others).unwrap_or(u32::MAX)
    }

    /// The account of a download of this weight that has not been heard of.
    pub(super) fn open(&self, weight: u32) -> Account {
        Account { period: self.period.wrapping_sub(2), weight, ..Account::default() }
    }

    /// Ends the period if it is over.
    pub(super) fn advance(&mut self, now: u64) {
        let rtt = u64::from(self.path.min_rtt_micros());
        let lasts = (PERIOD_RTTS * rtt).max(MIN_PERIOD_MICROS);
        if now < self.since + lasts {
            return;
        }
        let is_silent = now >= self.since + 2 * lasts;
        self.active = if is_silent { Sums::default() } else { self.heard };
        self.heard = Sums::default();
        self.since = now;
        self.period = self.period.wrapping_add(if is_silent { 2 } else { 1 });
    }

    /// Counts a download that has data: its packets in flight, and the packets of its part that it does not use.
    pub(super) fn count(&mut self, account: &mut Account, in_flight: u32, spare: u32) {
        let new = Account { period: self.period, in_flight, spare, ..*account };
        let age = self.period.wrapping_sub(account.period);
        self.active.replace(age < 2, account, &new);
        self.heard.replace(age == 0, account, &new);
        *account = new;
    }

    /// A download has ended.
    pub(super) fn close(&mut self, account: &mut Account) {
        self.count(account, 0, 0);
        self.heard.remove(account);
        self.active.remove(account);
    }
}
