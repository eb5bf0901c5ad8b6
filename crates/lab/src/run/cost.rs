//! What cells cost, and how many run at once.

use std::time::Duration;

use super::MOST_AGAIN;
use crate::plan::{Capacity, Network, Scenario, Simulated};
use crate::record;

/// How much of the machine a run may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Cores' worth of cells at once.
    pub cores: f64,
    /// Cells at once.
    pub jobs: usize,
}

impl Budget {
    /// The share of the processors that cells may take: an emulator that has to wait for one
    /// delivers late.
    const SHARE: f64 = 0.8;

    /// Four fifths of this machine, or so many jobs.
    pub fn of_this_machine(jobs: Option<usize>) -> Self {
        match jobs {
            Some(jobs) => Budget { cores: f64::INFINITY, jobs: jobs.max(1) },
            None => {
                let cores = record::cores();
                Budget { cores: Self::SHARE * cores as f64, jobs: cores.max(32) }
            }
        }
    }

    /// Whether a cell may begin beside others.
    pub(super) fn carries(&self, running: usize, taken: f64, cell: f64) -> bool {
        let is_alone = taken.is_infinite() || cell.is_infinite();
        running == 0 || (!is_alone && running < self.jobs && taken + cell <= self.cores + 1e-9)
    }
}

/// Cores that a cell takes while it runs: emulator, traffic and TCP of both sides. Measured were
/// 0.05 at 10 Mbit/s and 0.35 at 100 Mbit/s; the rest is for what the kernel does in interrupts,
/// which is counted for nobody.
pub fn cores_of(scenario: &Scenario) -> f64 {
    match &scenario.topology {
        Network::Emulated(emulated) => {
            0.03 + 0.0045 * emulated.rate.value.bits_per_second() as f64 / 1e6
        }
        // A processor of those that cells may take: as many as there are, if nothing is emulated
        // beside them that would have to wait.
        Network::Simulated(_) => Budget::SHARE,
        // Whatever ran beside it would be counted.
        Network::Wire => f64::INFINITY,
    }
}

/// Processor time for a packet that crosses the bottleneck, with its acknowledgement and with what
/// hosts and access links do. Measured were 0.6 to 0.7 µs for a few dozen flows; the rest is for a
/// machine that does other things as well.
const PACKET: Duration = Duration::from_nanos(1200);
/// What a link is taken for whose rate depends on a log that nobody has read yet.
const DEMAND: f64 = 1e6;

/// About how long a simulated cell takes: as if the link were busy all the time.
fn simulating(network: &Simulated, scenario: &Scenario) -> Duration {
    let rate = match &network.capacity {
        Capacity::Rate(rate) => rate.value.bits_per_second() as f64,
        Capacity::Demand { spare, .. } => DEMAND * (1.0 + spare),
    };
    let packets = rate / 8.0 / f64::from(network.packet) * scenario.duration().as_secs_f64();
    PACKET.mul_f64(packets) + Duration::from_millis(100)
}

/// About how long a cell takes.
pub(super) fn time_of(scenario: &Scenario) -> Duration {
    match &scenario.topology {
        Network::Simulated(network) => simulating(network, scenario),
        Network::Emulated(_) | Network::Wire => scenario.duration() + OVERHEAD,
    }
}

/// How long a cell may take before it is ended: something is wrong with it.
pub(super) fn limit_of(scenario: &Scenario) -> Duration {
    match &scenario.topology {
        // A machine may be slow and busy, and thousands of flows wait for memory.
        Network::Simulated(network) => {
            simulating(network, scenario) * 50 + Duration::from_secs(600)
        }
        Network::Emulated(_) | Network::Wire => {
            let measured: Duration =
                scenario.phases.iter().map(|phase| phase.measure.value.0).sum();
            (scenario.duration() + measured * MOST_AGAIN).mul_f64(1.1) + Duration::from_secs(30)
        }
    }
}

/// How long a cell takes besides its phases: its process and its hosts have to be made.
const OVERHEAD: Duration = Duration::from_millis(500);

/// About how long it takes to run cells within a budget.
pub fn estimate<'a>(scenarios: impl Iterator<Item = &'a Scenario>, budget: &Budget) -> Duration {
    let mut work = 0.0;
    let mut slots = 0.0;
    let mut longest = Duration::ZERO;
    for scenario in scenarios {
        let time = time_of(scenario);
        // A cell that is dearer than the budget still runs, alone.
        let cores = cores_of(scenario);
        work += time.as_secs_f64() * cores.min(budget.cores);
        let jobs = if cores.is_infinite() { budget.jobs as f64 } else { 1.0 };
        slots += time.as_secs_f64() * jobs;
        longest = longest.max(time);
    }
    let by_cores = if budget.cores.is_finite() { work / budget.cores } else { 0.0 };
    let by_jobs = slots / budget.jobs as f64;
    longest.max(Duration::from_secs_f64(by_cores.max(by_jobs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cell_always_runs_and_others_as_far_as_the_budget_goes() {
        let budget = Budget { cores: 1.6, jobs: 3 };
        assert!(budget.carries(0, 0.0, 4.0));
        assert!(budget.carries(1, 0.6, 1.0));
        assert!(!budget.carries(1, 0.7, 1.0));
        assert!(!budget.carries(3, 0.1, 0.1));
        assert!(!budget.carries(1, 0.1, f64::INFINITY) && !budget.carries(1, f64::INFINITY, 0.1));
        let jobs = Budget::of_this_machine(Some(2));
        assert!(jobs.carries(1, 100.0, 1.0) && !jobs.carries(2, 0.0, 0.0));
    }
}
