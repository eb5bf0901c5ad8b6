//! Reads: answered from the committed state, or kept until they can be (SSR §6.2.2, §6.2.3.2).

mod queue;

use core::time::Duration;

use lull_cc::Bytes;

use super::{Object, Page, PageRequest, Replica};
use crate::message::ToOrigin;
use crate::path::Path;
use crate::time::{LocalTime, Reading};
use crate::types::{Metadata, Sequence, Version};

use queue::blocks_later_reads;
pub(super) use queue::{Reads, Waiting};

/// A caller's name for a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// The target of the read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReadTarget {
    /// The body of an object.
    Object(Path),
    /// The body of the version that an [`Entry`](ReadTarget::Entry) of this object returned. A file system opens it
    /// after the lookup. If it is overwritten meanwhile, it remains that version while its body is here.
    Version(Path, Version),
    /// The body of a version that an earlier read was answered with: another part of an open file. It says
    /// nothing about the state, so it needs no lease and has no place in the order. It blocks no other read
    /// and no read blocks it, because the waiting process may be impossible to interrupt.
    Opened(Path, Version),
    /// The entry under a name. Needs no body.
    Entry(Path),
    /// The root, which has no name: a folder, and the state that it belongs to.
    Root,
    /// The names in a folder, without those of its subfolders; none is the root. One read of all these names,
    /// which needs no bodies.
    Names(Option<Path>),
    /// All objects of a folder, at any depth; none is the root. One read of all their names, without bodies.
    Folder(Option<Path>),
    /// A page of all files. One read of all names from its beginning to its end, without bodies.
    Page(PageRequest),
}

/// An entry under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A file or a link, in this version.
    File(Version),
    /// A folder, with its metadata if it is an object of its own. Otherwise it exists because objects have
    /// this name as a prefix.
    Folder(Option<Metadata>),
}

impl Entry {
    /// The entry under the name of an object.
    pub(super) fn of(version: Version) -> Self {
        if version.content.is_folder() {
            Entry::Folder(Some(version.content.metadata))
        } else {
            Entry::File(version)
        }
    }
}

/// A read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The object, folder or page that is read.
    pub target: ReadTarget,
    /// The lowest acceptable state: that of the session's token.
    pub after: Sequence,
}

impl Request {
    /// The object whose body the read may wait for.
    fn object(&self) -> Option<&Path> {
        match &self.target {
            ReadTarget::Object(path)
            | ReadTarget::Version(path, _)
            | ReadTarget::Opened(path, _) => Some(path),
            ReadTarget::Entry(_)
            | ReadTarget::Root
            | ReadTarget::Names(_)
            | ReadTarget::Folder(_)
            | ReadTarget::Page(_) => None,
        }
    }

    /// Whether it is a read of the state, which has a place in the order. A read of an open file had its
    /// place when the file was opened.
    pub(super) fn is_ordered(&self) -> bool {
        !matches!(self.target, ReadTarget::Opened(..))
    }
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The body of this version; it is in the store.
    Object(Version),
    /// The object or folder does not exist; or that version is overwritten, and its body no longer stored.
    Absent,
    /// The object is this version, and the origin has lost its body.
    Lost(Version),
    /// The entry under the name.
    Entry(Entry),
    /// The names in the folder, in the order of their bytes.
    Names(Vec<(Vec<u8>, Entry)>),
    /// The objects of the folder, by name.
    Folder(Vec<(Path, Version)>),
    /// The page.
    Page(Page),
}

impl Outcome {
    /// The version, if the outcome is one of an object.
    pub fn version(&self) -> Option<Version> {
        match self {
            Outcome::Object(version)
            | Outcome::Lost(version)
            | Outcome::Entry(Entry::File(version)) => Some(*version),
            _ => None,
        }
    }
}

/// A read that was answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Which.
    pub id: ReadId,
    /// The state of the answer: the session's token contains it from now on.
    pub at: Sequence,
    /// The result.
    pub outcome: Outcome,
    /// All writes acknowledged before this time are in that state. The time is by this machine's clock for
    /// intervals. So it bounds how stale the answer is.
    pub reflects: Option<LocalTime>,
    /// How long the caller may reuse the answer, unless the state changes. Zero for anything other than a
    /// read of the present state.
    pub holds_for: Duration,
}

