//! Which cells of a plan run, how recorded ones are reported, and how the record changes.

use std::process::Command;

use crate::common::{plan, runner};
use lull_lab::plan::{Plan, Selection};
use lull_lab::record::{Program, RecordFile};
use lull_lab::run::{Event, Outcome, Runner};

/// A plan over loads; with `networks`, it also has cells of a kernel.
fn over_loads(loads: &str, networks: &str) -> Plan {
    plan(&format!(
        "[[axes]]
         name = 'network'
         values = {networks}
         [[axes]]
         name = 'load'
         values = {loads}
         [topology]
         kind = '$network'
         rate = '10mbit'
         rtt = '40ms'
         [[groups]]
         name = 'flow'
         kind = 'bulk'
         control = 'reno'
         pace = '$load'
         phases = ['p']
         [[phases]]
         name = 'p'
         settle = '0s'
         measure = '1s'"
    ))
}

#[test]
fn cells_without_kernel_need_are_selected_from_a_plan() {
    let plan = over_loads("['1mbit']", "['simulator', 'emulator']");
    let all = plan.cells(&Selection::default(), 1).unwrap();
    let simulated = plan.cells(&Selection::default().simulated(), 1).unwrap();
    assert_eq!((all.len(), simulated.len()), (2, 1));
    assert_eq!(simulated[0].hash, all[0].hash, "it is the same cell");
    // Other cells do not count as missing: the run has all selected cells.
    let out = tempfile::tempdir().unwrap();
    let runner = Runner { selection: Selection::default().simulated(), ..runner(out.path()) };
    assert_eq!(runner.preview(&plan).unwrap().cells, 1);
    let outcome = runner.run(&plan, |_| {}).unwrap();
    assert_eq!((outcome.cells.len(), outcome.failed.len()), (1, 0));
    assert_eq!(runner.preview(&plan).unwrap().cells, 0);
}

#[test]
fn run_reports_cells_measured_by_another_program() {
    let out = tempfile::tempdir().unwrap();
    let built = |changes: &str, loads: &str| {
        let commit = Some(format!("0123abcd-dirty.{changes}"));
        let program = Program { arguments: Vec::new(), commit };
        let runner = Runner { program, ..runner(out.path()) };
        let mut told = None;
        let show = |event| {
            if let Event::Planned { recorded, cells, older, .. } = event {
                told = Some((recorded, cells, older));
            }
        };
        runner.run(&over_loads(loads, "['simulator']"), show).unwrap();
        told.unwrap()
    };
    let old = |cells| Some((cells, "0123abcd-dirty.1".to_owned()));
    assert_eq!(built("1", "['1mbit']"), (0, 1, None));
    assert_eq!(built("1", "['1mbit', '2mbit']"), (1, 1, None));
    // The same commit, with a controller that was changed again since.
    assert_eq!(built("2", "['1mbit', '2mbit', '3mbit']"), (2, 1, old(2)));
    // Its own cells are not reported.
    assert_eq!(built("2", "['2mbit', '3mbit']"), (2, 0, old(1)));
    assert_eq!(built("2", "['3mbit']"), (1, 0, None));
}

#[test]
fn record_is_cleaned_of_dropped_cells_and_stays_packed() {
    let out = tempfile::tempdir().unwrap();
    let runner = runner(out.path());
    let run = |runner: &Runner, loads: &str| {
        let mut pruned = None;
        let outcome = runner.run(&over_loads(loads, "['simulator']"), |event| {
            if let Event::Pruned { cells } = event {
                pruned = Some(cells);
            }
        });
        (outcome.unwrap(), pruned)
    };
    let cells = |outcome: &Outcome| {
        RecordFile::read(&out.path().join("test.jsonl"))
            .map(|record| (outcome.cells.len(), record.cells.len()))
            .unwrap()
    };
    run(&runner, "['1mbit', '2mbit']");
    // Another seed belongs to the plan, too.
    run(&Runner { seed: 2, ..runner.clone() }, "['1mbit']");
    let (outcome, pruned) = run(&runner, "['2mbit', '3mbit']");
    assert_eq!((cells(&outcome), pruned), ((2, 4), None));
    let record = out.path().join("test.jsonl");
    assert!(Command::new("gzip").arg("-9n").arg(&record).status().unwrap().success());
    let prune = Runner { prune: true, ..runner.clone() };
    let (outcome, pruned) = run(&prune, "['1mbit', '2mbit', '3mbit']");
    assert_eq!((cells(&outcome), pruned), ((3, 4), Some(0)));
    let (outcome, pruned) = run(&prune, "['1mbit', '2mbit']");
    assert_eq!((cells(&outcome), pruned), ((2, 3), Some(1)));
    assert_eq!(outcome.record, out.path().join("test.jsonl.gz"));
    assert!(!record.exists());
    // A run that measures something packs the record again as well.
    let (outcome, _) = run(&runner, "['1mbit', '4mbit']");
    assert_eq!(cells(&outcome), (2, 4));
    assert!(!record.exists());
    // From an empty record, nothing is dropped.
    let empty = tempfile::tempdir().unwrap();
    let plan = over_loads("['1mbit']", "['simulator']");
    let only = Selection::new(["load=1mbit"]).unwrap();
    let prune = Runner { out: empty.path().to_owned(), selection: only, ..prune };
    assert_eq!(prune.run(&plan, |_| {}).unwrap().cells.len(), 1);
}
