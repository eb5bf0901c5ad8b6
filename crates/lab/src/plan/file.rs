//! A plan in the form of its file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::expression::Expression;
use super::invalid::Invalid;

/// The source in the paper, and its value for comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The paper and its section, figure or table. For a plan of this project, the part of a paper that it
    /// extends.
    pub source: String,
    /// The paper's statement.
    pub statement: String,
    /// The value for comparison, in words.
    pub value: Option<String>,
}

/// One axis of the sweep.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Its name: `$name` is replaced by its value.
    pub name: String,
    /// Its values: numbers, texts or booleans.
    pub values: Vec<Value>,
    /// Its title in plots and tables.
    pub title: Option<String>,
}

impl Axis {
    /// Its title for readers.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }
}

/// A quantity that the table of results shows for each cell.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Its name. Later metrics, checks and plots refer to it as `metric.NAME`.
    pub name: String,
    /// Its title for readers.
    pub title: Option<String>,
    /// Its unit, for readers.
    #[serde(default)]
    pub unit: String,
    /// Its value.
    pub value: Expression,
    /// The cells that have it.
    #[serde(rename = "where")]
    pub only: Option<Expression>,
    /// Whether it is used in expressions only, and not shown.
    #[serde(default)]
    pub hidden: bool,
}

/// How a check combines cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckScope {
    /// Each cell on its own.
    #[default]
    Each,
    /// Each combination of the sweep's values: the mean over its repetitions.
    Combination,
    /// The mean over all cells.
    Mean,
    /// The median over all cells.
    Median,
    /// Each combination of the sweep's values: the mean over its repetitions, or over all numbers in their
    /// lists if the value is a list. The check uses the stricter end of its 95 % confidence interval, so that
    /// a pass is beyond doubt.
    Sure,
    /// For each combination of the other axes' values, the rise of the value when the axis `over` doubles
    /// (least squares over all repetitions). The check uses the more lenient end of its 95 % confidence
    /// interval, so that a failure is beyond doubt.
    Slope,
}

/// A condition on the results.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Its title for readers.
    pub name: String,
    /// The quantity.
    pub value: Expression,
    /// The divisor of the quantity. If cells are combined, values and divisors are combined separately: a
    /// quotient of means is not the mean of quotients.
    pub per: Option<Expression>,
    /// The cells that it applies to.
    #[serde(rename = "where")]
    pub only: Option<Expression>,
    /// The lowest allowed value.
    pub at_least: Option<Expression>,
    /// The highest allowed value.
    pub at_most: Option<Expression>,
    /// The part of the cells that must meet it.
    #[serde(default = "all")]
    pub share: f64,
    /// With `at_least`: no cell may be below this, regardless of the share.
    pub never_below: Option<Expression>,
    /// With `at_most`: no cell may be above this, regardless of the share.
    pub never_above: Option<Expression>,
    /// Whether it applies to each cell, each combination's mean, the mean or median of all, or a slope.
    #[serde(default)]
    pub of: CheckScope,
    /// For a slope: the axis, whose values are numbers above zero.
    pub over: Option<String>,
    /// The source of the demand.
    pub source: Option<String>,
    /// If results differ from it: the reason, for the report.
    pub why: Option<String>,
}

fn all() -> f64 {
    1.0
}

impl Check {
    /// The first error, in one line.
    pub(super) fn check(&self, axes: &[Axis]) -> Result<(), Invalid> {
        if self.at_least.is_some() == self.at_most.is_some() {
            return Err(Invalid::Rule("needs either at_least or at_most"));
        }
        if self.never_below.is_some() && self.at_least.is_none() {
            return Err(Invalid::Rule("has never_below, which goes with at_least"));
        }
        if self.never_above.is_some() && self.at_most.is_none() {
            return Err(Invalid::Rule("has never_above, which goes with at_most"));
        }
        if (self.of == CheckScope::Slope) != self.over.is_some() {
            return Err(Invalid::Rule("has 'over' with of = 'slope', and only then"));
        }
        let Some(over) = &self.over else { return Ok(()) };
        let wrong = |why| Invalid::Name { name: over.clone(), why }.within("over");
        match axes.iter().find(|axis| axis.name == *over) {
            None => Err(wrong("is no axis")),
            Some(axis) if axis.values.iter().any(|value| value.as_f64().is_none()) => {
                Err(wrong("has other values than numbers"))
            }
            Some(_) => Ok(()),
        }
    }
}

