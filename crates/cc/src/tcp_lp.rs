//! TCP-LP (Kuzmanovic, Knightly: TCP-LP: A distributed algorithm for low priority data transfer, INFOCOM
//! 2003): Reno that backs off when the one-way delay shows the beginning of a queue.
//!
//! ```text
//!   new connection            smoothed delay above 15 % of its range:
//!        │                    W/2
//!        ▼               ┌───────────────────────▶┐
//!   Increase (Reno's slow start and               Inference
//!   congestion avoidance)                           no growth; above 15 % again: W ← 1,
//!        ▲                                          and the phase begins again
//!        └───────────────────────◀┘
//!             ten round-trip times without that
//! ```

use crate::controller::{Ack, Controller, Pacing};
use crate::delay::RelativeDelay;
use crate::{Reno, Timestamp, Window};

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

/// The window's behaviour between indications of congestion.
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

/// The TCP-LP controller. It needs [`Ack::one_way_micros`]; without it, it is Reno.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpLp {
    parameters: TcpLpParameters,
    phase: Phase,
    /// The controller while no queue begins.
    reno: Reno,
    one_way: RelativeDelay,
    delays: Option<Delays>,
    rtt: u32,
}

impl TcpLp {
    /// Reno's initial window (RFC 6928 §2).
    pub const INITIAL_WINDOW: Window = Reno::INITIAL_WINDOW;

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
            reno: Reno::new(),
            one_way: RelativeDelay::default(),
            delays: None,
            rtt: 0,
        }
    }

    /// `true` during an inference phase.
    pub fn is_inferring(&self) -> bool {
        matches!(self.phase, Phase::Inference { .. })
    }

    /// Takes a one-way delay. Returns `true` if the smoothed one is above the threshold: the early indication
    /// of congestion.
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

    /// Congestion begins: half the window, and one packet if that did not help. From there the increase is
    /// linear.
    fn yield_early(&mut self, now: u64, delivered: u32) {
        let window = match self.phase {
            Phase::Increase => (self.reno.window().raw() / 2).max(ONE),
            Phase::Inference { .. } => ONE,
        };
        self.reno.cut(window, window, delivered);
        let length = u64::from(self.parameters.inference_rtts) * u64::from(self.rtt);
        self.phase = Phase::Inference { until: now + length };
    }

    /// RFC 5681 §3.1, except that nothing raises a window of one packet.
    fn halve(&mut self, delivered: u32) {
        let window = self.reno.window().raw();
        let half = (window / 2).max(Window::TWO.raw());
        self.reno.cut(half.min(window), half, delivered);
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
        // The paper lets every ACK indicate congestion. But the packets in flight were sent before the cut
        // and report the same queue again. Every first cut would be followed by the second at once. So once a
        // round, as for losses.
        let is_new = self.reno.see(ack);
        if let Some(rtt) = ack.rtt_micros {
            self.rtt = rtt.get();
        }
        let is_early = ack.one_way_micros.is_some_and(|one_way| self.sample(one_way));
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
        self.reno.grow(ack, self.phase == Phase::Increase);
    }

    fn handle_loss(&mut self, now: Timestamp, delivered: u32) {
        self.handle_mark(now, delivered);
    }

    /// RFC 3168 §6.1.2: like a loss.
    fn handle_mark(&mut self, _now: Timestamp, delivered: u32) {
        self.halve(delivered);
    }

    fn handle_timeout(&mut self, now: Timestamp, delivered: u32) {
        self.reno.handle_timeout(now, delivered);
    }

    fn handle_idle(&mut self, now: Timestamp) {
        self.reno.handle_idle(now);
    }

    fn window(&self) -> Window {
        self.reno.window()
    }

    fn slow_start_threshold(&self) -> Window {
        self.reno.slow_start_threshold()
    }

    fn packets(&self, in_flight: u32) -> u32 {
        self.reno.packets(in_flight)
    }

    fn pacing(&self, smoothed_rtt_micros: u32, packet_bytes: u32) -> Option<Pacing> {
        self.reno.pacing(smoothed_rtt_micros, packet_bytes)
    }
}
