//! Traffic, by groups.

use std::time::Duration;

use lull_cc::{Bytes, Rate};
use serde::Deserialize;

use super::expression::Expression;
use super::probes::{Action, Probes};
use super::spelled::{Spelled, Time};
use crate::emulate::Buffer;

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
    /// How many connections, clients or programs.
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
    },
    /// Transfers whose time is taken, alone and beside others.
    Probes(Probes),
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
    rest: Option<Spelled<Time>>,
    rounds: Option<u32>,
    actions: Option<Vec<Action>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindName {
    Bulk,
    Requests,
    Command,
    Probes,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Connections {
    Fresh,
    Persistent,
}

/// An amount of data, spelled `100kB`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Size(Bytes);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<Buffer>() {
            Ok(Buffer::Bytes(bytes)) if bytes.0 > 0 => Ok(Size(bytes)),
            _ => Err(format!("'{text}' is not a size: write 500B, 100kB or 1MB, for example")),
        }
    }
}

impl TryFrom<GroupText> for Group {
    type Error = String;

    fn try_from(text: GroupText) -> Result<Self, String> {
        let name = text.name;
        if !super::is_name(&name) {
            return Err(format!(
                "the group's name '{name}' must consist of small letters, digits and '_'"
            ));
        }
        use KindName::{Bulk, Command, Requests};
        let own: [(&str, bool, &[KindName]); 12] = [
            ("pace", text.pace.is_some(), &[Bulk]),
            ("object", text.object.is_some(), &[Requests, KindName::Probes]),
            ("think", text.think.is_some(), &[Requests, KindName::Probes]),
            ("connections", text.connections.is_some(), &[Requests]),
            ("program", text.program.is_some(), &[Command]),
            ("server", text.server.is_some(), &[Command]),
            ("background", text.background.is_some(), &[Command]),
            ("control", text.control.is_some(), &[Bulk, Requests, Command]),
            ("count", text.count.is_some(), &[Bulk, Requests, Command]),
            ("rest", text.rest.is_some(), &[KindName::Probes]),
            ("rounds", text.rounds.is_some(), &[KindName::Probes]),
            ("actions", text.actions.is_some(), &[KindName::Probes]),
        ];
        let stranger = own.iter().find(|(_, is, kinds)| *is && !kinds.contains(&text.kind));
        if let Some((key, ..)) = stranger {
            return Err(format!("the group '{name}': '{key}' belongs to another kind of group"));
        }
        let need = |key: &str| format!("the group '{name}': its kind needs the key '{key}'");
        let kind = match text.kind {
            KindName::Bulk => {
                Kind::Bulk { pace: text.pace.map(|rate| rate.value.bytes_per_second()) }
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
            probes.check().map_err(|error| format!("the group '{name}': {error}"))?;
        }
        let control = match (text.control, text.kind) {
            (Some(control), _) => control,
            // Each action has its own.
            (None, KindName::Command | KindName::Probes) => String::new(),
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
            kind,
            name,
        })
    }
}
