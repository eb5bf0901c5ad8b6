//! Datagrams without acknowledgements and congestion control.

use core::time::Duration;

use lull_cc::Timestamp;
use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::topology::NodeId;

/// A source of datagrams.
#[derive(Clone, Debug)]
pub struct Datagrams {
    /// The source node.
    pub from: NodeId,
    /// The destination node.
    pub to: NodeId,
    /// Their codepoint.
    pub dscp: u8,
    /// When the source starts.
    pub start: Timestamp,
    /// When it ends; none for never.
    pub stop: Option<Timestamp>,
    /// When they are sent.
    pub pattern: Pattern,
}

/// When datagrams are sent, and of what length. Lengths are those on links, headers included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// At a constant rate.
    Constant {
        /// Bits per second.
        bits_per_second: u64,
        /// The length of each datagram.
        bytes: u16,
    },
    /// With exponential gaps.
    Poisson {
        /// Bits per second on average.
        bits_per_second: u64,
        /// The length of each datagram.
        bytes: u16,
    },
    /// At a constant rate for a while, and nothing for a while, both of Pareto distributed length. Many of
    /// them together are self-similar (Nice §4.2, "other results").
    OnOffPareto {
        /// Bits per second while it is on.
        bits_per_second: u64,
        /// The length of each datagram.
        bytes: u16,
        /// Mean time on, in nanoseconds.
        on_nanos: u64,
        /// Mean time off, in nanoseconds.
        off_nanos: u64,
        /// The distribution's shape, above 1; below 2 its variance is infinite.
        shape: f64,
    },
    /// A number of bytes at regular intervals, at a constant rate until they are sent: traffic that uses the
    /// whole link and then pauses (filler §4.4).
    Bursts {
        /// Bits per second within a burst.
        bits_per_second: u64,
        /// The length of each datagram.
        bytes: u16,
        /// The bytes of a burst.
        burst_bytes: u64,
        /// From the beginning of a burst to that of the next one, in nanoseconds.
        every_nanos: u64,
    },
    /// As recorded: nanoseconds after the start, and length. Times must not decrease.
    Trace(Vec<(u64, u16)>),
}

/// A datagram that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueDatagram {
    /// Its time.
    pub at: Timestamp,
    /// Its length.
    pub bytes: u16,
}

/// Returns the datagrams of a pattern one after the other.
#[derive(Clone, Debug)]
pub struct Schedule {
    pattern: Pattern,
    start: Timestamp,
    random: Random,
    /// When the next datagram would be due without a pause.
    next: Timestamp,
    /// The end of the current time on, or the beginning of the next burst.
    turn: Timestamp,
    /// Datagrams of the trace, or bytes of the burst, that have been returned.
    given: u64,
}

impl Schedule {
    /// The pattern from `start` on.
    ///
    /// # Panics
    /// If the pattern has a rate, a length or an interval of zero: it would never advance.
    pub fn new(pattern: Pattern, start: Timestamp, random: Random) -> Self {
        match pattern {
            Pattern::Constant { bits_per_second, bytes }
            | Pattern::Poisson { bits_per_second, bytes }
            | Pattern::OnOffPareto { bits_per_second, bytes, .. }
            | Pattern::Bursts { bits_per_second, bytes, .. } => {
                assert!(bits_per_second > 0 && bytes > 0, "datagrams of no length or rate");
            }
            Pattern::Trace(_) => {}
        }
        if let Pattern::Bursts { burst_bytes, every_nanos, .. } = pattern {
            assert!(burst_bytes > 0 && every_nanos > 0, "bursts of no length or interval");
        }
        Schedule { pattern, start, random, next: start, turn: start, given: 0 }
    }
}

/// The time of a datagram at a rate.
fn gap(bytes: u16, bits_per_second: u64) -> Duration {
    lull_cc::Rate::from_bits_per_second(bits_per_second).time_for(lull_cc::Bytes(bytes.into()))
}

impl Iterator for Schedule {
    type Item = DueDatagram;

