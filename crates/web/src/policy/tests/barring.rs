//! The offences that bar a URL, in the replies to visitors.

use super::*;

#[test]
fn redirect_or_cookie_bars_the_url_for_every_client() {
    for (method, status, fields, barred) in [
        ("GET", 302, &[("location", "/b")][..], true),
        ("HEAD", 302, &[("location", "/b")], true),
        ("GET", 301, &[], true),
        ("GET", 200, &[("set-cookie", "a=1")], true),
        ("GET", 200, &[("refresh", "5")], true),
        // A form that leads back to its page is no evidence.
        ("POST", 303, &[("location", "/a")], false),
        ("POST", 303, &[("location", "/a"), ("set-cookie", "a=1")], false),
        // The site's own name.
        ("GET", 301, &[("location", "https://site.example/a")], false),
        ("GET", 308, &[("location", "HTTP://www.site.example:8080/%61#b")], false),
        ("GET", 302, &[("location", "//www.site.example/a")], false),
        ("GET", 302, &[("location", "https://site.example/a"), ("set-cookie", "a=1")], true),
        ("GET", 302, &[("location", "https://site.example/a"), ("refresh", "1")], true),
        ("GET", 302, &[("location", "https://site.example/a?in")], true),
        ("GET", 302, &[("location", "https://site.example")], true),
        ("GET", 302, &[("location", "https://site.example/a/")], true),
        ("GET", 302, &[("location", "other:x//site.example/a")], true),
        ("GET", 302, &[("location", "/a")], true),
        ("GET", 404, &[], false),
        ("GET", 304, &[], false),
        ("GET", 200, &[], false),
    ] {
        let mut policy = policy();
        let request = asked(method, "/a", &[("cookie", "session=1")]);
        policy.observe(&request, true, false, CLIENT, &mut answered(status, fields), at(0));
        let found = policy.may_hint("/a", at(86_399)).is_err();
        assert_eq!(found, barred, "{method} {status} {fields:?}");
        assert!(policy.may_hint("/a", at(86_400)).is_ok());
        assert!(policy.may_hint("/b", at(1)).is_ok());
    }
}

#[test]
fn no_store_for_an_anonymous_visitor_bars_the_url() {
    for (cookie, status, control, barred) in [
        ("_ga=1", 200, "no-store", true),
        ("_ga=1", 200, "max-age=5, No-Store", true),
        ("_ga=1", 200, "no-cache", false),
        ("_ga=1", 500, "no-store", false),
        // Pages of signed-in users may be cached for all others.
        ("session=1", 200, "no-store", false),
    ] {
        let mut policy = policy();
        let request = asked("GET", "/a", &[("cookie", cookie)]);
        let mut reply = answered(status, &[("cache-control", control)]);
        policy.observe(&request, true, false, CLIENT, &mut reply, at(0));
        assert_eq!(policy.may_hint("/a", at(1)).is_err(), barred, "{cookie} {status} {control}");
    }
}

#[test]
fn url_requested_as_a_page_fragment_is_not_prefetched() {
    const HTML: (&str, &str) = ("content-type", "text/html; charset=utf-8");
    const WHOLE: (&str, &str) = ("sec-fetch-dest", "document");
    for (asks, status, fields, barred) in [
        (&[("hx-request", "true")][..], 200, &[HTML][..], true),
        (&[("x-requested-with", "XMLHttpRequest")], 200, &[HTML], true),
        (&[("turbo-frame", "list")], 200, &[HTML, ("vary", "Accept")], true),
        (
            &[("hx-request", "true"), ("x-requested-with", "x")],
            200,
            &[HTML, ("vary", "HX-Request")],
            true,
        ),
        // The browser's cache distinguishes them.
        (&[("hx-request", "true")], 200, &[HTML, ("vary", "Accept, HX-Request")], false),
        (&[("x-pjax", "true")], 200, &[HTML, ("vary", "*")], false),
        (
            &[("x-requested-with", "XMLHttpRequest")],
            200,
            &[("content-type", "application/json")],
            false,
        ),
        (&[("hx-request", "true")], 404, &[HTML], false),
        (&[("x-requested-with", "fetch"), ("sec-fetch-dest", "empty")], 200, &[HTML], true),
        // Nor is a page that a browser or an app displays, with any of these fields.
        (&[("x-requested-with", "com.example.app"), WHOLE], 200, &[HTML], false),
        (&[("x-requested-with", "com.example.app")], 200, &[HTML], false),
        (&[("hx-request", "true"), WHOLE], 200, &[HTML], false),
        (&[], 200, &[HTML], false),
    ] {
        let mut policy = policy();
        let (request, mut head) = (asked("GET", "/a", asks), answered(status, fields));
        let is_whole = asks.is_empty() || asks.contains(&WHOLE) || asks[0].1.contains('.');
        assert_eq!(is_to_be_observed(&request, &head), !is_whole);
        // A single client may have invented that.
        for (client, seconds) in [(CLIENT, 600), (Client(CLIENT.0 + 1), 86_400)] {
            policy.observe(&request, true, false, client, &mut head, at(0));
            assert_eq!(
                policy.may_hint("/a", at(seconds - 1)).is_err(),
                barred,
                "{asks:?} {status} {fields:?}"
            );
            assert!(policy.may_hint("/a", at(seconds)).is_ok());
        }
    }
}

#[test]
fn redirect_of_the_root_to_another_host_bars_nothing() {
    for (url, location, barred) in [
        ("/", "https://www.site.example", false),
        ("/", "https://www.site.example/", false),
        ("/list?page=2", "https://www.site.example/list?page=2", false),
        ("/list?page=2", "https://www.site.example/list", true),
    ] {
        let mut policy = policy();
        let mut head = answered(301, &[("location", location)]);
        policy.observe(&asked("GET", url, &[]), false, false, CLIENT, &mut head, at(0));
        assert_eq!(policy.may_hint(url, at(1)).is_err(), barred, "{url} {location}");
    }
}
