//! A bottleneck for tests of congestion controllers: one drop-tail queue, a delay, and flows with endless
//! data.
//!
//! It has no connections, no sequence numbers and no second link; packets are counted, not retransmitted.
//! Tests that need more use the simulator.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use core::num::NonZeroU32;
use core::time::Duration;

use lull_cc::{Ack, Controller, Timestamp};

/// Payload of every packet.
const PACKET_BYTES: u32 = 1448;
/// Packets behind a delivered one until it counts as lost (RFC 5681 §3.2).
const REORDERING: u64 = 3;
/// The minimum retransmission timeout (RFC 6298 §2.4).
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of a packet at its sending.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Timestamp,
    delivered: u32,
    delivered_at: Timestamp,
    /// When the newest previously delivered packet was sent.
    first_sent: Timestamp,
}

#[derive(Debug)]
struct Flow<C> {
    controller: C,
    in_flight: BTreeMap<u64, Sent>,
    next_number: u64,
    delivered: u32,
    delivered_at: Timestamp,
    first_sent: Timestamp,
    lost: u64,
    smoothed_rtt: u32,
    /// When pacing allows the next packet.
    next_send: Timestamp,
    timeout: Timestamp,
    /// When its next event is due.
    wake: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PipeEvent {
    /// The packet at the head of the queue has been sent over the bottleneck.
    Departure,
    /// Flow and number of the packet.
    Acknowledgement(usize, u64),
    /// The flow may send, or its timer may have fired.
    Wake(usize),
}

/// The bottleneck and its flows. Deterministic.
///
/// Add flows, then call [`run_until`](Pipe::run_until) repeatedly.
#[derive(Debug)]
pub struct Pipe<C> {
    now: Timestamp,
    service: Duration,
    delay: Duration,
    buffer: usize,
    /// Flow and number of each packet; the first one is being sent.
    queue: VecDeque<(usize, u64)>,
    flows: Vec<Flow<C>>,
    happenings: BinaryHeap<Reverse<(Timestamp, u64, PipeEvent)>>,
    next_happening: u64,
    /// Integral of the queue over time, in packet-nanoseconds.
    queued: u128,
    queued_since: Timestamp,
    counted_since: Timestamp,
}

impl<C: Controller> Pipe<C> {
    /// A bottleneck of this many packets a second, with a round trip of `rtt` besides the queue, and room for
    /// `buffer` packets.
    pub fn new(packets_per_second: u64, rtt: Duration, buffer: usize) -> Self {
        Pipe {
            now: Timestamp::from_micros(1),
            service: Duration::from_nanos(1_000_000_000 / packets_per_second),
            delay: rtt / 2,
            buffer,
            queue: VecDeque::new(),
            flows: Vec::new(),
            happenings: BinaryHeap::new(),
            next_happening: 0,
            queued: 0,
            queued_since: Timestamp::ZERO,
            counted_since: Timestamp::ZERO,
        }
    }

    /// Adds a flow that starts now. Returns its number.
    pub fn add(&mut self, controller: C) -> usize {
        let id = self.flows.len();
        self.flows.push(Flow {
            controller,
            in_flight: BTreeMap::new(),
            next_number: 0,
            delivered: 0,
            delivered_at: self.now,
            first_sent: self.now,
            lost: 0,
            smoothed_rtt: 0,
            next_send: self.now,
            timeout: Timestamp::FAR_FUTURE,
            wake: self.now,
        });
        self.at(self.now, PipeEvent::Wake(id));
        id
    }

    /// Runs until that long after the beginning.
    pub fn run_until(&mut self, time: Duration) {
        let end = Timestamp::ZERO + time;
        while let Some(&Reverse((when, _, happening))) = self.happenings.peek()
            && when <= end
        {
            self.happenings.pop();
            self.now = when;
            match happening {
                PipeEvent::Departure => self.depart(),
                PipeEvent::Acknowledgement(id, number) => self.acknowledge(id, number),
                // The others were replaced by an earlier one.
                PipeEvent::Wake(id) if self.flows[id].wake == when => {
                    self.flows[id].wake = Timestamp::FAR_FUTURE;
                    self.wake(id);
                }
                PipeEvent::Wake(_) => {}
            }
        }
        self.now = end;
    }

    /// The controller of a flow.
    pub fn controller(&self, id: usize) -> &C {
        &self.flows[id].controller
    }

    /// Packets of a flow that were delivered so far.
    pub fn delivered(&self, id: usize) -> u32 {
        self.flows[id].delivered
    }

    /// Packets of a flow that were lost so far.
    pub fn lost(&self, id: usize) -> u64 {
        self.flows[id].lost
    }

    /// Packets in the queue now.
    pub fn queue(&self) -> usize {
        self.queue.len()
    }

