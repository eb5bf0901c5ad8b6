//! Simulated networks of several bottlenecks or with another reverse path, and random flows.

use crate::common;
use std::path::Path;

use crate::common::{group, plan, run_one, runner};
use lull_lab::plan::{Network, Plan, Selection};
use lull_lab::record::{CellRecord, PhaseRecord};

const ROW: &str =
    "[topology]\nkind = 'simulator'\nbottlenecks = 3\nrate = '10mbit'\nrtt = '20ms'\n";

/// The payload rate of a full link of 10 Mbit/s: 1448 of 1500 bytes.
const FULL_MBIT: f64 = 10.0 * 1448.0 / 1500.0;

fn run_in(folder: &Path, plan: &Plan) -> CellRecord {
    let outcome = runner(folder).run(plan, |_| {}).unwrap();
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    outcome.cells.into_iter().next().unwrap()
}

/// An endless Reno flow between two hosts.
fn bulk(name: &str, from: &str, to: &str) -> String {
    format!(
        "[[groups]]\nname = '{name}'\nkind = 'bulk'\ncontrol = 'reno'\nfrom = '{from}'\n\
         to = '{to}'\nphases = ['p']\n"
    )
}

const PHASE: &str = "[[phases]]\nname = 'p'\nsettle = '20s'\nmeasure = '100s'\n";

#[test]
fn flow_over_all_bottlenecks_gets_less() {
    let long = bulk("long", "left1", "right1");
    let short =
        |name: &str, at: usize| bulk(name, &format!("router{at}"), &format!("router{}", at + 1));
    let groups = [long, short("first", 1), short("second", 2), short("third", 3)].concat();
    let cell = run_one(&plan(&format!("{ROW}{groups}{PHASE}")));
    let phase = &cell.phases[0];
    let long = group(phase, "long");
    assert!(long.goodput_mbit > 0.1 && long.dropped > 0, "{long:?}");
    let mut waits = 0.0;
    for name in ["first", "second", "third"] {
        let short = group(phase, name);
        assert!(long.goodput_mbit < 0.7 * short.goodput_mbit, "{long:?} {short:?}");
        // Each bottleneck carries one of them and the long flow, and is full.
        let sum = long.goodput_mbit + short.goodput_mbit;
        assert!((0.95 * FULL_MBIT..=1.01 * FULL_MBIT).contains(&sum), "{name}: {sum}");
        // One bottleneck there and back, and its queue: 16 packets of 1.2 ms at most.
        let rtt = short.rtt_ms.unwrap();
        assert!((20.0..40.0).contains(&rtt), "{short:?}");
        waits += rtt - 20.0;
    }
    // Three of them, and the queue at each.
    let rtt = long.rtt_ms.unwrap();
    assert!((0.5 * waits..1.5 * waits).contains(&(rtt - 60.0)), "{rtt} with {waits}: {long:?}");
    // TCP's own value includes a packet's time on each link.
    assert!((long.srtt_ms.unwrap() - rtt).abs() < 8.0, "{long:?}");
    assert!(phase.utilisation.unwrap() > 0.95, "{phase:?}");
    let link = cell.link.unwrap();
    assert_eq!((link.rate_mbit, link.rtt_ms), (10.0, 20.0));
}

#[test]
fn flow_may_cross_part_of_a_row_in_reverse() {
    // No group disturbs another: the first bottleneck to the right, the last two to the left.
    let groups = [bulk("right", "router1", "router2"), bulk("left", "router4", "router2")].concat();
    let access = "access_delay = '1ms'\n";
    let cell = run_one(&plan(&format!("{ROW}{access}{groups}{PHASE}")));
    let phase = &cell.phases[0];
    for (name, path_ms) in [("right", 24.0), ("left", 44.0)] {
        let flow = group(phase, name);
        assert!(flow.goodput_mbit > 0.9 * FULL_MBIT, "{flow:?}");
        let waiting = flow.rtt_ms.unwrap() - path_ms;
        assert!((0.5..25.0).contains(&waiting), "{name}: {flow:?}");
        assert!((flow.srtt_ms.unwrap() - flow.rtt_ms.unwrap()).abs() < 8.0, "{flow:?}");
    }
    // From left to right, one of three is busy.
    let utilisation = phase.utilisation.unwrap();
    assert!((0.3..0.4).contains(&utilisation), "{utilisation}");
}

