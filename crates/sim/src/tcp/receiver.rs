//! The receiving end: reassembly, acknowledgements, their delay and their echo of congestion.

use std::collections::VecDeque;

use lull_cc::Timestamp;
use lull_cc::receive::{Arrival, Flow};

use super::Parameters;
use super::counters::ReceiverCounters;
use crate::memory::bytes_of;
use crate::packet::{AckHeader, DataHeader, SACK_BLOCKS, SackBlock};

/// Why, and when, an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingAck {
    /// No acknowledgement is due.
    Nothing,
    /// A segment waits for another one (RFC 1122 §4.2.3.2).
    Delayed { segments: u32, deadline: Timestamp },
    /// At once.
    Now,
}

/// The receiving end of a connection.
///
/// Calling order: [`handle_data`](Receiver::handle_data) for each segment and
/// [`handle_timeout`](Receiver::handle_timeout) at the [`deadline`](Receiver::deadline); after each, send the
/// acknowledgement from [`poll_transmit`](Receiver::poll_transmit).
#[derive(Debug)]
pub struct Receiver {
    /// The next segment expected (RCV.NXT).
    next: u32,
    window: u32,
    recovery_sack: bool,
    delayed_ack: super::DelayedAck,
    due: PendingAck,
    /// Segments that have arrived so far, up to the number that is acknowledged at once.
    quick: u32,
    /// Segments that arrived beyond `next`: blocks in ascending order that do not touch.
    blocks: VecDeque<SackBlock>,
    /// Segments of the blocks that changed last, the newest first (RFC 2018 §4).
    recent: [u32; SACK_BLOCKS],
    /// RFC 3168 §6.1.3: echo until the sender reports that it has reduced its window.
    echo: bool,
    one_way_micros: u32,
    counters: ReceiverCounters,
    steering: Option<Box<Steering>>,
}

/// A receiver that yields by its advertised window.
#[derive(Debug)]
struct Steering {
    flow: Flow,
    /// The first segment that may not be sent.
    edge: u32,
    /// The time stamp that the newest segment echoes.
    echo: u32,
    /// Segments that had arrived at the last acknowledgement, and the allowed and advertised windows at that
    /// time, in segments.
    arrived: u32,
    allowed: u32,
    advertised: u32,
    /// The kernel opens a window by two segments for each arriving one (`rcv_ssthresh`).
    most: u32,
}

impl Steering {
    fn new(flow: Flow) -> Self {
        let (edge, advertised, most) = (FIRST_WINDOW, FIRST_WINDOW, FIRST_WINDOW);
        Steering { flow, edge, echo: 0, arrived: 0, allowed: most, advertised, most }
    }

    /// Linux's window for this many segments.
    fn limit(&mut self, arrived: u32, packets: u32) -> u32 {
        let new = 2 * (arrived - self.arrived);
        self.most = self.allowed.min(self.most + new);
        self.most =
            if packets < self.most { packets } else { self.most.max(self.advertised.min(packets)) };
        self.arrived = arrived;
        self.allowed = packets;
        self.most
    }
}

/// Nanoseconds of one step of Linux's time stamps.
const CLOCK_NANOS: u64 = 1_000_000;
/// A receiver that yields advertises this many segments before the first acknowledgement.
pub(crate) const FIRST_WINDOW: u32 = 2;

impl Receiver {
    /// A receiver that expects the first segment.
    pub fn new(parameters: &Parameters) -> Self {
        Receiver {
            next: 0,
            window: parameters.receive_window,
            recovery_sack: parameters.recovery == super::Recovery::Sack,
            delayed_ack: parameters.delayed_ack,
            due: PendingAck::Nothing,
            quick: 0,
            blocks: VecDeque::new(),
            recent: [u32::MAX; SACK_BLOCKS],
            echo: false,
            one_way_micros: 0,
            counters: ReceiverCounters::default(),
            steering: None,
        }
    }

    /// Yields by its advertised window, from the first segment on.
    pub(crate) fn steer(&mut self, flow: Flow) {
        self.steering = Some(Box::new(Steering::new(flow)));
    }

    /// Whether it steers its advertised window.
    pub(crate) fn is_steered(&self) -> bool {
        self.steering.is_some()
    }

