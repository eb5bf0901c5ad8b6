//! A face of the origin: a folder of its machine, whose files are committed when they were written
//! (feature `watch`).
//!
//! | rule | how |
//! |---|---|
//! | a file is taken when it is complete | when who has written it closes it, or it is moved here; read between two looks at it that agree |
//! | what happens together is committed together | what follows within a moment is one transaction, and both sides of a rename are; it waits, though not without end, for what is being written there, and grows by what is renamed while it is looked at |
//! | nothing is missed | a folder is watched before it is looked into; if the kernel drops events, all of it is compared |
//! | what can't be published stops nothing | it is told once |
//!
//! Contents are read after events, so the order of commits is the only one that is promised: of two files
//! that are written one after the other, the second one may be seen first, or both at once.
//!
//! `plan` says what is to be looked at and what becomes of it, without effects; `events` is the kernel's
//! side, `look` that of the file system. One thread does all of it.

mod commit;
mod events;
mod look;
mod plan;
mod seen;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use thiserror::Error;
use tokio::runtime::Handle as Runtime;
use tokio::task::spawn_blocking;

use crate::daemon::{Clock, HeldBodies, MachineClock, OriginHandle, WriteError};
use crate::origin::Refused;
use crate::path::Path;
use crate::store::StoreError;
use events::{Events, Gone};
use look::{Look, Stopped};
use plan::{Happened, MORE_LOOKS, Plan};
use seen::{Changes, Depth, Name, Names, Seen};

/// Why nothing is watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// There is no such folder.
    #[error("`{}` is no folder that can be read: name one", path.display())]
    NoFolder {
        /// What is there.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The origin would publish itself.
    #[error("`{}` and the origin's own folder lie one in the other: move one of them", .0.display())]
    Own(PathBuf),
    /// The kernel gives no events.
    #[error("the kernel gives no events: raise fs.inotify.max_user_instances")]
    System(#[source] io::Error),
}

/// What is told of a folder that is watched.
#[derive(Debug, Error)]
pub enum WatchEvent {
    /// What was in it is committed.
    #[error("what is in {} is published, and what is written there from now on", .0.display())]
    Watching(PathBuf),
    /// Something of it is not published.
    #[error("`{}`: {why}", path.display().to_string().escape_debug())]
    Skipped {
        /// What.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Events were lost.
    #[error("more was written than the kernel tells of at once: the whole folder is compared")]
    Lost,
    /// There is nothing in it.
    #[error(
        "`{}` has no files, so nothing is deleted for that: is its disk mounted? If it is meant, say \
         `lull publish FOLDER --origin DIR --delete-all`", .0.display()
    )]
    Empty(PathBuf),
    /// The origin does not take it now.
    #[error("what was written waits, and is tried again each second: {0}")]
    Waits(String),
    /// The folder is gone.
    #[error("`{}` is gone, and nothing is deleted for that: start again when it is there", .0.display())]
    Gone(PathBuf),
    /// The kernel has failed.
    #[error("no events come any more: start again: {0}")]
    Failed(io::Error),
}

