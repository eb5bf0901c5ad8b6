//! The state that all requests of a site share, in parts. A function takes the parts that it needs, and [`Shared`] only
//! where it needs most of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{StatusCode, Uri, request};

use super::access::{self, Verdict};
use super::counts::Counts;
use super::history::History;
use super::notices::Notices;
use super::payback::Payback;
use super::requester::Requester;
use super::saved_state::SavedState;
use super::service_worker::Workers;
use super::sharing::Sharing;
use super::site_knowledge::SiteKnowledge;
use super::site_names::SiteNames;
use super::site_rules::SiteRules;
use super::upstream_state::UpstreamState;
use super::visitors::Visitors;
use crate::proxy::Connection;

/// The parts.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) rules: Arc<SiteRules>,
    pub(super) notices: Arc<Notices>,
    pub(super) knowledge: SiteKnowledge,
    pub(super) counts: Counts,
    pub(super) payback: Payback,
    pub(super) visitors: Visitors,
    pub(super) upstream: UpstreamState,
    pub(super) workers: Workers,
    pub(super) names: SiteNames,
    pub(super) history: History,
    pub(super) saved: SavedState,
    /// Several proxies of the site; none if this is the only one.
    pub(super) sharing: Option<Arc<Sharing>>,
    /// Whether the proxy listens on a public address.
    pub(super) is_public: AtomicBool,
}

impl Shared {
    /// Takes note of a prefetch that is not kept. If the server refused it for lack of room, there are fewer
    /// prefetches, and none for this client for a while.
    pub(super) fn not_cacheable(
        &self,
        requester: Requester,
        uri: &Uri,
        status: StatusCode,
        why: &str,
    ) {
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            let now = self.rules.now();
            self.upstream.monitor.refused(now);
            self.visitors.backoff.start(requester.client, now);
        }
        self.notices.left_out(uri.path(), why.to_owned());
    }

    /// The sender of a request.
    pub(super) fn requester(&self, head: &request::Parts, connection: &Connection) -> Requester {
        Requester::of(head, connection, &self.visitors.clients, &self.notices)
    }

    /// Whether visitors use enough of what is prefetched, so that more may be.
    pub(super) fn is_worth_prefetching(&self) -> bool {
        let sent = self.upstream.totals().map_or(0, |totals| totals.bytes_sent);
        self.payback.is_worth_it(sent, self.counts.prefetched_bytes.get())
    }

    /// Whether the sender of a request may see the dashboard.
    pub(super) fn verdict(&self, head: &request::Parts) -> Verdict {
        let is_public = self.is_public.load(Ordering::Relaxed);
        access::verdict(&self.rules.settings.access, is_public, head)
    }
}
