//! What a simulation takes of memory, counted rather than measured: the same on every machine,
//! whatever else the process does.

use super::connection::Connections;
use super::sources::Source;
use super::{Event, Simulation};
use crate::memory::bytes_of;

impl Simulation {
    /// Bytes that connections take, with the room that they keep, their sources, the nodes, links and
    /// ways between their ends, and the packets on these. What is there once, however many
    /// connections there are, does not count, and neither do logs, documents and what was recorded.
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
        self.place_bytes() + ends.sum::<u64>()
    }
}
