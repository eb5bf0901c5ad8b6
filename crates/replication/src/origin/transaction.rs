//! From a transaction to a commit: first the bodies are durable, then the log, and only then it is
//! acknowledged and announced.

use core::ops::Bound;
use std::collections::BTreeMap;

use super::Origin;
use super::case::ByCase;
use super::condition::Condition;
use super::history::Weight;
use super::image::{Append, Entry};
use super::interface::Event;
use super::pending::{Appending, Queued};
use super::writes::{Put, Refused, RollbackError, Transaction, TransactionId};
use crate::faults::Fault;
use crate::path::Path;
use crate::time::Reading;
use crate::types::{
    Change, Commit, Content, Digest, DiskFull, LARGEST_BODY, Payload, Sequence, Version,
};

impl<P: Clone> Origin<P> {
    /// Begins a write. The answer is an [`Event::Acknowledged`] or [`Event::Refused`]. Transactions are
    /// committed in the order of these calls.
    pub fn handle_transaction(&mut self, now: Reading, id: TransactionId, writes: Transaction<P>) {
        self.handle_conditional(now, id, Vec::new(), writes);
    }

    /// Begins a write that takes effect if all these conditions hold for the state after the preceding
    /// transactions.
    pub fn handle_conditional(
        &mut self,
        now: Reading,
        id: TransactionId,
        conditions: Vec<(Path, Condition)>,
        writes: Transaction<P>,
    ) {
        match self.admit(id, writes) {
            Ok(mut queued) => {
                queued.conditions = conditions;
                self.pending.queue.push_back(queued);
                self.form_append(now);
            }
            Err(why) => self.events.push_back(Event::Refused { transaction: id, why }),
        }
    }

    /// Restores the state at `to` with a new transaction: the log continues, and replicas lose nothing that
    /// they have shown. The changes are computed from the state after all earlier transactions. So the result
    /// equals the state at `to`, despite concurrent writes.
    pub fn handle_rollback(&mut self, now: Reading, id: TransactionId, to: Sequence) {
        if self.pending.queue.len() >= self.config.queue {
            let why = Refused::Busy;
            self.events.push_back(Event::Refused { transaction: id, why });
            return;
        }
        self.pending.queue.push_back(Queued { back: Some(to), ..Queued::new(id) });
        self.form_append(now);
    }

    fn admit(&mut self, id: TransactionId, writes: Transaction<P>) -> Result<Queued<P>, Refused> {
        if writes.changes.is_empty() {
            return Err(Refused::Empty);
        }
        if self.pending.queue.len() >= self.config.queue {
            return Err(Refused::Busy);
        }
        let large = |put: &Put<P>| match put {
            Put::Body(payload, _) => payload.size > LARGEST_BODY,
            Put::Stored(content) => content.size > LARGEST_BODY,
            Put::Delete => false,
        };
        if let Some((path, _)) = writes.changes.iter().find(|(_, put)| large(put)) {
            return Err(Refused::Large(path.clone()));
        }
        let impossible = |put: &Put<P>| put.content().is_some_and(|one| !one.is_possible());
        if let Some((path, _)) = writes.changes.iter().find(|(_, put)| impossible(put)) {
            return Err(Refused::Impossible(path.clone()));
        }
        let missing = writes.changes.values().find_map(|put| match put {
            Put::Stored(content) if !self.bodies.shelf.is_stored(&content.digest) => {
                Some(content.digest)
            }
            _ => None,
        });
        if let Some(digest) = missing {
            return Err(Refused::NotStored(digest));
        }
        // Replicas get the size with the hash and trust both.
        let other = writes.changes.values().find_map(|put| match put {
            Put::Stored(Content { digest, size, .. }) => {
                (!self.bodies.shelf.is_stored_as(digest, *size)).then_some((*digest, *size))
            }
            _ => None,
        });
        if let Some((digest, size)) = other {
            return Err(Refused::OtherSize(digest, size));
        }
        let mut queued = Queued::new(id);
        for (path, put) in writes.changes {
            let content = match put {
                Put::Delete => None,
                Put::Stored(content) => {
                    self.bodies.shelf.refer(&content.digest);
                    queued.held.push(content.digest);
                    Some(content)
                }
                Put::Body(payload, metadata) => {
                    let (digest, size) = (payload.digest, payload.size);
                    if size <= self.config.inline {
                        queued.inline.push(payload);
                    } else {
                        queued.held.push(digest);
                        self.bodies.shelf.keep(payload);
                    }
                    Some(Content { digest, size, metadata })
                }
            };
            queued.changes.push((path, content));
        }
        Ok(queued)
    }

