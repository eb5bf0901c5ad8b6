//! A relay's connections from its children.

use std::collections::BTreeMap;
use std::io;
use std::net::{self, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lull_replication::Pin;
use lull_replication::message::{Channel, Frame, Session, ToOrigin};
use lull_replication::origin::{Config, Event, Origin, ReadsPerWriteAndByte};
use lull_replication::path::Path;
use lull_replication::relay::Relay;
use lull_replication::replica::Replica;
use lull_replication::time::Reading;
use lull_replication::types::{Digest, ReplicaId, Sequence};
use lull_replication::wire::Attach;
use lull_transport::Options;
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{Core, ReplicaEvent, ReplicaHandle, Shared, lock};
use crate::daemon::accept::Accepts;
use crate::daemon::bodies::Serves;
use crate::daemon::child::Source;
use crate::daemon::child::{Link, Sent};
use crate::daemon::chunk_lists::ChunkLists;
use crate::daemon::clock::certificate_time;
use crate::daemon::link::{Incoming, Outgoing, answer, prepare, soon};
use crate::daemon::outlines::Outlines;
use crate::daemon::priority::ConnectionPriority;
use crate::daemon::serving::{End, Links};
use crate::daemon::spool::Spool;
use crate::daemon::unidentified::ConnectionSlot;
use crate::daemon::{Clock, DaemonError, LinkError, accept, fetches, serving};
use crate::identity::{ReplicaIdentity, is_of_receiver};
use crate::store::{Body, BodyReader};

/// How long a receiver waits for a body that is not here, at most.
const BRINGS: Duration = Duration::from_secs(60);

/// The options of a relay.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// The listening address for replicas.
    pub listen: String,
    /// How speculative bodies are sent.
    pub background: Options,
}

/// Where a relay listens.
pub(super) struct Listening {
    listener: TcpListener,
    background: Options,
}

impl RelayOptions {
    /// Makes a relay of a replica. It waits for connections from now on.
    pub(super) fn open(
        self,
        now: Reading,
        identity: &ReplicaIdentity,
        clock: &Arc<dyn Clock>,
        replica: &mut Replica<Body>,
    ) -> Result<(Children, Listening), DaemonError> {
        let RelayOptions { listen, background } = self;
        let bind = || -> io::Result<TcpListener> {
            let listener = net::TcpListener::bind(&listen)?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        let listener =
            bind().map_err(|source| DaemonError::Listen { address: listen.clone(), source })?;
        // It says at once if it may not.
        identity.accept(certificate_time(clock))?;
        let (config, policy) = (Config::default(), Box::new(ReadsPerWriteAndByte));
        let relay = Relay::new(now, config, policy, replica);
        let children = Children { relay, all: BTreeMap::new(), sent: BTreeMap::new() };
        Ok((children, Listening { listener, background }))
    }
}

/// A child, by the certificate that it has shown.
struct Child {
    link: Arc<Link>,
    certificate: Digest,
}

/// The part of a relay behind the lock.
pub(super) struct Children {
    relay: Relay<Body>,
    all: BTreeMap<ReplicaId, Child>,
    sent: BTreeMap<ReplicaId, Arc<Sent>>,
}

impl Children {
    /// After each call of the replica: passes on what is new. Returns whether work is left.
    pub(super) fn pump(&mut self, now: Reading, replica: &mut Replica<Body>) -> bool {
        self.relay.handle_replica(now, replica);
        let mut has_news = self.relay.take_news();
        while let Some(event) = self.relay.poll_event() {
            match event {
                Event::Close(child) => self.give_up(child),
                Event::Turned { .. } => has_news = true,
                Event::Urgency(child) => {
                    if let Some(child) = self.all.get(&child) {
                        child.link.wake_all();
                    }
                }
                _ => {}
            }
        }
        while self.relay.origin().poll_garbage().is_some() {}
        if has_news {
            self.all.values().for_each(|child| child.link.wake_all());
        }
        self.relay.origin().has_more()
    }

    /// Does a part of the work that is left.
    pub(super) fn go_on(&mut self, now: Reading, replica: &mut Replica<Body>) {
        if self.relay.origin().has_more() {
            self.relay.go_on(now, replica);
        }
    }

    fn give_up(&mut self, child: ReplicaId) {
        if let Some(child) = self.all.remove(&child) {
            child.link.end();
        }
    }

    fn is_current(&self, link: &Arc<Link>) -> bool {
        self.all.get(&link.replica).is_some_and(|child| Arc::ptr_eq(&child.link, link))
    }

