//! Traffic, by groups.

use std::time::Duration;

use lull_cc::Rate;
use serde::Deserialize;

use lull_sim::tcp::Recovery;

use super::expression::Expression;
use super::invalid::Invalid;
use super::probes;
use super::simulated::TcpOptions;
use super::sources::{Arrivals, Datagrams, Documents, Flows, PatternName, SourceText};
use super::spelled::{Size, Spelled, Time};
use lull_emulator::Buffer;
use lull_emulator::traffic::{Action, Probes, Work};

/// Traffic of one kind, between two hosts, under one congestion control.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "GroupText")]
pub struct Group {
    /// Its name in expressions.
    pub name: String,
    /// Its title for readers. A part of the cell's hash, as all of a group: with another title, all records of the
    /// plan are to be measured again.
    pub title: Option<String>,
    /// The sender's congestion control: one of the plan's controls, or one of the kernel's.
    pub control: String,
    /// The phases in which it is active.
    pub phases: Vec<String>,
    /// How many connections, clients or programs; for flows, pairs of hosts that take turns.
    pub count: u32,
    /// The host that sends the data.
    pub from: String,
    /// The host that receives it.
    pub to: String,
    /// Differentiated-services codepoint of the data.
    pub dscp: u8,
    /// It starts within this time, spread evenly at random.
    pub spread: Duration,
    /// The cells that have it: an expression over the sweep's values.
    pub when: Option<Expression>,
    /// The TCP options of its connections, if they are simulated.
    pub tcp: TcpOptions,
    /// Its kind of traffic.
    pub kind: Kind,
}

/// The kind of traffic of a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Traffic of the kernel's sockets and programs. Bulk transfers and requests can be simulated as well.
    Work(Work),
    /// Connections that send messages at an interval; simulated only.
    Messages {
        /// The highest rate at which a connection sends, in bytes per second.
        pace: Option<u64>,
        /// The size of a message in bytes.
        bytes: u64,
        /// From the beginning of one message to that of the next.
        every: Duration,
    },
    /// Clients that request documents as in a log; simulated only.
    Documents(Documents),
    /// Datagrams; simulated only.
    Datagrams(Datagrams),
    /// Connections that start at random, and end after sending their data; simulated only.
    Flows(Flows),
}

impl Kind {
    /// The controls that it names besides its group's.
    pub fn controls(&self) -> impl Iterator<Item = &str> {
        let actions =
            if let Kind::Work(Work::Probes(probes)) = self { &probes.actions[..] } else { &[] };
        actions.iter().flat_map(Action::controls)
    }

    /// The work of a group of this kind on the kernel's sockets; none if it is only simulated.
    pub fn work(&self) -> Option<&Work> {
        match self {
            Kind::Work(work) => Some(work),
            Kind::Messages { .. } | Kind::Documents(_) | Kind::Datagrams(_) | Kind::Flows(_) => {
                None
            }
        }
    }
}

