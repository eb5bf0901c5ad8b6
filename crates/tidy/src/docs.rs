//! Rules on documentation for readers: item docs, decisions, plans.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::manifest::{self, Crate};
use crate::rust::Source;
use crate::{Finding, Tree};

const LINT: &str = "missing_docs";

/// Crates whose root does not require docs on public items, itself or through the lints of the workspace.
pub(crate) fn missing_docs(tree: &Tree) -> Vec<Finding> {
    let workspace = manifest::workspace(tree);
    let of_workspace = workspace
        .get("workspace")
        .and_then(|table| table.get("lints")?.get("rust")?.get(LINT))
        .is_some_and(asks);
    manifest::crates(tree)
        .into_iter()
        .filter(|one| !(of_workspace && inherits_lints(one) || root_asks(tree, one)))
        .map(|one| {
            let what = format!(
                "nothing asks for `{LINT}` here: add `[lints] workspace = true`, or \
                 `#![warn({LINT})]` to its root"
            );
            Finding::in_file(one.manifest_path(), what)
        })
        .collect()
}

/// Whether a lint's level, written as a word or as a table, is at least a warning.
fn asks(lint: &Value) -> bool {
    let level = lint.get("level").unwrap_or(lint).as_str();
    matches!(level, Some("warn" | "deny" | "forbid"))
}

fn inherits_lints(one: &Crate) -> bool {
    let inherits = one.manifest.get("lints").and_then(|table| table.get("workspace"));
    inherits.and_then(Value::as_bool) == Some(true)
}

fn root_asks(tree: &Tree, one: &Crate) -> bool {
    ["lib.rs", "main.rs"].iter().any(|root| {
        tree.file(&format!("crates/{}/src/{root}", one.name)).and_then(Source::parse).is_some_and(
            |source| {
                ["warn", "deny", "forbid"]
                    .iter()
                    .any(|level| source.has(&format!("#![{level}({LINT})]")))
            },
        )
    })
}

/// Decisions under docs/adr without a number, or with another one's number.
pub(crate) fn decisions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut first = BTreeMap::new();
    for (path, _) in tree.under("docs/adr/", ".md") {
        let name = path.trim_start_matches("docs/adr/");
        if name == "README.md" {
            continue;
        }
        let number = name.split_once('-').map_or("", |(number, _)| number);
        if number.len() != 4 || !number.bytes().all(|b| b.is_ascii_digit()) {
            let what = "a decision is named by four digits and its subject: 0001-fixed-point.md";
            findings.push(Finding::in_file(path, what));
        } else if let Some(other) = first.insert(number, path) {
            findings.push(Finding::in_file(path, format!("has the number of {other}")));
        }
    }
    findings
}

/// Plans without the reproduced part of a paper, under the key `paper`. A plan of this project describes
/// there what it adds to which part.
pub(crate) fn plans(tree: &Tree) -> Vec<Finding> {
    tree.under("plans/", ".toml")
        .filter_map(|(path, text)| match text.parse::<Table>() {
            Err(error) => Some(Finding::in_file(path, format!("no TOML: {}", error.message()))),
            Ok(plan) if !names_place(&plan) => {
                Some(Finding::in_file(path, "no `paper` key that names a section, figure or table"))
            }
            Ok(_) => None,
        })
        .collect()
}

/// Whether `paper` is a non-empty text, list or table, at the top or one table down.
fn names_place(plan: &Table) -> bool {
    let filled = |table: &Table| {
        table.get("paper").is_some_and(|paper| match paper {
            Value::String(text) => !text.trim().is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::Table(table) => !table.is_empty(),
            _ => false,
        })
    };
    filled(plan) || plan.values().filter_map(Value::as_table).any(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    #[test]
    fn undocumented_folder_is_found() {
        let lints = "[workspace.lints.rust]\nmissing_docs = 'warn'\n";
        let quiet = "[workspace.lints.rust]\nmissing_docs = 'allow'\n";
        let inherits = "[package]\nname = 'a'\n[lints]\nworkspace = true\n";
        let alone = "[package]\nname = 'a'\n";
        for (workspace, manifest, root, expected) in [
            (lints, inherits, "", 0),
            (lints, alone, "", 1),
            (quiet, inherits, "", 1),
            ("", inherits, "", 1),
            ("", alone, "//! A.\n#![deny(missing_docs)]\n", 0),
            ("", alone, "//! `#![deny(missing_docs)]`\n", 1),
        ] {
            let tree = made_up(&[
                ("Cargo.toml", workspace),
                ("crates/a/Cargo.toml", manifest),
                ("crates/a/src/lib.rs", root),
            ]);
            assert_eq!(missing_docs(&tree).len(), expected, "{workspace} {manifest} {root}");
        }
    }

    #[test]
    fn decisions_have_unique_numbers() {
        let tree = made_up(&[
            ("docs/adr/README.md", ""),
            ("docs/adr/0001-fixed-point.md", ""),
            ("docs/adr/0002-percentiles.md", ""),
            ("docs/adr/0002-loss-rounds.md", ""),
            ("docs/adr/pairs.md", ""),
            ("docs/adr/3-floor.md", ""),
        ]);
        let found = decisions(&tree);
        let paths: Vec<_> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(
            paths,
            ["docs/adr/0002-percentiles.md", "docs/adr/3-floor.md", "docs/adr/pairs.md"]
        );
    }

    #[test]
    fn plans_cite_a_place_of_a_paper() {
        for (plan, expected) in [
            ("paper = 'TCP Nice, figure 2'\n", 0),
            ("[source]\npaper = ['TCP Nice §4.2', 'figure 2']\n", 0),
            ("[paper]\nsection = '4.2'\n", 0),
            ("paper = ' '\n", 1),
            ("title = 'matrix'\n", 1),
            ("paper = \n", 1),
        ] {
            assert_eq!(plans(&made_up(&[("plans/a.toml", plan)])).len(), expected, "{plan}");
        }
        assert_eq!(plans(&made_up(&[])), []);
    }
}
