//! Reads: answered from the committed state, or kept until they can be (SSR §6.2.2, §6.2.3.2).

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use lull_cc::Bytes;

use super::{Object, Replica};
use crate::message::ToOrigin;
use crate::path::Path;
use crate::time::{LocalTime, Reading};
use crate::types::{Metadata, Sequence, Version};

/// A caller's name for a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// The body of an object.
    Object(Path),
    /// The body of the version that an [`Entry`](What::Entry) of this object was: what a file system
    /// opens once it has found it. Overwritten meanwhile, it is still that version for as long as its
    /// body is here.
    Version(Path, Version),
    /// The body of a version that a read was answered with before: more of what is open. It says nothing of
    /// the state, so it needs no lease and has no place in the order. It is held up by no other read, and
    /// holds up none: whoever waits for it may be a process that cannot even be told to give up.
    Opened(Path, Version),
    /// What is under a name. Needs no body.
    Entry(Path),
    /// That there is the root, which has no name: a folder, and of which state it is.
    Root,
    /// What is in a folder, without what is in folders of it; none is the root. One read
    /// of all these names, which needs no bodies.
    Names(Option<Path>),
    /// All objects of a folder, at any depth; none is the root. One read of all their
    /// names, which needs no bodies.
    Folder(Option<Path>),
}

/// What is under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A file or a link, in this version.
    File(Version),
    /// A folder, with what is told of it if it is an object of its own. Otherwise objects have this name as the
    /// beginning of theirs.
    Folder(Option<Metadata>),
}

impl Entry {
    /// What is under the name of an object.
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
    /// What is read.
    pub what: What,
    /// The state has to be this one or a later one: what the session's token says.
    pub after: Sequence,
}

impl Request {
    /// The object whose body it may have to wait for.
    fn object(&self) -> Option<&Path> {
        match &self.what {
            What::Object(path) | What::Version(path, _) | What::Opened(path, _) => Some(path),
            What::Entry(_) | What::Root | What::Names(_) | What::Folder(_) => None,
        }
    }

    /// Whether it is a read of the state, which has a place in the order. More of what is open had its own when
    /// that was opened.
    fn is_ordered(&self) -> bool {
        !matches!(self.what, What::Opened(..))
    }
}

/// What a read gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The body of this version; it is in the store.
    Object(Version),
    /// There is no such object, no such folder; or that version is overwritten, and its body gone.
    Absent,
    /// The object is this version, and the origin has lost its body.
    Lost(Version),
    /// What is under the name.
    Entry(Entry),
    /// The names in the folder, in the order of their bytes.
    Names(Vec<(Vec<u8>, Entry)>),
    /// The objects of the folder, by name.
    Folder(Vec<(Path, Version)>),
}

impl Outcome {
    /// The version, if it is that of an object.
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
    /// The state that it was answered from: what the session's token has to say from now on.
    pub at: Sequence,
    /// What it gets.
    pub outcome: Outcome,
    /// Whatever was acknowledged before then, by this machine's clock for intervals, is in that state: how stale
    /// the answer is at most follows from when it is looked at.
    pub reflects: Option<LocalTime>,
    /// For how long whoever has it may use it without asking again, unless the state becomes another one. Zero for
    /// what is no read of the present state.
    pub holds_for: Duration,
}

/// Why a read waits. Whoever serves it may as well give an error, or name another replica
/// (§6.2.2), after [`Replica::cancel_read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The origin has not been heard for Δ.
    Stale,
    /// The state is behind what it has to be, which is on its way to the disk.
    Applying,
    /// The session has seen a later state elsewhere.
    Behind,
    /// The body has to be fetched.
    Invalid,
    /// An earlier read waits, and reads are answered in order.
    Order,
}

/// Whether a read may pass one that waits (§6.2.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// No: whoever reads two objects one after the other sees them in this order. One that is
    /// [`Behind`](Why::Behind) is passed all the same.
    #[default]
    Conservative,
    /// Yes: for readers that do not depend on each other.
    Aggressive,
}

/// A read that waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    id: ReadId,
    request: Request,
    pub(super) why: Why,
    /// When it came.
    pub(super) since: LocalTime,
}

/// Reads that wait, answers, and how often objects were read since the origin heard of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reads {
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) answers: VecDeque<Answer>,
    pub(super) counts: BTreeMap<Path, u32>,
}

impl<P: Clone> Replica<P> {
    /// Whether a read that waits for this keeps later ones waiting. One that waits for what is not even
    /// known here does not: its session has a token, which keeps its reads in order, and the token may
    /// speak of what never comes.
    fn holds_up(&self, request: &Request, why: Why) -> bool {
        self.config.order == Order::Conservative && request.is_ordered() && why != Why::Behind
    }

