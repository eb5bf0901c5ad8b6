//! In which order the bodies of objects are worth being pushed.

use std::collections::BTreeMap;

use super::priority::{Decayed, Demand, Prioritise};
use super::queue::{Gap, Order, QueuePosition};
use crate::path::Path;
use crate::types::Version;

/// An object's place in the order, and the counts that determine it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranked {
    pub(super) position: QueuePosition,
    pub(super) reads: Decayed,
    pub(super) writes: Decayed,
}

/// The demand for a version's object. A deleted object is not read any more.
pub(super) fn demand(ranked: Option<&Ranked>, version: Version) -> Demand {
    let (reads, writes) = ranked.map_or((0, 1), |ranked| ranked.reads.together(ranked.writes));
    Demand { reads, writes, size: version.content.size }
}

/// An object has another place than before. Each replica's queue follows: see [`Waiting::moved`] and
/// [`Waiting::close`].
///
/// [`Waiting::moved`]: super::queue::Waiting::moved
/// [`Waiting::close`]: super::queue::Waiting::close
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) from: QueuePosition,
    pub(super) to: QueuePosition,
    pub(super) gap: Option<Gap>,
}

/// The order of all objects.
#[derive(Debug)]
pub(super) struct Ranking {
    policy: Box<dyn Prioritise>,
    order: Order,
    objects: BTreeMap<Path, Ranked>,
}

impl Ranking {
    pub(super) fn new(policy: Box<dyn Prioritise>) -> Self {
        Ranking { policy, order: Order::default(), objects: BTreeMap::new() }
    }

    /// Forgets all objects.
    pub(super) fn clear(&mut self) {
        (self.order, self.objects) = Default::default();
    }

    pub(super) fn get(&self, path: &Path) -> Option<&Ranked> {
        self.objects.get(path)
    }

    pub(super) fn get_mut(&mut self, path: &Path) -> Option<&mut Ranked> {
        self.objects.get_mut(path)
    }

    /// Where an object stands in the order.
    pub(super) fn position(&self, path: &Path) -> Option<QueuePosition> {
        self.objects.get(path).map(|ranked| ranked.position)
    }

    /// The object at a place.
    pub(super) fn path(&self, position: QueuePosition) -> Option<&Path> {
        self.order.path(position)
    }

    /// All objects by path.
    #[cfg(test)]
    pub(super) fn objects(&self) -> &BTreeMap<Path, Ranked> {
        &self.objects
    }

    /// All objects.
    pub(super) fn all(&self) -> &Order {
        &self.order
    }

    /// Inserts an object at its place. Returns the place, and the move if it had another place.
    pub(super) fn rank(
        &mut self,
        path: &Path,
        version: Version,
        period: u32,
    ) -> (QueuePosition, Option<Moved>) {
        let old = self.objects.get(path).copied();
        let (reads, writes) = old.map_or_else(Default::default, |old| (old.reads, old.writes));
        let size = version.content.size;
        let demand = Demand { reads: reads.at(period), writes: writes.at(period), size };
        let priority = self.policy.priority(path, demand);
        if let Some(old) = old
            && old.position.priority() == priority
        {
            return (old.position, None);
        }
        let position = self.order.insert(path.clone(), priority);
        let moved = old.map(|old| {
            let gap = self.give_up(old.position);
            Moved { from: old.position, to: position, gap }
        });
        self.objects.insert(path.clone(), Ranked { position, reads, writes });
        (position, moved)
    }

    /// An object does not exist any more. Gives the place that it had, and the gap there.
    pub(super) fn remove(&mut self, path: &Path) -> Option<(QueuePosition, Option<Gap>)> {
        let ranked = self.objects.remove(path)?;
        Some((ranked.position, self.give_up(ranked.position)))
    }

    /// The last object of the same priority takes a place that is given up.
    fn give_up(&mut self, position: QueuePosition) -> Option<Gap> {
        let gap = self.order.remove(position)?;
        if let Some(path) = self.order.path(position)
            && let Some(moved) = self.objects.get_mut(path)
        {
            moved.position = position;
        }
        Some(gap)
    }
}

#[cfg(test)]
mod tests {
    use lull_cc::Bytes;
    use proptest::prelude::*;

    use super::super::priority::ReadsPerWriteAndByte;
    use super::*;
    use crate::types::{Content, Digest, Metadata, Sequence};

    proptest! {
        #[test]
        fn each_object_stands_at_its_place(
            calls in prop::collection::vec((0..9_u8, prop::option::of(1..40_u64)), 0..80),
        ) {
            let mut ranking = Ranking::new(Box::new(ReadsPerWriteAndByte));
            for (name, size) in calls {
                let path = Path::new(&name.to_string()).expect("a path");
                match size {
                    Some(size) => {
                        let (digest, metadata) = (Digest::EMPTY, Metadata::default());
                        let content = Content { digest, size: Bytes(size * size), metadata };
                        let version = Version { sequence: Sequence(1), content };
                        let before = ranking.position(&path);
                        let (position, moved) = ranking.rank(&path, version, 0);
                        prop_assert_eq!(ranking.position(&path), Some(position));
                        prop_assert_eq!(moved.map(|one| one.from), before.filter(|one| *one != position));
                    }
                    None => {
                        let before = ranking.position(&path);
                        prop_assert_eq!(ranking.remove(&path).map(|(position, _)| position), before);
                    }
                }
                for (path, ranked) in &ranking.objects {
                    prop_assert_eq!(ranking.path(ranked.position), Some(path));
                }
            }
        }
    }
}
