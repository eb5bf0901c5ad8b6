use std::time::Duration;

use lull_cc::Timestamp;

use super::*;
use crate::observe::{ClientHasher, Limits};
use crate::predict::{Ppm, PpmParameters, TopN};

fn at(second: u64) -> Timestamp {
    Timestamp::from_nanos(second * 1_000_000_000)
}

fn entry(second: u64, client: u64, target: &'static str) -> Entry<'static> {
    Entry::page(at(second), client.to_string(), target)
}

/// Clients one after the other, ten seconds each, all on the same path.
fn walks(clients: u64, path: &[&'static str]) -> Vec<Entry<'static>> {
    (0..clients)
        .flat_map(|client| {
            let step = |(at, target): (usize, &&'static str)| {
                entry(10 * client + at as u64, client, target)
            };
            path.iter().enumerate().map(step).collect::<Vec<_>>()
        })
        .collect()
}

fn measure(entries: Vec<Entry<'static>>, predictor: &mut dyn Predictor, plan: &Plan) -> Evaluation {
    let mut observer = Observer::new(ClientHasher::new([7; 16]), Limits::default());
    let mut predictors = [NamedPredictor { name: "one".to_owned(), predictor }];
    evaluate(entries, &mut observer, &mut predictors, plan)
}

/// Everything after the twentieth client is measured.
fn plan(lengths: &[usize]) -> Plan {
    Plan { slices: vec![at(200)], lengths: lengths.to_vec(), priorities: vec![1e-3, 1e-9] }
}

#[test]
fn shared_path_is_predicted_from_its_second_page() {
    let entries = walks(40, &["/a", "/b", "/c"]);
    let result = measure(entries, &mut Ppm::new(PpmParameters::markov()), &plan(&[1, 10]));
    assert_eq!(result.visits, 120);
    let measured = &result.slices[0][0];
    assert_eq!((measured.pages, measured.requests), (60, 60));
    for point in &measured.by_length {
        assert!((point.page_hit_rate - 2.0 / 3.0).abs() < 1e-9, "{point:?}");
        assert_eq!((point.precision, point.recall), (1.0, 1.0));
        assert_eq!((point.wasted_bytes, point.hit_rate), (0, point.page_hit_rate));
        assert!((point.bytes_per_page - 2_000.0 / 3.0).abs() < 1e-9, "{point:?}");
    }
    // No priority is above a second per kilobyte, and all are above a second per gigabyte.
    assert_eq!(measured.by_priority[0].page_hit_rate, 0.0);
    assert_eq!(measured.by_priority[1].page_hit_rate, measured.by_length[0].page_hit_rate);
}

#[test]
fn parts_of_the_page_itself_are_no_hits_and_cost_nothing() {
    let entries = walks(40, &["/a", "/a.png", "/b", "/b.png"]);
    let result = measure(entries, &mut Ppm::new(PpmParameters::markov()), &plan(&[10]));
    let point = &result.slices[0][0].by_length[0];
    // Of two pages and two images only the second page: its image is suggested too late.
    assert_eq!((point.page_hit_rate, point.hit_rate), (0.5, 0.25));
    assert_eq!((point.precision, point.wasted_bytes), (1.0, 0));
    let mut ahead = Ppm::new(PpmParameters::shipped());
    let entries = walks(40, &["/a", "/a.png", "/b", "/b.png"]);
    let result = measure(entries, &mut ahead, &plan(&[10]));
    assert_eq!(result.slices[0][0].by_length[0].hit_rate, 0.5, "the image of the next page too");
}

#[test]
fn unused_prefetches_count_as_waste_at_the_session_end() {
    // After /a half of the clients go to /b and half to /c; a list of two fetches both.
    let mut entries = Vec::new();
    for client in 0..80 {
        entries.push(entry(10 * client, client, "/a"));
        entries.push(entry(10 * client + 1, client, if client % 2 == 0 { "/b" } else { "/c" }));
    }
    let result = measure(entries, &mut Ppm::new(PpmParameters::markov()), &plan(&[2]));
    let point = &result.slices[0][0].by_length[0];
    assert_eq!((point.page_hit_rate, point.precision), (0.5, 0.5));
    assert_eq!(point.wasted_bytes, 60 * 1_000);
}

#[test]
fn cached_page_is_no_demand() {
    let entries = walks(40, &["/a", "/b", "/a", "/b"]);
    let result = measure(entries, &mut TopN::new(Duration::from_secs(3_600)), &plan(&[5]));
    let measured = &result.slices[0][0];
    assert_eq!(measured.pages, 40);
    assert_eq!(measured.by_length[0].page_hit_rate, 0.5);
}

#[test]
fn clients_are_remembered_while_their_sessions_last() {
    // Sessions end after half an hour, and a client comes every ten seconds.
    let entries = walks(1_000, &["/a", "/b"]);
    let (mut predictor, plan) = (Ppm::new(PpmParameters::markov()), plan(&[10]));
    let mut observer = Observer::new(ClientHasher::new([7; 16]), Limits::default());
    let mut predictors = [NamedPredictor { name: "one".to_owned(), predictor: &mut predictor }];
    let mut evaluator = Evaluator::new(&mut observer, &mut predictors, &plan);
    for entry in &entries {
        evaluator.take(entry);
        assert!(evaluator.clients.present() <= 181, "{}", evaluator.clients.present());
    }
    let point = evaluator.finish().slices[0][0].by_length[0];
    assert_eq!((point.precision, point.wasted_bytes), (1.0, 0));
}

#[test]
fn remembered_clients_are_limited_to_the_sessions() {
    // All together: each gets its first page, then each its second one.
    let page = |second, path| move |client| entry(second + client / 100, client, path);
    let entries = walks(40, &["/a", "/b"]).into_iter();
    let entries = entries.chain((100..400).map(page(600, "/a")));
    let entries = entries.chain((100..400).map(page(700, "/b")));
    let (mut predictor, plan) = (Ppm::new(PpmParameters::markov()), plan(&[10]));
    let limits = Limits { sessions: 50, ..Limits::default() };
    let mut observer = Observer::new(ClientHasher::new([7; 16]), limits);
    let mut predictors = [NamedPredictor { name: "one".to_owned(), predictor: &mut predictor }];
    let mut evaluator = Evaluator::new(&mut observer, &mut predictors, &plan);
    for entry in entries {
        evaluator.take(&entry);
        assert!(evaluator.clients.present() <= 50, "{}", evaluator.clients.present());
    }
    // Evicted clients have fetched their suggestions.
    let point = evaluator.finish().slices[0][0].by_length[0];
    assert!(point.wasted_bytes >= 250 * 1_000, "{point:?}");
}

#[test]
fn hints_to_clients_that_left_are_counted() {
    let mut entries = walks(40, &["/a", "/b"]);
    for client in 100..200 {
        entries.push(entry(10 * client, client, "/a"));
    }
    entries.push(entry(100_000, 7, "/b"));
    let result = measure(entries, &mut Ppm::new(PpmParameters::markov()), &plan(&[1]));
    let point = &result.slices[0][0].by_length[0];
    assert_eq!(point.wasted_bytes, 100 * 1_000);
}

#[test]
fn requests_that_teach_nothing_keep_a_session_alive() {
    let mut entries = walks(40, &["/a", "/b"]);
    entries.push(entry(1_000, 99, "/a"));
    entries.push(Entry { status: 404, ..entry(2_500, 99, "/missing") });
    entries.push(entry(4_000, 99, "/b"));
    let plan = Plan { slices: vec![at(900)], ..plan(&[1]) };
    let result = measure(entries, &mut Ppm::new(PpmParameters::markov()), &plan);
    let measured = &result.slices[0][0];
    assert_eq!((measured.pages, measured.by_length[0].page_hit_rate), (2, 0.5));
}

#[test]
fn uncacheable_request_consumes_no_prefetch() {
    let path = ["/a", "/b?x", "/c", "/b"];
    let mut entries = walks(20, &["/a", "/b"]);
    for client in 20..40u64 {
        entries.extend((0..).zip(path).map(|(at, page)| entry(10 * client + at, client, page)));
    }
    let result = measure(entries, &mut Ppm::new(PpmParameters::markov()), &plan(&[1]));
    let measured = &result.slices[0][0];
    let point = measured.by_length[0];
    // The prefetch after /a is the last request of every client; it is not there before.
    assert_eq!((measured.pages, point.precision, point.wasted_bytes), (80, 1.0, 0));
    assert!(point.page_hit_rate >= 0.25, "{point:?}");
}

#[test]
fn slices_are_counted_separately() {
    let plan = Plan { slices: vec![at(200), at(300)], lengths: vec![1], priorities: vec![] };
    let result = measure(walks(40, &["/a", "/b"]), &mut Ppm::new(PpmParameters::markov()), &plan);
    let pages: Vec<_> = result.slices.iter().map(|slice| slice[0].pages).collect();
    assert_eq!(pages, [20, 20]);
    let split = Plan::split(at(100), at(200), 0.5, 0.25);
    assert_eq!(split.slices, [at(150), at(175)]);
}

/// A point of a curve over priorities.
fn point(bytes_per_page: f64, page_hit_rate: f64) -> Point {
    Point {
        length: None,
        priority: Some(1.0),
        page_hit_rate,
        hit_rate: 0.0,
        precision: 0.0,
        recall: 0.0,
        bytes_per_page,
        wasted_bytes: 0,
    }
}

fn measured(name: &str, by_priority: Vec<Point>) -> Measured {
    let name = name.to_owned();
    Measured { name, pages: 1, requests: 1, by_length: Vec::new(), by_priority }
}

#[test]
fn curves_are_interpolated() {
    let one = measured("one", vec![point(0.0, 0.0), point(100.0, 0.2), point(300.0, 0.4)]);
    for (bytes, expected) in [(0.0, 0.0), (50.0, 0.1), (100.0, 0.2), (200.0, 0.3), (900.0, 0.4)] {
        assert!((one.page_hit_rate_at(bytes) - expected).abs() < 1e-9, "{bytes}");
    }
}

#[test]
fn candidate_closest_to_the_baselines_is_chosen() {
    // Page hit rates at 100 and at 300 bytes per page, in two slices; the best baseline has 0.4 and 0.4 in
    // the first, 0.2 and none in the second.
    let candidates = [
        ("base a", [[0.4, 0.3], [0.1, 0.0]]),
        ("base b", [[0.2, 0.4], [0.2, 0.0]]),
        ("as good as both", [[0.4, 0.4], [0.2, 0.0]]),
        ("better", [[0.4, 0.5], [0.2, 0.9]]),
        ("better once more", [[0.4, 0.5], [0.2, 0.9]]),
        ("much better, and worse once", [[0.9, 0.9], [0.19, 0.9]]),
    ];
    let slice = |which: usize| -> Vec<Measured> {
        let points = |rates: [f64; 2]| vec![point(100.0, rates[0]), point(300.0, rates[1])];
        candidates.iter().map(|(name, rates)| measured(name, points(rates[which]))).collect()
    };
    let (first, second) = (slice(0), slice(1));
    let ranked = ranking(&[&first, &second], |name| name.starts_with("base"), &[100.0, 300.0]);
    let expected = [
        ("better", 0.0, (1.0 + 1.25 + 1.0) / 3.0),
        ("better once more", 0.0, (1.0 + 1.25 + 1.0) / 3.0),
        ("as good as both", 0.0, 1.0),
        ("much better, and worse once", 0.05, (2.25 + 2.25 + 0.95) / 3.0),
        ("base b", 0.5, (0.5 + 1.0 + 1.0) / 3.0),
        ("base a", 0.75, (1.0 + 0.75 + 0.5) / 3.0),
    ];
    assert_eq!(ranked.len(), expected.len());
    for ((name, standing), (expected, shortfall, ratio)) in ranked.iter().zip(expected) {
        assert_eq!(*name, expected);
        assert!((standing.shortfall - shortfall).abs() < 1e-9, "{name}: {standing:?}");
        assert!((standing.ratio - ratio).abs() < 1e-9, "{name}: {standing:?}");
    }
    assert_eq!(ranking(&[], |_| true, &[100.0]), []);
    let none = ranking(&[&first], |_| false, &[100.0]);
    assert_eq!(
        none[0],
        ("base a", BaselineComparison { shortfall: 0.0, ratio: 0.0 }),
        "nothing to go by"
    );
}