    /// Somebody reads. The answer comes by [`poll_answer`](Replica::poll_answer); until then this
    /// tells why it waits.
    pub fn handle_read(&mut self, now: Reading, id: ReadId, request: Request) -> Option<Why> {
        let ordered = request.is_ordered();
        let passes = ordered && self.reads.waiting.iter().any(|one| one.request.is_ordered());
        let outcome = if ordered
            && self.reads.waiting.iter().any(|one| self.holds_up(&one.request, one.why))
        {
            Err(Why::Order)
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
                    Why::Stale if unheard => &mut counters.blocked_unheard,
                    Why::Stale => &mut counters.blocked_stale,
                    Why::Applying => &mut counters.blocked_applying,
                    Why::Behind => &mut counters.blocked_behind,
                    Why::Invalid => &mut counters.blocked_invalid,
                    Why::Order => &mut counters.blocked_order,
                } += 1;
                if let Some(path) = request.object() {
                    self.missing.demands.join(path);
                }
                self.reads.waiting.push_back(Waiting { id, request, why, since: now.local });
                self.cannot_mask(now.local, why);
                Some(why)
            }
        }
    }

    /// Nobody waits for the read any more.
    pub fn cancel_read(&mut self, now: Reading, id: ReadId) {
        if let Some(at) = self.reads.waiting.iter().position(|waiting| waiting.id == id)
            && let Some(read) = self.end_wait(now.local, at)
        {
            self.give_up_read(&read);
        }
        self.wake(now.local);
        self.withdraw(now.local);
    }

    /// Takes out a read that has waited.
    fn end_wait(&mut self, now: LocalTime, at: usize) -> Option<Waiting> {
        let waiting = self.reads.waiting.remove(at)?;
        if let Some(path) = waiting.request.object() {
            self.missing.demands.leave(now, path);
        }
        Some(waiting)
    }

    /// Tells the origin what nobody has waited for since a while: what of it has not left yet need not come.
    pub(super) fn withdraw(&mut self, now: LocalTime) {
        while let Some(path) = self.missing.demands.withdraw(now.minus(self.config.linger)) {
            self.output.counters.withdrawn += 1;
            self.connection.outbox.push_back(ToOrigin::Withdraw(path));
        }
    }

    /// Why a read waits, if it does.
    pub fn why(&self, id: ReadId) -> Option<Why> {
        self.reads.waiting.iter().find(|waiting| waiting.id == id).map(|waiting| waiting.why)
    }

    /// Answers the reads that can be answered now.
    pub(super) fn wake(&mut self, now: LocalTime) {
        let (mut at, mut held_up) = (0, false);
        self.missing.held_back = Default::default();
        self.apply.awaited.clear();
        while let Some(waiting) = self.reads.waiting.get(at) {
            // Only what has no place in the order is looked at behind one that holds up others.
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
                    if let Some(waiting) = self.reads.waiting.get_mut(at) {
                        waiting.why = why;
                    }
                    self.cannot_mask(now, why);
                    held_up |= self.holds_up(&request, why);
                    at += 1;
                }
            }
        }
    }

    fn answer(&mut self, now: LocalTime, id: ReadId, request: Request, outcome: Outcome) {
        let ordered = request.is_ordered();
        self.output.counters.masked += u64::from(ordered && !self.lease.holds(now, true));
        if let (Some(path), Outcome::Object(_)) = (request.object(), &outcome) {
            // Whoever goes on with what is open was counted when it was read.
            if ordered {
                *self.reads.counts.entry(path.clone()).or_default() += 1;
            }
            self.touch(path);
        }
        let (at, reflects) = (self.position(), self.reflects());
        let holds_for = if ordered { self.holds_for(now) } else { Duration::ZERO };
        self.reads.answers.push_back(Answer { id, at, outcome, reflects, holds_for });
    }

    /// For how long reads of the present state are answered whatever comes, unless it becomes another one: the
    /// lease, and the deadline of what waits to be applied. What is told of later has a later deadline. By the Δ of
    /// a connected replica in any case, since it may be connected again at any time. Invalidations that are applied
    /// as they come leave no time.
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

    /// Whether anything is known that reads can be answered by.
    pub fn has_lease(&self) -> bool {
        self.lease.covered().is_some()
    }

    /// Somebody has asked whether what he has of an object is still current, and it is: that is a read of
    /// it, though of no body.
    pub fn count_read(&mut self, path: &Path) {
        if self.object(path).is_some() {
            *self.reads.counts.entry(path.clone()).or_default() += 1;
        }
    }

    /// Answers a read, or does what will make it possible.
    fn attempt(&mut self, now: LocalTime, request: &Request) -> Result<Outcome, Why> {
        if request.is_ordered() {
            self.expect_present(now, request.after)?;
        }
        match &request.what {
            What::Folder(folder) => {
                while !self.fold_some(now, usize::MAX) {}
                let within = self.image.objects.iter().filter(|(path, _)| {
                    path.is_within(folder.as_ref().map_or(b"", Path::as_bytes))
                });
                let within = within.map(|(path, object)| (path.clone(), object.version));
                Ok(Outcome::Folder(within.collect()))
            }
            What::Entry(path) => Ok(self.present().entry(path)),
            What::Root => Ok(Outcome::Entry(Entry::Folder(None))),
            What::Names(folder) => Ok(self.present().names(folder.as_ref())),
            What::Version(path, version) => {
                self.fold_one(now, path);
                match self.image.objects.get(path).copied() {
                    // If it was overwritten: it was current when its name was looked up, which
                    // whoever opens it has just done. So the read may be one of then.
                    _ if self.bodies.shelf.is_stored(&version.content.digest) => {
                        self.find(now, path);
                        Ok(Outcome::Object(*version))
                    }
                    // It has to be fetched; or it was overwritten, and whoever looks the name up
                    // again finds a newer one, for which is worth waiting: else that might be
                    // overwritten then, too.
                    Some(object) if !object.valid => match self.fetch(now, path, object)? {
                        Outcome::Lost(lost) if lost != *version => Ok(Outcome::Absent),
                        lost => Ok(lost),
                    },
                    _ => Ok(Outcome::Absent),
                }
            }
            What::Opened(path, version) => self.go_on(now, path, version),
            What::Object(path) => {
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

    /// What a read of the state needs before anything is looked at: a state that may be shown, and that is not
    /// before what its session has seen.
    fn expect_present(&mut self, now: LocalTime, after: Sequence) -> Result<(), Why> {
        if !self.lease.holds(now, self.is_connected()) {
            return Err(Why::Stale);
        }
        let overdue = self.apply.buffer.front().is_some_and(|front| self.is_due(front, now));
        if overdue || self.comparison.resync.is_some() {
            self.advance(now);
            return Err(Why::Applying);
        }
        if after > self.position() {
            self.apply.awaited.insert(after);
            if after > self.received() {
                return Err(Why::Behind);
            }
            self.advance(now);
            return Err(Why::Applying);
        }
        Ok(())
    }

    /// Finds the body of what is open: the lease and what is overdue are of the state, and it is not asked for.
    fn go_on(&mut self, now: LocalTime, path: &Path, version: &Version) -> Result<Outcome, Why> {
        let content = version.content;
        if self.bodies.shelf.is_stored(&content.digest) {
            self.find(now, path);
            return Ok(Outcome::Object(*version));
        }
        self.fold_one(now, path);
        match self.image.objects.get(path).copied() {
            // The origin sends what is current, and nothing is asked of it until it is known what that is.
            Some(object) if object.version.content.digest == content.digest => {
                if self.comparison.resync.is_some() {
                    self.advance(now);
                    return Err(Why::Applying);
                }
                self.fetch(now, path, object)
            }
            _ => Ok(Outcome::Absent),
        }
    }

    /// Whether the body that an object lacks is here, under another name.
    fn find(&mut self, now: LocalTime, path: &Path) -> bool {
        let is_here = self.take_over(now, path);
        if is_here {
            self.advance(now);
        }
        is_here
    }

    /// Asks for the body that an object lacks. Who reads it waits; unless it is lost, because then it may
    /// never come, and others would wait as well.
    fn fetch(&mut self, now: LocalTime, path: &Path, object: Object) -> Result<Outcome, Why> {
        self.demand(now, path);
        if self.is_lost(path, &object) {
            Ok(Outcome::Lost(object.version))
        } else {
            Err(Why::Invalid)
        }
    }

    /// Asks the origin for a body, unless it was asked already.
    fn demand(&mut self, now: LocalTime, path: &Path) {
        // Each read that waits comes here whenever anything happens: what is cheap comes first.
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
        let held_back = &mut self.missing.held_back[self.config.lanes.of(size).index()];
        if *held_back || !self.missing.demands.has_room(size, self.config.demand_bytes) {
            // Else smaller ones of its lane would take its room for ever.
            *held_back = true;
            return;
        }
        self.missing.demands.ask(now, path.clone(), size);
        self.output.counters.demands += 1;
        self.connection.outbox.push_back(ToOrigin::Demand(path.clone()));
    }
}
