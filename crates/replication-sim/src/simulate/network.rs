//! Links between the origin and its replicas.

use lull_replication::types::{Incarnation, Sequence};
use lull_sim::random::Random;

use super::clock::TrueTime;
use super::turns::Turns;

/// A way that messages take, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    ToOrigin,
    Control,
    Demand,
    Speculative,
}

/// The link of one replica.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// The usual delay one way.
    delay: TrueTime,
    /// Messages take longer by this much.
    pub(super) slow: TrueTime,
    /// Nothing arrives before then, without notice to either side.
    pub(super) cut_until: TrueTime,
    /// The connection as seen by the replica, and by the origin.
    pub(super) at_replica: Option<u32>,
    pub(super) at_origin: Option<u32>,
    /// Connections up to this number are dead.
    pub(super) dead: u32,
    /// Counts connections; and those of the replica's life, as the replica does.
    pub(super) connections: u32,
    pub(super) of_this_life: u32,
    /// Connections up to this number were made before the replica joined.
    pub(super) joined: u32,
    /// On this connection the replica takes nothing, and the last commit when that began.
    pub(super) ignores_messages_on: Option<(u32, Sequence)>,
    /// The messages of the replica are delayed until then.
    pub(super) sends_delayed_until: TrueTime,
    /// The origin gets nothing more on connections up to this number.
    last_dead_connection: u32,
    /// The replica was welcomed on the present connection.
    pub(super) welcomed: bool,
    /// Connections that the origin may still regard as alive, by life and number.
    pub(super) at_origin_before: Vec<(Incarnation, u32)>,
    last: [TrueTime; 4],
    /// The background connection is busy until then.
    pub(super) busy_until: TrueTime,
    /// Demanded bodies in flight.
    pub(super) demanded: Turns,
    /// How many times as long that takes as in the background.
    pub(super) demand_slowdown: u64,
}

impl Link {
    pub(super) fn new(random: &mut Random) -> Self {
        Link {
            delay: 500_000 + random.below(15_000_000),
            slow: 0,
            cut_until: 0,
            at_replica: None,
            at_origin: None,
            dead: 0,
            connections: 0,
            of_this_life: 0,
            joined: 0,
            ignores_messages_on: None,
            sends_delayed_until: 0,
            last_dead_connection: 0,
            welcomed: false,
            at_origin_before: Vec::new(),
            last: [0; 4],
            busy_until: 0,
            demanded: Turns::default(),
            demand_slowdown: if random.below(3) == 0 { 4 } else { 1 },
        }
    }

    /// When a message sent now arrives: never before an earlier one on the same way.
    pub(super) fn arrival(&mut self, now: TrueTime, way: Way, random: &mut Random) -> TrueTime {
        let delay = self.delay / 2 + random.below(self.delay + 1) + self.slow;
        let held = if way == Way::ToOrigin { self.sends_delayed_until } else { 0 };
        let last = &mut self.last[way as usize];
        let at = (now.max(self.cut_until).max(held) + delay).max(*last + 1);
        *last = at;
        at
    }

    /// Whether a message is still delivered: always on its own connection, and now and then one of an older
    /// connection comes late. Then no earlier message to the origin is missing: the origin may take that
    /// connection for the present one.
    pub(super) fn arrives(
        &mut self,
        connection: u32,
        at_origin: bool,
        random: &mut Random,
    ) -> bool {
        let present = if at_origin { self.at_origin } else { self.at_replica };
        let arrives = match present {
            // A predecessor under this name is rejected.
            _ if connection <= self.joined => false,
            _ if at_origin && connection <= self.last_dead_connection => false,
            Some(present) if present == connection => connection > self.dead,
            Some(_) => random.below(4) == 0,
            None => false,
        };
        if at_origin && !arrives {
            self.last_dead_connection = self.last_dead_connection.max(connection);
        }
        arrives
    }

    /// The replica turns to another parent: what is on its way to the former one does not reach it.
    pub(super) fn leave_parent(&mut self) -> Vec<(Incarnation, u32)> {
        self.at_origin = None;
        self.demanded = Turns::default();
        (self.dead, self.last_dead_connection) = (self.connections, self.connections);
        core::mem::take(&mut self.at_origin_before)
    }

    /// Whether the replica reads nothing from this connection.
    pub(super) fn is_unread(&self, connection: u32) -> bool {
        self.ignores_messages_on.is_some_and(|(ignored, _)| ignored == connection)
    }

    /// How long `bytes` of bodies keep a connection busy, with 8 to 80 Mbit/s of capacity.
    pub(super) fn service(&self, bytes: u64, random: &mut Random) -> TrueTime {
        bytes * (100 + random.below(900))
    }
}
