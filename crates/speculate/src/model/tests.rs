use std::time::Duration;

use proptest::prelude::*;
use siphasher::sip::SipHasher24;

use super::*;
use crate::observe::UrlId;
use crate::predict::{Asker, Backoff, Candidate, Question};

const GIBIBYTE: Bytes = Bytes(1 << 30);

fn at(second: u64) -> Timestamp {
    Timestamp::from_nanos(second * 1_000_000_000)
}

fn key(number: u8) -> ClientHasher {
    ClientHasher::new([number; 16])
}

fn fresh() -> Model {
    Model::new(key(1), Limits::default(), PpmParameters::shipped())
}

fn bytes(model: &Model) -> Vec<u8> {
    let mut bytes = Vec::new();
    model.write(&mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8], key: ClientHasher) -> Result<Model, ReadError> {
    Model::read(bytes, key, GIBIBYTE)
}

/// Appends the right checksum to any bytes of a model.
fn sealed(body: &[u8]) -> Vec<u8> {
    let checksum = SipHasher24::new().hash(body);
    [body, &checksum.to_le_bytes()].concat()
}

fn body(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len() - 8]
}

/// This many separate clients take the same path, a request a second.
fn walk(model: &mut Model, second: &mut u64, name: &str, clients: u32, path: &[&str]) {
    for client in 0..clients {
        for target in path {
            *second += 1;
            let _ = model.learn(&Entry::page(at(*second), format!("{name}{client}"), *target));
        }
    }
}

/// A model of a small site.
fn small() -> Model {
    let mut model = fresh();
    walk(&mut model, &mut 1_000, "192.0.2.", 30, &["/a", "/a.png", "/b", "/b.png", "/c"]);
    model
}

fn answer(model: &Model, pages: &[&str]) -> Vec<Candidate> {
    let pages: Vec<UrlId> = pages.iter().filter_map(|page| model.observer().url(page)).collect();
    let mut held = pages.clone();
    held.sort_unstable();
    let question = Question { at: model.latest(), pages: &pages, learned: false, held: &held };
    let mut ranked = Vec::new();
    model.predictor().rank(&question, model.observer().urls(), &mut ranked);
    ranked
}

#[test]
fn model_does_not_depend_on_the_key() {
    let model = small();
    for hasher in [key(1), key(2)] {
        let again = read(&bytes(&model), hasher).unwrap();
        assert_eq!(bytes(&again), bytes(&model));
        let ranked = answer(&again, &["/a"]);
        assert_eq!(ranked, answer(&model, &["/a"]));
        assert!(ranked.len() > 2, "{ranked:?}");
        assert_eq!(again.latest(), model.latest());
    }
}

#[test]
fn bytes_are_the_same_on_every_machine() {
    let bytes = bytes(&small());
    assert_eq!(&bytes[..10], b"\x89LULLPPM\x04\x00");
    // A change of the format must change `VERSION` too. The parameters are in it, so another default gives
    // other bytes of the same version.
    assert_eq!((bytes.len(), SipHasher24::new().hash(&bytes)), (603, 11_707_271_102_373_369_116));
}

/// The previous program's model of the same visits as [`small`].
const VERSION_2: &[u8] = include_bytes!("version-2.model");

#[test]
fn previous_model_version_is_read_and_can_learn() {
    let mut model = read(VERSION_2, key(1)).unwrap();
    assert_eq!(*model.predictor().parameters(), PpmParameters::shipped());
    assert_eq!(*model.observer().limits(), Limits::default());
    assert_eq!(model.latest(), at(1_150));
    let ranked = answer(&model, &["/a"]);
    assert_eq!(model.observer().urls().path(ranked[0].url), Some("/b"));
    assert!(ranked[0].probability > 0.9, "{ranked:?}");
    walk(&mut model, &mut 2_000, "198.51.100.", 30, &["/a", "/new"]);
    let new = model.observer().url("/new").unwrap();
    assert!(answer(&model, &["/a"]).iter().any(|one| one.url == new && one.probability > 0.3));
    let again = read(&bytes(&model), key(1)).unwrap();
    assert_eq!(bytes(&again), bytes(&model));
    // A user who chose other parameters keeps them. The window is at 54.
    let mut other = body(VERSION_2).to_vec();
    other[54] = 7;
    let model = read(&sealed(&other), key(1)).unwrap();
    let parameters = *model.predictor().parameters();
    assert_eq!((parameters.window, parameters.fade, parameters.least), (7, 1.0, 0.0));
}

