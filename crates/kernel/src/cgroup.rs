//! A separate cgroup v2 for each program in the background.
//!
//! A cgroup of Lull is called `lull.CONGESTION.PID.COUNT`, after the congestion control that it keeps alive
//! and the `lull` that made it. It is inside the cgroup that `lull` runs in, so that limits on that one still
//! hold. For a running process it is inside the cgroup of that process. If none can be made there, it is
//! elsewhere, and the caller is informed. It has no controllers, so any place is valid. While its `lull`
//! lives, a lock on its directory keeps others from removing it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};
use nix::sys::statvfs::FsFlags;

use crate::error::{Error, Result};
use crate::receive::Attached;
use crate::{mounts, sys};

const PREFIX: &str = "lull.";

/// Deeper trees contain no cgroup of Lull.
const DEEPEST: usize = 64;

/// The cgroup v2 hierarchy, as far as this process may see it.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    root: OwnedFd,
    /// The cgroup of `root`, by its name in `/proc/PID/cgroup`.
    top: PathBuf,
    /// The cgroup of this process, below `root`.
    own: PathBuf,
}

impl Hierarchy {
    /// Finds the hierarchy at any mount point; if it is not mounted, or read-only, mounts it privately.
    pub(crate) fn open() -> Result<Self> {
        let kinds =
            fs::read_to_string("/proc/filesystems").map_err(Error::io("read /proc/filesystems"))?;
        if !kinds.split_whitespace().any(|kind| kind == "cgroup2") {
            return Err(Error::NoCgroup);
        }
        let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own_cgroup(&text);
        // A whole hierarchy before a part of it, and one that contains the own cgroup.
        let mut mounts = mounts::of_kind(mounts::THREAD, "cgroup2");
        mounts.retain(|mount| own.starts_with(&mount.root));
        mounts.sort_by_key(|mount| mount.root.components().count());
        let mut read_only = None;
        for mount in mounts {
            let Ok(root) = File::open(&mount.point) else { continue };
            let Ok(stat) = fstatfs(&root) else { continue };
            // Another mount may be on top.
            if stat.filesystem_type() != CGROUP2_SUPER_MAGIC {
                continue;
            }
            let own = own.strip_prefix(&mount.root).unwrap_or(Path::new("")).to_owned();
            let found = Hierarchy { root: root.into(), top: mount.root, own };
            if !stat.flags().contains(FsFlags::ST_RDONLY) {
                return Ok(found);
            }
            read_only.get_or_insert(found);
        }
        match (sys::detached_cgroup2(), read_only) {
            (Ok(root), _) => {
                let own = own.strip_prefix("/").unwrap_or(&own).to_owned();
                Ok(Hierarchy { root, top: PathBuf::from("/"), own })
            }
            // Enough for a caller that only reads.
            (Err(_), Some(found)) => Ok(found),
            (Err(source), None) => Err(Error::CgroupUnreachable { source }),
        }
    }

