//! Shows the background of a machine: jobs, connections, rates and yielding.
//!
//! - [`Model`] turns two [snapshots](lull_kernel::Snapshot) into a [`View`]: rates, directions and activities. It is
//!   pure.
//! - [`Table`] selects, sorts and pages the rows of a view, and follows keys. It is pure, too.
//! - [`draw`](fn@draw) draws both with ratatui; [`render`] does so as plain text.
//! - [`plot`](fn@plot): rates over time as text.
//! - [`watch`] is the interactive program; [`export`] serves snapshots as metrics.
//!
//! ```
//! use lull_monitor::{Curve, plot};
//!
//! let points = (0..60).map(|second| (f64::from(second), f64::from(second.min(30)))).collect();
//! let rate = Curve { letter: 'b', name: "background".to_owned(), points };
//! let drawn = plot(&[rate], "Mbit/s", 60, 10);
//! assert!(drawn.lines().all(|line| line.chars().count() <= 60));
//! println!("{drawn}");
//! ```

mod draw;
mod exporter;
mod metrics;
mod model;
mod plot;
mod terminal;
mod text;

pub use draw::{Palette, draw, render};
pub use exporter::export;
pub use metrics::metrics;
pub use model::Model;
pub use model::activity::{Activity, Direction};
pub use model::table::{Grouping, Sort, Table};
pub use model::view::{Row, Totals, View};
pub use plot::{Curve, plot};
pub use terminal::{watch, width};
