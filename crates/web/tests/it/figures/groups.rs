//! The control group, which gets no hints.

use super::*;

#[test]
fn control_group_gets_no_hints_and_is_counted_apart() {
    let all = site(Settings { held_back: 10_000, access: token(), ..settings() });
    all.go(1..25, &["/a", "/b"]);
    // The script continues to report.
    assert!(all.get(30, "/a", "").text().contains("<script"));
    for visitor in 30..40 {
        assert_eq!(all.ask(visitor, "/a")["wait"], Value::Null);
    }
    all.beacon(30, "/a", false, 40.0);
    let status = all.status();
    assert_eq!((&status["with"]["count"], &status["without"]["count"]), (&json!(0), &json!(1)));

    let some = site(Settings { held_back: 5_000, access: token(), ..settings() });
    for visitor in 1..200 {
        some.beacon(visitor, "/a", false, 40.0);
        some.beacon(visitor, "/b", false, 40.0);
    }
    let status = some.status();
    let count = |group: &str| status[group]["count"].as_u64().unwrap();
    assert_eq!(count("with") + count("without"), 398);
    // Always on the same side, so both counts are even.
    assert!(count("with") % 2 == 0 && count("without") > 100 && count("with") > 100, "{status}");
}

#[test]
fn group_follows_the_page_from_any_reporting_address() {
    for (held_back, said, group) in
        [(10_000, 0, "with"), (1, 1, "without"), (10_000, 1, "without"), (0, 1, "with")]
    {
        let site = site(Settings { held_back, access: token(), ..settings() });
        let nav = json!({"type": "navigate", "cached": false, "ttfb": 3, "load": 9});
        let report = json!({"v": 1, "page": "/a", "held": said, "nav": nav});
        for visitor in 30..40 {
            assert_eq!(site.post(visitor, "/.lull/beacon", &report).status(), 204);
        }
        let status = site.status();
        assert_eq!(status[group]["count"], 10, "{held_back} {said} {status}");
        let tag = if held_back == 10_000 { " data-held=1>" } else { " data-held=0>" };
        let page = site.get(30, "/a", "").text();
        assert_eq!(page.contains(tag), held_back > 0, "{page}");
        let ask = json!({"v": 1, "page": "/a", "first": true, "cached": false, "held": said});
        site.post(31, "/.lull/hints", &ask);
        let counted = json!(["held_back", 1]);
        let empty = site.status()["empty"].clone();
        assert_eq!(empty.as_array().unwrap().contains(&counted), group == "without", "{empty}");
    }
}
