//! The kinds of traffic.

use std::time::Duration;

use serde::Deserialize;

/// The work of a group of traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Each connection sends at full speed, until it is ended.
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
    /// Timed transfers, alone and beside others.
    Probes(Probes),
}

/// A client and a server that perform one action after another, at random times (Nice §5.1).
///
/// They perform all actions in a random order in each round. So changes of the network over time affect all
/// of them alike, and each has as many transfers as there are rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Probes {
    /// The size of a primary transfer in bytes.
    pub bytes: u64,
    /// The minimum time without traffic between two actions, in which queues in the network drain.
    pub rest: Duration,
    /// Mean of the exponential pause that is added to it.
    pub think: Duration,
    /// How often each action is performed.
    pub rounds: u32,
    /// The actions.
    pub actions: Vec<Action>,
}

/// A transfer by one connection, beside others.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Its name in expressions.
    pub name: String,
    /// The congestion control of the timed transfer.
    pub primary: String,
    /// That of the transfers beside it, which last as long as it does; without it there are none.
    pub secondary: Option<String>,
    /// How many transfers there are beside it; by default one.
    pub count: Option<u32>,
}

impl Action {
    /// How many transfers there are beside the primary one.
    pub fn secondaries(&self) -> u32 {
        if self.secondary.is_some() { self.count.unwrap_or(1) } else { 0 }
    }

    /// Its congestion controls, the primary transfer's first.
    pub fn controls(&self) -> impl Iterator<Item = &str> {
        [Some(&self.primary), self.secondary.as_ref()].into_iter().flatten().map(String::as_str)
    }
}
