//! The sender's state of its sent segments (RFC 6675 §2, §4).
//!
//! Every number of RFC 6675 is updated when a segment changes its state, so that neither `pipe` nor `IsLost`
//! ever iterates over the window:
//!
//! ```text
//!            send                 SACK
//!  (unsent) ──────▶ outstanding ───────────▶ sacked ──────┐
//!                     │    ▲      SACK         ▲          │ cumulative
//!          3 above are│    │timeout: all       │ SACK     │ acknowledgement
//!          sacked     ▼    ▼ not sacked        │          ▼
//!                    lost ───────────────▶ lost, sent again ──▶ (gone)
//! ```

use std::collections::VecDeque;

use crate::memory::bytes_of;
use crate::packet::{SACK_BLOCKS, SackBlock};

/// RFC 6675 §2: the number of duplicate acknowledgements, or of segments above, that indicates a loss.
pub(super) const DUP_THRESH: usize = 3;

/// The receiver has it.
const SACKED: u8 = 1;
/// It is assumed to be lost.
const LOST: u8 = 2;
/// It was retransmitted and may be in the network.
const RETRANSMITTED: u8 = 4;
/// It has been sent more than once, so its round-trip time is ambiguous.
const AMBIGUOUS: u8 = 8;
/// The application was the limit when it was sent.
const APP_LIMITED: u8 = 16;
/// It is the last of the connection.
const LAST: u8 = 32;

/// The state at the time when a segment was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamp {
    /// When it was sent, in nanoseconds.
    pub(super) sent: u64,
    /// When the latest delivery before that happened.
    pub(super) delivered_time: u64,
    /// When the segment of that delivery was sent.
    pub(super) first_sent: u64,
    /// How many segments had been delivered.
    pub(super) delivered: u32,
    /// Whether the application was the limit.
    pub(super) app_limited: bool,
}

/// The record of a segment: half a cache line, and never across two of them.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Segment {
    sent: u64,
    delivered_time: u64,
    /// From the time of the stamp's `first_sent` to `sent`.
    sending: Span,
    delivered: u32,
    payload: u16,
    flags: u8,
}

const _: () = assert!(size_of::<Segment>() == 32, "a segment is half a cache line");

/// Nanoseconds in 48 bits. Longer times count as the maximum: rates are measured over microseconds in 32
/// bits, which end long before.
#[derive(Clone, Copy, Debug)]
struct Span([u16; 3]);

impl Span {
    const ZERO: Span = Span([0; 3]);

    fn of(nanos: u64) -> Self {
        let nanos = nanos.min((1 << 48) - 1);
        Span([nanos as u16, (nanos >> 16) as u16, (nanos >> 32) as u16])
    }

    fn nanos(self) -> u64 {
        let Span([low, middle, high]) = self;
        u64::from(high) << 32 | u64::from(middle) << 16 | u64::from(low)
    }
}

impl Segment {
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn stamp(&mut self, stamp: Stamp) {
        self.sent = stamp.sent;
        self.delivered_time = stamp.delivered_time;
        self.sending = Span::of(stamp.sent - stamp.first_sent);
        self.delivered = stamp.delivered;
        self.flags &= !APP_LIMITED;
        self.flags |= if stamp.app_limited { APP_LIMITED } else { 0 };
    }
}

/// The segments that an acknowledgement delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivery {
    /// Segments newly acknowledged or selectively acknowledged.
    pub(super) segments: u32,
    /// Payload newly acknowledged cumulatively.
    pub(super) bytes: u64,
    /// The newest of them.
    pub(super) newest: Option<Newest>,
}

impl Delivery {
    /// Whether the segments were on average smaller than three quarters of a full one, as far as known:
    /// selectively acknowledged ones are not counted in bytes.
    pub(super) fn is_of_small(&self, segment_bytes: u16) -> bool {
        self.bytes > 0 && self.bytes < u64::from(self.segments) * u64::from(segment_bytes) * 3 / 4
    }
}

/// The most recently sent segment of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest {
    pub(super) stamp: Stamp,
    /// It was sent more than once.
    pub(super) is_ambiguous: bool,
}

