//! Short cells of every kind of traffic on this machine's kernel, and a small plan from its text to its
//! verdicts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::{group, plan, run_one, runner};
use lull_emulator::Backend;
use lull_lab::judge::judge;
use lull_lab::plan::{Plan, Selection};
use lull_lab::plot;
use lull_lab::record::CellRecord;
use lull_lab::run::{Event, MAX_RETRIES, Runner};
use lull_testing::{bound, bpf, needs, root};

/// 10 Mbit/s and 20 ms.
const LINK: &str = "[topology]\nrate = '10mbit'\nrtt = '20ms'\n";

#[test]
fn simulated_bulk_flows_share_a_link_and_leave_it() {
    needs!(root());
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
         settle = '1s'
         measure = '2s'
         [[phases]]
         name = 'both'
         settle = '1s'
         measure = '2s'
         [[phases]]
         name = 'left'
         settle = '1s'
         measure = '1s'"
    )));
    let backend = cell.link.as_ref().and_then(|link| link.backend);
    assert!(matches!(backend, Some(Backend::Tun | Backend::Packet)), "{backend:?}");
    let [alone, both, left] = &cell.phases[..] else { panic!("{cell:?}") };
    let first = group(alone, "first");
    assert!((bound(3.0, 9.0)..bound(15.0, 10.0)).contains(&first.goodput_mbit), "{first:?}");
    assert_eq!((first.flows_mbit.len(), first.fairness), (1, Some(1.0)));
    let rtt = first.rtt_ms.unwrap();
    assert!((20.0..bound(100.0, 42.0)).contains(&rtt), "{rtt}");
    // TCP's own value, which includes a packet's time on the link.
    assert!((first.srtt_ms.unwrap() - rtt).abs() < bound(50.0, 5.0), "{first:?}");
    // It had 80 % for two seconds by then.
    let reached = first.time_to_80_s.is_some_and(|time| time <= 2.5);
    assert!(bound(true, reached), "{first:?}");
    assert!(alone.utilisation.unwrap() > bound(0.3, 0.95) && !alone.groups.contains_key("second"));

    let (first, second) = (group(both, "first"), group(both, "second"));
    let sum = first.goodput_mbit + second.goodput_mbit;
    // 9.65 is the link's limit; packets that waited before the window began are counted in it.
    assert!((bound(3.0, 9.0)..bound(15.0, 10.0)).contains(&sum), "{first:?} {second:?}");
    assert_eq!(second.flows_mbit.len(), 4);
    assert!(second.fairness.unwrap() > 0.25 && second.goodput_mbit > bound(0.5, 3.0), "{second:?}");

    assert!(!left.groups.contains_key("first"));
    assert!(group(left, "second").goodput_mbit > bound(2.0, 9.0), "{left:?}");
    assert!(cell.cpu_s > 0.0 && cell.emulator_cpu_s > 0.0);
}

#[test]
fn requests_take_the_time_of_the_path() {
    needs!(root());
    let requests = |name: &str, connections: &str| {
        format!(
            "[[groups]]
             name = '{name}'
             kind = 'requests'
             control = 'cubic'
             object = '10kB'
             think = '50ms'
             connections = '{connections}'
             phases = ['p']\n"
        )
    };
    let cell = run_one(&plan(&format!(
        "{LINK}{}{}[[phases]]\nname = 'p'\nsettle = '1s'\nmeasure = '5s'",
        requests("fresh", "fresh"),
        requests("standing", "persistent"),
    )));
    let phase = &cell.phases[0];
    // A handshake and a request take a round trip each; 10 kB are sent in one window, in 8 ms.
    for (name, least) in [("fresh", 48.0), ("standing", 28.0)] {
        let latency = group(phase, name).latency.unwrap();
        assert!(latency.count >= bound(5, 20) && latency.failed == 0, "{name}: {latency:?}");
        assert!(
            (least..least + bound(200.0, 15.0)).contains(&latency.p50_ms),
            "{name}: {latency:?}"
        );
        assert!(latency.mean_ms >= least && latency.p99_ms >= latency.p95_ms, "{latency:?}");
        let expected = latency.count as f64 * 10e3 * 8.0 / 1e6 / 5.0;
        let goodput = group(phase, name).goodput_mbit;
        assert!((goodput / expected - 1.0).abs() < bound(0.5, 0.1), "{name}: {goodput} {expected}");
    }
}

