//! Received commits that are not in the state so far: their memory, and which of their bodies are missing in
//! the store.
//!
//! Missing bodies of a commit are counted as bodies come and go, so that no event scans all changes of a
//! waiting commit: a publication is one commit, and has as many events as changes.

use core::mem::size_of;
use core::ops::Deref;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use lull_cc::Bytes;

use super::Step;
use crate::path::Path;
use crate::subscription::Subscription;
use crate::time::{LocalTime, WallTime};
use crate::types::{Change, Content, Digest, Position, Sequence};

/// A received commit that is not applied so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Buffered {
    /// The position when it is applied.
    pub(super) position: Position,
    pub(super) sequence: Sequence,
    /// When it was made, by the origin's clock.
    pub(super) stamp: WallTime,
    pub(super) changes: Arc<Vec<Change>>,
    /// Their bodies.
    all: BodyCount,
    /// When it was made, at the earliest; unknown before the first heartbeat.
    pub(super) said: Option<LocalTime>,
    /// Whether it waited while there was no connection.
    pub(super) waited: bool,
    /// Its approximate memory.
    bytes: u64,
    lacks: Lacks,
}

/// Which changes of a commit have bodies that are not in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Lacks {
    all: usize,
    /// The sum of their sizes.
    bytes: u64,
    /// Of these, changes whose bodies exceed the quota.
    without_space: usize,
    /// Changes that no later commit of the buffer overwrites.
    newest: usize,
    /// The others, by the commit that overwrites them first.
    overwritten: BTreeMap<u64, usize>,
}

impl Lacks {
    /// A change has no body of this size in the store, or has one again. `next` is the commit that overwrites
    /// it.
    fn count(&mut self, lacks: bool, size: Bytes, next: Option<u64>) {
        let step = |count: &mut usize| if lacks { *count += 1 } else { *count -= 1 };
        step(&mut self.all);
        if lacks {
            self.bytes += size.0;
        } else {
            self.bytes -= size.0;
        }
        let Some(next) = next else { return step(&mut self.newest) };
        let count = self.overwritten.entry(next).or_default();
        step(count);
        if *count == 0 {
            self.overwritten.remove(&next);
        }
    }

    fn count_without_space(&mut self, is_without_space: bool) {
        if is_without_space {
            self.without_space += 1;
        } else {
            self.without_space -= 1;
        }
    }
}

impl Buffered {
    /// Whether all of its bodies are in the store.
    pub(super) fn has_bodies(&self) -> bool {
        self.lacks.all == 0
    }

    /// Whether it lacks bodies, and only such that exceed the quota.
    pub(super) fn lacks_only_space(&self) -> bool {
        self.lacks.all > 0 && self.lacks.all == self.lacks.without_space
    }

    /// Their approximate memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A change of the buffer: the number of its commit, counted from the first waiting one, and its own number
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ChangeIndex(u64, usize);

impl ChangeIndex {
    const FIRST: ChangeIndex = ChangeIndex(0, 0);

    /// The next one in the same commit.
    const fn next(self) -> ChangeIndex {
        ChangeIndex(self.0, self.1 + 1)
    }
}

/// Bodies of the waiting commits, or those of them that are not in the store. A body counts once per change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BodyCount {
    /// How many.
    pub bodies: u64,
    /// Their sizes.
    pub bytes: Bytes,
}

impl BodyCount {
    fn add(&mut self, size: Bytes) {
        self.bodies += 1;
        self.bytes.0 += size.0;
    }

    fn remove(&mut self, bodies: u64, size: Bytes) {
        self.bodies -= bodies;
        self.bytes.0 -= size.0;
    }
}

/// Something large that is not needed any more. To free it takes as long as to make it, so the caller does that when
/// others do not wait for the replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Garbage(pub(super) Kind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Step(Arc<Step>),
    Changes(Arc<Vec<Change>>),
    ChangeIndexes(Box<ChangeIndexes>),
}

/// The indexes of the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ChangeIndexes {
    /// Changes with a body, by the body; and all changes by their objects.
    by_body: BTreeSet<(Digest, ChangeIndex)>,
    by_path: BTreeSet<(Path, ChangeIndex)>,
}

