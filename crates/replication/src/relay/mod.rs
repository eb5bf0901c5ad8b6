//! A relay: a replica that serves other replicas, its children, as an origin does.
//!
//! It consists of a [`Replica`] and of an [`Origin`] that follows it. What the replica has received goes on to the
//! children: commits in order, heartbeats behind the commits that they cover. A child's ping is echoed when the relay's
//! own origin, its parent, has echoed a later ping of the relay. So a lease of a child starts at a ping that has been at
//! the origin and back, as without a relay, and no clock of the relay matters. `docs/replication.md` has the proof.
//!
//! A relay serves while it is connected to its parent and has all that it received in one log. Otherwise the connections
//! of its children end. The origin decides whether a child may be served: see [`Vouch`].
//!
//! ```text
//!   parent ═▶ Replica ── commits, heartbeats, bodies ──▶ Origin (follower) ═▶ children
//!          ◀═         ◀── pings, wanted bodies, reads ──                   ◀═
//! ```

mod children;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::Fault;
use crate::message::{Frame, Refusal, Session, ToOrigin, Vouch};
use crate::origin::{Beat, Config, Event, Origin, Prioritise};
use crate::path::Path;
use crate::replica::{Relayed, Replica};
use crate::time::Reading;
use crate::types::{Commit, Digest, Incarnation, ReplicaId, Sequence};

use children::{Asker, Children};

/// The additional state machine of a replica that is a relay.
///
/// After each call of the replica call [`handle_replica`](Relay::handle_replica), and after that
/// [`poll_event`](Relay::poll_event) and the `poll_…` of [`origin`](Relay::origin) for each child. While
/// [`Origin::has_more`], call [`go_on`](Relay::go_on).
#[derive(Debug)]
pub struct Relay<P> {
    origin: Origin<P>,
    children: Children,
    /// The connection to the parent, while there is one.
    session: Option<Session>,
    /// Numbers the connections to parents, and the states that were taken over.
    life: u64,
    /// The children are served.
    serves: bool,
    /// The last commit that the log has, or will have.
    last: Option<Sequence>,
    /// Commits after a state that is being taken over.
    later: Vec<Commit>,
    /// Objects whose bodies children wait for.
    wanted: BTreeSet<Path>,
    /// There may be something to send to children.
    has_news: bool,
}

impl<P: Clone> Relay<P> {
    /// Makes a relay of a replica that was just recovered. `policy` decides which bodies are pushed first.
    pub fn new(
        now: Reading,
        config: Config,
        policy: Box<dyn Prioritise>,
        replica: &mut Replica<P>,
    ) -> Self {
        replica.begin_relaying();
        let mut origin = Origin::follower(now, config, policy);
        origin.expect(replica.kept_names());
        let mut relay = Relay {
            origin,
            children: Children::default(),
            session: None,
            life: 0,
            serves: false,
            last: None,
            later: Vec::new(),
            wanted: BTreeSet::new(),
            has_news: false,
        };
        relay.handle_replica(now, replica);
        relay
    }

    /// Seeds a bug.
    pub fn seed_fault(&mut self, fault: Option<Fault>) {
        self.origin.seed_fault(fault);
    }

    /// The origin that the children see, to poll messages and bodies for them. Transactions are not for it.
    pub fn origin(&mut self) -> &mut Origin<P> {
        &mut self.origin
    }