#[test]
fn retransmissions_count_in_the_phase_that_sends_them() {
    needs!(root());
    let cell = run_one(&plan(
        "[topology]
             rate = '10mbit'
             rtt = '20ms'
             buffer = '4p'
             [[groups]]
             name = 'standing'
             kind = 'requests'
             control = 'cubic'
             object = '200kB'
             think = '50ms'
             connections = 'persistent'
             phases = ['p']
             [[phases]]
             name = 'p'
             settle = '1s'
             measure = '3s'",
    ));
    let standing = group(&cell.phases[0], "standing");
    assert!(standing.dropped > 0 && standing.retransmitted > 0, "{standing:?}");
}

#[test]
fn nice_of_both_carriers_is_a_background() {
    needs!(bpf());
    let _alone = registering();
    let cell = |carrier: &str| {
        run_one(&plan(&format!(
            "{LINK}
             [controls.background]
             algorithm = 'nice'
             carrier = '{carrier}'
             [[groups]]
             name = 'foreground'
             kind = 'bulk'
             control = 'cubic'
             phases = ['p']
             [[groups]]
             name = 'background'
             kind = 'bulk'
             control = 'background'
             count = 2
             phases = ['p']
             [[phases]]
             name = 'p'
             settle = '3s'
             measure = '4s'"
        )))
    };
    for carrier in ["kernel", "user-space"] {
        let cell = cell(carrier);
        let phase = &cell.phases[0];
        let (foreground, background) = (group(phase, "foreground"), group(phase, "background"));
        assert!(
            foreground.goodput_mbit > bound(3.0, 7.0),
            "{carrier}: {foreground:?} {background:?}"
        );
        assert!(background.packets > 0, "{carrier}: {background:?}");
    }
    let left = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let own = format!("lab{}_", std::process::id());
    assert!(!left.unwrap().contains(&own), "the variant is still registered");
}

/// Variants that a run registers have the number of the process in their names, but nothing of the test.
fn registering() -> MutexGuard<'static, ()> {
    static REGISTERING: Mutex<()> = Mutex::new(());
    REGISTERING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// With BPF it is available, and they run as well.
#[test]
fn cells_without_their_control_fail_and_others_run() {
    if lull_testing::bpf().is_ok() {
        return;
    }
    let plan = plan(
        "[[axes]]
         name = 'network'
         values = ['simulator', 'emulator']
         [topology]
         kind = '$network'
         rate = '10mbit'
         rtt = '20ms'
         [controls.ours]
         algorithm = 'nice'
         [[groups]]
         name = 'a'
         kind = 'bulk'
         control = 'ours'
         phases = ['p']
         [[phases]]
         name = 'p'
         settle = '0s'
         measure = '1s'",
    );
    let out = tempfile::tempdir().unwrap();
    let mut refused = None;
    let runner = runner(out.path());
    let outcome = runner.run(&plan, |event| {
        if let Event::Refused { cells, why } = event {
            refused = Some((cells, why));
        }
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.cells.len(), outcome.failed.len()), (1, 1));
    let (cells, why) = refused.unwrap();
    assert_eq!((cells, &why), (1, &outcome.failed[0].error));
    assert!(why.contains("'ours' is not available"), "{why}");
    // If none of them can run, that is reported once, and nothing is recorded.
    let only = Selection::new(["network=emulator"]).unwrap();
    let record = std::fs::read_to_string(&outcome.record).unwrap();
    let error = Runner { selection: only, ..runner }.run(&plan, |_| {}).unwrap_err().to_string();
    assert!(error.contains("'ours' is not available") && !error.contains('\n'), "{error}");
    assert_eq!(std::fs::read_to_string(&outcome.record).unwrap(), record);
}

/// The first run in which the emulator was on time, or the last. Only a test of accuracy needs more than one
/// run.
fn run_on_time(plan: &Plan) -> CellRecord {
    let mut cell = run_one(plan);
    for _ in 0..bound(0, 2) {
        if !cell.is_disturbed() {
            break;
        }
        cell = run_one(plan);
    }
    cell
}

