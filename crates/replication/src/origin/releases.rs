//! References to bodies that are given up in slices, as there may be as many as objects.

use std::collections::VecDeque;

use super::Origin;
use super::image::Entry;
use super::writes::Arriving;
use crate::types::{Change, Digest};

/// Something large that is not needed any more. To free it takes as long as to make it, so the caller does that when
/// others do not wait for the origin.
#[derive(Debug)]
pub struct Garbage<P>(#[expect(dead_code, reason = "it is only dropped")] Kind<P>);

#[derive(Debug)]
#[expect(dead_code, reason = "they are only dropped")]
enum Kind<P> {
    Entry(Entry),
    Arriving(Arriving<P>),
    Changes(Vec<Change>),
}

/// References to be given up, and what was made without use.
#[derive(Debug)]
pub(super) struct Releases<P> {
    /// Entries that left the log, with the number of their objects that are done.
    entries: VecDeque<(Entry, usize)>,
    digests: Vec<Digest>,
    garbage: Vec<Garbage<P>>,
}

impl<P> Default for Releases<P> {
    fn default() -> Self {
        let (entries, digests, garbage) = Default::default();
        Releases { entries, digests, garbage }
    }
}

impl<P> Releases<P> {
    /// Overwritten bodies of commits are kept while the log contains these.
    pub(super) fn add_entries(&mut self, left: Vec<Entry>) {
        self.entries.extend(left.into_iter().map(|entry| (entry, 0)));
    }

    /// One reference to each of these.
    pub(super) fn add_digests(&mut self, digests: Vec<Digest>) {
        if self.digests.is_empty() {
            self.digests = digests;
        } else {
            self.digests.extend(digests);
        }
    }

    /// Changes of a transaction that was refused before they were taken in.
    pub(super) fn add_rest(&mut self, rest: Arriving<P>) {
        self.garbage.push(Garbage(Kind::Arriving(rest)));
    }

    /// Changes of a transaction that was refused.
    pub(super) fn add_changes(&mut self, changes: Vec<Change>) {
        self.garbage.push(Garbage(Kind::Changes(changes)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.digests.is_empty()
    }
}

impl<P: Clone> Origin<P> {
    /// Gives some references up.
    pub(super) fn release_some(&mut self) {
        let mut rest = self.config.slice;
        while rest > 0
            && let Some(digest) = self.releases.digests.pop()
        {
            self.bodies.references.release(&digest);
            rest -= 1;
        }
        while rest > 0
            && let Some((entry, done)) = self.releases.entries.front_mut()
        {
            for version in entry.before[*done..].iter().take(rest).flatten() {
                self.bodies.references.release(&version.content.digest);
            }
            let count = rest.min(entry.before.len() - *done);
            (*done, rest) = (*done + count, rest - count.max(1));
            if *done == entry.before.len()
                && let Some((entry, _)) = self.releases.entries.pop_front()
            {
                self.releases.garbage.push(Garbage(Kind::Entry(entry)));
            }
        }
    }

    /// The data to drop when others do not wait for the origin.
    pub fn poll_garbage(&mut self) -> Option<Garbage<P>> {
        self.releases.garbage.pop()
    }
}
