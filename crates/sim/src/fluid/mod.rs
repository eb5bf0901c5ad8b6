//! The fluid model of Nice §3 and Theorem 1: how much of Reno's throughput Nice takes.
//!
//! m Reno and l Nice flows, all backlogged, have one round-trip time and share a drop-tail queue of B
//! packets. It is served at μ packets a second, τ seconds away. Packets are infinitely small, and all flows
//! lose at once: W = μτ + B just before a loss, γ(μτ + B) after it. A *period* between two losses has three
//! [`Interval`]s; with s the number of round trips,
//!
//! ```text
//!   interval 1   W  < μτ             dW_r/ds = m   dW_n/ds = +l
//!   interval 2   μτ ≤ W < μτ + q_t   dW_r/ds = m   dW_n/ds = −l, down to a packet each
//!   interval 3   W  ≥ μτ + q_t       dW_r/ds = m   dW_n/ds = −γ·W_n, held at q_t while γ·W_n > m
//! ```
//!
//! Interval 3 begins with γ·W_n ≤ m once the queue rises. The way from q_t to B takes at least B(1 − t)/m
//! rounds, so at the loss W_n ≤ (m/γ)·e^(−B(1−t)γ/m) = ε. Reno's windows run from γ(μτ + B − ε) to μτ + B − ε
//! instead of from γ(μτ + B) to μτ + B, with the same slope; it delivers (1 − ε/(μτ + B))² of the packets of
//! an undisturbed period, and
//!
//! ```text
//!   I = 1 − (1 − ε/(μτ + B))² ≤ 2ε/(μτ + B) = 2m·e^(−B(1−t)γ/m) / ((μτ + B)γ),
//! ```
//!
//! which is within equation 1 by a factor of two. The paper's proof is in a separate report (TR-02-30); this
//! is a reconstruction, and `docs/theorem.md` lists each point that the paper leaves open.
//!
//! The theorem counts packets a period. Nice leaves a queue standing below the trigger, which makes each of
//! Reno's round trips longer. The theorem does not count that: [`Interference::per_second`] does, and
//! [`throughput_bound`] bounds it.
//!
//! Every interval has a closed form (`period`); tests compare it with a numeric solution of the differential
//! equations.

mod exponential;
mod parameters;
mod period;
#[cfg(test)]
mod tests;
mod trajectory;

use serde::{Deserialize, Serialize};

pub use parameters::{Assumption, Backoff, FluidParameters, NiceRules, ParameterError};
pub use period::{Interval, Windows};
pub use trajectory::{Sample, trajectory};

use period::Period;

/// The share of Reno's throughput that is lost because of Nice (Nice §3), 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interference {
    /// As a share of the packets in a period: bounded by Theorem 1.
    pub per_period: f64,
    /// As a share of the packets a second: includes the round trips that Nice's share of the queue makes
    /// longer. Theorem 1 does not bound it, [`throughput_bound`] does. Below 0 by a rounding error if there
    /// is no interference.
    pub per_second: f64,
}

/// A period after enough losses that it repeats (Nice §3: "the values of W_r and W_n at the beginning of
/// periods stabilize after several losses").
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyState {
    /// The windows just before each loss; its `nice` is the ε of the module's derivation.
    pub at_loss: Windows,
    /// The length of the period in round trips.
    pub rounds: f64,
    /// The length of the period in seconds.
    pub duration: f64,
    /// Packets of Reno in a period.
    pub reno_packets: f64,
    /// Packets of Nice in a period.
    pub nice_packets: f64,
}

/// Equation 1: I ≤ 4m·e^(−B(1−t)γ/m) / ((μτ + B)γ).
///
/// It needs t < 1: without a multiplicative decrease nothing bounds I. A bound above 1 is meaningless;
/// [`FluidParameters::broken_assumptions`] gives the reason.
///
/// ```
/// use lull_sim::fluid::{FluidParameters, NiceRules, bound, interference};
///
/// // 10 Mbit/s, 512-byte packets, 100 ms, three quarters of a BDP of buffer, four Reno flows.
/// let parameters = FluidParameters {
///     buffer: 183.0,
///     reno_flows: 4,
///     nice_flows: 16,
///     threshold: 0.1,
///     decrease: 0.5,
///     service_rate: 2440.0,
///     round_trip: 0.1,
///     nice: NiceRules::default(),
/// };
/// // 4 · 4 · e^(−183 · 0.9 · 0.5 / 4) / (427 · 0.5).
/// assert!((bound(&parameters) / 8.583e-11 - 1.0).abs() < 1e-3);
/// assert!(interference(&parameters)?.per_period < bound(&parameters));
/// # Ok::<(), lull_sim::fluid::ParameterError>(())
/// ```
pub fn bound(parameters: &FluidParameters) -> f64 {
    4.0 * remainder(parameters) / parameters.capacity()
}

