//! The state of a path that background connections share.

use super::capacity::Capacity;
use super::delay::Delay;
use super::growth::{Growth, Restraint};
use super::host::{Host, HostTraffic, News};
use crate::{Timestamp, Window};

const SHIFT: u32 = Window::SHIFT;
const ONE: u64 = Window::ONE.raw();
const TWO: u64 = Window::TWO.raw();
/// The least window after a return: one round of it gives several samples.
const LEAST_RETURN: u64 = 4 * ONE;
/// A window beyond any path of today; keeps every product below 64 bits.
const WINDOW_LIMIT: u64 = (1 << 20) << SHIFT;
/// Rounds after which a return has succeeded.
const SETTLED_ROUNDS: u32 = 8;
/// Rounds with the whole path after which a queue is news, not part of a competition.
const ALONE_ROUNDS: u32 = 16;
/// A new leader's first rounds still see the queue that the last leader left.
const IGNORED_ROUNDS: u32 = 2;
/// The floor's pause between pairs, in packet times: a pair in this time is 1 % of the path.
const PAUSE_PACKETS: u64 = 200;
/// The longest pause between two pairs of a path.
const LONGEST_PAUSE_MICROS: u64 = 2_000_000;
/// The longest pause between two pairs of a connection, whatever their number: its minimum progress.
pub(super) const LONGEST_SLEEP_MICROS: u64 = 10_000_000;
/// Patience after a loss, at least.
const LOSS_PATIENCE_MICROS: u64 = 500_000;
/// A floor that has lasted so long in a deep buffer has outlasted the others.
const LONG_FLOOR_MICROS: u64 = 2_000_000;
/// How long a connection leads for each unit of its weight while others wait, in microseconds.
const LEAD_MICROS: u64 = 500_000;
/// A lead lasts at least so many round-trip times: the first ones show nothing of the path.
const LEAST_LEAD_RTTS: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The capacity is unknown.
    Start,
    /// Others use the path; since then, in microseconds.
    Floor { since: u64 },
    /// The background uses the path, for so many rounds.
    Use { rounds: u32 },
}

/// Which connection carries the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lead {
    /// Its number.
    pub(super) leader: Option<u32>,
    since: u64,
    /// When it was heard of last.
    pub(super) seen: u64,
    /// Its weight.
    pub(super) weight: u32,
    /// It uses all of the window that it gets.
    pub(super) wants_all: bool,
    /// Its rounds so far.
    rounds: u32,
}

/// The state of a path, shared by all background connections of a host that use it.
///
/// It changes through its [`Member`](super::Member)s only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    pub(super) delay: Delay,
    pub(super) capacity: Capacity,
    pub(super) phase: Phase,
    window: u64,
    growth: Growth,
    restraint: Restraint,
    host: Host,
    /// The latest time that any connection has named, in microseconds.
    now: u64,
    /// Rounds with the whole path.
    alone: u32,
    /// How long the floor lasts at the least, in microseconds.
    patience: u64,
    /// The part of the path that returns have found idle, with [`SHIFT`] fractional bits.
    idle_share: u64,
    pub(super) lead: Lead,
    pub(super) members: u32,
    pub(super) next_number: u32,
    /// Packets that all members have in flight, or may have.
    pub(super) in_flight: u64,
    /// When the last pair is due that was given a time.
    slot: u64,
}

impl Default for Path {
    fn default() -> Self {
        Path {
            delay: Delay::default(),
            capacity: Capacity::default(),
            phase: Phase::Start,
            window: TWO,
            growth: Growth::default(),
            restraint: Restraint::default(),
            host: Host::default(),
            now: 0,
            alone: 0,
            patience: 0,
            idle_share: ONE,
            lead: Lead::default(),
            members: 0,
            next_number: 0,
            in_flight: 0,
            slot: 0,
        }
    }
}

impl Path {
    /// The window of all connections together.
    pub fn window(&self) -> Window {
        Window::from_raw(self.window)
    }

    /// The round-trip time of the empty path in microseconds; 0 while it is unknown.
    pub fn min_rtt_micros(&self) -> u32 {
        self.delay.min_rtt()
    }

    /// The highest rate in packets per second that the path has shown lately; 0 while it is unknown.
    pub fn capacity(&self) -> u64 {
        self.capacity.packets_per_second()
    }

    /// Connections that share the path.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// Packets that all connections together have in flight, or may have.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Whether others use the path, so that only pairs are sent.
    pub fn is_at_floor(&self) -> bool {
        matches!(self.phase, Phase::Floor { .. })
    }

    /// The queue above which the background yields, in microseconds.
    pub(super) fn trigger(&self) -> u32 {
        self.delay.trigger(self.capacity.packet_micros())
    }

    /// A queue below this is none: half of the trigger, and at least a packet.
    pub(super) fn calm(&self) -> u32 {
        (self.trigger() / 2).max(self.capacity.packet_micros() as u32)
    }

