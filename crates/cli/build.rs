//! Tells the program which commit it is built from, so that what it records can say so.

use std::process::Command;

/// What goes into the program, seen from the root of the tree.
const SOURCES: [&str; 5] = ["bpf", "crates", "plans", "Cargo.lock", "Cargo.toml"];

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let commit = commit();
    match &commit {
        Some(commit) => println!("cargo::rustc-env=LULL_VERSION={version} ({commit})"),
        None => println!("cargo::rustc-env=LULL_VERSION={version}"),
    }
    println!("cargo::rustc-env=LULL_COMMIT={}", commit.unwrap_or_default());
}

/// The commit, with `-dirty` where the sources are other ones; none where there is no tree.
fn commit() -> Option<String> {
    for source in SOURCES {
        println!("cargo::rerun-if-changed=../../{source}");
    }
    // The reflog grows with whatever moves the commit; without one it is left to HEAD.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "HEAD"])?;
    let status = [&["-C", "../..", "status", "--porcelain", "--"][..], &SOURCES].concat();
    let changed = git(&status)?;
    let dirty = if changed.is_empty() { "" } else { "-dirty" };
    Some(commit + dirty)
}

/// What git answers; none without git, or outside a tree.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
