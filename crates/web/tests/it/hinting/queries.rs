//! Pages that differ by their query, where the owner permits prefetching them.

use lull_web::nps::Settings;
use lull_web::policy::{self, OwnersRules, Pattern};
use serde_json::json;

use super::{empty_model, quick, site, site_with};

#[test]
fn allowed_query_is_hinted() {
    let urls =
        OwnersRules { allow_query: vec![Pattern::new("/list?page=*")], ..OwnersRules::default() };
    let rules = policy::Settings { urls, ..policy::Settings::default() };
    let site =
        site_with(Settings { rules, monitor: quick(), ..Settings::default() }, empty_model());
    site.go(1..25, &["/list?page=1", "/list?page=2", "/a?from=mail", "/b"]);
    // Each is a separate page, and leads to others.
    assert_eq!(site.list(30, "/list?page=1", &[])[0], "/list?page=2");
    assert!(!site.list(31, "/list?page=2", &[]).contains(&"/list?page=2".to_owned()));
    // A request with another query counts for its path, and is never hinted.
    assert_eq!(site.list(32, "/a?from=elsewhere", &[])[0], "/b");
    assert!(site.list(33, "/list?page=2", &[]).iter().all(|url| !url.starts_with("/a")));
    // So it is admitted, and learned no more than any prefetch.
    let mark = "X-Lull: 1\r\n";
    assert_eq!(site.visit_with(34, "/list?page=2", mark).header("x-lull"), Some("1"));
}

#[test]
fn query_is_not_part_of_a_name_by_default() {
    let site = site();
    site.go(1..25, &["/list?page=1", "/list?page=2", "/b"]);
    assert_eq!(site.list(30, "/list?page=1", &[]), ["/b"]);
    assert_eq!(site.ask(31, "/b", &[], false)["hints"], json!([]));
}