/// A cell of the plan `kernel-matrix`, in which the foreground keeps 0.997 and Nice uses all of the idle
/// link. Eight flows that do not yield leave the foreground a ninth.
#[test]
fn eight_nice_flows_yield_to_a_foreground_and_fill_alone() {
    needs!(bpf());
    let _alone = registering();
    let cell = run_on_time(&plan(
        "[topology]
             rate = '10mbit'
             rtt = '50ms'
             buffer = '1bdp'
             [controls.nice]
             algorithm = 'nice'
             [[groups]]
             name = 'foreground'
             kind = 'bulk'
             control = 'cubic'
             spread = '0s'
             phases = ['alone', 'beside']
             [[groups]]
             name = 'background'
             kind = 'bulk'
             control = 'nice'
             count = 8
             phases = ['spare', 'beside']
             [[phases]]
             name = 'spare'
             settle = '5s'
             measure = '3s'
             [[phases]]
             name = 'alone'
             settle = '3s'
             measure = '4s'
             [[phases]]
             name = 'beside'
             settle = '4s'
             measure = '5s'",
    ));
    // With a late emulator, a Nice flow measures delays that no queue causes, and sends at its minimum: 0.7 %
    // of the idle link beside 20 busy threads.
    let (least_kept, least_used) =
        bound((0.2, 0.0), if cell.is_disturbed() { (0.9, 0.5) } else { (0.95, 0.8) });
    let [spare, alone, beside] = &cell.phases[..] else { panic!("{cell:?}") };
    let background = group(beside, "background");
    assert!(background.packets > 0, "{background:?}");
    let goodput = |phase| group(phase, "foreground").goodput_mbit;
    let kept = goodput(beside) / goodput(alone);
    assert!(kept >= least_kept, "{kept}: {alone:?} {beside:?}");
    let used = group(spare, "background").sent_mbit / 10.0;
    assert!(used >= least_used, "{used}: {spare:?}");
}

#[test]
fn wire_has_no_bottleneck_and_keeps_the_requested_pace() {
    needs!(root());
    let cell = run_one(&plan(
        "[topology]
         kind = 'wire'
         [[groups]]
         name = 'paced'
         kind = 'bulk'
         control = 'cubic'
         pace = '200mbit'
         phases = ['p']
         [[phases]]
         name = 'quiet'
         settle = '100ms'
         measure = '500ms'
         [[phases]]
         name = 'p'
         settle = '500ms'
         measure = '2s'",
    ));
    assert!(cell.link.is_none());
    let phase = cell.phase("p").unwrap();
    let goodput = group(phase, "paced").goodput_mbit;
    assert!((bound(20.0, 180.0)..bound(300.0, 205.0)).contains(&goodput), "{goodput}");
    assert!(phase.cpu.process_s > 0.0 && phase.cpu.interrupts_s.is_some(), "{:?}", phase.cpu);
}

/// Two controls, one of which does not exist: four cells, two of which fail.
const MINIATURE: &str = "
    repetitions = 2
    [[axes]]
    name = 'control'
    values = ['cubic', 'no-such-control']
    [topology]
    rate = '10mbit'
    rtt = '20ms'
    [[groups]]
    name = 'a'
    kind = 'bulk'
    control = '$control'
    phases = ['p']
    [[phases]]
    name = 'p'
    settle = '500ms'
    measure = '1s'
    [[metrics]]
    name = 'used'
    value = 'share.a.p'
    [[checks]]
    name = 'it is used'
    value = 'metric.used'
    at_least = 0.5
    [[plots]]
    name = 'used'
    title = 'Use of the link'
    kind = 'bars'
    x = 'control'
    y = 'metric.used'
    y_title = 'part of the link'";

