//! Who gets the script and hints, what may be fetched ahead, and what becomes of the replies.
//!
//! Everything here is a function of request and reply heads; time comes in as an argument, and
//! what is kept has a limit. Each answer is a value, and each no says why in words.
//! `docs/prefetch-safety.md` has every rule with its reason and its test.
//!
//! | a proxy calls | when |
//! |---|---|
//! | [`Policy::page_visitor`] | a page is asked for: may its reply get the script? |
//! | [`Policy::visitor`] | somebody asks for hints |
//! | [`Policy::may_hint`] | before a URL is put into a list |
//! | [`Policy::admit`], [`upstream_request`] | a request carries [`MARK`] |
//! | [`Policy::lead`], [`Policy::admit_by_rules`], [`upstream_request`] | a request [`is_by_rules`] |
//! | [`Policy::admit_for_worker`], [`upstream_request`] | a service worker asks, by a port of its own |
//! | [`Policy::show`] | a navigation says which copies the service worker has: [`take_names`] |
//! | [`Policy::keep`] | the reply to that has come |
//! | [`Policy::observe`] | any reply has come |
//! | [`Policy::opted_out`] | the rewriter found an opt-out in a page |

mod actions;
mod bars;
mod browsers;
mod cookies;
mod copies;
pub(crate) mod fields;
mod freshness;
mod patterns;
mod prefetch;
mod robots;
mod sign_ins;
mod target;
mod visitor;

use std::time::{Duration, SystemTime};

use http::header::{CACHE_CONTROL, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode, request, response};
use lull_cc::Timestamp;

pub use bars::{BARRED_FOR, Bars, Offence};
pub(crate) use browsers::tags_rules;
pub use browsers::{Way, needs_a_worker};
pub use cookies::Harmless;
pub use copies::{COPY, STAYS, has_names, take_names};
pub use freshness::{LONGEST_TTL, MEASURED_TTL, Stale, UNSTATED_TTL, ttl};
pub use patterns::Pattern;
pub(crate) use prefetch::asks_for_a_page;
pub use prefetch::{
    MARK, Mark, NotAhead, Safeguard, Unkept, is_by_rules, offence, site_of_a_worker,
    upstream_request,
};
pub use robots::{Forbidden, Robots};
pub use sign_ins::{Client, SignIns};
pub use target::{Ambiguous, OwnersRules, Target, Unfit};
pub use visitor::{Excluded, Visitor, page_visitor, visitor};

use copies::Copies;

/// Why a URL is not fetched ahead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request is none that fetches ahead.
    #[error(transparent)]
    NotAhead(#[from] NotAhead),
    /// By the URL alone.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// By robots.txt.
    #[error(transparent)]
    Robots(#[from] Forbidden),
    /// By what it did within a day.
    #[error("{0} within the last 24 hours")]
    Barred(Offence),
    /// A copy could outlive a sign-in.
    #[error("the client was given a cookie a moment ago")]
    SignedIn,
    /// By its reply.
    #[error(transparent)]
    Unkept(#[from] Unkept),
}

/// A prefetch that was let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// What it fetches.
    pub target: Target,
    /// What keeps the copy from who signs in later.
    pub safeguard: Safeguard,
    client: Client,
}

/// What an owner can set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Cookies that don't make somebody known.
    pub harmless: Harmless,
    /// What is said about URLs.
    pub urls: OwnersRules,
}

/// The rules, and what they remember.
#[derive(Debug, Default)]
pub struct Policy {
    settings: Settings,
    robots: Robots,
    bars: Bars,
    sign_ins: SignIns,
    copies: Copies,
}

impl Policy {
    /// Rules with these settings. Until robots.txt is known nothing is fetched ahead:
    /// [`Policy::set_robots`].
    pub fn new(settings: Settings) -> Self {
        Policy { settings, ..Policy::default() }
    }

