use std::collections::BTreeSet;

use lull_cc::Bytes;
use proptest::prelude::*;

use super::*;
use crate::encoding::VERSION;
use crate::log::Entry;
use crate::observe::{ClientHasher, Limits};
use crate::predict::{Candidate, PpmParameters, Predictor as _, Question};

fn at(second: u64) -> Timestamp {
    Timestamp::from_nanos(second * 1_000_000_000)
}

fn server(number: u64) -> Model {
    let limits = Limits { urls: 1 << 12, ..Limits::default() };
    let mut model = Model::new(ClientHasher::new([1; 16]), limits, PpmParameters::shipped());
    model.share(Sender(number));
    model
}

fn get(model: &mut Model, second: u64, client: &str, target: &str) {
    let entry = Entry { bytes: Bytes(2_000), ..Entry::page(at(second), client, target) };
    let _ = model.learn(&entry);
}

fn clients(model: &Model, target: &str) -> u32 {
    model.observer().url(target).map_or(0, |url| model.observer().urls().clients(url))
}

/// Everything that a server has for the others.
fn take(model: &mut Model, second: u64) -> Vec<(u64, Delta)> {
    core::iter::from_fn(|| model.take_delta(at(second))).collect()
}

fn share_counts(from: &mut Model, to: &mut Model, second: u64) {
    let sender = from.own.unwrap();
    for (number, delta) in take(from, second) {
        let delta = Delta::decode(&delta.encode()).unwrap();
        assert!(to.merge(sender, number, &delta));
    }
}

fn answer(model: &Model, page: &str) -> Vec<(String, f32)> {
    let urls = model.observer().urls();
    let pages: Vec<UrlId> = model.observer().url(page).into_iter().collect();
    let question = Question { at: model.latest(), pages: &pages, learned: false, held: &pages };
    let mut ranked: Vec<Candidate> = Vec::new();
    model.predictor().rank(&question, urls, &mut ranked);
    let name = |one: &Candidate| (urls.path(one.url).unwrap().to_owned(), one.probability);
    ranked.iter().map(name).collect()
}

#[test]
fn page_learned_at_one_server_is_predicted_at_another() {
    let (mut one, mut other) = (server(1), server(2));
    for client in 0..12 {
        let client = format!("192.0.2.{client}");
        get(&mut one, 1_000, &client, "/a");
        get(&mut one, 1_010, &client, "/b");
    }
    assert!(one.has_delta());
    assert_eq!(answer(&other, "/a"), []);
    share_counts(&mut one, &mut other, 1_020);
    assert!(!one.has_delta());
    let predicted = answer(&other, "/a");
    assert!(predicted[0].0 == "/b" && predicted[0].1 > 0.9, "{predicted:?}");
    assert_eq!(take(&mut other, 1_030), [], "received changes are not its own");
}

#[test]
fn two_servers_learn_what_one_server_would() {
    let (mut one, mut other, mut alone) = (server(1), server(2), server(3));
    for client in 0..40 {
        let name = format!("192.0.2.{client}");
        let second = 1_000 + 20 * client;
        for (step, page) in ["/a", ["/b", "/b", "/c"][client as usize % 3], "/d"].iter().enumerate()
        {
            let here = if client % 2 == 0 { &mut one } else { &mut other };
            get(here, second + step as u64, &name, page);
            get(&mut alone, second + step as u64, &name, page);
        }
        if client % 8 == 7 {
            share_counts(&mut one, &mut other, second + 10);
            share_counts(&mut other, &mut one, second + 10);
        }
    }
    let expected = answer(&alone, "/a");
    assert!(expected.len() >= 3, "{expected:?}");
    for model in [&one, &other] {
        let found = answer(model, "/a");
        assert_eq!(found.len(), expected.len());
        for ((path, probability), (expected_path, expected)) in found.iter().zip(&expected) {
            assert_eq!(path, expected_path);
            assert!((probability - expected).abs() < 0.02, "{path} {probability} {expected}");
        }
        for page in ["/a", "/b", "/c", "/d"] {
            assert_eq!(clients(model, page), clients(&alone, page), "{page}");
        }
    }
}

