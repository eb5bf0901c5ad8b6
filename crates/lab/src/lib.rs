//! The lab: real kernels over an emulated link, experiments as data, and plots drawn from records.

pub mod emulate;
pub mod judge;
mod measure;
pub mod plan;
pub mod plot;
pub mod record;
pub mod run;
mod traffic;

pub use traffic::TrafficError;
