//! Notices for the owner: events, and the last reason for each kind of trouble, which the dashboard shows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use http::request;

use super::heads::asked_host;
use super::lock::lock;
use super::shared_cache;
use crate::proxy::{Event, Listener};

/// A URL that was left out, and why.
pub(super) type LeftOut = (String, String);

/// Notices to the owner.
#[derive(Debug)]
pub(super) struct Notices {
    listener: OnceLock<Listener>,
    has_told_cdn: AtomicBool,
    has_told_forwarded: AtomicBool,
    /// Why robots.txt is unknown, if it is.
    robots_trouble: Mutex<Option<String>>,
    /// Why the last prefetch was rejected.
    refusal: Mutex<Option<String>>,
    /// The last URL that was left out of a list, or not kept after its prefetch, and why.
    left_out: Mutex<Option<LeftOut>>,
}

impl Default for Notices {
    fn default() -> Self {
        Notices {
            listener: OnceLock::new(),
            has_told_cdn: AtomicBool::new(false),
            has_told_forwarded: AtomicBool::new(false),
            robots_trouble: Mutex::new(Some("it was not requested so far".to_owned())),
            refusal: Mutex::default(),
            left_out: Mutex::default(),
        }
    }
}

impl Notices {
    /// Events go to `listener` from now on. A proxy starts once.
    pub(super) fn listen(&self, listener: &Listener) {
        let _ = self.listener.set(listener.clone());
    }

    /// Reports an event to the owner.
    pub(super) fn report(&self, event: &Event) {
        if let Some(listener) = self.listener.get() {
            listener.report(event);
        }
    }

    /// The same as a function for any thread.
    pub(super) fn reporter(self: &Arc<Self>) -> impl Fn(&Event) + Clone + Send + use<> {
        let notices = Arc::clone(self);
        move |event: &Event| notices.report(event)
    }

    /// Reports a host that does not belong to the site.
    pub(super) fn other_host(&self, head: &request::Parts) {
        let host = String::from_utf8_lossy(asked_host(head).unwrap_or(b"?"));
        self.report(&Event::NoneOfSite { host: host.chars().take(80).collect() });
    }

    /// Reports once that requests come through a shared cache.
    pub(super) fn shared_cache(&self, head: &request::Parts) {
        if let Some(name) = shared_cache::sign(head)
            && !self.has_told_cdn.swap(true, Ordering::Relaxed)
        {
            self.report(&Event::BehindCdn { name });
        }
    }

    /// Reports once an `X-Forwarded-For` without a readable address.
    pub(super) fn unread_forwarded(&self, value: &str) {
        if !self.has_told_forwarded.swap(true, Ordering::Relaxed) {
            self.report(&Event::ForwardedUnread { value: value.chars().take(80).collect() });
        }
    }

    pub(super) fn set_robots_trouble(&self, why: Option<String>) {
        *lock(&self.robots_trouble) = why;
    }

    pub(super) fn robots_trouble(&self) -> Option<String> {
        lock(&self.robots_trouble).clone()
    }

    pub(super) fn refused(&self, why: String) {
        *lock(&self.refusal) = Some(why);
    }

    pub(super) fn refusal(&self) -> Option<String> {
        lock(&self.refusal).clone()
    }

    pub(super) fn left_out(&self, url: &str, why: String) {
        *lock(&self.left_out) = Some((url.to_owned(), why));
    }

    pub(super) fn last_left_out(&self) -> Option<LeftOut> {
        lock(&self.left_out).clone()
    }
}
