//! The time by which counts are decayed.
//!
//! With wall-clock time alone a quiet site forgets its knowledge: with a hundred requests a day and a
//! half-life of a week, only the last thousand requests count. So each answer advances this time by at most a
//! fixed part of the half-life, [`Limits::visits_per_half_life`](super::Limits::visits_per_half_life). A busy
//! site reaches that many answers within a half-life, and ages with the clock.

use core::time::Duration;
use std::io::{self, Read, Write};

use lull_cc::Timestamp;

use crate::encoding::{ReadError, Sink, Source};

/// A time of the clock, and the corresponding ageing time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    clock: Timestamp,
    aged: Timestamp,
}

/// Maps times of the clock to times of ageing.
#[derive(Clone, Debug)]
pub(super) struct Ageing {
    /// The most that one answer adds.
    step: Duration,
    half_life: Duration,
    /// The earliest and the latest answer; none before the first.
    ends: Option<(Pair, Pair)>,
}

impl Ageing {
    pub(super) fn new(half_life: Duration, visits: u32) -> Self {
        Ageing { step: half_life / visits.max(1), half_life, ends: None }
    }

    /// The same for counts that were decayed by the clock alone until `latest`.
    pub(super) fn since(self, latest: Timestamp) -> Self {
        let pair = Pair { clock: latest, aged: latest };
        Ageing { ends: (latest > Timestamp::ZERO).then_some((pair, pair)), ..self }
    }

    /// The ageing time of an answer at `now`.
    ///
    /// `now` goes back if another log begins, whose answers are as old as those of the same earlier time.
    pub(super) fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.advance_by(now, 1)
    }

    /// The ageing time of the last of some answers up to `now`.
    pub(super) fn advance_by(&mut self, now: Timestamp, answers: u32) -> Timestamp {
        let Some((first, latest)) = &mut self.ends else {
            let pair = Pair { clock: now, aged: now };
            self.ends = Some((pair, pair));
            return now;
        };
        if now < latest.clock {
            let pair = Pair { clock: now, aged: between(*first, *latest, now) };
            if now < first.clock {
                *first = pair;
            }
            *latest = pair;
        } else {
            let passed = now.saturating_since(latest.clock).min(self.step.saturating_mul(answers));
            let aged = latest.aged.as_nanos().saturating_add(passed.as_nanos() as u64);
            *latest = Pair { clock: now, aged: Timestamp::from_nanos(aged) };
        }
        latest.aged
    }

    /// Continues at `now`, which is known to be the time. A latest time far ahead of it was wrong.
    pub(super) fn resume(&mut self, now: Timestamp) {
        if let Some((first, latest)) = &mut self.ends
            && latest.clock.saturating_since(now) > self.half_life
        {
            latest.clock = now;
            first.clock = first.clock.min(now);
        }
    }

    /// The time of the latest answer by the clock.
    pub(super) fn latest(&self) -> Timestamp {
        self.ends.map_or(Timestamp::ZERO, |(_, latest)| latest.clock)
    }

    pub(super) fn write<W: Write>(&self, to: &mut Sink<W>) -> io::Result<()> {
        let none = Pair { clock: Timestamp::ZERO, aged: Timestamp::ZERO };
        let (first, latest) = self.ends.unwrap_or((none, none));
        to.u8(u8::from(self.ends.is_some()))?;
        for pair in [first, latest] {
            to.u64(pair.clock.as_nanos())?;
            to.u64(pair.aged.as_nanos())?;
        }
        Ok(())
    }

    /// Reads the same into an empty one.
    pub(super) fn read<R: Read>(self, from: &mut Source<R>) -> Result<Self, ReadError> {
        let is_some = from.u8()?;
        let mut times = [Timestamp::ZERO; 4];
        for time in &mut times {
            *time = Timestamp::from_nanos(from.u64()?);
        }
        let [first, first_aged, latest, latest_aged] = times;
        let is_sound = match is_some {
            0 => times == [Timestamp::ZERO; 4],
            1 => first <= latest && first_aged <= latest_aged,
            _ => false,
        };
        if !is_sound {
            return Err(ReadError::Invalid("ageing"));
        }
        let pair = |clock, aged| Pair { clock, aged };
        let ends = (is_some == 1).then(|| (pair(first, first_aged), pair(latest, latest_aged)));
        Ok(Ageing { ends, ..self })
    }
}

/// The ageing time of a time before the latest one, as if time had passed evenly between the two ends.
fn between(first: Pair, latest: Pair, now: Timestamp) -> Timestamp {
    let passed = latest.clock.saturating_since(first.clock).as_secs_f64();
    let aged = latest.aged.saturating_since(first.aged).as_secs_f64();
    let pace = if passed > 0.0 { (aged / passed).min(1.0) } else { 1.0 };
    let back = latest.clock.saturating_since(now).mul_f64(pace);
    Timestamp::from_nanos(latest.aged.as_nanos().saturating_sub(back.as_nanos() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_nanos(second * 1_000_000_000)
    }

    /// Ages by at most 10 s per answer.
    fn ageing() -> Ageing {
        Ageing::new(Duration::from_secs(1_000), 100)
    }

    #[test]
    fn busy_site_ages_with_the_clock_and_quiet_one_slower() {
        let mut ageing = ageing();
        let aged = [1_000, 1_004, 1_014, 1_514, 9_014].map(|second| ageing.advance(at(second)));
        assert_eq!(aged, [1_000, 1_004, 1_014, 1_024, 1_034].map(at));
        assert_eq!(ageing.latest(), at(9_014));
    }

    #[test]
    fn second_log_of_the_same_time_has_the_same_age() {
        let mut ageing = ageing();
        // A hundred answers, 100 s apart, each of which ages by 10 s.
        for number in 0..=100 {
            ageing.advance(at(20_000 + 100 * number));
        }
        assert_eq!(ageing.advance(at(25_000)), at(20_500));
        assert_eq!(ageing.advance(at(25_100)), at(20_510));
        assert_eq!(ageing.advance(at(19_000)), at(19_900));
    }

    #[test]
    fn fast_clock_is_set_back() {
        let mut ageing = ageing();
        assert_eq!(ageing.advance(at(1_000)), at(1_000));
        assert_eq!(ageing.advance(at(4_000_000)), at(1_010));
        ageing.resume(at(1_100));
        assert_eq!((ageing.latest(), ageing.advance(at(1_105))), (at(1_100), at(1_015)));
    }

    #[test]
    fn invalid_ageing_is_rejected() {
        let bytes = |ageing: &Ageing| {
            let mut bytes = Vec::new();
            let mut to = Sink::new(&mut bytes);
            ageing.write(&mut to).unwrap();
            to.finish().unwrap();
            bytes
        };
        let mut some = ageing();
        some.advance(at(1_000));
        some.advance(at(5_000));
        for one in [ageing(), some.clone()] {
            let again = ageing().read(&mut Source::new(&bytes(&one)[..])).unwrap();
            assert_eq!(again.ends, one.ends);
        }
        let (first, latest) = some.ends.unwrap();
        some.ends = Some((latest, first));
        assert!(ageing().read(&mut Source::new(&bytes(&some)[..])).is_err());
    }
}
