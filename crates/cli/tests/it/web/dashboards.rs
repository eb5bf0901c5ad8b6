//! The dashboard for Grafana and the alerts for Prometheus name metrics that exist.

use std::collections::BTreeSet;

/// Names of metrics in a text, without the endings of histograms.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_part = |byte: char| byte.is_ascii_alphanumeric() || byte == '_';
    let words = text.split(|byte| !is_part(byte)).filter(|word| word.starts_with("lull_web_"));
    let bare = |word: &str| word.strip_suffix("_bucket").unwrap_or(word).to_owned();
    words.map(bare).collect()
}

#[test]
fn dashboard_and_alerts_name_existing_metrics() {
    let known = metrics(include_str!("../../../../../docs/reference/metrics.md"));
    let dashboard = include_str!("../../../../../packaging/grafana/lull-web.json");
    let alerts = include_str!("../../../../../packaging/prometheus/lull-web.rules.yml");
    let parsed: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    assert!(parsed["panels"].as_array().is_some_and(|panels| panels.len() > 10));
    for (text, least) in [(dashboard, 15), (alerts, 6)] {
        let named = metrics(text);
        assert!(named.len() >= least, "{named:?}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
