//! From the acknowledgement of a write to the last replica that has decoded its invalidation, with the
//! processor time of each. Bodies are off ([`Strategy::DemandOnly`]).
//!
//! Replicas are in this process, on named threads, so that their processor time is separate from that of the
//! origin: its connections, its store, and the writes themselves. The cost of writes is measured first,
//! without a replica.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lull_replication::origin::Strategy;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::offered::{End, Offer, Offered};
use super::processor::Spent;
use super::swarm::{Board, Swarm, join};
use super::times::{Spread, Times, rounded};
use super::{Scratch, Settings, SpeedError, TIMEOUT, knee, origin, raise_files, runtime, tickets};
use crate::daemon::OriginHandle;

/// Connections of a replica; both ends are in this process.
const ENDS: u64 = 6;
/// The threads of the replicas.
const SWARM: &str = "lull-swarm";

/// How fast all replicas were informed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Bytes of each write.
    pub bytes: usize,
    /// The largest permitted p99, in milliseconds.
    pub limit_ms: f64,
    /// By replicas and rate.
    pub points: Vec<Point>,
    /// By replicas.
    pub knees: Vec<Knee>,
}

/// The highest rate at which p99 holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Knee {
    /// Number of replicas.
    pub replicas: u32,
    /// The rate, with p99 holding there and at all lower ones; none if it holds at none.
    pub rate: Option<u32>,
}

/// A number of replicas at one rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Replicas.
    pub replicas: u32,
    /// Offered writes per second.
    pub rate: u32,
    /// Writes that were due, of those that count.
    pub due: u64,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Invalidations not decoded by all replicas, ten seconds after the last one that arrived.
    pub undelivered: u64,
    /// Invalidations that were decoded, of all writes and by all replicas.
    pub delivered: u64,
    /// From the acknowledgement to the last replica that has decoded the invalidation; ten seconds if
    /// not all have.
    pub decoded: Spread,
    /// The same from when the write was due.
    pub from_due: Spread,
    /// How much later than due writes were sent.
    pub late: Spread,
    /// Processor time of a write without replicas, in microseconds.
    pub write_cpu_us: f64,
    /// The origin's processor time for a delivered invalidation, without that.
    pub cpu_us: f64,
    /// The processor time of origin and replica for it, with the writes.
    pub all_cpu_us: f64,
    /// Whether p99 is within the limit.
    pub holds: bool,
}

/// Offers writes to origins, with each of these numbers of replicas.
///
/// # Errors
/// If the origin or a replica fails, the folder cannot be used, or the system allows too few open files.
pub fn run(settings: &Settings, replicas: &[u32]) -> Result<Report, SpeedError> {
    if let Some(most) = replicas.iter().max() {
        raise_files(*most, ENDS)?;
    }
    let (mut points, mut knees) = (Vec::new(), Vec::new());
    for replicas in replicas {
        let mut own = Vec::new();
        for rate in &settings.rates {
            own.push(point(settings, *replicas, *rate)?);
        }
        let rate = knee(own.iter().map(|point: &Point| (point.rate, point.holds)).collect());
        knees.push(Knee { replicas: *replicas, rate });
        points.extend(own);
    }
    let limit_ms = settings.limit_ms();
    Ok(Report { bytes: settings.size, limit_ms, points, knees })
}

fn point(settings: &Settings, replicas: u32, rate: u32) -> Result<Point, SpeedError> {
    let folder = settings.folder.join(format!("fan-out-{replicas}-{rate}"));
    let scratch = Scratch::new(folder)?;
    let (ours, theirs) = (runtime("lull-origin")?, runtime(SWARM)?);
    let daemon = ours.block_on(origin(&scratch.0.join("origin"), Strategy::DemandOnly))?;
    let handle = daemon.handle();
    let offer = settings.offer(rate);
    let (alone, spent) = offered(&ours, &handle, offer)?;
    let write_cpu_us = each(spent.all, alone.acknowledged());

    let tickets = tickets(&daemon, replicas)?;
    let identities = theirs.block_on(join(&scratch.0, tickets))?;
    let position = handle.tree().position;
    let first = alone.writes.len() as u64;
    let board = Arc::new(Board::new(position.sequence, first));
    let mut swarm = theirs.block_on(Swarm::connect(identities, position, &board))?;
    let before = Spent::of(SWARM)?;
    let (mut made, _) = offered(&ours, &handle, Offer { first, ..offer })?;
    let expected = made.acknowledged() * u64::from(replicas);
    let complete = theirs.block_on(swarm.wait(&board, expected))?;
    let spent = Spent::of(SWARM)?.since(before);
    theirs.block_on(swarm.stop())?;
    let delivered = board.decoded();
    // An unanswered write may have been committed.
    let most = (made.acknowledged() + made.count(|end| *end == End::Unanswered))
        .saturating_mul(u64::from(replicas));
    if delivered > most || (complete && delivered < expected) {
        let text = format!("{delivered} invalidations were decoded, of {expected}");
        return Err(SpeedError::Sums(text));
    }
    ours.block_on(daemon.stop())?;

    let writes = Duration::from_secs_f64(made.acknowledged() as f64 * write_cpu_us / 1e6);
    let cpu_us = each(spent.others().saturating_sub(writes), delivered);
    let all_cpu_us = each(spent.all, delivered);
    made.writes.retain(|write| write.due >= settings.settle);
    let (mut decoded, mut from_due, mut undelivered) = (Times::new(), Times::new(), 0);
    for write in &made.writes {
        let at = match write.end {
            End::Acknowledged(sequence, at) => {
                board.last(sequence, replicas).map(|last| (made.begun + at, last))
            }
            End::Refused | End::Unanswered => None,
        };
        undelivered += u64::from(at.is_none());
        // A replica may learn of a write before its writer does.
        let after = |from: Instant| at.map_or(TIMEOUT, |(_, last)| last.duration_since(from));
        decoded.add(at.map_or(TIMEOUT, |(acknowledged, _)| after(acknowledged)));
        from_due.add(after(made.begun + write.due));
    }
    let late: Times = made.writes.iter().map(|write| write.late()).collect();
    let decoded = decoded.spread();
    Ok(Point {
        replicas,
        rate,
        due: made.writes.len() as u64,
        acknowledged: made.acknowledged(),
        undelivered,
        delivered,
        decoded,
        from_due: from_due.spread(),
        late: late.spread(),
        write_cpu_us,
        cpu_us,
        all_cpu_us,
        holds: decoded.p99_ms <= settings.limit_ms(),
    })
}

/// Makes the writes; returns their processor time.
fn offered(
    runtime: &Runtime,
    handle: &OriginHandle,
    offer: Offer,
) -> Result<(Offered, Spent), SpeedError> {
    let before = Spent::of(SWARM)?;
    let made = runtime.block_on(offer.make(handle))?;
    Ok((made, Spent::of(SWARM)?.since(before)))
}

/// Microseconds per item.
fn each(spent: Duration, count: u64) -> f64 {
    rounded(spent.as_secs_f64() * 1e6 / count.max(1) as f64)
}
