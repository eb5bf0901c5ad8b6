//! A member: a background connection of a shared path, and its own state.

use super::apart::Apart;
use super::delay::RTT_LIMIT;
use super::minimum_progress::{MAX_SPACING_MICROS, TRIAL_SPACING_MICROS, pair_spacing};
use super::path::{Path, Phase};
use crate::controller::{Ack, Pacing};
use crate::rtt::Rounds;
use crate::{Rate, Timestamp, Window};

const SHIFT: u32 = Window::SHIFT;
const ONE: u64 = Window::ONE.raw();
const TWO: u64 = Window::TWO.raw();
/// Packets of a pair.
const PAIR: u32 = 2;
/// Packets of a train leave at this rate in bytes per second: faster than any path of today.
const TRAIN_RATE: u64 = 1 << 33;
/// The pace is faster than the window needs by this part, so that pauses do not add up.
const MORE_PART: u64 = 16;
/// A quarter of a round has so many round-trip times at least.
const QUARTER_SAMPLES: u32 = 4;
/// Linux holds a single packet's acknowledgement back by 40 ms at the least, others by more.
const RECEIVER_DELAY_MICROS: u32 = 35_000;

/// A background connection on a shared [`Path`].
///
/// Every call takes the path, and [`leave`](Member::leave) must be the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    number: u32,
    /// How long it leads, relative to others.
    weight: u32,
    /// It carries a part of the path's window, or all of it; otherwise it sends pairs.
    is_using: bool,
    window: u64,
    /// When the next pair is due, and how long the pause before it is, in microseconds.
    next_pair: u64,
    pause: u64,
    /// Packets in flight, or allowed to be.
    in_flight: u32,
    /// The last round-trip time in microseconds; 0 before the first.
    last_rtt: u32,
    /// The highest round-trip times of this round and of the one before: a loss is found a round after it.
    high: u32,
    high_before: u32,
    rounds: Rounds,
    /// The lowest round-trip time of the round; 0 without one.
    low: u32,
    /// The highest that no receiver has held back.
    highest: u32,
    /// Its window is a train, to be sent at once.
    is_train: bool,
    /// Its window shows whether the path is longer.
    is_trial: bool,
    /// A pace above what the window needs fills no shallow buffer.
    has_room: bool,
    /// It is a small packet's.
    low_is_small: bool,
    /// When the quarter of a round began, its lowest round-trip time, and its samples so far.
    quarter_start: u64,
    quarter_low: u32,
    quarter_samples: u32,
    /// Some packet of the round was limited by the window, not by the application.
    unlimited: bool,
    /// The evidence that it has a path of its own, and whether it is enough.
    apart: Apart,
    is_apart: bool,
}

impl Member {
    /// The weight of a connection that is given none.
    pub const USUAL_WEIGHT: u32 = 10;
    /// The largest weight.
    pub const MAX_WEIGHT: u32 = 100;

    /// A connection with the usual weight joins the path.
    pub fn join(path: &mut Path) -> Self {
        Self::join_with_weight(path, Self::USUAL_WEIGHT)
    }

    /// A connection joins the path. Connections lead in turn, for a time in proportion to their weights, from 1
    /// to [`MAX_WEIGHT`](Self::MAX_WEIGHT).
    pub fn join_with_weight(path: &mut Path, weight: u32) -> Self {
        let number = path.next_number;
        path.next_number = number.wrapping_add(1);
        path.members += 1;
        Member {
            number,
            weight: weight.clamp(1, Self::MAX_WEIGHT),
            is_using: false,
            window: TWO,
            next_pair: 0,
            pause: 0,
            in_flight: 0,
            last_rtt: 0,
            high: 0,
            high_before: 0,
            rounds: Rounds::default(),
            low: 0,
            highest: 0,
            is_train: false,
            is_trial: false,
            has_room: false,
            low_is_small: false,
            quarter_start: 0,
            quarter_low: 0,
            quarter_samples: 0,
            unlimited: false,
            apart: Apart::default(),
            is_apart: false,
        }
    }

