//! When the bodies of a publication with a deadline leave the background.

use core::time::Duration;

use crate::time::LocalTime;

/// Decides whether the bodies of a publication are sent to a replica in the background, or at normal priority.
///
/// ```text
///               late: at the background's rate the rest ends after the deadline
///   background ─────────────────────────────────────────────────────────────────▶ urgent
///       ▲                                                                            │
///       └────────────────────────────────────────────────────────────────────────────┘
///               ahead: it ends while a quarter of the time is left, or nothing is left
/// ```
///
/// After each return the rest must end in half of that time for the next one, so that it does not alternate.
///
/// The background's rate is an average over an eighth of the time that is left. So the earlier it is, the longer a pause
/// of the background is tolerated. While the bodies are urgent the background's rate stays the last known one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Urgency {
    deadline: LocalTime,
    is_urgent: bool,
    /// The rates in the background, and at normal priority.
    rates: [Average; 2],
    /// The highest rate that an average has had, in bytes per second; zero if there was none.
    best: f64,
    /// The last observation on this connection: when, and how many bytes were missing.
    last: Option<(LocalTime, u64)>,
    /// How often it has returned to the background.
    returns: i32,
}

impl Urgency {
    /// A publication with this deadline begins in the background. `best`: the highest rate to the replica that is known
    /// from earlier ones, in bytes per second, or zero.
    pub fn new(deadline: LocalTime, best: f64) -> Self {
        let rates = Default::default();
        Urgency { deadline, is_urgent: false, rates, best, last: None, returns: 0 }
    }

    /// Whether the bodies are sent at normal priority.
    pub fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// The highest rate so far, in bytes per second; zero if none is known.
    pub fn best(&self) -> f64 {
        self.best
    }

    /// The present rate, in bytes per second; none if it was not observed for long enough.
    pub fn rate(&self, now: LocalTime) -> Option<f64> {
        self.rates[usize::from(self.is_urgent)].settled(self.memory(now))
    }

    /// The replica has missed this many bytes at `now`, in the order of time. Without a connection nothing is sent, which
    /// is no observation of a rate.
    pub fn observe(&mut self, now: LocalTime, missing: u64, is_connected: bool) {
        let before = self.last.take().filter(|_| is_connected);
        if is_connected {
            self.last = Some((now, missing));
        }
        let memory = self.memory(now);
        if let Some((at, was)) = before {
            let rate = &mut self.rates[usize::from(self.is_urgent)];
            rate.add(was.saturating_sub(missing), now.since(at), memory);
            self.best = self.best.max(rate.settled(memory).unwrap_or(0.0));
        }
        self.decide(now, missing);
    }

    /// Decides by what is known so far.
    pub(super) fn decide(&mut self, now: LocalTime, missing: u64) {
        let memory = self.memory(now);
        let left = self.deadline.since(now).as_secs_f64();
        let needed = self.rates[0].settled(memory).map(|rate| seconds(missing, rate));
        let was_urgent = self.is_urgent;
        self.is_urgent = match (was_urgent, needed) {
            (_, _) if missing == 0 => false,
            (_, None) => left <= 0.0 || was_urgent,
            (false, Some(needed)) => needed > left,
            (true, Some(needed)) => needed > left * self.ahead(),
        };
        self.returns += i32::from(was_urgent && !self.is_urgent);
    }

    /// The share of the time left within which the rest must end, so that it may return to the background.
    fn ahead(&self) -> f64 {
        0.75 * 0.5_f64.powi(self.returns)
    }

    /// By how much the deadline would be missed at the highest rate so far; none if it would be met, or no rate is
    /// known.
    pub fn late_by(&self, now: LocalTime, missing: u64) -> Option<Duration> {
        let late = seconds(missing, self.best) - self.deadline.since(now).as_secs_f64();
        let is_late = self.best > 0.0 && missing > 0 && late > 0.0;
        is_late.then(|| Duration::try_from_secs_f64(late).unwrap_or(Duration::MAX))
    }

    /// The time over which a rate is averaged.
    fn memory(&self, now: LocalTime) -> Duration {
        (self.deadline.since(now) / 8).clamp(MIN_MEMORY, MAX_MEMORY)
    }
}

const MIN_MEMORY: Duration = Duration::from_secs(1);
const MAX_MEMORY: Duration = Duration::from_secs(1_800);

/// How long this many bytes take, in seconds.
fn seconds(bytes: u64, rate: f64) -> f64 {
    if bytes == 0 { 0.0 } else { bytes as f64 / rate }
}

/// A moving average of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Average {
    /// In bytes per second, with weights that add up to `weight`.
    sum: f64,
    weight: f64,
    /// For how long it was observed.
    observed: Duration,
}

impl Average {
    fn add(&mut self, bytes: u64, time: Duration, memory: Duration) {
        if time.is_zero() {
            return;
        }
        let (time_seconds, memory) = (time.as_secs_f64(), memory.as_secs_f64());
        let keeps = memory / (memory + time_seconds);
        self.sum = self.sum * keeps + (1.0 - keeps) * (bytes as f64 / time_seconds);
        self.weight = self.weight * keeps + (1.0 - keeps);
        self.observed += time;
    }

