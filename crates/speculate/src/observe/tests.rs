use std::borrow::Cow;

use proptest::prelude::*;

use super::*;

fn entry(second: u64, client: &str, target: &str) -> Entry<'static> {
    let at = Timestamp::from_nanos(second * 1_000_000_000);
    let agent = Some(Cow::Borrowed("Mozilla/5.0 (X11)"));
    Entry { agent, ..Entry::page(at, client.to_owned(), target.to_owned()) }
}

fn observer() -> Observer {
    Observer::new(ClientHasher::new([7; 16]), Limits::default())
}

#[test]
fn visit_is_the_last_step_of_its_client() {
    let mut observer = observer();
    observer.observe(&entry(1, "a", "/1")).unwrap();
    observer.observe(&entry(1, "b", "/2")).unwrap();
    let visit = observer.observe(&entry(2, "a", "/3?q")).unwrap();
    let paths: Vec<_> = observer
        .history(&visit)
        .iter()
        .map(|step| observer.urls().path(step.url).unwrap())
        .collect();
    assert_eq!(paths, ["/1", "/3"]);
    assert_eq!(observer.history(&visit), observer.history_of(visit.client));
    assert_eq!((visit.kind, visit.cacheable), (Kind::Page, false));
    assert_eq!(observer.url("http://site/1#top"), observer.url("/1"));
    assert!(observer.url("/1").is_some() && observer.url("/4").is_none());
}

#[test]
fn requests_that_are_no_visits_teach_nothing() {
    let with = |change: fn(&mut Entry<'_>)| {
        let mut one = entry(1, "a", "/1");
        change(&mut one);
        observer().observe(&one)
    };
    for (result, expected) in [
        (with(|entry| entry.prefetch = true), Ignored::Prefetch),
        (with(|entry| entry.method = "POST".into()), Ignored::Method),
        (with(|entry| entry.method = "".into()), Ignored::Method),
        (with(|entry| entry.target = "*".into()), Ignored::Target),
        (with(|entry| entry.target = format!("/{}", "x".repeat(2_000)).into()), Ignored::Target),
        (with(|entry| entry.status = 404), Ignored::Status),
        (with(|entry| entry.status = 206), Ignored::Status),
        (with(|entry| entry.agent = Some("Googlebot/2.1".into())), Ignored::Robot),
        (with(|entry| entry.agent = Some("".into())), Ignored::Robot),
        (with(|entry| entry.target = "/robots.txt".into()), Ignored::Robot),
    ] {
        assert_eq!(result, Err(expected));
    }
    assert!(with(|entry| entry.agent = None).is_ok(), "a log without agents");
    assert!(with(|entry| entry.status = 304).is_ok());
}

#[test]
fn client_that_requested_robots_txt_stays_a_robot() {
    let mut observer = observer();
    assert!(observer.observe(&entry(1, "a", "/1")).is_ok());
    assert_eq!(observer.observe(&entry(2, "a", "/robots.txt")), Err(Ignored::Robot));
    assert_eq!(observer.observe(&entry(3, "a", "/2")), Err(Ignored::Robot));
    assert!(observer.observe(&entry(4, "b", "/2")).is_ok());
    assert!(observer.observe(&entry(4 + 1_801, "a", "/2")).is_ok(), "another day, another client");
}

#[test]
fn reload_is_no_step() {
    let mut observer = observer();
    observer.observe(&entry(1, "a", "/1")).unwrap();
    observer.observe(&entry(1, "a", "/x.png")).unwrap();
    assert_eq!(observer.observe(&entry(2, "a", "/1")), Err(Ignored::Reload));
}

