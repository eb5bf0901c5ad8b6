//! A prefetch: let through by the rules, kept by the browser by the rules.

use std::sync::Arc;

use http::header::LOCATION;
use http::{HeaderValue, Response, StatusCode, request, response};

use super::clock::wall;
use super::heads::whole;
use super::learner::{self, Visited};
use super::page_body::{Munged, inspected};
use super::page_comparison;
use super::prefetch_body::guarded;
use super::replies;
use super::requester::Requester;
use super::service_worker::{self, page_script};
use super::shared::Shared;
use crate::munge;
use crate::policy::{self, Admitted, CopyTag, NotAhead, Offence, Refusal, Way, fields};
use crate::proxy::{Body, Connection, Decision, Exchange, Failure, PrefetchPriority};

struct Ahead {
    shared: Arc<Shared>,
    request: request::Parts,
    requester: Requester,
    admitted: Admitted,
    /// Where it has come from, if that was the site's service worker.
    worker: Option<HeaderValue>,
}

/// What a prefetch gets that is not let through.
pub(super) fn refused() -> Decision {
    Decision::Answer(Response::from_parts(policy::refused(), Body::empty()))
}

/// The same to the site's service worker.
pub(super) fn refused_to(origin: Option<&HeaderValue>) -> Decision {
    Decision::Answer(nothing_for(origin))
}

fn nothing_for(origin: Option<&HeaderValue>) -> Response<Body> {
    let mut response = Response::from_parts(policy::refused(), Body::empty());
    if let Some(origin) = origin {
        service_worker::let_read(response.headers_mut(), origin);
    }
    response
}

/// Whether a prefetch has failed because the server is not there, or has no room: what it cannot do for
/// visitors either.
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

/// Lets a prefetch of the script's pass, if the rules do.
pub(super) fn admit(
    shared: &Arc<Shared>,
    head: &mut request::Parts,
    requester: Requester,
    connection: &Arc<Connection>,
    tags: &[CopyTag],
) -> Decision {
    if policy::is_look(&head.headers) {
        // The script sees by this that no cache in front answers in our place.
        return refused();
    }
    let admitted = shared.rules.policy().admit(head, requester.client, shared.rules.now());
    let Some(admitted) = let_through(shared, requester, admitted) else { return refused() };
    // The browser has a copy that was stored for other cookies, and asks nothing of the origin.
    if let Some(renewed) = renew(shared, head, requester, tags) {
        return renewed;
    }
    let target = whole(&head.uri);
    shared.visitors.awaited.began(requester.client, target, connection, shared.rules.now());
    watch(shared, head, requester, admitted, None)
}

/// Tells a browser that it may use the copy that it has, if it may.
pub(super) fn renew(
    shared: &Shared,
    head: &request::Parts,
    requester: Requester,
    tags: &[CopyTag],
) -> Option<Decision> {
    if tags.is_empty() || !shared.rules.is_active() || requester.by_cache {
        return None;
    }
    let renewed = shared.rules.policy().renew(head, tags, shared.rules.now())?;
    shared.counts.renewed.one();
    let name = shared.rules.name_of(whole(&head.uri));
    shared.visitors.caps.asked(requester.client, name, shared.rules.now());
    Some(Decision::Answer(Response::from_parts(renewed, Body::empty())))
}

/// Has a browser store the copy that it has for the cookies of this request, if its user is anonymous. What
/// is refused drops the copy. The origin hears of neither.
pub(super) fn confirm(
    shared: &Shared,
    head: &request::Parts,
    requester: Requester,
    tags: &[CopyTag],
) -> Decision {
    let may = replies::is_from_the_site(head);
    renew(shared, head, requester, tags).filter(|_| may).unwrap_or_else(refused)
}

/// Lets a prefetch by the script's speculation rules pass, if the rules do. It comes over a
/// connection of demand, which stays where it is.
pub(super) fn admit_by_rules(
    shared: &Arc<Shared>,
    head: &mut request::Parts,
    requester: Requester,
) -> Decision {
    let admitted = shared.rules.policy().admit_by_rules(head, requester.client, shared.rules.now());
    match let_through(shared, requester, admitted) {
        Some(admitted) => watch(shared, head, requester, admitted, None),
        None => refused(),
    }
}

/// Leads a browser that follows the script's speculation rules on to `url`.
///
/// What rules name, a browser keeps beside its cache, and gives it to a navigation to that URL for
/// minutes, whatever `Vary` and `max-age` say and whoever has signed in meanwhile (seen in Chromium
/// 156). So they name this here, to which nobody navigates; what it leads to lies in the cache
/// only, and there all of the rules hold.
pub(super) fn lead(
    shared: &Shared,
    head: &request::Parts,
    requester: Requester,
    url: &str,
) -> Decision {
    let location = HeaderValue::from_str(url).ok();
    let led = if shared.rules.settings.speculation_rules {
        shared.rules.policy().lead(head, url, shared.rules.now())
    } else {
        Err(NotAhead::Mark.into())
    };
    let Some((location, ())) = location.zip(let_through(shared, requester, led)) else {
        return refused();
    };
    let mut response = replies::empty(StatusCode::TEMPORARY_REDIRECT);
    response.headers_mut().insert(LOCATION, location);
    Decision::Answer(response)
}

