//! Requests of the kernel, and what they are answered with.

use std::collections::BTreeMap;
use std::fs::File as Device;
use std::io::{self, IoSlice, Write};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{getegid, geteuid};
use tokio::runtime::Handle as Runtime;
use tokio::select;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, oneshot};

use super::abi::{self, Answer, Attributes, Kind, Operation, Range};
use super::lock;
use super::nodes::{File, Node, Nodes, Place, number_of};
use crate::daemon::{Found, ReadError, ReplicaHandle, Tries};
use crate::path::{Path, PathError, prefix_of};
use crate::replica::{Entry, Holding, Outcome, Request, What};
use crate::types::Sequence;
use crate::wire::PIECE;

/// Requests for pages that are answered at a time, of which each takes as much memory as it asks for, 1 MiB at most.
/// Those whose body is not here take nothing yet.
const AT_A_TIME: usize = 64;

/// The body of a version, for all who have it open and have read of it.
type Body = AsyncMutex<Weak<Found>>;

/// The file system: what the kernel knows of it, and what waits.
#[derive(Debug)]
pub(super) struct Files {
    device: Device,
    replica: ReplicaHandle,
    patience: Option<Duration>,
    runtime: Runtime,
    owner: (u32, u32),
    nodes: Mutex<Nodes<Body>>,
    handles: Mutex<Handles>,
    /// Requests that wait, by their numbers, and what interrupts them; none when nobody is left to be answered.
    waiting: Mutex<Option<BTreeMap<u64, oneshot::Sender<()>>>>,
    /// Places of requests for pages that are answered.
    pages: Semaphore,
    /// A state, and when it was first seen here.
    changed: Mutex<(Sequence, i64)>,
}

/// What is open.
#[derive(Debug, Default)]
struct Handles {
    open: BTreeMap<u64, Open>,
    last: u64,
}

#[derive(Clone, Debug)]
enum Open {
    File(Arc<OpenFile>),
    Folder(Arc<[Listed]>),
}

/// A file that is open. Its body is looked for when it is first read of: the kernel may have its pages.
#[derive(Debug)]
struct OpenFile {
    file: Arc<File<Body>>,
    body: Mutex<Option<Arc<Found>>>,
}

/// A name of a folder that is open.
#[derive(Debug)]
struct Listed {
    name: Vec<u8>,
    number: u64,
    is_folder: bool,
}

impl Handles {
    fn add(&mut self, open: Open) -> u64 {
        self.last += 1;
        self.open.insert(self.last, open);
        self.last
    }
}

/// Writes an answer.
///
/// # Errors
/// If nobody waits for it any more, or nothing is mounted.
pub(super) fn answer(
    mut device: &Device,
    unique: u64,
    answer: Result<&[u8], Errno>,
) -> io::Result<()> {
    let (error, body) = answer.map_or_else(|error| (error as i32, &[][..]), |body| (0, body));
    let head = abi::head(unique, error, body.len());
    device.write_vectored(&[IoSlice::new(&head), IoSlice::new(body)]).map(drop)
}

fn errno_of(error: ReadError) -> Errno {
    match error {
        // By `wait` it is none: whoever reads waits for as long as it takes.
        ReadError::Waits(_) | ReadError::Evicted => Errno::ETIMEDOUT,
        ReadError::Scarce => Errno::ENFILE,
        ReadError::Lost | ReadError::Stopped => Errno::EIO,
    }
}

