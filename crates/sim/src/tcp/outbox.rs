//! The application's data, split into segments.

use std::collections::VecDeque;

use lull_cc::Timestamp;

use crate::memory::bytes_of;

/// A message that has been acknowledged to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was written.
    pub written: Timestamp,
    /// When its first segment was sent.
    pub first_sent: Timestamp,
    /// When its last segment was acknowledged.
    pub acknowledged: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    /// The segment after its last one.
    end: u32,
    last_payload: u16,
    bytes: u64,
    written: Timestamp,
    first_sent: Option<Timestamp>,
}

/// Messages that were written and not yet acknowledged to their ends.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    segment_bytes: u16,
    /// Segments written so far; `u32::MAX` for data without an end.
    limit: u32,
    closing: bool,
    messages: VecDeque<Message>,
    /// The message of the next new segment.
    sending: usize,
    /// New segments before this are within that message: full, and neither its first nor its last.
    within_until: u32,
    /// The end of the first message; the greatest number if there is none. Most segments are sent and
    /// acknowledged without reading the messages, which are in other memory.
    first_end: u32,
    completed: VecDeque<Completed>,
}

impl Outbox {
    pub(super) fn new(segment_bytes: u16) -> Self {
        assert!(segment_bytes > 0, "a segment carries at least one byte");
        Outbox {
            segment_bytes,
            limit: 0,
            closing: false,
            messages: VecDeque::new(),
            sending: 0,
            within_until: 0,
            first_end: u32::MAX,
            completed: VecDeque::new(),
        }
    }

    /// Memory of the messages, with reserved capacity.
    pub(super) fn memory_bytes(&self) -> u64 {
        bytes_of::<Message>(self.messages.capacity())
            + bytes_of::<Completed>(self.completed.capacity())
    }

    /// Segments written so far.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(super) fn write(&mut self, now: Timestamp, bytes: u64) {
        let full = u64::from(self.segment_bytes);
        let segments = bytes.div_ceil(full).max(1);
        let end =
            u32::try_from(u64::from(self.limit) + segments).ok().filter(|&end| end < u32::MAX);
        let end = end.expect("a connection numbers fewer than 2^32 segments");
        self.push(now, end, (bytes - (segments - 1) * full) as u16, bytes);
    }

    pub(super) fn write_without_end(&mut self, now: Timestamp) {
        self.push(now, u32::MAX, self.segment_bytes, u64::MAX);
    }

    fn push(&mut self, now: Timestamp, end: u32, last_payload: u16, bytes: u64) {
        assert!(!self.closing, "a connection that was closed can't be written to");
        assert!(self.limit < u32::MAX, "nothing comes behind data without an end");
        self.limit = end;
        let first_sent = None;
        self.messages.push_back(Message { end, last_payload, bytes, written: now, first_sent });
        self.update_first();
    }

    fn update_first(&mut self) {
        self.first_end = self.messages.front().map_or(u32::MAX, |message| message.end);
    }

    /// The application writes no more. `next` is the next new segment: if all were sent, or the data is
    /// endless, an empty one is added for the FIN.
    pub(super) fn close(&mut self, now: Timestamp, next: u32) {
        if self.closing {
            return;
        }
        if self.limit == u32::MAX {
            // The part that was sent is a message without a waiting receiver.
            self.messages.pop_back();
            self.sending = self.sending.min(self.messages.len());
            self.within_until = 0;
            self.update_first();
            self.limit = next;
        }
        if self.limit == next {
            self.push(now, next + 1, 0, 0);
        }
        self.closing = true;
    }

    /// The next new segment, `number`, is sent: returns its payload, and whether it is the last.
    pub(super) fn take(&mut self, now: Timestamp, number: u32) -> (u16, bool) {
        if number < self.within_until {
            return (self.segment_bytes, false);
        }
        let message = &mut self.messages[self.sending];
        message.first_sent.get_or_insert(now);
        let is_end = number + 1 == message.end;
        let payload = if is_end { message.last_payload } else { self.segment_bytes };
        self.sending += usize::from(is_end);
        self.within_until = if is_end { 0 } else { message.end - 1 };
        (payload, self.closing && number + 1 == self.limit)
    }

    /// Everything before `first` was acknowledged.
    pub(super) fn acknowledge(&mut self, now: Timestamp, first: u32) {
        if first < self.first_end {
            return;
        }
        while let Some(message) = self.messages.front()
            && message.end <= first
        {
            if message.bytes > 0 {
                self.completed.push_back(Completed {
                    bytes: message.bytes,
                    written: message.written,
                    first_sent: message.first_sent.expect("what is acknowledged was sent"),
                    acknowledged: now,
                });
            }
            self.messages.pop_front();
            self.sending -= 1;
        }
        self.update_first();
    }

    pub(super) fn poll_completed(&mut self) -> Option<Completed> {
        self.completed.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    #[test]
    fn message_is_cut_into_full_segments_and_a_last_one() {
        let mut outbox = Outbox::new(1_000);
        outbox.write(at(0), 2_500);
        outbox.write(at(0), 1_000);
        outbox.close(at(0), 0);
        let sent: Vec<_> = (0..outbox.limit()).map(|n| outbox.take(at(1), n)).collect();
        assert_eq!(sent, [(1_000, false), (1_000, false), (500, false), (1_000, true)]);
    }

    #[test]
    fn message_completes_when_its_last_segment_is_acked() {
        let mut outbox = Outbox::new(1_000);
        outbox.write(at(0), 1_500);
        outbox.write(at(2), 10);
        for number in 0..3 {
            outbox.take(at(5 + u64::from(number)), number);
        }
        outbox.acknowledge(at(9), 1);
        assert_eq!(outbox.poll_completed(), None);
        outbox.acknowledge(at(10), 3);
        let first = outbox.poll_completed().unwrap();
        assert_eq!((first.bytes, first.first_sent), (1_500, at(5)));
        let second = outbox.poll_completed().unwrap();
        assert_eq!(
            second,
            Completed { bytes: 10, written: at(2), first_sent: at(7), acknowledged: at(10) }
        );
    }

    #[test]
    fn closing_late_sends_an_empty_segment() {
        let mut outbox = Outbox::new(1_000);
        outbox.write(at(0), 1_000);
        assert_eq!(outbox.take(at(1), 0), (1_000, false));
        outbox.close(at(2), 1);
        assert_eq!(outbox.limit(), 2);
        assert_eq!(outbox.take(at(2), 1), (0, true));
    }

    #[test]
    fn closing_cuts_data_without_an_end() {
        let mut outbox = Outbox::new(1_000);
        outbox.write_without_end(at(0));
        for number in 0..5 {
            outbox.take(at(1), number);
        }
        outbox.close(at(2), 5);
        assert_eq!((outbox.limit(), outbox.take(at(2), 5)), (6, (0, true)));
        outbox.acknowledge(at(3), 6);
        assert_eq!(outbox.poll_completed(), None);
    }
}
