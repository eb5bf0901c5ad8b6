//! Queue and server of one direction, on a virtual clock.
//!
//! The departure times of packets depend only on their arrival times, and not on delays of the calling
//! thread. [`super::arrival`] determines arrival times, and timers determine the delivery at the far end.

use std::time::Duration;

use lull_cc::{Bytes, Timestamp};
use lull_sim::queue::{Dequeued, Effects, Queue, QueuedPacket, Verdict};

use super::{LinkRate, Trace};

/// A packet that the link has sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Departure<P> {
    pub(super) packet: P,
    /// How long it waited before the link began to send it.
    pub(super) waited: Duration,
    /// When its last bit left.
    pub(super) at: Timestamp,
}

/// A queue and the link that serves it.
#[derive(Debug)]
pub(super) struct Bottleneck<P> {
    queue: Queue<P>,
    rate: LinkRate,
    /// The packet being sent.
    sending: Option<Sending<P>>,
    /// For a link with a trace: the first opportunity that has not passed.
    next_opportunity: u64,
    /// The packets that the queue dropped; the caller clears it.
    pub(super) effects: Effects<P>,
}

#[derive(Debug)]
struct Sending<P> {
    dequeued: Dequeued<P>,
    /// With a fixed rate: when its last bit leaves.
    finish: Timestamp,
    /// With a trace: bytes that still wait for an opportunity.
    left: u64,
}

impl<P: QueuedPacket> Bottleneck<P> {
    pub(super) fn new(queue: Queue<P>, rate: LinkRate) -> Self {
        Bottleneck { queue, rate, sending: None, next_opportunity: 0, effects: Effects::default() }
    }

    /// Bytes waiting, without the packet being sent.
    pub(super) fn backlog(&self) -> Bytes {
        self.queue.bytes()
    }

    /// A packet arrives at `now`, up to which the link has been [advanced](Self::advance).
    pub(super) fn arrive(&mut self, now: Timestamp, packet: P) -> Verdict {
        let verdict = self.queue.enqueue(now, packet, &mut self.effects);
        if self.sending.is_none() && matches!(self.rate, LinkRate::Fixed(_)) {
            self.send_next(now);
        }
        verdict
    }

    /// Takes the next packet off the queue and starts to send it.
    fn send_next(&mut self, now: Timestamp) {
        self.sending = self.queue.dequeue(now, &mut self.effects).map(|dequeued| {
            let bytes = dequeued.packet.bytes();
            let finish = match self.rate {
                LinkRate::Fixed(rate) => now + rate.time_for(bytes),
                LinkRate::Trace(_) => Timestamp::FAR_FUTURE,
            };
            Sending { dequeued, finish, left: bytes.0 }
        });
    }

    /// Processes all events up to and including `until`; departing packets go to `depart`.
    pub(super) fn advance(&mut self, until: Timestamp, mut depart: impl FnMut(Departure<P>)) {
        match self.rate.clone() {
            LinkRate::Fixed(_) => {
                while let Some(sending) = self.sending.take_if(|sending| sending.finish <= until) {
                    let at = sending.finish;
                    let Dequeued { packet, waited } = sending.dequeued;
                    depart(Departure { packet, waited, at });
                    self.send_next(at);
                }
            }
            LinkRate::Trace(trace) => self.advance_trace(&trace, until, depart),
        }
    }

    /// At each opportunity 1500 bytes leave, of one packet or of several. Unused capacity is lost; a packet
    /// that does not fit continues at the next opportunity.
    fn advance_trace(
        &mut self,
        trace: &Trace,
        until: Timestamp,
        mut depart: impl FnMut(Departure<P>),
    ) {
        while self.sending.is_some() || !self.queue.is_empty() {
            let at = trace.opportunity(self.next_opportunity);
            if at > until {
                return;
            }
            self.next_opportunity += 1;
            let mut credit = Trace::OPPORTUNITY_BYTES;
            while credit > 0 {
                if self.sending.is_none() {
                    self.send_next(at);
                }
                let Some(sending) = &mut self.sending else { break };
                let sent = credit.min(sending.left);
                sending.left -= sent;
                credit -= sent;
                if let Some(sending) = self.sending.take_if(|sending| sending.left == 0) {
                    let Dequeued { packet, waited } = sending.dequeued;
                    depart(Departure { packet, waited, at });
                }
            }
        }
        self.next_opportunity = self.next_opportunity.max(trace.opportunities_until(until));
    }

