//! Requests of the kernel, and their answers.

use std::collections::BTreeMap;
use std::fs::File as Device;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use lull_replication::path::PathError;
use lull_replication::replica::{Answer as Answered, Entry, Holding, Outcome, ReadTarget, Request};
use lull_replication::types::{self, Metadata, Mode, Sequence};
use nix::errno::Errno;
use nix::unistd::{getegid, geteuid};
use tokio::runtime::Handle as Runtime;
use tokio::select;
use tokio::sync::{Semaphore, oneshot};

use super::abi::{self, Answer, Attributes, EXECUTE, Kind, Operation, Range};
use super::device::{answer, forget_names};
use super::handles::{Body, Handles, Open, OpenFile};
use super::lock;
use super::nodes::{File, Node, NodePath, Nodes, number_of};
use crate::daemon::{Found, ReadError, ReplicaHandle, Retries};

/// Page requests that are answered at the same time. Each takes as much memory as it asks for, at most 1 MiB.
/// Requests that wait for a body take none so far.
const AT_A_TIME: usize = 64;

/// The file system: inodes known to the kernel, and waiting requests.
#[derive(Debug)]
pub(super) struct Files {
    device: Device,
    pub(super) replica: ReplicaHandle,
    patience: Option<Duration>,
    runtime: Runtime,
    owner: (u32, u32),
    nodes: Mutex<Nodes<Body>>,
    handles: Mutex<Handles>,
    /// Waiting requests by number, with the sender that interrupts each; none when no request can be
    /// answered.
    waiting: Mutex<Option<BTreeMap<u64, oneshot::Sender<()>>>>,
    /// Slots for requests for pages.
    pages: Semaphore,
    /// Whether the kernel can drop all names at once. Otherwise it may cache none.
    pub(super) remembers: bool,
    /// Names that the kernel has looked up.
    pub(super) lookups: AtomicU64,
    /// A state, and when it was first seen here.
    changed: Mutex<(Sequence, i64)>,
}

/// The mode of a folder. A folder that is not an object has the mode of a read-only folder.
fn mode_of(told: Option<Metadata>) -> Mode {
    told.map_or(Mode::IMPLIED, |told| told.mode)
}

fn errno_of(error: ReadError) -> Errno {
    match error {
        // `wait` has no error: the reader waits as long as necessary.
        ReadError::Waits(_) | ReadError::Evicted => Errno::ETIMEDOUT,
        ReadError::Scarce => Errno::ENFILE,
        ReadError::Lost | ReadError::Stopped => Errno::EIO,
    }
}

