//! Progress of a cell while it runs.

use std::time::Duration;

use crate::plan::Phase;

/// The state of a cell, twice a second.
#[derive(Clone, Debug)]
pub struct Tick<'a> {
    /// The phase.
    pub phase: &'a Phase,
    /// Time since the phase began.
    pub since: Duration,
    /// Whether it is in its measured part.
    pub is_measured: bool,
    /// The active groups: names, and goodput on the link in Mbit/s since the last tick and since the phase or
    /// its measurement began.
    pub groups: Vec<(&'a str, f64, f64)>,
    /// Median queueing delay at the bottleneck in milliseconds, since the same time.
    pub queueing_ms: Option<f64>,
}

/// Observes a running cell.
pub trait Watch {
    /// Half a second has passed.
    fn tick(&mut self, tick: &Tick<'_>);

    /// Whether it needs the ticks at all.
    fn is_watching(&self) -> bool {
        true
    }
}

/// No observer.
impl Watch for () {
    fn tick(&mut self, _: &Tick<'_>) {}

    fn is_watching(&self) -> bool {
        false
    }
}