#[test]
fn quiet_site_keeps_its_model_for_years() {
    let mut model = small();
    let before = probability(&model);
    // A visit per day, for three years, of another page after the same one.
    for day in 0..1_000 {
        let client = format!("198.51.{}.{}", day / 250, day % 250);
        let _ = model.learn(&Entry::page(at(86_400 * (1 + day)), client, "/d"));
    }
    assert!(probability(&model) > 0.9 * before, "{before}");
}

#[test]
fn model_contains_no_client_identity() {
    let bytes = bytes(&small());
    let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    assert!(has(b"/a.png"));
    assert!(!has(b"192.0.2."));
    for client in 0..30 {
        let address = format!("192.0.2.{client}");
        assert!(!has(&key(1).client(&address, "").0.to_le_bytes()), "the client {address}");
        assert!(!has(&key(1).origin(&address).0.to_le_bytes()), "the origin {address}");
    }
    assert!(!has(&[1; 16]), "the key");
}

#[test]
fn incomplete_counts_restart_under_another_key() {
    // Each client has another class under each key, so eight keys make one of it eight.
    let mut model = fresh();
    let mut second = 1_000;
    walk(&mut model, &mut second, "public", 12, &["/public"]);
    let clients = |model: &Model, path: &str| {
        model.observer().urls().clients(model.observer().url(path).unwrap())
    };
    for number in 0..8 {
        model = read(&bytes(&model), key(number)).unwrap();
        second += 10_000;
        walk(&mut model, &mut second, "own", 1, &["/own", "/public"]);
        assert_eq!(clients(&model, "/own"), 1, "by key {number}");
        assert!(clients(&model, "/public") >= 5);
        assert_eq!(answer(&model, &["/own"]).len(), 1, "by popularity");
    }
    let context = model.predictor().explain(
        &Question {
            at: model.latest(),
            pages: &[model.observer().url("/own").unwrap()],
            learned: false,
            held: &[],
        },
        model.observer().urls(),
    );
    assert_eq!(context.candidates[0].clients, Some(1), "{context:?}");
    // Nothing is lost before something is learned, and nothing at all under the same key.
    let four = |number: u8, model: &Model| {
        let mut model = read(&bytes(model), key(number)).unwrap();
        let before = clients(&model, "/few");
        walk(&mut model, &mut 200_000, "four", 1, &["/few"]);
        (before, clients(&model, "/few"))
    };
    let mut model = fresh();
    walk(&mut model, &mut 1_000, "few", 4, &["/few"]);
    let before = clients(&model, "/few");
    assert!((2..=4).contains(&before), "{before}");
    assert_eq!(four(2, &model), (before, 1));
    let same = four(1, &model);
    assert!(same.0 == before && same.1 >= before, "{same:?}");
}

#[test]
fn limits_beyond_any_memory_do_not_overflow() {
    let limits = Limits { path_bytes: Bytes(u64::MAX), ..Limits::default() };
    assert_eq!(Model::most_resident(&limits, &PpmParameters::shipped()), Bytes(u64::MAX));
}

#[test]
fn invalid_model_error_names_the_fault() {
    let good = bytes(&small());
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut body = body(&good).to_vec();
        change(&mut body);
        sealed(&body)
    };
    let limit = |at: usize, value: u32| {
        with(&move |body| body[at..at + 4].copy_from_slice(&value.to_le_bytes()))
    };
    for (bytes, words) in [
        (Vec::new(), "not a model"),
        (b"GET / HTTP/1.1".to_vec(), "not a model"),
        (with(&|body| body[8] = 5), "version 5"),
        (with(&|body| body[8] = 1), "version 1"),
        (good[..good.len() - 9].to_vec(), "truncated"),
        (good[..good.len() - 1].to_vec(), "truncated"),
        ([&good[..], b"x"].concat(), "its end"),
        ([&good[..good.len() - 1], b"x"].concat(), "checksum"),
        (limit(18, 0), "its limit of URLs"),
        (limit(18, 1 << 24), "its limit of URLs"),
        (limit(22, 7), "its limit of paths"),
        (limit(30, 0), "its limit of clients"),
        (limit(30, u32::MAX), "1.07 GB are allowed"),
        (limit(50, 0), "its answers of a half-life"),
        (limit(54, 9), "its length of contexts"),
        (limit(58, 17), "its window"),
        (with(&|body| body[62] = 2), "its way to count"),
        (limit(63, f32::NAN.to_bits()), "its fading"),
        (with(&|body| body[67] = 3), "its way to use shorter contexts"),
        (limit(68, f32::INFINITY.to_bits()), "its discount"),
        (limit(72, 0), "its least number of clients"),
        (limit(76, 1f32.to_bits()), "its least probability"),
        (limit(96, 0), "its limit of contexts"),
        (limit(100, u32::MAX), "its limit of followers"),
        (limit(104, 1_531), "its limit of the followers of a context"),
        (with(&|body| body[108] = 2), "its ageing"),
        // The clock of the URLs, the hand, and the number of URLs.
        (with(&|body| body[141] = 2), "its clock"),
        (limit(170, 1_000), "its table of URLs"),
        (limit(174, u32::MAX), "its table of URLs"),
    ] {
        let error = read(&bytes, key(1)).unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains('\n'), "no '{words}' in '{error}'");
    }
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is broken"))
        }
    }
    let error = Model::read(Broken, key(1), GIBIBYTE).unwrap_err();
    assert_eq!(error.to_string(), "the disk is broken");
}

