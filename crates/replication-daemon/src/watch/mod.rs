//! Publishes a local folder: its files are committed after they are written (feature `watch`).
//!
//! - A file is taken when it is complete: closed after a write, or moved here, and unchanged while it is
//!   read.
//! - A file that stays open is taken as a snapshot when nothing was written to it for a while.
//! - All names of a file are taken: those with the same inode are scanned together.
//! - Related changes are one transaction: those within a moment, and both sides of a rename. It waits a
//!   bounded time for files that are being written there, and grows by renames during its scan.
//! - Nothing is missed: a folder is watched before it is scanned. If the kernel drops events, everything is
//!   compared; this also happens at intervals.
//! - An entry that cannot be published blocks nothing; it is reported once.
//!
//! Contents are read after events, so only the order of commits is promised. Of two files that are written
//! one after the other, the second one may be seen first, or both at once.
//!
//! `plan` decides which names are scanned and what changes, without effects. `events` reads the kernel,
//! `scan` the file system; `index` remembers files that were read, `compare` compares everything. One thread
//! does all of it.

mod commit;
mod compare;
mod events;
mod index;
mod plan;
mod repair;
mod scan;
mod scan_result;
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
use std::time::{Duration, Instant};

use lull_replication::origin::Refused;
use lull_replication::path::Path;
use lull_replication::time::LocalTime;
use lull_replication::types::Content;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use thiserror::Error;
use tokio::runtime::Handle as Runtime;
use tokio::task::spawn_blocking;

use crate::daemon::{Clock, HeldBodies, MachineClock, OriginHandle, WriteError};
use crate::source::{self, Fingerprint};
use crate::store::StoreError;
use compare::Comparison;
use events::{Events, Gone};
use index::Index;
use plan::{FileEvent, MAX_EXTENSIONS, Plan, Quiet};
use repair::Stray;
use scan::{Scan, ScanStopped};
use scan_result::{Changes, Depth, Name, Names, ScanResult, add, bytes_of, name_of, simplify};

/// Why a folder cannot be watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// There is no such folder.
    #[error("`{}` is not a readable folder: name one", path.display())]
    NoFolder {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The origin would publish itself.
    #[error("`{}` and the origin's own folder contain each other: move one of them", .0.display())]
    Own(PathBuf),
    /// The kernel gives no events.
    #[error("the kernel gives no events: raise fs.inotify.max_user_instances")]
    System(#[source] io::Error),
}

/// How a folder is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// A file that stays open is published when it was not written for this long.
    pub quiet: Duration,
    /// Pause between two comparisons of the whole folder.
    pub compare: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        WatchOptions { quiet: Quiet::default().0, compare: Duration::from_secs(300) }
    }
}

/// An event of a watched folder.
#[derive(Debug, Error)]
pub enum WatchEvent {
    /// Its contents are committed.
    #[error("the files in {} are published, and so are later changes", .0.display())]
    Watching(PathBuf),
    /// An entry is not published.
    #[error("`{}`: {why}", path.display().to_string().escape_debug())]
    Skipped {
        /// The type of the other mount.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Events were lost.
    #[error("the queue of file events overflowed: the whole folder is compared")]
    Lost,
    /// A comparison has found changes without an event.
    #[error("{0} files had changed without an event: they are published now")]
    Repaired(usize),
    /// The path is empty.
    #[error(
        "`{}` has no files, so nothing is deleted: check that its disk is mounted. To delete all \
         files, run `lull publish FOLDER --origin DIR --delete-all`", .0.display()
    )]
    Empty(PathBuf),
    /// The origin does not accept it now.
    #[error("changes are not published, and retried each second: {0}")]
    Waits(String),
    /// The folder no longer exists.
    #[error("`{}` does not exist any more, and nothing is deleted: restart the origin when the \
             folder exists again", .0.display())]
    Gone(PathBuf),
    /// The kernel has failed.
    #[error("the kernel reports no more changes of the folder: restart the origin: {0}")]
    Failed(io::Error),
}