    /// The earliest time of the next departure; none while there is nothing to send.
    pub(super) fn next(&self) -> Option<Timestamp> {
        match &self.rate {
            LinkRate::Fixed(_) => self.sending.as_ref().map(|sending| sending.finish),
            LinkRate::Trace(trace) => (self.sending.is_some() || !self.queue.is_empty())
                .then(|| trace.opportunity(self.next_opportunity)),
        }
    }

    /// Bytes that the link could have sent after `from`, up to and including `to`.
    pub(super) fn capacity(&self, from: Timestamp, to: Timestamp) -> Bytes {
        match &self.rate {
            LinkRate::Fixed(rate) => rate.bytes_in(to.saturating_since(from)),
            LinkRate::Trace(trace) => {
                let opportunities = trace.opportunities_until(to) - trace.opportunities_until(from);
                Bytes(opportunities * Trace::OPPORTUNITY_BYTES)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lull_cc::Rate;
    use lull_sim::queue::{Discipline, Limit};

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Plain(u64);

    impl QueuedPacket for Plain {
        fn bytes(&self) -> Bytes {
            Bytes(self.0)
        }
        fn dscp(&self) -> u8 {
            0
        }
        fn ecn_capable(&self) -> bool {
            false
        }
        fn mark_ce(&mut self) {}
        fn flow(&self) -> u64 {
            0
        }
    }

    fn millis(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1000)
    }

    fn link(rate: LinkRate, limit: Limit) -> Bottleneck<Plain> {
        Bottleneck::new(Discipline::DropTail.queue(limit, 1), rate)
    }

    fn departures(link: &mut Bottleneck<Plain>, until: Timestamp) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        link.advance(until, |departure| all.push((departure.at.as_micros(), departure.packet.0)));
        all
    }

    #[test]
    fn packet_leaves_when_its_last_bit_was_sent() {
        // 12 Mbit/s: 1500 bytes in a millisecond.
        let rate = LinkRate::Fixed(Rate::from_bits_per_second(12_000_000));
        let mut link = link(rate, Limit::Packets(10));
        link.arrive(millis(5), Plain(1500));
        link.arrive(millis(5), Plain(750));
        assert_eq!(link.next(), Some(millis(6)));
        // The times are the same for a late call.
        assert_eq!(departures(&mut link, millis(100)), [(6_000, 1500), (6_500, 750)]);
        assert_eq!(link.next(), None);
    }

    #[test]
    fn drops_begin_exactly_at_the_buffer_limit() {
        let rate = LinkRate::Fixed(Rate::from_bits_per_second(12_000_000));
        for (limit, fits) in
            [(Limit::Packets(4), 4), (Limit::Bytes(6_000), 4), (Limit::Bytes(5_999), 3)]
        {
            let mut link = link(rate.clone(), limit);
            // One is being sent and does not count.
            for _ in 0..fits + 1 {
                assert_eq!(link.arrive(millis(1), Plain(1500)), Verdict::Queued, "{limit:?}");
            }
            assert_eq!(link.arrive(millis(1), Plain(1500)), Verdict::Dropped, "{limit:?}");
            assert_eq!(link.effects.dropped.len(), 1);
        }
    }

    #[test]
    fn opportunity_carries_1500_bytes_of_any_packets() {
        let trace = Trace::parse("t", "1\n2\n10\n").unwrap();
        let mut link = link(LinkRate::Trace(trace), Limit::Packets(10));
        for bytes in [1000, 1000, 1000] {
            link.arrive(Timestamp::ZERO, Plain(bytes));
        }
        assert_eq!(departures(&mut link, millis(9)), [(1_000, 1000), (2_000, 1000), (2_000, 1000)]);
    }

    #[test]
    fn unused_opportunities_are_lost() {
        let trace = Trace::parse("t", "1\n2\n10\n").unwrap();
        let mut link = link(LinkRate::Trace(trace), Limit::Packets(10));
        assert_eq!(departures(&mut link, millis(5)), []);
        link.arrive(millis(5), Plain(1500));
        link.arrive(millis(5), Plain(1500));
        assert_eq!(link.next(), Some(millis(10)));
        // The cycle is 10 ms long: its next opportunities are at 11, 12 and 20 ms.
        assert_eq!(departures(&mut link, millis(40)), [(10_000, 1500), (11_000, 1500)]);
        assert_eq!(link.capacity(millis(2), millis(20)), Bytes(4 * 1500));
    }
}
