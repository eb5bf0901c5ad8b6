//! Finds broken promises in a history over many logs. It uses no stamp and no token: what a commit depends on
//! follows from the history.
//!
//! The promises:
//!
//! - **Causal order.** A session has seen what it wrote and read, and everything that this depends on. A commit
//!   depends on all that its session had seen, and on the commits before it in its log. No later read of the
//!   session shows less.
//! - **Atomicity.** A commit is seen as a whole or not at all.
//! - **Staleness.** A read of a subtree shows all commits there that were acknowledged more than Δ before it
//!   began.
//! - **Durability.** An acknowledged commit stays in its log.
//!
//! It needs no search. Each read gets the least state, as a [`Vector`], that contains what the read saw, what
//! its session had seen, what Δ requires, and all that these depend on. The read is right if that state has
//! overwritten nothing that the read saw. States that fit are closed under the least upper bound, so if the
//! least one does not fit, none does; and it leaves the most freedom for later reads.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::{Object, SessionId, Vector, WriteId, WriterId};

/// A commit in the log that was found at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Its write.
    pub write: WriteId,
    /// The changed objects.
    pub objects: BTreeSet<Object>,
}

/// The observations of the clients, in the order of time. A session does one thing after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session began a write.
    Began {
        /// Which session.
        session: SessionId,
        /// The write.
        write: WriteId,
    },
    /// A session got the acknowledgement of its write.
    Acknowledged {
        /// Which session.
        session: SessionId,
        /// The write.
        write: WriteId,
        /// In which log.
        writer: WriterId,
        /// Its position there, from 1.
        position: u64,
        /// When the writer acknowledged it.
        at: Duration,
    },
    /// A session got the answer to a read.
    Read {
        /// Which session.
        session: SessionId,
        /// When it began.
        began: Duration,
        /// The values, seen at once.
        seen: BTreeMap<Object, WriteId>,
    },
}

/// A broken promise. Events are named by their place in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An acknowledged write is not in its log at its position.
    Lost {
        /// The write.
        write: WriteId,
    },
    /// A read saw a value that was not committed when it ended.
    Phantom {
        /// Which event.
        event: usize,
    },
    /// A read saw a part of a commit.
    Torn {
        /// Which event.
        event: usize,
    },
    /// A session did not see its own write.
    OwnWrite {
        /// Which event.
        event: usize,
    },
    /// A session saw less of a log than in an earlier read.
    Back {
        /// Which event.
        event: usize,
    },
    /// A read did not see something that it depends on.
    Causal {
        /// Which event.
        event: usize,
    },
    /// A read saw less than Δ requires.
    Stale {
        /// Which event.
        event: usize,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Lost { write } => write!(f, "the acknowledged write {} is lost", write.0),
            Violation::Phantom { event } => write!(f, "event {event} saw what was not committed"),
            Violation::Torn { event } => write!(f, "event {event} saw a part of a commit"),
            Violation::OwnWrite { event } => write!(f, "event {event} missed its session's write"),
            Violation::Back { event } => {
                write!(f, "event {event} saw less than its session before")
            }
            Violation::Causal { event } => write!(f, "event {event} missed what it depends on"),
            Violation::Stale { event } => write!(f, "event {event} was too stale"),
        }
    }
}

/// The observations of a session.
#[derive(Clone, Debug)]
struct Seen {
    /// Its own acknowledged writes.
    written: Vector,
    /// The positions that it read directly.
    read: Vector,
    /// All of it with its dependencies.
    all: Vector,
}

/// The logs, and what is known of them so far.
struct Logs<'a> {
    logs: &'a [Vec<Logged>],
    /// The positions of the commits that wrote an object.
    written: BTreeMap<Object, Vec<u64>>,
    positions: BTreeMap<WriteId, (WriterId, u64)>,
    /// By write that has begun, what its session had seen.
    began: BTreeMap<WriteId, Vector>,
    /// By log, the dependencies of its first commits, each with those before it.
    stamps: Vec<Vec<Vector>>,
}

impl<'a> Logs<'a> {
    fn new(logs: &'a [Vec<Logged>]) -> Self {
        let mut written: BTreeMap<Object, Vec<u64>> = BTreeMap::new();
        let mut positions = BTreeMap::new();
        for (writer, log) in logs.iter().enumerate() {
            for (position, commit) in (1..).zip(log) {
                positions.insert(commit.write, (WriterId(writer), position));
                for object in &commit.objects {
                    written.entry(*object).or_default().push(position);
                }
            }
        }
        let stamps = vec![Vec::new(); logs.len()];
        Logs { logs, written, positions, began: BTreeMap::new(), stamps }
    }

    /// The position that wrote this value of the object.
    fn wrote(&self, object: Object, value: WriteId) -> Option<u64> {
        if value == WriteId::default() {
            return Some(0);
        }
        let (_, position) = *self.positions.get(&value).filter(|(of, _)| *of == object.owner)?;
        let written = self.written.get(&object)?;
        written.binary_search(&position).is_ok().then_some(position)
    }

