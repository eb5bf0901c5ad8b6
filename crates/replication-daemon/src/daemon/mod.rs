//! Origin and replica as daemons: the pure state machines over TCP with TLS of both sides, stores on
//! a disk, and the machine's clocks (feature `daemon`).
//!
//! ```text
//!            writes                                                    reads
//!              │                                                         ▲
//!   store ◀─ Origin ─ control ═══ invalidations, heartbeats ═══▶ ┐       │
//!   thread     │  └── demand  ═══ bodies that a read waits for ═▶ ├─ Replica ─▶ store
//!              └───── background ═ bodies that may be wanted ═══▶ ┘    thread
//! ```
//!
//! A state machine stands behind a lock that is never held across a wait. Whatever happens - a frame,
//! a timer, a disk that is done, a write, a read - is one call under it, followed by all that the
//! machine asks for. What goes out by a connection is asked for when that connection takes more, by a
//! task of its own; so nothing is queued for a peer that takes nothing, and the background connection
//! gets a body when there is capacity for one.
//!
//! The three connections of a session end together. A disk that fails other than by having no room, or a
//! machine that panics, ends the daemon: it starts again from what is on the disk.

mod clock;
mod enrol;
mod link;
mod observed;
mod origin;
mod outlines;
mod replica;
#[cfg(test)]
pub(crate) mod testing;

use std::io;
use std::sync::Arc;
use std::thread::panicking;
use std::time::Duration;

use lull_replication::message::NotEnrolled;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

pub use clock::{BentClock, Clock, MachineClock};
pub use enrol::join;
pub use link::LinkError;
pub(crate) use origin::HeldBodies;
pub use origin::{
    HeldBody, OriginDaemon, OriginEvent, OriginHandle, OriginOptions, OriginStatus, PeerStatus,
    Tree, WriteError, create_origin,
};
pub use replica::{
    Found, OutageStatus, Pending, ReadError, ReplicaDaemon, ReplicaEvent, ReplicaHandle,
    ReplicaOptions, ReplicaStatus,
};

pub(crate) use observed::{Observed, Way};
pub(crate) use replica::Tries;

pub(crate) use clock::today;
pub(crate) use enrol::{dial, enrol};
pub(crate) use link::{Incoming, Outgoing};

use crate::identity::{IdentityError, OtherOrigin, RotationError};
use crate::store::{Done, Library, State, Store, StoreError, Worker};
use crate::ways;

/// Gives a store its threads, which tell the daemon what is done. They don't keep it.
fn worker_of<D, S>(
    daemon: &Arc<D>,
    store: Store<S>,
    done: impl Fn(&D, Result<Done, StoreError>) + Send + Sync + 'static,
) -> Result<Worker<S::Step>, DaemonError>
where
    D: Send + Sync + 'static,
    S: State,
{
    let daemon = Arc::downgrade(daemon);
    let tell = move |result| {
        if let Some(daemon) = daemon.upgrade() {
            done(&daemon, result);
        }
    };
    Worker::spawn(store, tell).map_err(DaemonError::Thread)
}

/// Does something if a panic begins before it is dropped.
struct OnPanic<F: Fn()> {
    then: F,
    /// One that has begun before is no matter of its.
    before: bool,
}

impl<F: Fn()> OnPanic<F> {
    fn new(then: F) -> Self {
        OnPanic { then, before: panicking() }
    }
}

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if panicking() && !self.before {
            (self.then)();
        }
    }
}

/// Ends the threads of a store, when they have done what they were asked for.
async fn end<T: Send + 'static>(worker: Option<Worker<T>>) {
    // Joins them.
    let _ = spawn_blocking(move || drop(worker)).await;
}

/// Calls of stores at a time. Each takes a thread of the runtime's for itself and, in `object_store`, waits
/// for a second one: if all of them, which are 512, waited for their second one, none would ever go on.
static CALLS: Semaphore = Semaphore::const_new(128);

/// Does on another thread what asks a store; none at the end of the runtime only. It is done also if
/// nobody waits for it any more.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    // Never closed.
    let place = CALLS.acquire().await.ok()?;
    let work = move || {
        let value = work();
        drop(place);
        value
    };
    spawn_blocking(work).await.ok()
}

/// Asks for a body. What the machine is out of just then comes back, so it is asked again: for `patience`
/// at most, if that has an end.
async fn look<T: Send + 'static>(
    library: &Library,
    patience: Option<Duration>,
    ask: impl Fn(&Library) -> Result<T, StoreError> + Clone + Send + 'static,
) -> Result<T, StoreError> {
    const PAUSE: Duration = Duration::from_millis(50);
    let mut left = patience;
    loop {
        let (library, ask) = (library.clone(), ask.clone());
        let found = blocking(move || ask(&library)).await;
        match found.unwrap_or(Err(StoreError::Stopped)) {
            Err(error) if error.is_passing() && left.is_none_or(|left| !left.is_zero()) => {
                left = left.map(|left| left.saturating_sub(PAUSE));
                tokio::time::sleep(PAUSE).await;
            }
            found => return found,
        }
    }
}

/// Why a daemon does not start, or has ended.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}{}", ways::of_address(source))]
    Listen {
        /// Which.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Nothing can be sent in the background as it is to be.
    #[error(transparent)]
    Background(#[from] lull_transport::Error),
    /// The system gives no thread.
    #[error("the system gives no thread")]
    Thread(#[source] io::Error),
    /// The origin cannot be reached.
    #[error("cannot reach the origin at {address}")]
    Origin {
        /// Where.
        address: String,
        /// Why.
        #[source]
        why: LinkError,
    },
    /// It is not that of the ticket.
    #[error(transparent)]
    OtherOrigin(#[from] OtherOrigin),
    /// The origin gives no certificate.
    #[error(transparent)]
    NotEnrolled(#[from] NotEnrolled),
    /// The authority cannot be replaced now.
    #[error(transparent)]
    Rotation(#[from] RotationError),
    /// There is no replica of that name.
    #[error("there is no replica `{0}`: `lull status DIR` lists them")]
    NoReplica(String),
    /// There is one, which shows nothing.
    #[error("replica `{0}` has not joined, or was revoked: it will show nothing")]
    NotJoined(String),
    /// A call of its state machine has panicked.
    #[error("the daemon has panicked, which is a bug: start again from what is on the disk")]
    Panicked,
}
