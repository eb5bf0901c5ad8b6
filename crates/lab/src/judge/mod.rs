//! Verdicts: what the cells of a plan show, held against what the plan demands.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::plan::{Axis, Check, Expression, Of, Plan};
use crate::record::{CellRecord, combination};

mod interval;
mod table;

pub(crate) use interval::half_width;
use interval::slope;
pub use table::{Column, Table, TableRow, number};

/// What a plan's cells show.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// The plan's name.
    pub id: String,
    /// Its title.
    pub title: String,
    /// A row for each combination of the sweep's values; repetitions are averaged.
    pub rows: Vec<Row>,
    /// What the plan's checks say.
    pub verdicts: Vec<Verdict>,
    /// Metrics and checks that have a value in no cell, and why.
    pub without_value: Vec<String>,
    /// Cells in which the emulator delivered one packet in a hundred more than a millisecond
    /// late, and how late: the machine had other things to do. What such a cell shows is in doubt.
    pub disturbed: Vec<(String, f64)>,
}

/// A combination of the sweep's values.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The values.
    pub values: Map<String, Value>,
    /// How many repetitions there are.
    pub repetitions: usize,
    /// The metrics' means over them, in the plan's order; none where a cell has no such value.
    pub metrics: Vec<Option<f64>>,
    /// Half the width of each mean's 95 % confidence interval; none without repetitions.
    pub intervals: Vec<Option<f64>>,
    /// The checks that its cells miss, by number.
    pub missed: Vec<usize>,
}

/// What a check says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The check's name.
    pub name: String,
    /// Where its demand comes from.
    pub source: Option<String>,
    /// Whether it is met; none if there is nothing to judge, or if no cell misses it and some have
    /// no value.
    pub is_met: Option<bool>,
    /// In a few words, and by how much it is missed.
    pub why: String,
    /// Why the results differ from what is demanded, as the plan explains it.
    pub explanation: Option<String>,
    /// Where the values judged lie; none if there is nothing to judge.
    pub range: Option<Range>,
    /// Values judged.
    pub judged: usize,
    /// Those of them that are as demanded.
    pub met: usize,
    /// The part of them that must be.
    pub share: f64,
    /// The cells furthest from what is demanded, worst first, ten at most; all of them met it if
    /// the margin of the first is not negative.
    pub worst: Vec<Judged>,
    /// Cells beyond the bound that none may pass.
    pub beyond: Vec<Judged>,
    /// Cells that it speaks of and that have no such value.
    pub lacking: usize,
}

impl Verdict {
    /// Whether what it speaks of is not as demanded, or cannot be told to be.
    pub fn fails(&self) -> bool {
        !self.is_met.unwrap_or(self.lacking == 0)
    }
}

/// A value held against its bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The cell.
    pub key: String,
    /// Its value.
    pub value: f64,
    /// Half the width of its 95 % confidence interval, where it is judged by an end of that: of slopes by
    /// the one that is kinder to the demand, of means that are to be sure by the harsher one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// What is demanded.
    pub bound: f64,
    /// How far the value, or that end of its interval, is on the right side; negative where it is not.
    pub margin: f64,
}

impl Judged {
    /// The value for people, with its interval.
    pub(crate) fn told(&self) -> String {
        let value = number(self.value, 4);
        self.half_width
            .map_or_else(|| value.clone(), |half| format!("{value} ± {}", number(half, 4)))
    }
}

/// Where values lie.
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

/// A cell with all that expressions may name.
struct Quantified<'a> {
    cell: &'a CellRecord,
    quantities: Value,
}

/// Holds the cells of a plan against its checks.
pub fn judge(plan: &Plan, cells: &[CellRecord]) -> Results {
    judge_beside(plan, cells, &[])
}

/// As [`judge`], where references may also lead to `others`, which are not judged themselves: a part
/// of a plan's cells may be held against cells outside of it.
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

/// Whether a cell is among those that an expression selects.
fn is_selected(only: Option<&Expression>, quantities: &Value) -> Result<bool, String> {
    only.map_or(Ok(true), |only| only.holds(quantities).map_err(|error| error.to_string()))
}

/// Each cell's quantities with the plan's metrics among them.
pub(crate) fn quantities(plan: &Plan, cells: &[CellRecord]) -> Vec<Value> {
    let cells = quantify(plan, cells.iter(), &mut Vec::new());
    cells.into_iter().map(|cell| cell.quantities).collect()
}

/// The cells that another one may look at, by the names of the plan's references: which, if it is
/// there.
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
                    Err(error) => why = Some(error.to_string()),
                },
                Err(error) => why = Some(error),
            }
        }
        if let (false, Some(why)) = (found, why) {
            without_value.push(format!("metric {}: {why}", metric.name));
        }
        // Metrics that follow may look at this one in other cells as well.
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

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// What a cell contributes to a check.
struct Part {
    value: f64,
    per: f64,
    bound: f64,
    limit: Option<f64>,
    /// Its value of the axis that a slope is over.
    place: Option<f64>,
}

