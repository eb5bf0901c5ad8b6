//! The script's messages to `lull web`, and the answers: `docs/reference/web-protocol.md`.
//!
//! This crate does not depend on that one; it sends the messages of a browser.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use serde::{Deserialize, Serialize};

use super::super::client::{Advice, Ahead, PageReport, Question};
use super::super::trace::{DocumentId, Documents};

/// The URL for hints.
pub(super) const PATH: &str = "/.lull/hints";
/// The URL for reports.
pub(super) const BEACON_PATH: &str = "/.lull/beacon";

/// The script waits at least this many seconds after an empty list. The proxy decides on longer waits.
const MIN_WAIT_SECONDS: f64 = 1.0;

#[derive(Serialize)]
struct Message<'a> {
    v: u8,
    page: &'a str,
    first: bool,
    cached: bool,
    had: Vec<&'a str>,
    used: Vec<&'a str>,
}

#[derive(Serialize)]
struct Beacon<'a> {
    v: u8,
    page: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    nav: Option<Navigation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    awaits: Option<&'a str>,
}

#[derive(Serialize)]
struct Navigation {
    r#type: &'static str,
    cached: bool,
    ttfb: f64,
    load: f64,
}

#[derive(Deserialize)]
struct Reply {
    mark: String,
    hints: Vec<Hint>,
    wait: Option<f64>,
}

#[derive(Deserialize)]
struct Hint {
    url: String,
    /// Not to be fetched before hover: clients here have no pointer.
    #[serde(default)]
    pointed: bool,
}

/// The message of a question.
pub(super) fn message(question: &Question, documents: &Documents) -> Bytes {
    let target = |id: &DocumentId| documents.get(*id).target.as_str();
    let page = question.pages.last().map_or("/", target);
    let message = Message {
        v: 1,
        page,
        first: question.first,
        cached: question.cached,
        had: question.had.iter().map(target).collect(),
        used: question.used.iter().map(target).collect(),
    };
    serde_json::to_vec(&message).map(Bytes::from).unwrap_or_default()
}

/// The report of a page. Nothing is painted here; a page that has not loaded has 0.
pub(super) fn beacon(told: PageReport, documents: &Documents) -> Bytes {
    let target = |id: DocumentId| documents.get(id).target.as_str();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let beacon = match told {
        PageReport::Left { page, cached, answered, loaded } => {
            let (ttfb, load) = (millis(answered), loaded.map_or(0.0, millis));
            let nav = Navigation { r#type: "navigate", cached, ttfb, load };
            Beacon { v: 1, page: target(page), nav: Some(nav), awaits: None }
        }
        PageReport::Awaits { page, to } => {
            Beacon { v: 1, page: target(page), nav: None, awaits: Some(target(to)) }
        }
    };
    serde_json::to_vec(&beacon).map(Bytes::from).unwrap_or_default()
}

/// The hints in a reply, and the mark for the fetches.
pub(super) fn advice(
    reply: &[u8],
    documents: &mut Documents,
    now: Duration,
) -> Option<(Advice, HeaderValue)> {
    let reply: Reply = serde_json::from_slice(reply).ok()?;
    let mark = HeaderValue::from_str(&reply.mark).ok()?;
    let least = if reply.hints.iter().all(|hint| hint.pointed) { MIN_WAIT_SECONDS } else { 0.0 };
    let again = reply.wait.and_then(|wait| {
        let wait = Duration::try_from_secs_f64(wait.max(least)).ok()?;
        now.checked_add(wait)
    });
    let hints = reply.hints.iter().filter(|hint| {
        !hint.pointed
            && hint.url.starts_with('/')
            && hint.url.parse::<http::uri::PathAndQuery>().is_ok()
    });
    let list = hints.map(|hint| Ahead::Document(documents.number(&hint.url))).collect();
    Some((Advice { list, again }, mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_request_equals_that_of_the_script() {
        let mut documents = Documents::default();
        let (page, had) = (documents.number("/a?b"), documents.number("/c"));
        let pages = vec![had, page];
        let used = vec![documents.number("/d.png")];
        let question =
            Question { number: 7, pages, first: true, cached: false, had: vec![had], used };
        let expected =
            r#"{"v":1,"page":"/a?b","first":true,"cached":false,"had":["/c"],"used":["/d.png"]}"#;
        assert_eq!(message(&question, &documents), expected.as_bytes());
    }

    #[test]
    fn page_report_equals_that_of_the_script() {
        let mut documents = Documents::default();
        let (page, to) = (documents.number("/a?b"), documents.number("/c"));
        let ms = Duration::from_millis;
        for (told, expected) in [
            (
                PageReport::Left { page, cached: false, answered: ms(30), loaded: Some(ms(45)) },
                r#"{"v":1,"page":"/a?b","nav":{"type":"navigate","cached":false,"ttfb":30.0,"load":45.0}}"#,
            ),
            (
                PageReport::Left { page, cached: true, answered: ms(0), loaded: None },
                r#"{"v":1,"page":"/a?b","nav":{"type":"navigate","cached":true,"ttfb":0.0,"load":0.0}}"#,
            ),
            (PageReport::Awaits { page, to }, r#"{"v":1,"page":"/a?b","awaits":"/c"}"#),
        ] {
            assert_eq!(beacon(told, &documents), expected.as_bytes());
        }
    }

    #[test]
    fn valid_reply_is_followed_and_invalid_is_ignored() {
        let mut documents = Documents::default();
        let now = Duration::from_secs(100);
        let reply = br#"{"v":1,"mark":"1","hints":[{"url":"/a","as":"document"},
            {"url":"http://elsewhere/"},{"url":"/b c"},{"url":"/c","pointed":true}],"wait":0}"#;
        let (read, mark) = advice(reply, &mut documents, now).unwrap();
        let list = vec![Ahead::Document(documents.number("/a"))];
        assert_eq!((read, mark.to_str().unwrap()), (Advice { list, again: Some(now) }, "1"));
        for (hints, wait, again) in [
            ("", "0", Some(101.0)),
            ("", "4", Some(104.0)),
            // As after a refusal of a prefetch by the server.
            ("", "60", Some(160.0)),
            ("", "1e300", None),
            ("", "null", None),
            (r#"{"url":"/a","pointed":true}"#, "0", Some(101.0)),
            (r#"{"url":"/a"}"#, "0", Some(100.0)),
            (r#"{"url":"/a"}"#, "0.5", Some(100.5)),
        ] {
            let reply = format!(r#"{{"mark":"1","hints":[{hints}],"wait":{wait}}}"#);
            let (read, _) = advice(reply.as_bytes(), &mut documents, now).unwrap();
            assert_eq!(read.again, again.map(Duration::from_secs_f64), "{hints} {wait}");
        }
        for reply in ["", "{}", r#"{"mark":"\n","hints":[],"wait":0}"#] {
            assert_eq!(advice(reply.as_bytes(), &mut documents, now), None, "{reply}");
        }
    }
}
