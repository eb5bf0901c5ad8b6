//! Cells over the packet simulator: no kernel, no clock, and the same results on every machine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lull_cc::Timestamp;

mod build;
mod controllers;
pub(crate) mod data;
mod log;
mod measure;

use build::Stage;
use measure::RunObservations;

use crate::plan::{Scenario, Simulated};
use crate::record::{CellRecord, CostRecord, SimulationRecord, rounded};

/// Why a simulation of a cell failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// A file of data cannot be read.
    #[error("the data {path} cannot be read: {source}: name its folder (--data DIR)")]
    Data {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The contents of a data file are invalid.
    #[error("{path}:{line}: {why}: is this another file (--data DIR)?")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The reason.
        why: String,
    },
    /// The contents of a file of sizes are invalid.
    #[error("{path}: {why}: is this another file (--data DIR)?")]
    Sizes {
        /// The file.
        path: PathBuf,
        /// The reason, and where.
        why: String,
    },
    /// A section of a log has no documents.
    #[error("the section from {from:?} of {log} has no documents: choose another ('begin')")]
    Empty {
        /// The log.
        log: String,
        /// The beginning of the section.
        from: Duration,
    },
    /// The simulator has a fault.
    #[error("the simulator has created or lost a packet: this is a bug of Lull")]
    Conservation,
    /// A congestion control is invalid, and was not checked.
    #[error(transparent)]
    Control(#[from] crate::plan::Invalid),
    /// The plan is invalid, and was not checked.
    #[error("the cell is invalid: {0}")]
    Scenario(String),
}

/// The part of a cell's record that is not measured.
pub(crate) struct Identity {
    pub(crate) key: String,
    pub(crate) hash: String,
    pub(crate) values: serde_json::Map<String, serde_json::Value>,
    pub(crate) repetition: u32,
    pub(crate) seed: u64,
    /// The interval of the recorded time series, if any.
    pub(crate) keep_series: Option<Duration>,
}

/// Simulates a cell, with files from the folder `data`.
pub(crate) fn run_cell(
    identity: Identity,
    scenario: &Scenario,
    network: &Simulated,
    data: &Path,
) -> Result<CellRecord, SimulateError> {
    // Reading the data does not count as a cost of simulating.
    let mut stage = Stage::set(scenario, network, data, identity.seed)?;
    let (begin, cpu) = (Instant::now(), cpu_time());
    let course = RunObservations::run(&mut stage, scenario);
    let (wall, cpu) = (begin.elapsed(), cpu_time().saturating_sub(cpu));
    if !stage.simulation.conservation().holds() {
        return Err(SimulateError::Conservation);
    }
    let open = stage.open_connections().max(1);
    let phases = course.phases(&stage, scenario, identity.keep_series);
    Ok(CellRecord {
        key: identity.key,
        hash: identity.hash,
        values: identity.values,
        repetition: identity.repetition,
        seed: identity.seed,
        link: Some(stage.link_record(network)),
        phases,
        simulation: Some(SimulationRecord {
            events: stage.simulation.events(),
            delivered_packets: stage.delivered_packets(),
        }),
        cost: Some(CostRecord {
            wall_s: rounded(wall.as_secs_f64()),
            cpu_s: rounded(cpu.as_secs_f64()),
            memory_bytes_per_flow: (stage.simulation.memory_bytes() / open) as f64,
        }),
        ..CellRecord::default()
    })
}

/// A time of the simulation, in seconds.
fn seconds(time: Timestamp) -> f64 {
    time.as_nanos() as f64 / 1e9
}

/// The thread's processor time, without that of other cells of the process.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
