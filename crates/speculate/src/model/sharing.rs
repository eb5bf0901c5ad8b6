//! One model per server of a site, all with the counts of all.
//!
//! Each server learns from its own requests, and tells the others what it counted, in deltas: `take_delta` and
//! `merge`. Three kinds of knowledge are merged, each in its way:
//!
//! - *How many clients got a URL publicly* decides what may be revealed. It is merged so that a client counts
//!   once, at however many servers, and a bar at one server counts at all: [`Evidence`](crate::observe).
//! - *How often a URL was visited, and what followed it*, are sums. A delta is added once: its sender numbers
//!   them, and the receiver remembers the last number of each sender. The numbers are saved with the model.
//! - *How long a URL is, and how long its server takes*, are estimates. The latest one wins.
//!
//! For the first the servers need the same key: [`ClientHasher`](crate::observe::ClientHasher). The deltas of
//! a server with another key must not get here.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use lull_cc::Timestamp;

use super::{Delta, Model};
use crate::encoding::{ReadError, Sink, Source};
use crate::observe::UrlId;
use crate::predict::{ContextChange, FollowerChange, Pages};

/// A delta has no more bytes by far than the sum of this and of one context with long paths.
const DELTA_BYTES: usize = 256 << 10;
/// Bytes of a URL beside its path, and of a follower.
const URL_BYTES: usize = 32;
const FOLLOWER_BYTES: usize = 8;
/// Senders that are remembered: each start of a server is one.
const MAX_SENDERS: usize = 1024;

/// A model that is shared: a number drawn by a server when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sender(pub u64);

/// The number of the last delta of a sender, and when that was merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    number: u64,
    at: Timestamp,
}

/// Which deltas of each sender the model has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Merged {
    last: BTreeMap<Sender, Last>,
}

impl Merged {
    /// Takes a number; false if that delta, or a later one, is in the model.
    fn take(&mut self, sender: Sender, number: u64, at: Timestamp) -> bool {
        if self.last.get(&sender).is_some_and(|last| number <= last.number) {
            return false;
        }
        if self.last.len() >= MAX_SENDERS && !self.last.contains_key(&sender) {
            let oldest = self.last.iter().min_by_key(|(_, last)| last.at).map(|(one, _)| *one);
            oldest.and_then(|oldest| self.last.remove(&oldest));
        }
        self.last.insert(sender, Last { number, at });
        true
    }

    pub(super) fn write<W: Write>(&self, to: &mut Sink<W>) -> io::Result<()> {
        to.count(self.last.len())?;
        for (sender, last) in &self.last {
            to.u64(sender.0)?;
            to.u64(last.number)?;
            to.u64(last.at.as_nanos())?;
        }
        Ok(())
    }

    pub(super) fn read<R: Read>(from: &mut Source<R>) -> Result<Self, ReadError> {
        let mut merged = Merged::default();
        let count = from.count()?;
        if count > MAX_SENDERS {
            return Err(ReadError::Invalid("list of servers"));
        }
        for _ in 0..count {
            let sender = Sender(from.u64()?);
            let last = Last { number: from.u64()?, at: Timestamp::from_nanos(from.u64()?) };
            merged.last.insert(sender, last);
        }
        Ok(merged)
    }
}

impl Model {
    /// From now on changes are remembered, for the other servers of the site.
    pub fn share(&mut self, own: Sender) {
        self.own = Some(own);
        self.observer.share();
        self.predictor.share();
    }

    /// Takes a part of what the other servers have not got yet, with its number; none if there is nothing.
    /// Its requests count as if they had come at `now`.
    pub fn take_delta(&mut self, now: Timestamp) -> Option<(u64, Delta)> {
        let own = self.own?;
        let mut building = Building { delta: Delta::new(now), places: BTreeMap::new(), bytes: 0 };
        while building.bytes < DELTA_BYTES / 2
            && let Some((pages, context)) = self.predictor.pending()?.take_context()
        {
            building.add_context(self, pages, &context);
        }
        while building.bytes < DELTA_BYTES
            && let Some(url) = self.observer.urls().changed()
        {
            building.place(self, url);
        }
        let mut delta = building.delta;
        (delta.answers, delta.pages) = self.predictor.pending()?.take_visits();
        if delta.is_empty() {
            return None;
        }
        let number = self.merged.last.get(&own).map_or(1, |last| last.number + 1);
        self.merged.take(own, number, now);
        Some((number, delta))
    }

    /// Whether there is something to take. It is cheap.
    pub fn has_delta(&mut self) -> bool {
        self.observer.urls().changed().is_some()
            || self.predictor.pending().is_some_and(|pending| pending.has_context())
    }

    /// Adds a delta of a server with the same key. Returns whether it was new.
    pub fn merge(&mut self, sender: Sender, number: u64, delta: &Delta) -> bool {
        if !self.merged.take(sender, number, delta.at) {
            return false;
        }
        self.restart_counts_of_another_key();
        let (at, urls) = self.observer.merge(delta.at, delta.answers, &delta.urls);
        let id = |place: u16| urls.get(usize::from(place)).copied().flatten();
        for (pages, context) in &delta.contexts {
            let known: Option<Vec<UrlId>> = pages.iter().map(|place| id(*place)).collect();
            let Some(known) = known else { continue };
            let followers = context.followers.iter().filter_map(|one| {
                Some(FollowerChange { url: id(one.url)?, weight: one.weight, classes: one.classes })
            });
            let change = ContextChange { times: context.times, followers: followers.collect() };
            self.predictor.merge(at, Pages::new(known.into_iter()), &change);
        }
        let is_visited = |(change, url): (&crate::observe::UrlChange, &Option<UrlId>)| {
            url.filter(|_| change.requests.visits > 0)
        };
        let visited = delta.urls.iter().zip(&urls).filter_map(is_visited);
        self.predictor.merge_visits(at, delta.pages, visited, self.observer.urls());
        true
    }
}

/// A delta that is being made.
struct Building {
    delta: Delta,
    places: BTreeMap<UrlId, u16>,
    bytes: usize,
}

impl Building {
    /// The place of a URL, with its changes; none if it has made room.
    fn place(&mut self, model: &mut Model, url: UrlId) -> Option<u16> {
        if let Some(place) = self.places.get(&url) {
            return Some(*place);
        }
        let change = model.observer.urls_mut().take_change(url)?;
        let place = u16::try_from(self.delta.urls.len()).ok()?;
        self.bytes += change.path.len() + URL_BYTES;
        self.delta.urls.push(change);
        self.places.insert(url, place);
        Some(place)
    }

    /// Adds a context, unless a page of it has made room.
    fn add_context(&mut self, model: &mut Model, pages: Pages, context: &ContextChange<UrlId>) {
        let pages: Option<Vec<u16>> = pages.iter().map(|page| self.place(model, page)).collect();
        let Some(pages) = pages else { return };
        let mut followers = Vec::new();
        for one in &context.followers {
            if let Some(url) = self.place(model, one.url) {
                let (weight, classes) = (one.weight, one.classes);
                followers.push(FollowerChange { url, weight, classes });
            }
        }
        self.bytes += (1 + followers.len()) * FOLLOWER_BYTES;
        self.delta.contexts.push((pages, ContextChange { times: context.times, followers }));
    }
}

#[cfg(test)]
mod tests;
