use http::{Request, Response};
use proptest::prelude::*;

use super::*;

static PEER: HeaderValue = HeaderValue::from_static("192.0.2.7");
static AUTHORITY: HeaderValue = HeaderValue::from_static("127.0.0.1:8080");

/// A head of HTTP/1.1 as delivered by hyper.
fn head(target: &str, headers: &[(&str, &str)]) -> request::Parts {
    let mut request = Request::builder().uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn forwarding(trusts: bool) -> Forwarding<'static> {
    Forwarding {
        peer: &PEER,
        is_secure: true,
        trusts,
        upstream_host: None,
        upstream_authority: &AUTHORITY,
        via: None,
    }
}

/// The upstream's request for one without a body.
fn sent(headers: &[(&str, &str)], forwarding: &Forwarding<'_>) -> HeaderMap {
    let mut head = head("/", headers);
    let checked = check(&head, false, 1000).unwrap();
    to_upstream(&mut head, &checked, Framing::None, forwarding);
    head.headers
}

fn all(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

#[test]
fn ambiguous_requests_are_rejected() {
    let host = ("host", "site.example");
    for (target, headers, has_body, status) in [
        ("/", &[][..], false, 400),
        ("/", &[host, host], false, 400),
        ("/", &[host, ("host", "evil.example")], false, 400),
        ("/", &[("host", "a b")], false, 400),
        ("/", &[("host", "user@site.example")], false, 400),
        ("/", &[("host", "site.example/path")], false, 400),
        ("/", &[("host", "a.example, b.example")], false, 400),
        ("/", &[("host", "")], false, 400),
        ("http://user@site.example/", &[host], false, 400),
        ("*", &[host], false, 400),
        ("/", &[host, ("transfer-encoding", "gzip, chunked")], true, 501),
        ("/", &[host, ("transfer-encoding", "identity")], true, 501),
        (
            "/",
            &[host, ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
            true,
            501,
        ),
        ("/", &[host, ("transfer-encoding", "xchunked")], true, 501),
        ("/", &[host, ("content-length", "5")], false, 400),
        ("/", &[host, ("content-length", "-0")], false, 400),
    ] {
        let refusal = check(&head(target, headers), has_body, 1000).unwrap_err();
        assert_eq!(refusal.status, status, "{target} {headers:?}: {}", refusal.why);
    }
}

#[test]
fn host_rules_depend_on_the_http_version() {
    let mut old = head("/", &[]);
    old.version = Version::HTTP_10;
    assert_eq!(check(&old, false, 1000).unwrap().host, None, "HTTP/1.0 has no Host");
    let mut h2 = head("https://site.example/", &[("host", "SITE.example")]);
    h2.version = Version::HTTP_2;
    assert_eq!(check(&h2, false, 1000).unwrap().host.unwrap(), "site.example");
    h2.headers.insert(header::HOST, HeaderValue::from_static("evil.example"));
    assert_eq!(check(&h2, false, 1000).unwrap_err().status, 400);
}

#[test]
fn limits_and_methods_have_their_own_statuses() {
    let host = [("host", "site.example")];
    let long = format!("/{}", "x".repeat(1000));
    assert_eq!(check(&head(&long, &host), false, 1000).unwrap_err().status, 414);
    assert!(check(&head(&long[..1000], &host), false, 1000).is_ok());
    let mut connect = head("/", &host);
    connect.method = Method::CONNECT;
    assert_eq!(check(&connect, false, 1000).unwrap_err().status, 501);
    let mut options = head("*", &host);
    options.method = Method::OPTIONS;
    assert!(check(&options, false, 1000).is_ok());
}

#[test]
fn host_of_an_absolute_target_replaces_the_host_field() {
    let mut head = head("http://site.example:81/a?b", &[("host", "evil.example")]);
    let checked = check(&head, false, 1000).unwrap();
    to_upstream(&mut head, &checked, Framing::None, &forwarding(false));
    assert_eq!(head.uri, "/a?b");
    assert_eq!(all(&head.headers, "host"), ["site.example:81"]);
    assert_eq!(all(&head.headers, "x-forwarded-host"), ["site.example:81"]);
}

#[test]
fn hop_by_hop_fields_are_not_forwarded() {
    let sent = sent(
        &[
            ("host", "site.example"),
            ("connection", "keep-alive, X-Hop ,x-also"),
            ("connection", "host"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
            ("x-hop", "1"),
            ("x-also", "2"),
            ("accept", "text/html"),
            ("trailer", "x-sum"),
        ],
        &forwarding(false),
    );
    let mut names: Vec<_> = sent.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["accept", "host", "trailer", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"]
    );
    assert_eq!(all(&sent, "host"), ["site.example"]);
}

#[test]
fn forwarded_fields_are_trusted_only_if_configured() {
    let claims = [
        ("host", "site.example"),
        ("x-forwarded-for", "203.0.113.1"),
        ("x-forwarded-for", "203.0.113.2, 203.0.113.3"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "front.example"),
        ("forwarded", "for=203.0.113.1"),
        ("x-forwarded-port", "8443"),
        ("x-forwarded-prefix", "/evil"),
        ("x-forwarded-scheme", "http"),
        ("x-forwarded-server", "evil.example"),
        ("x-forwarded-ssl", "off"),
        ("x-real-ip", "203.0.113.1"),
    ];
    let doubted = sent(&claims, &forwarding(false));
    assert_eq!(all(&doubted, "x-forwarded-for"), ["192.0.2.7"]);
    assert_eq!(all(&doubted, "x-forwarded-proto"), ["https"]);
    assert_eq!(all(&doubted, "x-forwarded-host"), ["site.example"]);
    let trusted = sent(&claims, &forwarding(true));
    assert_eq!(
        all(&trusted, "x-forwarded-for"),
        ["203.0.113.1, 203.0.113.2, 203.0.113.3, 192.0.2.7"]
    );
    assert_eq!(all(&trusted, "x-forwarded-proto"), ["http"]);
    assert_eq!(all(&trusted, "x-forwarded-host"), ["front.example"]);
    for (name, said) in &claims[5..] {
        assert_eq!(all(&trusted, name), [*said]);
        assert!(!doubted.contains_key(*name), "{name}");
    }
    // A client's `Connection` that a proxy in front forwards removes none of that.
    let named = "close, X-Forwarded-For, x-forwarded-proto, X-Forwarded-Host, X-Real-IP, Forwarded, X-Other";
    let all_of_it = [&claims[..], &[("connection", named), ("x-other", "1")]].concat();
    let trusted = sent(&all_of_it, &forwarding(true));
    assert_eq!(
        all(&trusted, "x-forwarded-for"),
        ["203.0.113.1, 203.0.113.2, 203.0.113.3, 192.0.2.7"]
    );
    for (name, said) in &claims[3..] {
        assert_eq!(all(&trusted, name), [*said], "{name}");
    }
    assert!(!trusted.contains_key("x-other"));
}

#[test]
fn underscore_twins_of_forwarded_fields_are_dropped() {
    let twins = ["x_forwarded_for", "X_Forwarded-Proto", "x-forwarded_host", "X_REAL_IP"];
    let mut claims = vec![("host", "site.example"), ("x_own", "1")];
    claims.extend(twins.map(|name| (name, "203.0.113.1")));
    let doubted = sent(&claims, &forwarding(false));
    for name in twins {
        assert!(!doubted.contains_key(name), "{name}");
    }
    assert_eq!(all(&doubted, "x_own"), ["1"]);
}

#[test]
fn lull_mark_becomes_sec_purpose() {
    let host = ("host", "site.example");
    let purpose = ("sec-purpose", "prefetch;prerender");
    for (headers, expected) in [
        (&[host][..], &[][..]),
        (&[host, ("x-lull", "1")], &["prefetch"]),
        (&[host, ("x-lull", "0")], &["prefetch"]),
        // It is awaited, or the script has not sent it.
        (&[host, ("x-lull", "2")], &[]),
        (&[host, ("x-lull", "1, 1")], &[]),
        (&[host, purpose], &["prefetch;prerender"]),
        (&[host, purpose, ("x-lull", "1")], &["prefetch;prerender"]),
        // A mark that `Connection` removes was never for the upstream, nor a secret.
        (&[host, ("connection", "x-lull"), ("x-lull", "1")], &["prefetch"]),
    ] {
        let sent = sent(headers, &forwarding(false));
        assert_eq!(all(&sent, "sec-purpose"), expected, "{headers:?}");
        assert!(!sent.contains_key(X_LULL));
    }
}

#[test]
fn host_may_be_rewritten_and_via_added() {
    let other = HeaderValue::from_static("inner.example");
    let name = HeaderValue::from_static("lull");
    let forwarding =
        Forwarding { upstream_host: Some(&other), via: Some(&name), ..forwarding(false) };
    let sent = sent(&[("host", "site.example"), ("via", "1.0 cdn")], &forwarding);
    assert_eq!(all(&sent, "host"), ["inner.example"]);
    assert_eq!(all(&sent, "x-forwarded-host"), ["site.example"]);
    assert_eq!(all(&sent, "via"), ["1.0 cdn, 1.1 lull"]);
}

#[test]
fn body_has_one_framing() {
    let host = ("host", "site.example");
    let length = ("content-length", "5");
    let framed = |headers: &[(&str, &str)], framing| {
        let mut head = head("/", headers);
        let checked = check(&head, true, 1000).unwrap();
        to_upstream(&mut head, &checked, framing, &forwarding(false));
        (all(&head.headers, "content-length"), all(&head.headers, "transfer-encoding"))
    };
    let none: Vec<String> = Vec::new();
    assert_eq!(framed(&[host, length], Framing::Length), (vec!["5".to_owned()], none.clone()));
    assert_eq!(
        framed(&[host, ("transfer-encoding", "chunked")], Framing::Chunked),
        (none.clone(), vec!["chunked".to_owned()])
    );
    assert_eq!(framed(&[host, length], Framing::Chunked), (none, vec!["chunked".to_owned()]));
}

#[test]
fn several_cookie_fields_become_one() {
    for (fields, joined) in [
        (&[][..], &[][..]),
        (&["a=1; b=2"], &["a=1; b=2"]),
        (&["a=1", "b=2", "c"], &["a=1; b=2; c"]),
    ] {
        let cookies: Vec<_> = fields.iter().map(|value| ("cookie", *value)).collect();
        let mut head = head("/", &cookies);
        join_cookies(&mut head.headers);
        assert_eq!(all(&head.headers, "cookie"), joined);
    }
    let mut raw = HeaderMap::new();
    for value in [&b"a=\xff"[..], b"b=2"] {
        raw.append("cookie", HeaderValue::from_bytes(value).unwrap());
    }
    join_cookies(&mut raw);
    assert_eq!(raw["cookie"].as_bytes(), b"a=\xff; b=2");
}

#[test]
fn empty_post_and_put_declare_a_zero_length() {
    for (method, length) in [(Method::POST, &["0"][..]), (Method::PUT, &["0"]), (Method::GET, &[])]
    {
        let mut head = head("/", &[("host", "site.example")]);
        head.method = method;
        let checked = check(&head, false, 1000).unwrap();
        to_upstream(&mut head, &checked, Framing::None, &forwarding(false));
        assert_eq!(all(&head.headers, "content-length"), length);
    }
}

#[test]
fn only_upgrades_away_from_http_pass() {
    for (connection, protocol, passes) in [
        ("Upgrade", "websocket", true),
        ("keep-alive, upgrade", "WebSocket", true),
        ("keep-alive", "websocket", false),
        ("upgrade", "h2c", false),
        ("upgrade", "H2C", false),
        ("upgrade", "HTTP/2.0", false),
        ("upgrade", "websocket, h2c", false),
        ("upgrade", "", false),
    ] {
        let mut head = head(
            "/",
            &[("host", "site.example"), ("connection", connection), ("upgrade", protocol)],
        );
        let checked = check(&head, false, 1000).unwrap();
        let upgrade = to_upstream(&mut head, &checked, Framing::None, &forwarding(false));
        assert_eq!(upgrade.is_some(), passes, "{connection}: {protocol}");
        assert_eq!(head.headers.contains_key("upgrade"), passes);
        assert_eq!(all(&head.headers, "connection"), if passes { &["upgrade"][..] } else { &[] });
    }
}

fn reply(status: u16, headers: &[(&str, &str)]) -> response::Parts {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

#[test]
fn fields_of_the_upstream_connection_are_removed() {
    let mut head = reply(
        200,
        &[
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("content-length", "7"),
            ("alt-svc", "h3=\":443\""),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ],
    );
    to_client(&mut head, false).unwrap();
    assert_eq!(head.headers.len(), 2, "{:?}", head.headers);
    assert_eq!(all(&head.headers, "set-cookie"), ["a=1", "b=2"]);
}

#[test]
fn response_with_unclear_end_is_unusable() {
    for (status, headers, upgrade) in [
        (200, &[("transfer-encoding", "gzip, chunked")][..], false),
        (200, &[("transfer-encoding", "gzip")], false),
        (200, &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], false),
        (101, &[("upgrade", "websocket")], false),
    ] {
        assert_eq!(to_client(&mut reply(status, headers), upgrade), Err(Unusable), "{headers:?}");
    }
    let mut twice = reply(200, &[("content-length", "5"), ("content-length", "5")]);
    to_client(&mut twice, false).unwrap();
    assert_eq!(all(&twice.headers, "content-length"), ["5"]);
    let mut switch = reply(101, &[("upgrade", "websocket"), ("connection", "Upgrade")]);
    to_client(&mut switch, true).unwrap();
    assert_eq!(all(&switch.headers, "upgrade"), ["websocket"]);
}

proptest! {
    /// For any client's request, the upstream's request has one host, one framing, and no field about the
    /// client's connection.
    #[test]
    fn upstream_request_has_one_host_and_one_framing(
        names in proptest::collection::vec(
            proptest::sample::select(&[
                "connection", "content-length", "transfer-encoding", "te", "upgrade", "x-lull",
                "expect", "keep-alive", "x-forwarded-for", "cookie", "proxy-connection",
            ][..]),
            0..8,
        ),
        values in proptest::collection::vec(
            proptest::sample::select(&[
                "close", "keep-alive, host", "5", "0", "chunked", "gzip", "trailers", "websocket",
                "1", "100-continue", "content-length, transfer-encoding", "cookie",
            ][..]),
            8,
        ),
        framing in proptest::sample::select(&[Framing::None, Framing::Length, Framing::Chunked][..]),
    ) {
        let mut headers = vec![("host", "site.example")];
        headers.extend(names.into_iter().zip(values));
        let mut head = head("/", &headers);
        if let Ok(checked) = check(&head, framing != Framing::None, 1000) {
            let upgrade = to_upstream(&mut head, &checked, framing, &forwarding(false));
            let count = |name: &str| head.headers.get_all(name).iter().count();
            prop_assert_eq!(count("host"), 1);
            prop_assert_eq!(count("x-forwarded-for"), 1);
            prop_assert!(!(count("content-length") > 0 && count("transfer-encoding") > 0));
            prop_assert_eq!(count("transfer-encoding"), usize::from(framing == Framing::Chunked));
            for name in ["te", "keep-alive", "proxy-connection", "x-lull", "http2-settings"] {
                prop_assert_eq!(count(name), 0);
            }
            prop_assert_eq!(count("connection"), usize::from(upgrade.is_some()));
        }
    }
}
