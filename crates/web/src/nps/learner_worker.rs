//! The thread of the hint server: it holds the model.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use lull_cc::Bytes;
use lull_speculate::log::Entry;
use lull_speculate::model::{Delta, Model, Sender};
use lull_speculate::observe::{ClientId, Kind as UrlKind, UrlId, Visit};
use lull_speculate::predict::Question;

use super::clock::{timestamp, wall};
use super::learner::{Inbox, LearnerStart, Message, Visited};
use super::lock::lock;
use super::persistence::{Persistence, SAVE_INTERVAL};
use super::select_hints::{Ask, HintedSite, Ranked, Ranking};
use super::shared::Shared;
use super::sharing::{Message as SharedMessage, Sharing};

/// Representative objects are not longer than this, so that requests for them are cheap.
const MAX_OBJECT_BYTES: Bytes = Bytes(64 << 10);

/// Number of the most requested pages among which a slow one is searched.
const PAGES: usize = 20;
/// A page this many times slower than the most popular one is made differently, such as by a program and not
/// from a file. A threshold is the same multiple of the usual time.
const SLOWER: u32 = 2;
/// Probes take at most one percent of the time. So a page of 50 ms can be requested every five seconds
/// without visitors, and its usual time is learned in less than a minute.
const QUICK: Duration = Duration::from_millis(50);
/// A slower one provides few samples, and loads the server.
const SLOWEST: Duration = Duration::from_secs(1);

/// Clients whose lists are remembered in shadow mode; of two with the same slot the later one.
const SHADOWED: usize = 1 << 14;

/// The list that a client would have got on its page.
type ShadowHints = (ClientId, Vec<UrlId>);

/// The thread's state.
struct Worker {
    inbox: Inbox,
    model: Model,
    saved: Persistence,
    /// The number of learned changes, including the initial one.
    changes: u64,
    ranking: Ranking,
    /// Predictions of shadow mode.
    shadow: Box<[Option<ShadowHints>]>,
    slot_key: RandomState,
}

/// Makes the model, and answers until the end.
pub(super) fn run(start: LearnerStart, shared: &Arc<Shared>) {
    let Some((model, inbox, save)) = start.model(|event| shared.notices.report(event)) else {
        return;
    };
    let mut model = model;
    if let Some(sharing) = &shared.sharing {
        model.share(sharing.sender());
    }
    let worker = Worker {
        inbox,
        model,
        saved: Persistence::new(save),
        changes: 1,
        ranking: Ranking::default(),
        shadow: Box::default(),
        slot_key: RandomState::new(),
    };
    worker.run(shared);
}

