//! Pure crates use no socket, no clock, no thread, no async runtime, no global state and no iteration order
//! of a hash map.

use crate::manifest::{self, Kind};
use crate::rust::Source;
use crate::{Finding, Tree};

/// Crates that are completely pure.
const PURE: &[&str] = &["cc", "replication", "sim", "speculate", "units"];

/// Crates with some pure files or folders: the rest gives them the time and executes their effects.
const PURE_PARTS: &[(&str, &[&str])] = &[
    ("monitor", &["draw.rs", "model.rs", "model/", "plot.rs", "text.rs"]),
    ("replication-daemon", &["fuse/abi.rs", "fuse/nodes.rs", "watch/plan.rs"]),
    ("replication-sim", &["evaluate/", "simulate/"]),
];

/// Forbidden modules in paths.
const MODULES: &[&str] = &["std::env", "std::fs", "std::net", "std::process", "std::thread"];
/// Forbidden names anywhere in a path.
const NAMES: &[(&str, &str)] = &[
    ("Instant", "time comes in as an argument"),
    ("SystemTime", "time comes in as an argument"),
    ("HashMap", "its order is random: use a BTreeMap"),
    ("HashSet", "its order is random: use a BTreeSet"),
    ("RandomState", "randomness comes in as a seeded generator"),
    ("DefaultHasher", "its values may change with the compiler"),
    ("thread_local", "no global state"),
    ("tokio", "no async runtime"),
    ("async_std", "no async runtime"),
    ("smol", "no async runtime"),
];
/// Globs that could hide them.
const GLOBS: &[&str] = &["std::*", "std::time::*", "std::collections::*"];
/// Packages with access to the outside of a program.
const PACKAGES: &[&str] = &[
    "tokio",
    "async-std",
    "smol",
    "mio",
    "hyper",
    "reqwest",
    "socket2",
    "libc",
    "nix",
    "rustix",
    "rayon",
];

/// Effects of the outside world in a pure crate. Its tests may read files and environment.
pub(crate) fn pure_crates(tree: &Tree) -> Vec<Finding> {
    let workspace = manifest::workspace(tree);
    let mut findings = Vec::new();
    for one in manifest::crates(tree) {
        if let Some((_, parts)) = PURE_PARTS.iter().find(|(name, _)| *name == one.name) {
            let src = format!("crates/{}/src/", one.name);
            let is_pure = |path: &str| {
                let within = path.strip_prefix(&src).unwrap_or(path);
                parts.iter().any(|part| within.starts_with(part))
            };
            for (path, text) in tree.under(&src, ".rs").filter(|(path, _)| is_pure(path)) {
                pure_file(path, text, &mut findings);
            }
            continue;
        }
        if !PURE.contains(&one.name.as_str()) {
            continue;
        }
        for (kind, package) in one.dependencies(&workspace) {
            if kind == Kind::Normal && PACKAGES.contains(&package.as_str()) {
                let what = format!("`{package}` in a pure crate");
                findings.push(Finding::in_file(one.manifest_path(), what));
            }
        }
        let src = format!("crates/{}/src/", one.name);
        let root = format!("{src}lib.rs");
        for (path, text) in tree.under(&src, ".rs") {
            let forbids =
                Source::parse(text).is_none_or(|source| source.has("#![forbid(unsafe_code)]"));
            if path == root && !forbids {
                findings
                    .push(Finding::in_file(path, "a pure crate says `#![forbid(unsafe_code)]`"));
            }
            pure_file(path, text, &mut findings);
        }
    }
    findings
}

fn pure_file(path: &str, text: &str, findings: &mut Vec<Finding>) {
    if path.ends_with("/tests.rs") || path.contains("/tests/") {
        return;
    }
    match Source::parse(text) {
        Some(source) => impurities(path, &source.without_tests(), findings),
        None => findings.push(Finding::in_file(path, "cannot be read as Rust")),
    }
}

