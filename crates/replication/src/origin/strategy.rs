//! Which bodies are pushed, in which order, and at which priority: TRIP, and the alternatives in its paper
//! (SSR §6.3.1).

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

use super::priority::Demand;

/// The treatment of a written body.
///
/// | strategy | pushes | in the order of | priority | invalidations |
/// |---|---|---|---|---|
/// | `DemandOnly` | nothing | | | at once |
/// | `PushAll` | all bodies, overwritten ones too | the log | normal | each behind its bodies |
/// | `Threshold` | bodies that are likely read | the log | normal | each behind its bodies |
/// | `Trip` | all bodies, the newest of each object | worth | background | at once |
///
/// For every strategy, reads see one order of all writes, and Δ holds: a replica that gets the log too late
/// answers nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Strategy {
    /// A body is sent only on demand.
    DemandOnly,
    /// The log with all bodies.
    PushAll,
    /// The log with the bodies that are likelier than this to be read by a replica before they are
    /// overwritten. No probability exceeds one, so with it nothing is pushed.
    Threshold(f64),
    /// By worth, in the background.
    #[default]
    Trip,
}

/// An invalid strategy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "there is no strategy '{0}': write demand, push-all, threshold=P with P from 0 to 1, or trip"
)]
pub struct UnknownStrategyError(String);

impl Strategy {
    /// Whether invalidations wait for their pushed bodies, in the order of the log.
    pub const fn is_in_order(self) -> bool {
        matches!(self, Strategy::PushAll | Strategy::Threshold(_))
    }

    /// Whether pushes yield to all other traffic.
    pub const fn is_background(self) -> bool {
        !self.is_in_order()
    }

    /// Whether replicas apply invalidations on arrival. TRIP alone delays them (SSR §6.3.1:
    /// "FIFO-Delayed-Invalidation").
    pub const fn is_eager(self) -> bool {
        !matches!(self, Strategy::Trip)
    }

    /// Whether a body is pushed to each of this many replicas.
    pub fn pushes(self, demand: Demand, replicas: usize) -> bool {
        match self {
            Strategy::DemandOnly => false,
            Strategy::PushAll | Strategy::Trip => true,
            Strategy::Threshold(least) => likelihood(demand, replicas) > least,
        }
    }
}

/// How likely it is that a replica reads a version before it is overwritten, as estimated by the paper: reads
/// by writes (SSR §6.3.1). Reads are those at all replicas; each replica has its share.
pub(super) fn likelihood(demand: Demand, replicas: usize) -> f64 {
    let reads = f64::from(demand.reads) / replicas.max(1) as f64;
    (reads / f64::from(demand.writes.max(1))).min(1.0)
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::DemandOnly => f.write_str("demand"),
            Strategy::PushAll => f.write_str("push-all"),
            Strategy::Threshold(least) => write!(f, "threshold={least}"),
            Strategy::Trip => f.write_str("trip"),
        }
    }
}

impl FromStr for Strategy {
    type Err = UnknownStrategyError;

    fn from_str(text: &str) -> Result<Self, UnknownStrategyError> {
        match text {
            "demand" => Ok(Strategy::DemandOnly),
            "push-all" => Ok(Strategy::PushAll),
            "trip" => Ok(Strategy::Trip),
            _ => text
                .strip_prefix("threshold=")
                .and_then(|least| least.parse().ok())
                .filter(|least| (0.0..=1.0).contains(least))
                .map(Strategy::Threshold)
                .ok_or_else(|| UnknownStrategyError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use lull_cc::Bytes;

    use super::*;

    #[test]
    fn strategy_is_parsed_from_its_name() {
        for (text, in_order, eager) in [
            ("demand", false, true),
            ("push-all", true, true),
            ("threshold=0.5", true, true),
            ("trip", false, false),
        ] {
            let strategy: Strategy = text.parse().expect(text);
            assert_eq!(strategy.to_string(), text);
            assert_eq!(strategy.is_in_order(), in_order, "{text}");
            assert_eq!(strategy.is_background(), !in_order, "{text}");
            assert_eq!(strategy.is_eager(), eager, "{text}");
        }
        assert_eq!(Strategy::default(), Strategy::Trip);
        for text in ["", "push", "threshold", "threshold=", "threshold=1.5", "threshold=NaN"] {
            let error = text.parse::<Strategy>().expect_err(text);
            assert!(error.to_string().contains("write demand, push-all"), "{error}");
        }
    }

    #[test]
    fn object_is_pushed_if_a_read_is_likely_before_an_overwrite() {
        use Strategy::{DemandOnly, PushAll, Threshold, Trip};
        // (strategy, reads at all replicas, writes, replicas) → pushed.
        for (strategy, reads, writes, replicas, pushed) in [
            (DemandOnly, 1_000, 1, 1, false),
            (PushAll, 0, 1_000, 20, true),
            (Trip, 0, 1_000, 20, true),
            (Threshold(0.5), 11, 20, 1, true),
            (Threshold(0.5), 10, 20, 1, false),
            (Threshold(0.5), 11, 20, 2, false),
            (Threshold(0.5), 21, 20, 2, true),
            (Threshold(0.5), 1, 0, 1, true),
            (Threshold(0.0), 1, 1_000, 20, true),
            (Threshold(0.0), 0, 1, 20, false),
            (Threshold(0.99), 1_000, 1, 1, true),
            (Threshold(1.0), 1_000, 1, 1, false),
        ] {
            let demand = Demand { reads, writes, size: Bytes(1) };
            let what = format!("{strategy}: {reads} reads, {writes} writes, {replicas} replicas");
            assert_eq!(strategy.pushes(demand, replicas), pushed, "{what}");
        }
    }
}
