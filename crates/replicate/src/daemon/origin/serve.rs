//! Connections from replicas.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::core::{Concerns, Link, wake};
use super::{OriginEvent, Shared, bodies, lock};
use crate::daemon::LinkError;
use crate::daemon::clock::{today, until};
use crate::daemon::link::{Incoming, Outgoing, answer, prepare, soon};
use crate::identity::{EnrolError, NotAdmitted, Peer};
use crate::message::{
    Channel, Frame, FromAuthority, NotEnrolled, Session, ToAuthority, ToOrigin, ToReplica,
};
use crate::types::ReplicaId;
use crate::wire::Attach;

/// Connections of which nobody knows yet who they are, at a time: further ones are closed.
const STRANGERS: usize = 64;
/// A replica that says nothing for so long is gone: it sends a ping each second.
const SILENCE: Duration = Duration::from_secs(30);
/// What is sent at once on the control channel.
const BATCH: usize = 64 * 1024;

/// Accepts connections until the daemon ends, and then waits for those that are open to end.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let mut tasks = JoinSet::new();
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    loop {
        tokio::select! {
            () = shared.stopped() => break,
            _ = tasks.join_next(), if !tasks.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((tcp, from)) => {
                    let Ok(place) = Arc::clone(&strangers).try_acquire_owned() else { continue };
                    let shared = Arc::clone(&shared);
                    tasks.spawn(async move {
                        let served = tokio::select! {
                            served = serve(&shared, tcp, from, place) => served,
                            () = shared.stopped() => Ok(()),
                        };
                        if let Err(why) = served {
                            let why = told(&why);
                            (shared.tell)(OriginEvent::Rejected { from, why });
                        }
                    });
                }
                // No descriptors, most likely: some will be closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// An error and its causes on one line.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}

/// One connection, from its first packet to its end. An error is one of a connection that came to
/// nothing; how others end is told where they do.
async fn serve(
    shared: &Arc<Shared>,
    tcp: TcpStream,
    from: SocketAddr,
    place: tokio::sync::OwnedSemaphorePermit,
) -> Result<(), LinkError> {
    prepare(&tcp)?;
    let config = lock(&shared.identity).accept(today(&shared.clock))?;
    let mut stream = soon(async { Ok(TlsAcceptor::from(config).accept(tcp).await?) }).await?;
    let shown = stream.get_ref().1.peer_certificates();
    // Before anything is read from it.
    let peer = lock(&shared.identity).admit(shown)?;
    let channel = soon(answer(&mut stream)).await?;
    match (peer, channel) {
        (peer, Channel::Enrolment) => {
            let answered = enrol(shared, peer, stream).await;
            drop(place);
            answered
        }
        (Peer::Newcomer, _) => Err(NotAdmitted::Unknown.into()),
        (Peer::Replica(replica), Channel::Control) => {
            drop(place);
            control(shared, replica, from, stream).await
        }
        (Peer::Replica(replica), channel) => {
            drop(place);
            let yields = || shared.with(|core, _| core.machine.strategy().is_background());
            let guard = match channel {
                Channel::Speculative if yields() => {
                    Some(shared.background.guard(stream.get_ref().0)?)
                }
                _ => None,
            };
            let sent = attached(shared, replica, channel, stream).await;
            drop(guard);
            sent
        }
    }
}

/// The connection that all of a session hang on.
async fn control(
    shared: &Arc<Shared>,
    replica: ReplicaId,
    from: SocketAddr,
    stream: impl AsyncRead + AsyncWrite,
) -> Result<(), LinkError> {
    let (read, write) = split(stream);
    let mut incoming = Incoming::<_, ToOrigin>::new(read);
    let hello = soon(incoming.next()).await?;
    let link = shared.with(|core, now| core.begin(now, replica, hello))?;
    let end = End { shared, link: &link };
    // Its hello says where it is.
    shared.progress.send_modify(|count| *count += 1);
    (shared.tell)(OriginEvent::Connected { name: shared.name(replica), from });
    let ended = tokio::select! {
        ended = hear(shared, &link, &mut incoming) => ended,
        ended = speak(shared, &link, Outgoing::new(write)) => ended,
        () = link.until_end() => Err(LinkError::GivenUp),
        () = shared.stopped() => Err(LinkError::GivenUp),
    };
    drop(end);
    let why = ended.err().map_or_else(|| "it was refused".to_owned(), |why| told(&why));
    (shared.tell)(OriginEvent::Disconnected { name: shared.name(replica), why });
    Ok(())
}

/// The machine hears of the end whatever it is.
struct End<'a> {
    shared: &'a Shared,
    link: &'a Arc<Link>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.shared.with(|core, _| core.end(self.link));
    }
}