/// Why a read waits. Its server may return an error or name another replica (§6.2.2) instead, after
/// [`Replica::cancel_read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitReason {
    /// No message of the origin has arrived for Δ.
    Stale,
    /// The required state is on its way to the disk.
    Applying,
    /// The session has seen a later state at another replica.
    Behind,
    /// The body has to be fetched.
    Invalid,
    /// An earlier read waits, and reads are answered in order.
    Order,
}

/// Whether a read may overtake a waiting one (§6.2.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// No: reads of two objects in sequence see them in this order. A read that is [`Behind`](WaitReason::Behind) is
    /// overtaken all the same.
    #[default]
    Conservative,
    /// Reads need not be in order: for readers that do not depend on each other.
    Aggressive,
}

impl<P: Clone> Replica<P> {
    /// Starts a read. The answer comes by [`poll_answer`](Replica::poll_answer); until then this returns why
    /// it waits.
    pub fn handle_read(
        &mut self,
        now: Reading,
        id: ReadId,
        request: Request,
    ) -> Option<WaitReason> {
        let ordered = request.is_ordered();
        let passes = ordered && self.reads.has_ordered();
        let outcome = if ordered && self.reads.is_blocked(self.config.order) {
            Err(WaitReason::Order)
        } else {
            self.attempt(now.local, &request)
        };
        match outcome {
            Ok(outcome) => {
                self.output.counters.passed += u64::from(passes);
                self.answer(now.local, id, request, outcome);
                None
            }
            Err(why) => {
                let unheard = self.lease.covered().is_none();
                let counters = &mut self.output.counters;
                *match why {
                    WaitReason::Stale if unheard => &mut counters.blocked_unheard,
                    WaitReason::Stale => &mut counters.blocked_stale,
                    WaitReason::Applying => &mut counters.blocked_applying,
                    WaitReason::Behind => &mut counters.blocked_behind,
                    WaitReason::Invalid => &mut counters.blocked_invalid,
                    WaitReason::Order => &mut counters.blocked_order,
                } += 1;
                if let Some(path) = request.object() {
                    self.missing.demands.join(path);
                }
                self.reads.wait(Waiting { id, request, why, since: now.local });
                self.cannot_mask(now.local, why);
                Some(why)
            }
        }
    }

    /// The reader no longer waits for the read.
    pub fn cancel_read(&mut self, now: Reading, id: ReadId) {
        if let Some(at) = self.reads.place(id)
            && let Some(read) = self.end_wait(now.local, at)
        {
            self.give_up_read(&read);
        }
        self.wake(now.local);
        self.withdraw(now.local);
    }

    /// Removes a read that has waited.
    fn end_wait(&mut self, now: LocalTime, at: usize) -> Option<Waiting> {
        let waiting = self.reads.remove(at)?;
        if let Some(path) = waiting.request.object() {
            self.missing.demands.leave(now, path);
        }
        Some(waiting)
    }

    /// Withdraws demands that had no reader for a while: the origin need not send the parts that have not
    /// left.
    pub(super) fn withdraw(&mut self, now: LocalTime) {
        while let Some(path) = self.missing.demands.withdraw(now.minus(self.config.linger)) {
            self.output.counters.withdrawn += 1;
            self.connection.outbox.push_back(ToOrigin::Withdraw(path));
        }
    }

    /// Why a read waits, if it does.
    pub fn why(&self, id: ReadId) -> Option<WaitReason> {
        self.reads.get(self.reads.place(id)?).map(|waiting| waiting.why)
    }

