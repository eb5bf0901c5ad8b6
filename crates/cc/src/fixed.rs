//! Powers and logarithms of windows in integers, the same on every machine.
//!
//! Both loops have a fixed number of iterations and no branch, so that the kernel's mirror
//! (`bpf/background.h`) is the same code and passes the verifier.

use crate::Window;

/// Fractional bits of a logarithm. The squarings of [`log2`] are exact to 29.
const LOG_BITS: u32 = 28;
/// Fractional bits of a number between one and two.
const MANTISSA_BITS: u32 = 31;
const MANTISSA_ONE: u64 = 1 << MANTISSA_BITS;
/// ln 2 with 30 fractional bits.
const LN_2: u64 = 744_261_118;

/// 2^(1/2), 2^(1/4), …, 2^(1/2^28) with [`MANTISSA_BITS`] fractional bits, rounded.
const ROOTS_OF_TWO: [u64; LOG_BITS as usize] = {
    const BITS: u32 = 2 * MANTISSA_BITS;
    let mut roots = [0; LOG_BITS as usize];
    let mut root: u128 = 2 << BITS;
    let mut i = 0;
    while i < roots.len() {
        root = (root << BITS).isqrt();
        roots[i] = ((root + (1 << (MANTISSA_BITS - 1))) >> MANTISSA_BITS) as u64;
        i += 1;
    }
    roots
};

/// The binary logarithm of a window of at least one packet, with [`LOG_BITS`] fractional bits.
///
/// Squaring a number between one and two doubles its logarithm: each time it exceeds two, the next bit is
/// one.
fn log2(window: u64) -> u64 {
    debug_assert!(window >= Window::ONE.raw(), "the logarithm would be negative");
    let magnitude = 63 - window.leading_zeros();
    let mut x = if magnitude > MANTISSA_BITS {
        window >> (magnitude - MANTISSA_BITS)
    } else {
        window << (MANTISSA_BITS - magnitude)
    };
    let mut log = u64::from(magnitude - Window::SHIFT);
    for _ in 0..LOG_BITS {
        x = (x * x) >> MANTISSA_BITS;
        let bit = x >> (MANTISSA_BITS + 1);
        x >>= bit;
        log = log << 1 | bit;
    }
    log
}

/// Two to the power of `log`, as a window. Inverse of [`log2`].
fn exp2(log: u64) -> u64 {
    let mut y = MANTISSA_ONE;
    for (i, root) in ROOTS_OF_TWO.iter().enumerate() {
        let bit = log >> (LOG_BITS - 1 - i as u32) & 1;
        y = (y * (MANTISSA_ONE + bit * (root - MANTISSA_ONE))) >> MANTISSA_BITS;
    }
    (y << (log >> LOG_BITS)) >> (MANTISSA_BITS - Window::SHIFT)
}

/// `window`^(`percent`/100), counted in packets. Exact to one part in 2^25 and 1/65536 packet; apart from
/// that error, always below or at the true value.
///
/// `window` is at least one packet and below 2^32, `percent` at most 100.
pub(crate) fn power(window: u64, percent: u32) -> u64 {
    debug_assert!(percent <= 100 && window >> 32 < 1 << Window::SHIFT);
    exp2(log2(window) * u64::from(percent) / 100)
}

/// The natural logarithm of `window` in packets, as a window. Exact to 2/65536.
///
/// `window` is at least one packet.
pub(crate) fn ln(window: u64) -> u64 {
    (log2(window) * LN_2) >> (LOG_BITS + 30 - Window::SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nice::WINDOW_LIMIT;

    const ONE: u64 = Window::ONE.raw();

    /// Windows on a logarithmic scale from one packet to the limit, and all small whole ones.
    fn windows() -> impl Iterator<Item = u64> {
        let steps = (0..20_000).map(|i| (ONE as f64 * 2f64.powf(f64::from(i) / 1_000.0)) as u64);
        let whole = (1..5_000).map(|packets| packets * ONE);
        steps.chain(whole).chain([ONE + 1, 2 * ONE - 1, WINDOW_LIMIT - 1, WINDOW_LIMIT])
    }

    fn packets(raw: u64) -> f64 {
        raw as f64 / ONE as f64
    }

    #[test]
    fn power_is_accurate_to_one_part_in_2_25() {
        let (mut worst, mut cases) = (0.0f64, 0);
        for percent in [25, 33, 40, 50, 60, 66, 75, 85, 90, 95, 100] {
            for window in windows() {
                let exact = packets(window).powf(f64::from(percent) / 100.0);
                let error = packets(power(window, percent)) - exact;
                assert!(
                    error.abs() <= exact / f64::from(1 << 25) + 1.0 / ONE as f64,
                    "{} ^ 0.{percent} = {exact}: off by {error:e}",
                    packets(window)
                );
                worst = worst.max(error.abs() / exact);
                cases += 1;
            }
        }
        // The tolerance is no wider than necessary.
        assert!(cases > 200_000 && worst > 1e-8, "{cases} cases, off by {worst:e} at most");
    }

    #[test]
    fn natural_logarithm_is_accurate_to_two_65536ths() {
        for window in windows() {
            let exact = packets(window).ln();
            let error = packets(ln(window)) - exact;
            assert!(error.abs() <= 2.0 / ONE as f64, "ln {} off by {error:e}", packets(window));
        }
    }

    #[test]
    fn power_of_one_packet_is_one_packet() {
        for percent in 0..=100 {
            assert_eq!(power(ONE, percent), ONE);
        }
        assert_eq!(ln(ONE), 0);
    }

    #[test]
    fn larger_window_has_no_smaller_power() {
        for percent in [25, 50, 95] {
            let mut last = 0;
            for window in (ONE..400 * ONE).step_by(97) {
                let this = power(window, percent);
                assert!(this >= last, "{window} ^ 0.{percent}");
                last = this;
            }
        }
    }

    #[test]
    fn power_below_one_never_exceeds_the_window() {
        for window in windows() {
            for percent in [25, 95, 100] {
                assert!(power(window, percent) <= window, "{window} ^ 0.{percent}");
            }
        }
    }
}