impl Worker {
    /// Answers until the end. Saves at the beginning, since the model may have learned from logs, then every
    /// minute, and at the end.
    fn run(mut self, shared: &Arc<Shared>) {
        self.save(shared, false);
        let mut next = Instant::now() + SAVE_INTERVAL;
        loop {
            match self.inbox.receive(next.saturating_duration_since(Instant::now())) {
                Ok(Message::Visited(visited)) => {
                    let visit = self.learn(shared, &visited);
                    if let Some(visit) = visit.filter(|_| shared.rules.settings.shadow) {
                        self.record_shadow_hints(shared, &visit);
                    }
                }
                Ok(Message::Shown(visited)) => {
                    let urls = self.model.observer();
                    let url = urls.url(&visited.target);
                    if url.is_some_and(|url| urls.urls().is_public(url)) {
                        let _ = self.learn(shared, &visited);
                    }
                }
                Ok(Message::Ask(ask, to)) => {
                    // A client that has gone needs no answer.
                    let _ = to.send(self.answer(shared, &ask));
                }
                Ok(Message::Popular(except, to)) => {
                    let _ = to.send(self.popular(shared, &except));
                }
                Ok(Message::TakeDelta(to)) => {
                    let delta = self.model.take_delta(timestamp(wall()));
                    let _ = to.send(delta.map(|(number, delta)| (number, delta.encode())));
                }
                Ok(Message::Merge(sender, number, bytes)) => self.merge(sender, number, &bytes),
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= next {
                next = Instant::now() + SAVE_INTERVAL;
                self.model.forget(timestamp(wall()));
                self.save(shared, false);
            }
        }
        self.save(shared, true);
    }

    fn save(&mut self, shared: &Arc<Shared>, is_end: bool) {
        // Before the model is saved, so that it has the numbers of these deltas.
        if let Some(sharing) = &shared.sharing {
            self.keep_unsent(shared, sharing, is_end);
        }
        let written = || {
            let mut bytes = Vec::new();
            // Memory takes everything.
            let _ = self.model.write(&mut bytes);
            bytes
        };
        self.saved.save_or_end(is_end, self.changes, written, shared.notices.reporter());
        if let Some(sharing) = &shared.sharing {
            shared.saved.save_unsent(is_end, sharing, &shared.notices);
        }
    }

    /// Moves what other proxies have not got to the messages that are saved, where they could not be sent soon: at the
    /// end, and while the NATS server is away.
    fn keep_unsent(&mut self, shared: &Shared, sharing: &Sharing, is_end: bool) {
        let is_connected = sharing.is_connected.load(Ordering::Relaxed);
        if is_connected && !is_end || !shared.saved.has_place_for_unsent() {
            return;
        }
        let (sender, now) = (sharing.sender(), shared.rules.now());
        let mut unsent = lock(&sharing.unsent);
        if let Some(bytes) = shared.rules.policy().take_new_bars(now, wall()) {
            unsent.push(&SharedMessage::Bars { sender, bytes });
        }
        while !unsent.is_full()
            && let Some((number, delta)) = self.model.take_delta(timestamp(wall()))
        {
            self.changes += 1;
            unsent.push(&SharedMessage::Delta { sender, number, bytes: delta.encode() });
        }
    }

    /// Adds what another proxy has learned. A delta of a later version is not used.
    fn merge(&mut self, sender: Sender, number: u64, bytes: &[u8]) {
        if let Ok(delta) = Delta::decode(bytes) {
            self.model.resume(timestamp(wall()));
            self.changes += u64::from(self.model.merge(sender, number, &delta));
        }
    }

    fn learn(&mut self, shared: &Shared, visited: &Visited) -> Option<Visit> {
        let entry = Entry {
            named_by_query: shared.rules.settings.rules.urls.is_named_by_query(&visited.target),
            status: visited.status,
            bytes: Bytes(visited.bytes),
            agent: Some(visited.agent.as_str().into()),
            took: visited.took,
            prefetch: visited.prefetch,
            private: visited.private,
            ..Entry::page(
                timestamp(visited.at),
                visited.address.to_string(),
                visited.target.as_str(),
            )
        };
        // Its logs and its model may be old.
        self.model.resume(timestamp(visited.at));
        // `lull predict` reports why some requests are not learned.
        let visit = self.model.learn(&entry).ok()?;
        self.changes += 1;
        Some(visit)
    }

    /// Counts whether a page was predicted on the previous one, and predicts the next ones.
    fn record_shadow_hints(&mut self, shared: &Shared, visit: &Visit) {
        if visit.kind != UrlKind::Page {
            return;
        }
        if self.shadow.is_empty() {
            self.shadow = vec![None; SHADOWED].into();
        }
        let list = self.ranking.shadow_hints_for(&self.model, &shared.rules, visit);
        let counts = &shared.counts;
        counts.shadow_pages.one();
        counts.shadow_hints.add(list.len() as u64);
        let slot = self.slot_key.hash_one(visit.client) as usize % SHADOWED;
        let before = self.shadow[slot].replace((visit.client, list));
        if before
            .is_some_and(|(requester, list)| requester == visit.client && list.contains(&visit.url))
        {
            counts.shadow_hits.one();
        }
    }

    fn answer(&mut self, shared: &Shared, ask: &Ask) -> Ranked {
        let knowledge = &shared.knowledge;
        let site = HintedSite {
            rules: &shared.rules,
            lengths: &knowledge.lengths,
            stubs: &knowledge.stubs,
            counts: &shared.counts,
            notices: &shared.notices,
        };
        self.ranking.answer(&self.model, &site, ask)
    }

    fn popular(&mut self, shared: &Shared, except: &[String]) -> Vec<String> {
        let urls = self.model.observer().urls();
        let question = Question { at: timestamp(wall()), pages: &[], learned: false, held: &[] };
        let ranked = self.ranking.ranked(&self.model, &question);
        let (policy, now) = (shared.rules.policy(), shared.rules.now());
        let most_wanted =
            |kind| ranked.iter().map(|one| one.url).filter(move |url| urls.kind(*url) == kind);
        let may_be = |url: &UrlId| {
            let may_be = |path: &str| {
                !except.iter().any(|other| other == path) && policy.may_hint(path, now).is_ok()
            };
            urls.bytes(*url) <= MAX_OBJECT_BYTES && urls.path(*url).is_some_and(may_be)
        };
        let pages: Vec<_> = most_wanted(UrlKind::Page).take(PAGES).filter(may_be).collect();
        let page = pages.first().copied().or_else(|| most_wanted(UrlKind::Page).find(may_be));
        let takes = |url: &UrlId| (urls.server_time(*url), *url);
        let slow = page.and_then(|page| slow(takes(&page).0, pages.iter().map(takes)));
        let part = most_wanted(UrlKind::Embedded).find(may_be);
        let objects = [page, part, slow].into_iter().flatten();
        objects.filter_map(|url| urls.path(url).map(str::to_owned)).collect()
    }
}

/// Of pages with their server times, one that represents those slower than the most popular one, which takes
/// `usual`. It is the slowest that can be requested often, or otherwise the one that can be requested most
/// often.
fn slow(usual: Duration, pages: impl Iterator<Item = (Duration, UrlId)>) -> Option<UrlId> {
    pages
        .filter(|(time, _)| *time > usual * SLOWER && *time <= SLOWEST)
        .min_by_key(|(time, _)| if *time <= QUICK { QUICK - *time } else { *time })
        .map(|(_, url)| url)
}

#[cfg(test)]
mod tests {
    use lull_speculate::observe::{ClientHasher, Limits};
    use lull_speculate::predict::PpmParameters;

