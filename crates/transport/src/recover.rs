//! Recovers round-trip times from their moving average.
//!
//! The kernel shows only a smoothed round-trip time (RFC 6298 §2, gain 1/8):
//! `srtt ← srtt + (sample − srtt)/8`. If k samples have come in between two readings, and m is their mean,
//! each weighted by its remaining part,
//!
//! ```text
//! srtt' = (7/8)^k · srtt + (1 − (7/8)^k) · m,    so    m = srtt + (srtt' − srtt) / (1 − (7/8)^k)
//! ```
//!
//! m is exact up to rounding: both averages are shown in whole microseconds, rounded down, which makes an
//! error below 1/(1 − (7/8)^k) µs: 8 µs for k = 1. Of the k samples the last one weighs most, the one before
//! it 7/8 of that, and so on: about the last eight count.
//!
//! k itself is not shown. Each acknowledgement of new data gives one sample. So k is assumed to be the number
//! of received packets without data, at least one, and at most the number of delivered packets. Some of them
//! may give no sample: window updates, and acknowledgements of retransmissions. Then k is too large, and m is
//! nearer to srtt' than it should be. The difference m − srtt is too small by (1 − (7/8)^k) / (1 − (7/8)^k̂).
//! The worst factor is 8, for k = 1 and k̂ large. It is never too large.

/// 1 − (7/8)^k in 1/65536, for k = 1, 2, …; from the last on it is assumed to be 1.
const GAIN: [u32; 40] = gains();

const fn gains() -> [u32; 40] {
    let mut table = [0; 40];
    // In 1/2^32, so that forty steps of rounding have no visible effect.
    let mut rest = 1u64 << 32;
    let mut index = 0;
    while index < table.len() {
        rest = rest * 7 / 8;
        table[index] = (((1 << 32) - rest) >> 16) as u32;
        index += 1;
    }
    table
}

/// The weighted mean, in microseconds, of `samples` round-trip times that changed the smoothed one from
/// `before` to `after`. Without samples, or without a previous value, `after`.
pub fn mean_rtt_micros(before: u32, after: u32, samples: u32) -> u32 {
    if before == 0 || samples == 0 {
        return after;
    }
    let Some(&gain) = GAIN.get(samples as usize - 1) else { return after };
    let change = ((i64::from(after) - i64::from(before)) << 16) / i64::from(gain);
    u32::try_from((i64::from(before) + change).max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::mean_rtt_micros;

    /// The kernel's `tcp_rtt_estimator`: eight times the average, and its value in `TCP_INFO`.
    struct Kernel(u32);

    impl Kernel {
        fn sample(&mut self, rtt: u32) {
            self.0 = if self.0 == 0 { rtt << 3 } else { self.0 + rtt - (self.0 >> 3) };
        }

        fn shown(&self) -> u32 {
            self.0 >> 3
        }
    }

    #[test]
    fn single_sample_is_recovered_to_eight_microseconds() {
        for (before, rtt) in [(50_000, 90_000), (50_000, 50_001), (200_000, 20_000), (10, 3000)] {
            let mut kernel = Kernel(0);
            kernel.sample(before);
            let was = kernel.shown();
            kernel.sample(rtt);
            let mean = mean_rtt_micros(was, kernel.shown(), 1);
            assert!(mean.abs_diff(rtt) <= 8, "{before} {rtt}: {mean}");
        }
    }

    #[test]
    fn average_stays_without_samples_or_history() {
        assert_eq!(mean_rtt_micros(0, 700, 3), 700);
        assert_eq!(mean_rtt_micros(900, 700, 0), 700);
        assert_eq!(mean_rtt_micros(900, 700, 1000), 700);
        // The rounded value of a tiny path is still a time.
        assert_eq!(mean_rtt_micros(10, 1, 1), 1);
    }

    proptest! {
        #[test]
        fn weighted_mean_is_recovered(
            before in 1u32..2_000_000,
            samples in prop::collection::vec(1u32..2_000_000, 1..60),
        ) {
            let mut kernel = Kernel(0);
            kernel.sample(before);
            let was = kernel.shown();
            let (mut sum, mut weights) = (0.0, 0.0);
            for (age, &rtt) in samples.iter().rev().enumerate() {
                let weight = 0.875f64.powi(age as i32);
                sum += f64::from(rtt) * weight;
                weights += weight;
            }
            samples.iter().for_each(|&rtt| kernel.sample(rtt));
            let mean = f64::from(mean_rtt_micros(was, kernel.shown(), samples.len() as u32));
            // Rounding, and (7/8)^40 = 0.5 % of the values before the end of the table.
            let allowed = 9.0 + f64::from(before.max(*samples.iter().max().unwrap())) * 0.005;
            prop_assert!((mean - sum / weights).abs() <= allowed, "{mean} {}", sum / weights);
        }

        #[test]
        fn too_many_samples_never_exaggerate(
            before in 1u32..2_000_000, rtt in 1u32..2_000_000, extra in 0u32..50,
        ) {
            let mut kernel = Kernel(0);
            kernel.sample(before);
            let was = kernel.shown();
            kernel.sample(rtt);
            let mean = mean_rtt_micros(was, kernel.shown(), 1 + extra);
            prop_assert!(mean.abs_diff(before) <= rtt.abs_diff(before) + 9);
        }
    }
}
