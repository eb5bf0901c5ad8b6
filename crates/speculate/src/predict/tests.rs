use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::log::Entry;
use crate::observe::{ClientHasher, Limits, Observer};

/// A site with a predictor, and a clock that advances by a second with each request.
struct Site<P> {
    observer: Observer,
    predictor: P,
    second: u64,
}

impl<P: Predictor> Site<P> {
    fn new(predictor: P) -> Self {
        let observer = Observer::new(ClientHasher::new([7; 16]), Limits::default());
        Site { observer, predictor, second: 1_000 }
    }

    fn visit(&mut self, client: &str, target: &str) {
        self.second += 1;
        let entry = Entry::page(self.now(), client, target);
        if let Ok(visit) = self.observer.observe(&entry) {
            let history = self.observer.history(&visit);
            self.predictor.train(&visit, history, self.observer.urls());
        }
    }

    /// This many separate clients take the same path.
    fn walk(&mut self, name: &str, clients: u32, path: &[&str]) {
        for client in 0..clients {
            for target in path {
                self.visit(&format!("{name}{client}"), target);
            }
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.second * 1_000_000_000)
    }

    /// The suggestions for a client that got these pages.
    fn ask(&self, pages: &[&str]) -> Vec<(String, f32)> {
        let pages: Vec<UrlId> = pages.iter().filter_map(|page| self.observer.url(page)).collect();
        let mut held = pages.clone();
        held.sort_unstable();
        self.rank(&Question { at: self.now(), pages: &pages, learned: false, held: &held })
    }

    /// The suggestions for a client that just got its latest page.
    fn ask_of(&self, client: &str) -> Vec<(String, f32)> {
        let history = self.observer.history_of(ClientHasher::new([7; 16]).client(client, ""));
        self.rank(&Asker::default().ask(self.now(), history))
    }

    fn rank(&self, question: &Question<'_>) -> Vec<(String, f32)> {
        let mut ranked = Vec::new();
        self.predictor.rank(question, self.observer.urls(), &mut ranked);
        let path = |one: &Candidate| self.observer.urls().path(one.url).unwrap().to_owned();
        ranked.iter().map(|one| (path(one), one.probability)).collect()
    }

    fn paths(&self, pages: &[&str]) -> Vec<String> {
        let mut paths: Vec<_> = self.ask(pages).into_iter().map(|(path, _)| path).collect();
        paths.sort();
        paths
    }
}

fn longest(order: usize, window: u32) -> PpmParameters {
    PpmParameters::paper(order, window)
}

#[test]
fn window_matches_its_definition() {
    let walk = ["/a", "/a.png", "/b", "/b.png", "/c", "/c.png", "/d"];
    for (counted, window, expected) in [
        (Counted::All, 1, &["/a.png", "/b"] as &[&str]),
        (Counted::All, 2, &["/a.png", "/b", "/b.png", "/c"]),
        (Counted::All, 3, &["/a.png", "/b", "/b.png", "/c", "/c.png", "/d"]),
        (Counted::Ahead, 1, &["/b", "/b.png"]),
        (Counted::Ahead, 2, &["/b", "/b.png", "/c", "/c.png"]),
    ] {
        let mut site = Site::new(Ppm::new(PpmParameters { counted, ..longest(1, window) }));
        site.walk("x", 20, &walk);
        assert_eq!(site.paths(&["/a"]), expected, "{counted:?}, w = {window}");
        assert!(site.ask(&["/a"]).iter().all(|(_, probability)| *probability == 1.0));
    }
}

#[test]
fn page_with_a_hundred_parts_is_an_ordinary_context() {
    let parts: Vec<String> = (0..120).map(|number| format!("/{number}.png")).collect();
    for (window, expected) in [(1, &["/b"] as &[&str]), (3, &["/b", "/c", "/d"])] {
        let parameters = PpmParameters { followers_per_context: 240, ..longest(1, window) };
        let mut site = Site::new(Ppm::new(parameters));
        let pages = ["/a", "/b", "/c", "/d"];
        let path: Vec<&str> = pages
            .iter()
            .flat_map(|page| [*page].into_iter().chain(parts.iter().map(String::as_str)))
            .collect();
        site.walk("x", 20, &path);
        let paths = site.paths(&["/a"]);
        let pages: Vec<&str> =
            paths.iter().map(String::as_str).filter(|path| !path.ends_with(".png")).collect();
        assert_eq!(pages, expected, "w = {window}");
    }
}