impl ChangeIndexes {
    /// The last change of an object before a place.
    fn before(&self, path: &Path, index: ChangeIndex) -> Option<ChangeIndex> {
        let before = (path.clone(), ChangeIndex::FIRST)..(path.clone(), index);
        self.by_path.range(before).next_back().map(|(_, index)| *index)
    }
}

/// The waiting commits, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Buffer {
    commits: VecDeque<Buffered>,
    bytes: u64,
    /// The number of the first commit.
    first: u64,
    /// Changes of the following commit whose last part is still to come, and its missing bodies.
    open: Vec<Change>,
    /// The position of that commit.
    open_sequence: Option<Sequence>,
    /// Memory of these and of their bodies.
    open_bytes: u64,
    open_all: BodyCount,
    lacks: Lacks,
    all: BodyCount,
    lacking: BodyCount,
    indexes: ChangeIndexes,
    /// Commits in the state that still have places, with the number of each and of its first change with a
    /// place.
    leaving: VecDeque<(u64, usize, Arc<Vec<Change>>)>,
    /// Changes whose bodies exceed the quota.
    without_space: BTreeSet<(Sequence, Path)>,
    /// The names whose bodies are awaited.
    only: Subscription,
}

/// The properties of a commit beside its changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitSummary {
    pub(super) position: Position,
    pub(super) sequence: Sequence,
    pub(super) stamp: WallTime,
    pub(super) said: Option<LocalTime>,
}

impl Buffer {
    /// The approximate memory of all of them.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// The bodies of all of them, and those that are not in the store.
    pub(super) fn bodies(&self) -> (BodyCount, BodyCount) {
        (self.all, self.lacking)
    }

    /// Only bodies of these names are awaited, while there are no commits.
    pub(super) fn subscribe(&mut self, only: Subscription) {
        self.only = only;
    }

    /// The body of a change that is awaited.
    fn awaited(&self, change: &Change) -> Option<Content> {
        change.content.filter(|_| self.only.has(&change.path))
    }

    fn last(&self) -> u64 {
        self.first + self.commits.len() as u64
    }

    /// Adds a part of the commit that is still being received.
    pub(super) fn extend(
        &mut self,
        sequence: Sequence,
        changes: Vec<Change>,
        is_stored: impl Fn(&Digest) -> bool,
    ) {
        let number = self.last();
        self.open_sequence = Some(sequence);
        for change in changes {
            let index = ChangeIndex(number, self.open.len());
            let awaited = self.awaited(&change);
            if let Some(content) = awaited.filter(|one| !is_stored(&one.digest)) {
                self.lacks.count(true, content.size, None);
                self.lacking.add(content.size);
                if self.without_space.contains(&(sequence, change.path.clone())) {
                    self.lacks.count_without_space(true);
                }
            }
            let before = self.indexes.before(&change.path, index);
            if let Some(before) = before.filter(|before| before.0 >= self.first) {
                self.overwrite(before, None, Some(number), &is_stored);
            }
            self.indexes.by_path.insert((change.path.clone(), index));
            if let Some(content) = &awaited {
                self.indexes.by_body.insert((content.digest, index));
                self.all.add(content.size);
                self.open_all.add(content.size);
            }
            self.open_bytes += bytes_of(&change);
            self.open.push(change);
        }
    }

    fn change(&self, ChangeIndex(commit, change): ChangeIndex) -> &Change {
        match self.commits.get((commit - self.first) as usize) {
            Some(buffered) => &buffered.changes[change],
            None => &self.open[change],
        }
    }

    /// The position of a commit that waits, or of which parts have arrived.
    fn sequence_of(&self, ChangeIndex(commit, _): ChangeIndex) -> Option<Sequence> {
        let number = commit.checked_sub(self.first)?;
        match self.commits.get(number as usize) {
            Some(buffered) => Some(buffered.sequence),
            None => self.open_sequence.filter(|_| commit == self.last()),
        }
    }

    fn lacks(&mut self, ChangeIndex(commit, _): ChangeIndex) -> &mut Lacks {
        let commit = self.commits.get_mut((commit - self.first) as usize);
        commit.map_or(&mut self.lacks, |buffered| &mut buffered.lacks)
    }

