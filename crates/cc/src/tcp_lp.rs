//! TCP-LP (Kuzmanovic, Knightly: TCP-LP: A distributed algorithm for low priority data transfer,
//! INFOCOM 2003): Reno that backs off when the one-way delay says that a queue begins.
//!
//! ```text
//!   new connection            smoothed delay above 15 % of its range:
//!        │                    W/2
//!        ▼               ┌───────────────────────▶┐
//!   Increase (Reno's slow start and               Inference
//!   congestion avoidance)                           no growth; above 15 % again: W ← 1,
//!        ▲                                          and the phase begins anew
//!        └───────────────────────◀┘
//!             ten round-trip times without that
//! ```

use crate::controller::{Ack, Controller, Pacing};
use crate::delay::RelativeDelay;
use crate::nice::WINDOW_LIMIT;
use crate::rtt::Rounds;
use crate::{Timestamp, Window};

const ONE: u64 = Window::ONE.raw();

/// The constants of TCP-LP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpLpParameters {
    /// δ: the share of the range of one-way delays, in hundredths, above which congestion begins.
    pub threshold_percent: u32,
    /// γ = 1/2^shift: the weight of a new sample in the smoothed delay.
    pub smoothing_shift: u32,
    /// Round-trip times that an inference phase lasts.
    pub inference_rtts: u32,
}

impl Default for TcpLpParameters {
    /// δ = 0.15, γ = 1/8, ten round-trip times. The module in Linux waits for three.
    fn default() -> Self {
        TcpLpParameters { threshold_percent: 15, smoothing_shift: 3, inference_rtts: 10 }
    }
}

/// What the window does between indications of congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Increase,
    /// Until that time in microseconds.
    Inference {
        until: u64,
    },
}

/// One-way delays in microseconds above the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Delays {
    low: i64,
    high: i64,
    /// The smoothed delay with 16 fractional bits, so that small differences are not lost.
    smoothed: i64,
}

/// The TCP-LP controller. It needs [`Ack::one_way_micros`]; without, it is Reno.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpLp {
    parameters: TcpLpParameters,
    phase: Phase,
    window: u64,
    ssthresh: u64,
    one_way: RelativeDelay,
    delays: Option<Delays>,
    rounds: Rounds,
    reacted: bool,
    unlimited: bool,
    rtt: u32,
}

impl TcpLp {
    /// Reno's initial window (RFC 6928 §2).
    pub const INITIAL_WINDOW: Window = crate::Reno::INITIAL_WINDOW;

    /// A controller for a new connection.
    ///
    /// # Panics
    /// If the threshold is above 100 %, or the smoothing shift above 15.
    pub fn new(parameters: TcpLpParameters) -> Self {
        assert!(parameters.threshold_percent <= 100, "{parameters:?}");
        assert!(parameters.smoothing_shift < 16, "{parameters:?}");
        TcpLp {
            parameters,
            phase: Phase::Increase,
            window: Self::INITIAL_WINDOW.raw(),
            ssthresh: Window::MAX.raw(),
            one_way: RelativeDelay::default(),
            delays: None,
            rounds: Rounds::default(),
            reacted: false,
            unlimited: false,
            rtt: 0,
        }
    }

    /// `true` during an inference phase.
    pub fn is_inferring(&self) -> bool {
        matches!(self.phase, Phase::Inference { .. })
    }

    /// Takes a one-way delay. `true` if the smoothed one is above the threshold: the early
    /// indication of congestion.
    fn sample(&mut self, one_way_micros: u32) -> bool {
        let delay = self.one_way.since_first(one_way_micros);
        let fixed = delay << Window::SHIFT;
        let first = Delays { low: delay, high: delay, smoothed: fixed };
        let delays = self.delays.get_or_insert(first);
        delays.low = delays.low.min(delay);
        delays.high = delays.high.max(delay);
        delays.smoothed += (fixed - delays.smoothed) >> self.parameters.smoothing_shift;
        let range = (delays.high - delays.low) << Window::SHIFT;
        let threshold = range * i64::from(self.parameters.threshold_percent) / 100;
        delays.smoothed > (delays.low << Window::SHIFT) + threshold
    }

