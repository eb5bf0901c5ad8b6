//! Bodies on their way, and those that relays pass on meanwhile.

use lull_replication::message::{BodyHeader, Frame};
use lull_replication::types::{Digest, Payload};

use super::clock::TrueTime;
use super::durable::Body;

/// Counts the bodies on their way to relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferId(usize);

/// A body on its way.
pub(super) struct InTransit {
    pub(super) frame: Frame<BodyHeader>,
    /// None if it is cut off.
    pub(super) payload: Option<Payload<Body>>,
    /// The transfer by which the sender, a relay, still receives it.
    pub(super) from: Option<TransferId>,
    /// The transfer that the receiver, a relay, may pass on.
    pub(super) to: Option<TransferId>,
}

/// ```text
///   OnItsWay ──▶ Arriving ──▶ Whole
///       │            └──────▶ CutOff
///       └──────▶ Whole, CutOff
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    OnItsWay,
    Arriving,
    Whole,
    CutOff,
}

/// A body on its way to a relay in the background.
pub(super) struct Transfer {
    pub(super) relay: usize,
    /// The relay's life, and the connection.
    pub(super) epoch: u32,
    pub(super) connection: u32,
    pub(super) payload: Payload<Body>,
    /// When its last piece arrives.
    until: TrueTime,
    pub(super) state: State,
    /// The replicas to which it is passed on.
    pub(super) children: Vec<(usize, Frame<BodyHeader>)>,
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

    pub(super) fn get(&mut self, id: TransferId) -> &mut Transfer {
        &mut self.0[id.0]
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
