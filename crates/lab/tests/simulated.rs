//! Cells over the packet simulator: what they measure, and that it is always the same.

use std::path::Path;

use lull_lab::plan::{Plan, Selection};
use lull_lab::record::{CellRecord, GroupRecord, PhaseRecord};
use lull_lab::run::{Isolation, Runner};

/// A plan over a simulated network; `rest` has its groups, phases and all else.
fn plan(rest: &str) -> Plan {
    let text = format!(
        "id = 'test'\ntitle = 'A test'\n[paper]\nsource = 'TCP Nice §4'\nstatement = '…'\n{rest}"
    );
    Plan::parse("test.toml", &text, false).unwrap()
}

const LINK: &str = "[topology]\nkind = 'simulator'\nrate = '10mbit'\nrtt = '40ms'\n";

fn runner(out: &Path, jobs: usize) -> Runner {
    Runner {
        isolation: Isolation::Threads,
        out: out.to_owned(),
        seed: 1,
        jobs: Some(jobs),
        selection: Selection::default(),
        fresh: false,
        data: Some(out.to_owned()),
        command: vec!["test".to_owned()],
    }
}

fn run_in(folder: &Path, plan: &Plan) -> Vec<CellRecord> {
    let outcome = runner(folder, 1).run(plan, |_| {}).unwrap();
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    outcome.cells
}

fn run_one(plan: &Plan) -> CellRecord {
    let out = tempfile::tempdir().unwrap();
    let mut cells = run_in(out.path(), plan);
    assert_eq!(cells.len(), 1);
    cells.remove(0)
}

fn group<'a>(phase: &'a PhaseRecord, name: &str) -> &'a GroupRecord {
    phase.groups.get(name).unwrap_or_else(|| panic!("no group {name} in {phase:?}"))
}

#[test]
fn bulk_flows_share_a_link_and_leave_it() {
    let cell = run_one(&plan(&format!(
        "{LINK}
         [[groups]]
         name = 'first'
         kind = 'bulk'
         control = 'reno'
         spread = '0s'
         phases = ['alone', 'both']
         [[groups]]
         name = 'second'
         kind = 'bulk'
         control = 'cubic'
         count = 4
         phases = ['both', 'left']
         [[phases]]
         name = 'alone'
         settle = '5s'
         measure = '20s'
         [[phases]]
         name = 'both'
         settle = '5s'
         measure = '20s'
         [[phases]]
         name = 'left'
         settle = '2s'
         measure = '10s'"
    )));
    let [alone, both, left] = &cell.phases[..] else { panic!("{cell:?}") };
    let first = group(alone, "first");
    // What a full link carries of payload: 1448 of 1500 bytes.
    let most = 10.0 * 1448.0 / 1500.0;
    assert!((0.97 * most..=most + 0.01).contains(&first.goodput_mbit), "{first:?}");
    assert_eq!((first.flows_mbit.len(), first.fairness), (1, Some(1.0)));
    assert!((40.0..80.0).contains(&first.rtt_ms.unwrap()), "{first:?}");
    // TCP's own idea of it has a packet's time on the link in it.
    assert!((first.srtt_ms.unwrap() - first.rtt_ms.unwrap()).abs() < 5.0, "{first:?}");
    assert!(first.dropped > 0 && first.retransmitted > 0, "{first:?}");
    assert!(alone.utilisation.unwrap() > 0.97 && !alone.groups.contains_key("second"));
    let megabits = first.transferred_bytes.unwrap() as f64 * 8.0 / 1e6 / 20.0;
    assert!((megabits - first.goodput_mbit).abs() < 1e-4, "{first:?}");

    let (first, second) = (group(both, "first"), group(both, "second"));
    let sum = first.goodput_mbit + second.goodput_mbit;
    assert!((0.95 * most..=1.01 * most).contains(&sum), "{first:?} {second:?}");
    assert_eq!(second.flows_mbit.len(), 4);
    assert!(second.fairness.unwrap() > 0.7 && second.goodput_mbit > 4.0, "{second:?}");

    assert!(!left.groups.contains_key("first"));
    assert!(group(left, "second").goodput_mbit > 0.95 * most, "{left:?}");
    assert!(cell.simulation.unwrap().events > 50_000 && cell.cpu_s == 0.0);
    let link = cell.link.unwrap();
    assert_eq!((link.rate_mbit, link.rtt_ms, link.buffer), (10.0, 40.0, 33.0));
}

