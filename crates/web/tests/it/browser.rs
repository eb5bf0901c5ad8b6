//! The script, the script inserter and the rules together in a real Chromium, with a small site on loopback behind
//! them.
pub(crate) mod chromium;
mod links;
mod own_worker;
pub(crate) mod site;

use std::time::{Duration, Instant};

use chromium::Chromium;
use http::Method;
use lull_testing::{bound, needs};
use lull_web::policy::{BARRED_FOR, Visitor};
use lull_web::protocol::HintsRequest;
use serde_json::{Value, json};
use site::{Asked, DOWNLOAD, HEAVY, LOADED, SHADOW, SHORT_LIVED, Site, WAIT};

/// How the current page was delivered.
const DELIVERY: &str = "performance.getEntriesByType('navigation')[0].deliveryType";
const TEXT: &str = "document.body.innerText";
/// Timers of the page fire after a tenth of their time.
const HURRY: &str = "window.unhurried = setTimeout;
    window.setTimeout = (what, time, ...more) => unhurried(what, time / 10, ...more);";
/// The tab is hidden while `hiddenNow` is true.
const HIDE: &str =
    "Object.defineProperty(Document.prototype, 'hidden', {get: () => window.hiddenNow});";

fn prefetch(path: &'static str) -> impl Fn(&Asked) -> bool {
    move |asked| asked.path == path && asked.ahead
}

fn demand(path: &'static str) -> impl Fn(&Asked) -> bool {
    move |asked| asked.path == path && !asked.ahead
}

#[test]
fn navigation_takes_the_prefetched_page_from_the_cache() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/b"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    let ahead = site.wait_for(prefetch("/b"));
    let page = site.wait_for(demand("/a"));
    assert_ne!(ahead.connection, page.connection);
    assert_eq!(ahead.fields.get("sec-purpose").map(String::as_str), Some("prefetch"));
    assert_eq!(ahead.cookie, None);

    chromium.click("#b", &site.url("/b"));
    assert_eq!(chromium.run(DELIVERY), "cache");
    assert_eq!(chromium.run(TEXT), "page /b for nobody");
    assert_eq!(site.count(demand("/b")), 0);
    // The next page's script reports that it came out of the cache.
    site.wait_until("a hints request of /b", |seen| {
        seen.hints.iter().any(|hints| hints.page == "/b" && hints.cached && hints.first)
    });
    chromium.goto(&site.url("/c"));
    site.wait_until("reports of both pages", |seen| {
        let report = |page: &str, cached: bool| {
            seen.beacons.iter().any(|beacon| {
                beacon.page == page && beacon.nav.as_ref().is_some_and(|nav| nav.cached == cached)
            })
        };
        report("/a", false) && report("/b", true)
    });
}

#[test]
fn page_reports_the_times_measured_by_the_browser() {
    needs!(chromium::installed());
    let site = Site::start(&[]);
    let mut chromium = Chromium::start();
    // Chromium paints the largest element when it has time. The load event may come before that.
    chromium.goto(&site.url(HEAVY));
    chromium.run(
        "new Promise(done => new PerformanceObserver(() => done(1))
            .observe({type: 'largest-contentful-paint', buffered: true}))",
    );
    chromium.wait_until("performance.getEntriesByType('navigation')[0].loadEventEnd > 0");
    let measured = |of: &str| {
        let of = format!("performance.getEntriesByType('navigation')[0].{of}");
        chromium.run(&of).as_f64().unwrap()
    };
    let [ttfb, load] = ["responseStart", "loadEventEnd"].map(measured);
    chromium.goto(&site.url("/c"));
    site.wait_until("a report", |seen| seen.beacons.iter().any(|beacon| beacon.nav.is_some()));
    let seen = site.seen();
    let beacon = seen.beacons.iter().find(|beacon| beacon.nav.is_some()).unwrap();
    let nav = beacon.nav.as_ref().unwrap();
    assert_eq!(beacon.page, HEAVY);
    // Its picture takes three seconds.
    assert!(load >= 3000.0 && ttfb < 3000.0, "{ttfb} {load}");
    assert!((nav.ttfb - ttfb).abs() <= 1.0, "{nav:?}, measured {ttfb}");
    assert!((nav.load - load).abs() <= 1.0, "{nav:?}, measured {load}");
    let lcp = nav.lcp.expect("something was painted");
    assert!(ttfb <= lcp && lcp <= load + bound(60_000.0, 1000.0), "{nav:?}");
}

