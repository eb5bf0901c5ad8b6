//! CUBIC (RFC 9438): the foreground that most hosts send today, here as a reference.

use crate::controller::{Ack, Controller};
use crate::nice::WINDOW_LIMIT;
use crate::rtt::Rounds;
use crate::{Timestamp, Window};

const SHIFT: u32 = Window::SHIFT;
const ONE: u64 = Window::ONE.raw();

/// `β_cubic` = 0.7 (RFC 9438 §4.6), as a ratio.
const BETA: (u64, u64) = (7, 10);
/// C = 0.4 packets/s³ (RFC 9438 §5.1), as a ratio.
const C: (u64, u64) = (4, 10);
/// Cubed milliseconds in a cubed second.
const CUBIC_MILLIS: u64 = 1_000_000_000;

/// The time in congestion avoidance between two reactions (RFC 9438 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Epoch {
    /// When it began, in milliseconds.
    start: u64,
    /// K: milliseconds from the start to the plateau at `w_max`.
    k: u64,
    /// Reno's window (RFC 9438 §4.3).
    w_est: u64,
}

/// The CUBIC controller, without HyStart++ (RFC 9406), which RFC 9438 leaves optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubic {
    window: u64,
    ssthresh: u64,
    /// The window at the last reaction.
    w_max: u64,
    /// The window before the last reaction, for the Reno-friendly region.
    prior: u64,
    epoch: Option<Epoch>,
    rounds: Rounds,
    /// Last round-trip time in milliseconds.
    rtt: u64,
    /// When the last acknowledgement arrived, in milliseconds.
    last_ack: u64,
}

impl Cubic {
    /// A controller for a new connection: ten packets (RFC 6928 §2).
    pub fn new() -> Self {
        Cubic {
            window: Window::from_packets(10).raw(),
            ssthresh: Window::MAX.raw(),
            w_max: 0,
            prior: 0,
            epoch: None,
            rounds: Rounds::default(),
            rtt: 0,
            last_ack: 0,
        }
    }

    fn reduce(&mut self) {
        // RFC 9438 §4.7, fast convergence: a flow that could not reach its last maximum again yields to newer
        // ones.
        self.w_max = if self.window < self.w_max {
            self.window * (BETA.0 + BETA.1) / (2 * BETA.1)
        } else {
            self.window
        };
        self.prior = self.window;
        // RFC 9438 §4.6.
        self.ssthresh = (self.window * BETA.0 / BETA.1).max(Window::TWO.raw());
        self.window = self.ssthresh;
        self.epoch = None;
    }

    fn begin_epoch(&mut self, now: u64) -> Epoch {
        // RFC 9438 §4.2 equation 2: K = cbrt((W_max − cwnd_epoch) / C).
        let gap = u128::from(self.w_max.saturating_sub(self.window));
        let cube = (gap * u128::from(C.1) * u128::from(CUBIC_MILLIS) / u128::from(C.0)) >> SHIFT;
        self.w_max = self.w_max.max(self.window);
        let epoch = Epoch { start: now, k: cube_root(cube), w_est: self.window };
        self.epoch = Some(epoch);
        epoch
    }

    /// RFC 9438 §4.2 equation 1: W_cubic(t) = C·(t − K)³ + W_max.
    fn target(&self, epoch: &Epoch, millis: u64) -> u64 {
        // An hour from the plateau any window is beyond the limit.
        let distance = u128::from(millis.abs_diff(epoch.k).min(1 << 22));
        let cube = distance * distance * distance;
        let height = ((cube * u128::from(C.0)) << SHIFT) / u128::from(C.1 * CUBIC_MILLIS);
        let height = u64::try_from(height).unwrap_or(WINDOW_LIMIT).min(WINDOW_LIMIT);
        if millis < epoch.k { self.w_max.saturating_sub(height) } else { self.w_max + height }
    }

    fn avoid_congestion(&mut self, now: u64, acked: u32) {
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin_epoch(now));
        let acked = u64::from(acked);
        // RFC 9438 §4.3: α_cubic = 3(1 − β)/(1 + β) until the window has recovered, then 1.
        let alpha = if epoch.w_est < self.prior { (9, 17) } else { (1, 1) };
        epoch.w_est += acked * ONE * alpha.0 / alpha.1 * ONE / self.window;
        epoch.w_est = epoch.w_est.min(WINDOW_LIMIT);
        self.epoch = Some(epoch);
        // RFC 9438 §4.2: one RTT ahead, and at most half as much again.
        let ahead = now.saturating_sub(epoch.start) + self.rtt;
        let target = self.target(&epoch, ahead).clamp(self.window, self.window / 2 * 3);
        let step = (target - self.window) * acked * ONE / self.window;
        self.window = (self.window + step).max(epoch.w_est).min(WINDOW_LIMIT);
    }
}

