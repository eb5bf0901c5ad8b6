//! A plan as its file spells it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::expression::Expression;
use super::invalid::Invalid;

/// The place of the paper, and what to hold against it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The paper and its section, figure or table; of a plan of this project, the place that it extends.
    pub source: String,
    /// What stands there.
    pub statement: String,
    /// The value to hold against, in words.
    pub value: Option<String>,
}

/// One axis of the sweep.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Its name: `$name` stands for its value.
    pub name: String,
    /// Its values: numbers, texts or booleans.
    pub values: Vec<Value>,
    /// What it is called in plots and tables.
    pub title: Option<String>,
}

impl Axis {
    /// What it is called for people.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }
}

/// A quantity that the table of results shows for each cell.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Its name: later metrics, checks and plots call it `metric.NAME`.
    pub name: String,
    /// What it is called for people.
    pub title: Option<String>,
    /// Its unit, for people.
    #[serde(default)]
    pub unit: String,
    /// Its value.
    pub value: Expression,
    /// The cells that have it.
    #[serde(rename = "where")]
    pub only: Option<Expression>,
    /// Whether it is only for expressions, and not shown.
    #[serde(default)]
    pub hidden: bool,
}

/// How the cells of a check are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    /// Each cell by itself.
    #[default]
    Each,
    /// Each combination of the sweep's values: the mean over its repetitions.
    Combination,
    /// The mean over all cells.
    Mean,
    /// The median over all cells.
    Median,
    /// Each combination of the sweep's values: the mean over its repetitions, or of all numbers in their
    /// lists where the value is a list; judged is the end of its 95 % confidence interval that is harsher
    /// to the demand: what is met is met beyond doubt.
    Sure,
    /// For each combination of the other axes' values, how much the value rises each time that the
    /// axis `over` doubles (least squares over all repetitions); judged is the end of its 95 %
    /// confidence interval that is kinder to the demand: what is missed is missed beyond doubt.
    Slope,
}

/// What the results must show.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What it is called for people.
    pub name: String,
    /// The quantity.
    pub value: Expression,
    /// What the quantity is divided by. Where cells are put together, so is this, by itself: a
    /// quotient of means is not the mean of quotients.
    pub per: Option<Expression>,
    /// The cells that it holds for.
    #[serde(rename = "where")]
    pub only: Option<Expression>,
    /// The least that it may be.
    pub at_least: Option<Expression>,
    /// The most that it may be.
    pub at_most: Option<Expression>,
    /// The part of the cells in which it must be so.
    #[serde(default = "all")]
    pub share: f64,
    /// With `at_least`: no cell may be below this, whatever the share.
    pub never_below: Option<Expression>,
    /// With `at_most`: no cell may be above this, whatever the share.
    pub never_above: Option<Expression>,
    /// Whether it speaks of each cell, of each combination's mean, of the mean or median of all, or
    /// of a slope.
    #[serde(default)]
    pub of: Of,
    /// Of a slope: the axis, whose values are numbers above zero.
    pub over: Option<String>,
    /// Where the demand comes from.
    pub source: Option<String>,
    /// Where results differ: why, for the report.
    pub why: Option<String>,
}

fn all() -> f64 {
    1.0
}

impl Check {
    /// What cannot be, in one line.
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
        if (self.of == Of::Slope) != self.over.is_some() {
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
    /// A group of bars for each value of `x`, a bar for each value of `series`.
    Bars,
    /// A point for each combination, where `x` and `y` have it; those of a value of `series` are
    /// joined in the plan's order.
    Points,
}

/// Where the values of an axis stand from left to right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// At even distances, whatever they are.
    #[default]
    Even,
    /// Where they are as numbers.
    Linear,
    /// Where their logarithms are.
    Log,
}

