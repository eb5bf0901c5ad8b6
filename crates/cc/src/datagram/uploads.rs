//! The allowance of the UDP uploads to one path, from probes.

use core::num::NonZeroU32;
use std::collections::VecDeque;

use super::virtual_queue::Allowance;
use crate::controller::Ack;
use crate::lull::{Member, Path};
use crate::{Timestamp, Window};

/// Windows are in packets of this length, with all headers from IP on: the usual MTU.
pub const PACKET_BYTES: u64 = 1_500;
/// Length of a probe on the link. Probes take at most a hundredth of the path.
const PROBE_BYTES: u64 = 64;
const PROBE_PART: u64 = 100;
/// Probes in a round-trip time.
const PROBES_PER_RTT: u64 = 4;
/// The shortest and the longest time between probes while the uploads use the path.
const MIN_INTERVAL_MICROS: u64 = 5_000;
const MAX_INTERVAL_MICROS: u64 = 200_000;
/// Between probes until the first is answered.
const FIRST_INTERVAL_MICROS: u64 = 100_000;
/// A probe is given up after this time, or four round-trip times if that is longer.
const MIN_TIMEOUT_MICROS: u64 = 1_000_000;
/// Without traffic for so long, no probes are sent.
const IDLE_MICROS: u64 = 1_000_000;
/// Without an answer for so long, what earlier probes have shown is forgotten.
const SILENCE_MICROS: u64 = 30_000_000;
/// Packets beyond the window: the senders' bursts, and what passes between two probes.
const SLACK_PACKETS: u64 = 2;
/// Beyond twice the window, in the first search for the capacity: the senders double their rate in each round-trip
/// time.
const START_PACKETS: u64 = 16;
/// Bounds of the delay that ends slow start.
const HYSTART_MIN_MICROS: u32 = 4_000;
const HYSTART_MAX_MICROS: u32 = 16_000;
/// Probes that wait for an answer, at most.
const MAX_PROBES: usize = 64;
/// A round-trip time this much above the lowest one, and by this part of it, shows a queue.
const QUEUE_MICROS: u32 = 500;
const QUEUE_PART: u32 = 16;

/// The packets of a path so far, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that have passed, with headers.
    pub passed: u64,
    /// Packets that were marked or dropped.
    pub refused: u64,
}

/// A packet that the destination is to echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    number: u32,
    /// Bytes that had passed before it.
    passed: u64,
    /// Packets that had been refused, and those known to be delivered.
    refused: u64,
    delivered: u32,
}

/// The UDP uploads of a host to one path. They share the window of a [`Path`], as one connection.
///
/// A path delivers packets in order, so the echo of a probe acknowledges every packet that passed before it.
///
/// Calling order: [`handle_counts`](Uploads::handle_counts) before each other event; [`poll`](Uploads::poll) when
/// [`next_time`](Uploads::next_time) has come; [`handle_reply`](Uploads::handle_reply) for each echo. After each of
/// the last two, write the [`allowance`](Uploads::allowance).
#[derive(Clone, Debug)]
pub struct Uploads {
    path: Path,
    member: Member,
    counts: Counts,
    /// When the counts last changed, in microseconds.
    active: u64,
    /// Bytes that have been delivered, as far as known, and whole packets of them.
    delivered: u64,
    packets: u32,
    /// The allowance has not been read since the last reply.
    is_measured: bool,
    probes: VecDeque<Probe>,
    /// When the first probe was sent that has waited since the last reply; 0: none waits.
    waiting: u64,
    next_number: u32,
    next_probe: u64,
    /// The round-trip time of the last reply in microseconds, and when it came; 0 before.
    last_rtt: u32,
    replied: u64,
}

impl Default for Uploads {
    fn default() -> Self {
        let mut path = Path::default();
        let member = Member::join(&mut path);
        Uploads {
            path,
            member,
            counts: Counts::default(),
            active: 0,
            delivered: 0,
            packets: 0,
            is_measured: false,
            probes: VecDeque::new(),
            waiting: 0,
            next_number: 0,
            next_probe: 0,
            last_rtt: 0,
            replied: 0,
        }
    }
}

