//! The result, as far as it does not depend on replication.

use std::time::Duration;

use serde::Serialize;

use super::{History, Load};
use crate::replay::Times;
use lull_emulator::Spread;
use lull_emulator::rounded;

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// From the beginning to the last answer.
    pub seconds: f64,
    /// Files.
    pub files: usize,
    /// Reads that came due.
    pub reads: usize,
    /// Writes that were acknowledged.
    pub writes: usize,
    /// Reads without an answer; their times so far count below.
    pub unanswered: usize,
    /// From `open` to the last byte (SSR §6.3.2.4: from the arrival at the replica to the reply).
    pub response: Spread,
    /// The share of reads that were answered from stored bodies.
    pub hits: Part,
    /// The share of reads that waited.
    pub waited: Part,
    /// The same by replica.
    pub replicas: Vec<Part>,
    /// The age of the news that reads missed.
    pub staleness: Staleness,
    /// How late this program began reads.
    pub late: Spread,
}

/// Some of the reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Part {
    /// How many.
    pub count: u64,
    /// Their response times.
    #[serde(flatten)]
    pub times: Spread,
}

/// For how long a version newer than a read's own had been acknowledged when the read began; zero if there
/// was none (SSR §6.3.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Staleness {
    /// The mean over all reads that were answered, in seconds.
    pub mean_s: f64,
    /// The longest.
    pub max_s: f64,
    /// The part of the reads with a value above zero.
    pub stale: f64,
}

impl Report {
    /// Of a history. A read that took `waits` or longer counts as one that waited.
    pub fn new(load: &Load, history: &History, waits: Duration) -> Self {
        let replicas = load.reads.iter().map(|read| read.replica + 1).max().unwrap_or(0);
        let [mut all, mut hits, mut waited, mut late] = [(); 4].map(|()| Times::new());
        let mut by_replica = vec![Times::new(); replicas];
        let answered = history.reads.iter().map(|seen| (seen.read, seen.ended - seen.began));
        for (read, time) in answered.chain(history.unanswered.iter().copied()) {
            all.record(time);
            if time < waits {
                hits.record(time)
            } else {
                waited.record(time)
            }
            by_replica[load.reads[read].replica].record(time);
        }
        for seen in &history.reads {
            late.record(seen.began.saturating_sub(load.reads[seen.read].at));
        }
        Report {
            seconds: rounded(history.length.as_secs_f64()),
            files: load.files.len(),
            reads: load.reads.len(),
            writes: history.writes.len(),
            unanswered: history.unanswered.len(),
            response: all.spread(),
            hits: Part::of(&hits),
            waited: Part::of(&waited),
            replicas: by_replica.iter().map(Part::of).collect(),
            staleness: Staleness::of(load, history),
            late: late.spread(),
        }
    }
}

impl Part {
    fn of(times: &Times) -> Self {
        Part { count: times.count(), times: times.spread() }
    }
}

impl Staleness {
    fn of(load: &Load, history: &History) -> Self {
        // For each file the bodies in the order of their writes, and when each was acknowledged.
        let mut bodies: Vec<Vec<(u64, Duration)>> = (0..load.files.len())
            .map(|file| vec![(load.first_body(file), Duration::ZERO)])
            .collect();
        for one in &history.writes {
            let file = load.writes[one.write].file;
            bodies[file].push((load.written_body(one.write), one.at));
        }
        let (mut sum, mut max, mut stale) = (Duration::ZERO, Duration::ZERO, 0_u64);
        for seen in &history.reads {
            let bodies = &bodies[load.reads[seen.read].file];
            let got = bodies.iter().position(|(body, _)| *body == seen.body);
            let next = got.and_then(|got| bodies.get(got + 1));
            let age = next.map_or(Duration::ZERO, |(_, at)| seen.began.saturating_sub(*at));
            sum += age;
            max = max.max(age);
            stale += u64::from(!age.is_zero());
        }
        let reads = history.reads.len().max(1) as f64;
        Staleness {
            mean_s: rounded(sum.as_secs_f64() / reads),
            max_s: rounded(max.as_secs_f64()),
            stale: rounded(stale as f64 / reads),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AnsweredRead, File, Read, Write, Written};
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn waiting_and_stale_reads_are_reported() {
        let file = |name: &str| File { name: name.to_owned(), bytes: 20 };
        let read = |at, replica, file| Read { at: ms(at), replica, file };
        let load = Load {
            files: vec![file("a"), file("b")],
            reads: vec![read(0, 0, 0), read(3_000, 0, 0), read(3_500, 1, 0), read(4_000, 1, 1)],
            writes: vec![Write { at: ms(1_000), file: 0 }, Write { at: ms(2_000), file: 0 }],
        };
        let seen = |read, began, ended, body| AnsweredRead {
            read,
            began: ms(began),
            ended: ms(ended),
            body,
        };
        let written = |write, at| {
            let position = write as u64 + 2;
            Written { write, position, began: ms(at), at: ms(at) }
        };
        let history = History {
            reads: vec![
                seen(0, 1, 3, load.first_body(0)),
                // The second write has been acknowledged for a second, and is not seen.
                seen(1, 3_000, 3_300, load.written_body(0)),
                seen(2, 3_500, 3_501, load.written_body(1)),
            ],
            unanswered: vec![(3, ms(6_000))],
            writes: vec![written(0, 1_010), written(1, 2_000)],
            length: ms(10_000),
        };
        let report = Report::new(&load, &history, ms(100));
        assert_eq!((report.reads, report.writes, report.unanswered), (4, 2, 1));
        assert_eq!((report.hits.count, report.waited.count), (2, 2));
        let is = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-3;
        assert!(is(report.hits.times.mean_ms, 1.5), "{report:?}");
        assert!(is(report.response.mean_ms, (2.0 + 300.0 + 1.0 + 6_000.0) / 4.0), "{report:?}");
        let counts: Vec<u64> = report.replicas.iter().map(|part| part.count).collect();
        assert_eq!(counts, [2, 2]);
        assert!(is(report.replicas[1].times.max_ms, 6_000.0), "{report:?}");
        let Staleness { mean_s, max_s, stale } = report.staleness;
        assert!(is(max_s, 1.0) && is(mean_s, 1.0 / 3.0) && is(stale, 1.0 / 3.0), "{report:?}");
        assert!(is(report.late.max_ms, 1.0), "{report:?}");
    }
}