    /// The mean length of the queue in packets since the last call.
    pub fn mean_queue(&mut self) -> f64 {
        self.count_queue();
        let time = self.now.saturating_since(self.counted_since).as_nanos();
        let mean = self.queued as f64 / time.max(1) as f64;
        self.queued = 0;
        self.counted_since = self.now;
        mean
    }

    fn at(&mut self, when: Timestamp, happening: PipeEvent) {
        self.happenings.push(Reverse((when, self.next_happening, happening)));
        self.next_happening += 1;
    }

    fn count_queue(&mut self) {
        let time = self.now.saturating_since(self.queued_since).as_nanos();
        self.queued += time * self.queue.len() as u128;
        self.queued_since = self.now;
    }

    fn depart(&mut self) {
        self.count_queue();
        let (id, number) = self.queue.pop_front().expect("a packet was being sent");
        self.at(self.now + self.delay + self.delay, PipeEvent::Acknowledgement(id, number));
        if !self.queue.is_empty() {
            self.at(self.now + self.service, PipeEvent::Departure);
        }
    }

    fn enqueue(&mut self, id: usize, number: u64) {
        self.count_queue();
        if self.queue.len() < self.buffer {
            self.queue.push_back((id, number));
            if self.queue.len() == 1 {
                self.at(self.now + self.service, PipeEvent::Departure);
            }
        }
    }

    fn acknowledge(&mut self, id: usize, number: u64) {
        let now = self.now;
        let delay = self.delay;
        let flow = &mut self.flows[id];
        // A packet that was counted as lost arrived; it is no longer expected.
        let Some(sent) = flow.in_flight.get(&number).copied() else {
            return;
        };
        let in_flight = flow.in_flight.len() as u32;
        flow.in_flight.remove(&number);
        let kept = flow.in_flight.split_off(&number.saturating_sub(REORDERING));
        let lost = std::mem::replace(&mut flow.in_flight, kept).len() as u32;
        flow.lost += u64::from(lost);
        flow.delivered += 1;
        let rtt = micros(now.saturating_since(sent.at));
        flow.smoothed_rtt =
            if flow.smoothed_rtt == 0 { rtt } else { flow.smoothed_rtt / 8 * 7 + rtt / 8 };
        // The acknowledged packets were sent and acknowledged in these times; the longer of them gives no
        // rate above the bottleneck's.
        let sending = sent.at.saturating_since(sent.first_sent);
        let interval = micros(now.saturating_since(sent.delivered_at).max(sending));
        flow.delivered_at = now;
        flow.first_sent = sent.at;
        flow.timeout = now + MIN_TIMEOUT.max(Duration::from_micros(4 * u64::from(rtt)));
        flow.controller.handle_ack(&Ack {
            now,
            delivered: flow.delivered,
            prior_delivered: sent.delivered,
            acked: 1,
            lost,
            lost_in_recovery: 0,
            in_flight,
            rtt_micros: NonZeroU32::new(rtt),
            one_way_micros: Some(rtt - micros(delay)),
            interval_micros: NonZeroU32::new(interval),
            app_limited: false,
            maybe_delayed: false,
            is_small: false,
        });
        self.wake(id);
    }

    fn wake(&mut self, id: usize) {
        let now = self.now;
        let flow = &mut self.flows[id];
        if now >= flow.timeout {
            flow.lost += flow.in_flight.len() as u64;
            flow.in_flight.clear();
            flow.controller.handle_timeout(now, flow.delivered);
            flow.timeout = now + 2 * MIN_TIMEOUT;
        }
        self.send(id);
        let flow = &mut self.flows[id];
        let is_paced = flow.next_send > now;
        let next = if is_paced { flow.next_send.min(flow.timeout) } else { flow.timeout };
        if next < flow.wake {
            flow.wake = next;
            self.at(next, PipeEvent::Wake(id));
        }
    }

