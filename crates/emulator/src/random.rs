//! Seeded randomness of the traffic: the same seed, the same pauses.

use std::time::Duration;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator that `seed` starts.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// 64 bits, uniformly distributed.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniformly distributed, from 0 up to but not including 1.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `count`, uniformly distributed.
    pub fn below(&mut self, count: usize) -> usize {
        (self.uniform() * count as f64) as usize
    }

    /// Uniformly distributed from zero to `most`.
    pub fn within(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.uniform())
    }

    /// Exponentially distributed; a hundred times the mean at most.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64((-(1.0 - self.uniform()).ln()).min(100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_have_their_mean_and_repeat_with_the_seed() {
        let mean = Duration::from_millis(200);
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..100_000).map(|_| random.exponential(mean)).collect::<Vec<_>>()
        };
        let drawn = draw(7);
        let average = drawn.iter().sum::<Duration>().as_secs_f64() / drawn.len() as f64;
        assert!((average - 0.2).abs() < 0.004, "{average}");
        assert_eq!(drawn, draw(7));
        assert_ne!(drawn, draw(8));
    }
}
