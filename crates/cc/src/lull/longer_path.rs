//! Whether the path has become longer, which looks like a queue of others that never ends.
//!
//! A queue grows with each packet that the background adds to it, a longer path does not. So when all
//! pairs of a floor have met a queue, the background starts a *trial*: it takes the lowest
//! round-trip time of these pairs for the path's, and its window grows from a few packets. On a full
//! path its packets are a queue of their own, and the trial fails. So it does where a later packet takes
//! less time, because a queue became shorter. The trial succeeds when the window would be a queue of three
//! triggers and there is none.
//!
//! A receiver that waits for more packets than a pair delays each pair alike. Pairs that all take about as much longer
//! as its timer explains begin a trial sooner, whose packets follow each other within the timer: if one of them meets
//! no queue, the floor ends.

use super::delay::Lowest;
use super::minimum_progress::{TRIAL_SPACING_MICROS, pair_spacing};

/// Pairs are compared for at least so long, in microseconds, and twice as long after each failed trial.
const MIN_WAIT_MICROS: u64 = 2_000_000;
const MAX_WAIT_MICROS: u64 = 64_000_000;
/// A path that became longer varies less than by this part of the difference, and than by jitter and so many
/// microseconds.
const VARYING_PART: u32 = 8;
const MIN_VARIATION_MICROS: u32 = 500;
/// After more comparisons than this that have shown different queues, a trial shows whether they are jitter.
const MAX_VARYING: u32 = 3;
/// Receivers hold an acknowledgement back for so long, in microseconds, and by up to so much more or less.
const RECEIVER_TIMER_MICROS: u32 = 40_000;
const TIMER_VARIATION_MICROS: u32 = 4_500;
/// Pairs that may be held back are compared for so long, and tried once in so many microseconds.
const HELD_BACK_WAIT_MICROS: u64 = 3_000_000;
const HELD_BACK_PAUSE_MICROS: u64 = 4_000_000;
/// The fewest round-trip times to compare.
const MIN_SAMPLES: u32 = 4;

/// Compares pairs at the floor, and remembers the shorter path during a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LongerPath {
    /// When the comparison began, the lowest and the highest round-trip time since then, and how many
    /// there were.
    since: u64,
    low: u32,
    high: u32,
    samples: u32,
    /// How many comparisons one after the other have shown different queues.
    varying: u32,
    /// How long the comparison lasts; 0 stands for the shortest wait.
    wait: u64,
    /// Since when pairs have been alike, the round-trip time of the first of them, and how many there were.
    alike_since: u64,
    alike: u32,
    alike_samples: u32,
    /// When such pairs may begin a trial again, and whether they have begun the last one.
    not_before: u64,
    suspects_receiver: bool,
    /// The last trial has shown that a receiver holds back the acknowledgements of pairs.
    holds_back: bool,
    /// The round-trip times to return to if the trial fails, and when the floor began; nothing outside of
    /// a trial.
    before: Option<(Lowest, u64)>,
}

impl LongerPath {
    /// The background has had the path for itself: what failed trials have taught is about others.
    pub(super) fn handle_alone(&mut self) {
        self.wait = 0;
        self.not_before = 0;
    }

    /// The floor begins.
    pub(super) fn restart(&mut self) {
        self.samples = 0;
        self.varying = 0;
        self.alike_samples = 0;
    }

    /// A pair at the floor has met a queue. Returns whether enough pairs have, and a receiver's timer explains it.
    fn is_held_back(&mut self, now: u64, rtt: u32, (min_rtt, noise): (u32, u32)) -> bool {
        let most = TIMER_VARIATION_MICROS + noise;
        if self.alike_samples == 0 || rtt.abs_diff(self.alike) > most {
            (self.alike_since, self.alike, self.alike_samples) = (now, rtt, 0);
        }
        self.alike_samples = (self.alike_samples + 1).min(MIN_SAMPLES);
        // The timer runs from a pair's first packet, and the round-trip time is that of the second.
        let longer = self.alike.saturating_sub(min_rtt) + pair_spacing(self.alike);
        let wait = if self.holds_back { 0 } else { HELD_BACK_WAIT_MICROS };
        self.alike_samples == MIN_SAMPLES
            && now >= (self.alike_since + wait).max(self.not_before)
            && longer + most >= RECEIVER_TIMER_MICROS
            && longer <= RECEIVER_TIMER_MICROS + most
    }

