//! `lull lab report` from a user's view, on artificial records.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lull_lab::plan::{Plan, Selection};
use lull_lab::record::{CellRecord, GroupRecord, Line, PhaseRecord, Program, Recorder};
use lull_lab::run::record_path;
use serde_json::{Value, json};

/// Two cells; 5 Mbit/s are required.
const PLAN: &str = "
id = 'mini'
title = 'A miniature'
[paper]
source = 'TCP Nice §4'
statement = 'little interference'
value = '5 Mbit/s'
[[axes]]
name = 'control'
values = ['cubic', 'reno']
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
settle = '1s'
measure = '1s'
[[metrics]]
name = 'double'
title = 'twice'
value = '2 * goodput.a.p'
[[checks]]
name = 'goodput'
value = 'goodput.a.p'
at_least = 5
";

/// A folder with the plans `mini` and `other`, and records of `mini` in `report/`.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(goodputs: &[f64]) -> Self {
        let bench = Bench { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(bench.path("plans")).unwrap();
        fs::write(bench.path("plans/mini.toml"), PLAN).unwrap();
        fs::write(bench.path("plans/other.toml"), PLAN.replace("'mini'", "'other'")).unwrap();
        let plan = Plan::parse("mini.toml", PLAN, false).unwrap();
        let path = record_path(&bench.path("report"), &plan);
        let mut recorder = Recorder::open(&path).unwrap();
        let header = plan.header(&Program::default(), 1);
        recorder.write(&Line::Header(header)).unwrap();
        for (cell, goodput) in plan.cells(&Selection::default(), 1).unwrap().iter().zip(goodputs) {
            let group = GroupRecord { goodput_mbit: *goodput, ..GroupRecord::default() };
            let phase = PhaseRecord {
                name: "p".to_owned(),
                groups: [("a".to_owned(), group)].into(),
                ..PhaseRecord::default()
            };
            let record = CellRecord {
                key: cell.key.clone(),
                hash: cell.hash.clone(),
                values: cell.values.clone(),
                seed: cell.seed,
                phases: vec![phase],
                ..CellRecord::default()
            };
            recorder.write(&Line::Cell(Box::new(record))).unwrap();
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn report(&self, arguments: &[&str]) -> Output {
        report_in(self.folder.path(), arguments)
    }
}

fn report_in(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lull"));
    command.args(["lab", "report"]).args(arguments).current_dir(folder).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn verdicts(output: &Output) -> Vec<(String, String)> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = json["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        for key in ["id", "verdict", "paper", "measured", "why"] {
            assert!(row[key].is_string(), "{key}: {row}");
        }
        (row["id"].as_str().unwrap().to_owned(), row["verdict"].as_str().unwrap().to_owned())
    })
    .collect()
}

