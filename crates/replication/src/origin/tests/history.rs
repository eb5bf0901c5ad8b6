//! How far back the log goes.

use super::*;

fn bounded(config: Config) -> Bench {
    Bench::new(Config { inline: Bytes(0), ..config })
}

/// The beginning of the log, and the bytes kept for it.
fn kept(bench: &Bench) -> (u64, u64) {
    (bench.origin.image().log_after().0, bench.origin.overwritten().0)
}

#[test]
fn log_length_is_limited_by_overwritten_bytes() {
    let mut bench = bounded(Config { log_bytes: Bytes(25), ..Config::default() });
    // Bodies are of ten bytes each.
    for (text, expected) in [
        ("a1", (0, 0)),
        ("a2", (0, 10)),
        ("a-", (0, 20)),
        ("b3 c4", (0, 20)),
        ("b4", (2, 20)),
        ("d4", (2, 20)),
        ("b5", (3, 20)),
    ] {
        bench.committed(text);
        assert_eq!(kept(&bench), expected, "{text}");
    }
}

#[test]
fn bodies_beyond_the_log_are_deleted() {
    let mut bench = bounded(Config { log_bytes: Bytes(15), ..Config::default() });
    for text in ["a1", "a2", "a3", "a4"] {
        bench.committed(text);
    }
    let has = |body| bench.origin.has_body(&Digest([body; 32]));
    assert_eq!([1, 2, 3, 4].map(has), [false, false, true, true]);
    assert_eq!(kept(&bench), (3, 10));
    assert_eq!(bench.no_way_back(2), RollbackError::TooOld(Sequence(3)));
}

