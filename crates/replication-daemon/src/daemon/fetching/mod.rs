//! A one-off receiver: gets objects from an origin or a relay, and continues where it was cut off.

mod part;
mod place;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lull_replication::message::{Channel, Frame, Session};
use lull_replication::path::Path;
use lull_replication::types::Version;
use lull_replication::wire::{Assembly, Delivery, FromSource, ToSource};
use rustls::CertificateError;
use thiserror::Error;
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tokio_rustls::client::TlsStream;

use super::clock::certificate_time;
use super::enrol::{dial, enrol_receiver};
use super::link::{Incoming, Outgoing};
use super::{Clock, DaemonError, LinkError};
use crate::error_chain::error_chain;
use crate::identity::{AddressError, ReplicaIdentity, Ticket, check_address};
use crate::remedies;

pub use part::Target;
use part::{FilePart, Stream};
pub use place::Fetched;

/// Without a byte for this long, the connection has ended. In the background there are long pauses.
const SILENCE: Duration = Duration::from_secs(120);
/// Attempts without a new piece, until it gives up. They take 30 s and the times of the connections.
const ATTEMPTS: u32 = 6;
/// The pause behind the first of them, which doubles each time.
const PAUSE: Duration = Duration::from_secs(1);

/// Why something was not fetched.
#[derive(Debug, Error)]
pub enum FetchError {
    /// The receiver was not admitted.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The address is malformed.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No connection is possible, or it breaks each time.
    #[error(
        "cannot fetch from {address}: {}; check the address, and fetch again to continue",
        error_chain(why)
    )]
    Source {
        /// The address.
        address: String,
        /// Why.
        why: LinkError,
    },
    /// The peer does not know receivers.
    #[error(
        "{address} serves no receivers: name the address of `lull origin run --listen` or `lull replica run --relay` \
         of this release, and a ticket that was not revoked"
    )]
    NotServed {
        /// The address.
        address: String,
    },
    /// There is no such object.
    #[error("there is no `{name}` at {address}{}", suggested(.near))]
    Unknown {
        /// The name.
        name: Path,
        /// Where.
        address: String,
        /// Names that are like it.
        near: Vec<Path>,
    },
    /// Nothing is published.
    #[error("nothing is published at {0}: publish files with `lull publish`")]
    Nothing(String),
    /// It is gone.
    #[error("`{0}` was deleted meanwhile: fetch again to get what is there now")]
    Deleted(Path),
    /// Its first part was written to a stream.
    #[error(
        "`{0}` was overwritten while it was fetched, and its first part is written: fetch it again"
    )]
    Overwritten(Path),
    /// The body does not come.
    #[error(
        "`{0}` was not sent to its end, the origin may have lost it: publish it again, or fetch it later"
    )]
    CutOff(Path),
    /// Only a file can be written to a stream.
    #[error("`{0}` is not a single file: use --output FOLDER")]
    NotOneFile(Path),
    /// A file cannot be written.
    #[error("cannot write `{}`{}", path.display(), remedies::of_file(source))]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder of the destination is a link, which may lead anywhere.
    #[error("`{}` is a symbolic link: delete it, or use another --output", .0.display())]
    IsLink(PathBuf),
}

fn suggested(near: &[Path]) -> String {
    let names: Vec<String> = near.iter().map(|one| format!("`{one}`")).collect();
    match &names[..] {
        [] => ": `lull fetch ADDRESS .` gets all files".to_owned(),
        [one] => format!(": did you mean {one}?"),
        [rest @ .., last] => format!(": did you mean {} or {last}?", rest.join(", ")),
    }
}

/// How far a transfer is. The bytes are those of bodies.
#[derive(Debug, Default)]
pub struct FetchProgress {
    /// Bytes of all objects.
    pub total: AtomicU64,
    /// Bytes that are here.
    pub here: AtomicU64,
    /// Bytes that came over the network.
    pub received: AtomicU64,
}