/// A group in the text of a plan: all keys of all kinds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupText {
    name: String,
    title: Option<String>,
    when: Option<Expression>,
    kind: KindName,
    control: Option<String>,
    phases: Vec<String>,
    count: Option<u32>,
    from: Option<String>,
    to: Option<String>,
    dscp: Option<u8>,
    spread: Option<Spelled<Time>>,
    pace: Option<Spelled<Rate>>,
    object: Option<Spelled<Size>>,
    think: Option<Spelled<Time>>,
    connections: Option<Connections>,
    program: Option<Vec<String>>,
    server: Option<Vec<String>>,
    background: Option<bool>,
    report: Option<bool>,
    rest: Option<Spelled<Time>>,
    rounds: Option<u32>,
    actions: Option<Vec<Action>>,
    message: Option<Spelled<Size>>,
    every: Option<Spelled<Time>>,
    arrivals: Option<Arrivals>,
    pattern: Option<PatternName>,
    log: Option<String>,
    begin: Option<Spelled<Time>>,
    length: Option<Spelled<Time>>,
    speed: Option<f64>,
    scale: Option<f64>,
    rate: Option<Spelled<Rate>>,
    size: Option<Spelled<Size>>,
    on: Option<Spelled<Time>>,
    off: Option<Spelled<Time>>,
    shape: Option<f64>,
    burst: Option<Spelled<Size>>,
    file: Option<String>,
    sizes: Option<serde_json::Value>,
    load: Option<f64>,
    per_second: Option<f64>,
    recovery: Option<Recovery>,
    delayed_acks: Option<bool>,
    ecn: Option<bool>,
    receive_window: Option<Spelled<Buffer>>,
    access_delay: Option<Spelled<Time>>,
    first_timeout: Option<Spelled<Time>>,
    least_timeout: Option<Spelled<Time>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindName {
    Bulk,
    Requests,
    Command,
    Probes,
    Documents,
    Datagrams,
    Flows,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Connections {
    Fresh,
    Persistent,
}

impl GroupText {
    /// A key that is set and has no effect for its kind, if any.
    fn ineffective_key(&self) -> Option<&'static str> {
        use KindName::{Bulk, Command, Datagrams, Documents, Flows, Probes, Requests};
        let own: [(&'static str, bool, &[KindName]); 32] = [
            ("pace", self.pace.is_some(), &[Bulk]),
            ("message", self.message.is_some(), &[Bulk]),
            ("every", self.every.is_some(), &[Bulk, Datagrams]),
            ("object", self.object.is_some(), &[Requests, Probes]),
            ("think", self.think.is_some(), &[Requests, Probes]),
            ("connections", self.connections.is_some(), &[Requests, Documents]),
            ("program", self.program.is_some(), &[Command]),
            ("server", self.server.is_some(), &[Command]),
            ("background", self.background.is_some(), &[Command]),
            ("report", self.report.is_some(), &[Command]),
            ("rest", self.rest.is_some(), &[Probes]),
            ("rounds", self.rounds.is_some(), &[Probes]),
            ("actions", self.actions.is_some(), &[Probes]),
            ("arrivals", self.arrivals.is_some(), &[Documents]),
            ("pattern", self.pattern.is_some(), &[Datagrams]),
            ("log", self.log.is_some(), &[Documents, Datagrams]),
            ("begin", self.begin.is_some(), &[Documents, Datagrams]),
            ("length", self.length.is_some(), &[Documents, Datagrams]),
            ("speed", self.speed.is_some(), &[Documents, Datagrams]),
            ("scale", self.scale.is_some(), &[Documents, Datagrams]),
            ("rate", self.rate.is_some(), &[Datagrams]),
            ("size", self.size.is_some(), &[Datagrams]),
            ("on", self.on.is_some(), &[Datagrams]),
            ("off", self.off.is_some(), &[Datagrams]),
            ("shape", self.shape.is_some(), &[Datagrams]),
            ("burst", self.burst.is_some(), &[Datagrams]),
            ("file", self.file.is_some(), &[Datagrams]),
            ("sizes", self.sizes.is_some(), &[Flows]),
            ("load", self.load.is_some(), &[Flows]),
            ("per_second", self.per_second.is_some(), &[Flows]),
            ("control", self.control.is_some(), &[Bulk, Requests, Command, Documents, Flows]),
            ("count", self.count.is_some(), &[Bulk, Requests, Command, Datagrams, Flows]),
        ];
        let stranger = own.iter().find(|(_, is, kinds)| *is && !kinds.contains(&self.kind));
        stranger.map(|(key, ..)| *key)
    }
}

impl TryFrom<GroupText> for Group {
    type Error = Invalid;

    fn try_from(mut text: GroupText) -> Result<Self, Invalid> {
        let name = text.name.clone();
        if !super::is_name(&name) {
            let why = "is not the name of a group: use small letters, digits and '_'";
            return Err(Invalid::Name { name, why });
        }
        let wrong = |error: Invalid| error.within(format!("the group '{name}'"));
        if let Some(key) = text.ineffective_key() {
            return Err(wrong(Invalid::Foreign { key, owner: "another kind of group" }));
        }
        let control = text.take_control().map_err(wrong)?;
        let kind = text.take_kind().map_err(wrong)?;
        Ok(Group {
            title: text.title,
            control,
            phases: text.phases,
            count: text.count.unwrap_or(1),
            from: text.from.unwrap_or_else(|| "left1".to_owned()),
            to: text.to.unwrap_or_else(|| "right1".to_owned()),
            dscp: text.dscp.unwrap_or(0),
            spread: text.spread.map_or(Duration::from_millis(500), |spread| spread.value.0),
            when: text.when,
            tcp: TcpOptions {
                recovery: text.recovery,
                delayed_acks: text.delayed_acks,
                ecn: text.ecn,
                receive_window: text.receive_window,
                access_delay: text.access_delay,
                first_timeout: text.first_timeout,
                least_timeout: text.least_timeout,
            },
            kind,
            name,
        })
    }
}

impl GroupText {
    fn take_control(&mut self) -> Result<String, Invalid> {
        match (self.control.take(), self.kind) {
            (Some(control), _) => Ok(control),
            // Each action of probes has its own; datagrams need none.
            (None, KindName::Command | KindName::Probes | KindName::Datagrams) => Ok(String::new()),
            (None, _) => Err(Invalid::Missing("control")),
        }
    }

    fn take_kind(&mut self) -> Result<Kind, Invalid> {
        match self.kind {
            KindName::Bulk => self.take_bulk(),
            KindName::Requests => Ok(Kind::Work(Work::Requests {
                bytes: self.take_object()?,
                think: self.take_think()?,
                persistent: self.connections == Some(Connections::Persistent),
            })),
            KindName::Command => {
                let program = self.program.take().filter(|program| !program.is_empty());
                Ok(Kind::Work(Work::Command {
                    program: program.ok_or(Invalid::Missing("program"))?,
                    server: self.server.take().unwrap_or_default(),
                    background: self.background.unwrap_or(false),
                    report: self.report.unwrap_or(false),
                }))
            }
            KindName::Probes => {
                let probes = Probes {
                    bytes: self.take_object()?,
                    rest: self.rest.take().map_or(Duration::ZERO, |rest| rest.value.0),
                    think: self.take_think()?,
                    rounds: self.rounds.ok_or(Invalid::Missing("rounds"))?,
                    actions: self.actions.take().ok_or(Invalid::Missing("actions"))?,
                };
                probes::check(&probes)?;
                Ok(Kind::Work(Work::Probes(probes)))
            }
            KindName::Documents => Ok(Kind::Documents(Documents {
                section: self.take_source().section()?,
                arrivals: self.arrivals.unwrap_or_default(),
                persistent: self.connections == Some(Connections::Persistent),
            })),
            KindName::Datagrams => Ok(Kind::Datagrams(self.take_source().datagrams(self.pattern)?)),
            KindName::Flows => {
                let sizes = self.sizes.take().ok_or(Invalid::Missing("sizes"))?;
                Ok(Kind::Flows(Flows::new(&sizes, self.load, self.per_second)?))
            }
        }
    }

    fn take_bulk(&mut self) -> Result<Kind, Invalid> {
        let pace = self.pace.take().map(|rate| rate.value.bytes_per_second());
        match (self.message.take(), self.every.take()) {
            (None, None) => Ok(Kind::Work(Work::Bulk { pace })),
            (Some(bytes), Some(every)) if !every.value.0.is_zero() => {
                Ok(Kind::Messages { pace, bytes: bytes.value.0.0, every: every.value.0 })
            }
            _ => Err(Invalid::Rule("a 'message' is sent 'every' so often")),
        }
    }

    fn take_object(&mut self) -> Result<u64, Invalid> {
        Ok(self.object.take().ok_or(Invalid::Missing("object"))?.value.0.0)
    }

    fn take_think(&mut self) -> Result<Duration, Invalid> {
        Ok(self.think.take().ok_or(Invalid::Missing("think"))?.value.0)
    }

    fn take_source(&mut self) -> SourceText {
        SourceText {
            log: self.log.take(),
            begin: self.begin.take(),
            length: self.length.take(),
            speed: self.speed,
            scale: self.scale,
            rate: self.rate.take(),
            size: self.size.take(),
            on: self.on.take(),
            off: self.off.take(),
            shape: self.shape,
            burst: self.burst.take(),
            every: self.every.take(),
            file: self.file.take(),
        }
    }
}
