//! The content of one cell of an experiment: a network, traffic, and phases in order.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::expression::Expression;
use super::invalid::Invalid;
use super::locate::{Fault, fault};
use super::spelled::{Spelled, Time};
use lull_emulator::traffic::Work;

use super::{Algorithm, Capacity, Carrier, Control, Group, Kind, Network};

/// A cell with all values of the sweep.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The network.
    pub topology: Network,
    /// Congestion controls of this project, by the names that groups use. Other names are the kernel's own.
    #[serde(default)]
    pub controls: BTreeMap<String, Control>,
    /// The traffic.
    pub groups: Vec<Group>,
    /// The phases, in order.
    pub phases: Vec<Phase>,
}

/// Why a text is not a valid scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Its form is invalid.
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    /// Its parts do not match.
    #[error("{0}")]
    Parts(String),
}

impl From<Fault> for ScenarioError {
    fn from(fault: Fault) -> Self {
        ScenarioError::Parts(fault.to_string())
    }
}

/// A time in which the same groups are active.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Its name in expressions.
    pub name: String,
    /// Its title for readers.
    pub title: Option<String>,
    /// How long it settles before the measurement.
    pub settle: Spelled<Time>,
    /// How long the measurement takes, after that.
    pub measure: Spelled<Time>,
    /// The cells that have this phase: an expression over the sweep's values.
    pub when: Option<Expression>,
    /// Groups of programs or probes. When all of them have done their work, the measurement ends.
    #[serde(default)]
    pub until: Vec<String>,
}

impl Phase {
    /// From its beginning to its end.
    pub fn duration(&self) -> Duration {
        self.settle.value.0 + self.measure.value.0
    }
}

impl Scenario {
    /// Reads a scenario with its values, and leaves out parts that a cell with these values does not have.
    pub(crate) fn of(
        written: &serde_json::Value,
        values: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Self, ScenarioError> {
        let mut scenario = Scenario::deserialize(written)?;
        let values = serde_json::Value::Object(values.clone());
        scenario.prune(&values)?;
        Ok(scenario)
    }

    /// From the first phase to the end of the last.
    pub fn duration(&self) -> Duration {
        self.phases.iter().map(Phase::duration).sum()
    }

    /// All parameters of the used controls, by name. If the meaning of a default changes, its cells are
    /// different ones; an unused control has no influence. This includes Nice if a group uses it by its name
    /// alone.
    pub(super) fn decisive_controls(&self) -> BTreeMap<String, String> {
        let of_group = |group: &'_ Group| -> Vec<String> {
            let others = group.kind.controls().map(str::to_owned);
            [group.control.clone()].into_iter().chain(others).collect()
        };
        let used: Vec<String> = self.groups.iter().flat_map(of_group).collect();
        let decisive = |name: String| {
            let control = Control::named(&name, &self.controls).ok()?;
            let is_ours = control.algorithm == Algorithm::Nice || self.controls.contains_key(&name);
            is_ours.then(|| (name, control.decisive()))
        };
        used.into_iter().filter_map(decisive).collect()
    }

    /// The group called `name`.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Leaves out the phases that a cell with these values does not have, and the groups without
    /// a phase.
    pub(super) fn prune(&mut self, values: &serde_json::Value) -> Result<(), Fault> {
        let mut kept = Vec::new();
        for (at, phase) in self.phases.drain(..).enumerate() {
            let holds = phase.when.as_ref().map_or(Ok(true), |when| when.holds(values));
            let wrong =
                |error| fault(&["phases", &at.to_string(), "when"], format!("phases: {error}"));
            if holds.map_err(wrong)? {
                kept.push(phase);
            }
        }
        self.phases = kept;
        let mut kept = Vec::new();
        for (at, mut group) in std::mem::take(&mut self.groups).into_iter().enumerate() {
            let holds = group.when.as_ref().map_or(Ok(true), |when| when.holds(values));
            group.phases.retain(|name| self.phases.iter().any(|phase| phase.name == *name));
            let wrong =
                |error| fault(&["groups", &at.to_string(), "when"], format!("groups: {error}"));
            if holds.map_err(wrong)? && !group.phases.is_empty() {
                // Not earlier: a cell may leave out parts that its network cannot carry.
                self.check_carrier(&group).map_err(|(key, why)| {
                    let text = format!("groups: '{}': {why}", group.name);
                    fault(&["groups", &at.to_string(), key], text)
                })?;
                kept.push(group);
            }
        }
        self.groups = kept;
        for phase in &mut self.phases {
            let is_there = |name: &String| {
                let found = self.groups.iter().find(|group| group.name == *name);
                found.is_some_and(|group| group.phases.contains(&phase.name))
            };
            phase.until.retain(is_there);
        }
        match self.phases.is_empty() {
            true => Err(fault(&["phases"], "phases: there must be at least one")),
            false => self.check_names(),
        }
    }

