//! What one cell of an experiment does: a network, traffic, and phases in order.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::expression::Expression;
use super::locate::{Fault, fault};
use super::spelled::{Spelled, Time};
use lull_emulator::traffic::Action;

use super::{Algorithm, Capacity, Carrier, Control, Group, Kind, Network};

/// A cell with all of the sweep's values filled in.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The network.
    pub topology: Network,
    /// Congestion controls of ours, by the names that groups call them. What is not here is the
    /// kernel's own.
    #[serde(default)]
    pub controls: BTreeMap<String, Control>,
    /// The traffic.
    pub groups: Vec<Group>,
    /// What happens, in order.
    pub phases: Vec<Phase>,
}

/// A stretch of time in which the same groups are there.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Its name; expressions call it by this.
    pub name: String,
    /// What it is called for people.
    pub title: Option<String>,
    /// How long nothing is measured.
    pub settle: Spelled<Time>,
    /// How long is measured, after that.
    pub measure: Spelled<Time>,
    /// The cells that have this phase: an expression over the sweep's values.
    pub when: Option<Expression>,
    /// Groups of programs or probes; once all of them have done their work, measuring ends.
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
    /// Reads a scenario in which the values have been filled in, and leaves out what a cell with
    /// these values does not have.
    pub(crate) fn of(
        written: &serde_json::Value,
        values: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Self, String> {
        let mut scenario = Scenario::deserialize(written).map_err(|error| error.to_string())?;
        let values = serde_json::Value::Object(values.clone());
        scenario.prune(&values).map_err(|(_, text)| text)?;
        Ok(scenario)
    }

    /// From the first phase to the end of the last.
    pub fn duration(&self) -> Duration {
        self.phases.iter().map(Phase::duration).sum()
    }

    /// What the controls that are used come down to, by name: what is left open in a plan is of
    /// another cell once we mean something else by it, and a control that nobody uses is of none. So is
    /// Nice where a group has it by its name alone.
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
                // Not before: a cell may leave out what its network cannot carry.
                self.check_carrier(&group).map_err(|(key, text)| {
                    let text = format!("groups: '{}': {text}", group.name);
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

    /// What cannot be. Nothing has been left out yet, so that places are those of the file.
    pub(super) fn validate(&self) -> Result<(), Fault> {
        if let Network::Emulated(emulated) = &self.topology {
            let topology = emulated.topology(Duration::from_millis(100), 1);
            let wrong = |error| fault(&["topology"], format!("topology: {error}"));
            topology.validate().map_err(wrong)?;
        }
        if let Network::Simulated(simulated) = &self.topology {
            simulated
                .validate()
                .map_err(|error| fault(&["topology"], format!("topology: {error}")))?;
            if let Capacity::Demand { group: name, .. } = &simulated.capacity {
                let own = self.groups.iter().find(|group| group.name == *name);
                if !own.is_some_and(|group| matches!(group.kind, Kind::Documents(_))) {
                    let text = format!("topology: no group of documents is called '{name}'");
                    return Err(fault(&["topology", "demand_of"], text));
                }
            }
        }
        let mut names: Vec<&str> = Vec::new();
        for (at, phase) in self.phases.iter().enumerate() {
            let at = at.to_string();
            if !super::is_name(&phase.name) || names.contains(&phase.name.as_str()) {
                let text = format!(
                    "phases: the name '{}' must be the only one of its kind, of small letters, \
                     digits and '_'",
                    phase.name
                );
                return Err(fault(&["phases", &at, "name"], text));
            }
            names.push(&phase.name);
            if phase.measure.value.0.is_zero() || phase.duration() > Duration::from_secs(3600) {
                let text = format!(
                    "phases: '{}' must measure something, and last an hour at most",
                    phase.name
                );
                return Err(fault(&["phases", &at, "measure"], text));
            }
            if !phase.until.is_empty() && !phase.settle.value.0.is_zero() {
                let text = format!(
                    "phases: '{}' waits for groups that begin with it: settle must be 0s, and what \
                     is to settle needs a phase before it",
                    phase.name
                );
                return Err(fault(&["phases", &at, "settle"], text));
            }
            for name in &phase.until {
                let is_finite = |group: &Group| {
                    matches!(group.kind, Kind::Command { .. } | Kind::Probes(_))
                        && group.name == *name
                        && group.phases.contains(&phase.name)
                };
                if !self.groups.iter().any(is_finite) {
                    let text = format!(
                        "phases: '{}' cannot wait for '{name}': it can for groups of kind \
                         'command' or 'probes' that it has",
                        phase.name
                    );
                    return Err(fault(&["phases", &at, "until"], text));
                }
            }
        }
        for (at, group) in self.groups.iter().enumerate() {
            let name = &group.name;
            let at = at.to_string();
            let error = |key: &str, text: String| {
                Err(fault(&["groups", &at, key], format!("groups: '{name}': {text}")))
            };
            if let Some(phase) = group.phases.iter().find(|phase| !names.contains(&&***phase)) {
                let names = names.join(", ");
                return error("phases", format!("there is no phase '{phase}': there are {names}"));
            }
            for (key, host) in [("from", &group.from), ("to", &group.to)] {
                if self.topology.router(host).is_none() {
                    let text = match self.topology {
                        Network::Simulated(_) => "left1, right1, router1 and so on",
                        Network::Emulated(_) | Network::Wire | Network::None { .. } => {
                            "left1, right1 and so on"
                        }
                    };
                    return error(
                        key,
                        format!("there is no host '{host}': they are called {text}"),
                    );
                }
            }
            if group.from == group.to {
                return error("to", "it must run between two hosts".to_owned());
            }
            if self.is_simulated()
                && self.topology.router(&group.from) == self.topology.router(&group.to)
            {
                let text = "it must run over a bottleneck: both ends are at the same router";
                return error("to", text.to_owned());
            }
            if group.dscp > 63 {
                return error("dscp", "a DSCP is 0 to 63".to_owned());
            }
            let most = if self.is_simulated() { 100_000 } else { 4096 };
            if !(1..=most).contains(&group.count) {
                return error("count", format!("count may be 1 to {most}"));
            }
            if let Kind::Probes(probes) = &group.kind {
                let mut names = probes.actions.iter().flat_map(Action::controls);
                let is_ours = |name: &str| {
                    let control = self.controls.get(name);
                    control.is_some_and(|control| control.carrier == Carrier::UserSpace)
                };
                if let Some(name) = names.find(|name| is_ours(name)) {
                    let text = format!("probes take controls of the kernel only, and not '{name}'");
                    return error("actions", text);
                }
            }
        }
        if self.groups.len() > 255 {
            return Err(fault(&["groups"], "groups: there may be 255"));
        }
        for (name, control) in &self.controls {
            control.parameters().map_err(|text| {
                // It begins with the key; where it does not, the control is found.
                let key = text.split(' ').next().unwrap_or_default().to_owned();
                fault(&["controls", name, &key], format!("controls.{name}: {text}"))
            })?;
            if !self.is_simulated()
                && let Err(text) = control.check_kernel_s()
            {
                return Err(fault(&["controls", name], format!("controls.{name}: {text}")));
            }
        }
        Ok(())
    }

    /// Whether it takes no kernel.
    pub fn is_simulated(&self) -> bool {
        matches!(self.topology, Network::Simulated(_) | Network::None { .. })
    }

    /// What the network, simulated or not, cannot carry: the key, and why.
    fn check_carrier(&self, group: &Group) -> Result<(), (&'static str, String)> {
        if let Network::None { .. } = self.topology {
            return match &group.kind {
                Kind::Command { server, background: false, report: true, .. }
                    if server.is_empty() && group.control.is_empty() && group.count == 1 =>
                {
                    Ok(())
                }
                _ => {
                    let text = "where there is no network there are only single programs that \
                                report (kind = 'command', report = true), without 'server', \
                                'background' or 'control'";
                    Err(("kind", text.to_owned()))
                }
            };
        }
        if !self.is_simulated() {
            let only = "belongs to kind = 'simulator'";
            return match (&group.kind, group.tcp.key()) {
                (Kind::Documents(_) | Kind::Datagrams(_) | Kind::Flows(_), _) => {
                    Err(("kind", format!("traffic of this kind {only}")))
                }
                (Kind::Bulk { messages: Some(_), .. }, _) => {
                    Err(("message", format!("'message' {only}")))
                }
                (_, Some(key)) => Err((key, format!("'{key}' {only}"))),
                (_, None) => Ok(()),
            };
        }
        match group.kind {
            Kind::Command { .. } => Err(("kind", "programs do not run in the simulator".into())),
            Kind::Probes(_) => Err(("kind", "probes take the kernel's sockets".to_owned())),
            Kind::Datagrams(_) if group.tcp.access_delay.is_none() && group.tcp.key().is_some() => {
                Err(("kind", "datagrams do not speak TCP".to_owned()))
            }
            Kind::Datagrams(_) => Ok(()),
            _ => Control::named(&group.control, &self.controls)
                .map(drop)
                .map_err(|text| ("control", text)),
        }
    }
}