impl Files {
    pub(super) fn new(device: Device, replica: ReplicaHandle, patience: Option<Duration>) -> Self {
        let remembers = forget_names(&device).is_ok();
        Files {
            remembers,
            lookups: AtomicU64::new(0),
            device,
            replica,
            patience,
            runtime: Runtime::current(),
            owner: (geteuid().as_raw(), getegid().as_raw()),
            nodes: Mutex::new(Nodes::new()),
            handles: Mutex::default(),
            waiting: Mutex::new(Some(BTreeMap::new())),
            pages: Semaphore::new(AT_A_TIME),
            changed: Mutex::default(),
        }
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Answers a request, or makes sure that it is answered.
    pub(super) fn serve(self: &Arc<Self>, bytes: &[u8]) {
        let Some(abi::Request { unique, node, caller, operation }) = abi::parse(bytes) else {
            // The kernel sends no such request; if it ever does, no process is left waiting.
            return abi::unique_of(bytes).map_or((), |unique| self.reply_error(unique, Errno::EIO));
        };
        match operation {
            Operation::Lookup(name) => self.lookup(unique, node, name, caller),
            Operation::Forget(lookups) => lock(&self.nodes).forget(node, lookups),
            Operation::ForgetMany(all) => {
                let mut nodes = lock(&self.nodes);
                all.into_iter().for_each(|(node, lookups)| nodes.forget(node, lookups));
            }
            Operation::Attributes => self.stat(unique, node),
            Operation::Access(ways) => self.access(unique, node, ways, caller),
            Operation::Target => self.target(unique, node),
            Operation::Open(flags) => self.open(unique, node, flags, caller),
            Operation::OpenFolder => self.open_folder(unique, node, caller),
            Operation::Read(range) => self.read(unique, range),
            Operation::ReadFolder(range) => self.read_folder(unique, range),
            Operation::Close(handle) | Operation::CloseFolder(handle) => {
                lock(&self.handles).open.remove(&handle);
                self.reply(unique, &Answer::default());
            }
            Operation::Size => {
                let status = self.replica.status();
                self.reply(unique, &Answer::size(status.bytes, status.objects));
            }
            Operation::Interrupt(of) => match self.waited(of) {
                // The interrupted request is answered; this one gets no answer.
                Some(waiting) => drop(waiting.send(())),
                // It is just being answered, or was just taken by another thread: if it can still be
                // interrupted, the kernel asks again.
                None => self.reply_error(unique, Errno::EAGAIN),
            },
            Operation::End => self.reply(unique, &Answer::default()),
            Operation::Write => self.reply_error(unique, Errno::EROFS),
            Operation::Begin { .. } | Operation::Other => self.reply_error(unique, Errno::ENOSYS),
        }
    }

    /// Cancels waiting requests, since nothing is mounted any more: reads of others would wait behind them.
    pub(super) fn end(&self) {
        // Also if a thread of the mount has panicked with it.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        drop(waiting.take());
    }

    /// The sender that interrupts a request, unless it no longer waits.
    fn waited(&self, unique: u64) -> Option<oneshot::Sender<()>> {
        lock(&self.waiting).as_mut().and_then(|waiting| waiting.remove(&unique))
    }

    /// A requester that has gone gets no answer.
    pub(super) fn reply(&self, unique: u64, said: &Answer) {
        let _ = answer(&self.device, unique, Ok(said.bytes()));
    }

    pub(super) fn reply_error(&self, unique: u64, error: Errno) {
        let _ = answer(&self.device, unique, Err(error));
    }

    /// Does a slow part, unless it is interrupted, and then the rest.
    fn wait<T: Send + 'static>(
        self: &Arc<Self>,
        unique: u64,
        work: impl Future<Output = Result<T, Errno>> + Send + 'static,
        then: impl FnOnce(&Arc<Self>, T) + Send + 'static,
    ) {
        let (interrupt, interrupted) = oneshot::channel();
        let begun = lock(&self.waiting).as_mut().map(|waiting| waiting.insert(unique, interrupt));
        if begun.is_none() {
            // It was taken just before the end.
            return self.reply_error(unique, Errno::ENOTCONN);
        }
        let this = Arc::clone(self);
        self.runtime.spawn(async move {
            let done = select! {
                biased;
                done = work => done,
                _ = interrupted => Err(Errno::EINTR),
            };
            this.waited(unique);
            match done {
                Ok(value) => then(&this, value),
                Err(error) => this.reply_error(unique, error),
            }
        });
    }

    /// Reads from the replica, and waits if necessary.
    pub(super) fn ask(
        self: &Arc<Self>,
        unique: u64,
        target: ReadTarget,
        then: impl FnOnce(&Arc<Self>, Answered) + Send + 'static,
    ) {
        // All readers here are one session, answered by one replica that has always seen their state.
        let request = Request { target, after: Sequence::ZERO };
        let mut pending = match self.replica.begin(request) {
            Ok(pending) => pending,
            Err(error) => return self.reply_error(unique, errno_of(error)),
        };
        match pending.at_once() {
            Some(Ok(answer)) => then(self, answer),
            Some(Err(error)) => self.reply_error(unique, errno_of(error)),
            None => {
                let patience = self.patience;
                let work = async move { pending.within(patience).await.map_err(errno_of) };
                self.wait(unique, work, then);
            }
        }
    }

    /// The folder of an inode, if the caller may use it in these ways, by the bits of access(2).
    pub(super) fn folder(
        &self,
        node: u64,
        ways: u32,
        caller: (u32, u32),
    ) -> Result<(NodePath, Mode), Errno> {
        match lock(&self.nodes).get(node) {
            Some(Node::Folder(_, mode)) if !Kind::Folder(mode).allows(ways, caller, self.owner) => {
                Err(Errno::EACCES)
            }
            Some(Node::Folder(node_path, mode)) => Ok((node_path, mode)),
            Some(Node::File(_)) => Err(Errno::ENOTDIR),
            None => Err(Errno::ESTALE),
        }
    }

