//! Pages that came out of visitors' caches. The proxy has not seen their requests; their scripts report them
//! twice: in the request for hints, and when the page is left. The first message is learned. A fast click
//! leaves the page before the script asks, and many reports come while a page is still open, because its tab
//! is hidden.
//!
//! A report is late: the visit precedes that of a page requested from the proxy afterwards. Learning it then
//! would reverse their order. Browsers name the page of a link (`Referer`), so a page that was left that way
//! is not learned from its report.

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use http::header::{HOST, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderValue, request};
use lull_cc::Timestamp;

use super::lock::lock;
use crate::policy::{Client, OwnersRules, fields};
use crate::protocol::{Navigation, NavigationKind};
use crate::script_insertion;

/// Number of pages of clients that are remembered. If two share a slot the later one counts, so memory is
/// bounded.
const SLOTS: usize = 1 << 14;
/// A tab may be hidden before its script has asked, so that the report comes first. A question that comes
/// this long after it belongs to another navigation.
const SAME: Duration = Duration::from_secs(300);

/// The messages about one page by one client.
#[derive(Clone, Copy, Debug, Default)]
struct PageMessages {
    key: u64,
    /// Learned requests whose reports are still to come.
    asked: u8,
    /// When a report was learned, until the question arrives.
    reported: Option<Timestamp>,
    /// Whether another page was requested from there, without a report since.
    is_left: bool,
    /// When the proxy saw a navigation to it, until its question arrives. Only behind a CDN.
    navigated: Option<Timestamp>,
}

/// The messages about such pages.
#[derive(Debug)]
pub(super) struct CachedPages {
    key: RandomState,
    slots: Mutex<Box<[PageMessages]>>,
}

impl Default for CachedPages {
    fn default() -> Self {
        let slots = vec![PageMessages::default(); SLOTS].into();
        CachedPages { key: RandomState::new(), slots: Mutex::new(slots) }
    }
}

/// A sender: an address, and a browser there.
type Sender<'a> = (Client, Option<&'a [u8]>);

fn sender(client: Client, headers: &HeaderMap) -> Sender<'_> {
    (client, headers.get(USER_AGENT).map(HeaderValue::as_bytes))
}

impl CachedPages {
    /// The script of `page`, which came out of the cache, asks for hints for the first time. Returns whether
    /// that is to be learned.
    pub(super) fn asked(
        &self,
        client: Client,
        headers: &HeaderMap,
        page: &str,
        now: Timestamp,
    ) -> bool {
        self.with(sender(client, headers), page, |said| {
            said.is_left = false;
            let reported = said.reported.take();
            if reported.is_some_and(|reported| now.saturating_since(reported) < SAME) {
                return false;
            }
            said.asked = said.asked.saturating_add(1);
            true
        })
    }

    /// The proxy has seen a navigation to `page`.
    pub(super) fn navigated(
        &self,
        client: Client,
        headers: &HeaderMap,
        page: &str,
        now: Timestamp,
    ) {
        self.with(sender(client, headers), page, |said| said.navigated = Some(now));
    }

    /// The script of `page`, which did not come out of the browser's cache, asks for the first time. Returns whether
    /// the proxy has not seen the navigation.
    pub(super) fn is_unseen(
        &self,
        client: Client,
        headers: &HeaderMap,
        page: &str,
        now: Timestamp,
    ) -> bool {
        let navigated = self.with(sender(client, headers), page, |said| said.navigated.take());
        navigated.is_none_or(|at| now.saturating_since(at) >= SAME)
    }

    /// It reports how the page came. Returns whether that is to be learned.
    pub(super) fn reported(
        &self,
        client: Client,
        headers: &HeaderMap,
        page: &str,
        nav: &Navigation,
        now: Timestamp,
    ) -> bool {
        let sender = sender(client, headers);
        let never_says_from_where = self.with(sender, "", |said| said.is_left);
        self.with(sender, page, |said| {
            let was_left = std::mem::take(&mut said.is_left);
            if !nav.cached {
                return false;
            }
            if said.asked > 0 {
                said.asked -= 1;
                return false;
            }
            // Others belong to earlier pages.
            let counts =
                nav.kind == NavigationKind::Navigate && !was_left && !never_says_from_where;
            if counts {
                said.reported = Some(now);
            }
            counts
        })
    }

