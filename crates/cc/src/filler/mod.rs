//! Congestion control for filler traffic (Ott, Warnky, Liberatore: Congestion control for
//! low-priority filler traffic): TCP-Background and the LowPri family.
//!
//! These do not yield on their own. They are for networks that serve a lower class last (§3, §4.2); in other
//! networks they take more than their share.
//!
//! ```text
//!   new connection
//!        │                  window reaches ssthresh
//!        ▼                ┌───────────────────────────┐
//!   ┌─ Slow start ────────┤                           ▼
//!   │  +1 per packet      │               ┌─ Congestion avoidance
//!   │  acknowledged       │               │  +1 per round
//!   │    ▲                │               │      ▲
//!   │    │ timeout:       │          drop │      │ drop, and the limit is not above
//!   │    │ window 1       │               │      │ the decreased window
//!   │    │ (from any)     └─ Regrowth ◀───┴──────┘
//!   │    │                   +factor per packet acknowledged, up to the limit
//!   └────┴──── drop ────────▶ (LowPri3 family; the others have no regrowth)
//! ```
//!
//! This is the reference; `bpf/background.h` is its mirror for the kernel, and a test feeds both
//! the same events. Change them together.

mod table;

pub use table::{Decrease, Hundredths, Limit, PROTOCOLS, Protocol, Regrowth, Timeout};

use crate::controller::{Ack, Controller};
use crate::fixed;
use crate::nice::WINDOW_LIMIT;
use crate::rtt::Rounds;
use crate::{Timestamp, Window};

const ONE: u64 = Window::ONE.raw();
const TWO: u64 = Window::TWO.raw();

/// The present kind of increase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Algorithm 1: one packet for each acknowledged one, at the start and after a timeout.
    SlowStart,
    /// §3.6: the protocol's factor for each acknowledged packet, after a drop.
    Regrowth(Hundredths),
    /// Algorithm 1: one packet a round.
    Avoidance,
}

/// The engine that runs every protocol of [`PROTOCOLS`].
///
/// One reaction for all drops of a window of data, and no growth in the round of a reaction, as in
/// [`Reno`](crate::Reno); with the constants of the row "SACK" it is Reno.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filler {
    protocol: Protocol,
    phase: Phase,
    window: u64,
    ssthresh: u64,
    /// The initial window of a new connection, and the maximum after a pause.
    initial: u64,
    rounds: Rounds,
    /// The window was cut, and the packets in flight were sent before that.
    reacted: bool,
    /// A packet of the round was limited by the window, not by the application.
    unlimited: bool,
}

impl Filler {
    /// Algorithm 1: a new transmission starts with one packet.
    pub const INITIAL_WINDOW: Window = Window::ONE;

    /// A controller for a new connection.
    pub fn new(protocol: Protocol) -> Self {
        Self::with_window(protocol, Self::INITIAL_WINDOW, Window::MAX)
    }

    /// A controller for a new connection with a given initial window, or for an existing connection that is
    /// taken over: there is no slow start above `ssthresh`.
    ///
    /// # Panics
    /// If `window` is below one packet: the powers of §3 are not defined there.
    pub fn with_window(protocol: Protocol, window: Window, ssthresh: Window) -> Self {
        assert!(window >= Window::ONE, "a window of {window} packets");
        let (phase, initial) = if window < ssthresh {
            (Phase::SlowStart, window)
        } else {
            (Phase::Avoidance, Self::INITIAL_WINDOW)
        };
        Filler {
            protocol,
            phase,
            window: window.raw().min(WINDOW_LIMIT),
            ssthresh: ssthresh.raw(),
            initial: initial.raw(),
            rounds: Rounds::default(),
            reacted: false,
            unlimited: false,
        }
    }

    /// The constants of this controller.
    pub fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    /// §3.1 to §3.6. The paper has no floor. Here it is two packets, as in RFC 5681 §3.1 for Reno. A drop
    /// does not raise a window that a timeout left below that.
    fn decreased(&self) -> u64 {
        let window = self.window;
        let decreased = match self.protocol.decrease {
            Decrease::Linear(packets) => window.saturating_sub(u64::from(packets) * ONE),
            Decrease::LessPower(exponent) => window - fixed::power(window, exponent.0),
            Decrease::Multiplicative(factor) => window * u64::from(factor.0) / 100,
            Decrease::Power(exponent) => fixed::power(window, exponent.0),
            Decrease::Logarithmic(factor) => {
                window.saturating_sub(u64::from(factor) * fixed::ln(window))
            }
        };
        decreased.max(TWO).min(window)
    }