    /// The time to go by: clocks of connections may differ a little, and time never goes back.
    pub(super) fn advance(&mut self, now: Timestamp) -> u64 {
        self.now = self.now.max(now.as_micros());
        self.now
    }

    /// What connections of this host that are not in the background have sent so far; to be given before
    /// each other event.
    pub fn handle_foreground(&mut self, now: Timestamp, seen: HostTraffic) {
        let now = self.advance(now);
        let min_rtt = self.delay.min_rtt();
        match self.host.handle(now, seen, min_rtt, self.capacity.packets_per_second()) {
            News::Begins if !self.is_at_floor() => self.window = (self.window / 4).max(TWO),
            News::Ends => self.outlast_host(now),
            News::Begins | News::None => {}
        }
    }

    /// The host's foreground has gone: the next pair may end the floor.
    fn outlast_host(&mut self, now: u64) {
        if let Phase::Floor { since } = self.phase {
            self.outlast(now, since);
            self.patience = 0;
            self.phase = Phase::Floor { since: now };
            self.slot = now;
        }
    }

    /// In a deep buffer the queue of others stays until they have gone, and what failed returns have
    /// taught is about them.
    fn outlast(&mut self, now: u64, since: u64) {
        if now >= since + LONG_FLOOR_MICROS && !self.delay.is_shallow() {
            self.growth.set_mark(self.full_window());
            self.idle_share = ONE;
        }
    }

    fn full_window(&self) -> u64 {
        self.capacity.window(self.delay.min_rtt(), SHIFT)
    }

    fn current_window(&self) -> u64 {
        self.capacity.current_window(self.delay.min_rtt(), SHIFT)
    }

    /// Another connection may lead: there is no leader, or it is silent or had its time.
    pub(super) fn is_lead_free(&self, now: u64) -> bool {
        let silence = (4 * u64::from(self.delay.min_rtt())).clamp(200_000, 2_000_000);
        let least = LEAST_LEAD_RTTS * u64::from(self.delay.min_rtt());
        let lasts = (LEAD_MICROS * u64::from(self.lead.weight)).max(least);
        let is_due = self.members > 1 && now > self.lead.since + lasts;
        self.lead.leader.is_none() || is_due || now > self.lead.seen + silence
    }

    pub(super) fn set_leader(&mut self, now: u64, leader: Option<u32>, weight: u32) {
        self.lead =
            Lead { leader, since: now, seen: now, weight, wants_all: leader.is_some(), rounds: 0 };
        self.capacity.restart();
    }

    /// The time of the next pair of a member, in microseconds. Members take turns.
    pub(super) fn next_slot(&mut self, now: u64) -> u64 {
        let mut pause = (PAUSE_PACKETS * self.capacity.packet_micros()).min(LONGEST_PAUSE_MICROS);
        if let Phase::Floor { since } = self.phase {
            // A short foreground has gone soon.
            pause = pause.min(now.saturating_sub(since) / 2);
        }
        let pause = pause.max(2 * u64::from(self.delay.min_rtt()).max(5_000));
        self.slot = (self.slot.max(now) + pause).min(now + LONGEST_SLEEP_MICROS);
        self.slot
    }

    /// A round of the leader has ended. `low` is its lowest round-trip time in microseconds,
    /// `unlimited`: the window limited it, not the application.
    pub(super) fn end_round(&mut self, now: u64, low: u32, unlimited: bool) {
        self.delay.record(now, low);
        let shortest = 2 * u64::from(self.delay.noise());
        self.capacity.end_round(now, shortest, self.phase == Phase::Start);
        let trigger = self.trigger();
        if self.capacity.is_reached() {
            self.alone = (self.alone + 1).min(100);
        } else if low.saturating_sub(self.delay.min_rtt()) <= trigger {
            self.alone = self.alone.saturating_sub(1);
        }
        self.lead.rounds += 1;
        let is_queue = self.delay.queue(low) > trigger;
        let may_grow = !self.host.is_beginning(now, self.delay.min_rtt());
        match self.phase {
            Phase::Start => self.end_start_round(is_queue, unlimited && may_grow),
            Phase::Use { rounds } if self.lead.rounds > IGNORED_ROUNDS => {
                if !is_queue {
                    self.end_free_round(now, rounds, trigger, unlimited && may_grow);
                } else if self.capacity.is_reached() {
                    // The capacity may be known too low still.
                    let least = (self.window / 8 * 7).max(TWO);
                    self.window = self.full_window().max(least).min(self.window);
                    self.growth.hold_at(self.window);
                } else {
                    self.yield_to_others(now, rounds);
                }
            }
            Phase::Use { .. } | Phase::Floor { .. } => {}
        }
        self.window = self.window.min(WINDOW_LIMIT);
    }

    fn end_start_round(&mut self, is_queue: bool, unlimited: bool) {
        if is_queue {
            self.growth.set_mark(self.window.min(self.full_window()));
            self.window = self.growth.mark() / 8 * 7;
            self.phase = Phase::Use { rounds: SETTLED_ROUNDS + 1 };
        } else if unlimited {
            self.window += self.window / 2;
        }
    }