    /// A pair at the floor has met a queue, and its round-trip time in microseconds. `min_rtt` and `noise` are
    /// the path's. Returns the round-trip time to try, if enough pairs have, and all have met the same.
    pub(super) fn handle_queue(
        &mut self,
        now: u64,
        rtt: u32,
        min_rtt: u32,
        noise: u32,
    ) -> Option<u32> {
        if self.is_held_back(now, rtt, (min_rtt, noise)) {
            self.restart();
            self.not_before = now + HELD_BACK_PAUSE_MICROS;
            self.suspects_receiver = true;
            return Some(self.alike);
        }
        if self.samples == 0 {
            (self.since, self.low, self.high) = (now, rtt, rtt);
        }
        self.low = self.low.min(rtt);
        self.high = self.high.max(rtt);
        self.samples = (self.samples + 1).min(MIN_SAMPLES);
        let is_over = now >= self.since + self.wait.max(MIN_WAIT_MICROS);
        if !is_over || self.samples < MIN_SAMPLES {
            return None;
        }
        self.samples = 0;
        let longer = self.low.saturating_sub(min_rtt);
        let most = (longer / VARYING_PART).max(MIN_VARIATION_MICROS + noise);
        let is_steady = self.high - self.low <= most;
        self.varying = if is_steady { 0 } else { self.varying + 1 };
        if self.varying > MAX_VARYING {
            self.varying = 0;
        }
        if self.varying > 0 {
            return None;
        }
        self.suspects_receiver = false;
        Some(self.low)
    }

    /// A trial begins, at a floor that began at `floor_since`. `shorter` is what was known before.
    pub(super) fn begin_trial(&mut self, shorter: Lowest, floor_since: u64) {
        self.before = Some((shorter, floor_since));
    }

    pub(super) fn is_trial(&self) -> bool {
        self.before.is_some()
    }

    /// The path has become longer.
    pub(super) fn succeed(&mut self) {
        self.before = None;
        self.wait = 0;
    }

    /// How long the packets of a trial may wait for the next one at a receiver that holds them back, in microseconds.
    pub(super) fn wait_at_receiver(&self) -> u32 {
        if self.suspects_receiver { TRIAL_SPACING_MICROS } else { 0 }
    }

    /// A trial has ended with a packet that met no queue on the shorter path: only pairs take longer.
    pub(super) fn handle_no_queue(&mut self) {
        self.holds_back = true;
        self.wait = 0;
        self.not_before = 0;
    }

    /// A receiver holds back the acknowledgements of pairs.
    pub(super) fn holds_back(&self) -> bool {
        self.holds_back
    }

    /// There was a queue, if there was a trial: what was known before is true, and the floor goes on.
    pub(super) fn fail(&mut self) -> Option<(Lowest, u64)> {
        let before = self.before.take()?;
        self.holds_back = false;
        self.wait = (2 * self.wait).clamp(2 * MIN_WAIT_MICROS, MAX_WAIT_MICROS);
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_queues_begin_a_trial_after_four_comparisons() {
        let (mut longer_path, mut trials) = (LongerPath::default(), vec![]);
        for millis in (0..9_000).step_by(100) {
            let rtt = 60_000 + millis % 300 * 40;
            if longer_path.handle_queue(u64::from(millis) * 1_000, rtt, 50_000, 0).is_some() {
                trials.push(millis);
            }
        }
        assert_eq!(trials, [8_300]);
    }

    #[test]
    fn delay_of_a_receiver_is_tried_soon() {
        let trials = |longer: u32| {
            let (mut longer_path, mut trials) = (LongerPath::default(), vec![]);
            for millis in (0..9_900).step_by(100) {
                // The timer varies by 4 ms.
                let rtt = 50_000 + longer + millis % 300 * 20;
                if longer_path.handle_queue(u64::from(millis) * 1_000, rtt, 50_000, 0).is_some() {
                    trials.push(millis);
                    longer_path.begin_trial(Lowest::default(), 0);
                    longer_path.fail();
                }
            }
            trials
        };
        // 40 ms from the first packet of a pair, and 18 ms between the two.
        assert_eq!(trials(22_000)[0], 3_000);
        assert_eq!(trials(10_000)[0], 8_300, "a queue that varies");
        assert_eq!(trials(33_000)[0], 2_000, "a longer path");
    }

    #[test]
    fn trial_waits_longer_after_each_failure() {
        let (mut longer_path, mut now) = (LongerPath::default(), 0);
        let handle =
            |longer_path: &mut LongerPath, now, rtt| longer_path.handle_queue(now, rtt, 50_000, 0);
        let mut waits = vec![];
        for _ in 0..7 {
            longer_path.restart();
            let start = now;
            while handle(&mut longer_path, now, 100_000 + (now % 7) as u32 * 500).is_none() {
                now += 100_000;
            }
            waits.push((now - start) / 1_000_000);
            longer_path.begin_trial(Lowest::default(), start);
            assert_eq!(longer_path.fail(), Some((Lowest::default(), start)));
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 64]);
        longer_path.handle_alone();
        longer_path.restart();
        assert_eq!(handle(&mut longer_path, now, 100_000), None);
        assert_eq!(handle(&mut longer_path, now + 2_000_000, 101_000), None, "two are few");
        assert_eq!(handle(&mut longer_path, now + 2_000_000, 101_000), None);
        assert_eq!(handle(&mut longer_path, now + 2_000_000, 101_000), Some(100_000));
        assert_eq!(longer_path.fail(), None);
    }
}