    /// Takes what the site's robots.txt says.
    pub fn set_robots(&mut self, robots: Robots) {
        self.robots = robots;
    }

    /// Who asks for a page, if its reply may get the script.
    ///
    /// # Errors
    /// If it may not.
    pub fn page_visitor(
        &self,
        method: &Method,
        headers: &HeaderMap,
        secure: bool,
    ) -> Result<Visitor, Excluded> {
        page_visitor(method, headers, secure, &self.settings.harmless, Way::Cache)
    }

    /// Who asks for hints, if there may be some.
    ///
    /// # Errors
    /// If not.
    pub fn visitor(&self, headers: &HeaderMap, secure: bool) -> Result<Visitor, Excluded> {
        visitor(headers, secure, &self.settings.harmless, Way::Cache)
    }

    /// Whether a URL, as a path with its query, may be suggested.
    ///
    /// # Errors
    /// If not.
    pub fn may_hint(&self, url: &str, now: Timestamp) -> Result<Target, Refusal> {
        let target = Target::parse(url)?;
        self.may_fetch(&target, now)?;
        Ok(target)
    }

    fn may_fetch(&self, target: &Target, now: Timestamp) -> Result<(), Refusal> {
        self.settings.urls.check(target)?;
        self.robots.check(&target.whole())?;
        match self.bars.check(target, now) {
            Some(offence) => Err(Refusal::Barred(offence)),
            None => Ok(()),
        }
    }

    /// Whether a request that carries [`MARK`] is let through as a prefetch. If so, its headers go
    /// upstream by [`upstream_request`]; if not, it gets [`refused`] and never goes upstream.
    ///
    /// `now` and `wall` are the same time, on the monotonic clock and on the wall's.
    ///
    /// # Errors
    /// If not.
    pub fn admit(
        &self,
        head: &request::Parts,
        secure: bool,
        client: Client,
        now: Timestamp,
        wall: SystemTime,
    ) -> Result<Admitted, Refusal> {
        let mark = prefetch::ahead(head, secure, wall)?;
        let target = prefetch::target_of(head)?;
        self.may_fetch(&target, now)?;
        let admitted = Admitted { target, safeguard: mark.safeguard(), client };
        self.still(&admitted, now)?;
        Ok(admitted)
    }

    /// The same for a request that [`is_by_rules`]. Its copy always varies on cookies: it carries
    /// those that the navigation will carry.
    ///
    /// # Errors
    /// If it is not let through.
    pub fn admit_by_rules(
        &self,
        head: &request::Parts,
        secure: bool,
        client: Client,
        now: Timestamp,
    ) -> Result<Admitted, Refusal> {
        prefetch::by_rules(head, secure, &self.settings.harmless)?;
        let target = prefetch::target_of(head)?;
        self.may_fetch(&target, now)?;
        Ok(Admitted { target, safeguard: Safeguard::Vary, client })
    }

    /// Whether a request that [`is_by_rules`] is led on to `url`, which will be asked for then.
    ///
    /// # Errors
    /// If not.
    pub fn lead(
        &self,
        head: &request::Parts,
        url: &str,
        secure: bool,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        prefetch::by_rules(head, secure, &self.settings.harmless)?;
        self.may_hint(url, now)?;
        Ok(())
    }

    /// The same for a request by which the service worker fetches, from the port that is for
    /// nothing else.
    ///
    /// # Errors
    /// If it is not let through.
    pub fn admit_for_worker(
        &self,
        head: &request::Parts,
        client: Client,
        now: Timestamp,
    ) -> Result<Admitted, Refusal> {
        prefetch::for_worker(head)?;
        let target = prefetch::target_of(head)?;
        self.may_fetch(&target, now)?;
        Ok(Admitted { target, safeguard: Safeguard::Word, client })
    }

    /// The name of a copy of `url`, made now, for the service worker that has asked for it.
    pub fn name(&self, url: &str, ttl: Duration, now: Timestamp) -> String {
        self.copies.name(url, ttl, now)
    }

