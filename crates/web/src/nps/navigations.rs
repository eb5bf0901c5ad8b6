//! Navigations, as measured by visitors' browsers: since the start, and within the last hour.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use lull_cc::Timestamp;

use super::lock::lock;
use super::times::TimeCounts;

/// Number of slots in the last hour: the current one, and those before it.
const SLOTS: u64 = 12;
const SLOT: Duration = Duration::from_secs(300);

/// A navigation that a script reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Navigation {
    /// Whether the page came out of the browser's cache.
    pub(super) cached: bool,
    /// Whether that was because it had been prefetched.
    pub(super) ahead: bool,
    pub(super) ttfb: Duration,
    /// For pages that painted something.
    pub(super) lcp: Option<Duration>,
    /// For pages that were not left before.
    pub(super) load: Option<Duration>,
}

/// The counts of some navigations.
#[derive(Clone, Debug, Default)]
pub(super) struct NavigationCounts {
    pub(super) count: u64,
    pub(super) cached: u64,
    pub(super) ahead: u64,
    pub(super) ttfb: TimeCounts,
    pub(super) lcp: TimeCounts,
    pub(super) load: TimeCounts,
}

impl NavigationCounts {
    fn record(&mut self, one: &Navigation) {
        self.count += 1;
        self.cached += u64::from(one.cached);
        self.ahead += u64::from(one.ahead);
        self.ttfb.record(one.ttfb);
        one.lcp.into_iter().for_each(|time| self.lcp.record(time));
        one.load.into_iter().for_each(|time| self.load.record(time));
    }

    fn add(&mut self, more: &NavigationCounts) {
        self.count += more.count;
        self.cached += more.cached;
        self.ahead += more.ahead;
        self.ttfb.add(&more.ttfb);
        self.lcp.add(&more.lcp);
        self.load.add(&more.load);
    }
}

#[derive(Debug, Default)]
struct NavigationHistory {
    all: NavigationCounts,
    /// Slots with navigations, by their number, the last one last.
    slots: VecDeque<(u64, NavigationCounts)>,
}

/// Navigations of one kind of visitors.
#[derive(Debug, Default)]
pub(super) struct Navigations(Mutex<NavigationHistory>);

impl Navigations {
    pub(super) fn record(&self, now: Timestamp, one: &Navigation) {
        let slot = slot(now);
        let mut kept = lock(&self.0);
        kept.all.record(one);
        kept.slots.retain(|(number, _)| is_of_the_hour(*number, slot));
        match kept.slots.back_mut().filter(|(number, _)| *number >= slot) {
            Some((_, seen)) => seen.record(one),
            None => {
                let mut seen = NavigationCounts::default();
                seen.record(one);
                kept.slots.push_back((slot, seen));
            }
        }
    }

    /// All since the start.
    pub(super) fn all(&self) -> NavigationCounts {
        lock(&self.0).all.clone()
    }

    /// Navigations of the last hour, or of some minutes less.
    pub(super) fn last_hour(&self, now: Timestamp) -> NavigationCounts {
        let mut seen = NavigationCounts::default();
        let slots = &lock(&self.0).slots;
        slots
            .iter()
            .filter(|(number, _)| is_of_the_hour(*number, slot(now)))
            .for_each(|(_, more)| seen.add(more));
        seen
    }
}

fn slot(now: Timestamp) -> u64 {
    now.saturating_since(Timestamp::ZERO).as_secs() / SLOT.as_secs()
}

fn is_of_the_hour(slot: u64, now: u64) -> bool {
    slot + SLOTS > now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn navigations_leave_the_last_hour_and_stay_in_the_total() {
        let navigations = Navigations::default();
        let at = |minutes: u64| Timestamp::ZERO + Duration::from_secs(60 * minutes);
        let one = Navigation {
            cached: true,
            ahead: false,
            ttfb: Duration::from_millis(30),
            lcp: Some(Duration::from_millis(90)),
            load: None,
        };
        for minute in 0..300 {
            navigations.record(at(minute), &one);
            let hour = navigations.last_hour(at(minute));
            assert!((minute.min(55)..=60).contains(&hour.count), "{minute}: {}", hour.count);
            assert!(lock(&navigations.0).slots.len() <= SLOTS as usize);
        }
        navigations.record(at(310), &Navigation { ahead: true, lcp: None, ..one });
        let (all, hour) = (navigations.all(), navigations.last_hour(at(310)));
        assert_eq!((all.count, all.cached, all.ahead), (301, 301, 1));
        assert_eq!((all.ttfb.count(), all.lcp.count(), all.load.count()), (301, 300, 0));
        assert_eq!((hour.count, hour.ahead, hour.lcp.count()), (46, 1, 45));
        assert_eq!(navigations.last_hour(at(400)).count, 0);
    }
}
