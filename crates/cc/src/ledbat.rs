//! LEDBAT (RFC 6817): keeps the queueing delay at a target, and so yields to flows that fill the queue.
//!
//! ```text
//!                   per ACK: window += off_target · acked / window,
//!                            off_target = (TARGET − queueing) / TARGET
//!                            (grows below the target, shrinks above)
//!   new connection ──▶ Controlled by delay ◀─────────────┐
//!   window 2             │       ▲  │                    │ any ACK: at least 2
//!                   loss │       │  │ timeout            │
//!                        └─ W/2 ─┘  └──▶ window 1 ───────┘
//! ```

use crate::controller::{Ack, Controller};
use crate::delay::{DelayHistory, RelativeDelay};
use crate::nice::WINDOW_LIMIT;
use crate::rtt::Rounds;
use crate::{Timestamp, Window};

const ONE: u64 = Window::ONE.raw();
/// `MIN_CWND` (RFC 6817 §2.4.2): two packets.
const MIN_WINDOW: u64 = Window::TWO.raw();
/// `ALLOWED_INCREASE` (RFC 6817 §2.4.2): at most one packet more than was in flight.
const ALLOWED_INCREASE: u64 = ONE;

/// The LEDBAT controller, after the pseudocode of RFC 6817 §2.4.2. It has no slow start.
///
/// It needs [`Ack::one_way_micros`]: an acknowledgement without it changes the window only for losses. GAIN
/// is one, the maximum of §2.5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledbat {
    target_micros: u32,
    window: u64,
    one_way: RelativeDelay,
    delays: DelayHistory,
    rounds: Rounds,
}

impl Ledbat {
    /// `INIT_CWND` (RFC 6817 §2.4.2): two packets.
    pub const INITIAL_WINDOW: Window = Window::TWO;
    /// TARGET in microseconds: 100 ms, the maximum of RFC 6817 §2.5.
    pub const TARGET_MICROS: u32 = 100_000;

    /// A controller for a new connection.
    pub fn new() -> Self {
        Self::with_target(Self::TARGET_MICROS)
    }

    /// A controller that keeps the queueing delay at `target_micros`.
    ///
    /// # Panics
    /// If the target is zero, or above the maximum of RFC 6817 §2.5.
    pub fn with_target(target_micros: u32) -> Self {
        assert!(
            (1..=Self::TARGET_MICROS).contains(&target_micros),
            "a target of {target_micros} µs is not from 1 to {}",
            Self::TARGET_MICROS
        );
        Ledbat {
            target_micros,
            window: Self::INITIAL_WINDOW.raw(),
            one_way: RelativeDelay::default(),
            delays: DelayHistory::new(),
            rounds: Rounds::default(),
        }
    }

    /// The queueing delay that the flow sees, in microseconds; `None` before the first sample.
    pub fn queueing_micros(&self) -> Option<u64> {
        self.delays.queueing().map(|delay| delay.unsigned_abs())
    }

    /// RFC 6817 §2.4.2: cwnd += GAIN · `off_target` · `bytes_newly_acked` · MSS / cwnd, in packets.
    fn adjust(&mut self, queueing: i64, ack: &Ack) {
        let target = i128::from(self.target_micros);
        let off_target = target - i128::from(queueing);
        let step = off_target * i128::from(ack.acked) * i128::from(ONE) * i128::from(ONE)
            / (target * i128::from(self.window));
        let window = (i128::from(self.window) + step).clamp(0, i128::from(WINDOW_LIMIT)) as u64;
        let allowed = (u64::from(ack.in_flight) << Window::SHIFT) + ALLOWED_INCREASE;
        self.window = window.min(allowed).max(MIN_WINDOW);
    }

    /// RFC 6817 §2.4.2, on data loss: half, not below the minimum, and never more than before.
    fn halve(&mut self, delivered: u32) {
        self.window = self.window.min((self.window / 2).max(MIN_WINDOW));
        self.rounds.close_round(delivered);
    }
}

impl Default for Ledbat {
    fn default() -> Self {
        Self::new()
    }
}

impl Controller for Ledbat {
    fn handle_ack(&mut self, ack: &Ack) {
        self.rounds.start(ack.delivered, ack.acked);
        if let Some(one_way) = ack.one_way_micros {
            let delay = self.one_way.since_first(one_way);
            self.delays.remember(ack.now.as_micros(), delay);
        }
        // At most once a round-trip time.
        if ack.lost > 0 && self.rounds.is_new_loss(ack.prior_delivered) {
            self.halve(ack.delivered);
        } else if ack.acked > 0
            && ack.one_way_micros.is_some()
            && let Some(queueing) = self.delays.queueing()
        {
            self.adjust(queueing, ack);
        }
    }

    fn handle_loss(&mut self, now: Timestamp, delivered: u32) {
        self.handle_mark(now, delivered);
    }

    /// RFC 6817 §2.4.2 treats loss and, where it is supported, ECN alike.
    fn handle_mark(&mut self, _now: Timestamp, delivered: u32) {
        self.halve(delivered);
    }

    /// RFC 6817 §2.4.2, no ACK within the congestion timeout: one packet. The timer and its
    /// back-off are the transport's.
    fn handle_timeout(&mut self, _now: Timestamp, delivered: u32) {
        self.window = self.window.min(ONE);
        self.rounds.close_round(delivered);
    }

    /// RFC 5681 §4.1: like a new connection after a pause. RFC 6817 does not mention it.
    fn handle_idle(&mut self, _now: Timestamp) {
        self.window = self.window.min(Self::INITIAL_WINDOW.raw());
    }

    fn window(&self) -> Window {
        Window::from_raw(self.window)
    }

    /// There is no slow start: returns the window itself.
    fn slow_start_threshold(&self) -> Window {
        self.window()
    }
}