    /// The position that overwrote what the object was at this one.
    fn overwrote(&self, object: Object, position: u64) -> Option<u64> {
        let written = self.written.get(&object)?;
        written.get(written.partition_point(|at| *at <= position)).copied()
    }

    /// The dependencies of the first commits of a log; none if one of them has not begun.
    fn stamp(&mut self, writer: WriterId, position: u64) -> Option<Vector> {
        let count = usize::try_from(position).ok()?;
        while self.stamps[writer.0].len() < count {
            let at = self.stamps[writer.0].len();
            let mut stamp = self.began.get(&self.logs[writer.0].get(at)?.write)?.clone();
            if let Some(before) = self.stamps[writer.0].last() {
                stamp.join(before);
            }
            stamp.raise(writer, at as u64 + 1);
            self.stamps[writer.0].push(stamp);
        }
        let Some(last) = count.checked_sub(1) else { return Some(Vector::zero(self.logs.len())) };
        self.stamps[writer.0].get(last).cloned()
    }

    /// The least state with these commits and all that they depend on.
    fn closed(&mut self, mut state: Vector) -> Option<Vector> {
        // The observations of a session are closed, so stamps are, and one round is enough.
        for writer in (0..self.logs.len()).map(WriterId) {
            state.join(&self.stamp(writer, state.get(writer))?);
        }
        Some(state)
    }
}

/// All broken promises of a history, and nothing else.
pub fn check(logs: &[Vec<Logged>], history: &[Event], delta: Duration) -> Vec<Violation> {
    let zero = Vector::zero(logs.len());
    let nothing = Seen { written: zero.clone(), read: zero.clone(), all: zero };
    let mut logs = Logs::new(logs);
    let mut sessions: BTreeMap<SessionId, Seen> = BTreeMap::new();
    let mut acknowledged: Vec<(WriterId, Duration, u64)> = Vec::new();
    let mut violations = Vec::new();
    for (at, event) in history.iter().enumerate() {
        let (Event::Began { session, .. }
        | Event::Acknowledged { session, .. }
        | Event::Read { session, .. }) = event;
        let session = sessions.entry(*session).or_insert_with(|| nothing.clone());
        match event {
            Event::Began { write, .. } => {
                logs.began.insert(*write, session.all.clone());
            }
            Event::Acknowledged { write, writer, position, at, .. } => {
                if logs.positions.get(write) != Some(&(*writer, *position)) {
                    violations.push(Violation::Lost { write: *write });
                    continue;
                }
                acknowledged.push((*writer, *at, *position));
                session.written.raise(*writer, *position);
                session.all.raise(*writer, *position);
                if let Some(all) = logs.closed(session.all.clone()) {
                    session.all = all;
                }
            }
            Event::Read { began, seen, .. } => {
                let limit = began.saturating_sub(delta);
                let required = |writer: WriterId| {
                    let old =
                        acknowledged.iter().filter(|(of, at, _)| *of == writer && *at < limit);
                    old.map(|(.., position)| *position).max().unwrap_or(0)
                };
                violations.extend(check_read(&mut logs, session, seen, required, at));
            }
        }
    }
    violations
}

/// The first broken promise of a read. The session has then seen what the read requires.
fn check_read(
    logs: &mut Logs<'_>,
    session: &mut Seen,
    seen: &BTreeMap<Object, WriteId>,
    required: impl Fn(WriterId) -> u64,
    event: usize,
) -> Option<Violation> {
    let mut least = Vector::zero(logs.logs.len());
    for (object, value) in seen {
        let Some(position) = logs.wrote(*object, *value) else {
            return Some(Violation::Phantom { event });
        };
        least.raise(object.owner, position);
    }
    let mut overwritten: BTreeMap<WriterId, u64> = BTreeMap::new();
    for (object, value) in seen {
        let position = logs.wrote(*object, *value).unwrap_or(0);
        if let Some(next) = logs.overwrote(*object, position) {
            let first = overwritten.entry(object.owner).or_insert(next);
            *first = next.min(*first);
        }
    }
    let fits = |state: &Vector| overwritten.iter().all(|(writer, at)| state.get(*writer) < *at);
    if !fits(&least) {
        return Some(Violation::Torn { event });
    }
    let mut seen_before = least.clone();
    seen_before.join(&session.all);
    let mut with_delta = seen_before.clone();
    for object in seen.keys() {
        with_delta.raise(object.owner, required(object.owner));
    }
    let (Some(seen_before), Some(all)) = (logs.closed(seen_before), logs.closed(with_delta)) else {
        return Some(Violation::Phantom { event });
    };
    let broken = if !fits(&session.written) {
        Some(Violation::OwnWrite { event })
    } else if !fits(&session.read) {
        Some(Violation::Back { event })
    } else if !fits(&seen_before) {
        Some(Violation::Causal { event })
    } else if !fits(&all) {
        Some(Violation::Stale { event })
    } else {
        None
    };
    session.read.join(&least);
    session.all = if broken.is_none() { all } else { seen_before };
    broken
}