impl Files {
    pub(super) fn new(device: Device, replica: ReplicaHandle, patience: Option<Duration>) -> Self {
        Files {
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

    /// Answers a request, or sees to it that it is answered.
    pub(super) fn serve(self: &Arc<Self>, bytes: &[u8]) {
        let Some(abi::Request { unique, node, caller, operation }) = abi::parse(bytes) else {
            // The kernel says no such thing; if it ever does, nobody is left waiting.
            return abi::unique_of(bytes).map_or((), |unique| self.refuse(unique, Errno::EIO));
        };
        match operation {
            Operation::Lookup(name) => self.lookup(unique, node, name),
            Operation::Forget(lookups) => lock(&self.nodes).forget(node, lookups),
            Operation::ForgetMany(all) => {
                let mut nodes = lock(&self.nodes);
                all.into_iter().for_each(|(node, lookups)| nodes.forget(node, lookups));
            }
            Operation::Attributes => self.stat(unique, node),
            Operation::Access(ways) => self.access(unique, node, ways, caller),
            Operation::Open(flags) => self.open(unique, node, flags, caller),
            Operation::OpenFolder => self.open_folder(unique, node),
            Operation::Read(range) => self.read(unique, range),
            Operation::ReadFolder(range) => self.read_folder(unique, range),
            Operation::Close(handle) | Operation::CloseFolder(handle) => {
                lock(&self.handles).open.remove(&handle);
                self.say(unique, &Answer::default());
            }
            Operation::Size => {
                let status = self.replica.status();
                self.say(unique, &Answer::size(status.bytes, status.objects));
            }
            Operation::Interrupt(of) => match self.waited(of) {
                // The request is answered; this is none that waits for an answer.
                Some(waiting) => drop(waiting.send(())),
                // It is just being answered, or has just been taken by another thread: if there is
                // anything left to be interrupted, the kernel says so again.
                None => self.refuse(unique, Errno::EAGAIN),
            },
            Operation::End => self.say(unique, &Answer::default()),
            Operation::Write => self.refuse(unique, Errno::EROFS),
            Operation::Begin { .. } | Operation::Other => self.refuse(unique, Errno::ENOSYS),
        }
    }

    /// Nobody is answered any more, since nothing is mounted: what waits is given up, or reads of others would
    /// wait behind it.
    pub(super) fn end(&self) {
        // Also where a thread of the mount has panicked with it.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        drop(waiting.take());
    }

    /// What interrupts a request, unless it waits no more.
    fn waited(&self, unique: u64) -> Option<oneshot::Sender<()>> {
        lock(&self.waiting).as_mut().and_then(|waiting| waiting.remove(&unique))
    }

    /// Who has gone meanwhile is told nothing.
    fn say(&self, unique: u64, said: &Answer) {
        let _ = answer(&self.device, unique, Ok(said.bytes()));
    }

    fn refuse(&self, unique: u64, error: Errno) {
        let _ = answer(&self.device, unique, Err(error));
    }

    /// Does what takes long, unless it is interrupted, and then the rest.
    fn wait<T: Send + 'static>(
        self: &Arc<Self>,
        unique: u64,
        work: impl Future<Output = Result<T, Errno>> + Send + 'static,
        then: impl FnOnce(&Self, T) + Send + 'static,
    ) {
        let (interrupt, interrupted) = oneshot::channel();
        let begun = lock(&self.waiting).as_mut().map(|waiting| waiting.insert(unique, interrupt));
        if begun.is_none() {
            // It was taken just before the end.
            return self.refuse(unique, Errno::ENOTCONN);
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
                Err(error) => this.refuse(unique, error),
            }
        });
    }

    /// Reads of the replica, and waits if it has to.
    fn ask(
        self: &Arc<Self>,
        unique: u64,
        what: What,
        then: impl FnOnce(&Self, Outcome) + Send + 'static,
    ) {
        // All who read here are one session, and one replica answers them: it has always seen what
        // they have.
        let request = Request { what, after: Sequence::ZERO };
        let mut pending = match self.replica.begin(request) {
            Ok(pending) => pending,
            Err(error) => return self.refuse(unique, errno_of(error)),
        };
        match pending.at_once() {
            Some(Ok(answer)) => then(self, answer.outcome),
            Some(Err(error)) => self.refuse(unique, errno_of(error)),
            None => {
                let patience = self.patience;
                let work = async move { pending.within(patience).await.map_err(errno_of) };
                self.wait(unique, work, |this, answer| then(this, answer.outcome));
            }
        }
    }

    /// The folder that an inode stands for.
    fn folder(&self, node: u64) -> Result<Place, Errno> {
        match lock(&self.nodes).get(node) {
            Some(Node::Folder(place)) => Ok(place),
            Some(Node::File(_)) => Err(Errno::ENOTDIR),
            None => Err(Errno::ESTALE),
        }
    }

    fn lookup(self: &Arc<Self>, unique: u64, folder: u64, name: &[u8]) {
        let child = |place: Place| {
            place.child(name).map_err(|error| match error {
                PathError::Long | PathError::LongName => Errno::ENAMETOOLONG,
                // There is no object of a name that none may have.
                _ => Errno::ENOENT,
            })
        };
        let place = match self.folder(folder).and_then(child) {
            Ok(place) => place,
            Err(error) => return self.refuse(unique, error),
        };
        match &place {
            Place::Now(Some(path)) => {
                let what = What::Entry(path.clone());
                self.ask(unique, what, move |this, outcome| this.found(unique, place, &outcome));
            }
            Place::Then(at, Some(path)) => match self.replica.entry_at(*at, path) {
                Some(outcome) => self.found(unique, place, &outcome),
                // The folder was of a state that cannot be told any more.
                None => self.refuse(unique, Errno::ESTALE),
            },
            Place::Then(_, None) | Place::Now(None) | Place::States => {
                self.tell(unique, Node::Folder(place));
            }
        }
    }

    /// What is under the name that was looked up.
    fn found(&self, unique: u64, place: Place, outcome: &Outcome) {
        let node = match outcome {
            Outcome::Entry(Entry::File(version)) => Node::file(place, *version),
            Outcome::Entry(Entry::Folder) => Some(Node::Folder(place)),
            _ => None,
        };
        match node {
            Some(node) => self.tell(unique, node),
            None => self.refuse(unique, Errno::ENOENT),
        }
    }

    /// Tells the kernel of an inode, unless it is of a state that cannot be told.
    fn tell(&self, unique: u64, node: Node<Body>) {
        let Some(attributes) = self.attributes(&node) else {
            return self.refuse(unique, Errno::ENOENT);
        };
        let node = lock(&self.nodes).tell(node);
        let entry = Answer::entry(node, &attributes);
        if answer(&self.device, unique, Ok(entry.bytes())).is_err() {
            // Nobody was told, so nobody forgets.
            lock(&self.nodes).forget(node, 1);
        }
    }

    /// A folder of the present state is there, and has its time, by that state: that is a read like any. The
    /// kernel looks up no name of the root, nor of the folder that a process is in. A version never changes.
    fn stat(self: &Arc<Self>, unique: u64, node: u64) {
        let Some(node) = lock(&self.nodes).get(node) else {
            return self.refuse(unique, Errno::ESTALE);
        };
        let Node::Folder(Place::Now(path)) = &node else {
            return self.say_attributes(unique, &node);
        };
        let what = path.clone().map_or(What::Root, What::Entry);
        self.ask(unique, what, move |this, outcome| match outcome {
            Outcome::Entry(Entry::Folder) => this.say_attributes(unique, &node),
            // It was, when its name was looked up.
            _ => this.refuse(unique, Errno::ESTALE),
        });
    }

    fn say_attributes(&self, unique: u64, node: &Node<Body>) {
        match self.attributes(node) {
            Some(attributes) => self.say(unique, &Answer::of_attributes(&attributes)),
            None => self.refuse(unique, Errno::ESTALE),
        }
    }

    /// It says nothing of a state, so it waits for nothing.
    fn access(&self, unique: u64, node: u64, ways: u32, caller: (u32, u32)) {
        let kind = match lock(&self.nodes).get(node) {
            Some(Node::Folder(_)) => Kind::Folder,
            Some(Node::File(file)) => Kind::File(file.version.content.metadata.mode),
            None => return self.refuse(unique, Errno::ESTALE),
        };
        if kind.allows(ways, caller, self.owner) {
            self.say(unique, &Answer::default());
        } else {
            self.refuse(unique, Errno::EACCES);
        }
    }

    /// What `stat` tells; none of a folder of a state that cannot be told any more.
    fn attributes(&self, node: &Node<Body>) -> Option<Attributes> {
        let owner = self.owner;
        Some(match node {
            Node::File(file) => {
                let content = file.version.content;
                Attributes {
                    // Of a version it is the same in all states.
                    number: number_of(file.path.as_bytes(), Some(file.version.sequence)),
                    kind: Kind::File(content.metadata.mode),
                    size: content.size.0,
                    modified: content.metadata.modified.as_nanos(),
                    owner,
                }
            }
            Node::Folder(place) => {
                let modified = match place {
                    Place::Now(_) | Place::States => self.changed(),
                    Place::Then(at, _) => self.replica.made(*at)?.as_nanos(),
                };
                let number = number_of(&place.name(), None);
                Attributes { number, kind: Kind::Folder, size: 0, modified, owner }
            }
        })
    }

    /// When this mount first saw the present state: folders are modified then, as far as anybody can
    /// tell who goes by their times.
    fn changed(&self) -> i64 {
        let state = self.replica.position();
        let mut changed = lock(&self.changed);
        // Another thread may have seen a later one meanwhile.
        if state > changed.0 || changed.1 == 0 {
            *changed = (state, self.replica.now().wall.as_nanos());
        }
        changed.1
    }

    /// The read (SSR §6.2.2): what is opened has its body here, and keeps it.
    fn open(self: &Arc<Self>, unique: u64, node: u64, flags: u32, caller: (u32, u32)) {
        let file = match lock(&self.nodes).get(node) {
            Some(Node::File(file)) => file,
            Some(Node::Folder(_)) => return self.refuse(unique, Errno::EISDIR),
            None => return self.refuse(unique, Errno::ESTALE),
        };
        if !Kind::File(file.version.content.metadata.mode).opens(flags, caller, self.owner) {
            return self.refuse(unique, Errno::EACCES);
        }
        if file.then.is_some() {
            // What a state was nothing can change: no lease is needed to say so, and no order.
            match self.replica.holding(&file.path, &file.version) {
                Holding::Here => return self.opened_file(unique, file),
                Holding::Gone => return self.refuse(unique, Errno::ESTALE),
                Holding::Comes => {}
            }
        }
        let what = What::Version(file.path.clone(), file.version);
        self.ask(unique, what, move |this, outcome| match outcome {
            Outcome::Object(_) => this.opened_file(unique, file),
            Outcome::Lost(_) => this.refuse(unique, Errno::EIO),
            // The kernel looks the name up again, once, and finds the newer version.
            _ => this.refuse(unique, Errno::ESTALE),
        });
    }

    fn opened_file(&self, unique: u64, file: Arc<File<Body>>) {
        let open = OpenFile { file, body: Mutex::new(None) };
        self.opened(unique, Open::File(Arc::new(open)), Answer::opened);
    }

    fn open_folder(self: &Arc<Self>, unique: u64, node: u64) {
        let place = match self.folder(node) {
            Ok(place) => place,
            Err(error) => return self.refuse(unique, error),
        };
        match &place {
            Place::Now(path) => {
                let what = What::Names(path.clone());
                self.ask(unique, what, move |this, outcome| this.listed(unique, &place, outcome));
            }
            Place::States => {
                let states = self.replica.states();
                let states =
                    states.iter().map(|(at, _)| (at.to_string().into_bytes(), Entry::Folder));
                self.listed(unique, &place, Outcome::Names(states.collect()));
            }
            Place::Then(at, path) => match self.replica.names_at(*at, path.as_ref()) {
                Some(outcome) => self.listed(unique, &place, outcome),
                None => self.refuse(unique, Errno::ESTALE),
            },
        }
    }

    /// What is in the folder that is opened.
    fn listed(&self, unique: u64, place: &Place, outcome: Outcome) {
        let Outcome::Names(names) = outcome else {
            return self.refuse(unique, Errno::ENOENT);
        };
        let own = place.name();
        let whole = |within: &[u8], name: &[u8]| [&prefix_of(within), name].concat();
        let folder = |name: &[u8], whole: &[u8]| Listed {
            name: name.to_owned(),
            number: number_of(whole, None),
            is_folder: true,
        };
        let slash = own.iter().rposition(|byte| *byte == b'/');
        let above = slash.map_or(&b""[..], |end| &own[..end]);
        let mut list = vec![folder(b".", &own), folder(b"..", above)];
        for (name, entry) in names {
            list.push(match entry {
                Entry::Folder => folder(&name, &whole(&own, &name)),
                Entry::File(version) => {
                    let path = match place {
                        Place::Now(path) | Place::Then(_, path) => path.as_ref(),
                        Place::States => None,
                    };
                    let path = whole(path.map_or(b"", Path::as_bytes), &name);
                    let number = number_of(&path, Some(version.sequence));
                    Listed { name, number, is_folder: false }
                }
            });
        }
        self.opened(unique, Open::Folder(list.into()), Answer::opened_folder);
    }

    fn opened(&self, unique: u64, open: Open, said: fn(u64) -> Answer) {
        let handle = lock(&self.handles).add(open);
        if answer(&self.device, unique, Ok(said(handle).bytes())).is_err() {
            // Nobody has it, so nobody closes it.
            lock(&self.handles).open.remove(&handle);
        }
    }

    fn handle(&self, number: u64) -> Option<Open> {
        lock(&self.handles).open.get(&number).cloned()
    }

    fn read_folder(&self, unique: u64, range: Range) {
        let Some(Open::Folder(list)) = self.handle(range.handle) else {
            return self.refuse(unique, Errno::EBADF);
        };
        let mut said = Answer::default();
        let first = usize::try_from(range.offset).unwrap_or(usize::MAX);
        for (at, one) in list.iter().enumerate().skip(first) {
            let kind = (one.number, one.is_folder);
            if !said.add_name(kind, &one.name, at as u64 + 1, range.size as usize) {
                break;
            }
        }
        self.say(unique, &said);
    }

    fn read(self: &Arc<Self>, unique: u64, range: Range) {
        let Some(Open::File(open)) = self.handle(range.handle) else {
            return self.refuse(unique, Errno::EBADF);
        };
        let size = open.file.version.content.size.0;
        let begin = range.offset.min(size);
        let end = range.offset.saturating_add(u64::from(range.size)).min(size);
        if begin == end {
            return self.say(unique, &Answer::default());
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
        let mut tries = Tries::new(self.patience);
        while tries.next().await {
            let found = self.body(open, tries.left()).await?;
            let read = {
                // Never closed.
                let _one = self.pages.acquire().await;
                part(&found, begin, end).await?
            };
            if let Some(bytes) = read {
                return Ok(bytes);
            }
            // Overwritten long ago, or given up for want of room: if it is still current, it is
            // fetched again.
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
        // Held while it is looked for, so that many who read one large file look for it once.
        let mut shared = file.body.lock().await;
        let found = match shared.upgrade() {
            Some(found) => found,
            None => {
                let found = self.replica.version(&file.path, file.version, patience).await;
                // It was overwritten, and its time of grace is over.
                let mut found = found.map_err(errno_of)?.ok_or(Errno::ESTALE)?;
                // Files may be open for ever: what is overwritten in them goes by that time.
                found.let_go();
                Arc::new(found)
            }
        };
        *shared = Arc::downgrade(&found);
        *lock(body) = Some(Arc::clone(&found));
        Ok(found)
    }
}

/// The bytes from `begin` to before `end`; none if they have gone.
async fn part(found: &Found, begin: u64, end: u64) -> Result<Option<Vec<u8>>, Errno> {
    let piece = PIECE as u64;
    let mut bytes = Vec::new();
    for number in begin / piece..end.div_ceil(piece) {
        let read = found.piece(u32::try_from(number).unwrap_or(u32::MAX)).await;
        let Some(all) = read.map_err(errno_of)? else { return Ok(None) };
        let first = number * piece;
        let from = begin.saturating_sub(first) as usize;
        let to = (end - first).min(all.len() as u64) as usize;
        bytes.extend_from_slice(all.get(from..to).ok_or(Errno::EIO)?);
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::Why;

    #[test]
    fn a_body_that_is_given_up_again_and_again_is_one_that_was_waited_for_in_vain() {
        for (error, expected) in [
            (ReadError::Waits(Why::Invalid), Errno::ETIMEDOUT),
            (ReadError::Evicted, Errno::ETIMEDOUT),
            (ReadError::Lost, Errno::EIO),
        ] {
            assert_eq!(errno_of(error), expected, "{error:?}");
        }
    }
}