/// A visitor with these cookies on a page, from which `path` is being prefetched.
fn fetching(path: &'static str, cookies: &str) -> (Site, Chromium) {
    let site = Site::start(&[("/a", &[path])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/c"));
    if !cookies.is_empty() {
        chromium.run(&format!("document.cookie = '{cookies}'"));
    }
    chromium.goto(&site.url("/a"));
    site.wait_for(prefetch(path));
    (site, chromium)
}

#[test]
fn sign_in_after_a_prefetch_shows_the_page_of_the_user() {
    needs!(chromium::installed());
    for cookies in ["", "_ga=GA1.1.1"] {
        let (site, mut chromium) = fetching("/b", cookies);
        let visitor = if cookies.is_empty() { Visitor::Cookieless } else { Visitor::Measured };
        assert_eq!(site.seen().visitors.last(), Some(&visitor));
        chromium.wait_for_copy("/b");
        chromium.run("fetch('/sign-in', {method: 'POST'}).then(reply => reply.text())");
        chromium.click("#b", &site.url("/b"));
        assert_eq!(chromium.run(TEXT), "page /b for ann", "{cookies}");
        assert_eq!(site.count(demand("/b")), 1);
    }
}

#[test]
fn visitor_with_harmless_cookies_uses_the_cache_too() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/b"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/c"));
    chromium.run("document.cookie = '_ga=GA1.1.1'");
    chromium.goto(&site.url("/a"));
    let ahead = site.wait_for(prefetch("/b"));
    assert_eq!(ahead.cookie, None);
    chromium.wait_for_copy("/b");
    chromium.click("#b", &site.url("/b"));
    assert_eq!(chromium.run(DELIVERY), "cache");
}

#[test]
fn signed_in_user_gets_no_script_and_no_prefetch() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/b"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/c"));
    chromium.run("fetch('/sign-in', {method: 'POST'}).then(reply => reply.text())");
    chromium.goto(&site.url("/a"));
    assert_eq!(chromium.run("document.querySelectorAll('script').length"), 0);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(site.count(prefetch("/b")), 0);
    chromium.click("#b", &site.url("/b"));
    assert_eq!(chromium.run(TEXT), "page /b for ann");
}

#[test]
fn click_on_another_link_ends_a_prefetch() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/slow"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_for(prefetch("/slow"));
    chromium.click("#c", &site.url("/c"));
    site.wait_until("the end of the slow prefetch", |seen| seen.cut_off.contains(&"/slow".into()));
}

#[test]
fn click_takes_a_slow_prefetch_out_of_the_background() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/slow"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_for(prefetch("/slow"));
    let begun = Instant::now();
    chromium.click("#slow", &site.url("/slow"));
    assert!(begun.elapsed() < site::STALL, "it took {:?}", begun.elapsed());
    assert_eq!(chromium.run(TEXT), "page /slow for nobody");
    site.wait_until("the word", |seen| {
        seen.beacons.iter().any(|beacon| beacon.awaits.as_deref() == Some("/slow"))
    });
    assert_eq!(site.count(demand("/slow")), 0, "it was given the rest");
}

#[test]
fn sign_in_during_a_prefetch_shows_the_page_of_the_user() {
    needs!(chromium::installed());
    for cookies in ["", "_ga=GA1.1.1"] {
        let (site, mut chromium) = fetching("/slow", cookies);
        chromium.run("fetch('/sign-in', {method: 'POST'}).then(reply => reply.text())");
        chromium.click("#slow", &site.url("/slow"));
        assert_eq!(chromium.run(TEXT), "page /slow for ann", "{cookies}");
    }
}

