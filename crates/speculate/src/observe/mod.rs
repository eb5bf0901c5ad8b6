//! Requests as visits: by clients without addresses, of URLs as numbers.
//!
//! An [`Observer`] takes the entries of a log, or the requests of a running server, in order. For each it
//! returns what predictors may learn from it ([`Visit`]), or why nothing ([`Ignored`]). Its state is bounded
//! by [`Limits`], for any clients.

mod ageing;
mod client;
mod decay;
mod evidence;
mod limits;
mod robots;
mod sessions;
mod urls;

use std::io::{self, Read, Write};

use lull_cc::{Bytes, Timestamp};

pub use client::{ClientHasher, ClientId, Origin};
pub(crate) use decay::{Decay, SCALE};
pub(crate) use evidence::Evidence;
pub use limits::Limits;
pub(crate) use limits::{MAX_PATH_BYTES, MAX_TIME};
pub(crate) use sessions::OFTEN;
pub use sessions::Step;
pub use urls::{DISTINCT_CLIENTS, Kind, UrlId, Urls};
pub(crate) use urls::{Requests, UrlChange};

use crate::encoding::{AGED, ReadError, Sink, Source};
use crate::log::{Clock, Entry};
use ageing::Ageing;
use sessions::{SessionId, Sessions};
use urls::Answer;

impl Limits {
    /// The maximum memory of an observer, without the allocator's overhead.
    pub fn most_resident(&self) -> Bytes {
        let sessions = Sessions::most_resident(self.sessions);
        Bytes(Urls::most_resident(self).saturating_add(sessions))
    }
}

/// A request that predictors may learn from. It is the last step of [`Observer::history`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The time by which counts are decayed: that of the lines, as far as it is accepted ([`Clock`]), and
    /// slower on a quiet site ([`Limits::visits_per_half_life`]).
    pub at: Timestamp,
    /// The requested URL, without a query that is no part of its name.
    pub url: UrlId,
    /// A page, or a part of one.
    pub kind: Kind,
    /// Whether it can be suggested at all, once enough clients know it: a URL with a query that is no part of
    /// its name cannot.
    pub cacheable: bool,
    /// The client, while its session lasts.
    pub client: ClientId,
    /// The origin of the client.
    pub origin: Origin,
    /// Whether the remembered session has the URL eight times already: more visits by the same client say
    /// nothing about others.
    pub is_often: bool,
    session: SessionId,
}

/// Why a request is not learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ignored {
    /// It was not a `GET`.
    Method,
    /// Its target is not a path, or is longer than those of servers.
    Target,
    /// The answer was neither the object nor that it has not changed.
    Status,
    /// The client is a robot: by its user agent, or because it asked for `/robots.txt`.
    Robot,
    /// The client prefetched: learning from that would confirm itself.
    Prefetch,
    /// The client's current page, once more.
    Reload,
    /// The known URLs leave no room for one with a path of this length.
    Room,
}

impl core::fmt::Display for Ignored {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Ignored::Method => "other methods than GET",
            Ignored::Target => "targets that are not a path",
            Ignored::Status => "answers without the object",
            Ignored::Robot => "robots",
            Ignored::Prefetch => "prefetches",
            Ignored::Reload => "reloads",
            Ignored::Room => "paths without room",
        })
    }
}

/// Makes visits out of requests.
#[derive(Clone, Debug)]
pub struct Observer {
    hasher: ClientHasher,
    limits: Limits,
    urls: Urls,
    sessions: Sessions,
    /// The accepted dates. A site may be quiet for longer than a session lasts, so this is another clock than
    /// that of the sessions.
    clock: Clock,
    /// The time by which counts are decayed.
    ageing: Ageing,
}

impl Observer {
    /// An observer that has seen nothing.
    ///
    /// # Panics
    /// If a limit is out of its range.
    pub fn new(hasher: ClientHasher, limits: Limits) -> Self {
        assert_eq!(limits.fault(), None, "out of its range");
        Observer {
            hasher,
            limits,
            urls: Urls::new(&limits),
            sessions: Sessions::new(limits.sessions, limits.session_window),
            clock: Clock::new(limits.half_life),
            ageing: Ageing::new(limits.half_life, limits.visits_per_half_life),
        }
    }

