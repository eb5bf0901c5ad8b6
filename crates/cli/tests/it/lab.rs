//! `lull lab run`, `list` and `demo` from a user's view.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Kept, Service, finish, is_unique_name, lull, shell};
use lull_emulator::process_exists;
use lull_testing::{bound, bpf, command, needs, root};
use serde_json::Value;

/// Two cells of two seconds, one check that is met and one that is not.
const PLAN: &str = "
id = 'mini'
title = 'A miniature'
[paper]
source = 'TCP Nice §4'
statement = 'little interference'
value = '97 %'
[[axes]]
name = 'control'
values = ['cubic', 'reno']
[quick.axes]
control = ['cubic']
[topology]
rate = '5mbit'
rtt = '20ms'
[[groups]]
name = 'a'
kind = 'bulk'
control = '$control'
phases = ['p']
[[phases]]
name = 'p'
settle = '1s'
measure = '1s'
[[metrics]]
name = 'used'
title = 'use of the link'
value = 'share.a.p'
[[checks]]
name = 'used'
value = 'metric.used'
at_least = 0.05
[[checks]]
name = 'impossible'
value = 'metric.used'
at_least = 2
[[plots]]
name = 'used'
title = 'Use'
kind = 'lines'
x = 'control'
y = 'metric.used'
y_title = 'part'
";