#[test]
fn plan_is_run_judged_drawn_and_continued() {
    needs!(root());
    let text = MINIATURE.replace("\n    ", "\n");
    let (before, after) = text.split_once("[[axes]]").unwrap();
    let text = format!(
        "id = 'test'\ntitle = 'A test'\n{before}\n[paper]\nsource = 'a'\nstatement = 'b'\n\
         [[axes]]{after}"
    );
    let plan = Plan::parse("test.toml", &text, false).unwrap();
    let out = tempfile::tempdir().unwrap();
    let runner = runner(out.path());
    let mut events = Vec::new();
    let outcome = runner.run(&plan, |event| events.push(event)).unwrap();
    assert_eq!((outcome.cells.len(), outcome.failed.len()), (2, 2));
    assert!(outcome.failed[0].error.contains("no-such-control"), "{:?}", outcome.failed);
    let Event::Planned { recorded, cells, .. } = &events[0] else { panic!("{events:?}") };
    assert_eq!((*recorded, *cells), (0, 4));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Ended { .. })).count(), 4);

    let results = judge(&plan, &outcome.cells);
    assert_eq!(results.rows.len(), 1);
    assert_eq!(results.rows[0].repetitions, 2);
    assert_eq!(results.verdicts[0].is_met, Some(true), "{:?}", results.verdicts[0]);

    let drawn = plot::draw(&plan, &outcome.cells, out.path()).unwrap();
    let svg = std::fs::read_to_string(&drawn[0]).unwrap();
    for word in ["<svg", "Use of the link", "cubic", "part of the link"] {
        assert!(svg.contains(word), "no {word} in the plot");
    }

    // Only missing cells run again: those that failed, and new ones.
    let again = |runner: &Runner| {
        let mut planned = (0, 0);
        let outcome = runner.run(&plan, |event| {
            if let Event::Planned { recorded, cells, .. } = event {
                planned = (recorded, cells);
            }
        });
        let outcome = outcome.unwrap();
        (planned, outcome.cells.len(), outcome.headers.len())
    };
    let only = Selection::new(["control=cubic"]).unwrap();
    let selected = Runner { selection: only, ..runner.clone() };
    assert_eq!(again(&selected), ((2, 0), 2, 1));
    assert_eq!(again(&Runner { seed: 2, ..selected.clone() }), ((1, 1), 2, 2));
    // Only the selected cells are dropped: those of the other seed, and the header, are kept.
    assert_eq!(again(&Runner { fresh: true, ..selected.clone() }), ((0, 2), 2, 3));
    assert_eq!(again(&Runner { seed: 2, ..selected.clone() }), ((2, 0), 2, 3));
    let all = Runner { fresh: true, selection: Selection::default(), ..selected };
    assert_eq!(again(&all), ((0, 4), 2, 1));
}

#[test]
fn late_cell_is_repeated_and_the_better_run_kept() {
    needs!(root());
    let plan = plan(
        "[topology]
        rate = '2mbit'
        rtt = '20ms'
        [[groups]]
        name = 'flow'
        kind = 'bulk'
        control = 'reno'
        phases = ['all']
        [[phases]]
        name = 'all'
        settle = '100ms'
        measure = '500ms'",
    );
    let out = tempfile::tempdir().unwrap();
    let runner = Runner { again: true, ..runner(out.path()) };
    let record = runner.run(&plan, |_| {}).unwrap().record;
    // As if the emulator had been a second late, so that the new run is better in any case.
    let text = std::fs::read_to_string(&record).unwrap();
    let late = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        if line["line"] == "cell" {
            line["phases"][0]["timing_error"]["p99_ms"] = 1000.0.into();
            line.as_object_mut().unwrap().remove("again");
        }
        line.to_string() + "\n"
    };
    std::fs::write(&record, text.lines().map(late).collect::<String>()).unwrap();
    let planned = |runner: &Runner| {
        let mut planned = Vec::new();
        let outcome = runner.run(&plan, |event| {
            if let Event::Planned { recorded, cells, disturbed, .. } = event {
                planned.push((recorded, cells, disturbed));
            }
        });
        (planned, outcome.unwrap().cells.remove(0))
    };
    let (passes, cell) = planned(&Runner { again: false, ..runner.clone() });
    assert_eq!((passes, cell.again), (vec![(1, 0, 0)], 0));
    let (passes, cell) = planned(&runner);
    assert_eq!(passes[0], (0, 1, 1));
    assert!(cell.late_ms() < 1000.0 && (1..=MAX_RETRIES).contains(&cell.again), "{cell:?}");
    assert!(passes.len() <= 2 && (cell.again == 1 || passes.len() == 2), "{passes:?}");
}
