//! Experiments as data: plans, runs over the emulator and the simulator, records, and the checks, plots and reports
//! that are computed from records alone.
//!
//! ```
//! use lull_lab::plan::PlanSet;
//!
//! let plans = PlanSet::built_in().find(&["demo".to_owned()], true)?;
//! assert_eq!(plans[0].summary()["title"], plans[0].title);
//! # Ok::<(), lull_lab::plan::PlanError>(())
//! ```

pub mod judge;
pub mod learn;
mod measure;
pub mod plan;
pub mod plot;
pub mod record;
pub mod report;
pub mod run;
pub mod score;
mod simulate;
mod statistics;

pub use simulate::SimulateError;
