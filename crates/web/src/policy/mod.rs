//! Decides which clients get the script and hints, what may be prefetched, and how replies are treated.
//!
//! Everything here is a function of request and reply heads; time comes in as an argument, and all state is
//! bounded. Each answer is a value, and each rejection has a reason in words. `docs/prefetch-safety.md` has
//! every rule with its reason and its test.
//!
//! | a proxy calls | when |
//! |---|---|
//! | [`Policy::page_visitor`] | a page is requested: may its reply get the script? |
//! | [`Policy::visitor`], [`value_for_list`] | a client asks for hints |
//! | [`Policy::may_hint`] | before a URL is put into a list |
//! | [`take_tags`], [`Policy::renew`] | a browser asks whether it may use a copy: by a navigation, or where a request [`is_confirmation`] |
//! | [`is_server_check`] | a request carries [`PREFETCH_HEADER`] and probes for a cache in front: [`refused`] |
//! | [`Policy::admit`], [`upstream_request`] | a request carries [`PREFETCH_HEADER`] |
//! | [`Policy::lead`], [`Policy::admit_by_rules`], [`upstream_request`] | a request [`is_by_rules`] |
//! | [`Policy::admit_for_worker`], [`upstream_request`] | a service worker asks, on its own port |
//! | [`Policy::show`] | a navigation says which copies the service worker has: [`take_names`] |
//! | [`Policy::admit_reply`] | the reply to that has arrived |
//! | [`Policy::observe`] | any reply has arrived |
//! | [`Policy::bar`] | the rewriter found an opt-out in a page, or [`SideEffects`] an action |
//! | [`CookieEvidence`], [`SideEffects`] | the body of a page has passed |

mod action_words;
mod actions;
mod auth_cookie;
mod bars;
mod browsers;
mod cookie_evidence;
mod cookies;
mod copies;
mod excluded;
pub(crate) mod fields;
mod freshness;
mod learned_cookies;
mod patterns;
mod prefetch;
mod prefetch_header;
mod protected;
mod recent;
mod robots;
mod saved_bars;
mod shared_bars;
mod side_effects;
mod tags;
mod target;
mod visitor;

use std::time::{Duration, SystemTime};

use http::header::{CACHE_CONTROL, ETAG, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode, request, response};
use lull_cc::Timestamp;

pub(crate) use actions::is_static_file;
pub use auth_cookie::take_auth_cookie;
pub use bars::{BARRED_FOR, Bars, Offence};
pub(crate) use browsers::tags_rules;
pub use browsers::{DeliveryMethod, needs_a_worker};
pub use cookie_evidence::{CookieEvidence, CookieFigures, CookieSample, CookieVerdict};
pub use cookies::{Harmless, blocking_cookies, unlisted_cookies};
pub use copies::{COPY, STAYS, has_names, take_names};
pub use excluded::Excluded;
pub use freshness::{MAX_TTL, Stale, UNSTATED_TTL, ttl};
pub use learned_cookies::LearnedCookies;
pub use patterns::{NoPattern, Pattern};
pub(crate) use prefetch::asks_for_a_page;
pub use prefetch::{
    NotAPrefetch, NotCacheable, PREFETCH_HEADER, Safeguard, is_by_rules, is_confirmation,
    is_server_check, site_of_a_worker, upstream_request,
};
pub use prefetch_header::value_for_list;
pub use recent::Client;
pub use robots::{Forbidden, Robots};
pub use side_effects::SideEffects;
pub use tags::{CopyTag, take_tags};
pub use target::{Ambiguous, NotPrefetchable, OwnersRules, Target};
pub use visitor::{Visitor, page_visitor, visitor};

use crate::authentication;
use cookies::Sent;
use copies::Copies;
use protected::Protected;