    fn lookup(self: &Arc<Self>, unique: u64, folder: u64, name: &[u8], caller: (u32, u32)) {
        let child = |node_path: NodePath| {
            node_path.child(name).map_err(|error| match error {
                PathError::Long | PathError::LongName => Errno::ENAMETOOLONG,
                // No object can have a forbidden name.
                _ => Errno::ENOENT,
            })
        };
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder(folder, EXECUTE, caller);
        let child = folder.and_then(|(node_path, mode)| Ok((child(node_path)?, mode)));
        let (node_path, mode) = match child {
            Ok(child) => child,
            Err(error) => return self.reply_error(unique, error),
        };
        match &node_path {
            NodePath::Now(Some(path)) => {
                let target = ReadTarget::Entry(path.clone());
                // A lookup of a cached name is not checked here.
                let remembers = self.remembers && mode.bits() & 0o111 == 0o111;
                self.ask(unique, target, move |this, answer| {
                    let holds_for = if remembers { answer.holds_for } else { Duration::ZERO };
                    this.found(unique, node_path, &answer.outcome, holds_for);
                });
            }
            NodePath::Then(at, Some(path)) => match self.replica.entry_at(*at, path) {
                Some(outcome) => self.found(unique, node_path, &outcome, Duration::ZERO),
                // The folder belonged to a state that is no longer available.
                None => self.reply_error(unique, Errno::ESTALE),
            },
            NodePath::Then(_, None) | NodePath::Now(None) | NodePath::States => {
                self.reply_node(
                    unique,
                    Node::Folder(node_path, Mode::IMPLIED),
                    None,
                    Duration::ZERO,
                );
            }
        }
    }

    /// Answers with the entry under the looked-up name.
    fn found(&self, unique: u64, node_path: NodePath, outcome: &Outcome, remembered: Duration) {
        let (node, told) = match outcome {
            Outcome::Entry(Entry::File(version)) => (Node::file(node_path, *version), None),
            Outcome::Entry(Entry::Folder(told)) => {
                (Some(Node::Folder(node_path, mode_of(*told))), *told)
            }
            _ => (None, None),
        };
        match node {
            Some(node) => self.reply_node(unique, node, told, remembered),
            None => self.reply_error(unique, Errno::ENOENT),
        }
    }

    /// Reports an inode to the kernel, unless its state is no longer available. `told` is the metadata of a
    /// folder.
    fn reply_node(
        &self,
        unique: u64,
        node: Node<Body>,
        told: Option<Metadata>,
        remembered: Duration,
    ) {
        let Some(attributes) = self.attributes(&node, told) else {
            return self.reply_error(unique, Errno::ENOENT);
        };
        let node = lock(&self.nodes).remember(node);
        let entry = Answer::entry(node, &attributes, remembered);
        if answer(&self.device, unique, Ok(entry.bytes())).is_err() {
            // The kernel did not get the answer, so it will not forget the inode.
            lock(&self.nodes).forget(node, 1);
        }
    }

    /// The existence and the time of a folder of the present state depend on that state, so this is a read.
    /// The kernel does not look up the name of the root, nor of a process's working directory. A version
    /// never changes.
    fn stat(self: &Arc<Self>, unique: u64, node: u64) {
        let Some(node) = lock(&self.nodes).get(node) else {
            return self.reply_error(unique, Errno::ESTALE);
        };
        let path = match &node {
            Node::File(_) | Node::Folder(NodePath::States | NodePath::Then(_, None), _) => {
                return self.reply_attributes(unique, &node, None);
            }
            Node::Folder(NodePath::Then(at, Some(path)), _) => {
                let outcome = self.replica.entry_at(*at, path);
                let Some(Outcome::Entry(Entry::Folder(told))) = outcome else {
                    return self.reply_error(unique, Errno::ESTALE);
                };
                return self.reply_attributes(unique, &node, told);
            }
            Node::Folder(NodePath::Now(path), _) => path,
        };
        let target = path.clone().map_or(ReadTarget::Root, ReadTarget::Entry);
        self.ask(unique, target, move |this, answer| match answer.outcome {
            Outcome::Entry(Entry::Folder(told)) => this.reply_attributes(unique, &node, told),
            // It existed when its name was looked up.
            _ => this.reply_error(unique, Errno::ESTALE),
        });
    }

