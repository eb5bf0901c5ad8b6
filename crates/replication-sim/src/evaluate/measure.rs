//! The result of a simulation.

use core::time::Duration;

use lull_replication::replica::WaitReason;
use lull_replication::types::Sequence;

use super::Workload;

/// A distribution, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let Some(max) = values.last().copied() else { return Spread::default() };
        let count = values.len();
        let quantile = |share: f64| {
            let rank = (share * count as f64).ceil() as usize;
            values[rank.clamp(1, count) - 1]
        };
        Spread {
            mean: values.iter().sum::<f64>() / count as f64,
            p50: quantile(0.50),
            p99: quantile(0.99),
            max,
        }
    }
}

/// The result of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// From a read's arrival to its answer. A read without an answer by the end counts as long as it has
    /// waited.
    pub response: Spread,
    /// Reads without an answer by the end, an hour after the last one.
    pub unanswered: u64,
    /// The part of reads that could not be answered at once, by reason. The reasons are: a missing body, an
    /// earlier read that waited, no message of the origin for Δ, and an invalidation being applied.
    pub blocked: [f64; 4],
    /// The part of reads that came while the replica could answer none, because it had no message of the
    /// origin for Δ.
    pub unavailable: f64,
    /// For answered reads: how long before the read a version newer than its own had been written; zero if
    /// there was none (SSR §6.3.2.1).
    pub staleness: Spread,
    /// The part of reads that got an old version.
    pub stale: f64,
    /// Bytes of bodies that reads waited for.
    pub demanded_bytes: u64,
    /// Bytes of bodies that were pushed.
    pub pushed_bytes: u64,
    /// The part of the time until the last read for which the link was busy.
    pub utilisation: f64,
    /// For how long each disconnection was masked: until the first read at any replica that could not
    /// be answered, in the order of the cuts (SSR §6.3.2.3).
    pub masked: Vec<Duration>,
    /// How many of them were masked until the end, and may have been for longer.
    pub masked_to_the_end: u64,
    /// Steps: messages, timers, reads and writes.
    pub steps: u64,
}

/// Records the events.
#[derive(Debug)]
pub(super) struct Tally {
    /// For each object: when it was written, and with which sequence.
    written: Vec<Vec<(Sequence, u64)>>,
    /// When each read arrived, if it did.
    arrived: Vec<Option<u64>>,
    answered: Vec<bool>,
    response: Vec<f64>,
    staleness: Vec<f64>,
    blocked: [u64; 4],
    unavailable: u64,
    pub(super) outcome: Outcome,
}

impl Tally {
    pub(super) fn new(workload: &Workload, first: Sequence) -> Self {
        Tally {
            written: vec![vec![(first, 0)]; workload.objects.len()],
            arrived: vec![None; workload.reads.len()],
            answered: vec![false; workload.reads.len()],
            response: Vec::new(),
            staleness: Vec::new(),
            blocked: [0; 4],
            unavailable: 0,
            outcome: Outcome {
                reads: workload.reads.len() as u64,
                writes: workload.writes.len() as u64,
                ..Outcome::default()
            },
        }
    }

    pub(super) fn wrote(&mut self, now: u64, object: u32, sequence: Sequence) {
        self.written[object as usize].push((sequence, now));
    }

    /// A read has arrived; why it waits, if it does, and why the first one there waits.
    pub(super) fn arrived(
        &mut self,
        now: u64,
        read: usize,
        why: Option<WaitReason>,
        first: Option<WaitReason>,
    ) {
        self.arrived[read] = Some(now);
        let Some(why) = why else { return };
        self.unavailable += u64::from(first == Some(WaitReason::Stale));
        self.blocked[match why {
            WaitReason::Invalid => 0,
            WaitReason::Order => 1,
            WaitReason::Stale => 2,
            WaitReason::Applying | WaitReason::Behind => 3,
        }] += 1;
    }

    /// A read got this version of its object.
    pub(super) fn answered(&mut self, now: u64, read: usize, object: u32, version: Sequence) {
        // A read that did not wait is answered before it is recorded.
        let arrived = *self.arrived[read].get_or_insert(now);
        self.answered[read] = true;
        self.response.push(seconds(now - arrived));
        let written = &self.written[object as usize];
        let next = written.partition_point(|(sequence, _)| *sequence <= version);
        let since = written.get(next).map_or(arrived, |(_, at)| *at);
        self.staleness.push(seconds(arrived.saturating_sub(since)));
    }

    /// Reads that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        let reads = self.arrived.iter().zip(&self.answered).enumerate();
        reads.filter(|(_, (arrived, answered))| arrived.is_some() && !**answered).map(|(at, _)| at)
    }

    pub(super) fn all_answered(&self) -> bool {
        self.response.len() == self.answered.len()
    }

    pub(super) fn finish(mut self, now: u64, hit: Duration) -> Outcome {
        let waited: Vec<f64> = self
            .waiting()
            .filter_map(|read| self.arrived[read])
            .map(|arrived| seconds(now - arrived))
            .collect();
        self.outcome.unanswered = waited.len() as u64;
        self.response.extend(waited);
        self.response.iter_mut().for_each(|time| *time += hit.as_secs_f64());
        let reads = self.outcome.reads.max(1) as f64;
        let stale = self.staleness.iter().filter(|staleness| **staleness > 0.0).count();
        self.outcome.stale = stale as f64 / reads;
        self.outcome.blocked = self.blocked.map(|count| count as f64 / reads);
        self.outcome.unavailable = self.unavailable as f64 / reads;
        self.outcome.response = Spread::of(self.response);
        self.outcome.staleness = Spread::of(self.staleness);
        self.outcome
    }
}

pub(super) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