    /// A round without a queue.
    fn end_free_round(&mut self, now: u64, rounds: u32, trigger: u32, unlimited: bool) {
        if unlimited {
            // At most half a trigger of queue, or an eighth of a full buffer.
            let delay = u64::from(trigger.max(self.delay.full_queue() / 4) / 2);
            let packets = (delay << SHIFT) / self.capacity.packet_micros().max(1);
            let gentle = packets.max(ONE / 4).min(self.window / 4);
            let may_pass = self.restraint.is_over(now);
            self.window = self.growth.grow(self.window, gentle, may_pass);
        }
        self.phase = Phase::Use { rounds: (rounds + 1).min(100) };
        if rounds > SETTLED_ROUNDS {
            self.idle_share = (self.idle_share + self.idle_share / 4).min(ONE);
        }
    }

    /// Others fill the queue.
    fn yield_to_others(&mut self, now: u64, rounds: u32) {
        let was_alone = self.alone >= ALONE_ROUNDS;
        let is_harmful = self.delay.is_shallow();
        self.compete(now, is_harmful);
        let share = self.current_window();
        let full = self.full_window();
        if self.window >= full / 4 * 3 {
            // It begins: leave at once, and come back soon if it was short.
            if was_alone {
                self.growth.set_mark(full);
            } else {
                self.growth.limit_mark(share / 2);
            }
            self.enter_floor(now, rounds, 4 * u64::from(self.delay.min_rtt()));
        } else if self.window <= LEAST_RETURN || self.window <= self.growth.mark() / 4 {
            self.growth.limit_mark(share.min(self.growth.mark() / 2));
            self.enter_floor(now, rounds, 0);
        } else {
            self.growth.limit_mark(share);
            self.window /= 2;
            self.phase = Phase::Use { rounds: rounds.min(SETTLED_ROUNDS) };
        }
    }

    fn compete(&mut self, now: u64, is_harmful: bool) {
        self.restraint.handle_competition(now, self.delay.min_rtt(), is_harmful);
        self.alone = 0;
    }

    /// Only pairs from now on, for `patience` microseconds at the least. A return that has lasted
    /// for a few rounds only has failed: the next one waits longer and starts from less.
    fn enter_floor(&mut self, now: u64, rounds: u32, patience: u64) {
        if rounds < SETTLED_ROUNDS {
            let least = u64::from(self.delay.min_rtt());
            self.patience = (2 * self.patience).max(least).min(LONGEST_PAUSE_MICROS);
            self.growth.limit_mark(self.growth.mark() / 2);
            self.idle_share = (self.idle_share / 2).max(ONE / 8);
        } else {
            self.patience = 0;
        }
        self.patience = self.patience.max(patience);
        self.alone = 0;
        self.window = ONE;
        self.phase = Phase::Floor { since: now };
    }

    /// A round-trip time of a packet of any member that no receiver has held back. Returns whether
    /// the background is to use the path again: a pair has met no queue.
    pub(super) fn handle_sample(&mut self, now: u64, rtt: u32) -> bool {
        if rtt < self.delay.min_rtt() {
            self.delay.record(now, rtt);
        }
        let Phase::Floor { since } = self.phase else { return false };
        if self.delay.queue(rtt) > self.calm() || now < since + self.patience {
            return false;
        }
        self.outlast(now, since);
        let memory = self.full_window().min(self.growth.mark());
        self.growth.set_mark(memory.max(LEAST_RETURN));
        self.window = (((memory * self.idle_share) >> SHIFT) / 4).max(LEAST_RETURN);
        self.phase = Phase::Use { rounds: 0 };
        true
    }

    /// A packet was lost or marked; `rtt` is the round-trip time around it.
    pub(super) fn handle_loss(&mut self, now: u64, rtt: u32) {
        self.delay.record_full(now, rtt);
        match self.phase {
            Phase::Floor { .. } => {}
            Phase::Start => {
                self.window = (self.window / 2).max(TWO);
                self.growth.set_mark(self.window);
                self.phase = Phase::Use { rounds: SETTLED_ROUNDS + 1 };
            }
            Phase::Use { rounds } => {
                let is_competing = !self.capacity.is_reached() || rounds < SETTLED_ROUNDS;
                if is_competing || self.window <= LEAST_RETURN {
                    self.compete(now, true);
                    self.growth.limit_mark(self.current_window() / 2);
                    let patience = 8 * u64::from(self.delay.min_rtt());
                    self.enter_floor(now, rounds, patience.max(LOSS_PATIENCE_MICROS));
                } else {
                    self.window /= 2;
                    self.phase = Phase::Use { rounds: 0 };
                }
            }
        }
    }

    /// The leader's retransmission timer has fired.
    pub(super) fn handle_timeout(&mut self, now: u64) {
        match self.phase {
            Phase::Use { rounds } => self.enter_floor(now, rounds, 0),
            Phase::Start => self.enter_floor(now, SETTLED_ROUNDS, 0),
            Phase::Floor { .. } => {}
        }
    }
}
