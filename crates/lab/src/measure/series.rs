//! Results from time series: when a group reached its share.

use std::collections::BTreeMap;
use std::time::Duration;

use lull_emulator::{FlowKey, Sample};

/// A level counts as reached if it held on average over this time. It is ten round trips of the longest path,
/// so that a short burst of a flow that then reduces its rate does not count. It is short compared with the
/// reported times.
const HELD: Duration = Duration::from_secs(2);

/// Bytes of some flows, sample by sample.
pub(crate) fn bytes_of(
    samples: &[Sample],
    flows: &[FlowKey],
    is_of: impl Fn(&FlowKey) -> bool,
) -> Vec<u64> {
    let wanted: Vec<bool> = flows.iter().map(is_of).collect();
    samples
        .iter()
        .map(|sample| {
            let counted = sample.bytes.iter().filter(|(flow, _)| wanted[*flow as usize]);
            counted.map(|(_, bytes)| bytes).sum()
        })
        .collect()
}

/// The samples with intervals within the given times, in seconds since the emulator's start.
pub(crate) fn within(samples: &[Sample], interval_s: f64, from_s: f64, to_s: f64) -> &[Sample] {
    let begin = samples.partition_point(|sample| sample.time_s - interval_s < from_s - 1e-9);
    let end = samples.partition_point(|sample| sample.time_s <= to_s + 1e-9);
    &samples[begin..end.max(begin)]
}

/// Seconds until `level` bytes per second had held on average for two seconds.
pub(crate) fn time_to(bytes: &[u64], interval_s: f64, level: f64) -> Option<f64> {
    let held = ((HELD.as_secs_f64() / interval_s).round() as usize).max(1);
    let wanted = level * interval_s * held as f64;
    bytes
        .windows(held)
        .position(|window| window.iter().sum::<u64>() as f64 >= wanted)
        .map(|first| (first + held) as f64 * interval_s)
}

/// Averages a series in Mbit/s or milliseconds over intervals that are `factor` times as long. An incomplete
/// interval at the end is left out.
pub(crate) fn coarser(values: &[f64], factor: usize) -> Vec<f64> {
    let round = |value: f64| (value * 1e3).round() / 1e3;
    values
        .chunks_exact(factor.max(1))
        .map(|chunk| round(chunk.iter().sum::<f64>() / chunk.len() as f64))
        .collect()
}

/// Mean queueing delays in milliseconds; if no packet left, that of the sample before.
pub(crate) fn queueing(samples: &[Sample]) -> Vec<f64> {
    let mut last = 0.0;
    samples
        .iter()
        .map(|sample| {
            last = sample.queueing_delay_ms.unwrap_or(last);
            last
        })
        .collect()
}

/// Mbit/s of each group over a range of samples.
pub(crate) fn rates(
    bytes: &BTreeMap<String, Vec<u64>>,
    interval_s: f64,
    factor: usize,
) -> BTreeMap<String, Vec<f64>> {
    let megabits = |bytes: &Vec<u64>| -> Vec<f64> {
        bytes.iter().map(|bytes| *bytes as f64 * 8.0 / 1e6 / interval_s).collect()
    };
    bytes.iter().map(|(name, bytes)| (name.clone(), coarser(&megabits(bytes), factor))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_is_reached_after_holding_for_two_seconds() {
        let mut bytes = vec![0; 10];
        // A single burst is not enough.
        bytes[3] = 500;
        bytes.extend([100; 30]);
        let at = time_to(&bytes, 0.1, 1_000.0).unwrap();
        assert!((at - 3.0).abs() < 1e-9, "{at}");
        assert_eq!(time_to(&bytes, 0.1, 1_600.0), None);
        assert_eq!(time_to(&[], 0.1, 1.0), None);
    }

    #[test]
    fn samples_lie_within_their_interval() {
        let samples: Vec<Sample> =
            (1..=20).map(|n| Sample { time_s: f64::from(n) * 0.1, ..Sample::default() }).collect();
        let taken = within(&samples, 0.1, 0.5, 1.0);
        assert_eq!(taken.len(), 5);
        assert!((taken[0].time_s - 0.6).abs() < 1e-9);
        assert!(within(&samples, 0.1, 5.0, 6.0).is_empty());
    }

    #[test]
    fn coarser_series_is_the_average() {
        assert_eq!(coarser(&[1.0, 3.0, 2.0, 4.0, 9.0], 2), [2.0, 3.0]);
    }
}