#[test]
fn page_is_written_beside_the_records_or_elsewhere() {
    let bench = Bench::new(&[6.0, 7.0]);
    let output = bench.report(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for words in
        ["met         mini: goodput: 6.000", "not run     other", "page: report/index.html"]
    {
        assert!(shown.contains(words), "no {words} in {shown}");
    }
    let page = fs::read_to_string(bench.path("report/index.html")).unwrap();
    assert!(page.contains("id=\"mini\"") && page.contains("id=\"other\""));
    // Again, over its own page; and elsewhere, only one plan.
    assert!(bench.report(&[]).status.success());
    assert!(bench.report(&["mini", "report", "--out", "deep/er"]).status.success());
    let page = fs::read_to_string(bench.path("deep/er/index.html")).unwrap();
    assert!(page.contains("id=\"mini\"") && !page.contains("id=\"other\""));
}

#[test]
fn verdicts_are_printed_as_json() {
    let bench = Bench::new(&[6.0, 7.0]);
    let row = |id: &str, verdict: &str| (id.to_owned(), verdict.to_owned());
    let all = verdicts(&bench.report(&["--json", "report"]));
    assert_eq!(all, [row("mini", "met"), row("other", "missed")]);
    assert_eq!(verdicts(&bench.report(&["--json", "m*"])), [row("mini", "met")]);
    assert!(!bench.path("report/index.html").exists());
    let missed = Bench::new(&[6.0, 4.0]);
    let output = missed.report(&["--json", "report", "mini"]);
    assert_eq!(verdicts(&output), [row("mini", "missed")]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["rows"][0]["paper"], "5 Mbit/s");
    assert!(json["rows"][0]["why"].as_str().unwrap().contains("by 1.0000"), "{json}");
    assert_eq!(json.as_object().unwrap().len(), 1);
}

#[test]
fn cells_are_printed_by_the_metrics_of_their_plan() {
    let bench = Bench::new(&[6.0, 4.0]);
    let output = bench.report(&["--cells", "mini"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let plan = &json["plans"][0];
    assert_eq!(
        (&plan["id"], &plan["quick"], &plan["planned"]),
        (&json!("mini"), &json!(false), &json!(2))
    );
    assert_eq!(plan["cells"][1]["values"], json!({ "control": "reno" }));
    let doubles: Vec<&Value> =
        plan["cells"].as_array().unwrap().iter().map(|cell| &cell["metrics"]["double"]).collect();
    assert_eq!(doubles, [&json!(12.0), &json!(8.0)]);
    let verdict = &plan["verdicts"][0];
    assert_eq!((&verdict["met"], &verdict["judged"]), (&json!(1), &json!(2)), "{verdict}");
    assert!(!bench.path("report/index.html").exists());
}

#[test]
fn missed_verdict_fails_on_request() {
    let bench = Bench::new(&[6.0, 7.0]);
    assert_eq!(bench.report(&["--check", "mini"]).status.code(), Some(0));
    assert_eq!(bench.report(&["--check", "--json"]).status.code(), Some(1));
    assert_eq!(Bench::new(&[1.0, 7.0]).report(&["--check", "mini"]).status.code(), Some(1));
}

#[test]
fn folder_without_plans_is_judged_by_built_in_ones() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("report")).unwrap();
    let rows = verdicts(&report_in(folder.path(), &["--json"]));
    assert!(rows.iter().any(|(id, _)| id == "kernel-matrix"), "{rows:?}");
    assert!(rows.iter().all(|(_, verdict)| verdict == "missed"), "{rows:?}");
}

#[test]
fn invalid_report_options_have_one_line_and_a_remedy() {
    let bench = Bench::new(&[6.0, 7.0]);
    fs::create_dir(bench.path("site")).unwrap();
    fs::write(bench.path("site/index.html"), "<h1>somebody's</h1>").unwrap();
    let broken = Bench::new(&[6.0, 7.0]);
    fs::write(broken.path("report/mini.jsonl"), "nonsense\n").unwrap();
    let spoilt = Bench::new(&[6.0, 7.0]);
    fs::write(spoilt.path("plans/mini.toml"), PLAN.replace("rtt =", "rrt =")).unwrap();
    let empty = tempfile::tempdir().unwrap();
    for (folder, arguments, code, words) in [
        (bench.folder.path(), &["no-such-thing"][..], 2, &["no-such-thing", "lull lab list"][..]),
        (bench.folder.path(), &["no-*"], 2, &["the plans are mini, other"]),
        (bench.folder.path(), &["report", "plans"], 2, &["two folders"]),
        (bench.folder.path(), &["--plans", "nowhere"], 2, &["nowhere"]),
        (bench.folder.path(), &["--json", "--out", "x"], 2, &["--out"]),
        (bench.folder.path(), &["--json", "--cells"], 2, &["--cells"]),
        (bench.folder.path(), &["--json", "--figures", "x"], 2, &["--figures"]),
        (bench.folder.path(), &["--figures", "plans/mini.toml"], 1, &["plans/mini.toml"]),
        (bench.folder.path(), &["--out", "site"], 1, &["site/index.html", "--out"]),
        (bench.folder.path(), &["--out", "plans/mini.toml"], 1, &["plans/mini.toml"]),
        (broken.folder.path(), &[], 1, &["mini.jsonl:1"]),
        (spoilt.folder.path(), &[], 2, &["mini.toml:13", "topology.rrt"]),
        (empty.path(), &[], 2, &["'report'", "lull lab run"]),
    ] {
        let output = report_in(folder, arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{arguments:?}: no {word} in {said}");
        }
    }
    let site = fs::read_to_string(bench.path("site/index.html")).unwrap();
    assert_eq!(site, "<h1>somebody's</h1>");
}

#[test]
fn figures_option_writes_files_and_no_page() {
    let bench = Bench::new(&[6.0, 7.0]);
    let plot = "[[plots]]\nname = 'rates'\ntitle = 'Goodput'\nkind = 'bars'\nx = 'control'\n\
                y = 'metric.double'\ny_title = 'Mbit/s'\n";
    fs::write(bench.path("plans/mini.toml"), format!("{PLAN}{plot}")).unwrap();
    let output = report_in(bench.folder.path(), &["--figures", "drawn", "mini"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "drawn/mini-rates.svg\n");
    assert!(fs::read_to_string(bench.path("drawn/mini-rates.svg")).unwrap().starts_with("<svg "));
    assert!(!bench.path("report/index.html").exists());
}

#[test]
fn report_help_has_examples() {
    let output = report_in(Path::new("."), &["--help"]);
    let shown = text(&output.stdout);
    for words in ["Examples:", "--json", "exit code", "lull lab report out 'kernel-*'"] {
        assert!(shown.contains(words), "no {words} in {shown}");
    }
}