    fn drop(&mut self, delivered: u32) {
        let before = self.window;
        self.window = self.decreased();
        self.ssthresh = self.window;
        self.phase = Phase::Avoidance;
        if let Some(Regrowth { factor, limit }) = self.protocol.regrowth {
            let limit = match limit {
                Limit::Linear(packets) => before.saturating_sub(u64::from(packets) * ONE),
                Limit::Power(exponent) => fixed::power(before, exponent.0),
            };
            // A power grows slower than a share: 0.75·cwnd is above cwnd^0.95 from 316 packets. There the
            // window is already at or beyond the end of the slow start.
            if limit > self.window {
                self.ssthresh = limit;
                self.phase = Phase::Regrowth(factor);
            }
        }
        self.close_round(delivered);
    }

    fn close_round(&mut self, delivered: u32) {
        self.rounds.close_round(delivered);
        self.reacted = true;
    }

    /// Per acknowledgement: `factor` packets for each acknowledged one. The slow start after a drop stops at
    /// its limit. The first one ends like Reno's, with the acknowledgement that exceeds the threshold (RFC
    /// 5681 §3.1).
    fn slow_start(&mut self, factor: Hundredths, acked: u32) {
        let step = u64::from(acked) * u64::from(factor.0) * ONE / 100;
        let limit = if self.phase == Phase::SlowStart { WINDOW_LIMIT } else { self.ssthresh };
        self.window = (self.window + step).min(limit).min(WINDOW_LIMIT);
    }
}

impl Controller for Filler {
    fn handle_ack(&mut self, ack: &Ack) {
        self.rounds.start(ack.delivered, ack.acked);
        self.unlimited |= ack.acked > 0 && !ack.app_limited;
        if ack.lost > 0 && self.rounds.is_new_loss(ack.prior_delivered) {
            self.drop(ack.delivered);
        }
        let may_grow = !self.reacted && !ack.app_limited;
        match self.phase {
            Phase::SlowStart if may_grow => self.slow_start(Hundredths(100), ack.acked),
            Phase::Regrowth(factor) if may_grow => self.slow_start(factor, ack.acked),
            _ => {}
        }
        if ack.acked > 0 && self.rounds.pass(ack.delivered, ack.prior_delivered) {
            let is_linear = self.phase == Phase::Avoidance;
            if is_linear && !self.reacted && self.unlimited {
                self.window = (self.window + ONE).min(WINDOW_LIMIT);
            }
            self.reacted = false;
            self.unlimited = false;
        }
        if self.window >= self.ssthresh {
            self.phase = Phase::Avoidance;
        }
    }

    fn handle_loss(&mut self, now: Timestamp, delivered: u32) {
        self.handle_mark(now, delivered);
    }

    /// The paper does not mention marks. RFC 3168 §6.1.2: like a drop.
    fn handle_mark(&mut self, _now: Timestamp, delivered: u32) {
        self.drop(delivered);
    }

    /// Algorithm 1: slow start from one packet.
    fn handle_timeout(&mut self, _now: Timestamp, delivered: u32) {
        // The start of a connection has no threshold to hold.
        let is_held = self.phase != Phase::Avoidance && self.ssthresh != Window::MAX.raw();
        let ssthresh = match self.protocol.timeout {
            Timeout::Halve => self.window / 2,
            Timeout::Hold(_) if is_held => self.ssthresh,
            Timeout::Hold(exponent) => fixed::power(self.window, exponent.0),
        };
        self.ssthresh = ssthresh.max(TWO);
        self.window = ONE;
        self.phase = Phase::SlowStart;
        self.close_round(delivered);
        // Packets acknowledged from here on were retransmitted after the timeout.
        self.reacted = false;
    }

    /// RFC 5681 §4.1: after a pause at most the initial window.
    fn handle_idle(&mut self, _now: Timestamp) {
        self.window = self.window.min(self.initial);
        if self.phase == Phase::Avoidance && self.window < self.ssthresh {
            self.phase = Phase::SlowStart;
        }
    }

    fn window(&self) -> Window {
        Window::from_raw(self.window)
    }

    fn slow_start_threshold(&self) -> Window {
        Window::from_raw(self.ssthresh)
    }
}
