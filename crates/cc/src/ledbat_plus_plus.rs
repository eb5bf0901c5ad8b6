//! LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus): LEDBAT on round-trip times that shares fairly with other
//! LEDBAT++ flows. Every flow periodically empties the queue and measures the path again.
//!
//! ```text
//!   new connection                              now ≥ slowdown due:
//!        │ window 2                             ssthresh = window, window = 2
//!        ▼                                  ┌──────────────────────────────────┐
//!   Initial slow start ─────────────▶ Congestion avoidance                     ▼
//!     +GAIN per packet      │           below the target +GAIN a round,      Frozen
//!     acknowledged          │           above it a share of the window less    │ 2 RTT
//!                   queueing > 3/4 TARGET,  ▲                                  ▼
//!                   or loss                 └───────────────────────────── Ramp-up
//!                   (slowdown due in 2 RTT)   window = ssthresh, or loss     +GAIN per packet
//!                                             (slowdown due in 9 times         ▲
//!                                             what this one took)              │
//!                                             timeout, from any: window 1 ─────┘
//! ```

use crate::controller::{Ack, Controller};
use crate::delay::DelayHistory;
use crate::nice::WINDOW_LIMIT;
use crate::rtt::Rounds;
use crate::{Timestamp, Window};

const ONE: u64 = Window::ONE.raw();
/// Draft §4.1 and §4.4: two packets are the initial, the frozen, and the smallest window.
const MIN_WINDOW: u64 = Window::TWO.raw();
/// Draft §4.2: GAIN is not below a sixteenth.
const GAIN_LIMIT: i64 = 16;
/// Draft §4.3: the constant of the decrease that the draft recommends.
const DECREASE: i128 = 1;
/// Draft §4.4: round trips from the end of the slow start to the first slowdown, and round trips for which a
/// slowdown freezes the window.
const SLOWDOWN_RTTS: u64 = 2;
/// Draft §4.4: the next slowdown begins when nine times the length of the last one has passed. So slowdowns
/// cost at most a tenth of the capacity.
const SLOWDOWN_PERIOD: u64 = 9;

/// The states of the slowdown (draft §4.1, §4.4), with times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    InitialSlowStart,
    Avoidance { slowdown_due: u64 },
    Frozen { since: u64, until: u64 },
    RampUp { since: u64 },
}

/// The LEDBAT++ controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedbatPlusPlus {
    target_micros: u32,
    window: u64,
    ssthresh: u64,
    phase: Phase,
    delays: DelayHistory,
    rounds: Rounds,
}

impl LedbatPlusPlus {
    /// Draft §4.1: two packets.
    pub const INITIAL_WINDOW: Window = Window::TWO;
    /// Draft §4.5: a target of 60 ms, in microseconds.
    pub const TARGET_MICROS: u32 = 60_000;

    /// A controller for a new connection.
    pub fn new() -> Self {
        Self::with_target(Self::TARGET_MICROS)
    }

    /// A controller that keeps the queueing delay below `target_micros`.
    ///
    /// # Panics
    /// If the target is zero.
    pub fn with_target(target_micros: u32) -> Self {
        assert!(target_micros > 0, "a target of 0 µs");
        LedbatPlusPlus {
            target_micros,
            window: Self::INITIAL_WINDOW.raw(),
            ssthresh: Window::MAX.raw(),
            phase: Phase::InitialSlowStart,
            delays: DelayHistory::new(),
            rounds: Rounds::default(),
        }
    }

    /// `true` while the window is held at two packets to measure the empty path (draft §4.4).
    pub fn is_frozen(&self) -> bool {
        matches!(self.phase, Phase::Frozen { .. })
    }

    fn target(&self) -> i64 {
        i64::from(self.target_micros)
    }

    /// Draft §4.2: GAIN = 1 / min(16, ⌈2·TARGET / base⌉). This is its divisor.
    fn gain_divisor(&self) -> i64 {
        let base = self.delays.base().unwrap_or(self.target()).max(1) as u64;
        let twice = 2 * u64::from(self.target_micros);
        (twice.div_ceil(base) as i64).min(GAIN_LIMIT)
    }

    /// The present round-trip time in microseconds.
    fn rtt(&self) -> u64 {
        self.delays.current().map_or(0, |rtt| rtt.unsigned_abs())
    }

    /// Draft §4.1, the modified slow start: GAIN for each acknowledged packet.
    fn slow_start(&mut self, acked: u32) {
        let step = u64::from(acked) * ONE / self.gain_divisor().unsigned_abs();
        self.window = (self.window + step).min(self.ssthresh).min(WINDOW_LIMIT);
    }

    /// Draft §4.2 and §4.3, spread over the acknowledgements of a round: below the target the
    /// window grows by GAIN; above, W += max(GAIN − W·(delay/TARGET − 1), −W/2).
    fn adjust(&mut self, queueing: i64, acked: u32, may_grow: bool) {
        let window = i128::from(self.window);
        let gain = i128::from(ONE) / i128::from(self.gain_divisor());
        let excess = i128::from((queueing - self.target()).max(0));
        let decrease = DECREASE * window * excess / i128::from(self.target());
        let mut step = (gain - decrease).max(-window / 2);
        if !may_grow {
            step = step.min(0);
        }
        // Each acknowledged packet of a window has its share of the round's step.
        let share = i128::from(acked) * i128::from(ONE);
        let window = window + step * share.min(window) / window;
        self.window = (window as u64).clamp(MIN_WINDOW, WINDOW_LIMIT);
    }

