//! Verdicts: the results of a plan's cells, compared with the demands of the plan.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::plan::{Axis, Expression, ExpressionError, Plan};
use crate::record::{CellRecord, combination};
use crate::statistics::{mean, median};

mod interval;
mod table;
mod verdict;

pub(crate) use interval::half_width;
pub use table::{Column, Table, TableRow, number};
use verdict::verdict;

/// The results of a plan's cells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// The plan's name.
    pub id: String,
    /// Its title.
    pub title: String,
    /// A row for each combination of the sweep's values; repetitions are averaged.
    pub rows: Vec<Row>,
    /// The verdicts of the plan's checks.
    pub verdicts: Vec<Verdict>,
    /// Metrics and checks without a value in any cell, and why.
    pub without_value: Vec<String>,
    /// Cells in which the emulator delivered one packet in a hundred more than a millisecond late, and how
    /// late: the machine was busy. Their results are in doubt.
    pub disturbed: Vec<(String, f64)>,
}

/// A combination of the sweep's values.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The values.
    pub values: Map<String, Value>,
    /// How many repetitions there are.
    pub repetitions: usize,
    /// The means of the metrics over them, in the plan's order; none if a cell has no such value.
    pub metrics: Vec<Option<f64>>,
    /// Half the width of each mean's 95 % confidence interval; none without repetitions.
    pub intervals: Vec<Option<f64>>,
    /// The checks that its cells miss, by number.
    pub missed: Vec<usize>,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The check's name.
    pub name: String,
    /// The source of its demand.
    pub source: Option<String>,
    /// Whether it is met. None if there is nothing to judge, or if no cell misses it and some have no value.
    pub is_met: Option<bool>,
    /// A short reason, with the amount by which it is missed.
    pub why: String,
    /// Why the results differ from the demand, as the plan explains it.
    pub explanation: Option<String>,
    /// The range of the judged values; none if there is nothing to judge.
    pub range: Option<Range>,
    /// Judged values.
    pub judged: usize,
    /// Judged values that meet the demand.
    pub met: usize,
    /// The part of them that must meet it.
    pub share: f64,
    /// The cells furthest from the demand, worst first, ten at most. All of them met it if the margin of the
    /// first is not negative.
    pub worst: Vec<Judged>,
    /// Cells beyond the bound for every cell.
    pub beyond: Vec<Judged>,
    /// Cells that it applies to and that have no such value.
    pub lacking: usize,
}

impl Verdict {
    /// Whether the demand is missed, or cannot be shown to be met.
    pub fn fails(&self) -> bool {
        !self.is_met.unwrap_or(self.lacking == 0)
    }
}

/// A value, compared with its bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The cell.
    pub key: String,
    /// Its value.
    pub value: f64,
    /// Half the width of its 95 % confidence interval, if an end of that is judged: the more lenient one for
    /// slopes, the stricter one for means that must be sure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// The demand.
    pub bound: f64,
    /// How far the value, or that end of its interval, is on the right side; negative on the wrong side.
    pub margin: f64,
}

impl Judged {
    /// The value for readers, with its interval.
    pub(crate) fn text(&self) -> String {
        let value = number(self.value, 4);
        self.half_width
            .map_or_else(|| value.clone(), |half| format!("{value} ± {}", number(half, 4)))
    }
}

/// The range of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// The smallest.
    pub low: f64,
    /// The one in the middle.
    pub median: f64,
    /// The largest.
    pub high: f64,
}

