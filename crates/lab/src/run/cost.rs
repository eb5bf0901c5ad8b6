//! The cost of cells, and how many run at once.

use std::time::Duration;

use lull_emulator::provenance::processors;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::MAX_RETRIES;
use crate::plan::{Capacity, Network, Scenario, Simulated};

/// How much of the machine a run may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// The usable processors.
    processors: Vec<usize>,
    /// The share of each of them that cells may use.
    share: f64,
    /// Cells at once.
    jobs: usize,
}

/// The processor of a running cell, and its use of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreUse {
    pub(super) processor: Option<usize>,
    pub(super) cores: f64,
}

impl Budget {
    /// The share of a processor that cells may use. On a busier one, packets and their acknowledgements wait
    /// for the processor rather than for the link.
    const SHARE: f64 = 0.75;

    /// Three quarters of each processor that this process may use, or this many jobs.
    pub fn of_this_machine(jobs: Option<usize>) -> Self {
        let processors = processors();
        match jobs {
            Some(jobs) => Budget { processors, share: f64::INFINITY, jobs: jobs.max(1) },
            None => {
                let jobs = processors.len().max(32);
                Budget { processors, share: Self::SHARE, jobs }
            }
        }
    }

    /// The total capacity for cells, in processors.
    fn cores(&self) -> f64 {
        self.share * self.processors.len() as f64
    }

    /// Where a cell of this cost may run; none if it has to wait. A cell that needs more than the share of
    /// one processor runs alone, on all of them.
    ///
    /// A cell stays on the processor with most capacity left. Its sender, its receiver and the emulator take
    /// turns anyway. On a virtual machine each of them would have to wake the other processor: the same cell
    /// at 100 Mbit/s took 0.55 of one processor, and 0.78 of two.
    pub(super) fn place(&self, running: &[CoreUse], cores: f64) -> Option<Option<usize>> {
        // Regardless of the number of jobs: on one processor it would measure itself.
        if cores > Self::SHARE {
            return running.is_empty().then_some(None);
        }
        // A cell that was too expensive for one processor has all of them.
        let has_all = running.iter().any(|cell| cell.processor.is_none());
        if has_all || running.len() >= self.jobs {
            return None;
        }
        let taken = |processor: usize| -> f64 {
            let there = running.iter().filter(|cell| cell.processor == Some(processor));
            there.map(|cell| cell.cores).sum()
        };
        let least =
            self.processors.iter().copied().min_by(|a, b| taken(*a).total_cmp(&taken(*b)))?;
        (taken(least) + cores <= self.share + 1e-9).then_some(Some(least))
    }
}

/// Pins this process and its children to a processor.
pub(super) fn stay_on(processor: usize) {
    let mut only = CpuSet::new();
    if only.set(processor).is_ok() {
        // If that is not allowed, it still runs.
        let _ = sched_setaffinity(Pid::from_raw(0), &only);
    }
}

/// The part of a processor that a cell uses while it runs beside others: emulator, traffic and TCP of both
/// sides. Measured were 0.055 at 10 Mbit/s and 0.35 at 100 Mbit/s, including the kernel's interrupts. Two
/// cells of 100 Mbit/s and four of 10 on one processor delivered one packet in a hundred 0.2 to 0.4 ms late.
pub fn cores_of(scenario: &Scenario) -> f64 {
    match &scenario.topology {
        Network::Emulated(emulated) => {
            let carrying = 0.02 + 0.0035 * emulated.rate.value.bits_per_second() as f64 / 1e6;
            carrying + emulated.processors
        }
        // The share of one processor. As many run as there are processors, if no emulated cell runs beside
        // them that would have to wait.
        Network::Simulated(_) | Network::None { processors: None } => Budget::SHARE,
        Network::None { processors: Some(processors) } => *processors,
        // Anything beside it would be counted.
        Network::Wire => f64::INFINITY,
    }
}

/// The same for a cell whose emulator was late in this many runs. It needs more of this machine than
/// estimated, so half as many run at once in the first repeated run, a quarter in the second.
pub(super) fn cores_after(late: u32, scenario: &Scenario) -> f64 {
    assert!(late <= MAX_RETRIES, "a cell is run again no more than {MAX_RETRIES} times");
    cores_of(scenario) * f64::from(1_u32 << late)
}

