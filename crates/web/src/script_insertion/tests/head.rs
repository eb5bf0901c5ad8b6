use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use super::*;

#[test]
fn only_pages_are_rewritten() {
    use LeftAlone::{
        Coding, Download, Empty, Encoding, NoFollow, NoTransform, NotADocument, NotHtml, Part,
    };
    let host = ("host", "example.org");
    for (request, response, expected) in [
        (GOES, &[HTML][..], None),
        (GOES, &[("content-type", "TEXT/HTML")], None),
        (GOES, &[("content-type", "text/html;Charset=\"ISO-8859-1\"")], None),
        (GOES, &[HTML, ("content-encoding", "gzip")], None),
        (GOES, &[HTML, ("content-encoding", "identity, br")], None),
        (GOES, &[HTML, ("content-disposition", "inline")], None),
        (GOES, &[HTML, ("x-robots-tag", "noindex")], None),
        (GOES, &[HTML, ("x-robots-tag", "otherbot: nofollow")], None),
        (GOES, &[HTML, ("x-robots-tag", "otherbot: max-snippet:-1, nofollow")], None),
        (GOES, &[HTML, ("x-robots-tag", "lull: noindex, otherbot: nofollow")], None),
        (GOES, &[HTML, ("x-robots-tag", "max-snippet:-1, max-image-preview:large")], None),
        (&[host, ("accept", "text/html,*/*;q=0.8")], &[HTML], None),
        // Not requested as pages.
        (
            &[host, ("sec-fetch-dest", "iframe"), ("accept", "text/html")],
            &[HTML],
            Some(NotADocument),
        ),
        (
            &[host, ("sec-fetch-dest", "empty"), ("accept", "text/html")],
            &[HTML],
            Some(NotADocument),
        ),
        (&[host, ("sec-fetch-dest", "frame")], &[HTML], Some(NotADocument)),
        (&[host, ("accept", "*/*")], &[HTML], Some(NotADocument)),
        (&[host], &[HTML], Some(NotADocument)),
        (
            &[host, ("accept", "text/html"), ("x-requested-with", "XMLHttpRequest")],
            &[HTML],
            Some(NotADocument),
        ),
        // No pages.
        (GOES, &[], Some(NotHtml)),
        (GOES, &[("content-type", "application/xhtml+xml")], Some(NotHtml)),
        (GOES, &[("content-type", "text/plain")], Some(NotHtml)),
        (GOES, &[HTML, HTML], Some(NotHtml)),
        (GOES, &[("content-type", "text/html; charset=utf-16")], Some(Encoding)),
        (GOES, &[("content-type", "text/html; charset=iso-2022-jp")], Some(Encoding)),
        (GOES, &[("content-type", "text/html; charset=klingon")], Some(Encoding)),
        // Must not be changed.
        (GOES, &[HTML, ("cache-control", "public, No-Transform")], Some(NoTransform)),
        (GOES, &[HTML, ("cache-control", "max-age=9; no-transform")], Some(NoTransform)),
        (&[GOES[0], GOES[1], ("cache-control", "no-transform")], &[HTML], Some(NoTransform)),
        (&[GOES[0], GOES[1], ("cache-control", "no-cache")], &[HTML], None),
        (GOES, &[HTML, ("content-range", "bytes 0-1/2")], Some(Part)),
        (GOES, &[HTML, ("content-disposition", "attachment")], Some(Download)),
        (GOES, &[HTML, ("content-length", "0")], Some(Empty)),
        (GOES, &[HTML, ("content-encoding", "deflate")], Some(Coding)),
        (GOES, &[HTML, ("content-encoding", "gzip, br")], Some(Coding)),
        (GOES, &[HTML, ("content-encoding", "gzip"), ("content-encoding", "gzip")], Some(Coding)),
        (GOES, &[HTML, ("x-robots-tag", "noindex, nofollow")], Some(NoFollow)),
        (GOES, &[HTML, ("x-robots-tag", "lull: none")], Some(NoFollow)),
        (GOES, &[HTML, ("x-robots-tag", "noindex, lull: nofollow")], Some(NoFollow)),
        (GOES, &[HTML, ("x-robots-tag", "otherbot: noindex, lull: nofollow")], Some(NoFollow)),
        // Some rules have values.
        (GOES, &[HTML, ("x-robots-tag", "max-snippet:-1, nofollow")], Some(NoFollow)),
        (GOES, &[HTML, ("x-robots-tag", "Max-Image-Preview: large, none")], Some(NoFollow)),
        (
            GOES,
            &[HTML, ("x-robots-tag", "unavailable_after: 25 Jun 2030 15:00:00 PST, nofollow")],
            Some(NoFollow),
        ),
        (
            GOES,
            &[HTML, ("x-robots-tag", "unavailable_after: Tue, 25-Jun-30 15:00:00 PST, nofollow")],
            Some(NoFollow),
        ),
        (GOES, &[HTML, ("content-security-policy", "sandbox")], Some(Forbids::Sandbox.into())),
        (&[("host", "a b"), ("sec-fetch-dest", "document")], &[HTML], Some(LeftAlone::Host)),
        (
            &[("host", "x@example.org/y?"), ("sec-fetch-dest", "document")],
            &[HTML],
            Some(LeftAlone::Host),
        ),
        (&[("sec-fetch-dest", "document")], &[HTML], Some(LeftAlone::Host)),
    ] {
        let found = decide(&asked(request), "https", &answered(response)).err();
        assert_eq!(found, expected, "{request:?} {response:?}");
    }
}