    /// A child says hello. Another machine cannot end its connections: its certificate is another one.
    fn greet(
        &mut self,
        now: Reading,
        replica: &mut Replica<Body>,
        certificate: Digest,
        hello: Frame<ToOrigin>,
    ) -> Result<Arc<Link>, LinkError> {
        let ToOrigin::Hello { replica: id, .. } = hello.message else {
            return Err(LinkError::Order);
        };
        if self.all.get(&id).is_some_and(|child| child.certificate != certificate) {
            return Err(LinkError::GivenUp);
        }
        self.give_up(id);
        let sent = Arc::clone(self.sent.entry(id).or_default());
        let link = Arc::new(Link::new(id, hello.session, sent));
        self.all.insert(id, Child { link: Arc::clone(&link), certificate });
        self.relay.handle_hello(now, replica, (id, certificate), hello);
        Ok(link)
    }

    /// The link of a session, to whose child this certificate belongs.
    fn find(&self, session: Session, certificate: Digest) -> Option<Arc<Link>> {
        let has = |(id, child): &(&ReplicaId, &Child)| {
            child.certificate == certificate && self.relay.has_session(**id, session)
        };
        self.all.iter().find(has).map(|(_, child)| Arc::clone(&child.link))
    }

    fn end(&mut self, now: Reading, replica: &mut Replica<Body>, link: &Arc<Link>) {
        link.end();
        if self.is_current(link) {
            self.all.remove(&link.replica);
        }
        self.relay.handle_disconnected(now, replica, link.replica, link.session);
    }
}

impl Core {
    /// The parts of a relay.
    fn relay(&mut self) -> Option<(&mut Children, &mut Replica<Body>)> {
        Some((self.children.as_mut()?, &mut self.machine))
    }
}

impl Shared {
    /// Does something with the children of a relay.
    fn with_children<T>(
        &self,
        call: impl FnOnce(&mut Children, &mut Replica<Body>, Reading) -> Result<T, LinkError>,
    ) -> Result<T, LinkError> {
        self.with(|core, now| {
            let (children, replica) = core.relay().ok_or(LinkError::GivenUp)?;
            call(children, replica, now)
        })
    }
}

impl Shared {
    /// Whether this is a relay.
    pub(super) fn is_relay(&self) -> bool {
        lock(&self.core).children.is_some()
    }

    /// Does something with the state machine of a relay; none if this is none, or a call has panicked.
    pub(super) fn with_relay<T>(&self, call: impl FnOnce(&mut Relay<Body>) -> T) -> Option<T> {
        self.try_with(|core, _| core.children.as_mut().map(|children| call(&mut children.relay)))?
    }
}

impl Serves for Shared {
    fn with_machine<T>(&self, call: impl FnOnce(&mut Origin<Body>) -> T) -> T {
        self.with(|core, _| {
            let children = core.children.as_mut().expect("only a relay serves");
            call(children.relay.origin())
        })
    }

    fn with_link<T>(
        &self,
        link: &Arc<Link>,
        call: impl FnOnce(&mut Origin<Body>) -> T,
    ) -> Result<T, LinkError> {
        self.with_children(|children, _, _| {
            let is_current = children.is_current(link);
            is_current.then(|| call(children.relay.origin())).ok_or(LinkError::GivenUp)
        })
    }

    fn pin(&self, digest: &Digest) -> Option<Pin> {
        self.with(|core, _| core.machine.pin(digest))
    }

    fn unpin(&self, pin: Pin) {
        self.try_with(|core, _| core.machine.unpin(pin));
    }

    fn handle_missing(&self, digest: &Digest) {
        self.with(|core, now| core.machine.handle_missing(now, digest));
    }

    fn body_reader(&self) -> &BodyReader {
        &self.body_reader
    }

    fn outlines(&self) -> &Outlines {
        &self.outlines
    }

    fn chunk_lists(&self) -> &ChunkLists {
        &self.chunk_lists
    }

    async fn bring(self: &Arc<Self>, path: &Path) {
        let handle = ReplicaHandle(Arc::clone(self));
        // If it does not come in time, the receiver asks again.
        let _ = handle.object(path, Sequence::ZERO, Some(BRINGS)).await;
    }

    fn spool(&self, digest: &Digest) -> Option<Arc<Spool>> {
        let spools = lock(&self.spools);
        let of = |demand| spools.get(&(*digest, demand)).cloned();
        of(true).or_else(|| of(false))
    }
}

impl Accepts for Shared {
    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn stopped(&self) -> impl Future<Output = ()> + Send {
        Shared::stopped(self)
    }

