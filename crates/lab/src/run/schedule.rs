//! The order in which cells run.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use super::cost::{Budget, CoreUse, cores_after, time_of};
use super::order::{CellError, Order};
use super::process::{self, ProcessError};
use super::{CellEnvironment, Isolation, RunError, cell};
use crate::plan::Scenario;
use crate::record::CellRecord;

/// The progress of a cell.
pub(super) enum Step {
    Began {
        key: String,
    },
    Ended {
        key: String,
        hash: String,
        result: Result<Box<CellRecord>, NoRecord>,
        /// The estimated time of the others.
        left: Duration,
    },
}

/// Why a cell has no record.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoRecord {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Cell(#[from] CellError),
}

/// A cell to run.
pub(super) struct DueCell {
    pub(super) order: Order,
    /// In how many earlier runs of it the emulator was late.
    pub(super) late: u32,
}

struct Waiting {
    order: Order,
    scenario: Scenario,
    cores: f64,
}

impl Waiting {
    fn work(&self) -> f64 {
        self.cores * time_of(&self.scenario).as_secs_f64()
    }
}

struct Running {
    order: Order,
    scenario: Scenario,
    since: Instant,
    taken: CoreUse,
}

/// Runs all due cells, as many at once as the budget allows. The first that fits is next: expensive cells do
/// not delay cheap ones behind them, and start in their turn when there is room.
pub(super) fn run(
    due: Vec<DueCell>,
    isolation: &Isolation,
    budget: &Budget,
    mut step: impl FnMut(Step) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let (ended, results) = channel();
    let mut waiting: Vec<Waiting> = Vec::new();
    for DueCell { order, late } in due {
        let scenario = order.scenario().expect("plans are checked when they are read");
        let cores = cores_after(late, &scenario);
        waiting.push(Waiting { order, scenario, cores });
    }
    // The most expensive first: small ones at the end fill the gaps.
    waiting.sort_by(|a, b| b.work().total_cmp(&a.work()));
    let mut running: Vec<Running> = Vec::new();
    thread::scope(|scope| {
        while !waiting.is_empty() || !running.is_empty() {
            loop {
                let taken: Vec<CoreUse> = running.iter().map(|cell| cell.taken).collect();
                let fits = waiting.iter().enumerate().find_map(|(at, next)| {
                    let cores = next.cores;
                    Some((at, CoreUse { processor: budget.place(&taken, cores)?, cores }))
                });
                let Some((next, taken)) = fits else { break };
                let Waiting { mut order, scenario, .. } = waiting.remove(next);
                order.processor = taken.processor;
                step(Step::Began { key: order.key.clone() })?;
                let (ended, job) = (ended.clone(), order.clone());
                scope.spawn(move || {
                    let result = match isolation {
                        Isolation::Processes(lull) => {
                            process::run(lull, &job).map_err(NoRecord::from)
                        }
                        Isolation::Threads => {
                            cell::run_cell(&job, &CellEnvironment::shared(), &mut ())
                                .map_err(NoRecord::from)
                        }
                    };
                    // Fails only if the receiver has gone.
                    let _ = ended.send((job.hash, result));
                });
                running.push(Running { order, scenario, since: Instant::now(), taken });
            }
            assert!(!running.is_empty(), "a cell that waits for none always has a place");
            let (hash, result) = results.recv().expect("a sender is kept");
            let Some(at) = running.iter().position(|cell| cell.order.hash == hash) else {
                continue;
            };
            let Running { order, .. } = running.swap_remove(at);
            let left = time_left(&waiting, &running, budget);
            step(Step::Ended { key: order.key, hash, result: result.map(Box::new), left })?;
        }
        Ok(())
    })
}

fn time_left(waiting: &[Waiting], running: &[Running], budget: &Budget) -> Duration {
    let rest = |cell: &Running| time_of(&cell.scenario).saturating_sub(cell.since.elapsed());
    let longest = running.iter().map(rest).max().unwrap_or_default();
    let begun = running.iter().map(|cell| (rest(cell), cell.taken.cores));
    let others = waiting.iter().map(|cell| (time_of(&cell.scenario), cell.cores));
    longest.max(budget.time(begun.chain(others)))
}