/// What is drawn upwards, by a name of its own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What it is called.
    pub name: String,
    /// Its value.
    pub y: Expression,
    /// Where its range begins; without it, the range is that of the cells.
    pub low: Option<Expression>,
    /// Where its range ends.
    pub high: Option<Expression>,
}

/// A plot, or one for each value of `panels`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The end of its file's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// How it is drawn.
    pub kind: PlotKind,
    /// The axis of the sweep from left to right; of points, an expression.
    pub x: String,
    /// Of points: what stands below that axis, with the unit.
    pub x_title: Option<String>,
    /// What is drawn upwards.
    pub y: Option<Expression>,
    /// In place of `y` and `series`: several quantities of a cell, each a line or a bar.
    #[serde(default)]
    pub entries: Vec<Entry>,
    /// What stands beside that axis, with the unit.
    pub y_title: String,
    /// The axis of the sweep that tells lines or bars apart.
    pub series: Option<String>,
    /// Of points: the cells whose points stand alone.
    pub alone: Option<Expression>,
    /// What these are.
    pub alone_title: Option<String>,
    /// An axis of the sweep; each of its values gets a panel of its own.
    pub panels: Option<String>,
    /// The cells that are drawn. Cells that differ in nothing drawn are averaged, with a range.
    #[serde(rename = "where")]
    pub only: Option<Expression>,
    /// A value to draw as a level line: what the paper has, or what is demanded.
    pub level: Option<f64>,
    /// What the level is.
    pub level_title: Option<String>,
    /// Whether the upward axis is logarithmic. What is not above zero has no place on it: of means
    /// that are not, an arrow shows where their intervals end.
    #[serde(default)]
    pub log: bool,
    /// Of lines: where the values of `x` stand.
    #[serde(default)]
    pub spacing: Spacing,
    /// Of lines: whether series that the plan has at one value of `x` only do not depend on it, and
    /// are drawn as level lines.
    #[serde(default)]
    pub levels: bool,
}

impl Plot {
    /// The axes of the sweep that it names.
    pub(super) fn axes(&self) -> impl Iterator<Item = &String> {
        let x = (self.kind != PlotKind::Points).then_some(&self.x);
        [x, self.series.as_ref(), self.panels.as_ref()].into_iter().flatten()
    }

    /// What cannot be, in one line.
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

/// A value that depends on others: the first entry whose keys all match gives it.
pub(super) type Choice = Vec<BTreeMap<String, Value>>;

/// What `--quick` changes.
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

/// A whole file. What may contain `$axis` stays as it is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanFile {
    pub(super) id: String,
    pub(super) title: String,
    #[serde(default)]
    pub(super) about: String,
    pub(super) paper: Paper,
    /// Where results differ from the paper: why, for the report.
    pub(super) why: Option<String>,
    #[serde(default)]
    pub(super) axes: Vec<Axis>,
    #[serde(default)]
    pub(super) choices: BTreeMap<String, Choice>,
    #[serde(default)]
    pub(super) exclude: Vec<BTreeMap<String, Value>>,
    /// Other cells that expressions may look at: names, and the values in which they differ.
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

/// A file that shows the cells of another plan in its own way.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ViewFile {
    id: String,
    title: String,
    #[serde(default)]
    about: String,
    paper: Paper,
    why: Option<String>,
    /// The plan whose cells they are.
    pub(super) cells_of: String,
    /// Without any, those of that plan.
    #[serde(default)]
    metrics: Vec<Metric>,
    #[serde(default)]
    checks: Vec<Check>,
    #[serde(default)]
    plots: Vec<Plot>,
}

impl ViewFile {
    /// The whole plan, given the one whose cells they are.
    pub(super) fn of(self, other: PlanFile) -> PlanFile {
        let ViewFile { id, title, about, paper, why, cells_of: _, metrics, checks, plots } = self;
        let metrics = if metrics.is_empty() { other.metrics } else { metrics };
        PlanFile { id, title, about, paper, why, metrics, checks, plots, ..other }
    }
}
