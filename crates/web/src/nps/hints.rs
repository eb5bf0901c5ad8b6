//! Hints and reports: what the script asks and says (`docs/web-protocol.md`).

use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode, request};
use lull_speculate::budget::{Grant, Wanted};
use lull_speculate::observe::Kind as UrlKind;

use super::desk::{Ask, Visited};
use super::navigations::Navigation;
use super::own;
use super::ranking::Ranked;
use super::who::Who;
use super::{Shared, reasons};
use crate::policy::{self, Visitor, Way, fields};
use crate::protocol::{
    Beacon, Hint, HintsReply, HintsRequest, Kind, LONGEST_MESSAGE, MOST_COPIES, MOST_ENTRIES,
    NavigationKind,
};
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
        // So it is, too, if a proxy in front changes the Host.
        shared.counts.empty.one("foreign");
        return own::empty(StatusCode::FORBIDDEN);
    }
    shared.counts.asked.one();
    // Before anything of it is read: else who asks too often has the proxy work for nothing.
    let asking = match Asking::admit(&shared, &head, who) {
        Ok(asking) => asking,
        Err(reply) => return own::json(&head, &reply),
    };
    let Some(message) = own::read(body, LONGEST_MESSAGE).await else {
        return own::empty(StatusCode::PAYLOAD_TOO_LARGE);
    };
    let Ok(mut asked) = HintsRequest::decode(&message) else {
        shared.counts.rejected.one();
        return own::empty(StatusCode::BAD_REQUEST);
    };
    if who.is_of_held_page(asked.held, &head.headers, &shared) {
        shared.counts.empty.one("held_back");
        return own::json(&head, &HintsReply::never());
    }
    asked.page.truncate(shared.settings.rules.urls.name_of(&asked.page).len());
    own::json(&head, &reply(&shared, &head, asked, asking).await)
}

/// Who may have a list, as far as the head of the question says it.
struct Asking {
    who: Who,
    visitor: Visitor,
    way: Way,
}

impl Asking {
    /// The reply to who may have none.
    fn admit(shared: &Shared, head: &request::Parts, who: Who) -> Result<Self, HintsReply> {
        let way = shared.way(head, who);
        let never = |why| {
            shared.counts.empty.one(why);
            Err(HintsReply::never())
        };
        let visitor = match policy::visitor(&head.headers, &shared.harmless, way) {
            Ok(visitor) => visitor,
            Err(why) => return never(reasons::of_visitor(&why)),
        };
        if !shared.is_active() {
            return never(reasons::OFF);
        }
        if who.by_cache {
            return never(reasons::CACHE);
        }
        if let Some(left) = shared.rests.left(who.client, shared.now()) {
            shared.counts.empty.one("server_refuses");
            return Err(later(visitor, left));
        }
        if !shared.rates.admit(who.client, shared.now()) {
            shared.counts.empty.one("too_often");
            return Err(later(visitor, TOO_OFTEN));
        }
        if !shared.caps.spend(who.client, shared.now(), 0) {
            return never("byte_cap");
        }
        Ok(Asking { who, visitor, way })
    }
}

/// An empty list, for who may come again.
fn later(visitor: Visitor, wait: Duration) -> HintsReply {
    HintsReply::new(policy::of_a_list(visitor).to_owned(), Vec::new(), Some(wait))
}

async fn reply(
    shared: &Shared,
    head: &request::Parts,
    asked: HintsRequest,
    asking: Asking,
) -> HintsReply {
    let Asking { who, visitor, way } = asking;
    let never = |why| {
        shared.counts.empty.one(why);
        HintsReply::never()
    };
    // A copy of the service worker's is a navigation that the proxy has seen.
    if asked.first
        && asked.cached
        && way == Way::Cache
        && shared.shown.asked(who.client, &head.headers, &asked.page, shared.now())
    {
        shared.log_visit(head, &asked.page, who);
        shared.desk.shown(Visited::of_copy(head, asked.page.clone(), who));
    }
    for part in asked.used {
        used(shared, head, part, who);
    }
    if asked.barred {
        return never("service_worker");
    }
    let most = if way == Way::Worker { MOST_COPIES } else { MOST_ENTRIES };
    let (first, left) = (asked.had.is_empty(), most.saturating_sub(asked.had.len()));
    // The worker's script does not look where visitors point.
    let points = asked.hover && way == Way::Cache;
    let ask = Ask { page: asked.page, points, had: asked.had };
    let Some(ranked) = shared.desk.ask(ask).await else {
        shared.counts.empty.one(if shared.desk.is_reading() { "learning" } else { "busy" });
        return later(visitor, TOO_OFTEN);
    };
    let Ranked { mut hints, mut pointed, why_none } = ranked;
    if way == Way::Worker {
        // It shows nothing else: of parts no navigation says whether it may.
        hints.retain(|hint| hint.kind == Kind::Document);
        pointed.clear();
    }
    let rules = shared.settings.speculation_rules && policy::tags_rules(&head.headers);
    hints.truncate(left);
    let is_none = hints.is_empty();
    // Nothing more will come to mind as long as the page is the same; and what may be pointed at the page has
    // been told with its first list.
    if is_none && (pointed.is_empty() || !first) {
        return never(why_none);
    }
    // What finds no room on the list is hinted, too, for who points at it.
    let files = hints.len() as u32;
    let is_pointed = !pointed.is_empty() || files > shared.monitor.document();
    let wanted = Wanted { files, pointed: is_pointed, first };
    match shared.grant(wanted) {
        Grant::Empty { again } => {
            shared.counts.empty.one("no_budget");
            later(visitor, again)
        }
        Grant::List { length, after } => {
            // SSR §5.2.1.2: the load of an epoch is spread over it.
            tokio::time::sleep(after).await;
            let later = hints.split_off(hints.len().min(length as usize));
            if is_none {
                shared.counts.empty.one(why_none);
            } else {
                shared.counts.lists.one();
                shared.counts.hints.add(hints.len() as u64);
            }
            // The rest comes with the next list, unless the visitor is sooner.
            let later = later.into_iter().filter(|hint| hint.kind == Kind::Document);
            hints.extend(later.map(|hint| Hint { pointed: true, ..hint }).chain(pointed));
            shared.worths.listed(who.client, &hints);
            let wait = (!is_none).then_some(Duration::ZERO);
            HintsReply::new(policy::of_a_list(visitor).to_owned(), hints, wait).by_rules(rules)
        }
    }
}

