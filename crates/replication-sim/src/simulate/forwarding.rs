//! Bodies that relays pass on while they arrive.

use lull_replication::message::{BodyHeader, Frame};
use lull_replication::types::{Digest, Payload, ReplicaId};

use super::Situation;
use super::clock::TrueTime;
use super::durable::Body;
use super::world::World;

/// Counts the bodies on their way to relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferId(usize);

/// A body on its way.
pub(super) struct InTransit {
    pub(super) frame: Frame<BodyHeader>,
    /// None if it is cut off.
    pub(super) payload: Option<Payload<Body>>,
    /// What the sender, a relay, still receives of it.
    pub(super) from: Option<TransferId>,
    /// What the receiver, a relay, may pass on of it.
    pub(super) to: Option<TransferId>,
}

/// ```text
///   OnItsWay ──▶ Arriving ──▶ Whole
///       │            └──────▶ CutOff
///       └──────▶ Whole, CutOff
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    OnItsWay,
    Arriving,
    Whole,
    CutOff,
}

/// A body on its way to a relay in the background.
struct Transfer {
    relay: usize,
    epoch: u32,
    connection: u32,
    payload: Payload<Body>,
    /// When its last piece arrives.
    until: TrueTime,
    state: State,
    /// Those to which it is passed on.
    children: Vec<(usize, Frame<BodyHeader>)>,
}

#[derive(Default)]
pub(super) struct Transfers(Vec<Transfer>);

impl Transfers {
    /// A body leaves for a relay, in the background.
    pub(super) fn add(
        &mut self,
        (relay, epoch, connection): (usize, u32, u32),
        payload: Payload<Body>,
        until: TrueTime,
    ) -> TransferId {
        let (state, children) = (State::OnItsWay, Vec::new());
        self.0.push(Transfer { relay, epoch, connection, payload, until, state, children });
        TransferId(self.0.len() - 1)
    }

    /// The body that a relay receives at the moment, and when its last piece arrives.
    pub(super) fn arriving(
        &self,
        relay: usize,
        digest: &Digest,
    ) -> Option<(TransferId, TrueTime, Payload<Body>)> {
        let is = |one: &Transfer| {
            one.relay == relay && one.state == State::Arriving && one.payload.digest == *digest
        };
        let at = self.0.iter().rposition(is)?;
        let Transfer { until, payload, .. } = &self.0[at];
        Some((TransferId(at), *until, payload.clone()))
    }

    pub(super) fn pass_on(&mut self, id: TransferId, child: usize, frame: Frame<BodyHeader>) {
        self.0[id.0].children.push((child, frame));
    }

    pub(super) fn is_whole(&self, id: TransferId) -> bool {
        self.0[id.0].state == State::Whole
    }
}

impl World {
    /// The first pieces of a body have arrived at a relay.
    pub(super) fn begin_forwarding(&mut self, id: TransferId) {
        let transfer = &self.transfers.0[id.0];
        let (relay, digest) = (transfer.relay, transfer.payload.digest);
        let host = &self.replicas[relay];
        let is_here =
            host.link.at_replica == Some(transfer.connection) && host.epoch == transfer.epoch;
        if transfer.state != State::OnItsWay
            || !is_here
            || self.transfers.arriving(relay, &digest).is_some()
        {
            return;
        }
        let serves = self.with_relay(relay, |machine, _, _| machine.handle_arriving(digest, false));
        if serves == Some(true) {
            self.transfers.0[id.0].state = State::Arriving;
            self.pump_relay(relay);
        }
    }

    /// All of it has arrived, or the rest does not come.
    pub(super) fn end_forwarding(&mut self, id: TransferId, is_whole: bool) {
        let state = if is_whole { State::Whole } else { State::CutOff };
        let transfer = &mut self.transfers.0[id.0];
        let before = core::mem::replace(&mut transfer.state, state);
        if before != State::Arriving {
            return;
        }
        let (relay, digest) = (transfer.relay, transfer.payload.digest);
        let same_life = self.replicas[relay].epoch == transfer.epoch;
        let children = core::mem::take(&mut transfer.children);
        if !same_life {
            return;
        }
        let situation = if is_whole { Situation::PassedOn } else { Situation::CutOffBehind };
        self.situations.count(situation, children.len() as u64);
        self.with_relay(relay, |machine, _, _| {
            machine.handle_arrived(digest, false);
            for (child, frame) in children.iter().filter(|_| !is_whole) {
                machine.origin().handle_cut_off(ReplicaId(*child as u32), frame);
            }
        });
        self.pump_relay(relay);
    }
}
