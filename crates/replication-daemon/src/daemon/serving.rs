//! The connections of a replica, on the side that serves it: the control channel, and those for bodies.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lull_replication::message::{Channel, Frame, Session, ToOrigin, ToReplica};
use lull_replication::origin::Origin;
use lull_replication::time::Reading;
use lull_replication::wire::Attach;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::LinkError;
use super::accept::Accepts;
use super::bodies::{self, Serves};
use super::child::{AffectedChannel, Link, wake};
use super::clock::until;
use super::link::{Incoming, Outgoing};
use super::neighbours;
use super::priority::ConnectionPriority;
use crate::store::Body;

/// A replica that is silent for this long is gone: it sends a ping each second.
const SILENCE: Duration = Duration::from_secs(30);
/// The maximum batch on the control channel.
const BATCH: usize = 64 * 1024;

/// A daemon with connections of replicas.
pub(super) trait Links: Serves + Accepts {
    /// A call for the next messages to a replica. An error if the link is not the current one of its replica, or
    /// nothing may be promised at present.
    fn speak<T>(
        &self,
        link: &Arc<Link>,
        call: impl FnOnce(&mut Origin<Body>, Reading) -> Result<T, LinkError>,
    ) -> Result<T, LinkError>;

    /// A message of a replica, which is not its first.
    fn handle_frame(&self, link: &Arc<Link>, frame: Frame<ToOrigin>) -> Result<(), LinkError>;

    /// The connections of a link end, also after a panic.
    fn end(&self, link: &Arc<Link>);

    /// All links.
    fn links(&self) -> Vec<Arc<Link>>;
}

/// The control channel after the first message, until its end. Returns without an error if the replica was refused.
pub(super) async fn control<S: Links>(
    shared: &S,
    link: &Arc<Link>,
    incoming: &mut Incoming<impl AsyncRead + Unpin, ToOrigin>,
    outgoing: Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    tokio::select! {
        ended = receive_frames(shared, link, incoming) => ended,
        ended = send_frames(shared, link, outgoing) => ended,
        () = link.until_end() => Err(LinkError::GivenUp),
        () = shared.stopped() => Err(LinkError::GivenUp),
    }
}

/// Reports any end of a link to the machine.
pub(super) struct End<'a, S: Links> {
    pub(super) shared: &'a S,
    pub(super) link: &'a Arc<Link>,
}

impl<S: Links> Drop for End<'_, S> {
    fn drop(&mut self) {
        self.shared.end(self.link);
        neighbours::announce(&self.shared.links(), self.link);
    }
}

async fn receive_frames<S: Links>(
    shared: &S,
    link: &Arc<Link>,
    incoming: &mut Incoming<impl AsyncRead + Unpin, ToOrigin>,
) -> Result<(), LinkError> {
    loop {
        let Some(frame) = incoming.here()? else {
            // A part of a message counts as activity.
            timeout(SILENCE, incoming.more()).await.map_err(|_| LinkError::Silent)??;
            continue;
        };
        if matches!(frame.message, ToOrigin::Hello { .. }) {
            return Err(LinkError::Order);
        }
        if let ToOrigin::Share(address) = &frame.message
            && is_of(link, &frame)
        {
            neighbours::share(&shared.links(), link, *address)?;
        }
        let concerns = AffectedChannel::of(&frame.message);
        shared.handle_frame(link, frame)?;
        wake(link, concerns);
    }
}

/// Whether a message is of the link's session. The replica's part of that tells it.
fn is_of(link: &Link, frame: &Frame<ToOrigin>) -> bool {
    let of = |session: &Session| (session.replica, session.connection);
    of(&frame.session) == of(&link.session)
}

/// Sends all messages, as fast as they are taken. Returns without an error if the last one was a refusal.
async fn send_frames<S: Links>(
    shared: &S,
    link: &Arc<Link>,
    mut outgoing: Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    loop {
        let mut refused = false;
        let owes_neighbours = link.owes_neighbours.swap(false, Ordering::Relaxed);
        let named = owes_neighbours.then(|| neighbours::of(&shared.links(), link));
        let heartbeat = shared.speak(link, |machine, now| {
            while outgoing.waiting() < BATCH
                && let Some(frame) = machine.poll_control(now, link.replica)
            {
                refused |= matches!(frame.message, ToReplica::Refused(_));
                outgoing.put(&frame)?;
            }
            // After the welcome, which is the first message.
            if !refused && link.renew.swap(false, Ordering::Relaxed) {
                outgoing.put(&Frame { session: link.session, message: ToReplica::Renew })?;
            }
            if let Some(all) = named
                && let Some(session) = machine.session_of(link.replica)
            {
                outgoing.put(&Frame { session, message: ToReplica::Neighbours(all) })?;
            }
            // A relay has none of its own.
            Ok(machine.heartbeat_at(link.replica))
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
            () = until(&**shared.clock(), heartbeat) => {}
        }
    }
}

/// A connection for bodies, until it or its session ends. In the background it has a priority, which changes while
/// bodies would be late otherwise.
pub(super) async fn attached<S: Links>(
    shared: &Arc<S>,
    link: &Arc<Link>,
    channel: Channel,
    priority: Option<ConnectionPriority>,
    (incoming, outgoing): (
        &mut Incoming<impl AsyncRead + Unpin, Attach>,
        Outgoing<impl AsyncWrite + Unpin>,
    ),
) -> Result<(), LinkError> {
    if !link.take(channel) {
        return Err(LinkError::Order);
    }
    if priority.is_some() {
        link.set_priority(priority);
    }
    tokio::select! {
        // Its cause is mostly that the other side has gone, which the control connection reports.
        _ = bodies::send(shared, link, channel, outgoing) => {}
        _ = incoming.next() => {}
        () = link.until_end() => {}
        () = shared.stopped() => {}
    }
    link.end();
    if channel == Channel::Speculative {
        link.set_priority(None);
    }
    Ok(())
}
