//! A score of background congestion control: a few hundred simulations, one line per group of them.
//!
//! Every change of a controller is judged by all groups at once, because an improvement in one often worsens
//! another. Each cell runs twice: the foreground alone, and beside the background. The result depends only on
//! the cells and their seeds, not on the number of threads.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use lull_sim::Trace;
use serde::Serialize;

use crate::simulate::{SimulateError, data};

mod cells;
mod download_targets;
mod foreground;
mod groups;
mod measures;
mod network;
mod print;
mod run;
mod scheme;
mod targets;
#[cfg(test)]
mod tests;

pub use cells::{Cell, Foreground, ForegroundControl, Link, Network, Queue, Set, Variation};
pub use download_targets::{Part, Targets};
pub use groups::{Group, UnknownGroupError};
pub use measures::{Better, CellScore, Line, Spread};
pub use print::{table, verdict_table};
use run::Measured;
pub use scheme::{AblatedPart, Scheme, UnknownPartError, UnknownSchemeError};
pub use targets::Verdict;

/// The settings of a score.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The groups, in the order of the table.
    pub groups: Vec<Group>,
    /// The background's controllers.
    pub schemes: Vec<Scheme>,
    /// The set of cells.
    pub set: Set,
    /// The number of seeds, from the first one of the set.
    pub seeds: u64,
    /// How many cells run at once.
    pub jobs: NonZeroUsize,
    /// The folder of data. The default is `shared/data` beside the working folder, or beside one of its
    /// parents.
    pub data: Option<PathBuf>,
    /// Parts of Lull that are left out.
    pub without: Vec<AblatedPart>,
    /// Judge Lull by its targets. CUBIC then runs in the groups that are compared with it.
    pub judge: bool,
}

/// Why the score failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScoreError {
    /// A trace cannot be read.
    #[error(transparent)]
    Data(#[from] SimulateError),
    /// The contents of a trace's file are invalid.
    #[error("{path}: {why}: is this another file (--data DIR)?")]
    Trace {
        /// The file.
        path: PathBuf,
        /// The reason, and where.
        why: String,
    },
}

/// The score.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The set of cells.
    pub set: Set,
    /// Their seeds.
    pub seeds: Vec<u64>,
    /// Parts of Lull that were left out.
    pub without: Vec<AblatedPart>,
    /// One line per group and controller.
    pub lines: Vec<Line>,
    /// How many cells of downloads are at their targets, for each controller; only for that set.
    pub targets: Vec<Targets>,
    /// All cells, in the order of the lines.
    pub cells: Vec<CellScore>,
    /// The targets of Lull, if they were judged.
    pub verdicts: Vec<Verdict>,
}

/// Progress of the simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Simulations that have ended.
    pub ended: usize,
    /// All simulations.
    pub all: usize,
}

/// Whether the recorded traces of a set are in the folder of data.
pub fn has_data(set: Set, folder: Option<&Path>) -> bool {
    let folder = folder.map_or_else(data::usual_folder, Path::to_owned);
    let mut files = Group::Recorded.cells(set, set.first_seed()).into_iter().filter_map(file);
    files.all(|file| folder.join(file).is_file())
}

