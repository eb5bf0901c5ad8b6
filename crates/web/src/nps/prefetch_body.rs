//! The reply to a prefetch, as long as it may still be sent.

use std::sync::Arc;

use http::Uri;
use lull_speculate::observe::Kind;

use super::heads::whole;
use super::observed_body::{BodyObserver, observed};
use super::requester::Requester;
use super::shared::Shared;
use crate::policy::Admitted;
use crate::proxy::{Body, BoxError};

/// Ends the body in an error when its visitor has used up the day's bytes, or the kill switch is on. It also
/// does when the URL is barred, which the body itself may cause. Browsers keep no partial copy. The body ends
/// with its next piece.
struct PrefetchGuard {
    shared: Arc<Shared>,
    admitted: Admitted,
    requester: Requester,
    path: String,
    sent: u64,
}

/// Why a prefetch ends early.
#[derive(Debug, thiserror::Error)]
enum Enough {
    #[error("the daily limit of prefetched bytes is reached")]
    Bytes,
    #[error("prefetching is switched off")]
    Off,
}

/// `body`, the reply at `url`, as long as the rules permit it.
pub(super) fn guarded(
    shared: &Arc<Shared>,
    admitted: &Admitted,
    requester: Requester,
    url: &Uri,
    body: Body,
) -> Body {
    let guard = PrefetchGuard {
        shared: Arc::clone(shared),
        admitted: admitted.clone(),
        requester,
        path: shared.rules.name_of(whole(url)).to_owned(),
        sent: 0,
    };
    observed(body, guard)
}

impl BodyObserver for PrefetchGuard {
    fn check(&mut self) -> Result<(), BoxError> {
        let rules = &self.shared.rules;
        if !rules.is_active() {
            return Err(Enough::Off.into());
        }
        Ok(rules.policy().check_in_flight(&self.admitted, rules.now())?)
    }

    fn data(&mut self, data: &[u8]) -> Result<(), BoxError> {
        let bytes = data.len() as u64;
        self.sent += bytes;
        self.shared.counts.prefetched_bytes.add(bytes);
        let now = self.shared.rules.now();
        let may_go_on = self.shared.visitors.caps.spend(self.requester.client, now, bytes);
        if may_go_on { Ok(()) } else { Err(Enough::Bytes.into()) }
    }

    fn end(&mut self) {
        let now = self.shared.rules.now();
        self.shared.visitors.caps.copied(self.requester.client, &self.path, self.sent, now);
        if Kind::of(&self.path) == Kind::Page {
            self.shared.counts.page_table.prefetched(&self.path, self.sent);
        }
    }
}
