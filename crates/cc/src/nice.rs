//! TCP Nice (Nice §2.2, §2.3; SSR §4.1.2): a window that yields to a queue before it overflows.
//!
//! ```text
//!  Slow start ──────────────▶ Congestion avoidance ──────────────▶ Pairs, W < 2
//!  each ACK    Diff > α, or   each round without    a cut leaves   two packets each 2/W RTTs
//!  + acked/2   the first cut  congestion: Vegas'    W < 2          each pair without
//!                             −1, 0, +1 or Reno's +1               congestion: +1
//!                                     ▲                               │
//!                                     └───────── W ≥ 2 again ─────────┘
//!  A cut, at most one a round: the detector's, a loss or a mark: W ← W/2, not below 1/48.
//!  A timeout: W ← min(W, 1).
//! ```
//!
//! This is the published algorithm. The refinements, which are all on by default, change its steps. Below two
//! packets `gentle` adds W/2 or 3·W, and no more than one packet; above, `headroom` adds a part of one;
//! `recall` allows another slow start.
//!
//! This is the reference; `bpf/nice.h` is its mirror for the kernel, and a test feeds both the
//! same events. Change them together.

use crate::controller::{Ack, Controller, Pacing};
use crate::noise_floor::NoiseFloor;
use crate::rtt::{Rounds, RttHistory};
use crate::{Rate, Timestamp, Window};

pub mod minimum_progress;
mod parameters;

pub use parameters::{Base, NiceParameters, Reaction, Refinements, fixed};

const SHIFT: u32 = Window::SHIFT;
const ONE: u64 = Window::ONE.raw();
const TWO: u64 = Window::TWO.raw();
/// A window larger than any present path needs; it keeps every product below 64 bits.
pub(crate) const WINDOW_LIMIT: u64 = (1 << 20) << SHIFT;
/// Round-trip times above this are limited: 16.7 s keeps window times RTT below 2^60.
const RTT_LIMIT: u32 = (1 << 24) - 1;
/// Linux delays a single packet's acknowledgement by at least 40 ms, other systems by more.
const RECEIVER_DELAY: u32 = 35_000;
/// The acknowledgement of the previous packet must still be delayed when a packet arrives. Linux delays it
/// for at least 40 ms, and an acknowledgement with that delay looks like a queue.
const MAX_SPACING: u32 = 20_000;
/// A window is sent in bursts of a millisecond (Linux's `tcp_tso_autosize`), whose packets wait for each
/// other, and the jitter of paths is as large. If a flow has more than two packets in that time, between α
/// and β, Vegas mistakes this for a queue.
const BURST: u64 = 1_000;
/// The step doubles after each eight rounds with a nearly empty queue, up to 2^6.
const EMPTY_ROUNDS: u32 = 48;
/// Rounds without congestion until a new flow has the whole threshold.
const PROBATION_ROUNDS: u32 = 64;

/// A state of the diagram above. It is derived from the window and the slow-start threshold, and carries no data: a
/// stored copy could contradict them, since each of many events may move the window across two packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Each acknowledgement raises the window.
    SlowStart,
    /// Each round without congestion does.
    Avoidance,
    /// Below two packets, a pair is the round (Nice §2.3).
    Pairs,
}

/// The counts of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    /// Packets that met a queue above the trigger.
    congested: u32,
    /// Packets that gave a sample.
    sampled: u32,
    /// Sum of round-trip times, weighted by packets.
    rtt_sum: u64,
    low: u32,
    high: u32,
    /// The round has ended; its operation waits for the rest of the pair.
    pending: bool,
    /// The window was cut, and the packets in flight were sent before that.
    reacted: bool,
    /// A packet was limited by the window, not by the application.
    unlimited: bool,
}