    /// Whether it has turned out to have a longer path than the others: it should [`leave`](Self::leave) this one, and
    /// join one of its own.
    pub fn is_apart(&self) -> bool {
        self.is_apart
    }

    /// Its weight: how long it leads, relative to others.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// The connection has ended.
    pub fn leave(&mut self, path: &mut Path) {
        path.members -= 1;
        self.set_in_flight(path, 0);
        if self.leads(path) {
            path.set_leader(0, None, 0);
        }
    }

    /// Whether it carries the path's window.
    pub fn leads(&self, path: &Path) -> bool {
        path.lead.leader == Some(self.number)
    }

    fn set_in_flight(&mut self, path: &mut Path, packets: u32) {
        path.in_flight = path.in_flight - u64::from(self.in_flight) + u64::from(packets);
        self.in_flight = packets;
    }

    /// Begins a round and forgets what the last one has counted.
    fn restart_round(&mut self, delivered: u32) {
        self.rounds.close_round(delivered);
        self.quarter_samples = 0;
        self.clear_round();
    }

    fn clear_round(&mut self) {
        self.high_before = self.high;
        self.high = 0;
        self.low = 0;
        self.highest = 0;
        self.unlimited = false;
    }

    /// The round-trip time when packets were lost.
    fn rtt_at_loss(&self) -> u32 {
        self.high.max(self.high_before).max(self.last_rtt)
    }

    fn take_lead(&mut self, path: &mut Path, now: u64, delivered: u32) {
        path.set_leader(now, Some(self.number), self.weight);
        self.restart_round(delivered);
    }

    /// RFC 1122 §4.2.3.2: a receiver may hold back the acknowledgement of a single packet, and some hold back that of a
    /// few.
    fn is_maybe_delayed(&self, path: &Path, ack: &Ack, rtt: u32) -> bool {
        let stands_out = self.last_rtt > 0 && rtt >= self.last_rtt + RECEIVER_DELAY_MICROS;
        let is_few = ack.acked == 1 || path.holds_back();
        ack.maybe_delayed || ack.in_flight <= 1 || (is_few && stands_out)
    }

    fn handle_rtt(&mut self, path: &mut Path, ack: &Ack, now: u64, rtt: u32) {
        let is_maybe_delayed = self.is_maybe_delayed(path, ack, rtt);
        self.last_rtt = rtt;
        self.high = self.high.max(rtt);
        let rtt = path.delay.adjust(rtt, ack.is_small);
        if path.delay.min_rtt() == 0 {
            self.low = 0;
            path.delay.record(now, rtt);
        }
        if !is_maybe_delayed {
            path.handle_exact_sample(now, rtt);
            self.compare_with_others(path, now, rtt);
        } else if rtt > path.delay.min_rtt() + path.noise_margin() {
            // A delay that the receiver may have added can only hide the absence of a queue.
            return;
        }
        self.highest = self.highest.max(rtt);
        if self.low == 0 || rtt < self.low {
            self.low = rtt;
            self.low_is_small = path.delay.is_of_small();
        }
        self.handle_quarter(path, now, ack.delivered, rtt);
        if path.handle_sample(now, rtt) {
            // The pause behind this pair goes on: with several members another one wakes sooner.
            let leader = (path.members == 1).then_some(self.number);
            path.set_leader(now, leader, self.weight);
            self.restart_round(ack.delivered);
        }
    }

    /// Whether the pairs of others meet the queue of a pair as well. A receiver may hold back pairs only.
    fn compare_with_others(&mut self, path: &mut Path, now: u64, rtt: u32) {
        let (queue, noise) = (path.delay.queue(rtt), path.delay.noise());
        // Sawteeth of others in a shallow buffer may keep the rhythm of pairs.
        let fits = path.delay.is_shallow() && queue <= path.delay.full_queue();
        if queue <= path.noise_margin() {
            self.apart.handle_no_queue(now);
            if !self.is_using {
                (path.empty_at, path.empty_by) = (now, self.number);
            }
        } else if !self.is_using && !fits {
            let others_at = if path.empty_by == self.number { 0 } else { path.empty_at };
            self.is_apart |= self.apart.handle_queue(now, rtt, (queue, noise), others_at);
        }
    }

