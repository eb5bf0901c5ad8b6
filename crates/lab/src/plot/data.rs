//! The contents of a plot, collected from cells.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::judge::half_width;
use crate::plan::{Expression, Plan, Plot, Selection, shown};
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
    /// For each value of the axis from left to right, the results of the cells.
    pub(super) points: Vec<Option<Point>>,
    /// Whether it does not depend on that axis, and therefore has only one of its values.
    pub(super) is_level: bool,
}

/// Cells that are alike in everything drawn: their mean, and its 95 % confidence interval if they are
/// repetitions of one, otherwise their range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Whether there is more than one value.
    pub(super) has_range: bool,
}

impl Point {
    fn of(values: &[f64], are_repetitions: bool) -> Option<Self> {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = match half_width(values).filter(|_| are_repetitions) {
            // A quantity that is never below zero has no interval below zero, and a logarithmic axis cannot
            // show one.
            Some(half) if low >= 0.0 && mean < half => (low, mean + half),
            Some(half) => (mean - half, mean + half),
            None => (low, high),
        };
        let has_range = values.len() > 1;
        (!values.is_empty()).then_some(Point { mean, low, high, has_range })
    }
}

/// The values of an axis for readers; one for all cells if there is no such axis.
pub(super) fn values(plan: &Plan, axis: Option<&String>) -> Vec<String> {
    match axis.and_then(|name| plan.axes.iter().find(|axis| axis.name == *name)) {
        Some(axis) => axis.values.iter().map(shown).collect(),
        None => vec![String::new()],
    }
}

/// The cells that are drawn, with all quantities that expressions may name.
fn quantified<'a>(
    plan: &Plan,
    plot: &Plot,
    cells: &'a [CellRecord],
) -> Vec<(&'a CellRecord, Value)> {
    let is_drawn = |quantities: &Value| {
        plot.only.as_ref().is_none_or(|only| only.holds(quantities).unwrap_or(false))
    };
    cells
        .iter()
        .zip(crate::judge::quantities(plan, cells))
        .filter(|(_, quantities)| is_drawn(quantities))
        .collect()
}

/// The drawn values of a cell: its middle, and the ends of its range.
#[derive(Clone, Copy)]
struct Drawn<'a> {
    y: &'a Expression,
    low: Option<&'a Expression>,
    high: Option<&'a Expression>,
}

impl Drawn<'_> {
    fn point(&self, cells: &[&(&CellRecord, Value)]) -> Option<Point> {
        let (first, _) = cells.first()?;
        let are_repetitions = cells.iter().all(|(cell, _)| cell.values == first.values);
        let all = |expression: &Expression| -> Vec<f64> {
            cells.iter().filter_map(|(_, quantities)| expression.number(quantities).ok()).collect()
        };
        let mut point = Point::of(&all(self.y), are_repetitions)?;
        if let Some(low) = self.low.and_then(|low| Point::of(&all(low), false)) {
            (point.low, point.has_range) = (low.low, true);
        }
        if let Some(high) = self.high.and_then(|high| Point::of(&all(high), false)) {
            (point.high, point.has_range) = (high.high, true);
        }
        Some(point)
    }
}

/// The values of the axis of series that the plan has at only one of several positions from left to right.
fn levels(plan: &Plan, plot: &Plot) -> Vec<String> {
    let Some(series) = plot.series.as_ref().filter(|_| plot.levels) else { return Vec::new() };
    let combinations = plan.combinations(&Selection::default());
    let places = |name: &String| -> BTreeSet<String> {
        let is_own = |own: &Value| shown(own) == *name;
        let own = combinations.iter().filter(|values| values.get(series).is_some_and(is_own));
        own.filter_map(|values| values.get(&plot.x).map(shown)).collect()
    };
    let is_level = |name: &String| places(name).len() == 1;
    let has_several = values(plan, Some(&plot.x)).len() > 1;
    values(plan, Some(series)).into_iter().filter(|name| has_several && is_level(name)).collect()
}

