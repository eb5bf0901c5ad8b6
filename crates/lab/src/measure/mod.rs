//! From counts to measurements.

mod cell;
mod link;
mod owners;
mod series;
mod tally;

pub(crate) use cell::{Observed, ObservedPhase, measure};
pub(crate) use owners::{Owners, ends_of};