/// The Nice controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nice {
    parameters: NiceParameters,
    window: u64,
    ssthresh: u64,
    /// Half of the window at which the detector's last series of cuts began; 0 after any other cut.
    recall: u64,
    /// The last round was without congestion.
    quiet: bool,
    rounds: Rounds,
    rtt: RttHistory,
    /// Only small packets have measured the path so far.
    is_of_small: bool,
    round: Round,
    last_high: u32,
    round_start: u64,
    yielded: u64,
    passed: u32,
    congested: u32,
    /// The previous sample, in any case.
    last_rtt: u32,
    /// Rounds without congestion, up to [`PROBATION_ROUNDS`].
    clean: u32,
    /// Consecutive rounds with a nearly empty queue, up to [`EMPTY_ROUNDS`].
    empty: u32,
    noise: NoiseFloor,
    /// Connections of this host that share the minimum progress.
    connections: u32,
}

/// Vegas' Diff = (W/min − W/observed) · min: packets of this flow in the queue, with 16 fractional bits.
fn diff(window: u64, min_rtt: u32, observed: u32) -> u64 {
    match observed.checked_sub(min_rtt) {
        None | Some(0) => 0,
        Some(queueing) => window * u64::from(queueing) / u64::from(observed),
    }
}

impl Nice {
    /// The initial window of a connection. The papers leave it open (Linux 2.4 had two). With ten, which RFC
    /// 6928 allows, 64 flows would overfill any buffer before their first sample.
    pub const INITIAL_WINDOW: Window = Window::TWO;

    /// A controller for a new connection.
    pub fn new(parameters: NiceParameters) -> Self {
        Self::with_window(parameters, Self::INITIAL_WINDOW, Window::MAX)
    }

    /// A controller that takes over an existing connection: its window is kept, and there is no second slow
    /// start above `ssthresh`.
    pub fn with_window(parameters: NiceParameters, window: Window, ssthresh: Window) -> Self {
        Nice {
            parameters,
            window: window.raw(),
            ssthresh: ssthresh.raw(),
            recall: 0,
            quiet: false,
            rounds: Rounds::default(),
            rtt: RttHistory::default(),
            is_of_small: false,
            round: Round::default(),
            last_high: 0,
            round_start: 0,
            yielded: 0,
            passed: 0,
            congested: 0,
            last_rtt: 0,
            clean: 0,
            empty: 0,
            noise: NoiseFloor::default(),
            connections: 1,
        }
    }

    /// The round-trip time of the empty queue in microseconds: the lowest of the last twenty slots, without
    /// one outlier once there are twenty. 0 before the first sample.
    pub fn min_rtt_micros(&self) -> u32 {
        self.rtt.min_rtt
    }

    /// The round-trip time of the full queue in microseconds: the highest mean that two rounds have reached.
    /// It is at least the highest value around a loss or, without one, twice
    /// [`min_rtt_micros`](Self::min_rtt_micros). 0 before the first sample.
    pub fn max_rtt_micros(&self) -> u32 {
        self.rtt.max_rtt
    }

    /// Rounds so far.
    pub fn rounds(&self) -> u32 {
        self.passed
    }

    /// Rounds in which the detector has signalled congestion.
    pub fn rounds_congested(&self) -> u32 {
        self.congested
    }

    /// Time spent yielding in microseconds: in rounds that ended in a cut or ran below two packets, if there
    /// was data to send.
    pub fn yielded_micros(&self) -> u64 {
        self.yielded
    }

    /// Nice §2.2: the round-trip time above which a packet has met congestion, (1 − t)·min_rtt + t·max_rtt,
    /// but at least min_rtt plus the floor. `noise`: also at least min_rtt plus the effect of jitter alone.
    pub fn trigger_rtt_micros(&self) -> u32 {
        self.quiet_rtt() + self.tolerance()
    }

    /// How far jitter alone raises round-trip times, in microseconds; 0 while unknown.
    pub fn noise_micros(&self) -> u32 {
        match self.parameters.refinements.noise {
            true => self.noise.micros().min(self.rtt.max_rtt - self.rtt.min_rtt),
            false => 0,
        }
    }

    /// Other connections of this host have data as well: `connections` of them, including this one, share the
    /// minimum progress.
    pub fn share_progress(&mut self, connections: u32) {
        self.connections = connections;
    }

    /// The longest queue in this round or the previous one, in microseconds.
    fn queue_micros(&self) -> u32 {
        self.round.high.max(self.last_high).saturating_sub(self.rtt.min_rtt)
    }