    /// Answers the reads that can be answered now.
    pub(super) fn wake(&mut self, now: LocalTime) {
        let (mut at, mut held_up) = (0, false);
        self.missing.held_back = Default::default();
        self.apply.awaited.clear();
        while let Some(waiting) = self.reads.get(at) {
            // Behind a blocking read, only reads without a place in the order are checked.
            if held_up && waiting.request.is_ordered() {
                at += 1;
                continue;
            }
            let request = waiting.request.clone();
            match self.attempt(now, &request) {
                Ok(outcome) => {
                    if let Some(Waiting { id, request, .. }) = self.end_wait(now, at) {
                        self.answer(now, id, request, outcome);
                    }
                }
                Err(why) => {
                    self.reads.set_reason(at, why);
                    self.cannot_mask(now, why);
                    held_up |= blocks_later_reads(self.config.order, &request, why);
                    at += 1;
                }
            }
        }
    }

    fn answer(&mut self, now: LocalTime, id: ReadId, request: Request, outcome: Outcome) {
        let ordered = request.is_ordered();
        self.output.counters.masked += u64::from(ordered && !self.lease.holds(now, true));
        if let (Some(path), Outcome::Object(_)) = (request.object(), &outcome) {
            // A read of an open file was counted when the file was opened.
            if ordered {
                self.reads.count(path, 1);
            }
            self.touch(path);
        }
        let (at, reflects) = (self.position(), self.reflects());
        let holds_for = if ordered { self.holds_for(now) } else { Duration::ZERO };
        self.reads.answer(Answer { id, at, outcome, reflects, holds_for });
    }

    /// How long reads of the present state stay valid without a new state: until the lease ends or a waiting
    /// commit reaches its deadline. Later commits have later deadlines. The Δ of a connected replica applies
    /// in any case, because a connection may return at any time. Invalidations that are applied on arrival
    /// leave no time.
    fn holds_for(&self, now: LocalTime) -> Duration {
        let is_eager = self.config.eager.unwrap_or(self.connection.eager);
        let Some(covered) = self.lease.covered().filter(|_| !is_eager) else {
            return Duration::ZERO;
        };
        let waits = self.apply.buffer.front().map(|front| front.said);
        let Some(said) = waits.unwrap_or(Some(covered)).map(|said| said.min(covered)) else {
            return Duration::ZERO;
        };
        self.lease.deadline(said, true).map_or(Duration::ZERO, |until| until.since(now))
    }

    /// Whether the replica has a lease to answer reads with.
    pub fn has_lease(&self) -> bool {
        self.lease.covered().is_some()
    }

    /// A client asked whether its copy of an object is current, and it is: that counts as a read of the
    /// object, though not of a body.
    pub fn count_read(&mut self, path: &Path) {
        if self.object(path).is_some() {
            self.reads.count(path, 1);
        }
    }

    /// Answers a read, or starts the work that will make it possible.
    fn attempt(&mut self, now: LocalTime, request: &Request) -> Result<Outcome, WaitReason> {
        if request.is_ordered() {
            self.expect_present(now, request.after)?;
        }
        match &request.target {
            ReadTarget::Folder(folder) => {
                let objects = self.present().objects(folder.as_ref());
                Ok(Outcome::Folder(objects.map(|(path, one)| (path.clone(), one)).collect()))
            }
            ReadTarget::Entry(path) => Ok(self.present().entry(path)),
            ReadTarget::Root => Ok(Outcome::Entry(Entry::Folder(None))),
            ReadTarget::Names(folder) => Ok(self.present().names(folder.as_ref())),
            ReadTarget::Page(page) => Ok(Outcome::Page(self.present().page(page))),
            ReadTarget::Version(path, version) => {
                self.fold_one(now, path);
                match self.image.objects.get(path).copied() {
                    // If it was overwritten: it was current at its lookup, which precedes an open. So the
                    // read may be of that time.
                    _ if self.bodies.references.is_stored(&version.content.digest) => {
                        self.find(now, path);
                        Ok(Outcome::Object(*version))
                    }
                    // It has to be fetched. If it was overwritten, a new lookup finds a newer version, which
                    // is worth waiting for. Otherwise that version might be overwritten too.
                    Some(object) if !object.valid => match self.fetch(now, path, object)? {
                        Outcome::Lost(lost) if lost != *version => Ok(Outcome::Absent),
                        lost => Ok(lost),
                    },
                    _ => Ok(Outcome::Absent),
                }
            }
            ReadTarget::Opened(path, version) => self.go_on(now, path, version),
            ReadTarget::Object(path) => {
                self.fold_one(now, path);
                match self.image.objects.get(path).copied() {
                    None => Ok(Outcome::Absent),
                    Some(object) if object.valid || self.find(now, path) => {
                        Ok(Outcome::Object(object.version))
                    }
                    Some(object) => self.fetch(now, path, object),
                }
            }
        }
    }