fn impurities(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    for line in source.lines_of("static mut") {
        findings.push(Finding::at(path, line, "`static mut` in a pure crate: no global state"));
    }
    for (name, line) in source.paths() {
        let within = |module: &&str| {
            name.strip_prefix(*module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let what = if let Some(module) = MODULES.iter().find(|module| within(module)) {
            format!("`{module}` in a pure crate: effects go out as values")
        } else if GLOBS.contains(&name.as_str()) {
            format!("`{name}` in a pure crate: name what is used")
        } else if let Some((_, why)) =
            NAMES.iter().find(|(word, _)| name.split("::").any(|part| part == *word))
        {
            format!("`{name}` in a pure crate: {why}")
        } else {
            continue;
        };
        findings.push(Finding::at(path, line, what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    /// The findings for `code` in line 2 of a pure crate.
    fn findings(code: &str) -> Vec<Finding> {
        pure_crates(&made_up(&[
            ("crates/sim/Cargo.toml", "[package]\nname = 'lull-sim'\n"),
            ("crates/sim/src/lib.rs", "#![forbid(unsafe_code)]\nmod queue;\n"),
            ("crates/sim/src/queue.rs", &format!("// queue\n{code}\n")),
        ]))
    }

    #[test]
    fn impure_imports_are_found() {
        for code in [
            "use std::net::TcpStream;",
            "use std::{fmt, fs};",
            "fn f() { std::thread::spawn(|| ()); }",
            "fn f() { let t = std::time::Instant::now(); }",
            "use std::time::{Duration, SystemTime};",
            "use std::time::*;",
            "use std::collections::{BTreeMap, HashMap};",
            "fn f() -> collections::HashSet<u8> { todo() }",
            "fn f() { std::env::var(\"SEED\"); }",
            "async fn f() { tokio::task::yield_now().await }",
            "thread_local! { static X: u8 = 0; }",
            "static mut X: u8 = 0;",
        ] {
            let found = findings(code);
            assert!(!found.is_empty(), "{code}");
            assert_eq!(
                (found[0].path.as_str(), found[0].line),
                ("crates/sim/src/queue.rs", Some(2))
            );
        }
    }

    #[test]
    fn values_tests_and_words_are_allowed() {
        for code in [
            "use core::net::IpAddr; use std::time::Duration; use std::collections::BTreeMap;",
            "/// Unlike a `HashMap`, and without std::fs.\nfn f() {}",
            "#[cfg(test)] mod tests { use std::{env, fs}; }",
        ] {
            assert_eq!(findings(code), [], "{code}");
        }
        let elsewhere = made_up(&[
            ("crates/lab/Cargo.toml", "[package]\nname = 'lull-lab'\n"),
            ("crates/lab/src/lib.rs", "use std::fs;"),
        ]);
        assert_eq!(pure_crates(&elsewhere), []);
    }

    #[test]
    fn crate_may_be_pure_in_parts() {
        let text = "use std::net::TcpStream;";
        let tree = made_up(&[
            (
                "crates/replication-daemon/Cargo.toml",
                "[package]\nname = 'lull-replication-daemon'\n",
            ),
            ("crates/replication-daemon/src/fuse/nodes.rs", text),
            ("crates/replication-daemon/src/watch/plan.rs", text),
            ("crates/replication-daemon/src/daemon.rs", text),
        ]);
        let found = pure_crates(&tree);
        let paths: Vec<_> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "crates/replication-daemon/src/fuse/nodes.rs",
                "crates/replication-daemon/src/watch/plan.rs"
            ]
        );
    }

    #[test]
    fn pure_crate_forbids_unsafe_code() {
        let tree = made_up(&[
            ("crates/cc/Cargo.toml", "[package]\nname = 'lull-cc'\n[dependencies]\nlibc = '0.2'\n"),
            ("crates/cc/src/lib.rs", "//! `#![forbid(unsafe_code)]`\n"),
        ]);
        let found = pure_crates(&tree);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].what.contains("libc"));
        assert!(found[1].what.contains("forbid(unsafe_code)"));
    }
}
