//! Hints and reports: the messages of the script (`docs/reference/web-protocol.md`).

use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode, request};
use lull_speculate::budget::{Grant, Wanted};
use lull_speculate::observe::Kind as UrlKind;

use super::byte_caps::Caps;
use super::counts::Counts;
use super::learner::{Learner, Visited};
use super::navigations::Navigation;
use super::payback::Payback;
use super::requester::Requester;
use super::select_hints::{Ask, Ranked};
use super::shared::Shared;
use super::site_rules::SiteRules;
use super::visitors::Visitors;
use super::{cdn, reasons, replies};
use crate::policy::{self, DeliveryMethod, Visitor, fields};
use crate::protocol::{
    Beacon, HintsReply, HintsRequest, MAX_COPIES, MAX_ENTRIES, MAX_MESSAGE_BYTES, NavigationKind,
};
use crate::proxy::{Body, RequestBody};

/// When a client over its rate should ask again.
const RATE_LIMIT_PAUSE: Duration = Duration::from_secs(30);

/// A list, possibly empty. Never 503: after that, browsers send nothing for a while.
pub(super) async fn hints(
    shared: Arc<Shared>,
    request: Request<RequestBody>,
    requester: Requester,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let is_json = fields::single(&head.headers, CONTENT_TYPE)
        .is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    if !is_json || !replies::is_from_the_site(&head) {
        // This is also the case if a proxy in front changes the Host.
        shared.counts.empty.one("foreign");
        return replies::empty(StatusCode::FORBIDDEN);
    }
    shared.counts.asked.one();
    // Before its body is read: otherwise a client over its rate would make the proxy work for nothing.
    let asking = match Asking::admit(&shared, &head, requester) {
        Ok(asking) => asking,
        Err(reply) => return replies::json(&head, &reply),
    };
    let Some(message) = replies::read(body, MAX_MESSAGE_BYTES).await else {
        return replies::empty(StatusCode::PAYLOAD_TOO_LARGE);
    };
    let Ok(mut asked) = HintsRequest::decode(&message) else {
        shared.counts.rejected.one();
        return replies::empty(StatusCode::BAD_REQUEST);
    };
    if requester.is_of_held_page(asked.held, &head.headers, &shared.visitors.clients) {
        shared.counts.empty.one("held_back");
        return replies::json(&head, &HintsReply::never());
    }
    asked.page.truncate(shared.rules.name_of(&asked.page).len());
    replies::json(&head, &reply(&shared, &head, asked, asking).await)
}

/// A client that may have a list, by the head of its request.
struct Asking {
    requester: Requester,
    visitor: Visitor,
    way: DeliveryMethod,
}

impl Asking {
    /// The reply to a client that may have none.
    fn admit(
        shared: &Shared,
        head: &request::Parts,
        requester: Requester,
    ) -> Result<Self, HintsReply> {
        let way = shared.workers.way(head, requester, shared.rules.now());
        let never = |why| {
            shared.counts.empty.one(why);
            Err(HintsReply::never())
        };
        let visitor = match policy::visitor(&head.headers, shared.rules.harmless(), way) {
            Ok(visitor) => visitor,
            Err(why) => return never(reasons::of_visitor(&why)),
        };
        if !shared.rules.is_active() {
            return never(reasons::OFF);
        }
        if requester.by_cache {
            return never(reasons::CACHE);
        }
        if let Some(left) = shared.visitors.backoff.left(requester.client, shared.rules.now()) {
            shared.counts.empty.one("server_refuses");
            return Err(later(visitor, left));
        }
        if !shared.visitors.rates.admit(requester.client, shared.rules.now()) {
            shared.counts.empty.one("too_often");
            return Err(later(visitor, RATE_LIMIT_PAUSE));
        }
        if !shared.visitors.caps.spend(requester.client, shared.rules.now(), 0) {
            return never("byte_cap");
        }
        Ok(Asking { requester, visitor, way })
    }
}

/// An empty list, for a client that may ask again.
fn later(visitor: Visitor, wait: Duration) -> HintsReply {
    HintsReply::new(policy::value_for_list(visitor).to_owned(), Vec::new(), Some(wait))
}

