//! The parameters of a congestion control.

use std::fmt;
use std::str::FromStr;

use lull_cc::filler::Protocol;
use lull_cc::{NiceParameters, Window};
use serde::Serialize;

use crate::constants::{Constants, PathTable};
use crate::error::{Error, Result};

/// Which algorithm of `bpf/` is registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// TCP Nice.
    #[default]
    Nice,
    /// Vegas alone, on which Nice is based; for comparison.
    Vegas,
    /// TCP-Background, for networks that serve a lower class last: it does not yield itself.
    Background,
    /// One controller for all connections of this host that share a path: [`lull_cc::lull`].
    Lull,
}

impl Algorithm {
    /// Whether it yields by itself.
    pub fn yields(self) -> bool {
        self != Algorithm::Background
    }

    /// Whether it keeps the state of `bpf/nice_types.h` for each socket.
    pub(crate) fn keeps_nice_state(self) -> bool {
        matches!(self, Algorithm::Nice | Algorithm::Vegas)
    }

    /// Whether the state of each socket begins with the time that it has yielded.
    pub(crate) fn counts_yielding(self) -> bool {
        self.keeps_nice_state() || self.shares_paths()
    }

    /// Whether connections share the state of `bpf/shared_path_types.h`.
    pub(crate) fn shares_paths(self) -> bool {
        self == Algorithm::Lull
    }
}

/// The parameters of a congestion control, in fixed point as in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub(crate) algorithm: Algorithm,
    /// t of Nice §2.2, with 16 fractional bits.
    pub(crate) threshold: u32,
    /// f of Nice §2.2, with 16 fractional bits.
    pub(crate) fraction: u32,
    pub(crate) min_window: Window,
    pub(crate) restricted: bool,
    /// Of [`Algorithm::Lull`].
    pub(crate) table: PathTable,
}

const ONE: f64 = 65_536.0;

impl Default for Parameters {
    /// The parameters of the paper's prototype: t = 0.2, f = 0.5, 1/48 (Nice §2.3).
    fn default() -> Self {
        Parameters {
            algorithm: Algorithm::Nice,
            threshold: (0.2 * ONE).round() as u32,
            fraction: (0.5 * ONE).round() as u32,
            min_window: Window::ONE_48TH,
            restricted: false,
            table: PathTable::default(),
        }
    }
}

impl Parameters {
    /// The parameters of TCP-Background, which are all constants of its paper (table 5, last row).
    pub fn background(restricted: bool) -> Self {
        Parameters { algorithm: Algorithm::Background, restricted, ..Parameters::default() }
    }

    /// The parameters of [`Algorithm::Lull`].
    pub fn lull(table: PathTable, restricted: bool) -> Self {
        Parameters { algorithm: Algorithm::Lull, restricted, table, ..Parameters::default() }
    }

    /// Parameters within their ranges.
    ///
    /// # Errors
    /// [`Error::BadParameter`] with the invalid one.
    pub fn new(
        algorithm: Algorithm,
        threshold: f64,
        fraction: f64,
        min_window: MinWindow,
        restricted: bool,
    ) -> Result<Self> {
        let bad = |parameter, value: f64, range| {
            Err(Error::BadParameter { parameter, value: value.to_string(), range })
        };
        if !(threshold > 0.0 && threshold < 1.0) {
            return bad("--threshold", threshold, "above 0 and below 1");
        }
        if !(fraction > 0.0 && fraction <= 1.0) {
            return bad("--fraction", fraction, "above 0, 1 at most");
        }
        Ok(Parameters {
            algorithm,
            // Neither may round to the excluded bound.
            threshold: ((threshold * ONE).round() as u32).clamp(1, ONE as u32 - 1),
            fraction: ((fraction * ONE).round() as u32).max(1),
            min_window: min_window.0,
            restricted,
            table: PathTable::default(),
        })
    }

    /// t: how far above min_rtt, as a part of max_rtt - min_rtt, a packet counts as delayed.
    pub fn threshold(&self) -> f64 {
        readable(self.threshold)
    }

    /// f: the part of a round's packets that must be delayed for the window to be halved.
    pub fn fraction(&self) -> f64 {
        readable(self.fraction)
    }

