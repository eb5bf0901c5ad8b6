//! The bytes of a file, as they are read and as they would survive a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lull_sim::random::Random;

/// The unit that the two states of a file share.
const PAGE: usize = 4_096;
/// The unit that a disk writes as a whole or not at all.
const SECTOR: usize = 512;

type Page = Arc<[u8; PAGE]>;

/// Bytes; missing pages are zeros.
#[derive(Clone, Debug, Default)]
struct Bytes {
    length: u64,
    pages: BTreeMap<u64, Page>,
}

impl Bytes {
    fn read(&self, offset: u64, size: usize) -> Vec<u8> {
        let end = offset.saturating_add(size as u64).min(self.length);
        let mut read = Vec::new();
        let mut at = offset;
        while at < end {
            let within = (at % PAGE as u64) as usize;
            let count = (PAGE - within).min((end - at) as usize);
            match self.pages.get(&(at / PAGE as u64)) {
                Some(page) => read.extend_from_slice(&page[within..within + count]),
                None => read.resize(read.len() + count, 0),
            }
            at += count as u64;
        }
        read
    }

    fn page(&self, number: u64) -> [u8; PAGE] {
        self.pages.get(&number).map_or([0; PAGE], |page| **page)
    }

    /// Ends the file there: the bytes behind are zeros if the file is extended again. Returns the changed
    /// pages.
    fn set_length(&mut self, length: u64) -> Vec<u64> {
        let mut changed = Vec::new();
        if length < self.length {
            let gone = self.pages.split_off(&length.div_ceil(PAGE as u64));
            changed.extend(gone.into_keys());
            let within = (length % PAGE as u64) as usize;
            let last = length / PAGE as u64;
            if let Some(page) = self.pages.get_mut(&last).filter(|_| within > 0) {
                Arc::make_mut(page)[within..].fill(0);
                changed.push(last);
            }
        }
        self.length = length;
        changed
    }
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    now: Bytes,
    synced: Bytes,
    /// Pages that differ.
    dirty: BTreeSet<u64>,
}

impl File {
    pub(super) fn length(&self) -> u64 {
        self.now.length
    }

    pub(super) fn read(&self, offset: u64, size: usize) -> Vec<u8> {
        self.now.read(offset, size)
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (number, within) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let (now, later) = rest.split_at(rest.len().min(PAGE - within));
            let page = self.now.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[within..within + now.len()].copy_from_slice(now);
            self.dirty.insert(number);
            at += now.len() as u64;
            rest = later;
        }
        self.now.length = self.now.length.max(at);
    }

    pub(super) fn set_length(&mut self, length: u64) {
        self.dirty.extend(self.now.set_length(length));
    }

    /// Everything is on the disk now.
    pub(super) fn sync(&mut self) {
        for number in core::mem::take(&mut self.dirty) {
            match self.now.pages.get(&number) {
                Some(page) => self.synced.pages.insert(number, Arc::clone(page)),
                None => self.synced.pages.remove(&number),
            };
        }
        self.synced.length = self.now.length;
    }

    /// The power was cut. Without `tearing` all unsynced writes are lost; with it each sector is there or
    /// not, in any order, and so is the length. Returns whether any is there.
    pub(super) fn cut(&mut self, tearing: Option<&mut Random>) -> bool {
        let mut torn = false;
        let dirty = core::mem::take(&mut self.dirty);
        if let Some(random) = tearing {
            let length = match random.below(2) {
                0 => self.synced.length,
                _ => self.now.length,
            };
            torn = length != self.synced.length;
            for number in dirty {
                let (mut page, new) = (self.synced.page(number), self.now.page(number));
                for (old, new) in page.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
                    if *old != *new && random.below(2) == 0 {
                        old.copy_from_slice(new);
                        torn = true;
                    }
                }
                self.synced.pages.insert(number, Arc::new(page));
            }
            // Content after the end is not part of the file.
            self.synced.length = u64::MAX;
            self.synced.set_length(length);
        }
        self.now = self.synced.clone();
        torn
    }
}
