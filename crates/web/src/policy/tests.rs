use http::header::{HeaderName, VARY};
use http::{Request, Response};
use proptest::prelude::*;

use super::*;

mod barring;
mod signing_in;
mod varying;

const CLIENT: Client = Client(7);

/// Sun, 06 Nov 1994 08:49:37 GMT.
fn wall() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds)
}

fn policy() -> Policy {
    let mut policy = Policy::new(Settings {
        harmless: Harmless::default(),
        urls: OwnersRules {
            deny: vec![Pattern::new("/denied")],
            allow: Vec::new(),
            allow_query: vec![Pattern::new("/list?")],
        },
    });
    policy.set_robots(Robots::fetched(200, b"User-agent: *\nDisallow: /robots-no\n"));
    policy
}

fn asked(method: &str, url: &str, fields: &[(&str, &str)]) -> request::Parts {
    let mut request = Request::builder().method(method).uri(url);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn answered(status: u16, fields: &[(&str, &str)]) -> response::Parts {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

fn admitted() -> Admitted {
    Admitted {
        target: Target::parse("/a").unwrap(),
        url: "/a".into(),
        safeguard: Safeguard::Vary,
        client: CLIENT,
        at: at(0),
        unusual: Vec::new(),
    }
}

#[test]
fn only_requests_of_the_script_are_admitted_as_prefetches() {
    let policy = policy();
    let elsewhere = |name| Some(NotAPrefetch::Elsewhere(name));
    let carries = |name: &'static str| Some(NotAPrefetch::Carries(HeaderName::from_static(name)));
    for (method, fields, expected) in [
        ("GET", &[("x-lull", "1")][..], None),
        ("GET", &[("x-lull", "1"), ("content-length", "0")], None),
        (
            "GET",
            &[("x-lull", "1"), ("sec-fetch-site", "same-origin"), ("sec-fetch-dest", "empty")],
            None,
        ),
        // Invalid marks.
        ("GET", &[], Some(NotAPrefetch::Header)),
        ("GET", &[("x-lull", "")], Some(NotAPrefetch::Header)),
        ("GET", &[("x-lull", "3")], Some(NotAPrefetch::Header)),
        ("GET", &[("x-lull", "2")], Some(NotAPrefetch::Header)),
        ("GET", &[("x-lull", "1"), ("x-lull", "1")], Some(NotAPrefetch::Header)),
        // Requests that do more, or have more fields.
        ("POST", &[("x-lull", "1")], Some(NotAPrefetch::Method)),
        ("HEAD", &[("x-lull", "1")], Some(NotAPrefetch::Method)),
        ("GET", &[("x-lull", "1"), ("cookie", "_ga=1")], carries("cookie")),
        ("GET", &[("x-lull", "1"), ("authorization", "x")], carries("authorization")),
        ("GET", &[("x-lull", "1"), ("range", "bytes=0-1")], carries("range")),
        ("GET", &[("x-lull", "1"), ("x-remote-user", "ann")], carries("x-remote-user")),
        ("GET", &[("x-lull", "1"), ("content-length", "3")], carries("content-length")),
        ("GET", &[("x-lull", "1"), ("transfer-encoding", "chunked")], carries("transfer-encoding")),
        ("GET", &[("x-lull", "1"), ("sec-fetch-site", "cross-site")], elsewhere("sec-fetch-site")),
        ("GET", &[("x-lull", "1"), ("sec-fetch-dest", "document")], elsewhere("sec-fetch-dest")),
        ("GET", &[("x-lull", "1"), ("save-data", "on")], Some(Excluded::SaveData.into())),
    ] {
        let found = policy.admit(&asked(method, "/a", fields), CLIENT, at(0));
        assert_eq!(found.err(), expected.map(Refusal::NotAPrefetch), "{method} {fields:?}");
    }
}

/// Chromium's fields of a prefetch by rules of the script.
const BY_RULES: [(&str, &str); 5] = [
    ("sec-purpose", "prefetch"),
    ("sec-speculation-tags", "\"lull\""),
    ("sec-fetch-dest", "document"),
    ("sec-fetch-site", "none"),
    ("user-agent", "Mozilla/5.0 (X11) Chrome/156.0.0.0 Safari/537.36"),
];

#[test]
fn only_speculation_rules_of_the_script_are_admitted() {
    let elsewhere = |name| Some(NotAPrefetch::Elsewhere(name));
    let carries = |name: &'static str| Some(NotAPrefetch::Carries(HeaderName::from_static(name)));
    let spares = |why| Some(NotAPrefetch::Spares(why));
    for (method, field, value, expected) in [
        ("GET", "x", "", None),
        ("GET", "sec-speculation-tags", "null, \"lull\"", None),
        ("GET", "sec-fetch-site", "same-origin", None),
        ("GET", "cookie", "_ga=1", None),
        // Rules that are not the script's.
        ("GET", "sec-speculation-tags", "null", Some(NotAPrefetch::Header)),
        ("GET", "sec-speculation-tags", "lull", Some(NotAPrefetch::Header)),
        ("GET", "sec-speculation-tags", "\"lullaby\"", Some(NotAPrefetch::Header)),
        ("GET", "sec-purpose", "prefetch;prerender", Some(NotAPrefetch::Header)),
        ("GET", "sec-fetch-site", "cross-site", elsewhere("sec-fetch-site")),
        ("GET", "sec-fetch-dest", "empty", elsewhere("sec-fetch-dest")),
        // Requests that do more, or have more fields.
        ("POST", "x", "", Some(NotAPrefetch::Method)),
        ("HEAD", "x", "", Some(NotAPrefetch::Method)),
        ("GET", "range", "bytes=0-1", carries("range")),
        ("GET", "authorization", "x", carries("authorization")),
        ("GET", "content-length", "3", carries("content-length")),
        ("GET", "cookie", "session=1", spares(Excluded::Cookie)),
        ("GET", "cookie", "_ga=1; session=1", spares(Excluded::Cookie)),
        ("GET", "cookie", "lull_auth=1", spares(Excluded::Cookie)),
        ("GET", "save-data", "on", spares(Excluded::SaveData)),
        ("GET", "user-agent", "Googlebot Chrome/156.0", spares(Excluded::Robot)),
    ] {
        let others = BY_RULES.iter().filter(|(name, _)| *name != field);
        let fields: Vec<_> = others.copied().chain([(field, value)]).collect();
        let request = asked(method, "/a", &fields);
        let found = policy().admit_by_rules(&request, CLIENT, at(0));
        let expected = expected.map(Refusal::NotAPrefetch);
        assert_eq!(found.err(), expected, "{method} {field}: {value}");
        assert_eq!(policy().lead(&request, "/a", at(0)).err(), expected);
    }
}

#[test]
fn speculation_rules_obey_the_url_policy() {
    let mut policy = policy();
    policy.bars.bar(&Target::parse("/barred").unwrap(), Offence::SetCookie, at(0));
    for (url, allowed) in [
        ("/a/b.html", true),
        ("/list?page=2", true),
        ("/a?page=2", false),
        ("/denied/x", false),
        ("/robots-no", false),
        ("/barred", false),
        ("/logout", false),
        ("/a/../b", false),
        ("//other.example/", false),
        ("/.lull/to/a", false),
    ] {
        let lead = asked("GET", "/.lull/to", &BY_RULES);
        assert_eq!(policy.lead(&lead, url, at(1)).is_ok(), allowed, "{url}");
        let found = policy.admit_by_rules(&asked("GET", url, &BY_RULES), CLIENT, at(1));
        assert_eq!(found.is_ok(), allowed, "{url}");
    }
}

#[test]
fn copies_made_by_rules_always_vary_on_cookies() {
    let mut policy = policy();
    let fields: Vec<_> = BY_RULES.into_iter().chain([("cookie", "_ga=1")]).collect();
    let mut request = asked("GET", "/a", &fields);
    let admitted = policy.admit_by_rules(&request, CLIENT, at(0)).unwrap();
    upstream_request(&mut request.headers);
    for (name, expected) in [
        ("cookie", None),
        ("sec-speculation-tags", None),
        ("sec-purpose", Some("prefetch")),
        ("sec-fetch-dest", Some("document")),
    ] {
        let found = request.headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(found, expected, "{name}");
    }
    for vary in [None, Some(("vary", "Cookie"))] {
        let fields: Vec<_> = [("cache-control", "max-age=1000")].into_iter().chain(vary).collect();
        let mut head = answered(200, &fields);
        let kept = policy.admit_reply(&admitted, &mut head, at(0), wall()).unwrap();
        assert_eq!((kept, &head.headers[VARY]), (MAX_TTL, &HeaderValue::from_static("Cookie")));
    }
}

#[test]
fn hints_and_prefetches_obey_the_same_url_policy() {
    let mut policy = policy();
    let barred = Target::parse("/barred").unwrap();
    policy.bars.bar(&barred, Offence::SetCookie, at(0));
    for (url, allowed) in [
        ("/", true),
        ("/a/b.html", true),
        ("/list?page=2", true),
        ("/a?page=2", false),
        ("/denied/x", false),
        ("/robots-no", false),
        ("/%72obots-no", false),
        ("/barred", false),
        ("/logout", false),
        ("/a/../b", false),
        ("/.lull/hints", false),
    ] {
        assert_eq!(policy.may_hint(url, at(1)).is_ok(), allowed, "{url}");
        let request = asked("GET", url, &[("x-lull", "1")]);
        let found = policy.admit(&request, CLIENT, at(1));
        assert_eq!(found.is_ok(), allowed, "{url}");
    }
    assert!(policy.may_hint("https://other.example/", at(1)).is_err());
    assert!(policy.may_hint("/barred", at(0) + BARRED_FOR).is_ok());
}

#[test]
fn new_bar_ends_a_prefetch_in_flight() {
    for safeguard in [Safeguard::Vary, Safeguard::Word] {
        let mut policy = policy();
        let under_way = Admitted { safeguard, ..admitted() };
        policy.bar("/b", Offence::OptOut, at(1));
        assert!(policy.check_in_flight(&under_way, at(1)).is_ok());
        policy.bar("/a", Offence::OptOut, at(1));
        let found = policy.check_in_flight(&under_way, at(2));
        assert_eq!(found, Err(Refusal::Barred(Offence::OptOut)), "{safeguard:?}");
    }
}

#[test]
fn nothing_is_prefetched_until_robots_txt_is_known() {
    let mut policy = Policy::new(Settings::default());
    assert_eq!(policy.may_hint("/", at(0)), Err(Refusal::Robots(Forbidden::Unknown)));
    policy.set_robots(Robots::fetched(404, b""));
    assert!(policy.may_hint("/", at(0)).is_ok());
}

#[test]
fn upstream_sees_the_standard_prefetch_fields() {
    let mut page = asked(
        "GET",
        "/a",
        &[
            ("x-lull", "1"),
            ("accept", "text/html"),
            ("sec-fetch-dest", "empty"),
            ("sec-fetch-mode", "cors"),
            ("if-none-match", "\"x\""),
            ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("user-agent", "x"),
        ],
    )
    .headers;
    upstream_request(&mut page);
    for (name, expected) in [
        ("x-lull", None),
        ("if-none-match", None),
        ("if-modified-since", None),
        ("sec-purpose", Some("prefetch")),
        ("sec-fetch-dest", Some("document")),
        ("sec-fetch-mode", Some("navigate")),
        ("user-agent", Some("x")),
    ] {
        assert_eq!(page.get(name).map(|value| value.to_str().unwrap()), expected, "{name}");
    }
    assert!(page["accept"].to_str().unwrap().starts_with("text/html,"));

    let mut picture = asked("GET", "/a.png", &[("x-lull", "1"), ("accept", "*/*")]).headers;
    upstream_request(&mut picture);
    assert_eq!(picture["accept"], "*/*");
    assert!(!picture.contains_key("sec-fetch-dest"));
}

#[test]
fn only_public_replies_are_kept() {
    use NotCacheable::{Carries, Download, Elsewhere, Redirect, SetCookie, Status, Varies};
    let status = |code| Status(StatusCode::from_u16(code).unwrap());
    for (code, fields, expected) in [
        (404, &[][..], status(404)),
        (410, &[], status(410)),
        (401, &[], status(401)),
        (403, &[], status(403)),
        (206, &[], status(206)),
        (304, &[], status(304)),
        (204, &[], status(204)),
        (429, &[], status(429)),
        (500, &[], status(500)),
        (503, &[], status(503)),
        (301, &[("location", "https://www.site.example/a")], Elsewhere),
        (301, &[("location", "https://site.example/a"), ("set-cookie", "a=1")], SetCookie),
        (301, &[("location", "https://site.example/b")], Redirect),
        (301, &[("location", "/b")], Redirect),
        (302, &[("location", "/b")], Redirect),
        (303, &[], Redirect),
        (307, &[], Redirect),
        (308, &[], Redirect),
        (200, &[("refresh", "0; url=/b")], Redirect),
        (200, &[("set-cookie", "a=1")], SetCookie),
        (200, &[("set-cookie", "_ga=1")], SetCookie),
        (200, &[("cache-control", "private")], NotCacheable::Stale(Stale::Says("private"))),
        (200, &[("cache-control", "no-store")], NotCacheable::Stale(Stale::Says("no-store"))),
        (200, &[("cache-control", "no-cache")], NotCacheable::Stale(Stale::Says("no-cache"))),
        (200, &[("cache-control", "max-age=0")], NotCacheable::Stale(Stale::Expired)),
        (200, &[("cache-control", "max-age=9"), ("age", "9")], NotCacheable::Stale(Stale::Aged)),
        (200, &[("vary", "*")], Varies("*".into())),
        (200, &[("vary", "Accept-Encoding, Accept")], Varies("Accept".into())),
        (200, &[("vary", "Sec-Fetch-Dest")], Varies("Sec-Fetch-Dest".into())),
        (200, &[("vary", "RSC, If-None-Match")], Varies("If-None-Match".into())),
        (200, &[("vary", "RSC, \"x")], Varies("\"x".into())),
        (
            200,
            &[("content-range", "bytes 0-1/2")],
            Carries(HeaderName::from_static("content-range")),
        ),
        (
            200,
            &[("www-authenticate", "Basic")],
            Carries(HeaderName::from_static("www-authenticate")),
        ),
        (
            200,
            &[("clear-site-data", "\"cookies\"")],
            Carries(HeaderName::from_static("clear-site-data")),
        ),
        (200, &[("content-disposition", "attachment; filename=x")], Download),
        (200, &[("content-disposition", "Attachment")], Download),
        (200, &[("content-disposition", "x")], Download),
    ] {
        let mut policy = policy();
        let mut head = answered(code, fields);
        let found = policy.admit_reply(&admitted(), &mut head, at(0), wall());
        assert_eq!(found, Err(Refusal::NotCacheable(expected.clone())), "{code} {fields:?}");
        // Trouble of the server is temporary, and so is the age of a copy in front of it; the rest is a
        // property of the URL.
        let passes = match &expected {
            Status(_) => ![401, 403, 404, 410].contains(&code),
            expected => matches!(expected, Elsewhere | NotCacheable::Stale(Stale::Aged)),
        };
        assert_eq!(policy.may_hint("/a", at(1)).is_ok(), passes, "{code} {fields:?}");
    }
}

#[test]
fn every_copy_varies_on_cookies() {
    for (vary, expected) in [
        (&[][..], "Cookie"),
        (&["Accept-Encoding"], "Accept-Encoding, Cookie"),
        (&["accept-encoding", "User-Agent"], "accept-encoding, User-Agent, Cookie"),
        (&["cookie"], "cookie"),
        (&["Accept-Encoding, COOKIE"], "Accept-Encoding, COOKIE"),
    ] {
        let fields: Vec<_> = vary.iter().map(|value| ("vary", *value)).collect();
        let mut head = answered(200, &fields);
        policy().admit_reply(&admitted(), &mut head, at(0), wall()).unwrap();
        let lines: Vec<_> = head.headers.get_all(VARY).iter().collect();
        assert_eq!(lines, [expected], "{vary:?}");
    }
}

#[test]
fn proxy_sets_the_caching_fields_of_a_copy() {
    for (control, ttl) in [("max-age=1000", 300), ("max-age=100", 100)] {
        let mut head = answered(
            200,
            &[
                ("cache-control", control),
                ("age", "0"),
                ("expires", "Sun, 06 Nov 1994 10:49:37 GMT"),
                ("pragma", "x"),
                ("etag", "\"x\""),
                ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ("content-type", "text/html; charset=utf-8"),
            ],
        );
        let kept = policy().admit_reply(&admitted(), &mut head, at(0), wall()).unwrap();
        assert_eq!(kept, Duration::from_secs(ttl));
        assert_eq!(head.headers["cache-control"], format!("private, max-age={ttl}"));
        for gone in ["age", "expires", "pragma", "last-modified"] {
            assert!(!head.headers.contains_key(gone), "{gone}");
        }
        assert_eq!(head.headers["vary"], "Cookie");
        assert_eq!(head.headers["x-lull"], "1");
        let tag = head.headers["etag"].to_str().unwrap();
        assert!(tag.starts_with("W/\"lull-") && !tag.contains('x'), "{tag}");
    }
}

#[test]
fn copy_has_the_current_date_and_the_remaining_lifetime() {
    // A minute and a half old, from a cache of the site that sends no age.
    let old = ("date", "Sun, 06 Nov 1994 08:48:07 GMT");
    for (fields, ttl) in [(&[old][..], 60), (&[old, ("cache-control", "max-age=200")], 110)] {
        let mut head = answered(200, fields);
        let kept = policy().admit_reply(&admitted(), &mut head, at(0), wall());
        assert_eq!(kept, Ok(Duration::from_secs(ttl)));
        assert_eq!(head.headers["cache-control"], format!("private, max-age={ttl}"));
        assert_eq!(head.headers["date"], "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}

#[test]
fn origin_tag_of_a_subresource_stays_in_the_copy_tag() {
    let mut head = answered(200, &[("etag", "\"x\""), ("content-type", "text/css")]);
    policy().admit_reply(&admitted(), &mut head, at(0), wall()).unwrap();
    let tag = head.headers["etag"].to_str().unwrap();
    assert!(tag.starts_with("\"lull-") && tag.ends_with("-x\""), "{tag}");
}

#[test]
fn page_that_opts_out_is_not_prefetched() {
    let mut policy = policy();
    policy.bar("/a", Offence::OptOut, at(0));
    let said = policy.may_hint("/a", at(1)).unwrap_err().to_string();
    assert_eq!(said, "its page opts out within the last 24 hours");
}

#[test]
fn rejected_prefetch_leaves_no_state() {
    let head = refused();
    assert_eq!(head.status, 204);
    assert_eq!(head.headers["cache-control"], "no-store");
    // It claims to be the proxy's.
    assert_eq!(head.headers["x-lull"], "0");
    assert_eq!(head.headers.len(), 2);
}

#[test]
fn cache_probe_is_never_forwarded() {
    for (mark, expected) in [("0", true), ("1", false), ("2", false), ("3", false), ("", false)] {
        let request = asked("GET", "/a", &[("x-lull", mark)]);
        assert_eq!(is_server_check(&request.headers), expected, "{mark}");
        let found = policy().admit(&request, CLIENT, at(0));
        assert_eq!(found.is_ok(), mark == "1", "{mark}");
    }
}

#[test]
fn every_rejection_names_its_reason() {
    let policy = policy();
    for (url, why) in [
        ("/logout", "it looks like an action: `logout`"),
        ("/a?b", "it has a query, and the owner has not allowed that"),
        ("/robots-no", "robots.txt disallows `/robots-no`"),
        ("/denied", "the owner denies `/denied`"),
        ("//x", "it is not a path of this site"),
        ("/a/..", "it is ambiguous: `.` or `..`"),
    ] {
        assert_eq!(policy.may_hint(url, at(0)).unwrap_err().to_string(), why);
    }
}

proptest! {
    /// For any reply of the upstream server, a kept copy is private, short-lived, and varies on cookies.
    #[test]
    fn every_kept_copy_is_private_and_short_lived(
        fields in prop::collection::vec(
            (
                prop::sample::select(&["cache-control", "vary", "expires", "age", "pragma", "etag", "date"][..]),
                "[a-zA-Z0-9=, *\"-]{0,24}",
            ),
            0..6,
        ),
    ) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut head = answered(200, &fields);
        if let Ok(ttl) = policy().admit_reply(&admitted(), &mut head, at(0), wall()) {
            let control = format!("private, max-age={}", ttl.as_secs());
            prop_assert_eq!(head.headers.get_all("cache-control").iter().count(), 1);
            prop_assert_eq!(&head.headers["cache-control"], &control);
            prop_assert!(ttl <= MAX_TTL);
            let varies = fields::list(&head.headers, VARY).unwrap();
            let by_cookie = varies.iter().any(|name| name.eq_ignore_ascii_case("cookie"));
            prop_assert!(by_cookie);
            prop_assert_eq!(head.headers.get_all("etag").iter().count(), 1);
        }
    }
}
