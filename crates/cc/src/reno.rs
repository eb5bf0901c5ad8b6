//! TCP Reno's window: slow start, one packet a round, half at a loss.

use crate::controller::{Ack, Controller, Pacing};
use crate::nice::WINDOW_LIMIT;
use crate::rtt::Rounds;
use crate::{Timestamp, Window};

const ONE: u64 = Window::ONE.raw();

/// Reno with NewReno's and SACK's reaction: one halving for all losses of a window of data
/// (RFC 6582 §3.2, RFC 6675 §5). Which packets are lost, and what is sent again, is the
/// transport's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reno {
    window: u64,
    ssthresh: u64,
    rounds: Rounds,
    reacted: bool,
    unlimited: bool,
}

impl Reno {
    /// Ten packets to start with (RFC 6928 §2).
    pub const INITIAL_WINDOW: Window = Window::from_packets(10);

    /// A controller for a new connection.
    pub fn new() -> Self {
        Self::with_window(Self::INITIAL_WINDOW)
    }

    /// A controller for a new connection with an initial window of the caller's choice.
    pub fn with_window(window: Window) -> Self {
        Reno {
            window: window.raw(),
            ssthresh: Window::MAX.raw(),
            rounds: Rounds::default(),
            reacted: false,
            unlimited: false,
        }
    }

    /// RFC 5681 §3.1 equation 4: ssthresh = max(flight/2, 2).
    fn halve(&mut self) {
        self.ssthresh = (self.window / 2).max(Window::TWO.raw());
        self.window = self.ssthresh;
    }

    fn settle(&mut self, delivered: u32) {
        self.rounds.settle(delivered);
        self.reacted = true;
    }
}

impl Default for Reno {
    fn default() -> Self {
        Self::new()
    }
}

impl Controller for Reno {
    fn handle_ack(&mut self, ack: &Ack) {
        self.rounds.start(ack.delivered, ack.acked);
        self.unlimited |= !ack.app_limited;
        if ack.lost > 0 && self.rounds.is_new_loss(ack.prior_delivered) {
            self.halve();
            self.settle(ack.delivered);
        }
        // RFC 5681 §3.1: below the threshold one packet for each that is acknowledged, also for
        // those of the acknowledgement that passes it.
        let in_slow_start = self.window < self.ssthresh;
        if in_slow_start && !ack.app_limited && !self.reacted {
            let step = u64::from(ack.acked) << Window::SHIFT;
            self.window = (self.window + step).min(WINDOW_LIMIT);
        }
        if ack.acked > 0 && self.rounds.pass(ack.delivered, ack.prior_delivered) {
            // RFC 5681 §3.1: in congestion avoidance one packet a round-trip time.
            if !in_slow_start && !self.reacted && self.unlimited {
                self.window = (self.window + ONE).min(WINDOW_LIMIT);
            }
            self.reacted = false;
            self.unlimited = false;
        }
    }

    fn handle_loss(&mut self, now: Timestamp, delivered: u32) {
        self.handle_mark(now, delivered);
    }

    fn handle_mark(&mut self, _now: Timestamp, delivered: u32) {
        self.halve();
        self.settle(delivered);
    }

    /// RFC 5681 §3.1: the loss window is one packet.
    fn handle_timeout(&mut self, _now: Timestamp, delivered: u32) {
        self.halve();
        self.window = ONE;
        self.settle(delivered);
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