#[test]
fn client_of_two_servers_counts_once() {
    let (mut one, mut other) = (server(1), server(2));
    for round in 0..50 {
        let second = 1_000 + 100 * round;
        // An address is one client, with any user agent.
        get(&mut one, second, "192.0.2.7", "/reset-password/1f3c");
        get(&mut other, second, "192.0.2.7", "/reset-password/1f3c");
        share_counts(&mut one, &mut other, second + 50);
        share_counts(&mut other, &mut one, second + 50);
    }
    assert_eq!(clients(&one, "/reset-password/1f3c"), 1);
    assert_eq!(clients(&other, "/reset-password/1f3c"), 1);
    // Clients of both are added.
    (1..=3).for_each(|client| get(&mut one, 9_000, &format!("198.51.100.{client}"), "/both"));
    (4..=6).for_each(|client| get(&mut other, 9_000, &format!("198.51.100.{client}"), "/both"));
    let (before, more) = (clients(&one, "/both"), clients(&other, "/both"));
    share_counts(&mut other, &mut one, 9_050);
    assert!(before < 5 && clients(&one, "/both") > before.max(more));
}

#[test]
fn page_that_is_private_at_one_server_is_private_at_all() {
    let (mut one, mut other) = (server(1), server(2));
    for client in 0..20 {
        get(&mut other, 1_000, &format!("192.0.2.{client}"), "/account");
    }
    let old = take(&mut other, 1_010);
    assert!(clients(&other, "/account") >= 5);
    // The first request for it here.
    let _ = one.learn(&Entry { private: true, ..Entry::page(at(1_020), "192.0.2.7", "/account") });
    share_counts(&mut one, &mut other, 1_030);
    assert_eq!(clients(&other, "/account"), 0);
    // The other server's earlier delta is late.
    for (number, delta) in old {
        one.merge(Sender(2), number, &delta);
    }
    assert_eq!(clients(&one, "/account"), 0);
}

#[test]
fn delta_counts_once_also_after_a_restart() {
    let (mut one, mut other) = (server(1), server(2));
    get(&mut one, 1_000, "192.0.2.7", "/a");
    let (number, delta) = one.take_delta(at(1_010)).unwrap();
    let visits = |model: &Model| {
        let url = model.observer().url("/a").unwrap();
        model.observer().urls().popularity(url, at(1_010))
    };
    assert!(other.merge(Sender(1), number, &delta) && !other.merge(Sender(1), number, &delta));
    assert!((visits(&other) - 1.0).abs() < 1e-3, "{}", visits(&other));
    for model in [&one, &other] {
        let mut bytes = Vec::new();
        model.write(&mut bytes).unwrap();
        let hasher = ClientHasher::new([1; 16]);
        let mut again = Model::read(&bytes[..], hasher, Bytes(1 << 30)).unwrap();
        assert!(!again.merge(Sender(1), number, &delta), "its own delta, or one that it has");
        // A message of a server that started again.
        assert!(again.merge(Sender(3), 1, &delta));
    }
}

#[test]
fn pending_counts_are_bounded_and_bars_are_kept() {
    let (mut one, mut other) = (server(1), server(2));
    for client in 0..20 {
        get(&mut one, 1_000, &format!("192.0.2.{client}"), "/account");
    }
    share_counts(&mut one, &mut other, 1_010);
    assert!(clients(&other, "/account") >= 5);
    let empty = one.resident().0;
    // The others are away, and one client has very many paths.
    for number in 0..30_000_u64 {
        get(&mut one, 2_000 + number / 10, "192.0.2.7", &format!("/{}", number * number % 3_001));
    }
    let _ = one.learn(&Entry { private: true, ..Entry::page(at(6_000), "192.0.2.7", "/account") });
    assert!(one.resident().0 - empty < 100 << 20);
    let deltas = take(&mut one, 6_010);
    assert!(deltas.len() > 1);
    assert!(deltas.iter().all(|(_, delta)| delta.encode().len() < 400_000));
    deltas.iter().for_each(|(number, delta)| _ = other.merge(Sender(1), *number, delta));
    assert_eq!(clients(&other, "/account"), 0);
}