    /// The highest round-trip time without a queue: min_rtt, and jitter.
    fn quiet_rtt(&self) -> u32 {
        self.rtt.min_rtt + self.noise_micros()
    }

    /// Nice §2.2: t·(max_rtt − min_rtt), but at least the floor.
    fn tolerance(&self) -> u32 {
        let range = u64::from(self.rtt.max_rtt - self.rtt.min_rtt);
        let delay = (range * u64::from(self.threshold())) >> SHIFT;
        (delay as u32).max(self.parameters.delay_floor_micros)
    }

    /// t of Nice §2.2. `probation`: a quarter of it at first, all of it after sixty-four rounds without
    /// congestion. A flow that starts late mistakes the foreground's queue for the path, and twice that for
    /// the full queue. It measures the path while it yields.
    fn threshold(&self) -> u32 {
        let full = self.parameters.threshold;
        if !self.parameters.refinements.probation {
            return full;
        }
        let clean = self.clean.min(PROBATION_ROUNDS);
        full * (PROBATION_ROUNDS + 3 * clean) / (4 * PROBATION_ROUNDS)
    }

    /// RFC 1122 §4.2.3.2: a receiver may delay the acknowledgement of a single packet. It may always do so
    /// for the only packet in flight. Otherwise the sample then exceeds the previous one by at least the
    /// receivers' minimum delay. A queue that has grown so much at once is accepted with the next sample.
    fn is_maybe_delayed(&self, ack: &Ack, rtt: u32) -> bool {
        let stands_out = self.last_rtt > 0 && rtt >= self.last_rtt + RECEIVER_DELAY;
        ack.maybe_delayed || ack.in_flight <= 1 || (ack.acked == 1 && stands_out)
    }

    /// Nice §2.2, per ACK.
    fn sample(&mut self, ack: &Ack, rtt: u32) {
        let rtt = rtt.min(RTT_LIMIT);
        // A full packet's own transmission time on a slow link is not a queue: measurements by small packets
        // are discarded when full ones arrive.
        if self.is_of_small && !ack.is_small {
            self.rtt.forget();
        }
        if self.rtt.is_empty() {
            self.is_of_small = ack.is_small;
            self.round.low = 0;
            self.rtt.remember(ack.now.as_micros(), rtt, 0);
        }
        let is_congested = rtt > self.trigger_rtt_micros();
        // A delay by the receiver can only hide the absence of a queue.
        let is_maybe_delayed = self.is_maybe_delayed(ack, rtt);
        if !is_maybe_delayed {
            self.noise.handle_sample(ack.now.as_micros(), rtt, self.rtt.min_rtt);
        }
        self.last_rtt = rtt;
        if is_congested && is_maybe_delayed {
            return;
        }
        let round = &mut self.round;
        if is_congested {
            round.congested += ack.acked;
        }
        round.sampled += ack.acked;
        round.rtt_sum += u64::from(rtt) * u64::from(ack.acked);
        // A small packet among full ones does not measure how short the path is for those.
        let is_told_by_full = ack.is_small && !self.is_of_small;
        let shortest = if is_told_by_full { rtt.max(self.rtt.min_rtt) } else { rtt };
        if round.low == 0 || shortest < round.low {
            round.low = shortest;
        }
        round.high = round.high.max(rtt);
    }

    /// W ← W/2, not below the floor, which never raises a window that a timeout left below it.
    fn halve(&mut self) {
        let floor = self.parameters.min_window.raw().min(self.window);
        self.window = (self.window / 2).max(floor);
    }

    /// A loss, for which Nice §2.2 uses Reno's rules, or a mark (RFC 3168 §6.1.2). It halves the window; RFC
    /// 5681 §3.1 equation 4 and RFC 6675 §5 step 4.2 halve the data in flight, which is no more. Slow start
    /// ends here next time, as in Reno.
    fn halve_for_loss(&mut self) {
        self.halve();
        self.noise.handle_loss(self.queue_micros());
        self.ssthresh = self.window;
        self.recall = 0;
    }