impl Range {
    fn of(values: &[f64]) -> Option<Self> {
        median(values).map(|median| Range {
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            median,
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// A cell with all quantities that expressions may name.
struct Quantified<'a> {
    cell: &'a CellRecord,
    quantities: Value,
}

/// Judges the cells of a plan by its checks.
pub fn judge(plan: &Plan, cells: &[CellRecord]) -> Results {
    judge_beside(plan, cells, &[])
}

/// Like [`judge`], with references to `others`, which are not judged themselves. So a part of a plan's cells
/// can be compared with cells outside of it.
pub fn judge_beside(plan: &Plan, cells: &[CellRecord], others: &[CellRecord]) -> Results {
    let mut without_value = Vec::new();
    let disturbed = disturbed(cells);
    let mut quantified = quantify(plan, cells.iter().chain(others), &mut without_value);
    quantified.truncate(cells.len());
    let cells = quantified;
    let mut rows = rows(plan, &cells);
    let mut verdicts = Vec::new();
    for (number, check) in plan.checks.iter().enumerate() {
        let (verdict, misses) = verdict(check, &cells, &mut without_value);
        let missing: Vec<&CellRecord> = cells
            .iter()
            .filter(|cell| {
                misses.contains(&cell.cell.key) || misses.contains(combination(&cell.cell.key))
            })
            .map(|cell| cell.cell)
            .collect();
        for row in &mut rows {
            if missing.iter().any(|cell| row.is_of(cell)) {
                row.missed.push(number);
            }
        }
        verdicts.push(verdict);
    }
    Results {
        id: plan.id.clone(),
        title: plan.title.clone(),
        rows,
        verdicts,
        without_value,
        disturbed,
    }
}

/// The worst first.
fn disturbed(cells: &[CellRecord]) -> Vec<(String, f64)> {
    let disturbed = cells.iter().filter(|cell| cell.is_disturbed());
    let mut late: Vec<(String, f64)> =
        disturbed.map(|cell| (cell.key.clone(), cell.late_ms())).collect();
    late.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    late
}

impl Row {
    fn is_of(&self, cell: &CellRecord) -> bool {
        self.values.iter().all(|(name, value)| cell.values.get(name) == Some(value))
    }
}

/// Whether an expression selects a cell.
fn is_selected(only: Option<&Expression>, quantities: &Value) -> Result<bool, ExpressionError> {
    only.map_or(Ok(true), |only| only.holds(quantities))
}

/// Each cell's quantities, including the plan's metrics.
pub(crate) fn quantities(plan: &Plan, cells: &[CellRecord]) -> Vec<Value> {
    let cells = quantify(plan, cells.iter(), &mut Vec::new());
    cells.into_iter().map(|cell| cell.quantities).collect()
}

/// The cells that another one may refer to, by the names of the plan's references, if they are there.
fn references(plan: &Plan, cells: &[Quantified<'_>]) -> Vec<Vec<Option<usize>>> {
    let axes = |cell: &CellRecord, other: &BTreeMap<String, Value>| -> Vec<Option<Value>> {
        let value =
            |axis: &Axis| other.get(&axis.name).or_else(|| cell.values.get(&axis.name)).cloned();
        plan.axes.iter().map(value).collect()
    };
    let none = BTreeMap::new();
    let key = |cell: &CellRecord, other| {
        serde_json::json!([cell.repetition, axes(cell, other)]).to_string()
    };
    let places: BTreeMap<String, usize> =
        cells.iter().enumerate().map(|(at, cell)| (key(cell.cell, &none), at)).collect();
    let of = |cell: &Quantified<'_>| {
        let all = plan.references.values();
        all.map(|other| places.get(&key(cell.cell, other)).copied()).collect()
    };
    cells.iter().map(of).collect()
}

/// Adds the metrics to each cell's quantities, each after those before it.
fn quantify<'a>(
    plan: &Plan,
    cells: impl Iterator<Item = &'a CellRecord>,
    without_value: &mut Vec<String>,
) -> Vec<Quantified<'a>> {
    let mut quantified: Vec<Quantified<'a>> = cells
        .map(|cell| {
            let mut quantities = cell.quantities();
            quantities["metric"] = Value::Object(Map::new());
            Quantified { cell, quantities }
        })
        .collect();
    let references = references(plan, &quantified);
    let bare: Vec<Value> = quantified.iter().map(|cell| cell.quantities.clone()).collect();
    for (cell, others) in quantified.iter_mut().zip(&references) {
        let named = plan.references.keys().zip(others);
        let seen = named.filter_map(|(name, at)| Some((name.clone(), bare[(*at)?].clone())));
        cell.quantities["reference"] = Value::Object(seen.collect());
    }
    for metric in &plan.metrics {
        let mut found = false;
        let mut why = None;
        for Quantified { quantities, .. } in &mut quantified {
            match is_selected(metric.only.as_ref(), quantities) {
                Ok(false) => {}
                Ok(true) => match metric.value.number(quantities) {
                    Ok(value) => {
                        quantities["metric"][&metric.name] = value.into();
                        found = true;
                    }
                    Err(error) => why = Some(error),
                },
                Err(error) => why = Some(error),
            }
        }
        if let (false, Some(why)) = (found, why) {
            without_value.push(format!("metric {}: {why}", metric.name));
        }
        // Later metrics may refer to this one in other cells as well.
        let values: Vec<Value> =
            quantified.iter().map(|cell| cell.quantities["metric"][&metric.name].clone()).collect();
        for (cell, others) in quantified.iter_mut().zip(&references) {
            for (name, at) in plan.references.keys().zip(others) {
                if let Some(value) = at.map(|at| &values[at]).filter(|value| !value.is_null()) {
                    cell.quantities["reference"][name]["metric"][&metric.name] = value.clone();
                }
            }
        }
    }
    quantified
}

fn rows(plan: &Plan, cells: &[Quantified<'_>]) -> Vec<Row> {
    let mut rows: Vec<(Row, Vec<Vec<f64>>)> = Vec::new();
    for Quantified { cell, quantities } in cells {
        let values: Map<String, Value> = plan
            .axes
            .iter()
            .filter_map(|axis| Some((axis.name.clone(), cell.values.get(&axis.name)?.clone())))
            .collect();
        let at = rows.iter().position(|(row, _)| row.values == values).unwrap_or_else(|| {
            let row = Row { values, ..Row::default() };
            rows.push((row, vec![Vec::new(); plan.metrics.len()]));
            rows.len() - 1
        });
        let (row, sums) = &mut rows[at];
        row.repetitions += 1;
        for (metric, values) in plan.metrics.iter().zip(sums) {
            values.extend(quantities["metric"][&metric.name].as_f64());
        }
    }
    rows.into_iter()
        .map(|(mut row, sums)| {
            row.metrics = sums.iter().map(|values| mean(values)).collect();
            row.intervals = sums.iter().map(|values| half_width(values)).collect();
            row
        })
        .collect()
}

#[cfg(test)]
mod tests;