#[test]
fn small_body_stored_during_its_deletion_goes_with_the_log() {
    let mut bench =
        Bench::new(Config { inline: Bytes(10), log_bytes: Bytes(5), ..Config::default() });
    bench.committed("a1");
    bench.committed("a2");
    // Bodies that leave the log are dropped with the next step.
    bench.write("b3");
    let mut dropped = Vec::new();
    while let Some(effect) = bench.origin.poll_effect() {
        match effect {
            Effect::Body(BodyEffect::Drop(digest)) => dropped.push(digest),
            Effect::Append(_) => bench.origin.handle_appended(reading(0), Ok(())),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(dropped, [Digest([1; 32])]);
    bench.events();
    bench.write("c1");
    assert_eq!(bench.origin.poll_effect(), None, "the store would do both at once");
    bench.origin.handle_dropped(reading(0), &Digest([1; 32]));
    let Some(Effect::Append(append)) = bench.origin.poll_effect() else { panic!("one step") };
    assert_eq!(append.inline, [payload(1, 10)]);
    bench.origin.handle_appended(reading(0), Ok(()));
    assert!(bench.origin.has_body(&Digest([1; 32])));
}

#[test]
fn other_names_and_metadata_of_a_body_overwrite_nothing() {
    let mut bench = bounded(Config::default());
    bench.committed("a1 b2");
    bench.committed("a- c1");
    let content =
        Content { digest: Digest([2; 32]), size: Bytes(10), metadata: Metadata::default() };
    let metadata = Metadata { mode: crate::types::Mode::EXECUTABLE, ..Metadata::default() };
    let changes = [(path("b"), Put::Stored(Content { metadata, ..content }))].into();
    bench.submit(Transaction { changes });
    bench.disk();
    assert_eq!(kept(&bench), (0, 0));
}

#[test]
fn log_length_is_limited_by_changes() {
    let mut bench = bounded(Config { log_changes: 4, ..Config::default() });
    for (text, after) in [("a1 b2", 0), ("c3 d4", 0), ("e5", 1), ("a6 b6 c6 d6 e6 f6", 3)] {
        bench.committed(text);
        assert_eq!(kept(&bench).0, after, "{text}");
    }
    bench.committed("a7");
    assert_eq!(kept(&bench).0, 4);
}

#[test]
fn follower_gets_a_commit_of_any_overwritten_size() {
    let mut bench = bounded(Config { log_bytes: Bytes(5), log_changes: 1, ..Config::default() });
    bench.committed("a1 b2");
    bench.hello(Some(bench.origin.last()));
    bench.told();
    bench.committed("a3 b4");
    assert_eq!(kept(&bench), (1, 20));
    assert_eq!(sequences(&bench.told()), [2]);
    bench.committed("c5");
    assert_eq!(sequences(&bench.told()), [3]);
    assert_eq!(kept(&bench), (2, 0));
    assert!(!bench.origin.has_body(&Digest([1; 32])));
}

/// An origin with one overwritten body, restarted without space for it.
fn begun_with_less_room() -> Bench {
    let mut bench = bounded(Config::default());
    bench.committed("a1");
    bench.committed("a2");
    let image = bench.origin.image().clone();
    let bodies = [1, 2].map(|body| (Digest([body; 32]), Bytes(10)));
    Bench::of(Config { log_bytes: Bytes(0), ..Config::default() }, image, bodies.to_vec())
}

#[test]
fn limits_hold_from_the_start() {
    let mut bench = begun_with_less_room();
    let Some(Effect::Append(append)) = bench.origin.poll_effect() else { panic!("a step") };
    assert_eq!((append.commits.len(), append.log_after), (0, Sequence(2)));
    assert_eq!(bench.origin.poll_effect(), None, "the log first");
    bench.origin.handle_appended(reading(0), Ok(()));
    let dropped = Effect::Body(BodyEffect::Drop(Digest([1; 32])));
    assert_eq!(bench.origin.poll_effect(), Some(dropped));
    bench.origin.handle_dropped(reading(0), &Digest([1; 32]));
    assert_eq!((kept(&bench), bench.origin.poll_effect()), ((2, 0), None));
    assert_eq!(bench.committed("b3"), Sequence(3));
}

#[test]
fn log_truncation_at_start_reports_no_lost_bodies() {
    let mut bench = bounded(Config::default());
    bench.committed("a1");
    bench.committed("a2");
    let image = bench.origin.image().clone();
    let bodies = vec![(Digest([2; 32]), Bytes(10))];
    for (room, lost) in [(0, 0), (10, 1)] {
        let config = Config { log_bytes: Bytes(room), ..Config::default() };
        let mut bench = Bench::of(config, image.clone(), bodies.clone());
        bench.disk();
        assert_eq!(bench.events().len(), lost, "room for {room}");
        assert_eq!(bench.origin.lost().count(), lost, "room for {room}");
    }
}

#[test]
fn start_frees_space_on_a_full_disk() {
    let mut bench = begun_with_less_room();
    assert!(matches!(bench.origin.poll_effect(), Some(Effect::Append(_))));
    bench.origin.handle_appended(reading(0), Err(DiskFull));
    let dropped = Effect::Body(BodyEffect::Drop(Digest([1; 32])));
    assert_eq!(bench.origin.poll_effect(), Some(dropped));
    assert_eq!((bench.origin.poll_effect(), bench.events()), (None, Vec::new()));
    // The next step contains the log's new beginning.
    bench.write("b3");
    let Some(Effect::Append(append)) = bench.origin.poll_effect() else { panic!("a step") };
    assert_eq!(append.log_after, Sequence(2));
}

#[test]
fn total_object_size_is_exact_after_any_writes() {
    for log in [0, 1, 100] {
        let mut bench = bounded(Config { log, ..Config::default() });
        // The writes of one array become durable in one step.
        for texts in [&["a1 b2"][..], &["c3", "c-", "a4"], &["a- b5", "b-"], &["d6", "e6", "d-"]] {
            for text in texts {
                bench.write(text);
            }
            bench.disk();
            let objects = bench.origin.image().objects.values();
            let all: u64 = objects.map(|version| version.content.size.0).sum();
            assert_eq!(bench.origin.bytes(), Bytes(all), "{texts:?}, of a log of {log}");
        }
        assert_eq!(bench.origin.bytes(), Bytes(10));
        let image = bench.origin.image().clone();
        let again = Bench::of(Config::default(), image, vec![(Digest([6; 32]), Bytes(10))]);
        assert_eq!(again.origin.bytes(), Bytes(10));
    }
}
