//! The bodies that arrive at relays.

use lull_replication::types::ReplicaId;

use super::Situation;
use super::transfers::{State, TransferId};
use super::world::World;

impl World {
    /// The first pieces of a body have arrived at a relay.
    pub(super) fn begin_forwarding(&mut self, id: TransferId) {
        let transfer = self.transfers.get(id);
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
            self.transfers.get(id).state = State::Arriving;
            self.pump_relay(relay);
        }
    }

    /// All of it has arrived, or the rest does not come.
    pub(super) fn end_forwarding(&mut self, id: TransferId, is_whole: bool) {
        let state = if is_whole { State::Whole } else { State::CutOff };
        let transfer = self.transfers.get(id);
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
