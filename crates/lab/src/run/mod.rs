//! The runner: expands a plan, runs its cells concurrently, and writes the record.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

mod alone;
mod bare;
mod cell;
mod controls;
mod cost;
mod network;
mod order;
mod presence;
mod process;
mod processor;
mod schedule;
mod stage;
mod watch;

pub use alone::{CellEnvironment, alone, end_with_parent_thread};
pub use cell::run_cell;
use controls::Controls;
pub use cost::{Budget, cores_of, estimate};
use cost::{cores_after, time_of};
pub use order::{CellError, Order};
use presence::Presence;
use schedule::{DueCell, Step};
pub use watch::{Tick, Watch};

use crate::plan::{Cell, Plan, PlanError, Selection};
use crate::record::{self, CellRecord, Failed, Header, Line, Program, RecordError};
use crate::record::{RecordFile, Recorder};
use crate::simulate::{self, SimulateError};
use lull_emulator::chain;

/// Why a run failed. Errors of single cells are in the record instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The plan is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The record is unusable.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Missing data for the simulator.
    #[error(transparent)]
    Data(SimulateError),
    /// None of the cells can run, because a congestion control is missing.
    #[error("{plan}: {why}")]
    Control {
        /// The plan.
        plan: String,
        /// The control, as the plan names it, and the reason.
        why: String,
    },
}

/// How cells are run.
#[derive(Clone, Debug)]
pub enum Isolation {
    /// Each in its own process, which runs this program with the arguments `lab cell`. A crash or hang
    /// affects no other cell, and the processor time is the cell's own.
    Processes(PathBuf),
    /// In threads of this process, for tests.
    Threads,
}

/// Events of a run, for progress displays.
#[derive(Clone, Debug)]
pub enum Event {
    /// The numbers of cells that are already recorded and that will run, with the estimated time. `older` is
    /// set if another program measured some of the recorded ones: they show the older program, also after a
    /// change of a controller. Cells in which the emulator was late are counted separately: those are run
    /// again. Each of the `others` that run on this machine uses the processors as if it were alone.
    Planned {
        /// Cells that are not run again.
        recorded: usize,
        /// Cells that will run.
        cells: usize,
        /// Cells among them that were disturbed in an earlier run.
        disturbed: usize,
        /// An estimate.
        time: Duration,
        /// How many of the recorded cells another program measured, and the commit of one.
        older: Option<(usize, String)>,
        /// Other active runs.
        others: usize,
    },
    /// Some of the cells cannot run.
    Refused {
        /// Cells.
        cells: usize,
        /// The reason for the first of them.
        why: String,
    },
    /// A cell has started.
    Began {
        /// Its name.
        key: String,
    },
    /// A cell has ended.
    Ended {
        /// Its name.
        key: String,
        /// Why it has no results, if so.
        failure: Option<String>,
        /// Estimated time until all have ended.
        left: Duration,
    },
    /// Unused cells were dropped from the record.
    Pruned {
        /// Cells that it held.
        cells: usize,
    },
}

/// How often a cell is run again, and a phase measured again, while the emulator is late. Its results have no
/// influence on this.
pub const MAX_RETRIES: u32 = 2;

/// A run of plans.
#[derive(Clone, Debug)]
pub struct Runner {
    /// How cells are run.
    pub isolation: Isolation,
    /// The folder of records.
    pub out: PathBuf,
    /// The seed of the first repetition.
    pub seed: u64,
    /// How many cells run at once; without it, as many as the machine can carry.
    pub jobs: Option<usize>,
    /// The selected cells.
    pub selection: Selection,
    /// Drop earlier results of the selected cells.
    pub fresh: bool,
    /// Remove results from the record that belong to no cell of the plan, and those of cells that ran again.
    pub prune: bool,
    /// Measure again after disturbances by the machine. A phase is measured again at once while a hypervisor
    /// takes processor time; a cell, if the emulator was still late. Each at most [`MAX_RETRIES`] times.
    pub again: bool,
    /// The folder of data with the simulator's logs, if it is not the usual one.
    pub data: Option<PathBuf>,
    /// The calling program, for the record.
    pub program: Program,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The path of the record.
    pub record: PathBuf,
    /// The record's headers.
    pub headers: Vec<Header>,
    /// The selected cells that have results, in the plan's order.
    pub cells: Vec<CellRecord>,
    /// Recorded results of the plan's other cells, for references.
    pub others: Vec<CellRecord>,
    /// The selected cells without results.
    pub failed: Vec<Failed>,
}

