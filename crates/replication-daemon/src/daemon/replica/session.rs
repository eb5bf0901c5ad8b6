//! The connection to the origin, and its retries.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lull_replication::message::{Channel, Frame, Session, ToOrigin, ToReplica};
use lull_replication::wire::Attach;
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::parents::Parent;
use super::{ReplicaEvent, Shared, lock, receive};
use crate::daemon::LinkError;
use crate::daemon::clock::certificate_time;
use crate::daemon::enrol::{dial_through, renew};
use crate::daemon::link::{Incoming, Outgoing};
use crate::daemon::observed::{ObservedStream, Way};
use crate::identity::ReplicaIdentity;

/// The delay between the first two attempts; doubled after each failure.
const FIRST: Duration = Duration::from_millis(100);
/// Longest pause between attempts.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The same with several parents: an origin takes over from another in some seconds.
const MAX_PAUSE_OF_SEVERAL: Duration = Duration::from_secs(2);
/// The delay before a certificate that the origin wants renewed is requested; doubled after each failure. All
/// connected replicas are notified at the same moment, and the origin has few places for requests.
const FIRST_RENEWAL: Duration = Duration::from_secs(2);
/// Longest pause between such attempts.
const MAX_RENEWAL: Duration = Duration::from_mins(5);
/// How often the age of the certificate is checked: the wall clock may be set, and the machine may sleep.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The maximum batch on the control channel.
const BATCH: usize = 64 * 1024;

/// Connects until the daemon ends.
pub(super) async fn keep_connected(shared: &Arc<Shared>) {
    let mut pause = FIRST;
    loop {
        let ended = tokio::select! {
            ended = session(shared) => ended,
            () = shared.stopped() => Err(LinkError::GivenUp),
        };
        let was_connected = shared.try_with(|core, now| {
            let was = core::mem::take(&mut core.was_connected);
            core.machine.handle_disconnected(now);
            was
        });
        let Some(was_connected) = was_connected else { return };
        if let Some(sharing) = &shared.sharing {
            sharing.set_neighbours(None);
        }
        if *shared.stop.borrow() {
            return;
        }
        let origin = lock(&shared.identity).address().to_owned();
        if was_connected && !matches!(ended, Err(LinkError::Returns)) {
            shared.parents.note_served(&origin);
        }
        // TLS has found that. Before, a certificate may have been refused.
        if was_connected
            && matches!(&ended, Err(LinkError::Io(why)) if why.kind() == ErrorKind::InvalidData)
        {
            shared.note_wrong_bytes();
        }
        if was_connected {
            pause = FIRST;
        } else {
            shared.parents.pass_over(&origin);
        }
        let again = spread(pause, shared);
        if let Err(why) = ended {
            (shared.on_event)(ReplicaEvent::Disconnected { why: error_chain(&why), again });
        }
        tokio::select! {
            () = tokio::time::sleep(again) => {}
            () = shared.stopped() => return,
        }
        let several = shared.parents.are_several(&origin);
        pause = (2 * pause).min(if several { MAX_PAUSE_OF_SEVERAL } else { MAX_PAUSE });
    }
}

impl Shared {
    /// The parent has sent wrong bytes. Returns whether it is left.
    pub(super) fn note_wrong_bytes(&self) -> bool {
        let origin = lock(&self.identity).address().to_owned();
        let Some((address, has_other)) = self.parents.note_wrong_bytes(&origin) else {
            return false;
        };
        (self.on_event)(ReplicaEvent::WrongBytes(address));
        has_other
    }
}

/// A random time between half of the pause and all of it. So the replicas do not all connect at once to an
/// origin that restarts.
fn spread(pause: Duration, shared: &Shared) -> Duration {
    let number = u64::from(lock(&shared.identity).replica().0);
    let nanos = shared.clock.read().local.as_nanos().unsigned_abs();
    // The golden ratio's multiples are spread evenly.
    let share = (number ^ nanos).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
    pause / 2 + pause.mul_f64(share as f64 / 131_072.0)
}

fn error_chain(error: &LinkError) -> String {
    match error {
        LinkError::Io(io) => io.to_string(),
        other => other.to_string(),
    }
}

/// One session, from connecting to its end.
async fn session(shared: &Arc<Shared>) -> Result<(), LinkError> {
    renew_if_old(shared).await;
    let hearing = Arc::clone(shared);
    let heard = move || {
        let now = hearing.clock.read().local;
        hearing.last_received.fetch_max(now.as_nanos(), Ordering::Relaxed);
    };
    let (stream, version) = connect(shared, Channel::Control, heard).await?;
    let share = shared.sharing.as_ref().and_then(|one| one.address(*lock(&shared.local_ip)));
    let partial = shared.bodies.partials();
    shared.with(|core, now| {
        (core.close, core.renew) = (false, false);
        core.machine.set_partial(partial);
        core.machine.set_protocol(version);
        core.machine.set_share(share);
        core.machine.handle_connected(now);
    });
    let (read, write) = split(stream);
    tokio::select! {
        ended = receive_frames(shared, Incoming::new(read)) => ended,
        ended = send_frames(shared, Outgoing::new(write)) => ended,
        ended = bodies(shared) => ended,
        ended = renew_when_asked(shared) => ended,
        ended = shared.partials.sweep(shared) => ended,
        ended = return_to_earlier(shared) => ended,
    }
}

/// Ends the session when a relay is back that comes before the present parent.
async fn return_to_earlier(shared: &Shared) -> Result<(), LinkError> {
    let origin = lock(&shared.identity).address().to_owned();
    let parent = shared.parents.wait_for_earlier(&origin).await;
    (shared.on_event)(ReplicaEvent::Parent(parent.address));
    Err(LinkError::Returns)
}