    /// It reports the delivery of the page with these names, of which the first is that of its arrival: its
    /// script may have asked by either.
    pub(super) fn renamed(&self, client: Client, headers: &HeaderMap, names: [&str; 2]) {
        let has_asked = |said: &mut PageMessages| {
            let asked = said.asked;
            said.asked = asked.saturating_sub(1);
            asked > 0
        };
        let sender = sender(client, headers);
        let _ = names.iter().any(|name| self.with(sender, name, has_asked));
    }

    /// A visitor goes to a page, with a request to the proxy. Notes the page before.
    pub(super) fn goes_on(&self, client: Client, head: &request::Parts, rules: &OwnersRules) {
        if !script_insertion::is_document(&head.headers) {
            return;
        }
        let page = match from(head) {
            Some(page) => rules.name_of(page),
            // From a page of a site that disables `Referer`.
            None if fields::single(&head.headers, "sec-fetch-site") == Some("same-origin") => "",
            None => return,
        };
        self.with(sender(client, &head.headers), page, |said| said.is_left = true);
    }

    fn with<T>(
        &self,
        sender: Sender<'_>,
        page: &str,
        say: impl FnOnce(&mut PageMessages) -> T,
    ) -> T {
        let key = self.key.hash_one((sender, page));
        let mut slots = lock(&self.slots);
        let said = &mut slots[key as usize % SLOTS];
        if said.key != key {
            *said = PageMessages { key, ..PageMessages::default() };
        }
        say(said)
    }
}

/// The path and query of the page that a link was on, if that is one of the same host.
pub(super) fn from(head: &request::Parts) -> Option<&str> {
    own_path(head, fields::single(&head.headers, REFERER)?)
}

