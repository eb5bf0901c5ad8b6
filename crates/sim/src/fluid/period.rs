//! One period of Nice §3, from one loss to the next, in closed form.
//!
//! The clock counts round trips: ds = dt / RTT, with RTT = τ below μτ and W/μ from there on. Then every law
//! is linear or exponential for any queueing delay, and seconds are the integral of RTT over s.
//!
//! ```text
//!   Below ──W = μτ──▶ Empty ──────▶ Between ──q = t·B──▶ Trigger ──────▶ Rising ──q = B──▶ Full
//!   both grow         held while    W_n falls to    ▲    held while      W_n falls
//!   (interval 1)      W_n falls     one packet each │    γ·W_n > m       exponentially
//!                     ▲             (interval 2)    │    ▲               (interval 3)
//!                     └─ Nice falls ────┘           │    │               ▲
//!                        faster                     └─── Falling ────────┘
//!                                                        where a loss left W above the trigger
//! ```
//!
//! "Held" means that the two sides of a boundary push against each other. Nice's decrease would empty the
//! queue, or reduce it below the trigger, and there it stops. So W stays at the boundary. Nice then gives up
//! exactly the packets that Reno takes, m packets a round ("the rate of decrease of W_n(t) is bounded by the
//! rate of increase of W_r(t)").

use serde::{Deserialize, Serialize};

use super::exponential::{decay, ln};
use super::parameters::FluidParameters;

/// The sums of the windows of each kind of flow, in packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    /// W_r.
    pub reno: f64,
    /// W_n.
    pub nice: f64,
}

impl Windows {
    /// W = W_r + W_n: the packets in the path and in the queue.
    pub fn total(&self) -> f64 {
        self.reno + self.nice
    }
}

/// The three intervals of Nice §3, named by Nice's behaviour. Reno always increases by one packet a round
/// trip and flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interval {
    /// [t₀, t₁]: no queue, one packet a round trip and flow.
    AdditiveIncrease,
    /// [t₁, t₂]: a queue up to q_t, less one packet a round trip and flow (β = 0).
    AdditiveDecrease,
    /// [t₂, t₃]: a queue from q_t to B, an exponential decrease.
    MultiplicativeDecrease,
}

/// The change of W_n within a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Law {
    /// By this many packets each round.
    Linear(f64),
    /// By e^−rate each round.
    Decay(f64),
}

/// A part of a period with one law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Segment {
    pub(super) interval: Interval,
    pub(super) start: Windows,
    law: Law,
    /// How long it lasts, in round trips.
    pub(super) rounds: f64,
}

impl Segment {
    /// The windows after `s` rounds.
    pub(super) fn at(&self, parameters: &FluidParameters, s: f64) -> Windows {
        let Windows { reno, nice } = self.start;
        let nice = match self.law {
            Law::Linear(slope) => nice + slope * s,
            Law::Decay(rate) => nice * decay(rate * s),
        };
        Windows { reno: reno + parameters.reno() * s, nice }
    }

    /// ∫ W_r ds over `s` rounds: packets of Reno. A window is sent each round, and all of it arrives, except
    /// at the instant of the loss.
    pub(super) fn reno_packets(&self, parameters: &FluidParameters, s: f64) -> f64 {
        (self.start.reno + parameters.reno() * s / 2.0) * s
    }

    /// ∫ W_n ds over `s` rounds: packets of Nice.
    pub(super) fn nice_packets(&self, s: f64) -> f64 {
        match self.law {
            Law::Linear(slope) => (self.start.nice + slope * s / 2.0) * s,
            Law::Decay(rate) => self.start.nice * (1.0 - decay(rate * s)) / rate,
        }
    }

    /// ∫ RTT ds over `s` rounds, in seconds.
    pub(super) fn duration(&self, parameters: &FluidParameters, s: f64) -> f64 {
        match self.interval {
            Interval::AdditiveIncrease => parameters.round_trip * s,
            // With a queue, the link serves μ packets a second, of all flows.
            Interval::AdditiveDecrease | Interval::MultiplicativeDecrease => {
                (self.reno_packets(parameters, s) + self.nice_packets(s)) / parameters.service_rate
            }
        }
    }
}

/// The region of W.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowRegion {
    /// W < μτ.
    Below,
    /// W = μτ.
    Empty,
    /// μτ ≤ W ≤ μτ + q_t.
    Between,
    /// W = μτ + q_t.
    Trigger,
    /// μτ + q_t < W, and γ·W_n > m: W falls.
    Falling,
    /// μτ + q_t ≤ W ≤ μτ + B, and γ·W_n ≤ m: W rises.
    Rising,
    /// W = μτ + B: the loss.
    Full,
}

/// The segments of one period.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Period {
    pub(super) segments: Vec<Segment>,
    /// The windows just before the loss that ends it.
    pub(super) end: Windows,
}

/// More segments than any period has: each region is passed at most twice, in two pieces.
const MANY: usize = 16;

