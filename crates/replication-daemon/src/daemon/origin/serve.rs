//! Connections from replicas.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lull_replication::message::{
    Channel, Frame, FromAuthority, NotEnrolled, Session, ToAuthority, ToOrigin, ToReplica,
};
use lull_replication::origin::Origin;
use lull_replication::time::Reading;
use lull_replication::types::{Digest, ReplicaId};
use lull_replication::wire::Attach;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, copy, sink, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::{OriginEvent, Shared, lock};
use crate::daemon::accept::Accepts;
use crate::daemon::child::Link;
use crate::daemon::child::Source;
use crate::daemon::clock::certificate_time;
use crate::daemon::link::{Incoming, Outgoing, TIMEOUT, answer, prepare, soon};
use crate::daemon::priority::ConnectionPriority;
use crate::daemon::serving::{End, Links};
use crate::daemon::unidentified::{ConnectionSlot, SlotsExhausted};
use crate::daemon::{Clock, LinkError, accept, fetches, serving};
use crate::error_chain::error_chain;
use crate::identity::{EnrolError, NotAdmitted, Peer};
use crate::store::Body;

/// The maximum number of connections of one replica without a named channel, so that it excludes no other.
const ARRIVING: usize = 16;

impl Accepts for Shared {
    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn stopped(&self) -> impl Future<Output = ()> + Send {
        Shared::stopped(self)
    }

    fn handle_crowd(&self, crowd: SlotsExhausted) {
        let SlotsExhausted { from, closed } = crowd;
        (self.on_event)(OriginEvent::Crowded { from, closed });
    }

    fn handle_rejected(&self, from: SocketAddr, why: &LinkError) {
        (self.on_event)(OriginEvent::Rejected { from, why: error_chain(why) });
    }
}

/// Accepts connections until the daemon ends, and then waits for the open ones to end.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    accept::accept(shared, listener, |shared, tcp, from, slot| async move {
        serve(&shared, tcp, from, slot).await
    })
    .await;
}

/// One connection, from its first packet to its end. An error means that the connection was never
/// established; other ends are reported where they happen.
async fn serve(
    shared: &Arc<Shared>,
    tcp: TcpStream,
    from: SocketAddr,
    slot: ConnectionSlot,
) -> Result<(), LinkError> {
    prepare(&tcp)?;
    let (renewed, config) = {
        let mut identity = lock(&shared.identity);
        let renewed = identity.renew_if_old(shared.clock.read().wall);
        (renewed, identity.accept(certificate_time(&shared.clock))?)
    };
    if let Err(why) = renewed {
        // The current one is valid for months.
        (shared.on_event)(OriginEvent::Identity { why: error_chain(&why) });
    }
    let mut stream = soon(async { Ok(TlsAcceptor::from(config).accept(tcp).await?) }).await?;
    let shown = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
    // Before any byte of it is read.
    let peer = lock(&shared.identity).admit(shown.as_deref());
    let peer = match peer {
        Ok(peer) => peer,
        Err(why) => return reject_peer(stream, why).await,
    };
    let visitor = IdentifiedPeer::new(shared, peer, shown, slot)?;
    let channel = soon(answer(&mut stream)).await?;
    match (peer, channel) {
        (_, Channel::Enrolment) => enrol(visitor, stream).await,
        (Peer::Receiver(_), Channel::Fetch) => {
            let tcp = stream.get_ref().0;
            let _priority = ConnectionPriority::background(&shared.background, tcp)?;
            drop(visitor);
            fetches::serve(shared, stream).await
        }
        (Peer::Receiver(_), _) | (Peer::Replica(_), Channel::Fetch | Channel::Exchange) => {
            Err(LinkError::Order)
        }
        (Peer::Newcomer, _) => Err(NotAdmitted::Unknown.into()),
        (Peer::Replica(replica), Channel::Control) => control(visitor, replica, from, stream).await,
        (Peer::Replica(replica), channel) => {
            let yields = || shared.with(|core, _| core.machine.strategy().is_background());
            let priority = match channel {
                Channel::Speculative if yields() => {
                    let tcp = stream.get_ref().0;
                    Some(ConnectionPriority::background(&shared.background, tcp)?)
                }
                _ => None,
            };
            attached(visitor, replica, channel, (stream, priority)).await
        }
    }
}