async fn reply(
    shared: &Shared,
    head: &request::Parts,
    asked: HintsRequest,
    asking: Asking,
) -> HintsReply {
    let Asking { requester, visitor, way } = asking;
    let counts = &shared.counts;
    let (visitors, learner) = (&shared.visitors, &shared.knowledge.learner);
    learn_asked((&*shared.rules, visitors, learner), head, &asked, requester, way);
    for part in asked.used {
        used((&visitors.caps, counts, &shared.payback, learner), head, part, requester);
    }
    if asked.barred {
        counts.empty.one("service_worker");
        return HintsReply::never();
    }
    let most = if way == DeliveryMethod::Worker { MAX_COPIES } else { MAX_ENTRIES };
    let (first, most) = (asked.had.is_empty(), most.saturating_sub(asked.had.len()));
    // The worker's script does not see where visitors point.
    let points = asked.hover && way == DeliveryMethod::Cache;
    let Some(mut ranked) = learner.ask(Ask { page: asked.page, points, had: asked.had }).await
    else {
        counts.empty.one(if learner.is_reading() { "learning" } else { "busy" });
        return later(visitor, RATE_LIMIT_PAUSE);
    };
    if way == DeliveryMethod::Worker {
        ranked.retain_pages();
    }
    let Some(wanted) = ranked.wanted(most, first, shared.upstream.monitor.document()) else {
        counts.empty.one(ranked.why_none);
        return HintsReply::never();
    };
    match grant(shared, wanted, &mut ranked) {
        Grant::Empty { again } => {
            counts.empty.one("no_budget");
            later(visitor, again)
        }
        Grant::List { length, after } => {
            // SSR §5.2.1.2: the load of an epoch is spread over it.
            tokio::time::sleep(after).await;
            let (why_none, is_none) = (ranked.why_none, length == 0 || wanted.files == 0);
            let list = ranked.list(length as usize);
            if is_none {
                counts.empty.one(why_none);
            } else {
                counts.lists.one();
                counts.hints.add(list.at_once as u64);
            }
            shared.visitors.priorities.listed(requester.client, &list.hints);
            let rules =
                shared.rules.settings.speculation_rules && policy::tags_rules(&head.headers);
            let wait = (!is_none).then_some(Duration::ZERO);
            HintsReply::new(policy::value_for_list(visitor).to_owned(), list.hints, wait)
                .by_rules(rules)
        }
    }
}

/// How long a list may be now.
fn grant(shared: &Shared, wanted: Wanted, ranked: &mut Ranked) -> Grant {
    if wanted.files > 0 && !shared.is_worth_prefetching() {
        ranked.why_none = "unused";
        // Only for links that the visitor points at.
        return Grant::List { length: 0, after: Duration::ZERO };
    }
    shared.upstream.grant(shared.rules.now(), wanted)
}

/// Learns a page that came out of a cache, the browser's or a CDN's, from its question. A navigation to a copy of the
/// service worker was already seen by the proxy.
fn learn_asked(
    (rules, visitors, learner): (&SiteRules, &Visitors, &Learner),
    head: &request::Parts,
    asked: &HintsRequest,
    requester: Requester,
    way: DeliveryMethod,
) {
    let now = rules.now();
    let is_first = asked.first && way == DeliveryMethod::Cache;
    let is_of_cdn = is_first && !asked.cached && rules.settings.behind_cdn;
    if is_of_cdn
        && visitors.cached_pages.is_unseen(requester.client, &head.headers, &asked.page, now)
    {
        let visited = Visited::of_copy(head, asked.page.clone(), requester);
        learner.shown(visited);
    }
    if is_first
        && asked.cached
        && visitors.cached_pages.asked(requester.client, &head.headers, &asked.page, now)
    {
        visitors.log_visit(head, &asked.page, requester, now);
        let visited = Visited::of_copy(head, asked.page.clone(), requester);
        learner.shown(visited);
    }
}

/// A page took a subresource from the cache. If that was prefetched, it counts as requested: otherwise
/// correct predictions would be learned as wrong.
fn used(
    (caps, counts, payback, learner): (&Caps, &Counts, &Payback, &Learner),
    head: &request::Parts,
    part: String,
    requester: Requester,
) {
    if UrlKind::of(&part) != UrlKind::Embedded {
        return;
    }
    let bytes = caps.used(requester.client, &part);
    if bytes > 0 {
        counts.used_bytes.add(bytes);
        payback.part_used(bytes);
        learner.shown(Visited::of_copy(head, part, requester));
    }
}