    /// Quarters of a round: a queue in a shallow buffer is not waited for until the round ends.
    fn handle_quarter(&mut self, path: &mut Path, now: u64, delivered: u32, rtt: u32) {
        if self.quarter_samples == 0 {
            self.quarter_start = now;
            self.quarter_low = rtt;
        }
        self.quarter_low = self.quarter_low.min(rtt);
        self.quarter_samples += 1;
        let end = self.quarter_start + u64::from(path.delay.min_rtt() / 4);
        if self.quarter_samples < QUARTER_SAMPLES || now < end {
            return;
        }
        self.quarter_samples = 0;
        if self.leads(path) && path.handle_quarter(now, self.quarter_low) {
            self.restart_round(delivered);
        }
    }

    /// An acknowledgement has arrived.
    pub fn handle_ack(&mut self, path: &mut Path, ack: &Ack) {
        let now = path.advance(ack.now);
        let left = ack.in_flight.saturating_sub(ack.acked.saturating_add(ack.all_lost()));
        self.set_in_flight(path, left);
        let may_lead = path.members == 1 || path.phase == Phase::Start;
        if !self.leads(path) && path.lead.leader.is_none() && may_lead {
            self.take_lead(path, now, ack.delivered);
        }
        let leads = self.leads(path);
        if leads {
            path.lead.seen = now;
        }
        self.rounds.start(ack.delivered, ack.acked);
        // The acknowledgement that ends a round is of a packet of the next one.
        let highest = self.highest;
        if let Some(rtt) = ack.rtt_micros {
            self.handle_rtt(path, ack, now, rtt.get().min(RTT_LIMIT));
        }
        self.unlimited |= ack.acked > 0 && (!ack.app_limited || path.is_used_up_by(left));
        path.capacity.deliver(ack.acked);
        if ack.lost > 0 && self.rounds.is_new_loss(ack.prior_delivered) {
            path.handle_loss(now, self.rtt_at_loss());
            self.restart_round(ack.delivered);
        }
        if ack.acked > 0 && self.rounds.pass(ack.delivered, ack.prior_delivered) {
            let is_valid = !self.low_is_small || path.delay.is_of_small();
            if leads && self.low > 0 && is_valid {
                path.end_round(now, (self.low, highest), self.unlimited);
            }
            self.clear_round();
        }
        self.update(path, now, left, !ack.app_limited);
    }

    /// A loss was found without an acknowledgement, or a packet was marked (RFC 3168 §6.1.2).
    pub fn handle_loss(&mut self, path: &mut Path, now: Timestamp, delivered: u32) {
        let now = path.advance(now);
        if self.rounds.is_new_loss(delivered) {
            path.handle_loss(now, self.rtt_at_loss());
            self.restart_round(delivered);
        }
        self.update(path, now, self.in_flight, true);
    }

    /// The retransmission timer has fired.
    pub fn handle_timeout(&mut self, path: &mut Path, now: Timestamp, delivered: u32) {
        let now = path.advance(now);
        if self.leads(path) {
            path.handle_timeout(now);
        }
        self.set_in_flight(path, 0);
        self.restart_round(delivered);
        self.update(path, now, 0, false);
    }

    /// The connection has something to send, nothing in flight, and its pause is over.
    pub fn handle_send(&mut self, path: &mut Path, now: Timestamp, delivered: u32) {
        let now = path.advance(now);
        if self.last_rtt == 0 {
            self.set_in_flight(path, PAIR);
            return;
        }
        if !path.is_at_floor() && !self.leads(path) && path.is_lead_free(now) {
            self.take_lead(path, now, delivered);
        }
        self.update(path, now, PAIR, true);
        if !self.is_using && now >= self.next_pair {
            self.next_pair = path.next_slot(now);
            self.pause = self.next_pair - now;
        }
    }

    /// At a receiver, which cannot see when its sender is about to send: another packet may be allowed. Returns
    /// whether that is a new pair.
    pub(crate) fn handle_turn(&mut self, path: &mut Path, now: Timestamp, delivered: u32) -> bool {
        let now = path.advance(now);
        if self.last_rtt == 0 {
            return true;
        }
        if !path.is_at_floor() && !self.leads(path) && path.is_lead_free(now) {
            self.take_lead(path, now, delivered);
        }
        if now < self.next_pair {
            return false;
        }
        self.next_pair = path.next_slot(now);
        self.pause = self.next_pair - now;
        true
    }

