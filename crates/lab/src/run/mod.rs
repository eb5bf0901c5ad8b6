//! The runner: expands a plan, runs its cells side by side, and keeps the record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod alone;
mod cell;
mod controls;
mod cost;
mod network;
mod process;
mod processor;
mod schedule;
mod stage;

pub use alone::{Surroundings, alone};
pub use cell::{CellError, Order, Tick, Watch, conduct};
use controls::Controls;
pub use cost::{Budget, cores_of, estimate};
use schedule::Step;

use crate::plan::{Cell, Plan, PlanError, Selection};
use crate::record::{CellRecord, Failed, Header, Line, RecordError, RecordFile, Recorder};
use crate::simulate::{self, SimulateError};

/// Why a run could not be made. What keeps single cells from running is in the record instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The plan is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The record cannot be used.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Data that the simulator needs are not there.
    #[error(transparent)]
    Data(SimulateError),
    /// A congestion control of the plan cannot be had.
    #[error("the congestion control '{name}' of the plan {plan} cannot be had: {source}")]
    Control {
        /// The plan.
        plan: String,
        /// What the plan calls it.
        name: String,
        /// The reason.
        source: lull_kernel::Error,
    },
}

/// How cells are run.
#[derive(Clone, Debug)]
pub enum Isolation {
    /// Each in a process of its own, made by running this program with the arguments `lab cell`:
    /// one that crashes or hangs hurts no other, and its processor time is its own.
    Processes(PathBuf),
    /// In threads of this process, for tests.
    Threads,
}

/// What happens during a run, for whoever shows it.
#[derive(Clone, Debug)]
pub enum Event {
    /// So many cells were in the record already, and so many are to be run, which will take about
    /// so long. `older` if what is there was recorded by another commit.
    Planned {
        /// Cells that are not run again.
        recorded: usize,
        /// Cells to run.
        cells: usize,
        /// An estimate.
        time: Duration,
        /// The other commit, where there is one.
        older: Option<String>,
    },
    /// A cell has begun.
    Began {
        /// Its name.
        key: String,
    },
    /// A cell has ended.
    Ended {
        /// Its name.
        key: String,
        /// Why it has no results, if it has none.
        failure: Option<String>,
        /// About how long it will take until all have ended.
        left: Duration,
    },
}

/// A run of plans.
#[derive(Clone, Debug)]
pub struct Runner {
    /// How cells are run.
    pub isolation: Isolation,
    /// Where records go.
    pub out: PathBuf,
    /// The seed of the first repetition.
    pub seed: u64,
    /// How many cells run at once; by what the machine carries if left open.
    pub jobs: Option<usize>,
    /// Which cells.
    pub selection: Selection,
    /// Drop what an earlier run recorded of the cells selected.
    pub fresh: bool,
    /// The folder of data that the simulator reads logs from, if it is not the usual one.
    pub data: Option<PathBuf>,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Where the record is.
    pub record: PathBuf,
    /// The record's headers.
    pub headers: Vec<Header>,
    /// The cells selected that have results, in the plan's order.
    pub cells: Vec<CellRecord>,
    /// Those that have none.
    pub failed: Vec<Failed>,
}

/// Where the record of a plan is, under the folder `out`.
pub fn record_path(out: &Path, plan: &Plan) -> PathBuf {
    let subset = if plan.quick { ".quick" } else { "" };
    out.join(format!("{}{subset}.jsonl", plan.id))
}

impl Runner {
    /// Runs what is not recorded yet of a plan.
    ///
    /// # Errors
    /// [`RunError`] before the first cell runs.
    pub fn run(&self, plan: &Plan, mut show: impl FnMut(Event)) -> Result<Outcome, RunError> {
        let cells = plan.cells(&self.selection, self.seed)?;
        let path = record_path(&self.out, plan);
        let mut before = self.recorded(&path)?;
        let is_missing = |before: &RecordFile, cell: &Cell| {
            !before.cells.iter().any(|old| old.hash == cell.hash)
        };
        // Who has nothing to write also reads records that are not theirs to write.
        let mut recorder = None;
        if cells.iter().any(|cell| is_missing(&before, cell)) {
            recorder = Some(Recorder::open(&path)?);
            // Another run may have ended since.
            before = self.recorded(&path)?;
        }
        let (missing, recorded): (Vec<&Cell>, Vec<&Cell>) =
            cells.iter().partition(|cell| is_missing(&before, cell));
        let budget = Budget::of_this_machine(self.jobs);
        let header = Header::new(self.command.clone(), self.seed, plan);
        let older = before
            .headers
            .iter()
            .filter(|_| !recorded.is_empty())
            .find(|old| old.commit != header.commit)
            .map(|old| old.commit.clone().unwrap_or_else(|| "unknown".to_owned()));
        show(Event::Planned {
            recorded: recorded.len(),
            cells: missing.len(),
            time: estimate(missing.iter().map(|cell| &cell.scenario), &budget),
            older,
        });
        let mut failed = Vec::new();
        if let (Some(recorder), false) = (&mut recorder, missing.is_empty()) {
            self.check_data(&missing)?;
            let controls = Controls::register(&plan.id, &missing)?;
            if self.fresh {
                self.drop_old(recorder, &cells)?;
            }
            recorder.write(&Line::Header(header))?;
            let orders = missing
                .iter()
                .map(|cell| Order::new(plan, cell, controls.names(cell), self.data.as_deref()))
                .collect();
            schedule::run(orders, &self.isolation, &budget, |step| {
                match step {
                    Step::Began { key } => show(Event::Began { key }),
                    Step::Ended { key, hash, result, left } => {
                        let failure = result.as_ref().err().cloned();
                        recorder.write(&match result {
                            Ok(record) => Line::Cell(record),
                            Err(error) => {
                                let line = Failed { key: key.clone(), hash, error };
                                failed.push(line.clone());
                                Line::Failed(line)
                            }
                        })?;
                        show(Event::Ended { key, failure, left });
                    }
                }
                Ok(())
            })?;
        }
        let after = RecordFile::read(&path)?;
        let by_hash: BTreeMap<&str, &CellRecord> =
            after.cells.iter().map(|cell| (cell.hash.as_str(), cell)).collect();
        Ok(Outcome {
            record: path,
            cells: cells
                .iter()
                .filter_map(|cell| by_hash.get(cell.hash.as_str()).map(|cell| (*cell).clone()))
                .collect(),
            headers: after.headers,
            failed,
        })
    }

    /// Data that are missing are told once, and not by each cell.
    fn check_data(&self, cells: &[&Cell]) -> Result<(), RunError> {
        let usual = simulate::data::usual_folder;
        let folder = self.data.clone().unwrap_or_else(usual);
        let check = |cell: &&Cell| simulate::data::check(&cell.scenario, &folder);
        cells.iter().try_for_each(check).map_err(RunError::Data)
    }

    /// What is not run again.
    fn recorded(&self, path: &Path) -> Result<RecordFile, RecordError> {
        if self.fresh { Ok(RecordFile::default()) } else { RecordFile::read(path) }
    }

    /// Takes the cells that are run again out of a record; with all cells selected, everything.
    fn drop_old(&self, recorder: &mut Recorder, cells: &[Cell]) -> Result<(), RecordError> {
        if self.selection.is_all() {
            return recorder.retain(|_| false);
        }
        recorder.retain(|line| match line {
            Line::Header(_) => true,
            Line::Cell(old) => {
                !cells.iter().any(|cell| cell.key == old.key && cell.seed == old.seed)
            }
            Line::Failed(old) => !cells.iter().any(|cell| cell.key == old.key),
        })
    }
}
