//! Bodies that reads of a replica wait for: the ones to be handed out, those in flight, and those without a
//! waiting read.

use std::collections::{BTreeMap, VecDeque};

use lull_cc::Bytes;

use crate::lane::Lane;
use crate::path::Path;
use crate::types::Sequence;

/// An object that a read waits for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) path: Path,
    /// Counts the demands of the connection.
    pub(super) number: u64,
}

/// A body that was sent in part.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) path: Path,
    pub(super) sequence: Sequence,
    pub(super) size: Bytes,
    /// It was also waiting in the background, or was cut off there.
    pub(super) queued: bool,
    pub(super) withdrawn: bool,
}

/// The demands of one connection. Each lane has a queue, in the order of the requests, and one body may be on
/// its way.
#[derive(Debug, Default)]
pub(crate) struct Demands {
    pub(super) lanes: [VecDeque<Asked>; Lane::COUNT],
    pub(super) sending: [Option<Sending>; Lane::COUNT],
    /// At a relay: those whose bodies it has to fetch.
    pub(super) held: BTreeMap<Path, Vec<Asked>>,
    /// Withdrawn before they were handed out: to be confirmed.
    pub(super) withdrawn: VecDeque<Path>,
    pub(super) count: u64,
}

impl Demands {
    /// How many are to be answered.
    pub(crate) fn len(&self) -> usize {
        let asked: usize = self.lanes.iter().map(VecDeque::len).sum();
        let held: usize = self.held.values().map(Vec::len).sum();
        asked + held + self.sending.iter().flatten().count() + self.withdrawn.len()
    }

    pub(crate) fn ask(&mut self, path: Path, lane: Lane) {
        self.count += 1;
        self.lanes[lane.index()].push_back(Asked { path, number: self.count });
    }

    /// The lane of the first request.
    pub(super) fn first(&self) -> Option<Lane> {
        let fronts = Lane::ALL.into_iter().filter_map(|lane| {
            let front = self.lanes[lane.index()].front()?;
            Some((front.number, lane))
        });
        fronts.min().map(|(_, lane)| lane)
    }

    /// A lane with a waiting body, and without one on its way.
    pub(super) fn free(&self) -> Option<Lane> {
        let is_free = |lane: &Lane| {
            !self.lanes[lane.index()].is_empty() && self.sending[lane.index()].is_none()
        };
        Lane::ALL.into_iter().find(is_free)
    }

    /// Its size needs another lane than at the request: it gets the position that it would have had there
    /// from the beginning.
    pub(super) fn move_to(&mut self, lane: Lane, asked: Asked) {
        let lane = &mut self.lanes[lane.index()];
        let at = lane.partition_point(|other| other.number < asked.number);
        lane.insert(at, asked);
    }

    /// No read waits for it any more. Returns how many times it was still to be handed out.
    pub(crate) fn withdraw(&mut self, path: &Path) -> usize {
        let before = self.withdrawn.len();
        for lane in &mut self.lanes {
            lane.retain(|asked| {
                let stays = asked.path != *path;
                self.withdrawn.extend((!stays).then(|| path.clone()));
                stays
            });
        }
        let held = self.held.remove(path).unwrap_or_default();
        self.withdrawn.extend(held.into_iter().map(|asked| asked.path));
        for sending in self.sending.iter_mut().flatten().filter(|sending| sending.path == *path) {
            sending.withdrawn = true;
        }
        self.withdrawn.len() - before
    }

    /// The next withdrawal to confirm.
    pub(crate) fn next_withdrawn(&mut self) -> Option<Path> {
        self.withdrawn.pop_front()
    }

    /// The objects of the bodies that are on their way.
    pub(crate) fn sending(&self) -> impl Iterator<Item = &Path> {
        self.sending.iter().flatten().map(|sending| &sending.path)
    }

    /// The commits that have written these bodies.
    pub(crate) fn sending_versions(&self) -> impl Iterator<Item = Sequence> + '_ {
        self.sending.iter().flatten().map(|sending| sending.sequence)
    }

    /// The body of this version is left to its waiting read, if it is in flight to that: the background gets
    /// it back when no read waits any more. Returns whether it is.
    pub(crate) fn take_over(&mut self, path: &Path, at: Sequence) -> bool {
        let mut all = self.sending.iter_mut().flatten();
        let same = |sending: &&mut Sending| {
            (&sending.path, sending.sequence) == (path, at) && !sending.withdrawn
        };
        all.find(same).map(|sending| sending.queued = true).is_some()
    }

    /// Whether the body of this version is in flight.
    pub(crate) fn is_sending(&self, path: &Path, at: Sequence) -> bool {
        let mut all = self.sending.iter().flatten();
        all.any(|sending| (&sending.path, sending.sequence) == (path, at))
    }
}