/// A preview of a run of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunPreview {
    /// Cells that would run.
    pub cells: usize,
    /// The estimated time.
    pub time: Duration,
}

/// The path of a plan's record, in the folder `out`.
pub fn record_path(out: &Path, plan: &Plan) -> PathBuf {
    let subset = if plan.quick { ".quick" } else { "" };
    out.join(format!("{}{subset}.jsonl", plan.cells_of))
}

impl Runner {
    /// Runs the cells of a plan that are not recorded yet.
    ///
    /// # Errors
    /// [`RunError`] before the first cell runs.
    pub fn run(&self, plan: &Plan, mut show: impl FnMut(Event)) -> Result<Outcome, RunError> {
        let cells = plan.cells(&self.selection, self.seed)?;
        let path = record_path(&self.out, plan);
        let mut failed = Vec::new();
        let mut pass = Pass { runner: self, plan, cells: &cells, path: &path, is_first: true };
        while pass.run(&mut show, &mut failed)? {
            pass.is_first = false;
        }
        let has_written = !pass.is_first;
        if self.prune {
            self.prune(plan, &path, &mut show)?;
        } else if has_written {
            Recorder::open(&path)?.close()?;
        }
        let after = RecordFile::read(&path)?;
        let by_hash: BTreeMap<&str, &CellRecord> =
            after.cells.iter().map(|cell| (cell.hash.as_str(), cell)).collect();
        let recorded = |cells: &[Cell]| -> Vec<CellRecord> {
            let found = |cell: &Cell| {
                Some(by_hash.get(cell.hash.as_str())?.as_cell(&cell.key, cell.repetition))
            };
            cells.iter().filter_map(found).collect()
        };
        let mut others = Vec::new();
        if !self.selection.is_all() {
            others = plan.cells(&Selection::default(), self.seed)?;
            others.retain(|other| cells.iter().all(|cell| cell.hash != other.hash));
        }
        Ok(Outcome {
            cells: recorded(&cells),
            others: recorded(&others),
            headers: after.headers,
            failed,
            record: record::place(&path),
        })
    }

    /// A preview of a run, from the record only: whether cells are disturbed is known only at the run.
    ///
    /// # Errors
    /// The errors of [`Runner::run`] that can be found from the plan and its record.
    pub fn preview(&self, plan: &Plan) -> Result<RunPreview, RunError> {
        let cells = plan.cells(&self.selection, self.seed)?;
        let path = record_path(&self.out, plan);
        let pass = Pass { runner: self, plan, cells: &cells, path: &path, is_first: true };
        let before = pass.recorded()?;
        let is_due = |cell: &&Cell| pass.is_due(&before, &[], cell);
        let due: Vec<&Cell> = cells.iter().filter(is_due).collect();
        Ok(RunPreview { cells: due.len(), time: pass.time(&before, &due) })
    }

    /// Drops unused cells from a record, for all seeds of its runs.
    fn prune(
        &self,
        plan: &Plan,
        path: &Path,
        show: &mut impl FnMut(Event),
    ) -> Result<(), RunError> {
        let headers = RecordFile::read(path)?.headers;
        if headers.is_empty() {
            return Ok(());
        }
        let mut planned = BTreeSet::new();
        let seeds: BTreeSet<u64> = headers.iter().map(|header| header.seed).collect();
        for seed in seeds {
            let cells = plan.cells(&Selection::default(), seed)?;
            planned.extend(cells.into_iter().map(|cell| cell.hash));
        }
        let mut recorder = Recorder::open(path)?;
        let cells = recorder.prune(|hash| planned.contains(hash))?;
        recorder.close()?;
        show(Event::Pruned { cells });
        Ok(())
    }

    /// Reports missing data once, and not for each cell.
    fn check_data(&self, cells: &[&Cell]) -> Result<(), RunError> {
        let usual = simulate::data::usual_folder;
        let folder = self.data.clone().unwrap_or_else(usual);
        let check = |cell: &&Cell| simulate::data::check(&cell.scenario, &folder);
        cells.iter().try_for_each(check).map_err(RunError::Data)
    }

    /// Takes the cells that will run again out of a record; with all cells selected, everything.
    fn drop_old(&self, recorder: &mut Recorder, cells: &[Cell]) -> Result<(), RecordError> {
        if self.selection.is_all() {
            return recorder.retain(|_| false);
        }
        recorder.retain(|line| match line {
            Line::Header(_) => true,
            Line::Cell(old) => !cells.iter().any(|cell| old.is_run_of(&cell.key, cell.seed)),
            Line::Failed(old) => !cells.iter().any(|cell| cell.key == old.key),
        })
    }
}