    fn reply_attributes(&self, unique: u64, node: &Node<Body>, told: Option<Metadata>) {
        match self.attributes(node, told) {
            Some(attributes) => self.reply(unique, &Answer::of_attributes(&attributes)),
            None => self.reply_error(unique, Errno::ESTALE),
        }
    }

    /// The answer does not depend on a state, so it waits for nothing.
    fn access(&self, unique: u64, node: u64, ways: u32, caller: (u32, u32)) {
        let kind = match lock(&self.nodes).get(node) {
            Some(Node::Folder(_, mode)) => Kind::Folder(mode),
            Some(Node::File(file)) => Kind::of(&file.version.content.metadata),
            None => return self.reply_error(unique, Errno::ESTALE),
        };
        if kind.allows(ways, caller, self.owner) {
            self.reply(unique, &Answer::default());
        } else {
            self.reply_error(unique, Errno::EACCES);
        }
    }

    /// The attributes for `stat`; none for a folder of a state that is no longer available.
    fn attributes(&self, node: &Node<Body>, told: Option<Metadata>) -> Option<Attributes> {
        let owner = self.owner;
        Some(match node {
            Node::File(file) => {
                let content = file.version.content;
                Attributes {
                    // For a version it is the same in all states.
                    number: number_of(file.path.as_bytes(), Some(file.version.sequence)),
                    kind: Kind::of(&content.metadata),
                    size: content.size.0,
                    modified: content.metadata.modified.as_nanos(),
                    owner,
                }
            }
            Node::Folder(node_path, _) => {
                let modified = match (told, node_path) {
                    (Some(told), _) => told.modified.as_nanos(),
                    (None, NodePath::Now(_) | NodePath::States) => self.changed(),
                    (None, NodePath::Then(at, _)) => self.replica.made(*at)?.as_nanos(),
                };
                let number = number_of(&node_path.name(), None);
                Attributes { number, kind: Kind::Folder(mode_of(told)), size: 0, modified, owner }
            }
        })
    }

    /// When this mount first saw the present state. It serves as the modification time of folders, for
    /// programs that compare times.
    fn changed(&self) -> i64 {
        let state = self.replica.position();
        let mut changed = lock(&self.changed);
        // Another thread may have seen a later one meanwhile.
        if state > changed.0 || changed.1 == 0 {
            *changed = (state, self.replica.now().wall.as_nanos());
        }
        changed.1
    }

    /// The read (SSR §6.2.2): an opened file has its body here and keeps it.
    fn open(self: &Arc<Self>, unique: u64, node: u64, flags: u32, caller: (u32, u32)) {
        let file = match lock(&self.nodes).get(node) {
            Some(Node::File(file)) => file,
            Some(Node::Folder(..)) => return self.reply_error(unique, Errno::EISDIR),
            None => return self.reply_error(unique, Errno::ESTALE),
        };
        if !Kind::of(&file.version.content.metadata).opens(flags, caller, self.owner) {
            return self.reply_error(unique, Errno::EACCES);
        }
        self.version(unique, file, Self::opened_file);
    }

    /// The target of a link, which is its body.
    fn target(self: &Arc<Self>, unique: u64, node: u64) {
        match lock(&self.nodes).get(node) {
            Some(Node::File(file)) if file.version.content.metadata.kind == types::Kind::Link => {
                self.version(unique, file, Self::reply_target);
            }
            Some(_) => self.reply_error(unique, Errno::EINVAL),
            None => self.reply_error(unique, Errno::ESTALE),
        }
    }

    /// Fetches a version's body, and then calls `then`.
    fn version(
        self: &Arc<Self>,
        unique: u64,
        file: Arc<File<Body>>,
        then: fn(&Arc<Self>, u64, Arc<File<Body>>),
    ) {
        if file.then.is_some() {
            // A past state never changes, so its answer needs neither lease nor order.
            match self.replica.holding(&file.path, &file.version) {
                Holding::Here => return then(self, unique, file),
                Holding::Gone => return self.reply_error(unique, Errno::ESTALE),
                Holding::Comes => {}
            }
        }
        let target = ReadTarget::Version(file.path.clone(), file.version);
        self.ask(unique, target, move |this, answer| match answer.outcome {
            Outcome::Object(_) => then(this, unique, file),
            Outcome::Lost(_) => this.reply_error(unique, Errno::EIO),
            // The kernel looks the name up again, once, and finds the newer version.
            _ => this.reply_error(unique, Errno::ESTALE),
        });
    }

