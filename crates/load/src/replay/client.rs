//! A client: a browser with a cache, which requests documents and, when allowed, prefetches.
//!
//! Nothing here sends or waits. Calls report events, effects are actions; times are since the replay began.
//!
//! ```text
//!  page and its parts are complete ──▶ ask for hints ──▶ list ──▶ fetch, one after the other
//!          ▲                                 ▲                        │
//!          └──── the next page               └── again, if it may ────┘
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use lull_speculate::observe::Kind;

use super::trace::{Arrival, DocumentId};

/// When lists come, and how they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintUse {
    /// Nothing is prefetched.
    Never,
    /// The list comes with the answer to a page, also to a page that was left meanwhile, and replaces the
    /// previous one. Each fetch begins this long after the last answer to demand, or later (Nice §6.1).
    /// Without a pause fetches begin at once; with one they begin only while no demand is open.
    WithPage {
        /// The pause.
        pause: Duration,
    },
    /// When the page has loaded, one list is asked for (SSR §5.3.1, "fetches them and stops").
    OncePerPage,
    /// The same, and again whenever a list is done, or when the server asked the client to come again (SSR
    /// §5.2.2).
    AgainAndAgain {
        /// Whether it behaves like the script in the pages of `lull web`. A demand ends the fetch in
        /// progress, or waits for it if it is for the same document. A list expires. The server in front of a
        /// page is probed. Pages are reported when they are left.
        scripted: bool,
    },
}

impl HintUse {
    fn is_scripted(self) -> bool {
        self == HintUse::AgainAndAgain { scripted: true }
    }
}

/// A prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// A document that the client may want.
    Document(DocumentId),
    /// A document that no client wants, to measure the cost of fetching for others (SSR §5.2.3).
    Dummy,
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send the server this request, which was due then, and answer by [`Client::answered`] with both.
    Demand(DocumentId, Duration),
    /// A request that was due then has its answer.
    Answered {
        /// The requested document.
        document: DocumentId,
        /// When it was due.
        due: Duration,
        /// The source of the answer.
        from: Origin,
    },
    /// Fetch this ahead.
    Fetch(Ahead),
    /// Probe for a cache in front of this page, where fetches go, and report by [`Client::server_checked`].
    ServerCheck(DocumentId),
    /// End the fetch or the look in progress: [`Client::fetched`] and [`Client::server_checked`] must not be called
    /// for it.
    Stop,
    /// Send this to the server.
    Tell(PageReport),
    /// Ask for hints, and answer by [`Client::advise`].
    Ask(Question),
    /// Call [`Client::wake`] at this time.
    Wake(Duration),
}

/// The report of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageReport {
    /// It was left.
    Left {
        /// The page.
        page: DocumentId,
        /// Whether it came from the cache.
        cached: bool,
        /// From its due time until it arrived.
        answered: Duration,
        /// And until all of its parts had; none if it was left before.
        loaded: Option<Duration>,
    },
    /// The page is left for one that is being prefetched.
    Awaits {
        /// The page.
        page: DocumentId,
        /// The next page of the client.
        to: DocumentId,
    },
}

/// The source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The server.
    Network,
    /// The cache, because the client had asked for it before.
    Cache,
    /// The cache, because it was prefetched; its first use, and its bytes.
    Ahead(u64),
    /// The server, as it was being prefetched when it was requested; its bytes.
    Awaited(u64),
    /// Nowhere: the server had none, or failed.
    Failed,
}

/// A request for hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The client's page. An answer that arrives after the next one is dropped.
    pub number: u64,
    /// The client's last pages, the latest last.
    pub pages: Vec<DocumentId>,
    /// Whether it is the first request on this page.
    pub first: bool,
    /// Whether the page came from the cache.
    pub cached: bool,
    /// The earlier hints on this page.
    pub had: Vec<DocumentId>,
    /// For the first question: parts of the page that came from the cache.
    pub used: Vec<DocumentId>,
}

/// The answer to a request for hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The prefetches, in this order.
    pub list: Vec<Ahead>,
    /// When to ask again, if not at the list's end: none for not on this page.
    pub again: Option<Duration>,
}

