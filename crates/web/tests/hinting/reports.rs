//! What is learned from reports of pages that came out of a cache.

use super::*;

impl Site {
    fn report(&self, visitor: u32, page: &str) -> u16 {
        let nav = json!({"type": "navigate", "cached": true, "ttfb": 1, "lcp": 2, "load": 3});
        let message = json!({"v": 1, "page": page, "nav": nav}).to_string();
        self.post(visitor, "/.lull/beacon", "", &message).status()
    }
}

/// How often a page was visited, in visits of now.
fn popularity(model: &Model, path: &str) -> f32 {
    let observer = model.observer();
    observer.urls().popularity(observer.url(path).unwrap(), model.latest())
}

#[test]
fn who_clicks_on_before_the_script_asks_has_visited_the_page() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    site.visit(20, "/a");
    assert_eq!(site.report(20, "/b"), 204);
    let model = site.learned();
    let (a, b) = (popularity(&model, "/a"), popularity(&model, "/b"));
    assert!((a - b).abs() < 0.1, "{a} {b}");
}

#[test]
fn a_question_and_a_report_are_of_one_visit() {
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
fn a_report_that_comes_after_the_next_page_is_none_of_a_visit() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    site.visit_with(20, "/a", "Referer: http://site.example/b\r\n");
    site.report(20, "/b");
    let model = site.learned();
    let (a, b) = (popularity(&model, "/a"), popularity(&model, "/b"));
    assert!((a - b - 1.0).abs() < 0.1, "{a} {b}");
}

#[test]
fn reports_that_are_made_up_grow_no_model() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    for number in 0..40 {
        assert_eq!(site.report(9, &format!("/made-up/{number}")), 204);
    }
    // Nor do those of who gets no hints.
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
