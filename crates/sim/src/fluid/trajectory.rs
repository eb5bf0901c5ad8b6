//! The windows and the queue over time, for plots.

use serde::{Deserialize, Serialize};

use super::parameters::{FluidParameters, ParameterError};
use super::period::{Interval, Period, Windows};

/// One point of a trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the first loss, in seconds.
    pub time: f64,
    /// W_r and W_n, in packets.
    pub windows: Windows,
    /// The queue, in packets.
    pub queue: f64,
    /// Nice's behaviour from here on. A period ends with a sample of its last interval; the next sample has
    /// the same time, and is after the loss.
    pub interval: Interval,
}

/// Pieces that each part of a period is drawn in; most parts are straight.
const PIECES: u32 = 32;

/// `periods` periods, starting at a loss with equal windows of all flows.
///
/// # Errors
/// Parameters that describe no network.
pub fn trajectory(
    parameters: &FluidParameters,
    periods: u32,
) -> Result<Vec<Sample>, ParameterError> {
    parameters.check()?;
    let mut samples = Vec::new();
    let mut time = 0.0;
    let mut start = super::first(parameters);
    for _ in 0..periods {
        let period = Period::run(parameters, start);
        for segment in &period.segments {
            for piece in 0..PIECES {
                let s = segment.rounds * f64::from(piece) / f64::from(PIECES);
                let windows = segment.at(parameters, s);
                let now = time + segment.duration(parameters, s);
                samples.push(sample(parameters, now, windows, segment.interval));
            }
            time += segment.duration(parameters, segment.rounds);
        }
        let last = period.segments.last().map_or(Interval::AdditiveIncrease, |last| last.interval);
        samples.push(sample(parameters, time, period.end, last));
        start = period.after_loss(parameters);
    }
    Ok(samples)
}

fn sample(parameters: &FluidParameters, time: f64, windows: Windows, interval: Interval) -> Sample {
    let queue = (windows.total() - parameters.path()).clamp(0.0, parameters.buffer);
    Sample { time, windows, queue, interval }
}
