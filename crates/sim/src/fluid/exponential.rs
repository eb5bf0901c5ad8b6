//! e^−x and ln y by additions and multiplications only.
//!
//! The standard library leaves the last bits of `f64::exp` and `f64::ln` to the platform. Records of this
//! crate must be the same on every machine, so they are computed here.

use core::f64::consts::LN_2;

/// Above this, e^−x counts as zero; this keeps all its products away from subnormal numbers.
const VANISHED: f64 = 700.0;
/// ln 2 with the lower half of its bits zero, so that k·`LN_2_HIGH` is exact for every k in use.
const LN_2_HIGH: f64 = f64::from_bits(LN_2.to_bits() & 0xFFFF_FFFF_0000_0000);
/// The rest of ln 2, including the part that the 53 bits of [`LN_2`] do not hold (2.319 · 10⁻¹⁷).
const LN_2_LOW: f64 = (LN_2 - LN_2_HIGH) + 2.319_046_813_846_3e-17;
/// Terms of the series: |r| ≤ ln 2 / 2, and r¹⁵/15! is below the last bit.
const TERMS: u32 = 15;

/// e^−x for x ≥ 0; exactly 0 above x = 700.
pub(super) fn decay(x: f64) -> f64 {
    assert!(x >= 0.0, "{x} would grow");
    if x > VANISHED {
        return 0.0;
    }
    // e^−x = 2^−k · e^−r.
    let k = (x / LN_2).round();
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    // Horner's scheme on Σ (−r)^n / n!.
    let series = (1..TERMS).rev().fold(1.0, |sum, n| 1.0 - sum * r / f64::from(n));
    let power = f64::from_bits((1023 - k as u64) << 52);
    series * power
}

/// ln y for 1 ≤ y < e^700.
pub(super) fn ln(y: f64) -> f64 {
    assert!(y >= 1.0 && y.is_finite(), "ln {y} is not needed here");
    let k = ((y.to_bits() >> 52) - 1023) as f64;
    let fraction = f64::from_bits((y.to_bits() & ((1 << 52) - 1)) | (1023 << 52));
    // Between the powers of two the chord is within 0.06.
    let mut z = (k + (fraction - 1.0)) * LN_2;
    // Newton's method on y·e^−z = 1 squares the error each time: 0.06, 2·10⁻³, 2·10⁻⁶, 2·10⁻¹², below.
    for _ in 0..5 {
        z += y * decay(z) - 1.0;
    }
    z.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exponential_agrees_with_the_platform(x in 0.0..VANISHED) {
            prop_assert!((decay(x) / (-x).exp() - 1.0).abs() < 4e-16, "{}", x);
        }

        #[test]
        fn logarithm_inverts_the_exponential(x in 0.0..600.0_f64) {
            prop_assert!((ln(1.0 / decay(x)) - x).abs() < 1e-15 * x.max(1.0), "{}", x);
            prop_assert!((ln(x.exp()) - x).abs() < 1e-15 * x.max(1.0), "{}", x);
        }
    }

    #[test]
    fn limits_of_the_range_are_exact() {
        assert_eq!(decay(0.0), 1.0);
        assert_eq!(decay(701.0), 0.0);
        assert_eq!(decay(f64::INFINITY), 0.0);
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(ln(2.0), LN_2);
    }
}
