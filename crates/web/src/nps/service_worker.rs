//! The service worker, for browsers whose navigations do not use a script's prefetch from the cache: the
//! source of its copies, and when it may show one.
//!
//! It fetches from its own port, so its connections are in the background as a whole. It shows a copy only if
//! the answer to the navigation itself says so: see [`crate::policy::Policy::show`] and
//! `docs/prefetch-safety.md`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    CONTENT_TYPE, HeaderValue,
};
use http::{HeaderMap, StatusCode, request, response};
use lull_cc::Timestamp;

use super::access;
use super::requester::Requester;
use super::settings::ServiceWorker;
use crate::policy::{self, DeliveryMethod, fields};
use crate::proxy::{Address, Event};
use crate::script::{self, Script};

/// How long no visitor gets a worker after the site's own was seen.
const OWN_SEEN_FOR: Duration = Duration::from_secs(24 * 3600);

/// The known service workers: ours, and the site's own.
#[derive(Debug)]
pub(super) struct Workers {
    wanted: Option<ServiceWorker>,
    /// The script that stays, once the address of its requests is known.
    here: OnceLock<Script>,
    /// The script that removes itself.
    gone: Script,
    /// When a browser last asked for one of the site's own, in seconds from 1 on; 0 if none has.
    own_seen: AtomicU64,
}

impl Workers {
    pub(super) fn new(wanted: Option<ServiceWorker>) -> Self {
        Workers {
            wanted,
            here: OnceLock::new(),
            gone: script::service_worker(None, Duration::ZERO),
            own_seen: AtomicU64::new(0),
        }
    }

    /// The proxy listens here for the service worker's requests. It starts once.
    pub(super) fn listens_at(&self, at: Address) {
        if let Some(of) = self.wanted {
            let _ = self.here.set(script::service_worker(Some(at.address.port()), of.life));
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// Whether visitors may have the service worker: the owner wants it, and the site has none.
    pub(super) fn is_offered(&self, now: Timestamp) -> bool {
        let seen = self.own_seen.load(Ordering::Relaxed);
        let is_ready = self.is_wanted() && self.here.get().is_some();
        is_ready && (seen == 0 || seconds(now) >= seen + OWN_SEEN_FOR.as_secs())
    }

    /// How the sender of a request gets prefetched pages, if at all.
    pub(super) fn way(
        &self,
        head: &request::Parts,
        requester: Requester,
        now: Timestamp,
    ) -> DeliveryMethod {
        // Browsers permit service workers over HTTPS, and on the same machine. A browser that has Lull's
        // worker also gets the script where there is none any more: it removes the worker.
        let is_possible = (requester.secure || access::is_named_local(head))
            && (self.is_offered(now) || policy::has_names(&head.headers));
        let may = self.is_wanted() && is_possible;
        if may && policy::needs_a_worker(&head.headers) {
            DeliveryMethod::Worker
        } else {
            DeliveryMethod::Cache
        }
    }

    /// Takes note of a reply that gives a browser a service worker of the site's own. Lull's would be beside
    /// it, so it is withdrawn everywhere. Returns the event for the owner, if that is news.
    pub(super) fn look_for_own(
        &self,
        request: &request::Parts,
        head: &response::Parts,
        now: Timestamp,
    ) -> Option<Event> {
        if !self.is_wanted() || !gives_worker(request, head) {
            return None;
        }
        let is_news = self.is_offered(now);
        self.own_seen.store(seconds(now), Ordering::Relaxed);
        is_news.then(|| Event::SiteHasWorker { path: request.uri.path().to_owned() })
    }

    /// The script of the service worker: the one that stays where it is offered, otherwise the one that removes itself.
    pub(super) fn script(&self, may: bool) -> &Script {
        self.here.get().filter(|_| may).unwrap_or(&self.gone)
    }
}

/// Whole seconds since the start, from 1 on.
fn seconds(now: Timestamp) -> u64 {
    now.saturating_since(Timestamp::ZERO).as_secs() + 1
}

/// Whether a browser asks for a service worker (Service Workers §4.3.2, `Service-Worker: script`), and gets
/// one. Browsers continue to ask for a removed worker of the site for months, and robots ask for anything.
fn gives_worker(request: &request::Parts, head: &response::Parts) -> bool {
    let says = |name: &str, value: &str| fields::single(&request.headers, name) == Some(value);
    says("service-worker", "script")
        && says("sec-fetch-dest", "serviceworker")
        && head.status == StatusCode::OK
        && fields::single(&head.headers, CONTENT_TYPE).is_some_and(is_javascript)
}

/// Whether browsers accept a type as JavaScript (MIME Sniffing §4.6). They accept no worker of another type.
fn is_javascript(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().to_ascii_lowercase();
    ["javascript", "ecmascript", "jscript", "livescript"].iter().any(|name| kind.contains(name))
}

/// The script for pages.
pub(super) fn page_script(way: DeliveryMethod) -> &'static Script {
    match way {
        DeliveryMethod::Cache => script::script(),
        DeliveryMethod::Worker => script::script_by_worker(),
    }
}

/// Lets only the site's service worker read a reply from another port than the site's.
pub(super) fn let_read(headers: &mut HeaderMap, origin: &HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
    headers.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
}