    /// Finds the changes that restore the state at `to`, and refers to their bodies.
    fn go_back(&mut self, queued: &mut Queued<P>, to: Sequence) -> Result<(), RollbackError> {
        let last = self.last().sequence;
        if to > last {
            return Err(RollbackError::NotYet(last));
        }
        let then = self
            .state
            .image
            .changed_since(to)
            .ok_or(RollbackError::TooOld(self.state.image.log_after()))?;
        if then.is_empty() {
            return Err(RollbackError::Nothing(to));
        }
        let bodies: Vec<_> = then.values().flatten().map(|content| content.digest).collect();
        if !bodies.iter().all(|digest| self.bodies.shelf.is_stored(digest)) {
            return Err(RollbackError::Lost(to));
        }
        bodies.iter().for_each(|digest| self.bodies.shelf.refer(digest));
        queued.held = bodies;
        queued.changes = then.into_iter().collect();
        Ok(())
    }

    /// There was no room for a body, or it is lost: a transaction that needs it is refused as a whole.
    pub(super) fn refuse_those_with(&mut self, digest: &Digest, why: &Refused) {
        for queued in self.pending.take_with(digest) {
            self.refuse(queued, why.clone());
        }
    }

    fn refuse(&mut self, queued: Queued<P>, why: Refused) {
        for digest in &queued.held {
            self.bodies.shelf.release(digest);
        }
        self.events.push_back(Event::Refused { transaction: queued.id, why });
    }

    /// Whether the first waiting transaction has all of its bodies. The store is asked for one body at a
    /// time, so that a transaction with many bodies is not searched after each of them.
    fn is_first_ready(&mut self) -> bool {
        let (shelf, Some(queued)) = (&self.bodies.shelf, self.pending.queue.front_mut()) else {
            return false;
        };
        let Queued { held, inline, found, looked, .. } = queued;
        while let Some(digest) = held.get(*found) {
            if !shelf.is_stored(digest) {
                return false;
            }
            *found += 1;
        }
        // Nothing refers to these so far, so a body that was checked may be in deletion by now.
        let is_dropping = |payload: &Payload<P>| shelf.is_dropping(&payload.digest);
        let behind = inline[*looked..].iter().position(is_dropping);
        if let Some(at) = behind {
            *looked += at;
            return false;
        }
        let before = inline[..*looked].iter().position(is_dropping);
        *looked = before.unwrap_or(0);
        before.is_none()
    }

    /// Hands ready transactions to the log, as one durable step. In order: a transaction whose bodies are
    /// still being stored blocks those behind it.
    pub(super) fn form_append(&mut self, now: Reading) {
        if self.pending.appending.is_some() {
            return;
        }
        let mut overlay = Overlay::default();
        let mut commits = Vec::new();
        let mut inline = Vec::new();
        let mut ids = Vec::new();
        let mut held = Vec::new();
        let mut weights = Vec::new();
        let mut sequence = self.last().sequence;
        while commits.len() < self.config.batch.max(1) && self.is_first_ready() {
            let goes_back = self.pending.queue.front().is_some_and(|queued| queued.back.is_some());
            if goes_back && !commits.is_empty() {
                // Its changes are known once the transactions before it are in the state.
                break;
            }
            let Some(mut queued) = self.pending.queue.pop_front() else { break };
            if let Some(to) = queued.back
                && let Err(why) = self.go_back(&mut queued, to)
            {
                self.refuse(queued, why.into());
                continue;
            }
            let objects = &self.state.image.objects;
            let is_unmet = |(path, condition): &&(Path, Condition)| {
                let before = overlay.before(path, objects);
                !condition.holds(before.map(|content| content.digest).as_ref())
            };
            if let Some((path, _)) = queued.conditions.iter().find(is_unmet) {
                let why = Refused::Condition(path.clone());
                self.refuse(queued, why);
                continue;
            }
            if let Err(why) = self.check(&overlay, &queued.changes) {
                self.refuse(queued, why);
                continue;
            }
            let before = queued.changes.iter().map(|(path, _)| overlay.before(path, objects));
            let after = queued.changes.iter().map(|(_, content)| *content);
            weights.push(Weight::of(before, after));
            overlay.extend(&queued.changes);
            sequence = sequence.next();
            let changes =
                queued.changes.into_iter().map(|(path, content)| Change { path, content });
            let stamp = self.clock.read(now);
            commits.push(Commit { sequence, stamp, changes: changes.collect() });
            ids.push((queued.id, sequence));
            held.extend(queued.held);
            for payload in queued.inline {
                // A body may come twice within the batch; each time it gets a reference.
                let expected = self.bodies.shelf.expect(payload.digest, payload.size);
                assert!(expected, "it is being deleted, so the transaction was not ready");
                inline.push(payload);
            }
        }
        if commits.is_empty() {
            return;
        }
        let log_after = self.state.log_after(&weights, &self.config);
        let chain = (self.config.chain as u64).max(self.config.log as u64);
        let chain_from = Sequence(sequence.0.saturating_sub(chain));
        if self.faults.has(Fault::AcknowledgementBeforeDurable) {
            self.acknowledge(&ids);
        }
        let append = Append { commits, inline, log_after, chain_from };
        self.pending.hand_over(ids, held, weights, append);
    }

    /// Drops log entries beyond the limits, which may have been different before this start.
    pub(super) fn shorten_log(&mut self) {
        let log_after = self.state.log_after(&[], &self.config);
        if log_after == self.state.image.log_after() {
            return;
        }
        let chain_from = self.state.image.chain.first();
        let (commits, inline) = Default::default();
        let append = Append { commits, inline, log_after, chain_from };
        self.pending.hand_over(Vec::new(), Vec::new(), Vec::new(), append);
    }