/// Why a URL is not prefetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request is not a prefetch.
    #[error(transparent)]
    NotAPrefetch(#[from] NotAPrefetch),
    /// By the URL alone.
    #[error(transparent)]
    NotPrefetchable(#[from] NotPrefetchable),
    /// By robots.txt.
    #[error(transparent)]
    Robots(#[from] Forbidden),
    /// By its folder.
    #[error("its folder asked for a password within the last 24 hours")]
    Protected,
    /// By an offence within a day.
    #[error("{0} within the last 24 hours")]
    Barred(Offence),
    /// By its reply.
    #[error(transparent)]
    NotCacheable(#[from] NotCacheable),
}

/// An admitted prefetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The URL that it fetches.
    pub target: Target,
    /// The same as in the request: path and query.
    url: String,
    /// How the copy is kept from a user who signs in later.
    pub safeguard: Safeguard,
    client: Client,
    /// When.
    at: Timestamp,
    /// Its fields that not every visitor sends.
    unusual: Vec<HeaderName>,
}

/// How long a copy for learned harmless cookies is shown without a request. The learned decision may be
/// revoked at any moment.
const LEARNED_TTL: Duration = Duration::from_secs(60);

/// The settings of an owner.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Cookies that keep a user anonymous.
    pub harmless: Harmless,
    /// Rules for URLs.
    pub urls: OwnersRules,
}

/// The rules, and their state.
#[derive(Debug)]
pub struct Policy {
    settings: Settings,
    robots: Robots,
    bars: Bars,
    protected: Protected,
    copies: Copies,
}

impl Default for Policy {
    fn default() -> Self {
        Policy::new(Settings::default())
    }
}

impl Policy {
    /// Rules with these settings. Until robots.txt is known nothing is prefetched: [`Policy::set_robots`].
    pub fn new(settings: Settings) -> Self {
        Policy {
            settings,
            robots: Robots::default(),
            bars: Bars::default(),
            protected: Protected::default(),
            copies: Copies::default(),
        }
    }

    /// Sets the rules of the site's robots.txt.
    pub fn set_robots(&mut self, robots: Robots) {
        self.robots = robots;
    }

    /// The visitor that requests a page, if its reply may get the script.
    ///
    /// # Errors
    /// If it may not.
    pub fn page_visitor(&self, method: &Method, headers: &HeaderMap) -> Result<Visitor, Excluded> {
        page_visitor(method, headers, &self.settings.harmless, DeliveryMethod::Cache)
    }

    /// The visitor that asks for hints, if there may be some.
    ///
    /// # Errors
    /// If this visitor gets no hints.
    pub fn visitor(&self, headers: &HeaderMap) -> Result<Visitor, Excluded> {
        visitor(headers, &self.settings.harmless, DeliveryMethod::Cache)
    }

    /// Whether a URL, as a path with its query, may be hinted.
    ///
    /// # Errors
    /// If the URL must not be prefetched.
    pub fn may_hint(&self, url: &str, now: Timestamp) -> Result<Target, Refusal> {
        let target = Target::parse(url)?;
        self.may_fetch(&target, now)?;
        Ok(target)
    }

    fn may_fetch(&self, target: &Target, now: Timestamp) -> Result<(), Refusal> {
        self.settings.urls.check(target)?;
        self.robots.check(&target.whole())?;
        if self.protected.has(target.path(), now) {
            return Err(Refusal::Protected);
        }
        match self.bars.check(target, now) {
            Some(offence) => Err(Refusal::Barred(offence)),
            None => Ok(()),
        }
    }

    /// Whether a request with [`PREFETCH_HEADER`] is admitted as a prefetch. If so, its headers go upstream by
    /// [`upstream_request`]; if not, it gets [`refused`] and never goes upstream.
    ///
    /// # Errors
    /// If the request must not be a prefetch.
    pub fn admit(
        &self,
        head: &request::Parts,
        client: Client,
        now: Timestamp,
    ) -> Result<Admitted, Refusal> {
        prefetch::ahead(head)?;
        self.admitted(head, Safeguard::Vary, client, now)
    }

    /// The same for a request that [`is_by_rules`]. It carries the cookies of the later navigation.
    ///
    /// # Errors
    /// If it is not admitted.
    pub fn admit_by_rules(
        &self,
        head: &request::Parts,
        client: Client,
        now: Timestamp,
    ) -> Result<Admitted, Refusal> {
        prefetch::by_rules(head, &self.settings.harmless)?;
        self.admitted(head, Safeguard::Vary, client, now)
    }

    fn admitted(
        &self,
        head: &request::Parts,
        safeguard: Safeguard,
        client: Client,
        now: Timestamp,
    ) -> Result<Admitted, Refusal> {
        let target = prefetch::target_of(head)?;
        self.may_fetch(&target, now)?;
        let unusual = prefetch::unusual(&head.headers);
        let url = head.uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
        Ok(Admitted { target, url, safeguard, client, at: now, unusual })
    }

    /// Whether a request that [`is_by_rules`] is redirected to `url`, which will then be requested.
    ///
    /// # Errors
    /// If the URL must not be prefetched.
    pub fn lead(&self, head: &request::Parts, url: &str, now: Timestamp) -> Result<(), Refusal> {
        prefetch::by_rules(head, &self.settings.harmless)?;
        self.may_hint(url, now)?;
        Ok(())
    }

    /// The same for a request by which the service worker fetches, from the port that has no other use.
    ///
    /// # Errors
    /// If it is not admitted.
    pub fn admit_for_worker(
        &self,
        head: &request::Parts,
        client: Client,
        now: Timestamp,
    ) -> Result<Admitted, Refusal> {
        prefetch::for_worker(head)?;
        // Credentials are checked when the copy is shown.
        self.admitted(head, Safeguard::Word, client, now)
    }

    /// The name of a copy. The copy is as old as its request: it may lack later changes.
    pub fn name(&self, ttl: Duration, admitted: &Admitted) -> String {
        self.copies.name(&admitted.url, ttl, admitted.at)
    }

    /// The service worker's copy, of these `names`, that a navigation is shown, if any. It is the navigation
    /// itself, with its visitor's present cookies; the URL and the visitor are checked again.
    pub fn show<'a>(
        &self,
        head: &request::Parts,
        names: &'a str,
        client: Client,
        now: Timestamp,
    ) -> Option<&'a str> {
        visitor(&head.headers, &self.settings.harmless, DeliveryMethod::Worker).ok()?;
        let url = head.uri.path_and_query().map(PathAndQuery::as_str)?;
        if head.method != Method::GET || !copies::takes_copies(head) {
            return None;
        }
        self.may_hint(url, now).ok()?;
        self.copies.find(names, url, client, now)
    }

    /// The reply to a browser that asks whether it may use a stored copy, with the `tags` of that copy
    /// ([`take_tags`]). It is 304 if the cookies of this very request keep the user anonymous, and the copy
    /// has not expired. Otherwise it is `None`, and the browser gets the page.
    pub fn renew(
        &self,
        head: &request::Parts,
        tags: &[CopyTag],
        now: Timestamp,
    ) -> Option<response::Parts> {
        let is_reader = head.method == Method::GET
            && copies::takes_copies(head)
            && !fields::asks_for_a_part(&head.headers)
            && visitor::anonymous(&head.headers, &self.settings.harmless).is_ok();
        if tags.is_empty() || !is_reader {
            return None;
        }
        let url = head.uri.path_and_query().map(PathAndQuery::as_str)?;
        self.may_hint(url, now).ok()?;
        let (tag, left) = tags.iter().find_map(|tag| {
            let left = self.copies.left(&tag.name, url, now)?;
            Some((tag, left))
        })?;
        let is_learned = cookies::sent(&head.headers, &self.settings.harmless) == Sent::Learned;
        not_modified(tag, if is_learned { left.min(LEARNED_TTL) } else { left })
    }

    /// Notes a reply with `Clear-Site-Data`: the copies of this client's service worker are no longer shown.
    pub fn cleared(&mut self, client: Client, now: Timestamp) {
        self.copies.clear(client, now);
    }

    /// Whether the reply to a prefetch may still be given. To be called again while it is in flight: a bar of
    /// its URL ends it.
    ///
    /// # Errors
    /// If not.
    pub fn check_in_flight(&self, admitted: &Admitted, now: Timestamp) -> Result<(), Refusal> {
        match self.bars.check(&admitted.target, now) {
            Some(offence) => Err(Refusal::Barred(offence)),
            None => Ok(()),
        }
    }

    /// Handles the reply to a prefetch: sets the headers with which the browser keeps it for the returned
    /// time, and uses it for no other user.
    ///
    /// # Errors
    /// If it must not be kept. Then the client gets [`refused`] instead.
    pub fn admit_reply(
        &mut self,
        admitted: &Admitted,
        head: &mut response::Parts,
        now: Timestamp,
        wall: SystemTime,
    ) -> Result<Duration, Refusal> {
        self.check_in_flight(admitted, now)?;
        if authentication::asks_for_credentials(&head.headers) {
            self.protected.record(&admitted.target, now);
        }
        let ttl = prefetch::reply(head, admitted, wall).inspect_err(|unkept| {
            if let Some(offence) = unkept.offence() {
                self.bars.met(&admitted.target, offence, admitted.client, now);
            }
        })?;
        if admitted.safeguard == Safeguard::Vary {
            let tag = tags::of_copy(&self.name(ttl, admitted), fields::single(&head.headers, ETAG));
            fields::set(&mut head.headers, ETAG, &tag);
        }
        Ok(ttl)
    }

    /// Observes the reply to a demand request, as the upstream server gave it: it may bar its URL, or ask for
    /// a password. The first reply to a browser's credentials (`Authorization`) sets the cookie that keeps
    /// copies from the user who sent them; `has_auth_cookie` says that the browser has it already.
    pub fn observe(
        &mut self,
        request: &request::Parts,
        secure: bool,
        has_auth_cookie: bool,
        client: Client,
        head: &mut response::Parts,
        now: Timestamp,
    ) {
        // Replies to other methods, such as a form that leads back to its page, do not affect `GET`.
        let is_got = request.method == Method::GET || request.method == Method::HEAD;
        if is_got && let Ok(target) = prefetch::target_of(request) {
            let part = || prefetch::gives_a_part(request, head).then_some(Offence::Part);
            let unkept = || self.is_never_kept(request, head).then_some(Offence::NotPublic);
            if let Some(offence) = prefetch::offence(&target, head).or_else(part).or_else(unkept) {
                self.bars.met(&target, offence, client, now);
            }
        }
        if authentication::asks_for_credentials(&head.headers)
            // An invalid target may be next to valid ones. Below an invalid folder there are none.
            && let Ok(folder) = Target::parse(protected::folder(request.uri.path()))
        {
            self.protected.record(&folder, now);
        }
        let keeps_copies = browsers::gains(&request.headers, DeliveryMethod::Cache).is_ok();
        if authentication::has_credentials(&request.headers) && keeps_copies && !has_auth_cookie {
            auth_cookie::set(&mut head.headers, secure);
        }
    }

    /// Whether the site tells an anonymous visitor that a page must not be stored.
    fn is_never_kept(&self, request: &request::Parts, head: &response::Parts) -> bool {
        prefetch::is_not_stored(head)
            && visitor::anonymous(&request.headers, &self.settings.harmless).is_ok()
    }

    /// Bars a URL, such as that of a page that opts out, leads elsewhere by a `<meta>`, or is unreadable and
    /// may do so.
    pub fn bar(&mut self, url: &str, offence: Offence, now: Timestamp) {
        if let Ok(target) = Target::parse(url) {
            self.bars.bar(&target, offence, now);
        }
    }
}

