//! Whether the path keeps flows apart, as fair queueing does (RFC 8290).
//!
//! Fair queueing hides the foreground: a pair at the floor meets no queue beside it. The background would
//! return, grow to its fair share, meet a queue of its own there, and leave again, for ever. So each return
//! after a competition begins with a *train*, a window of packets sent at once. The bottleneck serves a
//! train in one piece if flows share a queue, however long that queue is. If it keeps flows apart and
//! another one has packets, it serves the two in turns, and the train takes twice as long.

/// Packets of a train, at least and at most, and the part of the path's window that it takes between.
const MIN_TRAIN: u64 = 4;
const MAX_TRAIN: u64 = 16;
const TRAIN_PART: u64 = 6;
/// A train this much longer than its packets need, as a part of that, was served in turns with others.
const STRETCHED_PART: u64 = 2;
/// A train this much later than its packets need has met others.
const LATE_PART: u64 = 4;
/// Trains that must meet no others, one after the other: others may pause for a moment.
const FREE_TRAINS: u32 = 2;
/// The pause after a train that met others, in times of the train: it is 2 % of the path.
const PAUSE_TRAINS: u64 = 48;

/// The result of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Flows share a queue, which shows others.
    Shared,
    /// Flows are kept apart, and another one has packets.
    Others,
    /// Flows are kept apart, and this train met no other one. The next train decides.
    MaybeFree,
    /// Flows are kept apart, and there is no other one.
    Free,
}

/// Tells by trains whether flows are kept apart, and whether there are others then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FairQueueing {
    /// The last train was served in turns with others.
    keeps_flows_apart: bool,
    /// The next return is to begin with a train.
    is_due: bool,
    /// Packets of the train under way; 0 without one.
    packets: u64,
    /// Trains that have met no others, one after the other.
    free: u32,
}

impl FairQueueing {
    pub(super) fn keeps_flows_apart(&self) -> bool {
        self.keeps_flows_apart
    }

    /// Whether the window is a train now.
    pub(super) fn is_train(&self) -> bool {
        self.packets > 0
    }

    /// The background has yielded: what trains have shown may be another path's by now.
    pub(super) fn handle_competition(&mut self) {
        *self = FairQueueing { is_due: true, ..FairQueueing::default() };
    }

    /// A pair has met a queue of others.
    pub(super) fn handle_shared_queue(&mut self) {
        self.keeps_flows_apart = false;
    }

    /// The background returns: the packets of the train that it begins with; 0 where it needs none.
    /// `full` is the path's window in packets, `is_steady`: it is known to have no jitter,
    /// which stretches trains as well.
    pub(super) fn begin_return(&mut self, full: u64, is_steady: bool) -> u64 {
        self.keeps_flows_apart &= is_steady;
        let is_needed = is_steady && (self.keeps_flows_apart || self.is_due);
        self.packets = if is_needed { train(full) } else { 0 };
        self.free = 0;
        self.packets
    }

    /// A train has ended. Its first packet met a queue of `low` microseconds, and the last one of
    /// `high`. The path takes `packet_micros` for a packet.
    pub(super) fn end_train(&mut self, low: u32, high: u32, packet_micros: u64) -> Finding {
        let own = self.packets.saturating_sub(1) * packet_micros;
        let (stretch, late) = (u64::from(high.saturating_sub(low)), u64::from(high));
        self.keeps_flows_apart |= stretch > own + own / STRETCHED_PART;
        self.is_due = false;
        if self.keeps_flows_apart && late <= own + own / LATE_PART && self.free + 1 < FREE_TRAINS {
            self.free += 1;
            return Finding::MaybeFree;
        }
        self.packets = 0;
        match self.keeps_flows_apart {
            false => Finding::Shared,
            true if late > own + own / LATE_PART => Finding::Others,
            true => Finding::Free,
        }
    }
}

fn train(full: u64) -> u64 {
    (full / TRAIN_PART).clamp(MIN_TRAIN, MAX_TRAIN)
}

/// The pause in microseconds after a train that met others.
pub(super) fn pause(full: u64, packet_micros: u64, min_rtt: u32) -> u64 {
    (PAUSE_TRAINS * train(full) * packet_micros).max(4 * u64::from(min_rtt))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A train of 16 packets of 100 microseconds each.
    fn begin() -> FairQueueing {
        let mut fair_queueing = FairQueueing::default();
        assert_eq!(fair_queueing.begin_return(200, true), 0, "nothing has competed");
        fair_queueing.handle_competition();
        assert_eq!(fair_queueing.begin_return(200, true), 16);
        fair_queueing
    }

    #[test]
    fn train_in_one_piece_behind_a_queue_is_shared() {
        let mut fair_queueing = begin();
        assert_eq!(fair_queueing.end_train(9_000, 10_700, 100), Finding::Shared);
        assert!(!fair_queueing.keeps_flows_apart());
        assert_eq!(fair_queueing.begin_return(200, true), 0);
    }

    #[test]
    fn train_served_in_turns_shows_others_until_two_are_not() {
        let mut fair_queueing = begin();
        assert_eq!(fair_queueing.end_train(100, 3_000, 100), Finding::Others);
        for high in [2_900, 1_500] {
            assert_eq!(fair_queueing.begin_return(200, true), 16);
            let expected = if high > 2_000 { Finding::Others } else { Finding::MaybeFree };
            assert_eq!(fair_queueing.end_train(0, high, 100), expected);
        }
        assert_eq!(fair_queueing.end_train(0, 1_500, 100), Finding::Free);
        assert!(fair_queueing.keeps_flows_apart());
        fair_queueing.handle_competition();
        assert!(!fair_queueing.keeps_flows_apart());
    }

    #[test]
    fn train_takes_a_fiftieth_of_the_path() {
        assert_eq!((train(5), train(60), train(5_000)), (4, 10, 16));
        assert_eq!(pause(60, 1_000, 50_000), 480_000);
        assert_eq!(pause(60, 10, 50_000), 200_000);
    }
}
