//! The desk of the hint server (SSR §5.2.1): one thread holds the model, learns what visitors do,
//! and ranks what they may want next.
//!
//! The threads that carry the traffic hand over what they saw and go on. Where the desk is behind, or
//! still reads what was learned before, visits are not learned from and lists stay empty; nobody
//! waits for it.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use http::header::USER_AGENT;
use http::{HeaderMap, StatusCode, request};
use lull_cc::{Bytes, Timestamp};
use lull_speculate::log::Entry;
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientId, Kind as UrlKind, UrlId, Visit};
use lull_speculate::predict::Question;
use tokio::sync::oneshot;

use super::keeping::{Keeping, Save};
use super::ranking::{Ranked, Ranking};
use super::who::Who;
use super::{Shared, wall};
use crate::policy::fields;
use crate::proxy::Event;

/// What may wait for the desk: so many messages, of so many bytes together.
const WAITING: usize = 4096;
const WAITING_BYTES: usize = 8 << 20;
/// What a message has beside its texts.
const MESSAGE_BYTES: usize = 256;
/// Of a longer user agent the beginning says whether it is a robot's.
const LONGEST_AGENT: usize = 512;
/// How often clients whose sessions have ended are forgotten, and the model is saved: what a power
/// cut may cost.
pub(super) const EVERY: Duration = Duration::from_secs(60);
/// Representative objects are no longer, so that asking for them costs next to nothing.
const LONGEST_OBJECT: Bytes = Bytes(64 << 10);

/// Of the pages that are wanted most so many are looked at for a slow one.
const PAGES: usize = 20;
/// A page that takes so many times as long as the one that is wanted most is made by something else, such
/// as by a program in place of a file. A threshold is as much above what is usual.
const SLOWER: u32 = 2;
/// Asking takes a hundredth of the time at most, so a page of 50 ms can be asked for every five seconds where
/// no visitor does, and what is usual of it is learned in less than a minute.
const QUICK: Duration = Duration::from_millis(50);
/// One that takes longer says too little while it loads the server too much.
const SLOWEST: Duration = Duration::from_secs(1);

/// The length of a list (SSR §5.3.1), for those that nobody sees.
const DOCUMENT: usize = 10;
/// Clients whose lists are remembered in shadow mode; of two that share a place the later one.
const SHADOWED: usize = 1 << 14;

/// So long the end waits for a desk that does not hear, and looks again so often.
const LAST_WAIT: Duration = Duration::from_secs(5);
const LAST_LOOK: Duration = Duration::from_millis(10);

/// Makes the model to begin with, from what was kept and from logs, while the site is served already. It
/// tells what the owner wants to know, and gives up once the other says that it is the end: then there
/// is none.
pub type Learn = Box<dyn FnOnce(&dyn Fn(&Event), &AtomicBool) -> Option<Model> + Send>;

/// What a desk begins with.
pub(super) enum Begin {
    With(Box<Model>),
    Learning(Learn),
}

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

impl Visited {
    /// Of a page that was a copy, in the browser's cache or the service worker's. It says nothing of
    /// the page itself.
    pub(super) fn of_copy(head: &request::Parts, target: String, who: Who) -> Self {
        Visited {
            address: who.address,
            agent: agent(&head.headers),
            target,
            at: wall(),
            status: StatusCode::NOT_MODIFIED.as_u16(),
            bytes: 0,
            took: None,
            prefetch: false,
            private: false,
        }
    }
}

/// Who a browser says that it is, as far as that is kept.
pub(super) fn agent(headers: &HeaderMap) -> String {
    let said = fields::single(headers, USER_AGENT).unwrap_or_default();
    // It is ASCII: what is not, is no text to `fields`.
    said.get(..LONGEST_AGENT).unwrap_or(said).to_owned()
}