    fn after_slowdown(&self, now: u64, since: u64) -> Phase {
        Phase::Avoidance { slowdown_due: now + SLOWDOWN_PERIOD * now.saturating_sub(since) }
    }

    /// Draft §4.3 leaves losses to RFC 6817 §2.4.2: half, once a round-trip time.
    fn halve(&mut self, now: u64, delivered: u32) {
        self.window = self.window.min((self.window / 2).max(MIN_WINDOW));
        self.phase = match self.phase {
            Phase::InitialSlowStart => {
                self.ssthresh = self.window;
                Phase::Avoidance { slowdown_due: now + SLOWDOWN_RTTS * self.rtt() }
            }
            Phase::RampUp { since } => {
                self.ssthresh = self.window;
                self.after_slowdown(now, since)
            }
            // The lost packets belong to the window before the slowdown.
            frozen @ Phase::Frozen { .. } => {
                self.ssthresh = (self.ssthresh / 2).max(MIN_WINDOW);
                frozen
            }
            avoidance @ Phase::Avoidance { .. } => avoidance,
        };
        self.rounds.close_round(delivered);
    }

    fn acknowledge(&mut self, ack: &Ack) {
        let now = ack.now.as_micros();
        let queueing = self.delays.queueing().unwrap_or(0);
        match self.phase {
            Phase::InitialSlowStart => {
                // Draft §4.1: only the first slow start uses the delay.
                if queueing > self.target() * 3 / 4 {
                    self.ssthresh = self.window;
                    self.phase =
                        Phase::Avoidance { slowdown_due: now + SLOWDOWN_RTTS * self.rtt() };
                } else if !ack.app_limited {
                    self.slow_start(ack.acked);
                }
            }
            Phase::Avoidance { slowdown_due } if now >= slowdown_due => {
                self.ssthresh = self.window.max(MIN_WINDOW);
                self.window = self.window.min(MIN_WINDOW);
                self.phase = Phase::Frozen { since: now, until: now + SLOWDOWN_RTTS * self.rtt() };
            }
            Phase::Avoidance { .. } => self.adjust(queueing, ack.acked, !ack.app_limited),
            Phase::Frozen { since, until } => {
                if now >= until {
                    self.phase = Phase::RampUp { since };
                }
            }
            Phase::RampUp { since } => {
                if !ack.app_limited {
                    self.slow_start(ack.acked);
                }
                if self.window >= self.ssthresh {
                    self.phase = self.after_slowdown(now, since);
                }
            }
        }
    }
}

impl Default for LedbatPlusPlus {
    fn default() -> Self {
        Self::new()
    }
}

impl Controller for LedbatPlusPlus {
    fn handle_ack(&mut self, ack: &Ack) {
        self.rounds.start(ack.delivered, ack.acked);
        let now = ack.now.as_micros();
        // Draft §4.5: round-trip times, which every transport has.
        if let Some(rtt) = ack.rtt_micros {
            self.delays.remember(now, i64::from(rtt.get()));
        }
        if ack.lost > 0 && self.rounds.is_new_loss(ack.prior_delivered) {
            self.halve(now, ack.delivered);
        } else if ack.acked > 0 {
            self.acknowledge(ack);
        }
    }

    fn handle_loss(&mut self, now: Timestamp, delivered: u32) {
        self.handle_mark(now, delivered);
    }

    /// RFC 3168 §6.1.2: like a loss.
    fn handle_mark(&mut self, now: Timestamp, delivered: u32) {
        self.halve(now.as_micros(), delivered);
    }

    /// RFC 6817 §2.4.2: one packet. The draft does not mention the recovery: as after a slowdown, to half of
    /// the previous window.
    fn handle_timeout(&mut self, now: Timestamp, delivered: u32) {
        let before = if self.is_frozen() { self.ssthresh } else { self.window };
        self.ssthresh = (before / 2).max(MIN_WINDOW);
        self.window = self.window.min(ONE);
        self.phase = Phase::RampUp { since: now.as_micros() };
        self.rounds.close_round(delivered);
    }

    /// RFC 5681 §4.1: like a new connection after a pause; the draft does not mention it. The pause has
    /// emptied the queue like a slowdown, and the recovery is the same.
    fn handle_idle(&mut self, now: Timestamp) {
        if let Phase::Avoidance { .. } = self.phase {
            self.ssthresh = self.window.max(MIN_WINDOW);
            self.phase = Phase::RampUp { since: now.as_micros() };
        }
        self.window = self.window.min(Self::INITIAL_WINDOW.raw());
    }

    fn window(&self) -> Window {
        Window::from_raw(self.window)
    }

    fn slow_start_threshold(&self) -> Window {
        Window::from_raw(self.ssthresh)
    }
}