/// A folder that is watched. Dropped, it is not any more.
#[derive(Debug)]
pub struct Watched {
    stop: Arc<AtomicBool>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Watched {
    /// Tells why a folder cannot be watched, as far as that is known beforehand; else its whole path.
    ///
    /// # Errors
    /// As for [`open`](Watched::open).
    pub fn check(folder: &FilePath, own: &FilePath) -> Result<PathBuf, WatchError> {
        let failed = |source| WatchError::NoFolder { path: folder.to_owned(), source };
        let root = folder.canonicalize().map_err(failed)?;
        std::fs::read_dir(&root).map_err(failed)?;
        match own.canonicalize() {
            Ok(own) if own.starts_with(&root) || root.starts_with(&own) => {
                Err(WatchError::Own(folder.to_owned()))
            }
            // Where there is no origin, another error says so.
            _ => Ok(root),
        }
    }

    /// Commits what is in a folder, and from then on what is written there; inside a Tokio runtime.
    /// `own` is the origin's folder. `tell` is called with what happens.
    ///
    /// # Errors
    /// If it is none, or the kernel gives no events.
    pub fn open(
        folder: &FilePath,
        own: &FilePath,
        origin: OriginHandle,
        tell: impl Fn(WatchEvent) + Send + 'static,
    ) -> Result<Self, WatchError> {
        let root = Self::check(folder, own)?;
        let events = Events::new(root.clone()).map_err(WatchError::System)?;
        let (wake, woken) = UnixStream::pair().map_err(WatchError::System)?;
        let stop = Arc::new(AtomicBool::new(false));
        let watcher = Watcher {
            root,
            origin,
            runtime: Runtime::current(),
            events,
            heard: Vec::new(),
            plan: Plan::default(),
            woken,
            stop: Arc::clone(&stop),
            full: None,
            waits: None,
            tell: Box::new(tell),
        };
        let thread = Builder::new().name("lull-watch".to_owned()).spawn(move || watcher.run());
        let thread = Some(thread.map_err(WatchError::System)?);
        Ok(Watched { stop, wake, thread })
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It looks at the flag as soon as there is something to be read; or it has ended.
        let _ = self.wake.write(&[0]);
    }

    /// Ends it: what is being committed is.
    pub async fn close(mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing more to say.
            let _ = spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.end();
    }
}

struct Watcher {
    root: PathBuf,
    origin: OriginHandle,
    runtime: Runtime,
    events: Events,
    /// What the kernel has told, and the plan does not know yet.
    heard: Vec<Happened>,
    plan: Plan,
    woken: UnixStream,
    stop: Arc<AtomicBool>,
    /// The folder in which files were found, or had not to be: device and inode. If there are none in
    /// another one, its disk is not mounted.
    full: Option<(u64, u64)>,
    /// Why what was written waits, as it was told last.
    waits: Option<String>,
    tell: Box<dyn Fn(WatchEvent) + Send>,
}

/// What is looked at, and committed together.
struct Batch {
    names: Names,
    seen: Seen,
    /// How often it may grow yet.
    looks: u32,
    /// It may not any more, and what happens would make it grow.
    endless: bool,
    /// Bodies that are in the store for it.
    held: HeldBodies,
}

/// Why nothing is watched any more.
enum Ended {
    Stopped,
    Gone,
    Failed(io::Error),
}

impl From<Stopped> for Ended {
    fn from(_: Stopped) -> Self {
        Ended::Stopped
    }
}

/// Why a transaction was not written.
enum Failed {
    Ended(Ended),
    /// It is tried again; is there anything that somebody could do about it?
    Again(Option<String>),
    /// A look at everything shows what it should be.
    Otherwise,
    /// It gathers on.
    PutOff,
    /// It has grown.
    Grown,
}

impl From<Ended> for Failed {
    fn from(ended: Ended) -> Self {
        Failed::Ended(ended)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Failed::Again(Some(error.to_string()))
    }
}

impl From<WriteError> for Failed {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped => Failed::Ended(Ended::Stopped),
            WriteError::Refused(Refused::FileAndFolder(_)) => Failed::Otherwise,
            // What clashes is left out; unless it has come by another face just now.
            WriteError::Refused(Refused::NotStored(_) | Refused::Busy | Refused::Case(..)) => {
                Failed::Again(None)
            }
            other => Failed::Again(Some(other.to_string())),
        }
    }
}

impl Watcher {
    fn run(mut self) {
        match self.go_on() {
            Ok(()) | Err(Ended::Stopped) => {}
            Err(Ended::Gone) => (self.tell)(WatchEvent::Gone(self.root.clone())),
            Err(Ended::Failed(error)) => (self.tell)(WatchEvent::Failed(error)),
        }
    }

    fn go_on(&mut self) -> Result<(), Ended> {
        // The first look is one at everything.
        self.plan.handle(MachineClock.read().local, Happened::Lost);
        let mut begun = false;
        while !self.stop.load(Ordering::Relaxed) {
            self.hear()?;
            let now = MachineClock.read().local;
            for happened in self.heard.drain(..) {
                self.plan.handle(now, happened);
            }
            let Some(names) = self.plan.take(now) else {
                self.wait().map_err(Ended::Failed)?;
                continue;
            };
            self.work(names)?;
            if !core::mem::replace(&mut begun, true) {
                (self.tell)(WatchEvent::Watching(self.root.clone()));
            }
        }
        Ok(())
    }

    /// Takes in what the kernel has told by now.
    fn hear(&mut self) -> Result<(), Ended> {
        let all = self.events.read().map_err(Ended::Failed)?;
        let all = all.map_err(|Gone| Ended::Gone)?;
        for _ in all.iter().filter(|happened| **happened == Happened::Lost) {
            (self.tell)(WatchEvent::Lost);
        }
        self.heard.extend(all);
        Ok(())
    }