/// A sweep of everything that is random or has a state of its own.
fn sweep() -> Plan {
    plan(
        "[[axes]]
         name = 'control'
         values = ['reno', 'cubic', 'bbr', 'vegas', 'nice', 'ledbat', 'ledbat++', 'tcp-lp',
                   'TCP-Background', 'LowPri6.2']
         [[axes]]
         name = 'queue'
         values = ['droptail', 'red-ecn', 'fq-codel', 'priority-single']
         [topology]
         kind = 'simulator'
         rate = '4mbit'
         rtt = '40ms'
         access_rate = '100mbit'
         access_delay = '1ms'
         queue = '$queue'
         [[groups]]
         name = 'tcp'
         kind = 'bulk'
         control = '$control'
         count = 3
         ecn = true
         phases = ['p']
         [[groups]]
         name = 'clients'
         kind = 'requests'
         control = 'reno'
         count = 2
         object = '20kB'
         think = '300ms'
         phases = ['p']
         [[groups]]
         name = 'noise'
         kind = 'datagrams'
         pattern = 'pareto'
         rate = '1mbit'
         on = '100ms'
         off = '200ms'
         shape = 1.5
         count = 2
         dscp = 1
         phases = ['p']
         [[phases]]
         name = 'p'
         settle = '1s'
         measure = '4s'",
    )
}

#[test]
fn the_same_seed_gives_the_same_bytes_whatever_runs_at_once() {
    let plan = sweep();
    let told = |jobs: usize| -> Vec<String> {
        let out = tempfile::tempdir().unwrap();
        let outcome = runner(out.path(), jobs).run(&plan, |_| {}).unwrap();
        assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
        let cells = outcome.cells.iter().map(CellRecord::measured);
        cells.map(|cell| serde_json::to_string(&cell).unwrap()).collect()
    };
    let first = told(1);
    assert_eq!(first.len(), 40);
    assert_eq!(first, told(1));
    assert_eq!(first, told(4));
    // Another seed is another run: the test could fail.
    let out = tempfile::tempdir().unwrap();
    let other = Runner { seed: 2, ..runner(out.path(), 2) }.run(&plan, |_| {}).unwrap();
    let others: Vec<String> =
        other.cells.iter().map(|cell| serde_json::to_string(&cell.phases).unwrap()).collect();
    let differs = |(one, other): (&String, &String)| !one.contains(other.as_str());
    assert!(first.iter().zip(&others).all(differs));
}

#[test]
fn every_controller_and_queue_carries_traffic() {
    let out = tempfile::tempdir().unwrap();
    for cell in run_in(out.path(), &sweep()) {
        let phase = &cell.phases[0];
        let (tcp, clients, noise) =
            (group(phase, "tcp"), group(phase, "clients"), group(phase, "noise"));
        assert!(tcp.goodput_mbit > 0.5, "{}: {tcp:?}", cell.key);
        // BBR leaves little to others where nothing is marked.
        assert!(clients.packets + clients.dropped > 20, "{}: {clients:?}", cell.key);
        // An answer takes at least two round trips.
        assert!(clients.latency.is_none_or(|latency| latency.mean_ms > 80.0), "{clients:?}");
        // The lower class of a single queue may be pushed out altogether.
        assert!(noise.packets + noise.dropped > 50, "{}: {noise:?}", cell.key);
        assert!(noise.delay.is_none_or(|delay| delay.p50_ms > 22.0), "{noise:?}");
        let utilisation = phase.utilisation.unwrap();
        assert!(utilisation > 0.5 && utilisation < 1.01, "{}: {utilisation}", cell.key);
    }
}

#[test]
fn a_lower_class_waits_for_the_higher_one_and_is_told_apart() {
    let cell = run_one(&plan(&format!(
        "{LINK}
         queue = 'priority'
         [[groups]]
         name = 'high'
         kind = 'datagrams'
         pattern = 'constant'
         rate = '4mbit'
         phases = ['p']
         [[groups]]
         name = 'low'
         kind = 'bulk'
         control = 'TCP-Background'
         dscp = 1
         phases = ['p']
         [[phases]]
         name = 'p'
         settle = '5s'
         measure = '20s'"
    )));
    let phase = &cell.phases[0];
    let (high, low) = (group(phase, "high"), group(phase, "low"));
    // A packet of the lower class that is on the link already is all that it waits for.
    assert!((0.1..=1.21).contains(&high.waiting.unwrap().max_ms) && high.dropped == 0, "{high:?}");
    assert!(low.waiting.unwrap().mean_ms > 5.0, "{low:?}");
    assert!((high.goodput_mbit - 4.0).abs() < 0.01, "{high:?}");
    assert!((5.0..6.0).contains(&low.goodput_mbit), "{low:?}");
    // 20 ms of propagation and 1.2 ms on the link.
    assert!((21.2..22.5).contains(&high.delay.unwrap().mean_ms), "{high:?}");
}
