//! A replica of all subtrees.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Commit, Object, SeededBug, Situation, Values, Vector, WriteId, WriterId};

/// A read of some objects at once.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) objects: BTreeSet<Object>,
    /// The token of the session.
    pub(super) token: Vector,
}

/// Its answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) values: Values,
    /// The new token of the session.
    pub(super) token: Vector,
}

/// The part of one log that a replica has.
#[derive(Debug)]
struct Feed {
    /// The stamp of the last commit that was applied: what a reader of the subtree depends on.
    stamp: Vector,
    /// The commits that were received and not applied, in order.
    waiting: VecDeque<Commit>,
    /// Heartbeats whose commits are not all applied: the echoed local time, and the position.
    heartbeats: VecDeque<(Duration, u64)>,
    /// All that was acknowledged before this local time is applied.
    reflects: Option<Duration>,
}

/// A replica. The applied state is on its disk; the rest is lost in a restart.
#[derive(Debug)]
pub(super) struct Replica {
    delta: Duration,
    bug: Option<SeededBug>,
    applied: Vector,
    feeds: Vec<Feed>,
    values: Values,
    /// The remaining changes of a commit that was applied in part.
    half: Vec<(Object, WriteId)>,
    /// Reads by the number that their client gave them.
    reads: BTreeMap<u64, Request>,
    situations: BTreeSet<Situation>,
}

impl Replica {
    /// A replica that answers no read of a subtree after its own clock has counted `delta` since the last
    /// proof.
    pub(super) fn new(writers: usize, delta: Duration, bug: Option<SeededBug>) -> Self {
        let feed = |_| Feed {
            stamp: Vector::zero(writers),
            waiting: VecDeque::new(),
            heartbeats: VecDeque::new(),
            reflects: None,
        };
        Replica {
            delta,
            bug,
            applied: Vector::zero(writers),
            feeds: (0..writers).map(feed).collect(),
            values: Values::new(),
            half: Vec::new(),
            reads: BTreeMap::new(),
            situations: BTreeSet::new(),
        }
    }

    pub(super) fn applied(&self) -> &Vector {
        &self.applied
    }

    pub(super) fn situations(&self) -> &BTreeSet<Situation> {
        &self.situations
    }

    /// How many commits of a log it has, applied or not.
    pub(super) fn received(&self, writer: WriterId) -> u64 {
        self.applied.get(writer) + self.feeds[writer.0].waiting.len() as u64
    }

    /// The next commit of a log.
    pub(super) fn handle_commit(&mut self, writer: WriterId, commit: Commit) {
        assert_eq!(commit.stamp.get(writer), self.received(writer) + 1, "a log has no gap");
        self.feeds[writer.0].waiting.push_back(commit);
        self.finish_half();
        while self.apply_next() {}
    }

    /// A heartbeat of a writer: when it got the ping of local time `echo` or later, all acknowledged commits
    /// were at or below the position.
    pub(super) fn handle_heartbeat(&mut self, writer: WriterId, echo: Duration, position: u64) {
        assert!(position <= self.received(writer), "a heartbeat follows the commits before it");
        self.feeds[writer.0].heartbeats.push_back((echo, position));
        self.finish_half();
        self.count_heartbeats(writer);
    }

    pub(super) fn handle_read(&mut self, read: u64, request: Request) {
        self.reads.insert(read, request);
    }

    /// The client no longer waits.
    pub(super) fn handle_cancelled(&mut self, read: u64) {
        self.reads.remove(&read);
    }

    /// Applies one commit whose dependencies are applied; false if there is none. Each applied state contains
    /// all that it depends on.
    fn apply_next(&mut self) -> bool {
        for writer in (0..self.feeds.len()).map(WriterId) {
            let Some(next) = self.feeds[writer.0].waiting.front() else { continue };
            let mut with_it = self.applied.clone();
            with_it.raise(writer, next.stamp.get(writer));
            let is_ready = with_it.covers(&next.stamp);
            if is_ready || self.bug == Some(SeededBug::IgnoresDependencies) {
                self.apply(writer);
                return true;
            }
            self.situations.insert(Situation::CommitWaited);
        }
        false
    }

