//! How fast the window of a path grows.

use crate::Window;

const ONE: u64 = Window::ONE.raw();
const TWO: u64 = Window::TWO.raw();
/// Rounds without growth once the remembered window is reached.
const HOLD_AT_REMEMBERED_WINDOW: u32 = 4;
/// Rounds without growth after a queue of the background's own.
const HOLD_AT_CAPACITY: u32 = 16;
/// The step beyond the remembered window doubles each time when so many rounds were without a queue.
const DOUBLING_ROUNDS: u32 = 4;
/// After a competition the pause is at most so long, in microseconds.
const MAX_WAIT_MICROS: u64 = 4_000_000;

/// Fast up to the remembered window, the window that was free before, and slow at first beyond it.
///
/// ```text
///   W                                           ┌─ beyond: + step, doubled each 4 rounds
///   remembered ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┌─────────┘  after the hold and the restraint
///                             ┌──────┘  + remembered/8 each round
///   remembered/2 ┄┄┄┄┄┄┄┄┄┄┄┄┄┘  × 3/2 each round
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Growth {
    /// The window that the path had room for.
    remembered_window: u64,
    /// Rounds to wait for.
    hold: u32,
    /// Rounds beyond the remembered window.
    beyond: u32,
}

impl Growth {
    pub(super) fn remembered_window(&self) -> u64 {
        self.remembered_window
    }

    /// The path had room for `window`.
    pub(super) fn remember_window(&mut self, window: u64) {
        self.remembered_window = window.max(TWO);
    }

    /// The path has room for no more than `window`.
    pub(super) fn limit_remembered_window(&mut self, window: u64) {
        self.remember_window(self.remembered_window.min(window));
    }

    /// The window fills the path: stay there for a while.
    pub(super) fn hold_at(&mut self, window: u64) {
        self.remembered_window = window;
        self.hold = HOLD_AT_CAPACITY;
    }

    /// The window after a round without a queue. `gentle` is a step too small to do harm;
    /// `may_pass` allows more than the remembered window. Growth pauses at `full`, the window of the known
    /// capacity, and is gentle again beyond it.
    pub(super) fn grow(&mut self, window: u64, gentle: u64, may_pass: bool, full: u64) -> u64 {
        if window < self.remembered_window {
            self.beyond = 0;
            if window < self.remembered_window / 2 {
                return window + (window / 2).max(ONE);
            }
            let window =
                (window + (self.remembered_window / 8).max(ONE)).min(self.remembered_window);
            if window == self.remembered_window {
                self.hold = HOLD_AT_REMEMBERED_WINDOW;
            }
            return window;
        }
        if self.hold > 0 || !may_pass {
            self.hold = self.hold.saturating_sub(1);
            self.beyond = 0;
            return window;
        }
        let step = gentle << (self.beyond / DOUBLING_ROUNDS).min(16);
        let mut grown = window + step.min(window / 4);
        self.beyond += 1;
        if window < full && grown >= full {
            grown = full;
            self.beyond = 0;
            self.hold = HOLD_AT_REMEMBERED_WINDOW;
        }
        self.remembered_window = self.remembered_window.max(grown);
        grown
    }
}

/// Toward the known capacity in a shallow buffer: the window after a round without a queue. It grows by
/// a quarter, but at most by `step`, so that a queue of others shows before the buffer overflows.
pub(super) fn grow_in_shallow(window: u64, step: u64, full: u64) -> u64 {
    (window + (window / 4).min(step).max(ONE)).min(full)
}

/// The pause after a competition with the foreground, before the window may pass the remembered one. In a
/// shallow buffer, and where packets are lost, it doubles with each competition that comes soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CompetitionPause {
    last: u64,
    last_harm: u64,
    wait: u64,
}

impl CompetitionPause {
    /// The foreground's queue was met; `is_harmful`: it has lost packets, or may have.
    pub(super) fn handle_competition(&mut self, now: u64, min_rtt: u32, is_harmful: bool) {
        let rtt = u64::from(min_rtt);
        if is_harmful {
            let is_soon = self.wait > 0 && now < self.last_harm + 4 * self.wait;
            let wait = if is_soon { (self.wait * 2).min(MAX_WAIT_MICROS) } else { self.wait / 2 };
            self.wait = wait.max(8 * rtt);
            self.last_harm = now;
        } else if now > self.last_harm + 8 * self.wait {
            self.wait = 2 * rtt;
        }
        self.last = now;
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.last + self.wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_regains_the_remembered_one_in_eight_rounds() {
        let mut growth = Growth::default();
        growth.remember_window(100 * ONE);
        let (mut window, mut rounds) = (12 * ONE, 0);
        while window < 100 * ONE {
            window = growth.grow(window, ONE, true, 0);
            rounds += 1;
        }
        assert_eq!((window, rounds), (100 * ONE, 8));
    }

    #[test]
    fn growth_beyond_the_remembered_window_is_slow_at_first() {
        let mut growth = Growth::default();
        growth.remember_window(100 * ONE);
        let mut window = 100 * ONE;
        for _ in 0..4 {
            window = growth.grow(window, ONE, true, 0);
        }
        assert_eq!(window, 104 * ONE);
        for _ in 0..16 {
            window = growth.grow(window, ONE, true, 0);
        }
        assert_eq!(window, (104 + 4 * (2 + 4 + 8 + 16)) * ONE);
    }

    #[test]
    fn growth_pauses_at_the_known_capacity() {
        let mut growth = Growth::default();
        growth.remember_window(100 * ONE);
        let mut window = 100 * ONE;
        for _ in 0..12 {
            window = growth.grow(window, ONE, true, 120 * ONE);
        }
        assert_eq!(window, 120 * ONE);
        for _ in 0..3 {
            window = growth.grow(window, ONE, true, 120 * ONE);
        }
        assert_eq!(window, 121 * ONE, "four rounds of pause, and a gentle step");
    }

    #[test]
    fn restraint_doubles_with_harm_that_comes_soon() {
        let mut competition_pause = CompetitionPause::default();
        competition_pause.handle_competition(1_000_000, 50_000, true);
        assert!(!competition_pause.is_over(1_399_999));
        assert!(competition_pause.is_over(1_400_000));
        competition_pause.handle_competition(1_400_000, 50_000, true);
        assert!(!competition_pause.is_over(2_199_999));
        competition_pause.handle_competition(60_000_000, 50_000, true);
        assert!(competition_pause.is_over(60_400_000));
    }
}
