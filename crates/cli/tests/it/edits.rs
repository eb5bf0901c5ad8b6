//! `lull lab edits`, beside real programs that transfer files; and the plan that compares them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::site::{MountPoint, Site};
use crate::support::{Kept, finish, finish_within, lull, shell};
use lull_testing::{bpf, command, fuse, needs, root};
use serde_json::Value;

/// Ten files, and about forty edits.
const LOAD: [&str; 12] = [
    "--files",
    "10",
    "--rate",
    "20",
    "--length",
    "2s",
    "--tail",
    "3s",
    "--seed",
    "7",
    "--largest",
    "20000",
];

fn number(report: &Value, path: &str) -> f64 {
    let found = report.pointer(path).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no {path}: {report}"))
}

fn edits(arguments: &[&str]) -> Value {
    let said = finish(lull(&["lab", "edits", "--json"]).args(LOAD).args(arguments)).ok();
    serde_json::from_str(&said).unwrap()
}

/// All edits were made and have arrived.
fn check(report: &Value) {
    assert!(number(report, "/writes") > 20.0 && number(report, "/reads") > 900.0, "{report}");
    assert_eq!(report["until_read"]["count"], report["writes"], "{report}");
    assert_eq!(report["until_read"]["missing"], 0, "{report}");
    assert_eq!(report["unanswered"], 0, "{report}");
    assert!(number(report, "/until_read/p50_ms") > 0.0, "{report}");
    assert!(number(report, "/written_bytes") > 1e5, "{report}");
}

#[test]
fn edits_are_found_where_rsync_carries_them() {
    needs!(command("rsync"));
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let (source, target) = (path("source"), path("target"));
    let said = finish(lull(&["lab", "edits", "--into", &source]).args(LOAD)).ok();
    assert!(said.contains("10 files"), "{said}");
    fs::create_dir(&target).unwrap();
    let places = ["--in", &source, "--read", &target];
    // No program synchronizes so far.
    finish(lull(&["lab", "edits", "--ready", "--tail", "1s"]).args(places))
        .fails(1, "ready was written, and cannot be read below");
    let again = "while :; do rsync -a --modify-window=-1 \"$1/\" \"$2/\"; sleep 0.2; done";
    let carrier = Kept::spawn(&mut shell(again, &[&source, &target]));
    finish(lull(&["lab", "edits", "--ready"]).args(places)).ok();
    let report = edits(&places);
    check(&report);
    // It takes as long as the pause between two rounds.
    assert!(number(&report, "/until_read/max_ms") > 100.0, "{report}");
    drop(carrier);
    // The same folder is its own copy, without any disorder.
    finish(lull(&["lab", "edits", "--into", &source]).args(LOAD)).ok();
    let report = edits(&["--in", &source, "--read", &source]);
    check(&report);
    assert_eq!(report["violations"], 0, "{report}");
}

#[test]
fn edits_are_found_in_a_mount_in_their_order() {
    needs!(fuse());
    let mut site = Site::new(&["paris"], &[]);
    let place = MountPoint::new(&site, "paris-files");
    drop(site.replicas.remove("paris"));
    site.start_replica("paris", &["--mount", &place.0]);
    let (first, token) = (site.path("first"), site.path("token"));
    finish(lull(&["lab", "edits", "--into", &first]).args(LOAD)).ok();
    site.publish(Path::new(&first), &["--wait", "paris"]);
    let to = site.addresses["origin"].clone();
    let places = ["--to", &to, "--token-file", &token, "--read", &place.0];
    finish(lull(&["lab", "edits", "--ready"]).args(places)).ok();
    let report = edits(&[&places[..], &["--delta", "60s"]].concat());
    check(&report);
    assert_eq!(report["violations"], 0, "{report}");
}

#[test]
fn invalid_torture_options_are_rejected() {
    for (arguments, words) in [
        (&[][..], "--in"),
        (&["--in", "one"], "--read"),
        (&["--to", "127.0.0.1:1", "--read", "other"], "--token-file"),
        (&["--in", "one", "--to", "127.0.0.1:1"], "cannot be used with"),
        (&["--into", "one", "--smallest", "21", "--largest", "20"], "make it the lesser one"),
    ] {
        finish(lull(&["lab", "edits"]).args(arguments)).fails(2, words);
    }
}

/// The unmodified plan, but with less time for everything: in a separate folder.
fn short_plan(folder: &Path) {
    let plans = folder.join("plans");
    fs::create_dir(&plans).unwrap();
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans/replicate-peers.toml");
    let text = fs::read_to_string(plan).unwrap();
    let (before, quick) = text.split_once("[quick.choices]\n").unwrap();
    let (_, after) = quick.split_once("\n\n").unwrap();
    let times = [("rise", "1s"), ("busy", "1s"), ("pause", "1s"), ("length", "8s"), ("tail", "4s")];
    let times = times.map(|(name, time)| format!("{name} = [{{ value = '{time}' }}]\n")).concat();
    let text = format!("{before}[quick.choices]\n{times}\n{after}");
    fs::write(plans.join("replicate-peers.toml"), text).unwrap();
}

fn run_plan(folder: &Path, systems: &str) -> Command {
    let only = format!("system={systems}");
    let mut command =
        lull(&["lab", "run", "replicate-peers", "--quick", "--json", "--only", &only]);
    command.current_dir(folder);
    command
}

#[test]
fn plan_compares_lull_with_the_installed_peers() {
    needs!(bpf(), fuse(), command("rsync"));
    let folder = tempfile::tempdir().unwrap();
    short_plan(folder.path());
    let mut systems = vec!["lull", "rsync"];
    systems.extend(["lsyncd", "syncthing"].iter().filter(|name| command(name).is_ok()));
    let mut run = run_plan(folder.path(), &systems.join(","));
    let said = finish_within(&mut run, Duration::from_secs(400));
    let value: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    let plan = &value["plans"][0];
    assert_eq!(plan["failed"], Value::Array(Vec::new()), "{said:?}");
    let rows = plan["rows"].as_array().unwrap();
    assert_eq!(rows.len(), systems.len(), "{plan}");
    let names = plan["metrics"].as_array().unwrap();
    let of = |row: &Value, name: &str| {
        let at = names.iter().position(|one| one == name).unwrap();
        row["metrics"][at].as_f64().unwrap_or_else(|| panic!("no {name}: {row}"))
    };
    for (row, system) in rows.iter().zip(systems) {
        assert_eq!(row["values"]["system"], system, "{row}");
        assert!(of(row, "edited") > 15.0, "{row}");
        assert!(of(row, "most") > 0.1 && of(row, "kept") > 0.1, "{row}");
        if system == "lull" {
            assert!(of(row, "violations") < 0.5, "{row}");
        }
    }
}

#[test]
fn missing_peer_is_named() {
    needs!(bpf(), root());
    let folder = tempfile::tempdir().unwrap();
    short_plan(folder.path());
    let programs = folder.path().join("programs");
    fs::create_dir(&programs).unwrap();
    symlink("/bin/sh", programs.join("sh")).unwrap();
    let mut run = run_plan(folder.path(), "syncthing");
    let said = finish_within(run.env("PATH", &programs), Duration::from_secs(60));
    assert_eq!(said.code(), Some(1), "{said:?}");
    let value: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    let failed = &value["plans"][0]["failed"][0];
    let error = failed["error"].as_str().unwrap_or_default();
    assert!(failed["key"].as_str().unwrap_or_default().contains("system=syncthing"), "{said:?}");
    let words = "syncthing is not installed: scripts/setup.sh plans installs it";
    assert!(error.contains(words) && error.lines().count() == 1, "{said:?}");
}
