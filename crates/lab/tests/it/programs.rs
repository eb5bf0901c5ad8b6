//! Programs as traffic, in short cells on this machine's kernel.

use crate::common;
use crate::common::{group, plan, run_one, runner};
use lull_testing::{bound, bpf, command, needs, root};

/// 10 Mbit/s and 20 ms.
const LINK: &str = "[topology]\nrate = '10mbit'\nrtt = '20ms'\n";

/// A server that discards its input, and a client that sends.
const PROGRAMS: &str = r#"
[[groups]]
name = "program"
kind = "command"
phases = ["p"]
program = ["sh", "-c", "exec python3 -c 'import os, socket\ns = socket.create_connection((os.environ[\"LULL_RIGHT_1\"], 9000))\nwhile True: s.sendall(bytes(65536))'"]
server = ["python3", "-c", "import socket\ns = socket.create_server((\"\", 9000))\nwhile True:\n  c, _ = s.accept()\n  while c.recv(65536): pass"]
"#;

#[test]
fn programs_are_traffic_too() {
    needs!(root(), command("python3"));
    let cell = run_one(&plan(&format!(
        "{LINK}{PROGRAMS}
         [[phases]]
         name = 'before'
         settle = '1s'
         measure = '500ms'
         [[phases]]
         name = 'p'
         settle = '2s'
         measure = '3s'"
    )));
    let program = group(cell.phase("p").unwrap(), "program");
    assert!(program.goodput_mbit > bound(2.0, 9.0), "{program:?}");
    assert!(cell.phase("before").unwrap().utilisation.unwrap() < 0.01);
}

#[test]
fn failing_program_fails_its_cell_with_its_message() {
    needs!(root());
    let out = tempfile::tempdir().unwrap();
    let plan = plan(&format!(
        "{LINK}
         [[groups]]
         name = 'broken'
         kind = 'command'
         phases = ['p']
         program = ['sh', '-c', 'echo out of tapes >&2; exit 3']
         [[phases]]
         name = 'p'
         settle = '0s'
         measure = '500ms'"
    ));
    let outcome = runner(out.path()).run(&plan, |_| {}).unwrap();
    assert!(outcome.cells.is_empty());
    let error = &outcome.failed[0].error;
    assert!(error.contains("broken") && error.contains("out of tapes"), "{error}");
}

/// Small packets take less time on a slow link than full ones. Their round-trip time must not become the
/// path's, because each full packet would then look like a queue.
#[test]
fn nice_that_began_with_small_messages_fills_a_slow_link() {
    needs!(bpf(), command("python3"));
    let cell = run_one(&plan(
        r#"[topology]
         rate = '1500kbit'
         rtt = '25ms'
         buffer = '20p'
         [controls.nice]
         algorithm = 'nice'
         [[groups]]
         name = 'talk'
         kind = 'command'
         control = 'nice'
         phases = ['p']
         program = ['python3', '-c', """
import os, socket, time
while True:
    s = socket.socket()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, os.environ['LULL_CONTROL'].encode())
    if s.connect_ex((os.environ['LULL_RIGHT_1'], 9000)) == 0: break
    time.sleep(0.05)
for _ in range(20):
    s.sendall(bytes(40))
    s.recv(40)
while True: s.sendall(bytes(16384))
"""]
         server = ['python3', '-c', """
import socket
c, _ = socket.create_server(('', 9000)).accept()
for _ in range(20):
    c.recv(40)
    c.sendall(bytes(40))
while c.recv(65536): pass
"""]
         [[phases]]
         name = 'p'
         settle = '6s'
         measure = '8s'"#,
    ));
    let talk = group(&cell.phases[0], "talk");
    assert!(talk.goodput_mbit > bound(0.01, 0.75), "{talk:?}");
}

