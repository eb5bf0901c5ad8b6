//! The verdict of one check over all cells.

use std::collections::{BTreeMap, BTreeSet};

use super::interval::{half_width, slope};
use super::table::number;
use super::{Judged, Quantified, Range, Verdict, is_selected};
use crate::plan::{Check, CheckScope, Expression, ExpressionError};
use crate::record::combination;
use crate::statistics::{mean, median};

/// The contribution of a cell to a check.
struct Part {
    value: f64,
    per: f64,
    bound: f64,
    limit: Option<f64>,
    /// Its value of the axis of a slope.
    place: Option<f64>,
}

/// The means over the repetitions of each combination; `parts` are the values and their divisors.
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

/// The group of cells of a slope over an axis: a cell's key without its repetition and its value of the axis.
fn over(axis: &str, key: &str) -> String {
    let of_axis = |word: &&str| word.split_once('=').is_some_and(|(name, _)| name == axis);
    let others = combination(key).split(' ').filter(|word| !of_axis(word) && !word.is_empty());
    ["over", axis].into_iter().chain(others).collect::<Vec<_>>().join(" ")
}

/// The rise of the value when an axis doubles; `places` are the cells' values of the axis.
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

/// The mean of each combination, compared with the bound at the stricter end of its interval. Also the
/// combinations without an interval, as they have one value only.
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

/// Why a cell has no value for a check.
#[derive(Debug, thiserror::Error)]
enum NoValue {
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    #[error("{0} cannot be doubled")]
    NotDoubled(f64),
    #[error("{value} cannot be divided by {per}")]
    Quotient { value: f64, per: f64 },
}

/// The demand of a check on a value.
struct Demand<'a> {
    bound: &'a Expression,
    /// The bound for every cell.
    limit: Option<&'a Expression>,
    /// Whether `bound` is a minimum, or a maximum.
    is_least: bool,
}

impl<'a> Demand<'a> {
    fn of(check: &'a Check) -> Self {
        match (&check.at_least, &check.at_most) {
            (Some(bound), _) => Demand { bound, limit: check.never_below.as_ref(), is_least: true },
            (None, Some(bound)) => {
                Demand { bound, limit: check.never_above.as_ref(), is_least: false }
            }
            (None, None) => unreachable!("plans are checked when they are read"),
        }
    }

    fn judged(&self, key: &str, value: f64, bound: f64) -> Judged {
        let margin = if self.is_least { value - bound } else { bound - value };
        Judged { key: key.to_owned(), value, half_width: None, bound, margin }
    }

    /// The contribution of a cell to the check: nothing if the check does not apply to it.
    fn parts(
        &self,
        check: &Check,
        Quantified { cell, quantities }: &Quantified<'_>,
    ) -> Result<Vec<Part>, NoValue> {
        if !is_selected(check.only.as_ref(), quantities)? {
            return Ok(Vec::new());
        }
        let number = |expression: &Expression| expression.number(quantities);
        let limit = self.limit.map(number).transpose()?;
        let per = check.per.as_ref().map_or(Ok(1.0), number)?;
        let values = match check.of {
            CheckScope::Sure => check.value.numbers(quantities)?,
            _ => vec![number(&check.value)?],
        };
        let bound = number(self.bound)?;
        let place = check.over.as_ref().and_then(|axis| cell.values.get(axis)?.as_f64());
        if let Some(place) = place.filter(|place| *place <= 0.0) {
            return Err(NoValue::NotDoubled(place));
        }
        let part = |value: f64| match (value / per).is_finite() {
            true => Ok(Part { value, per, bound, limit, place }),
            false => Err(NoValue::Quotient { value, per }),
        };
        values.into_iter().map(part).collect()
    }
}

/// The contributions of all cells to a check.
#[derive(Default)]
struct Contributions<'a> {
    judgements: Vec<Judged>,
    /// For each judgement the value, and its divisor.
    parts: Vec<(f64, f64)>,
    /// For each judgement the value of the axis of a slope.
    places: Vec<f64>,
    beyond: Vec<Judged>,
    /// Cells without a value, and the reason for the last one.
    lacking: Vec<&'a str>,
    why_not: Option<NoValue>,
}

