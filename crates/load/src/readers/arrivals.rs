//! How long it took until writes could be read.

use std::time::Duration;

use serde::Serialize;

use super::{History, Load};
use crate::replay::Times;
use lull_emulator::Spread;

/// From the beginning of each write until a read has got it, or a later write to the same file: until no
/// older version can be read any more. The precision depends on how often the file was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Arrivals {
    /// Writes.
    pub count: u64,
    /// Writes that no read has got; they count with their age at the end.
    pub missing: u64,
    /// How long.
    #[serde(flatten)]
    pub times: Spread,
}

/// The writes of one file, in order, and how many of them have been read.
#[derive(Clone, Debug, Default)]
struct Versions {
    /// Bodies and when their writes began.
    all: Vec<(u64, Duration)>,
    read: usize,
}

impl Arrivals {
    /// Of a history of reads in one place.
    pub fn of(load: &Load, history: &History) -> Self {
        let mut files = vec![Versions::default(); load.files.len()];
        for one in &history.writes {
            let body = load.written_body(one.write);
            files[load.writes[one.write].file].all.push((body, one.began));
        }
        let mut times = Times::new();
        let mut reads: Vec<_> = history.reads.iter().collect();
        reads.sort_by_key(|seen| seen.ended);
        for seen in reads {
            let Versions { all, read } = &mut files[load.reads[seen.read].file];
            let waiting = all.get(*read..).unwrap_or_default();
            let Some(last) = waiting.iter().position(|(body, _)| *body == seen.body) else {
                continue;
            };
            for (_, began) in &waiting[..=last] {
                times.record(seen.ended.saturating_sub(*began));
            }
            *read += last + 1;
        }
        let mut missing = 0;
        for Versions { all, read } in &files {
            for (_, began) in all.iter().skip(*read) {
                times.record(history.length.saturating_sub(*began));
                missing += 1;
            }
        }
        Arrivals { count: times.count(), missing, times: times.spread() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AnsweredRead, File, Read, Write, Written};
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Two files. The first one is written at 1 s, 2 s and 5 s, the second at 3 s.
    fn arrivals(reads: &[(u64, usize, u64)]) -> Arrivals {
        let file = |name: &str| File { name: name.to_owned(), bytes: 20 };
        let write = |at, file| Write { at: ms(at), file };
        let load = Load {
            files: vec![file("a"), file("b")],
            reads: reads
                .iter()
                .map(|(at, file, _)| Read { at: ms(*at), replica: 0, file: *file })
                .collect(),
            writes: vec![write(1_000, 0), write(2_000, 0), write(3_000, 1), write(5_000, 0)],
        };
        let written = load.writes.iter().enumerate().map(|(write, one)| Written {
            write,
            position: write as u64 + 1,
            began: one.at,
            at: one.at + ms(10),
        });
        let seen = reads.iter().enumerate().map(|(read, (at, _, body))| AnsweredRead {
            read,
            began: ms(*at),
            ended: ms(*at + 100),
            body: *body,
        });
        let history = History {
            reads: seen.collect(),
            writes: written.collect(),
            length: ms(9_000),
            ..History::default()
        };
        Arrivals::of(&load, &history)
    }

    #[test]
    fn write_has_arrived_when_it_or_a_later_one_is_read() {
        // Bodies 1 and 2 are the first ones; those of the writes are 3 to 6.
        let found = arrivals(&[
            (1_500, 0, 1),
            (4_000, 0, 4),
            // A read of an older version than the seen one changes nothing.
            (4_200, 0, 3),
            (4_500, 1, 2),
            (5_900, 1, 5),
            (6_000, 0, 6),
        ]);
        // 3.1 and 2.1 s in one read; 3.0 s; 1.1 s.
        assert_eq!((found.count, found.missing), (4, 0));
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 2e-3;
        assert!(near(found.times.mean_ms, (3_100.0 + 2_100.0 + 3_000.0 + 1_100.0) / 4.0));
        assert!(near(found.times.max_ms, 3_100.0), "{found:?}");
        assert!(near(found.times.p50_ms, 2_100.0), "{found:?}");
    }

    #[test]
    fn unread_write_counts_with_its_age() {
        let found = arrivals(&[(4_000, 0, 3), (4_500, 1, u64::MAX)]);
        assert_eq!((found.count, found.missing), (4, 3));
        assert!((found.times.max_ms / 7_000.0 - 1.0).abs() < 2e-3, "{found:?}");
    }
}