    /// Whether children are served.
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// Whether there may be something new to send to children, since the last call.
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news)
    }

    /// Whether a child is connected by this session.
    pub fn has_session(&self, child: ReplicaId, session: Session) -> bool {
        self.origin.has_session(child, session)
    }

    /// The next event that concerns a child.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            match self.origin.poll_event()? {
                // Commits that were taken over.
                Event::Acknowledged { .. } | Event::Lost { .. } => {}
                event => return Some(event),
            }
        }
    }

    /// A child has connected: its certificate has this hash, and this is its hello.
    pub fn handle_hello(
        &mut self,
        now: Reading,
        replica: &mut Replica<P>,
        (child, certificate): (ReplicaId, Digest),
        hello: Frame<ToOrigin>,
    ) {
        let ToOrigin::Hello { replica: said, position, .. } = &hello.message else {
            return self.origin.hang_up(child);
        };
        if *said != child {
            return self.origin.hang_up(child);
        }
        if child == replica.id() {
            return self.origin.turn_away(child, hello.session, Refusal::Loop);
        }
        let vouch = Vouch { question: 0, replica: child, certificate, position: *position };
        // An older connection ends when this one is admitted: the number may not be the sender's.
        if self.children.greet(hello, vouch) {
            self.report_relays(replica);
        }
        self.handle_replica(now, replica);
    }

    /// Another message of a child has arrived, which was identified by its certificate.
    pub fn handle_child(
        &mut self,
        now: Reading,
        replica: &mut Replica<P>,
        child: ReplicaId,
        frame: Frame<ToOrigin>,
    ) {
        match frame.message {
            ToOrigin::Hello { .. } => return self.origin.hang_up(child),
            ToOrigin::Relays(relays) => {
                return self.handle_relays(replica, child, frame.session, relays);
            }
            _ if !self.origin.has_session(child, frame.session) => {}
            ToOrigin::Vouch(vouch) => {
                let Vouch { question, replica: below, .. } = vouch;
                let asker = Asker::Relay { child, session: frame.session, question, below };
                if !self.ask(replica, asker, vouch) {
                    self.origin.hang_up(child);
                }
                return;
            }
            ToOrigin::Ping { .. } => replica.ping_soon(now.local),
            ToOrigin::Reads(ref counts) => replica.count_reads(counts),
            _ => {}
        }
        self.origin.handle_frame(now, child, frame);
        self.handle_replica(now, replica);
    }

    /// The connections of a child have ended. `session` says which ones.
    pub fn handle_disconnected(
        &mut self,
        now: Reading,
        replica: &mut Replica<P>,
        child: ReplicaId,
        session: Session,
    ) {
        if self.children.leave(child, session) {
            self.report_relays(replica);
        }
        self.origin.handle_disconnected(child, session);
        self.handle_replica(now, replica);
    }

    /// Another machine has joined under the number of a child.
    pub fn handle_joined(&mut self, now: Reading, child: ReplicaId) {
        self.children.replace(child);
        self.origin.handle_joined(now, child);
    }

    /// The store has not found a body that a child is to get.
    pub fn handle_missing(&mut self, now: Reading, replica: &mut Replica<P>, digest: &Digest) {
        replica.handle_missing(now, digest);
        self.handle_replica(now, replica);
    }

    /// A body begins to arrive, on the channel for reads or in the background, and each of its pieces will be verified.
    /// Returns whether children may get it from now on: then call [`handle_arrived`](Relay::handle_arrived) at its end.
    pub fn handle_arriving(&mut self, digest: Digest, demand: bool) -> bool {
        if self.serves {
            self.has_news = true;
            self.origin.handle_arriving(digest, demand);
        }
        self.serves
    }

    /// All of it has arrived, and was given to the replica, or the rest does not come.
    pub fn handle_arrived(&mut self, digest: Digest, demand: bool) {
        self.origin.handle_arrived(digest, demand);
    }

    /// Continues work on large commits and trees.
    pub fn go_on(&mut self, now: Reading, replica: &mut Replica<P>) {
        self.has_news = true;
        self.origin.go_on(now);
        self.handle_replica(now, replica);
    }

    /// The replica has handled something.
    pub fn handle_replica(&mut self, now: Reading, replica: &mut Replica<P>) {
        replica.look_at_bodies();
        self.follow_connection(replica);
        while let Some(relayed) = replica.poll_relayed() {
            self.pass_on(now, relayed);
        }
        self.follow_state(now, replica);
        let has_all = self.last.is_some_and(|last| last == replica.received());
        self.serve(self.session.is_some() && has_all && !replica.is_comparing());
        if self.serves {
            self.admit(now, replica);
        }
        self.fetch(now, replica);
        self.report_below(now, replica);
    }

    /// Reports on the replicas below with each ping, so that there are not more reports than pings.
    fn report_below(&mut self, now: Reading, replica: &mut Replica<P>) {
        if replica.take_pinged() && self.serves {
            let mut news = self.origin.take_news(now, replica.id());
            // The state of one that waits is of an earlier connection.
            news.retain(|one| !self.children.waits(one.replica));
            if !news.is_empty() {
                replica.say(ToOrigin::Below(news));
            }
        }
    }

    /// Another connection to the parent makes this a new life for the children. The parent's clock, or the parent, may
    /// be another one.
    fn follow_connection(&mut self, replica: &Replica<P>) {
        let upstream = replica.upstream();
        let session = upstream.map(|(session, _)| session);
        if session == self.session {
            return;
        }
        self.serve(false);
        self.origin.set_urgent_below(Vec::new());
        self.session = session;
        if let Some((session, eager)) = upstream {
            self.begin_life(session, eager);
        }
    }

    fn begin_life(&mut self, session: Session, eager: bool) {
        self.life += 1;
        let mut hasher = blake3::Hasher::new();
        let numbers = [session.origin.0, session.replica.0, self.life];
        numbers.iter().for_each(|number| {
            hasher.update(&number.to_le_bytes());
        });
        let hash = hasher.finalize();
        let life = hash.as_bytes().first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes));
        self.origin.begin_following(Incarnation(life.max(1)), eager);
    }

    fn serve(&mut self, serves: bool) {
        if self.serves && !serves {
            self.origin.disconnect_all();
            self.children.cut();
        }
        self.serves = serves;
    }

    fn pass_on(&mut self, now: Reading, relayed: Relayed) {
        self.has_news = true;
        match relayed {
            Relayed::Commit(commit) => {
                if self.last.is_some_and(|last| last.next() == commit.sequence) {
                    self.last = Some(commit.sequence);
                    self.origin.follow(now, commit);
                } else {
                    self.later.push(commit);
                }
            }
            Relayed::Heartbeat { stamp, committed, echo } => {
                self.origin.pass_on(Beat { stamp, committed, echo });
            }
            Relayed::Body { digest, is_stored: true } => self.origin.handle_found(&digest),
            Relayed::Body { digest, is_stored: false } => self.origin.handle_gone(&digest),
            Relayed::Lost { path, sequence } => self.origin.handle_lost(now, &path, sequence),
            Relayed::Urgent(all) => self.origin.set_urgent_below(all),
            Relayed::Vouched { question, refusal } => match self.children.answer(question, refusal)
            {
                Some((Asker::Relay { child, session, question, below }, refusal)) => {
                    if !self.origin.has_session(child, session) {
                        return;
                    }
                    if refusal.is_none() {
                        self.origin.admit_below(child, below);
                    }
                    if !self.origin.answer_vouch(child, question, refusal) {
                        self.origin.hang_up(child);
                    }
                }
                Some((Asker::Own { child, session }, Some(why))) => {
                    self.origin.turn_away(child, session, why);
                }
                Some((Asker::Own { .. }, None)) | None => {}
            },
        }
    }

    /// The replica has begun with a state, or has compared trees: its log begins there.
    fn follow_state(&mut self, now: Reading, replica: &Replica<P>) {
        let Some(position) = replica.whole_position() else { return };
        if self.last.is_none_or(|last| last < position.sequence) {
            self.serve(false);
            let objects = replica.versions().map(|(path, version)| (path.clone(), *version));
            self.origin.follow_from(position, objects.collect(), replica.stored().copied());
            self.last = Some(position.sequence);
            if let Some((session, eager)) = replica.upstream() {
                // Messages that waited for the children are dropped.
                self.begin_life(session, eager);
            }
        }
        for commit in core::mem::take(&mut self.later) {
            if self.last.is_some_and(|last| last.next() == commit.sequence) {
                self.last = Some(commit.sequence);
                self.origin.follow(now, commit);
            }
        }
    }

    /// Asks about children that wait, and admits those that the log has reached.
    fn admit(&mut self, now: Reading, replica: &mut Replica<P>) {
        while let Some((asker, vouch)) = self.children.poll_question() {
            let _ = self.ask(replica, asker, vouch);
        }
        let last = self.origin.last().sequence;
        while let Some((child, hello)) = self.children.poll_admitted(last) {
            self.has_news = true;
            self.origin.handle_frame(now, child, hello);
        }
    }

    /// Asks the parent; returns whether there was room for the question.
    fn ask(&mut self, replica: &mut Replica<P>, asker: Asker, vouch: Vouch) -> bool {
        let Some(question) = self.children.ask(asker) else { return false };
        self.origin.drop_news(vouch.replica);
        replica.say(ToOrigin::Vouch(Vouch { question, ..vouch }));
        true
    }

    fn handle_relays(
        &mut self,
        replica: &mut Replica<P>,
        child: ReplicaId,
        session: Session,
        relays: Vec<ReplicaId>,
    ) {
        let is_known = self.children.is_greeting(child, session);
        if !is_known && !self.origin.has_connection(child, session) {
            return;
        }
        if relays.contains(&replica.id()) {
            self.children.forget(child);
            self.origin.turn_away(child, session, Refusal::Loop);
        } else if self.children.set_relays(child, relays) {
            self.report_relays(replica);
        } else {
            self.children.forget(child);
            self.origin.hang_up(child);
        }
    }

    fn report_relays(&mut self, replica: &mut Replica<P>) {
        replica.set_relays(self.children.relays());
    }

    /// Requests the bodies that children wait for.
    fn fetch(&mut self, now: Reading, replica: &mut Replica<P>) {
        while let Some((path, is_wanted)) = self.origin.poll_wanted() {
            if is_wanted {
                replica.want(now.local, &path);
                self.wanted.insert(path);
            } else {
                replica.leave_body(now.local, &path);
                self.wanted.remove(&path);
            }
        }
        for path in &self.wanted {
            replica.want_again(now.local, path);
        }
    }
}