#[test]
fn every_damaged_byte_and_every_truncation_is_detected() {
    let good = bytes(&small());
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        assert!(read(&bytes, key(1)).is_err(), "byte {at}");
        assert!(read(&good[..at], key(1)).is_err(), "{at} bytes");
    }
}

#[test]
fn forged_context_counts_nothing_twice() {
    let good = body(&bytes(&small())).to_vec();
    // A follower takes ten bytes, and begins with its URL.
    for at in 0..good.len() - 14 {
        let mut forged = good.clone();
        forged.copy_within(at..at + 4, at + 10);
        let Ok(model) = read(&sealed(&forged), key(1)) else { continue };
        for one in answer(&model, &["/a"]) {
            assert!((0.0..=1.0).contains(&one.probability), "{at}: {one:?}");
        }
    }
}

#[test]
fn default_limits_keep_a_model_below_a_gibibyte() {
    for parameters in [PpmParameters::shipped(), PpmParameters::paper(2, 10)] {
        let limits = Limits::default();
        let most = Model::most_resident(&limits, &parameters).0;
        // The allocator's overhead for each path, and the second copy while the largest table grows.
        let allocator = limits.urls as u64 * 24;
        let growth = PpmParameters::most_resident(&parameters).0 / 2;
        assert!(most + allocator + growth < GIBIBYTE.0, "{most} + {allocator} + {growth}");
    }
}

/// Clients that visit pages.
fn visits() -> impl Strategy<Value = Vec<(u32, u32)>> {
    prop::collection::vec((0u32..30, 0u32..40), 0..400)
}

/// Pages and images with paths of all lengths.
fn target(number: u32) -> String {
    let ending = if number % 4 == 3 { ".png" } else { "" };
    format!("/{number}{}{ending}", "x".repeat(3 * number as usize))
}

fn parameters(which: usize) -> PpmParameters {
    let tight = PpmParameters { contexts: 16, followers: 60, ..PpmParameters::paper(2, 5) };
    [
        PpmParameters::shipped(),
        PpmParameters { clients: 1, ..PpmParameters::paper(3, 10) },
        PpmParameters { followers_per_context: 12, ..tight },
        PpmParameters { backoff: Backoff::Escape, half_life: Duration::from_secs(5), ..tight },
    ][which]
}

fn limits(which: usize) -> Limits {
    let tight = Limits { urls: 24, path_bytes: Bytes(1_024), ..Limits::default() };
    [Limits::default(), Limits { half_life: Duration::from_secs(5), ..tight }][which % 2]
}

/// The result of each visit, without its place in the session.
type Learned = Result<(UrlId, bool, crate::observe::ClientId), Ignored>;

fn learn(model: &mut Model, visits: &[(u32, u32)], begin: u64) -> Vec<Learned> {
    let one = |(second, (client, page)): (u64, &(u32, u32))| {
        let (client, target) = (client.to_string(), target(*page));
        let visit = model.learn(&Entry::page(at(second), &client, &target));
        visit.map(|visit| (visit.url, visit.cacheable, visit.client))
    };
    (begin..).zip(visits).map(one).collect()
}

