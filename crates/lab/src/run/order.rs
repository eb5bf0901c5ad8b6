//! The data that a process needs to run a cell.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cost::{limit_of, stay_on};
use crate::plan::{Cell, Invalid, Plan, Scenario, ScenarioError};
use crate::simulate::{self, SimulateError};
use lull_emulator::traffic::TrafficError;

/// Why a cell failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// The network.
    #[error(transparent)]
    Network(#[from] lull_emulator::Error),
    /// The traffic.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The simulator, or its data.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// The scenario is invalid.
    #[error("the cell is invalid: {0}")]
    Scenario(String),
    /// The scenario cannot be read.
    #[error("the cell makes no sense")]
    Written(#[from] ScenarioError),
    /// A congestion control is invalid.
    #[error("the cell makes no sense")]
    Control(#[from] Invalid),
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
    /// SHA-256 of everything that decides its behaviour.
    pub hash: String,
    pub(super) values: Map<String, Value>,
    pub(super) repetition: u32,
    pub(super) seed: u64,
    pub(super) scenario: Value,
    /// The kernel's names of the plan's own controls.
    pub(super) controls: BTreeMap<String, String>,
    /// The interval of the recorded time series, in milliseconds.
    pub(super) series_ms: Option<u64>,
    /// The `lull` that runs programs in the background.
    pub(super) lull: Option<PathBuf>,
    /// The folder of data with the simulator's logs.
    pub(super) data: PathBuf,
    /// Measure phases again in which a hypervisor took processor time.
    pub(super) again: bool,
    /// The processor that it is pinned to.
    pub(super) processor: Option<usize>,
}

/// The program `lull` beside this one, which is `lull-lab`. Without one, this program.
fn lull() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name("lull")).filter(|lull| lull.is_file()).or(Some(own))
}

impl Order {
    /// The order for a cell. `controls` are the kernel's names of the plan's own controls. `data` is the
    /// folder of data, if it is not the usual one. `again` says whether phases in which a hypervisor took
    /// processor time are measured again.
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

    /// Pins this process and its children to the processor that the cell was given. Call it from the only
    /// thread of a process that exists for the cell.
    pub fn take_place(&self) {
        if let Some(processor) = self.processor {
            stay_on(processor);
        }
    }

    pub(super) fn identity(&self) -> simulate::Identity {
        simulate::Identity {
            key: self.key.clone(),
            hash: self.hash.clone(),
            values: self.values.clone(),
            repetition: self.repetition,
            seed: self.seed,
            keep_series: self.series_ms.map(Duration::from_millis),
        }
    }

    /// The scenario.
    ///
    /// # Errors
    /// If it is invalid: the order was not made by [`Order::new`].
    pub fn scenario(&self) -> Result<Scenario, CellError> {
        Ok(Scenario::of(&self.scenario, &self.values)?)
    }

    /// Its time limit, after which something is wrong with it.
    pub(super) fn limit(&self) -> Duration {
        self.scenario().map_or(Duration::ZERO, |scenario| limit_of(&scenario))
    }

    /// Whether it needs no kernel.
    pub fn is_simulated(&self) -> bool {
        self.scenario().is_ok_and(|scenario| scenario.is_simulated())
    }
}