/// A watched folder. Dropping this ends the watch.
#[derive(Debug)]
pub struct Watched {
    stop: Arc<AtomicBool>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Watched {
    /// Returns why a folder cannot be watched, as far as that is known beforehand; otherwise its full path.
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
            // Without an origin, another error says so.
            _ => Ok(root),
        }
    }

    /// Commits the contents of a folder, and later changes to it; inside a Tokio runtime. `own` is the
    /// origin's folder. `on_event` is called with events.
    ///
    /// # Errors
    /// If it is not a folder, or the kernel gives no events.
    pub fn open(
        folder: &FilePath,
        own: &FilePath,
        origin: OriginHandle,
        options: WatchOptions,
        on_event: impl Fn(WatchEvent) + Send + 'static,
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
            plan: Plan::new(Quiet(options.quiet)),
            index: Index::default(),
            comparison: None,
            compare: options.compare,
            next_slice: LocalTime::default(),
            stray: Stray::default(),
            woken,
            stop: Arc::clone(&stop),
            full: None,
            waits: None,
            on_event: Box::new(on_event),
        };
        let thread = Builder::new().name("lull-watch".to_owned()).spawn(move || watcher.run());
        let thread = Some(thread.map_err(WatchError::System)?);
        Ok(Watched { stop, wake, thread })
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread checks the flag as soon as there is data to read, or has ended.
        let _ = self.wake.write(&[0]);
    }

    /// Ends it, after the commit in progress.
    pub async fn close(mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            // The result of a panicked thread is of no interest.
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
    /// Kernel events that the plan does not know so far.
    heard: Vec<FileEvent>,
    plan: Plan,
    index: Index,
    /// The running comparison; when it continues, or the next one begins.
    comparison: Option<Comparison>,
    next_slice: LocalTime,
    stray: Stray,
    /// The pause between two comparisons.
    compare: Duration,
    woken: UnixStream,
    stop: Arc<AtomicBool>,
    /// Device and inode of the folder in which files were found, or were not required. If another folder is
    /// empty, its disk is not mounted.
    full: Option<(u64, u64)>,
    /// The last reported reason why changes wait.
    waits: Option<String>,
    on_event: Box<dyn Fn(WatchEvent) + Send>,
}

/// Names that are scanned and committed together.
struct Batch {
    names: Names,
    seen: ScanResult,
    /// How often it may still grow.
    looks: u32,
    /// It may not grow any more, although further events would extend it.
    endless: bool,
    /// Bodies stored for it.
    held: HeldBodies,
}

/// Why the watch has ended.
enum Ended {
    Stopped,
    Gone,
    Failed(io::Error),
}

impl From<ScanStopped> for Ended {
    fn from(_: ScanStopped) -> Self {
        Ended::Stopped
    }
}