/// Connects to the origin; `heard` is called whenever bytes arrive. Also returns the version of the protocol.
async fn connect<F: Fn() + Unpin>(
    shared: &Shared,
    channel: Channel,
    heard: F,
) -> Result<(impl AsyncRead + AsyncWrite + Unpin + use<F>, u16), LinkError> {
    let origin = lock(&shared.identity).address().to_owned();
    let Parent { address, is_relay } = match channel {
        Channel::Control => {
            let (parent, is_new) = shared.parents.reach(&origin).await;
            if is_new {
                (shared.on_event)(ReplicaEvent::Parent(parent.address.clone()));
            }
            parent
        }
        // The same one as the control channel.
        _ => shared.parents.current(&origin),
    };
    let how = {
        let (identity, time) = (lock(&shared.identity), certificate_time(&shared.clock));
        if is_relay { identity.connect_to_relay(time) } else { identity.connect(time) }
    }?;
    let on_event = move |_: &TcpStream, way| {
        if way == Way::In {
            heard();
        }
    };
    let through = |tcp: TcpStream| {
        if channel == Channel::Control {
            *lock(&shared.local_ip) = tcp.local_addr().ok().map(|address| address.ip());
        }
        ObservedStream::new(tcp, on_event)
    };
    dial_through(&address, how, channel, through).await
}

/// A failed renewal is retried tomorrow: the certificate is valid for months.
async fn renew_if_old(shared: &Arc<Shared>) {
    if is_old(shared)
        && let Err(why) = get_certificate(shared).await
    {
        (shared.on_event)(ReplicaEvent::NotRenewed(why.to_string()));
    }
}

fn is_old(shared: &Shared) -> bool {
    lock(&shared.identity).is_old(shared.clock.read().wall)
}

/// Gets a new certificate when the origin asks for that or the current one is old, and then ends the session
/// to use it: only used certificates count at the origin. It asks once a session, so failures are retried.
async fn renew_when_asked(shared: &Arc<Shared>) -> Result<(), LinkError> {
    loop {
        let asked = core::mem::take(&mut lock(&shared.core).renew);
        if asked || is_old(shared) {
            break;
        }
        let _ = timeout(CHECK_INTERVAL, shared.renewal.notified()).await;
    }
    let mut pause = FIRST_RENEWAL;
    loop {
        tokio::time::sleep(spread(pause, shared)).await;
        match get_certificate(shared).await {
            Ok(()) => return Err(LinkError::GivenUp),
            Err(why) => (shared.on_event)(ReplicaEvent::NotRenewed(why.to_string())),
        }
        pause = (2 * pause).min(MAX_RENEWAL);
    }
}

async fn get_certificate(shared: &Arc<Shared>) -> Result<(), crate::daemon::DaemonError> {
    let folder = lock(&shared.identity).folder().to_owned();
    // A copy, so that no lock is held while the origin answers.
    let mut identity = ReplicaIdentity::open(&folder)?;
    renew(&mut identity, &shared.clock).await?;
    *lock(&shared.identity) = identity;
    Ok(())
}

async fn receive_frames(
    shared: &Shared,
    mut incoming: Incoming<impl AsyncRead + Unpin, ToReplica>,
) -> Result<(), LinkError> {
    loop {
        let frame = incoming.next().await?;
        if let (Some(sharing), ToReplica::Neighbours(all)) = (&shared.sharing, &frame.message)
            && shared.with(|core, _| core.machine.session()) == Some(frame.session)
        {
            sharing.set_neighbours(Some(all.clone()));
        }
        shared.with(|core, now| core.machine.handle_control(now, frame));
    }
}

/// Sends all messages, until the machine closes the connection.
async fn send_frames(
    shared: &Shared,
    mut outgoing: Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    loop {
        let put = {
            // Not `with`: it would wake this task again.
            let mut core = shared.machine().ok_or(LinkError::GivenUp)?;
            loop {
                let next: Option<Frame<ToOrigin>> = match outgoing.waiting() {
                    0..BATCH => core.machine.poll_send(),
                    _ => None,
                };
                match next {
                    Some(frame) => outgoing.put(&frame)?,
                    None => break outgoing.waiting(),
                }
            }
        };
        if put > 0 {
            let sent = outgoing.flush().await?;
            shared.control_bytes.fetch_add(sent, Ordering::Relaxed);
        } else {
            shared.outbox.notified().await;
        }
    }
}

/// The two connections for bodies, as soon as the origin accepts this replica.
async fn bodies(shared: &Arc<Shared>) -> Result<(), LinkError> {
    let session = loop {
        let (session, close) = {
            let core = lock(&shared.core);
            (core.machine.session(), core.close)
        };
        match session {
            _ if close => return Err(LinkError::GivenUp),
            Some(session) => break session,
            None => shared.turn.notified().await,
        }
    };
    let given_up = async {
        while !lock(&shared.core).close {
            shared.turn.notified().await;
        }
        Err(LinkError::GivenUp)
    };
    tokio::select! {
        ended = attach(shared, session, Channel::Demand) => ended,
        ended = attach(shared, session, Channel::Speculative) => ended,
        ended = given_up => ended,
    }
}

async fn attach(shared: &Arc<Shared>, session: Session, channel: Channel) -> Result<(), LinkError> {
    let (read, write) = split(connect(shared, channel, || {}).await?.0);
    let mut outgoing = Outgoing::new(write);
    outgoing.put(&Frame { session, message: Attach })?;
    outgoing.flush().await?;
    receive::bodies(shared, Incoming::new(read), channel).await
}