    /// Congestion begins: half the window, and one packet if that did not help. From there the
    /// increase is linear.
    fn yield_early(&mut self, now: u64, delivered: u32) {
        self.window = match self.phase {
            Phase::Increase => (self.window / 2).max(ONE),
            Phase::Inference { .. } => ONE,
        };
        self.ssthresh = self.window;
        let length = u64::from(self.parameters.inference_rtts) * u64::from(self.rtt);
        self.phase = Phase::Inference { until: now + length };
        self.settle(delivered);
    }

    /// RFC 5681 §3.1, but that nothing raises a window of one packet.
    fn halve(&mut self, delivered: u32) {
        self.ssthresh = (self.window / 2).max(Window::TWO.raw());
        self.window = self.ssthresh.min(self.window);
        self.settle(delivered);
    }

    fn settle(&mut self, delivered: u32) {
        self.rounds.settle(delivered);
        self.reacted = true;
    }
}

impl Default for TcpLp {
    fn default() -> Self {
        Self::new(TcpLpParameters::default())
    }
}

impl Controller for TcpLp {
    fn handle_ack(&mut self, ack: &Ack) {
        let now = ack.now.as_micros();
        self.rounds.start(ack.delivered, ack.acked);
        self.unlimited |= !ack.app_limited;
        if let Some(rtt) = ack.rtt_micros {
            self.rtt = rtt.get();
        }
        let is_early = ack.one_way_micros.is_some_and(|one_way| self.sample(one_way));
        // The paper lets every ACK indicate congestion; but what is in flight was sent before the
        // cut and reports the same queue again, and every first cut would be followed by the
        // second at once. So once a round, as for losses.
        let is_new = self.rounds.is_new_loss(ack.prior_delivered);
        if ack.lost > 0 && is_new {
            self.halve(ack.delivered);
        } else if is_early && is_new && ack.acked > 0 {
            self.yield_early(now, ack.delivered);
        }
        if let Phase::Inference { until } = self.phase
            && now >= until
        {
            self.phase = Phase::Increase;
        }
        let may_grow = self.phase == Phase::Increase && !self.reacted;
        let in_slow_start = self.window < self.ssthresh;
        if in_slow_start && may_grow && !ack.app_limited {
            let step = u64::from(ack.acked) << Window::SHIFT;
            self.window = (self.window + step).min(WINDOW_LIMIT);
        }
        if ack.acked > 0 && self.rounds.pass(ack.delivered, ack.prior_delivered) {
            if !in_slow_start && may_grow && self.unlimited {
                self.window = (self.window + ONE).min(WINDOW_LIMIT);
            }
            self.reacted = false;
            self.unlimited = false;
        }
    }

    fn handle_loss(&mut self, now: Timestamp, delivered: u32) {
        self.handle_mark(now, delivered);
    }

    /// RFC 3168 §6.1.2: as a loss.
    fn handle_mark(&mut self, _now: Timestamp, delivered: u32) {
        self.halve(delivered);
    }

    /// RFC 5681 §3.1: the loss window is one packet.
    fn handle_timeout(&mut self, _now: Timestamp, delivered: u32) {
        self.halve(delivered);
        self.window = ONE;
        // What is acknowledged from here on was sent again after the timeout.
        self.reacted = false;
    }

    /// RFC 5681 §4.1: no more than the initial window after a pause.
    fn handle_idle(&mut self, _now: Timestamp) {
        self.window = self.window.min(Self::INITIAL_WINDOW.raw());
    }

    fn window(&self) -> Window {
        Window::from_raw(self.window)
    }

    fn slow_start_threshold(&self) -> Window {
        Window::from_raw(self.ssthresh)
    }

    fn packets(&self, _in_flight: u32) -> u32 {
        (self.window >> Window::SHIFT) as u32
    }

    fn pacing(&self, _smoothed_rtt_micros: u32, _packet_bytes: u32) -> Option<Pacing> {
        None
    }
}