/// Simulates all cells of the groups; `progress` is called after each simulation, on any thread.
///
/// # Errors
/// A trace that cannot be read.
pub fn score(
    settings: &Settings,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, ScoreError> {
    let first = settings.set.first_seed();
    let seeds: Vec<u64> = (first..first + settings.seeds).collect();
    let of_group = |&group: &Group| -> Vec<(Group, Cell)> {
        let cells = seeds.iter().flat_map(|&seed| group.cells(settings.set, seed));
        cells.map(|cell| (group, cell)).collect()
    };
    let cells: Vec<(Group, Cell)> = settings.groups.iter().flat_map(of_group).collect();
    let traces = traces(&cells, settings.data.as_deref())?;
    let run = |cells: &[_], schemes: &[_]| {
        let background = (schemes, &settings.without[..]);
        score_cells(cells, background, &traces, settings.jobs, progress)
    };
    let scores = run(&cells, &settings.schemes);
    let mut report = report(settings, seeds, scores);
    if settings.judge {
        let is_compared = |(group, _): &&(Group, Cell)| targets::OF_CUBIC.contains(group);
        let compared: Vec<_> = cells.iter().filter(is_compared).copied().collect();
        let mut all = report.cells.clone();
        if !settings.schemes.contains(&Scheme::Cubic) {
            all.extend(run(&compared, &[Scheme::Cubic]));
        }
        report.verdicts = targets::verdicts(&all, &report.lines);
    }
    Ok(report)
}

/// Sorts the cells in the order of the table, and summarizes them.
fn report(settings: &Settings, seeds: Vec<u64>, scores: Vec<CellScore>) -> Report {
    let mut lines = Vec::new();
    let mut ordered = Vec::new();
    for &group in &settings.groups {
        for &scheme in &settings.schemes {
            let is_own = |one: &&CellScore| one.group == group && one.scheme == scheme;
            let own: Vec<&CellScore> = scores.iter().filter(is_own).collect();
            if own.is_empty() {
                continue;
            }
            lines.push(Line::new(group, scheme, &own));
            ordered.extend(own.into_iter().cloned());
        }
    }
    let targets = match settings.set {
        Set::Downloads => settings.schemes.iter().map(|&of| Targets::new(of, &ordered)).collect(),
        Set::Tuned | Set::HeldOut => Vec::new(),
    };
    let (set, without) = (settings.set, settings.without.clone());
    Report { set, seeds, without, lines, targets, cells: ordered, verdicts: Vec::new() }
}

/// The traces of recorded links, by file.
type Traces = BTreeMap<&'static str, Trace>;

fn file(cell: Cell) -> Option<&'static str> {
    match cell.link {
        Link::Recorded { file } => Some(file),
        Link::Steady | Link::Pausing { .. } | Link::Cellular => None,
    }
}

fn traces(cells: &[(Group, Cell)], folder: Option<&Path>) -> Result<Traces, ScoreError> {
    let folder = folder.map_or_else(data::usual_folder, Path::to_owned);
    let mut traces = Traces::new();
    for file in cells.iter().filter_map(|&(_, cell)| file(cell)) {
        if traces.contains_key(file) {
            continue;
        }
        let path = folder.join(file);
        let text = data::text(&path)?;
        let trace = Trace::parse(file, &text).map_err(|why| ScoreError::Trace { path, why })?;
        traces.insert(file, trace);
    }
    Ok(traces)
}

/// A cell, without the settings that its foreground alone does not depend on.
fn without_background(cell: Cell) -> Cell {
    Cell { hosts: 0, connections: 0, foreground_is_local: false, ..cell }
}

/// Scores the cells, in their order, under each of the controllers, of which Lull is without some parts.
fn score_cells(
    cells: &[(Group, Cell)],
    (schemes, without): (&[Scheme], &[AblatedPart]),
    traces: &Traces,
    jobs: NonZeroUsize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Vec<CellScore> {
    // Many cells differ only in their background: their foreground runs alone once.
    let mut runs: Vec<(Cell, Scheme)> = Vec::new();
    let mut alone_of = Vec::new();
    for &(_, cell) in cells {
        let alone = (without_background(cell), Scheme::None);
        let found = runs.iter().position(|&run| run == alone);
        alone_of.push(found.unwrap_or(runs.len()));
        if found.is_none() {
            runs.push(alone);
        }
    }
    let first_beside = runs.len();
    for &scheme in schemes {
        runs.extend(cells.iter().map(|&(_, cell)| (cell, scheme)));
    }
    let measured = run_all(&runs, without, traces, jobs, progress);
    let mut scores = Vec::new();
    for (scheme, beside) in schemes.iter().zip(measured[first_beside..].chunks(cells.len().max(1)))
    {
        for ((&cell, &alone), beside) in cells.iter().zip(&alone_of).zip(beside) {
            scores.push(CellScore::new(cell, *scheme, &measured[alone], beside));
        }
    }
    scores
}

/// Runs the simulations on several threads. Results are in the order of `runs`.
fn run_all(
    runs: &[(Cell, Scheme)],
    without: &[AblatedPart],
    traces: &Traces,
    jobs: NonZeroUsize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Vec<Measured> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(runs.len()));
    thread::scope(|scope| {
        for _ in 0..jobs.get().min(runs.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((cell, scheme)) = runs.get(number) else { return };
                    let trace = file(*cell).and_then(|file| traces.get(file));
                    let measured = run::run(cell, (*scheme, without), trace);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((number, measured));
                    progress(Progress { ended: results.len(), all: runs.len() });
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|&(number, _)| number);
    results.into_iter().map(|(_, measured)| measured).collect()
}
