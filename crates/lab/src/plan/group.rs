//! Traffic, by groups.

use std::time::Duration;

use lull_cc::{Bytes, Rate};
use serde::Deserialize;

use lull_sim::tcp::Recovery;

use super::expression::Expression;
use super::probes;
use super::simulated::TcpOptions;
use super::sources::{Arrivals, Datagrams, Documents, Flows, PatternName, SourceText};
use super::spelled::{Spelled, Time};
use lull_emulator::Buffer;
use lull_emulator::traffic::{Action, Probes, Work};

/// Traffic of one kind, between two hosts, under one congestion control.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "GroupText")]
pub struct Group {
    /// Its name; expressions call it by this.
    pub name: String,
    /// What it is called for people.
    pub title: Option<String>,
    /// The sender's congestion control: one of the plan's controls, or one of the kernel's.
    pub control: String,
    /// The phases in which it is there.
    pub phases: Vec<String>,
    /// How many connections, clients or programs; of flows, pairs of hosts that take turns.
    pub count: u32,
    /// The host that sends the data.
    pub from: String,
    /// The host that receives it.
    pub to: String,
    /// Differentiated-services codepoint of the data.
    pub dscp: u8,
    /// It begins within this time, spread evenly at random.
    pub spread: Duration,
    /// The cells that have it: an expression over the sweep's values.
    pub when: Option<Expression>,
    /// How its connections speak TCP, where they are simulated.
    pub tcp: TcpOptions,
    /// What it does.
    pub kind: Kind,
}

/// What a group of traffic does.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Each connection sends as fast as it may, until it is ended.
    Bulk {
        /// `SO_MAX_PACING_RATE` of each connection.
        pace: Option<u64>,
        /// What it sends again and again instead: so many bytes each so often.
        messages: Option<(u64, Duration)>,
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
        /// The program and its arguments. It may end before its phases do, if it ends well.
        program: Vec<String>,
        /// A program on the receiving host, there from the first phase to the last.
        server: Vec<String>,
        /// Whether `lull exec` runs the program, with the group's control if it has one.
        background: bool,
        /// Whether what it prints is a JSON object, whose members are quantities.
        report: bool,
    },
    /// Transfers whose time is taken, alone and beside others.
    Probes(Probes),
    /// Clients that ask for documents as a log says; simulated only.
    Documents(Documents),
    /// Datagrams; simulated only.
    Datagrams(Datagrams),
    /// Connections that come by chance, and end with what they have to send; simulated only.
    Flows(Flows),
}

impl Kind {
    /// What a group of this kind does on the kernel's sockets; none if it is only simulated.
    pub fn work(&self) -> Option<Work> {
        match self.clone() {
            Kind::Bulk { messages: Some(_), .. }
            | Kind::Documents(_)
            | Kind::Datagrams(_)
            | Kind::Flows(_) => None,
            Kind::Bulk { pace, messages: None } => Some(Work::Bulk { pace }),
            Kind::Requests { bytes, think, persistent } => {
                Some(Work::Requests { bytes, think, persistent })
            }
            Kind::Command { program, server, background, report } => {
                Some(Work::Command { program, server, background, report })
            }
            Kind::Probes(probes) => Some(Work::Probes(probes)),
        }
    }
}

/// A group as it is written: all keys of all kinds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupText {
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

/// An amount of data, spelled `100kB`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size(pub(super) Bytes);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<Buffer>() {
            Ok(Buffer::Bytes(bytes)) if bytes.0 > 0 => Ok(Size(bytes)),
            _ => Err(format!("'{text}' is not a size: write 500B, 100kB or 1MB, for example")),
        }
    }
}

impl GroupText {
    /// A key that is there and does nothing for its kind, if there is one.
    fn stranger(&self) -> Option<&'static str> {
        use KindName::{Bulk, Command, Datagrams, Documents, Flows, Probes, Requests};
        let own: [(&str, bool, &[KindName]); 32] = [
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
    type Error = String;

    fn try_from(text: GroupText) -> Result<Self, String> {
        let name = text.name.clone();
        if !super::is_name(&name) {
            return Err(format!(
                "the group's name '{name}' must consist of small letters, digits and '_'"
            ));
        }
        if let Some(key) = text.stranger() {
            return Err(format!("the group '{name}': '{key}' belongs to another kind of group"));
        }
        let need = |key: &str| format!("the group '{name}': its kind needs the key '{key}'");
        let wrong = |error: String| format!("the group '{name}': {error}");
        let source = SourceText {
            log: text.log,
            begin: text.begin,
            length: text.length,
            speed: text.speed,
            scale: text.scale,
            rate: text.rate,
            size: text.size,
            on: text.on,
            off: text.off,
            shape: text.shape,
            burst: text.burst,
            every: text.every.clone(),
            file: text.file,
        };
        let kind = match text.kind {
            KindName::Bulk => Kind::Bulk {
                pace: text.pace.map(|rate| rate.value.bytes_per_second()),
                messages: match (text.message, text.every) {
                    (None, None) => None,
                    (Some(bytes), Some(every)) if !every.value.0.is_zero() => {
                        Some((bytes.value.0.0, every.value.0))
                    }
                    _ => return Err(wrong("a 'message' is sent 'every' so often".to_owned())),
                },
            },
            KindName::Documents => Kind::Documents(Documents {
                section: source.section().map_err(wrong)?,
                arrivals: text.arrivals.unwrap_or_default(),
                persistent: text.connections == Some(Connections::Persistent),
            }),
            KindName::Datagrams => Kind::Datagrams(source.datagrams(text.pattern).map_err(wrong)?),
            KindName::Flows => {
                let sizes = text.sizes.ok_or_else(|| need("sizes"))?;
                Kind::Flows(Flows::new(&sizes, text.load, text.per_second).map_err(wrong)?)
            }
            KindName::Requests => Kind::Requests {
                bytes: text.object.ok_or_else(|| need("object"))?.value.0.0,
                think: text.think.ok_or_else(|| need("think"))?.value.0,
                persistent: text.connections == Some(Connections::Persistent),
            },
            KindName::Command => Kind::Command {
                program: text
                    .program
                    .filter(|program| !program.is_empty())
                    .ok_or_else(|| need("program"))?,
                server: text.server.unwrap_or_default(),
                background: text.background.unwrap_or(false),
                report: text.report.unwrap_or(false),
            },
            KindName::Probes => Kind::Probes(Probes {
                bytes: text.object.ok_or_else(|| need("object"))?.value.0.0,
                rest: text.rest.map_or(Duration::ZERO, |rest| rest.value.0),
                think: text.think.ok_or_else(|| need("think"))?.value.0,
                rounds: text.rounds.ok_or_else(|| need("rounds"))?,
                actions: text.actions.ok_or_else(|| need("actions"))?,
            }),
        };
        if let Kind::Probes(probes) = &kind {
            probes::check(probes).map_err(|error| format!("the group '{name}': {error}"))?;
        }
        let control = match (text.control, text.kind) {
            (Some(control), _) => control,
            // Each action of probes has its own; datagrams need none.
            (None, KindName::Command | KindName::Probes | KindName::Datagrams) => String::new(),
            (None, _) => return Err(need("control")),
        };
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
