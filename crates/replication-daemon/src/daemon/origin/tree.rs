//! All objects at a moment, without blocking writers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::thread;
use std::time::Duration;

use lull_replication::origin::Image;
use lull_replication::path::Path;
use lull_replication::types::{Digest, Position, Sequence, Version};

use super::{Core, OriginHandle};

/// Objects taken at a time, and changes followed at a time: a millisecond.
const AT_A_TIME: usize = 4_096;
/// The pause between two of these for others: a thread that releases a lock and takes it again at once is
/// faster than the threads that wait for it.
const PAUSE: Duration = Duration::from_micros(100);

/// All objects of one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Their state.
    pub position: Position,
    /// The objects, by name.
    pub objects: Vec<(Path, Version)>,
    /// Their lost bodies: a write that names one is refused; a write that contains one repairs all objects
    /// that have it.
    pub lost: BTreeSet<Digest>,
}

/// Objects that are gathered during writes. Those taken so far are of the states that were present then; the
/// log updates them to the present one.
#[derive(Debug)]
struct Gathering {
    /// The objects taken so far have the state at this position of the log.
    to: Sequence,
    taken: Vec<(Path, Version)>,
    /// All objects were taken.
    complete: bool,
    /// Taken objects that have changed since, with their present version.
    changed: BTreeMap<Path, Option<Version>>,
    at_a_time: usize,
    /// Only this object and those below it, if it is given.
    within: Option<Path>,
}

impl Gathering {
    fn new(image: &Image, at_a_time: usize, within: Option<Path>) -> Self {
        let mut changed = BTreeMap::new();
        if let Some(folder) = &within {
            // Other names come between the folder's own and those below it.
            changed.insert(folder.clone(), image.objects.get(folder).copied());
        }
        let to = image.last().sequence;
        Gathering { to, taken: Vec::new(), complete: false, changed, at_a_time, within }
    }

    /// Whether an object belongs to those that were taken, or to the folder itself.
    fn has_taken(&self, path: &Path) -> bool {
        let last = self.taken.last().map(|(last, _)| last);
        match &self.within {
            Some(folder) if path == folder => true,
            Some(folder) if !path.is_within(folder.as_bytes()) => false,
            _ => self.complete || last.is_some_and(|last| path <= last),
        }
    }

    /// Takes more; returns the position when all objects of the state there are taken.
    fn go_on(&mut self, image: &Image) -> Option<Position> {
        if self.to < image.log_after() {
            // In larger steps each time, so that it ends even if the log is short.
            let within = self.within.take();
            *self = Gathering::new(image, self.at_a_time.saturating_mul(2), within);
        }
        let mut followed = 0;
        while followed < self.at_a_time
            && let Some(entry) = image.entry(self.to.next())
        {
            for change in &*entry.commit.changes {
                // Objects that were not taken so far will be taken in their later version.
                if self.has_taken(&change.path) {
                    let now = image.objects.get(&change.path).copied();
                    self.changed.insert(change.path.clone(), now);
                }
            }
            followed += entry.commit.changes.len();
            self.to = entry.commit.sequence;
        }
        if !self.complete {
            let below = self.within.as_ref().map_or_else(Vec::new, Path::prefix);
            let first = Bound::Included(&below[..]);
            let last = self.taken.last().map(|(path, _)| path.as_bytes());
            let from = (last.map_or(first, Bound::Excluded), Bound::Unbounded);
            let more = image.objects.range::<[u8], _>(from).take(self.at_a_time);
            let more = more.take_while(|(path, _)| path.as_bytes().starts_with(&below));
            let more: Vec<_> = more.map(|(path, version)| (path.clone(), *version)).collect();
            self.complete = more.len() < self.at_a_time;
            self.taken.extend(more);
        }
        (self.complete && self.to == image.last().sequence).then(|| image.last())
    }

    /// The objects, when all are of one state.
    fn finish(self) -> Vec<(Path, Version)> {
        if self.changed.is_empty() {
            return self.taken;
        }
        let mut objects: BTreeMap<_, _> = self.taken.into_iter().collect();
        for (path, now) in self.changed {
            match now {
                Some(version) => objects.insert(path, version),
                None => objects.remove(&path),
            };
        }
        objects.into_iter().collect()
    }
}