    /// Another commit overwrites a change first.
    fn overwrite(
        &mut self,
        index: ChangeIndex,
        was: Option<u64>,
        is: Option<u64>,
        is_stored: impl Fn(&Digest) -> bool,
    ) {
        let content = self.awaited(self.change(index));
        if let Some(content) = content.filter(|content| !is_stored(&content.digest)) {
            let lacks = self.lacks(index);
            lacks.count(false, content.size, was);
            lacks.count(true, content.size, is);
        }
    }

    /// The commit that arrived in parts is complete.
    pub(super) fn push(&mut self, about: CommitSummary) {
        let CommitSummary { position, sequence, stamp, said } = about;
        self.open_sequence = None;
        let changes = Arc::new(core::mem::take(&mut self.open));
        let (lacks, all) = (core::mem::take(&mut self.lacks), core::mem::take(&mut self.open_all));
        let bytes = core::mem::take(&mut self.open_bytes) + size_of::<Buffered>() as u64;
        self.bytes += bytes;
        let waited = false;
        let one = Buffered { position, sequence, stamp, changes, all, said, waited, bytes, lacks };
        self.commits.push_back(one);
    }

    /// The rest of the commit that arrived in parts does not come.
    pub(super) fn forget_parts(&mut self, is_stored: impl Fn(&Digest) -> bool) {
        let number = self.last();
        while let Some(change) = self.open.pop() {
            let index = ChangeIndex(number, self.open.len());
            if let Some(content) = self.awaited(&change) {
                self.indexes.by_body.remove(&(content.digest, index));
                self.all.remove(1, content.size);
            }
            let before = self.indexes.before(&change.path, index);
            self.indexes.by_path.remove(&(change.path, index));
            let is_overwritten = |before: &ChangeIndex| (self.first..number).contains(&before.0);
            if let Some(before) = before.filter(is_overwritten) {
                self.overwrite(before, Some(number), None, &is_stored);
            }
        }
        let lacks = core::mem::take(&mut self.lacks);
        self.lacking.remove(lacks.all as u64, Bytes(lacks.bytes));
        (self.open_bytes, self.open_all, self.open_sequence) = Default::default();
        self.restart_numbering();
    }

    /// A body is in the store from now on, or no longer.
    pub(super) fn turn(&mut self, digest: &Digest, is_stored: bool) {
        let all = self.indexes.by_body.range((*digest, ChangeIndex::FIRST)..);
        let indexes = all.take_while(|(one, _)| one == digest).map(|(_, index)| *index);
        let indexes: Vec<ChangeIndex> = indexes.filter(|index| index.0 >= self.first).collect();
        for index in indexes {
            let change = self.change(index);
            let path = change.path.clone();
            let size = change.content.map_or(Bytes(0), |content| content.size);
            let mut later = self.indexes.by_path.range((path.clone(), index.next())..);
            let next = later.next().filter(|(other, _)| *other == path).map(|(_, next)| next.0);
            let sequence = self.sequence_of(index);
            let is_without_space =
                sequence.is_some_and(|sequence| self.without_space.contains(&(sequence, path)));
            let lacks = self.lacks(index);
            lacks.count(!is_stored, size, next);
            if is_without_space {
                lacks.count_without_space(!is_stored);
            }
            if is_stored {
                self.lacking.remove(1, size);
            } else {
                self.lacking.add(size);
            }
        }
    }

    /// The quota has no room for the body of a change in a commit that is not in the state.
    pub(super) fn refuse(
        &mut self,
        sequence: Sequence,
        path: &Path,
        is_stored: impl Fn(&Digest) -> bool,
    ) {
        if !self.without_space.insert((sequence, path.clone())) {
            return;
        }
        let indexes = self.indexes.by_path.range((path.clone(), ChangeIndex::FIRST)..);
        let indexes = indexes.take_while(|(other, _)| other == path).map(|(_, index)| *index);
        let of_it = |index: &ChangeIndex| self.sequence_of(*index) == Some(sequence);
        let indexes: Vec<ChangeIndex> = indexes.filter(of_it).collect();
        for index in indexes {
            let content = self.awaited(self.change(index));
            if content.is_some_and(|content| !is_stored(&content.digest)) {
                self.lacks(index).count_without_space(true);
            }
        }
    }

    /// Bodies over the quota in states up to this one do not matter any more.
    pub(super) fn forget_without_space(&mut self, present: Sequence) {
        while self.without_space.first().is_some_and(|(sequence, _)| *sequence <= present) {
            self.without_space.pop_first();
        }
    }

