//! The report: the results of all plans, compared with the papers, from records alone.
//!
//! A record counts for a plan if its cells match the present plan. Results that another plan recorded under
//! the same name are left out and reported.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

mod page;

use crate::judge::{Range, Results, Verdict, judge, number, quantities};
use crate::plan::{Plan, PlanError, Selection};
use crate::plot::PlotError;
use crate::record::{CellRecord, Failed, Header, RecordError, RecordFile};
use crate::run::record_path;

/// Why a report cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// There is no folder of records.
    #[error("the records in {folder} cannot be read: {source}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A record cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A figure cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// The page cannot be made.
    #[error("the page cannot be made: {0}")]
    Page(#[from] minijinja::Error),
}

/// The state of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanStatus {
    /// All cells are recorded, and all checks are met.
    Met,
    /// A check is missed.
    Missed,
    /// No check is missed so far, but cells are missing, or a check has nothing to judge.
    Incomplete,
    /// No cell of it is recorded.
    NotRun,
    /// It is recorded, and has no checks.
    Unjudged,
}

impl PlanStatus {
    /// All of them, the best first.
    pub const ALL: [PlanStatus; 5] = [
        PlanStatus::Met,
        PlanStatus::Missed,
        PlanStatus::Incomplete,
        PlanStatus::NotRun,
        PlanStatus::Unjudged,
    ];

    /// Its text for readers.
    pub fn words(self) -> &'static str {
        match self {
            PlanStatus::Met => "met",
            PlanStatus::Missed => "missed",
            PlanStatus::Incomplete => "incomplete",
            PlanStatus::NotRun => "not run",
            PlanStatus::Unjudged => "not judged",
        }
    }
}

/// A plan and its recorded results.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The plan, or its quick subset if only that is recorded.
    pub plan: Plan,
    /// The path of the record, also if there is none.
    pub record: PathBuf,
    /// The runs that wrote the record.
    pub headers: Vec<Header>,
    /// The recorded cells that match the present plan, in the plan's order.
    pub cells: Vec<CellRecord>,
    /// How many cells the plan has.
    pub planned: usize,
    /// Cells in the record that do not match: the plan has changed since.
    pub foreign: usize,
    /// Cells in the record that match the plan, with seeds of another run.
    pub reseeded: usize,
    /// Cells of the plan that failed in their last run.
    pub failed: Vec<Failed>,
    /// The results of the cells.
    pub results: Results,
    /// The state that follows from them.
    pub standing: PlanStatus,
}

/// A row of `lull lab report --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportRow {
    /// The plan's name.
    pub id: String,
    /// `met` if all cells are recorded and all checks are met, `missed` otherwise.
    pub verdict: &'static str,
    /// The paper's value, or its statement where it has none.
    pub paper: String,
    /// The range of the values that the checks judge; empty if there are none.
    pub measured: String,
    /// The results of the checks, missing parts, and why results differ.
    pub why: String,
}

/// A plan of `lull lab report --cells`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanCells {
    /// The plan's name.
    pub id: String,
    /// Whether only its quick subset is recorded.
    pub quick: bool,
    /// How many cells it has.
    pub planned: usize,
    /// The recorded cells, in the plan's order.
    pub cells: Vec<CellMetrics>,
    /// The results of its checks.
    pub verdicts: Vec<Verdict>,
}

/// A cell, and its values of the plan's metrics.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellMetrics {
    /// Its name.
    pub key: String,
    /// Counted from 1.
    pub repetition: u32,
    /// The values of the axes and of the choices.
    pub values: Map<String, Value>,
    /// The plan's metrics that have a value in the cell.
    pub metrics: Map<String, Value>,
}

/// The results of all plans.
#[derive(Clone, Debug)]
pub struct Report {
    /// The plans, in the order they were given.
    pub entries: Vec<Entry>,
    /// The commit of the source tree of the report, if known.
    pub commit: Option<String>,
}

impl Report {
    /// Reads the records in `folder`. Each experiment is given as its plans in order of preference, the full
    /// one and its quick subset: the first one with recorded results is shown. `commit` is that of the source
    /// tree, which the page compares with those of the records.
    ///
    /// # Errors
    /// [`ReportError::Folder`] if the folder is not there, and those of plans and records.
    ///
    /// # Panics
    /// If an experiment has no plan.
    pub fn read(
        experiments: Vec<Vec<Plan>>,
        folder: &Path,
        commit: Option<String>,
    ) -> Result<Self, ReportError> {
        fs::read_dir(folder)
            .map_err(|source| ReportError::Folder { folder: folder.to_owned(), source })?;
        let mut entries = Vec::new();
        for plans in experiments {
            let mut chosen: Option<Entry> = None;
            for plan in plans {
                let entry = Entry::read(plan, folder)?;
                let is_better = !entry.cells.is_empty();
                if is_better || chosen.is_none() {
                    chosen = Some(entry);
                }
                if is_better {
                    break;
                }
            }
            entries.push(chosen.expect("an experiment has a plan"));
        }
        Ok(Report { entries, commit })
    }

