//! Finds broken promises in a history of writes and reads, in time that grows with its length: each
//! change of the log and each name of a read costs a few look-ups in sorted tables, with their
//! logarithm. (More in `checker/finder.rs`.)
//!
//! The guarantees are those of SSR §6.1. All clients see one order of the commits. The reads of a session and
//! of a replica never go back in it. A transaction is seen as a whole or not at all. Commits acknowledged
//! longer than Δ before the start of a read are reflected in it.
//!
//! With one writer this needs no search: the log is the order. Each read gets the lowest position that fits
//! its observations, is not before its floor, and reflects the commits that Δ requires. Its floor is the
//! highest position of the reads that ended before it began. Order and Δ hold for the same position. A lowest
//! position leaves the most freedom for all later reads. So if a read finds none, no other assignment helps.
//!
//! The bodies identify what was read, independently of the replica: each written body contains a unique
//! number. The absence of a name is a version of it as well. A listing is one read of all possible names.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use finder::Finder;

mod finder;
#[cfg(test)]
mod tests;

/// An object, by a number that the harness gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub u32);

/// A body, by the number that it contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Body(pub u64);

/// The changes of a commit by object: its new body, or none if it is deleted.
pub type Changes = BTreeMap<Name, Option<Body>>;

/// A write that the origin has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The position in its acknowledgement, from 1.
    pub position: u64,
    /// The changes.
    pub changes: Changes,
    /// When the acknowledgement came, by the harness' clock.
    pub at: Duration,
}

/// The observation of a name in a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Observation {
    /// This body.
    Body(Body),
    /// It exists.
    Present,
    /// It does not exist.
    Absent,
}

/// A read that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its session: reads of a session never go back, on any replica.
    pub session: u64,
    /// The answering replica: reads of a replica never go back, for any session.
    pub replica: u64,
    /// When it began, by the harness' clock.
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
    /// Δ promised for this read; none for no bound.
    pub bound: Option<Duration>,
    /// The observations, made at once.
    pub seen: Vec<(Name, Observation)>,
}

/// A broken promise. Reads are named by their place in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// No position fits the whole read: it is of no state that ever existed, for example of one with half a
    /// transaction.
    Torn {
        /// Which read.
        read: usize,
    },
    /// The observation was overwritten at or before the floor: a session or a replica has gone back.
    Back {
        /// Which read.
        read: usize,
        /// The position that the session or the replica had seen.
        floor: u64,
    },
    /// The read reflects less than the commits that were acknowledged longer than Δ before it began.
    Stale {
        /// Which read.
        read: usize,
        /// The position that it had to reflect.
        required: u64,
    },
    /// The read saw something that the log does not contain.
    Phantom {
        /// Which read.
        read: usize,
    },
    /// An acknowledged write is not in the log at its position.
    Lost {
        /// Its position.
        position: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Torn { read } => write!(f, "read {read} saw a state that never was"),
            Violation::Back { read, floor } => {
                write!(f, "read {read} went back behind {floor}, which had been seen before")
            }
            Violation::Stale { read, required } => {
                write!(f, "read {read} was too stale: {required} was acknowledged long before")
            }
            Violation::Phantom { read } => write!(f, "read {read} saw what was never committed"),
            Violation::Lost { position } => {
                write!(f, "the acknowledged write at {position} is lost")
            }
        }
    }
}

/// The log that was recovered at the end, prepared for queries. Writes that were not acknowledged may be in
/// it or not.
#[derive(Debug)]
pub struct Log {
    commits: Vec<Changes>,
    /// By name, its bodies with their positions, ordered by position.
    histories: BTreeMap<Name, Vec<(u64, Option<Body>)>>,
    /// By name and observation, the positions where it first holds.
    positions: BTreeMap<(Name, Observation), Vec<u64>>,
}

impl Log {
    /// The log of these commits, the first at position 1.
    pub fn new(commits: Vec<Changes>) -> Self {
        let mut histories: BTreeMap<Name, Vec<_>> = BTreeMap::new();
        let mut positions: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for (position, changes) in (1..).zip(&commits) {
            for (name, body) in changes {
                histories.entry(*name).or_default().push((position, *body));
                let mut add = |seen| positions.entry((*name, seen)).or_default().push(position);
                match body {
                    Some(body) => {
                        add(Observation::Body(*body));
                        add(Observation::Present);
                    }
                    None => add(Observation::Absent),
                }
            }
        }
        Log { commits, histories, positions }
    }

