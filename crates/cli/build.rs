//! Passes the commit of the build to the program, so that its records can include it.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::process::Command;

/// The sources of the program, relative to the root of the tree.
const SOURCES: [&str; 5] = ["bpf", "crates", "plans", "Cargo.lock", "Cargo.toml"];
/// The sources that determine the measurements of a plan's cell: plans are read at run time, and each record
/// describes its cells itself.
const CODE: [&str; 4] = ["bpf", "crates", "Cargo.lock", "Cargo.toml"];
/// The root of the tree.
const ROOT: &str = "../..";

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let commit = commit();
    match &commit {
        Some(commit) => println!("cargo::rustc-env=LULL_VERSION={version} ({commit})"),
        None => println!("cargo::rustc-env=LULL_VERSION={version}"),
    }
    println!("cargo::rustc-env=LULL_COMMIT={}", commit.unwrap_or_default());
}

/// The commit, with `-dirty` for changed sources, and a number for their contents; none outside a tree.
fn commit() -> Option<String> {
    for source in SOURCES {
        println!("cargo::rerun-if-changed={ROOT}/{source}");
    }
    // The reflog grows with each move of the commit; without one, HEAD is used.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "HEAD"])?;
    let status = [&["-C", ROOT, "status", "--porcelain", "--"][..], &SOURCES].concat();
    match git(&status)?.is_empty() {
        true => Some(commit),
        false => Some(format!("{commit}-dirty.{:08x}", changes()? as u32)),
    }
}

/// A number for all differences of the code from the commit: two programs built from a changed tree must be
/// distinguished, because their measurements may differ.
fn changes() -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    // With full hashes it covers binary files, too.
    let diff = ["-C", ROOT, "diff", "HEAD", "--full-index", "--no-ext-diff", "--no-color", "--"];
    hasher.write(git(&[&diff[..], &CODE].concat())?.as_bytes());
    let new = ["-C", ROOT, "ls-files", "--others", "--exclude-standard", "--"];
    for path in git(&[&new[..], &CODE].concat())?.lines() {
        hasher.write(path.as_bytes());
        hasher.write(&fs::read(Path::new(ROOT).join(path)).unwrap_or_default());
    }
    Some(hasher.finish())
}

/// The output of git; none without git, or outside a tree.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