/// Takes a report.
pub(super) async fn beacon(
    shared: Arc<Shared>,
    request: Request<RequestBody>,
    requester: Requester,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    if !replies::is_from_the_site(&head) {
        return replies::empty(StatusCode::FORBIDDEN);
    }
    // A client that sends more of them than pages can be read invents them: they are not parsed.
    if !shared.visitors.rates.admit(requester.client, shared.rules.now()) {
        return replies::empty(StatusCode::NO_CONTENT);
    }
    let Some(message) = replies::read(body, MAX_MESSAGE_BYTES).await else {
        return replies::empty(StatusCode::PAYLOAD_TOO_LARGE);
    };
    let Ok(mut beacon) = Beacon::decode(&message) else {
        shared.counts.rejected.one();
        return replies::empty(StatusCode::BAD_REQUEST);
    };
    let came_as = shared.rules.name_of(beacon.came_as()).to_owned();
    beacon.page.truncate(shared.rules.name_of(&beacon.page).len());
    if let Some(target) = &beacon.awaits {
        shared.visitors.awaited.is_wanted(requester.client, target, shared.rules.now());
    }
    count(&shared, &head, &beacon, &came_as, requester);
    learn(&shared, &head, beacon, &came_as, requester);
    replies::empty(StatusCode::NO_CONTENT)
}

/// Learns that a page was shown to a visitor who may get hints. If the script has requested hints, the visit
/// is known by that. The order of visits uses the name at that time: a page renamed since its navigation
/// teaches nothing here.
fn learn(
    shared: &Shared,
    head: &request::Parts,
    beacon: Beacon,
    came_as: &str,
    requester: Requester,
) {
    let Some(nav) = &beacon.nav else { return };
    let way = shared.workers.way(head, requester, shared.rules.now());
    let is_unknown =
        policy::visitor(&head.headers, shared.rules.harmless(), way).is_ok() && !requester.by_cache;
    // A copy of the service worker is a navigation that the proxy has seen.
    let may = is_unknown
        && way == DeliveryMethod::Cache
        && shared.rules.is_active()
        && !requester.is_of_held_page(beacon.held, &head.headers, &shared.visitors.clients);
    if came_as != beacon.page {
        if nav.cached {
            shared.visitors.cached_pages.renamed(
                requester.client,
                &head.headers,
                [came_as, &beacon.page],
            );
        }
        return;
    }
    if may
        && shared.visitors.cached_pages.reported(
            requester.client,
            &head.headers,
            &beacon.page,
            nav,
            shared.rules.now(),
        )
    {
        shared.visitors.log_visit(head, &beacon.page, requester, shared.rules.now());
        shared.knowledge.learner.shown(Visited::of_copy(head, beacon.page, requester));
    }
}

/// Counts a page by its delivery.
fn count(
    shared: &Shared,
    head: &request::Parts,
    beacon: &Beacon,
    came_as: &str,
    requester: Requester,
) {
    if !cdn::counts(&shared.rules, head) {
        return;
    }
    shared.counts.beacons.one();
    // Reloads and history navigations use the cache or not, independently of prefetches.
    let Some(nav) = beacon.nav.as_ref().filter(|nav| nav.kind == NavigationKind::Navigate) else {
        return;
    };
    let is_held_back =
        requester.is_of_held_page(beacon.held, &head.headers, &shared.visitors.clients);
    let group = if is_held_back { &shared.counts.without } else { &shared.counts.with };
    // A cached page may be there since a visit.
    let used = if nav.cached { shared.visitors.caps.used(requester.client, came_as) } else { 0 };
    shared.counts.used_bytes.add(used);
    if used > 0 {
        shared.payback.page_used(used);
    }
    if !is_held_back {
        shared.counts.page_table.viewed(came_as, used);
    }
    let millis = |time: f64| Duration::from_secs_f64(time / 1e3);
    let navigation = Navigation {
        cached: nav.cached,
        ahead: used > 0,
        ttfb: millis(nav.ttfb),
        lcp: nav.lcp.map(millis),
        // 0: it was left before it had loaded.
        load: Some(nav.load).filter(|load| *load > 0.0).map(millis),
    };
    group.record(shared.rules.now(), &navigation);
}
