//! From counts to measurements.

mod cell;
mod link;
mod owners;
pub(crate) mod series;
mod tally;

pub(crate) use cell::{Observed, ObservedPhase, measure};
pub(crate) use link::rounded_spread;
pub(crate) use owners::{Owners, ends_of};