/// Pages that a question holds: as many as the longest context of a predictor.
const PAGES: usize = 4;
/// The script asks at most this many times on one page.
const ROUNDS: u32 = 64;
/// Nor does it fetch more files from one page: a question names no more. The same for parts.
const FILES: usize = 64;
/// How long the script uses a list: `lull.js`.
const FRESH: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CachedDocument {
    Demanded,
    /// Prefetched and not used so far, with its length in bytes.
    Ahead(u64),
}

/// The current page of a client.
#[derive(Clone, Debug, Default)]
struct Page {
    due: Duration,
    /// When it arrived, after it was due; not before it has a script.
    answered: Option<Duration>,
    /// When all of it had.
    loaded: Option<Duration>,
    /// Whether it came from the cache.
    is_cached: bool,
    /// Parts of it that did.
    used: Vec<DocumentId>,
    /// The script waits this long before it asks first.
    wait: Option<Duration>,
    looked: ServerCheckState,
}

/// Whether a page was probed for a cache in front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ServerCheckState {
    #[default]
    No,
    /// The answer is under way.
    Open,
    Yes,
}

/// The client's next step for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    No,
    /// The answer is under way.
    Open,
    /// It is requested again then.
    Until(Duration),
    /// Not on this page.
    Done,
}

/// A client.
#[derive(Clone, Debug)]
pub struct Client {
    hint_use: HintUse,
    caching: bool,
    /// Fetches go elsewhere: see [`Client::fetching_elsewhere`].
    is_elsewhere: bool,
    cache: BTreeMap<DocumentId, CachedDocument>,
    /// Open demand: when each request for it was due.
    open: BTreeMap<DocumentId, Vec<Duration>>,
    pages: VecDeque<DocumentId>,
    number: u64,
    page: Page,
    is_complete: bool,
    asking: Asking,
    rounds: u32,
    had: Vec<DocumentId>,
    list: VecDeque<Ahead>,
    /// Until when the list is valid.
    list_until: Duration,
    fetching: Option<Ahead>,
    /// Whether demand waits for that.
    is_awaited: bool,
    /// No fetch begins earlier.
    not_before: Duration,
    /// For a client without a cache: answered pages that have had no list so far.
    owed: u32,
}

impl Client {
    /// A client with nothing. One that is not `caching` keeps nothing.
    pub fn new(hint_use: HintUse, caching: bool) -> Self {
        Client {
            hint_use,
            caching,
            is_elsewhere: false,
            cache: BTreeMap::new(),
            open: BTreeMap::new(),
            pages: VecDeque::new(),
            number: 0,
            page: Page::default(),
            is_complete: false,
            asking: Asking::No,
            rounds: 0,
            had: Vec::new(),
            list: VecDeque::new(),
            list_until: Duration::MAX,
            fetching: None,
            is_awaited: false,
            not_before: Duration::ZERO,
            owed: 0,
        }
    }

    /// Its fetches have another address than its demand (SSR §5.1: another port): a demand for a document in
    /// transfer is sent at once, and ends the fetch. The script in pages has its own means.
    pub fn fetching_elsewhere(self) -> Self {
        Client { is_elsewhere: !self.hint_use.is_scripted(), ..self }
    }

