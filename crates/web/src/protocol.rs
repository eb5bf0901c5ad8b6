//! The messages between the script in the browser and the proxy, in JSON: `docs/reference/web-protocol.md`.
//!
//! A browser may send anything. So messages are parsed within limits, and those beyond are rejected as a
//! whole; other modules judge their meaning.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The version of both sides. A page may be older than the proxy: then its script sends an older version, and
/// gets nothing.
pub const VERSION: u8 = 1;
/// The URL for hints, by `POST`.
pub const HINTS_PATH: &str = "/.lull/hints";
/// The URL for reports, by `POST`.
pub const BEACON_PATH: &str = "/.lull/beacon";
/// The prefix of a hint's URL that redirects requests of speculation rules to it.
pub const LEAD_PATH: &str = "/.lull/to";
/// The URL of the service worker's script.
pub const WORKER_PATH: &str = "/.lull/worker.js";
/// Longer messages are not read.
pub const MAX_MESSAGE_BYTES: usize = 80 * 1024;

/// Paths and URLs in messages are not longer; `lull-speculate` keeps no longer ones.
const MAX_PATH_BYTES: usize = 1024;
/// Entries of a list in a message, and so the files hinted on one page.
pub const MAX_ENTRIES: usize = 64;
/// The maximum time of a page, in milliseconds.
const MAX_TIME_MILLIS: f64 = 3_600_000.0;
/// SSR §5.2.2: a list is worth one document. A browser sends six requests at a time.
pub const MAX_HINTS: usize = 32;

/// Copies that the service worker keeps (`MOST` in `script/worker.js`), so at most this many are hinted on
/// one page.
pub const MAX_COPIES: usize = 16;

/// Why a message is rejected.
#[derive(Debug, thiserror::Error)]
pub enum Rejected {
    /// Too long.
    #[error("the message has {0} bytes, at most {MAX_MESSAGE_BYTES} are allowed")]
    TooLong(usize),
    /// The JSON is invalid.
    #[error("the message does not conform to docs/reference/web-protocol.md: {0}")]
    Json(#[from] serde_json::Error),
    /// Of another version.
    #[error("the message is of version {0}, not {VERSION}")]
    Version(u8),
    /// Beyond a limit.
    #[error("`{0}` is out of bounds")]
    OutOfBounds(&'static str),
}

/// The script's request when a page has loaded, and again when a list is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintsRequest {
    /// [`VERSION`].
    pub v: u8,
    /// Path and query of the current page.
    pub page: String,
    /// Whether this is the first request on this page.
    pub first: bool,
    /// Whether the page came out of the cache, so that the proxy has not seen the visit.
    pub cached: bool,
    /// Whether the visitor has a pointer, which hovers over a link before pressing it.
    #[serde(default)]
    pub hover: bool,
    /// Whether this browser may not keep copies: the site's own service worker controls the page, or cookies
    /// are blocked.
    #[serde(default)]
    pub barred: bool,
    /// Whether the visitor was in the control group when the page was sent: 0 or 1, if its tag said that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<u8>,
    /// The URLs that were prefetched from this page before.
    #[serde(default)]
    pub had: Vec<String>,
    /// Parts of the page that came out of the cache, the first time.
    #[serde(default)]
    pub used: Vec<String>,
}

/// The URLs to prefetch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HintsReply {
    /// [`VERSION`].
    pub v: u8,
    /// Whether copies must be confirmed: [`crate::policy::value_for_list`].
    pub mark: String,
    /// In the order of their worth.
    pub hints: Vec<Hint>,
    /// Seconds until the script may ask again. `None`: not on this page.
    pub wait: Option<f64>,
    /// Whether the browser must fetch the pages by speculation rules, through [`LEAD_PATH`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rules: bool,
}

/// One URL to prefetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// Path and query.
    pub url: String,
    /// Its kind.
    #[serde(rename = "as")]
    pub kind: Kind,
    /// Its length without content coding, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Whether it must not be fetched before the visitor hovers over a link to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pointed: bool,
    /// A URL that leads there, by a refresh or a redirect: a link to it counts as one to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The kind of a URL's target, which determines the browser's request fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A page.
    Document,
    /// A part of a page.
    Part,
}

/// The browser's report of a page, when it is left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beacon {
    /// [`VERSION`].
    pub v: u8,
    /// Path and query of the page.
    pub page: String,
    /// The same as in a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<u8>,
    /// Its delivery, once per page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nav: Option<Navigation>,
    /// The page that the visitor goes to now, while it is still being prefetched: its hint's URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<String>,
}

/// How a page was delivered, by the browser's own measurement. Times in milliseconds from its request, or
/// from when it was shown if that was later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Navigation {
    /// The cause of the navigation.
    #[serde(rename = "type")]
    pub kind: NavigationKind,
    /// The URL of its request, which is no longer the page's own if a script has renamed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it came out of the cache.
    pub cached: bool,
    /// Until the first byte.
    pub ttfb: f64,
    /// Until its largest element was painted; `None` if it never was, in the background, or beyond all
    /// limits.
    #[serde(default)]
    pub lcp: Option<f64>,
    /// Until it was loaded; 0 if it never was.
    pub load: f64,
}