async fn hear(
    shared: &Shared,
    link: &Arc<Link>,
    incoming: &mut Incoming<impl AsyncRead + Unpin, ToOrigin>,
) -> Result<(), LinkError> {
    loop {
        let next = timeout(SILENCE, incoming.next()).await;
        let frame = next.map_err(|_| LinkError::Silent)??;
        if matches!(frame.message, ToOrigin::Hello { .. }) {
            return Err(LinkError::Order);
        }
        let concerns = Concerns::of(&frame.message);
        shared.with(|core, now| core.machine.handle_frame(now, link.replica, frame));
        wake(link, concerns);
    }
}

/// Says what there is to say, as fast as it is taken. Ends well if the last word was a refusal.
async fn speak(
    shared: &Shared,
    link: &Arc<Link>,
    mut outgoing: Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    loop {
        let mut refused = false;
        let heartbeat = shared.with(|core, now| {
            // A newer connection of the replica has a task of its own.
            if !core.is_current(link) {
                return Err(LinkError::GivenUp);
            }
            while outgoing.waiting() < BATCH
                && let Some(frame) = core.machine.poll_control(now, link.replica)
            {
                refused |= matches!(frame.message, ToReplica::Refused(_));
                outgoing.put(&frame)?;
            }
            Ok(core.machine.heartbeat_at(link.replica))
        })?;
        if outgoing.waiting() > 0 {
            let sent = outgoing.flush().await?;
            link.sent[0].fetch_add(sent, Ordering::Relaxed);
            if refused {
                outgoing.close().await;
                return Ok(());
            }
            continue;
        }
        tokio::select! {
            () = link.control.notified() => {}
            () = until(&*shared.clock, heartbeat) => {}
        }
    }
}

/// A connection for bodies. Its end is that of the session.
async fn attached(
    shared: &Arc<Shared>,
    replica: ReplicaId,
    channel: Channel,
    stream: impl AsyncRead + AsyncWrite,
) -> Result<(), LinkError> {
    let (read, write) = split(stream);
    let mut incoming = Incoming::<_, Attach>::new(read);
    let session = soon(incoming.next()).await?.session;
    let link = shared.with(|core, _| core.links.get(&replica).cloned());
    let link = link.filter(|link| link.session == session).ok_or(LinkError::GivenUp)?;
    if !link.take(channel) {
        return Err(LinkError::Order);
    }
    tokio::select! {
        // Its cause is mostly that the other side has gone, which the control connection tells.
        _ = bodies::send(shared, &link, channel, Outgoing::new(write)) => {}
        _ = incoming.next() => {}
        () = link.until_end() => {}
        () = shared.stopped() => {}
    }
    link.end();
    Ok(())
}

/// Somebody wants a certificate.
async fn enrol(
    shared: &Shared,
    peer: Peer,
    stream: impl AsyncRead + AsyncWrite,
) -> Result<(), LinkError> {
    let (read, write) = split(stream);
    let mut incoming = Incoming::<_, ToAuthority>::new(read);
    let mut outgoing = Outgoing::new(write);
    let question = soon(incoming.next()).await?.message;
    let now = shared.clock.read().wall;
    let (joined, outcome) = {
        let mut identity = lock(&shared.identity);
        match (question, peer) {
            (ToAuthority::Enrol(enrol), _) => (Some(enrol.replica), identity.enrol(&enrol, now)),
            (ToAuthority::Renew(request), Peer::Replica(replica)) => {
                (None, identity.renew(replica, &request, now))
            }
            (ToAuthority::Renew(_), Peer::Newcomer) => {
                (None, Err(EnrolError::Refused(NotEnrolled::Ticket)))
            }
        }
    };
    let message = match outcome {
        Ok(enrolled) => {
            if let Some(replica) = joined {
                // What had that number before counts no more.
                shared.with(|core, _| core.give_up(replica));
                (shared.tell)(OriginEvent::Joined { name: shared.name(replica) });
            }
            FromAuthority::Enrolled(enrolled)
        }
        Err(error) => {
            if let EnrolError::Origin(why) = &error {
                (shared.tell)(OriginEvent::Identity { why: told(why) });
            }
            FromAuthority::Refused(error.told())
        }
    };
    outgoing.put(&Frame { session: Session::default(), message })?;
    soon(outgoing.flush()).await?;
    outgoing.close().await;
    Ok(())
}
