//! Missing bodies, and the reports of them to the origin.

use super::{Config, Event, Object, Relayed, Replica};
use crate::message::{MAX_PATHS, ToOrigin};
use crate::path::Path;
use crate::time::LocalTime;
use crate::types::Sequence;

/// Bodies that are requested again at a time. Each success requests as many more: so a disk with little space
/// does not receive everything in vain.
const AT_A_TIME: usize = 16;

impl<P: Clone> Replica<P> {
    /// Reports missing bodies to an origin that has lost its queue: those inside the subscription, and as many as
    /// there is space for, because none evicts others. The report may be lost with its connection, so each
    /// connection repeats it until the origin has confirmed it.
    pub(super) fn report_lacking(&mut self, now: LocalTime) {
        while !self.fold_some(now, usize::MAX) {}
        self.missing.forget_rejected();
        (self.comparison.untold, self.comparison.told_at) = (true, now);
        let mut room = self.room();
        let mut paths = Vec::new();
        for path in self.bodies.without_body.paths() {
            let object = self.image.objects.get(path).filter(|_| self.bodies.scope.has(path));
            let Some(object) = object else { continue };
            let size = object.version.content.size.0;
            if size <= room {
                room -= size;
                paths.push(path.clone());
            }
        }
        for some in paths.chunks(MAX_PATHS) {
            self.connection.outbox.push_back(ToOrigin::Lacking(some.to_vec()));
        }
    }

    /// A body has come with other bytes, and the origin takes it for sent. One that was pushed is to come once more;
    /// what this connection corrupts again waits for the next one, or for a read.
    pub(super) fn corrupt(&mut self, now: LocalTime, path: Path, sequence: Sequence, pushed: bool) {
        if self.missing.corrupt(path.clone(), sequence) && pushed {
            self.missing.reject(path, sequence);
            self.ask_again(now);
        }
    }

    /// Demands without an answer to come, because their connection is gone.
    pub(super) fn reject_demands(&mut self) {
        let open: Vec<Path> = self.missing.demands.unanswered().cloned().collect();
        for path in open {
            if let Some(object) = self.object(&path) {
                let sequence = object.version.sequence;
                self.missing.reject(path, sequence);
            }
        }
    }

    /// Requests some of the rejected bodies again, unless the disk was full just now.
    pub(super) fn ask_again(&mut self, now: LocalTime) {
        self.bodies.full_until = self.bodies.full_until.filter(|until| now < *until);
        if self.bodies.full_until.is_some()
            || self.comparison.resync.is_some()
            || !self.is_connected()
        {
            return;
        }
        let mut paths = Vec::new();
        while paths.len() < AT_A_TIME
            && let Some((path, sequence)) = self.missing.poll_rejected()
        {
            self.fold_one(now, &path);
            if self.bodies.scope.has(&path) && self.is_of_use(&path, sequence) {
                paths.push(path);
            }
        }
        if !paths.is_empty() {
            self.connection.outbox.push_back(ToOrigin::Lacking(paths));
        }
    }

    /// Whether the body of a version would be of use: the version is in the state without its body, or will
    /// be.
    pub(super) fn is_of_use(&self, path: &Path, sequence: Sequence) -> bool {
        match self.object(path) {
            Some(Object { version, valid }) if version.sequence == sequence => !valid,
            Some(Object { version, .. }) => version.sequence < sequence,
            None => self.position() < sequence,
        }
    }

    /// There was no room on the disk.
    pub(super) fn disk_full(&mut self, now: LocalTime) {
        let retry = self.config.retry;
        self.apply.retry(now, now.plus(retry));
        let before = self.bodies.full_until.replace(now.plus(retry * Config::QUIET));
        if before.is_none_or(|until| until <= now) {
            self.output.events.push_back(Event::DiskFull);
        }
    }

    /// Whether the disk was full recently, so that only bodies with a waiting read are tried.
    pub fn is_disk_full(&self, now: LocalTime) -> bool {
        self.bodies.full_until.is_some_and(|until| now < until)
    }

    /// The origin has lost the body of a version that a read waits for. Its readers get that answer, from the
    /// state that has this version. Later reads request it again.
    pub(super) fn lose_at_origin(&mut self, path: Path, sequence: Sequence) {
        // The same as for any answer to a demand read (rule 2.3).
        self.apply.force(sequence);
        self.output.pass_on(|| Relayed::Lost { path: path.clone(), sequence });
        if self.missing.lost.insert(path.clone(), sequence) != Some(sequence) {
            self.output.events.push_back(Event::Lost(path));
        }
    }

    /// Whether the origin has lost the body that an object of the state lacks.
    pub(super) fn is_lost(&self, path: &Path, object: &Object) -> bool {
        self.missing.lost.get(path) == Some(&object.version.sequence)
    }

    /// An object of the state has changed: its lost bodies may no longer matter.
    pub(super) fn forget_lost(&mut self, path: &Path) {
        let Some(sequence) = self.missing.lost.get(path) else { return };
        if !self.is_of_use(path, *sequence) {
            self.missing.lost.remove(path);
        }
    }
}
