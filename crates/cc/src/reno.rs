//! TCP Reno's window: slow start, one packet a round, half at a loss.

use crate::controller::{Ack, Controller};
use crate::nice::WINDOW_LIMIT;
use crate::rtt::Rounds;
use crate::{Timestamp, Window};

const ONE: u64 = Window::ONE.raw();

/// Reno with NewReno's and SACK's reaction: one halving for all losses of a window of data (RFC 6582 §3.2,
/// RFC 6675 §5). The detection and retransmission of lost packets is the transport's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reno {
    window: u64,
    ssthresh: u64,
    /// The initial window of the connection.
    initial: u64,
    rounds: Rounds,
    reacted: bool,
    unlimited: bool,
}

impl Reno {
    /// The initial window of ten packets (RFC 6928 §2).
    pub const INITIAL_WINDOW: Window = Window::from_packets(10);

    /// A controller for a new connection.
    pub fn new() -> Self {
        Self::with_window(Self::INITIAL_WINDOW)
    }

    /// A controller for a new connection with a given initial window.
    pub fn with_window(window: Window) -> Self {
        Reno {
            window: window.raw(),
            ssthresh: Window::MAX.raw(),
            initial: window.raw(),
            rounds: Rounds::default(),
            reacted: false,
            unlimited: false,
        }
    }

    /// Processes an acknowledgement, before other functions. Returns `true` if its congestion is not part of
    /// the last reaction (RFC 6582 §3.2, RFC 6675 §5).
    pub(crate) fn see(&mut self, ack: &Ack) -> bool {
        self.rounds.start(ack.delivered, ack.acked);
        self.unlimited |= ack.acked > 0 && !ack.app_limited;
        self.rounds.is_new_loss(ack.prior_delivered)
    }

    /// The growth that an acknowledgement allows, unless it is forbidden.
    pub(crate) fn grow(&mut self, ack: &Ack, may_grow: bool) {
        let may_grow = may_grow && !self.reacted;
        // RFC 5681 §3.1: below the threshold one packet for each acknowledged one, also for those of the
        // acknowledgement that exceeds it.
        let in_slow_start = self.window < self.ssthresh;
        if in_slow_start && may_grow && !ack.app_limited {
            let step = u64::from(ack.acked) << Window::SHIFT;
            self.window = (self.window + step).min(WINDOW_LIMIT);
        }
        if ack.acked > 0 && self.rounds.pass(ack.delivered, ack.prior_delivered) {
            // RFC 5681 §3.1: in congestion avoidance one packet a round-trip time.
            if !in_slow_start && may_grow && self.unlimited {
                self.window = (self.window + ONE).min(WINDOW_LIMIT);
            }
            self.reacted = false;
            self.unlimited = false;
        }
    }

    /// RFC 5681 §3.1 equation 4 and RFC 6675 §5 step 4.2 have ssthresh = max(FlightSize/2, 2). Here it is
    /// half of the window, as in Linux (`tcp_reno_ssthresh`): a window that the application does not use does
    /// not grow, so the two are close.
    pub(crate) fn halve(&mut self, delivered: u32) {
        let half = (self.window / 2).max(Window::TWO.raw());
        self.cut(half, half, delivered);
    }

    /// A reaction: a new window and a new threshold.
    pub(crate) fn cut(&mut self, window: u64, ssthresh: u64, delivered: u32) {
        self.window = window;
        self.ssthresh = ssthresh;
        self.rounds.close_round(delivered);
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
        let is_new = self.see(ack);
        if ack.lost > 0 && is_new {
            self.halve(ack.delivered);
        }
        self.grow(ack, true);
    }

    fn handle_loss(&mut self, now: Timestamp, delivered: u32) {
        self.handle_mark(now, delivered);
    }

    fn handle_mark(&mut self, _now: Timestamp, delivered: u32) {
        self.halve(delivered);
    }

    /// RFC 5681 §3.1: the loss window is one packet. The RFC holds the threshold if the same segment times
    /// out again. Here it falls again, as in the simulator of both papers, whose LowPri3.7 exists to avoid
    /// that (filler §4.4).
    fn handle_timeout(&mut self, _now: Timestamp, delivered: u32) {
        self.halve(delivered);
        self.window = ONE;
        // Packets acknowledged from here on were retransmitted after the timeout.
        self.reacted = false;
    }

    /// RFC 5681 §4.1: after a pause at most the initial window of this connection.
    fn handle_idle(&mut self, _now: Timestamp) {
        self.window = self.window.min(self.initial);
    }

    fn window(&self) -> Window {
        Window::from_raw(self.window)
    }

    fn slow_start_threshold(&self) -> Window {
        Window::from_raw(self.ssthresh)
    }
}
