//! Quantities that carry their unit in their type.
//!
//! - [`Bytes`]: an amount of data
//! - [`Rate`]: bits per second
//! - [`Timestamp`]: nanoseconds since an epoch that the caller chooses
//! - [`Window`]: a congestion window in packets, with 16 fractional bits
//!
//! All of them are integers. No clock is read here.
//!
//! ```
//! use std::time::Duration;
//!
//! use lull_units::{Bytes, Rate, Timestamp, Window};
//!
//! let rate: Rate = "10mbit".parse().unwrap();
//! assert_eq!(rate.time_for(Bytes(1_250_000)), Duration::from_secs(1));
//! assert_eq!((Timestamp::ZERO + Duration::from_micros(3)).as_nanos(), 3_000);
//! assert!(Window::ONE_48TH < Window::ONE);
//! ```
#![forbid(unsafe_code)]

mod quantities;
mod time;

pub use quantities::{Bytes, ParseRateError, Rate, Window};
pub use time::Timestamp;
