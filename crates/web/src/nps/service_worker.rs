//! The service worker, for browsers in which a navigation takes nothing from the cache that a script
//! has fetched: where it fetches from, and when it may show what it has.
//!
//! It fetches from a port of its own, so its connections are in the background as a whole. It shows a
//! copy if the answer to the navigation itself says so, and only then: see
//! [`crate::policy::Policy::show`] and `docs/prefetch-safety.md`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN, PRAGMA, REFERER,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, Response, StatusCode, Uri, request, response};

use super::desk::Visited;
use super::who::Who;
use super::{Shared, access, ahead};
use crate::munge;
use crate::policy::{self, Way, fields};
use crate::proxy::{Address, Body, Connection, Decision, Event};
use crate::script::{self, Script};

/// What an owner can set of the service worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceWorker {
    /// How long it stays in a browser without having anything to fetch. It leaves by its own clock;
    /// the proxy need not be there any more.
    pub life: Duration,
}

impl Default for ServiceWorker {
    /// An hour.
    fn default() -> Self {
        ServiceWorker { life: Duration::from_secs(3600) }
    }
}

/// How long no visitor gets one after the site's own was seen.
const OWN_SEEN_FOR: Duration = Duration::from_secs(24 * 3600);

/// What is known of service workers: ours, and the site's own.
#[derive(Debug)]
pub(super) struct Workers {
    /// The script that stays, once it is known where it fetches from.
    here: OnceLock<Script>,
    /// The script that goes.
    gone: Script,
    /// When a browser last asked for one of the site's own, in seconds from 1 on; 0 if none has.
    own_seen: AtomicU64,
}

impl Default for Workers {
    fn default() -> Self {
        Workers {
            here: OnceLock::new(),
            gone: script::service_worker(None, Duration::ZERO),
            own_seen: AtomicU64::new(0),
        }
    }
}

impl Workers {
    /// Is told where the service worker fetches from.
    pub(super) fn listens_at(&self, at: Address, of: ServiceWorker) {
        // A proxy starts once.
        let _ = self.here.set(script::service_worker(Some(at.address.port()), of.life));
    }
}

impl Shared {
    /// Whether visitors may have the service worker: the owner wants it, and the site has none.
    fn offers_worker(&self) -> bool {
        let seen = self.workers.own_seen.load(Ordering::Relaxed);
        let is_wanted = self.settings.service_worker.is_some() && self.workers.here.get().is_some();
        is_wanted && (seen == 0 || self.seconds() >= seen + OWN_SEEN_FOR.as_secs())
    }

    /// How the sender of a request is given pages ahead, if at all.
    pub(super) fn way(&self, head: &request::Parts, who: Who) -> Way {
        // Browsers have service workers where nobody can listen in, and on the same machine. Who
        // has ours already gets the script also where there is none any more: it tidies up.
        let is_possible = (who.secure || access::is_named_local(head))
            && (self.offers_worker() || policy::has_names(&head.headers));
        let may = self.settings.service_worker.is_some() && is_possible;
        if may && policy::needs_a_worker(&head.headers) { Way::Worker } else { Way::Cache }
    }

    /// Whole seconds since the start, from 1 on.
    fn seconds(&self) -> u64 {
        self.begun.elapsed().as_secs() + 1
    }

    /// Takes note of a reply that gives a browser a service worker of the site's own: from then on ours
    /// is beside it, so it goes everywhere.
    pub(super) fn look_for_own_worker(&self, request: &request::Parts, head: &response::Parts) {
        if self.settings.service_worker.is_none() || !gives_worker(request, head) {
            return;
        }
        let is_news = self.offers_worker();
        self.workers.own_seen.store(self.seconds(), Ordering::Relaxed);
        if let Some(listener) = self.listener.get().filter(|_| is_news) {
            listener.tell(&Event::SiteHasWorker { path: request.uri.path().to_owned() });
        }
    }
}

/// Whether a browser asks for a service worker (Service Workers §4.3.2, `Service-Worker: script`), and
/// gets one. For one that the site had long ago they go on to ask for months, and robots ask for anything.
fn gives_worker(request: &request::Parts, head: &response::Parts) -> bool {
    let says = |name: &str, value: &str| fields::single(&request.headers, name) == Some(value);
    says("service-worker", "script")
        && says("sec-fetch-dest", "serviceworker")
        && head.status == StatusCode::OK
        && fields::single(&head.headers, CONTENT_TYPE).is_some_and(is_javascript)
}