impl<'a> Contributions<'a> {
    fn of(check: &Check, demand: &Demand<'_>, cells: &'a [Quantified<'_>]) -> Self {
        let mut all = Contributions::default();
        for cell in cells {
            let key = cell.cell.key.as_str();
            match demand.parts(check, cell) {
                Ok(parts) => {
                    for Part { value, per, bound, limit, place } in parts {
                        all.parts.push((value, per));
                        all.places.extend(place);
                        let value = value / per;
                        all.judgements.push(demand.judged(key, value, bound));
                        let limit = limit.map(|limit| demand.judged(key, value, limit));
                        all.beyond.extend(limit.filter(|limit| limit.margin < 0.0));
                    }
                }
                Err(error) => {
                    all.lacking.push(key);
                    all.why_not = Some(error);
                }
            }
        }
        all.beyond.sort_by(|a, b| a.margin.total_cmp(&b.margin));
        all
    }

    /// The judgements of the combined cells, worst first, and the combinations without an interval.
    fn combined(&self, check: &Check, demand: &Demand<'_>) -> (Vec<Judged>, Vec<String>) {
        let judged = |key: &str, value, bound| demand.judged(key, value, bound);
        let mut unsure = Vec::new();
        let mut judgements = match check.of {
            CheckScope::Each => self.judgements.clone(),
            CheckScope::Combination => averaged(&self.judgements, &self.parts, judged),
            CheckScope::Slope => {
                let axis = check.over.as_deref().expect("plans are checked when they are read");
                slopes(&self.judgements, axis, &self.places, judged)
            }
            CheckScope::Sure => {
                let (judgements, without) = sure(&self.judgements, judged);
                unsure = without;
                judgements
            }
            CheckScope::Mean => self.summarised("mean", mean, judged),
            CheckScope::Median => self.summarised("median", median, judged),
        };
        judgements.sort_by(|a, b| a.margin.total_cmp(&b.margin));
        (judgements, unsure)
    }

    /// One judgement of all cells; none without cells.
    fn summarised(
        &self,
        name: &str,
        summarise: fn(&[f64]) -> Option<f64>,
        judged: impl Fn(&str, f64, f64) -> Judged,
    ) -> Vec<Judged> {
        let (values, pers): (Vec<f64>, Vec<f64>) = self.parts.iter().copied().unzip();
        let bounds: Vec<f64> = self.judgements.iter().map(|one| one.bound).collect();
        let key = format!("{name} of {}", values.len());
        let value = summarise(&values).zip(summarise(&pers)).map(|(value, per)| value / per);
        let one = value.zip(mean(&bounds));
        one.map(|(value, bound)| judged(&key, value, bound)).into_iter().collect()
    }
}

/// The check's verdict, and the keys of the cells that miss the demand.
pub(super) fn verdict(
    check: &Check,
    cells: &[Quantified<'_>],
    without_value: &mut Vec<String>,
) -> (Verdict, BTreeSet<String>) {
    let demand = Demand::of(check);
    let found = Contributions::of(check, &demand, cells);
    if let (true, Some(why)) = (found.judgements.is_empty(), &found.why_not) {
        without_value.push(format!("check '{}': {why}", check.name));
    }
    let (judgements, unsure) = found.combined(check, &demand);
    let Contributions { beyond, lacking, .. } = found;
    let misses: BTreeSet<String> =
        judgements.iter().filter(|one| one.margin < 0.0).map(|one| one.key.clone()).collect();
    let met = judgements.len() - misses.len();
    // Rounded so that 0.8 of 5 cells are 4, despite the binary representation of 0.8.
    let needed = (check.share * judgements.len() as f64 - 1e-9).ceil() as usize;
    let is_missed = met < needed || !beyond.is_empty();
    // The missing values might meet the demand, or be the worst of all.
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

/// The verdict as a short text.
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
        format!("{} {side} {bound} by {margin} ({})", one.text(), one.key)
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
