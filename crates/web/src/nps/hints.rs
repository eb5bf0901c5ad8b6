//! Hints and reports: what the script asks and says (`docs/web-protocol.md`).

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Request, Response, StatusCode, request};
use lull_speculate::budget::Grant;

use super::desk::{Ask, Visited};
use super::own;
use super::who::Who;
use super::{Shared, wall};
use crate::policy::{self, Mark, fields};
use crate::protocol::{Beacon, HintsReply, HintsRequest, LONGEST_MESSAGE};
use crate::proxy::{Body, RequestBody};

/// Who asks too often asks again after so long.
const TOO_OFTEN: Duration = Duration::from_secs(30);

/// A list, perhaps empty. Never 503: browsers hold that against the site.
pub(super) async fn hints(
    shared: Arc<Shared>,
    request: Request<RequestBody>,
    who: Who,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let is_json = fields::single(&head.headers, CONTENT_TYPE)
        .is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    if !is_json || !own::is_from_the_site(&head) {
        return own::empty(StatusCode::FORBIDDEN);
    }
    let Some(message) = own::read(body, LONGEST_MESSAGE).await else {
        return own::empty(StatusCode::PAYLOAD_TOO_LARGE);
    };
    let Ok(asked) = HintsRequest::decode(&message) else {
        return own::empty(StatusCode::BAD_REQUEST);
    };
    own::json(&reply(&shared, &head, asked, who).await)
}

async fn reply(
    shared: &Shared,
    head: &request::Parts,
    asked: HintsRequest,
    who: Who,
) -> HintsReply {
    let Ok(visitor) = policy::visitor(&head.headers, who.secure, &shared.harmless) else {
        return HintsReply::never();
    };
    let mark = Mark::of(visitor, wall()).text();
    let later = |wait| HintsReply::new(mark.clone(), Vec::new(), Some(wait));
    if !shared.rates.admit(who.client, shared.now()) {
        return later(TOO_OFTEN);
    }
    if asked.first && asked.cached {
        shared.desk.shown(shown(head, &asked, who));
    }
    let ask = Ask { page: asked.page, had: asked.had };
    let Some(mut hints) = shared.desk.ask(ask).await else { return later(TOO_OFTEN) };
    if hints.is_empty() {
        // Nothing more will come to mind as long as the page is the same.
        return HintsReply::never();
    }
    match shared.monitor.ask(shared.now()) {
        Grant::Empty { again } => later(again),
        Grant::List { length, after } => {
            // SSR §5.2.1.2: the load of an epoch is spread over it.
            tokio::time::sleep(after).await;
            hints.truncate(length as usize);
            HintsReply::new(mark, hints, Some(Duration::ZERO))
        }
    }
}

/// A page that came out of the cache, as a visit. It says nothing of the page itself.
fn shown(head: &request::Parts, asked: &HintsRequest, who: Who) -> Visited {
    Visited {
        address: who.address,
        agent: fields::single(&head.headers, USER_AGENT).unwrap_or_default().to_owned(),
        target: asked.page.clone(),
        at: wall(),
        status: StatusCode::NOT_MODIFIED.as_u16(),
        bytes: 0,
        took: None,
        prefetch: false,
        private: false,
    }
}

/// Takes a report.
pub(super) async fn beacon(
    shared: Arc<Shared>,
    request: Request<RequestBody>,
    who: Who,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    if !own::is_from_the_site(&head) {
        return own::empty(StatusCode::FORBIDDEN);
    }
    let Some(message) = own::read(body, LONGEST_MESSAGE).await else {
        return own::empty(StatusCode::PAYLOAD_TOO_LARGE);
    };
    if Beacon::decode(&message).is_err() {
        return own::empty(StatusCode::BAD_REQUEST);
    }
    // Reports are counted by nobody who sends more of them than pages can be read.
    let _ = shared.rates.admit(who.client, shared.now());
    own::empty(StatusCode::NO_CONTENT)
}
