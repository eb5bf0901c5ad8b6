//! Reads of open files: they are no reads of the state, so they delay no other read and are delayed by none.

use super::*;

/// A replica that has `a1` and `b2` and a read of both, with their versions; then the body of `a` is lost.
fn without_a(config: Config) -> (Bench, ReadTarget, ReadTarget) {
    let mut bench = Bench::new(config);
    bench.commit(1, "a1 b2");
    bench.body(1, "a1", false);
    bench.body(1, "b2", false);
    bench.disk();
    assert_eq!((bench.read("a"), bench.read("b")), ("1".to_owned(), "2".to_owned()));
    let opened = |bench: &Bench, name: &str| {
        let path = path(name);
        let version = bench.replica.image().objects[&path].version;
        ReadTarget::Opened(path, version)
    };
    let (a, b) = (opened(&bench, "a"), opened(&bench, "b"));
    bench.replica.handle_missing(reading(bench.ms), &Digest([1; 32]));
    bench.sent();
    (bench, a, b)
}

/// The same, but `a` was written again, and that body is still missing.
fn rewritten(text: &str) -> (Bench, ReadTarget) {
    let (mut bench, a, _) = without_a(config());
    bench.commit(2, text);
    bench.wait(10_000);
    bench.heartbeat(2);
    bench.disk();
    assert_eq!(bench.state("a"), Some((2, false)));
    bench.sent();
    (bench, a)
}

#[test]
fn read_of_an_open_file_blocks_no_other_read() {
    let (mut bench, a, _) = without_a(config());
    bench.replica.handle_disconnected(reading(bench.ms));
    assert_eq!(bench.ask(a, 0), "Invalid", "read 3");
    assert_eq!(bench.read("b"), "2");
    assert_eq!(bench.ask(ReadTarget::Names(None), 0), "a:1 b:1");
    // The next one is a read of the state.
    assert_eq!(bench.read("a"), "Invalid", "read 6");
    assert_eq!(bench.read("b"), "Order", "read 7");
    bench.replica.cancel_read(reading(bench.ms), ReadId(6));
    assert_eq!(bench.answers(), [(7, "2".to_owned())]);
    assert_eq!(bench.replica.why(ReadId(3)), Some(WaitReason::Invalid), "it still waits");
    assert_eq!(bench.replica.take_counters().passed, 0, "there was no order to be passed by");
}

#[test]
fn read_of_an_open_file_waits_for_no_other_read_or_lease() {
    let (mut bench, a, b) = without_a(config());
    bench.wait(10_000);
    assert_eq!(bench.read("b"), "Stale", "read 3");
    assert_eq!(bench.ask(b.clone(), 0), "2");
    assert_eq!(bench.ask(a, 0), "Invalid", "read 5");
    assert_eq!(bench.demanded(), ["a"]);
    bench.body(1, "a1", true);
    bench.disk();
    assert_eq!(bench.answers(), [(5, "1".to_owned())], "behind one that waits, and before it");
    bench.replica.handle_disconnected(reading(bench.ms));
    assert_eq!(bench.answers(), [(3, "2".to_owned())]);
    let counters = bench.replica.take_counters();
    assert_eq!((counters.masked, counters.blocked_order), (1, 0), "only a read can be masked");
    bench.wait(60_000);
    assert_eq!((bench.read("b"), bench.ask(b, 0)), ("Stale".to_owned(), "2".to_owned()));
}

#[test]
fn open_file_is_gone_after_an_overwrite() {
    let (mut bench, a) = rewritten("a3");
    assert_eq!(bench.ask(a, 0), "-");
    assert_eq!(bench.demanded(), [""; 0], "the origin has no other one to send");
}

#[test]
fn open_file_is_served_by_another_version_with_its_body() {
    let (mut bench, a) = rewritten("a1");
    assert_eq!(bench.ask(a, 0), "Invalid", "read 3");
    bench.body(2, "a1", true);
    bench.disk();
    assert_eq!(bench.answers(), [(3, "1".to_owned())]);
}

#[test]
fn reader_of_an_open_file_learns_that_its_body_is_lost() {
    let (mut bench, a, _) = without_a(config());
    assert_eq!(bench.ask(a.clone(), 0), "Invalid", "read 3");
    let sequence = Sequence(1);
    let version = Some(Version { sequence, content: content(1) });
    let message = BodyHeader { path: path("a"), version, at: sequence, demand: true, lost: true };
    let frame = Frame { session: bench.session(), message };
    bench.replica.handle_body(reading(bench.ms), frame, None);
    assert_eq!(bench.answers(), [(3, "lost 1".to_owned())]);
}

#[test]
fn read_of_an_open_file_is_not_counted_again() {
    let (mut bench, _, b) = without_a(config());
    bench.ask(b, 0);
    bench.sent();
    bench.wait(1_000);
    let reads = bench.sent().into_iter().find_map(|message| match message {
        ToOrigin::Reads(reads) => Some(reads),
        _ => None,
    });
    assert_eq!(reads, Some(vec![(path("a"), 1), (path("b"), 1)]));
}

#[test]
fn read_of_an_open_file_sends_no_demand_during_comparison() {
    let (mut bench, a, _) = without_a(config());
    bench.replica.handle_disconnected(reading(bench.ms));
    let root = MerkleTree::new([]).root();
    let position = Position { sequence: Sequence(5), ..Position::beginning([7; 32]) };
    bench.connect(Start::Resync { position, stamp: reading(bench.ms).wall, root });
    assert_eq!(bench.ask(a, 0), "Applying");
    assert_eq!(bench.demanded(), [""; 0]);
}
