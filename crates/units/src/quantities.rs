//! Quantities that carry their unit in their type.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

/// A congestion window in packets, as a fixed-point number with 16 fractional bits.
///
/// Nice needs windows below one packet (Nice §2.2, §2.3: down to 1/48), so packets are not counted in whole
/// numbers. `nice.h` uses the same representation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window(u64);

impl Window {
    /// Fractional bits.
    pub const SHIFT: u32 = 16;
    /// One packet.
    pub const ONE: Window = Window(1 << Self::SHIFT);
    /// Two packets: below this a flow sends pairs on a timer (Nice §2.3).
    pub const TWO: Window = Window(2 << Self::SHIFT);
    /// The smallest window of the paper's prototype, 1/48 (Nice §2.3).
    pub const ONE_48TH: Window = Window((1 << Self::SHIFT) / 48);
    /// No limit: the value of an unset slow-start threshold.
    pub const MAX: Window = Window(u32::MAX as u64);

    /// A window from its fixed-point representation.
    pub const fn from_raw(raw: u64) -> Self {
        Window(raw)
    }

    /// The fixed-point representation, in 1/65536 packets.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// A whole number of packets.
    pub const fn from_packets(packets: u32) -> Self {
        Window((packets as u64) << Self::SHIFT)
    }

    /// The fraction `numerator / denominator` of a packet, rounded down.
    ///
    /// # Panics
    /// If `denominator` is zero.
    pub const fn from_ratio(numerator: u32, denominator: u32) -> Self {
        Window(((numerator as u64) << Self::SHIFT) / denominator as u64)
    }

    /// Whole packets, rounded down.
    pub const fn packets(self) -> u64 {
        self.0 >> Self::SHIFT
    }

    /// For display and plots; it is not used in decisions.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / f64::from(1u32 << Self::SHIFT)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self >= Window::ONE || self.0 == 0 {
            return write!(f, "{:.2}", self.as_f64());
        }
        let denominator = (Window::ONE.0 + self.0 / 2) / self.0;
        if Window::ONE.0 / denominator == self.0 {
            write!(f, "1/{denominator}")
        } else {
            write!(f, "{:.3}", self.as_f64())
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} B", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kB", bytes / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} MB", bytes / 1e6),
            _ => write!(f, "{:.2} GB", bytes / 1e9),
        }
    }
}

/// A data rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// A rate of `bits` bits per second.
    pub const fn from_bits_per_second(bits: u64) -> Self {
        Rate(bits)
    }

    /// A rate of `bytes` bytes per second.
    pub const fn from_bytes_per_second(bytes: u64) -> Self {
        Rate(bytes * 8)
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Bytes per second, rounded down.
    pub const fn bytes_per_second(self) -> u64 {
        self.0 / 8
    }

    /// How long `bytes` take at this rate, rounded up to the next nanosecond.
    ///
    /// # Panics
    /// If the rate is zero: no data is ever sent at it.
    pub fn time_for(self, bytes: Bytes) -> Duration {
        assert!(self.0 > 0, "a rate of zero takes for ever");
        let nanos = (u128::from(bytes.0) * 8 * 1_000_000_000).div_ceil(u128::from(self.0));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Bytes that pass in `time` at this rate, rounded down: with a round-trip time, the
    /// bandwidth-delay product.
    pub fn bytes_in(self, time: Duration) -> Bytes {
        let bytes = u128::from(self.0) * time.as_nanos() / 8 / 1_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} bit/s", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kbit/s", bits / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} Mbit/s", bits / 1e6),
            _ => write!(f, "{:.2} Gbit/s", bits / 1e9),
        }
    }
}

/// A rate that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseRateError(String);

impl fmt::Display for ParseRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a rate: write a number and bit, kbit, mbit or gbit", self.0)
    }
}

impl core::error::Error for ParseRateError {}

impl FromStr for Rate {
    type Err = ParseRateError;

    /// Reads `10mbit`, `56.6kbit`, `1gbit`, `800bit`; a `/s` after the unit is allowed.
    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        let error = || ParseRateError(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let lower = lower.strip_suffix("/s").unwrap_or(&lower);
        let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
        let (number, unit) = lower.split_at(digits);
        let scale = match unit.trim() {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return Err(error()),
        };
        let number: f64 = number.parse().map_err(|_| error())?;
        let bits = number * scale;
        if !(1.0..=1e12).contains(&bits) {
            return Err(error());
        }
        Ok(Rate(bits.round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_may_be_one_48th_of_a_packet() {
        assert_eq!(Window::ONE_48TH, Window::from_ratio(1, 48));
        for (window, text) in [
            (Window::ONE_48TH, "1/48"),
            (Window::from_ratio(1, 2), "1/2"),
            (Window::from_ratio(3, 4), "0.750"),
            (Window::from_ratio(1, 30), "1/30"),
            (Window::from_ratio(2, 5), "0.400"),
            (Window::ONE, "1.00"),
            (Window::from_raw(0), "0.00"),
        ] {
            assert_eq!(window.to_string(), text);
        }
        assert_eq!(Window::from_packets(3).packets(), 3);
    }

    #[test]
    fn rate_is_parsed_with_its_unit() {
        for (text, bits) in
            [("10mbit", 10_000_000), ("56.6kbit/s", 56_600), ("1Gbit", 1_000_000_000), ("8bit", 8)]
        {
            assert_eq!(text.parse::<Rate>().unwrap().bits_per_second(), bits, "{text}");
        }
        for text in ["", "10", "mbit", "-1mbit", "0mbit", "1e3mbit", "nanbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn bandwidth_delay_product_of_10_mbit_and_50_ms_is_62500_bytes() {
        let rate: Rate = "10mbit".parse().unwrap();
        assert_eq!(rate.bytes_in(Duration::from_millis(50)), Bytes(62_500));
        assert_eq!(rate.time_for(Bytes(62_500)), Duration::from_millis(50));
    }
}