/// The panels of a plot that are not empty.
pub(super) fn panels(plan: &Plan, plot: &Plot, cells: &[CellRecord]) -> Vec<Panel> {
    let quantified = quantified(plan, plot, cells);
    let has = |cell: &CellRecord, axis: Option<&String>, value: &str| {
        axis.is_none_or(|axis| cell.values.get(axis).is_some_and(|own| shown(own) == value))
    };
    // Each line or bar: its name, its value of the axis of series, and its expression.
    let of_axis = plot.y.iter().flat_map(|y| {
        let drawn = Drawn { y, low: None, high: None };
        let names = values(plan, plot.series.as_ref());
        names.into_iter().map(move |name| (name.clone(), Some(name), drawn))
    });
    let of_entries = plot.entries.iter().map(|entry| {
        let drawn = Drawn { y: &entry.y, low: entry.low.as_ref(), high: entry.high.as_ref() };
        (entry.name.clone(), None, drawn)
    });
    let all: Vec<(String, Option<String>, Drawn<'_>)> = of_axis.chain(of_entries).collect();
    let levels = levels(plan, plot);
    let mut panels = Vec::new();
    for panel in values(plan, plot.panels.as_ref()) {
        let mut series = Vec::new();
        for (name, value, drawn) in &all {
            let points: Vec<Option<Point>> = values(plan, Some(&plot.x))
                .iter()
                .map(|x| {
                    let is_own = |cell: &CellRecord| {
                        has(cell, plot.panels.as_ref(), &panel)
                            && value.as_ref().is_none_or(|own| has(cell, plot.series.as_ref(), own))
                            && has(cell, Some(&plot.x), x)
                    };
                    let own = quantified.iter().filter(|(cell, _)| is_own(cell));
                    drawn.point(&own.collect::<Vec<_>>())
                })
                .collect();
            let is_level = value.as_ref().is_some_and(|own| levels.contains(own));
            series.push(Series { name: name.clone(), points, is_level });
        }
        if series.iter().any(|series| series.points.iter().any(Option::is_some)) {
            panels.push(Panel { name: panel, series });
        }
    }
    // A series without a point in any panel is left out of the legend; colours stay the same in all.
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

/// Points of one colour: those that are joined, in the plan's order, and those that are not.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Trace {
    pub(super) name: String,
    pub(super) joined: Vec<(f64, f64)>,
    pub(super) alone: Vec<(f64, f64)>,
}

/// A combination of the sweep's values, and the points of its repetitions.
struct Combination<'a> {
    cell: &'a CellRecord,
    is_alone: bool,
    points: Vec<(f64, f64)>,
}

/// The traces of a plot of points. Repetitions are averaged.
pub(super) fn traces(plan: &Plan, plot: &Plot, cells: &[CellRecord]) -> Vec<Trace> {
    let (Ok(x), Some(y)) = (Expression::new(&*plot.x), &plot.y) else { return Vec::new() };
    let mut combinations: Vec<Combination<'_>> = Vec::new();
    for (cell, quantities) in quantified(plan, plot, cells) {
        let (Ok(x), Ok(y)) = (x.number(&quantities), y.number(&quantities)) else { continue };
        let is_alone = plot.alone.as_ref().is_some_and(|a| a.holds(&quantities).unwrap_or(false));
        match combinations.iter_mut().find(|other| other.cell.values == cell.values) {
            Some(combination) => combination.points.push((x, y)),
            None => combinations.push(Combination { cell, is_alone, points: vec![(x, y)] }),
        }
    }
    let mean = |points: &[(f64, f64)]| {
        let count = points.len() as f64;
        let sum = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / count, sum.1 / count)
    };
    let trace = |name: String| {
        let is_own = |cell: &CellRecord| {
            let own = plot.series.as_ref().and_then(|axis| cell.values.get(axis));
            plot.series.is_none() || own.is_some_and(|own| shown(own) == name)
        };
        let points = |wanted: bool| {
            let own = combinations.iter().filter(|one| one.is_alone == wanted && is_own(one.cell));
            own.map(|one| mean(&one.points)).collect()
        };
        Trace { joined: points(false), alone: points(true), name: name.clone() }
    };
    let traces = values(plan, plot.series.as_ref()).into_iter().map(trace);
    traces.filter(|trace| !(trace.joined.is_empty() && trace.alone.is_empty())).collect()
}
