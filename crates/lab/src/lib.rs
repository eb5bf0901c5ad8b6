//! The lab: real kernels over an emulated link, experiments as data, and plots and a report drawn
//! from records alone.

mod asking;
pub mod emulate;
pub mod judge;
pub mod learn;
mod measure;
mod mounted;
mod numbered;
pub mod opens;
pub mod plan;
pub mod plot;
pub mod readers;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
pub mod score;
mod simulate;
pub mod torture;
mod traffic;

pub use simulate::SimulateError;
pub use traffic::TrafficError;
