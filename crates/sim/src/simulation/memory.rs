//! The memory of a simulation, counted rather than measured: the same on every machine, regardless of other
//! activity of the process.

use super::connection::Connections;
use super::sources::Source;
use super::{Event, Simulation};
use crate::memory::bytes_of;

impl Simulation {
    /// Memory of connections in bytes, with reserved capacity, their sources, the nodes, links and routes
    /// between their ends, and the packets on these. Structures whose size does not depend on the number of
    /// connections are left out, and so are logs, documents and records.
    pub fn memory_bytes(&self) -> u64 {
        let events = bytes_of::<(u64, Event)>(self.events.len());
        let sources = self.sources.iter().map(Source::memory_bytes).sum::<u64>();
        let network = self.topology.memory_bytes() + self.network.memory_bytes();
        events + sources + network + self.connections.memory_bytes()
    }
}

impl Connections {
    fn memory_bytes(&self) -> u64 {
        let ends = self.connections().map(|connection| {
            connection.sender.memory_bytes() + connection.receiver.memory_bytes()
        });
        self.slot_bytes() + ends.sum::<u64>()
    }
}
