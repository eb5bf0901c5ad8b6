//! What a plot shows, gathered from cells.

use crate::plan::{Plan, Plot, shown};
use crate::record::CellRecord;

/// A panel: one value of the axis of panels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Panel {
    /// The axis's value; empty if there is one panel only.
    pub(super) name: String,
    /// Lines or groups of bars, by the values of the axis of series.
    pub(super) series: Vec<Series>,
}

/// A line, or the bars of one colour.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    /// For each value of the axis from left to right, what the cells have there.
    pub(super) points: Vec<Option<Point>>,
}

/// Cells that differ in nothing drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) count: usize,
}

impl Point {
    fn of(values: &[f64]) -> Option<Self> {
        (!values.is_empty()).then(|| Point {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            count: values.len(),
        })
    }
}

/// The values of an axis for people; one that stands for all cells if there is no such axis.
pub(super) fn values(plan: &Plan, axis: Option<&String>) -> Vec<String> {
    match axis.and_then(|name| plan.axes.iter().find(|axis| axis.name == *name)) {
        Some(axis) => axis.values.iter().map(shown).collect(),
        None => vec![String::new()],
    }
}

/// The panels of a plot that have anything on them.
pub(super) fn panels(plan: &Plan, plot: &Plot, cells: &[CellRecord]) -> Vec<Panel> {
    let quantified: Vec<(&CellRecord, f64)> = cells
        .iter()
        .filter_map(|cell| {
            let quantities = crate::judge::quantities(plan, cell);
            let is_drawn =
                plot.only.as_ref().is_none_or(|only| only.holds(&quantities).unwrap_or(false));
            let value = is_drawn.then(|| plot.y.number(&quantities).ok()).flatten()?;
            Some((cell, value))
        })
        .collect();
    let has = |cell: &CellRecord, axis: Option<&String>, value: &str| {
        axis.is_none_or(|axis| cell.values.get(axis).is_some_and(|own| shown(own) == value))
    };
    let mut panels = Vec::new();
    for panel in values(plan, plot.panels.as_ref()) {
        let mut series = Vec::new();
        for name in values(plan, plot.series.as_ref()) {
            let points: Vec<Option<Point>> = values(plan, Some(&plot.x))
                .iter()
                .map(|x| {
                    let own = quantified.iter().filter(|(cell, _)| {
                        has(cell, plot.panels.as_ref(), &panel)
                            && has(cell, plot.series.as_ref(), &name)
                            && has(cell, Some(&plot.x), x)
                    });
                    Point::of(&own.map(|(_, value)| *value).collect::<Vec<f64>>())
                })
                .collect();
            series.push(Series { name, points });
        }
        if series.iter().any(|series| series.points.iter().any(Option::is_some)) {
            panels.push(Panel { name: panel, series });
        }
    }
    // Who has nothing in any panel needs no place in the legend; colours stay the same in all.
    let is_empty = |number: usize| {
        panels.iter().all(|panel| panel.series[number].points.iter().all(Option::is_none))
    };
    let empty: Vec<usize> = (0..panels.first().map_or(0, |panel| panel.series.len()))
        .filter(|n| is_empty(*n))
        .collect();
    for panel in &mut panels {
        let mut number = 0;
        panel.series.retain(|_| {
            number += 1;
            !empty.contains(&(number - 1))
        });
    }
    panels
}
