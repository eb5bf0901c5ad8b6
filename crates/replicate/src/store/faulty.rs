//! A disk that loses what was not synced, tears it, and fills up.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lull_sim::random::Random;
use redb::StorageBackend;

/// What is lost or kept as one.
const SECTOR: usize = 512;
/// What takes room as one.
const PAGE: u64 = 4_096;

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

#[derive(Clone, Debug, Default)]
struct State {
    /// What survives a crash for sure.
    synced: Vec<u8>,
    /// What is read.
    now: Vec<u8>,
    /// What was done since the last sync.
    changes: Vec<Change>,
    /// Pages that have room on the disk, and how many there may be.
    pages: BTreeSet<u64>,
    room: Option<usize>,
    /// The power fails after so many operations.
    fuse: Option<u64>,
    syncs: u64,
    /// How long a read takes.
    pause: Duration,
}

/// A disk; clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultyDisk(Arc<Mutex<State>>);

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
}

fn apply(to: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Length(length) => to.resize(*length as usize, 0),
        Change::Write(at, bytes) => {
            let end = *at as usize + bytes.len();
            if to.len() < end {
                to.resize(end, 0);
            }
            to[*at as usize..end].copy_from_slice(bytes);
        }
    }
}

impl FaultyDisk {
    fn state<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        with(&mut self.0.lock().expect("no test panics in here"))
    }

    /// The power fails after `operations` more.
    pub(crate) fn set_fuse(&self, operations: Option<u64>) {
        self.state(|state| state.fuse = operations);
    }

    /// There is room for so many more pages.
    pub(crate) fn set_room(&self, pages: Option<usize>) {
        self.state(|state| state.room = pages.map(|pages| state.pages.len() + pages));
    }

    /// Each read takes so long.
    #[cfg(test)]
    pub(crate) fn set_pause(&self, pause: Duration) {
        self.state(|state| state.pause = pause);
    }

    #[cfg(test)]
    pub(crate) fn syncs(&self) -> u64 {
        self.state(|state| state.syncs)
    }

    /// Another disk, on which is what is on this one.
    pub(crate) fn fork(&self) -> Self {
        FaultyDisk(Arc::new(Mutex::new(self.state(|state| state.clone()))))
    }

    /// The power has failed: of what was not synced each sector is there or not, whatever the order.
    /// True if something was torn.
    pub(crate) fn crash(&self, random: &mut Random) -> bool {
        self.state(|state| {
            let mut torn = false;
            for change in std::mem::take(&mut state.changes) {
                match (random.below(3), change) {
                    (0, _) => {}
                    (1, change) => apply(&mut state.synced, &change),
                    (_, Change::Write(at, bytes)) => {
                        for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                            if random.below(2) == 0 {
                                let at = at + (number * SECTOR) as u64;
                                apply(&mut state.synced, &Change::Write(at, sector.to_vec()));
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
        Ok(self.state(|state| state.now.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let pause = self.state(|state| {
            let begin = offset as usize;
            let bytes = state.now.get(begin..begin + out.len());
            out.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
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
            // A longer file has holes: they take no room before they are written.
            apply(&mut state.now, &Change::Length(length));
            state.changes.push(Change::Length(length));
            state.pages.retain(|page| page * PAGE < length);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.state(|state| {
            state.operate()?;
            state.syncs += 1;
            for change in std::mem::take(&mut state.changes) {
                apply(&mut state.synced, &change);
            }
            debug_assert_eq!(state.synced.len(), state.now.len());
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state(|state| {
            state.operate()?;
            for page in offset / PAGE..(offset + data.len() as u64).div_ceil(PAGE) {
                let full = state.room.is_some_and(|room| state.pages.len() >= room);
                if full && !state.pages.contains(&page) {
                    return Err(ErrorKind::StorageFull.into());
                }
                state.pages.insert(page);
            }
            let change = Change::Write(offset, data.to_vec());
            apply(&mut state.now, &change);
            state.changes.push(change);
            Ok(())
        })
    }
}