impl OriginHandle {
    /// All objects. Blocks as long as necessary, and delays other callers only briefly.
    pub fn tree(&self) -> Tree {
        self.tree_within(None)
    }

    /// The same, for `within` and the objects below it, if that is given.
    pub fn tree_within(&self, within: Option<&Path>) -> Tree {
        let within = within.cloned();
        let begin = |core: &mut Core, _| Gathering::new(core.machine.image(), AT_A_TIME, within);
        let mut gathering = self.0.with(begin);
        let (position, mut lost) = loop {
            let found = self.0.with(|core, _| {
                let position = gathering.go_on(core.machine.image());
                // Between two states, it goes on later.
                let position = position.filter(|_| !core.machine.is_folding())?;
                let lost = core.lost.iter().filter(|digest| core.machine.is_lost(digest));
                Some((position, lost.copied().collect::<BTreeSet<_>>()))
            });
            if let Some(found) = found {
                break found;
            }
            thread::sleep(PAUSE);
        };
        let objects = gathering.finish();
        if !lost.is_empty() {
            let digests: BTreeSet<_> =
                objects.iter().map(|(_, version)| version.content.digest).collect();
            lost.retain(|digest| digests.contains(digest));
        }
        Tree { position, objects, lost }
    }
}

#[cfg(test)]
mod tests {
    use lull_cc::Bytes;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use lull_replication::origin::Append;
    use lull_replication::time::WallTime;
    use lull_replication::types::{Change, Commit, Content, Metadata};

    /// Puts and deletions as one commit, with a log of `log` commits.
    fn write(image: &mut Image, log: u64, changes: &BTreeMap<u8, Option<u8>>) {
        let content = |body: u8| Content {
            digest: Digest([body; 32]),
            size: Bytes(1),
            metadata: Metadata::default(),
        };
        let sequence = image.last().sequence.next();
        let changes = changes.iter().map(|(name, body)| Change {
            path: Path::new(&format!("{name:03}")).unwrap(),
            content: body.map(content),
        });
        let stamp = WallTime::default();
        image.apply(&Append::<()> {
            commits: vec![Commit { sequence, stamp, changes: changes.collect() }],
            inline: Vec::new(),
            log_after: image.log_after().max(Sequence(sequence.0.saturating_sub(log))),
            chain_from: Sequence::ZERO,
        });
    }

    proptest! {
        #[test]
        fn tree_reflects_one_state_during_concurrent_writes(
            before in proptest::collection::btree_map(any::<u8>(), any::<u8>().prop_map(Some), 0..40),
            meanwhile in vec(
                vec(proptest::collection::btree_map(any::<u8>(), any::<Option<u8>>(), 1..6), 0..4),
                0..30,
            ),
            at_a_time in 1..8_usize,
            log in prop_oneof![0..4_u64, Just(1_000)],
            within in any::<bool>(),
        ) {
            let mut image = Image::empty([7; 32]);
            write(&mut image, log, &before);
            let within = within.then(|| Path::new("1").expect("a path"));
            let mut gathering = Gathering::new(&image, at_a_time, within.clone());
            let mut meanwhile = meanwhile.into_iter();
            // Without further writes it ends.
            let position = (0..1_000).find_map(|_| {
                let position = gathering.go_on(&image);
                if position.is_none() {
                    let writes = meanwhile.next().into_iter().flatten();
                    writes.for_each(|changes| write(&mut image, log, &changes));
                }
                position
            });
            prop_assert_eq!(position, Some(image.last()));
            let expected = image.objects.into_iter().filter(|(path, _)| {
                within.as_ref().is_none_or(|one| path == one || path.is_within(one.as_bytes()))
            });
            prop_assert_eq!(gathering.finish(), expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn tree_completes_under_constant_writes_with_a_short_log() {
        let mut image = Image::empty([7; 32]);
        let objects: Vec<u8> = (0..200).collect();
        write(&mut image, 1, &objects.iter().map(|name| (*name, Some(1))).collect());
        let mut gathering = Gathering::new(&image, 1, None);
        let ended = (0..100).any(|round| {
            if gathering.go_on(&image).is_some() {
                return true;
            }
            for body in [round, round + 1] {
                write(&mut image, 1, &[(round, Some(body))].into());
            }
            false
        });
        assert!(ended);
    }
}
