//! Knowledge from reports of pages that came out of a cache.

use super::*;

impl Site {
    fn report(&self, visitor: u32, page: &str) -> u16 {
        let nav = json!({"type": "navigate", "cached": true, "ttfb": 1, "lcp": 2, "load": 3});
        let message = json!({"v": 1, "page": page, "nav": nav}).to_string();
        self.post(visitor, "/.lull/beacon", "", &message).status()
    }

    /// A page had this out of the browser's cache.
    fn used(&self, visitor: u32, page: &str, part: &str) {
        let used = [part, "https://other.example/x.png"];
        let message = json!({"v": 1, "page": page, "first": true, "cached": false, "used": used});
        let json = "Content-Type: application/json\r\n";
        assert_eq!(self.post(visitor, "/.lull/hints", json, &message.to_string()).status(), 200);
    }
}

/// How often a page was visited, in recent visits.
fn popularity(model: &Model, path: &str) -> f32 {
    let observer = model.observer();
    observer.urls().popularity(observer.url(path).unwrap(), model.latest())
}

#[test]
fn page_left_before_its_script_asks_counts_as_visited() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    site.visit(20, "/a");
    assert_eq!(site.report(20, "/b"), 204);
    let model = site.learned();
    let (a, b) = (popularity(&model, "/a"), popularity(&model, "/b"));
    assert!((a - b).abs() < 0.1, "{a} {b}");
}

#[test]
fn hint_request_and_report_count_as_one_visit() {
    let site = site();
    site.go(1..25, &["/a", "/b", "/c"]);
    site.ask(20, "/b", &[], true);
    // In another tab.
    site.visit(20, "/a");
    site.visit(20, "/c");
    site.report(20, "/b");
    let model = site.learned();
    let (a, b) = (popularity(&model, "/a"), popularity(&model, "/b"));
    assert!((a - b).abs() < 0.1, "{a} {b}");
}

#[test]
fn report_after_the_next_page_counts_no_visit() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    site.visit_with(20, "/a", "Referer: http://site.example/b\r\n");
    site.report(20, "/b");
    let model = site.learned();
    let (a, b) = (popularity(&model, "/a"), popularity(&model, "/b"));
    assert!((a - b - 1.0).abs() < 0.1, "{a} {b}");
}

#[test]
fn page_renamed_by_its_scripts_teaches_no_order() {
    // Known already, and public.
    for (page, learns) in [("/c", false), ("/b", true)] {
        let site = site();
        site.go(1..25, &["/a", "/b", "/c"]);
        site.visit(20, "/a");
        let name = "http://site.example/b";
        let nav = json!({"type": "navigate", "name": name, "cached": true, "ttfb": 1, "load": 3});
        let message = json!({"v": 1, "page": page, "nav": nav}).to_string();
        assert_eq!(site.post(20, "/.lull/beacon", "", &message).status(), 204);
        let model = site.learned();
        let more = popularity(&model, "/a") - popularity(&model, page);
        assert!((more - f32::from(!learns)).abs() < 0.1, "{page}: {more}");
    }
}

#[test]
fn invented_reports_do_not_grow_the_model() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    for number in 0..40 {
        assert_eq!(site.report(9, &format!("/made-up/{number}")), 204);
    }
    // Nor do those of clients without hints.
    let nav = r#"{"v":1,"page":"/b","nav":{"type":"navigate","cached":true,"ttfb":1,"load":1}}"#;
    site.visit(20, "/a");
    for more in ["Cookie: session=1\r\n", "Authorization: Basic eA==\r\n", "Via: 1.1 varnish\r\n"] {
        assert_eq!(site.post(20, "/.lull/beacon", more, nav).status(), 204);
    }
    let model = site.learned();
    assert_eq!(model.observer().urls().len(), 2);
    let (a, b) = (popularity(&model, "/a"), popularity(&model, "/b"));
    assert!((a - b - 1.0).abs() < 0.1, "{a} {b}");
}

#[test]
fn prefetched_subresource_counts_as_requested_once() {
    let site = site();
    site.go(1..25, &["/a", "/b", "/b.png", "/c.png"]);
    site.list(40, "/a", &[]);
    site.visit(30, "/a");
    for part in ["/b.png", "/c.png"] {
        let ahead = site.get(30, part, "X-Lull: 1\r\n");
        assert_eq!((ahead.status(), ahead.header("x-lull")), (200, Some("1")));
    }
    // The second page has it for another reason; so has a client that prefetched nothing.
    site.used(30, "/b", "/b.png");
    site.used(30, "/b", "/b.png");
    site.used(31, "/b", "/c.png");
    let model = site.learned();
    let [a, b, c] = ["/a", "/b.png", "/c.png"].map(|path| popularity(&model, path));
    assert!((a - b).abs() < 0.1 && (a - c - 1.0).abs() < 0.1, "{a} {b} {c}");
}