impl Delivery {
    fn see(&mut self, segment: &Segment) {
        self.segments += 1;
        if self.newest.is_none_or(|newest| segment.sent >= newest.stamp.sent) {
            let Segment { sent, delivered_time, sending, delivered, .. } = *segment;
            let first_sent = sent - sending.nanos();
            let app_limited = segment.has(APP_LIMITED);
            let stamp = Stamp { sent, delivered_time, first_sent, delivered, app_limited };
            self.newest = Some(Newest { stamp, is_ambiguous: segment.has(AMBIGUOUS) });
        }
    }
}

/// Segments sent and not yet acknowledged cumulatively.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    /// The number of the first (SND.UNA).
    first: u32,
    segments: VecDeque<Segment>,
    /// Segments that are sacked, lost, or retransmitted and in flight. Without selective acknowledgements
    /// `sacked` counts duplicate ones (RFC 6582: the window is inflated).
    sacked: u32,
    lost: u32,
    again: u32,
    /// Lost ones that have not been retransmitted.
    unrepaired: u32,
    /// The highest three sacked numbers plus one, ascending; 0 for none.
    highest: [u32; DUP_THRESH],
    /// Everything below has been checked for losses.
    frontier: u32,
    /// RFC 6675 §2, HighRxt plus one: no segment below is retransmitted in this recovery.
    cursor: u32,
    /// The blocks of the previous acknowledgement: all segments in them are already sacked.
    known: [SackBlock; SACK_BLOCKS],
}

impl Scoreboard {
    /// The first number that has not been acknowledged (SND.UNA).
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Prefetches the memory that an acknowledgement will need.
    pub(super) fn touch(&self) {
        let ends = self.segments.front().zip(self.segments.back());
        core::hint::black_box((self.first, self.known, ends.map(|(a, b)| a.sent ^ b.sent)));
    }

    /// Memory of the segments, with reserved capacity.
    pub(super) fn memory_bytes(&self) -> u64 {
        bytes_of::<Segment>(self.segments.capacity())
    }

    /// The number of the next new segment (SND.NXT).
    pub(super) fn next(&self) -> u32 {
        self.first + self.outstanding()
    }

    /// Segments not yet acknowledged cumulatively.
    pub(super) fn outstanding(&self) -> u32 {
        self.segments.len() as u32
    }

    /// Segments in the network: RFC 6675 §4, `pipe`.
    pub(super) fn in_flight(&self) -> u32 {
        // Neither those that have arrived nor those that are lost, but each retransmitted copy.
        self.outstanding() + self.again - self.sacked - self.lost
    }

    /// Segments that are assumed to be lost and not retransmitted.
    pub(super) fn unrepaired(&self) -> u32 {
        self.unrepaired
    }

    /// Segments that are assumed to be lost, retransmitted or not.
    pub(super) fn lost(&self) -> u32 {
        self.lost
    }

    /// Duplicate acknowledgements, or sacked segments.
    pub(super) fn sacked(&self) -> u32 {
        self.sacked
    }

    fn index(&self, number: u32) -> usize {
        (number - self.first) as usize
    }

    /// A new segment has been sent; returns its number.
    pub(super) fn push(&mut self, stamp: Stamp, payload: u16, is_last: bool) -> u32 {
        let number = self.next();
        let flags = if is_last { LAST } else { 0 };
        let (sent, delivered_time, sending) = (0, 0, Span::ZERO);
        let mut segment = Segment { sent, delivered_time, sending, delivered: 0, payload, flags };
        segment.stamp(stamp);
        self.segments.push_back(segment);
        number
    }

    /// A segment is retransmitted; returns its payload and whether it is the last.
    pub(super) fn push_again(&mut self, number: u32, stamp: Stamp) -> (u16, bool) {
        let index = self.index(number);
        let segment = &mut self.segments[index];
        assert!(!segment.has(SACKED), "segment {number} has arrived, it is not sent again");
        if !segment.has(RETRANSMITTED) {
            self.again += 1;
            if segment.has(LOST) {
                self.unrepaired -= 1;
            }
        }
        segment.flags |= RETRANSMITTED | AMBIGUOUS;
        segment.stamp(stamp);
        (segment.payload, segment.has(LAST))
    }

