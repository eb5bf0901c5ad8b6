//! Plots, drawn as SVG from records alone.

use std::path::{Path, PathBuf};

mod chart;
mod data;
mod style;
mod timeline;

pub use timeline::timeline;

use crate::plan::Plan;
use crate::record::CellRecord;

/// Why a plot could not be drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// The file cannot be written, or something has no place on it.
    #[error("the plot {path} cannot be drawn: {why}")]
    Drawing {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The records hold no time series.
    #[error("there is nothing to draw over time: the record holds no series")]
    NoSeries,
}

impl PlotError {
    fn drawing<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> Self + '_ {
        move |error| PlotError::Drawing { path: path.to_owned(), why: error.to_string() }
    }
}

/// Draws a plan's plots into the folder `out`, and returns their files. A plot for which no cell
/// has a value is left out.
///
/// # Errors
/// [`PlotError`].
pub fn draw(plan: &Plan, cells: &[CellRecord], out: &Path) -> Result<Vec<PathBuf>, PlotError> {
    let mut drawn = Vec::new();
    for plot in &plan.plots {
        let subset = if plan.quick { ".quick" } else { "" };
        let path = out.join(format!("{}-{}{subset}.svg", plan.id, plot.name));
        let panels = data::panels(plan, plot, cells);
        if !panels.is_empty() {
            chart::draw(plan, plot, &panels, &path)?;
            drawn.push(path);
        }
    }
    Ok(drawn)
}
