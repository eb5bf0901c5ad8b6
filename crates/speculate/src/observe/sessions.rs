//! The recent steps of each client, for as long as its session lasts.

use core::time::Duration;

use lull_cc::{Bytes, Timestamp};

use super::client::{ClientId, Origin};
use super::urls::{Kind, UrlId};
use crate::log::Clock;
use crate::table::{Entry, Table, grow_within, mix};

/// A request of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The requested URL.
    pub url: UrlId,
    /// The number of the session's pages including it: pages count from 1, and a subresource has the number
    /// of its page.
    pub page: u32,
    /// A page, or a part of one.
    pub kind: Kind,
}

/// The place of a session, which is valid until the next request is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionId(u32);

#[derive(Clone, Debug)]
struct Session {
    client: ClientId,
    origin: Origin,
    seen: Timestamp,
    robot: bool,
    steps: Vec<Step>,
}

impl Entry for Session {
    type Worth = Timestamp;

    fn hash(&self) -> u64 {
        mix(self.client.0)
    }

    fn worth(&self) -> Timestamp {
        self.seen
    }
}

/// Steps that a session remembers: for pages with few parts the papers' longest window, of ten pages (Nice
/// §6.1), with all their parts.
const STEPS: usize = 96;
/// Pages that it remembers however many parts they have; pages of today have hundreds. It is the longest
/// window of a predictor, and the longest context before it.
const PAGES: usize = 16 + 4;
/// A URL that is in a remembered session this often is one that its client comes back to, and counts no more:
/// otherwise one client could make any URL the most frequent. An extension; the papers trust their logs.
pub(crate) const OFTEN: usize = 8;
/// Sessions checked for their end at each request: more than one, so that all are checked before as many
/// requests have come.
const SWEPT: usize = 2;

/// The recent sessions, up to a limit.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    table: Table<Session>,
    clock: Clock,
    swept: usize,
}

impl Sessions {
    pub(super) fn new(limit: usize, window: Duration) -> Self {
        Sessions { table: Table::new(limit), clock: Clock::new(window), swept: 0 }
    }

    /// The session of a client, a new one if its last request is a window ago. The client's origin, and
    /// whether it is a robot, are computed for new ones only.
    pub(super) fn enter(
        &mut self,
        client: ClientId,
        at: Timestamp,
        who: impl FnOnce() -> (Origin, bool),
    ) -> SessionId {
        self.clock.advance(at);
        for _ in 0..SWEPT {
            self.forget_next();
        }
        if let Some(place) = self.find(client) {
            // By the client's own dates: a wrong date of another client ends no session.
            let session = self.table.get_mut(place);
            if self.clock.are_near(session.seen, at) {
                session.seen = session.seen.max(at);
            } else {
                session.seen = at;
                session.steps = Vec::new();
                (session.origin, session.robot) = who();
            }
            return SessionId(place);
        }
        let (origin, robot) = who();
        let session = Session { client, origin, seen: at, robot, steps: Vec::new() };
        SessionId(self.table.insert(session).0)
    }

    fn find(&self, client: ClientId) -> Option<u32> {
        self.table.find(mix(client.0), |session| session.client == client)
    }

    /// Continues at `now`, which is known to be the time: sessions older than a window have ended.
    pub(super) fn resume(&mut self, now: Timestamp) {
        if !self.clock.are_near(self.clock.now(), now) {
            self.clock.set(now);
        }
    }

    /// Forgets every session that ended before `at`.
    pub(super) fn forget(&mut self, at: Timestamp) {
        self.clock.set(self.clock.now().max(at));
        for _ in 0..self.table.len() {
            self.forget_next();
        }
    }

    /// Leaves nothing of the next session if it has ended, not even the hash of its client.
    fn forget_next(&mut self) {
        let count = self.table.len();
        if count == 0 {
            return;
        }
        self.swept = (self.swept + 1) % count;
        let place = self.swept as u32;
        let seen = self.table.get_mut(place).seen;
        if seen > Timestamp::ZERO && !self.clock.may_be_now(seen) {
            // It has the least worth of all, so it is the first to make room. A client has this number only
            // with a probability of 2^−64, so it is never found.
            let nobody = Session {
                client: ClientId(mix(u64::from(place))),
                origin: Origin(0),
                seen: Timestamp::ZERO,
                robot: true,
                steps: Vec::new(),
            };
            self.table.replace(place, nobody);
        }
    }

