//! Shows the background of a machine: jobs, connections, rates and yielding.
//!
//! - [`Model`] turns two [snapshots](lull_kernel::Snapshot) into a [`View`]: rates, directions and activities. It is
//!   pure.
//! - [`Table`] selects, sorts and pages the rows of a view, and follows keys. It is pure, too.
//! - [`draw`](fn@draw) draws both with ratatui; [`render`] does so as plain text.
//! - [`plot`](fn@plot): rates over time as text.
//! - [`watch`] is the interactive program; [`export`] serves snapshots as metrics.

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
