//! Unusual links: in a shadow root, in a drawing, or to a page that only leads elsewhere.

use super::*;

#[test]
fn links_in_shadow_roots_are_prefetched_on_hover() {
    needs!(chromium::installed());
    let site = Site::start(&[(SHADOW, &[">/inside", ">/drawn"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url(SHADOW));
    site.wait_until("a list", |seen| !seen.hints.is_empty());
    chromium.run("new Promise(done => setTimeout(done, 1000))");
    for (selector, path) in [("#host", "/inside"), ("#drawing", "/drawn")] {
        assert_eq!(site.count(prefetch(path)), 0, "{path}");
        point(&mut chromium, selector);
        site.wait_for(prefetch(path));
    }
}

#[test]
fn nofollow_link_in_a_shadow_root_is_not_prefetched() {
    needs!(chromium::installed());
    let site = Site::start(&[(SHADOW, &["/hidden", "/b"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url(SHADOW));
    site.wait_for(prefetch("/b"));
    assert_eq!(site.count(prefetch("/hidden")), 0);
}

/// A link to a page that only leads elsewhere.
#[test]
fn link_to_a_stub_counts_for_its_target_page() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &[">/target</c", ">/other</nofollow"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_until("a list", |seen| !seen.hints.is_empty());
    chromium.run("new Promise(done => setTimeout(done, 1000))");
    point(&mut chromium, "a[rel=nofollow]");
    chromium.run("new Promise(done => setTimeout(done, 500))");
    point(&mut chromium, "#c");
    site.wait_for(prefetch("/target"));
    for path in ["/c", "/other", "/nofollow"] {
        assert_eq!(site.count(prefetch(path)), 0, "{path}");
    }
}
