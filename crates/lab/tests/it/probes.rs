//! Probes, programs that end a phase, and asymmetric links, in short cells on this machine's kernel.

use crate::common::{plan, run, run_one};
use lull_lab::plan::Plan;
use lull_testing::{bound, bpf, needs, root};
use serde_json::Value;

/// A plan over 10 Mbit/s and 20 ms; `more` continues the topology.
fn over(more: &str) -> Plan {
    plan(&format!("[topology]\nrate = '10mbit'\nrtt = '20ms'\n{more}"))
}

fn number(quantities: &Value, path: &str) -> f64 {
    let found = quantities.pointer(path).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no {path} in {quantities}"))
}

/// The buffer holds the first bursts of five connections. If slow start overflowed it, losses would be
/// random, and four others could slow a short transfer no more than one does.
fn probes(actions: &str, rounds: u32, controls: &str) -> Plan {
    over(&format!(
        "buffer = '50 packets'
         {controls}
         [[groups]]
         name = 'probe'
         kind = 'probes'
         object = '500kB'
         rest = '300ms'
         think = '100ms'
         rounds = {rounds}
         phases = ['p']
         actions = [{actions}]
         [[phases]]
         name = 'p'
         settle = '0s'
         measure = '60s'
         until = ['probe']"
    ))
}

#[test]
fn probes_take_every_action_in_every_round() {
    needs!(root());
    let cell = run_one(&probes(
        "{ name = 'alone', primary = 'reno' },
         { name = 'cubic', primary = 'cubic' },
         { name = 'beside', primary = 'reno', secondary = 'reno' },
         { name = 'beside4', primary = 'reno', secondary = 'reno', count = 4 }",
        3,
        "",
    ));
    let all = cell.quantities();
    let of = |action: &str, what: &str| number(&all, &format!("/transfer/probe/p/{action}/{what}"));
    for action in ["alone", "cubic", "beside", "beside4"] {
        assert_eq!(of(action, "count"), 3.0, "{action}");
        // At most the link's rate: 500 kB take 0.42 s there, and more with all headers.
        assert!(of(action, "min_s") > 0.42, "{action}: {all}");
        let mbit = 4.0 / of(action, "mean_s");
        assert!((of(action, "mean_mbit") / mbit - 1.0).abs() < bound(0.9, 0.3), "{action}: {all}");
    }
    // A handshake, slow start and 500 kB.
    assert!(of("alone", "max_s") < bound(5.0, 0.9), "{all}");
    assert!(of("beside", "mean_s") > bound(1.0, 1.3) * of("alone", "mean_s"), "{all}");
    assert!(of("beside4", "mean_s") > bound(1.0, 1.5) * of("beside", "mean_s"), "{all}");
    // The others get the rest of the link meanwhile.
    let sum = of("beside4", "mean_mbit") + of("beside4", "beside_mbit");
    assert!((bound(1.0, 5.0)..bound(15.0, 10.2)).contains(&sum), "{all}");
    assert!(all.pointer("/transfer/probe/p/alone/beside_mbit").is_none());
    let seconds = number(&all, "/seconds/p");
    assert!(seconds < 45.0, "it went on for {seconds} s");
    let group = &cell.phases[0].groups["probe"];
    assert!(group.packets > 0 && group.goodput_mbit > 1.0, "{group:?}");
}

#[test]
fn probe_is_hardly_slower_beside_nice() {
    needs!(bpf());
    let cell = run_one(&probes(
        "{ name = 'alone', primary = 'reno' },
         { name = 'beside', primary = 'reno', secondary = 'background', count = 4 }",
        3,
        "[controls.background]\nalgorithm = 'nice'\nthreshold = 0.2\nfraction = 0.5",
    ));
    let all = cell.quantities();
    let of = |action: &str| number(&all, &format!("/transfer/probe/p/{action}/mean_mbit"));
    // Half a second is all slow start: four of Reno's would leave it a fifth.
    assert!(of("beside") > bound(0.3, 0.6) * of("alone"), "{all}");
}

#[test]
fn phase_ends_with_its_last_timed_program() {
    needs!(root());
    let cell = run_one(&over(
        "[[groups]]
         name = 'short'
         kind = 'command'
         phases = ['p', 'q']
         program = ['sleep', '0.5']
         [[groups]]
         name = 'long'
         kind = 'command'
         count = 2
         phases = ['p', 'q']
         program = ['sleep', '5']
         [[phases]]
         name = 'p'
         settle = '0s'
         measure = '60s'
         until = ['short']
         [[phases]]
         name = 'q'
         settle = '0s'
         measure = '60s'
         until = ['short', 'long']",
    ));
    let all = cell.quantities();
    let short = number(&all, "/completion/short/p");
    assert!((0.5..5.0).contains(&short), "{short}");
    let long = number(&all, "/completion/long/q");
    assert!((5.0..30.0).contains(&long), "{long}");
    // It is reported in its own phase, and nowhere else.
    assert!(all.pointer("/completion/long/p").is_none(), "{all}");
    assert!(all.pointer("/completion/short/q").is_none(), "{all}");
    let (p, q) = (number(&all, "/seconds/p"), number(&all, "/seconds/q"));
    assert!(p < 30.0 && q < 30.0, "{p} {q}");
}

#[test]
fn failing_program_ends_the_wait() {
    needs!(root());
    let begin = std::time::Instant::now();
    let outcome = run(&over(
        "[[groups]]
         name = 'broken'
         kind = 'command'
         phases = ['p']
         program = ['sh', '-c', 'echo no paper >&2; exit 2']
         [[phases]]
         name = 'p'
         settle = '0s'
         measure = '60s'
         until = ['broken']",
    ));
    assert!(outcome.cells.is_empty());
    assert!(outcome.failed[0].error.contains("no paper"), "{:?}", outcome.failed);
    assert!(begin.elapsed().as_secs() < 20);
}

#[test]
fn link_has_a_return_rate_and_programs_a_control() {
    needs!(root());
    let cell = run_one(&over(
        "reverse_rate = '1mbit'
         reverse_buffer = '30p'
         control = 'reno'
         [[groups]]
         name = 'there'
         kind = 'bulk'
         control = 'reno'
         phases = ['there']
         [[groups]]
         name = 'back'
         kind = 'bulk'
         control = 'reno'
         from = 'right1'
         to = 'left1'
         phases = ['back']
         [[groups]]
         name = 'program'
         kind = 'command'
         phases = ['there']
         program = ['grep', '-qx', 'reno', '/proc/sys/net/ipv4/tcp_congestion_control']
         [[phases]]
         name = 'there'
         settle = '1s'
         measure = '2s'
         [[phases]]
         name = 'back'
         settle = '2s'
         measure = '2s'",
    ));
    let all = cell.quantities();
    let (there, back) = (number(&all, "/goodput/there/there"), number(&all, "/goodput/back/back"));
    assert!((bound(2.0, 8.5)..bound(15.0, 10.0)).contains(&there), "{there}");
    assert!((bound(0.2, 0.8)..bound(2.0, 1.05)).contains(&back), "{back}");
}
