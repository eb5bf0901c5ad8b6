//! One cell: makes the network, conducts the traffic through the phases, and measures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cost::{limit_of, stay_on};
use super::network::Network;
use super::processor::process_time;
use super::stage::Stage;
use super::{Surroundings, bare};
use crate::measure::{Observed, ObservedPhase, measure};
use crate::plan::{self, Cell, Phase, Plan, Scenario};
use crate::record::{CellRecord, rounded};
use crate::simulate::{self, SimulateError};
use lull_emulator::traffic::TrafficError;

/// The interval of the emulator's time series.
const SERIES: Duration = Duration::from_millis(100);

/// Why a cell could not be run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// The network.
    #[error(transparent)]
    Network(#[from] lull_emulator::Error),
    /// The traffic.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The simulator, or the data it needs.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// What is to be run makes no sense.
    #[error("the cell makes no sense: {0}")]
    Scenario(String),
    /// The machine was too slow.
    #[error(
        "this machine was too slow and lost {0} packets before the bottleneck: run fewer cells at \
         once (--jobs), or a lower rate"
    )]
    TooSlow(u64),
}

/// All that a process needs to run a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Its name within the plan.
    pub key: String,
    /// SHA-256 of all that decides what it does.
    pub hash: String,
    values: Map<String, Value>,
    repetition: u32,
    pub(super) seed: u64,
    scenario: Value,
    /// What the kernel calls the plan's own controls.
    pub(super) controls: BTreeMap<String, String>,
    /// The interval of the series to keep, in milliseconds.
    series_ms: Option<u64>,
    /// The `lull` that runs programs in the background.
    pub(super) lull: Option<PathBuf>,
    /// The folder of data that the simulator reads logs from.
    pub(super) data: PathBuf,
    /// Measure phases again in which a hypervisor took the processors.
    pub(super) again: bool,
    /// The processor that it stays on.
    pub(super) processor: Option<usize>,
}

/// How a cell goes, twice a second.
#[derive(Clone, Debug)]
pub struct Tick<'a> {
    /// The phase.
    pub phase: &'a Phase,
    /// Time since the phase began.
    pub since: Duration,
    /// Whether it is being measured.
    pub is_measured: bool,
    /// The groups that are there: names, and goodput on the link in Mbit/s since the last tick
    /// and since the phase began or its measuring did.
    pub groups: Vec<(&'a str, f64, f64)>,
    /// Median queueing delay at the bottleneck in milliseconds, since the same time.
    pub queueing_ms: Option<f64>,
}

/// Is told how a cell goes.
pub trait Watch {
    /// Half a second has passed.
    fn tick(&mut self, tick: &Tick<'_>);

    /// Whether it wants to be told at all.
    fn is_watching(&self) -> bool {
        true
    }
}

/// Nobody watches.
impl Watch for () {
    fn tick(&mut self, _: &Tick<'_>) {}

    fn is_watching(&self) -> bool {
        false
    }
}

/// The program `lull` beside this one, which is `lull-lab`. Without one, this program.
fn lull() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name("lull")).filter(|lull| lull.is_file()).or(Some(own))
}

impl Order {
    /// The order for a cell; `controls` is what the kernel calls the plan's own controls, `data` the
    /// folder of data, if it is not the usual one, and `again` whether phases in which a hypervisor
    /// took the processors are measured again.
    pub fn new(
        plan: &Plan,
        cell: &Cell,
        controls: BTreeMap<String, String>,
        data: Option<&Path>,
        again: bool,
    ) -> Self {
        Order {
            key: cell.key.clone(),
            hash: cell.hash.clone(),
            values: cell.values.clone(),
            repetition: cell.repetition,
            seed: cell.seed,
            scenario: cell.written.clone(),
            controls,
            series_ms: plan.series.map(|series| series.as_millis() as u64),
            lull: lull(),
            data: data.map_or_else(simulate::data::usual_folder, Path::to_owned),
            again,
            processor: None,
        }
    }

