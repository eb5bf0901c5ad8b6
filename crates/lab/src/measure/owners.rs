//! The group of each flow on the link.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::plan::Group;
use lull_emulator::traffic::{Ends, Tally, Work};
use lull_emulator::{FlowKey, Window};

/// Both ends of a flow, the source first.
pub(crate) fn ends_of(flow: &FlowKey) -> Ends {
    (
        SocketAddr::new(flow.source, flow.source_port),
        SocketAddr::new(flow.destination, flow.destination_port),
    )
}

/// The owners of all flows. Flows of this program's sockets are known. Other flows between the hosts of a
/// group of programs belong to the group that was active when they first appeared. This includes last packets
/// that come later.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    /// The addresses of each group's data, source and destination.
    hosts: Vec<(IpAddr, IpAddr)>,
    is_program: Vec<bool>,
    of: BTreeMap<Ends, usize>,
}

impl Owners {
    pub(crate) fn new(groups: &[Group], hosts: &[(IpAddr, IpAddr)]) -> Self {
        let is_program = |group: &Group| matches!(group.kind.work(), Some(Work::Command { .. }));
        Owners {
            hosts: hosts.to_vec(),
            is_program: groups.iter().map(is_program).collect(),
            of: BTreeMap::new(),
        }
    }

    /// Records the flows of a window, in the order of time. `active` are the active groups, by number, and
    /// `tallies` those of all groups at its end or later.
    pub(crate) fn learn(&mut self, window: &Window, tallies: &[Tally], active: &[usize]) {
        for (group, tally) in tallies.iter().enumerate() {
            for ends in &tally.flows {
                self.of.insert(*ends, group);
            }
        }
        for statistics in window.forward.flows.iter().chain(&window.reverse.flows) {
            let ends = ends_of(&statistics.flow);
            let group = active.iter().copied().find(|group| {
                self.is_program[*group] && self.hosts[*group] == (ends.0.ip(), ends.1.ip())
            });
            // Acknowledgements of a known flow are not a separate flow.
            let is_known = self.of.contains_key(&ends) || self.of.contains_key(&(ends.1, ends.0));
            if let (Some(group), false) = (group, is_known) {
                self.of.insert(ends, group);
            }
        }
    }

    /// Whether data between these ends belong to the group.
    pub(crate) fn is_of(&self, group: usize, ends: Ends) -> bool {
        self.of.get(&ends) == Some(&group)
    }
}
