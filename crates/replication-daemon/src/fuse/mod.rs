//! A replica as a read-only file system (feature `fuse`).
//!
//! - The read is `open`: the state machine answers it like any read, under the lease, in order, with its
//!   body.
//! - An open file keeps its version: each version has its own inode, see `nodes`. So pages never go stale,
//!   and are kept.
//! - No name outlives the lease: the kernel caches a name while the answer holds, and drops all names before
//!   another state is shown. Missing names and attributes of folders are not cached.
//! - A listing is one read of all its names, when the folder is opened.
//! - A past state is a folder below `.lull`: it never changes, so it needs neither lease nor order.
//! - A waiting request can be interrupted: it is a task. The kernel's interrupt ends it, and its read.
//! - A read of an open file blocks no other request. It is not a read of the state: for pages the kernel
//!   sends no interrupt, even if the process is killed.
//! - A user without search permission for a folder finds nothing in it: names in a folder that not all users
//!   may search are not cached.
//!
//! All processes that read through one mount are one session: one replica answers them, from a state
//! that only goes forward.
//!
//! A few threads take the kernel's requests. They answer at once if they can; a request that has to wait, for
//! the origin or for a disk, is handed to the runtime. The protocol itself is in `abi`: see `docs/adr` for
//! why no library implements it here.

mod abi;
mod device;
mod files;
mod handles;
mod listing;
mod nodes;
mod point;
mod remembered;

use std::fs::File;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use tokio::task::spawn_blocking;

use crate::daemon::ReplicaHandle;
use abi::{Answer, Operation};
use files::Files;
use point::Point;

pub(crate) use nodes::number_of;
pub use point::MountError;
pub(crate) use point::mounted_at;

/// Threads that take requests, at most: others do the slow parts.
const THREADS: usize = 4;

/// A half-done change after a panic is not continued: later callers panic as well, and the mount ends.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("another thread of the mount has panicked")
}

/// Why a mount has ended without a request of this process.
#[derive(Debug)]
pub enum Ended {
    /// Another process has unmounted it.
    Unmounted,
    /// It has failed, perhaps with a half-done change, and was unmounted: its process should end.
    Failed(io::Error),
}

/// A replica's files, mounted in a folder. They are unmounted when this is dropped.
#[derive(Debug)]
pub struct Mounted {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    files: Arc<Files>,
    point: Mutex<Point>,
    /// It ends, on request or because it was unmounted.
    ending: AtomicBool,
}

impl Mounted {
    /// How many threads take the kernel's requests of each mount.
    pub fn threads() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from).min(THREADS)
    }

    /// Returns why nothing can be mounted in a folder, as far as that can be known beforehand.
    ///
    /// # Errors
    /// As for [`open`](Mounted::open).
    pub fn check(folder: &FilePath) -> Result<(), MountError> {
        Point::check(folder).map(drop)
    }

    /// Mounts the replica's files in an empty folder, inside a Tokio runtime. A read that cannot be answered
    /// waits for `patience` at most, or without a limit. `gone` is called when the mount ends unrequested.
    ///
    /// # Errors
    /// If the folder, the rights or the kernel do not permit it.
    pub fn open(
        folder: &FilePath,
        replica: ReplicaHandle,
        patience: Option<Duration>,
        gone: impl Fn(Ended) + Send + Sync + 'static,
    ) -> Result<Self, MountError> {
        let (point, device) = Point::mount(folder)?;
        let system = |source| MountError::System { path: folder.to_owned(), source };
        negotiate(&device).map_err(system)?.ok_or(MountError::Kernel)?;
        let files = Arc::new(Files::new(device, replica, patience));
        files.remember();
        let shared =
            Arc::new(Shared { files, point: Mutex::new(point), ending: AtomicBool::new(false) });
        let gone = Arc::new(gone);
        let mut mounted = Mounted { shared, threads: Vec::new() };
        for _ in 0..Self::threads() {
            let (shared, gone) = (Arc::clone(&mounted.shared), Arc::clone(&gone));
            let listen = move || {
                let end = catch_unwind(AssertUnwindSafe(|| listen(&shared.files)));
                // Only the end remains.
                let end = end.unwrap_or_else(|_| io::Error::other("a thread of it has panicked"));
                if !shared.ending.swap(true, Ordering::SeqCst) {
                    gone(shared.end(end));
                }
            };
            let thread = Builder::new().name("lull-mount".to_owned()).spawn(listen);
            mounted.threads.push(thread.map_err(system)?);
        }
        Ok(mounted)
    }

    /// The full path of the folder.
    pub fn path(&self) -> PathBuf {
        self.shared.point().path().to_owned()
    }

    /// Whether the kernel caches names, which Linux 6.16 and later can do here; and the number of its
    /// lookups.
    pub fn lookups(&self) -> (bool, u64) {
        self.shared.files.lookups()
    }

    /// Unmounts it. Waiting reads get an error; open files become unusable.
    ///
    /// # Errors
    /// If the system refuses.
    pub async fn close(mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let threads = core::mem::take(&mut self.threads);
        let close = move || {
            match shared.unmount() {
                Ok(()) => {}
                // Another process has unmounted it while it was in use; it ends with this process.
                Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => return Ok(()),
                Err(error) => return Err(error),
            }
            for thread in threads {
                // The result of a panicked thread is of no interest.
                let _ = thread.join();
            }
            Ok(())
        };
        spawn_blocking(close).await.unwrap_or(Ok(()))
    }
}

impl Shared {
    /// The lock is taken even if a thread has panicked: the folder has to be unmounted.
    fn point(&self) -> MutexGuard<'_, Point> {
        self.point.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No more requests are taken because of this error.
    fn end(&self, why: io::Error) -> Ended {
        let mut point = self.point();
        let ended = match why.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENODEV) => {
                point.forget();
                Ended::Unmounted
            }
            // Requests that no thread takes would wait for ever.
            other => {
                let _ = point.unmount();
                // By /sys/fs/fuse/connections.
                if other == Some(Errno::ECONNABORTED) {
                    Ended::Unmounted
                } else {
                    Ended::Failed(why)
                }
            }
        };
        self.files.end();
        ended
    }

    fn unmount(&self) -> io::Result<()> {
        self.ending.store(true, Ordering::SeqCst);
        let unmounted = self.point().unmount();
        self.files.end();
        unmounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // No receiver is left for the error.
        let _ = self.shared.unmount();
    }
}

/// Agrees with the kernel on the protocol; none if it is too old.
fn negotiate(mut device: &File) -> io::Result<Option<()>> {
    let mut bytes = vec![0; abi::MAX_REQUEST_BYTES];
    let length = device.read(&mut bytes)?;
    let request = bytes.get(..length).and_then(abi::parse);
    let Some((unique, Operation::Begin { major, minor, readahead })) =
        request.map(|request| (request.unique, request.operation))
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let answer = Answer::init(major, minor, readahead);
    device::answer(device, unique, answer.as_ref().map(Answer::bytes).ok_or(Errno::EPROTO))?;
    Ok(answer.map(drop))
}

/// Takes requests until there are no more; returns why they ended.
fn listen(files: &Arc<Files>) -> io::Error {
    let mut bytes = vec![0; abi::MAX_REQUEST_BYTES];
    loop {
        match files.device().read(&mut bytes) {
            Ok(length) => files.serve(bytes.get(..length).unwrap_or_default()),
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                // The request was cancelled before this thread took it, or this thread got a signal.
                Some(Errno::ENOENT | Errno::EINTR | Errno::EAGAIN) => {}
                _ => return error,
            },
        }
    }
}
