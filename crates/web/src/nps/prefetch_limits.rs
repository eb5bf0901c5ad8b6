//! The limits of prefetches: room at the server, and the bytes of a visitor.

use super::counts::Counts;
use super::notices::Notices;
use super::requester::Requester;
use super::shared::Shared;
use super::site_rules::SiteRules;
use super::upstream_state::UpstreamState;
use super::visitors::Visitors;
use crate::policy::Refusal;

/// The parts that decide whether a prefetch is permitted now.
pub(super) struct PrefetchLimits<'a> {
    pub(super) rules: &'a SiteRules,
    pub(super) counts: &'a Counts,
    pub(super) visitors: &'a Visitors,
    notices: &'a Notices,
    upstream: &'a UpstreamState,
}

impl<'a> PrefetchLimits<'a> {
    pub(super) fn of(shared: &'a Shared) -> Self {
        let Shared { rules, counts, visitors, notices, upstream, .. } = shared;
        PrefetchLimits { rules, counts, visitors, notices, upstream }
    }

    /// The result of the rules, if prefetching is enabled, the upstream has capacity, and the visitor has bytes
    /// left.
    pub(super) fn admit<T>(&self, requester: Requester, admitted: Result<T, Refusal>) -> Option<T> {
        let why = match admitted {
            Ok(_) if !self.rules.is_active() => "prefetching is disabled now".to_owned(),
            // The shared cache would keep the copy as well. The current page may have bypassed it.
            Ok(_) if requester.by_cache => "it came through a shared cache".to_owned(),
            // An earlier list may still be in use.
            Ok(_) if self.upstream.monitor.bars_prefetches() => {
                "the server's usual response time is being learned".to_owned()
            }
            // Nor is a link that the visitor points at now: its list may be minutes old.
            Ok(_) if self.upstream.monitor.is_spent() => {
                "the server has no spare capacity now".to_owned()
            }
            Ok(_) if !self.upstream.has_room_ahead() => {
                "the server has half of its maximum of concurrent requests".to_owned()
            }
            Ok(_) if self.visitors.backoff.left(requester.client, self.rules.now()).is_some() => {
                "the server has just rejected prefetches of this client".to_owned()
            }
            Ok(_) if !self.visitors.caps.spend(requester.client, self.rules.now(), 0) => {
                "the daily limit of prefetched bytes is reached".to_owned()
            }
            Ok(admitted) => return Some(admitted),
            Err(refusal) => refusal.to_string(),
        };
        self.counts.refused.one();
        self.notices.refused(why);
        None
    }
}
