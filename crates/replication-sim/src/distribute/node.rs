//! A relay or a receiver.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lull_replication::BodyEffect;
use lull_replication::origin::{self, Event, ReadsPerWriteAndByte};
use lull_replication::relay::Relay;
use lull_replication::replica::{self, Config, Image, Replica, Staleness};
use lull_replication::time::Reading;
use lull_replication::types::{Digest, Incarnation, ReplicaId, Sequence};

/// A body that arrives at a relay.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    /// Turns that are here.
    pub(super) here: u64,
    /// Transfers from here that wait for more.
    pub(super) waiting: Vec<usize>,
}

/// A machine below the origin.
pub(super) struct Node {
    pub(super) machine: Replica<()>,
    /// The relay that serves the machines below it.
    pub(super) relay: Option<Relay<()>>,
    pub(super) timer: Option<u64>,
    stored: BTreeSet<Digest>,
    pub(super) arriving: BTreeMap<Digest, Arriving>,
    /// A body is sent to it.
    pub(super) is_receiving: bool,
}

impl Node {
    pub(super) fn new(number: u32, is_relay: bool, now: Reading) -> Self {
        let staleness =
            Staleness { connected: Duration::MAX, disconnected: None, ..Staleness::default() };
        let config = Config {
            replica: ReplicaId(number),
            staleness,
            grace: Duration::ZERO,
            ..Config::default()
        };
        let image = Image { incarnation: Incarnation(1), ..Image::default() };
        let mut machine = Replica::recover(now, config, image, []);
        let relay = is_relay.then(|| {
            let policy = Box::new(ReadsPerWriteAndByte);
            Relay::new(now, origin::Config::default(), policy, &mut machine)
        });
        let (timer, stored, arriving, is_receiving) = Default::default();
        Node { machine, relay, timer, stored, arriving, is_receiving }
    }

    /// Turns of a body that can be sent from here, of `all`.
    pub(super) fn turns_of(&self, digest: &Digest, all: u64) -> u64 {
        if self.stored.contains(digest) {
            return all;
        }
        self.arriving.get(digest).map_or(0, |arriving| arriving.here)
    }

    /// Whether all readers here see this state.
    pub(super) fn shows(&self, sequence: Sequence) -> bool {
        self.machine.position() >= sequence
    }

    /// Carries out the requests for the disk. Returns whether there is something for the machines below.
    pub(super) fn work(&mut self, now: Reading) -> bool {
        let mut has_news = false;
        loop {
            while let Some(effect) = self.machine.poll_effect() {
                match effect {
                    replica::Effect::Body(BodyEffect::Store(payload)) => {
                        self.stored.insert(payload.digest);
                        self.machine.handle_stored(now, &payload.digest, Ok(()));
                    }
                    replica::Effect::Body(BodyEffect::Drop(digest)) => {
                        self.stored.remove(&digest);
                        self.machine.handle_dropped(&digest);
                    }
                    replica::Effect::Commit(_) => self.machine.handle_committed(now, Ok(())),
                }
            }
            while self.machine.poll_garbage().is_some() {}
            let Some(relay) = &mut self.relay else { break };
            relay.handle_replica(now, &mut self.machine);
            while let Some(event) = relay.poll_event() {
                let is_expected = matches!(event, Event::Progress { .. } | Event::Arrived(_));
                assert!(is_expected, "nothing here fails: {event:?}");
            }
            while relay.origin().poll_garbage().is_some() {}
            has_news |= relay.take_news();
            if !relay.origin().has_more() {
                break;
            }
            relay.go_on(now, &mut self.machine);
        }
        while let Some(event) = self.machine.poll_event() {
            let is_expected = matches!(event, replica::Event::Connected { .. });
            assert!(is_expected, "nothing here fails: {event:?}");
        }
        has_news
    }
}