#[test]
fn unreadable_cache_control_blocks_rewriting() {
    let unreadable = HeaderValue::from_bytes(b"max-age=60, \xff").unwrap();
    let (mut request, mut response) = (asked(GOES), answered(&[HTML]));
    response.headers.insert("cache-control", unreadable.clone());
    let found = decide(&request, "https", &response).err();
    assert_eq!(found, Some(LeftAlone::NoTransform));
    response.headers.remove("cache-control");
    request.headers.insert("cache-control", unreadable);
    let found = decide(&request, "https", &response).err();
    assert_eq!(found, Some(LeftAlone::NoTransform));
}

#[test]
fn only_get_and_head_with_200_are_rewritten() {
    for (method, status, expected) in [
        ("GET", 200, true),
        ("HEAD", 200, true),
        ("POST", 200, false),
        ("GET", 404, false),
        ("GET", 304, false),
        ("GET", 206, false),
        ("GET", 203, false),
    ] {
        let mut request = asked(GOES);
        request.method = method.parse().unwrap();
        let mut response = answered(&[HTML]);
        response.status = http::StatusCode::from_u16(status).unwrap();
        assert_eq!(decide(&request, "http", &response).is_ok(), expected, "{method} {status}");
    }
}

#[test]
fn headers_invalidated_by_the_script_are_dropped() {
    let before = [
        HTML,
        ("content-length", "100"),
        ("accept-ranges", "bytes"),
        ("etag", "\"abc\""),
        ("content-md5", "x"),
        ("digest", "x"),
        ("content-digest", "x"),
        ("repr-digest", "x"),
        ("vary", "Accept-Encoding"),
        ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("cache-control", "max-age=60"),
    ];
    let mut head = answered(&before);
    decide(&asked(GOES), "https", &head).unwrap().rewrite_head(&mut head.headers);
    let mut expected = HeaderMap::new();
    for (name, value) in [
        HTML,
        ("etag", "W/\"abc\""),
        ("vary", "Accept-Encoding"),
        ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("cache-control", "max-age=60"),
    ] {
        expected.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    assert_eq!(head.headers, expected);
    // A weak one stays unchanged.
    let mut head = answered(&[HTML, ("etag", "W/\"abc\"")]);
    insertion(&[HTML]).rewrite_head(&mut head.headers);
    assert_eq!(head.headers["etag"], "W/\"abc\"");
}

#[test]
fn unchanged_page_still_gets_304() {
    for (sent, widened) in [
        ("W/\"abc\"", "W/\"abc\", \"abc\""),
        ("\"abc\"", "\"abc\""),
        ("*", "*"),
        ("W/\"a,b\", \"c\"", "W/\"a,b\", \"a,b\", \"c\""),
    ] {
        let mut head = asked(&[("if-none-match", sent)]);
        widen_if_none_match(&mut head.headers);
        assert_eq!(head.headers["if-none-match"], widened);
    }
    for (sent, tag, expected) in [
        ("W/\"abc\"", "\"abc\"", "W/\"abc\""),
        ("\"abc\"", "\"abc\"", "\"abc\""),
        ("W/\"x\", \"abc\"", "\"abc\"", "\"abc\""),
    ] {
        let request = asked(&[GOES, &[("if-none-match", sent)]].concat());
        let mut response =
            answered(&[("etag", tag), ("content-security-policy", "script-src cdn.example")]);
        response.status = http::StatusCode::NOT_MODIFIED;
        revalidated(script(), &request, "https", &mut response);
        assert_eq!(response.headers["etag"], expected);
        let policy = response.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.ends_with(&format!("cdn.example '{}'", script().integrity)));
    }
}
