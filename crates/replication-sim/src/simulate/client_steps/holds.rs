//! Writers of so much data that bodies are held before they are written.

use lull_replication::origin::{HoldId, Put};
use lull_replication::types::{Content, Metadata};

use super::super::Situation;
use super::super::clients::HeldBody;
use super::super::world::World;

impl World {
    /// Holds a body. Now and then another client writes the same one meanwhile, under another name.
    pub(super) fn hold(&mut self) {
        let World { clients, random, .. } = self;
        let name = random.below(clients.paths.len() as u64) as usize;
        let payload = clients.next_body(random, name);
        clients.held += 1;
        let id = HoldId(clients.held);
        clients.holds.insert(id, HeldBody { name, payload: payload.clone() });
        let other = random.below(clients.paths.len() as u64) as usize;
        let twice = random.below(2) == 0;
        let put = Put::Body(payload.clone(), Metadata::default());
        self.with_origin(|machine, _| machine.handle_hold(id, payload));
        if twice {
            let path = self.clients.paths[other].clone();
            self.submit_changes([(path, put)].into());
        }
    }

    /// A body is held: the transaction that names it is written later.
    pub(in super::super) fn use_held(&mut self, id: HoldId) {
        // A crash has released it.
        let Some(HeldBody { name, payload }) = self.clients.holds.remove(&id) else { return };
        // Some streams are cut off.
        if !self.calm && self.random.below(4) > 0 {
            let content = Content {
                digest: payload.digest,
                size: payload.size,
                metadata: Metadata::default(),
            };
            self.situations.add(Situation::Held);
            let path = self.clients.paths[name].clone();
            self.submit_changes([(path, Put::Stored(content))].into());
        }
        self.with_origin(|machine, _| machine.release_hold(id));
    }
}