/// (m/γ)·e^(−B(1−t)γ/m): the most that remains of all Nice windows at a loss, in packets.
fn remainder(parameters: &FluidParameters) -> f64 {
    let (m, gamma) = (parameters.reno(), parameters.decrease);
    let room = parameters.buffer * (1.0 - parameters.threshold);
    m / gamma * exponential::decay(room * gamma / m)
}

/// A bound on [`Interference::per_second`]; from this project, not the paper.
///
/// It has two parts. One is the theorem's, 2ε/(μτ + B). The other is the queueing delay that Reno alone would
/// not have, as a share of its undisturbed period T. Up to the end of the hold at the trigger, when
/// W_r ≤ μτ + q_t, that queue is at most q_t; after it Nice's part of it is at most W_n, which sums to m/γ²
/// packet-rounds:
///
/// ```text
///   μ·(T' − T) ≤ q_t·(μτ + q_t − γ(μτ + B − ε))/m + m/γ²
/// ```
///
/// It holds for the rules of the theorem ([`NiceRules::default`]). If a loss does not empty the queue, no
/// Nice traffic remains, and it is 0.
pub fn throughput_bound(parameters: &FluidParameters) -> f64 {
    let (m, gamma) = (parameters.reno(), parameters.decrease);
    let (path, capacity) = (parameters.path(), parameters.capacity());
    let (trigger, epsilon) = (parameters.trigger(), remainder(parameters).min(capacity));
    if gamma * capacity >= path {
        return 0.0;
    }
    let rounds = (path + trigger - gamma * (capacity - epsilon)) / m;
    let delay = trigger * rounds + m / (gamma * gamma);
    2.0 * epsilon / capacity + delay / (parameters.service_rate * alone(parameters).duration)
}

/// Reno's period without Nice: W_r from γ(μτ + B) to μτ + B by m a round.
fn alone(parameters: &FluidParameters) -> SteadyState {
    let alone = parameters.without_nice();
    let start = Windows { reno: alone.decrease * alone.capacity(), nice: 0.0 };
    measure(&alone, &Period::run(&alone, start))
}

/// The interference of Nice with Reno in the steady state.
///
/// # Errors
/// Parameters that describe no network.
pub fn interference(parameters: &FluidParameters) -> Result<Interference, ParameterError> {
    let with = steady_state(parameters)?;
    let without = alone(parameters);
    let rate = |state: &SteadyState| state.reno_packets / state.duration;
    // W_r goes from γ·R to R by m a round, so the packets of a period are (1 − γ²)R²/2m. With
    // R = (μτ + B)(1 − x) the loss is 1 − (1 − x)², written so that no digit of a small x is lost.
    let x = with.at_loss.nice / parameters.capacity();
    Ok(Interference { per_period: x * (2.0 - x), per_second: 1.0 - rate(&with) / rate(&without) })
}

/// The period that repeats.
///
/// From one loss to the next the difference between two values of W_n shrinks by γ at least: the loss
/// multiplies it by γ, intervals 1 and 2 move both values equally, a hold makes them equal, and interval 3
/// brings them closer. So all starts lead to one period.
///
/// # Errors
/// Parameters that describe no network.
pub fn steady_state(parameters: &FluidParameters) -> Result<SteadyState, ParameterError> {
    parameters.check()?;
    let gamma = parameters.decrease;
    if gamma * parameters.capacity() >= parameters.path() && parameters.floor() == 0.0 {
        // W never falls below μτ, so Nice never grows: each loss leaves γ of it at most.
        return Ok(alone(parameters));
    }
    let mut period = Period::run(parameters, first(parameters));
    // A bound on the loop, far beyond the iterations that the contraction needs.
    let many = (64.0 / (1.0 - gamma)) as u64;
    for _ in 0..many {
        let next = Period::run(parameters, period.after_loss(parameters));
        let change = (next.end.nice - period.end.nice).abs();
        period = next;
        if change <= CONVERGED * period.end.nice {
            break;
        }
    }
    Ok(measure(parameters, &period))
}

/// The relative change of W_n from loss to loss that counts as zero. An exponent of 700 leaves 10⁻¹³ of
/// rounding.
const CONVERGED: f64 = 1e-12;

/// The first period: just after a loss with equal windows of all flows.
fn first(parameters: &FluidParameters) -> Windows {
    let (m, l) = (parameters.reno(), parameters.nice());
    let capacity = parameters.capacity();
    let nice = (capacity * l / (m + l)).max(parameters.floor());
    let end = Windows { reno: capacity - nice, nice };
    Period { segments: Vec::new(), end }.after_loss(parameters)
}

fn measure(parameters: &FluidParameters, period: &Period) -> SteadyState {
    let sum = |of: &dyn Fn(&period::Segment) -> f64| period.segments.iter().map(of).sum::<f64>();
    SteadyState {
        at_loss: period.end,
        rounds: sum(&|segment| segment.rounds),
        duration: sum(&|segment| segment.duration(parameters, segment.rounds)),
        reno_packets: sum(&|segment| segment.reno_packets(parameters, segment.rounds)),
        nice_packets: sum(&|segment| segment.nice_packets(segment.rounds)),
    }
}
