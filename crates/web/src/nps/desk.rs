//! The desk of the hint server (SSR §5.2.1): one thread holds the model, learns what visitors do,
//! and ranks what they may want next.
//!
//! The threads that carry the traffic hand over what they saw and go on. Where the desk is behind,
//! visits are not learned from and lists stay empty; nobody waits for it.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use lull_cc::{Bytes, Timestamp};
use lull_speculate::log::Entry;
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientId, Kind as UrlKind, UrlId, Visit};
use lull_speculate::predict::{Candidate, Predictor as _, Question, prioritise};
use tokio::sync::oneshot;

use super::{Shared, wall};
use crate::protocol::{Hint, Kind};

/// What may wait for the desk.
const WAITING: usize = 4096;
/// How often clients whose sessions have ended are forgotten, and the model is saved: what a power
/// cut may cost.
const EVERY: Duration = Duration::from_secs(60);
/// SSR §5.2.2: a list is one document's worth; more than that is never asked of the rules.
const MOST_HINTS: usize = 32;
/// Representative objects are no longer, so that asking for them costs next to nothing.
const LONGEST_OBJECT: Bytes = Bytes(64 << 10);

/// The length of a list (SSR §5.3.1), for those that nobody sees.
const DOCUMENT: usize = 10;
/// Clients whose lists are remembered in shadow mode; of two that share a place the later one.
const SHADOWED: usize = 1 << 14;

/// Keeps a model beyond the end of the program. What goes wrong is its own to tell.
pub type Save = Box<dyn FnMut(&Model) + Send>;

/// A request and its reply, as far as something is learned of it.
#[derive(Debug)]
pub(super) struct Visited {
    pub(super) address: IpAddr,
    pub(super) agent: String,
    pub(super) target: String,
    pub(super) at: SystemTime,
    pub(super) status: u16,
    pub(super) bytes: u64,
    pub(super) took: Option<Duration>,
    pub(super) prefetch: bool,
    pub(super) private: bool,
}

/// What is asked for hints: the page at hand, and what was fetched ahead from it already.
///
/// The client's history is not asked. Behind one address there may be many, and who makes a page up
/// would learn from the list what the others were at. The shipped predictor needs no more than the
/// page (`docs/predictor.md`).
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) page: String,
    pub(super) had: Vec<String>,
}

enum Message {
    Visited(Visited),
    /// A page that came out of a visitor's cache.
    Shown(Visited),
    Ask(Ask, oneshot::Sender<Vec<Hint>>),
    Popular(oneshot::Sender<Vec<String>>),
    End,
}

/// The way to the desk.
#[derive(Debug)]
pub(super) struct Desk(SyncSender<Message>);

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

/// What a client would have been given on its page.
type Foreseen = (ClientId, Vec<UrlId>);

/// The other end of it.
pub(super) struct Worker {
    messages: Receiver<Message>,
    model: Model,
    save: Option<Save>,
    is_saved: bool,
    ranked: Vec<Candidate>,
    prioritised: Vec<(f32, Candidate)>,
    /// Of the shadow mode.
    shadow: Box<[Option<Foreseen>]>,
    places: RandomState,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("is_saved", &self.is_saved).finish_non_exhaustive()
    }
}

/// A desk with this model.
pub(super) fn desk(model: Model, save: Option<Save>) -> (Desk, Worker) {
    let (sender, messages) = sync_channel(WAITING);
    let (ranked, prioritised) = (Vec::new(), Vec::new());
    let (shadow, places) = (Box::default(), RandomState::new());
    let worker =
        Worker { messages, model, save, is_saved: false, ranked, prioritised, shadow, places };
    (Desk(sender), worker)
}

impl Desk {
    /// Hands a visit over; false if the desk is behind.
    pub(super) fn visited(&self, visited: Visited) -> bool {
        self.0.try_send(Message::Visited(visited)).is_ok()
    }

    /// Hands over that a page was shown that the proxy has not seen go by. Who says so may make it
    /// up, so only pages count that are known and public.
    pub(super) fn shown(&self, visited: Visited) {
        let _ = self.0.try_send(Message::Shown(visited));
    }

    /// What may be wanted next, best first; `None` if the desk is behind.
    pub(super) async fn ask(&self, ask: Ask) -> Option<Vec<Hint>> {
        let (to, answer) = oneshot::channel();
        self.0.try_send(Message::Ask(ask, to)).ok()?;
        answer.await.ok()
    }

    /// What the monitor may ask for: the public page and the public part of pages that are wanted
    /// most.
    pub(super) async fn popular(&self) -> Vec<String> {
        let (to, answer) = oneshot::channel();
        if self.0.try_send(Message::Popular(to)).is_err() {
            return Vec::new();
        }
        answer.await.unwrap_or_default()
    }

    /// Ends the desk, after what waits for it.
    pub(super) fn end(&self) {
        let _ = self.0.send(Message::End);
    }
}