/// Whether [`Policy::observe`] has to check a request and its reply. Most need no check.
pub fn is_to_be_observed(request: &request::Parts, head: &response::Parts) -> bool {
    prefetch::may_offend(request, head)
        || authentication::has_credentials(&request.headers)
        || authentication::asks_for_credentials(&head.headers)
}

/// The reply to a prefetch that is not admitted, or whose reply must not be kept: empty and not storable.
pub fn refused() -> response::Parts {
    let (mut head, ()) = http::Response::new(()).into_parts();
    head.status = StatusCode::NO_CONTENT;
    head.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    head.headers.insert(PREFETCH_HEADER, HeaderValue::from_static(prefetch_header::REFUSED));
    head
}

/// States in a refusal that the same prefetch may come again later.
pub fn not_now(headers: &mut HeaderMap) {
    headers.insert(PREFETCH_HEADER, HeaderValue::from_static(prefetch_header::NOT_NOW));
}

/// The reply to a browser whose copy is valid for this time. `Vary` and other fields stay as stored with the
/// copy, because they are not kept here.
fn not_modified(tag: &CopyTag, left: Duration) -> Option<response::Parts> {
    let (mut head, ()) = http::Response::new(()).into_parts();
    head.status = StatusCode::NOT_MODIFIED;
    head.headers.insert(ETAG, HeaderValue::try_from(tag.whole.as_str()).ok()?);
    fields::set(&mut head.headers, CACHE_CONTROL, &prefetch::kept_for(left));
    Some(head)
}

#[cfg(test)]
mod tests;
