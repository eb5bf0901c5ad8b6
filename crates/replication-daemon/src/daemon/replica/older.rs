//! Older bodies of objects, which contain most pieces of the new ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};

use lull_replication::Pin;
use lull_replication::path::Path;
use lull_replication::types::{Content, Digest};
use lull_replication::wire::{Chunk, PIECE};

use super::{Shared, lock};
use crate::store::{BodyReader, StoreError};

/// Older bodies that are kept for transfers that have broken off, at most.
const MOST: usize = 16;

/// A body that is not deleted, also if the object has a newer version by now.
pub(super) struct Older {
    shared: Weak<Shared>,
    content: Content,
    pin: Pin,
}

impl Drop for Older {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.try_with(|core, _| core.machine.unpin(self.pin));
        }
    }
}

/// Older bodies, kept until the newer body is here.
#[derive(Default)]
pub(super) struct OlderBodies(Mutex<BTreeMap<Path, Arc<Older>>>);

impl OlderBodies {
    /// An older body of an object, of which `new` is the newer one.
    pub(super) fn find(
        &self,
        shared: &Arc<Shared>,
        path: &Path,
        new: &Digest,
    ) -> Option<Arc<Older>> {
        let pinned = shared.with(|core, _| {
            let content = core.machine.older_body(path, new)?;
            Some((content, core.machine.pin(&content.digest)?))
        });
        let is_older = |one: &Arc<Older>| one.content.digest != *new;
        let Some((content, pin)) = pinned else {
            return lock(&self.0).get(path).filter(|one| is_older(one)).cloned();
        };
        let older = Arc::new(Older { shared: Arc::downgrade(shared), content, pin });
        let (before, excess) = {
            let mut all = lock(&self.0);
            let before = all.insert(path.clone(), Arc::clone(&older));
            let is_full = all.len() > MOST;
            (before, is_full.then(|| all.pop_first()).flatten())
        };
        // Without the lock.
        drop((before, excess));
        Some(older)
    }

    /// The newer body is here.
    pub(super) fn forget(&self, path: &Path) {
        let forgotten = lock(&self.0).remove(path);
        drop(forgotten);
    }

    /// Forgets those that no transfer uses, and whose newer body has not arrived in part.
    pub(super) fn retain(&self, is_of_use: impl Fn(&Path) -> bool) {
        let gone: Vec<_> = {
            let mut all = lock(&self.0);
            let is_unused = |(path, one): &(&Path, &Arc<Older>)| {
                Arc::strong_count(one) == 1 && !is_of_use(path)
            };
            let gone: Vec<Path> =
                all.iter().filter(is_unused).map(|(path, _)| path.clone()).collect();
            gone.iter().filter_map(|path| all.remove(path)).collect()
        };
        drop(gone);
    }
}

/// Where bytes of the new body are in the older one.
#[derive(Clone, Copy, Debug)]
struct Segment {
    begin: u64,
    end: u64,
    from: u64,
}

/// The pieces of a new body that are in an older one.
pub(super) struct LocalPieces {
    older: Arc<Older>,
    reader: BodyReader,
    /// Of the new body, in the order of its bytes.
    segments: Vec<Segment>,
    size: u64,
}

impl LocalPieces {
    /// Finds the chunks of a new body in an older one. Reads all of that, and blocks.
    pub(super) fn find(
        (older, reader): (Arc<Older>, BodyReader),
        size: u64,
        chunks: &[Chunk],
    ) -> Result<Option<Self>, StoreError> {
        let Some(here) = reader.chunks(&older.content)? else { return Ok(None) };
        let mut at = 0;
        let places: HashMap<Chunk, u64> = here
            .into_iter()
            .map(|chunk| {
                let place = at;
                at += u64::from(chunk.length);
                (chunk, place)
            })
            .collect();
        let mut begin = 0;
        let segments = chunks.iter().filter_map(|chunk| {
            let end = begin + u64::from(chunk.length);
            let segment = places.get(chunk).map(|from| Segment { begin, end, from: *from });
            begin = end;
            segment
        });
        let segments = segments.collect();
        Ok(Some(LocalPieces { older, reader, segments, size }))
    }

    /// The segments of a piece; none if some of its bytes are not here.
    fn segments(&self, number: u32) -> Option<impl Iterator<Item = Segment> + '_> {
        let begin = u64::from(number) * PIECE as u64;
        let end = (begin + PIECE as u64).min(self.size);
        let first = self.segments.partition_point(|one| one.end <= begin);
        let of_it = self.segments[first..].iter().take_while(move |one| one.begin < end);
        let mut at = begin;
        for one in of_it.clone() {
            if one.begin > at {
                return None;
            }
            at = one.end;
        }
        let part = move |one: &Segment| {
            let (from, to) = (one.begin.max(begin), one.end.min(end));
            Segment { begin: from, end: to, from: one.from + from - one.begin }
        };
        (at >= end && begin < end).then(|| of_it.map(part))
    }

    /// A piece; none if it is not here. Blocks, and verifies nothing.
    pub(super) fn read(&self, number: u32) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(segments) = self.segments(number) else { return Ok(None) };
        let mut bytes = Vec::with_capacity(PIECE);
        for Segment { begin, end, from } in segments {
            let range = from..from + end - begin;
            let read = self.reader.range(&self.older.content.digest, range)?;
            let Some(read) = read else { return Ok(None) };
            bytes.extend_from_slice(&read);
        }
        Ok(Some(bytes))
    }

    /// Whether a piece is here.
    pub(super) fn has(&self, number: u32) -> bool {
        self.segments(number).is_some()
    }
}

/// The pieces from `first` on that have to come of `count`, in ranges; the last one is among them. With more than `most`
/// ranges, pieces between others come as well.
pub(super) fn ranges(
    (first, count): (u32, u32),
    most: usize,
    is_here: impl Fn(u32) -> bool,
) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in first..count {
        if number + 1 < count && is_here(number) {
            continue;
        }
        match ranges.last_mut() {
            Some((begin, length)) if *begin + *length == number => *length += 1,
            _ => ranges.push((number, 1)),
        }
    }
    join(ranges, most)
}

/// At most so many ranges. Pieces between others come as well, if there are more.
pub(super) fn join(mut ranges: Vec<(u32, u32)>, most: usize) -> Vec<(u32, u32)> {
    let mut gap = 1;
    while ranges.len() > most {
        gap *= 2;
        let mut fewer: Vec<(u32, u32)> = Vec::new();
        for (begin, length) in ranges {
            match fewer.last_mut() {
                Some((before, long)) if begin - (*before + *long) <= gap => {
                    *long = begin + length - *before;
                }
                _ => fewer.push((begin, length)),
            }
        }
        ranges = fewer;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_missing_pieces_and_the_last_one() {
        let here = |all: &'static [u32]| move |number: u32| all.contains(&number);
        assert_eq!(ranges((0, 5), 9, here(&[])), [(0, 5)]);
        assert_eq!(ranges((0, 5), 9, here(&[0, 1, 2, 3, 4])), [(4, 1)]);
        assert_eq!(ranges((1, 9), 9, here(&[0, 2, 3, 7])), [(1, 1), (4, 3), (8, 1)]);
        assert_eq!(ranges((1, 9), 2, here(&[0, 2, 3, 7])), [(1, 8)]);
        assert_eq!(ranges((4, 5), 2, here(&[])), [(4, 1)]);
    }
}