    /// Everything before `cumulative` has arrived.
    pub(super) fn acknowledge(&mut self, cumulative: u32, delivery: &mut Delivery) {
        while self.first < cumulative {
            let Some(segment) = self.segments.pop_front() else {
                panic!("segment {} was acknowledged before it was sent", self.first);
            };
            self.first += 1;
            delivery.bytes += u64::from(segment.payload);
            if segment.has(SACKED) {
                self.sacked -= 1;
            } else {
                delivery.see(&segment);
            }
            self.forget_loss(segment.flags);
        }
        self.frontier = self.frontier.max(self.first);
        self.cursor = self.cursor.max(self.first);
    }

    fn forget_loss(&mut self, flags: u8) {
        if flags & RETRANSMITTED != 0 {
            self.again -= 1;
        }
        if flags & LOST != 0 {
            self.lost -= 1;
            if flags & RETRANSMITTED == 0 {
                self.unrepaired -= 1;
            }
        }
    }

    /// The segments in these blocks have arrived (RFC 6675 §4, `Update`).
    pub(super) fn select(&mut self, blocks: &[SackBlock], delivery: &mut Delivery) {
        let mut fresh = [(0, 0); SACK_BLOCKS];
        for (at, &(start, end)) in blocks.iter().enumerate() {
            assert!(start <= end && end <= self.next(), "a block of what was never sent");
            let (mut start, end) = (start.max(self.first), end);
            fresh[at] = (start, end.max(start));
            // Blocks mostly grow at one end. The part that the previous acknowledgement reported is skipped,
            // so that a long block costs no more than a short one.
            while start < end {
                let known = self.known.iter().find(|(from, to)| (*from..*to).contains(&start));
                if let Some(&(_, to)) = known {
                    start = to;
                } else {
                    self.sack(start, delivery);
                    start += 1;
                }
            }
        }
        self.known = fresh;
    }

    fn sack(&mut self, number: u32, delivery: &mut Delivery) {
        let index = self.index(number);
        let segment = &mut self.segments[index];
        if segment.has(SACKED) {
            return;
        }
        delivery.see(segment);
        let flags = segment.flags;
        segment.flags = flags & !(LOST | RETRANSMITTED) | SACKED;
        self.forget_loss(flags);
        self.sacked += 1;
        // An insertion into three ascending numbers.
        let mut above = number + 1;
        for place in self.highest.iter_mut().rev() {
            if above > *place {
                core::mem::swap(&mut above, place);
            }
        }
    }

    /// RFC 6675 §4, `IsLost`: marks every segment with three sacked ones above it, which covers both its
    /// rules if segments are full. Returns the number of new losses from `from` on.
    pub(super) fn detect(&mut self, from: u32) -> u32 {
        let mut found = 0;
        // The lowest of the highest three: all segments below it have three above.
        let end = self.highest[0].saturating_sub(1);
        while self.frontier < end {
            let number = self.frontier;
            self.frontier += 1;
            if self.mark_lost(number) && number >= from {
                found += 1;
            }
        }
        found
    }

    /// Marks a segment as lost; returns `false` if it was marked already, or has arrived.
    pub(super) fn mark_lost(&mut self, number: u32) -> bool {
        let index = self.index(number);
        let segment = &mut self.segments[index];
        if segment.flags & (SACKED | LOST) != 0 {
            return false;
        }
        segment.flags |= LOST;
        self.lost += 1;
        if !segment.has(RETRANSMITTED) {
            self.unrepaired += 1;
        }
        true
    }

    /// After a timeout every segment that has not arrived is lost, and so are retransmitted ones. (RFC 6675
    /// §5.1. RFC 2018 §8 would also discard the sacked state, for receivers that renege.)
    pub(super) fn mark_all_lost(&mut self, keep_sacked: bool) {
        if !keep_sacked {
            self.sacked = 0;
        }
        for segment in &mut self.segments {
            if !segment.has(SACKED) {
                segment.flags = segment.flags & !RETRANSMITTED | LOST;
            }
        }
        self.again = 0;
        self.lost = self.outstanding() - self.sacked;
        self.unrepaired = self.lost;
        self.cursor = self.first;
        self.frontier = self.next();
    }

