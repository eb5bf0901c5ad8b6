//! Decides which clients get a list of hints (SSR §5.2.1.2, §5.2.2).

use core::time::Duration;

use lull_cc::Timestamp;

const SECOND: u64 = 1_000_000_000;

/// How the budget is divided among the clients that ask.
///
/// In both ways lists are paid from the earnings of the budget, so that luck never gives out more. In any
/// time t at budget B that is at most B·t requests, and saved earnings of two documents and B·τ. A document
/// and a hover hint fit into that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rationing {
    /// By chance. With N clients in the last epoch, each one of this epoch gets a document with p = min(1,
    /// B·τ / (N·D)). Clients beyond N get nothing, and all clients without a list come again in the next
    /// epoch (SSR §5.2.2).
    Paper,
    /// A client gets a list while there is budget for one. The others come again at different times within a
    /// range: when there will be budget for all of them, as far as the range allows. A client with an earlier
    /// list on the same page leaves a document for those without: the most probable URLs are on first lists.
    ///
    /// With epochs of 100 ms most sites have at most one client in each, for which the paper's N wastes most
    /// of the budget.
    FirstCome {
        /// The shortest wait.
        from: Duration,
        /// The longest.
        to: Duration,
    },
}

impl Rationing {
    /// First come, first served, with waits of 1 to 30 seconds.
    pub const fn shipped() -> Self {
        Rationing::FirstCome { from: Duration::from_secs(1), to: Duration::from_secs(30) }
    }

    /// The same with a range that ends after this time, if that is within it; at the earliest after twice its
    /// beginning, so that clients do not synchronise.
    fn within(self, soon: Duration) -> Self {
        match self {
            Rationing::Paper => self,
            Rationing::FirstCome { from, to } => {
                Rationing::FirstCome { from, to: soon.max(2 * from).min(to) }
            }
        }
    }

    /// How long a client without a list waits, by 32 random bits: until the epoch ends after `epoch_left`, or
    /// within its range of times.
    pub fn again(self, epoch_left: Duration, bits: u32) -> Duration {
        match self {
            Rationing::Paper => epoch_left,
            Rationing::FirstCome { from, to } => {
                from + part(to.saturating_sub(from), u64::from(bits))
            }
        }
    }
}

/// A client's request for hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// This many files may be hinted to it. A list never has more than a document has.
    pub files: u32,
    /// Whether there are more URLs, for hover: at most one is fetched before the visitor goes. It is paid
    /// with the list, and not part of it.
    pub pointed: bool,
    /// Whether it had no list on its page so far.
    pub first: bool,
}