    fn reply_target(self: &Arc<Self>, unique: u64, file: Arc<File<Body>>) {
        let size = file.version.content.size.0;
        let open = OpenFile { file, body: Mutex::new(None) };
        let this = Arc::clone(self);
        let work = async move { this.bytes(&open, 0, size).await };
        self.wait(unique, work, move |this, bytes| {
            let _ = answer(&this.device, unique, Ok(&bytes));
        });
    }

    fn opened_file(self: &Arc<Self>, unique: u64, file: Arc<File<Body>>) {
        let open = OpenFile { file, body: Mutex::new(None) };
        self.opened(unique, Open::File(Arc::new(open)), Answer::opened);
    }

    pub(super) fn opened(&self, unique: u64, open: Open, said: fn(u64) -> Answer) {
        let handle = lock(&self.handles).add(open);
        if answer(&self.device, unique, Ok(said(handle).bytes())).is_err() {
            // The kernel did not get the handle, so it will not close it.
            lock(&self.handles).open.remove(&handle);
        }
    }

    pub(super) fn handle(&self, number: u64) -> Option<Open> {
        lock(&self.handles).open.get(&number).cloned()
    }

    fn read(self: &Arc<Self>, unique: u64, range: Range) {
        let Some(Open::File(open)) = self.handle(range.handle) else {
            return self.reply_error(unique, Errno::EBADF);
        };
        let size = open.file.version.content.size.0;
        let begin = range.offset.min(size);
        let end = range.offset.saturating_add(u64::from(range.size)).min(size);
        if begin == end {
            return self.reply(unique, &Answer::default());
        }
        let held = lock(&open.body).clone();
        if let Some(bytes) = held.as_ref().and_then(|found| found.whole()) {
            let part = bytes.get(begin as usize..end as usize).ok_or(Errno::EIO);
            let _ = answer(&self.device, unique, part);
            return;
        }
        let this = Arc::clone(self);
        let work = async move { this.bytes(&open, begin, end).await };
        self.wait(unique, work, move |this, bytes| {
            let _ = answer(&this.device, unique, Ok(&bytes));
        });
    }

    /// Bytes of a file that is open.
    async fn bytes(&self, open: &OpenFile, begin: u64, end: u64) -> Result<Vec<u8>, Errno> {
        let mut tries = Retries::new(self.patience);
        while tries.next().await {
            let found = self.body(open, tries.left()).await?;
            let read = {
                // Never closed.
                let _one = self.pages.acquire().await;
                found.bytes(begin, end).await.map_err(errno_of)?
            };
            if let Some(bytes) = read {
                return Ok(bytes);
            }
            // It was overwritten long ago, or evicted. If it is still current, it is fetched again.
            lock(&open.body).take();
            let mut shared = open.file.body.lock().await;
            if shared.upgrade().is_some_and(|other| Arc::ptr_eq(&other, &found)) {
                *shared = Weak::new();
            }
        }
        Err(errno_of(ReadError::Evicted))
    }

    async fn body(&self, open: &OpenFile, patience: Option<Duration>) -> Result<Arc<Found>, Errno> {
        if let Some(held) = &*lock(&open.body) {
            return Ok(Arc::clone(held));
        }
        let OpenFile { file, body } = open;
        // Held during the lookup, so that many readers of one large file look for it once.
        let mut shared = file.body.lock().await;
        let found = match shared.upgrade() {
            Some(found) => found,
            None => {
                let found = self.replica.version(&file.path, file.version, patience).await;
                // It was overwritten, and its time of grace is over.
                let mut found = found.map_err(errno_of)?.ok_or(Errno::ESTALE)?;
                // Files may be open for ever: overwritten bodies in them are dropped after that time.
                found.release_hold();
                Arc::new(found)
            }
        };
        *shared = Arc::downgrade(&found);
        *lock(body) = Some(Arc::clone(&found));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lull_replication::replica::WaitReason;

    #[test]
    fn evicted_body_gives_a_timeout_error() {
        for (error, expected) in [
            (ReadError::Waits(WaitReason::Invalid), Errno::ETIMEDOUT),
            (ReadError::Evicted, Errno::ETIMEDOUT),
            (ReadError::Lost, Errno::EIO),
        ] {
            assert_eq!(errno_of(error), expected, "{error:?}");
        }
    }
}