    use super::*;

    #[test]
    fn slow_page_is_probed_if_it_may_be_requested_often() {
        let mut model =
            Model::new(ClientHasher::new([7; 16]), Limits::default(), PpmParameters::shipped());
        let mut found = |usual: u64, times: &[u64]| {
            let mut place = |millis: &u64| {
                let time = Duration::from_millis(*millis);
                let entry = Entry {
                    took: Some(time),
                    bytes: Bytes(100),
                    ..Entry::page(timestamp(wall()), "192.0.2.7", format!("/{millis}"))
                };
                let _ = model.learn(&entry);
                let url = model.observer().url(&format!("/{millis}")).unwrap();
                assert_eq!(model.observer().urls().server_time(url), time);
                (time, url)
            };
            let pages: Vec<_> = times.iter().map(&mut place).collect();
            let slow = slow(Duration::from_millis(usual), pages.iter().copied())?;
            pages.iter().find(|(_, url)| *url == slow).map(|(time, _)| time.as_millis())
        };
        for (usual, times, expected) in [
            (1, &[1, 2][..], None),
            (1, &[3, 40, 30], Some(40)),
            (1, &[3, 300, 200], Some(3)),
            (10, &[3, 300, 200, 20], Some(200)),
            (10, &[3, 3_000], None),
            (10, &[], None),
        ] {
            assert_eq!(found(usual, times), expected, "{usual} {times:?}");
        }
    }
}
