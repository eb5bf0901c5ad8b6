//! Properties for any bytes that reach Lull from outside: each function takes some, and panics if its
//! property does not hold.
//!
//! `fuzz_targets/` calls them with input from libFuzzer, `tests/` with input from proptest.

#![forbid(unsafe_code)]

mod script_insertion;
pub mod seeds;
mod wire;

pub use script_insertion::insert_script;

use lull_cc::{Bytes, Timestamp};
use lull_lab::plan::{Plan, PlanError};
use lull_speculate::log::{Format, LineError, Reader};
use lull_speculate::model::{MAGIC, Model, ReadError, VERSION};
use lull_speculate::observe::{ClientHasher, Limits, UrlId, Visit};
use lull_speculate::predict::{Asker, PpmParameters, Predictor as _, Question};
use siphasher::sip::SipHasher24;

pub use wire::wire;

const FORMATS: [Format; 9] = [
    Format::Common,
    Format::Combined,
    Format::Extended,
    Format::JsonLines,
    Format::Caddy,
    Format::Aws,
    Format::Haproxy,
    Format::Squid,
    Format::Iis,
];

/// Limits so low that a few lines reach them.
fn tight() -> (Limits, PpmParameters) {
    let limits = Limits { urls: 8, path_bytes: Bytes(1_024), sessions: 4, ..Limits::default() };
    let parameters = PpmParameters {
        clients: 1,
        contexts: 8,
        followers: 30,
        followers_per_context: 12,
        ..PpmParameters::paper(2, 5)
    };
    (limits, parameters)
}

fn hasher() -> ClientHasher {
    ClientHasher::new([7; 16])
}

/// A log: each line is a request, none or bad in each format. A model that learns from it keeps to its
/// limits, and is the same after writing and reading.
pub fn log(bytes: &[u8]) {
    let lines = || bytes.split(|byte| *byte == b'\n');
    let mut detected = Reader::detect(lines());
    if let Some(reader) = &mut detected {
        lines().for_each(|line| drop(reader.read(line)));
        let one_off = reader.bad().contains_key(&LineError::OneOff);
        assert!(reader.entries() > 0 || one_off, "{} reads nothing", reader.shape());
    }
    let (limits, parameters) = tight();
    for format in FORMATS {
        let mut reader = Reader::new(format);
        let mut model = Model::new(hasher(), limits, parameters);
        for line in lines() {
            let Some(entry) = reader.read(line) else { continue };
            if let Ok(visit) = model.learn(&entry) {
                answer(&model, &visit);
            }
        }
        let bad: u64 = reader.bad().values().map(|bad| bad.count).sum();
        assert!(bad + reader.entries() <= reader.lines());
        assert!(reader.bad().values().all(|bad| bad.first <= reader.lines()));
        assert!(model.resident() <= Model::most_resident(&limits, &parameters));
        let written = written(&model);
        let read =
            Model::read(&written[..], hasher(), Bytes(1 << 20)).expect("it was just written");
        assert_eq!(self::written(&read), written);
    }
}

/// A plan: either all of its cells can be read, or there is an error of one line with the position.
pub fn plan(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().count().max(1);
    for quick in [false, true] {
        let Err(error) = Plan::parse("plan.toml", &text, quick) else { continue };
        let said = error.to_string();
        let PlanError::File { line: Some(line), text: what, .. } = error else {
            panic!("the message has no line number: {said}")
        };
        assert!(!said.contains('\n') && !what.is_empty(), "{said:?}");
        assert!((1..=lines + 1).contains(&line), "{lines} lines: {said}");
        assert!(said.starts_with(&format!("plan.toml:{line}: ")), "{said}");
    }
}

/// A model, as given, and as the part between the version and a correct checksum: it is rejected, or usable.
pub fn model(bytes: &[u8]) {
    for bytes in [bytes, &sealed(bytes)] {
        match Model::read(bytes, hasher(), Bytes(1 << 30)) {
            Err(ReadError::Io(error)) => panic!("nothing can fail here: {error}"),
            Err(error) => assert!(!error.to_string().contains('\n')),
            Ok(mut model) => work(&mut model),
        }
    }
}

/// The model that [`model`] makes of some bytes, as a whole.
pub fn sealed(body: &[u8]) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes(), body].concat();
    let checksum = SipHasher24::new().hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The bytes from which [`sealed`] makes a model.
pub fn body(model: &Model) -> Vec<u8> {
    let bytes = written(model);
    bytes[MAGIC.len() + 2..bytes.len() - 8].to_vec()
}

fn written(model: &Model) -> Vec<u8> {
    let mut bytes = Vec::new();
    model.write(&mut bytes).expect("a vector takes everything");
    bytes
}

/// Learns from a few requests at several times, and predicts in between.
fn work(model: &mut Model) {
    let before = written(model);
    let again = Model::read(&before[..], hasher(), Bytes(1 << 30)).expect("it was just written");
    assert_eq!(written(&again), before);
    let latest = model.latest().as_nanos();
    for (number, at) in [latest, 0, latest.saturating_add(1 << 50), u64::MAX, 1].iter().enumerate()
    {
        for target in ["/", "/a.png", "/b", "/c?d"] {
            let entry = seeds::entry(Timestamp::from_nanos(*at), number, target);
            if let Ok(visit) = model.learn(&entry) {
                answer(model, &visit);
            }
        }
    }
    let written = written(model);
    assert!(Model::read(&written[..], hasher(), Bytes(1 << 30)).is_ok());
}

/// Predicts the next requests of a visit's client.
fn answer(model: &Model, visit: &Visit) {
    let mut asker = Asker::default();
    let question = asker.ask(visit.at, model.observer().history(visit));
    check(model, &question);
    let pages: [UrlId; 2] = [visit.url, visit.url];
    check(model, &Question { at: Timestamp::ZERO, pages: &pages, learned: false, held: &[] });
}

fn check(model: &Model, question: &Question<'_>) {
    let urls = model.observer().urls();
    let mut ranked = Vec::new();
    model.predictor().rank(question, urls, &mut ranked);
    assert!(ranked.iter().all(|one| (0.0..=1.0).contains(&one.probability)), "{ranked:?}");
    assert!(ranked.is_sorted_by(|a, b| a.probability >= b.probability));
    for one in &ranked {
        assert!(urls.is_public(one.url) && question.held.binary_search(&one.url).is_err());
        assert!(urls.priority(one.url, one.probability) >= 0.0);
    }
    let told = model.predictor().explain(question, urls);
    let suggested = told.candidates.iter().take_while(|one| one.withheld.is_none());
    assert_eq!(suggested.count(), ranked.len());
}