    /// A row for each plan that has checks.
    pub fn rows(&self) -> Vec<ReportRow> {
        let judged = self.entries.iter().filter(|entry| !entry.plan.checks.is_empty());
        judged.map(Entry::row).collect()
    }

    /// Every plan's cells, with its metrics.
    pub fn cells(&self) -> Vec<PlanCells> {
        self.entries.iter().map(Entry::by_metrics).collect()
    }

    /// How many plans are in this state.
    pub fn count(&self, standing: PlanStatus) -> usize {
        self.entries.iter().filter(|entry| entry.standing == standing).count()
    }

    /// The whole report as one self-contained page.
    ///
    /// # Errors
    /// [`ReportError::Plot`], [`ReportError::Page`].
    pub fn html(&self) -> Result<String, ReportError> {
        page::html(self)
    }
}

impl Entry {
    /// Reads a plan's record and judges it.
    fn read(plan: Plan, folder: &Path) -> Result<Self, ReportError> {
        let path = record_path(folder, &plan);
        let record = RecordFile::read(&path)?;
        let recorded: BTreeMap<&str, &CellRecord> =
            record.cells.iter().map(|cell| (cell.hash.as_str(), cell)).collect();
        let mut seeds: Vec<u64> = Vec::new();
        for header in &record.headers {
            if !seeds.contains(&header.seed) {
                seeds.push(header.seed);
            }
        }
        if seeds.is_empty() {
            seeds.push(1);
        }
        // Of runs with different seeds, the one with most cells; of equals, the last.
        let mut planned = Vec::new();
        let mut cells: Vec<CellRecord> = Vec::new();
        let mut fitting = BTreeSet::new();
        for seed in seeds {
            let all = plan.cells(&Selection::default(), seed)?;
            let found = all.iter().filter_map(|cell| {
                Some(recorded.get(cell.hash.as_str())?.as_cell(&cell.key, cell.repetition))
            });
            let found: Vec<CellRecord> = found.collect();
            fitting.extend(found.iter().map(|cell| cell.hash.clone()));
            if planned.is_empty() || found.len() >= cells.len() {
                planned = all;
                cells = found;
            }
        }
        let is_planned = |failed: &Failed| planned.iter().any(|cell| cell.hash == failed.hash);
        let failed: Vec<Failed> = record.failed.iter().filter(|f| is_planned(f)).cloned().collect();
        let results = judge(&plan, &cells);
        let standing = standing(&plan, &results, cells.len(), planned.len());
        Ok(Entry {
            record: path,
            planned: planned.len(),
            foreign: record.cells.iter().filter(|cell| !fitting.contains(&cell.hash)).count(),
            reseeded: fitting.len() - cells.len(),
            headers: record.headers,
            cells,
            failed,
            results,
            standing,
            plan,
        })
    }

    fn row(&self) -> ReportRow {
        ReportRow {
            id: self.plan.id.clone(),
            verdict: if self.standing == PlanStatus::Met { "met" } else { "missed" },
            paper: self.paper().to_owned(),
            measured: self.measured(),
            why: self.why(),
        }
    }

    fn by_metrics(&self) -> PlanCells {
        let metrics = |mut quantities: Value| match quantities["metric"].take() {
            Value::Object(metrics) => metrics,
            other => unreachable!("the metrics are {other}"),
        };
        let all = quantities(&self.plan, &self.cells).into_iter().map(metrics);
        let cells = self.cells.iter().zip(all).map(|(cell, metrics)| CellMetrics {
            key: cell.key.clone(),
            repetition: cell.repetition,
            values: cell.values.clone(),
            metrics,
        });
        PlanCells {
            id: self.plan.id.clone(),
            quick: self.plan.quick,
            planned: self.planned,
            cells: cells.collect(),
            verdicts: self.results.verdicts.clone(),
        }
    }

    /// The paper's value, or its statement where it has none.
    pub fn paper(&self) -> &str {
        self.plan.paper.value.as_deref().unwrap_or(&self.plan.paper.statement)
    }