    fn handle_rejected(&self, from: SocketAddr, why: &LinkError) {
        let why = why.to_string();
        (self.on_event)(ReplicaEvent::ChildRejected { from, why });
    }
}

/// Accepts connections until the daemon ends, and then waits for the open ones to end.
pub(super) async fn accept(shared: Arc<Shared>, listening: Listening) {
    let Listening { listener, background } = listening;
    if let Ok(address) = listener.local_addr() {
        (shared.on_event)(ReplicaEvent::Relaying(address));
    }
    let background = Arc::new(background);
    accept::accept(shared, listener, move |shared, tcp, from, slot| {
        let background = Arc::clone(&background);
        async move { serve(&shared, tcp, from, slot, &background).await }
    })
    .await;
}

/// One connection, from its first packet to its end. An error means that it was never established.
async fn serve(
    shared: &Arc<Shared>,
    tcp: TcpStream,
    from: SocketAddr,
    slot: ConnectionSlot,
    background: &Options,
) -> Result<(), LinkError> {
    prepare(&tcp)?;
    let config = lock(&shared.identity).accept(certificate_time(&shared.clock))?;
    let mut stream = soon(async { Ok(TlsAcceptor::from(config).accept(tcp).await?) }).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|shown| shown.first());
    // Certificates are known by this hash. The origin says to which replica one belongs.
    let certificate = shown.map(|first| Digest::of(first)).ok_or(LinkError::Order)?;
    let is_receiver = shown.is_some_and(is_of_receiver);
    match soon(answer(&mut stream)).await? {
        Channel::Control => control(shared, certificate, from, slot, stream).await,
        Channel::Fetch if is_receiver => {
            let _guard = background.guard(stream.get_ref().0)?;
            drop(slot);
            fetches::serve(shared, stream).await
        }
        Channel::Enrolment | Channel::Fetch | Channel::Exchange => Err(LinkError::Order),
        channel => {
            let tcp = stream.get_ref().0;
            let priority = match channel {
                Channel::Speculative => Some(ConnectionPriority::background(background, tcp)?),
                _ => None,
            };
            attached(shared, certificate, channel, slot, (stream, priority)).await
        }
    }
}

/// The control connection of a child.
async fn control(
    shared: &Arc<Shared>,
    certificate: Digest,
    from: SocketAddr,
    slot: ConnectionSlot,
    stream: impl AsyncRead + AsyncWrite,
) -> Result<(), LinkError> {
    let (read, write) = split(stream);
    let mut incoming = Incoming::<_, ToOrigin>::new(read);
    let hello = soon(incoming.next()).await?;
    let greet = |children: &mut Children, replica: &mut Replica<Body>, now| {
        children.greet(now, replica, certificate, hello)
    };
    let link = shared.with_children(greet)?;
    let _ = link.source.set(Source { ip: from.ip(), certificate });
    let end = End { shared: &**shared, link: &link };
    drop(slot);
    (shared.on_event)(ReplicaEvent::ChildConnected { child: link.replica, from });
    let ended = serving::control(&**shared, &link, &mut incoming, Outgoing::new(write)).await;
    drop(end);
    let why = ended.err().map_or_else(|| "it was refused".to_owned(), |why| why.to_string());
    (shared.on_event)(ReplicaEvent::ChildDisconnected { child: link.replica, why });
    Ok(())
}

impl Links for Shared {
    fn speak<T>(
        &self,
        link: &Arc<Link>,
        call: impl FnOnce(&mut Origin<Body>, Reading) -> Result<T, LinkError>,
    ) -> Result<T, LinkError> {
        self.with_children(|children, _, now| {
            let is_current = children.is_current(link);
            is_current.then_some(()).ok_or(LinkError::GivenUp)?;
            call(children.relay.origin(), now)
        })
    }

    fn handle_frame(&self, link: &Arc<Link>, frame: Frame<ToOrigin>) -> Result<(), LinkError> {
        self.with_children(|children, replica, now| {
            if !children.is_current(link) {
                return Err(LinkError::GivenUp);
            }
            children.relay.handle_child(now, replica, link.replica, frame);
            Ok(())
        })
    }

    fn end(&self, link: &Arc<Link>) {
        self.try_with(|core, now| {
            if let Some((children, replica)) = core.relay() {
                children.end(now, replica, link);
            }
        });
    }

    fn links(&self) -> Vec<Arc<Link>> {
        let core = lock(&self.core);
        let children = core.children.iter().flat_map(|children| children.all.values());
        children.map(|child| Arc::clone(&child.link)).collect()
    }
}

/// A connection for bodies. It ends with its session.
async fn attached(
    shared: &Arc<Shared>,
    certificate: Digest,
    channel: Channel,
    slot: ConnectionSlot,
    (stream, priority): (impl AsyncRead + AsyncWrite, Option<ConnectionPriority>),
) -> Result<(), LinkError> {
    let (read, write) = split(stream);
    let mut incoming = Incoming::<_, Attach>::new(read);
    let session = soon(incoming.next()).await?.session;
    let link = shared.with_children(|children, _, _| {
        children.find(session, certificate).ok_or(LinkError::GivenUp)
    })?;
    drop(slot);
    let connection = (&mut incoming, Outgoing::new(write));
    serving::attached(shared, &link, channel, priority, connection).await
}
