//! Whether a run has shown anything: a run in which no read was possible has no violations either.

use std::collections::BTreeMap;
use std::time::Duration;

use super::history::{Fault, History, Read, ReadContents, SINGLES, Skews};
use super::site::MOUNTS;

/// From this length on every kind of fault has to occur, with enough reads meanwhile and in between. Of the
/// clocks of replicas some have to be found close to the origin's, and some too far.
const MINUTE: Duration = Duration::from_secs(60);
/// The part of the reads that must be during faults.
const MIN_DURING_FAULTS: f64 = 0.2;
/// The length of a full run, for which the minima hold.
const FULL: Duration = Duration::from_secs(1_800);
const READS: usize = 1_000_000;
const WRITES: usize = 10_000;
const OF_EACH_FAULT: u64 = 100;

/// A kind of reads.
type Kind = (&'static str, fn(&Read) -> bool);

/// Each of these has to be answered by each replica.
const KINDS: [Kind; 4] = [
    ("by HTTP", |read| read.session < MOUNTS),
    ("as a file in the mount", |read| {
        is_in_mount(read) && matches!(read.seen, ReadContents::One(..))
    }),
    ("as a listing in the mount", |read| matches!(read.seen, ReadContents::Listing(_))),
    ("as an earlier state in the mount", |read| read.seen.state().is_some()),
];

fn is_in_mount(read: &Read) -> bool {
    read.session >= MOUNTS
}

/// The coverage of a run.
#[derive(Clone, Debug)]
struct Coverage {
    reads: usize,
    during_faults: usize,
    writes: usize,
    faults: BTreeMap<Fault, u64>,
    /// By replica.
    in_calm: Vec<usize>,
    skews: Skews,
}

/// The missing events of a finished run, in words.
pub(super) fn missing_events(length: Duration, history: &History) -> Vec<String> {
    let mut lacking = silent(history);
    let coverage = Coverage {
        reads: history.reads.len(),
        during_faults: history.reads_during_faults(),
        writes: history.writes.len(),
        faults: history.faults_by_kind(),
        in_calm: history.reads_in_calm(),
        skews: history.skews,
    };
    lacking.extend(missing_coverage(length, &coverage));
    lacking
}

/// Kinds of clients that were never answered during faults.
fn silent(history: &History) -> Vec<String> {
    let mut silent = Vec::new();
    // Reads after the final repair belong to the end, and not to the run.
    let reads = history.reads.iter().take(history.last_reads);
    for replica in 0..history.bounds.len() {
        let of_it = reads.clone().filter(|read| usize::from(read.replica) == replica);
        for (kind, is_it) in KINDS {
            if !of_it.clone().any(is_it) {
                silent.push(format!("nothing was read {kind} at replica {replica}"));
            }
        }
    }
    // And so is the last write.
    let writes = history.writes.iter().rev().skip(1);
    let objects = writes.flat_map(|write| write.changes.iter().map(|(object, _)| *object));
    for (kind, is_it) in [("one by one", true), ("together", false)] {
        if !objects.clone().any(|object| (object < SINGLES) == is_it) {
            silent.push(format!("nothing was written {kind}"));
        }
    }
    silent
}

/// The events of which a run of this length had too few.
fn missing_coverage(length: Duration, coverage: &Coverage) -> Vec<String> {
    let Coverage { reads, during_faults, writes, faults, in_calm, skews } = coverage;
    let mut lacking = Vec::new();
    if length >= FULL {
        if *reads < READS {
            lacking.push(format!("{reads} reads are less than {READS}"));
        }
        if *writes < WRITES {
            lacking.push(format!("{writes} writes are less than {WRITES}"));
        }
    }
    if length >= MINUTE {
        if (*during_faults as f64) < MIN_DURING_FAULTS * *reads as f64 {
            lacking.push(format!("{during_faults} of {reads} reads during faults are too few"));
        }
        let least = if length >= FULL { OF_EACH_FAULT } else { 1 };
        for (fault, count) in faults.iter().filter(|(_, count)| **count < least) {
            lacking.push(format!("{} came {count} times, not {least}", fault.name()));
        }
        for replica in (0..in_calm.len()).filter(|replica| in_calm[*replica] == 0) {
            lacking.push(format!("nothing was read without faults at replica {replica}"));
        }
        for (count, what) in [
            (skews.told, "reported that the wall clocks are too far apart"),
            (skews.too_far, "found them too far apart when it was asked"),
            (skews.close, "found them close when it was asked"),
        ] {
            if count == 0 {
                lacking.push(format!("no replica {what}"));
            }
        }
    }
    lacking
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::torture::history::{Bounds, TOGETHER, Write};

    const REPLICAS: u8 = 2;

    /// A run in which each kind of client was answered once by each replica.
    fn history() -> History {
        let time = Duration::ZERO;
        let mounted = [
            ReadContents::One(0, None),
            ReadContents::Listing(0),
            ReadContents::Together(0, [None; TOGETHER as usize]),
        ];
        let mut reads = Vec::new();
        for replica in 0..REPLICAS {
            let read = |session, seen| Read { session, replica, began: time, ended: time, seen };
            reads.push(read(10, ReadContents::One(0, None)));
            reads.extend(mounted.map(|seen| read(MOUNTS + u32::from(replica), seen)));
        }
        let write = |object| Write { position: 1, changes: vec![(object, None)], at: time };
        let bounds = Bounds { connected: time, disconnected: time };
        History {
            last_reads: reads.len(),
            reads,
            writes: vec![write(0), write(SINGLES), write(0)],
            bounds: vec![bounds; usize::from(REPLICAS)],
            ..History::default()
        }
    }

    #[test]
    fn each_replica_must_answer_each_kind_of_client() {
        assert_eq!(missing_events(Duration::from_secs(20), &history()), [""; 0]);
        let whole = history();
        for missing in 0..whole.reads.len() {
            let mut history = whole.clone();
            // The reads at the end do not make up for it.
            let read = history.reads.remove(missing);
            history.last_reads -= 1;
            history.reads.push(read);
            let said = missing_events(Duration::from_secs(20), &history);
            assert_eq!(said.len(), 1, "{read:?}: {said:?}");
            assert!(said[0].ends_with(&format!("at replica {}", read.replica)), "{said:?}");
        }
        for (missing, words) in [(0, "one by one"), (1, "together")] {
            let mut history = whole.clone();
            history.writes.remove(missing);
            assert_eq!(
                missing_events(Duration::from_secs(20), &history),
                [format!("nothing was written {words}")]
            );
        }
        assert_eq!(
            missing_events(Duration::from_secs(1), &History::default()).len(),
            2,
            "nothing was written"
        );
    }

    fn coverage(reads: usize, during_faults: usize, writes: usize, of_each: u64) -> Coverage {
        let faults = Fault::ALL.map(|fault| (fault, of_each)).into();
        let skews = Skews { told: 1, too_far: 1, close: 1 };
        Coverage { reads, during_faults, writes, faults, in_calm: vec![1; 2], skews }
    }

    #[test]
    fn longer_run_must_show_more() {
        for (seconds, coverage, expected) in [
            (59, coverage(100, 0, 1, 0), 0),
            (60, coverage(100, 20, 1, 1), 0),
            (60, coverage(100, 19, 1, 1), 1),
            (60, coverage(100, 20, 1, 0), Fault::ALL.len()),
            (1_799, coverage(100, 20, 1, 1), 0),
            (1_800, coverage(1_000_000, 200_000, 10_000, 100), 0),
            (1_800, coverage(999_999, 200_000, 10_000, 100), 1),
            (1_800, coverage(1_000_000, 199_999, 10_000, 100), 1),
            (1_800, coverage(1_000_000, 200_000, 9_999, 100), 1),
            (1_800, coverage(1_000_000, 200_000, 10_000, 99), Fault::ALL.len()),
        ] {
            let said = missing_coverage(Duration::from_secs(seconds), &coverage);
            assert_eq!(said.len(), expected, "{seconds} s, {coverage:?}: {said:?}");
        }
        let mut one = coverage(100, 20, 1, 1);
        one.faults.insert(Fault::Kill, 0);
        assert_eq!(missing_coverage(MINUTE, &one), ["kill came 0 times, not 1"]);
        let hollow =
            Coverage { in_calm: vec![1, 0], skews: Skews::default(), ..coverage(100, 20, 1, 1) };
        assert_eq!(
            missing_coverage(MINUTE, &hollow),
            [
                "nothing was read without faults at replica 1",
                "no replica reported that the wall clocks are too far apart",
                "no replica found them too far apart when it was asked",
                "no replica found them close when it was asked",
            ]
        );
    }

    #[test]
    fn documented_run_shows_enough_without_violation() {
        let kept = include_str!("../../../../report/torture.json");
        let kept: Value = serde_json::from_str(kept).expect("JSON");
        let number = |name: &str| kept[name].as_u64().expect("a number");
        let faults = Fault::ALL
            .map(|fault| (fault, kept["faults"][fault.name()].as_u64().expect("a number")));
        let skew = |name: &str| kept["skews"][name].as_u64().expect("a number");
        let coverage = Coverage {
            reads: number("reads") as usize,
            during_faults: number("reads_during_faults") as usize,
            writes: number("writes") as usize,
            faults: faults.into(),
            in_calm: vec![number("reads_in_calm") as usize],
            skews: Skews { told: skew("told"), too_far: skew("too_far"), close: skew("close") },
        };
        let seconds = kept["seconds"].as_f64().expect("a number");
        assert!(seconds >= FULL.as_secs_f64(), "{seconds} s");
        assert_eq!(missing_coverage(FULL, &coverage), [""; 0]);
        assert_eq!((number("violations"), number("lost_writes")), (0, 0), "promises were kept");
        assert_eq!(kept["failures"], Value::Array(Vec::new()), "and nothing else went wrong");
    }
}