    /// The range of the values that the checks judge.
    pub fn measured(&self) -> String {
        let told = |verdict: &Verdict| {
            verdict.range.map(|range| format!("{}: {}", verdict.name, range_text(range)))
        };
        self.results.verdicts.iter().filter_map(told).collect::<Vec<_>>().join("; ")
    }

    /// The results of the checks, failed ones first, and the reasons.
    fn why(&self) -> String {
        let mut parts = Vec::new();
        if self.standing == PlanStatus::NotRun {
            parts.push("not run".to_owned());
        }
        parts.extend(self.gaps());
        if self.standing != PlanStatus::NotRun {
            let mut verdicts: Vec<&Verdict> = self.results.verdicts.iter().collect();
            verdicts.sort_by_key(|verdict| match verdict.is_met {
                Some(false) => 0,
                None => 1,
                Some(true) => 2,
            });
            for verdict in verdicts {
                parts.push(format!("{}: {}", verdict.name, verdict.why));
                parts.extend(verdict.explanation.as_deref().map(one_line));
            }
            parts.extend(self.plan.why.as_deref().map(one_line));
        }
        parts.extend(self.leftovers());
        parts.join("; ")
    }

    /// The command that runs the plan with the same record.
    fn command(&self) -> String {
        let quick = if self.plan.quick { " --quick" } else { "" };
        let out = self.record.parent().unwrap_or(Path::new(".")).display();
        format!("lull lab run {}{quick} --out {out}", self.plan.id)
    }

    /// The missing parts of the plan.
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        if self.plan.quick {
            gaps.push("the quick subset only".to_owned());
        }
        if !self.cells.is_empty() && self.cells.len() < self.planned {
            gaps.push(format!(
                "{} of {} cells are recorded: '{}' continues",
                self.cells.len(),
                self.planned,
                self.command()
            ));
        }
        if let Some(failed) = self.failed.first() {
            let count = cells(self.failed.len());
            gaps.push(format!("{count} failed, such as {}: {}", failed.key, failed.error));
        }
        gaps
    }

    /// Other contents of the record, and the programs of the cells, if there are several.
    pub fn leftovers(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut programs: BTreeMap<&str, usize> = BTreeMap::new();
        for cell in &self.cells {
            *programs.entry(cell.commit.as_deref().unwrap_or("unknown")).or_default() += 1;
        }
        if programs.len() > 1 {
            let told = |(commit, count): (&&str, &usize)| {
                let (commit, changes) = commit.split_at(commit.find('-').unwrap_or(commit.len()));
                format!("{} by commit {}{changes}", cells(*count), short(commit))
            };
            let each = programs.iter().map(told);
            let each = each.collect::<Vec<_>>().join(", ");
            notes.push(format!("{} programs measured the cells: {each}", programs.len()));
        }
        if self.foreign > 0 {
            let mut hashes: Vec<&str> = Vec::new();
            for header in self.headers.iter().filter(|header| header.plan_hash != self.plan.hash) {
                let hash = short(&header.plan_hash);
                if !hashes.contains(&hash) {
                    hashes.push(hash);
                }
            }
            let which = match hashes.is_empty() {
                true => String::new(),
                false => format!(" ({})", hashes.join(", ")),
            };
            notes.push(format!(
                "ignored: {} of another plan{which}; '{} --prune' deletes them",
                cells(self.foreign),
                self.command()
            ));
        }
        if self.reseeded > 0 {
            notes.push(format!("ignored: {} with other seeds", cells(self.reseeded)));
        }
        notes
    }
}

fn standing(plan: &Plan, results: &Results, recorded: usize, planned: usize) -> PlanStatus {
    let says = |what: Option<bool>| results.verdicts.iter().any(|verdict| verdict.is_met == what);
    match () {
        () if recorded == 0 => PlanStatus::NotRun,
        () if plan.checks.is_empty() => PlanStatus::Unjudged,
        () if says(Some(false)) => PlanStatus::Missed,
        () if recorded < planned || says(None) => PlanStatus::Incomplete,
        () => PlanStatus::Met,
    }
}

fn cells(count: usize) -> String {
    if count == 1 { "1 cell".to_owned() } else { format!("{count} cells") }
}

/// A prefix of a hash that is long enough to identify it.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

fn range_text(range: Range) -> String {
    let [low, median, high] = [range.low, range.median, range.high].map(|value| number(value, 3));
    if low == high { low } else { format!("{low} … {high}, median {median}") }
}

/// A text of several lines, joined into one.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