    /// The root of the hierarchy, or of its visible part.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The cgroup of the root, by its name in `/proc/PID/cgroup`.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    /// A path that leads to the root, whether it is mounted visibly or not.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()))
    }

    /// Makes a cgroup for a program that runs on `congestion`. If none can be made inside the one of this
    /// process, it is further up and comes with the reason. The program must be in the background all the
    /// same.
    pub(crate) fn create(&self, congestion: &str) -> Result<(Cgroup, Option<String>)> {
        let mut why = None;
        let mut first_error = None;
        for parent in self.own.ancestors() {
            let error = match Cgroup::create_in(self, parent, congestion) {
                Ok(Some(cgroup)) => return Ok((cgroup, why)),
                Ok(None) => None,
                Err(error) => Some(error),
            };
            why.get_or_insert_with(|| why_not_inside(error.as_ref()));
            first_error = first_error.or(error);
        }
        let source = first_error.unwrap_or_else(|| io::ErrorKind::Unsupported.into());
        Err(match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Error::CgroupReadOnly,
            io::ErrorKind::PermissionDenied => {
                let missing = "write access to the cgroup v2 hierarchy";
                Error::permission("to make a cgroup", missing, false)
            }
            _ => Error::Io { what: "make a cgroup".to_owned(), source },
        })
    }

    /// The cgroup of a process before Lull moved it, by its name in `/proc/PID/cgroup`.
    pub(crate) fn home_of(&self, pid: i32) -> io::Result<PathBuf> {
        Ok(without_ours(&cgroup_of(pid)?).to_owned())
    }

    /// Moves a process back to a cgroup, by its name in `/proc/PID/cgroup`.
    pub(crate) fn restore_cgroup(&self, pid: i32, home: &Path) -> Result<()> {
        let below = home.strip_prefix(&self.top).ok().filter(|_| !leads_out(home));
        let Some(below) = below else {
            let source = io::Error::other("its cgroup lies outside what is visible here");
            return Err(Error::CannotMove { pid, source });
        };
        move_to(&self.path().join(below), pid)
    }

    /// A path that leads to a cgroup, by its name in `/proc/PID/cgroup`.
    pub(crate) fn path_of(&self, cgroup: &Path) -> PathBuf {
        self.path().join(cgroup.strip_prefix(&self.top).unwrap_or(cgroup))
    }

    /// A cgroup that others made, called as in `/proc/PID/cgroup`.
    pub(crate) fn existing(&self, called: &Path) -> io::Result<Cgroup> {
        let path = self.path_of(called);
        let directory = lock_existing(&path)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Cgroup { path, called: called.to_owned(), directory })
    }

    /// All visible backgrounds.
    pub(crate) fn backgrounds(&self) -> Vec<Background> {
        let mut found = Vec::new();
        find_backgrounds(&self.path(), &self.top, DEEPEST, &mut found);
        found
    }

    /// The processes of a cgroup and of those inside it, by its name in `/proc/PID/cgroup`.
    pub(crate) fn processes_of(&self, cgroup: &Path) -> Vec<i32> {
        let mut processes = Vec::new();
        if let Ok(below) = cgroup.strip_prefix(&self.top) {
            list_processes(&self.path().join(below), DEEPEST, &mut processes);
        }
        processes
    }

    /// The file that shows whether a cgroup has processes, if there is such a cgroup.
    pub(crate) fn events_of(&self, cgroup: &Path) -> Option<File> {
        let below = cgroup.strip_prefix(&self.top).ok()?;
        File::open(self.path().join(below).join("cgroup.events")).ok()
    }

    /// Takes programs off their cgroups, as far as these exist.
    pub(crate) fn detach(&self, attached: &[Attached]) {
        for attached in attached {
            if let Ok(cgroup) = File::open(self.path_of(&attached.cgroup)) {
                attached.detach(cgroup.as_fd());
            }
        }
    }

    /// The cgroup of this process, by its name in `/proc/PID/cgroup`.
    pub(crate) fn own(&self) -> PathBuf {
        self.top.join(&self.own)
    }

    /// Whether all cgroups of the machine are visible: neither a cgroup namespace nor a partial mount hides
    /// any.
    pub(crate) fn sees_all(&self) -> bool {
        /// The first cgroup namespace has this number in every kernel (include/linux/proc_ns.h).
        const FIRST: &str = "cgroup:[4026531835]";
        let namespace = fs::read_link("/proc/self/ns/cgroup");
        self.top == Path::new("/") && namespace.is_ok_and(|link| link == Path::new(FIRST))
    }

    /// Whether that is the cgroup of this process.
    pub(crate) fn is_own(&self, home: &Path) -> bool {
        home.strip_prefix(&self.top).is_ok_and(|below| below == self.own)
    }

    /// Makes a cgroup for running processes, inside their present one, so that limits and stops of that one
    /// still reach them.
    ///
    /// # Errors
    /// Why there can be none: one line.
    pub(crate) fn create_inside(&self, home: &Path, congestion: &str) -> Result<Cgroup, String> {
        let below = home
            .strip_prefix(&self.top)
            .ok()
            .filter(|_| !leads_out(home))
            .ok_or("it lies outside what is mounted or visible here")?;
        // A child is possible in a cgroup with processes, unless controllers are passed on. Those exclude
        // both together, except in the root, which limits nothing.
        match Cgroup::create_in(self, below, congestion) {
            Ok(Some(cgroup)) => Ok(cgroup),
            Ok(None) => Err(why_not_inside(None)),
            Err(error) => Err(why_not_inside(Some(&error))),
        }
    }

    /// Removes every cgroup of Lull without a process and without a living `lull`.
    ///
    /// Returns the congestion controls that the others still use.
    pub(crate) fn reap(&self) -> Vec<String> {
        let mut alive = Vec::new();
        reap_below(&self.path(), DEEPEST, &mut alive);
        alive
    }
}

/// Without an error it is threaded, so it cannot contain whole processes.
fn why_not_inside(error: Option<&io::Error>) -> String {
    error.map_or("it is threaded".to_owned(), |error| {
        format!("no other can be made inside it: {error}")
    })
}

/// The message about a process that had to leave a cgroup.
pub(crate) fn left(who: &str, home: &Path, why: &str) -> String {
    format!("{who} left cgroup {}, whose limits no longer hold: {why}", home.display())
}

/// The v2 cgroup of a process, by its name in `/proc/PID/cgroup`.
fn cgroup_of(pid: i32) -> io::Result<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    Ok(cgroup_in(&text).to_owned())
}