/// A page had a part of it out of the cache. If that was fetched ahead, it was wanted as if the proxy had been
/// asked for it: else what is predicted well would be learned to be in vain.
fn used(shared: &Shared, head: &request::Parts, part: String, who: Who) {
    if UrlKind::of(&part) != UrlKind::Embedded {
        return;
    }
    let bytes = shared.caps.used(who.client, &part);
    if bytes > 0 {
        shared.counts.used_bytes.add(bytes);
        shared.desk.shown(Visited::of_copy(head, part, who));
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
    // Who sends more of them than pages can be read makes them up: nothing of that is read.
    if !shared.rates.admit(who.client, shared.now()) {
        return own::empty(StatusCode::NO_CONTENT);
    }
    let Some(message) = own::read(body, LONGEST_MESSAGE).await else {
        return own::empty(StatusCode::PAYLOAD_TOO_LARGE);
    };
    let Ok(mut beacon) = Beacon::decode(&message) else {
        shared.counts.rejected.one();
        return own::empty(StatusCode::BAD_REQUEST);
    };
    let came_as = shared.settings.rules.urls.name_of(beacon.came_as()).to_owned();
    beacon.page.truncate(shared.settings.rules.urls.name_of(&beacon.page).len());
    if let Some(target) = &beacon.awaits {
        shared.awaited.is_wanted(who.client, target, shared.now());
    }
    count(&shared, &head, &beacon, &came_as, who);
    learn(&shared, &head, beacon, &came_as, who);
    own::empty(StatusCode::NO_CONTENT)
}

/// Learns that a page was shown, of whom hints would be given to. One that the script has asked about is
/// known by that; and so is the order in which its visitor goes on, which is told by the name that the page has by then:
/// of one that has another name than the one it came by nothing is learned here.
fn learn(shared: &Shared, head: &request::Parts, beacon: Beacon, came_as: &str, who: Who) {
    let Some(nav) = &beacon.nav else { return };
    let way = shared.way(head, who);
    let is_unknown = policy::visitor(&head.headers, &shared.harmless, way).is_ok() && !who.by_cache;
    // A copy of the service worker's is a navigation that the proxy has seen.
    let may = is_unknown
        && way == Way::Cache
        && shared.is_active()
        && !who.is_of_held_page(beacon.held, &head.headers, shared);
    if came_as != beacon.page {
        if nav.cached {
            shared.shown.renamed(who.client, &head.headers, [came_as, &beacon.page]);
        }
        return;
    }
    if may && shared.shown.reported(who.client, &head.headers, &beacon.page, nav, shared.now()) {
        shared.log_visit(head, &beacon.page, who);
        shared.desk.shown(Visited::of_copy(head, beacon.page, who));
    }
}

/// Counts how a page came.
fn count(shared: &Shared, head: &request::Parts, beacon: &Beacon, came_as: &str, who: Who) {
    shared.counts.beacons.one();
    // Reloads and the history come out of the cache, or don't, whatever was fetched ahead.
    let Some(nav) = beacon.nav.as_ref().filter(|nav| nav.kind == NavigationKind::Navigate) else {
        return;
    };
    let is_held_back = who.is_of_held_page(beacon.held, &head.headers, shared);
    let group = if is_held_back { &shared.counts.without } else { &shared.counts.with };
    // What comes out of the cache may be there since a visit.
    let used = if nav.cached { shared.caps.used(who.client, came_as) } else { 0 };
    shared.counts.used_bytes.add(used);
    let millis = |time: f64| Duration::from_secs_f64(time / 1e3);
    let navigation = Navigation {
        cached: nav.cached,
        ahead: used > 0,
        ttfb: millis(nav.ttfb),
        lcp: nav.lcp.map(millis),
        // 0: it was left before it had loaded.
        load: Some(nav.load).filter(|load| *load > 0.0).map(millis),
    };
    group.note(shared.now(), &navigation);
}
