//! Jobs that are not worth trying on a full disk, and the space that bodies leave to the state.
//!
//! After a write without space the database refuses everything until it is opened again, and then reads all
//! of itself. So such a write takes longer for a larger database, and blocks all reads of bodies meanwhile.
//! Jobs of about the size of a failed one are refused at once, for a while.
//!
//! A replica without space for invalidations has to delay its reads, and one without space for bodies only
//! those of these bodies. So bodies may not take all the space.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;

/// How long that lasts, in multiples of the duration of the failure: so failures take a twentieth of the
/// time.
const PAUSES: u32 = 20;
/// Bytes that have to become free before another attempt.
const FREED: u64 = 1 << 20;
/// How much smaller than a failed job one must be to be tried all the same, alone and with others.
const LESS: u64 = 2;
const LESS_TOGETHER: u64 = 16;

/// How many of these sizes, in ascending order, are worth trying together after one of `failed` found no
/// space.
pub(super) fn worth_trying(sizes: impl IntoIterator<Item = u64>, failed: u64) -> usize {
    let mut all = 0_u64;
    let mut count = 0;
    for size in sizes {
        all = all.saturating_add(size);
        let less = if count == 0 { LESS } else { LESS_TOGETHER };
        if all > failed / less {
            break;
        }
        count += 1;
    }
    count
}

/// The recent jobs that a disk had no space for.
#[derive(Default)]
pub(super) struct Shortage {
    /// Free bytes; none if they are unknown. Then nothing is remembered.
    free: Option<Box<dyn Fn() -> Option<u64> + Send>>,
    last: Option<Failed>,
}

struct Failed {
    size: u64,
    free: Option<u64>,
    until: Instant,
}

impl Shortage {
    /// For the disk of a folder.
    pub(super) fn on_disk_of(folder: PathBuf) -> Self {
        Self::by(move || {
            let found = statvfs(&folder).ok()?;
            // Including blocks reserved for root: freed space may not be enough for other users.
            Some(found.blocks_free().saturating_mul(found.fragment_size()))
        })
    }

    /// A shortage of a disk whose free bytes `free` returns.
    pub(super) fn by(free: impl Fn() -> Option<u64> + Send + 'static) -> Self {
        Shortage { free: Some(Box::new(free)), last: None }
    }

    /// The smallest size that has failed recently; the largest number if there is none.
    pub(super) fn failed(&mut self) -> u64 {
        let Some(last) = &self.last else { return u64::MAX };
        let free = self.free.as_ref().and_then(|free| free());
        let more = free.zip(last.free).is_some_and(|(now, then)| now >= then.saturating_add(FREED));
        if more || last.until <= Instant::now() {
            self.last = None;
            return u64::MAX;
        }
        last.size
    }

    /// There was no room for an item of this size, and it took this long until the database was usable again.
    pub(super) fn remember(&mut self, size: u64, took: Duration) {
        let size = self.failed().min(size);
        let Some(free) = &self.free else { return };
        let from = self.last.as_ref().map_or_else(Instant::now, |last| last.until);
        self.last = Some(Failed { size, free: free(), until: from + took * PAUSES });
    }
}

/// The space left to the state, at most; and its share of the disk otherwise.
const RESERVE: u64 = 64 << 20;
const RESERVED: u64 = 16;

/// A disk, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// How large it is.
    pub(super) size: u64,
    /// How much of it users other than root may take.
    pub(super) free: u64,
}

type MeasureRoom = Box<dyn Fn() -> Option<Room> + Send + Sync>;

/// The space that bodies leave to the state. Without a disk that is nothing.
#[derive(Default)]
pub(super) struct Reserve {
    measure_room: Option<MeasureRoom>,
    /// Bytes that are being written.
    writing: AtomicU64,
}

/// Bytes that are being written, until the write ends.
#[derive(Debug)]
pub(super) struct Writing {
    reserve: Arc<Reserve>,
    bytes: u64,
}

impl Reserve {
    /// For the disk of a folder.
    pub(super) fn on_disk_of(folder: PathBuf) -> Self {
        Self::by(move || {
            let found = statvfs(&folder).ok()?;
            let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
            Some(Room { size: bytes(found.blocks()), free: bytes(found.blocks_available()) })
        })
    }