    /// Adds a step, and returns whether its URL is [`OFTEN`] times in the session already; none if the page
    /// is the same as the previous one.
    pub(super) fn step(&mut self, id: SessionId, url: UrlId, kind: Kind) -> Option<bool> {
        let steps = &mut self.table.get_mut(id.0).steps;
        let page = steps.last().map_or(0, |step| step.page);
        let again = steps.iter().rev().find(|step| step.kind == Kind::Page);
        if kind == Kind::Page && again.is_some_and(|step| step.url == url) {
            return None;
        }
        let is_often = steps.iter().filter(|step| step.url == url).count() >= OFTEN;
        if steps.len() >= STEPS {
            forget_half(steps);
        }
        let page = if kind == Kind::Page { page.saturating_add(1) } else { page };
        grow_within(steps, STEPS);
        steps.push(Step { url, page, kind });
        Some(is_often)
    }

    /// The origin of its client.
    pub(super) fn origin(&self, id: SessionId) -> Origin {
        self.table.get(id.0).map_or(Origin(0), |session| session.origin)
    }

    /// The time by which sessions end.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn is_robot(&self, id: SessionId) -> bool {
        self.table.get(id.0).is_none_or(|session| session.robot)
    }

    pub(super) fn mark_robot(&mut self, id: SessionId) {
        let session = self.table.get_mut(id.0);
        session.robot = true;
        session.steps = Vec::new();
    }

    /// The steps of a session, the latest last.
    pub(super) fn steps(&self, id: SessionId) -> &[Step] {
        self.table.get(id.0).map_or(&[], |session| &session.steps)
    }

    /// The steps of a client with a running session.
    pub(super) fn steps_of(&self, client: ClientId) -> &[Step] {
        let session = self.find(client).and_then(|place| self.table.get(place));
        session.filter(|one| self.clock.may_be_now(one.seen)).map_or(&[], |session| &session.steps)
    }

    /// Their largest memory when all are full.
    pub(super) fn resident(&self) -> Bytes {
        let steps = self.table.len() * STEPS * size_of::<Step>();
        Bytes(self.table.resident() + steps as u64)
    }

    /// The same for `limit` sessions.
    pub(super) fn most_resident(limit: usize) -> u64 {
        let steps = (limit as u64).saturating_mul((STEPS * size_of::<Step>()) as u64);
        Table::<Session>::most_resident(limit).saturating_add(steps)
    }

    #[cfg(test)]
    fn remembered(&mut self) -> usize {
        self.table.entries_mut().filter(|session| session.seen > Timestamp::ZERO).count()
    }
}