/// What is asked for hints: the page at hand, and what was fetched ahead from it already.
///
/// The client's history is not asked. Behind one address there may be many, and who makes a page up
/// would learn from the list what the others were at. The shipped predictor needs no more than the
/// page (`docs/predictor.md`).
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) page: String,
    /// Whether the visitor points at links before following them, and is looked after then.
    pub(super) points: bool,
    pub(super) had: Vec<String>,
}

enum Message {
    Visited(Visited),
    /// A page that came out of a visitor's cache.
    Shown(Visited),
    Ask(Ask, oneshot::Sender<Ranked>),
    Popular(Vec<String>, oneshot::Sender<Vec<String>>),
    End,
}

impl Message {
    /// What it takes while it waits.
    fn bytes(&self) -> usize {
        MESSAGE_BYTES
            + match self {
                Message::Visited(visited) | Message::Shown(visited) => {
                    visited.agent.len() + visited.target.len()
                }
                Message::Ask(ask, _) => {
                    let had = ask.had.iter().map(|url| url.len() + size_of::<String>());
                    ask.page.len() + had.sum::<usize>()
                }
                Message::Popular(except, _) => except.iter().map(String::len).sum(),
                Message::End => 0,
            }
    }
}

/// The way to the desk.
#[derive(Debug)]
pub(super) struct Desk {
    to: SyncSender<Message>,
    /// Bytes of what waits.
    waiting: Arc<AtomicUsize>,
    state: Arc<State>,
}

/// What desk and threads know of each other.
#[derive(Debug, Default)]
struct State {
    /// Whether there is no model yet.
    is_reading: AtomicBool,
    is_ending: AtomicBool,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

/// What a client would have been given on its page.
type Foreseen = (ClientId, Vec<UrlId>);

/// The other end of it, before it works.
pub(super) struct Beginning {
    messages: Receiver<Message>,
    waiting: Arc<AtomicUsize>,
    state: Arc<State>,
    begin: Begin,
    save: Option<Save>,
}

impl std::fmt::Debug for Beginning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beginning").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The same at work.
struct Worker {
    messages: Receiver<Message>,
    waiting: Arc<AtomicUsize>,
    model: Model,
    keeping: Keeping,
    /// How often it has learned something; what it begins with is the first time.
    changes: u64,
    ranking: Ranking,
    /// Of the shadow mode.
    shadow: Box<[Option<Foreseen>]>,
    places: RandomState,
}

/// A desk with this model, or one that is still to be made.
pub(super) fn desk(begin: Begin, save: Option<Save>) -> (Desk, Beginning) {
    let (sender, messages) = sync_channel(WAITING);
    let waiting = Arc::new(AtomicUsize::new(0));
    let state = Arc::new(State::default());
    state.is_reading.store(matches!(begin, Begin::Learning(_)), Ordering::Relaxed);
    let desk = Desk { to: sender, waiting: Arc::clone(&waiting), state: Arc::clone(&state) };
    (desk, Beginning { messages, waiting, state, begin, save })
}

impl Beginning {
    /// Makes the model, and answers until the end.
    pub(super) fn run(self, shared: &Arc<Shared>) {
        let Beginning { messages, waiting, state, begin, save } = self;
        let model = match begin {
            Begin::With(model) => Some(*model),
            Begin::Learning(learn) => learn(&|event: &Event| shared.tell(event), &state.is_ending),
        };
        // What was learned in part is not kept: a log would be passed over from there on.
        let Some(model) = model else { return };
        state.is_reading.store(false, Ordering::Relaxed);
        let worker = Worker {
            messages,
            waiting,
            model,
            keeping: Keeping::new(save),
            changes: 1,
            ranking: Ranking::default(),
            shadow: Box::default(),
            places: RandomState::new(),
        };
        worker.run(shared);
    }
}

impl Desk {
    /// Hands a visit over; false if the desk is behind.
    pub(super) fn visited(&self, visited: Visited) -> bool {
        self.hand(Message::Visited(visited))
    }

