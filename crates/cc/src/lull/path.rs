//! A path: the network between this host and a /24 or /48, with the state that its background connections share.

use super::capacity::Capacity;
use super::delay::Delay;
use super::fair_queueing::FairQueueing;
use super::growth::{CompetitionPause, Growth, grow_in_shallow};
use super::host::Host;
use super::longer_path::LongerPath;
use super::minimum_progress;
use super::part::{LeftOut, Part};
use crate::{Timestamp, Window};

const SHIFT: u32 = Window::SHIFT;
const ONE: u64 = Window::ONE.raw();
const TWO: u64 = Window::TWO.raw();
/// The least window after a return: one round of it gives several samples.
const MIN_RETURN: u64 = 4 * ONE;
/// A window beyond any path of today; keeps every product below 64 bits.
const WINDOW_LIMIT: u64 = (1 << 20) << SHIFT;
/// More packets in flight than any window.
const IN_FLIGHT_LIMIT: u64 = 1 << 32;
/// Rounds after which a return has succeeded.
const SETTLED_ROUNDS: u32 = 8;
/// Rounds with the whole path after which a queue is news, not part of a competition.
const ALONE_ROUNDS: u32 = 16;
/// Rounds with a queue in which a path of varying capacity may empty it, before it counts as others'.
const DRAIN_ROUNDS: u32 = 4;
/// With fewer rounds with the whole path than this, a steady path has one such round.
const SHARED_ROUNDS: u32 = 4;
/// A new leader's first rounds still see the queue that the last leader left.
const IGNORED_ROUNDS: u32 = 2;
/// Patience after returns that have failed one after the other, at most.
const MAX_PATIENCE_MICROS: u64 = 2_000_000;
/// Patience after a loss, at least.
const LOSS_PATIENCE_MICROS: u64 = 500_000;
/// Round-trip times to wait after a competition in a shallow buffer: the foreground's slow start ends.
const SHALLOW_PATIENCE: u64 = 8;
/// The same after returns that have failed one after the other, at most.
const MAX_SHALLOW_PATIENCE: u64 = 32;
/// A return in a shallow buffer starts from this part of the capacity.
const SHALLOW_RETURN: u64 = 16;
/// A floor that has lasted so long in a deep buffer has outlasted the others.
const LONG_FLOOR_MICROS: u64 = 2_000_000;
/// How long a connection leads for each unit of its weight while others wait, in microseconds.
const LEAD_MICROS: u64 = 500_000;
/// A lead lasts at least so many round-trip times: the first ones show nothing of the path.
const MIN_LEAD_RTTS: u64 = 8;

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
    /// The window before the last round's change: what was measured since may be of either.
    window_before: u64,
    growth: Growth,
    competition_pause: CompetitionPause,
    pub(super) fair_queueing: FairQueueing,
    longer_path: LongerPath,
    host: Host,
    /// The part of the window that is left to the host's own foreground, and when that was more than a little.
    reserved: u64,
    reserved_at: u64,
    /// Rounds in a row with a queue that the host's own foreground may have caused.
    explained: u32,
    /// The latest time that any connection has named, in microseconds.
    now: u64,
    /// Rounds with the whole path.
    alone: u32,
    /// Rounds in which the window was set to what a path of varying capacity delivers.
    drained: u32,
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
    /// When a pair has last met no queue, and the number of its connection.
    pub(super) empty_at: u64,
    pub(super) empty_by: u32,
    left_out: LeftOut,
}

impl Default for Path {
    fn default() -> Self {
        Path {
            delay: Delay::default(),
            capacity: Capacity::default(),
            phase: Phase::Start,
            window: TWO,
            window_before: TWO,
            growth: Growth::default(),
            competition_pause: CompetitionPause::default(),
            fair_queueing: FairQueueing::default(),
            longer_path: LongerPath::default(),
            host: Host::default(),
            reserved: 0,
            reserved_at: 0,
            explained: 0,
            now: 0,
            alone: 0,
            drained: 0,
            patience: 0,
            idle_share: ONE,
            lead: Lead::default(),
            members: 0,
            next_number: 0,
            in_flight: 0,
            slot: 0,
            empty_at: 0,
            empty_by: 0,
            left_out: LeftOut::default(),
        }
    }
}