/// The middle of the element for `selector`.
fn middle(chromium: &mut Chromium, selector: &str) -> Value {
    chromium.run(&format!(
        "(({{x, y, width, height}}) => [x + width / 2, y + height / 2])
         (document.querySelector('{selector}').getBoundingClientRect())"
    ))
}

/// Moves the mouse onto the element for `selector`.
fn point(chromium: &mut Chromium, selector: &str) {
    let place = middle(chromium, selector);
    let moved = json!({"type": "mouseMoved", "x": place[0], "y": place[1]});
    chromium.devtools("Input.dispatchMouseEvent", moved);
}

/// Presses a mouse button on the element for `selector`, and releases it.
fn press(chromium: &mut Chromium, selector: &str, button: &str, modifiers: u32) {
    point(chromium, selector);
    let place = middle(chromium, selector);
    for kind in ["mousePressed", "mouseReleased"] {
        let event = json!({
            "type": kind, "x": place[0], "y": place[1], "button": button, "clickCount": 1,
            "modifiers": modifiers,
        });
        chromium.devtools("Input.dispatchMouseEvent", event);
    }
}

#[test]
fn click_into_a_tab_takes_its_prefetch_out_of_background() {
    const CONTROL: u32 = 2;
    needs!(chromium::installed());
    for (selector, button, modifiers) in
        [("#tab", "left", 0), ("#slow", "left", CONTROL), ("#slow", "middle", 0)]
    {
        let site = Site::start(&[("/a", &["/slow"])]);
        let mut chromium = Chromium::start();
        chromium.goto(&site.url("/a"));
        site.wait_for(prefetch("/slow"));
        let begun = Instant::now();
        press(&mut chromium, selector, button, modifiers);
        let case = format!("the word: {selector} {button} {modifiers}");
        site.wait_until(&case, |seen| {
            seen.beacons.iter().any(|beacon| beacon.awaits.as_deref() == Some("/slow"))
        });
        assert!(begun.elapsed() < site::STALL, "{case}");
        // The page stays open, and its prefetches continue.
        assert_eq!(chromium.run("location.pathname"), "/a");
        assert!(site.seen().cut_off.is_empty(), "{case}");
    }
}

#[test]
fn hovered_link_is_prefetched_beside_a_slow_prefetch() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/slow", ">/b"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_for(prefetch("/slow"));
    // A pointer that only passes rests nowhere.
    let pass = |id: &str| {
        format!(
            "document.querySelector('{id}')
             .dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}))"
        )
    };
    chromium.run(&format!("{}; {}", pass("#b"), pass("body")));
    chromium.run("new Promise(done => setTimeout(done, 500))");
    assert_eq!(site.count(prefetch("/b")), 0);
    point(&mut chromium, "#b");
    site.wait_for(prefetch("/b"));
    chromium.wait_for_copy("/b");
    chromium.click("#b", &site.url("/b"));
    assert_eq!(chromium.run(DELIVERY), "cache");
    assert_eq!(site.count(demand("/b")), 0);
    assert_eq!(site.count(prefetch("/b")), 1, "it is fetched once, however often it is pointed at");
}

#[test]
fn hovered_link_is_prefetched_over_an_open_connection() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &[">/b", ">/c"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_until("the question who answers", |seen| !seen.refused.is_empty());
    chromium.run("new Promise(done => setTimeout(done, 500))");
    assert!(site.seen().hints[0].hover, "there is a mouse");
    assert!(!site.seen().asked.iter().any(|asked| asked.ahead), "the pointer has not moved");
    point(&mut chromium, "#b");
    site.wait_for(prefetch("/b"));
    let seen = site.seen().clone();
    let (method, page, connection) = &seen.refused[0];
    assert_eq!((method, page.as_str(), seen.refused.len()), (&Method::HEAD, "/a", 1));
    let fetched = seen.asked.iter().find(|asked| prefetch("/b")(asked)).unwrap();
    assert_eq!(fetched.connection, *connection);
    assert_eq!(site.count(prefetch("/c")), 0);
}