    /// Keeps this process, and all that it starts, on the processor that the cell was given. To be
    /// called by the only thread of a process that is there for the cell.
    pub fn take_place(&self) {
        if let Some(processor) = self.processor {
            stay_on(processor);
        }
    }

    fn identity(&self) -> simulate::Identity {
        simulate::Identity {
            key: self.key.clone(),
            hash: self.hash.clone(),
            values: self.values.clone(),
            repetition: self.repetition,
            seed: self.seed,
            keep_series: self.series_ms.map(Duration::from_millis),
        }
    }

    /// What is to be done.
    ///
    /// # Errors
    /// If it makes no sense: the order was not made by [`Order::new`].
    pub fn scenario(&self) -> Result<Scenario, CellError> {
        Scenario::of(&self.scenario, &self.values).map_err(CellError::Scenario)
    }

    /// How long it may take before something is wrong with it.
    pub(super) fn limit(&self) -> Duration {
        self.scenario().map_or(Duration::ZERO, |scenario| limit_of(&scenario))
    }

    /// Whether it needs nothing of the kernel.
    pub fn is_simulated(&self) -> bool {
        self.scenario().is_ok_and(|scenario| scenario.is_simulated())
    }
}

/// Runs a cell in this process.
///
/// # Errors
/// [`CellError`]. Whatever was made is gone then.
pub fn conduct(
    order: &Order,
    surroundings: &Surroundings<'_>,
    watch: &mut dyn Watch,
) -> Result<CellRecord, CellError> {
    let begin = Instant::now();
    let scenario = order.scenario()?;
    if let plan::Network::Simulated(network) = &scenario.topology {
        return Ok(simulate::conduct(order.identity(), &scenario, network, &order.data)?);
    }
    if let plan::Network::None { .. } = scenario.topology {
        return Ok(CellRecord {
            key: order.key.clone(),
            hash: order.hash.clone(),
            values: order.values.clone(),
            repetition: order.repetition,
            seed: order.seed,
            phases: bare::phases(order, &scenario)?,
            ..CellRecord::default()
        });
    }
    let network = Network::make(&scenario.topology, SERIES, order.seed)?;
    let mut stage = Stage::set(order, &scenario, &network, surroundings)?;
    let phases = scenario.phases.iter().map(|phase| stage.phase(&network, phase, watch)).collect();
    let phases: Vec<ObservedPhase> = match phases {
        Ok(phases) => phases,
        // Whoever ended early says why.
        Err(CellError::Traffic(TrafficError::Stopped)) => {
            return Err(stage.close().err().unwrap_or(TrafficError::Stopped.into()));
        }
        Err(CellError::Network(lull_emulator::Error::Stopped)) => {
            return Err(network.finish().err().unwrap_or(lull_emulator::Error::Stopped).into());
        }
        Err(error) => return Err(error),
    };
    stage.close()?;
    let record = network.finish()?;
    let overruns = record.as_ref().map_or(0, |record| record.overruns);
    if overruns > 0 {
        return Err(CellError::TooSlow(overruns));
    }
    let emulator_cpu_s = record.as_ref().map_or(0.0, |record| record.cpu_s);
    let observed = Observed {
        begin,
        hosts: stage.hosts,
        groups: scenario.groups,
        phases,
        record,
        keep_series: order.series_ms.map(Duration::from_millis),
    };
    let (link, phases) = measure(&observed);
    Ok(CellRecord {
        key: order.key.clone(),
        hash: order.hash.clone(),
        values: order.values.clone(),
        repetition: order.repetition,
        seed: order.seed,
        duration_s: rounded(begin.elapsed().as_secs_f64()),
        link,
        phases,
        cpu_s: rounded(process_time().as_secs_f64()),
        emulator_cpu_s: rounded(emulator_cpu_s),
        load: load(),
        ..CellRecord::default()
    })
}

/// The load of one minute, of proc(5).
fn load() -> f64 {
    std::fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0.0)
}