/// Reports the reason to a rejected peer, in answer to its preface. Its other messages are ignored.
async fn reject_peer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    why: NotAdmitted,
) -> Result<(), LinkError> {
    /// More than the size of a hello.
    const LINGER: u64 = 64 * 1024;
    if soon(answer(&mut stream)).await? == Channel::Control {
        let (read, write) = split(stream);
        let mut outgoing = Outgoing::new(write);
        let message = ToReplica::Refused(why.into());
        outgoing.put(&Frame { session: Session::default(), message })?;
        soon(outgoing.flush()).await?;
        outgoing.close().await;
        // Bytes still in flight at the close would reset the connection and lose the answer.
        let _ = timeout(TIMEOUT, copy(&mut read.take(LINGER), &mut sink())).await;
    }
    Err(why.into())
}

/// A peer whose identity is known, but not its channel.
struct IdentifiedPeer<'a> {
    shared: &'a Arc<Shared>,
    peer: Peer,
    shown: Option<Vec<CertificateDer<'static>>>,
    _slot: ConnectionSlot,
}

impl<'a> IdentifiedPeer<'a> {
    /// Takes one of the replica's slots.
    fn new(
        shared: &'a Arc<Shared>,
        peer: Peer,
        shown: Option<Vec<CertificateDer<'static>>>,
        slot: ConnectionSlot,
    ) -> Result<Self, LinkError> {
        if let Peer::Replica(replica) = peer {
            let mut core = lock(&shared.core);
            let arriving = core.arriving.entry(replica).or_default();
            if *arriving >= ARRIVING {
                return Err(LinkError::SlotsExhausted);
            }
            *arriving += 1;
        }
        Ok(IdentifiedPeer { shared, peer, shown, _slot: slot })
    }

    /// Checks whether it was revoked or replaced since it connected.
    fn is_still_admitted(&self) -> Result<(), NotAdmitted> {
        lock(&self.shared.identity).still_admits(self.peer, self.shown.as_deref())
    }
}

impl Drop for IdentifiedPeer<'_> {
    fn drop(&mut self) {
        if let Peer::Replica(replica) = self.peer {
            let mut core = lock(&self.shared.core);
            if let Some(arriving) = core.arriving.get_mut(&replica) {
                *arriving -= 1;
                if *arriving == 0 {
                    core.arriving.remove(&replica);
                }
            }
        }
    }
}

/// The connection on which all others of a session depend.
async fn control(
    visitor: IdentifiedPeer<'_>,
    replica: ReplicaId,
    from: SocketAddr,
    stream: impl AsyncRead + AsyncWrite,
) -> Result<(), LinkError> {
    let shared = visitor.shared;
    let (read, write) = split(stream);
    let mut incoming = Incoming::<_, ToOrigin>::new(read);
    let hello = soon(incoming.next()).await?;
    // Before its hello ends the connections of its successor.
    visitor.is_still_admitted()?;
    let link = shared.with(|core, now| core.handle_hello(now, replica, hello))?;
    if let Some(shown) = visitor.shown.as_ref().and_then(|shown| shown.first()) {
        let _ = link.source.set(Source { ip: from.ip(), certificate: Digest::of(shown) });
    }
    let end = End { shared: &**shared, link: &link };
    // Checked again, now that a revocation closes the link.
    if let Err(why) = visitor.is_still_admitted() {
        shared.with(|core, now| core.take_back(now, &link));
        return Err(why.into());
    }
    drop(visitor);
    if lock(&shared.identity).is_behind(replica) {
        link.renew.store(true, Ordering::Relaxed);
    }
    // Its hello contains its position.
    shared.progress.send_modify(|count| *count += 1);
    (shared.on_event)(OriginEvent::Connected { name: shared.name(replica), from });
    let ended = serving::control(&**shared, &link, &mut incoming, Outgoing::new(write)).await;
    drop(end);
    let why = ended.err().map_or_else(|| "it was refused".to_owned(), |why| error_chain(&why));
    (shared.on_event)(OriginEvent::Disconnected { name: shared.name(replica), why });
    Ok(())
}

impl Links for Shared {
    fn speak<T>(
        &self,
        link: &Arc<Link>,
        call: impl FnOnce(&mut Origin<Body>, Reading) -> Result<T, LinkError>,
    ) -> Result<T, LinkError> {
        self.with(|core, now| {
            // A newer connection of the replica has its own task. If another origin may write by now, a heartbeat
            // would be a promise that this one cannot keep.
            if !core.is_current(link) || !core.may_speak(now) {
                return Err(LinkError::GivenUp);
            }
            call(&mut core.machine, now)
        })
    }

