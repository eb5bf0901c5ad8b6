//! Probes: transfers whose time is taken, alone and beside others.

use std::time::Duration;

use serde::Deserialize;

use super::Kind;

/// A client and a server that take one action after another, at random times (Nice §5.1).
///
/// They go through all actions in an order drawn anew for each round: what the network does over
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

impl Kind {
    /// The controls that it names besides its group's.
    pub fn controls(&self) -> impl Iterator<Item = &str> {
        let actions = if let Kind::Probes(probes) = self { &probes.actions[..] } else { &[] };
        actions.iter().flat_map(Action::controls)
    }
}

impl Probes {
    /// What cannot be, in one line.
    pub(super) fn check(&self) -> Result<(), String> {
        if !(1..=10_000).contains(&self.rounds) {
            return Err("'rounds' may be 1 to 10000".to_owned());
        }
        if self.actions.is_empty() {
            return Err("'actions' must name at least one".to_owned());
        }
        for (at, action) in self.actions.iter().enumerate() {
            let name = &action.name;
            if !super::is_name(name) || self.actions[..at].iter().any(|one| one.name == *name) {
                return Err(format!(
                    "the action '{name}' must have a name of its own, of small letters, digits \
                     and '_'"
                ));
            }
            let is_idle = action.secondary.is_none() && action.count.is_some();
            if is_idle || !(1..=1000).contains(&action.count.unwrap_or(1)) {
                return Err(format!(
                    "the action '{name}': 'count' is that of the secondary transfers, 1 to 1000"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::{Plan, Selection};

    const PROBES: &str = "
id = 'probes'
title = 'Probes'
[paper]
source = 'TCP Nice §5'
statement = '…'
[topology]
rate = '10mbit'
rtt = '20ms'
reverse_rate = '1mbit'
reverse_buffer = '20p'
control = 'reno'
[controls.ours]
algorithm = 'nice'
carrier = 'user-space'
[[groups]]
name = 'probe'
kind = 'probes'
object = '1MB'
rest = '1s'
think = '2s'
rounds = 3
phases = ['p']
actions = [
    { name = 'reno', primary = 'reno' },
    { name = 'reno_cubic8', primary = 'reno', secondary = 'cubic', count = 8 },
]
[[groups]]
name = 'flows'
kind = 'bulk'
control = 'reno'
phases = ['p']
[[phases]]
name = 'p'
settle = '0s'
measure = '60s'
until = ['probe']
";

    fn error(from: &str, to: &str) -> String {
        assert!(PROBES.contains(from), "{from}");
        let plan = Plan::parse("plan.toml", &PROBES.replacen(from, to, 1), false);
        plan.expect_err(to).to_string()
    }

    #[test]
    fn an_action_has_a_primary_transfer_and_as_many_beside_it_as_it_says() {
        let plan = Plan::parse("plan.toml", PROBES, false).unwrap();
        let cells = plan.cells(&Selection::default(), 1).unwrap();
        let group = cells[0].scenario.group("probe").unwrap();
        let super::Kind::Probes(probes) = &group.kind else { panic!("{group:?}") };
        let secondaries: Vec<u32> = probes.actions.iter().map(|one| one.secondaries()).collect();
        assert_eq!(secondaries, [0, 8]);
        assert_eq!(group.kind.controls().collect::<Vec<_>>(), ["reno", "reno", "cubic"]);
        assert_eq!(cells[0].scenario.phases[0].until, ["probe"]);
    }

    #[test]
    fn what_no_probe_can_do_is_told_with_its_place() {
        for (from, to, words) in [
            ("name = 'reno_cubic8'", "name = 'reno'", &["'reno'", "name of its own"][..]),
            ("name = 'reno_cubic8'", "name = 'Reno8'", &["small letters"]),
            ("count = 8", "count = 0", &["'reno_cubic8'", "1 to 1000"]),
            ("secondary = 'cubic', count", "count", &["'reno_cubic8'", "secondary"]),
            ("secondary = 'cubic'", "second = 'cubic'", &["second"]),
            ("secondary = 'cubic'", "secondary = 'ours'", &["'ours'", "kernel only"]),
            ("rounds = 3", "rounds = 0", &["'rounds'"]),
            ("rounds = 3\n", "", &["'rounds'"]),
            ("object = '1MB'\n", "", &["'object'"]),
            ("rest = '1s'", "pace = '1mbit'", &["'pace'"]),
            ("rest = '1s'", "control = 'reno'", &["'control'"]),
            ("until = ['probe']", "until = ['probes']", &["'probes'", "'command'"]),
            ("until = ['probe']", "until = ['flows']", &["'flows'", "'command'"]),
            ("settle = '0s'", "settle = '1s'", &["'p'", "settle"]),
            ("reverse_rate = '1mbit'", "reverse_rate = '1'", &["reverse_rate", "mbit"]),
        ] {
            let error = error(from, to);
            assert!(error.starts_with("plan.toml:") && !error.contains('\n'), "{to}: {error}");
            for word in words {
                assert!(error.contains(word), "{to}: no {word} in: {error}");
            }
        }
    }
}