    /// The detector's rule (Nice §2.2). Reno has not cut here, so the slow-start threshold may fall, but not
    /// rise.
    ///
    /// `recall`: of a series of cuts only the first says something about the path; the others show how long
    /// the foreground stayed. While only the detector cuts, Reno's window would still be above the window at
    /// the beginning of the series.
    fn halve_for_delay(&mut self) {
        let is_first = self.window > self.recall;
        match self.parameters.reaction {
            Reaction::Half => self.halve(),
            Reaction::Packet => {
                let floor = self.parameters.min_window.raw().min(self.window);
                self.window = self.window.saturating_sub(ONE).max(floor);
            }
        }
        self.ssthresh = self.ssthresh.min(self.window);
        if is_first && self.parameters.refinements.recall {
            self.recall = self.window;
        }
    }

    /// The end of slow start. Up to the window of `recall` it grows only from quiet to quiet round, because it
    /// would otherwise undo the cuts.
    fn slow_start_end(&self) -> u64 {
        if self.quiet { self.ssthresh.max(self.recall) } else { self.ssthresh }
    }

    fn phase(&self) -> Phase {
        if self.window < TWO {
            Phase::Pairs
        } else if self.window < self.slow_start_end() {
            Phase::SlowStart
        } else {
            Phase::Avoidance
        }
    }

    /// A reaction to loss, mark or timeout closes the round: its counts are final.
    fn close_round(&mut self, delivered: u32) {
        self.round = Round { reacted: true, ..self.remaining_round() };
        self.rounds.close_round(delivered);
    }

    /// The part of the round that remains after a reaction.
    fn remaining_round(&self) -> Round {
        let Round { low, high, unlimited, .. } = self.round;
        Round { low, high, unlimited, ..Round::default() }
    }

    /// Nice §2.2: a lost packet triggers Reno's rule; once a round.
    ///
    /// `full`: max_rtt is at least the round-trip time around it, and no longer twice min_rtt.
    fn lose(&mut self, delivered: u32, prior_delivered: u32) {
        if self.parameters.refinements.full {
            self.rtt.remember_full(self.round.high.max(self.last_high));
        }
        if self.rounds.is_new_loss(prior_delivered) {
            self.halve_for_loss();
            self.close_round(delivered);
        }
    }

    /// Below this the queue is nearly empty: a quarter of the way to the trigger. The foreground has ended,
    /// or pauses.
    fn empty_rtt(&self) -> u32 {
        self.quiet_rtt() + (self.tolerance() / 4).max(self.parameters.delay_floor_micros)
    }

    /// The additive step below two packets: the published +1, for one pair's round (Nice §2.3).
    ///
    /// `gentle`: half the window. In packets per RTT the published step grows as W/2 and a halving takes
    /// W²/4. So many small windows keep any queue above the trigger most of the time. With half the window,
    /// growth and cut are equal when half of the rounds are congested. If the queue is nearly empty, the
    /// window is multiplied by four.
    fn small_step(&self, observed: u32) -> u64 {
        if !self.parameters.refinements.gentle {
            ONE
        } else if observed <= self.empty_rtt() {
            (3 * self.window).min(ONE)
        } else {
            self.window / 2
        }
    }

    /// The additive step of congestion avoidance: as published, one packet. `headroom`: a quarter of the step
    /// that would bring the RTT half way to the trigger if every flow at the bottleneck took it at once. That
    /// is small if the path is long and the window small. So while the queue stays nearly empty, it doubles
    /// every eight rounds, up to the published one.
    fn step(&self, observed: u32) -> u64 {
        if !self.parameters.refinements.headroom {
            return ONE;
        }
        let target = self.quiet_rtt() + self.tolerance() / 2;
        let room = u64::from(target.saturating_sub(observed));
        ((self.window * room / u64::from(observed) / 4) << (self.empty / 8)).min(ONE)
    }

