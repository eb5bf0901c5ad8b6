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
//! A state machine is behind a lock that is never held across a wait. Each event is one call under it,
//! followed by all requests of the machine. Events are a frame, a timer, a finished job of the disk, a write,
//! a read. A message is taken from the machine when its connection accepts more, by the connection's task. So
//! nothing is queued for a peer that reads nothing, and the background connection gets a body when there is
//! capacity for one.
//!
//! The three connections of a session end together. A failure of the disk other than lack of space, or a
//! panic of a machine, ends the daemon: it starts again from the disk's contents.

mod accept;
mod bodies;
mod child;
mod chunk_lists;
mod clock;
mod enrol;
mod fetches;
mod fetching;
mod link;
mod neighbours;
mod observed;
mod origin;
mod outlines;
mod price;
mod priority;
mod replica;
mod serving;
mod spool;
#[cfg(test)]
pub(crate) mod testing;
mod unidentified;

use std::io;
use std::sync::Arc;
use std::thread::panicking;
use std::time::Duration;

use lull_replication::message::NotEnrolled;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

pub use clock::{Clock, MachineClock, SkewedClock};
pub use enrol::join;
pub use fetching::{FetchError, FetchProgress, Fetched, Fetcher, Target};
pub use link::LinkError;
pub(crate) use origin::HeldBodies;
pub use origin::{
    DistributionStatus, HeldBody, HostStatus, OriginDaemon, OriginEvent, OriginHandle,
    OriginOptions, OriginStatus, PeerStatus, Tree, WriteError, create_origin,
};
pub use price::bytes_per_read;
use price::reads_per_gb;
pub use replica::{
    Found, OutageStatus, Pending, ReadError, RelayOptions, ReplicaDaemon, ReplicaEvent,
    ReplicaHandle, ReplicaOptions, ReplicaStatus, ShareOptions,
};

pub(crate) use observed::{ObservedStream, Way};
pub(crate) use replica::Retries;

pub(crate) use clock::certificate_time;
pub(crate) use enrol::{dial, enrol};
pub(crate) use link::{Incoming, Outgoing};

use crate::identity::{IdentityError, OtherOrigin, RotationError, TicketError};
use crate::remedies;
use crate::store::{BodyReader, Done, State, Store, StoreError, Worker};

/// Gives a store its threads, which report results to the daemon. They do not keep it alive.
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
    let on_done = move |result| {
        if let Some(daemon) = daemon.upgrade() {
            done(&daemon, result);
        }
    };
    Worker::spawn(store, on_done).map_err(DaemonError::Thread)
}

/// Does something if a panic begins before it is dropped.
struct OnPanic<F: Fn()> {
    then: F,
    /// Whether the thread was panicking before: nothing has to be done.
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

/// Ends the threads of a store after their jobs.
async fn end<T: Send + 'static>(worker: Option<Worker<T>>) {
    // Joins them.
    let _ = spawn_blocking(move || drop(worker)).await;
}

/// Concurrent calls of stores. Each takes a thread of the runtime and, in `object_store`, waits for a second
/// one. If all 512 threads waited for their second one, none would ever continue.
static CALLS: Semaphore = Semaphore::const_new(128);

/// Runs work on a store on another thread; none only at the end of the runtime. It is finished even if its
/// caller has gone.
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

/// Asks for a body. If the machine is out of a resource, it is retried, for at most `patience` if given.
async fn read_with_retries<T: Send + 'static>(
    body_reader: &BodyReader,
    patience: Option<Duration>,
    ask: impl Fn(&BodyReader) -> Result<T, StoreError> + Clone + Send + 'static,
) -> Result<T, StoreError> {
    const PAUSE: Duration = Duration::from_millis(50);
    let mut left = patience;
    loop {
        let (body_reader, ask) = (body_reader.clone(), ask.clone());
        let found = blocking(move || ask(&body_reader)).await;
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
    #[error("cannot listen on {address}{}", remedies::of_address(source))]
    Listen {
        /// Which.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Data cannot be sent in the background as configured.
    #[error(transparent)]
    Background(#[from] lull_transport::Error),
    /// The system gives no thread.
    #[error("the system gives no thread")]
    Thread(#[source] io::Error),
    /// The origin cannot be reached.
    #[error("cannot reach the origin at {address}")]
    Origin {
        /// The address.
        address: String,
        /// Why.
        #[source]
        why: LinkError,
    },
    /// The origin is not that of the ticket.
    #[error(transparent)]
    OtherOrigin(#[from] OtherOrigin),
    /// The ticket is for another purpose.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// The origin issues no certificate.
    #[error(transparent)]
    NotEnrolled(#[from] NotEnrolled),
    /// The authority cannot be replaced now.
    #[error(transparent)]
    Rotation(#[from] RotationError),
    /// There is no replica of that name.
    #[error("there is no replica `{0}`: `lull status DIR` lists them")]
    NoReplica(String),
    /// No replica has such a name.
    #[error("no replica matches `{0}`: `lull status DIR` lists them")]
    NoMatch(String),
    /// The replica exists, but has not joined.
    #[error("replica `{0}` has not joined, or was revoked, so it gets no state")]
    NotJoined(String),
    /// A call of its state machine has panicked.
    #[error(
        "the daemon has panicked, which is a bug: start it again; it continues from its last \
             durable state"
    )]
    Panicked,
}
