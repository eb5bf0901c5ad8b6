//! The clients of an evaluation, each with a cache for every way to use every predictor.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lull_cc::Timestamp;

use super::cache::{Cache, Ways};
use super::plan::Plan;
use super::tally::{Row, Tallies};
use crate::observe::{ClientId, Kind, Limits, UrlId, Urls, Visit};
use crate::predict::Candidate;
use crate::table::mix;

/// A URL of a list, and the strictest way of each kind that fetches it.
type Advised = (UrlId, [u8; 2]);

#[derive(Clone, Debug, Default)]
struct Client {
    /// Its last request.
    seen: Timestamp,
    cache: Cache,
    pages: u64,
    /// The group in which it counts.
    group: usize,
    /// The slice of its latest lists, until they are fetched; none if there are no lists.
    slice: Option<u16>,
    /// A list for each predictor.
    advice: Vec<Vec<Advised>>,
}

impl Client {
    /// Begins a session, with the memory of another one.
    fn start_session(&mut self, id: ClientId) {
        self.cache.clear();
        (self.pages, self.slice) = (0, None);
        self.group = mix(id.0) as usize % Tallies::GROUPS;
    }
}

pub(super) struct Clients<'p> {
    plan: &'p Plan,
    predictors: usize,
    clients: BTreeMap<ClientId, Client>,
    /// Clients that left, whose memory is reused.
    left: Vec<Client>,
    /// The same by their last request.
    by_time: BTreeSet<(Timestamp, ClientId)>,
    /// A session ends after this time.
    window: Duration,
    /// Number of clients that are remembered, at most.
    most: usize,
    tallies: Tallies,
}

impl<'p> Clients<'p> {
    pub(super) fn new(plan: &'p Plan, predictors: usize, limits: &Limits) -> Self {
        Clients {
            plan,
            predictors,
            clients: BTreeMap::new(),
            left: Vec::new(),
            by_time: BTreeSet::new(),
            window: limits.session_window,
            most: limits.sessions,
            tallies: Tallies::new(plan, predictors),
        }
    }

    /// Removes clients whose session has ended, after fetching their suggestions: the server that gives a
    /// list does not know that the client leaves. `lasts` says, for clients without learned requests for
    /// long, whether other requests keep the session alive.
    pub(super) fn leave(&mut self, now: Timestamp, urls: &Urls, lasts: impl Fn(ClientId) -> bool) {
        while let Some((seen, id)) = self.by_time.first().copied()
            && now.saturating_since(seen) > self.window
        {
            self.by_time.remove(&(seen, id));
            if lasts(id) {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.seen = now;
                    self.by_time.insert((now, id));
                }
            } else if let Some(mut client) = self.clients.remove(&id) {
                self.tallies.fetch(&mut client, urls);
                self.left.push(client);
            }
        }
    }

    /// A request of a client: if it is a page, the suggestions are fetched first; then the caches that have
    /// it are found.
    pub(super) fn demand(
        &mut self,
        visit: &Visit,
        now: Timestamp,
        slice: Option<usize>,
        begins: bool,
        urls: &Urls,
    ) {
        let id = visit.client;
        let client = self.clients.entry(id).or_insert_with(|| {
            let mut client = self.left.pop().unwrap_or_default();
            client.start_session(id);
            client
        });
        if client.seen != now {
            self.by_time.remove(&(client.seen, id));
        }
        self.by_time.insert((now, id));
        client.seen = now;
        if begins {
            self.tallies.fetch(client, urls);
            client.start_session(id);
        }
        if visit.kind == Kind::Page {
            self.tallies.fetch(client, urls);
            client.pages += 1;
        }
        let is_new = client.cache.demand(visit.url, visit.cacheable);
        // Earlier requests of the client are in its cache, prefetched or not.
        let counted = slice.filter(|_| is_new);
        if let Some(slice) = counted {
            self.tallies.count(slice, client.group, visit.kind == Kind::Page, client.pages > 1);
        }
        if visit.cacheable {
            for which in 0..self.predictors {
                for fetched in client.cache.take(which, visit.url) {
                    let mut then =
                        self.tallies.row(usize::from(fetched.slice), client.group, which);
                    then.use_up(fetched.ways, fetched.bytes);
                    if let Some(slice) = counted {
                        let mut row = self.tallies.row(slice, client.group, which);
                        row.hit(fetched.ways, visit.kind == Kind::Page);
                    }
                }
            }
        }
        // At most as many as there are sessions: the client with the oldest request counts as gone.
        while self.clients.len() > self.most
            && let Some((_, id)) = self.by_time.pop_first()
        {
            let Some(mut client) = self.clients.remove(&id) else { continue };
            self.tallies.fetch(&mut client, urls);
            self.left.push(client);
        }
    }

    /// A predictor's list for the page of a client's last request.
    pub(super) fn advise(
        &mut self,
        client: ClientId,
        which: usize,
        slice: usize,
        ranked: &[Candidate],
        urls: &Urls,
    ) {
        let Some(client) = self.clients.get_mut(&client) else { return };
        client.advice.resize_with(self.predictors, Vec::new);
        client.slice = Some(slice as u16);
        let [lengths, priorities] = Row::kinds(self.plan);
        let advice = &mut client.advice[which];
        advice.clear();
        let mut length = lengths.begin;
        for (at, one) in ranked.iter().enumerate() {
            while self.plan.lengths.get(usize::from(length)).is_some_and(|length| *length <= at) {
                length += 1;
            }
            let worth = urls.priority(one.url, one.probability);
            let stricter = self.plan.priorities.iter().take_while(|least| worth < **least).count();
            let priority = priorities.begin + stricter as u8;
            if length < lengths.end || priority < priorities.end {
                advice.push((one.url, [length, priority]));
            }
        }
    }

    #[cfg(test)]
    pub(super) fn present(&self) -> usize {
        assert_eq!(self.clients.len(), self.by_time.len());
        self.clients.len()
    }

    /// The tallies, once the last lists are fetched too.
    pub(super) fn finish(mut self, urls: &Urls) -> Tallies {
        for mut client in core::mem::take(&mut self.clients).into_values() {
            self.tallies.fetch(&mut client, urls);
        }
        self.tallies
    }
}

impl Tallies {
    /// Fetches the suggestions for a client that are not in its cache.
    fn fetch(&mut self, client: &mut Client, urls: &Urls) {
        let Some(slice) = client.slice.take() else { return };
        let kinds: [Ways; 2] = self.kinds();
        for (which, advice) in client.advice.iter_mut().enumerate() {
            let mut row = self.row(usize::from(slice), client.group, which);
            for (url, begins) in advice.drain(..) {
                if client.cache.is_demanded(url) {
                    continue;
                }
                let bytes = urls.bytes(url).0;
                for (kind, begin) in begins.into_iter().enumerate() {
                    let of = (which, url);
                    if let Some(ways) = client.cache.fetch(of, kind, begin, kinds, (slice, bytes)) {
                        row.fetch(ways, bytes);
                    }
                }
            }
        }
    }
}
