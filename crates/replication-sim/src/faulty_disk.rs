//! A disk that loses or tears unsynced writes, fails and fills up.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use lull_sim::random::Random;
use redb::StorageBackend;

/// The unit of loss.
const SECTOR: usize = 512;
/// The unit of space.
const PAGE: usize = 4_096;

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Bytes),
    Length(u64),
}

/// The contents of a disk. Pages are the written ones, not copies of them, because each commit writes and
/// syncs some. An extended file has holes, because a new database is a megabyte of which little is ever
/// written.
#[derive(Clone, Debug, Default)]
struct Contents {
    length: u64,
    /// By number; none is all zeros.
    pages: Vec<Option<Bytes>>,
}

static ZEROS: [u8; PAGE] = [0; PAGE];

/// The parts of a range from an offset, one per page: the page's number, where the part begins in it, and
/// where in the whole range.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
    let (first, begin) = (offset as usize / PAGE, offset as usize % PAGE);
    (0..(begin + length).div_ceil(PAGE)).map(move |at| {
        let from = (at * PAGE).saturating_sub(begin);
        let to = ((at + 1) * PAGE - begin).min(length);
        (first + at, if at == 0 { begin } else { 0 }, from..to)
    })
}

impl Contents {
    fn page(&self, number: usize) -> &[u8] {
        self.pages.get(number).and_then(Option::as_deref).unwrap_or(&ZEROS)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset + out.len() as u64 > self.length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        for (number, begin, part) in parts(offset, out.len()) {
            let end = begin + part.len();
            out[part].copy_from_slice(&self.page(number)[begin..end]);
        }
        Ok(())
    }

    fn resize(&mut self, length: u64) {
        self.length = length;
        let (whole, rest) = (length as usize / PAGE, length as usize % PAGE);
        if let Some(Some(last)) = self.pages.get_mut(whole)
            && rest > 0
        {
            // Bytes beyond the end do not come back when the file is extended again.
            *last = [&last[..rest], &ZEROS[rest..]].concat().into();
        }
        self.pages.truncate(length.div_ceil(PAGE as u64) as usize);
    }

    fn write(&mut self, offset: u64, bytes: &Bytes) {
        self.length = self.length.max(offset + bytes.len() as u64);
        for (number, begin, part) in parts(offset, bytes.len()) {
            let page = if part.len() == PAGE {
                bytes.slice(part)
            } else {
                let before = self.page(number);
                let end = begin + part.len();
                [&before[..begin], &bytes[part], &before[end..]].concat().into()
            };
            if self.pages.len() <= number {
                self.pages.resize(number + 1, None);
            }
            self.pages[number] = Some(page);
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Length(length) => self.resize(*length),
            Change::Write(at, bytes) => self.write(*at, bytes),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct State {
    /// The contents that are certain to survive a crash.
    synced: Contents,
    /// The target of a read.
    now: Contents,
    /// The changes since the last sync.
    changes: Vec<Change>,
    /// Which pages have space on the disk, their number, and the limit.
    has_room: Vec<bool>,
    used: usize,
    room: Option<usize>,
    /// The power fails after this many operations.
    fuse: Option<u64>,
    syncs: u64,
    /// How long a read takes.
    pause: Duration,
}

/// A disk; clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct FaultyDisk(Arc<Mutex<State>>);

impl State {
    fn operate(&mut self) -> io::Result<()> {
        match &mut self.fuse {
            None => Ok(()),
            Some(0) => Err(io::Error::other("the power has failed")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    /// Takes room for a written page; false if there is none.
    fn take_room(&mut self, page: usize) -> bool {
        if self.has_room.get(page) == Some(&true) {
            return true;
        }
        if self.room.is_some_and(|room| self.used >= room) {
            return false;
        }
        if self.has_room.len() <= page {
            self.has_room.resize(page + 1, false);
        }
        self.has_room[page] = true;
        self.used += 1;
        true
    }

    /// The pages from this one on no longer belong to the file.
    fn give_back(&mut self, from: usize) {
        let kept = from.min(self.has_room.len());
        self.used -= self.has_room.drain(kept..).filter(|has| *has).count();
    }
}

impl FaultyDisk {
    fn state<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        with(&mut self.0.lock().expect("no test panics in here"))
    }

    /// The power fails after `operations` more.
    pub fn set_fuse(&self, operations: Option<u64>) {
        self.state(|state| state.fuse = operations);
    }

    /// There is room for this many more pages.
    pub fn set_room(&self, pages: Option<usize>) {
        self.state(|state| state.room = pages.map(|pages| state.used + pages));
    }

    /// Each read takes this long.
    pub fn set_pause(&self, pause: Duration) {
        self.state(|state| state.pause = pause);
    }

    /// How often it was synced.
    pub fn syncs(&self) -> u64 {
        self.state(|state| state.syncs)
    }

    /// Another disk with the same contents.
    pub fn fork(&self) -> Self {
        FaultyDisk(Arc::new(Mutex::new(self.state(|state| state.clone()))))
    }

    /// The power has failed: each unsynced sector is there or not, in any order. True if a write was torn.
    pub fn crash(&self, random: &mut Random) -> bool {
        self.state(|state| {
            let mut torn = false;
            for change in std::mem::take(&mut state.changes) {
                match (random.below(3), change) {
                    (0, _) => {}
                    (1, change) => state.synced.apply(&change),
                    (_, Change::Write(at, bytes)) => {
                        for begin in (0..bytes.len()).step_by(SECTOR) {
                            if random.below(2) == 0 {
                                let end = bytes.len().min(begin + SECTOR);
                                state.synced.write(at + begin as u64, &bytes.slice(begin..end));
                                torn = true;
                            }
                        }
                    }
                    (_, Change::Length(_)) => {}
                }
            }
            state.now = state.synced.clone();
            state.fuse = None;
            torn
        })
    }
}

impl StorageBackend for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state(|state| state.now.length))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let pause = self.state(|state| {
            state.now.read(offset, out)?;
            Ok::<_, io::Error>(state.pause)
        })?;
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.state(|state| {
            state.operate()?;
            // A longer file has holes: they take no space before they are written.
            state.now.resize(length);
            state.changes.push(Change::Length(length));
            state.give_back(length.div_ceil(PAGE as u64) as usize);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.state(|state| {
            state.operate()?;
            state.syncs += 1;
            for change in std::mem::take(&mut state.changes) {
                state.synced.apply(&change);
            }
            debug_assert_eq!(state.synced.length, state.now.length);
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state(|state| {
            state.operate()?;
            for (page, ..) in parts(offset, data.len()) {
                if !state.take_room(page) {
                    return Err(ErrorKind::StorageFull.into());
                }
            }
            let bytes = Bytes::copy_from_slice(data);
            state.now.write(offset, &bytes);
            state.changes.push(Change::Write(offset, bytes));
            Ok(())
        })
    }
}
