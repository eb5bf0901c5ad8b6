//! A shared cache in front that the owner has named: a content delivery network (CDN) that keeps pages.
//!
//! Such a cache gives one page to all visitors of a cache key. So the page must not depend on the visitor, and a
//! prefetch must not be answered by the cache: `docs/adr/0020-prefetching-behind-a-cdn.md` says why this is enough.

use http::header::{CACHE_CONTROL, HeaderName, HeaderValue, VARY};
use http::{HeaderMap, request};

use super::cached_pages::CachedPages;
use super::requester::Requester;
use super::settings::Settings;
use super::site_rules::SiteRules;
use crate::policy::{DeliveryMethod, PREFETCH_HEADER};
use crate::policy::{Excluded, fields, visitor};
use crate::proxy::SEC_PURPOSE;

/// Lifetimes for CDNs alone (RFC 9213, and the older field of the Edge Architecture).
static FOR_CACHES: [HeaderName; 2] =
    [HeaderName::from_static("cdn-cache-control"), HeaderName::from_static("surrogate-control")];

/// The reason for which a page gets no script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NoScriptReason {
    /// In any case.
    pub(super) always: Option<&'static str>,
    /// Unless the site says that all visitors may have the same page.
    pub(super) unless_shared: Option<&'static str>,
}

impl NoScriptReason {
    /// The reason that remains, by the head of the reply.
    pub(super) fn of_reply(self, headers: &HeaderMap) -> Option<&'static str> {
        self.always.or_else(|| self.unless_shared.filter(|_| !is_shared(headers)))
    }
}

/// Whether this visitor's exclusion concerns only the visitor. Behind a CDN others may get the same page; the
/// visitor's own request for hints decides then.
pub(super) fn is_of_one_browser(why: &Excluded) -> bool {
    use Excluded::{Browser, Robot, SaveData, SlowNetwork, SmallDevice};
    matches!(why, Browser | Robot | SaveData | SlowNetwork | SmallDevice)
}

/// Whether a site says that a cache may give a reply to all visitors (RFC 9111 §5.2.2).
fn is_shared(headers: &HeaderMap) -> bool {
    let says = |directives: &[&str]| {
        let members = fields::list(headers, CACHE_CONTROL).unwrap_or_default();
        members.iter().any(|member| {
            let name = member.split('=').next().unwrap_or_default().trim();
            directives.iter().any(|one| name.eq_ignore_ascii_case(one))
        })
    };
    let is_named = FOR_CACHES.iter().any(|name| headers.contains_key(name));
    !fields::may_direct(headers, &["private", "no-store"])
        && (is_named || says(&["public", "s-maxage"]))
}

/// Makes caches keep a reply from prefetches: theirs have `X-Lull`. Caches that key by `Vary` pass these on.
pub(super) fn vary_on_prefetch_header(headers: &mut HeaderMap) {
    let is_said = |name: &&str| *name == "*" || name.eq_ignore_ascii_case(PREFETCH_HEADER.as_str());
    if !fields::list(headers, VARY).is_some_and(|names| names.iter().any(is_said)) {
        headers.append(VARY, HeaderValue::from_static("X-Lull"));
    }
}

/// Whether a report counts: behind a CDN browsers without prefetching have the script, too.
pub(super) fn counts(rules: &SiteRules, head: &request::Parts) -> bool {
    !rules.settings.behind_cdn
        || visitor(&head.headers, rules.harmless(), DeliveryMethod::Cache).is_ok()
}

/// Notes a navigation that the CDN has passed on, so that its question is no second visit.
pub(super) fn note_navigation(
    rules: &SiteRules,
    pages: &CachedPages,
    head: &request::Parts,
    requester: Requester,
) {
    let Settings { behind_cdn, .. } = rules.settings;
    let is_prefetch = head.headers.contains_key(SEC_PURPOSE);
    if behind_cdn && !is_prefetch && crate::script_insertion::is_document(&head.headers) {
        let page = rules.name_of(super::heads::whole(&head.uri));
        let now = rules.now();
        pages.navigated(requester.client, &head.headers, page, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        fields.collect()
    }

    #[test]
    fn reply_is_shared_only_if_the_site_says_so() {
        for (fields, expected) in [
            (&[][..], false),
            (&[("cache-control", "max-age=60")], false),
            (&[("cache-control", "public")], true),
            (&[("cache-control", "Public, max-age=60")], true),
            (&[("cache-control", "max-age=0, s-maxage=60")], true),
            (&[("cache-control", "public, private")], false),
            (&[("cache-control", "s-maxage=60, no-store")], false),
            (&[("cdn-cache-control", "max-age=60")], true),
            (&[("surrogate-control", "max-age=60"), ("cache-control", "max-age=0")], true),
            (&[("surrogate-control", "max-age=60"), ("cache-control", "private")], false),
        ] {
            assert_eq!(is_shared(&with(fields)), expected, "{fields:?}");
        }
    }

    #[test]
    fn cookie_keeps_the_script_from_pages_that_are_not_shared() {
        let no_script = NoScriptReason { always: None, unless_shared: Some("cookie") };
        assert_eq!(no_script.of_reply(&with(&[("cache-control", "public")])), None);
        assert_eq!(no_script.of_reply(&with(&[])), Some("cookie"));
        let signed_in = NoScriptReason { always: Some("credentials"), unless_shared: None };
        assert_eq!(signed_in.of_reply(&with(&[("cache-control", "public")])), Some("credentials"));
    }

    #[test]
    fn reply_varies_on_the_header_once() {
        for (before, expected) in [
            (&[][..], &["X-Lull"][..]),
            (&[("vary", "Accept-Encoding")], &["Accept-Encoding", "X-Lull"]),
            (&[("vary", "x-lull, Cookie")], &["x-lull, Cookie"]),
            (&[("vary", "*")], &["*"]),
        ] {
            let mut headers = with(before);
            vary_on_prefetch_header(&mut headers);
            let found: Vec<_> = headers.get_all(VARY).iter().collect();
            assert_eq!(found, expected, "{before:?}");
        }
    }
}
