//! Requests of the service worker, and navigations that it may answer by a copy.

use std::sync::Arc;

use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN, PRAGMA, REFERER,
};
use http::uri::PathAndQuery;
use http::{Response, Uri, request};

use super::learner::Visited;
use super::prefetch_limits::PrefetchLimits;
use super::prefetches;
use super::requester::Requester;
use super::shared::Shared;
use crate::policy::{self, DeliveryMethod};
use crate::proxy::{Body, Connection, Decision};
use crate::script::Script;
use crate::script_insertion;

/// The service worker's script: the permanent one for visitors with hints, the self-removing one for all
/// others. Browsers check it after each navigation, which is how a removal reaches them.
pub(super) fn worker_script<'a>(
    shared: &'a Shared,
    head: &request::Parts,
    requester: Requester,
) -> &'a Script {
    let is_unknown =
        policy::visitor(&head.headers, shared.rules.harmless(), DeliveryMethod::Worker).is_ok();
    let is_offered = shared.workers.is_offered(shared.rules.now());
    let may = is_unknown && !requester.by_cache && shared.rules.is_active() && is_offered;
    shared.workers.script(may)
}

/// Its header: it may control the whole site although it is below `/.lull/`.
pub(super) const ALLOWED: HeaderName = HeaderName::from_static("service-worker-allowed");

/// A request from the port that is only for the service worker.
pub(super) fn prefetch(
    shared: &Arc<Shared>,
    head: &mut request::Parts,
    connection: &Connection,
) -> Decision {
    let site = policy::site_of_a_worker(head);
    let Some(site) = site.and_then(|site| HeaderValue::from_str(site.as_str()).ok()) else {
        return prefetches::refused();
    };
    let origin = head.headers.get(ORIGIN).cloned();
    let requester = shared.requester(head, connection);
    let admitted =
        shared.rules.policy().admit_for_worker(head, requester.client, shared.rules.now());
    // From here on it is handled as if it had come by the site's own port.
    let path = head.uri.path_and_query().cloned();
    head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    head.headers.insert(HOST, site);
    let is_offered =
        shared.workers.is_offered(shared.rules.now()) && shared.rules.is_own_host(head);
    let admitted = admitted.map(|admitted| Some(admitted).filter(|_| is_offered));
    let Some(admitted) = PrefetchLimits::of(shared).admit(requester, admitted).flatten() else {
        return prefetches::refused_to(origin.as_ref());
    };
    // A browser adds the last two to a request that bypasses its own cache.
    for name in [ORIGIN, REFERER, CACHE_CONTROL, PRAGMA] {
        head.headers.remove(name);
    }
    if head.headers.contains_key("sec-fetch-site") {
        head.headers.insert("sec-fetch-site", HeaderValue::from_static("same-origin"));
    }
    prefetches::watch(shared, head, requester, admitted, origin)
}

/// The answer for a browser that shows it instead of the named copy, which our service worker never does: the
/// page is requested again, as a reload, which never shows a copy.
const NO_COPY: &str = "<!doctype html><script>location.reload()</script>";

/// The answer to a navigation that is shown one of the service worker's copies, if it may be.
pub(super) fn show(
    shared: &Shared,
    head: &request::Parts,
    requester: Requester,
    names: &str,
) -> Option<Decision> {
    let may = shared.rules.is_active()
        && !requester.by_cache
        && shared.workers.is_offered(shared.rules.now());
    if !may || names.is_empty() || !script_insertion::is_document(&head.headers) {
        return None;
    }
    let copy = {
        let policy = shared.rules.policy();
        let copy = policy.show(head, names, requester.client, shared.rules.now())?;
        HeaderValue::from_str(copy).ok()?
    };
    shared.counts.shown.one();
    let target = head.uri.path_and_query()?.as_str().to_owned();
    shared.knowledge.learner.visited(Visited::of_copy(head, target, requester));
    let mut response = Response::new(Body::full(NO_COPY));
    let headers = response.headers_mut();
    headers.insert(policy::COPY, copy);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    Some(Decision::Answer(response))
}

/// Whether the reply to a navigation says that the service worker is still wanted.
pub(super) fn stays(shared: &Shared, way: DeliveryMethod) -> bool {
    way == DeliveryMethod::Worker && shared.workers.is_offered(shared.rules.now())
}
