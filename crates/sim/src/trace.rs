//! Links whose capacity changes over time, in the format of mahimahi's trace files.

use core::time::Duration;
use std::sync::Arc;

use lull_cc::{Rate, Timestamp};

use crate::random::Random;

/// When a link of changing capacity can send.
///
/// The format is mahimahi's: each line is a time in whole milliseconds at which 1500 bytes may leave. The
/// file is repeated endlessly; its last time is the length of the cycle.
#[derive(Clone, Debug)]
pub struct Trace {
    name: Arc<str>,
    /// Milliseconds, ascending; shared, because traces have 100,000 lines and more.
    opportunities: Arc<[u64]>,
}

impl Trace {
    /// Bytes that may leave at each opportunity.
    pub const OPPORTUNITY_BYTES: u64 = 1500;

    /// Reads a trace from its text; `name` is its name in records.
    ///
    /// # Errors
    /// One line with the number of the wrong line and the reason.
    pub fn parse(name: impl Into<Arc<str>>, text: &str) -> Result<Self, String> {
        let mut opportunities = Vec::new();
        let mut last = 0;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let time: u64 = line.parse().map_err(|_| {
                format!("line {} is '{line}', not a time in milliseconds", index + 1)
            })?;
            if time < last {
                return Err(format!("line {} goes back in time, from {last} to {time}", index + 1));
            }
            last = time;
            opportunities.push(time);
        }
        if last == 0 {
            return Err("it is empty, or all its times are 0".to_owned());
        }
        Ok(Trace { name: name.into(), opportunities: opportunities.into() })
    }

    /// A link of a constant mean rate whose service pauses at random, as on Wi-Fi while other stations send.
    /// Each pause lasts 1 to `longest_pause_millis` ms, and data that could not be sent meanwhile leaves at
    /// its end. The trace lasts `seconds` and depends only on its arguments.
    ///
    /// # Panics
    /// If the rate or one of the lengths is zero.
    pub fn pausing(rate: Rate, longest_pause_millis: u64, seconds: u64, seed: u64) -> Self {
        let bits_per_opportunity = Self::OPPORTUNITY_BYTES * 8;
        assert!(rate.bits_per_second() > 0 && longest_pause_millis > 0 && seconds > 0);
        let mut random = Random::new(seed);
        let mut opportunities = Vec::new();
        let mut millis = 0;
        while millis < seconds * 1000 {
            millis = (millis + 1 + random.below(longest_pause_millis)).min(seconds * 1000);
            let due = rate.bits_per_second() * millis / 1000 / bits_per_opportunity;
            opportunities.resize(due as usize, millis);
        }
        // The last opportunity is the length of the cycle.
        opportunities.push(seconds * 1000);
        let name = format!("{rate}, pauses of up to {longest_pause_millis} ms");
        Trace { name: name.into(), opportunities: opportunities.into() }
    }

    /// A cellular link. Its rate changes at random every 100 ms, between an eighth and twice `rate`. It sends in grants
    /// that are 1 to 8 ms apart, one in ten of them repeated 8 ms later, and nothing for up to a second about every ten
    /// seconds. The trace lasts `seconds` and depends only on its arguments.
    ///
    /// # Panics
    /// If the rate or the length is zero.
    pub fn cellular(rate: Rate, seconds: u64, seed: u64) -> Self {
        let mean = rate.bits_per_second();
        assert!(mean > 0 && seconds > 0);
        let mut random = Random::new(seed);
        let mut opportunities = Vec::new();
        let (mut now, mut credit, mut grant, mut outage) = (mean, 0, 0, 0);
        for millis in 0..seconds * 1000 {
            if millis % 100 == 0 {
                now = match random.below(3) {
                    0 => now / 5 * 4,
                    1 => now / 4 * 5,
                    _ => now,
                };
                now = now.clamp(mean.div_ceil(8), 2 * mean);
                if random.below(100) == 0 {
                    outage = millis + 100 + random.below(900);
                }
            }
            if millis < outage {
                continue;
            }
            // In thousandths of a bit.
            credit += now;
            if millis < grant {
                continue;
            }
            grant = millis + 1 + random.below(8) + if random.below(10) == 0 { 8 } else { 0 };
            let packet = Self::OPPORTUNITY_BYTES * 8 * 1000;
            for _ in 0..credit / packet {
                opportunities.push(millis);
            }
            credit %= packet;
        }
        // The last opportunity is the length of the cycle.
        opportunities.push(seconds * 1000);
        Trace { name: format!("{rate}, cellular").into(), opportunities: opportunities.into() }
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The time after which the trace starts again.
    pub fn cycle(&self) -> Duration {
        Duration::from_millis(self.cycle_millis())
    }

    fn cycle_millis(&self) -> u64 {
        self.opportunities[self.opportunities.len() - 1]
    }

    /// The average capacity over a cycle.
    pub fn mean_rate(&self) -> Rate {
        let bits = self.opportunities.len() as u64 * Self::OPPORTUNITY_BYTES * 8;
        Rate::from_bits_per_second((bits * 1000 / self.cycle_millis()).max(1))
    }

    /// The time of the opportunity number `number`, counted from 0 over all cycles.
    pub fn opportunity(&self, number: u64) -> Timestamp {
        let length = self.opportunities.len() as u64;
        let within = self.opportunities[(number % length) as usize];
        Timestamp::from_micros(((number / length) * self.cycle_millis() + within) * 1000)
    }

    /// How many opportunities are at or before `time`: the number of the first one after it.
    pub fn opportunities_until(&self, time: Timestamp) -> u64 {
        let length = self.opportunities.len() as u64;
        let millis = time.as_micros() / 1000;
        let cycle = self.cycle_millis();
        let within = |millis: u64| self.opportunities.partition_point(|&at| at <= millis) as u64;
        let (cycles, rest) = (millis / cycle, millis % cycle);
        // At the boundary, the end of one cycle and the start of the next are the same millisecond.
        cycles * length + within(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1000)
    }

    #[test]
    fn last_time_is_the_length_of_the_cycle() {
        let trace = Trace::parse("t", "0\n2\n2\n5\n").unwrap();
        let times: Vec<_> = (0..9).map(|n| trace.opportunity(n).as_micros() / 1000).collect();
        assert_eq!(times, [0, 2, 2, 5, 5, 7, 7, 10, 10]);
        assert_eq!(trace.mean_rate(), Rate::from_bits_per_second(4 * 12_000 * 1000 / 5));
    }

    #[test]
    fn cellular_rate_changes_and_has_outages() {
        let rate = Rate::from_bits_per_second(10_000_000);
        let trace = Trace::cellular(rate, 60, 7);
        let (mean, name) = (trace.mean_rate().bits_per_second(), trace.name());
        assert!((4_000_000..14_000_000).contains(&mean), "{mean}");
        assert_eq!(name, "10.00 Mbit/s, cellular");
        let sent = |from: u64| {
            trace.opportunities_until(millis(from + 500)) - trace.opportunities_until(millis(from))
        };
        let parts: Vec<u64> = (0..119).map(|part| sent(part * 500)).collect();
        let (low, high) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
        assert!(low * 4 < *high, "{parts:?}");
        let same = Trace::cellular(rate, 60, 7).opportunities == trace.opportunities;
        assert!(same && Trace::cellular(rate, 60, 8).opportunities != trace.opportunities);
    }

    #[test]
    fn opportunities_are_counted_across_cycles() {
        for text in ["0\n2\n2\n5\n", "3\n4\n", "1\n1\n", "7\n"] {
            let trace = Trace::parse("t", text).unwrap();
            for time in 0..40 {
                let counted = trace.opportunities_until(millis(time));
                assert!(trace.opportunity(counted) > millis(time), "{text:?} at {time} ms");
                if counted > 0 {
                    assert!(trace.opportunity(counted - 1) <= millis(time), "{text:?} at {time}");
                }
            }
        }
    }

    #[test]
    fn malformed_trace_is_rejected_with_its_line() {
        for (text, why) in [
            ("", "it is empty, or all its times are 0"),
            ("0\n0\n", "it is empty, or all its times are 0"),
            ("1\nx\n", "line 2 is 'x', not a time in milliseconds"),
            ("5\n4\n", "line 2 goes back in time, from 5 to 4"),
        ] {
            assert_eq!(Trace::parse("t", text).unwrap_err(), why);
        }
    }
}