/// A program that prints this, and a phase that ends with it.
fn reporting(printed: &str) -> String {
    format!(
        "{LINK}
         [[groups]]
         name = 'reporter'
         kind = 'command'
         report = true
         phases = ['p']
         program = ['sh', '-c', 'test -d \"$LULL_SCRATCH\" && test \"$LULL_SEED\" = 7 && {printed}']
         [[phases]]
         name = 'p'
         settle = '0s'
         measure = '20s'
         until = ['reporter']
         [[metrics]]
         name = 'm'
         title = 'm'
         value = 'report.reporter.p.a.b'"
    )
}

#[test]
fn reported_value_of_a_program_is_a_quantity() {
    needs!(root());
    let out = tempfile::tempdir().unwrap();
    let plan = plan(&reporting(r#"printf "{\"a\": {\"b\": 2.5}}""#));
    let mut runner = runner(out.path());
    runner.seed = 7;
    let outcome = runner.run(&plan, |_| {}).unwrap();
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    let quantities = outcome.cells[0].quantities();
    assert_eq!(quantities["report"]["reporter"]["p"]["a"]["b"], 2.5, "{quantities}");
}

#[test]
fn invalid_report_fails_its_cell() {
    needs!(root());
    let out = tempfile::tempdir().unwrap();
    let mut runner = runner(out.path());
    runner.seed = 7;
    let outcome = runner.run(&plan(&reporting("echo 17")), |_| {}).unwrap();
    assert!(outcome.cells.is_empty());
    let error = &outcome.failed[0].error;
    assert!(error.contains("reporter") && error.contains("not a JSON object"), "{error}");
}

#[test]
fn programs_without_a_network_report_in_turn() {
    let phase = "[[phases]]\nname = 'p'\nsettle = '0s'\nmeasure = '30s'";
    let program = |name: &str, text: &str| {
        format!(
            "[[groups]]\nname = '{name}'\nkind = 'command'\nreport = true\nphases = ['p']\n\
             program = ['sh', '-c', '{text}']\n"
        )
    };
    let good = program("one", r#"echo "{\"seed\": $LULL_SEED, \"here\": [1, 2]}""#);
    let plan = plan(&format!(
        "[topology]\nkind = 'none'\n{good}{phase}\n\
         [[metrics]]\nname = 'sum'\nvalue = 'report.one.p.here[0] + report.one.p.here[1]'"
    ));
    assert!(plan.is_simulated().unwrap(), "it needs no kernel");
    let cell = run_one(&plan);
    let report = group(cell.phase("p").unwrap(), "one").report.clone().unwrap();
    assert_eq!((&report["seed"], &report["here"][1]), (&1.into(), &2.into()));
    let results = lull_lab::judge::judge(&plan, &[cell]);
    assert_eq!(results.rows[0].metrics, [Some(3.0)], "{results:?}");

    for (text, why) in [
        ("echo out of tapes >&2; exit 3", "out of tapes"),
        ("echo 7", "is not a JSON object"),
        ("exec sleep 60", "did not end in time"),
    ] {
        let out = tempfile::tempdir().unwrap();
        let short = phase.replace("30s", "1s");
        let text = format!("[topology]\nkind = 'none'\n{}{short}", program("one", text));
        let outcome = runner(out.path()).run(&common::plan(&text), |_| {}).unwrap();
        assert!(outcome.cells.is_empty() && outcome.failed[0].error.contains(why), "{outcome:?}");
    }

    let bulk = "[[groups]]\nname = 'one'\nkind = 'bulk'\ncontrol = 'reno'\nphases = ['p']\n";
    for (text, why) in [
        (format!("[topology]\nkind = 'none'\n{bulk}{phase}"), "no network"),
        (format!("[topology]\nkind = 'none'\nrtt = '1ms'\n{good}{phase}"), "only the key"),
    ] {
        let text = format!(
            "id = 'test'\ntitle = 'A test'\n[paper]\nsource = '§'\nstatement = '…'\n{text}"
        );
        let error = lull_lab::plan::Plan::parse("test.toml", &text, false).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}
