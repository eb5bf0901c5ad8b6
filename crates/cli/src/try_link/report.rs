//! The measurements as text and as JSON.

use std::time::Duration;

use lull_cc::Rate;
use lull_monitor::{Curve, plot};
use serde_json::{Value, json};

use super::ping::Sample;

/// A part of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Phase {
    name: &'static str,
    from: f64,
    to: f64,
    /// Payload of the transfer, if there was one.
    bytes: Option<u64>,
}

impl Phase {
    pub(super) fn new(
        name: &'static str,
        from: Duration,
        to: Duration,
        bytes: Option<u64>,
    ) -> Self {
        Phase { name, from: from.as_secs_f64(), to: to.as_secs_f64(), bytes }
    }

    fn title(&self) -> &'static str {
        match self.name {
            "alone" => "no transfer",
            "plain" => "without Lull",
            _ => "under lull exec",
        }
    }

    fn letter(&self) -> char {
        self.name.chars().next().unwrap_or('.')
    }

    /// Requests that were sent in it.
    fn points(&self, samples: &[Sample]) -> Vec<(f64, f64)> {
        let within = |sample: &&Sample| (self.from..self.to).contains(&sample.sent_at);
        samples.iter().filter(within).map(|sample| (sample.sent_at, sample.ms)).collect()
    }

    fn sorted(&self, samples: &[Sample]) -> Vec<f64> {
        let mut times: Vec<f64> = self.points(samples).into_iter().map(|point| point.1).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    pub(super) fn median(&self, samples: &[Sample]) -> f64 {
        quantile(&self.sorted(samples), 0.5)
    }

    fn rate(&self) -> Option<f64> {
        Some(self.bytes? as f64 * 8.0 / (self.to - self.from).max(1e-3))
    }
}

/// The smallest value that is not below a part of all.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// A whole measurement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    pub(super) host: String,
    pub(super) is_download: bool,
    /// Alone, plain, and under Lull.
    pub(super) phases: Vec<Phase>,
    pub(super) samples: Vec<Sample>,
}

/// A median that is at least this much higher than alone is a delay that people notice.
const NOTICEABLE_MS: f64 = 10.0;

impl Report {
    pub(super) fn to_text(&self) -> String {
        let ms = |value: f64| format!("{value:.1} ms");
        let mut text = format!(
            "{:16}{:>12}{:>12}{:>12}{:>16}\n",
            "round-trip time", "median", "p95", "max", "transfer"
        );
        for phase in &self.phases {
            let times = phase.sorted(&self.samples);
            let [median, p95, max] = [0.5, 0.95, 1.0].map(|part| ms(quantile(&times, part)));
            let rate = phase
                .rate()
                .map_or("-".to_owned(), |rate| Rate::from_bits_per_second(rate as u64).to_string());
            text += &format!("{:16}{median:>12}{p95:>12}{max:>12}{rate:>16}\n", phase.title());
        }
        let curves: Vec<Curve> = self
            .phases
            .iter()
            .map(|phase| Curve {
                letter: phase.letter(),
                name: phase.title().to_owned(),
                points: phase.points(&self.samples),
            })
            .collect();
        text += &format!("\n{}", plot(&curves, "ms", 78, 14));
        text.extend(self.note().map(|note| format!("\n{note}\n")));
        text
    }

    /// Why the two transfers may look alike.
    fn note(&self) -> Option<String> {
        let [alone, plain, _] = &self.phases[..] else { return None };
        let added = plain.median(&self.samples) - alone.median(&self.samples);
        (added < NOTICEABLE_MS).then(|| {
            "The transfer without Lull delays others by less than 10 ms here. The link may be faster than ssh, its \
             queue may be short, or the limit of bytes may be too low (--most)."
                .to_owned()
        })
    }

    pub(super) fn to_json(&self) -> String {
        let phases = self.phases.iter().map(|phase| {
            let times = phase.sorted(&self.samples);
            json!({
                "name": phase.name,
                "seconds": phase.to - phase.from,
                "bytes": phase.bytes,
                "bits_per_second": phase.rate(),
                "ping_ms": {
                    "count": times.len(),
                    "median": quantile(&times, 0.5),
                    "p95": quantile(&times, 0.95),
                    "max": quantile(&times, 1.0),
                },
            })
        });
        let pings = self.samples.iter().map(|sample| json!([sample.sent_at, sample.ms]));
        json!({
            "host": self.host,
            "direction": if self.is_download { "download" } else { "upload" },
            "phases": Value::from_iter(phases),
            "pings": Value::from_iter(pings),
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(plain_ms: f64) -> Report {
        let seconds = Duration::from_secs;
        let phases = vec![
            Phase::new("alone", seconds(0), seconds(2), None),
            Phase::new("plain", seconds(2), seconds(4), Some(1_000_000)),
            Phase::new("lull", seconds(5), seconds(7), Some(2_000_000)),
        ];
        let ms = |at: f64| match at {
            at if at < 2.0 => 20.0,
            at if at < 4.0 => plain_ms,
            _ => 21.0,
        };
        let at = (0..70).map(|step| f64::from(step) / 10.0);
        let samples = at.map(|sent_at| Sample { sent_at, ms: ms(sent_at) }).collect();
        Report { host: "host".to_owned(), is_download: false, phases, samples }
    }

    #[test]
    fn table_has_a_line_per_phase() {
        let text = report(400.0).to_text();
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(1), "no transfer 20.0 ms 20.0 ms 20.0 ms -");
        assert_eq!(words(2), "without Lull 400.0 ms 400.0 ms 400.0 ms 4.00 Mbit/s");
        assert_eq!(words(3), "under lull exec 21.0 ms 21.0 ms 21.0 ms 8.00 Mbit/s");
        assert!(text.contains("  p without Lull\n"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains("less than 10 ms"), "{text}");
        assert!(report(25.0).to_text().contains("less than 10 ms"));
    }

    #[test]
    fn json_has_the_same_numbers() {
        let value: Value = serde_json::from_str(&report(400.0).to_json()).unwrap();
        assert_eq!(value["phases"][1]["ping_ms"]["median"], 400.0);
        assert_eq!(value["phases"][1]["bits_per_second"], 4e6);
        assert_eq!(value["phases"][0]["bytes"], Value::Null);
        assert_eq!(value["pings"][0], json!([0.0, 20.0]));
    }

    #[test]
    fn quantile_is_one_of_the_values() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!([0.5, 0.95, 1.0].map(|part| quantile(&values, part)), [2.0, 4.0, 4.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