#[test]
fn return_path_may_be_slower() {
    let groups = [bulk("down", "left2", "right1"), bulk("up", "right1", "left1")].concat();
    let over = |more: &str, groups: &str| {
        let text = format!(
            "[topology]\nkind = 'simulator'\nrate = '10mbit'\nrtt = '40ms'\nleft = 2\n{more}\n\
             {groups}{PHASE}"
        );
        run_one(&plan(&text)).phases.remove(0)
    };
    let goodput = |phase: &PhaseRecord, name: &str| group(phase, name).goodput_mbit;
    // Acknowledgements of 52 bytes for every second packet take 0.17 of the 10 Mbit/s.
    let both = over("", &groups);
    assert!(goodput(&both, "up") > 5.0 && goodput(&both, "down") > 5.0, "{both:?}");
    let slower = "reverse_rate = '1mbit'\nreverse_buffer = '10p'";
    let alone = over(slower, &bulk("up", "right1", "left1"));
    assert!((0.9..0.97).contains(&goodput(&alone, "up")), "{alone:?}");
    // Ten packets of 12 ms each.
    assert!(group(&alone, "up").waiting.unwrap().max_ms < 121.0, "{alone:?}");
    let alone = over(slower, &bulk("down", "left1", "right1"));
    assert!(goodput(&alone, "down") > 0.95 * FULL_MBIT, "{alone:?}");
}

/// A plan of random flows over 10 Mbit/s; `more` has their sizes and their number.
fn flows(more: &str, seconds: u32) -> Plan {
    plan(&format!(
        "[topology]\nkind = 'simulator'\nrate = '10mbit'\nrtt = '20ms'\n\
         [[groups]]\nname = 'flows'\nkind = 'flows'\ncontrol = 'reno'\nphases = ['p']\n{more}\n\
         [[phases]]\nname = 'p'\nsettle = '0s'\nmeasure = '{seconds}s'\n\
         [[phases]]\nname = 'drain'\nsettle = '0s'\nmeasure = '30s'"
    ))
}

/// Evenly from 1 to 99 kB: 50 kB on average, with a squared coefficient of variation of 0.32.
const SIZES: &str = "sizes = [[1000, 0.0], [99000, 1.0]]";
const MEAN_BYTES: f64 = 50_000.0;
const VARIATION: f64 = 98_000.0 * 98_000.0 / 12.0 / (MEAN_BYTES * MEAN_BYTES);

#[test]
fn random_flows_offer_the_requested_load() {
    for load in [0.1, 0.5] {
        let seconds = 1_000;
        let cell = run_one(&flows(&format!("{SIZES}\nload = {load}"), seconds));
        let flows = group(&cell.phases[0], "flows");
        let expected = load * FULL_MBIT * 1e6 / 8.0 / MEAN_BYTES * f64::from(seconds);
        let latency = flows.latency.unwrap();
        let count = latency.count as f64 + latency.unanswered as f64;
        // Four standard deviations of a Poisson count, and of the sum of that many sizes.
        assert!((count - expected).abs() < 4.0 * expected.sqrt(), "{load}: {count} {expected}");
        assert_eq!(latency.unanswered, 0, "{load}: {latency:?}");
        let bytes = flows.transferred_bytes.unwrap() as f64;
        let tolerance = 4.0 * ((1.0 + VARIATION) / expected).sqrt();
        let offered = bytes / (expected * MEAN_BYTES);
        assert!((offered - 1.0).abs() < tolerance, "{load}: {offered} within {tolerance}");
        assert!((flows.goodput_mbit / (load * FULL_MBIT) - 1.0).abs() < tolerance, "{flows:?}");
    }
}