    /// How many connections joined after the leader and up to this one, modulo 2^32; without a leader, of all.
    pub(crate) fn distance_to_leader(&self, path: &Path) -> u32 {
        match path.lead.leader {
            Some(leader) => self.number.wrapping_sub(leader),
            None => self.number.wrapping_add(1),
        }
    }

    /// Takes its part of the path's window: what the others leave. A connection that does not lead
    /// takes a part only where the leader's application leaves much, and not while it sleeps: it
    /// could not send before its pause ends. `wants_all`: it will use all of it, and counts as if it
    /// did.
    fn update(&mut self, path: &mut Path, now: u64, in_flight: u32, wants_all: bool) {
        let window = path.window().raw();
        let free = path.free_beside(path.in_flight - u64::from(self.in_flight));
        let leads = self.leads(path);
        if leads {
            path.lead.wants_all = wants_all;
        }
        // In a shallow buffer a window that changes hands loses packets, and connections of one weight
        // share alike without that.
        let is_shared = self.weight == path.lead.weight && path.delay.is_shallow();
        let may_share = !path.lead.wants_all || is_shared;
        let is_left = now >= self.next_pair && may_share && path.is_worth_sharing(free);
        self.is_using = !path.is_at_floor() && (leads || is_left);
        self.is_train = leads && path.fair_queueing.is_train();
        self.is_trial = leads && path.is_trial();
        let is_small = window + window / MORE_PART <= path.full_window();
        self.has_room = is_small || !path.delay.is_shallow();
        self.window = if self.is_using { free.max(TWO) } else { ONE };
        let allowed = (self.window >> SHIFT) as u32;
        let counted = if self.is_using && wants_all { in_flight.max(allowed) } else { in_flight };
        self.set_in_flight(path, counted);
    }

    /// Its window in packets.
    pub fn window(&self) -> Window {
        Window::from_raw(self.window)
    }

    /// Whole packets that may be in flight, with `in_flight` of them there now.
    pub fn packets(&self, in_flight: u32) -> u32 {
        match in_flight {
            _ if self.window >= TWO => (self.window >> SHIFT) as u32,
            0 => PAIR,
            _ => in_flight,
        }
    }

    /// The pace: a sixteenth more than the window needs, or a pair in each pause. A window
    /// that is sent faster than the path carries it fills a shallow buffer in each round: there the
    /// pace is what the window needs, once that fills the path.
    pub fn pacing(&self, smoothed_rtt_micros: u32, packet_bytes: u32) -> Option<Pacing> {
        if smoothed_rtt_micros == 0 {
            return None;
        }
        let bytes = u64::from(packet_bytes);
        if !self.is_using {
            let rate = u64::from(PAIR) * bytes * 1_000_000 / self.pause.max(1);
            let spacing = pair_spacing(self.last_rtt);
            return Some(Pacing {
                rate: Rate::from_bytes_per_second(rate.max(1)),
                // Before the first pair, what is in flight has to arrive: no packet is the second of a pair.
                burst: if self.pause == 0 { 1 } else { PAIR },
                spacing_micros: spacing,
            });
        }
        // The window is below 2^20 packets, so that bytes times a million stay below 2^64.
        let rtt = u64::from(smoothed_rtt_micros.min(self.last_rtt.max(1)));
        let rate = ((self.window * bytes) >> SHIFT) * 1_000_000 / rtt;
        let spacing = if self.is_trial { TRIAL_SPACING_MICROS } else { MAX_SPACING_MICROS };
        let least = bytes * 1_000_000 / u64::from(spacing);
        let more = if self.has_room { rate / MORE_PART } else { 0 };
        let rate = if self.is_train { TRAIN_RATE } else { (rate + more).max(least) };
        Some(Pacing { rate: Rate::from_bytes_per_second(rate), burst: 1, spacing_micros: 0 })
    }
}
