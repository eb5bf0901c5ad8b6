//! Who gets the script and hints, what may be fetched ahead, and what becomes of the replies.
//!
//! Everything here is a function of request and reply heads; time comes in as an argument, and
//! what is kept has a limit. Each answer is a value, and each no says why in words.
//! `docs/prefetch-safety.md` has every rule with its reason and its test.
//!
//! | a proxy calls | when |
//! |---|---|
//! | [`Policy::page_visitor`] | a page is asked for: may its reply get the script? |
//! | [`Policy::visitor`], [`of_a_list`] | somebody asks for hints |
//! | [`Policy::visitor`], [`Policy::mark`] | somebody asks, below a URL's path, for its mark |
//! | [`Policy::may_hint`], [`Policy::varies_on_cookies`] | before a URL is put into a list |
//! | [`is_look`] | a request carries [`MARK`], and asks only who answers: [`refused`] |
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
mod holders;
mod marks;
mod patterns;
mod prefetch;
mod protected;
mod robots;
mod sign_ins;
mod target;
mod visitor;

use std::time::{Duration, SystemTime};

use http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode, request, response};
use lull_cc::Timestamp;

pub use bars::{BARRED_FOR, Bars, Offence};
pub(crate) use browsers::tags_rules;
pub use browsers::{Way, needs_a_worker};
pub use cookies::Harmless;
pub use copies::{COPY, STAYS, has_names, take_names};
pub use freshness::{LONGEST_TTL, MEASURED_TTL, Stale, UNSTATED_TTL, ttl};
pub use marks::of_a_list;
pub use patterns::{NoPattern, Pattern};
pub(crate) use prefetch::asks_for_a_page;
pub use prefetch::{
    MARK, NotAhead, Safeguard, Unkept, is_by_rules, is_look, site_of_a_worker, upstream_request,
};
pub use robots::{Forbidden, Robots};
pub use sign_ins::{Client, SignIns};
pub use target::{Ambiguous, OwnersRules, Target, Unfit};
pub use visitor::{Excluded, Visitor, page_visitor, visitor};

use crate::authentication;
use copies::Copies;
use holders::Holders;
use marks::Marks;
use protected::Protected;

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
    /// By where it is.
    #[error("a password was asked for in its folder within the last 24 hours")]
    Protected,
    /// By what it did within a day.
    #[error("{0} within the last 24 hours")]
    Barred(Offence),
    /// A copy could outlive a sign-in.
    #[error("the client was given a cookie, or sent credentials, a moment ago")]
    SignedIn,
    /// The same: a sign-in since it was let through may be forgotten by now.
    #[error("the server took so long that its visitor may have signed in since")]
    Late,
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
    /// When.
    at: Timestamp,
    /// Fields that it carries and not every visitor does.
    unusual: Vec<HeaderName>,
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
#[derive(Debug)]
pub struct Policy {
    settings: Settings,
    robots: Robots,
    bars: Bars,
    /// What is of no use to visitors with cookies, and bars it for these.
    varying: Bars,
    marks: Marks,
    holders: Holders,
    sign_ins: SignIns,
    /// The same by HTTP authentication, which no cookie tells of.
    credentials: SignIns,
    protected: Protected,
    copies: Copies,
}

impl Default for Policy {
    fn default() -> Self {
        Policy::new(Settings::default())
    }
}

