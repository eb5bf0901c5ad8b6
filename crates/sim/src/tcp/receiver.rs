//! The receiving end: reassembly, acknowledgements, their delay and their echo of congestion.

use std::collections::VecDeque;

use lull_cc::Timestamp;

use super::Parameters;
use crate::packet::{AckHeader, DataHeader, SACK_BLOCKS, SackBlock};

/// What a receiver has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounters {
    /// Segments that arrived for the first time.
    pub segments: u64,
    /// Payload that arrived for the first time, in bytes: goodput.
    pub bytes: u64,
    /// Segments that had arrived before.
    pub duplicates: u64,
    /// Segments marked "congestion experienced".
    pub marked: u64,
}

/// Why, and when, an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Nothing is to be told.
    Nothing,
    /// A segment waits for company (RFC 1122 §4.2.3.2).
    Delayed { segments: u32, deadline: Timestamp },
    /// At once.
    Now,
}

/// The receiving end of a connection.
///
/// Calling order: [`handle_data`](Receiver::handle_data) for each segment and
/// [`handle_timeout`](Receiver::handle_timeout) at the [`deadline`](Receiver::deadline); after
/// each, send what [`poll_transmit`](Receiver::poll_transmit) gives.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// The next segment expected (RCV.NXT).
    next: u32,
    window: u32,
    recovery_sack: bool,
    delayed_ack: super::DelayedAck,
    due: Due,
    /// Segments arrived so far, up to the number that is acknowledged at once.
    quick: u32,
    /// What arrived beyond `next`: blocks in ascending order, none touching another.
    blocks: VecDeque<SackBlock>,
    /// Segments of the blocks that changed last, the newest first (RFC 2018 §4).
    recent: [u32; SACK_BLOCKS],
    /// RFC 3168 §6.1.3: echo until the sender says that it has reduced its window.
    echo: bool,
    one_way_micros: u32,
    counters: ReceiverCounters,
}

impl Receiver {
    /// A receiver that expects the first segment.
    pub fn new(parameters: &Parameters) -> Self {
        Receiver {
            next: 0,
            window: parameters.receive_window,
            recovery_sack: parameters.recovery == super::Recovery::Sack,
            delayed_ack: parameters.delayed_ack,
            due: Due::Nothing,
            quick: 0,
            blocks: VecDeque::new(),
            recent: [u32::MAX; SACK_BLOCKS],
            echo: false,
            one_way_micros: 0,
            counters: ReceiverCounters::default(),
        }
    }

    /// A segment arrives that was sent at `sent`; `marked` says whether it carries "congestion
    /// experienced".
    pub fn handle_data(&mut self, now: Timestamp, data: &DataHeader, sent: Timestamp, marked: bool) {
        // RFC 3168 §6.1.3: the answer to the echo ends it, a mark begins it anew.
        self.echo = (self.echo && !data.window_reduced) || marked;
        self.counters.marked += u64::from(marked);
        self.one_way_micros =
            u32::try_from((now - sent).as_nanos() / 1_000).unwrap_or(u32::MAX);
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
        // RFC 5681 §4.2: out of order, or filling a hole: at once. The end of the connection too,
        // since nothing else will come to keep it company.
        let at_once =
            !is_in_order || had_hole || data.last || self.quick <= self.delayed_ack.quick;
        self.due = match self.due {
            _ if at_once => Due::Now,
            Due::Now => Due::Now,
            Due::Nothing if self.delayed_ack.every <= 1 => Due::Now,
            Due::Nothing => {
                let timeout = core::time::Duration::from_nanos(self.delayed_ack.timeout_nanos);
                Due::Delayed { segments: 1, deadline: now + timeout }
            }
            Due::Delayed { segments, .. } if segments + 1 >= self.delayed_ack.every => Due::Now,
            Due::Delayed { segments, deadline } => {
                Due::Delayed { segments: segments + 1, deadline }
            }
        };
    }

    /// The expected segment has come: with it, whatever waited behind it.
    fn advance(&mut self) {
        self.next += 1;
        if let Some(&(start, end)) = self.blocks.front()
            && start == self.next
        {
            self.next = end;
            self.blocks.pop_front();
        }
    }

    /// Puts a segment beyond the expected one into its block; `false` if it was there.
    fn insert(&mut self, number: u32) -> bool {
        // Blocks that begin at or before the segment.
        let after = self.blocks.partition_point(|&(start, _)| start <= number);
        let before = after.checked_sub(1).map(|at| self.blocks[at]);
        let is_new = before.is_none_or(|(_, end)| number >= end);
        if is_new {
            let joins_before = before.is_some_and(|(_, end)| end == number);
            let joins_after =
                self.blocks.get(after).is_some_and(|&(start, _)| start == number + 1);
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
            // Newest first; a block that is named twice takes one place, see `header`.
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

    /// When [`handle_timeout`](Receiver::handle_timeout) is to be called.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.due {
            Due::Delayed { deadline, .. } => Some(deadline),
            Due::Nothing | Due::Now => None,
        }
    }

    /// The time is `now`: an acknowledgement that has waited for its deadline is due.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.due = Due::Now;
        }
    }

    /// The acknowledgement that is to be sent now, if any.
    pub fn poll_transmit(&mut self) -> Option<AckHeader> {
        if self.due != Due::Now {
            return None;
        }
        self.due = Due::Nothing;
        Some(self.header())
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
        // RFC 2018 §4: the block with the newest segment first, then those reported last.
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

    /// Everything counted so far.
    pub fn counters(&self) -> &ReceiverCounters {
        &self.counters
    }
}

fn contains((start, end): SackBlock, number: u32) -> bool {
    (start..end).contains(&number)
}