    /// The average, if it was observed for at least half of this time.
    fn settled(&self, memory: Duration) -> Option<f64> {
        (self.observed >= memory / 2 && self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MB: u64 = 1_000_000;

    fn at(millis: u64) -> LocalTime {
        LocalTime::default().plus(Duration::from_millis(millis))
    }

    /// A replica that receives at given rates, in bytes per second, sampled each second; returns for each second whether
    /// it was urgent, and the bytes left.
    fn run(deadline_seconds: u64, bytes: u64, rate: impl Fn(u64, bool) -> u64) -> Vec<(bool, u64)> {
        let mut urgency = Urgency::new(at(deadline_seconds * 1_000), 0.0);
        let mut left = bytes;
        let mut all = Vec::new();
        urgency.observe(at(0), left, true);
        for second in 0..2 * deadline_seconds {
            left = left.saturating_sub(rate(second, urgency.is_urgent()));
            urgency.observe(at((second + 1) * 1_000), left, true);
            all.push((urgency.is_urgent(), left));
        }
        all
    }

    fn switches(all: &[(bool, u64)]) -> usize {
        all.windows(2).filter(|two| two[0].0 != two[1].0).count()
    }

    #[test]
    fn enough_background_capacity_is_never_urgent() {
        let all = run(1_000, 800 * MB, |_, _| MB);
        assert!(all.iter().all(|(is_urgent, _)| !is_urgent));
    }

    #[test]
    fn too_slow_background_is_left_and_returned_to() {
        // 500 MB in 1,000 s, of which the background would take 1,250.
        let all = run(1_000, 500 * MB, |_, urgent| if urgent { 2 * MB } else { 400_000 });
        let done = all.iter().position(|(_, left)| *left == 0).expect("it ends");
        assert!(done < 1_000, "{done}");
        let urgent = all.iter().filter(|(is_urgent, _)| *is_urgent).count();
        assert!((10..500).contains(&urgent), "{urgent} s of {done}");
        assert_eq!(switches(&all), 2);
    }

    #[test]
    fn pause_is_tolerated_while_there_is_time() {
        // Nothing for a minute, in a publication that takes 100 of 1,000 s.
        let rate = |second, _| if (50..110).contains(&second) { 0 } else { MB };
        let all = run(1_000, 100 * MB, rate);
        assert!(all.iter().all(|(is_urgent, _)| !is_urgent));
    }

    #[test]
    fn stalled_background_becomes_urgent_before_the_deadline() {
        let all = run(1_000, 100 * MB, |second, urgent| match (second, urgent) {
            (0..50, false) | (_, true) => MB,
            _ => 0,
        });
        let done = all.iter().position(|(_, left)| *left == 0).expect("it ends");
        assert!(done < 1_000, "{done}");
        assert!(!all[200].0, "it waits for the background at first");
        assert!(switches(&all) <= 12, "{} switches", switches(&all));
    }

    #[test]
    fn impossible_deadline_is_known_at_once_and_may_become_possible() {
        let mut urgency = Urgency::new(at(100_000), 0.0);
        urgency.observe(at(0), 1_000 * MB, true);
        assert_eq!(urgency.late_by(at(0), 1_000 * MB), None, "no rate is known");
        urgency.observe(at(10_000), 990 * MB, true);
        let late = urgency.late_by(at(10_000), 990 * MB).expect("990 s for 90");
        assert_eq!(late.as_secs(), 900);
        let known = Urgency::new(at(100_000), urgency.best());
        assert!(known.late_by(at(0), 1_000 * MB).is_some(), "from the publication before");
        urgency.observe(at(20_000), 100 * MB, true);
        assert_eq!(urgency.late_by(at(20_000), 100 * MB), None);
    }

    #[test]
    fn replica_without_a_connection_is_not_taken_for_slow() {
        let mut urgency = Urgency::new(at(1_000_000), 0.0);
        urgency.observe(at(0), 30 * MB, true);
        urgency.observe(at(100_000), 20 * MB, true);
        let rate = urgency.rate(at(100_000));
        for second in 101..400 {
            urgency.observe(at(second * 1_000), 20 * MB, false);
        }
        urgency.observe(at(400_000), 20 * MB, true);
        assert_eq!((urgency.rate(at(400_000)), urgency.is_urgent()), (rate, false));
    }

    proptest! {
        /// The definitions, for any course of time, bytes and connections.
        #[test]
        fn urgent_if_late_and_never_if_ahead(
            steps in prop::collection::vec((1..30_000_u64, 0..50 * MB, any::<bool>()), 1..60),
            deadline in 1_000..2_000_000_u64,
            bytes in 0..1_000 * MB,
        ) {
            let mut urgency = Urgency::new(at(deadline), 0.0);
            let (mut now, mut missing) = (0, bytes);
            for (millis, arrived, is_connected) in steps {
                now += millis;
                missing = missing.saturating_sub(arrived);
                let ahead = urgency.ahead();
                urgency.observe(at(now), missing, is_connected);
                let left = deadline.saturating_sub(now) as f64 / 1e3;
                let background = urgency.rates[0].settled(urgency.memory(at(now)));
                match background.map(|rate| seconds(missing, rate)) {
                    _ if missing == 0 => prop_assert!(!urgency.is_urgent()),
                    Some(needed) if needed > left => prop_assert!(urgency.is_urgent()),
                    Some(needed) if needed <= ahead * left => prop_assert!(!urgency.is_urgent()),
                    Some(_) => {}
                    None => prop_assert!(urgency.is_urgent() || left > 0.0),
                }
            }
        }

        /// Rates that vary by a tenth around constant ones: it becomes urgent at most once.
        #[test]
        fn steady_rates_cause_no_flapping(
            background in 1_000..MB,
            gain in 2..10_u64,
            share in 0.1..3.0_f64,
            noise in prop::collection::vec(90..=110_u64, 64),
        ) {
            let bytes = (background as f64 * 500.0 * share) as u64;
            let all = run(500, bytes, |second, urgent| {
                let rate = if urgent { gain * background } else { background };
                rate * noise[second as usize % noise.len()] / 100
            });
            prop_assert!(switches(&all) <= 2, "{} switches", switches(&all));
        }
    }
}