    /// A request of the log is due.
    pub fn demand(
        &mut self,
        now: Duration,
        arrival: &Arrival,
        kind: Kind,
        effects: &mut Vec<Effect>,
    ) {
        let document = arrival.document;
        let left = if kind == Kind::Page { self.turn_to(arrival, effects) } else { None };
        self.is_complete |= arrival.completes;
        // A document with waiting requests is not requested twice.
        if let Some(waiting) = self.open.get_mut(&document).filter(|_| self.caching) {
            waiting.push(arrival.due);
            effects.extend(left.map(Effect::Tell));
            return;
        }
        let mut is_coming = self.fetches(document);
        if is_coming && self.is_elsewhere {
            self.fetching = None;
            is_coming = false;
            effects.push(Effect::Stop);
        }
        let held = if self.caching { self.cache.get_mut(&document) } else { None };
        match held {
            Some(held) => {
                let from = match *held {
                    CachedDocument::Demanded => Origin::Cache,
                    CachedDocument::Ahead(bytes) => Origin::Ahead(bytes),
                };
                *held = CachedDocument::Demanded;
                if kind == Kind::Page {
                    self.page.is_cached = true;
                    self.page.answered = Some(Duration::ZERO);
                } else if self.page.used.len() < FILES && !self.page.used.contains(&document) {
                    self.page.used.push(document);
                }
                effects.push(Effect::Answered { document, due: arrival.due, from });
            }
            None if is_coming => {
                // The part that has arrived is used, and the rest awaited.
                self.is_awaited = true;
                self.open.entry(document).or_default().push(arrival.due);
            }
            None => {
                self.open.entry(document).or_default().push(arrival.due);
                effects.push(Effect::Demand(document, arrival.due));
            }
        }
        // After the request, as in a browser.
        effects.extend(left.map(Effect::Tell));
        self.go_on(now, effects);
    }

    /// Whether this is being prefetched. A browser's cache requests nothing twice: later requests wait for
    /// it.
    fn fetches(&self, document: DocumentId) -> bool {
        self.caching && self.fetching == Some(Ahead::Document(document))
    }

    /// Whether demand waits for the prefetch in progress.
    pub fn awaits(&self) -> bool {
        self.is_awaited
    }

    /// The client goes to a page: prefetches for the page before are out of date. Adds the report of that
    /// page.
    fn turn_to(&mut self, arrival: &Arrival, effects: &mut Vec<Effect>) -> Option<PageReport> {
        let page = arrival.document;
        let before = self.pages.back().copied().filter(|_| self.hint_use.is_scripted());
        let was = std::mem::replace(&mut self.page, Page { due: arrival.due, ..Page::default() });
        // Without an answer it has no script that could report.
        let left = before.zip(was.answered).map(|(page, answered)| PageReport::Left {
            page,
            cached: was.is_cached,
            answered,
            loaded: was.loaded,
        });
        if let (Some(page), true) = (before, self.fetches(arrival.document)) {
            effects.push(Effect::Tell(PageReport::Awaits { page, to: arrival.document }));
        }
        self.number += 1;
        self.pages.push_back(page);
        if self.pages.len() > PAGES {
            self.pages.pop_front();
        }
        self.is_complete = false;
        self.rounds = 0;
        self.had.clear();
        // Dummies are not out of date either: they represent load, and continue. Lists that come with pages
        // are replaced when the next one is there.
        if !matches!(self.hint_use, HintUse::WithPage { .. }) {
            self.list.retain(|one| *one == Ahead::Dummy);
        }
        if self.caching {
            self.asking = Asking::No;
        }
        // An awaited prefetch is demand.
        let is_wanted = self.is_awaited || self.fetches(page);
        if self.hint_use.is_scripted() && !is_wanted {
            let is_fetching = self.fetching.take().is_some();
            if is_fetching || was.looked == ServerCheckState::Open {
                effects.push(Effect::Stop);
            }
        }
        left
    }

    /// The current page makes its script wait this long, once all of it has arrived, before it asks for
    /// hints.
    pub fn is_to_wait(&mut self, document: DocumentId, wait: Duration) {
        if self.pages.back() == Some(&document) {
            self.page.wait = Some(wait);
        }
    }

