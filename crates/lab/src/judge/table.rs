//! Results as a table for readers.

use serde::Serialize;

use super::Results;
use crate::plan::{Plan, shown};

/// The rows of a plan's results as text. Columns without information are left out: an axis of one value, a
/// hidden metric or one that no cell has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The axes.
    pub axes: Vec<Column>,
    /// The metrics.
    pub metrics: Vec<Column>,
    /// The rows, in the plan's order.
    pub rows: Vec<TableRow>,
}

/// The head of a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Its name in expressions.
    pub name: String,
    /// Its title for readers.
    pub title: String,
    /// Its unit; empty if it has none.
    pub unit: String,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableRow {
    /// The axes' values.
    pub values: Vec<String>,
    /// The metrics' means, with their 95 % intervals if there are repetitions; none if a cell has no such
    /// value.
    pub metrics: Vec<Option<String>>,
    /// How many repetitions there are.
    pub repetitions: usize,
    /// The names of the checks that its cells miss.
    pub missed: Vec<String>,
}

impl Results {
    /// The rows as text; `plan` is the judged plan.
    pub fn table(&self, plan: &Plan) -> Table {
        let is_told = |axis: &&crate::plan::Axis| {
            let first = self.rows.first().map(|row| &row.values[&axis.name]);
            self.rows.iter().any(|row| Some(&row.values[&axis.name]) != first)
        };
        let axes: Vec<_> = plan.axes.iter().filter(is_told).collect();
        let has_value = |number: usize| self.rows.iter().any(|row| row.metrics[number].is_some());
        let metrics: Vec<_> = plan
            .metrics
            .iter()
            .enumerate()
            .filter(|(number, metric)| !metric.hidden && has_value(*number))
            .collect();
        let rows = self.rows.iter().map(|row| TableRow {
            values: axes.iter().map(|axis| shown(&row.values[&axis.name])).collect(),
            metrics: metrics
                .iter()
                .map(|(at, _)| {
                    row.metrics[*at].map(|value| with_interval(value, row.intervals[*at]))
                })
                .collect(),
            repetitions: row.repetitions,
            missed: row.missed.iter().map(|at| plan.checks[*at].name.clone()).collect(),
        });
        Table {
            rows: rows.collect(),
            axes: axes
                .iter()
                .map(|axis| Column {
                    name: axis.name.clone(),
                    title: axis.title().to_owned(),
                    unit: String::new(),
                })
                .collect(),
            metrics: metrics
                .iter()
                .map(|(_, metric)| Column {
                    name: metric.name.clone(),
                    title: metric.title.clone().unwrap_or_else(|| metric.name.clone()),
                    unit: metric.unit.clone(),
                })
                .collect(),
        }
    }
}

/// A mean and half the width of its interval.
fn with_interval(value: f64, half: Option<f64>) -> String {
    let mean = number(value, 3);
    half.map_or_else(|| mean.clone(), |half| format!("{mean} ± {}", number(half, 2)))
}

/// A number for readers: `digits` after the point, fewer from 10 on, and a power of ten if no digit would be
/// left.
pub fn number(number: f64, digits: usize) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        tiny if tiny < 10f64.powi(1 - digits as i32) => format!("{number:.1e}"),
        0.0..10.0 => format!("{number:.digits$}"),
        10.0..1000.0 => format!("{number:.0$}", digits.saturating_sub(2).max(1)),
        1000.0..1e7 => format!("{number:.0}"),
        _ => format!("{number:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_significant_digits_only() {
        for (value, digits, text) in [
            (0.0, 3, "0"),
            (0.96_44, 3, "0.964"),
            (0.96_44, 4, "0.9644"),
            (-9.5, 3, "-9.500"),
            (12.34, 3, "12.3"),
            (1234.5, 3, "1234"),
            (0.000_12, 3, "1.2e-4"),
            (3e-11, 4, "3.0e-11"),
            (4.2e9, 3, "4.20e9"),
        ] {
            assert_eq!(number(value, digits), text);
        }
    }
}
