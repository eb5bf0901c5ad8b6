//! Probes: timed transfers, alone and beside others.

use lull_emulator::traffic::Probes;

use super::invalid::Invalid;

/// Checks the keys of a group of probes.
pub(super) fn check(probes: &Probes) -> Result<(), Invalid> {
    if !(1..=10_000).contains(&probes.rounds) {
        return Err(Invalid::value("rounds", probes.rounds, "there may be 1 to 10000"));
    }
    if probes.actions.is_empty() {
        return Err(Invalid::Rule("'actions' must name at least one"));
    }
    for (at, action) in probes.actions.iter().enumerate() {
        let wrong = |why| Invalid::Rule(why).within(format!("the action '{}'", action.name));
        let is_taken = || probes.actions[..at].iter().any(|one| one.name == action.name);
        if !super::is_name(&action.name) || is_taken() {
            return Err(wrong("it needs a unique name of small letters, digits and '_'"));
        }
        let is_idle = action.secondary.is_none() && action.count.is_some();
        if is_idle || !(1..=1000).contains(&action.count.unwrap_or(1)) {
            return Err(wrong("'count' is that of the secondary transfers, 1 to 1000"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lull_emulator::traffic::Work;

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
    fn action_has_one_primary_and_its_other_transfers() {
        let plan = Plan::parse("plan.toml", PROBES, false).unwrap();
        let cells = plan.cells(&Selection::default(), 1).unwrap();
        let group = cells[0].scenario.group("probe").unwrap();
        let Some(Work::Probes(probes)) = group.kind.work() else { panic!("{group:?}") };
        let secondaries: Vec<u32> = probes.actions.iter().map(|one| one.secondaries()).collect();
        assert_eq!(secondaries, [0, 8]);
        assert_eq!(group.kind.controls().collect::<Vec<_>>(), ["reno", "reno", "cubic"]);
        assert_eq!(cells[0].scenario.phases[0].until, ["probe"]);
    }

    #[test]
    fn impossible_probe_is_rejected_with_its_place() {
        for (from, to, words) in [
            ("name = 'reno_cubic8'", "name = 'reno'", &["'reno'", "unique name"][..]),
            ("name = 'reno_cubic8'", "name = 'Reno8'", &["small letters"]),
            ("count = 8", "count = 0", &["'reno_cubic8'", "1 to 1000"]),
            ("secondary = 'cubic', count", "count", &["'reno_cubic8'", "secondary"]),
            ("secondary = 'cubic'", "second = 'cubic'", &["second"]),
            ("secondary = 'cubic'", "secondary = 'ours'", &["'ours'", "control of the kernel"]),
            ("rounds = 3", "rounds = 0", &["rounds = 0"]),
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