    /// The time stamp of a packet sent `now`.
    pub(crate) fn clock(now: Timestamp) -> u32 {
        (now.as_nanos() / CLOCK_NANOS) as u32
    }

    /// The segment that arrives now echoes this time stamp.
    pub(crate) fn handle_echo(&mut self, now: Timestamp, echo: u32) {
        if let Some(steering) = &mut self.steering {
            steering.echo = echo;
            steering.flow.handle_echo(now, echo);
        }
    }

    /// The window of an acknowledgement sent `now`.
    fn steered_window(&mut self, now: Timestamp) {
        let Some(steering) = &mut self.steering else { return };
        let arrived = (self.counters.segments + self.counters.duplicates) as u32;
        let arrival = Arrival {
            now,
            packets: arrived,
            echo: Some(steering.echo),
            clock: Self::clock(now),
            advertised: steering.advertised,
            granted: steering.edge.saturating_sub(self.next),
            blocks: self.blocks.len() as u32,
        };
        let packets = steering.flow.handle_arrival(&arrival);
        let packets = steering.limit(arrived, packets);
        // An advertised window is not taken back.
        steering.edge = steering.edge.max(self.next.saturating_add(packets));
        self.window = steering.edge - self.next;
        steering.advertised = self.window;
    }

    /// Prefetches the memory that a segment will need.
    pub(crate) fn touch(&self) {
        core::hint::black_box((self.next, self.counters.segments, self.blocks.front()));
    }

    /// Its heap memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        bytes_of::<SackBlock>(self.blocks.capacity())
    }

    /// A segment arrives that was sent at `sent`; `marked` says whether it carries "congestion
    /// experienced".
    pub fn handle_data(
        &mut self,
        now: Timestamp,
        data: &DataHeader,
        sent: Timestamp,
        marked: bool,
    ) {
        // RFC 3168 §6.1.3: the sender's answer ends the echo, a mark begins it again.
        self.echo = (self.echo && !data.window_reduced) || marked;
        self.counters.marked += u64::from(marked);
        self.one_way_micros = u32::try_from((now - sent).as_nanos() / 1_000).unwrap_or(u32::MAX);
        let had_hole = !self.blocks.is_empty();
        let is_in_order = data.number == self.next;
        let is_new = if is_in_order {
            self.advance();
            true
        } else {
            data.number > self.next && self.insert(data.number)
        };
        if is_new {
            self.counters.segments += 1;
            self.counters.bytes += u64::from(data.payload);
        } else {
            self.counters.duplicates += 1;
        }
        self.quick = self.quick.saturating_add(1);
        // RFC 5681 §4.2: out of order, or filling a hole: at once. Also the end of the connection, since no
        // other segment will follow it.
        let at_once = !is_in_order || had_hole || data.last || self.quick <= self.delayed_ack.quick;
        self.due = match self.due {
            _ if at_once => PendingAck::Now,
            PendingAck::Now => PendingAck::Now,
            PendingAck::Nothing if self.delayed_ack.every <= 1 => PendingAck::Now,
            PendingAck::Nothing => {
                let timeout = core::time::Duration::from_nanos(self.delayed_ack.timeout_nanos);
                PendingAck::Delayed { segments: 1, deadline: now + timeout }
            }
            PendingAck::Delayed { segments, .. } if segments + 1 >= self.delayed_ack.every => {
                PendingAck::Now
            }
            PendingAck::Delayed { segments, deadline } => {
                PendingAck::Delayed { segments: segments + 1, deadline }
            }
        };
    }

    /// The expected segment has arrived: advances over it and the segments that waited behind it.
    fn advance(&mut self) {
        self.next += 1;
        if let Some(&(start, end)) = self.blocks.front()
            && start == self.next
        {
            self.next = end;
            self.blocks.pop_front();
        }
    }

    /// Adds a segment beyond the expected one to its block; returns `false` if it was there already.
    fn insert(&mut self, number: u32) -> bool {
        // Blocks that begin at or before the segment.
        let after = self.blocks.partition_point(|&(start, _)| start <= number);
        let before = after.checked_sub(1).map(|at| self.blocks[at]);
        let is_new = before.is_none_or(|(_, end)| number >= end);
        if is_new {
            let joins_before = before.is_some_and(|(_, end)| end == number);
            let joins_after = self.blocks.get(after).is_some_and(|&(start, _)| start == number + 1);
            match (joins_before, joins_after) {
                (true, true) => {
                    self.blocks[after - 1].1 = self.blocks[after].1;
                    self.blocks.remove(after);
                }
                (true, false) => self.blocks[after - 1].1 += 1,
                (false, true) => self.blocks[after].0 = number,
                (false, false) => self.blocks.insert(after, (number, number + 1)),
            }
        }
        if self.recent[0] != number {
            // Newest first; a block that appears twice takes one place, see `header`.
            let [first, second, _] = self.recent;
            let own = self.block_of(number);
            let is_other = |other: u32| own.is_none_or(|own| !contains(own, other));
            self.recent = match (is_other(first), is_other(second)) {
                (false, _) => [number, second, self.recent[2]],
                (true, false) => [number, first, self.recent[2]],
                (true, true) => [number, first, second],
            };
        }
        is_new
    }

    /// The block that holds a segment.
    fn block_of(&self, number: u32) -> Option<SackBlock> {
        let after = self.blocks.partition_point(|&(start, _)| start <= number);
        let block = *self.blocks.get(after.checked_sub(1)?)?;
        contains(block, number).then_some(block)
    }

    /// When to call [`handle_timeout`](Receiver::handle_timeout).
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.due {
            PendingAck::Delayed { deadline, .. } => Some(deadline),
            PendingAck::Nothing | PendingAck::Now => None,
        }
    }

    /// The time is `now`: an acknowledgement that has waited for its deadline is due.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.due = PendingAck::Now;
        }
    }

    /// The acknowledgement that must be sent now, if any.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<AckHeader> {
        if self.due != PendingAck::Now {
            return None;
        }
        self.due = PendingAck::Nothing;
        self.steered_window(now);
        let clock = if self.is_steered() { Self::clock(now) } else { 0 };
        Some(AckHeader { clock, ..self.header() })
    }

    fn header(&self) -> AckHeader {
        let mut header = AckHeader {
            cumulative: self.next,
            window: self.window,
            one_way_micros: self.one_way_micros,
            echo: self.echo,
            ..AckHeader::default()
        };
        if self.blocks.is_empty() || !self.recovery_sack {
            return header;
        }
        // RFC 2018 §4: the block with the newest segment first, then those that were reported last.
        for number in self.recent {
            let Some(block) = self.block_of(number) else { continue };
            if !header.sack_blocks().contains(&block) {
                header.sack[usize::from(header.blocks)] = block;
                header.blocks += 1;
            }
        }
        header
    }

    /// The next segment expected.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// All counters so far.
    pub fn counters(&self) -> &ReceiverCounters {
        &self.counters
    }
}