/// The path of the v2 cgroup in `/proc/PID/cgroup`.
fn cgroup_in(text: &str) -> &Path {
    Path::new(text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/"))
}

/// From outside of a cgroup namespace, paths into it begin with "/..".
fn leads_out(path: &Path) -> bool {
    path.components().any(|component| component == Component::ParentDir)
}

/// The path of the v2 cgroup in `/proc/self/cgroup`; the root if none is visible.
fn own_cgroup(text: &str) -> PathBuf {
    let path = cgroup_in(text);
    if leads_out(path) { PathBuf::from("/") } else { path.to_owned() }
}

/// The cgroup around Lull's. Hooks of an outer one override those of an inner one: a process that is moved
/// again has to leave its previous background.
fn without_ours(path: &Path) -> &Path {
    let is_ours = |path: &&Path| {
        path.file_name().and_then(|name| name.to_str()).and_then(congestion_of).is_some()
    };
    path.ancestors().find(|path| !is_ours(path)).unwrap_or(path)
}

/// The congestion controls of the backgrounds of a process, from the path of its cgroup.
pub(crate) fn congestions_in(cgroup: &Path) -> impl Iterator<Item = &str> {
    cgroup.iter().filter_map(|name| congestion_of(name.to_str()?))
}

/// The congestion control in the name of a cgroup of Lull.
fn congestion_of(name: &str) -> Option<&str> {
    // From the end: the name of a congestion control may contain dots.
    let (rest, count) = name.strip_prefix(PREFIX)?.rsplit_once('.')?;
    let (congestion, pid) = rest.rsplit_once('.')?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (number(pid) && number(count)).then_some(congestion)
}

/// A background, from the name of its cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Background {
    /// By its name in `/proc/PID/cgroup`.
    pub(crate) called: PathBuf,
    pub(crate) congestion: String,
    /// The process id of the `lull` that made it, and a count.
    pub(crate) id: String,
}

fn find_backgrounds(directory: &Path, called: &Path, depth: usize, found: &mut Vec<Background>) {
    if depth == 0 {
        return;
    }
    for child in children(directory) {
        let Some(name) = child.file_name().and_then(|name| name.to_str()) else { continue };
        let called = called.join(name);
        if let Some(congestion) = congestion_of(name) {
            let id = name[PREFIX.len() + congestion.len() + 1..].to_owned();
            let congestion = congestion.to_owned();
            found.push(Background { called: called.clone(), congestion, id });
        }
        find_backgrounds(&child, &called, depth - 1, found);
    }
}

/// The cgroups directly inside a cgroup.
pub(crate) fn children(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
}

fn reap_below(directory: &Path, depth: usize, alive: &mut Vec<String>) {
    if depth == 0 {
        return;
    }
    for child in children(directory) {
        reap_below(&child, depth - 1, alive);
        let Some(congestion) =
            child.file_name().and_then(|name| name.to_str()).and_then(congestion_of)
        else {
            continue;
        };
        if !reap_one(&child) {
            alive.push(congestion.to_owned());
        }
    }
}

