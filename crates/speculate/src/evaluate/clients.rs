//! The clients of an evaluation, each with a cache for every way to use every predictor.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lull_cc::Timestamp;

use super::Plan;
use super::tally::Tally;
use crate::observe::{ClientId, Kind, Limits, UrlId, Urls, Visit};
use crate::predict::Candidate;

/// Something in a cache that was fetched ahead and is not used yet.
#[derive(Clone, Copy, Debug)]
struct Fetched {
    bytes: u64,
    slice: usize,
}

/// A list that is fetched before the next page.
#[derive(Clone, Debug, Default)]
struct Advice {
    slice: usize,
    by_probability: Vec<UrlId>,
    by_priority: Vec<(f32, UrlId)>,
}

#[derive(Clone, Debug, Default)]
struct Client {
    /// When it asked for something last.
    seen: Timestamp,
    /// What it asked for itself, and whether in a way that leaves it in a cache: what has a query has another
    /// name there.
    demanded: BTreeSet<(UrlId, bool)>,
    pages: u64,
    /// For each predictor.
    advice: Vec<Option<Advice>>,
    /// For each predictor and each way.
    fetched: Vec<BTreeMap<UrlId, Fetched>>,
}

pub(super) struct Clients<'p> {
    plan: &'p Plan,
    contestants: usize,
    clients: BTreeMap<ClientId, Client>,
    /// The same by when they asked for something last.
    by_time: BTreeSet<(Timestamp, ClientId)>,
    /// After this time a session has ended.
    window: Duration,
    /// So many clients are remembered.
    most: usize,
    /// For each slice, each predictor and each way.
    tallies: Vec<Vec<Tally>>,
}

impl<'p> Clients<'p> {
    pub(super) fn new(plan: &'p Plan, contestants: usize, limits: &Limits) -> Self {
        let tallies = vec![Tally::default(); contestants * plan.ways()];
        Clients {
            plan,
            contestants,
            clients: BTreeMap::new(),
            by_time: BTreeSet::new(),
            window: limits.session_window,
            most: limits.sessions,
            tallies: vec![tallies; plan.slices.len()],
        }
    }

    /// Lets those go whose session has ended, once they fetched what they were advised: who gives a
    /// list does not know that the client leaves. `lasts` says of whom nothing was learned for long
    /// whether the session lasts all the same, by requests that nothing is learned from.
    pub(super) fn leave(&mut self, now: Timestamp, urls: &Urls, lasts: impl Fn(ClientId) -> bool) {
        while let Some((seen, id)) = self.by_time.first().copied()
            && now.saturating_since(seen) > self.window
        {
            self.by_time.remove(&(seen, id));
            let Some(mut client) = self.clients.remove(&id) else { continue };
            if lasts(id) {
                client.seen = now;
                self.by_time.insert((now, id));
                self.clients.insert(id, client);
            } else {
                self.fetch(&mut client, urls);
            }
        }
    }

    /// A client asks for something: first what it was advised is fetched, if this is a page; then
    /// it is seen which caches have it.
    pub(super) fn demand(
        &mut self,
        visit: &Visit,
        now: Timestamp,
        slice: Option<usize>,
        begins: bool,
        urls: &Urls,
    ) {
        let mut client = self.clients.remove(&visit.client).unwrap_or_default();
        self.by_time.remove(&(client.seen, visit.client));
        self.by_time.insert((now, visit.client));
        if begins {
            self.fetch(&mut client, urls);
            client = Client::default();
        }
        client.seen = now;
        if visit.kind == Kind::Page {
            self.fetch(&mut client, urls);
            client.pages += 1;
        }
        let is_new = client.demanded.insert((visit.url, visit.cacheable));
        let ways = self.contestants * self.plan.ways();
        client.fetched.resize_with(ways, BTreeMap::new);
        client.advice.resize(self.contestants, None);
        for (way, fetched) in client.fetched.iter_mut().enumerate() {
            let hit = if visit.cacheable { fetched.remove(&visit.url) } else { None };
            if let Some(fetched) = hit {
                let tally = &mut self.tallies[fetched.slice][way];
                tally.used += 1;
                tally.used_bytes += fetched.bytes;
            }
            // What the client asked for before is in its cache, prefetched or not.
            if let (true, Some(slice)) = (is_new, slice) {
                let tally = &mut self.tallies[slice][way];
                let (page, hit) = (visit.kind == Kind::Page, hit.is_some());
                tally.requests += 1;
                tally.hits += u64::from(hit);
                tally.pages += u64::from(page);
                tally.page_hits += u64::from(page && hit);
                tally.foreseeable += u64::from(client.pages > 1);
            }
        }
        self.clients.insert(visit.client, client);
        // No more than have sessions: who asked for nothing for the longest is taken to have left.
        while self.clients.len() > self.most
            && let Some((_, id)) = self.by_time.pop_first()
        {
            let left = self.clients.remove(&id);
            left.into_iter().for_each(|mut client| self.fetch(&mut client, urls));
        }
    }

    /// A predictor's list for the page that a client just asked for.
    pub(super) fn advise(
        &mut self,
        client: ClientId,
        which: usize,
        slice: Option<usize>,
        by_probability: &[Candidate],
        by_priority: &[(f32, Candidate)],
    ) {
        let (Some(client), Some(slice)) = (self.clients.get_mut(&client), slice) else { return };
        let longest = self.plan.lengths.iter().copied().max().unwrap_or(0);
        let least = self.plan.priorities.iter().copied().fold(f32::INFINITY, f32::min);
        client.advice[which] = Some(Advice {
            slice,
            by_probability: by_probability.iter().take(longest).map(|one| one.url).collect(),
            by_priority: by_priority
                .iter()
                .take_while(|(priority, _)| *priority >= least)
                .map(|(priority, one)| (*priority, one.url))
                .collect(),
        });
    }

    /// Fetches what a client was advised, as far as it has it not.
    fn fetch(&mut self, client: &mut Client, urls: &Urls) {
        let ways = self.plan.ways();
        for which in 0..client.advice.len() {
            let Some(advice) = client.advice[which].take() else { continue };
            for way in 0..ways {
                let lengths = &self.plan.lengths;
                let urls_of_way: Vec<UrlId> = if way < lengths.len() {
                    advice.by_probability.iter().take(lengths[way]).copied().collect()
                } else {
                    let least = self.plan.priorities[way - lengths.len()];
                    let list = advice.by_priority.iter();
                    list.take_while(|(priority, _)| *priority >= least)
                        .map(|(_, url)| *url)
                        .collect()
                };
                let at = which * ways + way;
                for url in urls_of_way {
                    if client.demanded.contains(&(url, true))
                        || client.fetched[at].contains_key(&url)
                    {
                        continue;
                    }
                    let bytes = urls.bytes(url).0;
                    client.fetched[at].insert(url, Fetched { bytes, slice: advice.slice });
                    let tally = &mut self.tallies[advice.slice][at];
                    tally.fetched += 1;
                    tally.fetched_bytes += bytes;
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn present(&self) -> usize {
        assert_eq!(self.clients.len(), self.by_time.len());
        self.clients.len()
    }

    /// The tallies, once the last lists are fetched too.
    pub(super) fn finish(mut self, urls: &Urls) -> Vec<Vec<Tally>> {
        for mut client in core::mem::take(&mut self.clients).into_values() {
            self.fetch(&mut client, urls);
        }
        self.tallies
    }
}
