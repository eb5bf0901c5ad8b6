//! The traffic of connections and datagram sources.

use std::sync::Arc;

use core::fmt;

use lull_cc::{Controller, Timestamp};
use serde::{Deserialize, Serialize};

use crate::tcp::Parameters;
use crate::topology::NodeId;

pub mod datagrams;
pub mod documents;
pub mod sizes;

pub use datagrams::{Datagrams, Pattern};
pub use documents::{Arrivals, Connections, Documents, Request};
pub use sizes::{FlowSizes, SizesError};

/// Makes a congestion controller for each new connection.
#[derive(Clone)]
pub struct ControllerFactory(Arc<dyn Fn() -> Box<dyn Controller + Send> + Send + Sync>);

impl ControllerFactory {
    /// A factory that calls `make` for each connection.
    pub fn new<C: Controller + Send + 'static>(
        make: impl Fn() -> C + Send + Sync + 'static,
    ) -> Self {
        ControllerFactory(Arc::new(move || Box::new(make())))
    }

    /// A factory of controllers whose kind is known only at run time.
    pub fn boxed(make: impl Fn() -> Box<dyn Controller + Send> + Send + Sync + 'static) -> Self {
        ControllerFactory(Arc::new(make))
    }

    /// A new controller.
    pub fn make(&self) -> Box<dyn Controller + Send> {
        (self.0)()
    }
}

impl fmt::Debug for ControllerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControllerFactory")
    }
}

/// How TCP connections of a source are made.
#[derive(Clone, Debug)]
pub struct Tcp {
    /// Their parameters, best shared with other sources with the same ones.
    pub parameters: Arc<Parameters>,
    /// Their congestion control.
    pub controller: ControllerFactory,
    /// The codepoint of their packets in both directions.
    pub dscp: u8,
}

/// The data of a single connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// Endless data.
    Backlogged,
    /// This many bytes, and then the end of the connection.
    Bytes(u64),
    /// A message at regular intervals, the first one at the start: a greedy source that comes and goes
    /// ("alpha", filler §4.4), or an application with its own rate.
    Periodic {
        /// The length of each message.
        bytes: u64,
        /// Nanoseconds from one to the next.
        every_nanos: u64,
    },
}

/// A single connection.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The source node.
    pub from: NodeId,
    /// The destination node.
    pub to: NodeId,
    /// The TCP parameters and congestion control.
    pub tcp: Tcp,
    /// When the connection is opened.
    pub start: Timestamp,
    /// When its application closes it; none for never.
    pub stop: Option<Timestamp>,
    /// The data.
    pub demand: Demand,
}