#[test]
fn stale_copy_is_prefetched_again_on_hover() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &[SHORT_LIVED])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_for(prefetch(SHORT_LIVED));
    chromium.wait_for_copy(SHORT_LIVED);
    chromium.run("new Promise(done => setTimeout(done, 2500))");
    assert_eq!(site.count(prefetch(SHORT_LIVED)), 1);
    point(&mut chromium, "#brief");
    site.wait_until("another prefetch", |seen| {
        seen.asked.iter().filter(|asked| prefetch(SHORT_LIVED)(asked)).count() == 2
    });
}

#[test]
fn site_learns_which_parts_of_a_page_were_cached() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/dot.svg"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_for(prefetch("/dot.svg"));
    chromium.wait_for_copy("/dot.svg");
    chromium.click("#c", &site.url("/c"));
    site.wait_until("what the page had", |seen| {
        seen.hints.iter().any(|asked| asked.page == "/c" && asked.first)
    });
    let had = |page: &str| {
        let of = |asked: &&HintsRequest| asked.page == page && asked.first;
        site.seen().hints.iter().find(of).unwrap().used.clone()
    };
    let dot = "/dot.svg".to_owned();
    let (before, at_it) = (had("/a"), had("/c"));
    assert!(!before.contains(&dot) && at_it.contains(&dot), "{before:?} {at_it:?}");
    assert_eq!(site.count(demand("/dot.svg")), 0);
}

#[test]
fn link_without_a_hint_is_not_prefetched_on_hover() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &[">/c"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    chromium.wait_for_hints();
    point(&mut chromium, "#b");
    chromium.run("new Promise(done => setTimeout(done, 500))");
    point(&mut chromium, "#c");
    site.wait_for(prefetch("/c"));
    assert_eq!(site.count(prefetch("/b")), 0);
}

#[test]
fn page_of_a_loaded_server_asks_after_the_given_wait() {
    needs!(chromium::installed());
    let site = Site::start(&[(LOADED, &["/b"]), ("/b", &["/c"])]);
    let mut chromium = Chromium::start();
    let begun = Instant::now();
    chromium.goto(&site.url(LOADED));
    // Nor earlier because the user returns to the tab.
    chromium.run("document.dispatchEvent(new Event('visibilitychange'))");
    site.wait_for(prefetch("/b"));
    assert!(begun.elapsed() >= WAIT, "{:?}", begun.elapsed());
    // It does not stay.
    chromium.goto(&site.url("/b"));
    site.wait_for(prefetch("/c"));
}

#[test]
fn no_hints_are_requested_before_the_page_has_loaded() {
    needs!(chromium::installed());
    let site = Site::start(&[(HEAVY, &["/b"])]);
    let mut chromium = Chromium::start();
    // The tab becomes visible while a picture is on its way.
    chromium.before(
        "for (const at of [500, 1000])
             setTimeout(() => document.dispatchEvent(new Event('visibilitychange')), at);",
    );
    chromium.goto(&site.url(HEAVY));
    site.wait_for(prefetch("/b"));
    let early = chromium.run(
        "performance.getEntriesByType('resource').find(({name}) => name.endsWith('/.lull/hints')).startTime
         < performance.getEntriesByType('navigation')[0].loadEventStart",
    );
    assert_eq!(early, false);
}

#[test]
fn prefetching_continues_after_a_click_on_a_download() {
    needs!(chromium::installed());
    // While nothing is fetched, and in the middle of a list.
    for hints in [&[">/b"][..], &["/slow", ">/b"]] {
        let site = Site::start(&[("/a", hints)]);
        let mut chromium = Chromium::start();
        // The half minute after which a click is known to have no effect is three seconds here.
        chromium.before(HURRY);
        chromium.goto(&site.url("/a"));
        site.wait_until("a list", |seen| !seen.hints.is_empty());
        if hints.len() > 1 {
            site.wait_for(prefetch("/slow"));
        }
        chromium.run("document.querySelector('#file').click()");
        site.wait_for(|asked| asked.path == DOWNLOAD);
        chromium.run("new Promise(done => unhurried(done, 4000))");
        assert_eq!(chromium.run("location.pathname"), "/a");
        point(&mut chromium, "#b");
        site.wait_for(prefetch("/b"));
    }
}