/// Why a transaction was not written.
enum Failed {
    Ended(Ended),
    /// It is retried; holds a reason if an operator can do something about it.
    Again(Option<String>),
    /// A full scan shows the correct state.
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
            // Clashing names are left out, unless they have just come by another interface.
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
            Err(Ended::Gone) => (self.on_event)(WatchEvent::Gone(self.root.clone())),
            Err(Ended::Failed(error)) => (self.on_event)(WatchEvent::Failed(error)),
        }
    }

    fn go_on(&mut self) -> Result<(), Ended> {
        // The first scan covers everything.
        self.plan.handle(MachineClock.read().local, FileEvent::Lost);
        let mut begun = false;
        while !self.stop.load(Ordering::Relaxed) {
            let now = self.plan_events()?;
            if let Some(names) = self.plan.take(now) {
                let before = Instant::now();
                self.work(names)?;
                let now = MachineClock.read().local;
                self.plan.took(now, before.elapsed());
                if !core::mem::replace(&mut begun, true) {
                    (self.on_event)(WatchEvent::Watching(self.root.clone()));
                    self.next_slice = now.plus(self.compare);
                    self.advance_comparison(now);
                }
            } else if begun && self.next_slice <= now {
                self.compare()?;
            } else {
                self.wait().map_err(Ended::Failed)?;
            }
        }
        Ok(())
    }

    /// Passes the kernel's events so far to the plan.
    fn plan_events(&mut self) -> Result<LocalTime, Ended> {
        self.read_events()?;
        let now = MachineClock.read().local;
        for happened in self.heard.drain(..) {
            self.plan.handle(now, happened);
        }
        Ok(now)
    }

    /// Reads the kernel's events so far.
    fn read_events(&mut self) -> Result<(), Ended> {
        let all = self.events.read().map_err(Ended::Failed)?;
        let all = all.map_err(|Gone| Ended::Gone)?;
        for _ in all.iter().filter(|happened| **happened == FileEvent::Lost) {
            (self.on_event)(WatchEvent::Lost);
        }
        for happened in &all {
            match happened {
                FileEvent::Written(name) => self.index.written(name),
                FileEvent::Changed(name) | FileEvent::Came(name, _) => self.index.closed(name),
                // These change the fingerprint.
                FileEvent::Touched(_)
                | FileEvent::Left(..)
                | FileEvent::Stray
                | FileEvent::Lost => {}
            }
        }
        if all.contains(&FileEvent::Stray) {
            self.stray();
        }
        self.heard.extend(all);
        Ok(())
    }

    /// Waits until there is an event, or a scan is due.
    fn wait(&mut self) -> io::Result<()> {
        let now = MachineClock.read().local;
        let at = self.plan.poll_timeout().unwrap_or(self.next_slice).min(self.next_slice);
        // Rounded up, to avoid repeated calls within the last millisecond.
        let wait = at.since(now) + Duration::from_micros(999);
        let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
        let mut both = [
            PollFd::new(self.events.fd(), PollFlags::POLLIN),
            PollFd::new(self.woken.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut both, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Scans these names and commits the result. Returns the number of changes.
    fn work(&mut self, mut names: Names) -> Result<usize, Ended> {
        let seen = self.scan(&mut names)?;
        let held = HeldBodies::new(self.origin.clone());
        let mut batch = Batch { names, seen, looks: MAX_EXTENSIONS, endless: false, held };
        loop {
            while self.grows(&mut batch)? {}
            let Some((changes, moved)) = self.decide(&mut batch) else { return Ok(0) };
            let is_counted =
                |content: &&Option<Content>| !content.is_some_and(|one| one.is_folder());
            let count = changes.values().filter(is_counted).count();
            let written = self.commit(&mut batch, changes, &moved);
            let now = MachineClock.read().local;
            match written {
                Ok(()) => {
                    self.plan.committed();
                    self.waits = None;
                    return Ok(count);
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
                        (self.on_event)(WatchEvent::Waits(why));
                    }
                }
            }
            return Ok(0);
        }
    }

    /// Scans these names, and the other names of files with several names, which it adds.
    fn scan(&mut self, names: &mut Names) -> Result<ScanResult, ScanStopped> {
        let Watcher { root, events, index, stop, .. } = self;
        let mut seen = Scan { root, events, index, stop }.run(names)?;
        let others = index.others(&seen.linked, names);
        if !others.is_empty() {
            let more = Scan { root, events, index, stop }.run(&others)?;
            seen.replace(&others, more);
            add(names, &others);
            simplify(names);
        }
        Ok(seen)
    }

    /// Whether events during the scan were added to it. Otherwise they are left for the next scan.
    fn grows(&mut self, batch: &mut Batch) -> Result<bool, Ended> {
        self.read_events()?;
        let (there, _) = self.origin.objects_at(
            self.heard.iter().filter_map(FileEvent::name).map(|name| (bytes_of(name), true)),
        );
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
        let mut more = self.plan.grow(now, heard, &mut batch.names, &batch.seen);
        let later = self.scan(&mut more)?;
        batch.seen.replace(&more, later);
        add(&mut batch.names, &more);
        simplify(&mut batch.names);
        Ok(true)
    }

    /// The changes to write now, if any, and those of them that may belong to a rename.
    fn decide(&mut self, batch: &mut Batch) -> Option<(Changes, BTreeSet<Path>)> {
        let Batch { names, seen, .. } = batch;
        let at = names.iter().map(|(name, depth)| (bytes_of(name), *depth == Depth::Whole));
        let (committed, lost) = self.origin.objects_at(at);
        let mut changes = seen.changes(names, &committed, &lost);
        let clashes = self.origin.case_clashes(&changes);
        seen.leave_out(&mut changes, clashes);
        let now = MachineClock.read().local;
        for (name, odd) in self.plan.handle_scan(now, names, seen) {
            let (path, why) = (self.root.join(name), odd.to_string());
            (self.on_event)(WatchEvent::Skipped { path, why });
        }
        for name in seen.behind(names, &committed) {
            self.plan.handle(now, FileEvent::Written(name));
        }
        if self.plan.put_off(now, names, &seen.restless) {
            return None;
        }
        let gone = changes.values().any(Option::is_none);
        let folder = self.root.metadata().ok().map(|folder| (folder.dev(), folder.ino()));
        if names.contains_key(FilePath::new("")) {
            let known = folder.is_some() && folder == self.full;
            if seen.is_empty() && !committed.is_empty() && !known {
                (self.on_event)(WatchEvent::Empty(self.root.clone()));
                return None;
            }
            self.full = folder;
        } else if gone && self.full.is_some() && folder != self.full {
            // Another folder has its name, perhaps because the disk is no longer mounted.
            self.plan.handle(now, FileEvent::Lost);
            return None;
        }
        if batch.endless {
            self.plan.keep_gone(now, &mut changes);
        } else {
            self.plan.at_rest();
        }
        self.add_folders(&mut changes);
        let gone = changes.values().any(Option::is_none);
        let is_moved =
            |path: &&Path| self.plan.is_moved(path, gone && !committed.contains_key(*path));
        let moved = changes.keys().filter(is_moved).cloned().collect();
        Some((changes, moved))
    }
}

impl Watcher {
    /// Adds the parent folders of changes: their times have changed, and no event reports that.
    fn add_folders(&mut self, changes: &mut Changes) {
        let folders = changes.keys().filter_map(Path::parent);
        let folders: BTreeSet<Path> = folders.filter(|path| !changes.contains_key(path)).collect();
        for path in folders {
            let metadata = self.root.join(name_of(&path)).symlink_metadata();
            let Some(metadata) = metadata.ok().filter(std::fs::Metadata::is_dir) else { continue };
            let content = source::folder(&metadata);
            self.index.know(&path, Fingerprint::of(&metadata), content);
            if self.origin.metadata(&path) != Some(content.metadata) {
                changes.insert(path, Some(content));
            }
        }
    }
}

impl core::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Watcher").field("root", &self.root).finish_non_exhaustive()
    }
}
