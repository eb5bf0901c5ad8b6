//! `lull lab score` from a user's view.

use std::time::Duration;

use crate::support::{finish_within, lull};
use serde_json::Value;

/// A loaded machine may be slow.
const LIMIT: Duration = Duration::from_secs(180);

fn score(arguments: &[&str]) -> String {
    finish_within(lull(&["lab", "score"]).args(arguments), LIMIT).ok()
}

#[test]
fn score_prints_the_same_lines_for_any_number_of_jobs() {
    let arguments = ["crowd", "--cc", "none,lull", "--cc", "nice"];
    let one = score(&[&arguments[..], &["--jobs", "1"]].concat());
    assert_eq!(one, score(&[&arguments[..], &["--jobs", "4"]].concat()));
    let names = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let shown: Vec<String> = one.lines().skip(2).map(names).collect();
    assert_eq!(shown, ["crowd none", "crowd lull", "crowd nice"]);
    // Without a background everything is kept.
    assert!(one.lines().nth(2).unwrap().contains("1.000  1.000"), "{one}");
}

#[test]
fn score_in_json_has_cells_only_on_request() {
    let arguments = ["crowd", "--cc", "lull", "--validation-cells", "--json"];
    let report = |more: &[&str]| -> Value {
        serde_json::from_str(&score(&[&arguments[..], more].concat())).unwrap()
    };
    let (lines, all) = (report(&[]), report(&["--cells"]));
    assert_eq!((&lines["set"], &lines["seeds"]), (&"held-out".into(), &vec![101].into()));
    assert_eq!(lines["lines"], all["lines"]);
    assert!(lines.get("cells").is_none());
    let cells = all["cells"].as_array().unwrap().len();
    assert_eq!(lines["lines"][0]["cells"], cells);
}

#[test]
fn unknown_score_group_is_rejected_with_the_known_ones() {
    let said = finish_within(&mut lull(&["lab", "score", "bulky"]), LIMIT);
    said.fails(2, "'bulky'");
    said.fails(2, "shallow");
}