/// `PerformanceNavigationTiming.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NavigationKind {
    /// A link, a form, the address bar.
    Navigate,
    /// The same page again.
    Reload,
    /// Through the history.
    BackForward,
    /// Rendered before it was shown.
    Prerender,
}

fn read<'a, T: Deserialize<'a>>(message: &'a [u8]) -> Result<T, Rejected> {
    if message.len() > MAX_MESSAGE_BYTES {
        return Err(Rejected::TooLong(message.len()));
    }
    Ok(serde_json::from_slice(message)?)
}

fn check(fits: bool, what: &'static str) -> Result<(), Rejected> {
    if fits { Ok(()) } else { Err(Rejected::OutOfBounds(what)) }
}

fn check_version(v: u8) -> Result<(), Rejected> {
    if v == VERSION { Ok(()) } else { Err(Rejected::Version(v)) }
}

/// A path in a browser's form: in ASCII, with `%`.
fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= MAX_PATH_BYTES
        && path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Path and query of a whole URL.
fn path_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    Some(&rest[rest.find('/')?..])
}

fn is_time(millis: f64) -> bool {
    (0.0..=MAX_TIME_MILLIS).contains(&millis)
}

impl HintsRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// If the message is malformed, or exceeds a limit.
    pub fn decode(message: &[u8]) -> Result<Self, Rejected> {
        let mut request: Self = read(message)?;
        check_version(request.v)?;
        check(is_path(&request.page), "page")?;
        check(request.had.len() <= MAX_ENTRIES, "had")?;
        check(request.had.iter().all(|url| is_path(url)), "had")?;
        check(request.used.len() <= MAX_ENTRIES, "used")?;
        // URLs of other sites are complete.
        request.used.retain(|url| is_path(url));
        Ok(request)
    }
}

impl HintsReply {
    /// A list. Hints beyond the 32nd are dropped.
    pub fn new(mark: String, mut hints: Vec<Hint>, wait: Option<Duration>) -> Self {
        hints.truncate(MAX_HINTS);
        let wait = wait.map(|wait| wait.as_secs_f64());
        HintsReply { v: VERSION, mark, hints, wait, rules: false }
    }

    /// The same list, for speculation rules if `rules`.
    #[must_use]
    pub fn by_rules(self, rules: bool) -> Self {
        HintsReply { rules, ..self }
    }

    /// An empty list without a repetition on this page: for visitors without hints, and for the control
    /// group, whose script continues to report.
    pub fn never() -> Self {
        HintsReply::new(String::new(), Vec::new(), None)
    }

    /// The body of a reply.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("the type has nothing that JSON lacks")
    }
}

impl Beacon {
    /// Reads a report.
    ///
    /// # Errors
    /// If the message is malformed, or exceeds a limit.
    pub fn decode(message: &[u8]) -> Result<Self, Rejected> {
        let mut beacon: Self = read(message)?;
        check_version(beacon.v)?;
        check(is_path(&beacon.page), "page")?;
        if let Some(nav) = &mut beacon.nav {
            check(is_time(nav.ttfb), "ttfb")?;
            check(is_time(nav.load), "load")?;
            // In a tab that was in the background for long, no user waited.
            nav.lcp = nav.lcp.filter(|lcp| is_time(*lcp));
            nav.name.take_if(|name| !path_of(name).is_some_and(is_path));
        }
        check(beacon.awaits.as_deref().is_none_or(is_path), "awaits")?;
        Ok(beacon)
    }

