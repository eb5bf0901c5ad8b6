//! From counts to measurements.

mod cell;
mod link;
mod owners;
pub(crate) mod series;
mod tally;

pub(crate) use cell::{CellObservations, ObservedPhase};
use link::View;
pub(crate) use link::rounded_spread;
pub(crate) use owners::{Owners, ends_of};

use crate::record::{LinkRecord, PhaseRecord};

/// The link, where one was emulated, and the phases' records.
pub(crate) fn measure(observed: &CellObservations) -> (Option<LinkRecord>, Vec<PhaseRecord>) {
    if let Some(record) = &observed.record {
        let view = View::new(observed, record);
        let phases = observed.phases.iter().filter_map(|phase| view.phase(phase)).collect();
        return (Some(view.link), phases);
    }
    let phase = |phase: &ObservedPhase| {
        let groups = phase.active.iter().map(|&number| {
            (observed.groups[number].name.clone(), observed.bare_group(number, phase))
        });
        PhaseRecord { groups: groups.collect(), ..observed.bare_phase(phase) }
    };
    (None, observed.phases.iter().map(phase).collect())
}
