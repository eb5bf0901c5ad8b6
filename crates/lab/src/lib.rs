//! The lab: real kernels over an emulated link, experiments as data, and plots and a report drawn
//! from records alone.

pub mod emulate;
pub mod judge;
mod measure;
pub mod plan;
pub mod plot;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
mod simulate;
pub mod torture;
mod traffic;

pub use simulate::SimulateError;
pub use traffic::TrafficError;