    /// Path and query of the page's request.
    pub fn came_as(&self) -> &str {
        let name = self.nav.as_ref().and_then(|nav| nav.name.as_deref());
        name.and_then(path_of).unwrap_or(&self.page)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hint_request_is_parsed() {
        let found = HintsRequest::decode(
            br#"{"v":1,"page":"/a","first":true,"cached":false,"hover":true,"had":["/b?c"],"later":1,
                 "used":["/a.png","https://other.example/b.png",""]}"#,
        )
        .unwrap();
        let expected = HintsRequest {
            v: 1,
            page: "/a".into(),
            first: true,
            cached: false,
            hover: true,
            barred: false,
            held: None,
            had: vec!["/b?c".into()],
            used: vec!["/a.png".into()],
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn values_beyond_a_limit_are_rejected() {
        let with = |page: &str, had: usize| {
            let had = vec!["\"/x\""; had].join(",");
            format!(r#"{{"v":1,"page":"{page}","first":true,"cached":false,"had":[{had}]}}"#)
        };
        for (message, why) in [
            (with("/a", 64), None),
            (with("/a", 65), Some("`had` is out of bounds")),
            (with("a", 0), Some("`page` is out of bounds")),
            (with("", 0), Some("`page` is out of bounds")),
            (with("/\u{e4}", 0), Some("`page` is out of bounds")),
            (with(&format!("/{}", "a".repeat(1024)), 0), Some("`page` is out of bounds")),
            (
                with("/a", 0).replace("\"v\":1", "\"v\":2"),
                Some("the message is of version 2, not 1"),
            ),
            (" ".repeat(81 * 1024), Some("the message has 82944 bytes, at most 81920 are allowed")),
        ] {
            let found = HintsRequest::decode(message.as_bytes()).err().map(|why| why.to_string());
            assert_eq!(found.as_deref(), why);
        }
        assert!(HintsRequest::decode(b"{\"v\":1}").is_err());
        assert!(HintsRequest::decode(b"").is_err());
        // JSON with endless nesting.
        assert!(HintsRequest::decode("[".repeat(10_000).as_bytes()).is_err());
    }

    #[test]
    fn report_is_parsed_within_limits() {
        let nav = |ttfb: &str| {
            let nav = format!(r#"{{"type":"back_forward","cached":true,"ttfb":{ttfb},"load":0}}"#);
            format!(r#""nav":{nav}"#)
        };
        for (what, ok) in [
            (r#""awaits":"/b""#.to_owned(), true),
            (nav("12.5"), true),
            (nav("0"), true),
            (nav("-1"), false),
            (nav("1e9"), false),
            (nav("1e999"), false),
            (nav("null"), false),
            (nav("1").replace("back_forward", "sideways"), false),
            (r#""awaits":"b""#.to_owned(), false),
            // Earlier scripts have sent their prefetched replies.
            (r#""got":[{"url":"/b","status":200,"bytes":1}]"#.to_owned(), true),
        ] {
            let message = format!(r#"{{"v":1,"page":"/a",{what}}}"#);
            assert_eq!(Beacon::decode(message.as_bytes()).is_ok(), ok, "{what}");
        }
    }

    #[test]
    fn name_and_paint_of_a_report_are_dropped_beyond_limits() {
        let long = format!("https://a.example/{}", "b".repeat(MAX_PATH_BYTES));
        for (name, lcp, came_as, has_lcp) in [
            ("https://a.example/b?c", "5", "/b?c", true),
            ("https://a.example/b", "1e9", "/b", false),
            ("https://a.example/b", "-1", "/b", false),
            ("https://a.example", "5", "/a", true),
            ("/b", "5", "/a", true),
            ("https://a.example/b\u{e4}", "5", "/a", true),
            (&long, "5", "/a", true),
        ] {
            let nav = format!(
                r#"{{"type":"navigate","name":"{name}","cached":true,"ttfb":1,"lcp":{lcp},"load":0}}"#
            );
            let message = format!(r#"{{"v":1,"page":"/a","nav":{nav}}}"#);
            let beacon = Beacon::decode(message.as_bytes()).unwrap();
            assert_eq!(beacon.came_as(), came_as, "{name}");
            assert_eq!(beacon.nav.unwrap().lcp.is_some(), has_lcp, "{lcp}");
        }
    }

    #[test]
    fn hint_list_is_bounded_and_compact() {
        let hint = Hint {
            url: "/b".into(),
            kind: Kind::Document,
            bytes: Some(9),
            pointed: false,
            by: None,
        };
        let list = HintsReply::new("1".into(), vec![hint; 100], Some(Duration::from_millis(1500)));
        assert_eq!(list.hints.len(), 32);
        let short = HintsReply { hints: list.hints[..1].to_vec(), ..list };
        let ruled = short.clone().by_rules(true).encode();
        assert!(ruled.ends_with(r#""wait":1.5,"rules":true}"#), "{ruled}");
        assert_eq!(
            short.encode(),
            r#"{"v":1,"mark":"1","hints":[{"url":"/b","as":"document","bytes":9}],"wait":1.5}"#
        );
        assert_eq!(HintsReply::never().encode(), r#"{"v":1,"mark":"","hints":[],"wait":null}"#);
    }

    proptest! {
        #[test]
        fn any_message_parses_or_is_rejected(message: Vec<u8>) {
            let _ = HintsRequest::decode(&message);
            let _ = Beacon::decode(&message);
        }

        #[test]
        fn messages_round_trip(
            page in "/[!-~]{0,30}", had in prop::collection::vec("/[!-~]{0,30}", 0..5),
            used in prop::collection::vec("/[!-~]{0,30}", 0..5),
            times in prop::array::uniform3(0.0..1e6_f64), cached: bool,
        ) {
            let page_of = page.clone();
            let request = HintsRequest { v: 1, page: page_of, first: true, cached, hover: !cached, barred: cached, held: cached.then_some(1), had, used };
            let text = serde_json::to_vec(&request).unwrap();
            prop_assert_eq!(HintsRequest::decode(&text).unwrap(), request);

            let nav = Navigation {
                kind: NavigationKind::Navigate,
                name: cached.then(|| format!("https://a.example{page}")),
                cached,
                ttfb: times[0].round(),
                lcp: Some(times[1].round()),
                load: times[2].round(),
            };
            let awaits = cached.then(|| page.clone());
            let beacon = Beacon { v: 1, page, held: None, nav: Some(nav), awaits };
            let text = serde_json::to_vec(&beacon).unwrap();
            prop_assert_eq!(Beacon::decode(&text).unwrap(), beacon);
        }
    }
}