    fn send(&mut self, id: usize) {
        loop {
            let now = self.now;
            let flow = &mut self.flows[id];
            let in_flight = flow.in_flight.len() as u32;
            let is_open = in_flight < flow.controller.packets(in_flight);
            if !is_open || flow.next_send > now {
                return;
            }
            if in_flight == 0 {
                flow.delivered_at = now;
                flow.first_sent = now;
                flow.timeout = now + 2 * MIN_TIMEOUT;
            }
            if let Some(pacing) = flow.controller.pacing(flow.smoothed_rtt, PACKET_BYTES) {
                let bytes = lull_cc::Bytes(u64::from(PACKET_BYTES));
                flow.next_send = now + pacing.rate.time_for(bytes);
            }
            let number = flow.next_number;
            flow.next_number += 1;
            let sent = Sent {
                at: now,
                delivered: flow.delivered,
                delivered_at: flow.delivered_at,
                first_sent: flow.first_sent,
            };
            flow.in_flight.insert(number, sent);
            self.enqueue(id, number);
        }
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lull_cc::{Pacing, Rate, Window};

    /// A constant window, and a pacing rate if there is one.
    struct Fixed {
        packets: u32,
        rate: Option<Rate>,
        lost: u32,
        timeouts: u32,
        rate_samples: Vec<u64>,
    }

    impl Fixed {
        fn new(packets: u32) -> Self {
            Fixed { packets, rate: None, lost: 0, timeouts: 0, rate_samples: Vec::new() }
        }
    }

    impl Controller for Fixed {
        fn handle_ack(&mut self, ack: &Ack) {
            self.lost += ack.lost;
            let delivered = u64::from(ack.delivered - ack.prior_delivered);
            let interval = ack.interval_micros.expect("an interval").get();
            self.rate_samples.push(delivered * 1_000_000 / u64::from(interval));
        }
        fn handle_loss(&mut self, _now: Timestamp, _delivered: u32) {}
        fn handle_mark(&mut self, _now: Timestamp, _delivered: u32) {}
        fn handle_timeout(&mut self, _now: Timestamp, _delivered: u32) {
            self.timeouts += 1;
        }
        fn handle_idle(&mut self, _now: Timestamp) {}
        fn window(&self) -> Window {
            Window::from_packets(self.packets)
        }
        fn slow_start_threshold(&self) -> Window {
            self.window()
        }
        fn packets(&self, _in_flight: u32) -> u32 {
            self.packets
        }
        fn pacing(&self, _smoothed_rtt_micros: u32, _packet_bytes: u32) -> Option<Pacing> {
            self.rate.map(|rate| Pacing { rate, burst: 1, spacing_micros: 0 })
        }
    }

    /// A bottleneck of 1000 packets a second and a BDP of 50, run for 100 s.
    fn run(controller: Fixed, buffer: usize) -> Pipe<Fixed> {
        let mut pipe = Pipe::new(1_000, Duration::from_millis(49), buffer);
        pipe.add(controller);
        pipe.run_until(Duration::from_secs(100));
        pipe
    }

    #[test]
    fn window_below_the_bdp_is_delivered_once_an_rtt() {
        for window in [1, 10, 25, 50] {
            let pipe = run(Fixed::new(window), 100);
            // 50 ms a round in 100 s, except for the last one.
            assert!(pipe.delivered(0).abs_diff(window * 2_000) <= window, "{window}");
        }
    }

    #[test]
    fn window_above_the_bdp_fills_the_queue() {
        for window in [60, 75, 100] {
            let mut pipe = run(Fixed::new(window), 100);
            assert!(pipe.delivered(0) > 99_900, "{window}");
            // The packet that is being sent counts too.
            let queue = pipe.mean_queue();
            assert!((queue - f64::from(window - 49)).abs() < 0.5, "{window}: {queue}");
            assert_eq!(pipe.lost(0), 0, "{window}");
        }
    }

    #[test]
    fn overflow_of_the_buffer_is_lost_and_reported() {
        let pipe = run(Fixed::new(200), 100);
        assert!(pipe.delivered(0) > 99_900 && pipe.queue() <= 100);
        assert!(pipe.lost(0) > 1_000);
        assert_eq!(u64::from(pipe.controller(0).lost), pipe.lost(0));
        assert_eq!(pipe.controller(0).timeouts, 0);
    }

    #[test]
    fn pace_below_the_bottleneck_leaves_no_queue() {
        let rate = Rate::from_bytes_per_second(400 * u64::from(PACKET_BYTES));
        let mut pipe = run(Fixed { rate: Some(rate), ..Fixed::new(1_000) }, 100);
        assert!(pipe.delivered(0).abs_diff(40_000) < 30, "{}", pipe.delivered(0));
        assert!(pipe.mean_queue() < 0.5);
    }

    #[test]
    fn delivery_rate_stays_at_or_below_the_bottleneck() {
        let pipe = run(Fixed::new(100), 100);
        let samples = &pipe.controller(0).rate_samples[200..];
        assert!(samples.iter().all(|&rate| (990..=1_000).contains(&rate)));
    }

    #[test]
    fn two_equal_flows_share_equally() {
        let mut pipe = Pipe::new(1_000, Duration::from_millis(49), 200);
        let ids = [0, 1].map(|_| pipe.add(Fixed::new(60)));
        pipe.run_until(Duration::from_secs(100));
        let [first, second] = ids.map(|id| pipe.delivered(id));
        assert!(first.abs_diff(second) <= 60 && first + second > 99_900, "{first} and {second}");
    }
}
