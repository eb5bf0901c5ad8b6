//! The parameters of the model.

use core::fmt;

use serde::{Deserialize, Serialize};

/// The network and the flows of Nice §3.
///
/// Packets are infinitely small, so windows and queues are real numbers of packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FluidParameters {
    /// B: the size of the drop-tail queue, in packets. Above 0.
    pub buffer: f64,
    /// m: flows that follow Reno. At least 1.
    pub reno_flows: u32,
    /// l: flows that follow Nice.
    pub nice_flows: u32,
    /// t: the share of the buffer above which Nice backs off, 0 to 1.
    pub threshold: f64,
    /// γ: the factor of each window at a loss, strictly between 0 and 1.
    pub decrease: f64,
    /// μ: the rate of the bottleneck, in packets a second. Above 0.
    pub service_rate: f64,
    /// τ: the round-trip time without queueing, in seconds. Above 0.
    pub round_trip: f64,
    /// Points of Nice that the paper leaves open or deliberately changes.
    #[serde(default)]
    pub nice: NiceRules,
}

/// The behaviour of a Nice flow of the model where Nice §3 leaves it open. The default is the reading from
/// which Theorem 1 follows; `docs/theorem.md` gives the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NiceRules {
    /// The window of one flow at which the additive decrease stops, in packets. Vegas never goes
    /// below one packet; only the trigger does (Nice §2.2).
    pub vegas_minimum: f64,
    /// The smallest possible window of one flow, in packets. Zero in the theorem; 1/48 in the prototype (Nice
    /// §2.3); 1 for the experiment without windows below one (§4.2).
    pub minimum_window: f64,
    /// How fast windows fall while the queue is above the trigger.
    pub backoff: Backoff,
}

impl Default for NiceRules {
    fn default() -> Self {
        NiceRules { vegas_minimum: 1.0, minimum_window: 0.0, backoff: Backoff::Gamma }
    }
}

/// The share of Nice's window that the multiplicative decrease takes in a round trip, as a
/// continuous rate. At γ = ½ the first two are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backoff {
    /// γ: the rate in the exponent of equation 1.
    #[default]
    Gamma,
    /// 1 − γ: the part that W ← γW removes each round.
    OneMinusGamma,
    /// −ln γ: the exponential that passes through every W ← γW.
    Logarithm,
}

/// Parameters that describe no network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterError {
    /// This value is outside of its field's range.
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// Nice's smallest windows alone, this many packets, fill the path and the buffer: there is no
    /// period without a loss.
    FloorFillsBuffer {
        /// l times the smallest window.
        packets: f64,
    },
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterError::OutOfRange { field, value } => {
                write!(f, "`{field}` = {value} is out of its range")
            }
            ParameterError::FloorFillsBuffer { packets } => {
                write!(f, "Nice's smallest windows, {packets} packets, fill path and buffer")
            }
        }
    }
}

impl core::error::Error for ParameterError {}

/// The assumptions of Theorem 1, which a set of parameters may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assumption {
    /// γ(μτ + B) < μτ: a loss empties the queue. Otherwise Nice cannot grow, and its window vanishes after
    /// some losses: the interference is zero.
    LossEmptiesQueue,
    /// B ≫ m, taken as B(1 − t)γ ≥ m: in interval 3 there is time for one e-folding at least.
    BufferHoldsBackoff,
    /// γ(μτ + B) ≥ m: Reno flows keep a packet each after a loss. Below, the additive increase of a fluid
    /// differs from TCP's (Nice §3 cites Morris).
    RenoKeepsWindows,
    /// Windows may fall without limit ("allowing window sizes to multiplicatively decrease below one is
    /// crucial").
    NiceHasNoFloor,
}

impl FluidParameters {
    /// The same network without Nice flows.
    pub fn without_nice(&self) -> Self {
        FluidParameters { nice_flows: 0, ..*self }
    }

    /// μτ: the capacity of the path without a queue, in packets.
    pub fn path(&self) -> f64 {
        self.service_rate * self.round_trip
    }

    /// μτ + B: the capacity of path and buffer, in packets. The sum of the windows at a loss.
    pub fn capacity(&self) -> f64 {
        self.path() + self.buffer
    }

    /// q_t = t·B: the queue above which Nice backs off, in packets.
    pub fn trigger(&self) -> f64 {
        self.threshold * self.buffer
    }

    /// The assumptions of Theorem 1 that do not hold here; empty if all do.
    ///
    /// The paper's outline also assumes m > l; its full analysis, and this model, do not.
    pub fn broken_assumptions(&self) -> Vec<Assumption> {
        let after_loss = self.decrease * self.capacity();
        let m = self.reno();
        let room = self.buffer * (1.0 - self.threshold) * self.decrease;
        [
            (after_loss >= self.path(), Assumption::LossEmptiesQueue),
            (room < m, Assumption::BufferHoldsBackoff),
            (after_loss < m, Assumption::RenoKeepsWindows),
            (self.nice.minimum_window > 0.0, Assumption::NiceHasNoFloor),
        ]
        .into_iter()
        .filter_map(|(is_broken, assumption)| is_broken.then_some(assumption))
        .collect()
    }

    /// Checks that the parameters describe a network.
    pub(super) fn check(&self) -> Result<(), ParameterError> {
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let not_negative = |x: f64| x >= 0.0 && x.is_finite();
        let NiceRules { vegas_minimum, minimum_window, backoff: _ } = self.nice;
        let ranges = [
            ("buffer", self.buffer, positive(self.buffer)),
            ("reno_flows", self.reno(), self.reno_flows > 0),
            ("threshold", self.threshold, (0.0..=1.0).contains(&self.threshold)),
            ("decrease", self.decrease, self.decrease > 0.0 && self.decrease < 1.0),
            ("service_rate", self.service_rate, positive(self.service_rate)),
            ("round_trip", self.round_trip, positive(self.round_trip)),
            ("service_rate × round_trip", self.path(), positive(self.path())),
            ("nice.vegas_minimum", vegas_minimum, not_negative(vegas_minimum)),
            ("nice.minimum_window", minimum_window, not_negative(minimum_window)),
        ];
        if let Some((field, value, _)) = ranges.into_iter().find(|(_, _, is_fine)| !is_fine) {
            return Err(ParameterError::OutOfRange { field, value });
        }
        if self.floor() >= self.capacity() {
            return Err(ParameterError::FloorFillsBuffer { packets: self.floor() });
        }
        Ok(())
    }

    /// m.
    pub(super) fn reno(&self) -> f64 {
        f64::from(self.reno_flows)
    }

    /// l.
    pub(super) fn nice(&self) -> f64 {
        f64::from(self.nice_flows)
    }

    /// Where the additive decrease of all Nice flows together stops, in packets.
    pub(super) fn additive_floor(&self) -> f64 {
        self.nice() * self.nice.vegas_minimum.max(self.nice.minimum_window)
    }

    /// Where every decrease of all Nice flows together stops, in packets.
    pub(super) fn floor(&self) -> f64 {
        self.nice() * self.nice.minimum_window
    }

    /// The share of Nice's window that is removed in a round trip above the trigger.
    pub(super) fn backoff_rate(&self) -> f64 {
        match self.nice.backoff {
            Backoff::Gamma => self.decrease,
            Backoff::OneMinusGamma => 1.0 - self.decrease,
            Backoff::Logarithm => super::exponential::ln(1.0 / self.decrease),
        }
    }
}