    /// Vegas' rule (Nice §2.1). `least`: from two packets in a millisecond on, it uses the lowest RTT of the
    /// round.
    fn grow(&mut self, observed: u32, began: Phase) {
        if self.phase() == Phase::Pairs {
            self.window += self.small_step(observed);
            return;
        }
        let NiceParameters { base, alpha, beta, delay_floor_micros, refinements, .. } =
            self.parameters;
        let is_dense = self.window * BURST > TWO * u64::from(self.rtt.min_rtt);
        let seen = if refinements.least && is_dense { self.round.low } else { observed };
        // Queueing below the floor is jitter, and not a queued packet of this flow.
        let quiet = self.quiet_rtt();
        let empty = quiet + delay_floor_micros;
        let diff = if seen < empty { 0 } else { diff(self.window, quiet, seen) };
        if began == Phase::SlowStart {
            // The slow start itself is per ACK; it ends when a queue forms.
            if base == Base::Vegas && diff > u64::from(alpha) {
                self.ssthresh = self.ssthresh.min(self.window);
                self.recall = self.recall.min(self.window);
            }
            return;
        }
        if base == Base::Reno || diff < u64::from(alpha) {
            self.window += self.step(observed);
        } else if diff > u64::from(beta) {
            self.window = (self.window - ONE).max(TWO);
        }
        self.window = self.window.min(WINDOW_LIMIT);
    }

    /// Nice §2.2, per round. `began`: the phase when the acknowledgement that ends the round arrived.
    fn end_round(&mut self, now: u64, began: Phase) {
        let round = self.round;
        let mut is_yielding = round.reacted || self.phase() == Phase::Pairs;
        self.passed += 1;
        if round.sampled > 0 {
            let observed = (round.rtt_sum / u64::from(round.sampled)) as u32;
            // numCong > f · (packets of the round), in packets that gave a sample.
            let is_congested = self.parameters.detector
                && (u64::from(round.congested) << SHIFT)
                    > u64::from(self.parameters.fraction) * u64::from(round.sampled);
            self.quiet = !is_congested && !round.reacted;
            let is_empty = self.quiet && observed <= self.empty_rtt();
            self.empty = if is_empty { (self.empty + 1).min(EMPTY_ROUNDS) } else { 0 };
            if is_congested && !round.reacted {
                self.congested += 1;
                is_yielding = true;
                self.halve_for_delay();
            } else if !round.reacted {
                self.clean = (self.clean + 1).min(PROBATION_ROUNDS);
                if round.unlimited {
                    self.grow(observed, began);
                }
            }
            self.rtt.remember(now, round.low, observed);
        }
        // A flow without data does not yield.
        if is_yielding && round.unlimited && self.round_start > 0 && now > self.round_start {
            self.yielded += now - self.round_start;
        }
        self.round_start = now;
        self.start_round();
    }

    /// From the first packet of a pair to the second, in microseconds. `spaced`: a quarter of the round trip,
    /// so that the first has left any link that holds four packets of this path.
    fn spacing(&self) -> u32 {
        if self.phase() != Phase::Pairs || !self.parameters.refinements.spaced {
            return 0;
        }
        (self.rtt.min_rtt / 4).min(MAX_SPACING)
    }

    fn start_round(&mut self) {
        self.last_high = self.round.high;
        self.round = Round::default();
    }
}

impl Controller for Nice {
    fn handle_ack(&mut self, ack: &Ack) {
        self.rounds.start(ack.delivered, ack.acked);
        self.noise.handle_delivery(ack.acked);
        if let (Some(rtt), true) = (ack.rtt_micros, ack.acked > 0) {
            self.sample(ack, rtt.get());
        }
        // An acknowledgement of no new packets does not show what limited the sender. While the round waits
        // for the pair to return, its state is final.
        self.round.unlimited |= ack.acked > 0 && !ack.app_limited && !self.round.pending;
        if ack.lost > 0 {
            self.lose(ack.delivered, ack.prior_delivered);
        }
        // The papers leave the slow start open. Vegas doubles every other round, here half of Reno's growth
        // every round; nothing is added in a round with a reaction.
        let began = self.phase();
        if began == Phase::SlowStart && !ack.app_limited && !self.round.reacted {
            let half = u32::from(self.parameters.base == Base::Vegas);
            let step = u64::from(ack.acked) << (SHIFT - half);
            self.window = (self.window + step).min(self.slow_start_end()).min(WINDOW_LIMIT);
        }
        // Nice §2.3: below two packets the pair is the round, so wait for all of it. That is, until nothing
        // is in flight or, if pairs overlap, until another round has passed.
        let mut is_whole = self.phase() != Phase::Pairs || ack.in_flight <= ack.acked + ack.lost;
        if ack.acked > 0 && self.rounds.pass(ack.delivered, ack.prior_delivered) {
            is_whole |= self.round.pending;
            self.round.pending = true;
        }
        if self.round.pending && is_whole {
            self.end_round(ack.now.as_micros(), began);
        }
    }