    /// A recovery begins: RFC 6675 §5 step 4.
    pub(super) fn restart(&mut self) {
        self.cursor = self.first;
    }

    /// RFC 6675 §4, `NextSeg` rule 1: the next lost segment that was not retransmitted.
    pub(super) fn next_lost(&mut self) -> Option<u32> {
        if self.unrepaired == 0 {
            return None;
        }
        while self.cursor < self.next() {
            let segment = &self.segments[self.index(self.cursor)];
            if segment.has(LOST) && !segment.has(RETRANSMITTED) {
                return Some(self.cursor);
            }
            self.cursor += 1;
        }
        None
    }

    /// `NextSeg` rule 3: the next segment below the highest sacked one that has not arrived, lost or not, and
    /// was not retransmitted.
    pub(super) fn next_missing(&mut self) -> Option<u32> {
        let end = self.highest[DUP_THRESH - 1];
        while self.cursor < end {
            let segment = &self.segments[self.index(self.cursor)];
            if segment.flags & (SACKED | RETRANSMITTED) == 0 {
                return Some(self.cursor);
            }
            self.cursor += 1;
        }
        None
    }

    /// Whether [`next_missing`](Scoreboard::next_missing) would return one.
    pub(super) fn has_missing(&self) -> bool {
        let end = self.highest[DUP_THRESH - 1];
        (self.cursor..end).any(|number| {
            let segment = &self.segments[self.index(number)];
            segment.flags & (SACKED | RETRANSMITTED) == 0
        })
    }

    /// `NextSeg` rule 4: the highest segment that has not arrived. As published, the rule may select a
    /// segment that another rule has just retransmitted. Such a segment is not sent a third time.
    pub(super) fn highest_missing(&self) -> Option<u32> {
        let from_end = self.segments.iter().rev().position(|segment| !segment.has(SACKED))?;
        let number = self.next() - 1 - from_end as u32;
        (!self.segments[self.index(number)].has(RETRANSMITTED)).then_some(number)
    }

    /// Without selective acknowledgements: one more unknown segment has arrived. It is assumed to be the
    /// first after those that have already arrived.
    pub(super) fn duplicate(&mut self, delivery: &mut Delivery) {
        // One of the outstanding ones is the hole, and the lost ones have not arrived.
        if self.sacked + self.lost.max(1) < self.outstanding() {
            self.sacked += 1;
            delivery.see(&self.segments[self.sacked as usize]);
        }
    }

    /// Without selective acknowledgements: everything before `cumulative` has arrived. Duplicate
    /// acknowledgements have already reported some of it: one segment filled the hole, the others had been
    /// reported.
    pub(super) fn acknowledge_plain(&mut self, cumulative: u32, delivery: &mut Delivery) {
        let told = self.sacked;
        let acknowledged = cumulative - self.first;
        let before = delivery.segments;
        self.sacked = 0;
        self.acknowledge(cumulative, delivery);
        let left = told.saturating_sub(acknowledged.saturating_sub(1));
        // The lost segments have not arrived, and neither has the next hole.
        self.sacked = left.min(self.outstanding().saturating_sub(self.lost.max(1)));
        delivery.segments = before + acknowledged - (told - left).min(acknowledged - 1);
    }

    /// Without selective acknowledgements: discards the counts of duplicate ones.
    pub(super) fn forget_duplicates(&mut self) {
        self.sacked = 0;
    }

    /// Whether the counts agree with the segments, except for sacked ones: without selective acknowledgements
    /// it is unknown which ones those are.
    #[cfg(test)]
    fn is_consistent(&self) -> bool {
        let count = |test: &dyn Fn(&Segment) -> bool| {
            self.segments.iter().filter(|segment| test(segment)).count() as u32
        };
        let sacked = count(&|segment| segment.has(SACKED));
        (self.sacked == sacked || sacked == 0)
            && self.lost == count(&|segment| segment.has(LOST))
            && self.again == count(&|segment| segment.has(RETRANSMITTED))
            && self.unrepaired == count(&|segment| segment.has(LOST) && !segment.has(RETRANSMITTED))
            && count(&|segment| segment.has(SACKED) && segment.has(LOST | RETRANSMITTED)) == 0
            && self.sacked + self.lost <= self.outstanding() + self.again
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The operations on a scoreboard; numbers are taken modulo the possible ones.
    #[derive(Clone, Debug)]
    enum Step {
        Send,
        Mend,
        Missing,
        Acknowledge(u32),
        Select(u32, u32),
        Duplicate,
        Timeout,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => Just(Step::Send),
            3 => Just(Step::Mend),
            1 => Just(Step::Missing),
            2 => (0u32..8).prop_map(Step::Acknowledge),
            4 => (0u32..20, 1u32..5).prop_map(|(start, length)| Step::Select(start, length)),
            3 => Just(Step::Duplicate),
            1 => Just(Step::Timeout),
        ]
    }

