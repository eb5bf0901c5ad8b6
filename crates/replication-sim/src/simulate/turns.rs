//! Bodies on the demand channel of a replica, which take turns.

use lull_replication::lane::{Lane, Lanes};
use lull_replication::message::{BodyHeader, Frame};
use lull_replication::types::Payload;

use super::clock::TrueTime;
use super::durable::Body;

/// A body of which a part has left.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub(super) frame: Frame<BodyHeader>,
    pub(super) payload: Option<Payload<Body>>,
    left: u64,
    begun: bool,
}

/// Bodies of one connection, as the origin sends them.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    bodies: [Option<Sending>; Lane::COUNT],
    next: usize,
    /// The connection is busy until then.
    pub(super) busy_until: TrueTime,
}

impl Turns {
    /// A body was taken from the queue, with the bytes of the disk.
    pub(super) fn add(
        &mut self,
        lanes: Lanes,
        frame: Frame<BodyHeader>,
        payload: Option<Payload<Body>>,
    ) {
        let lane = lanes.of_body(&frame.message);
        let left = payload.as_ref().map_or(0, |payload| payload.size.0);
        self.bodies[lane.index()] = Some(Sending { frame, payload, left, begun: false });
    }

    /// A body that is no longer wanted, if any: no read waits for it, or its connection is gone.
    pub(super) fn unwanted(
        &mut self,
        is_wanted: impl Fn(&Frame<BodyHeader>) -> bool,
    ) -> Option<Sending> {
        let bodies = self.bodies.iter_mut();
        let mut unwanted =
            bodies.filter(|body| body.as_ref().is_some_and(|sending| !is_wanted(&sending.frame)));
        unwanted.next()?.take()
    }

    /// Sends a piece of the body whose turn it is, if any. Returns its bytes, the body if that was the last
    /// piece, and whether it has overtaken a longer one that had begun.
    pub(super) fn send(&mut self, lanes: Lanes) -> Option<(u64, Option<Sending>, bool)> {
        let order = (0..Lane::COUNT).map(|step| (self.next + step) % Lane::COUNT);
        let at = order.into_iter().find(|at| self.bodies[*at].is_some())?;
        self.next = (at + 1) % Lane::COUNT;
        let longer = self.bodies[at + 1..].iter().flatten();
        let passes = longer.into_iter().any(|sending| sending.begun);
        let place = &mut self.bodies[at];
        let sending = place.as_mut()?;
        let bytes = sending.left.min(lanes.piece().0);
        sending.left -= bytes;
        sending.begun = true;
        let ended = if sending.left == 0 { place.take() } else { None };
        let passes = passes && ended.is_some();
        Some((bytes, ended, passes))
    }
}
