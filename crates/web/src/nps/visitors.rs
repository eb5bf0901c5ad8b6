//! State about the site's visitors.

use std::sync::Mutex;

use http::request;
use lull_cc::Timestamp;

use super::awaited_prefetches::AwaitedPrefetches;
use super::backoff::Backoff;
use super::byte_caps::Caps;
use super::cached_pages::CachedPages;
use super::hint_priorities::HintPriorities;
use super::lock::lock;
use super::rates::Rates;
use super::requester::{Clients, Requester};
use crate::proxy::VisitLog;

/// State by client. Each table has a fixed size.
#[derive(Debug)]
pub(super) struct Visitors {
    pub(super) clients: Clients,
    pub(super) rates: Rates,
    pub(super) backoff: Backoff,
    pub(super) caps: Caps,
    pub(super) cached_pages: CachedPages,
    pub(super) awaited: AwaitedPrefetches,
    pub(super) priorities: HintPriorities,
    /// The access log, until the end.
    log: Mutex<Option<VisitLog>>,
}

impl Visitors {
    pub(super) fn new(clients: Clients, caps: Caps) -> Self {
        Visitors {
            clients,
            rates: Rates::default(),
            backoff: Backoff::default(),
            caps,
            cached_pages: CachedPages::default(),
            awaited: AwaitedPrefetches::default(),
            priorities: HintPriorities::default(),
            log: Mutex::default(),
        }
    }

    /// Writes visits to `log` from now on; `None` closes it.
    pub(super) fn set_log(&self, log: Option<VisitLog>) {
        *lock(&self.log) = log;
    }

    /// Logs a page that came out of a visitor's cache, if it was a prefetched copy: the proxy has not
    /// seen the request.
    pub(super) fn log_visit(
        &self,
        head: &request::Parts,
        page: &str,
        requester: Requester,
        now: Timestamp,
    ) {
        if self.caps.shows(requester.client, page, now)
            && let Some(log) = &*lock(&self.log)
        {
            log.write(requester.address, page, head);
        }
    }
}