    fn play(board: &mut Scoreboard, step: &Step, has_sack: bool) {
        let mut delivery = Delivery::default();
        let (first, next) = (board.first(), board.next());
        match *step {
            Step::Send => {
                assert_eq!(board.push(Stamp::default(), 1_000, false), next);
            }
            Step::Mend => {
                if let Some(number) = board.next_lost() {
                    board.push_again(number, Stamp::default());
                }
            }
            Step::Missing if has_sack => {
                if let Some(number) = board.next_missing() {
                    board.push_again(number, Stamp::default());
                }
            }
            Step::Acknowledge(by) => {
                let cumulative = first + by.min(next - first);
                if has_sack {
                    board.acknowledge(cumulative, &mut delivery);
                } else if cumulative > first {
                    board.acknowledge_plain(cumulative, &mut delivery);
                    assert!(delivery.segments <= cumulative - first);
                }
                assert_eq!(board.first(), cumulative);
            }
            // The first outstanding segment is the missing one, so it is never sacked.
            Step::Select(start, length) if has_sack && next - first > 1 => {
                let start = first + 1 + start % (next - first - 1);
                let end = (start + length).min(next);
                board.select(&[(start, end)], &mut delivery);
                assert!(delivery.segments <= end - start);
                board.detect(first);
            }
            Step::Duplicate if !has_sack => {
                board.duplicate(&mut delivery);
                if board.sacked() >= 3 {
                    board.mark_lost(first);
                }
            }
            Step::Timeout => board.mark_all_lost(has_sack),
            Step::Missing | Step::Select(..) | Step::Duplicate => {}
        }
    }

    proptest! {
        #[test]
        fn scoreboard_counts_agree_and_are_never_negative(
            steps in prop::collection::vec(step(), 1..400),
            has_sack: bool,
        ) {
            let mut board = Scoreboard::default();
            for step in &steps {
                play(&mut board, step, has_sack);
                prop_assert!(board.is_consistent(), "after {step:?}: {board:?}");
                // Counts are unsigned: this would panic below zero.
                prop_assert!(board.in_flight() <= 2 * board.outstanding());
            }
        }
    }

    /// RFC 6675 §4.
    #[test]
    fn pipe_counts_segments_in_flight_and_their_copies() {
        let mut board = Scoreboard::default();
        for _ in 0..10 {
            board.push(Stamp::default(), 1_000, false);
        }
        assert_eq!(board.in_flight(), 10);
        board.select(&[(2, 4)], &mut Delivery::default());
        assert_eq!((board.detect(0), board.in_flight()), (0, 8));
        board.select(&[(2, 5)], &mut Delivery::default());
        assert_eq!((board.detect(0), board.in_flight()), (2, 5), "0 and 1 are lost");
        assert_eq!(board.next_lost(), Some(0));
        board.push_again(0, Stamp::default());
        assert_eq!((board.next_lost(), board.in_flight()), (Some(1), 6));
        board.acknowledge(1, &mut Delivery::default());
        assert_eq!((board.in_flight(), board.outstanding()), (5, 9));
    }

    #[test]
    fn growing_sack_block_delivers_only_new_segments() {
        let mut board = Scoreboard::default();
        for _ in 0..1_000 {
            board.push(Stamp::default(), 1_000, false);
        }
        for end in 2..=1_000 {
            let mut delivery = Delivery::default();
            board.select(&[(1, end)], &mut delivery);
            assert_eq!(delivery.segments, 1, "block up to {end}");
        }
        assert_eq!(board.sacked(), 999);
    }
}
