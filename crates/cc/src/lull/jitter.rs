//! The jitter of a path, and whether it has any.

use crate::noise_floor::NoiseFloor;

/// Jitter below this is none, in microseconds.
const MIN_MICROS: u32 = 1_000;
/// Counted for a measurement without jitter; one with jitter takes 1 off. A steady link shows jitter
/// in at most a third of its measurements, while others send; a Wi-Fi link in most of them.
const QUIET_STEP: u32 = 4;
/// At more than this the path counts as steady.
const QUIET_LIMIT: u32 = 8;
/// The highest count.
const MAX_QUIET: u32 = 32;

/// Jitter, learned from all connections of a path. [`NoiseFloor`] forgets what it has learned while
/// there is a queue, because in Nice each connection must yield to others that it has taken for
/// jitter. Here jitter is kept until a measurement without a queue replaces it: a link that varies
/// does so under a queue as well. Brief queues of others are kept from being taken for jitter by the
/// count of quiet measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Jitter {
    floor: NoiseFloor,
    micros: u32,
    quiet: u32,
}

impl Jitter {
    /// A round-trip time in microseconds that no receiver has held back.
    pub(super) fn handle_sample(&mut self, now: u64, rtt: u32, min_rtt: u32) {
        let Some(micros) = self.floor.handle_sample(now, rtt, min_rtt) else { return };
        self.micros = micros;
        self.quiet = match micros {
            MIN_MICROS.. => self.quiet.saturating_sub(1),
            _ => (self.quiet + QUIET_STEP).min(MAX_QUIET),
        };
    }

    /// Measurements have shown no jitter, and not only none so far.
    pub(super) fn is_steady(&self) -> bool {
        self.quiet > QUIET_LIMIT
    }

    /// How far jitter raises round-trip times, in microseconds; 0 on a steady path.
    pub(super) fn micros(&self) -> u32 {
        match self.is_steady() || self.micros < MIN_MICROS {
            true => 0,
            false => self.micros,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_RTT: u32 = 30_000;

    /// Samples 12 ms apart: 8 for each measurement.
    fn learn(jitter: &mut Jitter, now: &mut u64, count: usize, rtt: impl Fn(u64) -> u32) {
        for _ in 0..count {
            *now += 12_000;
            jitter.handle_sample(*now, rtt(*now / 12_000), MIN_RTT);
        }
    }

    fn varying(turn: u64) -> u32 {
        MIN_RTT + (turn * turn % 11 * 800) as u32
    }

    #[test]
    fn jitter_is_kept_while_there_is_a_queue() {
        let (mut jitter, mut now) = (Jitter::default(), 0);
        learn(&mut jitter, &mut now, 200, varying);
        let before = jitter.micros();
        assert!((4_000..20_000).contains(&before), "{before}");
        learn(&mut jitter, &mut now, 400, |turn| varying(turn) + 100_000);
        assert_eq!(jitter.micros(), before);
    }

    #[test]
    fn steady_path_needs_more_than_a_burst_of_jitter() {
        let (mut jitter, mut now) = (Jitter::default(), 0);
        learn(&mut jitter, &mut now, 200, |_| MIN_RTT);
        learn(&mut jitter, &mut now, 80, varying);
        assert_eq!(jitter.micros(), 0);
        learn(&mut jitter, &mut now, 400, varying);
        assert!(jitter.micros() > 0);
        learn(&mut jitter, &mut now, 400, |_| MIN_RTT);
        assert_eq!(jitter.micros(), 0);
    }
}