/// The path and query of a complete URL, if it has the host of a request.
pub(super) fn own_path<'a>(head: &request::Parts, url: &'a str) -> Option<&'a str> {
    let host = match head.uri.authority() {
        Some(authority) => authority.as_str(),
        None => fields::single(&head.headers, HOST)?,
    };
    let (_, rest) = url.split_once("://")?;
    let path = &rest[rest.find('/')?..];
    let is_own = rest[..rest.len() - path.len()].eq_ignore_ascii_case(host);
    is_own.then(|| path.split('#').next().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One page of one visitor.
    struct Page {
        shown: CachedPages,
        now: Timestamp,
    }

    impl Page {
        fn new() -> Self {
            Page { shown: CachedPages::default(), now: Timestamp::ZERO }
        }

        fn asks(&self) -> bool {
            self.shown.asked(Client(1), &HeaderMap::new(), "/a", self.now)
        }

        fn reports_as(&self, cached: bool, kind: NavigationKind) -> bool {
            let nav = Navigation { kind, name: None, cached, ttfb: 1.0, lcp: None, load: 2.0 };
            self.shown.reported(Client(1), &HeaderMap::new(), "/a", &nav, self.now)
        }

        fn reports(&self) -> bool {
            self.reports_as(true, NavigationKind::Navigate)
        }

        fn is_left(&self, fields: &[(&'static str, &'static str)]) {
            let mut request = http::Request::get("/b").header("host", "a.example");
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            let head = request.body(()).unwrap().into_parts().0;
            self.shown.goes_on(Client(1), &head, &OwnersRules::default());
        }
    }

    const PAGE: (&str, &str) = ("accept", "text/html");
    const LINK: (&str, &str) = ("referer", "http://a.example/a?x");

    #[test]
    fn renamed_page_leaves_no_pending_request() {
        for asked_as in ["/a", "/b"] {
            let (shown, headers) = (CachedPages::default(), HeaderMap::new());
            let now = Timestamp::ZERO;
            assert!(shown.asked(Client(1), &headers, asked_as, now));
            shown.renamed(Client(1), &headers, ["/a", "/b"]);
            let (kind, cached) = (NavigationKind::Navigate, true);
            let nav = Navigation { kind, name: None, cached, ttfb: 1.0, lcp: None, load: 2.0 };
            // The next visit is a separate one.
            assert!(shown.reported(Client(1), &headers, asked_as, &nav, now));
        }
    }

    #[test]
    fn navigation_counts_once_in_either_message_order() {
        let mut page = Page::new();
        for _ in 0..5 {
            // The script has asked, or had no time to do so.
            assert!(page.asks() && !page.reports());
            assert!(page.reports());
            page.now += SAME;
            // In two tabs at a time.
            assert!(page.asks() && page.asks() && !page.reports() && !page.reports());
            // A tab that was hidden before its script asked.
            assert!(page.reports() && !page.asks());
        }
    }

    #[test]
    fn report_alone_counts_only_navigations_from_the_cache() {
        let page = Page::new();
        assert!(!page.reports_as(false, NavigationKind::Navigate));
        for kind in [NavigationKind::Reload, NavigationKind::BackForward] {
            assert!(!page.reports_as(true, kind));
            // But it is the report of a page that has asked.
            assert!(page.asks() && !page.reports_as(true, kind));
        }
        assert!(page.reports());
    }

    #[test]
    fn page_left_for_an_uncached_one_does_not_count_by_its_report() {
        let page = Page::new();
        page.is_left(&[PAGE, LINK]);
        assert!(!page.reports() && page.reports());
        // The other page was shown in parallel.
        page.is_left(&[PAGE, LINK]);
        assert!(!page.asks(), "it has just counted");
        assert!(page.reports());
        // A page from the server is left as well, which is all that is known of it.
        page.is_left(&[PAGE, LINK]);
        assert!(!page.reports_as(false, NavigationKind::Navigate) && page.reports());
    }

    #[test]
    fn page_is_left_only_by_its_own_links_to_pages() {
        for fields in [
            &[PAGE][..],
            &[LINK],
            &[LINK, ("accept", "image/webp")],
            &[PAGE, ("referer", "http://a.example/c")],
            &[PAGE, ("referer", "http://b.example/a")],
            &[PAGE, ("referer", "a")],
        ] {
            let page = Page::new();
            page.is_left(fields);
            assert!(page.reports(), "{fields:?}");
        }
        // Without a referrer, no report counts.
        let page = Page::new();
        page.is_left(&[("sec-fetch-site", "same-origin"), ("sec-fetch-dest", "document")]);
        assert!(!page.reports() && !page.reports() && page.asks());
    }

    #[test]
    fn navigation_that_the_proxy_has_seen_counts_once() {
        let (shown, headers, now) = (CachedPages::default(), HeaderMap::new(), Timestamp::ZERO);
        let is_unseen = |page, now| shown.is_unseen(Client(1), &headers, page, now);
        assert!(is_unseen("/a", now));
        shown.navigated(Client(1), &headers, "/a", now);
        assert!(is_unseen("/b", now));
        assert!(!is_unseen("/a", now));
        assert!(is_unseen("/a", now), "the next one came from the cache in front");
        shown.navigated(Client(1), &headers, "/a", now);
        assert!(is_unseen("/a", now + SAME));
    }

    #[test]
    fn visitors_and_pages_are_distinguished() {
        let (shown, now) = (CachedPages::default(), Timestamp::ZERO);
        let (some, mut other) = (HeaderMap::new(), HeaderMap::new());
        other.insert(USER_AGENT, HeaderValue::from_static("b"));
        assert!(shown.asked(Client(1), &some, "/a", now));
        let (kind, cached) = (NavigationKind::Navigate, true);
        let nav = Navigation { kind, name: None, cached, ttfb: 1.0, lcp: None, load: 2.0 };
        assert!(shown.reported(Client(2), &some, "/a", &nav, now));
        assert!(shown.reported(Client(1), &other, "/a", &nav, now));
        assert!(shown.reported(Client(1), &some, "/b", &nav, now));
        assert!(!shown.reported(Client(1), &some, "/a", &nav, now));
    }
}