#[test]
fn delta_has_no_client() {
    let mut one = server(1);
    get(&mut one, 1_000, "192.0.2.7", "/a");
    get(&mut one, 1_001, "192.0.2.7", "/b");
    let bytes = one.take_delta(at(1_010)).unwrap().1.encode();
    let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    let hasher = ClientHasher::new([1; 16]);
    assert!(has(b"/a") && has(b"/b"));
    assert!(!has(b"192.0.2.7") && !has(&[1; 16]));
    assert!(!has(&hasher.client("192.0.2.7", "").0.to_le_bytes()));
    assert!(!has(&hasher.origin("192.0.2.7").0.to_le_bytes()));
}

#[test]
fn damaged_delta_is_refused() {
    let mut one = server(1);
    get(&mut one, 1_000, "192.0.2.7", "/a");
    get(&mut one, 1_001, "192.0.2.7", "/b");
    let bytes = one.take_delta(at(1_010)).unwrap().1.encode();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(Delta::decode(&changed).is_err(), "byte {at}");
        assert!(Delta::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
    assert_eq!(VERSION, 4);
}

/// A request at one of three servers, or an exchange.
#[derive(Clone, Copy, Debug)]
enum Step {
    Get { server: usize, client: u8, url: u8 },
    Private { server: usize, url: u8 },
    Deliver { from: usize, to: usize, again: bool },
}

fn any_step() -> impl Strategy<Value = Step> {
    let server = || 0_usize..3;
    prop_oneof![
        6 => (server(), 0_u8..9, 0_u8..2)
            .prop_map(|(server, client, url)| Step::Get { server, client, url }),
        1 => (server(), 0_u8..2).prop_map(|(server, url)| Step::Private { server, url }),
        2 => (server(), server(), any::<bool>())
            .prop_map(|(from, to, again)| Step::Deliver { from, to, again }),
    ]
}

/// Three servers, the messages of each, and how many of them each other one has got.
struct Site {
    servers: Vec<Model>,
    sent: Vec<Vec<(u64, Delta)>>,
    got: [[usize; 3]; 3],
}

impl Site {
    fn deliver(&mut self, from: usize, to: usize, second: u64) {
        let new = take(&mut self.servers[from], second);
        self.sent[from].extend(new);
        for (number, delta) in &self.sent[from][self.got[from][to]..] {
            self.servers[to].merge(Sender(from as u64), *number, delta);
        }
        self.got[from][to] = self.sent[from].len();
    }
}

proptest! {
    /// The promise to visitors: with any requests, at any servers, in any order of messages, a URL has never
    /// more clients than it really has, and after all messages no client counts from before a bar.
    #[test]
    fn shared_count_never_exceeds_the_distinct_clients(
        steps in proptest::collection::vec(any_step(), 1..150),
    ) {
        let mut site = Site {
            servers: (0..3).map(server).collect(),
            sent: vec![Vec::new(); 3],
            got: [[0; 3]; 3],
        };
        let (mut ever, mut since) = ([(); 2].map(|()| BTreeSet::new()), [(); 2].map(|()| BTreeSet::new()));
        let mut second = 1_000;
        for step in steps {
            second += 1;
            match step {
                Step::Get { server, client, url } => {
                    let name = format!("192.0.2.{client}");
                    get(&mut site.servers[server], second, &name, &format!("/{url}"));
                    // A page that a client asks for once more is a reload: its client counts in any case.
                    ever[usize::from(url)].insert(client);
                    since[usize::from(url)].insert(client);
                }
                Step::Private { server, url } => {
                    let entry = Entry::page(at(second), "198.51.100.1", format!("/{url}"));
                    let _ = site.servers[server].learn(&Entry { private: true, ..entry });
                    since[usize::from(url)].clear();
                }
                Step::Deliver { from, to, again } if from != to => {
                    if again {
                        site.got[from][to] = 0;
                    }
                    site.deliver(from, to, second);
                }
                Step::Deliver { .. } => {}
            }
            for (url, ever) in ever.iter().enumerate() {
                for model in &site.servers {
                    let count = clients(model, &format!("/{url}"));
                    prop_assert!(count as usize <= ever.len());
                }
            }
        }
        for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
            site.deliver(from, to, second + 1);
        }
        for (url, since) in since.iter().enumerate() {
            let counts: Vec<_> =
                site.servers.iter().map(|model| clients(model, &format!("/{url}"))).collect();
            prop_assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
            prop_assert!(counts[0] as usize <= since.len(), "{counts:?} of {since:?}");
        }
    }
}
