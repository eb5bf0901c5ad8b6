//! The proxy's own answers: everything below `/.lull/`.

use std::sync::Arc;

use http::header::{
    ALLOW, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, LOCATION, REFERRER_POLICY,
    WWW_AUTHENTICATE, X_FRAME_OPTIONS,
};
use http::{Method, Response, StatusCode, request};

use super::access::Verdict;
use super::heads::whole;
use super::prefetch_limits::PrefetchLimits;
use super::replies::{empty, of_script, with};
use super::requester::Requester;
use super::shared::Shared;
use super::{hints, prefetches, prometheus, status, worker_requests};
use crate::protocol::{BEACON_PATH, HINTS_PATH, LEAD_PATH, WORKER_PATH};
use crate::proxy::{Body, Decision};
use crate::script::{self, script, script_by_worker};

/// Whether a path belongs to Lull.
pub(super) fn is_own(path: &str) -> bool {
    path.strip_prefix("/.lull").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers.
pub(super) fn answer(
    shared: &Arc<Shared>,
    head: &request::Parts,
    requester: Requester,
) -> Decision {
    let path = head.uri.path();
    for script in [script(), script_by_worker()] {
        if path == script.path {
            return Decision::Answer(of_script(head, script, script::CACHE_CONTROL));
        }
    }
    if path == WORKER_PATH {
        let script = worker_requests::worker_script(shared, head, requester);
        let mut response = of_script(head, script, script::WORKER_CACHE_CONTROL);
        response.headers_mut().insert(worker_requests::ALLOWED, HeaderValue::from_static("/"));
        return Decision::Answer(response);
    }
    if let Some(url) = whole(&head.uri).strip_prefix(LEAD_PATH).filter(|url| url.starts_with('/')) {
        return prefetches::lead(&PrefetchLimits::of(shared), head, requester, url);
    }
    if FIGURES.contains(&path) {
        return Decision::Answer(figures(shared, head));
    }
    // As a user types it to find the dashboard.
    if path == "/.lull" {
        let mut response = empty(StatusCode::TEMPORARY_REDIRECT);
        let query = head.uri.query().map_or_else(String::new, |query| format!("?{query}"));
        if let Ok(to) = HeaderValue::try_from(format!("/.lull/{query}")) {
            response.headers_mut().insert(LOCATION, to);
        }
        return Decision::Answer(response);
    }
    let shared = Arc::clone(shared);
    if ![HINTS_PATH, BEACON_PATH].contains(&path) {
        return Decision::Answer(empty(StatusCode::NOT_FOUND));
    }
    if head.method != Method::POST {
        let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Decision::Answer(response);
    }
    Decision::AnswerLater(if path == HINTS_PATH {
        Box::new(move |request| Box::pin(hints::hints(shared, request, requester)))
    } else {
        Box::new(move |request| Box::pin(hints::beacon(shared, request, requester)))
    })
}

/// The dashboard, its data, and the same for Prometheus.
pub(super) const FIGURES: [&str; 4] =
    ["/.lull/", "/.lull/status", "/.lull/history", "/.lull/metrics"];

/// The figures, under another name than the site's, such as one of this machine. For a client without access
/// this is a request for another host.
pub(super) fn redirect_to_name(shared: &Shared, head: &request::Parts) -> Option<Response<Body>> {
    let is_asked = FIGURES.contains(&head.uri.path());
    let may = is_asked && shared.verdict(head) == Verdict::Look;
    may.then(|| figures(shared, head))
}

/// The dashboard, for clients with access.
fn figures(shared: &Shared, head: &request::Parts) -> Response<Body> {
    match shared.verdict(head) {
        Verdict::Look => {}
        Verdict::Nothing => return empty(StatusCode::NOT_FOUND),
        Verdict::Ask => {
            let mut response = empty(StatusCode::UNAUTHORIZED);
            let ask = HeaderValue::from_static(r#"Basic realm="Lull", charset="UTF-8""#);
            response.headers_mut().insert(WWW_AUTHENTICATE, ask);
            return response;
        }
    }
    if head.method != Method::GET && head.method != Method::HEAD {
        return empty(StatusCode::METHOD_NOT_ALLOWED);
    }
    let (body, kind) = match head.uri.path() {
        "/.lull/" => (status::DASHBOARD.into(), "text/html; charset=utf-8"),
        "/.lull/status" => (status::json(shared).to_string().into(), "application/json"),
        "/.lull/history" => {
            let mut history = shared.history.json(shared.rules.now());
            history["pages"] = shared.counts.page_table.json();
            (history.to_string().into(), "application/json")
        }
        _ => (prometheus::prometheus(shared).into(), lull_metrics::CONTENT_TYPE),
    };
    let mut response = with(StatusCode::OK, body, "no-store");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(DASHBOARD_POLICY));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    // The token may be in the page's own URL.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// The dashboard is one file, and only sends requests to the proxy.
const DASHBOARD_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; \
    style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lull_folder_is_reserved() {
        for (path, expected) in [
            ("/.lull", true),
            ("/.lull/", true),
            ("/.lull/hints", true),
            ("/.lullaby", false),
            ("/", false),
            ("/a/.lull/hints", false),
            ("/a/.lull/mark", false),
        ] {
            assert_eq!(is_own(path), expected, "{path}");
        }
    }
}