/// The integer cube root, rounded down.
fn cube_root(value: u128) -> u64 {
    let mut root: u64 = 0;
    for bit in (0..32).rev() {
        let candidate = root | 1 << bit;
        if u128::from(candidate).pow(3) <= value {
            root = candidate;
        }
    }
    root
}

impl Default for Cubic {
    fn default() -> Self {
        Self::new()
    }
}

impl Controller for Cubic {
    fn handle_ack(&mut self, ack: &Ack) {
        self.rounds.start(ack.delivered, ack.acked);
        let now = ack.now.as_nanos() / 1_000_000;
        let since_last = now.saturating_sub(self.last_ack);
        self.last_ack = now;
        if let Some(rtt) = ack.rtt_micros {
            self.rtt = u64::from(rtt.get()) / 1_000;
        }
        if ack.lost > 0 && self.rounds.is_new_loss(ack.prior_delivered) {
            self.reduce();
            self.rounds.close_round(ack.delivered);
            return;
        }
        if ack.app_limited || ack.acked == 0 {
            // RFC 9438 §4.2: t does not include time in which the application limited the window.
            if let Some(epoch) = &mut self.epoch {
                epoch.start += since_last;
            }
            return;
        }
        if self.window < self.ssthresh {
            let step = u64::from(ack.acked) << SHIFT;
            self.window = (self.window + step).min(self.ssthresh).min(WINDOW_LIMIT);
        } else {
            self.avoid_congestion(now, ack.acked);
        }
    }

    fn handle_loss(&mut self, now: Timestamp, delivered: u32) {
        self.handle_mark(now, delivered);
    }

    fn handle_mark(&mut self, _now: Timestamp, delivered: u32) {
        self.reduce();
        self.rounds.close_round(delivered);
    }

    /// RFC 9438 §4.8: K is 0 in the next congestion avoidance, and the plateau is at its beginning.
    fn handle_timeout(&mut self, _now: Timestamp, delivered: u32) {
        self.reduce();
        self.w_max = 0;
        self.window = ONE;
        self.rounds.close_round(delivered);
    }

    fn handle_idle(&mut self, _now: Timestamp) {
        // RFC 9438 §5.8: time without sending does not count as growth.
        self.epoch = None;
        self.window = self.window.min(Window::from_packets(10).raw());
    }

    fn window(&self) -> Window {
        Window::from_raw(self.window)
    }

    fn slow_start_threshold(&self) -> Window {
        Window::from_raw(self.ssthresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_root_is_exact() {
        for root in [0u64, 1, 2, 999, 1_000_000, u64::from(u32::MAX)] {
            assert_eq!(cube_root(u128::from(root).pow(3)), root);
            if root > 0 {
                assert_eq!(cube_root(u128::from(root).pow(3) - 1), root - 1);
            }
        }
    }

    /// RFC 9438 §4.2.
    #[test]
    fn window_is_back_at_w_max_after_k() {
        let mut cubic = Cubic { window: Window::from_packets(100).raw(), ..Cubic::new() };
        cubic.reduce();
        assert_eq!(cubic.window(), Window::from_packets(70));
        let epoch = cubic.begin_epoch(0);
        // K = cbrt(30 / 0.4) = 4.217 s.
        assert_eq!(epoch.k, 4217);
        let near = |a: u64, b: u64| a.abs_diff(b) < ONE / 50;
        assert!(near(cubic.target(&epoch, 0), Window::from_packets(70).raw()));
        assert!(near(cubic.target(&epoch, epoch.k), Window::from_packets(100).raw()));
        assert!(near(cubic.target(&epoch, 2 * epoch.k), Window::from_packets(130).raw()));
    }

    /// RFC 9438 §4.6.
    #[test]
    fn loss_leaves_seven_tenths() {
        let mut cubic = Cubic { window: Window::from_packets(50).raw(), ..Cubic::new() };
        cubic.handle_mark(Timestamp::ZERO, 0);
        assert_eq!(cubic.window(), Window::from_packets(35));
    }

    /// RFC 9438 §4.7.
    #[test]
    fn lower_maximum_is_lowered_further() {
        let mut cubic = Cubic { window: Window::from_packets(100).raw(), ..Cubic::new() };
        cubic.reduce();
        cubic.reduce();
        // The second reaction finds 70 < 100: W_max = 70 · (1 + 0.7)/2.
        assert_eq!(cubic.w_max, 70 * 17 * ONE / 20);
    }
}
