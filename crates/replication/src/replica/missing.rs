//! Bodies that are to come again, and what is known about those that do not come.

use std::collections::{BTreeMap, BTreeSet};

use super::demands::Demands;
use crate::lane::{Lane, Lanes};
use crate::path::Path;
use crate::time::LocalTime;
use crate::types::Sequence;

/// Bodies that are not here: asked for, rejected or lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct MissingBodies {
    /// Demanded bodies.
    pub(super) demands: Demands,
    /// A waiting read needs a body for which its lane has no room. Later reads ask for none of that lane.
    pub(super) held_back: [bool; Lane::COUNT],
    /// Objects for which the origin had no body, and until when they are not requested again.
    pub(super) unanswered: Unanswered,
    /// Of these, those whose body the origin has lost, and in which version.
    pub(super) lost: BTreeMap<Path, Sequence>,
    /// Versions whose bodies found no room on the disk, or broke off with their connection. The origin is to send
    /// them again.
    rejected: BTreeMap<Path, Sequence>,
    /// Versions whose bodies came on this connection with wrong bytes.
    corrupt: BTreeMap<Path, Sequence>,
}

/// Objects with a time, by object and by time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Unanswered {
    until: BTreeMap<Path, LocalTime>,
    by_time: BTreeSet<(LocalTime, Path)>,
}

impl Unanswered {
    pub(super) fn add(&mut self, path: Path, until: LocalTime) {
        if let Some(before) = self.until.insert(path.clone(), until) {
            self.by_time.remove(&(before, path.clone()));
        }
        self.by_time.insert((until, path));
    }

    pub(super) fn get(&self, path: &Path) -> Option<&LocalTime> {
        self.until.get(path)
    }

    pub(super) fn len(&self) -> usize {
        self.until.len()
    }

    /// The time of the first one.
    pub(super) fn first(&self) -> Option<LocalTime> {
        self.by_time.first().map(|(until, _)| *until)
    }

    /// Removes the ones whose time has come.
    pub(super) fn expire(&mut self, now: LocalTime) {
        while self.first().is_some_and(|until| until <= now)
            && let Some((_, path)) = self.by_time.pop_first()
        {
            self.until.remove(&path);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Unanswered::default();
    }
}

impl MissingBodies {
    pub(super) fn new(lanes: Lanes) -> Self {
        MissingBodies { demands: Demands::new(lanes), ..MissingBodies::default() }
    }

    /// The body of a version is to come again.
    pub(super) fn reject(&mut self, path: Path, sequence: Sequence) {
        let known = self.rejected.entry(path).or_default();
        *known = sequence.max(*known);
    }

    /// The body of a version came with wrong bytes; whether for the first time on this connection. It waits for the
    /// next connection then, or for a read, so that this one is not filled with it.
    pub(super) fn corrupt(&mut self, path: Path, sequence: Sequence) -> bool {
        self.corrupt.insert(path, sequence) != Some(sequence)
    }

    /// The connection that has corrupted bodies is gone: they are to come again.
    pub(super) fn reject_corrupt(&mut self) {
        for (path, sequence) in core::mem::take(&mut self.corrupt) {
            self.reject(path, sequence);
        }
    }

    /// A body was received and kept: nothing older than it has to come again.
    pub(super) fn accept(&mut self, path: &Path, sequence: Sequence) {
        for gone in [&mut self.rejected, &mut self.corrupt] {
            if gone.get(path).is_some_and(|known| *known <= sequence) {
                gone.remove(path);
            }
        }
    }

    /// A version whose body is to be asked for again.
    pub(super) fn poll_rejected(&mut self) -> Option<(Path, Sequence)> {
        self.rejected.pop_first()
    }

    /// The origin has a list of all missing bodies.
    pub(super) fn forget_rejected(&mut self) {
        self.rejected.clear();
    }

    /// Nothing that was asked for comes any more.
    pub(super) fn forget_demands(&mut self) {
        self.demands.clear();
        self.unanswered.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unanswered_demand_expires_at_its_last_time() {
        let (mut unanswered, at) = (Unanswered::default(), LocalTime::from_nanos);
        unanswered.add(path(), at(5));
        unanswered.add(path(), at(9));
        unanswered.expire(at(8));
        assert_eq!((unanswered.len(), unanswered.first()), (1, Some(at(9))));
        unanswered.expire(at(9));
        assert_eq!(unanswered, Unanswered::default());
    }

    fn path() -> Path {
        Path::new("file").expect("a path")
    }

    #[test]
    fn newest_rejected_version_is_asked_for_once() {
        let mut missing = MissingBodies::default();
        for sequence in [3, 5, 4] {
            missing.reject(path(), Sequence(sequence));
        }
        assert_eq!(missing.poll_rejected(), Some((path(), Sequence(5))));
        assert_eq!(missing.poll_rejected(), None);
    }

    #[test]
    fn corrupt_body_waits_for_the_next_connection() {
        let mut missing = MissingBodies::default();
        assert!(missing.corrupt(path(), Sequence(3)));
        assert!(!missing.corrupt(path(), Sequence(3)));
        assert_eq!(missing.poll_rejected(), None);
        missing.reject_corrupt();
        assert_eq!(missing.poll_rejected(), Some((path(), Sequence(3))));
    }

    #[test]
    fn accepted_body_settles_versions_up_to_its_own() {
        let mut missing = MissingBodies::default();
        missing.reject(path(), Sequence(3));
        missing.corrupt(path(), Sequence(3));
        missing.accept(&path(), Sequence(2));
        assert_eq!(missing.clone().poll_rejected(), Some((path(), Sequence(3))));
        missing.accept(&path(), Sequence(3));
        missing.reject_corrupt();
        assert_eq!(missing.poll_rejected(), None);
    }
}
