//! Links between the origin and its replicas.

use lull_sim::random::Random;

use super::clock::True;
use super::turns::Turns;
use crate::types::Incarnation;

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
    delay: True,
    /// Messages take so much longer.
    pub(super) slow: True,
    /// Nothing arrives before then, and nobody is told.
    pub(super) cut_until: True,
    /// The connection as the replica sees it, and as the origin does.
    pub(super) at_replica: Option<u32>,
    pub(super) at_origin: Option<u32>,
    /// Connections up to this number are dead.
    pub(super) dead: u32,
    /// Counts connections; and those of the replica's life, as it counts them itself.
    pub(super) connections: u32,
    pub(super) of_this_life: u32,
    /// The replica was welcomed on the present connection.
    pub(super) welcomed: bool,
    /// Connections that the origin may still take for alive, by life and number.
    pub(super) at_origin_before: Vec<(Incarnation, u32)>,
    last: [True; 4],
    /// The background connection is busy until then.
    pub(super) busy_until: True,
    /// What reads wait for, on its way.
    pub(super) demanded: Turns,
    /// How many times as long that takes as in the background.
    pub(super) narrow: u64,
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
            welcomed: false,
            at_origin_before: Vec::new(),
            last: [0; 4],
            busy_until: 0,
            demanded: Turns::default(),
            narrow: if random.below(3) == 0 { 4 } else { 1 },
        }
    }

    /// When what is sent now arrives: never before what was sent earlier the same way.
    pub(super) fn arrival(&mut self, now: True, way: Way, random: &mut Random) -> True {
        let delay = self.delay / 2 + random.below(self.delay + 1) + self.slow;
        let last = &mut self.last[way as usize];
        let at = (now.max(self.cut_until) + delay).max(*last + 1);
        *last = at;
        at
    }

    /// How long `bytes` of bodies keep a connection busy: 8 to 80 Mbit/s are left.
    pub(super) fn service(&self, bytes: u64, random: &mut Random) -> True {
        bytes * (100 + random.below(900))
    }
}