/// The result for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// A list of hints.
    List {
        /// Of this many files at most.
        length: u32,
        /// When to begin: lists of an epoch are spread over it to spread the load (SSR §5.2.1.2).
        after: Duration,
    },
    /// An empty list, and when to ask again.
    Empty {
        /// After this time.
        again: Duration,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Share {
    epoch: Duration,
    document: u32,
    rationing: Rationing,
    /// When the current epoch began.
    began: Timestamp,
    /// Clients that asked in it, and in the previous one.
    asked: u64,
    asked_before: u64,
    /// The unspent earnings, in billionths of a request; and when they were settled.
    earned: u64,
    settled: Timestamp,
    /// The earnings since [`Share::is_used`] was asked, kept or not, and the expenses, in the same unit.
    due: u64,
    handed_out: u64,
    /// Clients put off without a list, less those that got one since: about as many will come again. Some
    /// never do, so half of them are forgotten each time that all could have come.
    put_off: u64,
    forgotten: Timestamp,
}

impl Share {
    pub(super) fn new(
        epoch: Duration,
        document: u32,
        rationing: Rationing,
        now: Timestamp,
    ) -> Self {
        Share {
            epoch,
            document,
            rationing,
            began: now,
            asked: 0,
            asked_before: 0,
            earned: 0,
            settled: now,
            due: 0,
            handed_out: 0,
            put_off: 0,
            forgotten: now,
        }
    }

    /// Adds the earnings since the last time at this budget.
    pub(super) fn accrue(&mut self, now: Timestamp, budget: u32) {
        let nanos = nanos(now.saturating_since(self.settled));
        self.settled = self.settled.max(now);
        // Requests per second times nanoseconds are billionths of requests.
        let due = u64::from(budget).saturating_mul(nanos);
        self.due = self.due.saturating_add(due);
        let earned = self.earned.saturating_add(due);
        // Unused earnings are not saved for later (SSR §5.2.2), except for as much as whole documents need at
        // a budget below one in each epoch.
        let most = 2 * self.price() + u64::from(budget).saturating_mul(self.epoch_nanos());
        self.earned = earned.min(most);
    }

    /// Whether half of the settled earnings were given out since this was asked before.
    pub(super) fn is_used(&mut self) -> bool {
        let is_used = self.handed_out >= self.due / 2;
        (self.due, self.handed_out) = (0, 0);
        is_used
    }

    pub(super) fn ask(&mut self, now: Timestamp, budget: u32, wanted: Wanted, draw: u64) -> Grant {
        self.accrue(now, budget);
        let into_epoch = self.roll(now);
        self.forget(now);
        self.asked += 1;
        // One draw for two decisions, each with half of its bits.
        let (chance, place) = (draw >> 32, draw & u64::from(u32::MAX));
        let length = wanted.files.min(self.document);
        let price = u64::from(length + u32::from(wanted.pointed)) * SECOND;
        let left = Duration::from_nanos(self.epoch_nanos() - into_epoch);
        let to_be_left = match self.rationing {
            Rationing::Paper => {
                // An unexpected client counts as the one of its epoch.
                let expected = self.asked_before.max(1);
                let share = u128::from(budget) * u128::from(self.epoch_nanos());
                let p = (share << 32) / (u128::from(expected) * u128::from(self.price()));
                if u128::from(chance) >= p || self.asked > expected {
                    return Grant::Empty { again: left };
                }
                0
            }
            Rationing::FirstCome { .. } if wanted.first => 0,
            Rationing::FirstCome { .. } => self.price(),
        };
        // Hover hints are paid from the rest: more than two documents are never certain to be saved.
        let needed = (price + to_be_left).min(2 * self.price());
        let missing = needed.saturating_sub(self.earned);
        if missing > 0 || budget == 0 {
            let soon = self.all_served_in(missing, budget);
            self.put_off = self.put_off.saturating_add(1);
            let again = self.rationing.within(soon).again(left, place as u32);
            return Grant::Empty { again };
        }
        self.put_off = self.put_off.saturating_sub(1);
        self.earned -= price;
        self.handed_out = self.handed_out.saturating_add(price);
        let after = part(left, place);
        Grant::List { length, after }
    }

    /// Moves to the epoch of `now`; returns the nanoseconds since it began.
    fn roll(&mut self, now: Timestamp) -> u64 {
        let since = nanos(now.saturating_since(self.began));
        let epochs = since / self.epoch_nanos();
        if epochs > 0 {
            self.asked_before = if epochs == 1 { self.asked } else { 0 };
            self.asked = 0;
            self.began += Duration::from_nanos(epochs * self.epoch_nanos());
        }
        since % self.epoch_nanos()
    }

    fn forget(&mut self, now: Timestamp) {
        let Rationing::FirstCome { to, .. } = self.rationing else { return };
        let times = nanos(now.saturating_since(self.forgotten)) / nanos(to).max(1);
        self.put_off =
            u32::try_from(times).ok().and_then(|by| self.put_off.checked_shr(by)).unwrap_or(0);
        if times > 0 {
            self.forgotten = now;
        }
    }

    /// Time until this many billionths of a request are earned, and a document for each client that was put
    /// off before.
    fn all_served_in(&self, missing: u64, budget: u32) -> Duration {
        let waiting = self.put_off.saturating_mul(self.price()).saturating_add(missing);
        waiting.checked_div(u64::from(budget)).map_or(Duration::MAX, Duration::from_nanos)
    }

    /// The price of a document, in billionths of a request.
    fn price(&self) -> u64 {
        u64::from(self.document) * SECOND
    }

    fn epoch_nanos(&self) -> u64 {
        nanos(self.epoch)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The part of a time given by 32 bits, from none to nearly all of it.
fn part(of: Duration, bits: u64) -> Duration {
    Duration::from_nanos(((u128::from(nanos(of)) * u128::from(bits)) >> 32) as u64)
}