impl FetchProgress {
    fn add(&self, bytes: usize) {
        self.here.fetch_add(bytes as u64, Ordering::Relaxed);
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

type Tls = TlsStream<TcpStream>;

struct Connection {
    incoming: Incoming<ReadHalf<Tls>, FromSource>,
    outgoing: Outgoing<WriteHalf<Tls>>,
}

impl Connection {
    async fn ask(&mut self, message: ToSource) -> Result<(), LinkError> {
        self.outgoing.put(&Frame { session: Session::default(), message })?;
        self.outgoing.flush().await.map(drop)
    }

    async fn answer(&mut self) -> Result<FromSource, LinkError> {
        let next = timeout(SILENCE, self.incoming.next()).await;
        Ok(next.map_err(|_| LinkError::Silent)??.message)
    }
}

/// Why one attempt has failed.
enum Failure {
    /// The next one may succeed.
    Passing(LinkError),
    Fatal(FetchError),
}

impl From<LinkError> for Failure {
    fn from(why: LinkError) -> Self {
        Failure::Passing(why)
    }
}

/// A receiver with a certificate, and an address to fetch from.
pub struct Fetcher {
    identity: ReplicaIdentity,
    address: String,
    is_relay: AtomicBool,
    /// There was a connection: the address is right.
    was_connected: AtomicBool,
    clock: Arc<dyn Clock>,
    /// Kept between objects.
    connection: Mutex<Option<Connection>>,
}

impl core::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Fetcher").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Fetcher {
    /// Gets a certificate from the origin of the ticket, for the origin or a relay at `address`.
    ///
    /// # Errors
    /// If the origin cannot be reached, or rejects the ticket.
    pub async fn enrol(
        ticket: Ticket,
        address: &str,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, FetchError> {
        check_address(address)?;
        let identity = enrol_receiver(ticket, &clock).await?;
        let (address, connection) = (address.to_owned(), Mutex::default());
        let (is_relay, was_connected) = Default::default();
        Ok(Fetcher { identity, address, is_relay, was_connected, clock, connection })
    }

    async fn connect(&self) -> Result<Connection, LinkError> {
        let time = || certificate_time(&self.clock);
        if !self.is_relay.load(Ordering::Relaxed) {
            let stream = dial(&self.address, self.identity.connect(time())?, Channel::Fetch).await;
            match stream {
                Err(LinkError::Io(why)) if has_another_name(&why) => {
                    self.is_relay.store(true, Ordering::Relaxed);
                }
                other => return Ok(connection(other?)),
            }
        }
        let how = self.identity.connect_to_relay(time())?;
        Ok(connection(dial(&self.address, how, Channel::Fetch).await?))
    }

    /// Repeats an attempt until it succeeds, fails for good, or has failed too often without a new piece.
    async fn insist<T>(
        &self,
        progress: &FetchProgress,
        mut attempt: impl AsyncFnMut(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, FetchError> {
        let mut kept = self.connection.lock().await;
        let (mut failed, mut pause) = (0, PAUSE);
        loop {
            let before = progress.received.load(Ordering::Relaxed);
            let is_new = kept.is_none();
            let outcome = match kept.take() {
                Some(connection) => Ok(connection),
                None => self.connect().await,
            };
            let why = match outcome {
                Ok(mut connection) => {
                    self.was_connected.store(true, Ordering::Relaxed);
                    match attempt(&mut connection).await {
                        Ok(value) => {
                            *kept = Some(connection);
                            return Ok(value);
                        }
                        Err(Failure::Fatal(error)) => return Err(error),
                        Err(Failure::Passing(why)) => why,
                    }
                }
                Err(why) if self.was_connected.load(Ordering::Relaxed) => why,
                Err(why) => return Err(self.not_connected(why)),
            };
            if progress.received.load(Ordering::Relaxed) > before {
                (failed, pause) = (0, PAUSE);
            }
            failed += 1;
            if failed == ATTEMPTS {
                return Err(FetchError::Source { address: self.address.clone(), why });
            }
            // One that was kept may have ended meanwhile.
            if is_new {
                sleep(pause).await;
                pause *= 2;
            }
        }
    }

    /// Why the first connection has failed.
    fn not_connected(&self, why: LinkError) -> FetchError {
        let address = self.address.clone();
        match why {
            LinkError::Closed => FetchError::NotServed { address },
            why => FetchError::Source { address, why },
        }
    }

    /// The objects of a name and below it, or all objects.
    ///
    /// # Errors
    /// If there are none, or the connection breaks.
    pub async fn find(&self, name: Option<&Path>) -> Result<Vec<(Path, Version)>, FetchError> {
        let none = FetchProgress::default();
        let found = self.insist(&none, async |connection| {
            connection.ask(ToSource::Find(name.cloned())).await?;
            let mut all = Vec::new();
            loop {
                match connection.answer().await? {
                    FromSource::Found { objects, more } => {
                        all.extend(objects);
                        if !more {
                            return Ok(all);
                        }
                    }
                    FromSource::Unknown(near) => {
                        let (name, address) = (name.cloned(), self.address.clone());
                        let error = match name {
                            Some(name) => FetchError::Unknown { name, address, near },
                            None => FetchError::Nothing(address),
                        };
                        return Err(Failure::Fatal(error));
                    }
                    FromSource::Part(_) => return Err(LinkError::Order.into()),
                }
            }
        });
        let found = found.await?;
        if found.is_empty() { Err(FetchError::Nothing(self.address.clone())) } else { Ok(found) }
    }

    /// Writes the body of an object to a target. Returns its version, which may be a newer one by now.
    async fn get(
        &self,
        path: &Path,
        version: Version,
        target: &mut impl Target,
        progress: &FetchProgress,
    ) -> Result<Version, FetchError> {
        let mut version = version;
        let mut cut_off = 0;
        loop {
            let got = self.insist(progress, async |connection| {
                receive(connection, path, &mut version, target, progress).await
            });
            if got.await? {
                return Ok(version);
            }
            // The connection is well, and the sender has not got all of the body.
            cut_off += 1;
            if cut_off == ATTEMPTS {
                return Err(FetchError::CutOff(path.clone()));
            }
            sleep(PAUSE).await;
        }
    }
}

/// One transfer of a body. Returns whether all of it has come.
async fn receive(
    connection: &mut Connection,
    path: &Path,
    version: &mut Version,
    target: &mut impl Target,
    progress: &FetchProgress,
) -> Result<bool, Failure> {
    let (digest, pieces) = (version.content.digest, target.pieces());
    connection.ask(ToSource::Get { path: path.clone(), digest, pieces }).await?;
    let mut assembly = Assembly::default();
    loop {
        let FromSource::Part(part) = connection.answer().await? else {
            return Err(LinkError::Order.into());
        };
        let (lane, delivery) = assembly.handle(part).map_err(LinkError::from)?;
        let header = match &delivery {
            Delivery::Complete { header, .. } => Some(header),
            _ => assembly.header(lane),
        };
        let header = header.ok_or(LinkError::Order)?;
        let Some(now) = header.version.filter(|_| header.path == *path) else {
            return Err(Failure::Fatal(FetchError::Deleted(path.clone())));
        };
        if now.content.digest != version.content.digest {
            // It was overwritten, and is sent from its beginning on.
            progress.here.fetch_sub(target.bytes(), Ordering::Relaxed);
            if target.bytes() > 0 && !target.restart().map_err(Failure::Fatal)? {
                return Err(Failure::Fatal(FetchError::Overwritten(path.clone())));
            }
            let grown = now.content.size.0.wrapping_sub(version.content.size.0);
            progress.total.fetch_add(grown, Ordering::Relaxed);
        }
        *version = now;
        match delivery {
            Delivery::More | Delivery::Chunks(..) => {}
            Delivery::Bytes(bytes) => {
                target.write(&bytes).map_err(Failure::Fatal)?;
                progress.add(bytes.len());
            }
            Delivery::Complete { intact: false, .. } => return Ok(false),
            Delivery::Complete { last, .. } => {
                target.write(&last).map_err(Failure::Fatal)?;
                progress.add(last.len());
                return Ok(true);
            }
        }
    }
}

fn connection(stream: Tls) -> Connection {
    let (read, write) = split(stream);
    Connection { incoming: Incoming::new(read), outgoing: Outgoing::new(write) }
}

/// Whether TLS has found a certificate of the same authority for another name: that of a relay.
fn has_another_name(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    use CertificateError::{NotValidForName, NotValidForNameContext};
    matches!(
        inner,
        Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
    )
}
