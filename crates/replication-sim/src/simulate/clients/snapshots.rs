//! Clients that read past states, as a mount shows them below `.lull/`: each is judged as a separate read of
//! that position, because its reader has asked for that one.

use std::collections::BTreeMap;

use lull_replication::types::{Commit, Sequence};

use super::{Clients, Name, Observation};

/// The observations of past states by sessions.
#[derive(Default)]
pub(in super::super) struct Snapshots {
    /// For each session, the replica at which it reads an earlier state, and that state.
    pub(in super::super) within: BTreeMap<usize, (usize, Sequence)>,
    /// The observations with their states.
    pub(in super::super) seen: Vec<(Sequence, Vec<(Name, Observation)>)>,
}

impl Clients {
    /// The past states that were reported wrongly, in words.
    pub(in super::super) fn wrong_snapshots(&self, log: &[Commit]) -> Vec<String> {
        let mut commits = log.iter();
        let mut position = Sequence::ZERO;
        let mut state = BTreeMap::new();
        let mut all: Vec<_> = self.snapshots.seen.iter().collect();
        all.sort_by_key(|(at, _)| *at);
        let mut wrong = Vec::new();
        for (at, seen) in all {
            while position < *at
                && let Some(commit) = commits.next()
            {
                position = commit.sequence;
                state.extend(self.changes(commit));
            }
            let fits = |(name, seen): &(Name, Observation)| {
                let body = state.get(name).copied().flatten();
                match seen {
                    Observation::Body(seen) => body == Some(*seen),
                    Observation::Present => body.is_some(),
                    Observation::Absent => body.is_none(),
                }
            };
            if position != *at || !seen.iter().all(fits) {
                wrong.push(format!("the state {at} was reported as {seen:?}"));
            }
        }
        wrong
    }
}