    fn acknowledge(&mut self, ids: &[(TransactionId, Sequence)]) {
        for (transaction, sequence) in ids {
            let (transaction, sequence) = (*transaction, *sequence);
            self.events.push_back(Event::Acknowledged { transaction, sequence });
        }
    }

    /// The log has the step on stable storage, or had no space for it. After any other failure the contents
    /// of the disk are unknown: then the origin must be restarted.
    pub fn handle_appended(&mut self, now: Reading, outcome: Result<(), DiskFull>) {
        let Some(appended) = self.pending.appending.take() else { return };
        let Appending { ids, held, inline, weights, append } = appended;
        for digest in &inline {
            self.take_in(digest, outcome);
        }
        if let Err(full) = outcome {
            for digest in held.iter().chain(&inline) {
                self.bodies.shelf.release(digest);
            }
            for (transaction, _) in ids {
                self.events.push_back(Event::Refused { transaction, why: Refused::Disk(full) });
            }
            if append.commits.is_empty() {
                // Dropped bodies free the missing space; the log follows with the next step.
                let left = self.state.commit(&append, Vec::new());
                self.let_go_of(&left);
            }
            self.form_append(now);
            return;
        }
        let period = self.period(now.local);
        let left = self.state.commit(&append, weights);
        for commit in &append.commits {
            for change in &*commit.changes {
                // A later commit of the same step may have changed it again.
                match self.state.image.objects.get(&change.path).copied() {
                    Some(version) => self.queue_body(&change.path, version, period),
                    None => self.unqueue_body(&change.path),
                }
            }
        }
        self.let_go_of(&left);
        if !self.faults.has(Fault::AcknowledgementBeforeDurable) {
            self.acknowledge(&ids);
        }
        self.form_append(now);
    }

    /// Overwritten bodies of a commit are kept while the log contains it.
    fn let_go_of(&mut self, left: &[Entry]) {
        for version in left.iter().flat_map(|entry| &entry.before).flatten() {
            self.bodies.shelf.release(&version.content.digest);
        }
    }

    /// Whether the tree would stay valid: no file below a file, and no case clash if those are refused.
    fn check(&self, overlay: &Overlay, changes: &[(Path, Option<Content>)]) -> Result<(), Refused> {
        let mut own = Overlay::default();
        own.extend(changes);
        let objects = &self.state.image.objects;
        let content = |path: &[u8]| {
            let newer = own.0.get(path).or_else(|| overlay.0.get(path));
            newer.copied().unwrap_or_else(|| objects.get(path).map(|version| version.content))
        };
        let exists = |path: &[u8]| content(path).is_some();
        let is_leaf = |path: &&[u8]| content(path).is_some_and(|content| !content.is_folder());
        for (path, content) in changes {
            let Some(content) = content else { continue };
            if let Some(parent) = path.parents().find(is_leaf) {
                let parent = Path::from_bytes(parent).unwrap_or_else(|_| path.clone());
                return Err(Refused::FileAndFolder(parent));
            }
            if content.is_folder() {
                continue;
            }
            let below = path.prefix();
            let is_below = |other: &&Path| other.as_bytes().starts_with(&below);
            let from = (Bound::Included(&below[..]), Bound::Unbounded);
            let older = objects.range::<[u8], _>(from).map(|(path, _)| path).take_while(is_below);
            let mut newer = [&overlay.0, &own.0].into_iter().flat_map(|layer| {
                layer.range::<[u8], _>(from).map(|(path, _)| path).take_while(is_below)
            });
            let is_live = |other: &Path| exists(other.as_bytes());
            if newer.any(is_live) || older.into_iter().any(is_live) {
                return Err(Refused::FileAndFolder(path.clone()));
            }
        }
        let Some(by_case) = &self.state.by_case else { return Ok(()) };
        let newer: ByCase = [&overlay.0, &own.0].into_iter().flat_map(BTreeMap::keys).collect();
        let found = |path: &Path| content(path.as_bytes()).map(|content| content.is_folder());
        let put = changes.iter().filter_map(|(path, content)| Some((path, content.as_ref()?)));
        put.map(|(path, content)| (path, content.is_folder()))
            .try_for_each(|path| ByCase::check(&[by_case, &newer], path, found))
    }
}

/// The changes of one step so far: the content of objects, if they exist.
#[derive(Clone, Debug, Default)]
struct Overlay(BTreeMap<Path, Option<Content>>);

impl Overlay {
    fn extend(&mut self, changes: &[(Path, Option<Content>)]) {
        for (path, content) in changes {
            self.0.insert(path.clone(), *content);
        }
    }

    /// The content of an object on top of `objects`.
    fn before(&self, path: &Path, objects: &BTreeMap<Path, Version>) -> Option<Content> {
        let older = || objects.get(path).map(|version| version.content);
        self.0.get(path).copied().unwrap_or_else(older)
    }
}
