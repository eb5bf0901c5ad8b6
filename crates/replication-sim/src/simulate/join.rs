//! A replica that was away for longer than the origin's hashes reach, and joins again.

use lull_replication::message::Refusal;
use lull_replication::replica::Image;
use lull_replication::types::ReplicaId;

use super::Situation;
use super::clock::MS;
use super::disk::Disk;
use super::turns::Turns;
use super::world::{Event, World};

impl World {
    /// The origin no longer knows whether the replica has followed it: the operator empties its folder later.
    pub(super) fn join_soon(&mut self, replica: usize) {
        let delay = self.random_delay(100 * MS);
        self.after(delay, Event::Join { replica });
    }

    /// It joins under its number with an empty folder.
    pub(super) fn join(&mut self, replica: usize) {
        let now = self.now;
        let host = &mut self.replicas[replica];
        let refusal = host.machine.as_ref().and_then(|machine| machine.refusal());
        if !matches!(refusal, Some(Refusal::Forgotten(_))) {
            // It has crashed, and will learn this again.
            return;
        }
        if self.origin.machine.is_none() || host.link.cut_until > now {
            self.join_soon(replica);
            return;
        }
        if let Some(mut machine) = host.machine.take() {
            let strategy = self.origin.config.strategy;
            self.situations.of_replica(&machine.take_counters(), strategy);
        }
        self.situations.add(Situation::Forgotten);
        host.before = None;
        host.excused.clear();
        // Lives are never repeated: in a new folder the wall clock makes sure of that.
        let image = Image { incarnation: host.disk.image.incarnation, ..Image::default() };
        let seed = self.options.seed ^ u64::from(host.link.connections) << 8 ^ (replica as u64 + 1);
        let disk = Disk::new(image, self.options.storage, seed);
        let before = core::mem::replace(&mut host.disk, disk);
        (host.disk.full, host.disk.slow) = (before.full, before.slow);
        let link = &mut host.link;
        (link.at_replica, link.at_origin, link.welcomed) = (None, None, false);
        link.at_origin_before.clear();
        link.demanded = Turns::default();
        link.joined = link.connections;
        self.forget_timers_of_replica(replica);
        self.stop_relay(replica);
        let left = self.clients.replica_crashed(replica);
        self.restart_sessions(left);
        self.with_origin(|machine, now| machine.handle_joined(now, ReplicaId(replica as u32)));
        self.join_at_relay(replica);
        self.start_replica(replica);
    }
}
