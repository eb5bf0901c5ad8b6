//! Demanded bodies: how many bytes of them may be in memory, and their waiting reads.

use std::collections::{BTreeMap, BTreeSet};

use lull_cc::Bytes;

use crate::lane::{Lane, Lanes};
use crate::path::Path;
use crate::time::LocalTime;
use crate::types::Sequence;

/// ```text
///         asked for               linger over            its end, none of it
///   ────────────────▶ Asked ───────────────▶ Withdrawn ────────────────────▶
///                       │ the answer             │ the answer
///                       ▼                        ▼
///                    Answered ◀──────────────────┘
///                       │ applied
///                       ▼
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// The answer is still to come. When the last read stopped waiting for it, if none waits.
    Asked(Option<LocalTime>),
    /// The same, and the demand was withdrawn at the origin.
    Withdrawn,
    /// The answer is here, and is used when this commit is applied.
    Answered(Sequence),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Demand {
    phase: Phase,
    /// Of the body.
    size: Bytes,
}

/// The demands of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Used {
    bodies: u64,
    bytes: u64,
}

/// By object. Their bytes are counted incrementally, since each waiting read needs the sum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Demands {
    lanes: Lanes,
    all: BTreeMap<Path, Demand>,
    used: [Used; Lane::COUNT],
    /// How many reads wait for an object, whether it was requested or not.
    readers: BTreeMap<Path, usize>,
    /// Received answers, by the commits from which on they count.
    answered: BTreeSet<(Sequence, Path)>,
    /// Demands without a waiting read, by since when.
    left: BTreeSet<(LocalTime, Path)>,
}

