//! `lull lab readers`: the reads of a log are made in the mounts of real replicas, and judged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::site::{MountPoint, Site};
use crate::support::{finish, lull};
use lull_testing::{fuse, needs};
use serde_json::Value;

const REPLICAS: [&str; 2] = ["paris", "london"];

/// A log of three seconds: four clients, six pages, one of them with an image.
fn log() -> String {
    let line = |at: u32| {
        let (client, second, page) = (at % 4, at / 20, at * 7 % 6);
        let bytes = [10, 900, 20_000, 70_000, 300, 1_000_000][page as usize];
        let target =
            if page == 2 { "/pages/2/image%201.gif?x=y" } else { &format!("/pages/{page}") };
        format!(
            "192.0.2.{client} - - [01/Aug/1995:00:00:0{second} -0400] \"GET {target} HTTP/1.0\" \
             200 {bytes}\n"
        )
    };
    (0..60).map(line).collect()
}

/// The mount points of replicas; dropped before the site, so that nothing is left in its folder.
fn mounts(site: &mut Site) -> BTreeMap<&'static str, MountPoint> {
    let mounts = REPLICAS.map(|name| {
        let place = MountPoint::new(site, &format!("{name}-files"));
        drop(site.replicas.remove(name));
        site.start_replica(name, &["--mount", &place.0]);
        (name, place)
    });
    mounts.into_iter().collect()
}

#[test]
fn mount_reads_and_origin_writes_are_judged() {
    needs!(fuse());
    let mut site = Site::new(&REPLICAS, &[]);
    let mounts = mounts(&mut site);
    fs::write(site.path("log"), log()).unwrap();
    let (log, first, token) = (site.path("log"), site.path("first"), site.path("token"));
    let place = |name: &str| format!("{}={}", site.path(name), mounts[name].0);
    let (paris, london, origin) = (place("paris"), place("london"), site.path("origin"));
    let to = site.addresses["origin"].clone();
    let arguments = [
        "lab",
        "readers",
        "--json",
        "--updates",
        "1",
        "--replica",
        &paris,
        "--replica",
        &london,
        "--origin",
        &origin,
        "--to",
        &to,
        "--token-file",
        &token,
        &log,
    ];
    // Nothing has been published.
    finish(&mut lull(&arguments)).fails(1, "publish the output of --into first");

    let said = finish(&mut lull(&["lab", "readers", "--into", &first, "--json", &log])).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    // A body has 20 bytes at least.
    assert_eq!((&said["files"], &said["bytes"]), (&6.into(), &(1_091_200 + 20).into()));
    site.publish(Path::new(&first), &["--wait", "paris", "--wait", "london"]);
    let report = finish(&mut lull(&arguments)).ok();
    let report: Value = serde_json::from_str(&report).unwrap();
    let number = |path: &str| {
        let found = report.pointer(path).and_then(Value::as_f64);
        found.unwrap_or_else(|| panic!("no {path}: {report}"))
    };
    assert!((number("/reads") - 60.0).abs() < 0.5 && number("/writes") > 20.0, "{report}");
    for (path, expected) in [("/violations", 0.0), ("/unanswered", 0.0), ("/files", 6.0)] {
        assert!((number(path) - expected).abs() < 0.5, "{path}: {report}");
    }
    let counts = number("/replicas/0/count") + number("/replicas/1/count");
    assert!((counts - 60.0).abs() < 0.5, "{report}");
    assert!(number("/response/mean_ms") > 0.0, "{report}");
    // Written files are in the mounts.
    assert!(number("/sent/pushed") > 20.0, "{report}");
    assert!(number("/sent/speculative_bytes") > 1e5, "{report}");
    assert!(number("/sent/control_bytes") > 1e3, "{report}");
    let status = site.status("origin");
    assert_eq!(status["sequence"].as_f64(), Some(1.0 + number("/writes")), "{status}");
}

#[test]
fn invalid_torture_options_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let log_file = folder.path().join("log");
    fs::write(&log_file, log()).unwrap();
    let log_file = log_file.to_str().unwrap();
    for (arguments, words) in [
        (&[][..], "--replica"),
        (&["--replica", "paris"], "write its folder and the mount"),
        (&["--replica", "paris=files"], "--origin"),
        (&["--into", "first", "--replica", "paris=files"], "cannot be used with"),
        (&["--into", "first", "--popular", "2"], "write a number from 0 to 1"),
    ] {
        finish(lull(&["lab", "readers"]).args(arguments).arg(log_file)).fails(2, words);
    }
}