/// Processor time for a packet that crosses the bottleneck, with its acknowledgement and the work of hosts
/// and access links. Measured were 0.6 to 0.7 µs for a few dozen flows; the rest is a reserve for busy
/// machines.
const PACKET: Duration = Duration::from_nanos(1200);
/// The assumed rate of a link whose rate depends on a log that has not been read yet.
const DEMAND: f64 = 1e6;

/// The estimated time of a simulated cell, as if the link were always busy.
fn simulating(network: &Simulated, scenario: &Scenario) -> Duration {
    let rate = match &network.capacity {
        Capacity::Rate(rate) => rate.value.bits_per_second() as f64,
        Capacity::Demand { spare, .. } => DEMAND * (1.0 + spare),
    };
    let packets = rate / 8.0 / f64::from(network.packet) * scenario.duration().as_secs_f64();
    // If there are several bottlenecks in a row, each is filled.
    PACKET.mul_f64(packets * network.bottlenecks as f64) + Duration::from_millis(100)
}

/// The estimated time of a cell.
pub(super) fn time_of(scenario: &Scenario) -> Duration {
    match &scenario.topology {
        Network::Simulated(network) => simulating(network, scenario),
        Network::Emulated(_) | Network::Wire => scenario.duration() + OVERHEAD,
        // The time limits of programs are meant for slow machines.
        Network::None { .. } => scenario.duration() / 10,
    }
}

/// The time limit of a cell: after that, something is wrong with it.
pub(super) fn limit_of(scenario: &Scenario) -> Duration {
    match &scenario.topology {
        // A machine may be slow and busy, and thousands of flows wait for memory.
        Network::Simulated(network) => {
            simulating(network, scenario) * 50 + Duration::from_secs(600)
        }
        Network::Emulated(_) | Network::Wire => {
            let measured: Duration =
                scenario.phases.iter().map(|phase| phase.measure.value.0).sum();
            (scenario.duration() + measured * MAX_RETRIES).mul_f64(1.1) + Duration::from_secs(30)
        }
        Network::None { .. } => scenario.duration() + Duration::from_secs(30),
    }
}

/// The time of a cell besides its phases, to make its process and its hosts.
const OVERHEAD: Duration = Duration::from_millis(500);

/// The estimated time to run cells within a budget.
pub fn estimate<'a>(scenarios: impl Iterator<Item = &'a Scenario>, budget: &Budget) -> Duration {
    budget.time(scenarios.map(|scenario| (time_of(scenario), cores_of(scenario))))
}

