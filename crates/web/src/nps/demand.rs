//! A request of a visitor: its page gets the script, and what it does is learned from.

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, request, response};
use lull_speculate::observe::Kind as UrlKind;

use super::desk::{self, Visited};
use super::munged::Munged;
use super::samples;
use super::service_worker::{self, page_script};
use super::who::Who;
use super::{Shared, reasons, shown, wall, whole};
use crate::munge;
use crate::policy::{self, Excluded, Way, fields, page_visitor};
use crate::proxy::{Body, Decision, Exchange, Outcome};

struct Demand {
    shared: Arc<Shared>,
    /// As it goes upstream, but for the proxy's own rules for headers.
    request: request::Parts,
    who: Who,
    /// Why no page gets the script, if none does.
    no_script: Option<&'static str>,
    way: Way,
    /// Whether our service worker wakes up for it.
    wakes_worker: bool,
    /// Whether something is learned from it: nobody knows who the visitor is.
    teaches: bool,
    /// Whether nothing but its cookies can say who the visitor is.
    may_compare: bool,
    /// Whether its browser is marked as one whose user has given a password.
    has_auth_cookie: bool,
    /// Whether its reply was for this visitor alone.
    is_private: bool,
    /// Whether its reply came without content coding, and passes as it is.
    is_plain: bool,
}

/// Lets a request pass, and looks at its reply.
pub(super) fn watch(shared: &Arc<Shared>, head: &mut request::Parts, who: Who) -> Decision {
    let way = shared.way(head, who);
    let names = policy::take_names(&mut head.headers);
    if let Some(shown) =
        names.as_ref().and_then(|names| service_worker::show(shared, head, who, names))
    {
        return shown;
    }
    let visitor = page_visitor(&head.method, &head.headers, &shared.harmless, way);
    let no_script = match &visitor {
        Err(why) => Some(reasons::of_visitor(why)),
        Ok(_) if !shared.is_active() => Some(reasons::OFF),
        Ok(_) if who.by_cache => Some(reasons::CACHE),
        Ok(_) => None,
    };
    if no_script.is_none() && munge::is_document(&head.headers) {
        munge::widen_if_none_match(&mut head.headers);
    }
    let is_known = matches!(
        visitor,
        Err(Excluded::Cookie | Excluded::Authorization | Excluded::Identified(_))
    );
    let may_compare = !matches!(
        visitor,
        Err(Excluded::Authorization | Excluded::Identified(_) | Excluded::Robot)
    );
    let has_auth_cookie = policy::take_auth_cookie(&mut head.headers);
    Decision::Watch(Box::new(Demand {
        shared: Arc::clone(shared),
        request: head.clone(),
        who,
        no_script,
        way,
        wakes_worker: names.is_some(),
        teaches: !is_known && head.method == Method::GET,
        may_compare: may_compare && !has_auth_cookie,
        has_auth_cookie,
        is_private: false,
        is_plain: false,
    }))
}

