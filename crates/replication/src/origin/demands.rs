//! Bodies that reads of a replica wait for: which are to be handed out, which are on their way, and which
//! nobody waits for any more.

use std::collections::VecDeque;

use lull_cc::Bytes;

use crate::lane::Lane;
use crate::path::Path;
use crate::types::Sequence;

/// An object that a read waits for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) path: Path,
    /// Counts what was asked for by the connection.
    pub(super) number: u64,
}

/// A body of which a part was sent, and not all.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) path: Path,
    pub(super) sequence: Sequence,
    pub(super) size: Bytes,
    /// It waited in the background, too, or was broken off there.
    pub(super) queued: bool,
    pub(super) withdrawn: bool,
}

/// Those of one connection. For each lane there is a queue, in the order in which they were asked for, and one
/// body may be on its way.
#[derive(Debug, Default)]
pub(crate) struct Demands {
    pub(super) lanes: [VecDeque<Asked>; Lane::COUNT],
    pub(super) sending: [Option<Sending>; Lane::COUNT],
    /// Withdrawn before they were handed out: to be told so.
    pub(super) withdrawn: VecDeque<Path>,
    pub(super) count: u64,
}

impl Demands {
    /// How many are to be answered.
    pub(crate) fn len(&self) -> usize {
        let asked: usize = self.lanes.iter().map(VecDeque::len).sum();
        asked + self.sending.iter().flatten().count() + self.withdrawn.len()
    }

    pub(crate) fn ask(&mut self, path: Path, lane: Lane) {
        self.count += 1;
        self.lanes[lane.index()].push_back(Asked { path, number: self.count });
    }

    /// The lane of the one that was asked for first.
    pub(super) fn first(&self) -> Option<Lane> {
        let fronts = Lane::ALL.into_iter().filter_map(|lane| {
            let front = self.lanes[lane.index()].front()?;
            Some((front.number, lane))
        });
        fronts.min().map(|(_, lane)| lane)
    }

    /// A lane by which one waits, and none is on its way.
    pub(super) fn free(&self) -> Option<Lane> {
        let is_free = |lane: &Lane| {
            !self.lanes[lane.index()].is_empty() && self.sending[lane.index()].is_none()
        };
        Lane::ALL.into_iter().find(is_free)
    }

    /// It goes by another lane than it was taken for: there it stands where it would stand if it had been put
    /// there at once.
    pub(super) fn move_to(&mut self, lane: Lane, asked: Asked) {
        let lane = &mut self.lanes[lane.index()];
        let at = lane.partition_point(|other| other.number < asked.number);
        lane.insert(at, asked);
    }

    /// Nobody waits for it any more; how often it was still to be handed out.
    pub(crate) fn withdraw(&mut self, path: &Path) -> usize {
        let before = self.withdrawn.len();
        for lane in &mut self.lanes {
            lane.retain(|asked| {
                let stays = asked.path != *path;
                self.withdrawn.extend((!stays).then(|| path.clone()));
                stays
            });
        }
        for sending in self.sending.iter_mut().flatten().filter(|sending| sending.path == *path) {
            sending.withdrawn = true;
        }
        self.withdrawn.len() - before
    }

    /// The next one of which the replica is to be told that it does not come.
    pub(crate) fn next_withdrawn(&mut self) -> Option<Path> {
        self.withdrawn.pop_front()
    }

    /// The objects of the bodies that are on their way.
    pub(crate) fn sending(&self) -> impl Iterator<Item = &Path> {
        self.sending.iter().flatten().map(|sending| &sending.path)
    }

    /// The body of this version is left to whoever waits for it, if it is on its way to him: the background has
    /// it again when nobody does any more. Whether it is.
    pub(crate) fn take_over(&mut self, path: &Path, at: Sequence) -> bool {
        let mut all = self.sending.iter_mut().flatten();
        let same = |sending: &&mut Sending| {
            (&sending.path, sending.sequence) == (path, at) && !sending.withdrawn
        };
        all.find(same).map(|sending| sending.queued = true).is_some()
    }

    /// Whether the body of this version is.
    pub(crate) fn is_sending(&self, path: &Path, at: Sequence) -> bool {
        let mut all = self.sending.iter().flatten();
        all.any(|sending| (&sending.path, sending.sequence) == (path, at))
    }
}
