//! The network between the hosts of a cell.

use crate::plan;
use lull_emulator::{Emulator, Error, Host, Record, Window, Wire};

/// An emulated bottleneck, or a plain wire, which measures nothing.
#[derive(Debug)]
pub(super) enum Network {
    Emulated(Box<Emulator>),
    Wire(Wire),
}

impl Network {
    pub(super) fn make(
        network: &plan::Network,
        series: std::time::Duration,
        seed: u64,
    ) -> Result<Self, Error> {
        Ok(match network {
            plan::Network::Emulated(emulated) => {
                Network::Emulated(Box::new(Emulator::start(&emulated.topology(series, seed))?))
            }
            plan::Network::Wire => Network::Wire(Wire::new()?),
            plan::Network::Simulated(_) | plan::Network::None { .. } => {
                unreachable!("simulated cells need no hosts")
            }
        })
    }

    pub(super) fn hosts(&self) -> &[Host] {
        match self {
            Network::Emulated(emulator) => emulator.hosts(),
            Network::Wire(wire) => wire.hosts(),
        }
    }

    /// Begins a window of the statistics.
    pub(super) fn mark(&self, name: &str) -> Result<(), Error> {
        match self {
            Network::Emulated(emulator) => emulator.mark(name),
            Network::Wire(_) => Ok(()),
        }
    }

    /// The statistics since the last mark.
    pub(super) fn statistics(&self) -> Result<Option<Window>, Error> {
        match self {
            Network::Emulated(emulator) => emulator.statistics().map(Some),
            Network::Wire(_) => Ok(None),
        }
    }

    /// Ends it.
    pub(super) fn finish(self) -> Result<Option<Record>, Error> {
        match self {
            Network::Emulated(emulator) => emulator.finish().map(Some),
            Network::Wire(_) => Ok(None),
        }
    }
}