/// A cell that cannot run, and why.
type Refused<'a> = (&'a Cell, String);

/// One pass over the cells of a plan.
struct Pass<'a> {
    runner: &'a Runner,
    plan: &'a Plan,
    cells: &'a [Cell],
    path: &'a Path,
    is_first: bool,
}

impl Pass<'_> {
    /// The valid part of what was recorded before.
    fn recorded(&self) -> Result<RecordFile, RecordError> {
        let starts_anew = self.runner.fresh && self.is_first;
        if starts_anew { Ok(RecordFile::default()) } else { RecordFile::read(self.path) }
    }

    /// Whether a cell has to run, given the record: in the first pass if it has no result, and in all passes
    /// if it was disturbed.
    fn is_due(&self, before: &RecordFile, failed: &[Failed], cell: &Cell) -> bool {
        let has_failed = failed.iter().any(|failed| failed.hash == cell.hash);
        match before.cells.iter().find(|old| old.hash == cell.hash) {
            Some(old) => {
                self.runner.again && old.is_disturbed() && old.again < MAX_RETRIES && !has_failed
            }
            None => self.is_first,
        }
    }

    /// In how many runs of a cell that is due the emulator was late; none for a first run.
    fn late(before: &RecordFile, cell: &Cell) -> u32 {
        let old = before.cells.iter().find(|old| old.hash == cell.hash);
        old.map_or(0, |old| old.again + 1)
    }

    /// The estimated time of the cells that are due.
    fn time(&self, before: &RecordFile, due: &[&Cell]) -> Duration {
        let cost = |cell: &&Cell| {
            (time_of(&cell.scenario), cores_after(Self::late(before, cell), &cell.scenario))
        };
        Budget::of_this_machine(self.runner.jobs).time(due.iter().map(cost))
    }

    /// The congestion controls of the cells that are due, and the cells that cannot run because one is
    /// missing. The others need not wait for them.
    fn prepare<'b>(&self, due: &[&'b Cell]) -> Result<(Controls, Vec<Refused<'b>>), RunError> {
        self.runner.check_data(due)?;
        let controls = Controls::register(due);
        let refused = due.iter().filter_map(|cell| Some((*cell, controls.refusal(cell)?)));
        let refused: Vec<Refused> = refused.collect();
        match refused.first() {
            Some((_, why)) if refused.len() == due.len() => {
                Err(RunError::Control { plan: self.plan.id.clone(), why: why.clone() })
            }
            _ => Ok((controls, refused)),
        }
    }

    /// Runs the cells that are due. Returns whether it ran any.
    fn run(
        &self,
        show: &mut impl FnMut(Event),
        failed: &mut Vec<Failed>,
    ) -> Result<bool, RunError> {
        let mut before = self.recorded()?;
        // This allows users who have nothing to write to read records of other users.
        let mut recorder = None;
        if self.cells.iter().any(|cell| self.is_due(&before, failed, cell)) {
            recorder = Some(Recorder::open(self.path)?);
            // Another run may have ended since.
            before = self.recorded()?;
        }
        let (due, recorded): (Vec<&Cell>, Vec<&Cell>) =
            self.cells.iter().partition(|cell| self.is_due(&before, failed, cell));
        let header = self.plan.header(&self.runner.program, self.runner.seed);
        let presence = (!due.is_empty()).then(Presence::enter);
        if self.is_first || !due.is_empty() {
            let others = presence.as_ref().map_or(0, Presence::others);
            show(self.planned(&before, &due, &recorded, &header, others));
        }
        let Some(mut recorder) = recorder.filter(|_| !due.is_empty()) else { return Ok(false) };
        let (controls, refused) = match self.prepare(&due) {
            Ok(prepared) => prepared,
            Err(error) => {
                recorder.close()?;
                return Err(error);
            }
        };
        if let Some((_, why)) = refused.first() {
            show(Event::Refused { cells: refused.len(), why: why.clone() });
        }
        if self.runner.fresh && self.is_first {
            self.runner.drop_old(&mut recorder, self.cells)?;
        }
        let mut writer =
            Writer { recorder, before: &before, commit: header.commit.clone(), failed };
        if self.is_first {
            writer.recorder.write(&Line::Header(header))?;
        }
        for (cell, error) in &refused {
            writer.refused(cell, error)?;
        }
        let data = self.runner.data.as_deref();
        let can_run = |cell: &&&Cell| refused.iter().all(|(other, _)| other.hash != cell.hash);
        let due = due.iter().filter(can_run).map(|cell| {
            let order = Order::new(self.plan, cell, controls.names(cell), data, self.runner.again);
            DueCell { order, late: Self::late(&before, cell) }
        });
        let budget = Budget::of_this_machine(self.runner.jobs);
        schedule::run(due.collect(), &self.runner.isolation, &budget, |step| {
            match step {
                Step::Began { key } => show(Event::Began { key }),
                Step::Ended { key, hash, result, left } => {
                    let result = result.map_err(|error| chain(&error));
                    let failure = result.as_ref().err().cloned();
                    writer.ended(&key, hash, result)?;
                    show(Event::Ended { key, failure, left });
                }
            }
            Ok(())
        })?;
        Ok(true)
    }

    /// The event before the first cell runs.
    fn planned(
        &self,
        before: &RecordFile,
        due: &[&Cell],
        recorded: &[&Cell],
        header: &Header,
        others: usize,
    ) -> Event {
        let old = |cell: &&Cell| before.cells.iter().find(|old| old.hash == cell.hash);
        let older = recorded.iter().filter_map(old).filter(|old| old.commit != header.commit);
        let older: Vec<&CellRecord> = older.collect();
        Event::Planned {
            recorded: recorded.len(),
            cells: due.len(),
            disturbed: due.iter().filter_map(old).count(),
            time: self.time(before, due),
            older: older.first().map(|first| {
                let commit = first.commit.clone();
                (older.len(), commit.unwrap_or_else(|| "unknown".to_owned()))
            }),
            others,
        }
    }
}

