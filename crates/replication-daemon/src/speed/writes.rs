//! Durable writes: how long an acknowledgement takes at each offered rate.

use lull_replication::origin::Strategy;
use serde::Serialize;

use super::offered::End;
use super::times::{Spread, Times, rounded};
use super::{Scratch, Settings, SpeedError, knee, origin, runtime};

/// The response times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Writers.
    pub writers: u32,
    /// Bytes of each write.
    pub bytes: usize,
    /// The largest permitted p99, in milliseconds.
    pub limit_ms: f64,
    /// By rate.
    pub points: Vec<Point>,
    /// The highest rate at which p99 holds, as at all lower ones; none if it holds at none.
    pub knee: Option<u32>,
}

/// The same for one rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Offered writes per second.
    pub rate: u32,
    /// Writes that were due.
    pub due: u64,
    /// Writes that are durable.
    pub acknowledged: u64,
    /// Writes rejected because too many waited for the disk.
    pub refused: u64,
    /// Writes without an answer ten seconds after the last one was due.
    pub unanswered: u64,
    /// Acknowledged per second.
    pub per_second: f64,
    /// From when it was due to the acknowledgement; a missing one counts as ten seconds.
    pub acknowledgement: Spread,
    /// How much later than due writes were sent: a part of the times.
    pub late: Spread,
    /// Whether p99 is within the limit.
    pub holds: bool,
}

/// Offers writes, rate by rate.
///
/// # Errors
/// If the origin fails, or the folder cannot be used.
pub fn run(settings: &Settings) -> Result<Report, SpeedError> {
    let mut points = Vec::new();
    for rate in &settings.rates {
        points.push(runtime("lull-origin")?.block_on(point(settings, *rate))?);
    }
    let knee = knee(points.iter().map(|point| (point.rate, point.holds)).collect());
    let limit_ms = settings.limit_ms();
    Ok(Report { writers: settings.writers, bytes: settings.size, limit_ms, points, knee })
}

async fn point(settings: &Settings, rate: u32) -> Result<Point, SpeedError> {
    let scratch = Scratch::new(settings.folder.join(format!("writes-{rate}")))?;
    let daemon = origin(&scratch.0, Strategy::default()).await?;
    let handle = daemon.handle();
    let mut offered = settings.offer(rate).make(&handle).await?;
    let (acknowledged, states) = (offered.acknowledged(), handle.last().0);
    // Unanswered writes may have happened.
    let most = acknowledged + offered.count(|end| *end == End::Unanswered);
    if !(acknowledged..=most).contains(&states) {
        let text = format!("{acknowledged} writes were acknowledged, and {states} are in the log");
        return Err(SpeedError::Sums(text));
    }
    daemon.stop().await?;
    offered.writes.retain(|write| write.due >= settings.settle);
    let times: Times = offered.writes.iter().map(|write| write.time()).collect();
    let late: Times = offered.writes.iter().map(|write| write.late()).collect();
    let acknowledged = offered.acknowledged();
    let acknowledgement = times.spread();
    Ok(Point {
        rate,
        due: offered.writes.len() as u64,
        acknowledged,
        refused: offered.count(|end| *end == End::Refused),
        unanswered: offered.count(|end| *end == End::Unanswered),
        per_second: rounded(acknowledged as f64 / settings.length.as_secs_f64()),
        acknowledgement,
        late: late.spread(),
        holds: acknowledgement.p99_ms <= settings.limit_ms(),
    })
}