    /// Applies the first commit of a log in one step.
    fn apply(&mut self, writer: WriterId) {
        self.finish_half();
        let feed = &mut self.feeds[writer.0];
        let Some(Commit { stamp, write, objects }) = feed.waiting.pop_front() else { return };
        self.applied.raise(writer, stamp.get(writer));
        feed.stamp = stamp;
        let mut changes = objects.into_iter().map(|object| (object, write));
        if self.bug == Some(SeededBug::AppliesHalf) {
            self.values.extend(changes.next());
            self.half.extend(changes);
        } else {
            self.values.extend(changes);
        }
        self.count_heartbeats(writer);
    }

    fn finish_half(&mut self) {
        self.values.extend(self.half.drain(..));
    }

    /// A heartbeat counts when all commits before it are applied.
    fn count_heartbeats(&mut self, writer: WriterId) {
        let applied = match self.bug {
            Some(SeededBug::LeaseIgnoresWaiting) => self.received(writer),
            _ => self.applied.get(writer),
        };
        let feed = &mut self.feeds[writer.0];
        while let Some((echo, _)) =
            feed.heartbeats.pop_front_if(|(_, position)| *position <= applied)
        {
            feed.reflects = feed.reflects.max(Some(echo));
        }
    }

    /// The reads that can be answered now.
    pub(super) fn poll_answers(&mut self, now: Duration) -> Vec<(u64, Answer)> {
        let ready: Vec<_> = self.reads.keys().copied().collect();
        let ready = ready.into_iter().filter(|read| self.is_answerable(*read, now));
        let ready: Vec<_> = ready.collect();
        let answered = ready.into_iter().filter_map(|read| Some((read, self.reads.remove(&read)?)));
        let answered: Vec<_> = answered.collect();
        answered.into_iter().map(|(read, request)| (read, self.answer(request))).collect()
    }

    fn has_lease(&self, writer: WriterId, now: Duration) -> bool {
        let reflects = self.feeds[writer.0].reflects;
        reflects.is_some_and(|reflects| now.saturating_sub(reflects) < self.delta)
    }

    /// Only the subtrees that it reads count. Its token contains all that it depends on, so the positions in
    /// other logs do not matter.
    fn is_answerable(&mut self, read: u64, now: Duration) -> bool {
        let Some(Request { objects, token }) = self.reads.get(&read) else { return false };
        let owners: BTreeSet<_> = objects.iter().map(|object| object.owner).collect();
        let is_behind = |owner: &WriterId| self.applied.get(*owner) < token.get(*owner);
        let ignores_tokens = self.bug == Some(SeededBug::IgnoresTokens);
        if owners.iter().any(is_behind) && !ignores_tokens {
            self.situations.insert(Situation::SessionWaited);
            return false;
        }
        if !owners.iter().all(|owner| self.has_lease(*owner, now)) {
            self.situations.insert(Situation::LeaseWaited);
            return false;
        }
        if !(0..self.feeds.len()).all(|owner| self.has_lease(WriterId(owner), now)) {
            self.situations.insert(Situation::AnsweredWhileCut);
        }
        true
    }

    fn answer(&self, request: Request) -> Answer {
        let Request { objects, mut token } = request;
        let value =
            |object: Object| (object, self.values.get(&object).copied().unwrap_or_default());
        for object in &objects {
            token.join(&self.feeds[object.owner.0].stamp);
        }
        if self.bug == Some(SeededBug::TokenForgetsWriter) {
            token.set(WriterId(0), 0);
        }
        Answer { values: objects.into_iter().map(value).collect(), token }
    }

    /// The process starts again, with the state of its disk.
    pub(super) fn restart(&mut self) {
        self.finish_half();
        if self.feeds.iter().any(|feed| !feed.waiting.is_empty()) {
            self.situations.insert(Situation::ReplicaRestarted);
        }
        for feed in &mut self.feeds {
            feed.waiting.clear();
            feed.heartbeats.clear();
            feed.reflects = None;
        }
        self.reads.clear();
    }
}