#[test]
fn probability_is_the_share_of_occurrences() {
    let mut site = Site::new(Ppm::new(longest(1, 1)));
    site.walk("x", 30, &["/a", "/b"]);
    site.walk("y", 10, &["/a", "/c"]);
    let ranked = site.ask(&["/a"]);
    assert_eq!(ranked.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["/b", "/c"]);
    assert!((ranked[0].1 - 0.75).abs() < 1e-3 && (ranked[1].1 - 0.25).abs() < 1e-3, "{ranked:?}");
}

#[test]
fn repeated_follower_in_a_window_counts_once() {
    let mut site = Site::new(Ppm::new(longest(1, 5)));
    site.walk("x", 20, &["/a", "/b", "/c", "/b"]);
    site.walk("y", 20, &["/a", "/c"]);
    let b = site.ask(&["/a"]).into_iter().find(|(path, _)| path == "/b").unwrap();
    assert!((b.1 - 0.5).abs() < 1e-3, "{b:?}");
}

#[test]
fn longer_contexts_know_the_previous_page() {
    let walks = |site: &mut Site<Ppm>| {
        site.walk("x", 20, &["/x", "/m", "/after-x"]);
        site.walk("y", 20, &["/y", "/m", "/after-y"]);
    };
    let mut site = Site::new(Ppm::new(longest(2, 1)));
    walks(&mut site);
    assert_eq!(site.paths(&["/x", "/m"]), ["/after-x"]);
    assert_eq!(site.paths(&["/m"]), ["/after-x", "/after-y"]);
    assert_eq!(site.paths(&["/never", "/m"]), ["/after-x", "/after-y"]);
    let backoff = Backoff::Escape;
    let mut site = Site::new(Ppm::new(PpmParameters { backoff, ..longest(2, 1) }));
    walks(&mut site);
    let ranked = site.ask(&["/x", "/m"]);
    // One follower in twenty occurrences escapes with 1 / 21 to the shorter context's half.
    assert_eq!(ranked[0], ("/after-x".to_owned(), 1.0));
    assert!((ranked[1].1 - 0.5 / 21.0).abs() < 1e-3, "{ranked:?}");
    let backoff = Backoff::Blend { discount: 1.0 };
    let mut site = Site::new(Ppm::new(PpmParameters { backoff, ..longest(2, 1) }));
    walks(&mut site);
    assert_eq!(site.ask(&["/x", "/m"])[0].0, "/after-x");
    // And the popular URLs, if nothing is known.
    assert_eq!(site.ask(&[])[0].0, "/m");
}

#[test]
fn own_visits_do_not_affect_the_prediction() {
    let [longest, escape, blend] =
        [Backoff::Longest, Backoff::Escape, Backoff::Blend { discount: 1.0 }]
            .map(|backoff| PpmParameters { backoff, ..longest(2, 1) });
    for parameters in [longest, escape, blend] {
        let mut site = Site::new(Ppm::new(parameters));
        site.walk("x", 20, &["/m", "/z"]);
        site.visit("me", "/x");
        site.visit("me", "/m");
        // No other client was at /m through /x, so all knowledge about /m counts.
        let first = site.ask_of("me").swap_remove(0);
        assert_eq!(first.0, "/z", "{parameters:?}");
        let expected = if parameters == blend { 20.0 / 21.0 } else { 1.0 };
        assert!(first.1 >= expected - 1e-4, "{parameters:?}: {first:?}");
    }
}