/// What the rules let through, as long as anything is fetched ahead, the upstream has room, and the
/// visitor has bytes left.
pub(super) fn let_through<T>(
    shared: &Shared,
    requester: Requester,
    admitted: Result<T, Refusal>,
) -> Option<T> {
    let why = match admitted {
        Ok(_) if !shared.rules.is_active() => "nothing is fetched ahead now".to_owned(),
        // It would keep the copy as well. The page at hand may have come past it.
        Ok(_) if requester.by_cache => "it came by way of a cache that visitors share".to_owned(),
        // A list that was given out before may still be carried out.
        Ok(_) if shared.upstream.monitor.bars_prefetches() => {
            "it is being learned how long the server takes by itself".to_owned()
        }
        // Nor is a link that the visitor points at now: its list may be minutes old.
        Ok(_) if shared.upstream.monitor.is_spent() => {
            "the server has nothing to spare now".to_owned()
        }
        Ok(_) if !shared.upstream.has_room_ahead() => {
            "the server has half of what it may have at a time".to_owned()
        }
        Ok(_) if shared.visitors.backoff.left(requester.client, shared.rules.now()).is_some() => {
            "the server has refused this client's prefetches a moment ago".to_owned()
        }
        Ok(_) if !shared.visitors.caps.spend(requester.client, shared.rules.now(), 0) => {
            "the day's bytes are fetched ahead".to_owned()
        }
        Ok(admitted) => return Some(admitted),
        Err(refusal) => refusal.to_string(),
    };
    shared.counts.refused.one();
    shared.notices.refused(why);
    None
}

/// Lets a prefetch pass. `worker` is where the service worker has come from, if it is one of its.
pub(super) fn watch(
    shared: &Arc<Shared>,
    head: &mut request::Parts,
    requester: Requester,
    admitted: Admitted,
    worker: Option<HeaderValue>,
) -> Decision {
    shared.counts.prefetches.one();
    policy::upstream_request(&mut head.headers);
    Decision::Watch(Box::new(Ahead {
        shared: Arc::clone(shared),
        request: head.clone(),
        requester,
        admitted,
        worker,
    }))
}

/// Whether what was to be fetched is no page for everybody any more.
fn is_lost(why: &Refusal) -> bool {
    let Refusal::Unkept(why) = why else { return false };
    matches!(why.offence(), Some(Offence::Gone | Offence::Redirect))
}

/// Has the model begin anew to count who got a page. It would go on to suggest it for weeks: nobody who
/// visits the site is told that it is not there.
fn tell_model(shared: &Shared, request: &request::Parts, requester: Requester, status: StatusCode) {
    let Some(target) = request.uri.path_and_query() else { return };
    shared.knowledge.learner.visited(Visited {
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

impl Exchange for Ahead {
    fn prefetch(&self) -> Option<PrefetchPriority> {
        let Ahead { shared, request, requester, .. } = self;
        let priority = shared.visitors.priorities.of(requester.client, whole(&request.uri));
        Some(PrefetchPriority { client: requester.client.0, priority })
    }

    fn response(&mut self, head: &mut response::Parts, body: Body) -> Body {
        let Ahead { shared, request, requester, admitted, worker } = self;
        let url = whole(&request.uri);
        let way = if worker.is_some() { Way::Worker } else { Way::Cache };
        let sampling = page_comparison::begin(
            &shared.rules,
            &shared.knowledge.comparison,
            request,
            head,
            *requester,
            true,
        );
        let body =
            page_comparison::sampled(&shared.rules, &shared.knowledge.comparison, sampling, body);
        // The navigation that takes the copy finds the script in it. What a page says of itself
        // is asked before the rules write their own headers.
        let munging = munge::decide_for(page_script(way), request, requester.scheme(), head);
        let inspector = match &munging {
            Ok(_) => Ok(None),
            Err(_) => munge::inspect(&head.headers),
        };
        let kept = shared.rules.policy().keep(admitted, head, shared.rules.now(), wall());
        if let Err(why) = &kept {
            shared.unkept(*requester, &request.uri, head.status, &why.to_string());
            if is_lost(why) {
                tell_model(shared, request, *requester, head.status);
            }
        } else if let Err(why) = &inspector {
            // It may opt out.
            shared.unkept(*requester, &request.uri, head.status, &why.to_string());
            shared.rules.policy().bar(url, Offence::NotPublic, shared.rules.now());
        }
        let (Ok(ttl), Ok(inspector)) = (kept, inspector) else {
            shared.counts.unkept.one();
            // What the upstream still has to say is not waited for.
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
        let body = match (munging, inspector) {
            (Ok(munging), _) => {
                let rules = shared.rules.settings.speculation_rules && way == Way::Cache;
                let munging = munging
                    .offering_rules(rules)
                    .holding_back(requester.group(&request.headers, &shared.visitors.clients));
                munging.rewrite_head(&mut head.headers);
                Munged::body(shared, &request.uri, munging.munger(), body, true, false)
            }
            (Err(_), Some(inspector)) => inspected(shared, &request.uri, inspector, body),
            (Err(_), None) => body,
        };
        guarded(shared, admitted, *requester, &request.uri, body)
    }

    /// A browser would hold a 503 against the site, and fetches nothing for a while.
    fn failed(&mut self, failure: Failure) -> Option<Response<Body>> {
        let Ahead { shared, request, worker, .. } = self;
        if is_of_load(failure) {
            shared.upstream.monitor.refused(shared.rules.now());
        }
        shared.counts.unkept.one();
        shared.notices.left_out(request.uri.path(), failure.to_string());
        let mut response = nothing_for(worker.as_ref());
        if failure == Failure::NotNow {
            shared.counts.not_now.one();
            policy::not_now(response.headers_mut());
        }
        Some(response)
    }
}