    /// The conditions of a read of the state: the state may be shown, and it is not before the one that the
    /// session has seen.
    fn expect_present(&mut self, now: LocalTime, after: Sequence) -> Result<(), WaitReason> {
        if !self.lease.holds(now, self.is_connected()) {
            return Err(WaitReason::Stale);
        }
        let overdue = self.apply.buffer.front().is_some_and(|front| self.is_due(front, now));
        if overdue || self.comparison.resync.is_some() {
            self.advance(now);
            return Err(WaitReason::Applying);
        }
        if after > self.position() {
            self.apply.awaited.insert(after);
            if after > self.received() {
                return Err(WaitReason::Behind);
            }
            self.advance(now);
            return Err(WaitReason::Applying);
        }
        Ok(())
    }

    /// Finds the body of an open file. The lease and overdue commits concern the state, which this read does
    /// not need.
    fn go_on(
        &mut self,
        now: LocalTime,
        path: &Path,
        version: &Version,
    ) -> Result<Outcome, WaitReason> {
        let content = version.content;
        if self.bodies.references.is_stored(&content.digest) {
            self.find(now, path);
            return Ok(Outcome::Object(*version));
        }
        self.fold_one(now, path);
        match self.image.objects.get(path).copied() {
            // The origin sends the current version, and nothing is requested until that version is known.
            Some(object) if object.version.content.digest == content.digest => {
                if self.comparison.resync.is_some() {
                    self.advance(now);
                    return Err(WaitReason::Applying);
                }
                self.fetch(now, path, object)
            }
            _ => Ok(Outcome::Absent),
        }
    }

    /// Whether the missing body of an object is here under another name.
    fn find(&mut self, now: LocalTime, path: &Path) -> bool {
        let is_here = self.take_over(now, path);
        if is_here {
            self.advance(now);
        }
        is_here
    }

    /// Requests the missing body of an object. Its readers wait, unless the body is lost: then it may never
    /// come, and other reads would wait too.
    fn fetch(
        &mut self,
        now: LocalTime,
        path: &Path,
        object: Object,
    ) -> Result<Outcome, WaitReason> {
        self.demand(now, path);
        if self.is_lost(path, &object) {
            Ok(Outcome::Lost(object.version))
        } else {
            Err(WaitReason::Invalid)
        }
    }

    /// Requests a body from the origin, unless that was done already.
    pub(super) fn demand(&mut self, now: LocalTime, path: &Path) {
        // Each waiting read is checked here after every event, so the cheap tests come first.
        let disk = self.apply.retry_at.is_some_and(|at| now < at);
        let many =
            self.missing.demands.len() + self.missing.unanswered.len() >= self.config.demands;
        if !self.is_connected() || disk || many {
            return;
        }
        if self.missing.demands.is_open(path, self.position()) {
            return;
        }
        let refused = self.missing.unanswered.get(path).is_some_and(|until| now < *until);
        let version = self.object(path).map(|object| object.version);
        let here =
            version.is_some_and(|one| self.bodies.early.contains(&(one.sequence, path.clone())));
        if here || refused {
            return;
        }
        let size = version.map_or(Bytes(0), |version| version.content.size);
        let held_back = &mut self.missing.held_back[self.config.lanes.lane_for(size).index()];
        if *held_back || !self.missing.demands.has_room(size, self.config.demand_bytes) {
            // Otherwise smaller bodies of its lane would take its place for ever.
            *held_back = true;
            return;
        }
        self.missing.demands.ask(now, path.clone(), size);
        self.output.counters.demands += 1;
        self.connection.outbox.push_back(ToOrigin::Demand(path.clone()));
    }
}
