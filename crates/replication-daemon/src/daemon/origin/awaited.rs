//! Bodies that replicas are awaited to have.

use ::core::ops::Bound;
use std::sync::Arc;

use lull_replication::origin::Origin;
use lull_replication::path::Path;
use lull_replication::types::{Change, ReplicaId, Sequence};

use crate::store::Body;

/// The number of bodies that are checked under the lock.
const AT_ONCE: usize = 1_000;

/// A state that replicas are to have, with bodies or without.
#[derive(Debug)]
pub(super) struct Awaited {
    at: Sequence,
    bodies: AwaitedBodies,
}

/// Which bodies.
#[derive(Debug)]
pub(super) enum AwaitedBodies {
    Nothing,
    /// The bodies of the commit that made the state. Its changes are kept once it is there: the log may drop them
    /// meanwhile.
    Commit(Option<Arc<[Change]>>),
    /// The bodies of all files whose paths have this prefix.
    Files(Vec<u8>),
}

/// How many of them a replica was found to have.
#[derive(Debug, Default)]
pub(super) struct CheckPosition {
    changes: usize,
    file: Option<Path>,
}

/// The result of a check of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckResult {
    /// It has everything that is waited for.
    All,
    /// There are more versions to check.
    More,
    /// Something is missing.
    Waits,
}

impl Awaited {
    pub(super) fn new(at: Sequence, bodies: AwaitedBodies) -> Self {
        Awaited { at, bodies }
    }

    /// Checks a replica, from where the last check stopped.
    pub(super) fn check(
        &mut self,
        machine: &Origin<Body>,
        one: ReplicaId,
        far: &mut CheckPosition,
    ) -> CheckResult {
        if let AwaitedBodies::Commit(changes @ None) = &mut self.bodies {
            let entry = machine.image().entry(self.at);
            *changes = entry.map(|entry| Arc::clone(&entry.commit.changes));
        }
        if machine.progress(one).is_none_or(|(to, _)| to < self.at) {
            return CheckResult::Waits;
        }
        match &self.bodies {
            AwaitedBodies::Nothing => CheckResult::All,
            AwaitedBodies::Commit(changes) => {
                let rest = changes.as_deref().and_then(|changes| changes.get(far.changes..));
                let paths = rest.unwrap_or_default().iter().map(|change| &change.path);
                let (seen, last) = self.of_paths(machine, one, paths.map(|path| (path, self.at)));
                far.changes += last.map_or(0, |(count, _)| count);
                seen
            }
            AwaitedBodies::Files(within) => {
                let from = match &far.file {
                    Some(path) => Bound::Excluded(path.as_bytes()),
                    None => Bound::Included(&within[..]),
                };
                let files = machine.image().objects.range::<[u8], _>((from, Bound::Unbounded));
                let files =
                    files.take_while(|(path, _)| path.as_bytes().starts_with(within.as_slice()));
                let files = files.map(|(path, version)| (path, version.sequence));
                let (seen, last) = self.of_paths(machine, one, files);
                if let Some((_, path)) = last {
                    far.file = Some(path.clone());
                }
                seen
            }
        }
    }

    /// Checks versions of files. Returns how many precede the first that is still missing or is left for a
    /// later check, with the last of them. A version that is newer than the state does not count.
    fn of_paths<'a>(
        &self,
        machine: &Origin<Body>,
        one: ReplicaId,
        versions: impl Iterator<Item = (&'a Path, Sequence)>,
    ) -> (CheckResult, Option<(usize, &'a Path)>) {
        let mut last = None;
        for (count, (path, version)) in versions.enumerate() {
            if count == AT_ONCE {
                return (CheckResult::More, last);
            }
            if version <= self.at && !machine.has_arrived(one, path, version) {
                return (CheckResult::Waits, last);
            }
            last = Some((count + 1, path));
        }
        (CheckResult::All, last)
    }
}
