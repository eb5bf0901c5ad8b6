//! Pages that opt out of prefetching. The prefetch itself finds that: there was no visit before.

use super::*;

/// A page that opts out, with something before that.
fn off(before: &str) -> String {
    PAGE.replace("<title>", &format!("{before}<meta name=lull content=off><title>"))
}

fn gzip(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

fn html(fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Answers with one of these by the path.
fn serving(answers: Vec<(&'static str, Vec<u8>)>) -> Fronted {
    let site = fronted_with(Settings::default(), NO_ROBOTS, move |peer, head| {
        let path = head.split(' ').nth(1).unwrap();
        match answers.iter().find(|answer| answer.0 == path) {
            Some((_, answer)) => peer.send(answer),
            None => peer.send(page("", PAGE)),
        }
    });
    site.until_robots_are_known();
    site
}

/// A prefetch of the page returns nothing that a browser would keep; and the page is not requested again.
#[track_caller]
fn gives_no_copy(site: &Fronted, path: &str) {
    let answer = site.prefetch(path);
    assert!(answer.status() == 204 || !answer.is_whole, "{path} {answer:?}");
    assert!(!answer.text().contains("</html>"), "{path} {answer:?}");
    assert_eq!(site.prefetch(path).status(), 204, "{path}");
    assert_eq!(site.asked(path).len(), 1, "{path}");
}

#[test]
fn prefetch_that_finds_an_opt_out_gives_no_copy() {
    let refresh = "<meta http-equiv=refresh content='0; url=/a'>";
    let pages = [
        ("/off", off("")),
        ("/nofollow", off("<meta name=robots content=nofollow>")),
        ("/base", off("<base href=https://cdn.example/>")),
        ("/both", off(refresh)),
        ("/leads", PAGE.replace("<title>", &format!("{refresh}<title>"))),
    ];
    let answers = pages.iter().map(|(path, body)| (*path, page("", body).into_bytes()));
    let site = serving(answers.collect());
    for (path, _) in pages {
        gives_no_copy(&site, path);
    }
    assert_eq!(site.prefetch("/a").status(), 200);
}

/// Fields that prevent a change of a page, but not reading it.
const UNTOUCHED: [(&str, &str); 4] = [
    ("/no-transform", "Cache-Control: max-age=60, no-transform\r\n"),
    ("/policy", "Content-Security-Policy: script-src 'none'\r\n"),
    ("/robots", "X-Robots-Tag: nofollow\r\n"),
    ("/packed", "Cache-Control: no-transform\r\nContent-Encoding: gzip\r\n"),
];

fn untouched(body: &str) -> Vec<(&'static str, Vec<u8>)> {
    let answer = |&(path, fields): &(&'static str, &str)| {
        let body = if path == "/packed" { gzip(body) } else { body.as_bytes().to_vec() };
        (path, html(&format!("Content-Type: text/html\r\n{fields}"), &body))
    };
    UNTOUCHED.iter().map(answer).collect()
}

#[test]
fn unmodified_page_may_opt_out() {
    let site = serving(untouched(&off("<meta name=robots content=nofollow>")));
    for (path, _) in UNTOUCHED {
        gives_no_copy(&site, path);
    }
}

#[test]
fn unmodified_page_is_prefetched_unchanged() {
    let site = serving(untouched(PAGE));
    for (path, _) in UNTOUCHED {
        let answer = site.prefetch(path);
        assert!(answer.status() == 200 && answer.is_whole, "{path} {answer:?}");
        let expected = if path == "/packed" { gzip(PAGE) } else { PAGE.as_bytes().to_vec() };
        assert_eq!(answer.body, expected, "{path}");
        assert_eq!(answer.header("content-length"), Some(expected.len().to_string().as_str()));
    }
}

#[test]
fn opt_out_in_the_last_chunk_of_a_page_is_found() {
    let body = off("");
    let whole = html("Content-Type: text/html\r\nX-Robots-Tag: none\r\n", body.as_bytes());
    let site = fronted_with(Settings::default(), NO_ROBOTS, move |peer, head| {
        if head.starts_with("GET /off ") {
            let (first, last) = whole.split_at(whole.len() - body.len() + 30);
            peer.send(first);
            thread::sleep(Duration::from_millis(200));
            peer.send(last);
        } else {
            peer.send(page("", PAGE));
        }
    });
    site.until_robots_are_known();
    gives_no_copy(&site, "/off");
}

#[test]
fn unreadable_page_gives_no_copy() {
    let wide: Vec<u8> = off("").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = [b"\xff\xfe".to_vec(), wide.clone()].concat();
    let answers = vec![
        ("/deflate", html("Content-Type: text/html\r\nContent-Encoding: deflate\r\n", b"?")),
        ("/wide", html("Content-Type: text/html; charset=utf-16le\r\n", &wide)),
        ("/marked", html("Content-Type: text/html\r\n", &marked)),
        ("/xhtml", html("Content-Type: application/xhtml+xml\r\n", off("").as_bytes())),
        (
            "/not-packed",
            html("Content-Type: text/html\r\nContent-Encoding: gzip\r\n", off("").as_bytes()),
        ),
    ];
    let paths: Vec<_> = answers.iter().map(|answer| answer.0).collect();
    let site = serving(answers);
    for path in paths {
        gives_no_copy(&site, path);
        assert_eq!(site.visit(path, "").status(), 200, "{path}");
    }
}