    /// The smallest window.
    pub fn min_window(&self) -> Window {
        self.min_window
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Its name in the controller of `cc`.
    pub(crate) fn constants(&self) -> Constants {
        match self.algorithm {
            Algorithm::Vegas => Constants::Nice(NiceParameters::vegas(1, 3)),
            Algorithm::Nice => Constants::Nice(NiceParameters {
                threshold: self.threshold,
                fraction: self.fraction,
                min_window: self.min_window,
                ..NiceParameters::refined()
            }),
            Algorithm::Background => Constants::Background(Protocol::TCP_BACKGROUND),
            Algorithm::Lull => Constants::Lull(self.table),
        }
    }

    /// Whether only processes with CAP_NET_ADMIN may choose it.
    pub fn restricted(&self) -> bool {
        self.restricted
    }
}

/// The decimal form of a fixed-point value: 16 bits represent four decimals.
fn readable(raw: u32) -> f64 {
    (f64::from(raw) / ONE * 10_000.0).round() / 10_000.0
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.algorithm {
            Algorithm::Vegas => write!(f, "vegas")?,
            Algorithm::Background => write!(f, "background, which needs a network's lower class")?,
            Algorithm::Lull => write!(f, "lull, at most {} paths", self.table.paths)?,
            Algorithm::Nice => write!(
                f,
                "threshold {}, fraction {}, minimum window {}",
                self.threshold(),
                self.fraction(),
                self.min_window
            )?,
        }
        if self.restricted { write!(f, ", restricted") } else { Ok(()) }
    }
}

/// A minimum window, read from `1/48` or `0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinWindow(Window);

impl MinWindow {
    /// The window.
    pub fn window(self) -> Window {
        self.0
    }
}

impl Default for MinWindow {
    fn default() -> Self {
        MinWindow(Window::ONE_48TH)
    }
}

impl fmt::Display for MinWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for MinWindow {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::BadParameter {
            parameter: "--min-window",
            value: format!("'{text}'"),
            range: "a fraction from 1/48 to 1",
        };
        let window = match text.split_once('/') {
            Some((numerator, denominator)) => {
                let numerator: u32 = numerator.trim().parse().map_err(|_| bad())?;
                let denominator: u32 = denominator.trim().parse().map_err(|_| bad())?;
                if denominator == 0 {
                    return Err(bad());
                }
                Window::from_ratio(numerator, denominator)
            }
            None => {
                let value: f64 = text.trim().parse().map_err(|_| bad())?;
                if !(0.0..=1.0).contains(&value) {
                    return Err(bad());
                }
                Window::from_raw((value * ONE).round() as u64)
            }
        };
        if (Window::ONE_48TH..=Window::ONE).contains(&window) {
            Ok(MinWindow(window))
        } else {
            Err(bad())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_window_is_a_fraction_or_a_decimal() {
        for (text, window) in [
            ("1/48", Window::ONE_48TH),
            ("1", Window::ONE),
            ("0.5", Window::from_ratio(1, 2)),
            ("1/2", Window::from_ratio(1, 2)),
        ] {
            assert_eq!(text.parse::<MinWindow>().unwrap().0, window, "{text}");
        }
        for text in ["", "0", "1/49", "2", "1/0", "-1/2", "x", "nan", "0.001", "1e9", "4/2"] {
            assert!(text.parse::<MinWindow>().is_err(), "{text}");
        }
    }

    #[test]
    fn parameters_outside_their_range_are_rejected() {
        let new = |t, f| Parameters::new(Algorithm::Nice, t, f, MinWindow::default(), false);
        assert_eq!(new(0.2, 0.5).unwrap(), Parameters::default());
        assert!(new(1e-9, 1.0).is_ok_and(|p| p.threshold == 1));
        for (t, f) in [(0.0, 0.5), (1.0, 0.5), (0.2, 0.0), (0.2, 1.1), (f64::NAN, 0.5), (0.2, -1.0)]
        {
            assert!(new(t, f).is_err(), "{t} {f}");
        }
    }

    #[test]
    fn parameters_are_shown_as_they_were_typed() {
        assert_eq!(
            Parameters::default().to_string(),
            "threshold 0.2, fraction 0.5, minimum window 1/48"
        );
    }
}