/// Whether browsers take a type for JavaScript (MIME Sniffing §4.6). They take no worker of another.
fn is_javascript(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().to_ascii_lowercase();
    ["javascript", "ecmascript", "jscript", "livescript"].iter().any(|name| kind.contains(name))
}

/// The script for pages.
pub(super) fn page_script(way: Way) -> &'static Script {
    match way {
        Way::Cache => script::script(),
        Way::Worker => script::script_by_worker(),
    }
}

/// The service worker's script: for whom there are hints the one that stays, for all others the one
/// that goes. Browsers ask for it after each navigation, so that is how they hear of an end.
pub(super) fn worker_script<'a>(shared: &'a Shared, head: &request::Parts, who: Who) -> &'a Script {
    let is_unknown = policy::visitor(&head.headers, &shared.harmless, Way::Worker).is_ok();
    let may = is_unknown && !who.by_cache && shared.is_active() && shared.offers_worker();
    shared.workers.here.get().filter(|_| may).unwrap_or(&shared.workers.gone)
}

/// What goes with it: it may be for all of the site although it lies below `/.lull/`.
pub(super) const ALLOWED: HeaderName = HeaderName::from_static("service-worker-allowed");

/// A request from the port that is for the service worker and for nothing else.
pub(super) fn ahead(
    shared: &Arc<Shared>,
    head: &mut request::Parts,
    connection: &Connection,
) -> Decision {
    let site = policy::site_of_a_worker(head);
    let Some(site) = site.and_then(|site| HeaderValue::from_str(site.as_str()).ok()) else {
        return ahead::refused();
    };
    let origin = head.headers.get(ORIGIN).cloned();
    let who = Who::of(head, connection, shared);
    let admitted = shared.policy().admit_for_worker(head, who.client, shared.now());
    // From here on it is as if it had come by the site's own port.
    let path = head.uri.path_and_query().cloned();
    head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    head.headers.insert(HOST, site);
    let is_offered = shared.offers_worker() && shared.is_of_the_site(head);
    let admitted = admitted.map(|admitted| Some(admitted).filter(|_| is_offered));
    let Some(admitted) = ahead::let_through(shared, who, admitted).flatten() else {
        return ahead::refused_to(origin.as_ref());
    };
    // The last two are what a browser adds for a request that goes past its own cache.
    for name in [ORIGIN, REFERER, CACHE_CONTROL, PRAGMA] {
        head.headers.remove(name);
    }
    if head.headers.contains_key("sec-fetch-site") {
        head.headers.insert("sec-fetch-site", HeaderValue::from_static("same-origin"));
    }
    ahead::watch(shared, head, who, admitted, origin)
}

/// Lets the site's service worker read a reply from another port than the site's, and nobody else.
pub(super) fn let_read(headers: &mut HeaderMap, origin: &HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
    headers.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
}

/// What is read by who shows the answer itself in place of the copy that it names, which no service
/// worker of ours does: the page is asked for once more, as a reload, which is never shown a copy.
const NO_COPY: &str = "<!doctype html><script>location.reload()</script>";

/// The answer to a navigation that is shown a copy, if it may be shown one of those that the service
/// worker has.
pub(super) fn show(
    shared: &Shared,
    head: &request::Parts,
    who: Who,
    names: &str,
) -> Option<Decision> {
    let may = shared.is_active() && !who.by_cache && shared.offers_worker();
    if !may || names.is_empty() || !munge::is_document(&head.headers) {
        return None;
    }
    let copy = {
        let policy = shared.policy();
        let copy = policy.show(head, names, who.client, shared.now())?;
        HeaderValue::from_str(copy).ok()?
    };
    shared.counts.shown.one();
    let target = head.uri.path_and_query()?.as_str().to_owned();
    shared.desk.visited(Visited::of_copy(head, target, who));
    let mut response = Response::new(Body::full(NO_COPY));
    let headers = response.headers_mut();
    headers.insert(policy::COPY, copy);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    Some(Decision::Answer(response))
}

/// Whether the reply to a navigation says that the service worker is still wanted.
pub(super) fn stays(shared: &Shared, way: Way) -> bool {
    way == Way::Worker && shared.offers_worker()
}