#[test]
fn popular_pages_follow_an_unknown_page() {
    let mut site = Site::new(Ppm::new(PpmParameters::shipped()));
    site.walk("x", 20, &["/a", "/b"]);
    site.visit("me", "/once");
    let ranked = site.ask_of("me");
    let mut paths: Vec<&str> = ranked.iter().map(|(path, _)| path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/a", "/b"]);
    // Each is 20 of 41 pages, and half of all pages are followed by another one.
    for (path, probability) in &ranked {
        assert!((probability - 0.5 * 20.0 / 41.0).abs() < 1e-3, "{path} {probability}");
    }
    // If others were there and left, a continuation is less certain, and the more of them, the less.
    let mut before = ranked[0].1;
    for others in ["one", "two", "three"] {
        site.walk(others, 5, &["/once"]);
        let now = site.ask_of("me")[0].1;
        assert!(now > 0.0 && now < 0.7 * before, "{others}: {now} {before}");
        before = now;
    }
}

#[test]
fn popularity_predicts_little_on_a_site_of_single_pages() {
    let mut site = Site::new(Ppm::new(PpmParameters::shipped()));
    site.walk("x", 99, &["/a"]);
    assert!((site.ask(&[])[0].1 - 0.01).abs() < 1e-4);
}

#[test]
fn longer_context_without_public_followers_is_ignored() {
    let mut site = Site::new(Ppm::new(longest(2, 1)));
    site.walk("x", 20, &["/m", "/z"]);
    site.walk("own", 1, &["/x", "/m", "/own"]);
    assert_eq!(site.paths(&["/x", "/m"]), ["/z"]);
    // But if the client has all followers, nothing else follows.
    site.walk("y", 20, &["/y", "/m", "/y"]);
    assert_eq!(site.paths(&["/y", "/m"]), [] as [&str; 0]);
}

#[test]
fn popular_pages_are_ranked_by_their_share() {
    let mut site = Site::new(TopN::new(Duration::from_secs(3_600_000)));
    site.walk("x", 30, &["/a", "/a.png", "/b"]);
    site.walk("y", 20, &["/c", "/a"]);
    let ranked = site.ask(&["/b"]);
    let order: Vec<_> = ranked.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(order, ["/a", "/a.png", "/c"]);
    for (one, share) in ranked.iter().zip([0.5, 0.3, 0.2]) {
        assert!((one.1 - share).abs() < 0.01, "{ranked:?}");
    }
}

#[test]
fn popular_pages_have_many_predictable_visits() {
    type Requests = fn(&mut Site<TopN>);
    let cases: [(&str, Requests); 4] = [
        ("a page that refreshes itself", |site| (0..500).for_each(|_| site.visit("own", "/p"))),
        ("a page that asks again and again", |site| {
            for number in 0..20 {
                site.visit("own", &format!("/{number}"));
                (0..50).for_each(|_| site.visit("own", "/p"));
            }
        }),
        ("there and back", |site| {
            (0..500).for_each(|number| site.visit("own", ["/p", "/q"][number % 2]));
        }),
        ("a search", |site| site.walk("s", 500, &["/p?q=1"])),
    ];
    for (what, requests) in cases {
        let mut site = Site::new(TopN::new(Duration::from_secs(3_600_000)));
        site.walk("p", 10, &["/p", "/q"]);
        site.walk("a", 30, &["/a", "/b"]);
        requests(&mut site);
        let ranked = site.ask(&[]);
        let mut first: Vec<&str> = ranked[..2].iter().map(|(path, _)| path.as_str()).collect();
        first.sort_unstable();
        assert_eq!(first, ["/a", "/b"], "{what}: {ranked:?}");
    }
}

#[test]
fn older_visits_count_less() {
    let half_life = Duration::from_secs(100);
    for parameters in [longest(1, 1), PpmParameters::shipped()] {
        let mut site = Site::new(Ppm::new(PpmParameters { half_life, ..parameters }));
        // A visit per second may age the counts by a second.
        let limits = Limits { half_life, visits_per_half_life: 100, ..Limits::default() };
        site.observer = Observer::new(ClientHasher::new([7; 16]), limits);
        site.walk("x", 100, &["/a", "/b"]);
        site.walk("z", 200, &["/other"]);
        site.walk("y", 30, &["/a", "/c"]);
        assert_eq!(site.ask(&["/a"])[0].0, "/c");
    }
}

#[test]
fn unlikely_and_costly_urls_are_not_suggested() {
    let parameters = PpmParameters { least: 0.05, ..longest(1, 1) };
    let mut site = Site::new(Ppm::new(parameters));
    site.walk("x", 90, &["/a", "/b"]);
    site.walk("y", 10, &["/a", "/c"]);
    site.walk("z", 4, &["/a", "/d"]);
    site.walk("other", 20, &["/d"]);
    assert_eq!(site.paths(&["/a"]), ["/b", "/c"]);
    let withheld = |site: &Site<Ppm>, path: &str| {
        let id = |path: &str| site.observer.url(path).unwrap();
        let pages = [id("/a")];
        let question = Question { at: site.now(), pages: &pages, learned: false, held: &pages };
        let told = site.predictor.explain(&question, site.observer.urls());
        told.candidates.iter().find(|one| one.url == id(path)).unwrap().withheld
    };
    assert_eq!(withheld(&site, "/d"), Some(Withheld::Unlikely));
    // Pages have 1000 bytes and cost 500 more: /c is wanted one time in ten, /b nearly always.
    let parameters = PpmParameters { bytes_per_hit: Some(Bytes(10_000)), ..longest(1, 1) };
    let mut site = Site::new(Ppm::new(parameters));
    site.walk("x", 90, &["/a", "/b"]);
    site.walk("y", 10, &["/a", "/c"]);
    assert_eq!(site.paths(&["/a"]), ["/b"]);
    assert_eq!(withheld(&site, "/c"), Some(Withheld::Costly));
}

#[test]
fn one_client_does_not_reveal_its_path() {
    let all = ["/a", "/b", "/c", "/d", "/e"];
    let paths = [&["/a"] as &[&str], &["/a", "/b"], &["/a", "/b", "/c"], &["/e", "/a"]];
    // The popular URLs, in that order and with the same shares, and no others.
    let is_popular_alone = |site: &Site<Ppm>, pages: &[&str]| {
        let mut popular = site.ask(&[]);
        popular.retain(|(path, _)| !pages.contains(&path.as_str()));
        let told = site.ask(pages);
        let part = told[0].1 / popular[0].1;
        let is_same = |((path, told), (other, popular)): (&(String, f32), &(String, f32))| {
            path == other && (told / popular / part - 1.0).abs() < 1e-4
        };
        told.len() == popular.len() && told.iter().zip(&popular).all(is_same)
    };
    for parameters in [
        longest(1, 1),
        longest(2, 5),
        longest(3, 10),
        PpmParameters { least: 0.0, ..PpmParameters::shipped() },
        PpmParameters { least: 0.0, clients: 1, ..PpmParameters::shipped() },
    ] {
        let mut site = Site::new(Ppm::new(parameters));
        // All five are public, each by separate visits.
        for page in all {
            site.walk(page, 20, &[page]);
        }
        for _ in 0..50 {
            for page in all {
                site.visit("own", page);
            }
        }
        // For any pages that a client claims.
        for pages in paths {
            if parameters.backoff == Backoff::Longest {
                assert_eq!(site.ask(pages), [], "{parameters:?}: {pages:?}");
            } else if parameters.clients > 1 {
                assert!(is_popular_alone(&site, pages), "{parameters:?}: {pages:?}");
            }
        }
        // And if one client were enough, that would be seen.
        let is_seen = |pages| !is_popular_alone(&site, pages);
        assert!(parameters.clients > 1 || paths.into_iter().any(is_seen), "{parameters:?}");
    }
}

#[test]
fn repeated_path_of_one_client_adds_little() {
    for parameters in [longest(1, 1), longest(2, 5), PpmParameters::shipped()] {
        let mut site = Site::new(Ppm::new(parameters));
        site.walk("x", 150, &["/a", "/b"]);
        // Enough of them to be revealed.
        for client in 0..12 {
            for _ in 0..300 {
                site.visit(&format!("own{client}"), "/a");
                site.visit(&format!("own{client}"), "/vote");
            }
        }
        let ranked = site.ask(&["/a"]);
        let place = |path| ranked.iter().position(|one| one.0 == path).unwrap();
        assert!(place("/b") < place("/vote"), "{parameters:?}: {ranked:?}");
    }
}

#[test]
fn three_clients_are_enough_and_two_are_not() {
    let mut site = Site::new(Ppm::new(longest(1, 1)));
    site.walk("b", 20, &["/b"]);
    site.walk("pair", 2, &["/a", "/b"]);
    assert_eq!(site.paths(&["/a"]), [] as [&str; 0]);
    // More than three, as two may share a class.
    site.walk("others", 6, &["/a", "/b"]);
    assert_eq!(site.paths(&["/a"]), ["/b"]);
}

#[test]
fn flood_of_one_client_does_not_displace_common_paths() {
    let small = PpmParameters {
        contexts: 64,
        followers: 240,
        followers_per_context: 12,
        ..PpmParameters::paper(2, 5)
    };
    let mut site = Site::new(Ppm::new(small));
    site.walk("x", 40, &["/a", "/b", "/c"]);
    for number in 0..5_000 {
        site.visit("flood", &format!("/{}", number * 7919 % 1_000));
        if number % 10 == 0 {
            site.visit("flood", "/a");
        }
    }
    assert_eq!(site.paths(&["/a"]), ["/b", "/c"]);
}

#[test]
fn uncacheable_page_is_a_context_but_no_candidate() {
    let mut site = Site::new(Ppm::new(longest(1, 1)));
    site.walk("x", 20, &["/search?q=1", "/found", "/search?q=2"]);
    assert_eq!(site.paths(&["/search"]), ["/found"]);
    assert_eq!(site.paths(&["/found"]), [] as [&str; 0]);
}

#[test]
fn cheaper_urls_have_a_higher_priority() {
    let mut site = Site::new(Ppm::new(longest(1, 1)));
    site.walk("x", 30, &["/a", "/dear"]);
    site.walk("y", 20, &["/a", "/cheap"]);
    let urls = site.observer.urls();
    let one = |path, probability| Candidate { url: site.observer.url(path).unwrap(), probability };
    let mut by_priority = Vec::new();
    prioritise(&[one("/dear", 0.6), one("/cheap", 0.4)], urls, &mut by_priority);
    let order: Vec<_> = by_priority.iter().map(|(_, one)| one.url).collect();
    assert_eq!(order, [one("/dear", 0.6).url, one("/cheap", 0.4).url], "at equal cost");
    assert_eq!(by_priority[0].0, urls.priority(order[0], 0.6));
}

#[test]
fn explanation_gives_the_reason_for_each_candidate() {
    let all = PpmParameters { least: 0.0, bytes_per_hit: None, ..PpmParameters::shipped() };
    for (parameters, contexts) in [
        (longest(2, 1), vec![2]),
        (PpmParameters { backoff: Backoff::Escape, ..longest(2, 1) }, vec![2, 1]),
        (PpmParameters { order: 2, window: 1, ..all }, vec![2, 1]),
    ] {
        let mut site = Site::new(Ppm::new(parameters));
        site.walk("many", 30, &["/x", "/a", "/b"]);
        site.walk("c", 20, &["/c"]);
        site.walk("pair", 2, &["/x", "/a", "/c"]);
        site.walk("own", 1, &["/x", "/a", "/own"]);
        site.walk("back", 9, &["/x", "/a", "/x"]);
        let id = |path: &str| site.observer.url(path).unwrap();
        let mut held = [id("/x"), id("/a")];
        held.sort_unstable();
        let question =
            Question { at: site.now(), pages: &[id("/x"), id("/a")], learned: false, held: &held };
        let told = site.predictor.explain(&question, site.observer.urls());
        let lengths: Vec<usize> = told.contexts.iter().map(|context| context.pages).collect();
        assert_eq!(lengths, contexts, "{parameters:?}");
        assert!((told.contexts[0].occurrences - 42.0).abs() < 0.1, "{told:?}");
        assert_eq!(told.contexts[0].followers, 4);
        let mut ranked = Vec::new();
        site.predictor.rank(&question, site.observer.urls(), &mut ranked);
        for (one, ranked) in told.candidates.iter().zip(&ranked) {
            assert_eq!((one.url, one.probability), (ranked.url, ranked.probability));
            assert_eq!(one.withheld, None);
        }
        let of = |path| *told.candidates.iter().find(|one| one.url == id(path)).unwrap();
        assert!(of("/b").clients.unwrap() >= 3);
        assert_eq!(of("/own").withheld, Some(Withheld::NotPublic));
        assert_eq!(of("/x").withheld, Some(Withheld::Held));
        assert!((of("/x").probability - 9.0 / 42.0).abs() < 0.01, "{:?}", of("/x"));
        // General popularity knows it too, and reveals it without the path.
        let by_popularity = matches!(parameters.backoff, Backoff::Blend { .. });
        let expected = (!by_popularity).then_some(Withheld::FewClients);
        assert_eq!((of("/c").withheld, of("/c").clients), (expected, Some(2)));
    }
}

/// Clients that visit pages.
fn visits() -> impl Strategy<Value = Vec<(u32, u32)>> {
    prop::collection::vec((0u32..30, 0u32..40), 0..600)
}

fn target(number: u32) -> String {
    if number % 4 == 3 { format!("/{number}.png") } else { format!("/{number}") }
}

proptest! {
    /// A predictor's ranking is public, not held, sorted and a probability; and the same each time.
    #[test]
    fn ranking_is_public_sorted_and_repeatable(visits in visits(), which in 0usize..5, asked in 0u32..40) {
        let parameters = [
            longest(1, 1),
            longest(3, 10),
            PpmParameters { backoff: Backoff::Escape, ..longest(2, 5) },
            PpmParameters { clients: 1, ..PpmParameters::shipped() },
            PpmParameters { followers: 60, contexts: 16, followers_per_context: 12, ..longest(2, 5) },
        ];
        let mut site = Site::new(Ppm::new(parameters[which]));
        let mut again = Site::new(Ppm::new(parameters[which]));
        for (client, page) in &visits {
            for site in [&mut site, &mut again] {
                site.visit(&client.to_string(), &target(*page));
            }
        }
        let asked = target(asked);
        let ranked = site.ask(&[&asked]);
        prop_assert_eq!(&ranked, &again.ask(&[&asked]));
        for (path, probability) in &ranked {
            prop_assert!((0.0..=1.0).contains(probability), "{} {}", path, probability);
            prop_assert!(site.observer.urls().is_public(site.observer.url(path).unwrap()));
            prop_assert_ne!(path, &asked);
        }
        prop_assert!(ranked.is_sorted_by(|a, b| a.1 >= b.1));
        let mut paths: Vec<_> = ranked.iter().map(|(path, _)| path).collect();
        paths.sort();
        paths.dedup();
        prop_assert_eq!(paths.len(), ranked.len());
    }

    /// With room for all of them, the counts are those of a model that keeps everything.
    #[test]
    fn counts_match_an_unbounded_model(visits in visits(), order in 1usize..4, window in 1u32..6) {
        let parameters = PpmParameters { clients: 1, followers_per_context: 240, ..longest(order, window) };
        let mut site = Site::new(Ppm::new(parameters));
        let mut clients: std::collections::BTreeMap<u32, Vec<u32>> = Default::default();
        for (client, page) in &visits {
            site.visit(&client.to_string(), &target(*page));
            clients.entry(*client).or_default().push(*page);
        }
        // A reload is not a visit.
        let is_page = |number: &u32| number % 4 != 3;
        for requests in clients.values_mut() {
            let mut kept: Vec<u32> = Vec::new();
            for request in requests.drain(..) {
                let last = kept.iter().rev().find(|request| is_page(request));
                if !(is_page(&request) && last == Some(&request)) {
                    kept.push(request);
                }
            }
            *requests = kept;
        }
        // For each single previous page: occurrences, and how often each URL followed.
        for asked in (0..40).filter(is_page) {
            let mut occurrences = 0.0f32;
            let mut followers: std::collections::BTreeMap<u32, f32> = Default::default();
            for requests in clients.values() {
                for (at, _) in requests.iter().enumerate().filter(|(_, request)| **request == asked) {
                    occurrences += 1.0;
                    let mut pages = 0;
                    let mut seen = std::collections::BTreeSet::new();
                    for behind in &requests[at + 1..] {
                        if pages == window {
                            break;
                        }
                        pages += u32::from(is_page(behind));
                        if *behind != asked && seen.insert(*behind) {
                            *followers.entry(*behind).or_default() += 1.0;
                        }
                    }
                }
            }
            for (path, probability) in site.ask(&[&target(asked)]) {
                let number: u32 = path[1..].trim_end_matches(".png").parse().unwrap();
                let expected = followers.get(&number).copied().unwrap_or(0.0) / occurrences;
                prop_assert!(
                    (probability - expected).abs() < 0.01,
                    "{} behind {}: {} for {}", number, asked, probability, expected
                );
            }
        }
    }

    /// For any clients, the state stays within the limits of the parameters.
    #[test]
    fn memory_is_bounded(visits in visits()) {
        let parameters = PpmParameters {
            contexts: 16,
            followers: 60,
            followers_per_context: 12,
            ..PpmParameters::paper(3, 10)
        };
        let mut site = Site::new(Ppm::new(parameters));
        for (client, page) in visits {
            site.visit(&client.to_string(), &target(page));
        }
        let resident = site.predictor.resident();
        prop_assert!(resident <= parameters.most_resident(), "{}", resident);
    }
}
