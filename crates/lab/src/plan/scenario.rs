//! What one cell of an experiment does: a network, traffic, and phases in order.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::expression::Expression;
use super::spelled::{Spelled, Time};
use super::{Control, Group, Network};

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
        scenario.prune(&serde_json::Value::Object(values.clone()))?;
        Ok(scenario)
    }

    /// From the first phase to the end of the last.
    pub fn duration(&self) -> Duration {
        self.phases.iter().map(Phase::duration).sum()
    }

    /// The group called `name`.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Leaves out the phases that a cell with these values does not have, and the groups without
    /// a phase.
    pub(super) fn prune(&mut self, values: &serde_json::Value) -> Result<(), String> {
        let mut kept = Vec::new();
        for phase in self.phases.drain(..) {
            let holds = phase.when.as_ref().map_or(Ok(true), |when| when.holds(values));
            if holds.map_err(|error| format!("phases: {error}"))? {
                kept.push(phase);
            }
        }
        self.phases = kept;
        let mut kept = Vec::new();
        for mut group in self.groups.drain(..) {
            let holds = group.when.as_ref().map_or(Ok(true), |when| when.holds(values));
            group.phases.retain(|name| self.phases.iter().any(|phase| phase.name == *name));
            let holds = holds.map_err(|error| format!("groups: {error}"))?;
            if holds && !group.phases.is_empty() {
                kept.push(group);
            }
        }
        self.groups = kept;
        match self.phases.is_empty() {
            true => Err("phases: there must be at least one".to_owned()),
            false => self.check_names(),
        }
    }

    fn check_names(&self) -> Result<(), String> {
        for (at, group) in self.groups.iter().enumerate() {
            if self.groups[..at].iter().any(|other| other.name == group.name) {
                return Err(format!("groups: some cell has two called '{}'", group.name));
            }
        }
        Ok(())
    }

    /// What cannot be, in one line.
    pub(super) fn validate(&self) -> Result<(), String> {
        if let Network::Emulated(emulated) = &self.topology {
            let topology = emulated.topology(Duration::from_millis(100), 1);
            topology.validate().map_err(|error| format!("topology: {error}"))?;
        }
        let mut names: Vec<&str> = Vec::new();
        for phase in &self.phases {
            if !super::is_name(&phase.name) || names.contains(&phase.name.as_str()) {
                return Err(format!(
                    "phases: the name '{}' must be the only one of its kind, of small letters, \
                     digits and '_'",
                    phase.name
                ));
            }
            names.push(&phase.name);
            if phase.measure.value.0.is_zero() || phase.duration() > Duration::from_secs(3600) {
                return Err(format!(
                    "phases: '{}' must measure something, and last an hour at most",
                    phase.name
                ));
            }
        }
        for group in &self.groups {
            let name = &group.name;
            let error = |text: String| Err(format!("groups: '{name}': {text}"));
            if let Some(phase) = group.phases.iter().find(|phase| !names.contains(&&***phase)) {
                let names = names.join(", ");
                return error(format!("there is no phase '{phase}': there are {names}"));
            }
            let (left, right) = self.topology.hosts();
            let hosts = [("left", left), ("right", right)];
            for host in [&group.from, &group.to] {
                let is = hosts.iter().any(|(side, count)| {
                    host.strip_prefix(side)
                        .and_then(|number| number.parse().ok())
                        .is_some_and(|number: usize| (1..=*count).contains(&number))
                });
                if !is {
                    return error(format!(
                        "there is no host '{host}': hosts are called left1, right1 and so on"
                    ));
                }
            }
            if group.from == group.to {
                return error("it must run between two hosts".to_owned());
            }
            if group.dscp > 63 {
                return error("a DSCP is 0 to 63".to_owned());
            }
            if !(1..=4096).contains(&group.count) {
                return error("count may be 1 to 4096".to_owned());
            }
        }
        for (name, control) in &self.controls {
            control.parameters().map_err(|text| format!("controls.{name}: {text}"))?;
        }
        Ok(())
    }
}
