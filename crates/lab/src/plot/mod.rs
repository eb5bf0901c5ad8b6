//! Plots, drawn as SVG from records alone.

use std::fs;
use std::path::{Path, PathBuf};

mod chart;
mod data;
mod points;
mod style;
mod timeline;

pub use timeline::timeline;

use crate::plan::{Plan, Plot, PlotKind};
use crate::record::CellRecord;

/// Why a plot could not be drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// The file cannot be written, or something does not fit.
    #[error("the plot {what} cannot be drawn: {why}")]
    Drawing {
        /// The file or the plot's name.
        what: String,
        /// The reason.
        why: String,
    },
    /// The records hold no time series.
    #[error("there is nothing to draw over time: the record holds no series")]
    NoSeries,
}

impl PlotError {
    fn drawing<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl Fn(E) -> Self {
        move |error| PlotError::Drawing { what: what.to_string(), why: error.to_string() }
    }
}

/// A plot that is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The plot's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its width in pixels.
    pub width: u32,
    /// Its height in pixels.
    pub height: u32,
    /// The whole document.
    pub svg: String,
}

impl Figure {
    /// The drawing of a plot.
    fn of(plot: &Plot, (width, height): (u32, u32), svg: String) -> Self {
        Figure { name: plot.name.clone(), title: plot.title.clone(), width, height, svg }
    }
}

/// Draws a plan's plots, in the plan's order. A plot without a value in any cell is left out.
///
/// # Errors
/// [`PlotError::Drawing`].
pub fn figures(plan: &Plan, cells: &[CellRecord]) -> Result<Vec<Figure>, PlotError> {
    let mut drawn = Vec::new();
    for plot in &plan.plots {
        if plot.kind == PlotKind::Points {
            let traces = data::traces(plan, plot, cells);
            if !traces.is_empty() {
                drawn.push(points::draw(plan, plot, &traces)?);
            }
            continue;
        }
        let panels = data::panels(plan, plot, cells);
        if !panels.is_empty() {
            drawn.push(chart::draw(plan, plot, &panels)?);
        }
    }
    Ok(drawn)
}

/// Draws a plan's plots into the folder `out`, and returns their files.
///
/// # Errors
/// [`PlotError`].
pub fn draw(plan: &Plan, cells: &[CellRecord], out: &Path) -> Result<Vec<PathBuf>, PlotError> {
    let mut drawn = Vec::new();
    for figure in figures(plan, cells)? {
        let subset = if plan.quick { ".quick" } else { "" };
        let path = out.join(format!("{}-{}{subset}.svg", plan.id, figure.name));
        fs::write(&path, figure.svg).map_err(PlotError::drawing(path.display()))?;
        drawn.push(path);
    }
    Ok(drawn)
}

/// A line of [`curves`].
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

/// Draws lines over a quantity, such as the gain over the cost, as an SVG document.
///
/// # Errors
/// [`PlotError::Drawing`].
pub fn curves(
    title: &str,
    x_title: &str,
    y_title: &str,
    curves: &[Curve],
) -> Result<String, PlotError> {
    let trace = |curve: &Curve| data::Trace {
        name: curve.name.clone(),
        joined: curve.points.clone(),
        alone: Vec::new(),
    };
    points::curves(title, x_title, y_title, &curves.iter().map(trace).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
