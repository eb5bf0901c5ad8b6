//! Which crates may import which.

use crate::manifest::{self, Kind};
use crate::{Finding, Tree};

/// A crate imports only crates of the lines below its own. `lab` and `load` run `web` and
/// `replication-daemon` as processes, like users.
const ARROW: &[&[&str]] = &[
    &["cli"],
    &["replication-sim"],
    &["web", "replication-daemon", "lab", "load", "monitor"],
    &["emulator", "logs"],
    &["transport", "kernel", "metrics", "replication", "sim", "speculate"],
    &["cc"],
    &["units", "durable"],
];

/// Imports within one line of the arrow or against it, for tests only.
const BESIDE: &[(&str, &str)] = &[
    // `transport` chooses the kernel's `nice` by its name; its tests load one for that.
    ("transport", "kernel"),
    // The tests of the store run on the simulated disk.
    ("replication-daemon", "replication-sim"),
];

/// Helps the tests of every crate, so only as a dev-dependency. Of our crates it imports only `cc`, to
/// generate histories for controllers.
const TESTING: &str = "testing";
/// Reads the tree as text; no crate imports it, and it imports no crate of the workspace.
const TIDY: &str = "tidy";

fn rank(name: &str) -> Option<usize> {
    ARROW.iter().position(|line| line.contains(&name))
}

/// Dependencies between our own crates that go against the arrow.
pub(crate) fn imports(tree: &Tree) -> Vec<Finding> {
    let workspace = manifest::workspace(tree);
    let crates = manifest::crates(tree);
    let mut findings = Vec::new();
    for one in &crates {
        let path = one.manifest_path();
        if rank(&one.name).is_none() && ![TESTING, TIDY].contains(&one.name.as_str()) {
            let what = "this crate has no place in the arrow: give it one in crates/tidy and \
                        ARCHITECTURE.md";
            findings.push(Finding::in_file(&path, what));
        }
        for (kind, package) in one.dependencies(&workspace) {
            let Some(other) = crates.iter().find(|other| other.package == package) else {
                continue;
            };
            if !may_import(&one.name, &other.name, kind) {
                let what = format!("`{}` must not import `{}`", one.name, other.name);
                findings.push(Finding::in_file(&path, what));
            }
        }
    }
    findings
}

fn may_import(from: &str, to: &str, kind: Kind) -> bool {
    if from == to {
        // So that its tests run with its optional features.
        return kind == Kind::Dev;
    }
    if to == TESTING {
        return kind == Kind::Dev && from != TIDY;
    }
    if from == TESTING {
        return to == "cc";
    }
    match (rank(from), rank(to)) {
        (Some(left), Some(right)) => {
            left < right || kind == Kind::Dev && BESIDE.contains(&(from, to))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    /// A tree in which `from` has `to` as a dependency of the kind `table`.
    fn import(from: &str, to: &str, table: &str) -> Vec<Finding> {
        let manifest = |name: &str| format!("[package]\nname = 'lull-{name}'\n");
        let from_text = format!("{}[{table}]\nlull-{to} = {{ path = 'x' }}\n", manifest(from));
        imports(&made_up(&[
            (&format!("crates/{from}/Cargo.toml"), &from_text),
            (&format!("crates/{to}/Cargo.toml"), &manifest(to)),
        ]))
    }

    #[test]
    fn import_along_the_arrow_is_allowed() {
        for (from, to) in [
            ("cli", "cc"),
            ("cli", "web"),
            ("lab", "sim"),
            ("load", "emulator"),
            ("web", "speculate"),
        ] {
            assert_eq!(import(from, to, "dependencies"), [], "{from} → {to}");
        }
        assert_eq!(import("transport", "kernel", "dev-dependencies"), []);
    }

    #[test]
    fn own_features_may_be_enabled_for_tests() {
        assert!(may_import("transport", "transport", Kind::Dev));
        assert!(!may_import("transport", "transport", Kind::Normal));
    }

    #[test]
    fn import_against_the_arrow_is_found() {
        for (from, to) in [
            ("cc", "sim"),
            ("sim", "lab"),
            ("web", "cli"),
            ("lab", "web"),
            ("lab", "replication-daemon"),
            ("lab", "load"),
            ("load", "web"),
            ("emulator", "lab"),
            ("kernel", "transport"),
            ("kernel", "sim"),
            ("sim", "speculate"),
            ("lab", "tidy"),
            ("tidy", "cc"),
        ] {
            for table in ["dependencies", "dev-dependencies", "target.'cfg(unix)'.dependencies"] {
                assert_eq!(import(from, to, table).len(), 1, "{from} → {to} in {table}");
            }
        }
    }

    #[test]
    fn testing_crate_is_for_tests_only() {
        assert_eq!(import("cc", "testing", "dev-dependencies"), []);
        assert_eq!(import("cc", "testing", "dependencies").len(), 1);
        assert_eq!(import("testing", "cc", "dependencies"), []);
        assert_eq!(import("testing", "sim", "dependencies").len(), 1);
    }

    #[test]
    fn new_crate_needs_a_place() {
        let tree = made_up(&[("crates/extra/Cargo.toml", "[package]\nname = 'lull-extra'\n")]);
        assert_eq!(imports(&tree).len(), 1);
    }
}