    /// Hands something over, if there is room for it.
    fn hand(&self, message: Message) -> bool {
        let bytes = message.bytes();
        let waiting = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        let is_taken = waiting + bytes <= WAITING_BYTES && self.to.try_send(message).is_ok();
        if !is_taken {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    /// Hands over that a page was shown that the proxy has not seen go by. Who says so may make it
    /// up, so only pages count that are known and public.
    pub(super) fn shown(&self, visited: Visited) {
        self.hand(Message::Shown(visited));
    }

    /// Whether it still reads what was learned before.
    pub(super) fn is_reading(&self) -> bool {
        self.state.is_reading.load(Ordering::Relaxed)
    }

    /// What may be wanted next; `None` if the desk is behind.
    pub(super) async fn ask(&self, ask: Ask) -> Option<Ranked> {
        let (to, answer) = oneshot::channel();
        if self.is_reading() || !self.hand(Message::Ask(ask, to)) {
            return None;
        }
        answer.await.ok()
    }

    /// What the monitor may ask for: the public page and the public part of pages that are wanted
    /// most, and a page that is slower to make, but for these.
    pub(super) async fn popular(&self, except: Vec<String>) -> Vec<String> {
        let (to, answer) = oneshot::channel();
        if self.is_reading() || !self.hand(Message::Popular(except, to)) {
            return Vec::new();
        }
        answer.await.unwrap_or_default()
    }

    /// Ends the desk, after what waits for it. One that still reads gives that up.
    pub(super) fn end(&self) {
        self.state.is_ending.store(true, Ordering::Relaxed);
        self.waiting.fetch_add(Message::End.bytes(), Ordering::Relaxed);
        let begun = Instant::now();
        while let Err(TrySendError::Full(_)) = self.to.try_send(Message::End) {
            if self.is_reading() && begun.elapsed() > LAST_WAIT {
                return;
            }
            thread::sleep(LAST_LOOK);
        }
    }

    /// Whether its thread need not be waited for, because it does not hear: a log may be a pipe into
    /// which nobody writes.
    pub(super) fn is_deaf(&self, worker: &thread::JoinHandle<()>) -> bool {
        let begun = Instant::now();
        while self.is_reading() && !worker.is_finished() {
            if begun.elapsed() > LAST_WAIT {
                return true;
            }
            thread::sleep(LAST_LOOK);
        }
        false
    }
}

impl Worker {
    /// Answers until the end. Saves at the beginning, as the model may have learned from logs, every
    /// minute, and at the end.
    fn run(mut self, shared: &Arc<Shared>) {
        self.keep(shared, false);
        let mut next = Instant::now() + EVERY;
        loop {
            let message =
                self.messages.recv_timeout(next.saturating_duration_since(Instant::now()));
            if let Ok(message) = &message {
                self.waiting.fetch_sub(message.bytes(), Ordering::Relaxed);
            }
            match message {
                Ok(Message::Visited(visited)) => {
                    let visit = self.learn(shared, &visited);
                    if let Some(visit) = visit.filter(|_| shared.settings.shadow) {
                        self.foresee(shared, &visit);
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
                    // Who has gone meanwhile does not wait for it.
                    let _ = to.send(self.ranking.answer(&self.model, shared, &ask));
                }
                Ok(Message::Popular(except, to)) => {
                    let _ = to.send(self.popular(shared, &except));
                }
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= next {
                next = Instant::now() + EVERY;
                self.model.forget(timestamp(wall()));
                self.keep(shared, false);
            }
        }
        self.keep(shared, true);
    }

    fn keep(&mut self, shared: &Arc<Shared>, is_end: bool) {
        let written = || {
            let mut bytes = Vec::new();
            // Memory takes everything.
            let _ = self.model.write(&mut bytes);
            bytes
        };
        self.keeping.keep_or_end(is_end, self.changes, written, shared.teller());
    }

    fn learn(&mut self, shared: &Shared, visited: &Visited) -> Option<Visit> {
        let entry = Entry {
            named_by_query: shared.settings.rules.urls.is_named_by_query(&visited.target),
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
        // Its logs and its model may be from long ago.
        self.model.resume(timestamp(visited.at));
        // Why nothing is learned from some requests is for `lull predict` to say.
        let visit = self.model.learn(&entry).ok()?;
        self.changes += 1;
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
        let question = Question { at: visit.at, pages: &page, learned: true, held: &page };
        let prioritised = self.ranking.prioritised(&self.model, &question);
        let (policy, now) = (shared.policy(), shared.now());
        let may =
            |one: &UrlId| urls.path(*one).is_some_and(|url| policy.may_hint(url, now).is_ok());
        let least = shared.settings.least_worth;
        let worth = prioritised.iter().take_while(|(worth, _)| least.is_met_by(*worth));
        let list: Vec<UrlId> = worth.map(|(_, one)| one.url).filter(may).take(DOCUMENT).collect();
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

    fn popular(&mut self, shared: &Shared, except: &[String]) -> Vec<String> {
        let urls = self.model.observer().urls();
        let question = Question { at: timestamp(wall()), pages: &[], learned: false, held: &[] };
        let ranked = self.ranking.ranked(&self.model, &question);
        let (policy, now) = (shared.policy(), shared.now());
        let most_wanted =
            |kind| ranked.iter().map(|one| one.url).filter(move |url| urls.kind(*url) == kind);
        let may_be = |url: &UrlId| {
            let may_be = |path: &str| {
                !except.iter().any(|other| other == path) && policy.may_hint(path, now).is_ok()
            };
            urls.bytes(*url) <= LONGEST_OBJECT && urls.path(*url).is_some_and(may_be)
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

/// Of pages with the time that the server takes for each, one that stands for what is slower to make than
/// the page that is wanted most, which takes `usual`: the slowest that can be asked for often, else the one
/// that can be asked for most often.
fn slow(usual: Duration, pages: impl Iterator<Item = (Duration, UrlId)>) -> Option<UrlId> {
    pages
        .filter(|(time, _)| *time > usual * SLOWER && *time <= SLOWEST)
        .min_by_key(|(time, _)| if *time <= QUICK { QUICK - *time } else { *time })
        .map(|(_, url)| url)
}

/// Models count from 1970, as logs do.
pub(super) fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::ZERO + since
}

#[cfg(test)]
mod tests {
    use lull_speculate::observe::{ClientHasher, Limits};
    use lull_speculate::predict::PpmParameters;

    use super::*;

    fn visit(target: String) -> Visited {
        let (head, ()) = http::Request::get("/").body(()).unwrap().into_parts();
        let who = Who {
            address: IpAddr::from([192, 0, 2, 7]),
            client: crate::policy::Client(7),
            secure: false,
            by_cache: false,
        };
        Visited::of_copy(&head, target, who)
    }

    #[test]
    fn what_waits_is_bounded_in_bytes() {
        let model =
            Model::new(ClientHasher::new([7; 16]), Limits::default(), PpmParameters::shipped());
        let (desk, worker) = desk(Begin::With(Box::new(model)), None);
        let long = "x".repeat(60_000);
        let taken = (0..WAITING).filter(|_| desk.visited(visit(long.clone()))).count();
        assert!((100..140).contains(&taken), "{taken}");
        assert!(!desk.visited(visit(long.clone())));
        // When it goes on there is room again.
        let message = worker.messages.recv().unwrap();
        worker.waiting.fetch_sub(message.bytes(), Ordering::Relaxed);
        assert!(desk.visited(visit(long)));
        let waiting = worker.messages.try_iter().map(|message| message.bytes()).sum::<usize>();
        assert_eq!(worker.waiting.load(Ordering::Relaxed), waiting);
    }

    #[test]
    fn what_is_slow_to_make_is_looked_at_if_it_can_be_asked_for() {
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

    #[test]
    fn of_a_long_user_agent_the_beginning_is_kept() {
        for (length, expected) in [(0, 0), (100, 100), (512, 512), (60_000, 512)] {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, "x".repeat(length).parse().unwrap());
            assert_eq!(agent(&headers).len(), expected);
        }
    }
}