    fn end(&self) -> u64 {
        self.commits.len() as u64
    }

    /// The body of a name at a position.
    fn at(&self, name: Name, position: u64) -> Option<Body> {
        let history = self.histories.get(&name)?;
        let next = history.partition_point(|(at, _)| *at <= position);
        next.checked_sub(1).and_then(|last| history[last].1)
    }

    fn fits(&self, name: Name, seen: Observation, position: u64) -> bool {
        let now = self.at(name, position);
        match seen {
            Observation::Body(body) => now == Some(body),
            Observation::Present => now.is_some(),
            Observation::Absent => now.is_none(),
        }
    }

    /// The lowest position from `floor` at which the name matches the observation.
    fn earliest(&self, name: Name, seen: Observation, floor: u64) -> Option<u64> {
        if self.fits(name, seen, floor) {
            return Some(floor);
        }
        let positions = self.positions.get(&(name, seen))?;
        positions.get(positions.partition_point(|at| *at <= floor)).copied()
    }
}

/// All broken promises of a history, and nothing else.
pub fn check(log: &Log, acknowledged: &[Acknowledged], reads: &[Read]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for one in acknowledged {
        let at = one.position.checked_sub(1).and_then(|at| usize::try_from(at).ok());
        if at.and_then(|at| log.commits.get(at)) != Some(&one.changes) {
            violations.push(Violation::Lost { position: one.position });
        }
    }
    let required = required(log, acknowledged);
    let mut finder = Finder::new(log);
    // A read that begins at the moment in which another one ends has not begun after it.
    let mut moments: Vec<(Duration, bool, usize)> = Vec::with_capacity(2 * reads.len());
    for (at, read) in reads.iter().enumerate() {
        moments.push((read.began, false, at));
        moments.push((read.ended.max(read.began), true, at));
    }
    moments.sort_unstable();
    let mut sessions: BTreeMap<u64, u64> = BTreeMap::new();
    let mut replicas: BTreeMap<u64, u64> = BTreeMap::new();
    let mut positions = vec![0; reads.len()];
    for (_, ends, at) in moments {
        let read = &reads[at];
        if ends {
            for (floors, key) in [(&mut sessions, read.session), (&mut replicas, read.replica)] {
                let floor = floors.entry(key).or_default();
                *floor = (*floor).max(positions[at]);
            }
            continue;
        }
        let floor_of = |floors: &BTreeMap<u64, u64>, key| floors.get(key).copied().unwrap_or(0);
        let floor = floor_of(&sessions, &read.session).max(floor_of(&replicas, &read.replica));
        match finder.position(&read.seen, floor) {
            Some(position) => {
                let required = read.bound.map_or(0, |bound| required(read.began, bound));
                let fresh = finder.position(&read.seen, position.max(required));
                if fresh.is_none() {
                    violations.push(Violation::Stale { read: at, required });
                }
                // The position required by Δ also binds later reads, even those with a larger Δ.
                positions[at] = fresh.unwrap_or(position);
            }
            None => violations.push(why(&mut finder, read, at, floor)),
        }
    }
    violations
}

/// Why no position fits.
fn why(finder: &mut Finder<'_>, read: &Read, at: usize, floor: u64) -> Violation {
    let never = |(name, seen): &(Name, Observation)| finder.log.earliest(*name, *seen, 0).is_none();
    if read.seen.iter().any(never) {
        Violation::Phantom { read: at }
    } else if finder.position(&read.seen, 0).is_none() {
        Violation::Torn { read: at }
    } else {
        Violation::Back { read: at, floor }
    }
}

/// The position that a read starting then has to reflect, with this Δ.
fn required(log: &Log, acknowledged: &[Acknowledged]) -> impl Fn(Duration, Duration) -> u64 {
    let mut by_time: Vec<(Duration, u64)> =
        acknowledged.iter().map(|one| (one.at, one.position.min(log.end()))).collect();
    by_time.sort_unstable();
    let mut highest = 0;
    for (_, position) in &mut by_time {
        highest = highest.max(*position);
        *position = highest;
    }
    move |began, bound| {
        let Some(before) = began.checked_sub(bound) else { return 0 };
        let count = by_time.partition_point(|(at, _)| *at < before);
        count.checked_sub(1).map_or(0, |last| by_time[last].1)
    }
}