/// Writes the results of the cells of a pass.
struct Writer<'a> {
    recorder: Recorder,
    /// The record before the pass.
    before: &'a RecordFile,
    /// The commit of this program.
    commit: Option<String>,
    failed: &'a mut Vec<Failed>,
}

impl Writer<'_> {
    /// A cell cannot run.
    fn refused(&mut self, cell: &Cell, error: &str) -> Result<(), RecordError> {
        let (key, hash, error) = (cell.key.clone(), cell.hash.clone(), error.to_owned());
        let line = Failed { key, hash, error };
        // A cell that ran before has a result, even if in doubt.
        if self.before.cells.iter().all(|old| old.hash != cell.hash) {
            self.recorder.write(&Line::Failed(line.clone()))?;
        }
        self.failed.push(line);
        Ok(())
    }

    /// A cell has ended.
    fn ended(
        &mut self,
        key: &str,
        hash: String,
        result: Result<Box<CellRecord>, String>,
    ) -> Result<(), RecordError> {
        // Results of another program are not written below this program's header.
        let old = self.before.cells.iter().find(|old| old.hash == hash);
        let old = old.filter(|old| old.commit == self.commit);
        let line = match (result, old) {
            (Ok(new), None) => Line::Cell(new),
            (Ok(new), Some(old)) => Line::Cell(Box::new(less_late(*new, old))),
            // It has a result, even if in doubt.
            (Err(_), Some(old)) => Line::Cell(Box::new(less_late(old.clone(), old))),
            (Err(error), None) => {
                let line = Failed { key: key.to_owned(), hash, error };
                self.failed.push(line.clone());
                Line::Failed(line)
            }
        };
        self.recorder.write(&line)
    }
}

/// Of two runs of a cell, the one in which the emulator was less late.
fn less_late(new: CellRecord, old: &CellRecord) -> CellRecord {
    let kept = if new.late_ms() < old.late_ms() { new } else { old.clone() };
    CellRecord { again: old.again + 1, ..kept }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::PhaseRecord;
    use lull_emulator::Spread;

    fn late(p99_ms: f64, again: u32) -> CellRecord {
        let timing_error = Some(Spread { p99_ms, ..Spread::default() });
        let phase = PhaseRecord { timing_error, ..PhaseRecord::default() };
        CellRecord { phases: vec![phase], again, ..CellRecord::default() }
    }

    #[test]
    fn less_late_run_of_a_cell_is_kept_and_runs_counted() {
        for (new, old, kept) in [(0.2, 1.5, 0.2), (2.0, 1.5, 1.5), (1.5, 1.5, 1.5)] {
            let record = less_late(late(new, 0), &late(old, 1));
            assert_eq!((record.late_ms(), record.again), (kept, 2), "{new} {old}");
        }
    }
}
