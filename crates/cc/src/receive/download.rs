//! The receiving end of a background connection: a receive window from its own measurements.

use core::num::NonZeroU32;

use super::accounts::{Account, Downloads};
use super::marks::{Mark, Marks};
use crate::controller::Ack;
use crate::lull::Member;
use crate::{Timestamp, Window};

const SHIFT: u32 = Window::SHIFT;
/// Packets that a download may have in flight to show whether there is a queue.
const PAIR: u32 = 2;
/// Marks that one acknowledgement passes, at most. Each adds one.
const PASSES: u32 = 4;
/// A connection with a part of the path's window has so many packets at least.
const MIN_PACKETS: u32 = 4;
/// The most packets of an arrival, and of a window.
const PACKETS_LIMIT: u32 = 1 << 20;
/// So many packets behind a hole are a loss (RFC 5681 §3.2); fewer are reordered.
const REORDERED: u32 = 3;
/// Beyond twice what arrived in the last round-trip time, the window has so many packets at most.
const SPARE_PACKETS: u32 = 4;
/// After so long without a packet, what arrives answers no earlier acknowledgement, in microseconds.
const SILENCE_MICROS: u64 = 1_000_000;

/// The receiver's state when an acknowledgement is about to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The time.
    pub now: Timestamp,
    /// Packets with data that have arrived so far, repeated ones included. The count wraps around.
    pub packets: u32,
    /// The time stamp that the newest packet echoes, TSecr; `None` if the connection has no time stamps.
    pub echo: Option<u32>,
    /// The time stamp of this acknowledgement, TSval.
    pub clock: u32,
    /// Whole packets that the window had room for which the last acknowledgement advertised. It may have been less
    /// than what was allowed: the kernel opens a window as data arrives.
    pub advertised: u32,
    /// Whole packets that may still arrive by that window.
    pub granted: u32,
    /// Blocks of data that have arrived behind missing data.
    pub blocks: u32,
}

/// The receiving end of a background connection.
///
/// Every call takes the state of the path, and [`leave`](Download::leave) must be the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    member: Member,
    marks: Marks,
    account: Account,
    /// When it was heard of last, in microseconds.
    seen: u64,
    /// The time stamp of the last acknowledgement.
    clock: u32,
    /// Packets that have arrived, and those that had when the newest packet was allowed.
    packets: u32,
    prior: u32,
    /// The packets of the path's window, and of the connection's part of it, when the newest packet was allowed.
    window_then: u32,
    part_then: u32,
    /// Packets of its part of the path's window; 0 if it is to wait.
    part: u32,
    /// The last round-trip time in microseconds; 0 before the first.
    last_rtt: u32,
    /// Blocks behind missing data, and the packets that had arrived when the first one came.
    blocks: u32,
    hole: u32,
    /// The hole counts as a loss.
    is_lost: bool,
    /// It may show whether there is a queue.
    has_pair: bool,
}

impl Download {
    /// A connection joins the path, with a weight as in [`Member::join_with_weight`].
    pub fn join(downloads: &mut Downloads, weight: u32) -> Self {
        let member = Member::join_with_weight(&mut downloads.path, weight);
        Download {
            account: downloads.open(member.weight()),
            member,
            marks: Marks::default(),
            seen: 0,
            clock: 0,
            packets: 0,
            prior: 0,
            window_then: PAIR,
            part_then: PAIR,
            part: PAIR,
            last_rtt: 0,
            blocks: 0,
            hole: 0,
            is_lost: false,
            has_pair: true,
        }
    }

    /// The connection has ended.
    pub fn leave(&mut self, downloads: &mut Downloads) {
        self.member.leave(&mut downloads.path);
        downloads.close(&mut self.account);
    }

    /// Whether it carries the path's window.
    pub fn leads(&self, downloads: &Downloads) -> bool {
        self.member.leads(&downloads.path)
    }

    /// Packets that have arrived in the last round-trip time.
    fn recent(&self) -> u32 {
        self.packets.wrapping_sub(self.prior).min(PACKETS_LIMIT)
    }

    /// A hole is a loss when three packets have come after it, and again when another one opens. RFC 9840 ("Detecting Packet
    /// Losses and Retransmissions") waits for the retransmission, which comes a round-trip time later.
    fn find_loss(&mut self, arrival: &Arrival) -> bool {
        if arrival.blocks > self.blocks || self.blocks == 0 {
            self.hole = self.packets;
            self.is_lost = false;
        }
        self.blocks = arrival.blocks;
        let is_old = arrival.packets.wrapping_sub(self.hole) >= REORDERED;
        let is_new = arrival.blocks > 0 && is_old && !self.is_lost;
        self.is_lost |= is_new;
        is_new
    }

    /// A packet with data arrives that echoes a time stamp of this host. To be called with the first one at least that
    /// echoes it, before the acknowledgement; not at all without time stamps.
    pub fn handle_echo(&mut self, now: Timestamp, echo: u32) {
        self.marks.handle_echo(now.as_micros(), echo);
    }

    /// The round-trip time in microseconds, if the newest packet shows one. Its sender must have waited for the
    /// window: if it had less than a packet, a timer has sent the packet.
    fn pass_marks(&mut self, now: u64, arrival: &Arrival) -> Option<NonZeroU32> {
        let mut rtt = None;
        for _ in 0..PASSES {
            let Some(mark) = self.marks.pass(arrival.echo, arrival.packets) else { break };
            self.prior = mark.packets;
            self.window_then = mark.path_window;
            self.part_then = mark.part;
            let answered = if arrival.echo.is_some() { mark.echoed } else { now };
            if mark.window > 0 && answered > 0 {
                let micros = u32::try_from(answered.saturating_sub(mark.sent)).unwrap_or(u32::MAX);
                rtt = NonZeroU32::new(micros.max(1));
            }
        }
        rtt
    }

