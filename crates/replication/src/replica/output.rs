//! Output of the replica: what its caller has to do.

use std::collections::VecDeque;
use std::sync::Arc;

use super::buffer::Garbage;
use super::interface::{Counters, Event};
use super::read_lease::Skew;
use super::relayed::{Relayed, Relaying};
use crate::time::{LocalTime, WallTime};
use crate::types::{Change, Commit, Sequence};

/// Events, counts and garbage until the caller asks for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Output {
    pub(super) events: VecDeque<Event>,
    pub(super) counters: Counters,
    pub(super) garbage: Vec<Garbage>,
    /// The bodies that a relay passes on; none if this replica is no relay.
    pub(super) relaying: Option<Relaying>,
    /// The skew is too large, and that was reported.
    skew_reported: bool,
}

impl Output {
    /// The skew is too large now, or is not: that is reported once.
    pub(super) fn report_skew(&mut self, exceeded: Option<Skew>) {
        if let Some(skew) = exceeded.filter(|_| !self.skew_reported) {
            self.events.push_back(Event::SkewExceeded(skew));
        }
        self.skew_reported = exceeded.is_some();
    }

    /// Notes something for the replicas below; returns whether this is a relay.
    pub(super) fn pass_on(&mut self, relayed: impl FnOnce() -> Relayed) -> bool {
        let Some(relaying) = &mut self.relaying else { return false };
        relaying.queue.push_back(relayed());
        true
    }

    /// A part of a commit has come.
    pub(super) fn pass_on_part(
        &mut self,
        (sequence, stamp): (Sequence, WallTime),
        changes: &[Change],
        more: bool,
    ) {
        let Some(relaying) = &mut self.relaying else { return };
        relaying.changes.extend_from_slice(changes);
        if !more {
            let changes: Arc<[Change]> = core::mem::take(&mut relaying.changes).into();
            relaying.queue.push_back(Relayed::Commit(Commit { sequence, stamp, changes }));
        }
    }

    /// A ping is sent.
    pub(super) fn note_ping(&mut self, now: LocalTime) {
        if let Some(relaying) = &mut self.relaying {
            (relaying.pinged, relaying.has_pinged) = (Some(now), true);
        }
    }

    /// The rest of a commit does not come.
    pub(super) fn forget_parts(&mut self) {
        if let Some(relaying) = &mut self.relaying {
            relaying.changes.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_is_reported_once_each_time() {
        let mut output = Output::default();
        let skew = Skew { least: 5, most: 9 };
        for exceeded in [Some(skew), Some(skew), None, None, Some(skew)] {
            output.report_skew(exceeded);
        }
        assert_eq!(output.events, [Event::SkewExceeded(skew), Event::SkewExceeded(skew)]);
    }
}