/// A folder with a plan in `plans/mini.toml`.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(plan: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("plans")).unwrap();
        fs::write(folder.path().join("plans/mini.toml"), plan).unwrap();
        Bench { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn lab(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lull"));
        command.arg("lab").args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.lab(arguments).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The cells of a record, each once, however often the emulator was late and they ran again.
fn cells(record: &[Value]) -> Vec<&str> {
    let cells = record.iter().filter(|line| line["line"] == "cell");
    let keys: BTreeSet<_> = cells.map(|cell| cell["key"].as_str().unwrap()).collect();
    keys.into_iter().collect()
}

#[test]
fn built_in_plans_are_listed_with_their_cost() {
    let empty = tempfile::tempdir().unwrap();
    let list = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lull"));
        command.args(["lab", "list"]).args(arguments).current_dir(empty.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let shown = list(&[]);
    for word in ["kernel-matrix", "kernel-latecomer", "kernel-cpu", "demo", "cells", "--quick"] {
        assert!(shown.contains(word), "no {word} in {shown}");
    }
    let json: Value = serde_json::from_str(&list(&["--json", "kernel-m*"])).unwrap();
    let [plan] = &json["plans"].as_array().unwrap()[..] else { panic!("{json}") };
    for key in ["id", "title", "paper", "runs", "cells", "seconds", "quick_cells", "quick_seconds"]
    {
        assert!(!plan[key].is_null(), "{key}: {plan}");
    }
    assert!(plan["quick_seconds"].as_u64().unwrap() <= 360, "{plan}");
}

#[test]
fn invalid_lab_options_have_one_line_and_an_exit_code() {
    let bench = Bench::new(PLAN);
    let spoilt = Bench::new(&PLAN.replace("rtt = '20ms'", "rtt = '20'"));
    let misnamed = Bench::new(&PLAN.replace("'mini'", "'other'"));
    for (bench, arguments, word) in [
        (&bench, &["run", "no-such-plan"][..], "the plans are mini"),
        (&bench, &["run", "mini", "--only", "control=bbr"], "cubic, reno"),
        (&bench, &["run", "mini", "--only", "speed=1"], "there are control"),
        (&bench, &["run", "mini", "--plans", "nowhere"], "nowhere"),
        (&bench, &["run", "mini", "--simulated"], "each of these needs the kernel"),
        (&bench, &["run"], "PLAN"),
        (&bench, &["run", "--only", "control=cubic"], "no plan"),
        (&bench, &["run", "--only", "control=cubic", "no-such-plan"], "no-such-plan"),
        (&spoilt, &["run", "mini"], "mini.toml:15: topology.rtt"),
        (&misnamed, &["list"], "the file's name"),
        (&bench, &["demo", "--plans", "plans"], "the plans are mini"),
        (&bench, &["demo", "--json=yes"], "--json"),
    ] {
        let output = bench.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: no {word} in {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    }
}

#[test]
fn plans_without_kernel_need_run_anywhere() {
    let empty = tempfile::tempdir().unwrap();
    // The second of these needs a kernel, the third does for half of its cells.
    let plans = ["bench-dumbbell", "demo", "simulator-kernel"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_lull"));
    command.args(["lab", "run", "--simulated", "--quick"]).args(plans).current_dir(empty.path());
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let out = empty.path().join("out");
    let records = fs::read_dir(&out).unwrap();
    let mut names: Vec<_> = records
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".jsonl"))
        .collect();
    names.sort();
    assert_eq!(names, ["bench-dumbbell.quick.jsonl", "simulator-kernel.quick.jsonl"]);
    let record = lines(&out.join("simulator-kernel.quick.jsonl"));
    let cells = cells(&record);
    assert!(!cells.is_empty() && cells.iter().all(|key| key.contains("network=simulator")));
    // Omissions are reported: the one as a whole, and of the other the available part.
    let (left_out, all) = (cells.len(), 2 * cells.len());
    let told = format!(
        "without cells that need the kernel: demo, {left_out} of {all} cells of \
                 simulator-kernel"
    );
    assert!(said.contains(&told), "no {told} in {said}");
    assert!(said.contains("2 plans: "), "{said}");
}

#[test]
fn dumbbell_benchmark_reports_cost_and_results() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lull"));
    command.args(["lab", "run", "bench-dumbbell", "--json"]).current_dir(empty.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let plan = &json["plans"][0];
    let [cell] = &plan["simulated"].as_array().unwrap()[..] else { panic!("{plan}") };
    let (events, delivered) = (cell["events"].as_u64(), cell["delivered_packets"].as_u64());
    // Twenty flows fill a link that carries 292,969 packets of 512 bytes in 120 s, and each packet is
    // several events.
    assert!(delivered.is_some_and(|packets| (270_000..=292_969).contains(&packets)), "{cell}");
    assert!(events > delivered.map(|packets| 2 * packets), "{cell}");
    assert!(cell["wall_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{cell}");
    // The table has them as well.
    let names: Vec<_> =
        plan["metrics"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    for name in ["wall_s", "events", "delivered_packets"] {
        let at = names.iter().position(|other| *other == name).unwrap();
        assert_eq!(plan["rows"][0]["metrics"][at].as_f64(), cell[name].as_f64(), "{name}: {plan}");
    }
}

#[test]
fn run_is_recorded_judged_drawn_and_continued() {
    needs!(root());
    let bench = Bench::new(PLAN);
    let first = bench.run(&["run", "mini", "--seed", "5"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let shown = text(&first.stdout);
    for word in ["use of the link", "met     used", "MISSED  impossible", "hold against: 97 %"] {
        assert!(shown.contains(word), "no {word} in {shown}");
    }
    let record = lines(&bench.path("out/mini.jsonl"));
    let goodput = &record[1]["phases"][0]["groups"]["a"]["goodput_mbit"];
    assert!(goodput.as_f64().unwrap() > bound(0.5, 4.0), "{goodput}");
    assert!(text(&first.stderr).contains("seed 5"), "{}", text(&first.stderr));
    let record = lines(&bench.path("out/mini.jsonl"));
    assert_eq!(cells(&record), ["control=cubic repetition=1", "control=reno repetition=1"]);
    assert_eq!((record[0]["line"].as_str(), record[0]["seed"].as_u64()), (Some("header"), Some(5)));
    assert_eq!(record[0]["command"][2], "run");
    assert!(fs::read_to_string(bench.path("out/mini-used.svg")).unwrap().contains("<svg"));

    // All records exist: only the table is made again, and a failed check may still fail it.
    let before = fs::read(bench.path("out/mini.jsonl")).unwrap();
    let again = bench.run(&["run", "mini", "--seed", "5", "--json", "--check"]);
    assert_eq!(fs::read(bench.path("out/mini.jsonl")).unwrap(), before, "nothing is measured");
    assert_eq!(again.status.code(), Some(1), "{}", text(&again.stderr));
    let json: Value = serde_json::from_slice(&again.stdout).unwrap();
    let plan = &json["plans"][0];
    assert_eq!(plan["verdicts"][0]["is_met"], true, "{plan}");
    assert_eq!(plan["verdicts"][1]["is_met"], false, "{plan}");
    assert_eq!(plan["rows"].as_array().unwrap().len(), 2);
    assert_eq!(plan["header"]["seed"], 5);

    let quick = bench.run(&["run", "m*", "--quick", "--out", "elsewhere"]);
    assert!(quick.status.success(), "{}", text(&quick.stderr));
    let record = lines(&bench.path("elsewhere/mini.quick.jsonl"));
    assert_eq!(cells(&record), ["control=cubic repetition=1"]);
}

#[test]
fn failing_cell_is_reported_and_the_others_run() {
    needs!(root());
    let bench = Bench::new(&PLAN.replace("'reno'", "'no-such-control'"));
    let output = bench.run(&["run", "mini"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("failed: control=no-such-control"), "{said}");
    assert!(said.contains("tcp_available_congestion_control"), "{said}");
    let record = lines(&bench.path("out/mini.jsonl"));
    let kinds: Vec<_> = record.iter().map(|line| line["line"].as_str().unwrap()).collect();
    assert_eq!(cells(&record), ["control=cubic repetition=1"]);
    assert_eq!(kinds.iter().filter(|kind| **kind == "failed").count(), 1, "{kinds:?}");
}

/// The only experiment with the case in which `lull exec --cc background` is refused; a minute at most.
#[test]
fn background_is_unnoticed_only_where_it_is_served_last() {
    needs!(bpf(), command("python3"));
    let empty = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lull"));
    command.args(["lab", "run", "exec-background", "--quick", "--check", "--out", "out"]);
    command.arg("--fresh").current_dir(empty.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// The processes below `parent`, which are cells and their children.
fn descendants(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let all = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    for list in all.chain(children) {
        for child in list.split_whitespace().filter_map(|child| child.parse().ok()) {
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
}

fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(120);
    while Instant::now() < end {
        if let Some(found) = probe() {
            return found;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{what} did not happen within two minutes");
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_run_leaves_nothing_and_continues_later() {
    needs!(bpf());
    let plan = PLAN.replace("[topology]", "[controls.nice]\nalgorithm = 'nice'\n[topology]");
    let plan = plan.replace("'reno'", "'nice'").replace("settle = '1s'", "settle = '2s'");
    let bench = Bench::new(&plan);
    let mut child = bench
        .lab(&["run", "mini", "--jobs", "1"])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let id = child.id();
    // In the second cell: its supervisor and the contained process.
    let record = bench.path("out/mini.jsonl");
    let cells = wait_for("a second cell", || {
        let is_one = fs::read_to_string(&record).is_ok_and(|text| text.lines().count() == 2);
        let below = descendants(id);
        (is_one && below.len() >= 2).then_some(below)
    });
    let registered = || {
        let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        fs::read_to_string(path).unwrap().contains(&format!("lab{id}_"))
    };
    assert!(registered());
    kill(&mut child);
    wait_for("the end of all cells", || {
        (!cells.iter().any(|id| process_exists(*id))).then_some(())
    });
    wait_for("the end of the variant", || (!registered()).then_some(()));
    let output = bench.run(&["run", "mini", "--jobs", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // It knows the first one; and runs it again, if the machine was unreliable then.
    let said = text(&output.stderr);
    let known = ["1 more are recorded already", "1 because the emulator was late before"];
    assert!(known.iter().any(|known| said.contains(known)), "{said}");
}

/// Without a container that ends them, too: neither the cell nor its program outlives the run.
#[test]
fn killed_run_without_network_leaves_nothing() {
    let plan = "
id = 'mini'
title = 'A program that takes its time'
[paper]
source = 'TCP Nice §4'
statement = 'none'
[topology]
kind = 'none'
[[groups]]
name = 'a'
kind = 'command'
report = true
phases = ['p']
program = ['sleep', '50']
[[phases]]
name = 'p'
settle = '0s'
measure = '60s'
";
    let bench = Bench::new(plan);
    let mut command = bench.lab(&["run", "mini"]);
    let mut child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let id = child.id();
    let processes = wait_for("a cell and its program", || {
        let below = descendants(id);
        (below.len() >= 2).then_some(below)
    });
    // It fills the processors by itself, which another one is informed of.
    let short = Bench::new(&plan.replace("'sleep', '50'", r#"'echo', '{"a": 1}'"#));
    let output = short.lab(&["run", "mini"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("under way on this machine"), "{said}");
    kill(&mut child);
    wait_for("the end of both", || (!processes.iter().any(|id| process_exists(*id))).then_some(()));
}

const DEMO: &str = include_str!("../../../../plans/demo.toml");

/// Writes the plan `demo` with phases of this many seconds into a folder.
fn shorten_demo(bench: &Bench, folder: &str, seconds: u32) {
    // When the user has gone, rsync needs some time to notice.
    let shortened = |line: &str| match line.split_once(" = ") {
        Some(("settle", "\"16s\"")) => format!("settle = \"{}s\"\n", 4 * seconds),
        Some((key @ ("settle" | "measure"), _)) => format!("{key} = \"{seconds}s\"\n"),
        _ => format!("{line}\n"),
    };
    let text: String = DEMO.lines().map(shortened).collect();
    fs::create_dir(bench.path(folder)).unwrap();
    fs::write(bench.path(folder).join("demo.toml"), text).unwrap();
}

/// `make demo` after the build: the shortened phases, and their surroundings.
#[test]
fn demo_shows_table_and_plot_within_90_seconds() {
    needs!(bpf(), command("rsync"));
    let seconds = |bench: &Bench, folder: &[&str]| {
        let output = bench.run(&[&["list", "--json", "demo"], folder].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        Duration::from_secs(json["plans"][0]["seconds"].as_u64().unwrap())
    };
    let bench = Bench::new(PLAN);
    fs::create_dir(bench.path("whole")).unwrap();
    fs::write(bench.path("whole/demo.toml"), DEMO).unwrap();
    shorten_demo(&bench, "short", 3);
    shorten_demo(&bench, "shortest", 1);
    let whole = seconds(&bench, &["--plans", "whole"]);
    let short = seconds(&bench, &["--plans", "short"]);
    assert!(short <= Duration::from_secs(40) && whole > short, "{short:?}, {whole:?}");

    let begun = Instant::now();
    let output = bench.run(&["demo", "--plans", "short"]);
    let around = begun.elapsed().saturating_sub(short);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let longest = bound(Duration::from_secs(300), Duration::from_secs(90));
    assert!(whole + around < longest, "{whole:?} and {around:?} around it");
    let shown = text(&output.stdout);
    for title in ["download alone", "beside rsync", "beside lull exec rsync", "the user has gone"] {
        let row = shown.lines().rev().find(|line| line.starts_with(&format!("{title}   ")));
        let row = row.unwrap_or_else(|| panic!("no row '{title}' in {shown}"));
        assert!(row.contains("Mbit/s"), "{row}");
    }
    assert!(fs::read_to_string(bench.path("out/demo.svg")).unwrap().contains("<svg"));
    let record = lines(&bench.path("out/demo.jsonl"));
    assert_eq!(record.len(), 2, "{record:?}");
    let phases = record[1]["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 4);
    let goodput =
        |at: usize, group: &str| phases[at]["groups"][group]["goodput_mbit"].as_f64().unwrap();
    let download = |at| goodput(at, "download") / goodput(0, "download");
    assert!(goodput(0, "download") > bound(2.0, 8.0), "{phases:?}");
    assert!(download(1) < bound(1.0, 0.85) && goodput(1, "rsync") > bound(0.1, 1.0), "{phases:?}");
    // It still recovers from the plain one before.
    assert!(
        download(2) > bound(0.2, 0.6) && download(2) > bound(1.0, 1.5) * download(1),
        "{phases:?}"
    );
    assert!(goodput(3, "rsync_lull") > bound(0.0, 0.5), "{phases:?}");

    let output = bench.run(&["demo", "--plans", "shortest", "--json", "--out", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let plan = &json["plans"][0];
    assert_eq!(
        (plan["id"].as_str(), plan["plots"][0].as_str()),
        (Some("demo"), Some("json/demo.svg"))
    );
    assert_eq!(plan["verdicts"].as_array().unwrap().len(), 2, "{plan}");
    assert_eq!(plan["rows"][0]["metrics"].as_array().unwrap().len(), 4, "{plan}");
    assert!(bench.path("json/demo.svg").exists());
}

fn congestion_controls() -> BTreeSet<String> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    fs::read_to_string(path).unwrap().split_whitespace().map(str::to_owned).collect()
}

/// The cgroups that `lull exec` made below one, and the new congestion controls. Other tests run meanwhile: theirs
/// have names that begin with `lab`, or come from `unique_name`.
fn left_behind(home: &Service, before: &BTreeSet<String>) -> Vec<String> {
    let inside = fs::read_dir(&home.0).unwrap().flatten();
    let names = inside.filter_map(|entry| entry.file_name().into_string().ok());
    let cgroups = names.filter(|name| name.starts_with("lull."));
    let controls = congestion_controls().into_iter();
    let is_of_a_test = |name: &String| name.starts_with("lab") || is_unique_name(name);
    let new = controls.filter(|name| !before.contains(name) && !is_of_a_test(name));
    cgroups.chain(new).collect()
}

/// The signal comes while `lull exec` runs, which ends with its network: its cgroup and its congestion
/// control are removed by other processes.
#[test]
fn demo_ends_at_once_on_a_signal_and_leaves_nothing() {
    needs!(bpf(), command("rsync"));
    let bench = Bench::new(PLAN);
    shorten_demo(&bench, "short", 2);
    let (plans, out) = (bench.path("short"), bench.path("out"));
    let script = "echo $$ >\"$1/cgroup.procs\" && shift && exec \"$LULL\" lab demo \"$@\"";
    for (signal, code) in [("INT", Some(130)), ("TERM", Some(143)), ("KILL", None)] {
        let before = congestion_controls();
        let home = Service::make();
        let [cgroup, plans, out] = [&home.0, &plans, &out].map(|path| path.to_str().unwrap());
        let mut command = shell(script, &[cgroup, "--plans", plans, "--out", out]);
        let mut demo = Kept::spawn(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        let mut said = BufReader::new(demo.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(said.next().unwrap().starts_with("A link of"));
        assert!(said.any(|line| line.starts_with("beside lull exec rsync, ")), "{signal}");
        wait_for("a cgroup of lull exec", || {
            left_behind(&home, &before).iter().any(|name| name.starts_with("lull.")).then_some(())
        });
        let processes = descendants(demo.0.id());
        let asked = Instant::now();
        let kill = Command::new("kill").args(["-s", signal, &demo.pid()]).status();
        assert!(kill.unwrap().success());
        assert_eq!(demo.0.wait().unwrap().code(), code, "{signal}");
        let longest = bound(Duration::from_secs(60), Duration::from_secs(10));
        assert!(asked.elapsed() < longest, "{signal}: {:?}", asked.elapsed());
        wait_for("the end of all that it started", || {
            (!processes.iter().any(|id| process_exists(*id))).then_some(())
        });
        if code.is_none() {
            // It had no time to remove anything; the next one does.
            finish(&mut lull(&["exec", "--quiet", "true"])).ok();
        }
        // The kernel releases a congestion control a moment later.
        wait_for(&format!("a machine      remove it again {signal}"), || {
            left_behind(&home, &before).is_empty().then_some(())
        });
    }
}