    /// An acknowledgement is about to leave; [`packets`](Download::packets) is what it may advertise.
    pub fn handle_arrival(&mut self, downloads: &mut Downloads, arrival: &Arrival) {
        let now = arrival.now.as_micros();
        downloads.advance(now);
        let silence = now.saturating_sub(self.seen);
        if self.seen == 0 {
            // Earlier arrivals carry no information.
            self.packets = arrival.packets;
            self.prior = arrival.packets;
        }
        self.seen = now.max(1);
        self.marks.advertise(arrival.advertised);
        if silence >= SILENCE_MICROS {
            self.marks.clear();
        }
        let is_lost = self.find_loss(arrival);
        let acked = arrival.packets.wrapping_sub(self.packets).min(PACKETS_LIMIT);
        self.packets = arrival.packets;
        let rtt_micros = self.pass_marks(now, arrival);
        self.last_rtt = rtt_micros.map_or(self.last_rtt, NonZeroU32::get);
        // The window does not count retransmissions by a timer of the sender.
        let granted = arrival.granted.min(PACKETS_LIMIT);
        let in_flight = (granted + acked).min(self.recent()).min(self.part);
        let spare = (self.part_then * 3 / 4).saturating_sub(self.recent());
        downloads.count(&mut self.account, in_flight, spare);
        let ack = Ack {
            now: arrival.now,
            delivered: arrival.packets,
            prior_delivered: self.prior,
            acked,
            lost: u32::from(is_lost),
            // Arrivals are exact: no acknowledgement of a single packet is late.
            in_flight: in_flight.max(PAIR),
            rtt_micros,
            app_limited: downloads.in_flight() < self.least_used(downloads),
            // The sender had nothing to send until now, and its packet echoes an old time stamp.
            maybe_delayed: spare > 0 && silence > u64::from(self.last_rtt / 4),
            ..Ack::default()
        };
        self.member.handle_ack(&mut downloads.path, &ack);
        self.take_turn(downloads, arrival, acked > 0 && arrival.advertised > 0);
        self.part = self.share(downloads);
        self.push_mark(now, downloads, arrival);
    }

    /// So many packets in flight use the path's window: three quarters of it. Where it is too little for all, others wait for a
    /// part, and it is down to a half: senders that use a part slowly, as BBR does after pairs, must not keep it small.
    fn least_used(&self, downloads: &Downloads) -> u64 {
        let window = u64::from(self.window_then);
        let all = u64::from(MIN_PACKETS) * u64::from(downloads.active().max(1));
        window * (2 * all + window.min(all)) / (4 * all)
    }

    /// Whether it may have a pair. `has_arrived`: something has that the window allowed, so the pair before did.
    fn take_turn(&mut self, downloads: &mut Downloads, arrival: &Arrival, has_arrived: bool) {
        let path = &mut downloads.path;
        let is_turn = self.member.handle_turn(path, arrival.now, arrival.packets);
        self.has_pair = is_turn || (self.has_pair && !has_arrived);
        if is_turn && path.is_at_floor() {
            // Earlier acknowledgements allowed nothing, and this one shall be marked.
            self.marks.clear();
        }
    }

    /// Packets of its part of the path's window. Active connections share it by their weights, with what others of them
    /// do not use: that may be what they have from others, so all together have twice the window at most. Where it is too
    /// little for all, the leader and those that joined after it share it alike: how long each leads follows from
    /// its weight.
    fn share(&self, downloads: &Downloads) -> u32 {
        let path = &downloads.path;
        let window = (path.window().raw() >> SHIFT) as u32;
        let active = downloads.active().max(1);
        let users = (window / MIN_PACKETS).clamp(1, active);
        let place = self.member.distance_to_leader(path) % active;
        if path.is_at_floor() || place >= users {
            return if self.has_pair { PAIR } else { 0 };
        }
        let packets = window + downloads.spare_of_others(&self.account).min(window);
        let (weight, sum) = match users < active {
            true => (1, u64::from(users)),
            false => (u64::from(self.member.weight()), downloads.weight().max(1)),
        };
        // The places spread what is rounded, so that the parts of all are the window.
        let users = u64::from(users);
        let rounding = (users - 1 - u64::from(place)) * sum;
        let part = (u64::from(packets) * weight * users + rounding) / (sum * users);
        (part as u32).max(PAIR)
    }

    fn push_mark(&mut self, now: u64, downloads: &Downloads, arrival: &Arrival) {
        let mark = Mark {
            sent: now,
            echoed: 0,
            clock: arrival.clock,
            packets: arrival.packets,
            edge: arrival.packets.wrapping_add(arrival.granted),
            window: 0,
            part: self.part,
            path_window: (downloads.path.window().raw() >> SHIFT) as u32,
        };
        let is_new_clock = arrival.echo.is_none() || arrival.clock != self.clock;
        self.clock = arrival.clock;
        self.marks.push(mark, is_new_clock, self.last_rtt);
    }

    /// Packets of its part of the path's window; 0 if it waits.
    pub fn part(&self) -> u32 {
        self.part
    }

    /// The last round-trip time in microseconds; 0 before the first.
    pub fn last_rtt_micros(&self) -> u32 {
        self.last_rtt
    }

    /// Whether it is allowed a pair of packets.
    pub fn has_pair(&self) -> bool {
        self.has_pair
    }

    /// Packets that the window to advertise has room for; 0 if it is to be less than one.
    pub fn packets(&self) -> u32 {
        self.part.min(2 * self.recent() + SPARE_PACKETS)
    }
}