impl Uploads {
    /// The state that the uploads share.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The window of the uploads.
    pub fn window(&self) -> Window {
        self.member.window()
    }

    /// The last round-trip time in microseconds; `None` before the first.
    pub fn last_rtt_micros(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.last_rtt)
    }

    /// The counts of the virtual queue at `now`.
    pub fn handle_counts(&mut self, now: Timestamp, counts: Counts) {
        let now = now.as_micros();
        if counts == self.counts && self.active > 0 {
            return;
        }
        if self.is_idle(now) {
            // Earlier packets are not in flight any more.
            self.probes.clear();
            self.waiting = 0;
            self.delivered = self.counts.passed;
            self.next_probe = now;
        }
        self.active = now;
        self.counts = counts;
    }

    fn is_idle(&self, now: u64) -> bool {
        self.active == 0 || now.saturating_sub(self.active) > IDLE_MICROS
    }

    /// When to call [`poll`](Uploads::poll) next; `None` while the uploads are idle.
    pub fn next_time(&self, now: Timestamp) -> Option<Timestamp> {
        (!self.is_idle(now.as_micros())).then(|| Timestamp::from_micros(self.next_probe))
    }

    /// Returns the number of a probe if one is to be sent now.
    pub fn poll(&mut self, now: Timestamp) -> Option<u32> {
        let micros = now.as_micros();
        if self.is_idle(micros) || micros < self.next_probe {
            return None;
        }
        self.expire(now);
        if self.last_rtt > 0 && self.path.is_at_floor() {
            self.member.handle_send(&mut self.path, now, self.packets);
        }
        self.next_probe = micros + self.interval();
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        if self.waiting == 0 {
            self.waiting = micros;
        }
        if self.probes.len() == MAX_PROBES {
            self.probes.pop_front();
        }
        self.probes.push_back(Probe {
            number,
            passed: self.counts.passed,
            refused: self.counts.refused,
            delivered: self.packets,
        });
        Some(number)
    }

    /// Gives up probes when none has been answered for too long.
    fn expire(&mut self, now: Timestamp) {
        let timeout = MIN_TIMEOUT_MICROS.max(4 * u64::from(self.last_rtt));
        let micros = now.as_micros();
        if self.waiting == 0 || micros < self.waiting + timeout {
            return;
        }
        self.probes.clear();
        self.waiting = 0;
        if self.last_rtt == 0 {
            return;
        }
        if micros > self.replied + SILENCE_MICROS {
            let Uploads { counts, active, next_number, delivered, packets, .. } = *self;
            *self = Uploads { counts, active, next_number, delivered, packets, ..Self::default() };
            return;
        }
        self.member.handle_timeout(&mut self.path, now, self.packets);
        self.member.handle_send(&mut self.path, now, self.packets);
    }

    /// From a probe to the next one, in microseconds. Where others use the path, it is the time between pairs of
    /// packets, so that the uploads return as slowly as a TCP connection of Lull.
    fn interval(&self) -> u64 {
        if self.last_rtt == 0 {
            return FIRST_INTERVAL_MICROS;
        }
        if self.path.is_at_floor() {
            return self.pause();
        }
        let rate = self.path.capacity() * PACKET_BYTES;
        let cheap = (PROBE_BYTES * PROBE_PART * 1_000_000).checked_div(rate).unwrap_or(0);
        let quick = u64::from(self.path.min_rtt_micros()) / PROBES_PER_RTT;
        quick.max(cheap).clamp(MIN_INTERVAL_MICROS, MAX_INTERVAL_MICROS)
    }

    /// The rate in bytes per second.
    fn rate(&self) -> u64 {
        let window = self.member.window();
        if window < Window::TWO {
            return 2 * PACKET_BYTES * 1_000_000 / self.pause().max(1);
        }
        let bytes = (window.raw() * PACKET_BYTES) >> Window::SHIFT;
        bytes * 1_000_000 / u64::from(self.last_rtt.max(1))
    }

    /// The time between two pairs of packets at the floor, in microseconds.
    fn pause(&self) -> u64 {
        let pacing = self.member.pacing(self.last_rtt, PACKET_BYTES as u32);
        let rate = pacing.map_or(0, |pacing| pacing.rate.bytes_per_second());
        let pause = (2 * PACKET_BYTES * 1_000_000).checked_div(rate).unwrap_or(0);
        pause.clamp(MIN_INTERVAL_MICROS, MIN_TIMEOUT_MICROS)
    }

    /// A probe was echoed after `rtt_micros`. Unknown numbers are ignored.
    pub fn handle_reply(&mut self, now: Timestamp, number: u32, rtt_micros: NonZeroU32) {
        let Some(at) = self.probes.iter().position(|probe| probe.number == number) else { return };
        let lost = at as u32;
        let probe = self.probes[at];
        self.probes.drain(..=at);
        let (rtt, min) = (rtt_micros.get(), self.path.min_rtt_micros());
        // Many hosts answer only some echo requests, so a lost probe alone says nothing.
        let limit = min + QUEUE_MICROS + min / QUEUE_PART;
        let has_queue = min > 0 && rtt.max(self.last_rtt) > limit;
        let in_flight = self.in_flight();
        let before = self.packets;
        self.delivered = self.delivered.max(probe.passed);
        self.packets = (self.delivered / PACKET_BYTES) as u32;
        if !self.is_late(rtt) {
            self.path.follow_start(in_flight);
        }
        let window = self.path.window().packets();
        let ack = Ack {
            now,
            delivered: self.packets,
            prior_delivered: probe.delivered,
            acked: self.packets.wrapping_sub(before),
            lost: if has_queue { lost } else { 0 },
            // At least two: an echo is not delayed, as the acknowledgement of a single packet may be.
            in_flight: in_flight.clamp(2, u64::from(u32::MAX)) as u32,
            rtt_micros: Some(rtt_micros),
            app_limited: probe.refused == self.counts.refused && in_flight < window * 3 / 4,
            ..Ack::default()
        };
        let was_at_floor = self.path.is_at_floor();
        self.member.handle_ack(&mut self.path, &ack);
        self.last_rtt = rtt;
        self.replied = now.as_micros();
        self.waiting = 0;
        self.is_measured = true;
        match (was_at_floor, self.path.is_at_floor()) {
            // The first pair, and the pause behind it.
            (false, true) => self.member.handle_send(&mut self.path, now, self.packets),
            (true, false) => self.next_probe = now.as_micros(),
            _ => {}
        }
    }

    /// Whether a round-trip time ends the senders' slow start: that of HyStart++ (RFC 9406 §4.2). A round takes too long
    /// to end while the rate doubles.
    fn is_late(&self, rtt: u32) -> bool {
        let min = self.path.min_rtt_micros();
        min > 0 && rtt > min + (min / 8).clamp(HYSTART_MIN_MICROS, HYSTART_MAX_MICROS)
    }

    /// Packets that have passed and are not known to be delivered.
    fn in_flight(&self) -> u64 {
        self.counts.passed.saturating_sub(self.delivered) / PACKET_BYTES
    }

    /// The allowance of the virtual queue from `now` on. Without any reply it has no measurements.
    pub fn allowance(&mut self, now: Timestamp) -> Allowance {
        if self.last_rtt == 0 {
            return Allowance::default();
        }
        let window = self.member.window();
        let is_using = window >= Window::TWO;
        let packets = match (is_using, self.path.is_searching()) {
            (false, _) => 2,
            (true, true) if !self.is_late(self.last_rtt) => 2 * window.packets() + START_PACKETS,
            (true, _) => window.packets() + SLACK_PACKETS,
        };
        let is_new = std::mem::take(&mut self.is_measured);
        Allowance {
            written: now.as_micros(),
            limit: packets * PACKET_BYTES,
            rate: self.rate(),
            // At the floor, packets are counted by the time between pairs.
            delivered: (is_using && is_new).then_some(self.delivered),
        }
    }
}

#[cfg(test)]
mod tests;
