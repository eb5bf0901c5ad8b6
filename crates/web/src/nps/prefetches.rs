//! Prefetches: permitted by the rules, and kept by the browser if the rules permit it.

use std::sync::Arc;

use http::header::LOCATION;
use http::{HeaderValue, Response, StatusCode, request, response};

use super::clock::wall;
use super::heads::whole;
use super::learner::{self, Learner, Visited};
use super::page_body::{PageBody, inspected};
use super::page_comparison;
use super::prefetch_body::guarded;
use super::prefetch_limits::PrefetchLimits;
use super::replies;
use super::requester::Requester;
use super::service_worker::{self, page_script};
use super::shared::Shared;
use crate::policy::{
    self, Admitted, CopyTag, DeliveryMethod, NotAPrefetch, Offence, Refusal, fields,
};
use crate::proxy::{Body, Connection, Decision, Exchange, Failure, PrefetchPriority};
use crate::script_insertion;

struct PrefetchExchange {
    shared: Arc<Shared>,
    request: request::Parts,
    requester: Requester,
    admitted: Admitted,
    /// Its origin, if it came from the site's service worker.
    worker: Option<HeaderValue>,
}

/// The answer to a rejected prefetch.
pub(super) fn refused() -> Decision {
    Decision::Answer(Response::from_parts(policy::refused(), Body::empty()))
}

/// The same for the site's service worker.
pub(super) fn refused_to(origin: Option<&HeaderValue>) -> Decision {
    Decision::Answer(empty_reply_for(origin))
}

fn empty_reply_for(origin: Option<&HeaderValue>) -> Response<Body> {
    let mut response = Response::from_parts(policy::refused(), Body::empty());
    if let Some(origin) = origin {
        service_worker::let_read(response.headers_mut(), origin);
    }
    response
}

/// Whether a prefetch has failed because the server is unreachable or out of capacity, which would affect
/// visitors too.
fn is_of_load(failure: Failure) -> bool {
    matches!(
        failure,
        Failure::Unreachable
            | Failure::ConnectTimeout
            | Failure::HeadTimeout
            | Failure::Reset
            | Failure::Busy
    )
}

/// Passes a prefetch of the script, if the rules permit it.
pub(super) fn admit(
    shared: &Arc<Shared>,
    head: &mut request::Parts,
    requester: Requester,
    connection: &Arc<Connection>,
    tags: &[CopyTag],
) -> Decision {
    if policy::is_server_check(&head.headers) {
        // With this the script sees that no cache in front answers instead.
        return refused();
    }
    let admitted = shared.rules.policy().admit(head, requester.client, shared.rules.now());
    let limits = PrefetchLimits::of(shared);
    let Some(admitted) = limits.admit(requester, admitted) else { return refused() };
    // The browser has a copy that was stored for other cookies, and requests nothing from the origin.
    if let Some(renewed) = renew(&limits, head, requester, tags) {
        return renewed;
    }
    let target = whole(&head.uri);
    shared.visitors.awaited.began(requester.client, target, connection, shared.rules.now());
    watch(shared, head, requester, admitted, None)
}

/// Allows a browser to use its copy, if that is permitted.
pub(super) fn renew(
    limits: &PrefetchLimits<'_>,
    head: &request::Parts,
    requester: Requester,
    tags: &[CopyTag],
) -> Option<Decision> {
    if tags.is_empty() || !limits.rules.is_active() || requester.by_cache {
        return None;
    }
    let renewed = limits.rules.policy().renew(head, tags, limits.rules.now())?;
    limits.counts.renewed.one();
    let name = limits.rules.name_of(whole(&head.uri));
    limits.visitors.caps.asked(requester.client, name, limits.rules.now());
    Some(Decision::Answer(Response::from_parts(renewed, Body::empty())))
}

/// Stores the copy of a browser for the cookies of this request, if its user is anonymous. A rejection drops
/// the copy. The origin gets neither request.
pub(super) fn confirm(
    limits: &PrefetchLimits<'_>,
    head: &request::Parts,
    requester: Requester,
    tags: &[CopyTag],
) -> Decision {
    let may = replies::is_from_the_site(head);
    renew(limits, head, requester, tags).filter(|_| may).unwrap_or_else(refused)
}

/// Passes a prefetch by the script's speculation rules, if the rules permit it. It comes over a connection of
/// demand, which stays where it is.
pub(super) fn admit_by_rules(
    shared: &Arc<Shared>,
    head: &mut request::Parts,
    requester: Requester,
) -> Decision {
    let admitted = shared.rules.policy().admit_by_rules(head, requester.client, shared.rules.now());
    match PrefetchLimits::of(shared).admit(requester, admitted) {
        Some(admitted) => watch(shared, head, requester, admitted, None),
        None => refused(),
    }
}

/// Redirects a browser that follows the script's speculation rules to `url`.
///
/// A browser keeps the URL of a rule beside its cache. For minutes it uses that for a navigation to the URL,
/// despite `Vary`, `max-age` and a sign-in meanwhile (seen in Chromium 156). So rules contain this URL, to
/// which no navigation goes. Its redirect's target is stored in the cache only, where all of the rules hold.
pub(super) fn lead(
    limits: &PrefetchLimits<'_>,
    head: &request::Parts,
    requester: Requester,
    url: &str,
) -> Decision {
    let location = HeaderValue::from_str(url).ok();
    let led = if limits.rules.settings.speculation_rules {
        limits.rules.policy().lead(head, url, limits.rules.now())
    } else {
        Err(NotAPrefetch::Header.into())
    };
    let Some((location, ())) = location.zip(limits.admit(requester, led)) else {
        return refused();
    };
    let mut response = replies::empty(StatusCode::TEMPORARY_REDIRECT);
    response.headers_mut().insert(LOCATION, location);
    Decision::Answer(response)
}

