//! Two classes that share the link by weight, as CAKE's tins do.
//!
//! T. Høiland-Jørgensen, D. Täht and J. Morton, "Piece of CAKE", IEEE LANMAN 2018, §III.C. In CAKE's preset
//! `diffserv3`, packets of lower effort have a sixteenth of the rate while others wait, and all of it while none do.

use lull_cc::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    DSCP_LOWER_EFFORT, Dequeued, Effects, FqCodel, FqCodelParameters, Limit, QueuedPacket, Verdict,
};

/// The parameters of both classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TinsParameters {
    /// The queues of each class.
    pub fq_codel: FqCodelParameters,
    /// The lower class has one part of so many while both classes wait.
    pub parts: u32,
}

impl Default for TinsParameters {
    fn default() -> Self {
        TinsParameters { fq_codel: FqCodelParameters::default(), parts: 16 }
    }
}

#[derive(Clone, Debug)]
struct Tin<P> {
    flows: FqCodel<P>,
    /// Bytes that it may send before the other's turn, and what a turn adds.
    credits: i64,
    quantum: i64,
}

/// Two classes by DSCP, each with flow queues under CoDel, and deficit round robin between them.
#[derive(Clone, Debug)]
pub struct Tins<P> {
    /// Best effort, and lower effort.
    tins: [Tin<P>; 2],
    turn: usize,
}

impl<P: QueuedPacket> Tins<P> {
    /// Empty queues that hold at most `limit` in each class.
    ///
    /// # Panics
    /// If the lower class has no part of the link, or all of it.
    pub fn new(parameters: TinsParameters, limit: Limit, seed: u64) -> Self {
        let TinsParameters { fq_codel, parts } = parameters;
        assert!(parts > 1, "the lower class has a part of the link, not all of it");
        let tin = |parts: u32| Tin {
            flows: FqCodel::new(fq_codel, limit, seed),
            credits: 0,
            quantum: i64::from(parts) * i64::from(fq_codel.quantum),
        };
        Tins { tins: [tin(parts - 1), tin(1)], turn: 0 }
    }

    pub(super) fn enqueue(
        &mut self,
        now: Timestamp,
        packet: P,
        effects: &mut Effects<P>,
    ) -> Verdict {
        let tin = usize::from(packet.dscp() == DSCP_LOWER_EFFORT);
        self.tins[tin].flows.enqueue(now, packet, effects)
    }

    pub(super) fn dequeue(
        &mut self,
        now: Timestamp,
        effects: &mut Effects<P>,
    ) -> Option<Dequeued<P>> {
        while self.packets() > 0 {
            let tin = &mut self.tins[self.turn];
            if tin.credits > 0 {
                // CoDel may drop all that wait.
                if let Some(dequeued) = tin.flows.dequeue(now, effects) {
                    tin.credits -= dequeued.packet.bytes().0 as i64;
                    return Some(dequeued);
                }
                // A class without packets saves no credits.
                tin.credits = 0;
            }
            self.turn = 1 - self.turn;
            let next = &mut self.tins[self.turn];
            next.credits += next.quantum;
        }
        None
    }

    pub(super) fn packets(&self) -> u64 {
        self.tins.iter().map(|tin| tin.flows.packets()).sum()
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.tins.iter().map(|tin| tin.flows.bytes().0).sum())
    }
}