impl Demands {
    pub(super) fn new(lanes: Lanes) -> Self {
        Demands { lanes, ..Demands::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether one more body fits into its lane's share of the limit. One body always does, at any size. So
    /// long bodies leave space for short ones, and the other way round.
    pub(super) fn has_room(&self, size: Bytes, limit: Bytes) -> bool {
        let used = &self.used[self.lanes.lane_for(size).index()];
        let share = limit.0 / Lane::COUNT as u64;
        used.bodies == 0 || used.bytes.saturating_add(size.0) <= share
    }

    /// Whether an object has a demand whose answer is not in the state at `position` so far.
    pub(super) fn is_open(&self, path: &Path, position: Sequence) -> bool {
        self.all.get(path).is_some_and(|one| one.is_open(position))
    }

    /// A read waits for an object.
    pub(super) fn join(&mut self, path: &Path) {
        *self.readers.entry(path.clone()).or_default() += 1;
        self.set_left(path, None);
    }

    /// A read no longer waits for an object.
    pub(super) fn leave(&mut self, now: LocalTime, path: &Path) {
        let Some(readers) = self.readers.get_mut(path) else { return };
        *readers -= 1;
        if *readers == 0 {
            self.readers.remove(path);
            self.set_left(path, Some(now));
        }
    }

    /// Sets since when an unanswered demand has no waiting read.
    fn set_left(&mut self, path: &Path, since: Option<LocalTime>) {
        let Some(Demand { phase: Phase::Asked(left), .. }) = self.all.get_mut(path) else { return };
        if let Some(before) = core::mem::replace(left, since) {
            self.left.remove(&(before, path.clone()));
        }
        self.left.extend(since.map(|since| (since, path.clone())));
    }

    /// The earliest time since when a demand has no waiting read.
    pub(super) fn first_left(&self) -> Option<LocalTime> {
        self.left.first().map(|(since, _)| *since)
    }

    /// A demand without a waiting read since `until` or longer: from now on its end should come soon.
    pub(super) fn withdraw(&mut self, until: LocalTime) -> Option<Path> {
        self.first_left().filter(|since| *since <= until)?;
        let (_, path) = self.left.pop_first()?;
        if let Some(demand) = self.all.get_mut(&path) {
            demand.phase = Phase::Withdrawn;
        }
        Some(path)
    }

    /// An object is requested.
    pub(super) fn ask(&mut self, now: LocalTime, path: Path, size: Bytes) {
        self.set(path.clone(), Demand { phase: Phase::Asked(None), size });
        if !self.readers.contains_key(&path) {
            self.set_left(&path, Some(now));
        }
    }

    /// The answer has arrived, and counts when the commit `at` is applied.
    pub(super) fn answer(&mut self, path: Path, at: Sequence, size: Bytes) {
        self.set(path, Demand { phase: Phase::Answered(at), size });
    }

    fn set(&mut self, path: Path, demand: Demand) {
        self.remove(&path);
        let used = &mut self.used[self.lanes.lane_for(demand.size).index()];
        used.bodies += 1;
        used.bytes += demand.size.0;
        if let Phase::Answered(at) = demand.phase {
            self.answered.insert((at, path.clone()));
        }
        self.all.insert(path, demand);
    }

    /// Forgets an object; returns whether it was withdrawn, with its end still to come.
    pub(super) fn remove(&mut self, path: &Path) -> bool {
        self.set_left(path, None);
        let Some(before) = self.all.remove(path) else { return false };
        if let Phase::Answered(at) = before.phase {
            self.answered.remove(&(at, path.clone()));
        }
        let used = &mut self.used[self.lanes.lane_for(before.size).index()];
        used.bodies -= 1;
        used.bytes -= before.size.0;
        before.phase == Phase::Withdrawn
    }

    /// The origin has nothing to send for an object: the withdrawal arrived in time. Returns whether there
    /// was one.
    pub(super) fn forget_withdrawn(&mut self, path: &Path) -> bool {
        let is_withdrawn = self.all.get(path).is_some_and(|one| one.phase == Phase::Withdrawn);
        is_withdrawn && self.remove(path)
    }

    /// Whether a read waits for an object.
    pub(super) fn is_awaited(&self, path: &Path) -> bool {
        self.readers.contains_key(path)
    }

    /// None of the requested objects will arrive.
    pub(super) fn clear(&mut self) {
        let readers = core::mem::take(&mut self.readers);
        *self = Demands { readers, ..Demands::new(self.lanes) };
    }

    /// The state is the one at `position` now.
    pub(super) fn close(&mut self, position: Sequence) {
        while self.answered.first().is_some_and(|(at, _)| *at <= position) {
            if let Some((_, path)) = self.answered.pop_first() {
                self.remove(&path);
            }
        }
    }

    /// The answered demands whose bodies may still be on their way into the store.
    pub(super) fn answered(&self) -> impl Iterator<Item = &(Sequence, Path)> {
        self.answered.iter()
    }

    /// The objects with unanswered demands.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &Path> {
        let waits = |one: &Demand| !matches!(one.phase, Phase::Answered(_));
        self.all.iter().filter(move |(_, one)| waits(one)).map(|(path, _)| path)
    }
}

impl Demand {
    fn is_open(self, position: Sequence) -> bool {
        match self.phase {
            Phase::Asked(_) | Phase::Withdrawn => true,
            Phase::Answered(at) => at > position,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Join(usize),
        Leave(usize),
        Ask(usize, u64),
        Answer(usize, u64),
        Remove(usize),
        Forget(usize),
        Withdraw(i64),
        Close(u64),
        Clear,
    }

    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

    fn step() -> impl Strategy<Value = Step> {
        let at = || 0..NAMES.len();
        prop_oneof![
            at().prop_map(Step::Join),
            at().prop_map(Step::Leave),
            (at(), 0..2_000_u64).prop_map(|(at, size)| Step::Ask(at, size)),
            (at(), 1..5_u64).prop_map(|(at, sequence)| Step::Answer(at, sequence)),
            at().prop_map(Step::Remove),
            at().prop_map(Step::Forget),
            (0..10_i64).prop_map(Step::Withdraw),
            (0..5_u64).prop_map(Step::Close),
            Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn demands_without_readers_and_their_bytes_are_exact(steps in vec(step(), 0..80)) {
            let lanes = Lanes::of_pieces(Bytes(10));
            let mut demands = Demands::new(lanes);
            let mut readers = [0; NAMES.len()];
            for (now, step) in (0_i64..).zip(steps) {
                let path = |at: usize| Path::new(NAMES[at]).expect("a path");
                let now = LocalTime::from_nanos(now);
                match step {
                    Step::Join(at) => {
                        readers[at] += 1;
                        demands.join(&path(at));
                    }
                    Step::Leave(at) => {
                        readers[at] = i32::max(readers[at] - 1, 0);
                        demands.leave(now, &path(at));
                    }
                    Step::Ask(at, size) => demands.ask(now, path(at), Bytes(size)),
                    Step::Answer(at, sequence) => {
                        demands.answer(path(at), Sequence(sequence), Bytes(sequence));
                    }
                    Step::Remove(at) => {
                        demands.remove(&path(at));
                    }
                    Step::Forget(at) => {
                        demands.forget_withdrawn(&path(at));
                    }
                    Step::Withdraw(before) => {
                        let until = LocalTime::from_nanos(now.as_nanos() - before);
                        while let Some(path) = demands.withdraw(until) {
                            prop_assert!(!demands.is_awaited(&path));
                            prop_assert!(demands.is_open(&path, Sequence(u64::MAX)));
                        }
                        prop_assert!(demands.first_left().is_none_or(|left| left > until));
                    }
                    Step::Close(sequence) => demands.close(Sequence(sequence)),
                    Step::Clear => demands.clear(),
                }
                let mut used = [Used::default(); Lane::COUNT];
                let mut left = BTreeSet::new();
                for (path, one) in &demands.all {
                    let used = &mut used[lanes.lane_for(one.size).index()];
                    used.bodies += 1;
                    used.bytes += one.size.0;
                    if let Phase::Asked(since) = one.phase {
                        prop_assert_eq!(since.is_none(), demands.is_awaited(path));
                        left.extend(since.map(|since| (since, path.clone())));
                    }
                }
                prop_assert_eq!((used, &left), (demands.used, &demands.left));
                let answered = demands.all.iter().filter_map(|(path, one)| match one.phase {
                    Phase::Answered(at) => Some((at, path.clone())),
                    Phase::Asked(_) | Phase::Withdrawn => None,
                });
                prop_assert_eq!(answered.collect::<BTreeSet<_>>(), demands.answered.clone());
                for (name, readers) in NAMES.iter().zip(readers) {
                    let path = Path::new(name).expect("a path");
                    prop_assert_eq!(demands.is_awaited(&path), readers > 0);
                }
            }
        }
    }
}
