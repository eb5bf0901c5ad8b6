//! The proxy compresses prefetched answers in place of the server.

use std::io::Read;

use super::*;

/// A site whose answers are long enough to be worth compressing.
fn long_site() -> Fronted {
    fronted(|head| {
        let (kind, more, body) = match head.split(' ').nth(1).unwrap() {
            "/style.css" => ("text/css", "", "a {}".repeat(1_000)),
            "/picture.png" => ("image/png", "", "png".repeat(1_000)),
            "/fixed.css" => ("text/css", "Cache-Control: no-transform\r\n", "a {}".repeat(1_000)),
            "/short.css" => ("text/css", "", "a {}".to_owned()),
            _ => ("text/html; charset=utf-8", "ETag: \"a\"\r\n", long_page()),
        };
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}\r\n{body}"
        )
    })
}

fn long_page() -> String {
    PAGE.replace("b</body>", &format!("{}</body>", "a long text ".repeat(20_000)))
}

fn unpacked(answer: &Answer) -> String {
    let mut text = String::new();
    match answer.header("content-encoding") {
        None => return answer.text(),
        Some("gzip") => {
            flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
        }
        Some(other) => panic!("{other}"),
    }
    text
}

const GZIP: &str = "Accept-Encoding: gzip, br\r\n";

#[test]
fn prefetch_is_compressed_by_the_proxy() {
    let site = long_site();
    let answer = site.proxy.exchange(prefetch("/b", "1", GZIP));
    assert_eq!(answer.status(), 200);
    let asked = &site.asked("/b")[0];
    assert_eq!(header(asked, "accept-encoding"), Some("identity"), "{asked}");
    for (name, expected) in [("content-encoding", Some("gzip")), ("content-length", None)] {
        assert_eq!(answer.header(name), expected, "{name}");
    }
    assert!(answer.header("etag").is_some_and(|tag| tag.starts_with("W/")), "{}", answer.head);
    assert!(answer.head.contains("vary: Accept-Encoding\r\n"), "{}", answer.head);
    assert!(answer.body.len() < long_page().len() / 10 && answer.is_whole);
    let page = unpacked(&answer);
    assert!(page.contains("<script async"));
    assert_eq!(without_the_tag(&page), long_page());

    let style = site.proxy.exchange(prefetch("/style.css", "1", GZIP));
    assert_eq!(style.header("content-encoding"), Some("gzip"));
    assert_eq!(unpacked(&style), "a {}".repeat(1_000));
    let zstd = site.proxy.exchange(prefetch("/b", "1", "Accept-Encoding: gzip, br, zstd\r\n"));
    assert_eq!(zstd.header("content-encoding"), Some("zstd"));
}

#[test]
fn answers_that_gain_nothing_stay_uncompressed() {
    let site = long_site();
    for (path, more) in [
        ("/picture.png", GZIP),
        ("/fixed.css", GZIP),
        ("/short.css", GZIP),
        ("/style.css", ""),
        ("/style.css", "Accept-Encoding: gzip;q=0\r\n"),
    ] {
        let answer = site.proxy.exchange(prefetch(path, "1", more));
        let coding = answer.header("content-encoding");
        assert_eq!((answer.status(), coding), (200, None), "{path} {more}");
        assert!(answer.is_whole, "{path}");
    }
}

#[test]
fn page_with_the_script_is_compressed_once() {
    let site = long_site();
    let answer = site.visit("/b", GZIP);
    assert_eq!(header(&site.asked("/b")[0], "accept-encoding"), Some("identity"));
    assert_eq!((answer.status(), answer.header("content-encoding")), (200, Some("gzip")));
    assert!(answer.head.contains("vary: Accept-Encoding\r\n"), "{}", answer.head);
    let page = unpacked(&answer);
    assert!(page.contains("<script async"));
    assert_eq!(without_the_tag(&page), long_page());
}

#[test]
fn coding_of_unchanged_answers_is_left_to_the_server() {
    let site = long_site();
    for (path, more) in
        [("/style.css", "Sec-Fetch-Dest: style\r\n"), ("/b", "Authorization: a\r\n")]
    {
        let answer = site.visit(path, &format!("{GZIP}{more}"));
        assert_eq!(header(&site.asked(path)[0], "accept-encoding"), Some("gzip, br"), "{path}");
        assert_eq!((answer.status(), answer.header("content-encoding")), (200, None), "{path}");
    }
}

/// The field `policy` of proc_pid_stat(5); 5 is `SCHED_IDLE`.
#[test]
fn compressing_thread_runs_at_idle_priority() {
    let site = long_site();
    site.proxy.exchange(prefetch("/b", "1", GZIP));
    let policies: Vec<String> = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok())
        .filter_map(|stat| {
            let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
            (name == "lull-compress").then(|| rest.split_whitespace().nth(38).map(str::to_owned))?
        })
        .collect();
    assert_eq!(policies, ["5"]);
}