/// The means over the repetitions of each combination; `parts` are the values and what they are
/// divided by.
fn averaged(
    all: &[Judged],
    parts: &[(f64, f64)],
    judged: impl Fn(&str, f64, f64) -> Judged,
) -> Vec<Judged> {
    let mut combinations: BTreeMap<&str, [Vec<f64>; 3]> = BTreeMap::new();
    for (one, (value, per)) in all.iter().zip(parts) {
        let sums = combinations.entry(combination(&one.key)).or_default();
        for (sums, value) in sums.iter_mut().zip([*value, *per, one.bound]) {
            sums.push(value);
        }
    }
    let averaged = combinations.iter().filter_map(|(key, [values, pers, bounds])| {
        Some(judged(key, mean(values)? / mean(pers)?, mean(bounds)?))
    });
    averaged.collect()
}

/// What a slope over an axis is of: a cell's key without its repetition and its value of the axis.
fn over(axis: &str, key: &str) -> String {
    let of_axis = |word: &&str| word.split_once('=').is_some_and(|(name, _)| name == axis);
    let others = combination(key).split(' ').filter(|word| !of_axis(word) && !word.is_empty());
    ["over", axis].into_iter().chain(others).collect::<Vec<_>>().join(" ")
}

/// How much the value rises each time that an axis doubles; `places` are the cells' values of it.
fn slopes(
    all: &[Judged],
    axis: &str,
    places: &[f64],
    judged: impl Fn(&str, f64, f64) -> Judged,
) -> Vec<Judged> {
    let mut combinations: BTreeMap<String, Vec<(f64, &Judged)>> = BTreeMap::new();
    for (one, place) in all.iter().zip(places) {
        combinations.entry(over(axis, &one.key)).or_default().push((place.log2(), one));
    }
    let slopes = combinations.iter().filter_map(|(key, cells)| {
        let points: Vec<_> = cells.iter().map(|(place, one)| (*place, one.value)).collect();
        let bounds: Vec<_> = cells.iter().map(|(_, one)| one.bound).collect();
        let (slope, half) = slope(&points)?;
        let one = judged(key, slope, mean(&bounds)?);
        Some(Judged { half_width: Some(half), margin: one.margin + half, ..one })
    });
    slopes.collect()
}

/// The mean of each combination, held against the bound by the harsher end of its interval; and the
/// combinations that have none, as they have one value only.
fn sure(all: &[Judged], judged: impl Fn(&str, f64, f64) -> Judged) -> (Vec<Judged>, Vec<String>) {
    let mut combinations: BTreeMap<&str, [Vec<f64>; 2]> = BTreeMap::new();
    for one in all {
        let [values, bounds] = combinations.entry(combination(&one.key)).or_default();
        values.push(one.value);
        bounds.push(one.bound);
    }
    let (mut means, mut unsure) = (Vec::new(), Vec::new());
    for (key, [values, bounds]) in combinations {
        match half_width(&values).zip(mean(&values)).zip(mean(&bounds)) {
            Some(((half, mean), bound)) => {
                let one = judged(key, mean, bound);
                means.push(Judged { half_width: Some(half), margin: one.margin - half, ..one });
            }
            None => unsure.push(key.to_owned()),
        }
    }
    (means, unsure)
}

