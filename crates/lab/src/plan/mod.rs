//! Plans: experiments as data.
//!
//! A plan is a TOML file. It names a network, congestion controls, groups of traffic and phases, and the axes
//! of a sweep. In the first four, `$axis` is replaced by the axis's value. Each combination of values, once
//! for each repetition, is a cell: a separate run. Metrics, checks and plots are expressions over the
//! measurements of the cells. Another plan may show the same cells with other metrics and plots (`cells_of`),
//! as papers draw several figures from the same runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lull_emulator::provenance::Origin;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::record::{Header, Program};

mod control;
mod error;
mod expand;
mod expression;
mod file;
mod group;
mod invalid;
mod locate;
mod names;
mod network;
mod network_text;
mod patterns;
mod plan_set;
mod probes;
mod scenario;
mod simulated;
mod sources;
mod spelled;

pub use control::{Algorithm, BaseName, Carrier, Control, DecreaseName, RefinementName};
pub use error::PlanError;
pub(crate) use expand::shown;
pub use expand::{Cell, Selection};
pub use expression::{Expression, ExpressionError};
pub use file::{Axis, Check, CheckScope, Entry, Metric, Paper, Plot, PlotKind, Spacing};
use file::{PlanFile, ViewFile};
pub use group::{Group, Kind};
pub use invalid::Invalid;
pub use network::{Emulated, Network};
pub use plan_set::PlanSet;
pub use scenario::{Phase, Scenario, ScenarioError};
pub use simulated::{Capacity, Simulated, TcpOptions};
pub use sources::{Arrivals, Datagrams, Documents, Flows, Intensity, Section, Sizes};
pub use spelled::{Spelled, Time};

/// An experiment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name on the command line.
    pub id: String,
    /// The plan whose cells and record it shows: itself, if it names no other.
    pub cells_of: String,
    /// Its title, in one line.
    pub title: String,
    /// Its description.
    pub about: String,
    /// The source to compare the results with.
    pub paper: Paper,
    /// Why the results differ from the paper's, if they do.
    pub why: Option<String>,
    /// The axes of its sweep; with `--quick` those of the subset.
    pub axes: Vec<Axis>,
    /// Other cells that expressions may refer to, by the values in which they differ from their own.
    pub references: BTreeMap<String, BTreeMap<String, Value>>,
    /// How often each combination is run.
    pub repetitions: u32,
    /// The interval of the time series kept in records, if any are kept.
    pub series: Option<std::time::Duration>,
    /// The columns of the table of results.
    pub metrics: Vec<Metric>,
    /// The conditions on the results.
    pub checks: Vec<Check>,
    /// The plots.
    pub plots: Vec<Plot>,
    /// SHA-256 of its text and of whether it is the quick subset. For a plan that shows another plan's cells,
    /// that of the other plan's text, because their record is identified by it.
    pub hash: String,
    /// Whether it is the quick subset.
    pub quick: bool,
    file: PlanFile,
    name: String,
    text: String,
}

/// Whether expressions can use this as a name.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Whether a plan can have this id.
fn is_id(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(fits)
}

/// The contents of a file, or the line of the first error.
fn spelled<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, PlanError> {
    toml::from_str(text).map_err(|error| PlanError::File {
        file: name.to_owned(),
        line: error.span().map(|span| locate::line_at(text, span.start)),
        text: error.message().trim().replace('\n', "; "),
    })
}

