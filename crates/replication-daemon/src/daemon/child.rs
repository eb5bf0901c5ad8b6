//! The connections of a replica to the daemon that serves it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lull_replication::message::{Channel, Session, ToOrigin};
use lull_replication::types::{Digest, ReplicaId};
use tokio::sync::{Notify, watch};

use super::priority::ConnectionPriority;

/// Bytes by channel, and the part of the speculative ones that went at normal priority.
pub(super) type Sent = [AtomicU64; 4];

/// Where the control connection of a replica comes from, and the hash of the certificate that it has shown there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) ip: IpAddr,
    pub(super) certificate: Digest,
}

/// The open connections of a replica.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) replica: ReplicaId,
    pub(super) session: Session,
    /// Each wakes the task that sends on a channel: there may be something for it.
    pub(super) control: Notify,
    pub(super) demand: Notify,
    pub(super) speculative: Notify,
    /// Bytes that were sent to the replica, by the number of the channel.
    pub(super) sent: Arc<Sent>,
    pub(super) ended: watch::Sender<bool>,
    /// The replica is to be asked to renew its certificate.
    pub(super) renew: AtomicBool,
    taken: [AtomicBool; 2],
    /// Long bodies that have begun, in the background and for reads.
    long_bodies: [AtomicU64; 2],
    /// Of the connection for speculative bodies, if that yields.
    priority: Mutex<Option<ConnectionPriority>>,
    is_urgent: AtomicBool,
    /// Where it connects from, and where it gives pieces to neighbours.
    pub(super) source: OnceLock<Source>,
    pub(super) share: OnceLock<SocketAddr>,
    /// Its neighbours are others than those of its last list.
    pub(super) owes_neighbours: AtomicBool,
}

impl Link {
    /// Without connections for bodies.
    pub(super) fn new(replica: ReplicaId, session: Session, sent: Arc<Sent>) -> Self {
        Link {
            replica,
            session,
            control: Notify::new(),
            demand: Notify::new(),
            speculative: Notify::new(),
            sent,
            ended: watch::Sender::new(false),
            renew: AtomicBool::new(false),
            taken: Default::default(),
            long_bodies: Default::default(),
            priority: Mutex::new(None),
            is_urgent: AtomicBool::new(false),
            source: OnceLock::new(),
            share: OnceLock::new(),
            owes_neighbours: AtomicBool::new(false),
        }
    }

    /// The priority of the connection for speculative bodies, while that exists.
    pub(super) fn set_priority(&self, priority: Option<ConnectionPriority>) {
        *self.priority.lock().unwrap_or_else(PoisonError::into_inner) = priority;
    }

    /// Sends speculative bodies at normal priority, or in the background.
    pub(super) fn set_urgent(&self, is_urgent: bool) {
        if self.is_urgent.swap(is_urgent, Ordering::Relaxed) != is_urgent
            && let Some(priority) =
                &mut *self.priority.lock().unwrap_or_else(PoisonError::into_inner)
        {
            priority.set_urgent(is_urgent);
        }
    }

    /// Whether speculative bodies are sent at normal priority, because they would be late otherwise.
    pub(super) fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::Relaxed)
    }

    /// There may be something new for all of its channels.
    pub(super) fn wake_all(&self) {
        self.control.notify_one();
        self.demand.notify_one();
        self.speculative.notify_one();
    }

    /// There may be more of a body.
    pub(super) fn wake_bodies(&self) {
        self.demand.notify_one();
        self.speculative.notify_one();
    }

    /// A long body begins on a channel. Returns its number there, from one.
    pub(super) fn begin_long(&self, demand: bool) -> u64 {
        self.long_bodies[usize::from(demand)].fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes the place of a body channel, which one connection may have.
    pub(super) fn take(&self, channel: Channel) -> bool {
        let taken = match channel {
            Channel::Demand => &self.taken[0],
            _ => &self.taken[1],
        };
        !taken.swap(true, Ordering::Relaxed)
    }

    /// Ends all connections of it.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    pub(super) async fn until_end(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

/// Wakes the senders that a message of a replica may need.
pub(super) fn wake(link: &Link, message: AffectedChannel) {
    match message {
        AffectedChannel::NoChannel => {}
        AffectedChannel::Channel(Channel::Demand) => link.demand.notify_one(),
        AffectedChannel::Channel(Channel::Speculative) => link.speculative.notify_one(),
        AffectedChannel::Channel(
            Channel::Control | Channel::Enrolment | Channel::Fetch | Channel::Exchange,
        ) => link.control.notify_one(),
        AffectedChannel::Bodies => link.wake_bodies(),
        AffectedChannel::Both => {
            link.control.notify_one();
            link.speculative.notify_one();
        }
        AffectedChannel::Answers => {
            link.control.notify_one();
            link.demand.notify_one();
        }
    }
}

/// Which channel may have something to send after a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum AffectedChannel {
    NoChannel,
    Channel(Channel),
    /// Invalidations and pushed bodies.
    Both,
    /// Answers to demands.
    Answers,
    /// Demanded bodies, and a pushed one that waits for its receiver and is demanded now.
    Bodies,
}

impl AffectedChannel {
    pub(super) fn of(message: &ToOrigin) -> Self {
        match message {
            ToOrigin::Demand(_) => AffectedChannel::Bodies,
            // It is answered on both channels.
            ToOrigin::Withdraw(_) => AffectedChannel::Answers,
            ToOrigin::Lacking(_) => AffectedChannel::Channel(Channel::Speculative),
            ToOrigin::Wanted(wanted) if wanted.demand => AffectedChannel::Channel(Channel::Demand),
            ToOrigin::Wanted(_) => AffectedChannel::Channel(Channel::Speculative),
            // An invalidation may have waited for the body.
            ToOrigin::Taken(_) => AffectedChannel::Both,
            // A ping is answered by a heartbeat.
            ToOrigin::Ask { .. } | ToOrigin::Ping { .. } | ToOrigin::Vouch(_) => {
                AffectedChannel::Channel(Channel::Control)
            }
            ToOrigin::Resynced(_) | ToOrigin::Hello { .. } => AffectedChannel::Both,
            ToOrigin::Ack(_)
            | ToOrigin::Fetched(_)
            | ToOrigin::Reads(_)
            | ToOrigin::Report(_)
            | ToOrigin::Price(_)
            | ToOrigin::Partial(_)
            | ToOrigin::Relays(_)
            | ToOrigin::Share(_)
            | ToOrigin::Below(_) => AffectedChannel::NoChannel,
        }
    }
}