    fn check_names(&self) -> Result<(), Fault> {
        for (at, group) in self.groups.iter().enumerate() {
            if self.groups[..at].iter().any(|other| other.name == group.name) {
                let text = format!("groups: some cell has two called '{}'", group.name);
                return Err(fault(&["groups"], text));
            }
        }
        Ok(())
    }

    /// Checks all parts. Nothing has been left out yet, so that positions are those of the file.
    pub(super) fn validate(&self) -> Result<(), Fault> {
        self.validate_network()?;
        let mut names: Vec<&str> = Vec::new();
        for (at, phase) in self.phases.iter().enumerate() {
            self.validate_phase(&at.to_string(), phase, &names)?;
            names.push(&phase.name);
        }
        for (at, group) in self.groups.iter().enumerate() {
            self.validate_group(group, &names).map_err(|(key, why)| {
                let text = format!("groups: '{}': {why}", group.name);
                fault(&["groups", &at.to_string(), key], text)
            })?;
        }
        if self.groups.len() > 255 {
            return Err(fault(&["groups"], "groups: there may be 255"));
        }
        self.controls.iter().try_for_each(|(name, control)| self.validate_control(name, control))
    }

    fn validate_network(&self) -> Result<(), Fault> {
        match &self.topology {
            Network::Emulated(emulated) => {
                let topology = emulated.topology(Duration::from_millis(100), 1);
                let wrong = |error| fault(&["topology"], format!("topology: {error}"));
                topology.validate().map_err(wrong)
            }
            Network::Simulated(simulated) => {
                simulated
                    .validate()
                    .map_err(|error| fault(&["topology"], format!("topology: {error}")))?;
                let Capacity::Demand { group: name, .. } = &simulated.capacity else {
                    return Ok(());
                };
                let own = self.groups.iter().find(|group| group.name == *name);
                if own.is_some_and(|group| matches!(group.kind, Kind::Documents(_))) {
                    return Ok(());
                }
                let text = format!("topology: no group of documents is called '{name}'");
                Err(fault(&["topology", "demand_of"], text))
            }
            Network::Wire | Network::None { .. } => Ok(()),
        }
    }

    /// Checks the phase number `at`; `names` are those of the phases before it.
    fn validate_phase(&self, at: &str, phase: &Phase, names: &[&str]) -> Result<(), Fault> {
        let name = &phase.name;
        let wrong =
            |key, why: &str| Err(fault(&["phases", at, key], format!("phases: '{name}' {why}")));
        if !super::is_name(name) || names.contains(&name.as_str()) {
            let why = "needs a unique name of small letters, digits and '_'";
            return wrong("name", why);
        }
        if phase.measure.value.0.is_zero() || phase.duration() > Duration::from_secs(3600) {
            return wrong("measure", "must measure something, and last an hour at most");
        }
        if !phase.until.is_empty() && !phase.settle.value.0.is_zero() {
            let why = "waits for groups that begin with it: set settle to 0s, and let other \
                       groups settle in an earlier phase";
            return wrong("settle", why);
        }
        for awaited in &phase.until {
            let is_finite = |group: &Group| {
                matches!(group.kind.work(), Some(Work::Command { .. } | Work::Probes(_)))
                    && group.name == *awaited
                    && group.phases.contains(name)
            };
            if !self.groups.iter().any(is_finite) {
                let why = format!(
                    "cannot wait for '{awaited}': only for its groups of kind 'command' or \
                     'probes'"
                );
                return wrong("until", &why);
            }
        }
        Ok(())
    }