impl Worker {
    /// Answers until the end. Saves at the beginning, as the model may have learned from logs, every
    /// minute, and at the end.
    pub(super) fn run(mut self, shared: &Arc<Shared>) {
        self.save();
        let mut next = Instant::now() + EVERY;
        loop {
            let message =
                self.messages.recv_timeout(next.saturating_duration_since(Instant::now()));
            match message {
                Ok(Message::Visited(visited)) => {
                    let visit = self.learn(&visited);
                    if let Some(visit) = visit.filter(|_| shared.settings.shadow) {
                        self.foresee(shared, &visit);
                    }
                }
                Ok(Message::Shown(visited)) => {
                    let urls = self.model.observer();
                    let url = urls.url(&visited.target);
                    if url.is_some_and(|url| urls.urls().is_public(url)) {
                        let _ = self.learn(&visited);
                    }
                }
                Ok(Message::Ask(ask, to)) => {
                    // Who has gone meanwhile does not wait for it.
                    let _ = to.send(self.rank(shared, &ask));
                }
                Ok(Message::Popular(to)) => {
                    let _ = to.send(self.popular(shared));
                }
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= next {
                next = Instant::now() + EVERY;
                self.model.forget(timestamp(wall()));
                self.save();
            }
        }
        self.save();
    }

    fn save(&mut self) {
        if let Some(save) = self.save.as_mut().filter(|_| !self.is_saved) {
            save(&self.model);
            self.is_saved = true;
        }
    }

    fn learn(&mut self, visited: &Visited) -> Option<Visit> {
        let entry = Entry {
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
        // Why nothing is learned from some requests is for `lull predict` to say.
        let visit = self.model.learn(&entry).ok()?;
        self.is_saved = false;
        Some(visit)
    }

    /// Counts whether a page was foreseen on the one before, and foresees the next ones.
    fn foresee(&mut self, shared: &Shared, visit: &Visit) {
        if visit.kind != UrlKind::Page {
            return;
        }
        if self.shadow.is_empty() {
            self.shadow = vec![None; SHADOWED].into();
        }
        let page = [visit.url];
        let urls = self.model.observer().urls();
        let question = Question { at: visit.at, pages: &page, held: &page };
        self.model.predictor().rank(&question, urls, &mut self.ranked);
        prioritise(&self.ranked, urls, &mut self.prioritised);
        let (policy, now) = (shared.policy(), shared.now());
        let may =
            |one: &UrlId| urls.path(*one).is_some_and(|url| policy.may_hint(url, now).is_ok());
        let list: Vec<UrlId> =
            self.prioritised.iter().map(|(_, one)| one.url).filter(may).take(DOCUMENT).collect();
        drop(policy);
        let counts = &shared.counts;
        counts.shadow_pages.one();
        counts.shadow_hints.add(list.len() as u64);
        let place = self.places.hash_one(visit.client) as usize % SHADOWED;
        let before = self.shadow[place].replace((visit.client, list));
        if before.is_some_and(|(who, list)| who == visit.client && list.contains(&visit.url)) {
            counts.shadow_hits.one();
        }
    }

    /// The candidates that the rules let through.
    fn rank(&mut self, shared: &Shared, ask: &Ask) -> Vec<Hint> {
        let observer = self.model.observer();
        let Some(page) = observer.url(&ask.page) else { return Vec::new() };
        let mut held: Vec<UrlId> = ask.had.iter().filter_map(|url| observer.url(url)).collect();
        held.push(page);
        held.sort_unstable();
        let question = Question { at: timestamp(wall()), pages: &[page], held: &held };
        let urls = observer.urls();
        self.model.predictor().rank(&question, urls, &mut self.ranked);
        prioritise(&self.ranked, urls, &mut self.prioritised);
        let (policy, now) = (shared.policy(), shared.now());
        let hints = self.prioritised.iter().filter_map(|(_, one)| {
            let url = urls.path(one.url)?;
            policy.may_hint(url, now).ok()?;
            let kind = match urls.kind(one.url) {
                UrlKind::Page => Kind::Document,
                UrlKind::Embedded => Kind::Part,
            };
            Some(Hint { url: url.to_owned(), kind, bytes: shared.lengths.of(url) })
        });
        hints.take(MOST_HINTS).collect()
    }

    fn popular(&mut self, shared: &Shared) -> Vec<String> {
        let urls = self.model.observer().urls();
        let question = Question { at: timestamp(wall()), pages: &[], held: &[] };
        self.model.predictor().rank(&question, urls, &mut self.ranked);
        let (policy, now) = (shared.policy(), shared.now());
        let most_wanted = |kind| {
            let mut candidates = self.ranked.iter().map(|one| one.url);
            let found = candidates.find(|url| {
                let may_be = |path| policy.may_hint(path, now).is_ok();
                urls.kind(*url) == kind
                    && urls.bytes(*url) <= LONGEST_OBJECT
                    && urls.path(*url).is_some_and(may_be)
            })?;
            urls.path(found).map(str::to_owned)
        };
        [most_wanted(UrlKind::Page), most_wanted(UrlKind::Embedded)].into_iter().flatten().collect()
    }
}

/// Models count from 1970, as logs do.
fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::ZERO + since
}