/// The check's verdict, and the keys of the cells that miss what is demanded.
fn verdict(
    check: &Check,
    cells: &[Quantified<'_>],
    without_value: &mut Vec<String>,
) -> (Verdict, BTreeSet<String>) {
    let (demand, is_least) = match (&check.at_least, &check.at_most) {
        (Some(demand), _) => (demand, true),
        (None, Some(demand)) => (demand, false),
        (None, None) => unreachable!("plans are checked when they are read"),
    };
    let limit = if is_least { &check.never_below } else { &check.never_above };
    let judged = |key: &str, value: f64, bound: f64| {
        let margin = if is_least { value - bound } else { bound - value };
        Judged { key: key.to_owned(), value, half_width: None, bound, margin }
    };
    let mut judgements = Vec::new();
    let mut parts = Vec::new();
    let mut places = Vec::new();
    let mut beyond = Vec::new();
    let mut lacking = Vec::new();
    let mut why_not = None;
    let mut unsure = Vec::new();
    for Quantified { cell, quantities } in cells {
        let evaluate = || -> Result<Vec<Part>, String> {
            if !is_selected(check.only.as_ref(), quantities)? {
                return Ok(Vec::new());
            }
            let number =
                |expression: &Expression| expression.number(quantities).map_err(|e| e.to_string());
            let limit = limit.as_ref().map(number).transpose()?;
            let per = check.per.as_ref().map_or(Ok(1.0), number)?;
            let values = match check.of {
                Of::Sure => check.value.numbers(quantities).map_err(|e| e.to_string())?,
                _ => vec![number(&check.value)?],
            };
            let bound = number(demand)?;
            let place = check.over.as_ref().and_then(|axis| cell.values.get(axis)?.as_f64());
            if let Some(place) = place.filter(|place| *place <= 0.0) {
                return Err(format!("{place} cannot be doubled"));
            }
            let part = |value: f64| match (value / per).is_finite() {
                true => Ok(Part { value, per, bound, limit, place }),
                false => Err(format!("{value} cannot be divided by {per}")),
            };
            values.into_iter().map(part).collect()
        };
        match evaluate() {
            Ok(found) => {
                for Part { value, per, bound, limit, place } in found {
                    parts.push((value, per));
                    places.extend(place);
                    let value = value / per;
                    judgements.push(judged(&cell.key, value, bound));
                    let limit = limit.map(|limit| judged(&cell.key, value, limit));
                    beyond.extend(limit.filter(|limit| limit.margin < 0.0));
                }
            }
            Err(error) => {
                lacking.push(cell.key.as_str());
                why_not = Some(error);
            }
        }
    }
    if let (true, Some(why)) = (judgements.is_empty(), &why_not) {
        without_value.push(format!("check '{}': {why}", check.name));
    }
    let summary = match check.of {
        Of::Each => None,
        Of::Combination => {
            judgements = averaged(&judgements, &parts, judged);
            None
        }
        Of::Slope => {
            let axis = check.over.as_deref().expect("plans are checked when they are read");
            judgements = slopes(&judgements, axis, &places, judged);
            None
        }
        Of::Sure => {
            (judgements, unsure) = sure(&judgements, judged);
            None
        }
        Of::Mean => Some(("mean", mean as fn(&[f64]) -> Option<f64>)),
        Of::Median => Some(("median", median as fn(&[f64]) -> Option<f64>)),
    };
    if let Some((name, summarise)) = summary {
        let (values, pers): (Vec<f64>, Vec<f64>) = parts.into_iter().unzip();
        let bounds: Vec<f64> = judgements.iter().map(|one| one.bound).collect();
        let key = format!("{name} of {}", values.len());
        let value = summarise(&values).zip(summarise(&pers)).map(|(value, per)| value / per);
        let one = value.zip(mean(&bounds));
        judgements = one.map(|(value, bound)| judged(&key, value, bound)).into_iter().collect();
    }
    judgements.sort_by(|a, b| a.margin.total_cmp(&b.margin));
    beyond.sort_by(|a, b| a.margin.total_cmp(&b.margin));
    let misses: BTreeSet<String> =
        judgements.iter().filter(|one| one.margin < 0.0).map(|one| one.key.clone()).collect();
    let met = judgements.len() - misses.len();
    // Rounded so that 0.8 of 5 cells are 4, whatever 0.8 is in binary.
    let needed = (check.share * judgements.len() as f64 - 1e-9).ceil() as usize;
    let is_missed = met < needed || !beyond.is_empty();
    // What was not observed might be what is demanded, or the worst of all.
    let is_partial = !lacking.is_empty() || !unsure.is_empty();
    let is_open = judgements.is_empty() || (!is_missed && is_partial);
    let is_met = (!is_open).then_some(!is_missed);
    let mut why = explain(&judgements, &beyond, met, needed, check.share);
    if let (false, Some(first)) = (judgements.is_empty(), lacking.first()) {
        why = format!("{why}; {} without a value, such as {first}", lacking.len());
    }
    if let (false, Some(first)) = (judgements.is_empty(), unsure.first()) {
        why = format!("{why}; {} without an interval, such as {first}", unsure.len());
    }
    let values: Vec<f64> = judgements.iter().map(|one| one.value).collect();
    let verdict = Verdict {
        name: check.name.clone(),
        source: check.source.clone(),
        is_met,
        why,
        explanation: check.why.clone(),
        range: Range::of(&values),
        judged: judgements.len(),
        met,
        share: check.share,
        worst: judgements.iter().take(10).cloned().collect(),
        beyond,
        lacking: lacking.len(),
    };
    (verdict, misses)
}

fn explain(
    judgements: &[Judged],
    beyond: &[Judged],
    met: usize,
    needed: usize,
    share: f64,
) -> String {
    let Some(worst) = judgements.first() else { return "nothing to judge".to_owned() };
    let at = |one: &Judged| {
        let side = if one.margin < 0.0 { "misses" } else { "meets" };
        let [bound, margin] = [one.bound, one.margin.abs()].map(|n| number(n, 4));
        format!("{} {side} {bound} by {margin} ({})", one.told(), one.key)
    };
    let mut text = if judgements.len() == 1 {
        at(worst)
    } else {
        format!("{met} of {} cells, worst: {}", judgements.len(), at(worst))
    };
    if share < 1.0 {
        text = format!("{text}; needed {needed}");
    }
    if let Some(worst) = beyond.first() {
        text = format!(
            "{text}; {} beyond the bound for all, worst {} against {} ({})",
            beyond.len(),
            number(worst.value, 4),
            number(worst.bound, 4),
            worst.key
        );
    }
    text
}

#[cfg(test)]
mod tests;