/// SHA-256 of `bytes`, in hexadecimal.
fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Plan {
    /// Reads a plan from its text; `name` is the file's name in error messages. With `quick`, reads the
    /// plan's subset. The plan must have its own cells.
    ///
    /// # Errors
    /// [`PlanError::File`]: one line with the file, the line and the key.
    pub fn parse(name: &str, text: &str, quick: bool) -> Result<Self, PlanError> {
        Self::parse_beside(name, text, quick, |_| None)
    }

    /// The same for a plan that may show the cells of another one: `other` gives that one's name and text by
    /// its id.
    fn parse_beside(
        name: &str,
        text: &str,
        quick: bool,
        other: impl Fn(&str) -> Option<(String, String)>,
    ) -> Result<Self, PlanError> {
        let shows_another =
            text.parse::<toml::Table>().is_ok_and(|keys| keys.contains_key("cells_of"));
        if !shows_another {
            let file: PlanFile = spelled(name, text)?;
            let id = file.id.clone();
            return Self::of(name, text, file, id, quick);
        }
        let view: ViewFile = spelled(name, text)?;
        let id = view.cells_of.clone();
        let wrong = |why: &str| PlanError::File {
            file: name.to_owned(),
            line: locate::line_of(text, &["cells_of"]),
            text: format!("cells_of: {why}"),
        };
        let found = if is_id(&id) { other(&id) } else { None };
        let (other_name, other) =
            found.ok_or_else(|| wrong(&format!("there is no plan '{id}' beside it")))?;
        let cells: PlanFile = spelled(&other_name, &other)?;
        let plan = Self::of(name, text, view.with_cells_of(cells), id, quick)?;
        Ok(Plan { hash: hash(format!("{quick}\n{other}").as_bytes()), ..plan })
    }

    fn of(
        name: &str,
        text: &str,
        file: PlanFile,
        cells_of: String,
        quick: bool,
    ) -> Result<Self, PlanError> {
        let mut plan = Plan {
            id: file.id.clone(),
            cells_of,
            title: file.title.clone(),
            about: file.about.clone(),
            paper: file.paper.clone(),
            why: file.why.clone(),
            axes: file.axes.clone(),
            references: file.references.clone(),
            repetitions: file.repetitions,
            series: file.series.as_ref().map(|series| series.value.0),
            metrics: file.metrics.clone(),
            checks: file.checks.clone(),
            plots: file.plots.clone(),
            hash: hash(format!("{quick}\n{text}").as_bytes()),
            quick,
            file,
            name: name.to_owned(),
            text: text.to_owned(),
        };
        if quick {
            plan.apply_quick()?;
        }
        plan.validate()?;
        Ok(plan)
    }

    /// Reads a plan from a file. Plans whose cells it may show are in the same folder.
    ///
    /// # Errors
    /// [`PlanError::Folder`] if it cannot be read, and those of [`Plan::parse`].
    pub fn read(path: &Path, quick: bool) -> Result<Self, PlanError> {
        let text = fs::read_to_string(path)
            .map_err(|source| PlanError::Folder { path: path.to_owned(), source })?;
        Plan::parse_beside(&path.display().to_string(), &text, quick, |id| {
            let beside = path.with_file_name(format!("{id}.toml"));
            Some((beside.display().to_string(), fs::read_to_string(&beside).ok()?))
        })
    }

    fn error(&self, key: &[&str], text: impl Into<String>) -> PlanError {
        PlanError::File {
            file: self.name.clone(),
            line: locate::line_of(&self.text, key),
            text: text.into(),
        }
    }

    fn apply_quick(&mut self) -> Result<(), PlanError> {
        let quick = self.file.quick.clone();
        for (name, values) in quick.axes {
            let Some(axis) = self.axes.iter_mut().find(|axis| axis.name == name) else {
                return Err(self.error(
                    &["quick", "axes", &name],
                    format!("quick.axes.{name}: there is no axis of this name"),
                ));
            };
            axis.values = values;
        }
        for (name, choice) in quick.choices {
            if self.file.choices.insert(name.clone(), choice).is_none() {
                return Err(self.error(
                    &["quick", "choices", &name],
                    format!("quick.choices.{name}: there is no choice of this name"),
                ));
            }
        }
        self.file.exclude.extend(quick.exclude);
        self.repetitions = quick.repetitions.unwrap_or(self.repetitions);
        Ok(())
    }

    fn validate(&self) -> Result<(), PlanError> {
        if !is_id(&self.id) {
            let text = "id: it consists of small letters, digits and '-'";
            return Err(self.error(&["id"], text));
        }
        if !(1..=1000).contains(&self.repetitions) {
            return Err(self.error(&["repetitions"], "repetitions: there may be 1 to 1000"));
        }
        for (at, axis) in self.axes.iter().enumerate() {
            let error = |text: &str| {
                Err(self.error(&["axes", &at.to_string()], format!("axes.{}: {text}", axis.name)))
            };
            if !is_name(&axis.name) || RESERVED.contains(&axis.name.as_str()) {
                return error(
                    "a name consists of small letters, digits and '_', and is none that results \
                     have",
                );
            }
            if self.axes[..at].iter().any(|other| other.name == axis.name) {
                return error("there are two axes of this name");
            }
            if axis.values.is_empty() || axis.values.iter().any(|v| v.is_array() || v.is_object()) {
                return error("values must be a list of texts, numbers or booleans");
            }
        }
        patterns::check(self)?;
        for name in self.references.keys() {
            if !is_name(name) {
                let text = format!("references.{name}: a name is small letters, digits and '_'");
                return Err(self.error(&["references", name], text));
            }
        }
        for (at, check) in self.checks.iter().enumerate() {
            check.check(&self.axes).map_err(|why| {
                self.error(&["checks", &at.to_string()], format!("checks: '{}': {why}", check.name))
            })?;
        }
        for (at, plot) in self.plots.iter().enumerate() {
            plot.check(&self.axes).map_err(|why| {
                self.error(&["plots", &at.to_string()], format!("plots: '{}': {why}", plot.name))
            })?;
            for axis in plot.axes() {
                if !self.axes.iter().any(|other| other.name == *axis) {
                    return Err(self.error(
                        &["plots", &at.to_string()],
                        format!("plots: '{}' draws '{axis}', which is no axis", plot.name),
                    ));
                }
            }
        }
        // All errors in cells are reported before the first one runs.
        let cells = self.cells(&Selection::default(), 1)?;
        if cells.is_empty() {
            return Err(self.error(&["exclude"], "exclude: it leaves no cell"));
        }
        self.validate_names()
    }

    /// Checks that all names of quantities exist.
    fn validate_names(&self) -> Result<(), PlanError> {
        let names = names::Names::of(self);
        let check_names = |list: &str, at: usize, name: &str, all: &[Option<&Expression>]| {
            all.iter().flatten().try_for_each(|expression| {
                names.check(expression).map_err(|why| {
                    self.error(&[list, &at.to_string()], format!("{list}: '{name}': {why}"))
                })
            })
        };
        for (at, metric) in self.metrics.iter().enumerate() {
            check_names("metrics", at, &metric.name, &[Some(&metric.value), metric.only.as_ref()])?;
        }
        for (at, check) in self.checks.iter().enumerate() {
            let Check { value, per, only, at_least, at_most, never_below, never_above, .. } = check;
            let others = [per, only, at_least, at_most, never_below, never_above];
            check_names("checks", at, &check.name, &[Some(value)])?;
            check_names("checks", at, &check.name, &others.map(Option::as_ref))?;
        }
        for (at, plot) in self.plots.iter().enumerate() {
            check_names(
                "plots",
                at,
                &plot.name,
                &[&plot.y, &plot.only, &plot.alone].map(Option::as_ref),
            )?;
            if plot.kind == PlotKind::Points {
                check_names("plots", at, &plot.name, &[Expression::new(&*plot.x).ok().as_ref()])?;
            }
            for Entry { y, low, high, .. } in &plot.entries {
                check_names("plots", at, &plot.name, &[Some(y), low.as_ref(), high.as_ref()])?;
            }
        }
        Ok(())
    }

    /// Whether none of its cells needs a kernel.
    ///
    /// # Errors
    /// The errors of [`Plan::cells`].
    pub fn is_simulated(&self) -> Result<bool, PlanError> {
        let cells = self.cells(&Selection::default(), 1)?;
        Ok(cells.iter().all(|cell| cell.scenario.is_simulated()))
    }

    /// The header of a record for a run that begins now on this machine.
    pub fn header(&self, program: &Program, seed: u64) -> Header {
        let Origin { command, seed, commit, version, kernel, cores, started_unix_s } =
            Origin::new(program, seed);
        Header {
            command,
            seed,
            plan: self.summary(),
            plan_hash: self.hash.clone(),
            commit,
            version,
            kernel,
            cores,
            started_unix_s,
        }
    }

    /// A description of the plan, for `lull lab list --json` and the headers of records.
    pub fn summary(&self) -> Value {
        let Plan { id, cells_of, title, paper, quick, .. } = self;
        let mut summary = json!({ "id": id, "title": title, "paper": paper, "quick": quick });
        if cells_of != id {
            summary["cells_of"] = json!(cells_of);
        }
        summary
    }
}

/// Names that the results of a cell already have.
const RESERVED: &[&str] = &[
    "link",
    "metric",
    "seed",
    "goodput",
    "sent",
    "share",
    "mean_rtt",
    "srtt",
    "window",
    "retransmitted",
    "timing_error",
    "arrival_error",
    "seconds",
    "packets",
    "drops",
    "loss",
    "fairness",
    "latency",
    "utilisation",
    "queueing",
    "overflows",
    "time_to_80",
    "time_to_90",
    "cpu",
    "flow",
    "transfer",
    "completion",
    "goodputs",
    "sharing",
    "transferred",
    "waiting",
    "timeouts",
    "cuts",
    "delay",
    "demand",
    "simulation",
    "cost",
    "reference",
    "repetition",
];

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
