//! The time in a log, by the dates of its lines.

use core::time::Duration;

use lull_cc::Timestamp;

/// The time of a log's reader: that of its lines, except for an isolated date.
///
/// A damaged line may have any date. A date far from the time so far is accepted once the next line has a
/// similar one. So a wrong date changes nothing, not even as the first one. A gap is known with the second
/// line after it, and so is another server's log that begins where the previous one began.
///
/// ```
/// use core::time::Duration;
/// use lull_cc::Timestamp;
/// use lull_speculate::log::Clock;
///
/// let mut clock = Clock::new(Duration::from_secs(60));
/// let mut tell = |second: u64| clock.advance(Timestamp::from_nanos(second * 1_000_000_000)).as_nanos();
/// let times = [100, 130, 9_000, 131, 500, 501, 7].map(|second| tell(second) / 1_000_000_000);
/// assert_eq!(times, [100, 130, 130, 131, 131, 501, 501]);
/// ```
#[derive(Clone, Debug)]
pub struct Clock {
    near: Duration,
    now: Option<Timestamp>,
    /// The date of the last line, if that is not trusted.
    claimed: Option<Timestamp>,
}

impl Clock {
    /// A clock without a time so far. Dates within `near` of each other are trusted.
    pub fn new(near: Duration) -> Self {
        Clock { near, now: None, claimed: None }
    }

    /// The time after a line with this date. It goes back only if the dates do by more than `near`: lines of
    /// concurrent requests may have any order.
    pub fn advance(&mut self, at: Timestamp) -> Timestamp {
        let now = self.now.unwrap_or(at);
        if self.are_near(now, at) {
            self.set(now.max(at));
        } else if self.claimed.is_some_and(|claimed| self.are_near(claimed, at)) {
            self.set(at);
        } else {
            self.claimed = Some(at);
        }
        self.now()
    }

    /// Sets it to a time that is certain to be correct.
    pub fn set(&mut self, now: Timestamp) {
        (self.now, self.claimed) = (Some(now), None);
    }

    /// The time; the earliest possible time before the first line.
    pub fn now(&self) -> Timestamp {
        self.now.unwrap_or(Timestamp::ZERO)
    }

    /// Whether a date is near the time, or near one that the next line may confirm.
    pub fn may_be_now(&self, at: Timestamp) -> bool {
        [self.now, self.claimed].into_iter().flatten().any(|time| self.are_near(time, at))
    }

    /// Whether two dates are within `near`.
    pub fn are_near(&self, one: Timestamp, other: Timestamp) -> bool {
        one.max(other).saturating_since(one.min(other)) <= self.near
    }
}