proptest! {
    /// A model equals the saved one after reading: for anything it learned before, in any limits, and
    /// anything it learns next.
    #[test]
    fn model_learns_the_same_after_a_round_trip(
        before in visits(),
        after in visits(),
        which in 0usize..4,
    ) {
        let mut model = Model::new(key(1), limits(which), parameters(which));
        learn(&mut model, &before, 1_000);
        // Sessions are not kept, so they end for both.
        model.forget(at(10_000));
        let mut again = read(&bytes(&model), key(1)).unwrap();
        prop_assert_eq!(bytes(&again), bytes(&model));
        prop_assert_eq!(learn(&mut again, &after, 10_001), learn(&mut model, &after, 10_001));
        for page in 0..40 {
            let pages = [target(page * 7 % 40), target(page)];
            let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
            prop_assert_eq!(answer(&again, &pages), answer(&model, &pages));
        }
        prop_assert_eq!(bytes(&again), bytes(&model));
        let most = Model::most_resident(&limits(which), &parameters(which));
        prop_assert!(again.resident() <= most && model.resident() <= most);
    }

    /// A forged model with a valid checksum is refused, or keeps the promises of a model.
    #[test]
    fn forged_model_is_rejected_or_consistent(
        which in 0usize..4,
        visits in visits(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut model = Model::new(key(1), limits(which), parameters(which));
        learn(&mut model, &visits, 1_000);
        let mut forged = body(&bytes(&model)).to_vec();
        for (at, byte) in changes {
            let at = at.index(forged.len());
            forged[at] = byte;
        }
        if let Some(end) = end {
            forged.truncate(end.index(forged.len()));
        }
        if let Ok(mut model) = read(&sealed(&forged), key(1)) {
            learn(&mut model, &visits, 5_000);
            let mut asker = Asker::default();
            let history = model.observer().history_of(key(1).client("1", ""));
            let question = asker.ask(at(6_000), history);
            let mut ranked = Vec::new();
            model.predictor().rank(&question, model.observer().urls(), &mut ranked);
            let is_probability = |one: &Candidate| (0.0..=1.0).contains(&one.probability);
            prop_assert!(ranked.iter().all(is_probability), "{:?}", ranked);
            let again = read(&bytes(&model), key(1));
            prop_assert!(again.is_ok(), "{:?}", again.err());
        }
    }
}

/// The probability of `/b` after `/a`.
fn probability(model: &Model) -> f32 {
    let observer = model.observer();
    let [a, b] = ["/a", "/b"].map(|path| observer.url(path).unwrap());
    let question = Question { at: model.latest(), pages: &[a], learned: false, held: &[a] };
    let mut ranked = Vec::new();
    model.predictor().rank(&question, observer.urls(), &mut ranked);
    ranked.iter().find(|one| one.url == b).map_or(0.0, |one| one.probability)
}

#[test]
fn old_log_outlives_the_first_visits_of_today() {
    const TODAY: u64 = 30 * 365 * 86_400;
    let before = probability(&small());
    for resumes in [true, false] {
        let mut model = small();
        for second in 0..200 {
            if resumes {
                model.resume(at(TODAY + second));
            }
            let path = ["/d", "/e"][second as usize % 2];
            let _ = model.learn(&Entry::page(at(TODAY + second), "198.51.100.1", path));
        }
        // One visitor elsewhere on the site is no evidence about the next page here.
        let part = probability(&model) / before;
        assert!(part > 0.9, "{part} of {before}");
    }
}

#[test]
fn wrong_dates_corrupt_neither_counts_nor_learning() {
    const BEGIN: u64 = 1_420_070_400;
    let path = ["/a", "/b", "/c"];
    let learned = |wrong: Option<(u64, u64)>| {
        let mut model = fresh();
        for number in 0..60 {
            if let Some((_, date)) = wrong.filter(|(place, _)| *place == number) {
                let _ = model.learn(&Entry::page(at(date), "198.51.100.1", "/a"));
            }
            let client = format!("192.0.2.{}", number / 3);
            let page = Entry::page(at(BEGIN + number), client, path[number as usize % 3]);
            assert!(model.learn(&page).is_ok());
        }
        model
    };
    let expected = probability(&learned(None));
    assert!(expected > 0.5, "{expected}");
    // The clock of a machine that has just started, and one that is ahead.
    for date in [0, 5, 4_070_908_800] {
        for place in [0, 1, 2, 30, 59] {
            let model = learned(Some((place, date)));
            assert_eq!(model.latest(), at(BEGIN + 59), "{date} at {place}");
            let found = probability(&model);
            assert!((found - expected).abs() < 0.1, "{date} at {place}: {found}, {expected}");
        }
    }
}
