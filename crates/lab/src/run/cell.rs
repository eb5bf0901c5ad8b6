//! One cell: creates the network, runs the traffic through the phases, and measures.

use std::time::{Duration, Instant};

use super::network::Network;
use super::order::{CellError, Order};
use super::processor::process_time;
use super::stage::Stage;
use super::watch::Watch;
use super::{CellEnvironment, bare};
use crate::measure::{CellObservations, ObservedPhase, measure};
use crate::plan;
use crate::record::{CellRecord, rounded};
use crate::simulate;
use lull_emulator::traffic::TrafficError;

/// The interval of the emulator's time series.
const SERIES: Duration = Duration::from_millis(100);

/// Runs a cell in this process.
///
/// # Errors
/// [`CellError`]. Everything that was created is removed then.
pub fn run_cell(
    order: &Order,
    surroundings: &CellEnvironment<'_>,
    watch: &mut dyn Watch,
) -> Result<CellRecord, CellError> {
    let begin = Instant::now();
    let scenario = order.scenario()?;
    if let plan::Network::Simulated(network) = &scenario.topology {
        return Ok(simulate::run_cell(order.identity(), &scenario, network, &order.data)?);
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
        // The program that ended early reports why.
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
    let observed = CellObservations {
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

/// The load average over one minute, of proc(5).
fn load() -> f64 {
    std::fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0.0)
}