impl Policy {
    /// Rules with these settings. Until robots.txt is known nothing is fetched ahead:
    /// [`Policy::set_robots`].
    pub fn new(settings: Settings) -> Self {
        Policy {
            settings,
            robots: Robots::default(),
            bars: Bars::default(),
            varying: Bars::default(),
            marks: Marks::default(),
            holders: Holders::default(),
            sign_ins: SignIns::default(),
            // What a list from before has named may be pointed at for as long as a copy may live.
            credentials: SignIns::kept_for(holders::LONGEST_LIFE),
            protected: Protected::default(),
            copies: Copies::default(),
        }
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

    /// What a prefetch of something at `path` is to say in [`MARK`]. `visitor` is who sends this very
    /// request, which is for something below `path`, so that it carries what a navigation there would.
    /// `None` where it would be refused with that: there was a sign-in, or the page varies on cookies; and
    /// where so many have been given one lately that this client could not be remembered.
    pub fn mark(
        &mut self,
        visitor: Visitor,
        path: &str,
        client: Client,
        now: Timestamp,
        wall: SystemTime,
    ) -> Option<String> {
        if visitor == Visitor::Measured {
            // A mark may lead to a copy, so whoever signs in there next is cleared because of it.
            let url = if path.is_empty() { "/" } else { path };
            if self.has_signed_in(client, now) || self.varies_on_cookies(url, now) {
                return None;
            }
            // Else everybody would have to be taken for one who has copies, and be cleared.
            if !self.holders.has_room_for(client, now) {
                return None;
            }
            self.holders.unvaried(client, now);
        }
        Some(self.marks.give(visitor, path, client, wall))
    }

    /// Whether no copy may be given to this client that lacks `Vary: Cookie`.
    fn has_signed_in(&self, client: Client, now: Timestamp) -> bool {
        self.sign_ins.lately(client, now) || self.credentials.lately(client, now)
    }

    /// Whether a URL, as a path with its query, may be suggested.
    ///
    /// # Errors
    /// If not.
    pub fn may_hint(&self, url: &str, now: Timestamp) -> Result<Target, Refusal> {
        let target = Target::parse(url)?;
        self.may_fetch(&target, true, now)?;
        Ok(target)
    }

    /// Whether a URL, as a path with its query, was seen to vary on cookies within a day. Its copy is none
    /// for visitors with harmless ones, but by speculation rules: their navigation would not find it.
    pub fn varies_on_cookies(&self, url: &str, now: Timestamp) -> bool {
        Target::parse(url).is_ok_and(|target| self.varying.check(&target, now).is_some())
    }

    /// Whether nobody without HTTPS is to be given anything ahead: the site asks for a password in its
    /// root, and browsers send it everywhere from then on.
    pub fn is_protected_without_https(&self, now: Timestamp) -> bool {
        self.protected.has("/", false, now)
    }

    fn may_fetch(&self, target: &Target, secure: bool, now: Timestamp) -> Result<(), Refusal> {
        self.settings.urls.check(target)?;
        self.robots.check(&target.whole())?;
        if self.protected.has(target.path(), secure, now) {
            return Err(Refusal::Protected);
        }
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
        let safeguard = prefetch::ahead(head, secure, &self.marks, client, wall)?;
        let target = prefetch::target_of(head)?;
        self.may_fetch(&target, secure, now)?;
        if safeguard == Safeguard::Clear
            && let Some(offence) = self.varying.check(&target, now)
        {
            return Err(Refusal::Barred(offence));
        }
        let unusual = prefetch::unusual(&head.headers);
        let admitted = Admitted { target, safeguard, client, at: now, unusual };
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
        self.may_fetch(&target, secure, now)?;
        let unusual = prefetch::unusual(&head.headers);
        let admitted = Admitted { target, safeguard: Safeguard::Vary, client, at: now, unusual };
        self.still(&admitted, now)?;
        Ok(admitted)
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
        // Whether there are credentials is seen when it is shown.
        self.may_fetch(&target, true, now)?;
        let unusual = prefetch::unusual(&head.headers);
        Ok(Admitted { target, safeguard: Safeguard::Word, client, at: now, unusual })
    }

    /// The name of a copy of `url` for the service worker that has asked for it, as old as its question: what has happened
    /// since may not be in it.
    pub fn name(&self, url: &str, ttl: Duration, admitted: &Admitted) -> String {
        self.copies.name(url, ttl, admitted.at)
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
    /// way: a sign-in in between ends it, and so does what bars its URL.
    ///
    /// # Errors
    /// If not.
    pub fn still(&self, admitted: &Admitted, now: Timestamp) -> Result<(), Refusal> {
        if let Some(offence) = self.bars.check(&admitted.target, now) {
            return Err(Refusal::Barred(offence));
        }
        let client = admitted.client;
        let has_signed_in = match admitted.safeguard {
            Safeguard::Clear => self.has_signed_in(client, now),
            Safeguard::Vary => self.credentials.lately(client, now),
            Safeguard::Word => false,
        };
        if has_signed_in { Err(Refusal::SignedIn) } else { Ok(()) }
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
        // Sign-ins are remembered for so long. Where a mark was given, up to a minute before, that it makes its client a
        // holder of copies is as well.
        let longest = match admitted.safeguard {
            Safeguard::Clear => sign_ins::REMEMBERED_FOR - marks::GOOD_FOR,
            Safeguard::Vary => sign_ins::REMEMBERED_FOR,
            Safeguard::Word => Duration::MAX,
        };
        if now.saturating_since(admitted.at) >= longest {
            return Err(Refusal::Late);
        }
        match admitted.safeguard {
            Safeguard::Clear => {
                self.holders.unvaried(admitted.client, now);
                self.holders.sent_a_copy(admitted.client, now);
            }
            Safeguard::Vary => self.holders.sent_a_copy(admitted.client, now),
            Safeguard::Word => {}
        }
        if authentication::asks_for_credentials(&head.headers) {
            self.protected.note(&admitted.target, now);
        }
        if prefetch::varies_on_cookies(head) {
            self.varying.bar(&admitted.target, Offence::VariesOnCookies, now);
        }
        prefetch::reply(head, admitted, wall).map_err(|unkept| {
            if let Some(offence) = unkept.offence() {
                self.bars.met(&admitted.target, offence, admitted.client, now);
            }
            unkept.into()
        })
    }

    /// Whether a client has sent credentials lately, so that nothing is let through for it.
    pub fn has_sent_credentials(&self, client: Client, now: Timestamp) -> bool {
        self.credentials.lately(client, now)
    }

    /// Takes note of a client's credentials (`Authorization`) that came with a request which goes to no server.
    pub fn sent_credentials(&mut self, client: Client, now: Timestamp) {
        self.credentials.note(client, now);
    }

    /// Takes note of the reply to a demand request, as the upstream server gave it. Where somebody is
    /// given a cookie that is not harmless, as by signing in, and may have copies that lack
    /// `Vary: Cookie`, it adds what clears these: to who has harmless cookies only, and to every client
    /// that may have got some lately, whatever cookies this very request has. A script may have set one
    /// in between, and browsers leave some out of what comes from another site. Who was cleared, and has
    /// been given a cookie with that which nobody else has, is not cleared again before the client is
    /// given something new. Credentials that come along (`Authorization`) are another way to sign in, and
    /// clear what there is.
    ///
    /// Says whether [`Policy::still`] is to be asked of the client's prefetches that are under way. That
    /// cannot wait for their next piece: a browser that goes there shares what has come of one already,
    /// although it has just cleared its cache, and then waits in vain for the rest (seen in Chromium 156).
    pub fn observe(
        &mut self,
        request: &request::Parts,
        secure: bool,
        client: Client,
        head: &mut response::Parts,
        now: Timestamp,
    ) -> bool {
        // What other methods do, such as a form that leads back to its page, is nothing to who gets it.
        let is_got = request.method == Method::GET || request.method == Method::HEAD;
        if is_got && let Ok(target) = prefetch::target_of(request) {
            let part = || prefetch::gives_a_part(request, head).then_some(Offence::Part);
            if let Some(offence) = prefetch::offence(&target, head).or_else(part) {
                self.bars.met(&target, offence, client, now);
            }
        }
        let harmless = &self.settings.harmless;
        let mut clears = false;
        let mut signs_in = false;
        if cookies::sets_others(&head.headers, harmless) {
            let may_have = self.holders.may_have_unvaried(client, &request.headers, now);
            let sent = cookies::sent(&request.headers, harmless);
            let is_concerned = sent == cookies::Sent::Harmless || may_have == Some(true);
            signs_in = is_concerned;
            if is_concerned {
                // Whatever it came by: where HTTP and HTTPS are one site, the copies are of HTTPS.
                self.sign_ins.note(client, now);
            }
            // Over plain HTTP browsers clear nothing.
            clears = secure && is_concerned;
            let was_cleared = secure && may_have == Some(false);
            if was_cleared || (clears && holders::clears_for_pages(&request.headers)) {
                let set = cookies::telling_set(&head.headers, harmless);
                self.holders.is_empty(client, set, now);
            }
        }
        if authentication::asks_for_credentials(&head.headers)
            // What is no target may lie beside some. Below a folder that is none there are none.
            && let Ok(folder) = Target::parse(protected::folder(request.uri.path()))
        {
            self.protected.note(&folder, now);
        }
        if authentication::has_credentials(&request.headers) {
            self.sent_credentials(client, now);
            signs_in = true;
            // By the reply to a WebSocket's handshake browsers clear nothing.
            let may_clear = secure && head.status != StatusCode::SWITCHING_PROTOCOLS;
            clears |= may_clear && self.holders.are_to_be_cleared(client, &request.headers, now);
        }
        if clears {
            head.headers.append(prefetch::CLEAR_SITE_DATA, HeaderValue::from_static("\"cache\""));
        }
        signs_in
    }

    /// Takes note of a page that opts out, or leads elsewhere by a `<meta>`; or may do so where nobody
    /// can read it.
    pub fn opted_out(&mut self, url: &str, offence: Offence, now: Timestamp) {
        if let Ok(target) = Target::parse(url) {
            self.bars.bar(&target, offence, now);
        }
    }
}

/// Whether [`Policy::observe`] has anything to see in a request and its reply. In most there is nothing.
pub fn is_to_be_observed(request: &request::Parts, head: &response::Parts) -> bool {
    prefetch::may_offend(request, head)
        || authentication::has_credentials(&request.headers)
        || authentication::asks_for_credentials(&head.headers)
}

/// What a prefetch gets that is not let through, or whose reply is not to be kept: nothing, and
/// nothing to keep.
pub fn refused() -> response::Parts {
    let (mut head, ()) = http::Response::new(()).into_parts();
    head.status = StatusCode::NO_CONTENT;
    head.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    head.headers.insert(MARK, HeaderValue::from_static(marks::REFUSED));
    head
}

#[cfg(test)]
mod tests;