/// Whether the cgroup no longer exists.
fn reap_one(path: &Path) -> bool {
    let lock = match File::open(path) {
        Ok(lock) => lock,
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
    };
    match lock.try_lock() {
        Ok(()) => remove_empty(path),
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}

/// Removes a cgroup without processes, and those that the program made inside it. While the program runs, an
/// empty one is for a process that it is about to move there.
fn remove_empty(path: &Path) -> bool {
    if is_populated(path) {
        return false;
    }
    for child in children(path) {
        if child.file_name().and_then(|name| name.to_str()).and_then(congestion_of).is_none() {
            remove_empty(&child);
        }
    }
    match fs::remove_dir(path) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Whether the cgroup or one inside it has processes.
fn is_populated(path: &Path) -> bool {
    let events = fs::read_to_string(path.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == "populated 1")
}

/// A cgroup of Lull, locked against removal by others.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
    /// By its name in `/proc/PID/cgroup`.
    called: PathBuf,
    directory: File,
}

impl Cgroup {
    /// `parent` is below the root of the hierarchy; None if it is threaded.
    fn create_in(
        hierarchy: &Hierarchy,
        parent: &Path,
        congestion: &str,
    ) -> io::Result<Option<Self>> {
        let pid = std::process::id();
        let mut count = 0;
        loop {
            let below = parent.join(format!("{PREFIX}{congestion}.{pid}.{count}"));
            let path = hierarchy.path().join(&below);
            match fs::create_dir(&path) {
                Ok(()) => {}
                // Left over, or of a process with the same id in another namespace.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    count += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let Some(directory) = lock_existing(&path)? else { continue };
            let cgroup = Cgroup { path, called: hierarchy.top.join(below), directory };
            let kind = fs::read_to_string(cgroup.path.join("cgroup.type")).unwrap_or_default();
            if kind.trim() == "domain invalid" {
                cgroup.remove();
                return Ok(None);
            }
            return Ok(Some(cgroup));
        }
    }

    /// The directory, for attaching programs.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The directory, for writing attributes.
    pub(crate) fn directory(&self) -> &File {
        &self.directory
    }

    /// The kernel's id of the cgroup.
    pub(crate) fn id(&self) -> u64 {
        self.directory.metadata().map_or(0, |metadata| metadata.ino())
    }

    /// `cgroup.procs`, open for writing.
    pub(crate) fn procs(&self) -> Result<OwnedFd> {
        fs::OpenOptions::new()
            .write(true)
            .open(self.path.join("cgroup.procs"))
            .map(OwnedFd::from)
            .map_err(Error::io("open the cgroup's list of processes"))
    }

    /// Moves a process with all its threads.
    pub(crate) fn admit(&self, pid: i32) -> Result<()> {
        move_to(&self.path, pid)
    }

    /// Whether a process is in the cgroup or in one inside it.
    ///
    /// # Errors
    /// If there is no such process.
    pub(crate) fn holds(&self, pid: i32) -> io::Result<bool> {
        Ok(cgroup_of(pid)?.starts_with(&self.called))
    }

    /// By its name in `/proc/PID/cgroup`.
    pub(crate) fn called(&self) -> &Path {
        &self.called
    }

    /// The processes of the cgroup and of those inside it.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let mut processes = Vec::new();
        list_processes(&self.path, DEEPEST, &mut processes);
        processes
    }

    /// Removes the cgroup unless a process is left in it; returns whether it is gone.
    pub(crate) fn remove(self) -> bool {
        // A process that has just been waited for may be counted for a short time.
        for _ in 0..50 {
            if remove_empty(&self.path) {
                return true;
            }
            if !self.processes().is_empty() {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        false
    }
}

fn move_to(cgroup: &Path, pid: i32) -> Result<()> {
    match fs::write(cgroup.join("cgroup.procs"), pid.to_string()) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(Error::NoProcess { pid }),
        Err(source) => Err(Error::CannotMove { pid, source }),
    }
}

/// Another `lull` holds a lock while it loads a congestion control; one that was stopped meanwhile holds it
/// forever. One of hundreds of waiting processes may not get it in time either.
const MAX_WAIT: Duration = Duration::from_secs(60);

fn lock_in_time(directory: &File) -> io::Result<()> {
    let until = Instant::now() + MAX_WAIT;
    loop {
        match directory.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => {
                let text = "other processes have locked it for a minute; fuser(1) lists them";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
    }
}

/// Locks a directory that other processes remove after locking it, too; None if they were faster.
pub(crate) fn lock_existing(path: &Path) -> io::Result<Option<File>> {
    let directory = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    lock_in_time(&directory)?;
    match fs::metadata(path) {
        Ok(now) if now.ino() == directory.metadata()?.ino() => Ok(Some(directory)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn list_processes(directory: &Path, depth: usize, processes: &mut Vec<i32>) {
    if depth == 0 {
        return;
    }
    let list = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    // Zero stands for a process outside this PID namespace.
    let numbers = list.lines().filter_map(|line| line.parse::<i32>().ok());
    processes.extend(numbers.filter(|&pid| pid != 0));
    for child in children(directory) {
        list_processes(&child, depth - 1, processes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cgroup_is_the_line_of_the_unified_hierarchy() {
        assert_eq!(own_cgroup("4:memory:/a\n0::/user.slice/b\n"), Path::new("/user.slice/b"));
        assert_eq!(own_cgroup("4:memory:/a\n"), Path::new("/"));
        assert_eq!(own_cgroup("0::/../../x\n"), Path::new("/"));
    }

    #[test]
    fn moved_process_belongs_to_its_earlier_cgroup() {
        for (text, home) in [
            ("0::/a.service\n", "/a.service"),
            ("0::/a.service/lull.nice.12.0\n", "/a.service"),
            ("0::/lull.nice.12.0/lull.reno.13.0\n", "/"),
            ("0::/lull.nice.12.0/its.own\n", "/lull.nice.12.0/its.own"),
            ("0::/\n", "/"),
        ] {
            assert_eq!(without_ours(cgroup_in(text)), Path::new(home), "{text}");
        }
    }

    #[test]
    fn only_own_names_are_recognised() {
        assert_eq!(congestion_of("lull.nice.12.0"), Some("nice"));
        assert_eq!(congestion_of("lull.nice_2.12.3"), Some("nice_2"));
        assert_eq!(congestion_of("lull.dctcp-2.x.12.3"), Some("dctcp-2.x"));
        for name in ["lull", "lull.nice", "lull.nice.12", "lull.nice.x.0", "lull.nice.1.", "nice"] {
            assert_eq!(congestion_of(name), None, "{name}");
        }
    }
}