#[test]
fn flows_begin_at_the_rate_of_the_plan() {
    let cell = run_one(&flows(&format!("{SIZES}\nper_second = 8\ncount = 4"), 500));
    let latency = group(&cell.phases[0], "flows").latency.unwrap();
    let count = latency.count as f64 + latency.unanswered as f64;
    assert!((count - 4_000.0).abs() < 4.0 * 4_000f64.sqrt(), "{latency:?}");
    // Another seed gives other flows.
    let other = tempfile::tempdir().unwrap();
    let runner = lull_lab::run::Runner { seed: 2, ..runner(other.path()) };
    let plan = flows(&format!("{SIZES}\nper_second = 8\ncount = 4"), 500);
    let outcome = runner.run(&plan, |_| {}).unwrap();
    assert_ne!(group(&outcome.cells[0].phases[0], "flows").latency, Some(latency));
}

#[test]
fn sizes_from_a_file_equal_the_same_table() {
    let out = tempfile::tempdir().unwrap();
    let file = flows("sizes = 'sizes.txt'\nload = 0.3", 20);
    let error = runner(out.path()).run(&file, |_| {}).unwrap_err().to_string();
    assert!(error.contains("sizes.txt") && error.contains("--data DIR"), "{error}");
    for wrong in ["nonsense\n", "0 0\n0 1\n"] {
        std::fs::write(out.path().join("sizes.txt"), wrong).unwrap();
        let outcome = runner(out.path()).run(&file, |_| {}).unwrap();
        let error = &outcome.failed[0].error;
        assert!(error.contains("sizes.txt: ") && !error.contains('\n'), "{error}");
    }
    std::fs::write(out.path().join("sizes.txt"), "1000 0\n\n99000 1\n").unwrap();
    let cell = run_in(out.path(), &file);
    let table = run_one(&flows(&format!("{SIZES}\nload = 0.3"), 20));
    assert_eq!(cell.phases, table.phases);
}