    fn handle_loss(&mut self, _now: Timestamp, delivered: u32) {
        self.lose(delivered, delivered);
    }

    /// Like a loss, but no packet met a full queue.
    fn handle_mark(&mut self, _now: Timestamp, delivered: u32) {
        self.halve_for_loss();
        self.close_round(delivered);
    }

    /// W ← min(W, 1): a timeout never raises a window that was already below one.
    fn handle_timeout(&mut self, _now: Timestamp, delivered: u32) {
        self.ssthresh = self.window / 2;
        self.noise.handle_loss(self.queue_micros());
        self.recall = 0;
        self.window = self.window.min(ONE);
        self.close_round(delivered);
    }

    /// After a pause the network may have changed: start again like a new connection.
    fn handle_idle(&mut self, _now: Timestamp) {
        self.window = self.window.min(Self::INITIAL_WINDOW.raw());
        self.recall = 0;
        self.round_start = 0;
        let reacted = self.round.reacted;
        self.start_round();
        self.round.reacted = reacted;
    }

    fn window(&self) -> Window {
        Window::from_raw(self.window)
    }

    fn slow_start_threshold(&self) -> Window {
        Window::from_raw(self.slow_start_end())
    }

    /// Whole packets, and at least one pair, which the pacing rate spreads (Nice §2.3). The next pair waits
    /// for the last one for any time: a single packet would wait at the receiver for a second one.
    fn packets(&self, in_flight: u32) -> u32 {
        match in_flight {
            _ if self.phase() != Phase::Pairs => (self.window >> SHIFT) as u32,
            0 => 2,
            _ => in_flight,
        }
    }

    /// Below two packets exactly W per RTT, which is a pair each 2/W RTTs, or at least the rate of
    /// `progress`. Above, a quarter more than the window needs (twice in slow start). So acknowledgements set
    /// the rate, and pacing only spreads the bursts (Nice §2.3 plans it). Packets are not so far apart that
    /// the receiver would acknowledge each one by its timer.
    fn pacing(&self, smoothed_rtt_micros: u32, packet_bytes: u32) -> Option<Pacing> {
        if smoothed_rtt_micros == 0 {
            return None;
        }
        let phase = self.phase();
        // Pairs are far apart, and the mean over eight of them still includes a queue that has drained.
        let rtt = match self.last_rtt {
            last if phase == Phase::Pairs && last > 0 => smoothed_rtt_micros.min(last),
            _ => smoothed_rtt_micros,
        };
        let rtt = u64::from(rtt);
        let bytes = self.window * u64::from(packet_bytes);
        // A million is below 2^20: the product fits, or the window is so large that its fraction does not
        // matter.
        let mut rate = if bytes < 1 << 43 {
            (bytes * 1_000_000 / rtt) >> SHIFT
        } else {
            (bytes >> SHIFT) * 1_000_000 / rtt
        };
        let lowest = match phase {
            Phase::SlowStart | Phase::Avoidance => {
                rate += if phase == Phase::SlowStart { rate } else { rate / 4 };
                u64::from(packet_bytes) * 1_000_000 / u64::from(MAX_SPACING)
            }
            Phase::Pairs if self.parameters.refinements.progress => {
                let rtt = u32::try_from(rtt).unwrap_or(u32::MAX);
                minimum_progress::lowest_rate(self.connections, rtt, packet_bytes)
            }
            Phase::Pairs => 0,
        };
        rate = rate.max(lowest);
        let burst = if phase == Phase::Pairs { 2 } else { 1 };
        // 0 would mean unpaced.
        let rate = Rate::from_bytes_per_second(rate.max(1));
        Some(Pacing { rate, burst, spacing_micros: self.spacing() })
    }
}