    /// The fewest commits after the first `applied` whose objects all have their newest bodies in the store.
    /// As one step they make no object invalid. An overwritten body may never arrive, since the origin's
    /// queue absorbs it.
    pub(super) fn overtaken(&self, applied: usize) -> Option<usize> {
        let mut until = 0;
        for (number, buffered) in self.commits.iter().enumerate().skip(applied) {
            if buffered.lacks.newest > 0 {
                return None;
            }
            let last = buffered.lacks.overwritten.last_key_value();
            until = last.map_or(until, |(last, _)| until.max(*last));
            if until <= self.first + number as u64 {
                return Some(number + 1 - applied);
            }
        }
        None
    }

    /// The first commits, of this number, are in the state.
    pub(super) fn take_first(&mut self, commits: usize, slice: usize, garbage: &mut Vec<Garbage>) {
        let is_small = self.indexes.by_path.len() <= slice && self.leaving.is_empty();
        if commits >= self.commits.len() && self.open.is_empty() {
            // Nothing is left, so there is nothing to search for.
            if !is_small {
                let indexes = core::mem::take(&mut self.indexes);
                garbage.push(Garbage(Kind::ChangeIndexes(Box::new(indexes))));
                let changes = self.leaving.drain(..).map(|(.., changes)| changes);
                let changes = changes.chain(self.commits.drain(..).map(|one| one.changes));
                garbage.extend(changes.map(|changes| Garbage(Kind::Changes(changes))));
            }
            return self.clear();
        }
        for number in self.first..self.first + commits as u64 {
            let Some(buffered) = self.commits.pop_front() else { break };
            self.bytes -= buffered.bytes;
            self.lacking.remove(buffered.lacks.all as u64, Bytes(buffered.lacks.bytes));
            self.all.remove(buffered.all.bodies, buffered.all.bytes);
            self.leaving.push_back((number, 0, buffered.changes));
        }
        self.first += commits as u64;
        self.sweep(slice, garbage);
        self.restart_numbering();
    }

    /// Removes at most this many places of commits that are in the state.
    pub(super) fn sweep(&mut self, most: usize, garbage: &mut Vec<Garbage>) {
        let mut rest = most;
        while rest > 0
            && let Some((number, next, changes)) = self.leaving.front_mut()
        {
            let (from, upto) = (*next, changes.len().min(next.saturating_add(rest)));
            for (at, change) in changes[from..upto].iter().enumerate() {
                let index = ChangeIndex(*number, from + at);
                self.indexes.by_path.remove(&(change.path.clone(), index));
                if let Some(content) = &change.content {
                    self.indexes.by_body.remove(&(content.digest, index));
                }
            }
            (*next, rest) = (upto, rest - (upto - from));
            if upto == changes.len()
                && let Some((.., changes)) = self.leaving.pop_front()
                && changes.len() > most
            {
                garbage.push(Garbage(Kind::Changes(changes)));
            }
        }
        self.restart_numbering();
    }

    /// Since when entries wait to be swept, if any.
    pub(super) fn swept_since(&self) -> Option<LocalTime> {
        (!self.leaving.is_empty()).then(|| LocalTime::from_nanos(i64::MIN))
    }

    /// Restarts the numbering when no commit is left.
    fn restart_numbering(&mut self) {
        if self.commits.is_empty() && self.open.is_empty() && self.leaving.is_empty() {
            self.first = 0;
        }
    }

    /// They are all dropped without being applied.
    pub(super) fn clear(&mut self) {
        let (without_space, only) = (core::mem::take(&mut self.without_space), self.only.clone());
        *self = Buffer { without_space, only, ..Buffer::default() };
    }

    /// The connection has ended.
    pub(super) fn wait_alone(&mut self) {
        for buffered in &mut self.commits {
            buffered.waited = true;
        }
    }
}

/// The approximate memory of a change, with its places in the two orders.
fn bytes_of(change: &Change) -> u64 {
    let indexes = size_of::<(Digest, ChangeIndex)>() + size_of::<(Path, ChangeIndex)>();
    (size_of::<Change>() + change.path.as_bytes().len() + indexes) as u64
}

impl Deref for Buffer {
    type Target = VecDeque<Buffered>;

    fn deref(&self) -> &VecDeque<Buffered> {
        &self.commits
    }
}
