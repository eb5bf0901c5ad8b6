//! Progress of a cell while it runs.

use std::time::Duration;

use crate::plan::Phase;

/// How a cell goes, twice a second.
#[derive(Clone, Debug)]
pub struct Tick<'a> {
    /// The phase.
    pub phase: &'a Phase,
    /// Time since the phase began.
    pub since: Duration,
    /// Whether it is being measured.
    pub is_measured: bool,
    /// The groups that are there: names, and goodput on the link in Mbit/s since the last tick
    /// and since the phase began or its measuring did.
    pub groups: Vec<(&'a str, f64, f64)>,
    /// Median queueing delay at the bottleneck in milliseconds, since the same time.
    pub queueing_ms: Option<f64>,
}

/// Is told how a cell goes.
pub trait Watch {
    /// Half a second has passed.
    fn tick(&mut self, tick: &Tick<'_>);

    /// Whether it wants to be told at all.
    fn is_watching(&self) -> bool {
        true
    }
}

/// Nobody watches.
impl Watch for () {
    fn tick(&mut self, _: &Tick<'_>) {}

    fn is_watching(&self) -> bool {
        false
    }
}