/// How a plot is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlotKind {
    /// A line over `x` for each value of `series`.
    Lines,
    /// A group of bars for each value of `x`, with a bar for each value of `series`.
    Bars,
    /// A point for each combination, at its `x` and `y`. Those of one value of `series` are joined in the
    /// plan's order.
    Points,
}

/// The positions of an axis's values from left to right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// At even distances, regardless of their values.
    #[default]
    Even,
    /// At their values.
    Linear,
    /// At their logarithms.
    Log,
}

/// A quantity on the upward axis, with its own name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its value.
    pub y: Expression,
    /// The lower end of its range. Without it, the range is that of the cells.
    pub low: Option<Expression>,
    /// The upper end of its range.
    pub high: Option<Expression>,
}

/// A plot, or one plot for each value of `panels`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The end of its file's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// How it is drawn.
    pub kind: PlotKind,
    /// The axis of the sweep from left to right; for points, an expression.
    pub x: String,
    /// For points: the title of that axis, with the unit.
    pub x_title: Option<String>,
    /// The quantity on the upward axis.
    pub y: Option<Expression>,
    /// In place of `y` and `series`: several quantities of a cell, each a line or a bar.
    #[serde(default)]
    pub entries: Vec<Entry>,
    /// The title of that axis, with the unit.
    pub y_title: String,
    /// The axis of the sweep that distinguishes lines or bars.
    pub series: Option<String>,
    /// For points: the cells whose points are not joined.
    pub alone: Option<Expression>,
    /// Their title.
    pub alone_title: Option<String>,
    /// An axis of the sweep; each of its values gets its own panel.
    pub panels: Option<String>,
    /// The cells that are drawn. Cells that are alike in everything drawn are averaged, with a range.
    #[serde(rename = "where")]
    pub only: Option<Expression>,
    /// A value to draw as a level line: the paper's value, or the demand.
    pub level: Option<f64>,
    /// The title of the level.
    pub level_title: Option<String>,
    /// Whether the upward axis is logarithmic. Values that are not above zero are left out: for such means,
    /// an arrow shows the end of their interval.
    #[serde(default)]
    pub log: bool,
    /// For lines: the positions of the values of `x`.
    #[serde(default)]
    pub spacing: Spacing,
    /// For lines: whether series with only one value of `x` in the plan are independent of it, and are drawn
    /// as level lines.
    #[serde(default)]
    pub levels: bool,
}

impl Plot {
    /// The axes of the sweep that it names.
    pub(super) fn axes(&self) -> impl Iterator<Item = &String> {
        let x = (self.kind != PlotKind::Points).then_some(&self.x);
        [x, self.series.as_ref(), self.panels.as_ref()].into_iter().flatten()
    }

