//! Bodies that are not here, and what the origin is told of that.

use super::{Config, Event, Object, Replica};
use crate::message::{MOST_PATHS, ToOrigin};
use crate::path::Path;
use crate::time::LocalTime;
use crate::types::Sequence;

/// Bodies that are asked for again at a time. Each that finds room asks for as many more: so a disk that
/// has a little room is not sent everything in vain.
const AT_A_TIME: usize = 16;

impl<P: Clone> Replica<P> {
    /// Tells an origin that has lost its queue which bodies are missing: as many as there is room for,
    /// because none makes room for itself. It may be lost with its connection, so it is told by each one until
    /// the origin is known to have heard it.
    pub(super) fn tell_lacking(&mut self, now: LocalTime) {
        while !self.fold_some(now, usize::MAX) {}
        self.missing.forget_rejected();
        (self.comparison.untold, self.comparison.told_at) = (true, now);
        let mut room = self.room();
        let mut paths = Vec::new();
        for (path, object) in self.image.objects.iter().filter(|(_, object)| !object.valid) {
            let size = object.version.content.size.0;
            if size <= room {
                room -= size;
                paths.push(path.clone());
            }
        }
        for some in paths.chunks(MOST_PATHS) {
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

    /// What was asked for and does not come any more, because its connection is gone.
    pub(super) fn reject_demands(&mut self) {
        let open: Vec<Path> = self.missing.demands.unanswered().cloned().collect();
        for path in open {
            if let Some(object) = self.object(&path) {
                let sequence = object.version.sequence;
                self.missing.reject(path, sequence);
            }
        }
    }

    /// Asks for some of what was turned away, unless the disk was full just now.
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
            if self.is_of_use(&path, sequence) {
                paths.push(path);
            }
        }
        if !paths.is_empty() {
            self.connection.outbox.push_back(ToOrigin::Lacking(paths));
        }
    }

    /// Whether the body of a version would be: it is in the state, without its body, or will be.
    fn is_of_use(&self, path: &Path, sequence: Sequence) -> bool {
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

    /// Whether the disk had no room of late, so that only what a read waits for is tried.
    pub fn is_disk_full(&self, now: LocalTime) -> bool {
        self.bodies.full_until.is_some_and(|until| now < until)
    }

    /// The origin has lost the body of a version that a read waits for. Who reads it is told so, from the
    /// state that has this version; and it is asked for again when it is read later on.
    pub(super) fn lose_at_origin(&mut self, path: Path, sequence: Sequence) {
        // As for any answer to a demand read (rule 2.3).
        self.apply.force(sequence);
        if self.missing.lost.insert(path.clone(), sequence) != Some(sequence) {
            self.output.events.push_back(Event::Lost(path));
        }
    }

    /// Whether the origin has lost the body that an object of the state lacks.
    pub(super) fn is_lost(&self, path: &Path, object: &Object) -> bool {
        self.missing.lost.get(path) == Some(&object.version.sequence)
    }

    /// An object of the state is another one: what was lost of it may be of no interest any more.
    pub(super) fn forget_lost(&mut self, path: &Path) {
        let Some(sequence) = self.missing.lost.get(path) else { return };
        if !self.is_of_use(path, *sequence) {
            self.missing.lost.remove(path);
        }
    }
}