impl Period {
    /// The period that begins with `start`, just after a loss.
    pub(super) fn run(parameters: &FluidParameters, start: Windows) -> Self {
        let (path, trigger) = (parameters.path(), parameters.trigger());
        let queue = start.total() - path;
        let mut region = if queue < 0.0 {
            WindowRegion::Below
        } else if queue <= trigger {
            WindowRegion::Between
        } else if parameters.backoff_rate() * start.nice > parameters.reno() {
            WindowRegion::Falling
        } else {
            WindowRegion::Rising
        };
        let mut walk = Walk { parameters, windows: start, segments: Vec::new() };
        while region != WindowRegion::Full {
            assert!(walk.segments.len() < MANY, "no end of {parameters:?} from {start:?}");
            region = match region {
                WindowRegion::Below => walk.below(),
                WindowRegion::Empty => walk.empty(),
                WindowRegion::Between => walk.between(),
                WindowRegion::Trigger => walk.trigger(),
                WindowRegion::Falling => walk.falling(),
                WindowRegion::Rising => walk.rising(),
                WindowRegion::Full => WindowRegion::Full,
            };
        }
        Period { segments: walk.segments, end: walk.windows }
    }

    /// The windows just after the loss that ends it (Nice §3: both by γ), with Nice not below its floor.
    pub(super) fn after_loss(&self, parameters: &FluidParameters) -> Windows {
        let gamma = parameters.decrease;
        let nice = (gamma * self.end.nice).max(parameters.floor());
        Windows { reno: gamma * self.end.reno, nice }
    }
}

/// The construction of a period.
struct Walk<'a> {
    parameters: &'a FluidParameters,
    windows: Windows,
    segments: Vec<Segment>,
}