/// Forgets the older half of a full session, except for the last pages: without them no successor of a page
/// with a hundred parts would be learned.
fn forget_half(steps: &mut Vec<Step>) {
    let mut pages = steps.iter().filter(|step| step.kind == Kind::Page).count();
    let mut left = STEPS / 2;
    steps.retain(|step| {
        let is_last_page = step.kind == Kind::Page && pages <= PAGES;
        pages -= usize::from(step.kind == Kind::Page);
        let goes = left > 0 && !is_last_page;
        left -= usize::from(goes);
        !goes
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Limits, Urls};

    fn at(second: u64) -> Timestamp {
        Timestamp::from_nanos(second * 1_000_000_000)
    }

    fn who(robot: bool) -> (Origin, bool) {
        (Origin(7), robot)
    }

    fn sessions(limit: usize) -> Sessions {
        Sessions::new(limit, Duration::from_secs(100))
    }

    fn url(number: u32) -> UrlId {
        let mut urls = Urls::new(&Limits::default());
        (0..=number)
            .map(|n| {
                let answer = crate::observe::urls::Answer {
                    at: at(1),
                    bytes: None,
                    took: None,
                    public: None,
                };
                urls.record(&format!("/{n}"), u64::from(n) << 32, answer).unwrap().0
            })
            .last()
            .unwrap()
    }

    #[test]
    fn subresources_have_the_number_of_their_page() {
        let mut sessions = sessions(10);
        let id = sessions.enter(ClientId(1), at(1), || who(false));
        let mut step = |number, kind| sessions.step(id, url(number), kind).is_some();
        assert!(step(0, Kind::Embedded));
        assert!(step(1, Kind::Page));
        assert!(step(2, Kind::Embedded));
        assert!(!step(1, Kind::Page), "a reload");
        assert!(step(3, Kind::Page));
        assert!(step(1, Kind::Page));
        let pages: Vec<_> = sessions.steps(id).iter().map(|step| step.page).collect();
        assert_eq!(pages, [0, 1, 1, 2, 3]);
    }

    #[test]
    fn session_expires_after_its_window() {
        let mut sessions = sessions(10);
        for client in 0..5 {
            let id = sessions.enter(ClientId(client), at(1 + client * 30), || who(client == 0));
            sessions.step(id, url(1), Kind::Page);
        }
        assert_eq!(sessions.steps_of(ClientId(1)).len(), 1);
        sessions.forget(at(121));
        assert_eq!(sessions.remembered(), 4);
        sessions.forget(at(500));
        assert_eq!(sessions.remembered(), 0);
        assert_eq!(sessions.steps_of(ClientId(1)), []);
        // Also without a request to do so, while others come.
        for second in 500..510 {
            sessions.enter(ClientId(7), at(second), || who(false));
        }
        for second in 700..710 {
            sessions.enter(ClientId(8), at(second), || who(false));
        }
        assert_eq!(sessions.remembered(), 1);
    }

    /// One page of a client at a time, and the number of steps in its session then.
    fn go(sessions: &mut Sessions, client: u64, second: u64) -> usize {
        let id = sessions.enter(ClientId(client), at(second), || who(false));
        sessions.step(id, url(second as u32 % 7), Kind::Page);
        sessions.steps(id).len()
    }

    #[test]
    fn sessions_continue_after_a_gap() {
        let mut sessions = sessions(10);
        go(&mut sessions, 1, 1);
        go(&mut sessions, 2, 2);
        for round in 1..=10 {
            for client in [1, 2] {
                let steps = go(&mut sessions, client, 100_000 + 2 * round + client);
                assert_eq!(steps, round as usize, "of client {client}");
            }
        }
    }

    #[test]
    fn wrong_date_ends_no_session_and_does_not_stop_time() {
        const AHEAD: u64 = 1_000_000_000;
        let mut sessions = sessions(10);
        // The first of all.
        go(&mut sessions, 9, AHEAD);
        for second in 1..=10 {
            assert_eq!(go(&mut sessions, 1, second), second as usize);
            assert_eq!(sessions.steps_of(ClientId(1)).len(), second as usize);
        }
        assert_eq!(sessions.now(), at(10));
        // And one in between.
        go(&mut sessions, 8, AHEAD);
        assert_eq!(go(&mut sessions, 1, 11), 11);
        go(&mut sessions, 2, 100);
        assert_eq!(go(&mut sessions, 1, 112), 1, "more than a window later");
        assert_eq!(sessions.remembered(), 2, "no client with dates in the future");
    }

    #[test]
    fn returning_client_has_a_new_session() {
        let mut sessions = sessions(10);
        let id = sessions.enter(ClientId(1), at(1), || who(true));
        assert!(sessions.is_robot(id));
        sessions.enter(ClientId(2), at(90), || who(false));
        let id = sessions.enter(ClientId(1), at(102), || who(false));
        assert!(!sessions.is_robot(id));
        assert_eq!(sessions.steps(id), []);
    }

    #[test]
    fn last_pages_are_remembered_with_any_subresources() {
        for (parts, pages) in [(200, 20), (2, 20), (0, 60)] {
            let mut sessions = sessions(1);
            let id = sessions.enter(ClientId(1), at(1), || who(false));
            let urls: Vec<UrlId> = (0..60).map(url).collect();
            for page in &urls {
                sessions.step(id, *page, Kind::Page);
                for part in 0..parts {
                    sessions.step(id, urls[part % 60], Kind::Embedded);
                    assert!(sessions.steps(id).len() <= STEPS);
                }
            }
            let steps = sessions.steps(id).iter();
            let left: Vec<UrlId> =
                steps.filter(|step| step.kind == Kind::Page).map(|step| step.url).collect();
            assert!(left.len() >= pages, "{}", left.len());
            assert_eq!(left, urls[60 - left.len()..], "the last ones, in their order");
        }
    }

    #[test]
    fn clients_and_steps_are_bounded() {
        let mut sessions = sessions(10);
        let two = [url(1), url(2)];
        for client in 0..1_000 {
            let id = sessions.enter(ClientId(client), at(1), || who(false));
            for url in two.repeat(STEPS) {
                sessions.step(id, url, Kind::Page);
                assert!(sessions.steps(id).len() <= STEPS);
            }
        }
        assert_eq!(sessions.table.len(), 10);
    }
}