    /// Waits until something happens, or is to be looked at.
    fn wait(&mut self) -> io::Result<()> {
        let now = MachineClock.read().local;
        let timeout = self.plan.poll_timeout().map_or(PollTimeout::NONE, |at| {
            // Rounded up, or it would ask again and again within the last millisecond.
            let wait = at.since(now) + Duration::from_micros(999);
            PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
        });
        let mut both = [
            PollFd::new(self.events.fd(), PollFlags::POLLIN),
            PollFd::new(self.woken.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut both, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks at these names, and commits what is there.
    fn work(&mut self, names: Names) -> Result<(), Ended> {
        let seen = self.look(&names)?;
        let held = HeldBodies::new(self.origin.clone());
        let mut batch = Batch { names, seen, looks: MORE_LOOKS, endless: false, held };
        loop {
            while self.grows(&mut batch)? {}
            let Some((changes, moved)) = self.decide(&mut batch) else { return Ok(()) };
            let written = self.commit(&mut batch, changes, &moved);
            let now = MachineClock.read().local;
            match written {
                Ok(()) => {
                    self.plan.committed();
                    self.waits = None;
                }
                Err(Failed::Grown) => continue,
                Err(Failed::PutOff) => {}
                Err(Failed::Ended(ended)) => return Err(ended),
                Err(Failed::Otherwise) => {
                    self.plan.failed(now, [(Name::new(), Depth::Whole)].into());
                }
                Err(Failed::Again(why)) => {
                    self.plan.failed(now, batch.names);
                    if let Some(why) = why.filter(|why| self.waits.as_ref() != Some(why)) {
                        self.waits = Some(why.clone());
                        (self.tell)(WatchEvent::Waits(why));
                    }
                }
            }
            return Ok(());
        }
    }

    fn look(&mut self, names: &Names) -> Result<Seen, Stopped> {
        let Watcher { root, events, stop, .. } = self;
        Look { root, events, stop }.at(names)
    }

    /// Whether what happened meanwhile was to be looked at, too. Else it is left for the next time.
    fn grows(&mut self, batch: &mut Batch) -> Result<bool, Ended> {
        self.hear()?;
        let (there, _) = self.origin.objects_at(self.heard.iter().filter_map(Happened::name));
        if !self.plan.concerns(&self.heard, &batch.names, &batch.seen, &there) {
            return Ok(false);
        }
        if batch.looks == 0 {
            batch.endless = true;
            return Ok(false);
        }
        batch.looks -= 1;
        let heard = core::mem::take(&mut self.heard);
        let now = MachineClock.read().local;
        let more = self.plan.grow(now, heard, &mut batch.names, &batch.seen);
        let later = self.look(&more)?;
        batch.seen.replace(&more, later);
        Ok(true)
    }

    /// What becomes of the objects, if anything is to be written now; and what of that may belong to a rename.
    fn decide(&mut self, batch: &mut Batch) -> Option<(Changes, BTreeSet<Path>)> {
        let Batch { names, seen, .. } = batch;
        // What is no text is the name of no object.
        let (committed, lost) =
            self.origin.objects_at(names.keys().filter_map(|name| name.to_str()));
        let mut changes = seen.changes(names, &committed, &lost);
        let clashes = self.origin.case_clashes(&changes);
        seen.leave_out(&mut changes, clashes);
        let now = MachineClock.read().local;
        for (name, odd) in self.plan.seen(now, names, seen) {
            let (path, why) = (self.root.join(name), odd.to_string());
            (self.tell)(WatchEvent::Skipped { path, why });
        }
        if self.plan.put_off(now, names, &seen.restless) {
            return None;
        }
        if names.contains_key(FilePath::new("")) {
            let folder = self.root.metadata().ok().map(|folder| (folder.dev(), folder.ino()));
            let known = folder.is_some() && folder == self.full;
            if seen.is_empty() && !committed.is_empty() && !known {
                (self.tell)(WatchEvent::Empty(self.root.clone()));
                return None;
            }
            self.full = folder;
        }
        if batch.endless {
            self.plan.keep_gone(now, &mut changes);
        } else {
            self.plan.at_rest();
        }
        let gone = changes.values().any(Option::is_none);
        let is_moved =
            |path: &&Path| self.plan.is_moved(path, gone && !committed.contains_key(*path));
        let moved = changes.keys().filter(is_moved).cloned().collect();
        Some((changes, moved))
    }
}

impl core::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Watcher").field("root", &self.root).finish_non_exhaustive()
    }
}
