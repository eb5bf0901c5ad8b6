//! A request of a visitor: its page gets the script, and the visit is learned.

use std::sync::Arc;

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue, Method, request, response};
use lull_speculate::observe::Kind as UrlKind;

use super::cdn::NoScriptReason;
use super::clock::wall;
use super::heads::{is_page, is_private, whole};
use super::learner::{self, Visited};
use super::page_body::PageBody;
use super::page_comparison;
use super::requester::Requester;
use super::service_worker::page_script;
use super::shared::Shared;
use super::site_rules::SiteRules;
use super::{cached_pages, cdn, reasons, worker_requests};
use crate::policy::{self, DeliveryMethod, Excluded, Visitor, page_visitor};
use crate::proxy::{Body, Decision, Exchange, Outcome};
use crate::script_insertion::{self, ScriptInsertion};

struct Demand {
    shared: Arc<Shared>,
    /// As it goes upstream, except for the proxy's own header rules.
    request: request::Parts,
    requester: Requester,
    /// Why its page does not get the script, if it does not.
    no_script: NoScriptReason,
    way: DeliveryMethod,
    /// Whether our service worker wakes up for it.
    wakes_worker: bool,
    /// Whether it teaches anything: the visitor is anonymous.
    teaches: bool,
    /// Whether only its cookies can identify the visitor.
    may_compare: bool,
    /// Whether its browser is marked as one whose user has given a password.
    has_auth_cookie: bool,
    /// Whether its reply was private.
    is_private: bool,
    /// Whether its reply came without content coding, and passes unchanged.
    is_plain: bool,
}