impl Budget {
    /// The estimated time of cells of these durations and costs.
    pub(super) fn time(&self, cells: impl Iterator<Item = (Duration, f64)>) -> Duration {
        let mut work = 0.0;
        let mut slots = 0.0;
        let mut longest = Duration::ZERO;
        for (time, cores) in cells {
            // A cell that costs more than the budget still runs, alone.
            work += time.as_secs_f64() * cores.min(self.cores());
            let jobs = if cores.is_infinite() { self.jobs as f64 } else { 1.0 };
            slots += time.as_secs_f64() * jobs;
            longest = longest.max(time);
        }
        let by_cores = if self.share.is_finite() { work / self.cores() } else { 0.0 };
        let by_jobs = slots / self.jobs as f64;
        longest.max(Duration::from_secs_f64(by_cores.max(by_jobs)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(cells: &[(Option<usize>, f64)]) -> Vec<CoreUse> {
        cells.iter().map(|&(processor, cores)| CoreUse { processor, cores }).collect()
    }

    #[test]
    fn cell_goes_to_the_least_loaded_processor() {
        let budget = Budget { processors: vec![3, 5], share: 0.8, jobs: 4 };
        let place = |running: &[(Option<usize>, f64)], cores| budget.place(&taken(running), cores);
        assert_eq!(place(&[], 0.4), Some(Some(3)));
        assert_eq!(place(&[(Some(3), 0.4)], 0.4), Some(Some(5)));
        assert_eq!(place(&[(Some(3), 0.4), (Some(5), 0.3)], 0.5), Some(Some(5)));
        assert_eq!(place(&[(Some(3), 0.4), (Some(5), 0.4)], 0.5), None);
        assert_eq!(place(&[(Some(3), 0.1); 4], 0.1), None, "four at once are enough");
    }

    #[test]
    fn cell_too_costly_for_a_processor_runs_alone() {
        let budget = Budget { processors: vec![0, 1], share: 0.8, jobs: 4 };
        for cores in [0.9, 4.0, f64::INFINITY] {
            assert_eq!(budget.place(&[], cores), Some(None));
            assert_eq!(budget.place(&taken(&[(Some(0), 0.1)]), cores), None);
            assert_eq!(budget.place(&taken(&[(None, cores)]), 0.1), None);
        }
    }

    #[test]
    fn cell_cost_is_that_of_link_and_programs() {
        let cores = |keys: &str| {
            let text = format!(
                "id = 'test'\ntitle = 'A test'\n[paper]\nsource = '§'\nstatement = '…'\n\
                 [topology]\nrate = '20mbit'\nrtt = '10ms'\n{keys}\n\
                 [[groups]]\nname = 'one'\nkind = 'bulk'\ncontrol = 'reno'\nphases = ['p']\n\
                 [[phases]]\nname = 'p'\nsettle = '0s'\nmeasure = '1s'"
            );
            let plan = crate::plan::Plan::parse("test.toml", &text, false);
            let cells = plan.and_then(|plan| plan.cells(&crate::plan::Selection::default(), 1));
            cells.map(|cells| cores_of(&cells[0].scenario)).map_err(|error| error.to_string())
        };
        assert!((cores("").unwrap() - 0.09).abs() < 1e-9);
        assert!((cores("processors = 1.5").unwrap() - 1.59).abs() < 1e-9);
        let error = cores("processors = -1").unwrap_err();
        assert!(error.contains("write a number from 0 to 1000"), "{error}");
        let error = cores("kind = 'simulator'\nprocessors = 1").unwrap_err();
        assert!(error.contains("belongs to an emulated link"), "{error}");
        let error = cores("kind = 'none'\nprocessors = 1").unwrap_err();
        assert!(error.contains("only the keys 'kind' and 'processors'"), "{error}");
    }

    #[test]
    fn late_cells_are_repeated_with_half_as_many_at_once() {
        let budget = Budget { processors: vec![0, 1], share: 0.75, jobs: 32 };
        let text = "id = 'test'\ntitle = 'A test'\n[paper]\nsource = '§'\nstatement = '…'\n\
             [topology]\nrate = '10mbit'\nrtt = '10ms'\n\
             [[groups]]\nname = 'one'\nkind = 'bulk'\ncontrol = 'reno'\nphases = ['p']\n\
             [[phases]]\nname = 'p'\nsettle = '0s'\nmeasure = '1s'";
        let plan = crate::plan::Plan::parse("test.toml", text, false).unwrap();
        let cells = plan.cells(&crate::plan::Selection::default(), 1).unwrap();
        let at_once = |late| {
            let cores = cores_after(late, &cells[0].scenario);
            let mut running = Vec::new();
            while let Some(processor) = budget.place(&running, cores) {
                running.push(CoreUse { processor, cores });
            }
            running.len()
        };
        assert_eq!([0, 1, 2].map(at_once), [26, 12, 6]);
    }

    #[test]
    fn cells_take_turns_on_processors_with_jobs_option() {
        let budget = Budget { processors: vec![0, 1], share: f64::INFINITY, jobs: 3 };
        assert_eq!(budget.place(&taken(&[(Some(0), 0.4)]), 0.5), Some(Some(1)));
        assert_eq!(budget.place(&taken(&[(Some(0), 0.4), (Some(1), 0.5)]), 0.5), Some(Some(0)));
        assert_eq!(budget.place(&taken(&[(Some(0), 0.4); 3]), 0.1), None);
    }

    #[test]
    fn costly_cell_runs_alone_with_jobs_option() {
        let budget = Budget { processors: vec![0, 1], share: f64::INFINITY, jobs: 3 };
        for cores in [0.9, f64::INFINITY] {
            assert_eq!(budget.place(&[], cores), Some(None));
            assert_eq!(budget.place(&taken(&[(Some(0), 0.1)]), cores), None);
            assert_eq!(budget.place(&taken(&[(None, cores)]), 0.1), None);
        }
    }
}