impl Exchange for Demand {
    fn response(&mut self, head: &mut response::Parts, body: Body) -> Body {
        let Demand {
            shared,
            request,
            who,
            no_script,
            way,
            wakes_worker,
            may_compare,
            has_auth_cookie,
            ..
        } = self;
        let may_have_script = no_script.is_none();
        let munging = match no_script {
            None => munge::decide_for(page_script(*way), request, who.scheme(), head)
                .map_err(|why| reasons::of_reply(&why)),
            Some(why) => Err(is_page(request, head).then_some(*why)),
        };
        if let Err(Some(why)) = &munging {
            shared.counts.pages_left.one(why);
            let names = policy::blocking_cookies(&request.headers, &shared.harmless);
            shared.counts.blocking_cookies.note(names);
        }
        let munging = munging.ok();
        self.is_private = is_private(&head.headers);
        self.is_plain = munging.is_none() && !head.headers.contains_key(CONTENT_ENCODING);
        // Most replies need no lock then.
        if policy::is_to_be_observed(request, head) {
            let now = shared.now();
            // In shadow mode nothing is fetched ahead, so no reply needs a cookie.
            let has_cookie = *has_auth_cookie || shared.settings.shadow;
            shared.policy().observe(request, who.secure, has_cookie, who.client, head, now);
        }
        let sampling = samples::begin(shared, request, head, *who, *may_compare);
        let body = samples::sampled(shared, sampling, body);
        if *may_compare && munge::is_document(&request.headers) {
            let url = whole(&request.uri);
            shared.stubs.goes_on(shown::from(request), url);
            shared.stubs.replied(url, request, head);
        }
        shared.look_for_own_worker(request, head);
        // Who has written something would be shown what was there before.
        let is_done = head.status.is_success() || head.status.is_redirection();
        let writes = !request.method.is_safe() && is_done;
        if shared.settings.service_worker.is_some()
            && (writes || head.headers.contains_key("clear-site-data"))
        {
            shared.policy().cleared(who.client, shared.now());
        }
        if *wakes_worker && may_have_script && service_worker::stays(shared, *way) {
            head.headers.insert(policy::STAYS, HeaderValue::from_static("stays"));
        }
        match munging {
            Some(munging) => {
                let rules = shared.settings.speculation_rules && *way == Way::Cache;
                let wait = shared.monitor.wait(shared.now());
                let munging = munging
                    .offering_rules(rules)
                    .waiting(wait)
                    .holding_back(who.group(&request.headers, shared));
                munging.rewrite_head(&mut head.headers);
                if request.method == Method::HEAD {
                    return body;
                }
                Munged::body(shared, &request.uri, munging.munger(), body, !self.is_private, true)
            }
            None => {
                if may_have_script {
                    munge::revalidated(page_script(*way), request, who.scheme(), head);
                }
                body
            }
        }
    }
    fn ended(self: Box<Self>, outcome: &Outcome) {
        let Demand { shared, request, who, .. } = &*self;
        let Some(target) = request.uri.path_and_query() else { return };
        let is_answered = request.method == Method::GET && outcome.status == 200;
        // Scripts, and frames, ask for what nobody goes to, often by URLs that look like pages.
        let is_nobodys =
            UrlKind::of(target.path()) == UrlKind::Page && !munge::is_document(&request.headers);
        if let Some(time) = outcome.time_to_first_byte.filter(|_| is_answered) {
            shared.counts.demand.note(time);
        }
        if !self.teaches {
            return;
        }
        if let Some(time) = outcome.upstream_time.filter(|_| is_answered) {
            shared.monitor.answered(target.as_str(), shared.now(), time);
        }
        // A length is told to whoever asks for hints, so it is one that everybody sees.
        let is_named = shared.settings.rules.urls.name_of(target.as_str()) == target.as_str();
        let is_everybodys = !self.is_private && is_named;
        if is_answered && is_everybodys && self.is_plain && outcome.failure.is_none() {
            shared.lengths.note(target.as_str(), outcome.bytes);
        }
        if is_nobodys {
            return;
        }
        let is_taken = shared.desk.visited(Visited {
            address: who.address,
            agent: desk::agent(&request.headers),
            target: target.as_str().to_owned(),
            at: wall(),
            status: outcome.status,
            bytes: outcome.bytes,
            took: outcome.time_to_first_byte,
            prefetch: is_prefetch(&request.headers),
            private: self.is_private,
        });
        if !is_taken {
            shared.counts.unlearned.one();
        }
    }
}

/// Whether a reply is a page, as far as its head says.
fn is_page(request: &request::Parts, head: &response::Parts) -> bool {
    let kind = fields::single(&head.headers, CONTENT_TYPE).unwrap_or_default();
    request.method == Method::GET
        && head.status == StatusCode::OK
        && munge::is_document(&request.headers)
        && kind.get(..9).is_some_and(|kind| kind.eq_ignore_ascii_case("text/html"))
}

/// Whether a browser says that nobody asked for this yet, such as by speculation rules.
fn is_prefetch(headers: &HeaderMap) -> bool {
    ["sec-purpose", "purpose", "x-moz"].iter().any(|name| headers.contains_key(*name))
}

/// Whether a reply is one person's.
pub(super) fn is_private(headers: &HeaderMap) -> bool {
    headers.contains_key(SET_COOKIE) || fields::may_direct(headers, &["private", "no-store"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_one_persons_if_it_says_so_in_any_way() {
        for (name, value, expected) in [
            ("cache-control", "max-age=3", false),
            ("cache-control", "no-cache", false),
            ("cache-control", "max-age=3, private", true),
            ("cache-control", "No-Store", true),
            ("cache-control", "no-cache; no-store", true),
            ("cache-control", "private; max-age=0", true),
            ("cache-control", "no-cache private", true),
            ("set-cookie", "a=1", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(is_private(&headers), expected, "{value}");
        }
    }
}