    fn next(&mut self) -> Option<DueDatagram> {
        match self.pattern {
            Pattern::Constant { bits_per_second, bytes } => {
                let at = self.next;
                self.next += gap(bytes, bits_per_second);
                Some(DueDatagram { at, bytes })
            }
            Pattern::Poisson { bits_per_second, bytes } => {
                self.next += self.random.exponential(gap(bytes, bits_per_second));
                Some(DueDatagram { at: self.next, bytes })
            }
            Pattern::OnOffPareto { bits_per_second, bytes, on_nanos, off_nanos, shape } => {
                // The source begins off, so that several sources do not start together.
                while self.next >= self.turn {
                    let off = self.random.pareto(shape, Duration::from_nanos(off_nanos));
                    let on = self.random.pareto(shape, Duration::from_nanos(on_nanos));
                    self.next = self.turn + off;
                    self.turn = self.next + on;
                }
                let at = self.next;
                self.next += gap(bytes, bits_per_second);
                Some(DueDatagram { at, bytes })
            }
            Pattern::Bursts { bits_per_second, bytes, burst_bytes, every_nanos } => {
                if self.given >= burst_bytes {
                    self.turn += Duration::from_nanos(every_nanos);
                    // A burst that is longer than the interval delays the next one.
                    self.next = self.next.max(self.turn);
                    self.given = 0;
                }
                let at = self.next;
                let left = burst_bytes - self.given;
                let bytes = bytes.min(u16::try_from(left).unwrap_or(u16::MAX));
                self.given += u64::from(bytes);
                self.next += gap(bytes, bits_per_second);
                Some(DueDatagram { at, bytes })
            }
            Pattern::Trace(ref trace) => {
                let &(nanos, bytes) = trace.get(self.given as usize)?;
                self.given += 1;
                Some(DueDatagram { at: self.start + Duration::from_nanos(nanos), bytes })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn schedule(pattern: Pattern) -> Schedule {
        Schedule::new(pattern, Timestamp::from_nanos(SECOND), Random::new(1))
    }

    /// Bytes returned within `seconds`.
    fn bytes_within(pattern: Pattern, seconds: u64) -> u64 {
        let end = Timestamp::from_nanos(SECOND * (1 + seconds));
        schedule(pattern).take_while(|due| due.at < end).map(|due| u64::from(due.bytes)).sum()
    }

    #[test]
    fn constant_rate_is_exact() {
        let pattern = Pattern::Constant { bits_per_second: 8_000_000, bytes: 500 };
        assert_eq!(bytes_within(pattern, 10), 10_000_000);
    }

    #[test]
    fn poisson_and_on_off_have_their_mean_rate() {
        let poisson = Pattern::Poisson { bits_per_second: 8_000_000, bytes: 500 };
        let bytes = bytes_within(poisson, 100) as f64;
        assert!((bytes / 100e6 - 1.0).abs() < 0.01, "{bytes}");
        let on_off = Pattern::OnOffPareto {
            bits_per_second: 8_000_000,
            bytes: 500,
            on_nanos: SECOND / 10,
            off_nanos: SECOND / 5,
            shape: 2.5,
        };
        let bytes = bytes_within(on_off, 2_000) as f64;
        assert!((bytes / (2_000e6 / 3.0) - 1.0).abs() < 0.03, "{bytes}");
    }

    #[test]
    fn bursts_carry_exactly_their_bytes() {
        let bursts = Pattern::Bursts {
            bits_per_second: 10_000_000,
            bytes: 1_500,
            burst_bytes: 250_000,
            every_nanos: SECOND / 2,
        };
        // Filler §4.4: 250 KB each 0.5 s, which is 40 % of the link.
        assert_eq!(bytes_within(bursts.clone(), 10), 5_000_000);
        let first: Vec<_> = schedule(bursts).take(168).collect();
        assert_eq!(first[166].bytes, 1_000);
        assert_eq!(first[167].at, Timestamp::from_nanos(SECOND + SECOND / 2));
    }

    #[test]
    fn trace_is_played_unchanged() {
        let trace = vec![(0, 40), (7, 1_500), (7, 40)];
        let given: Vec<_> = schedule(Pattern::Trace(trace)).collect();
        let at = |nanos| Timestamp::from_nanos(SECOND + nanos);
        assert_eq!(given[1], DueDatagram { at: at(7), bytes: 1_500 });
        assert_eq!(given.len(), 3);
    }
}