/// The plans in the documentation.
fn examples() -> Vec<&'static str> {
    let page = include_str!("../../../../docs/reference/plans.md");
    let blocks = page.split("```toml\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

#[test]
fn documented_example_has_the_documented_result() {
    let [example] = examples()[..] else { panic!("one example is documented") };
    let plan = Plan::parse("example.toml", example, false).unwrap();
    let outcome = common::run(&plan);
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    let cells = &outcome.cells;
    assert_eq!(cells.len(), 2);
    // The flows of each link offer four tenths of it.
    for name in ["first", "second", "third"] {
        let flows = group(&cells[0].phases[0], name);
        assert!((4.0..12.0).contains(&flows.goodput_mbit), "{flows:?}");
        assert!(flows.latency.unwrap().count > 1_000, "{flows:?}");
    }
    let verdicts = lull_lab::judge::judge(&plan, cells).verdicts;
    assert!(verdicts.iter().all(|verdict| verdict.is_met.is_some()), "{verdicts:?}");
}

#[test]
fn cell_omits_traffic_its_network_cannot_carry() {
    let plan = plan(
        "[[axes]]
         name = 'network'
         values = ['simulator', 'emulator']
         [topology]
         kind = '$network'
         rate = '10mbit'
         reverse_rate = '1mbit'
         rtt = '50ms'
         left = 2
         [[groups]]
         name = 'probe'
         kind = 'probes'
         when = \"network == 'emulator'\"
         object = '100kB'
         think = '1s'
         rounds = 1
         actions = [{ name = 'reno', primary = 'reno' }]
         phases = ['p']
         [[groups]]
         name = 'clients'
         kind = 'requests'
         control = 'reno'
         from = 'left2'
         object = '100kB'
         think = '1s'
         phases = ['p']
         [[phases]]
         name = 'p'
         settle = '0s'
         measure = '2s'
         until = ['probe']",
    );
    let cells = plan.cells(&Selection::default(), 1).unwrap();
    let groups = |at: usize| -> Vec<&str> {
        cells[at].scenario.groups.iter().map(|group| group.name.as_str()).collect()
    };
    assert!(matches!(cells[0].scenario.topology, Network::Simulated(_)), "{:?}", cells[0]);
    assert_eq!((groups(0), groups(1)), (vec!["clients"], vec!["probe", "clients"]));
    let out = tempfile::tempdir().unwrap();
    let selection = Selection::new(["network=simulator"]).unwrap();
    let runner = lull_lab::run::Runner { selection, ..runner(out.path()) };
    let outcome = runner.run(&plan, |_| {}).unwrap();
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert!(group(&outcome.cells[0].phases[0], "clients").goodput_mbit > 0.1);
}

/// A plan with a line for each key.
const WHOLE: &str = "id = 'test'
title = 'A test'
paper = { source = 'TCP Nice §4', statement = '…' }
topology.kind = 'simulator'
topology.bottlenecks = 3
topology.rate = '10mbit'
topology.rtt = '20ms'
phases = [{ name = 'p', settle = '1s', measure = '1s' }]
groups = [
    { name = 'bulk', kind = 'bulk', control = 'reno', from = 'router2', to = 'router4', phases = ['p'] },
    { name = 'flows', kind = 'flows', control = 'reno', sizes = [[1000, 0.5], [9000, 1]], load = 0.5, phases = ['p'] },
]
";

#[test]
fn invalid_row_or_flow_is_rejected_with_line_and_remedy() {
    Plan::parse("plan.toml", WHOLE, false).unwrap();
    for (from, to, line, words) in [
        ("bottlenecks = 3", "bottlenecks = 0", 4, &["bottlenecks", "1 to"][..]),
        ("bottlenecks = 3", "bottlenecks = 101", 4, &["bottlenecks", "100"]),
        ("bottlenecks = 3", "bottlenecks = 2", 10, &["'router4'", "router1"]),
        ("bottlenecks = 3", "bottlenecks = 3\ntopology.reverse_rate = '1mbit'", 4, &["reverse"]),
        ("rtt = '20ms'", "rtt = '50s'", 4, &["120 s"]),
        ("kind = 'simulator'", "kind = 'emulator'", 4, &["'bottlenecks'", "simulator"]),
        ("rtt = '20ms'", "rtt = '20ms'\ntopology.control = 'reno'", 4, &["'control'", "emulated"]),
        ("'router2'", "'router0'", 10, &["'router0'"]),
        ("'router2'", "'router5'", 10, &["'router5'"]),
        ("'router2'", "'right1'", 10, &["same router"]),
        ("load = 0.5, ", "", 11, &["'flows'", "'load'", "'per_second'"]),
        ("load = 0.5, ", "load = 0.5, per_second = 1, ", 11, &["'load'", "'per_second'"]),
        ("load = 0.5", "load = 0", 11, &["load", "above 0"]),
        ("load = 0.5", "per_second = -1", 11, &["per_second", "above 0"]),
        ("sizes = [[1000, 0.5], [9000, 1]], ", "", 11, &["'sizes'"]),
        ("[9000, 1]]", "[9000, 0.9]]", 11, &["sizes", "last probability"]),
        ("[9000, 1]]", "[900, 1]]", 11, &["sizes", "must not decrease"]),
        ("[9000, 1]]", "9000]", 11, &["sizes", "[[1000, 0.5], [50000, 1]]"]),
        ("[[1000, 0.5], [9000, 1]]", "[[0, 0.5], [1, 1]]", 11, &["sizes", "a byte"]),
        ("load = 0.5", "load = 0.5, rate = '1mbit'", 11, &["'rate'", "another kind"]),
        ("kind = 'bulk', ", "kind = 'bulk', load = 1, ", 10, &["'load'", "another kind"]),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let text = WHOLE.replacen(from, to, 1);
        let Err(error) = Plan::parse("plan.toml", &text, false) else { panic!("{to} is taken") };
        let error = error.to_string();
        assert!(!error.contains('\n'), "{to}: {error}");
        assert!(error.starts_with(&format!("plan.toml:{line}: ")), "{to}: {error}");
        for word in words {
            assert!(error.contains(word), "{to}: no {word} in: {error}");
        }
    }
    let emulated = "topology.rate = '10mbit'\ntopology.rtt = '20ms'\n";
    let text = WHOLE
        .replacen("topology.kind = 'simulator'\ntopology.bottlenecks = 3\n", "", 1)
        .replacen("from = 'router2', to = 'router4', ", "", 1);
    assert!(text.contains(emulated));
    let error = Plan::parse("plan.toml", &text, false).unwrap_err().to_string();
    assert!(error.contains("'flows'") && error.contains("kind = 'simulator'"), "{error}");
}
