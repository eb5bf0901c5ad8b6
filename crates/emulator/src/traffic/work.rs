//! The kinds of traffic.

use std::time::Duration;

use serde::Deserialize;

/// What a group of traffic does.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Each connection sends as fast as it may, until it is ended.
    Bulk {
        /// `SO_MAX_PACING_RATE` of each connection, in bytes per second.
        pace: Option<u64>,
    },
    /// Clients that fetch objects one after another.
    Requests {
        /// The size of an object in bytes.
        bytes: u64,
        /// Mean of the exponential pause between an object and the next request.
        think: Duration,
        /// Whether a client keeps its connection.
        persistent: bool,
    },
    /// Programs; they run on the sending host.
    Command {
        /// The program and its arguments. It may end before the group does, if it succeeds.
        program: Vec<String>,
        /// A program on the receiving host, which runs as long as the traffic.
        server: Vec<String>,
        /// Whether `lull exec` runs the program, with the group's control if it has one.
        background: bool,
        /// Whether the program prints a JSON object, whose members are quantities.
        report: bool,
    },
    /// Transfers that are timed, alone and beside others.
    Probes(Probes),
}

/// A client and a server that take one action after another, at random times (Nice §5.1).
///
/// They go through all actions in a random order for each round: what the network does over
/// time meets all of them alike, and each has as many transfers as there are rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Probes {
    /// The size of a primary transfer in bytes.
    pub bytes: u64,
    /// How long nothing is sent at least between two actions: what waits in the network has left.
    pub rest: Duration,
    /// Mean of the exponential pause that comes on top of it.
    pub think: Duration,
    /// How often each action is taken.
    pub rounds: u32,
    /// The actions.
    pub actions: Vec<Action>,
}

/// What one connection sends while others do.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Its name; expressions call it by this.
    pub name: String,
    /// The congestion control of the transfer whose time is taken.
    pub primary: String,
    /// That of the transfers beside it, which go on for as long as it does; none without it.
    pub secondary: Option<String>,
    /// How many transfers there are beside it; one if left open.
    pub count: Option<u32>,
}

impl Action {
    /// How many transfers there are beside the primary one.
    pub fn secondaries(&self) -> u32 {
        if self.secondary.is_some() { self.count.unwrap_or(1) } else { 0 }
    }

    /// The controls that it takes, the primary transfer's first.
    pub fn controls(&self) -> impl Iterator<Item = &str> {
        [Some(&self.primary), self.secondary.as_ref()].into_iter().flatten().map(String::as_str)
    }
}
