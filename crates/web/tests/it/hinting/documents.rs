//! How long a list is.

use serde_json::Value;

use super::site;

#[test]
fn list_covers_one_document_and_the_rest_is_for_hover() {
    let site = site();
    let pages: Vec<String> = (1..=7).map(|number| format!("/n{number}")).collect();
    for (first, page) in (10..).step_by(10).zip(&pages) {
        site.go(first..first + 6, &["/a", page]);
    }
    let mut had: Vec<String> = Vec::new();
    // A document has three files here.
    for length in [3, 3, 1] {
        let of: Vec<&str> = had.iter().map(String::as_str).collect();
        let hints = site.hints(200, "/a", &of);
        let (pointed, listed): (Vec<&Value>, Vec<&Value>) =
            hints.iter().partition(|hint| hint["pointed"] == true);
        assert_eq!(listed.len(), length, "{hints:?}");
        assert_eq!(listed.len() + pointed.len() + had.len(), pages.len(), "{hints:?}");
        had.extend(listed.iter().map(|hint| hint["url"].as_str().unwrap().to_owned()));
    }
    had.sort();
    assert_eq!(had, pages);
}