impl Walk<'_> {
    /// Continues for `rounds` under `law`; W_n is then `nice`, which the caller knows exactly.
    fn pass(&mut self, interval: Interval, law: Law, rounds: f64, nice: f64) {
        debug_assert!(rounds >= 0.0, "{interval:?} {law:?} for {rounds}");
        if rounds > 0.0 {
            self.segments.push(Segment { interval, start: self.windows, law, rounds });
            let reno = self.windows.reno + self.parameters.reno() * rounds;
            self.windows = Windows { reno, nice };
        }
    }

    /// Sets W to the boundary that was reached, so that rounding errors do not add up.
    fn reach(&mut self, total: f64) {
        self.windows.reno = total - self.windows.nice;
    }

    fn queue(&self) -> f64 {
        (self.windows.total() - self.parameters.path()).max(0.0)
    }

    /// Whether Vegas' additive decrease acts.
    fn falls_additively(&self) -> bool {
        self.windows.nice > self.parameters.additive_floor()
    }

    /// Interval 1, "Additive Increase, Additive Increase".
    fn below(&mut self) -> WindowRegion {
        let (m, l) = (self.parameters.reno(), self.parameters.nice());
        let rounds = ((self.parameters.path() - self.windows.total()) / (m + l)).max(0.0);
        let nice = self.windows.nice + l * rounds;
        self.pass(Interval::AdditiveIncrease, Law::Linear(l), rounds, nice);
        self.reach(self.parameters.path());
        WindowRegion::Empty
    }

    /// Between intervals 1 and 2. With m > l, the paper's case, the queue begins at once. With more Nice than
    /// Reno flows, their decrease would empty the path, where they increase. So they hold W until each is at
    /// one packet.
    fn empty(&mut self) -> WindowRegion {
        let (m, l) = (self.parameters.reno(), self.parameters.nice());
        if self.falls_additively() && l >= m {
            let floor = self.parameters.additive_floor();
            let rounds = (self.windows.nice - floor) / m;
            self.pass(Interval::AdditiveDecrease, Law::Linear(-m), rounds, floor);
            self.reach(self.parameters.path());
        }
        WindowRegion::Between
    }

    /// Interval 2, "Additive Increase, Additive Decrease".
    fn between(&mut self) -> WindowRegion {
        let (m, l) = (self.parameters.reno(), self.parameters.nice());
        let (path, trigger) = (self.parameters.path(), self.parameters.trigger());
        let nice = self.windows.nice;
        if !self.falls_additively() {
            let rounds = ((trigger - self.queue()) / m).max(0.0);
            self.pass(Interval::AdditiveDecrease, Law::Linear(0.0), rounds, nice);
            self.reach(path + trigger);
            return WindowRegion::Trigger;
        }
        let floor = self.parameters.additive_floor();
        let (to_floor, net) = ((nice - floor) / l, m - l);
        let to_boundary = if net > 0.0 {
            ((trigger - self.queue()) / net).max(0.0)
        } else if net < 0.0 {
            self.queue() / -net
        } else {
            f64::INFINITY
        };
        let falls = Law::Linear(-l);
        if to_floor <= to_boundary {
            self.pass(Interval::AdditiveDecrease, falls, to_floor, floor);
            // The floor is reached even if the way to it is lost in rounding.
            self.windows.nice = floor;
            return WindowRegion::Between;
        }
        self.pass(Interval::AdditiveDecrease, falls, to_boundary, nice - l * to_boundary);
        if net > 0.0 {
            self.reach(path + trigger);
            WindowRegion::Trigger
        } else {
            self.reach(path);
            WindowRegion::Empty
        }
    }

    /// Between intervals 2 and 3: Nice holds the queue at q_t while it would give up more in a round, γ·W_n,
    /// than Reno takes, m.
    fn trigger(&mut self) -> WindowRegion {
        let (m, l) = (self.parameters.reno(), self.parameters.nice());
        if self.parameters.threshold >= 1.0 {
            return WindowRegion::Full;
        }
        if self.falls_additively() && l >= m {
            // The loss left W above the trigger, and below it W continues to fall.
            return WindowRegion::Between;
        }
        let target = (m / self.parameters.backoff_rate()).max(self.parameters.floor());
        if self.windows.nice > target {
            let rounds = (self.windows.nice - target) / m;
            self.pass(Interval::MultiplicativeDecrease, Law::Linear(-m), rounds, target);
            self.reach(self.parameters.path() + self.parameters.trigger());
        }
        WindowRegion::Rising
    }

    /// Interval 3, "Additive Increase, Multiplicative Decrease".
    fn rising(&mut self) -> WindowRegion {
        let (m, rate) = (self.parameters.reno(), self.parameters.backoff_rate());
        let floor = self.parameters.floor();
        let nice = self.windows.nice;
        let room = (self.parameters.buffer - self.queue()).max(0.0);
        if nice <= floor || nice == 0.0 {
            self.pass(Interval::MultiplicativeDecrease, Law::Linear(0.0), room / m, nice);
            self.reach(self.parameters.capacity());
            return WindowRegion::Full;
        }
        let to_floor = if floor > 0.0 { ln(nice / floor) / rate } else { f64::INFINITY };
        let law = Law::Decay(rate);
        let to_full = rise(m, rate, nice, room);
        if to_floor < to_full {
            self.pass(Interval::MultiplicativeDecrease, law, to_floor, floor);
            self.windows.nice = floor;
            return WindowRegion::Rising;
        }
        self.pass(Interval::MultiplicativeDecrease, law, to_full, nice * decay(rate * to_full));
        self.reach(self.parameters.capacity());
        WindowRegion::Full
    }

    /// Interval 3 while Nice gives up more than Reno takes: only if the loss left a queue above the trigger.
    fn falling(&mut self) -> WindowRegion {
        let (m, rate) = (self.parameters.reno(), self.parameters.backoff_rate());
        let nice = self.windows.nice;
        let depth = self.queue() - self.parameters.trigger();
        // W turns at γ·W_n = m, or when Nice is at its floor.
        let lowest = (m / rate).max(self.parameters.floor());
        if nice <= lowest {
            return WindowRegion::Rising;
        }
        let law = Law::Decay(rate);
        let end = ln(nice / lowest) / rate;
        if nice - lowest - m * end < depth {
            self.pass(Interval::MultiplicativeDecrease, law, end, lowest);
            self.windows.nice = lowest;
            return WindowRegion::Rising;
        }
        let rounds = fall(m, rate, nice, depth);
        self.pass(Interval::MultiplicativeDecrease, law, rounds, nice * decay(rate * rounds));
        self.reach(self.parameters.path() + self.parameters.trigger());
        WindowRegion::Trigger
    }
}

/// Rounds until m·s − w(1 − e^(−rate·s)) = `room`, for rate·w ≤ m: how long W takes to rise.
fn rise(m: f64, rate: f64, w: f64, room: f64) -> f64 {
    // Convex and rising: from above the root, Newton's method approaches it from above.
    let mut s = (room + w) / m;
    for _ in 0..NEWTON_STEPS {
        let left = decay(rate * s);
        let slope = m - rate * w * left;
        let step = (m * s - w * (1.0 - left) - room) / slope;
        if slope <= 0.0 || step <= f64::EPSILON * s {
            break;
        }
        s -= step;
    }
    s
}

/// Rounds until w(1 − e^(−rate·s)) − m·s = `depth`, for rate·w > m and a depth that is reached:
/// how long W takes to fall.
fn fall(m: f64, rate: f64, w: f64, depth: f64) -> f64 {
    // Concave and rising: from below the root, Newton's method approaches it from below.
    let mut s = 0.0;
    for _ in 0..NEWTON_STEPS {
        let left = decay(rate * s);
        let slope = rate * w * left - m;
        let step = (depth - w * (1.0 - left) + m * s) / slope;
        if slope <= 0.0 || step <= f64::EPSILON * s {
            break;
        }
        s += step;
    }
    s
}

/// Newton's steps double the digits except near a double root, where they halve the distance. This many halve
/// the widest range of an `f64`.
const NEWTON_STEPS: u32 = 2200;