    /// The server has answered demand that was due then, successfully or not.
    pub fn answered(
        &mut self,
        now: Duration,
        document: DocumentId,
        due: Duration,
        is_good: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(waiting) = self.open.get_mut(&document) else { return };
        let from = if is_good { Origin::Network } else { Origin::Failed };
        if self.caching {
            let waiting = self.open.remove(&document).unwrap_or_default();
            effects.extend(waiting.into_iter().map(|due| Effect::Answered { document, due, from }));
            if is_good {
                // It may have been prefetched meanwhile: then that was wasted.
                self.cache.insert(document, CachedDocument::Demanded);
            }
        } else {
            // Each request has its own answer, which may overtake others.
            let Some(place) = waiting.iter().position(|one| *one == due) else { return };
            waiting.remove(place);
            if waiting.is_empty() {
                self.open.remove(&document);
            }
            self.owed += 1;
            effects.push(Effect::Answered { document, due, from });
        }
        if let HintUse::WithPage { pause } = self.hint_use {
            self.not_before = now + pause;
        }
        // A page from the server comes with its list, also one that was left before, if none has come since;
        // one from the cache has none.
        let pages = self.pages.iter().rposition(|one| *one == document).map_or(0, |at| at + 1);
        let brings = is_good && pages > 0 && self.page.answered.is_none();
        if is_good && pages == self.pages.len() {
            self.page.answered = Some(now.saturating_sub(self.page.due));
        }
        if brings && matches!(self.hint_use, HintUse::WithPage { .. }) {
            self.list.clear();
            self.ask(pages, effects);
        }
        self.go_on(now, effects);
    }

    /// Hints have arrived, for the page of this number.
    pub fn advise(
        &mut self,
        now: Duration,
        number: u64,
        advice: Advice,
        effects: &mut Vec<Effect>,
    ) {
        let is_dummy = advice.list.first() == Some(&Ahead::Dummy);
        // A client that keeps nothing has continued to the page of another client.
        let is_for_now = number == self.number || !self.caching;
        if self.asking == Asking::Open && is_for_now {
            self.asking = match (self.hint_use, advice.again) {
                (HintUse::AgainAndAgain { .. }, Some(again)) if again > now => {
                    effects.push(Effect::Wake(again));
                    Asking::Until(again)
                }
                (HintUse::AgainAndAgain { .. }, Some(_)) => Asking::No,
                (HintUse::OncePerPage, _) if !self.caching => Asking::No,
                _ => Asking::Done,
            };
        } else if !is_dummy {
            return;
        }
        self.list_until = if self.hint_use.is_scripted() { now + FRESH } else { Duration::MAX };
        for one in advice.list {
            if let Ahead::Document(document) = one {
                if self.hint_use.is_scripted() && self.had.len() >= FILES {
                    break;
                }
                self.had.push(document);
            }
            self.list.push_back(one);
        }
        self.go_on(now, effects);
    }

    /// A prefetch has come, with its length in bytes; or it has failed.
    pub fn fetched(&mut self, now: Duration, bytes: Option<u64>, effects: &mut Vec<Effect>) {
        let ahead = self.fetching.take();
        let is_awaited = std::mem::take(&mut self.is_awaited);
        match (ahead, bytes) {
            (Some(Ahead::Document(document)), Some(bytes)) if is_awaited => {
                self.cache.insert(document, CachedDocument::Demanded);
                let waiting = self.open.remove(&document).unwrap_or_default();
                // It counts as used once, by any number of waiting requests.
                let rest = std::iter::repeat(Origin::Network);
                let answers =
                    waiting.into_iter().zip(std::iter::once(Origin::Awaited(bytes)).chain(rest));
                effects.extend(answers.map(|(due, from)| Effect::Answered { document, due, from }));
                if self.pages.back() == Some(&document) {
                    // The server has seen a fetch, but no visit.
                    self.page.is_cached = true;
                    self.page.answered = Some(now.saturating_sub(self.page.due));
                }
            }
            // It failed, so the server is asked as usual.
            (Some(Ahead::Document(document)), None) if is_awaited => {
                let waiting = self.open.get(&document).into_iter().flatten();
                effects.extend(waiting.take(1).map(|due| Effect::Demand(document, *due)));
            }
            (Some(Ahead::Document(document)), Some(bytes)) => {
                self.cache.entry(document).or_insert(CachedDocument::Ahead(bytes));
            }
            _ => {}
        }
        self.go_on(now, effects);
    }

    /// The server had no room for a prefetch ("not now"). The rest of the list would only burden it more.
    pub fn refused(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if let Some(Ahead::Document(document)) = self.fetching {
            self.had.retain(|had| *had != document);
        }
        self.drop_list();
        self.fetched(now, None, effects);
    }

