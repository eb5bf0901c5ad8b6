//! A prefetch: let through by the rules, kept by the browser by the rules.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{Response, request, response};

use super::guarded::Guarded;
use super::munged::Munged;
use super::who::Who;
use super::{Shared, wall};
use crate::munge;
use crate::policy::{self, Admitted};
use crate::proxy::{Body, Connection, Decision, Exchange};

struct Ahead {
    shared: Arc<Shared>,
    request: request::Parts,
    who: Who,
    admitted: Admitted,
}

/// What a prefetch gets that is not let through.
pub(super) fn refused() -> Decision {
    Decision::Answer(Response::from_parts(policy::refused(), Body::empty()))
}

/// Lets a prefetch pass, if the rules do.
pub(super) fn admit(
    shared: &Arc<Shared>,
    head: &mut request::Parts,
    who: Who,
    connection: &Arc<Connection>,
) -> Decision {
    let now = shared.now();
    let may = shared.is_active() && shared.caps.spend(who.client, now, 0);
    let admitted = shared.policy().admit(head, who.secure, who.client, now, wall());
    let Some(admitted) = admitted.ok().filter(|_| may) else {
        shared.counts.refused.one();
        return refused();
    };
    shared.counts.prefetches.one();
    let target = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    shared.awaited.began(who.client, target, connection);
    policy::upstream_request(&mut head.headers);
    Decision::Watch(Box::new(Ahead {
        shared: Arc::clone(shared),
        request: head.clone(),
        who,
        admitted,
    }))
}

impl Exchange for Ahead {
    fn response(&mut self, head: &mut response::Parts, body: Body) -> Body {
        let Ahead { shared, request, who, admitted } = self;
        // The navigation that takes the copy finds the script in it. What a page says of itself
        // is asked before the rules write their own headers.
        let munging = munge::decide(request, who.scheme(), head);
        let kept = shared.policy().keep(admitted, head, shared.now(), wall());
        if kept.is_err() {
            shared.counts.unkept.one();
            // What the upstream still has to say is not waited for.
            *head = policy::refused();
            return Body::empty();
        }
        let body = match munging {
            Ok(munging) => {
                munging.rewrite_head(&mut head.headers);
                Munged::body(shared, &request.uri, munging.munger(), body)
            }
            Err(_) => body,
        };
        Guarded::body(shared, admitted, *who, &request.uri, body)
    }
}
