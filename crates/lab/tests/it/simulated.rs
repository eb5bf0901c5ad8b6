//! Cells over the packet simulator: their measurements, and that they are always the same.

use std::path::Path;

use crate::common::{group, plan, run_one, runner};
use lull_lab::judge::judge;
use lull_lab::plan::{Network, Plan, Selection};
use lull_lab::record::CellRecord;
use lull_lab::report::Report;
use lull_lab::run::Runner;

const LINK: &str = "[topology]\nkind = 'simulator'\nrate = '10mbit'\nrtt = '40ms'\n";

fn run_in(folder: &Path, plan: &Plan) -> Vec<CellRecord> {
    let outcome = runner(folder).run(plan, |_| {}).unwrap();
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    outcome.cells
}

#[test]
fn simulated_bulk_flows_share_a_link_and_leave_it() {
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
    // The payload rate of a full link: 1448 of 1500 bytes.
    let most = 10.0 * 1448.0 / 1500.0;
    assert!((0.97 * most..=most + 0.01).contains(&first.goodput_mbit), "{first:?}");
    assert_eq!((first.flows_mbit.len(), first.fairness), (1, Some(1.0)));
    assert!((40.0..80.0).contains(&first.rtt_ms.unwrap()), "{first:?}");
    // TCP's own value includes a packet's time on the link.
    assert!((first.srtt_ms.unwrap() - first.rtt_ms.unwrap()).abs() < 5.0, "{first:?}");
    assert!(first.dropped > 0 && first.retransmitted > 0, "{first:?}");
    // A flow that is alone reacts once to each overflow, regardless of how many packets that costs.
    let (cuts, overflows) = (first.cuts.unwrap(), alone.overflows.unwrap());
    assert!(overflows > 0 && overflows.abs_diff(cuts) <= 1, "{overflows}: {first:?}");
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

/// A sweep over everything that is random or has state.
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
fn same_seed_gives_same_bytes_with_any_jobs() {
    let plan = sweep();
    let told = |jobs: usize| -> Vec<String> {
        let out = tempfile::tempdir().unwrap();
        let runner = Runner { jobs: Some(jobs), ..runner(out.path()) };
        let outcome = runner.run(&plan, |_| {}).unwrap();
        assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
        let cells = outcome.cells.iter().map(CellRecord::measured);
        cells.map(|cell| serde_json::to_string(&cell).unwrap()).collect()
    };
    let first = told(1);
    assert_eq!(first.len(), 40);
    assert_eq!(first, told(1));
    assert_eq!(first, told(4));
    // Another seed gives another run: the test could fail.
    let out = tempfile::tempdir().unwrap();
    let other = Runner { seed: 2, ..runner(out.path()) }.run(&plan, |_| {}).unwrap();
    let others: Vec<String> =
        other.cells.iter().map(|cell| serde_json::to_string(&cell.phases).unwrap()).collect();
    let differs = |(one, other): (&String, &String)| !one.contains(other.as_str());
    assert!(first.iter().zip(&others).all(differs));
}

#[test]
fn overlapping_seed_runs_keep_their_own_repetitions() {
    let text = format!(
        "id = 'test'
         title = 'A test'
         repetitions = 3
         [paper]
         source = 'TCP Nice §4'
         statement = '…'
         [[axes]]
         name = 'load'
         values = ['1mbit', '2mbit']
         [references.low]
         load = '1mbit'
         {LINK}
         [[groups]]
         name = 'noise'
         kind = 'datagrams'
         pattern = 'poisson'
         rate = '$load'
         phases = ['p']
         [[phases]]
         name = 'p'
         settle = '0s'
         measure = '2s'
         [[checks]]
         name = 'a cell and the one that it is held against have the same seed'
         value = 'abs(seed - reference.low.seed)'
         at_most = 0"
    );
    let plan = Plan::parse("test.toml", &text, false).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = |folder: &Path, seed| {
        let runner = Runner { seed, ..runner(folder) };
        let outcome = runner.run(&plan, |_| {}).unwrap();
        outcome.cells.iter().map(CellRecord::measured).collect::<Vec<_>>()
    };
    run(folder.path(), 1);
    // Seeds 2 and 3 are recorded, as the second and the third repetition.
    let second = run(folder.path(), 2);
    let alone = tempfile::tempdir().unwrap();
    assert_eq!(second, run(alone.path(), 2));
    assert_eq!(judge(&plan, &second).verdicts[0].is_met, Some(true));
    let report = Report::read(vec![vec![plan.clone()]], folder.path(), None).unwrap();
    let told: Vec<_> = report.entries[0].cells.iter().map(CellRecord::measured).collect();
    assert_eq!(told, second);
}

#[test]
fn every_controller_and_queue_carries_traffic() {
    let out = tempfile::tempdir().unwrap();
    for cell in run_in(out.path(), &sweep()) {
        let phase = &cell.phases[0];
        let (tcp, clients, noise) =
            (group(phase, "tcp"), group(phase, "clients"), group(phase, "noise"));
        assert!(tcp.goodput_mbit > 0.5, "{}: {tcp:?}", cell.key);
        // BBR leaves little to others if nothing is marked.
        assert!(clients.packets + clients.dropped > 20, "{}: {clients:?}", cell.key);
        // A response takes at least two round trips.
        assert!(clients.latency.is_none_or(|latency| latency.mean_ms > 80.0), "{clients:?}");
        // The lower class of a single queue may be pushed out completely.
        assert!(noise.packets + noise.dropped > 50, "{}: {noise:?}", cell.key);
        assert!(noise.delay.is_none_or(|delay| delay.p50_ms > 22.0), "{noise:?}");
        let utilisation = phase.utilisation.unwrap();
        assert!(utilisation > 0.5 && utilisation < 1.01, "{}: {utilisation}", cell.key);
    }
}

#[test]
fn lower_class_waits_for_the_higher_and_is_counted_apart() {
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
    // It waits only for a packet of the lower class that is already on the link.
    assert!((0.1..=1.21).contains(&high.waiting.unwrap().max_ms) && high.dropped == 0, "{high:?}");
    assert!(low.waiting.unwrap().mean_ms > 5.0, "{low:?}");
    assert!((high.goodput_mbit - 4.0).abs() < 0.01, "{high:?}");
    assert!((5.0..6.0).contains(&low.goodput_mbit), "{low:?}");
    // 20 ms of propagation and 1.2 ms on the link.
    assert!((21.2..22.5).contains(&high.delay.unwrap().mean_ms), "{high:?}");
}

/// A log: seconds from its beginning, client and bytes of each request.
fn log(requests: &[(u32, &str, u64)]) -> String {
    let line = |&(at, client, bytes): &(u32, &str, u64)| {
        let (minutes, seconds) = (at / 60, at % 60);
        let date = format!("01/Aug/1995:06:{minutes:02}:{seconds:02} +0000");
        format!("{client} - - [{date}] \"GET /{client} HTTP/1.0\" 200 {bytes}\n")
    };
    requests.iter().map(line).collect()
}

/// A plan of one group of documents; `network` has the topology, `more` keys of the group.
fn documents(network: &str, more: &str) -> Plan {
    plan(&format!(
        "[topology]\nkind = 'simulator'\nrtt = '40ms'\n{network}
         [controls.two]
         algorithm = 'reno'
         initial_window = 2
         [[groups]]
         name = 'documents'
         kind = 'documents'
         control = 'two'
         log = 'log.clf'
         delayed_acks = false
         phases = ['p', 'drain']
         {more}
         [[phases]]
         name = 'p'
         settle = '0s'
         measure = '20s'
         [[phases]]
         name = 'drain'
         settle = '0s'
         measure = '20s'"
    ))
}

fn run_with_log(plan: &Plan, requests: &[(u32, &str, u64)]) -> CellRecord {
    let out = tempfile::tempdir().unwrap();
    std::fs::write(out.path().join("log.clf"), log(requests)).unwrap();
    run_in(out.path(), plan).remove(0)
}

#[test]
fn link_rate_may_follow_the_demand_and_the_spare_part() {
    // The requests before and after the section do not belong to it.
    let mut requests = vec![(0, "before", 1), (3, "before", 500_000)];
    requests.extend((0..10).map(|at| (10 + 2 * at, if at < 5 { "a" } else { "b" }, 100_000)));
    requests.push((30, "behind", 500_000));
    let section = "begin = '10s'\nlength = '20s'\nspeed = 2\nscale = 0.5";
    let cell = run_with_log(&documents("demand_of = 'documents'\nspare = 1", section), &requests);
    // Ten documents of 50 kB in ten seconds.
    let demand = group(&cell.phases[0], "documents").demand.unwrap();
    assert_eq!((demand.requests, demand.clients, demand.bytes, demand.mbit), (10, 2, 500_000, 0.4));
    // Each client is active for eight seconds of twenty.
    assert!((demand.active_clients - 0.8).abs() < 1e-9, "{demand:?}");
    assert_eq!(cell.link.as_ref().unwrap().rate_mbit, 0.8);
    let latency = group(&cell.phases[0], "documents").latency.unwrap();
    assert_eq!((latency.count, latency.unanswered), (10, 0));
}

#[test]
fn document_latency_is_that_of_its_packets() {
    let plan = documents("rate = '10mbit'", "length = '20s'");
    let cell = run_with_log(&plan, &[(0, "a", 10_000), (5, "a", 1_000)]);
    let latency = group(&cell.phases[0], "documents").latency.unwrap();
    assert_eq!(latency.count, 2);
    // Seven segments are sent as two, four and one: three round trips, each with a packet's 1.2 ms on the
    // link. A single segment takes one.
    assert!((121.0..127.0).contains(&latency.max_ms), "{latency:?}");
    assert!((40.0..41.5).contains(&latency.p50_ms), "{latency:?}");
}

#[test]
fn documents_completed_in_a_later_phase_count() {
    let plan = |connections: &str, arrivals: &str| {
        let more =
            format!("length = '20s'\nconnections = '{connections}'\narrivals = '{arrivals}'");
        documents("rate = '1mbit'", &more)
    };
    // Eight seconds of link time, requested two seconds before the phase ends.
    let late = [(0, "a", 1_000), (18, "a", 1_000_000), (19, "a", 1_000)];
    let latency = |connections: &str, arrivals: &str| {
        let cell = run_with_log(&plan(connections, arrivals), &late);
        let latency = |phase: usize| group(&cell.phases[phase], "documents").latency;
        (latency(0).unwrap(), latency(1))
    };
    let (logged, afterwards) = latency("fresh", "logged");
    assert_eq!((logged.count, logged.unanswered, afterwards), (3, 0, None));
    assert!((8_000.0..12_000.0).contains(&logged.max_ms), "{logged:?}");
    // One after the other over one connection.
    let (logged, _) = latency("persistent", "logged");
    assert_eq!((logged.count, logged.unanswered), (3, 0));
    // A client that thinks for a second requests the last document after the one before: in the later phase.
    let (thinking, afterwards) = latency("fresh", "think");
    assert_eq!((thinking.count, thinking.unanswered), (2, 0));
    assert_eq!(afterwards.map(|latency| latency.count), Some(1));
}

#[test]
fn incomplete_documents_count_with_their_time_so_far() {
    let plan = documents("rate = '1mbit'", "length = '20s'");
    let latency = |requests: &[(u32, &str, u64)]| {
        group(&run_with_log(&plan, requests).phases[0], "documents").latency.unwrap()
    };
    // The second would need the link for more than 80 seconds, and has 22.
    let both = latency(&[(0, "a", 1_000), (18, "b", 10_000_000)]);
    assert_eq!((both.count, both.unanswered), (1, 1));
    assert!((21_800.0..=22_000.0).contains(&both.max_ms), "{both:?}");
    assert_eq!((both.p95_ms, both.p99_ms), (both.max_ms, both.max_ms));
    // The first takes a round trip of 40 ms, and its packets' time on the link.
    assert!((10_900.0..11_050.0).contains(&both.mean_ms), "{both:?}");
    // A request without bytes is not a document, and begins the log.
    let none = latency(&[(0, "a", 0), (18, "b", 10_000_000)]);
    assert_eq!((none.count, none.unanswered, none.mean_ms), (0, 1, both.max_ms));
    // A client that uses the same connection waits as well.
    let more = "length = '20s'\nconnections = 'persistent'";
    let plan = documents("rate = '1mbit'", more);
    let requests = [(0, "a", 0), (10, "a", 10_000_000), (18, "a", 1_000)];
    let behind = group(&run_with_log(&plan, &requests).phases[0], "documents").latency.unwrap();
    assert_eq!((behind.count, behind.unanswered), (0, 2));
    assert!((25_800.0..=26_000.0).contains(&behind.mean_ms), "{behind:?}");
}

#[test]
fn missing_data_is_reported_before_any_cell_runs() {
    let plan = documents("rate = '1mbit'", "length = '20s'");
    let out = tempfile::tempdir().unwrap();
    let error = runner(out.path()).run(&plan, |_| {}).unwrap_err().to_string();
    assert!(error.contains("log.clf") && error.contains("--data DIR"), "{error}");
    assert!(!error.contains('\n'), "{error}");
    // An invalid log file is reported with its line.
    std::fs::write(out.path().join("log.clf"), "nonsense\n").unwrap();
    let outcome = runner(out.path()).run(&plan, |_| {}).unwrap();
    assert!(outcome.failed[0].error.contains("log.clf:1:"), "{:?}", outcome.failed);
}

#[test]
fn datagrams_follow_a_file_or_the_documents_of_a_log() {
    let plan = |rest: &str| {
        plan(&format!(
            "{LINK}
             [[groups]]
             name = 'd'
             kind = 'datagrams'
             phases = ['p']
             {rest}
             [[phases]]
             name = 'p'
             settle = '0s'
             measure = '10s'"
        ))
    };
    let out = tempfile::tempdir().unwrap();
    std::fs::write(out.path().join("trace.txt"), "0.5 1000\n1 40\n\n1 1500\n").unwrap();
    std::fs::write(out.path().join("log.clf"), log(&[(0, "a", 4_000), (1, "b", 100)])).unwrap();
    let cell = |rest: &str| run_in(out.path(), &plan(rest)).remove(0);
    let recorded = cell("pattern = 'recorded'\nfile = 'trace.txt'");
    let recorded = group(&recorded.phases[0], "d");
    assert_eq!((recorded.packets, recorded.transferred_bytes), (3, Some(2_540)));
    let log = cell("pattern = 'log'\nlog = 'log.clf'\nlength = '10s'\nrate = '5mbit'");
    let log = group(&log.phases[0], "d");
    // 1500, 1500 and 1000 bytes, and 100.
    assert_eq!((log.packets, log.transferred_bytes), (4, Some(4_100)));
    // At half of the link's rate, none waits.
    assert_eq!(log.waiting.unwrap().max_ms, 0.0);
}

#[test]
fn one_cell_may_be_simulated_and_emulated() {
    let plan = plan(
        "[[axes]]
         name = 'network'
         values = ['simulator', 'emulator']
         [topology]
         kind = '$network'
         rate = '10mbit'
         rtt = '50ms'
         [controls.nice]
         algorithm = 'nice'
         [[groups]]
         name = 'foreground'
         kind = 'bulk'
         control = 'cubic'
         phases = ['p']
         [[groups]]
         name = 'background'
         kind = 'bulk'
         control = 'nice'
         count = 8
         phases = ['p']
         [[phases]]
         name = 'p'
         settle = '1s'
         measure = '2s'",
    );
    let cells = plan.cells(&Selection::default(), 1).unwrap();
    assert!(matches!(cells[0].scenario.topology, Network::Simulated(_)), "{:?}", cells[0]);
    assert!(matches!(cells[1].scenario.topology, Network::Emulated(_)), "{:?}", cells[1]);
}

/// A plan that can be simulated, with a line for each key.
const WHOLE: &str = "id = 'test'
title = 'A test'
paper = { source = 'TCP Nice §4', statement = '…' }
topology.kind = 'simulator'
topology.demand_of = 'documents'
topology.spare = 1
topology.rtt = '100ms'
topology.packet = '512B'
topology.header = '40B'
topology.access_delay = '1ms'
controls.two.algorithm = 'reno'
controls.two.initial_window = 2
groups = [
    { name = 'documents', kind = 'documents', control = 'two', log = 'a.gz', length = '9s', phases = ['p'] },
    { name = 'bulk', kind = 'bulk', control = 'LowPri3.7', message = '1MB', every = '2s', phases = ['p'] },
    { name = 'noise', kind = 'datagrams', pattern = 'poisson', rate = '1mbit', phases = ['p'] },
]
phases = [{ name = 'p', settle = '1s', measure = '1s' }]
";

#[test]
fn impossible_simulation_is_rejected_with_line_and_remedy() {
    Plan::parse("plan.toml", WHOLE, false).unwrap();
    for (from, to, line, words) in [
        ("topology.spare = 1\n", "", 4, &["'spare'", "'rate'"][..]),
        ("spare = 1", "spare = -2", 4, &["spare"]),
        ("demand_of = 'documents'", "demand_of = 'bulk'", 5, &["no group of documents", "bulk"]),
        ("packet = '512B'", "packet = '40B'", 4, &["packet", "header"]),
        ("packet = '512B'", "packet = '70kB'", 4, &["packet", "65535B"]),
        ("kind = 'simulator'", "kind = 'emulator'", 4, &["demand_of", "simulator"]),
        ("rtt = '100ms'", "rtt = '100ms'\ntopology.control = 'reno'", 4, &["control", "emulated"]),
        ("'reno'", "'renno'", 11, &["renno", "vegas", "TCP-Background", "LowPri6.2"]),
        ("initial_window = 2", "initial_window = 0", 12, &["initial_window"]),
        ("initial_window = 2", "threshold = 0.1", 12, &["threshold", "nice"]),
        ("'LowPri3.7'", "'LowPri9'", 15, &["LowPri9", "LowPri5.1"]),
        ("every = '2s', ", "", 15, &["bulk", "every"]),
        ("rate = '1mbit', ", "", 16, &["noise", "rate"]),
        ("'poisson'", "'pareto'", 16, &["noise", "shape"]),
        ("'poisson', ", "'poisson', on = '1s', ", 16, &["noise", "'on'", "pattern"]),
        ("length = '9s', ", "", 14, &["documents", "length"]),
        ("length = '9s', ", "length = '9s', speed = 0, ", 14, &["documents", "speed"]),
        ("length = '9s', ", "length = '9s', burst = '1kB', ", 14, &["documents", "burst"]),
        ("kind = 'bulk', ", "kind = 'bulk', recovery = 'fack', ", 15, &["fack", "new_reno"]),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let text = WHOLE.replacen(from, to, 1);
        let Err(error) = Plan::parse("plan.toml", &text, false) else {
            panic!("{to} is taken");
        };
        let error = error.to_string();
        assert!(!error.contains('\n'), "{to}: {error}");
        assert!(error.starts_with(&format!("plan.toml:{line}: ")), "{to}: {error}");
        for word in words {
            assert!(error.contains(word), "{to}: no {word} in: {error}");
        }
    }
}

#[test]
fn plan_may_set_the_least_timeout() {
    // A path longer than the usual first timeout, and one that stalls for longer than the usual minimum.
    let timeouts = |rtt: &str, key: &str| {
        let cell = run_one(&plan(&format!(
            "[topology]
             kind = 'simulator'
             rate = '10mbit'
             rtt = '{rtt}'
             queue = 'priority'
             [[groups]]
             name = 'flow'
             kind = 'bulk'
             control = 'reno'
             dscp = 1
             receive_window = '10p'
             {key}
             phases = ['all']
             [[groups]]
             name = 'bursts'
             kind = 'datagrams'
             pattern = 'bursts'
             burst = '1MB'
             every = '4s'
             rate = '10mbit'
             phases = ['all']
             [[phases]]
             name = 'all'
             settle = '0s'
             measure = '60s'"
        )));
        group(&cell.phases[0], "flow").timeouts.unwrap()
    };
    assert!(timeouts("4s", "") > 0);
    assert_eq!(timeouts("4s", "first_timeout = '10s'"), 0);
    assert!(timeouts("40ms", "") > 0);
    assert_eq!(timeouts("40ms", "least_timeout = '2s'"), 0);
}