    /// For a disk of this size and free space. If those are unknown, nothing is reserved.
    pub(super) fn by(measure_room: impl Fn() -> Option<Room> + Send + Sync + 'static) -> Self {
        Reserve { measure_room: Some(Box::new(measure_room)), writing: AtomicU64::new(0) }
    }

    /// Reserves this many bytes to be written: none if they would take the space of the state.
    pub(super) fn write(self: &Arc<Self>, bytes: u64) -> Option<Writing> {
        // Counted before the check: of two concurrent checks one might not see the other.
        let others = self.writing.fetch_add(bytes, Ordering::SeqCst);
        let writing = Writing { reserve: Arc::clone(self), bytes };
        let Some(room) = self.measure_room.as_ref().and_then(|measure_room| measure_room()) else {
            return Some(writing);
        };
        let reserve = RESERVE.min(room.size / RESERVED);
        let taken = others.saturating_add(bytes).saturating_add(reserve);
        (taken <= room.free).then_some(writing)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.reserve.writing.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl fmt::Debug for Reserve {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Reserve").field("writing", &self.writing).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_much_smaller_bodies_are_retried_and_few_at_a_time() {
        assert_eq!(worth_trying([1, 1, 1], u64::MAX), 3);
        assert_eq!(worth_trying([51, 60], 100), 0);
        assert_eq!(worth_trying([50, 60], 100), 1);
        assert_eq!(worth_trying([1; 256], 256), 16);
        assert_eq!(worth_trying([1; 256], 16), 1);
        assert_eq!(worth_trying([u64::MAX; 2], u64::MAX), 0);
        assert_eq!(worth_trying([], 100), 0);
    }

    #[test]
    fn shortage_lasts_until_space_is_freed_or_time_passes() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let free = Arc::new(AtomicU64::new(5));
        let told = Arc::clone(&free);
        let mut shortage = Shortage::by(move || Some(told.load(Ordering::Relaxed)));
        assert_eq!(shortage.failed(), u64::MAX);
        shortage.remember(100, HOUR);
        shortage.remember(300, HOUR);
        assert_eq!(shortage.failed(), 100, "the least of them");
        free.store(5 + FREED - 1, Ordering::Relaxed);
        assert_eq!(shortage.failed(), 100);
        free.store(5 + FREED, Ordering::Relaxed);
        assert_eq!(shortage.failed(), u64::MAX);
        shortage.remember(300, Duration::ZERO);
        assert_eq!(shortage.failed(), u64::MAX);
        let mut shortage = Shortage::default();
        shortage.remember(100, HOUR);
        assert_eq!(shortage.failed(), u64::MAX, "it is not known how much is free");
    }

    #[test]
    fn free_space_is_read_from_the_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let shortage = Shortage::on_disk_of(folder.path().to_owned());
        let free = shortage.free.expect("it is asked");
        let reserve = Reserve::on_disk_of(folder.path().to_owned());
        let room = reserve.measure_room.expect("it is asked");
        assert!(free().is_some_and(|free| free > 0));
        assert!(room().is_some_and(|room| room.size >= room.free && room.free > 0));
        drop(folder);
        assert_eq!(free(), None);
        assert!(room().is_none());
    }

    #[test]
    fn bodies_leave_a_sixteenth_of_the_disk_up_to_64_mb() {
        let with = |size, free| Arc::new(Reserve::by(move || Some(Room { size, free })));
        for (size, left) in [(1_600, 100), (1 << 30, 64 << 20), (1 << 40, 64 << 20)] {
            assert!(with(size, left + 50).write(50).is_some());
            assert!(with(size, left + 50).write(51).is_none());
            assert!(with(size, 0).write(0).is_none());
        }
        assert!(
            Arc::new(Reserve::by(|| None)).write(u64::MAX).is_some(),
            "the free space is unknown"
        );
        assert!(Arc::new(Reserve::default()).write(u64::MAX).is_some(), "there is no disk");
    }

    #[test]
    fn write_in_progress_reserves_its_space() {
        let reserve = Arc::new(Reserve::by(|| Some(Room { size: 1_600, free: 150 })));
        let first = reserve.write(30).expect("there is room");
        assert!(reserve.write(21).is_none());
        let second = reserve.write(20).expect("what was refused takes none");
        drop(first);
        assert!(reserve.write(30).is_some());
        drop(second);
        assert!(reserve.write(50).is_some());
    }
}