    /// Forgets hints that are not fetched: they may be hinted again.
    fn drop_list(&mut self) {
        self.had.retain(|had| !self.list.contains(&Ahead::Document(*had)));
        self.list.clear();
    }

    /// The probe is answered: the hinting server itself, or a cache in front of it.
    pub fn server_checked(&mut self, now: Duration, is_server: bool, effects: &mut Vec<Effect>) {
        self.page.looked = ServerCheckState::Yes;
        if !is_server {
            self.list.clear();
            self.asking = Asking::Done;
        }
        self.go_on(now, effects);
    }

    /// The time of an [`Effect::Wake`] has come.
    pub fn wake(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if matches!(self.asking, Asking::Until(until) if until <= now) {
            self.asking = Asking::No;
        }
        self.go_on(now, effects);
    }

    /// Unanswered requests: their documents, and when each was due.
    pub fn waiting(&self) -> impl Iterator<Item = (DocumentId, Duration)> {
        self.open.iter().flat_map(|(document, dues)| dues.iter().map(|due| (*document, *due)))
    }

    /// Begins the actions that may begin now.
    fn go_on(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if self.is_complete && self.open.is_empty() && self.page.loaded.is_none() {
            self.page.loaded = Some(now.saturating_sub(self.page.due));
        }
        let may_fetch = match self.hint_use {
            HintUse::Never => return,
            HintUse::WithPage { pause } => pause.is_zero() || self.open.is_empty(),
            // SSR §5.1: after the page has loaded. A client without a cache stands for as many clients as it
            // has requests, each with its own page.
            _ => !self.caching || self.open.is_empty(),
        };
        if !may_fetch || self.fetching.is_some() || self.page.looked == ServerCheckState::Open {
            return;
        }
        if now >= self.list_until {
            self.drop_list();
        }
        if !self.list.is_empty() && now < self.not_before {
            effects.push(Effect::Wake(self.not_before));
            return;
        }
        while let Some(next) = self.list.pop_front() {
            let is_there = matches!(next, Ahead::Document(document)
                if self.cache.contains_key(&document) || self.open.contains_key(&document));
            if !is_there && self.hint_use.is_scripted() && self.page.looked == ServerCheckState::No
            {
                let Some(page) = self.pages.back() else { return };
                self.page.looked = ServerCheckState::Open;
                self.list.push_front(next);
                effects.push(Effect::ServerCheck(*page));
                return;
            }
            if !is_there {
                self.fetching = Some(next);
                effects.push(Effect::Fetch(next));
                return;
            }
        }
        let may_ask = if self.caching {
            // The papers' clients ask in each epoch, without an end.
            let may_script = self.rounds < ROUNDS && self.had.len() < FILES;
            let is_left = may_script || !self.hint_use.is_scripted();
            self.is_complete && !self.pages.is_empty() && is_left
        } else {
            self.owed > 0
        };
        let asks = matches!(self.hint_use, HintUse::OncePerPage | HintUse::AgainAndAgain { .. });
        if asks && may_ask && self.asking == Asking::No {
            if let Some(wait) = self.page.wait.take() {
                self.asking = Asking::Until(now + wait);
                effects.push(Effect::Wake(now + wait));
                return;
            }
            if self.hint_use == HintUse::OncePerPage {
                self.owed = self.owed.saturating_sub(1);
            }
            self.ask(self.pages.len(), effects);
        }
    }

    /// Asks for the list of the last pages, of this number.
    fn ask(&mut self, pages: usize, effects: &mut Vec<Effect>) {
        self.asking = Asking::Open;
        self.rounds += 1;
        let used = if self.rounds == 1 { std::mem::take(&mut self.page.used) } else { Vec::new() };
        effects.push(Effect::Ask(Question {
            number: self.number,
            pages: self.pages.iter().take(pages).copied().collect(),
            first: self.rounds == 1,
            cached: self.page.is_cached,
            had: self.had.clone(),
            used,
        }));
    }
}

#[cfg(test)]
mod tests;