fn contains((start, end): SackBlock, number: u32) -> bool {
    (start..end).contains(&number)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::tcp::{DelayedAck, Recovery};

    fn receiver(delayed_ack: DelayedAck) -> Receiver {
        let recovery = Recovery::Sack;
        Receiver::new(&Parameters { delayed_ack, recovery, ..Parameters::default() })
    }

    fn data(number: u32) -> DataHeader {
        DataHeader { number, payload: 1_000, ..DataHeader::default() }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    /// The acknowledgement that a segment with a delay of 7 ms causes at once.
    fn receive(receiver: &mut Receiver, number: u32) -> Option<AckHeader> {
        receiver.handle_data(at(107), &data(number), at(100), false);
        receiver.poll_transmit(at(107))
    }

    fn sack(receiver: &mut Receiver, number: u32) -> (u32, Vec<SackBlock>) {
        let header = receive(receiver, number).expect("out of order is acknowledged at once");
        (header.cumulative, header.sack_blocks().to_vec())
    }

    /// RFC 5681 §4.2.
    #[test]
    fn every_second_segment_is_acked() {
        let mut receiver = receiver(DelayedAck::default());
        assert_eq!(receive(&mut receiver, 0), None);
        let header = receive(&mut receiver, 1).unwrap();
        assert_eq!((header.cumulative, header.one_way_micros), (2, 7_000));
        assert_eq!(receive(&mut receiver, 2), None);
    }

    /// RFC 1122 §4.2.3.2.
    #[test]
    fn single_segment_is_acked_after_the_timeout() {
        let mut receiver = receiver(DelayedAck::default());
        assert_eq!(receive(&mut receiver, 0), None);
        let deadline = at(107) + Duration::from_millis(40);
        assert_eq!(receiver.deadline(), Some(deadline));
        receiver.handle_timeout(at(146));
        assert_eq!(receiver.poll_transmit(at(146)), None);
        receiver.handle_timeout(deadline);
        assert_eq!(receiver.poll_transmit(deadline).unwrap().cumulative, 1);
        assert_eq!(receiver.deadline(), None);
    }

    #[test]
    fn each_segment_is_acked_without_delay_or_in_quick_mode() {
        let mut off = receiver(DelayedAck::OFF);
        assert!((0..4).all(|number| receive(&mut off, number).is_some()));
        let mut quick = receiver(DelayedAck { quick: 2, ..DelayedAck::default() });
        let answered = [0, 1, 2, 3].map(|number| receive(&mut quick, number).is_some());
        assert_eq!(answered, [true, true, false, true]);
    }

    /// RFC 2018 §4.
    #[test]
    fn newest_segment_is_in_the_first_sack_block() {
        let mut receiver = receiver(DelayedAck::OFF);
        receive(&mut receiver, 0);
        assert_eq!(sack(&mut receiver, 2), (1, vec![(2, 3)]));
        assert_eq!(sack(&mut receiver, 3), (1, vec![(2, 4)]));
        assert_eq!(sack(&mut receiver, 5), (1, vec![(5, 6), (2, 4)]));
        assert_eq!(sack(&mut receiver, 7), (1, vec![(7, 8), (5, 6), (2, 4)]));
        assert_eq!(sack(&mut receiver, 9), (1, vec![(9, 10), (7, 8), (5, 6)]));
        assert_eq!(sack(&mut receiver, 4), (1, vec![(2, 6), (9, 10), (7, 8)]));
        // The hole is filled: at once, and everything up to the next one.
        assert_eq!(sack(&mut receiver, 1), (6, vec![(9, 10), (7, 8)]));
        assert_eq!(sack(&mut receiver, 6), (8, vec![(9, 10)]));
        assert_eq!(sack(&mut receiver, 8), (10, vec![]));
    }

    #[test]
    fn duplicate_segment_counts_once_and_is_acked_at_once() {
        let mut receiver = receiver(DelayedAck::default());
        receive(&mut receiver, 0);
        assert!(receive(&mut receiver, 0).is_some());
        assert!(receive(&mut receiver, 3).is_some());
        assert!(receive(&mut receiver, 3).is_some());
        let ReceiverCounters { segments, bytes, duplicates, .. } = *receiver.counters();
        assert_eq!((segments, bytes, duplicates), (2, 2_000, 2));
    }

    /// RFC 3168 §6.1.3.
    #[test]
    fn ecn_echo_lasts_until_the_window_is_reduced() {
        let mut receiver = receiver(DelayedAck::OFF);
        let mut echo = |number, marked, window_reduced| {
            let header = DataHeader { window_reduced, ..data(number) };
            receiver.handle_data(at(1), &header, at(0), marked);
            receiver.poll_transmit(at(1)).unwrap().echo
        };
        assert!(!echo(0, false, false));
        assert!(echo(1, true, false));
        assert!(echo(2, false, false));
        assert!(!echo(3, false, true));
        assert!(echo(4, true, true), "a new mark on the very segment that answers the old one");
    }

    #[test]
    fn any_arrival_order_completes() {
        for seed in 0..50 {
            let mut random = crate::random::Random::new(seed);
            let mut numbers: Vec<u32> = (0..200).collect();
            for at in (1..numbers.len()).rev() {
                numbers.swap(at, random.below(at as u64 + 1) as usize);
            }
            let mut receiver = receiver(DelayedAck::OFF);
            for &number in &numbers {
                let header = receive(&mut receiver, number).unwrap();
                for &(start, end) in header.sack_blocks() {
                    assert!(header.cumulative < start && start < end, "seed {seed}");
                }
            }
            assert_eq!((receiver.next(), receiver.counters().segments), (200, 200), "seed {seed}");
        }
    }
}
