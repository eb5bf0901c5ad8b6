//! Seeded randomness: the same seed gives the same numbers on every machine.
//!
//! Logarithms and powers come from `libm`, which is Rust: the mathematical library of the machine may round
//! the last bit differently.

use core::time::Duration;

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

/// The generator's output function: every bit of the result depends on every bit of `value`.
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    /// An independent generator for the part `part` of a simulation with seed `seed`: its numbers do not
    /// depend on other parts.
    pub const fn of_part(seed: u64, part: u64) -> Self {
        Random { state: mix(seed ^ mix(part.wrapping_add(0x9e37_79b9_7f4a_7c15))) }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// The next number, uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        // 53 bits are the precision of a double.
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `bound`, uniform; zero if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// An exponentially distributed time: the gaps of a Poisson process.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        // 1 − u lies in (0, 1], where the logarithm is finite.
        scaled(mean, -libm::log(1.0 - self.uniform()))
    }

    /// A Pareto distributed time with this mean.
    ///
    /// # Panics
    /// If `shape` is not above 1, where the distribution has no mean.
    pub fn pareto(&mut self, shape: f64, mean: Duration) -> Duration {
        assert!(shape > 1.0, "a Pareto distribution of shape {shape} has no mean");
        // The minimum is mean · (shape − 1) / shape; the rest is inverse transform sampling.
        let least = (shape - 1.0) / shape;
        scaled(mean, least * libm::pow(1.0 - self.uniform(), -1.0 / shape))
    }
}

/// `mean · factor` in whole nanoseconds; a century at most, so that sums stay in range.
fn scaled(mean: Duration, factor: f64) -> Duration {
    const CENTURY: f64 = 3.2e18;
    Duration::from_nanos((mean.as_nanos() as f64 * factor).min(CENTURY) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_the_published_generator() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn distributions_have_their_mean() {
        let mean = Duration::from_millis(10);
        let count = 200_000;
        let mut random = Random::new(7);
        let exponential: u128 = (0..count).map(|_| random.exponential(mean).as_nanos()).sum();
        let pareto: u128 = (0..count).map(|_| random.pareto(2.5, mean).as_nanos()).sum();
        for (name, sum) in [("exponential", exponential), ("pareto", pareto)] {
            let ratio = sum as f64 / f64::from(count) / mean.as_nanos() as f64;
            assert!((ratio - 1.0).abs() < 0.01, "{name}: {ratio} of the mean");
        }
    }

    #[test]
    fn bounded_number_covers_its_whole_range() {
        let mut random = Random::new(3);
        let mut seen = [0u32; 7];
        for _ in 0..7_000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
