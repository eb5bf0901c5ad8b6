//! `lull exporter` with a real job.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lull_testing::needs;
use serde_json::Value;

use crate::support::{Kept, Variant, eventually_within, finish, lull, shell};
use crate::top::start_job;

/// An exporter at a free port, and its address.
fn start_exporter() -> (Kept, String) {
    let mut command = lull(&["exporter", "--listen", "127.0.0.1:0"]);
    let mut kept = Kept::spawn(command.stderr(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(kept.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line
        .trim_end()
        .strip_prefix("lull: metrics at http://")
        .unwrap_or_else(|| panic!("{line}"));
    let address = address.strip_suffix("/metrics").unwrap().to_owned();
    (kept, address)
}

fn curl(words: &str, address: &str) -> String {
    finish(&mut shell(&format!("curl --silent --show-error {words}"), &[address])).ok()
}

/// The value of a series.
fn value(metrics: &str, series: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn exporter_serves_counters_of_a_job_that_grow() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"), lull_testing::command("curl"));
    let control = Variant::unloaded();
    let _job = start_job(&control.0, "lull", "t-exported");
    let (_exporter, address) = start_exporter();
    let labels = format!("{{job=\"t-exported\",congestion=\"{}\"", control.0);
    let sent = format!("lull_job_sent_bytes_total{labels},protocol=\"tcp\"}}");
    let first = value(&curl("http://$1/metrics", &address), &sent).unwrap();
    eventually_within(Duration::from_secs(120), "the counter grows", || {
        let metrics = curl("http://$1/metrics", &address);
        assert!(value(&metrics, "lull_jobs").unwrap() >= 1.0, "{metrics}");
        assert_eq!(
            value(&metrics, &format!("lull_job_connections{labels}}}")),
            Some(2.0),
            "{metrics}"
        );
        let window = value(&metrics, &format!("lull_job_window_packets{labels}}}"));
        window.unwrap() > 0.0 && value(&metrics, &sent).unwrap() > first
    });
    let head = curl("--output /dev/null --write-out '%{content_type}' http://$1/metrics", &address);
    assert_eq!(head, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let code = "--output /dev/null --write-out '%{http_code}' ";
    assert_eq!(curl(&format!("{code} http://$1/other"), &address), "404");
    assert_eq!(curl(&format!("{code} --data x http://$1/metrics"), &address), "405");
    assert!(curl("http://$1/", &address).contains("/metrics"));
}

#[test]
fn exporter_reports_an_address_that_is_taken() {
    needs!(lull_testing::bpf());
    let (_exporter, address) = start_exporter();
    finish(&mut lull(&["exporter", "--listen", &address])).fails(1, "cannot listen at 127.0.0.1:");
}

/// Each query of the dashboard is about metrics that the exporter serves.
#[test]
fn dashboard_uses_only_metrics_that_exist() {
    needs!(lull_testing::bpf(), lull_testing::command("python3"));
    let control = Variant::unloaded();
    let _job = start_job(&control.0, "lull", "t-drawn");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana/lull.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let metrics = finish(&mut lull(&["exporter", "--once"])).ok();
    let known: Vec<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let panels = dashboard["panels"].as_array().unwrap();
    let queries = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut used = Vec::new();
    for query in queries.map(|target| target["expr"].as_str().unwrap()) {
        let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for name in words.filter(|word| word.starts_with("lull_")) {
            let base = name.strip_suffix("_total").unwrap_or(name);
            assert!(known.contains(&base), "{name} of the dashboard is not served");
            used.push(base);
        }
    }
    assert!(used.len() >= panels.len(), "{used:?}");
}