    /// The first error, in one line.
    pub(super) fn check(&self, axes: &[Axis]) -> Result<(), Invalid> {
        if self.kind != PlotKind::Lines && (self.spacing != Spacing::Even || self.levels) {
            return Err(Invalid::Rule("draws no lines: leave out 'spacing' and 'levels'"));
        }
        let fits = |value: &Value| match self.spacing {
            Spacing::Even => true,
            Spacing::Linear => value.is_number(),
            Spacing::Log => value.as_f64().is_some_and(|number| number > 0.0),
        };
        let x = axes.iter().find(|axis| axis.name == self.x);
        if x.is_some_and(|axis| !axis.values.iter().all(fits)) {
            let why = match self.spacing {
                Spacing::Log => "is not above 0, which 'spacing' by logarithms needs",
                _ => "has other values than numbers, which 'spacing' needs",
            };
            return Err(Invalid::Name { name: self.x.clone(), why });
        }
        if self.y.is_some() != self.entries.is_empty() {
            return Err(Invalid::Rule("needs either 'y' or 'entries'"));
        }
        if !self.entries.is_empty() && self.series.is_some() {
            return Err(Invalid::Rule("has a series for each of its entries: leave out 'series'"));
        }
        let is_points = self.kind == PlotKind::Points;
        let is_for_points =
            self.alone.is_some() || self.alone_title.is_some() || self.x_title.is_some();
        if !is_points && is_for_points {
            let text = "is no plot of points: leave out 'x_title', 'alone' and 'alone_title'";
            return Err(Invalid::Rule(text));
        }
        if is_points && (self.y.is_none() || self.panels.is_some() || self.level.is_some()) {
            return Err(Invalid::Rule(
                "draws points: it needs 'y', and has neither panels nor a level",
            ));
        }
        if is_points {
            Expression::new(&*self.x)?;
        }
        Ok(())
    }
}

/// A value that depends on others: that of the first entry whose keys all match.
pub(super) type Choice = Vec<BTreeMap<String, Value>>;

/// The changes under `--quick`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quick {
    #[serde(default)]
    pub(super) axes: BTreeMap<String, Vec<Value>>,
    #[serde(default)]
    pub(super) choices: BTreeMap<String, Choice>,
    #[serde(default)]
    pub(super) exclude: Vec<BTreeMap<String, Value>>,
    pub(super) repetitions: Option<u32>,
}

/// A whole file. Parts that may contain `$axis` are not evaluated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanFile {
    pub(super) id: String,
    pub(super) title: String,
    #[serde(default)]
    pub(super) about: String,
    pub(super) paper: Paper,
    /// If results differ from the paper's: the reason, for the report.
    pub(super) why: Option<String>,
    #[serde(default)]
    pub(super) axes: Vec<Axis>,
    #[serde(default)]
    pub(super) choices: BTreeMap<String, Choice>,
    #[serde(default)]
    pub(super) exclude: Vec<BTreeMap<String, Value>>,
    /// Other cells that expressions may refer to: names, and the values in which they differ.
    #[serde(default)]
    pub(super) references: BTreeMap<String, BTreeMap<String, Value>>,
    #[serde(default = "once")]
    pub(super) repetitions: u32,
    /// The interval of the time series kept in records; none are kept without it.
    pub(super) series: Option<super::Spelled<super::Time>>,
    pub(super) topology: Value,
    #[serde(default)]
    pub(super) controls: Value,
    pub(super) groups: Value,
    pub(super) phases: Value,
    #[serde(default)]
    pub(super) metrics: Vec<Metric>,
    #[serde(default)]
    pub(super) checks: Vec<Check>,
    #[serde(default)]
    pub(super) plots: Vec<Plot>,
    #[serde(default)]
    pub(super) quick: Quick,
}

fn once() -> u32 {
    1
}

/// A file that shows the cells of another plan with other metrics and plots.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ViewFile {
    id: String,
    title: String,
    #[serde(default)]
    about: String,
    paper: Paper,
    why: Option<String>,
    /// The plan that the cells belong to.
    pub(super) cells_of: String,
    /// If there are none, those of that plan.
    #[serde(default)]
    metrics: Vec<Metric>,
    #[serde(default)]
    checks: Vec<Check>,
    #[serde(default)]
    plots: Vec<Plot>,
}

impl ViewFile {
    /// The whole plan, given the plan that the cells belong to.
    pub(super) fn with_cells_of(self, other: PlanFile) -> PlanFile {
        let ViewFile { id, title, about, paper, why, cells_of: _, metrics, checks, plots } = self;
        let metrics = if metrics.is_empty() { other.metrics } else { metrics };
        PlanFile { id, title, about, paper, why, metrics, checks, plots, ..other }
    }
}
