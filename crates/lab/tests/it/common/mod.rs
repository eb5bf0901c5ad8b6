//! Shared functions of tests that run cells.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::path::Path;

use lull_lab::plan::{Plan, Selection};
use lull_lab::record::{CellRecord, GroupRecord, PhaseRecord, Program};
use lull_lab::run::{Isolation, Outcome, Runner};

/// A plan; `rest` has its topology, groups, phases and all other parts.
pub(crate) fn plan(rest: &str) -> Plan {
    let text = format!(
        "id = 'test'\ntitle = 'A test'\n[paper]\nsource = 'TCP Nice §4'\nstatement = '…'\n{rest}"
    );
    Plan::parse("test.toml", &text, false).unwrap()
}

pub(crate) fn runner(out: &Path) -> Runner {
    Runner {
        isolation: Isolation::Threads,
        out: out.to_owned(),
        seed: 1,
        jobs: Some(2),
        selection: Selection::default(),
        fresh: false,
        prune: false,
        again: false,
        data: Some(out.to_owned()),
        program: Program::default(),
    }
}

/// Runs a plan in a temporary folder.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let out = tempfile::tempdir().unwrap();
    runner(out.path()).run(plan, |_| {}).unwrap()
}

/// Runs a plan of one cell.
pub(crate) fn run_one(plan: &Plan) -> CellRecord {
    let Outcome { mut cells, failed, .. } = run(plan);
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(cells.len(), 1);
    cells.remove(0)
}

pub(crate) fn group<'a>(phase: &'a PhaseRecord, name: &str) -> &'a GroupRecord {
    phase.groups.get(name).unwrap_or_else(|| panic!("no group {name} in {phase:?}"))
}
