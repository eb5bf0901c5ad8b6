//! The measurements of one cell.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::tally;
use crate::plan::Group;
use crate::record::{CpuRecord, GroupRecord, PhaseRecord, rounded};
use lull_emulator::traffic::Tally;
use lull_emulator::{Record, Window};

/// A phase that has passed.
#[derive(Clone, Debug)]
pub(crate) struct ObservedPhase {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    /// The emulator's window from its beginning until measuring began.
    pub(crate) settling: String,
    /// The emulator's window while it was measured.
    pub(crate) measured: String,
    /// When it began and when the measurement began and ended.
    pub(crate) begin: Instant,
    /// When the measurement began and ended, with the counts of all groups at those times.
    pub(crate) before: (Instant, Vec<Tally>),
    pub(crate) after: (Instant, Vec<Tally>),
    /// Processor time during the measurement.
    pub(crate) cpu: CpuRecord,
    /// How often it was measured before that.
    pub(crate) again: u32,
    /// The active groups, by number.
    pub(crate) active: Vec<usize>,
}

/// All observations of a cell.
#[derive(Debug)]
pub(crate) struct CellObservations {
    pub(crate) begin: Instant,
    pub(crate) groups: Vec<Group>,
    /// The addresses of each group's data, source and destination.
    pub(crate) hosts: Vec<(IpAddr, IpAddr)>,
    pub(crate) phases: Vec<ObservedPhase>,
    /// The emulator's record; none for a plain wire.
    pub(crate) record: Option<Record>,
    /// The interval of the recorded time series, if any.
    pub(crate) keep_series: Option<Duration>,
}

impl CellObservations {
    /// The emulator's window of this name.
    pub(super) fn window<'a>(record: &'a Record, name: &str) -> Option<&'a Window> {
        record.windows.iter().find(|window| window.name == name)
    }

    /// A phase's record without the emulator's part.
    pub(super) fn bare_phase(&self, phase: &ObservedPhase) -> PhaseRecord {
        let since = |at: Instant| at.saturating_duration_since(self.begin).as_secs_f64();
        PhaseRecord {
            name: phase.name.clone(),
            title: phase.title.clone(),
            begin_s: since(phase.begin),
            measured_from_s: since(phase.before.0),
            measured_to_s: since(phase.after.0),
            utilisation: None,
            queueing: None,
            overflows: None,
            timing_error: None,
            arrival_error: None,
            cpu: phase.cpu,
            again: phase.again,
            groups: BTreeMap::new(),
            series: None,
        }
    }

    /// The sockets' part of a group's record of a phase.
    pub(super) fn bare_group(&self, number: usize, phase: &ObservedPhase) -> GroupRecord {
        let group = &self.groups[number];
        let mut record = GroupRecord {
            title: group.title.clone(),
            control: group.control.clone(),
            count: group.count,
            ..GroupRecord::default()
        };
        let before = (phase.before.0, &phase.before.1[number]);
        let after = (phase.after.0, &phase.after.1[number]);
        tally::fill(&mut record, group, before, after);
        // A group that ended before the phase began has it in the phase in which it ended.
        let completed = after.1.completed.filter(|(end, _)| *end >= phase.begin);
        record.completion_s = completed.map(|(_, time)| rounded(time.as_secs_f64()));
        record.report = completed.and_then(|_| after.1.report.clone());
        record
    }
}