impl Path {
    /// The window of all connections together.
    pub fn window(&self) -> Window {
        Window::from_raw(self.usable_window())
    }

    /// For an ablation: the path works without a part of the algorithm from now on.
    pub fn leave_out(&mut self, part: Part) {
        self.left_out.add(part);
        self.delay.leave_out(part);
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

    /// Whether the capacity is unknown, so that the window grows until a queue shows.
    pub fn is_searching(&self) -> bool {
        self.phase == Phase::Start
    }

    /// While the capacity is unknown, the window is at least what is in flight. For senders with a congestion control
    /// of their own, which grow faster.
    pub(crate) fn follow_start(&mut self, packets: u64) {
        if self.is_searching() {
            self.window = self.window.max(packets.min(WINDOW_LIMIT >> SHIFT) << SHIFT);
        }
    }

    /// Whether others use the path, so that only pairs are sent.
    pub fn is_at_floor(&self) -> bool {
        matches!(self.phase, Phase::Floor { .. })
    }

    /// The queue above which the background yields, in microseconds.
    pub(super) fn trigger(&self) -> u32 {
        self.delay.trigger(self.capacity.likely_packet_micros(), self.is_shallow())
    }

    /// A queue below this counts as noise: half of the trigger, and at least a packet.
    pub(super) fn noise_margin(&self) -> u32 {
        (self.trigger() / 2).max(self.capacity.likely_packet_micros() as u32)
    }

    /// The time to go by: clocks of connections may differ a little, and time never goes back.
    pub(super) fn advance(&mut self, now: Timestamp) -> u64 {
        self.now = self.now.max(now.as_micros());
        self.now
    }

    /// In a deep buffer the queue of other flows stays until they end, and the patience from failed returns
    /// is about them.
    fn handle_others_gone(&mut self, now: u64, since: u64) {
        if now >= since + LONG_FLOOR_MICROS && !self.is_shallow() {
            self.growth.remember_window(self.full_window());
            self.idle_share = ONE;
        }
    }

    /// The buffer holds little, and others share it.
    fn is_shallow(&self) -> bool {
        self.delay.is_shallow() && !self.fair_queueing.keeps_flows_apart()
    }

    /// The part of the window that is free beside so many packets in flight.
    pub(super) fn free_beside(&self, packets: u64) -> u64 {
        self.usable_window().saturating_sub(packets.min(IN_FLIGHT_LIMIT) << SHIFT)
    }

    /// Whether a connection that does not lead may use this part of the window.
    pub(super) fn is_worth_sharing(&self, free: u64) -> bool {
        free >= self.window / 4 && free >= 2 * TWO
    }

    /// Whether a leader with so many packets in flight leaves too little for any other connection. Then the window
    /// has to grow, although the leader's application or receiver limits the leader.
    pub(super) fn is_used_up_by(&self, packets: u32) -> bool {
        self.members > 1 && !self.is_worth_sharing(self.free_beside(u64::from(packets)))
    }

    pub(super) fn full_window(&self) -> u64 {
        self.capacity.window(self.delay.min_rtt(), SHIFT)
    }

    fn current_window(&self) -> u64 {
        self.capacity.current_window(self.delay.min_rtt(), SHIFT)
    }

    /// Another connection may lead: there is no leader, or it is silent or had its time.
    pub(super) fn is_lead_free(&self, now: u64) -> bool {
        let silence = (4 * u64::from(self.delay.min_rtt())).clamp(200_000, 2_000_000);
        let least = MIN_LEAD_RTTS * u64::from(self.delay.min_rtt());
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
        if self.left_out.has(Part::FloorByTime) {
            return self.next_slot_by_rtts(now);
        }
        let packet = self.capacity.packet_micros();
        let has_minimum = !self.left_out.has(Part::MinimumProgress);
        let mut pause = match has_minimum {
            true => minimum_progress::pause(packet, self.members),
            false => minimum_progress::PAUSE_PACKETS * packet,
        };
        if let Phase::Floor { since } = self.phase {
            // A short foreground has gone soon.
            pause = pause.min(now.saturating_sub(since) / 2);
        }
        let two_rtts = 2 * u64::from(self.delay.min_rtt()).max(5_000);
        let pause = pause.max(two_rtts.min(minimum_progress::longest_pause(self.members)));
        self.slot = self.slot.max(now) + pause;
        if has_minimum {
            let sleep = minimum_progress::longest_sleep(packet, self.members);
            self.slot = self.slot.min(now + sleep);
        }
        self.slot
    }

    /// For an ablation: each connection pauses for 96 round-trip times, as Nice does.
    fn next_slot_by_rtts(&mut self, now: u64) -> u64 {
        let own = 96 * u64::from(self.delay.min_rtt());
        now + own.min(minimum_progress::longest_pause(1))
    }

    /// The queue in microseconds that `window` causes by itself: the part that the path does not
    /// hold without a queue.
    fn queue_of(&self, window: u64) -> u64 {
        // The shifts keep the product below 64 bits.
        let beyond = window.saturating_sub(self.full_window()) >> (SHIFT / 2);
        (beyond * self.capacity.packet_micros()) >> (SHIFT / 2)
    }

    /// The longest queue that is the background's own, in microseconds.
    fn own_queue(&self) -> u64 {
        self.queue_of(self.window.max(self.window_before))
    }

    /// Others send: the background sends at less than nine tenths of the capacity, or the queue of the
    /// round-trip time `low` is longer than its own window explains.
    fn is_foreign(&self, low: u32, trigger: u32) -> bool {
        let queue = u64::from(self.delay.queue(low));
        // Where capacity varies, a longer queue may be the background's own.
        let is_longer = queue > self.own_queue() + u64::from(trigger);
        !self.capacity.is_reached() || (is_longer && self.delay.noise() == 0)
    }

    /// The lowest round-trip time of a quarter of a round, in microseconds. A shallow buffer is full
    /// one or two rounds after the foreground's start, too soon to wait for a round's end. Returns
    /// whether the background yields.
    pub(super) fn handle_quarter(&mut self, now: u64, low: u32) -> bool {
        let trigger = self.trigger();
        let rounds = match self.phase {
            Phase::Use { rounds } => rounds,
            Phase::Start if self.delay.queue(low) > trigger => {
                self.end_start();
                return true;
            }
            Phase::Start | Phase::Floor { .. } => return false,
        };
        let is_queue = self.delay.queue(low) > trigger
            && self.is_foreign(low, trigger)
            && !self.is_of_host(low);
        if !self.is_shallow() || self.lead.rounds <= IGNORED_ROUNDS || !is_queue {
            return false;
        }
        self.window_before = self.window;
        self.yield_to_others(now, rounds);
        true
    }

    /// A round of the leader has ended. `low` and `high` are its lowest and highest round-trip time in
    /// microseconds, `unlimited`: the window limited it, not the application.
    pub(super) fn end_round(&mut self, now: u64, (low, high): (u32, u32), unlimited: bool) {
        if self.is_at_floor() && self.delay.queue(low) > self.delay.min_rtt() / 4 {
            // The way back needs what was known before others came.
            return self.capacity.stop();
        }
        self.delay.record(now, low);
        let round = self.capacity.round(now);
        let shortest = 2 * u64::from(self.delay.noise());
        self.capacity.end_round(now, shortest, self.phase == Phase::Start);
        let trigger = self.trigger();
        if self.capacity.is_reached() {
            self.alone = (self.alone + 1).min(100);
        } else if low.saturating_sub(self.delay.min_rtt()) <= trigger {
            self.alone = self.alone.saturating_sub(1);
        }
        self.lead.rounds += 1;
        let is_queue = self.delay.queue_of_round(low, round.micros, round.packets) > trigger;
        let may_grow = !self.host.is_beginning(now, self.delay.min_rtt());
        let window_before = self.window;
        match self.phase {
            Phase::Start => self.end_start_round(is_queue, unlimited && may_grow),
            Phase::Use { rounds } if self.lead.rounds > IGNORED_ROUNDS => {
                if self.longer_path.is_trial() {
                    self.end_trial_round(now, (low, is_queue), trigger, unlimited && may_grow);
                } else if is_queue {
                    self.end_queued_round(now, (rounds, low), trigger);
                } else {
                    self.end_free_round(now, (rounds, low), trigger, unlimited && may_grow);
                }
            }
            Phase::Use { .. }
                if self.fair_queueing.is_train() && self.lead.rounds == IGNORED_ROUNDS =>
            {
                self.end_train(now, low, high);
            }
            Phase::Use { .. } | Phase::Floor { .. } => {}
        }
        self.window = self.window.min(WINDOW_LIMIT);
        self.window_before = window_before;
    }

    fn end_start_round(&mut self, is_queue: bool, unlimited: bool) {
        if is_queue {
            self.end_start();
        } else if unlimited {
            self.window += self.window / 2;
        }
    }

    /// The first queue shows what the path has room for.
    fn end_start(&mut self) {
        self.growth.remember_window(self.window.min(self.full_window()));
        self.window = self.growth.remembered_window() / 8 * 7;
        self.capacity.confirm();
        self.phase = Phase::Use { rounds: SETTLED_ROUNDS + 1 };
    }

    /// A round with a queue, and its lowest round-trip time.
    fn end_queued_round(&mut self, now: u64, round: (u32, u32), trigger: u32) {
        let (rounds, low) = round;
        if self.is_of_host(low) {
            self.shrink_beside_host();
        } else if !self.is_foreign(low, trigger) {
            // The capacity may be known too low still.
            let least = (self.window / 8 * 7).max(TWO);
            self.window = self.full_window().max(least).min(self.window);
            self.growth.hold_at(self.window);
            self.capacity.confirm();
        } else if self.drained < self.drain_rounds() {
            // A window of what the path delivers now empties a queue that is the background's own.
            self.drained += 1;
            let least = (self.window / 2).max(MIN_RETURN);
            self.window = self.current_window().max(least).min(self.window);
        } else {
            self.yield_to_others(now, rounds);
        }
    }

    /// How many rounds with a queue may empty it, before it counts as others'. The capacity of a path
    /// with jitter changes: if it fell, the queue is the background's own. Without the path for itself
    /// lately, the background shares it with hosts that leave as well, or with others that come and
    /// go. A queue after that is news, and a shallow buffer cannot wait.
    fn drain_rounds(&self) -> u32 {
        if self.left_out.has(Part::EmptyingRound) {
            return 0;
        }
        match self.delay.noise() {
            0 => u32::from(self.alone < SHARED_ROUNDS && !self.is_shallow()),
            _ => DRAIN_ROUNDS,
        }
    }

    /// A round without a queue, and its lowest round-trip time.
    fn end_free_round(&mut self, now: u64, round: (u32, u32), trigger: u32, unlimited: bool) {
        let (rounds, low) = round;
        self.drained = 0;
        self.explained = 0;
        if self.is_end_of_probe(low) {
            self.window = self.full_window();
            self.growth.hold_at(self.window);
            self.capacity.confirm();
        } else if unlimited {
            self.grow(now, trigger);
        }
        self.phase = Phase::Use { rounds: (rounds + 1).min(100) };
        if rounds > SETTLED_ROUNDS {
            self.idle_share = (self.idle_share + self.idle_share / 4).min(ONE);
        }
    }

    /// In a shallow buffer: the window is beyond the capacity, and half of the queue that it causes
    /// is there, more than a packet. The capacity has not grown.
    fn is_end_of_probe(&self, low: u32) -> bool {
        let least = self.queue_of(self.window.min(self.window_before));
        let queue = u64::from(self.delay.queue(low));
        let is_there = queue > self.capacity.packet_micros() && queue * 2 >= least;
        self.is_shallow() && least > 0 && is_there
    }

    /// The window that a return begins with.
    fn start_window(&self) -> u64 {
        let start = match self.is_shallow() {
            true => self.full_window() / SHALLOW_RETURN,
            false => ((self.growth.remembered_window() * self.idle_share) >> SHIFT) / 4,
        };
        start.max(MIN_RETURN)
    }

    /// The packets that the path carries in `micros`, with [`SHIFT`] fractional bits.
    fn packets_in(&self, micros: u32) -> u64 {
        (u64::from(micros) << SHIFT) / self.capacity.packet_micros().max(1)
    }

    fn grow(&mut self, now: u64, trigger: u32) {
        let full = self.full_window();
        let step = self.packets_in(self.delay.full_queue() / 4);
        let is_known = self.capacity.is_confirmed();
        let most = self.most_beside_host(now);
        if self.window >= most {
            return;
        }
        if self.is_shallow() && (self.window < full || !is_known) {
            let most = if is_known { full } else { most };
            self.window = grow_in_shallow(self.window, step, most);
            self.growth.remember_window(self.window);
            if self.window == most {
                self.growth.hold_at(full);
            }
            return;
        }
        // At most half a trigger of queue, or an eighth of a full buffer.
        let gentle = self.packets_in(trigger.max(self.delay.full_queue() / 4) / 2);
        let gentle = gentle.max(ONE / 4).min(self.window / 4);
        let full = if is_known { full } else { 0 };
        let grown =
            self.growth.grow(self.window, gentle, self.competition_pause.is_over(now), full);
        // Larger steps would fill a shallow buffer before the first one shows in a queue.
        let most = if self.is_shallow() { most.min(self.window + gentle) } else { most };
        self.window = grown.min(most);
    }

    /// Others fill the queue.
    fn yield_to_others(&mut self, now: u64, rounds: u32) {
        let was_alone = self.alone >= ALONE_ROUNDS;
        if was_alone {
            self.longer_path.handle_alone();
        }
        let is_harmful = self.is_shallow();
        self.handle_competition(now, is_harmful);
        let share = self.current_window();
        let full = self.full_window();
        if self.fair_queueing.keeps_flows_apart() {
            self.enter_floor(now, rounds, 0);
        } else if is_harmful {
            let patience = SHALLOW_PATIENCE * u64::from(self.delay.min_rtt());
            self.enter_floor(now, rounds, patience);
        } else if self.window >= full / 4 * 3 {
            // It begins: leave at once, and come back soon if it was short.
            if was_alone {
                self.growth.remember_window(full);
            } else {
                self.growth.limit_remembered_window(share / 2);
            }
            self.enter_floor(now, rounds, 4 * u64::from(self.delay.min_rtt()));
        } else if self.window <= MIN_RETURN || self.window <= self.growth.remembered_window() / 4 {
            self.growth.limit_remembered_window(share.min(self.growth.remembered_window() / 2));
            self.enter_floor(now, rounds, 0);
        } else {
            self.growth.limit_remembered_window(share);
            self.window /= 2;
            self.phase = Phase::Use { rounds: rounds.min(SETTLED_ROUNDS) };
        }
    }

    fn handle_competition(&mut self, now: u64, is_harmful: bool) {
        self.competition_pause.handle_competition(now, self.delay.min_rtt(), is_harmful);
        self.alone = 0;
    }

    /// Only pairs from now on, for `patience` microseconds at the least. A return that has lasted
    /// for a few rounds only has failed: the next one waits longer and starts from less. In a shallow
    /// buffer, where returns are slow, it has failed if it did not regain the capacity.
    fn enter_floor(&mut self, now: u64, rounds: u32, patience: u64) {
        let rtt = u64::from(self.delay.min_rtt());
        let longer = (2 * self.patience).max(rtt).min(MAX_PATIENCE_MICROS);
        let mut patience = patience;
        if self.fair_queueing.keeps_flows_apart() {
            // Trains show the capacity that other flows leave.
            self.patience = if rounds < SETTLED_ROUNDS { longer } else { 0 };
            patience = self.train_pause();
        } else if self.delay.is_shallow() && self.window < self.full_window() / 4 * 3 {
            self.patience = longer.min(MAX_SHALLOW_PATIENCE * rtt);
        } else if rounds < SETTLED_ROUNDS {
            self.patience = longer;
            self.growth.limit_remembered_window(self.growth.remembered_window() / 2);
            self.idle_share = (self.idle_share / 2).max(ONE / 8);
        } else {
            self.patience = 0;
        }
        self.fair_queueing.handle_competition();
        self.start_floor(now, self.patience.max(patience));
    }

    fn start_floor(&mut self, now: u64, patience: u64) {
        self.patience = patience;
        self.alone = 0;
        self.drained = 0;
        self.explained = 0;
        self.window = ONE;
        self.phase = Phase::Floor { since: self.end_trial(now) };
    }

    /// A round-trip time of a packet of any member that no receiver has held back. Returns whether
    /// the background is to use the path again: a pair has met no queue.
    pub(super) fn handle_sample(&mut self, now: u64, rtt: u32) -> bool {
        let is_no_queue = rtt < self.delay.min_rtt() && self.handle_lowest(now, rtt);
        let Phase::Floor { since } = self.phase else { return false };
        if now >= since + 4 * u64::from(self.delay.min_rtt()) && self.is_shared_queue(rtt) {
            self.fair_queueing.handle_shared_queue();
        }
        if self.delay.queue(rtt) > self.noise_margin() && !is_no_queue {
            return self.handle_queued_pair(now, rtt, since);
        }
        self.longer_path.restart();
        if now < since + self.patience {
            return false;
        }
        self.handle_others_gone(now, since);
        let memory = match self.left_out.has(Part::Memory) {
            true => MIN_RETURN,
            false => self.full_window().min(self.growth.remembered_window()),
        };
        self.growth.remember_window(memory.max(MIN_RETURN));
        let is_steady = self.delay.is_steady() && !self.left_out.has(Part::Trains);
        let train = self.fair_queueing.begin_return(self.full_window() >> SHIFT, is_steady);
        self.phase = Phase::Use { rounds: 0 };
        if train > 0 {
            self.window = train << SHIFT;
        } else if self.capacity.is_confirmed() {
            self.window = self.start_window();
        } else {
            // The background has never filled the path: what it remembers is what others have left.
            self.window = MIN_RETURN;
            self.phase = Phase::Start;
        }
        true
    }

    /// A pair met more than the packets that others have between its own where flows are kept apart.
    fn is_shared_queue(&self, rtt: u32) -> bool {
        let most = u64::from(self.trigger()) + 2 * self.capacity.packet_micros();
        u64::from(self.delay.queue(rtt)) > most
    }

    /// A packet was lost or marked; `rtt` is the round-trip time around it.
    pub(super) fn handle_loss(&mut self, now: u64, rtt: u32) {
        if !self.is_at_floor() {
            // A pair's last round-trip time is from long before the loss.
            self.delay.record_full(now, rtt);
        }
        match self.phase {
            // A longer path does not lose packets.
            Phase::Floor { .. } => self.longer_path.restart(),
            Phase::Start => {
                self.window = (self.window / 2).max(TWO);
                self.growth.remember_window(self.window);
                self.phase = Phase::Use { rounds: SETTLED_ROUNDS + 1 };
            }
            Phase::Use { .. } if self.is_of_host(rtt) => self.window = (self.window / 2).max(TWO),
            Phase::Use { rounds } => {
                let is_return = rounds < SETTLED_ROUNDS && !self.fair_queueing.keeps_flows_apart();
                let is_competing = !self.capacity.is_reached() || is_return;
                if is_competing || self.window <= MIN_RETURN {
                    self.handle_competition(now, true);
                    self.growth.limit_remembered_window(self.current_window() / 2);
                    let patience = 8 * u64::from(self.delay.min_rtt());
                    self.enter_floor(now, rounds, patience.max(LOSS_PATIENCE_MICROS));
                } else {
                    self.shrink_after_own_loss();
                    self.phase = Phase::Use { rounds: 0 };
                }
            }
        }
    }

    /// A window beyond the capacity has filled the buffer: without what is beyond, nothing is lost.
    fn shrink_after_own_loss(&mut self) {
        let half = self.window / 2;
        if self.own_queue() == 0 {
            self.window = half;
            return;
        }
        self.window = (self.full_window() / 8 * 7).max(half).min(self.window);
        self.growth.hold_at(self.window);
        self.capacity.confirm();
    }

    /// The leader's retransmission timer has fired.
    pub(super) fn handle_timeout(&mut self, now: u64) {
        match self.phase {
            Phase::Use { rounds } => self.enter_floor(now, rounds, 0),
            Phase::Start => self.enter_floor(now, SETTLED_ROUNDS, 0),
            Phase::Floor { .. } => self.longer_path.restart(),
        }
    }
}

mod foreground;
mod train;
mod trial;

#[cfg(test)]
mod tests;