    /// Which of the copies that the service worker has, by their `names`, a navigation is shown; if
    /// any. It is the navigation itself, with the cookies that its visitor has now; what may be
    /// fetched ahead and from whom is asked once more.
    pub fn show<'a>(
        &self,
        head: &request::Parts,
        names: &'a str,
        secure: bool,
        client: Client,
        now: Timestamp,
    ) -> Option<&'a str> {
        let harmless = &self.settings.harmless;
        let visitor = visitor(&head.headers, secure, harmless, Way::Worker).ok()?;
        let url = head.uri.path_and_query().map(PathAndQuery::as_str)?;
        if head.method != Method::GET || !copies::takes_copies(head) {
            return None;
        }
        self.may_hint(url, now).ok()?;
        self.copies.find(names, url, visitor, client, now)
    }

    /// Takes note of a reply with `Clear-Site-Data`: what this client's service worker has is shown
    /// no more.
    pub fn cleared(&mut self, client: Client, now: Timestamp) {
        self.copies.clear(client, now);
    }

    /// Whether the reply to a prefetch may still be given. To be asked again while it is under
    /// way: a sign-in in between ends it.
    ///
    /// # Errors
    /// If not.
    pub fn still(&self, admitted: &Admitted, now: Timestamp) -> Result<(), Refusal> {
        if admitted.safeguard == Safeguard::Clear && self.sign_ins.lately(admitted.client, now) {
            return Err(Refusal::SignedIn);
        }
        Ok(())
    }

    /// Takes the reply to a prefetch: gives it the headers with which the browser keeps it for the
    /// time that is returned, and uses it for nobody else.
    ///
    /// # Errors
    /// If it may not be kept. Then the client gets [`refused`] in its place.
    pub fn keep(
        &mut self,
        admitted: &Admitted,
        head: &mut response::Parts,
        now: Timestamp,
        wall: SystemTime,
    ) -> Result<Duration, Refusal> {
        self.still(admitted, now)?;
        prefetch::reply(head, admitted.safeguard, wall).map_err(|unkept| {
            if let Some(offence) = unkept.offence() {
                self.bars.bar(&admitted.target, offence, now);
            }
            unkept.into()
        })
    }

    /// Takes note of the reply to a demand request, as the upstream server gave it. Where a
    /// visitor with harmless cookies is given another one, as by signing in, it adds what clears
    /// the copies that lack `Vary: Cookie`.
    ///
    /// `visitor` is who [`Policy::visitor`] says sent the request.
    pub fn observe(
        &mut self,
        request: &request::Parts,
        secure: bool,
        client: Client,
        head: &mut response::Parts,
        now: Timestamp,
    ) {
        if let Some(offence) = offence(head)
            && let Ok(target) = prefetch::target_of(request)
        {
            self.bars.bar(&target, offence, now);
        }
        let harmless = &self.settings.harmless;
        if cookies::sets_others(&head.headers, harmless)
            && secure
            && cookies::sent(&request.headers, harmless) == cookies::Sent::Harmless
        {
            head.headers.append(prefetch::CLEAR_SITE_DATA, HeaderValue::from_static("\"cache\""));
            self.sign_ins.note(client, now);
        }
    }

    /// Takes note of a page that opts out, or leads elsewhere by a `<meta>`.
    pub fn opted_out(&mut self, url: &str, offence: Offence, now: Timestamp) {
        if let Ok(target) = Target::parse(url) {
            self.bars.bar(&target, offence, now);
        }
    }
}

/// What a prefetch gets that is not let through, or whose reply is not to be kept: nothing, and
/// nothing to keep.
pub fn refused() -> response::Parts {
    let (mut head, ()) = http::Response::new(()).into_parts();
    head.status = StatusCode::NO_CONTENT;
    head.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    head
}

#[cfg(test)]
mod tests;
