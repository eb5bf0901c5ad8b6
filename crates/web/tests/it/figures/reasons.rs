//! The information for an owner about missing prefetches, and the treatment of a server that rejects them.

use super::*;

impl Site {
    /// The value of a metric, with its labels.
    fn metric(&self, name: &str) -> u64 {
        let text = self.get(1, "/.lull/metrics", "Authorization: Bearer secret\r\n").text();
        let start = format!("lull_web_{name} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&start));
        value.map_or(0, |value| value.parse().unwrap())
    }

    fn passive(&self) -> u64 {
        self.metric("passive_samples_total")
    }

    /// Waits until there is this much budget.
    fn until_there_is_budget(&self, least: u64) -> u64 {
        let begun = Instant::now();
        for visitor in 100.. {
            self.ask(visitor % 200, "/a");
            let budget = self.status()["budget"].as_u64().unwrap();
            if budget >= least {
                return budget;
            }
            assert!(begun.elapsed() < 6 * LIMIT, "{budget}");
            thread::sleep(Duration::from_millis(100));
        }
        unreachable!("visitors end");
    }
}

#[test]
fn reasons_of_empty_lists_and_skipped_pages_are_counted() {
    let site = site(Settings { access: token(), ..settings() });
    site.until_robots_are_known();
    site.go(1..25, &["/a", "/logout"]);
    for (page, list) in [("/a", "action"), ("/nowhere", "unknown_page")] {
        let name = format!("hint_lists_total{{list=\"{list}\"}}");
        let before = site.metric(&name);
        assert_eq!(site.ask(30, page)["wait"], Value::Null);
        assert_eq!(site.metric(&name), before + 1, "{page}");
    }
    let message = r#"{"v":1,"page":"/a","first":true,"cached":false}"#;
    for (more, list) in [
        ("Origin: http://other.example\r\n", "foreign"),
        ("Cookie: session=1\r\n", "cookie"),
        ("Authorization: Basic eA==\r\n", "credentials"),
        ("Save-Data: on\r\n", "save_data"),
        ("CDN-Loop: a\r\n", "cache_in_front"),
    ] {
        site.proxy.exchange(format!(
            "POST /.lull/hints HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {CHROME}\r\n\
             Connection: close\r\nContent-Type: application/json\r\n{more}Content-Length: {}\r\n\
             \r\n{message}",
            message.len()
        ));
        assert_eq!(site.metric(&format!("hint_lists_total{{list=\"{list}\"}}")), 1, "{more}");
    }
    let barred = json!({"v": 1, "page": "/a", "first": true, "cached": false, "barred": true});
    let reply = site.post(30, "/.lull/hints", &barred);
    assert!(reply.text().contains("\"wait\":null"), "{reply:?}");
    assert_eq!(site.metric("hint_lists_total{list=\"service_worker\"}"), 1);
    for (more, why) in [("Cookie: session=1\r\n", "cookie"), ("Via: 1.1 a\r\n", "cache_in_front")] {
        assert!(!site.get(31, "/a", more).text().contains("<script"));
        assert_eq!(site.metric(&format!("pages_unchanged_total{{why=\"{why}\"}}")), 1, "{more}");
    }
    assert_eq!(site.metric("hints_rejected_total{why=\"action\"}"), 1);

    let status = site.status();
    assert_eq!(status["left_out"]["url"], "/logout", "{status}");
    assert!(status["left_out"]["why"].as_str().unwrap().contains("looks like an action"));
    assert_eq!(status["hints_rejected"], json!([["action", 1]]));
    assert!(status["empty"].as_array().unwrap().contains(&json!(["action", 1])), "{status}");
    assert!(
        status["pages_unchanged"].as_array().unwrap().contains(&json!(["cookie", 1])),
        "{status}"
    );
    assert_eq!(status["blocking_cookies"], json!([["session", 1]]), "{status}");
}

#[test]
fn last_rejected_reply_is_shown_with_its_reason() {
    let site = site(Settings { access: token(), ..settings() });
    site.until_robots_are_known();
    assert_eq!(site.prefetch(30, "/cookie").status(), 204);
    let status = site.status();
    assert_eq!(
        status["left_out"],
        json!({"url": "/cookie", "why": "it sets a cookie"}),
        "{status}"
    );
}

#[test]
fn server_rejection_halves_budget_and_backs_off_its_visitor() {
    let site = site(Settings { access: token(), ..settings() });
    site.until_robots_are_known();
    site.go(1..25, &["/a", "/b"]);
    for (visitor, path) in [(30, "/full"), (31, "/busy")] {
        let before = site.until_there_is_budget(6);
        assert_eq!(site.prefetch(visitor, path).status(), 204);
        // It may have grown by one meanwhile.
        let after = site.status()["budget"].as_u64().unwrap();
        assert!(after <= before / 2 + 1, "{after} of {before} after {path}");
        let reply = site.ask(visitor, "/a");
        assert_eq!(reply["hints"], json!([]));
        assert!((50.0..=60.0).contains(&reply["wait"].as_f64().unwrap()), "{reply}");
        // Nor are its earlier hints followed.
        let asked = site.asked("/b");
        assert_eq!(site.prefetch(visitor, "/b").status(), 204);
        assert_eq!(site.asked("/b"), asked);
    }
    assert_eq!(site.metric("hint_lists_total{list=\"server_refuses\"}"), 2);
    assert!(site.hints("/a"), "others go on");
    assert_eq!(site.prefetch(32, "/b").status(), 200);
}

#[test]
fn failed_prefetch_is_rejected_and_halves_the_budget() {
    let site = site(Settings { access: token(), ..settings() });
    site.until_robots_are_known();
    site.go(1..25, &["/a", "/b"]);
    let before = site.until_there_is_budget(6);
    let answer = site.prefetch(30, "/dead");
    // No 502, and above all no 503: browsers send nothing for a while after that.
    let found = (answer.status(), answer.header("cache-control"), answer.header("x-lull"));
    assert_eq!(found, (204, Some("no-store"), Some("0")));
    let status = site.status();
    // It may have grown by one meanwhile.
    let after = status["budget"].as_u64().unwrap();
    assert!(after <= before / 2 + 1, "{after} of {before}");
    let why = "the site's server closed the connection";
    assert_eq!(status["left_out"], json!({"url": "/dead", "why": why}), "{status}");
    // A visitor gets an error, and no address is blamed.
    assert_eq!(site.get(30, "/dead", "").status(), 502);
    assert_eq!(site.prefetch(30, "/b").status(), 200);
}

#[test]
fn page_below_least_worth_is_not_prefetched_at_once() {
    // Ten kilobytes that nearly all visitors request: some seconds per megabyte.
    for (least, is_hinted) in [(1.0, true), (100.0, false)] {
        let min_benefit = MinBenefit(least);
        let site = site(Settings { min_benefit, access: token(), ..settings() });
        site.until_robots_are_known();
        site.go(1..25, &["/a", "/b"]);
        let list = site.list("/a").unwrap();
        let is_pointed = &list["hints"][0]["pointed"];
        assert_eq!(*is_pointed == json!(null), is_hinted, "{least}: {list}");
        let left = site.metric("hint_lists_total{list=\"nothing_worth\"}");
        assert_eq!(left == 0, is_hinted, "{least}: {left}");
    }
}

#[test]
fn page_below_least_worth_is_hinted_for_hover() {
    let site = site(Settings { min_benefit: MinBenefit(100.0), access: token(), ..settings() });
    site.until_robots_are_known();
    site.go(1..25, &["/a", "/b"]);
    let reply = site.list("/a").unwrap();
    let named = reply["hints"].as_array().unwrap();
    assert_eq!(named.len(), 1, "{reply}");
    assert_eq!((&named[0]["url"], &named[0]["pointed"]), (&json!("/b"), &json!(true)));
    assert_eq!(reply["mark"], "1", "it can be fetched");
    assert_eq!(reply["wait"], json!(null), "nothing more will come to mind");
    assert_eq!(site.prefetch(40, "/b").status(), 200);
}

#[test]
fn only_answers_to_anonymous_users_measure_the_load() {
    let site = site(Settings { access: token(), ..settings() });
    site.go(1..25, &["/a", "/b"]);
    for (more, expected) in [
        ("Cookie: session=1\r\n", false),
        ("Authorization: Basic eA==\r\n", false),
        ("Cookie: _ga=1\r\n", true),
        ("", true),
    ] {
        site.ask(100, "/a");
        let before = site.passive();
        for _ in 0..10 {
            assert_eq!(site.get(1, "/probe", more).status(), 200);
            thread::sleep(Duration::from_millis(60));
        }
        assert_eq!(site.passive() > before, expected, "{more}");
    }
}

#[test]
fn unreadable_client_address_is_reported_once() {
    let site = site(settings());
    let told = |value: &str| {
        let is_it =
            |event: &Event| matches!(event, Event::ForwardedUnread { value: of } if of == value);
        site.proxy.told(is_it)
    };
    site.get(1, "/a", "X-Forwarded-For: 203.0.113.7:51234\r\n");
    site.get(1, "/a", "X-Forwarded-For: [2001:db8::1]:443\r\n");
    assert_eq!(site.proxy.told(|event| matches!(event, Event::ForwardedUnread { .. })), 0);
    for _ in 0..2 {
        site.get(1, "/a", "X-Forwarded-For: _hidden\r\n");
        assert_eq!(told("_hidden"), 1);
    }
}