#[test]
fn page_is_reported_by_the_url_of_its_navigation() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/b"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_for(prefetch("/b"));
    chromium.click("#b", &site.url("/b"));
    // Like scripts that draw the next page themselves.
    chromium.run("history.pushState(0, '', '/b/details')");
    chromium.goto(&site.url("/c"));
    let told = |seen: &site::Recorded| {
        let mut reports = seen.beacons.iter().filter(|beacon| beacon.came_as() == "/b");
        reports.find_map(|beacon| Some((beacon.page.clone(), beacon.nav.as_ref()?.cached)))
    };
    site.wait_until("the report", |seen| told(seen).is_some());
    assert_eq!(told(&site.seen()), Some(("/b/details".to_owned(), true)));
}

#[test]
fn script_inserted_twice_runs_once() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/b"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_for(prefetch("/b"));
    // Like scripts that take over the head of the next page.
    chromium.run(
        "new Promise(done => {
            const tag = document.querySelector('script[src*=\"/.lull/\"]');
            const again = document.createElement('script');
            for (const {name, value} of tag.attributes) again.setAttribute(name, value);
            again.onload = () => done(1);
            document.head.append(again);
        })",
    );
    chromium.goto(&site.url("/c"));
    chromium.goto(&site.url("/a"));
    let told = |seen: &site::Recorded, page: &str| {
        let of = |beacon: &&lull_web::protocol::Beacon| beacon.page == page && beacon.nav.is_some();
        seen.beacons.iter().filter(of).count()
    };
    site.wait_until("the report of the next page", |seen| told(seen, "/c") > 0);
    assert_eq!(told(&site.seen(), "/a"), 1);
}

#[test]
fn hidden_tab_sends_no_requests() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/b"])]);
    let mut chromium = Chromium::start();
    chromium.before(&format!("window.hiddenNow = true; {HIDE}"));
    chromium.goto(&site.url("/a"));
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(site.seen().hints.len(), 0);
    chromium.run("hiddenNow = false; document.dispatchEvent(new Event('visibilitychange'))");
    site.wait_for(prefetch("/b"));
}

#[test]
fn tab_stops_asking_when_hidden_and_resumes_when_shown() {
    needs!(chromium::installed());
    // Half a minute of a list is three seconds here.
    let site = Site::start(&[("/a", &["/b"])]);
    let mut chromium = Chromium::start();
    chromium.before(HURRY);
    chromium.before(&format!("window.hiddenNow = false; {HIDE}"));
    let turn = |chromium: &mut Chromium, hidden: bool| {
        chromium.run(&format!(
            "hiddenNow = {hidden}; document.dispatchEvent(new Event('visibilitychange'))"
        ));
    };
    chromium.goto(&site.url("/a"));
    site.wait_until("a second list", |seen| seen.hints.len() >= 2);
    turn(&mut chromium, true);
    std::thread::sleep(Duration::from_secs(1));
    let before = site.seen().hints.len();
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(site.seen().hints.len(), before);
    turn(&mut chromium, false);
    site.wait_until("another list", |seen| seen.hints.len() > before);
}

/// Whether the script has checked, and whether it has asked then. The battery has the state in the page's
/// query.
const WATCH: &str = "
    const says = new URLSearchParams(location.search), level = +says.get('level');
    const of = NetworkInformation.prototype, saves = Object.getOwnPropertyDescriptor(of, 'saveData');
    Object.defineProperty(of, 'saveData', {get() {
        window.hasLooked = true;
        return saves.get.call(this);
    }});
    const asks = fetch;
    window.fetch = (...all) => {
        window.hasAsked = true;
        return asks(...all);
    };
    if (level) Navigator.prototype.getBattery = async () => ({level, charging: says.has('charging')});
    if (says.has('secret')) Navigator.prototype.getBattery = () => Promise.reject(new Error);";