    /// Checks a group in a plan with these phases. The error contains the key.
    fn validate_group(
        &self,
        group: &Group,
        phases: &[&str],
    ) -> Result<(), (&'static str, Invalid)> {
        if let Some(name) = group.phases.iter().find(|phase| !phases.contains(&&***phase)) {
            let (name, known) = (name.clone(), phases.join(", "));
            return Err(("phases", Invalid::Unknown { what: "phase", name, known }));
        }
        for (key, host) in [("from", &group.from), ("to", &group.to)] {
            if self.topology.router(host).is_none() {
                let known = match self.topology {
                    Network::Simulated(_) => "left1, right1, router1 and so on",
                    Network::Emulated(_) | Network::Wire | Network::None { .. } => {
                        "left1, right1 and so on"
                    }
                };
                let (name, known) = (host.clone(), known.to_owned());
                return Err((key, Invalid::Unknown { what: "host", name, known }));
            }
        }
        if group.from == group.to {
            return Err(("to", Invalid::Rule("it must run between two hosts")));
        }
        if self.is_simulated()
            && self.topology.router(&group.from) == self.topology.router(&group.to)
        {
            let text = "it must run over a bottleneck: both ends are at the same router";
            return Err(("to", Invalid::Rule(text)));
        }
        if group.dscp > 63 {
            return Err(("dscp", Invalid::Rule("a DSCP is 0 to 63")));
        }
        let most = if self.is_simulated() { 100_000 } else { 4096 };
        if !(1..=most).contains(&group.count) {
            let allowed = format!("it may be 1 to {most}");
            return Err(("count", Invalid::value("count", group.count, allowed)));
        }
        let is_in_user_space = |name: &&str| {
            let control = self.controls.get(*name);
            control.is_some_and(|control| control.carrier == Carrier::UserSpace)
        };
        if let Some(name) = group.kind.controls().find(is_in_user_space) {
            let why = "runs in user space, and probes need a control of the kernel";
            return Err(("actions", Invalid::Name { name: name.to_owned(), why }));
        }
        Ok(())
    }

    fn validate_control(&self, name: &str, control: &Control) -> Result<(), Fault> {
        control.parameters().map_err(|error| {
            let path = [Some("controls"), Some(name), error.key()];
            let path: Vec<&str> = path.into_iter().flatten().collect();
            fault(&path, format!("controls.{name}: {error}"))
        })?;
        if self.is_simulated() {
            return Ok(());
        }
        control
            .check_for_kernel()
            .map_err(|error| fault(&["controls", name], format!("controls.{name}: {error}")))
    }

    /// Whether it needs no kernel.
    pub fn is_simulated(&self) -> bool {
        matches!(self.topology, Network::Simulated(_) | Network::None { .. })
    }

    /// Traffic that the network, simulated or not, cannot carry: the key, and why.
    fn check_carrier(&self, group: &Group) -> Result<(), (&'static str, Invalid)> {
        const SIMULATOR: &str = "kind = 'simulator'";
        if let Network::None { .. } = self.topology {
            return match group.kind.work() {
                Some(Work::Command { server, background: false, report: true, .. })
                    if server.is_empty() && group.control.is_empty() && group.count == 1 =>
                {
                    Ok(())
                }
                _ => {
                    let text = "where there is no network there are only single programs that \
                                report (kind = 'command', report = true), without 'server', \
                                'background' or 'control'";
                    Err(("kind", Invalid::Rule(text)))
                }
            };
        }
        if !self.is_simulated() {
            return match (&group.kind, group.tcp.key()) {
                (Kind::Documents(_) | Kind::Datagrams(_) | Kind::Flows(_), _) => {
                    let text = "traffic of this kind belongs to kind = 'simulator'";
                    Err(("kind", Invalid::Rule(text)))
                }
                (Kind::Messages { .. }, _) => {
                    let key = "message";
                    Err((key, Invalid::Foreign { key, owner: SIMULATOR }))
                }
                (Kind::Work(_), Some(key)) => {
                    Err((key, Invalid::Foreign { key, owner: SIMULATOR }))
                }
                (Kind::Work(_), None) => Ok(()),
            };
        }
        match &group.kind {
            Kind::Work(Work::Command { .. }) => {
                Err(("kind", Invalid::Rule("programs do not run in the simulator")))
            }
            Kind::Work(Work::Probes(_)) => {
                Err(("kind", Invalid::Rule("probes take the kernel's sockets")))
            }
            Kind::Datagrams(_) if group.tcp.access_delay.is_none() && group.tcp.key().is_some() => {
                Err(("kind", Invalid::Rule("datagrams do not speak TCP")))
            }
            Kind::Datagrams(_) => Ok(()),
            _ => Control::named(&group.control, &self.controls)
                .map(drop)
                .map_err(|error| ("control", error)),
        }
    }
}