#[test]
fn only_predictable_visits_raise_popularity() {
    for (why, change, expected) in [
        ("visits", (|_| {}) as fn(&mut Entry<'_>), 20.0),
        ("of one client", |entry| entry.client = "a".into(), 1.0),
        ("with a query", |entry| entry.target = "/1?q".into(), 0.0),
        ("to one person", |entry| entry.private = true, 0.0),
        ("without the object", |entry| entry.status = 404, 0.0),
    ] {
        let mut observer = observer();
        observer.observe(&entry(1, "b", "/1")).unwrap();
        for client in 0..20 {
            let mut one = entry(1, &format!("192.0.2.{client}"), "/1");
            change(&mut one);
            let _ = observer.observe(&one);
        }
        let popularity =
            observer.urls().popularity(observer.url("/1").unwrap(), entry(1, "", "/").at);
        assert_eq!(popularity, 1.0 + expected, "{why}");
    }
}

#[test]
fn returning_client_counts_a_few_times() {
    let mut observer = observer();
    for number in 0..300 {
        let visit = observer.observe(&entry(1, "a", ["/1", "/2"][number % 2])).unwrap();
        assert_eq!(visit.is_often, number >= 16, "{number}");
    }
    let popularity = observer.urls().popularity(observer.url("/1").unwrap(), entry(1, "", "/").at);
    assert_eq!(popularity, 8.0);
}

/// Public after visits of twelve clients, which suffice for any of their classes here.
fn known(observer: &mut Observer, change: impl Fn(&mut Entry<'_>)) -> bool {
    for client in 0..12 {
        let mut one = entry(1, &format!("192.0.2.{client}"), "/1");
        change(&mut one);
        let _ = observer.observe(&one);
    }
    observer.url("/1").is_some_and(|url| observer.urls().is_public(url))
}

#[test]
fn url_is_public_only_after_public_answers_to_distinct_clients() {
    assert!(known(&mut observer(), |_| {}));
    for (why, change) in [
        ("one client", (|entry| entry.client = "192.0.2.1".into()) as fn(&mut Entry<'_>)),
        ("one line", |entry| entry.client = format!("2001:db8:0:{}::1", &entry.client[8..]).into()),
        ("signed in", |entry| entry.private = true),
        ("not whole", |entry| entry.status = 304),
        ("with a query", |entry| entry.target = "/1?id=2".into()),
        ("robots", |entry| entry.agent = Some("bot".into())),
        ("prefetches", |entry| entry.prefetch = true),
    ] {
        assert!(!known(&mut observer(), change), "{why}");
    }
}

#[test]
fn one_private_or_missing_answer_restarts_the_count() {
    let cases: [fn(&mut Entry<'_>); 3] =
        [|entry| entry.private = true, |entry| entry.status = 404, |entry| entry.status = 410];
    for change in cases {
        let mut observer = observer();
        assert!(known(&mut observer, |_| {}));
        let mut one = entry(2, "x", "/1");
        change(&mut one);
        let _ = observer.observe(&one);
        assert!(!observer.url("/1").is_some_and(|url| observer.urls().is_public(url)));
    }
}

#[test]
fn two_rejections_or_one_of_an_earlier_reader_bar_a_url() {
    // The clients, and until whose rejection it is suggested.
    let cases: [(&str, &[&str], usize); 4] = [
        ("a banned client", &["x", "x", "x"], 3),
        ("two of one network", &["2001:db8::1", "2001:db8::2"], 2),
        ("who got it", &["192.0.2.3"], 0),
        ("several", &["a", "b", "c", "d", "e"], 1),
    ];
    for status in [401, 403] {
        for (who, clients, told) in cases {
            let mut observer = observer();
            assert!(known(&mut observer, |_| {}));
            let url = observer.url("/1").unwrap();
            let mut left = 0;
            for client in clients {
                let refused = Entry { status, ..entry(2, client, "/1") };
                assert_eq!(observer.observe(&refused), Err(Ignored::Status));
                left += usize::from(observer.urls().is_public(url));
            }
            // Two clients may share a class, so it takes one more.
            assert!((told..=told + usize::from(told == 1)).contains(&left), "{who}: {left}");
        }
    }
}

#[test]
fn answers_to_a_query_do_not_affect_the_bare_path() {
    for change in [(|entry| entry.private = true) as fn(&mut Entry<'_>), |entry| entry.status = 403]
    {
        let mut observer = observer();
        assert!(known(&mut observer, |_| {}));
        let mut one = entry(2, "x", "/1?utm_source=mail");
        change(&mut one);
        let _ = observer.observe(&one);
        assert!(observer.urls().is_public(observer.url("/1").unwrap()));
    }
}

#[test]
fn named_query_is_a_url_of_its_own() {
    let mut observer = observer();
    let named = |target: &'static str| {
        move |entry: &mut Entry<'_>| {
            entry.target = target.into();
            entry.named_by_query = true;
        }
    };
    known(&mut observer, named("/list?page=2#top"));
    assert_eq!(observer.url("/list"), None);
    assert_eq!(observer.url("/list?page=3"), None);
    let second = observer.url("/list?page=2").unwrap();
    assert!(observer.urls().is_public(second));
    assert_eq!(observer.urls().path(second), Some("/list?page=2"));
    // The path is different.
    known(&mut observer, |entry| entry.target = "/list".into());
    let first = observer.url("/list").unwrap();
    assert_ne!(first, second);
    // By default the query is no part of it.
    assert_eq!(observer.url("/list?sort=up"), Some(first));
    let mut gone = entry(3, "x", "/list?page=2");
    gone.status = 404;
    gone.named_by_query = true;
    let _ = observer.observe(&gone);
    assert!(!observer.urls().is_public(second) && observer.urls().is_public(first));
    let mut visit = entry(4, "y", "/list?page=2");
    visit.named_by_query = true;
    assert!(observer.observe(&visit).unwrap().cacheable);
}

#[test]
fn path_without_space_is_not_learned() {
    let limits = Limits { path_bytes: Bytes(1_024), ..Limits::default() };
    let mut observer = Observer::new(ClientHasher::new([7; 16]), limits);
    observer.observe(&entry(1, "a", "/short")).unwrap();
    observer.observe(&entry(2, "a", "/other")).unwrap();
    // Without either of the two there is still too little.
    let long = format!("/{}", "x".repeat(1_022));
    for second in 3..9 {
        assert_eq!(observer.observe(&entry(second, "a", &long)), Err(Ignored::Room));
    }
    let visit = observer.observe(&entry(9, "a", "/third")).unwrap();
    assert_eq!(observer.history(&visit).len(), 3);
    assert!(observer.url("/short").is_some() && observer.url("/other").is_some());
}

#[test]
fn failed_prefetch_restarts_the_count() {
    // Whether it is still public after one client's answer, and after several.
    for (status, target, after_one, after_all) in [
        (404, "/1", false, false),
        (410, "/1", false, false),
        // A barred client may claim that any of its requests is a prefetch.
        (401, "/1", true, false),
        (403, "/1", true, false),
        (302, "/1", true, false),
        (200, "/1", true, true),
        (304, "/1", true, true),
        (503, "/1", true, true),
        // There are many of these.
        (404, "/1?page=9", true, true),
    ] {
        let mut observer = observer();
        assert!(known(&mut observer, |_| {}));
        let url = observer.url("/1").unwrap();
        // Two clients may share a class, so a few more are needed to be sure.
        for (clients, remains) in [(["x"; 3], after_one), (["y", "z", "w"], after_all)] {
            for client in clients {
                let one = Entry { status, prefetch: true, ..entry(2, client, target) };
                assert_eq!(observer.observe(&one), Err(Ignored::Prefetch));
            }
            assert_eq!(observer.urls().is_public(url), remains, "{status} {target}");
        }
    }
}

#[test]
fn overload_and_visitor_redirects_bar_no_url() {
    let mut observer = observer();
    assert!(known(&mut observer, |_| {}));
    for status in [500, 503, 429, 408, 206, 301, 302, 307, 308] {
        let mut one = entry(2, "x", "/1");
        one.status = status;
        assert_eq!(observer.observe(&one), Err(Ignored::Status));
    }
    assert!(observer.url("/1").is_some_and(|url| observer.urls().is_public(url)));
}

proptest! {
    /// For any requests in any order of times, the observer stays within its limits.
    #[test]
    fn observer_is_bounded_for_any_requests(
        requests in prop::collection::vec((0u64..1_000_000, 0u32..40, "/[a-c]{0,3}(\\?x)?"), 0..300)
    ) {
        let limits =
            Limits { urls: 8, path_bytes: Bytes(1_024), sessions: 4, ..Limits::default() };
        prop_assert!(limits.most_resident().0 < 16_384);
        let mut observer = Observer::new(ClientHasher::new([7; 16]), limits);
        for (second, client, target) in requests {
            let _ = observer.observe(&entry(second, &client.to_string(), &target));
            prop_assert!(observer.urls().len() <= 8);
            prop_assert!(observer.resident() <= limits.most_resident());
        }
    }
}