/// Makes the browser save data, or its user want that, or its network this slow.
fn become_poor(chromium: &mut Chromium, saves: bool, reduces: bool, latency: u32) {
    let features = [json!({"name": "prefers-reduced-data", "value": "reduce"})];
    let features = if reduces { &features[..] } else { &[] };
    chromium.devtools("Emulation.setDataSaverOverride", json!({ "dataSaverEnabled": saves }));
    chromium.devtools("Emulation.setEmulatedMedia", json!({ "features": features }));
    chromium.devtools(
        "Network.emulateNetworkConditions",
        json!({
            "offline": false, "latency": latency, "downloadThroughput": -1, "uploadThroughput": -1,
        }),
    );
}

#[test]
fn no_prefetch_on_save_data_slow_network_or_low_battery() {
    needs!(chromium::installed());
    let site = Site::start(&[]);
    let mut chromium = Chromium::with_feature("PrefersReducedData");
    chromium.devtools("Network.enable", json!({}));
    chromium.before(WATCH);
    for (query, saves, reduces, latency, asks) in [
        ("", false, false, 0, true),
        ("", true, false, 0, false),
        ("", false, true, 0, false),
        // Chromium classifies these as slow-2g, 2g and 3g.
        ("", false, false, 2_100, false),
        ("", false, false, 1_500, false),
        ("", false, false, 300, true),
        ("level=0.05", false, false, 0, false),
        ("level=0.19", false, false, 0, false),
        ("level=0.21", false, false, 0, true),
        ("level=0.05&charging", false, false, 0, true),
        // The browser hides it.
        ("secret", false, false, 0, true),
    ] {
        let case = format!("{query} {saves} {reduces} {latency}");
        become_poor(&mut chromium, saves, reduces, latency);
        let before = site.seen().hints.len();
        chromium.goto(&site.url(&format!("/a?{query}")));
        let begun = Instant::now();
        while chromium.run("window.hasLooked") != true {
            assert!(begun.elapsed() < site::TIMEOUT, "the script did not run: {case}");
            std::thread::sleep(Duration::from_millis(50));
        }
        if asks {
            site.wait_until(&case, |seen| seen.hints.len() > before);
        }
        // It asks at once, if at all.
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(chromium.run("window.hasAsked === true"), asks, "{case}");
        assert_eq!(site.seen().hints.len() > before, asks, "{case}");
    }
}

#[test]
fn script_runs_under_strict_policies() {
    needs!(chromium::installed());
    for policy in [
        "default-src 'none'; script-src 'nonce-abc' 'strict-dynamic'; connect-src 'self'",
        "script-src https://cdn.example; connect-src 'self'; base-uri 'none'",
        "script-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'",
    ] {
        let site = Site::with_policy(&[("/a", &["/b"])], policy);
        let mut chromium = Chromium::start();
        chromium.goto(&site.url("/a"));
        site.wait_for(prefetch("/b"));
    }
}

#[test]
fn nofollow_links_are_not_prefetched() {
    needs!(chromium::installed());
    let denied = ["/nofollow", "/area", "/svg", "/saved"];
    let site = Site::start(&[("/a", &["/nofollow", "/area", "/svg", ">/saved", "/b"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_for(prefetch("/b"));
    point(&mut chromium, "#saved");
    chromium.run("new Promise(done => setTimeout(done, 500))");
    for path in denied {
        assert_eq!(site.count(prefetch(path)), 0, "{path}");
    }
}

#[test]
fn prefetch_that_redirects_bars_its_url() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/moved", "/b"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_for(prefetch("/b"));
    assert_eq!(site.count(prefetch("/moved")), 1);
    assert!(site.is_barred("/moved"), "for {BARRED_FOR:?}");
    assert_eq!(site.count(|asked| asked.path == "/sign-in"), 0);
}
