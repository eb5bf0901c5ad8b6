//! The price of a link, as users name it.

use lull_cc::Bytes;

const GB: f64 = 1e9;

/// The bytes that one read is worth, if a gigabyte is worth being sent for this many reads.
pub fn bytes_per_read(reads_per_gb: f64) -> Bytes {
    // Saturates, as conversions from floating point do.
    Bytes((GB / reads_per_gb) as u64)
}

/// The same back, to six decimals.
pub(super) fn reads_per_gb(bytes_per_read: Bytes) -> f64 {
    (1e6 * GB / bytes_per_read.0.max(1) as f64).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_is_the_same_after_a_conversion() {
        for price in [0.5, 1.0, 3.0, 1_000.0, 1e6] {
            assert!((reads_per_gb(bytes_per_read(price)) - price).abs() <= 1e-6 * price, "{price}");
        }
        assert_eq!(bytes_per_read(1_000.0), Bytes(1_000_000));
        assert_eq!(bytes_per_read(1e30), Bytes(0));
    }
}