    fn handle_frame(&self, link: &Arc<Link>, frame: Frame<ToOrigin>) -> Result<(), LinkError> {
        if let ToOrigin::Vouch(vouch) = &frame.message {
            let known = lock(&self.identity).vouch(vouch.replica, &vouch.certificate);
            if let Err(why) = known {
                let (relay, question, why) = (link.replica, vouch.question, Some(why.into()));
                let may_ask = self.with(|core, _| core.machine.answer_vouch(relay, question, why));
                return may_ask.then_some(()).ok_or(LinkError::Order);
            }
        }
        let is_ping = matches!(frame.message, ToOrigin::Ping { .. });
        self.with(|core, now| core.machine.handle_frame(now, link.replica, frame));
        if is_ping {
            // By then it has sent its position, and it pings each second.
            self.drop_replaced_token_key();
        }
        Ok(())
    }

    fn end(&self, link: &Arc<Link>) {
        self.try_with(|core, _| core.end(link));
    }

    fn links(&self) -> Vec<Arc<Link>> {
        lock(&self.core).links.values().cloned().collect()
    }
}

/// A connection for bodies. It ends with its session.
async fn attached(
    visitor: IdentifiedPeer<'_>,
    replica: ReplicaId,
    channel: Channel,
    (stream, priority): (impl AsyncRead + AsyncWrite, Option<ConnectionPriority>),
) -> Result<(), LinkError> {
    let shared = visitor.shared;
    let (read, write) = split(stream);
    let mut incoming = Incoming::<_, Attach>::new(read);
    let session = soon(incoming.next()).await?.session;
    let link = shared.with(|core, _| core.links.get(&replica).cloned());
    let link = link.filter(|link| link.session == session).ok_or(LinkError::GivenUp)?;
    // Checked after the link was found: a later revocation closes the link.
    visitor.is_still_admitted()?;
    drop(visitor);
    let connection = (&mut incoming, Outgoing::new(write));
    serving::attached(shared, &link, channel, priority, connection).await
}

/// A peer requests a certificate.
async fn enrol(
    visitor: IdentifiedPeer<'_>,
    stream: impl AsyncRead + AsyncWrite,
) -> Result<(), LinkError> {
    let IdentifiedPeer { shared, peer, shown, .. } = &visitor;
    let (read, write) = split(stream);
    let mut incoming = Incoming::<_, ToAuthority>::new(read);
    let mut outgoing = Outgoing::new(write);
    let question = soon(incoming.next()).await?.message;
    let now = shared.clock.read().wall;
    let (joined, outcome) = {
        let mut identity = lock(&shared.identity);
        match (question, *peer) {
            (ToAuthority::Enrol(enrol), _) => (Some(enrol.replica), identity.enrol(&enrol, now)),
            (ToAuthority::Renew(request), Peer::Replica(replica)) => {
                let renewed = match identity.still_admits(*peer, shown.as_deref()) {
                    Ok(()) => identity.renew(replica, &request, now),
                    Err(NotAdmitted::Revoked(_)) => Err(NotEnrolled::Revoked.into()),
                    Err(NotAdmitted::Unknown | NotAdmitted::Replaced(_)) => {
                        Err(NotEnrolled::Ticket.into())
                    }
                };
                (None, renewed)
            }
            (ToAuthority::Renew(_), Peer::Newcomer | Peer::Receiver(_)) => {
                (None, Err(EnrolError::Refused(NotEnrolled::Ticket)))
            }
        }
    };
    let message = match outcome {
        Ok(enrolled) => {
            let joined = joined.filter(|one| !lock(&shared.identity).is_for_receivers(*one));
            if let Some(replica) = joined {
                shared.with(|core, now| core.joined(now, replica));
                (shared.on_event)(OriginEvent::Joined { name: shared.name(replica) });
            }
            FromAuthority::Enrolled(enrolled)
        }
        Err(error) => {
            if let EnrolError::Origin(why) = &error {
                (shared.on_event)(OriginEvent::Identity { why: error_chain(why) });
            }
            FromAuthority::Refused(error.to_peer())
        }
    };
    outgoing.put(&Frame { session: Session::default(), message })?;
    soon(outgoing.flush()).await?;
    outgoing.close().await;
    Ok(())
}