/// Passes a prefetch. `worker` is the origin of the service worker, if that sent it.
pub(super) fn watch(
    shared: &Arc<Shared>,
    head: &mut request::Parts,
    requester: Requester,
    admitted: Admitted,
    worker: Option<HeaderValue>,
) -> Decision {
    shared.counts.prefetches.one();
    policy::upstream_request(&mut head.headers);
    Decision::Watch(Box::new(PrefetchExchange {
        shared: Arc::clone(shared),
        request: head.clone(),
        requester,
        admitted,
        worker,
    }))
}

/// Whether the URL is no longer a public page.
fn is_lost(why: &Refusal) -> bool {
    let Refusal::NotCacheable(why) = why else { return false };
    matches!(why.offence(), Some(Offence::Gone | Offence::Redirect))
}

/// Makes the model count the clients of a page from zero. Otherwise it would suggest the page for weeks: no
/// visitor reports that it is missing.
fn record_in_model(
    learner: &Learner,
    request: &request::Parts,
    requester: Requester,
    status: StatusCode,
) {
    let Some(target) = request.uri.path_and_query() else { return };
    learner.visited(Visited {
        address: requester.address,
        agent: learner::agent(&request.headers),
        target: target.as_str().to_owned(),
        at: wall(),
        status: status.as_u16(),
        bytes: 0,
        took: None,
        prefetch: true,
        private: false,
    });
}

impl Exchange for PrefetchExchange {
    fn prefetch(&self) -> Option<PrefetchPriority> {
        let PrefetchExchange { shared, request, requester, .. } = self;
        let priority = shared.visitors.priorities.get(requester.client, whole(&request.uri));
        Some(PrefetchPriority { client: requester.client.0, priority })
    }

    fn response(&mut self, head: &mut response::Parts, body: Body) -> Body {
        let PrefetchExchange { shared, request, requester, admitted, worker } = self;
        let url = whole(&request.uri);
        let way = if worker.is_some() { DeliveryMethod::Worker } else { DeliveryMethod::Cache };
        let sampling = page_comparison::compare_head(
            &shared.rules,
            &shared.knowledge.comparison,
            request,
            head,
            *requester,
            true,
        );
        let body =
            page_comparison::sampled(&shared.rules, &shared.knowledge.comparison, sampling, body);
        // The navigation that uses the copy finds the script in it. An opt-out of the page is read before the
        // rules write their own headers.
        let insertion =
            script_insertion::decide_for(page_script(way), request, requester.scheme(), head);
        let inspector = match &insertion {
            Ok(_) => Ok(None),
            Err(_) => script_insertion::inspect(&head.headers),
        };
        let kept = shared.rules.policy().admit_reply(admitted, head, shared.rules.now(), wall());
        if let Err(why) = &kept {
            shared.not_cacheable(*requester, &request.uri, head.status, &why.to_string());
            if is_lost(why) {
                record_in_model(&shared.knowledge.learner, request, *requester, head.status);
            }
        } else if let Err(why) = &inspector {
            // It may opt out.
            shared.not_cacheable(*requester, &request.uri, head.status, &why.to_string());
            shared.rules.policy().bar(url, Offence::NotPublic, shared.rules.now());
        }
        let (Ok(ttl), Ok(inspector)) = (kept, inspector) else {
            shared.counts.unkept.one();
            // The rest of the upstream's answer is not awaited.
            *head = policy::refused();
            if let Some(origin) = worker {
                service_worker::let_read(&mut head.headers, origin);
            }
            return Body::empty();
        };
        if let Some(origin) = worker {
            let name = shared.rules.policy().name(ttl, admitted);
            service_worker::let_read(&mut head.headers, origin);
            fields::set(&mut head.headers, policy::COPY, &name);
        }
        let body = match (insertion, inspector) {
            (Ok(insertion), _) => {
                let rules = shared.rules.settings.speculation_rules && way == DeliveryMethod::Cache;
                let insertion = insertion
                    .offering_rules(rules)
                    .holding_back(requester.group(&request.headers, &shared.visitors.clients));
                insertion.rewrite_head(&mut head.headers);
                PageBody::body(shared, &request.uri, insertion.inserter(), body, true, false)
            }
            (Err(_), Some(inspector)) => inspected(shared, &request.uri, inspector, body),
            (Err(_), None) => body,
        };
        guarded(shared, admitted, *requester, &request.uri, body)
    }

    /// After a 503, a browser would fetch nothing for a while.
    fn failed(&mut self, failure: Failure) -> Option<Response<Body>> {
        let PrefetchExchange { shared, request, worker, .. } = self;
        if is_of_load(failure) {
            shared.upstream.monitor.refused(shared.rules.now());
        }
        shared.counts.unkept.one();
        shared.notices.left_out(request.uri.path(), failure.to_string());
        let mut response = empty_reply_for(worker.as_ref());
        if failure == Failure::NotNow {
            shared.counts.not_now.one();
            policy::not_now(response.headers_mut());
        }
        Some(response)
    }
}
