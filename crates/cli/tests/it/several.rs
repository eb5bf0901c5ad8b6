//! `lull lab run` and `lull lab list` of several plans.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A plan that runs anywhere, immediately.
const SIMULATED: &str = "
id = 'quick'
title = 'A simulation'
[paper]
source = 'TCP Nice §4'
statement = 'none'
[[axes]]
name = 'flows'
values = [1, 2]
[topology]
kind = 'simulator'
rate = '5mbit'
rtt = '20ms'
[[groups]]
name = 'a'
kind = 'bulk'
control = 'reno'
count = '$flows'
phases = ['p']
[[phases]]
name = 'p'
settle = '1s'
measure = '1s'
[[metrics]]
name = 'used'
value = 'share.a.p'
";

/// A folder with plans by their names.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(plans: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("plans")).unwrap();
        for (name, text) in plans {
            fs::write(folder.path().join(format!("plans/{name}.toml")), text).unwrap();
        }
        Bench { folder }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lull"));
        command.arg("lab").args(arguments).current_dir(self.folder.path());
        command.stdin(Stdio::null()).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A plan of the same kind that cannot begin: it plays a missing log.
fn without_its_log() -> String {
    let documents = "kind = 'documents'\nlog = 'no-such.log'\nlength = '2s'";
    SIMULATED
        .replace("'quick'", "'a-broken'")
        .replace("kind = 'bulk'", documents)
        .replace("count = '$flows'\n", "")
}

#[test]
fn plan_that_cannot_start_does_not_stop_the_others() {
    let bench = Bench::new(&[("quick", SIMULATED), ("a-broken", &without_its_log())]);
    let run = |more: &[&str]| {
        let plans = ["run", "quick", "a-broken", "--data", ".", "--out", "some where"];
        bench.run(&[&plans[..], more].concat())
    };
    let output = run(&["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no-such.log"), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [broken, quick] = &json["plans"].as_array().unwrap()[..] else { panic!("{json}") };
    assert!(broken["id"] == "a-broken" && quick["id"] == "quick", "{json}");
    assert!(broken["error"].as_str().unwrap().contains("--data DIR"), "{broken}");
    assert_eq!(quick["rows"].as_array().unwrap().len(), 2, "{quick}");
    // The same as text, with the command that makes a page of it.
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    let command = "as a page: lull lab report 'some where' quick a-broken\n";
    assert!(shown.contains("quick: A simulation") && shown.ends_with(command), "{shown}");
    let page = bench.run(&["report", "some where", "quick", "a-broken"]);
    assert!(page.status.success(), "{}", text(&page.stderr));
    // The first estimate is for all plans.
    let said = text(&run(&["--fresh"]).stderr);
    assert!(said.lines().next().unwrap().starts_with("2 plans: 4 cells, about "), "{said}");
}

#[test]
fn several_plans_are_listed_with_their_total_cost() {
    let mini = SIMULATED.replace("'quick'", "'mini'").replace("kind = 'simulator'\n", "");
    let mini = format!("{mini}[quick.axes]\nflows = [1]\n");
    let view = "id = 'view'\ntitle = 'The same'\ncells_of = 'quick'\n\
                [paper]\nsource = 'a'\nstatement = 'b'\n";
    let bench = Bench::new(&[("quick", SIMULATED), ("mini", &mini), ("view", view)]);
    let shown = text(&bench.run(&["list"]).stdout);
    assert!(shown.contains("all 3 plans: 4 cells, about "), "{shown}");
    assert!(shown.contains("of that --simulated: 2 cells, about "), "{shown}");
    let json: Value = serde_json::from_slice(&bench.run(&["list", "--json"]).stdout).unwrap();
    let total = &json["total"];
    for (what, cells) in [("full", 4), ("quick", 3), ("simulated", 2)] {
        assert_eq!(total[what]["cells"], cells, "{total}");
    }
    // A single one is its own total.
    assert!(!text(&bench.run(&["list", "quick"]).stdout).contains("all 1 plans"));
}
