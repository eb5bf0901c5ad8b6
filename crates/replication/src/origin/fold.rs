//! A step on the disk is taken over into the state, in slices, so that other events get their turn between.
//!
//! A commit is in the log when all of its changes were made. Before, objects may have versions of the next commit:
//! that is durable, so bodies of it may leave early. Trees for replicas are taken of whole states only.

use std::collections::BTreeMap;

use super::Origin;
use super::image::Entry;
use super::interface::Event;
use super::pending::{Appending, Fold};
use super::writes::Refused;
use crate::faults::Fault;
use crate::path::Path;
use crate::time::Reading;
use crate::types::{Change, Digest, DiskFull, NextPosition, Sequence, Version};

impl<P: Clone> Origin<P> {
    /// The log has the step on stable storage, or had no space for it. After any other failure the contents
    /// of the disk are unknown: then the origin must be restarted.
    ///
    /// A large step is taken over by further calls of [`go_on`](Origin::go_on), and acknowledged then.
    pub fn handle_appended(&mut self, now: Reading, outcome: Result<(), DiskFull>) {
        let appending = self.pending.appending.as_mut().filter(|one| one.fold.is_none());
        let Some(appending) = appending else { return };
        appending.fold = Some((outcome, Fold::default()));
        self.fold_some(now);
    }

    /// Whether a step is being taken over: the objects may be between two states.
    pub fn is_folding(&self) -> bool {
        self.pending.appending.as_ref().is_some_and(|one| one.fold.is_some())
    }

    /// The first state whose versions no object exceeds.
    pub(super) fn upto(&self) -> Sequence {
        let last = self.last().sequence;
        if self.is_folding() { last.next() } else { last }
    }

    /// Takes over some of the step that is on the disk.
    pub(super) fn fold_some(&mut self, now: Reading) {
        let Some(mut appending) = self.pending.appending.take() else { return };
        let Appending { ids, inline, weights, append, fold, .. } = &mut appending;
        let Some((outcome, fold)) = fold else {
            self.pending.appending = Some(appending);
            return;
        };
        // All of a step of small transactions.
        let mut rest = 4 * self.config.slice.max(1);
        while rest > 0
            && let Some(digest) = inline.get(fold.inline)
        {
            self.handle_stored_body(digest, *outcome);
            if outcome.is_err() {
                self.bodies.references.release(digest);
            }
            (fold.inline, rest) = (fold.inline + 1, rest - 1);
        }
        if outcome.is_err() && fold.inline == inline.len() {
            return self.give_append_up(now, appending);
        }
        let period = self.period(now.local);
        while rest > 0
            && let Some(commit) = append.commits.get(fold.commits)
        {
            let (last, from) = (self.state.image.last(), fold.before.len());
            let upto = commit.changes.len().min(from + rest);
            let new = || NextPosition::new(last, commit.sequence, commit.stamp);
            fold.next.get_or_insert_with(new).extend(&commit.changes[from..upto]);
            for change in &commit.changes[from..upto] {
                let before = self.fold_change(commit.sequence, change, period, &mut fold.lost);
                fold.before.push(before);
            }
            rest -= upto - from;
            if upto == commit.changes.len()
                && let Some(next) = fold.next.take()
            {
                let before = core::mem::take(&mut fold.before);
                let entry = Entry { commit: commit.clone(), before };
                self.state.push(entry, next.finish(), weights[fold.commits]);
                if !self.faults.has(Fault::AcknowledgementBeforeDurable) {
                    self.acknowledge(ids[fold.commits]);
                }
                fold.commits += 1;
            }
        }
        if fold.commits < append.commits.len() {
            self.pending.appending = Some(appending);
            return;
        }
        let lost = core::mem::take(&mut fold.lost);
        self.output
            .events
            .extend(lost.into_iter().map(|(digest, paths)| Event::Lost { digest, paths }));
        let left = self.state.trim(append.log_after, append.chain_from);
        self.releases.add_entries(left);
        self.release_some();
        self.form_append(now);
    }

    /// There was no room for the step.
    fn give_append_up(&mut self, now: Reading, appending: Appending) {
        let Appending { ids, held, append, .. } = appending;
        if held.len() > self.config.slice {
            self.releases.add_digests(held);
        } else {
            held.iter().for_each(|digest| self.bodies.references.release(digest));
        }
        for (transaction, _) in ids {
            let why = Refused::Disk(DiskFull);
            self.output.events.push_back(Event::Refused { transaction, why });
        }
        if append.commits.is_empty() {
            // Dropped bodies free the missing space; the log follows with the next step.
            let left = self.state.trim(append.log_after, append.chain_from);
            self.releases.add_entries(left);
            self.release_some();
        }
        self.form_append(now);
    }

    /// Changes an object, and queues its body.
    fn fold_change(
        &mut self,
        sequence: Sequence,
        change: &Change,
        period: u32,
        lost: &mut BTreeMap<Digest, Vec<Path>>,
    ) -> Option<Version> {
        let Change { path, content } = change;
        let before = self.state.change(sequence, change);
        let version = content.map(|content| Version { sequence, content });
        if self.upstream.is_some()
            && let Some(content) = content
        {
            self.bodies.references.need(&content.digest, content.size);
        }
        if let Some(building) = &mut self.preparation.building {
            building.change(path, version);
        }
        match version {
            Some(version) => self.queue_body(path, version, period),
            None => self.unqueue_body(path),
        }
        if self.upstream.is_some() {
            self.follow_change(path);
            return before;
        }
        let is_lost = |version: &Version| self.bodies.references.is_lost(&version.content.digest);
        if let Some(version) = version.filter(is_lost) {
            lost.entry(version.content.digest).or_default().push(path.clone());
        }
        before
    }

    /// The version of an object in the state at `sequence`, which the log reaches back to: the version for a
    /// replica with no later announcement (condition C1).
    pub(super) fn version_at(&self, path: &Path, sequence: Sequence) -> Option<Version> {
        let present = self.state.image.objects.get(path).copied();
        if present.is_some_and(|version| version.sequence <= sequence) {
            return present;
        }
        if let Some(before) = self.state.image.overwritten_after(path, sequence) {
            return before;
        }
        let folding = self.pending.appending.as_ref();
        let folding = folding.and_then(|one| Some((&one.append, &one.fold.as_ref()?.1)));
        let before = folding.and_then(|(append, fold)| {
            let at = append.commits.get(fold.commits)?.position(path)?;
            fold.before.get(at).copied()
        });
        before.unwrap_or(present)
    }
}