    /// Reads the URLs; there are no sessions.
    pub(crate) fn read<R: Read>(
        hasher: ClientHasher,
        limits: Limits,
        from: &mut Source<R>,
    ) -> Result<Self, ReadError> {
        let is_aged = from.version() >= AGED;
        let mut observer = Observer::new(hasher, limits);
        if is_aged {
            observer.ageing = observer.ageing.read(from)?;
        }
        observer.urls = Urls::read(&limits, |path| observer.hasher.text(path), from)?;
        if !is_aged {
            observer.ageing = observer.ageing.since(observer.urls.latest());
        }
        // For an untrained model it is the earliest possible time, and the next date is far from it.
        if observer.latest() > Timestamp::ZERO {
            observer.clock.set(observer.latest());
        }
        Ok(observer)
    }

    /// Writes how far counts are aged, and the URLs.
    pub(crate) fn write<W: Write>(&self, to: &mut Sink<W>) -> io::Result<()> {
        self.ageing.write(to)?;
        self.urls.write(to)
    }

    /// The time of the latest accepted answer.
    pub(crate) fn latest(&self) -> Timestamp {
        self.ageing.latest()
    }

    /// Its limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Continues at `now`, for any time since the latest request.
    pub(crate) fn resume(&mut self, now: Timestamp) {
        self.ageing.resume(now);
        self.sessions.resume(now);
        self.clock.set(now);
    }

    /// Restarts the counts of clients that have not reached [`DISTINCT_CLIENTS`].
    pub(crate) fn restart_counts(&mut self) {
        self.urls.restart_counts();
    }

    /// From now on changes of URLs are remembered for other models.
    pub(crate) fn share(&mut self) {
        self.urls.share();
    }

    /// The URLs, to take their changes.
    pub(crate) fn urls_mut(&mut self) -> &mut Urls {
        &mut self.urls
    }

    /// Adds changes of URLs from another model, which saw `answers` up to `at`. Returns the time by which
    /// their counts are decayed, and the numbers of the URLs.
    pub(crate) fn merge(
        &mut self,
        at: Timestamp,
        answers: u32,
        changes: &[UrlChange],
    ) -> (Timestamp, Vec<Option<UrlId>>) {
        let at = self.ageing.advance_by(self.clock.advance(at), answers);
        let merge =
            |change: &UrlChange| self.urls.merge(change, self.hasher.text(&change.path), at);
        (at, changes.iter().map(merge).collect())
    }

    /// Takes the next request.
    ///
    /// # Errors
    /// If the entry teaches nothing.
    pub fn observe(&mut self, entry: &Entry<'_>) -> Result<Visit, Ignored> {
        if entry.prefetch {
            self.detect_end(entry);
            return Err(Ignored::Prefetch);
        }
        if entry.method != "GET" {
            return Err(Ignored::Method);
        }
        let (path, query) = name_and_query(entry).ok_or(Ignored::Target)?;
        let agent = entry.agent.as_deref();
        let client = self.hasher.client(&entry.client, agent.unwrap_or(""));
        let session = self.sessions.enter(client, entry.at, || {
            (self.hasher.origin(&entry.client), agent.is_some_and(robots::is_robot))
        });
        if path == "/robots.txt" {
            self.sessions.mark_robot(session);
        }
        if self.sessions.is_robot(session) {
            return Err(Ignored::Robot);
        }
        let hash = self.hasher.text(path);
        let origin = self.sessions.origin(session);
        // The effects of a query, such as a cookie for a campaign or the rejection of an attack, do not
        // concern the path without it.
        if query.is_none() {
            if entry.private || is_gone(entry.status) {
                self.urls.bar(path, hash, entry.at);
            } else if is_refusal(entry.status) {
                let steps = self.sessions.steps(session);
                let got_it = |url| steps.iter().any(|step| step.url == url);
                self.urls.refuse(path, hash, origin, entry.at, got_it);
            }
        }
        if !matches!(entry.status, 200 | 304) {
            return Err(Ignored::Status);
        }
        let whole = entry.status == 200 && query.is_none();
        let at = self.ageing.advance(self.clock.advance(entry.at));
        let answer = Answer {
            at,
            bytes: whole.then_some(entry.bytes.0),
            took: entry.took.filter(|_| whole),
            public: (whole && !entry.private).then_some(origin),
        };
        let (url, kind) = self.urls.record(path, hash, answer).ok_or(Ignored::Room)?;
        if entry.private && query.is_none() {
            // It may be new here, and public at a server that shares its model.
            self.urls.bar(path, hash, entry.at);
        }
        let is_often = self.sessions.step(session, url, kind).ok_or(Ignored::Reload)?;
        let cacheable = query.is_none() && !entry.private;
        // The most popular pages are suggested most, so only predictable visits count.
        if cacheable && !is_often {
            self.urls.visit(url, at);
        }
        Ok(Visit { at, url, kind, cacheable, client, origin, is_often, session })
    }