/// Lets a request pass, and observes its reply.
pub(super) fn watch(
    shared: &Arc<Shared>,
    head: &mut request::Parts,
    requester: Requester,
) -> Decision {
    let way = shared.workers.way(head, requester, shared.rules.now());
    let names = policy::take_names(&mut head.headers);
    if let Some(shown) =
        names.as_ref().and_then(|names| worker_requests::show(shared, head, requester, names))
    {
        return shown;
    }
    if script_insertion::is_document(&head.headers) {
        let hash = requester.visitor_hash(&head.headers, &shared.visitors.clients);
        shared.counts.distinct_visitors.record(hash);
    }
    let visitor = page_visitor(&head.method, &head.headers, shared.rules.harmless(), way);
    let no_script = no_script_reason(&shared.rules, &visitor, requester);
    if no_script.always.is_none() && script_insertion::is_document(&head.headers) {
        script_insertion::widen_if_none_match(&mut head.headers);
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
        requester,
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

/// Why the page for this visitor does not get the script, as far as the request says it.
fn no_script_reason(
    rules: &SiteRules,
    visitor: &Result<Visitor, Excluded>,
    requester: Requester,
) -> NoScriptReason {
    let always = |why| NoScriptReason { always: Some(why), unless_shared: None };
    let is_behind_cdn = rules.settings.behind_cdn;
    match visitor {
        _ if is_behind_cdn && !rules.is_active() => always(reasons::OFF),
        Err(why) if is_behind_cdn && cdn::is_of_one_browser(why) => NoScriptReason::default(),
        Err(why @ Excluded::Cookie) if is_behind_cdn => {
            NoScriptReason { always: None, unless_shared: Some(reasons::of_visitor(why)) }
        }
        Err(why) => always(reasons::of_visitor(why)),
        Ok(_) if !rules.is_active() => always(reasons::OFF),
        Ok(_) if requester.by_cache => always(reasons::CACHE),
        Ok(_) => NoScriptReason::default(),
    }
}

impl Demand {
    /// Learns from the head of the reply: bars, stubs, service workers, writes.
    fn learn_from(&self, head: &mut response::Parts) {
        let Demand { shared, request, requester, .. } = self;
        let (rules, now) = (&shared.rules, shared.rules.now());
        // Most replies need no lock.
        if policy::is_to_be_observed(request, head) {
            // In shadow mode nothing is prefetched, so no reply needs the cookie.
            let has_cookie = self.has_auth_cookie || rules.settings.shadow;
            let (secure, client) = (requester.secure, requester.client);
            rules.policy().observe(request, secure, has_cookie, client, head, now);
        }
        if self.may_compare && script_insertion::is_document(&request.headers) {
            let (url, stubs) = (whole(&request.uri), &shared.knowledge.stubs);
            stubs.goes_on(cached_pages::from(request), url);
            stubs.replied(url, request, head);
        }
        if let Some(event) = shared.workers.look_for_own(request, head, now) {
            shared.notices.report(&event);
        }
        // A copy made before a write would be stale.
        let is_done = head.status.is_success() || head.status.is_redirection();
        let writes = !request.method.is_safe() && is_done;
        if shared.workers.is_wanted() && (writes || head.headers.contains_key("clear-site-data")) {
            rules.policy().cleared(requester.client, now);
        }
        if self.wakes_worker
            && self.no_script == NoScriptReason::default()
            && worker_requests::stays(shared, self.way)
        {
            head.headers.insert(policy::STAYS, HeaderValue::from_static("stays"));
        }
    }

    /// How the page gets the script, if it may; counts the reason otherwise.
    fn insertion(&self, head: &mut response::Parts) -> Option<ScriptInsertion> {
        let Demand { shared, request, requester, .. } = self;
        let insertion = match self.no_script.of_reply(&head.headers) {
            None => script_insertion::decide_for(
                page_script(self.way),
                request,
                requester.scheme(),
                head,
            )
            .map_err(|why| reasons::of_reply(&why)),
            Some(why) => Err(is_page(request, head).then_some(why)),
        };
        if let Err(Some(why)) = &insertion {
            shared.counts.pages_unchanged.one(why);
            let names = policy::blocking_cookies(&request.headers, shared.rules.harmless());
            shared.counts.blocking_cookies.record(names);
        }
        insertion.ok()
    }
}

impl Exchange for Demand {
    /// Behind a CDN, the coding is the site's own: some caches ignore `Vary`.
    fn is_recoded(&self) -> bool {
        self.no_script.always.is_none()
            && !self.shared.rules.settings.behind_cdn
            && self.request.method == Method::GET
            && script_insertion::is_document(&self.request.headers)
    }

    fn response(&mut self, head: &mut response::Parts, body: Body) -> Body {
        let insertion = self.insertion(head);
        self.is_private = is_private(&head.headers);
        self.is_plain = insertion.is_none()
            && !self.is_recoded()
            && !head.headers.contains_key(CONTENT_ENCODING);
        self.learn_from(head);
        let Demand { shared, request, requester, way, .. } = &*self;
        let (rules, comparison) = (&shared.rules, &shared.knowledge.comparison);
        let sampling = page_comparison::compare_head(
            rules,
            comparison,
            request,
            head,
            *requester,
            self.may_compare,
        );
        let body = page_comparison::sampled(rules, comparison, sampling, body);
        if rules.settings.behind_cdn && request.method.is_safe() {
            cdn::vary_on_prefetch_header(&mut head.headers);
        }
        let Some(insertion) = insertion else {
            if self.no_script.of_reply(&head.headers).is_none() {
                script_insertion::revalidated(page_script(*way), request, requester.scheme(), head);
            }
            return body;
        };
        let insertion = if rules.settings.behind_cdn {
            // The page is for all visitors of a cache key.
            insertion.keeping_coding()
        } else {
            insertion
                .offering_rules(rules.settings.speculation_rules && *way == DeliveryMethod::Cache)
                .waiting(shared.upstream.monitor.wait(rules.now()))
                .holding_back(requester.group(&request.headers, &shared.visitors.clients))
        };
        insertion.rewrite_head(&mut head.headers);
        if request.method == Method::HEAD {
            return body;
        }
        PageBody::body(shared, &request.uri, insertion.inserter(), body, !self.is_private, true)
    }

    fn ended(self: Box<Self>, outcome: &Outcome) {
        let Demand { shared, request, requester, .. } = &*self;
        let Some(target) = request.uri.path_and_query() else { return };
        let is_answered = request.method == Method::GET && outcome.status == 200;
        // Scripts and frames request URLs without navigations, often such that look like pages.
        let is_no_navigation = UrlKind::of(target.path()) == UrlKind::Page
            && !script_insertion::is_document(&request.headers);
        if let Some(time) = outcome.time_to_first_byte.filter(|_| is_answered) {
            shared.counts.demand.record(time);
        }
        if !self.teaches {
            return;
        }
        if let Some(time) = outcome.upstream_time.filter(|_| is_answered) {
            shared.upstream.monitor.answered(target.as_str(), shared.rules.now(), time);
        }
        // A length is included in hints, so it must be that of the public page.
        let is_named = shared.rules.name_of(target.as_str()) == target.as_str();
        let is_shareable = !self.is_private && is_named;
        if is_answered && is_shareable && self.is_plain && outcome.failure.is_none() {
            shared.knowledge.lengths.record(target.as_str(), outcome.bytes);
        }
        if is_no_navigation {
            return;
        }
        let is_taken = shared.knowledge.learner.visited(Visited {
            address: requester.address,
            agent: learner::agent(&request.headers),
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

/// Whether a browser marks a request as a prefetch, such as by speculation rules.
fn is_prefetch(headers: &HeaderMap) -> bool {
    ["sec-purpose", "purpose", "x-moz"].iter().any(|name| headers.contains_key(*name))
}
