//! How long there was no budget although hints were requested.

use std::time::Duration;

use lull_cc::Timestamp;

/// After this time the owner is informed. A lasting load is rarely that long, and learning never is.
const LONG: Duration = Duration::from_secs(3600);

/// The observations of it.
#[derive(Debug, Default)]
pub(super) struct BudgetStarvation {
    looked: Option<Timestamp>,
    /// Since the last budget, the time in which hints were requested.
    time: Duration,
    is_told: bool,
}

impl BudgetStarvation {
    /// Checks whether the owner is to be informed now. To be called repeatedly: the time between two checks
    /// counts with the state at the second one.
    pub(super) fn check_starvation(
        &mut self,
        now: Timestamp,
        is_wanted: bool,
        has_budget: bool,
    ) -> bool {
        let since = self.looked.replace(now).map(|before| now.saturating_since(before));
        if has_budget {
            (self.time, self.is_told) = (Duration::ZERO, false);
        } else if is_wanted {
            self.time += since.unwrap_or_default();
        }
        self.time >= LONG && !std::mem::replace(&mut self.is_told, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hour_without_budget_is_reported_once() {
        let mut starvation = BudgetStarvation::default();
        let (mut now, mut told) = (Timestamp::ZERO, Vec::new());
        let mut check = |minutes: u32, is_wanted, has_budget| {
            let before = told.len();
            for _ in 0..60 * minutes {
                now += Duration::from_secs(1);
                if starvation.check_starvation(now, is_wanted, has_budget) {
                    told.push(now);
                }
            }
            told.len() - before
        };
        assert_eq!(check(1, true, true), 0);
        assert_eq!(check(59, true, false), 0);
        // No requests for hours, which is no evidence.
        assert_eq!(check(300, false, false), 0);
        assert_eq!(check(1, true, false), 1);
        assert_eq!(check(200, true, false), 0);
        // There is some in between.
        assert_eq!(check(1, true, true), 0);
        assert_eq!(check(59, true, false), 0);
        assert_eq!(check(1, true, true), 0);
        assert_eq!(check(59, true, false), 0);
        assert_eq!(check(2, true, false), 1);
    }
}
