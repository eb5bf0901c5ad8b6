//! A small seeded generator: the same seed gives the same numbers on every machine.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

/// The generator's output function: every bit of the result depends on every bit of `value`.
pub(super) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    /// The next number, uniform in [0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        // 53 bits are what a double holds exactly.
        (mix(self.state) >> 11) as f64 / (1u64 << 53) as f64
    }
}