    /// A missing page is detected by its prefetches: a removed page has no visitors who could report it. So
    /// is a redirect. The prefetch mark comes from its client, which may be banned: as for visitors, one
    /// rejection is not enough.
    fn detect_end(&mut self, entry: &Entry<'_>) {
        if entry.method != "GET" {
            return;
        }
        let Some((path, None)) = name_and_query(entry) else { return };
        let hash = self.hasher.text(path);
        if is_gone(entry.status) {
            self.urls.bar(path, hash, entry.at);
        } else if is_refusal(entry.status) || matches!(entry.status, 301..=303 | 307 | 308) {
            let origin = self.hasher.origin(&entry.client);
            self.urls.refuse(path, hash, origin, entry.at, |_| false);
        }
    }

    /// The steps of the session of the last observed visit's client, that visit last.
    pub fn history(&self, visit: &Visit) -> &[Step] {
        self.sessions.steps(visit.session)
    }

    /// The steps of a client in its session, if that has not ended.
    pub fn history_of(&self, client: ClientId) -> &[Step] {
        self.sessions.steps_of(client)
    }

    /// The URLs that are known.
    pub fn urls(&self) -> &Urls {
        &self.urls
    }

    /// The number of a target, with its query if that is part of its name, otherwise of its path; none if it
    /// was not requested recently.
    pub fn url(&self, target: &str) -> Option<UrlId> {
        let whole = local(target)?;
        let find = |name: &str| self.urls.find(name, self.hasher.text(name));
        find(whole).or_else(|| find(whole.split_once('?')?.0))
    }

    /// The latest time by which sessions are measured.
    pub(crate) fn now(&self) -> Timestamp {
        self.sessions.now()
    }

    /// Forgets clients whose session has ended. Requests do that as well; without requests for long, the
    /// caller has to do it.
    pub fn forget(&mut self, now: Timestamp) {
        self.sessions.forget(now);
    }

    /// Its memory, without the allocator's overhead.
    pub fn resident(&self) -> Bytes {
        Bytes(self.urls.resident().0 + self.sessions.resident().0)
    }
}

/// Path and query of a target: usually the target itself, but a complete URL if a proxy was asked.
fn local(target: &str) -> Option<&str> {
    let path = if target.starts_with('/') {
        target
    } else {
        let (_, rest) = target.split_once("://")?;
        &rest[rest.find('/')?..]
    };
    Some(path.split('#').next().unwrap_or(path))
}

/// The name of the requested URL, and a query that is no part of it.
fn name_and_query<'a>(entry: &'a Entry<'_>) -> Option<(&'a str, Option<&'a str>)> {
    let whole = local(&entry.target)?;
    let (name, query) = match whole.split_once('?') {
        Some((path, query)) if !entry.named_by_query => (path, Some(query)),
        _ => (whole, None),
    };
    (name.len() <= MAX_PATH_BYTES).then_some((name, query))
}

/// Whether a status says that the URL is gone. Overload and client errors do not. Nor does a visitor's
/// redirect: most lead from `http` to `https`, or to the site's canonical host, and a log does not contain
/// the target.
fn is_gone(status: u16) -> bool {
    matches!(status, 404 | 410)
}

/// Whether a status says that this client must not get the URL.
fn is_refusal(status: u16) -> bool {
    matches!(status, 401 | 403)
}

#[cfg(test)]
mod tests;
