//! Bodies that are no longer stored.

use super::*;

#[test]
fn lost_body_is_reported_not_pushed_and_restored_by_a_write() {
    let mut bench = Bench::new(Config::default());
    bench.committed("a1");
    bench.committed("b2");
    bench.hello(None);
    bench.told();
    bench.say(ToOrigin::Resynced(Sequence(2)));
    bench.origin.handle_missing(reading(0), &Digest([1; 32]));
    let lost = Event::Lost { digest: Digest([1; 32]), paths: vec![path("a")] };
    assert_eq!(bench.events(), [lost]);
    bench.origin.handle_missing(reading(0), &Digest([1; 32]));
    assert_eq!(bench.events(), []);
    assert_eq!(bench.pushed(), [2]);
    // A demand read is answered, too: the reader learns that the body does not come.
    for (name, lost) in [("a", true), ("b", false), ("x", false)] {
        bench.say(ToOrigin::Demand(path(name)));
        let told = bench.origin.poll_demand(REPLICA).expect("an answer").message;
        assert_eq!((told.version.is_some(), told.lost), (name != "x", lost), "{name}");
    }
    bench.committed("c1");
    bench.say(ToOrigin::Demand(path("a")));
    assert!(bench.origin.poll_demand(REPLICA).is_some_and(|told| !told.message.lost));
    bench.say(ToOrigin::Lacking(vec![path("a")]));
    let mut pushed = bench.pushed();
    pushed.sort_unstable();
    assert_eq!(pushed, [1, 1], "both names of it");
}

#[test]
fn write_that_needs_a_lost_body_is_refused_without_delay() {
    let mut bench = Bench::new(Config::default());
    bench.committed("a1");
    let one = Content { digest: Digest([1; 32]), size: Bytes(10), metadata: Metadata::default() };
    let on_its_way = bench.write("b2");
    let changes = [(path("c"), Put::Stored(one))].into();
    let copy = bench.submit(Transaction { changes });
    let behind = bench.write("d3");
    bench.origin.handle_missing(reading(0), &Digest([1; 32]));
    bench.disk();
    let expected = [
        Event::Lost { digest: Digest([1; 32]), paths: vec![path("a")] },
        Event::Refused { transaction: copy, why: Refused::NotStored(Digest([1; 32])) },
        Event::Acknowledged { transaction: on_its_way, sequence: Sequence(2) },
        Event::Acknowledged { transaction: behind, sequence: Sequence(3) },
    ];
    assert_eq!(bench.events(), expected);
    // The same bytes restore it.
    bench.committed("e1");
    assert!(bench.origin.has_body(&Digest([1; 32])));
}

#[test]
fn body_missing_at_start_is_kept_after_a_rewrite() {
    let mut bench = Bench::new(Config { log: 1, ..Config::default() });
    bench.committed("a1");
    let image = bench.origin.image().clone();
    let mut bench = Bench::of(Config { log: 1, ..Config::default() }, image, Vec::new());
    let lost = Event::Lost { digest: Digest([1; 32]), paths: vec![path("a")] };
    assert_eq!(bench.events(), [lost], "before any replica asks for it");
    bench.committed("b1");
    bench.committed("b2");
    bench.committed("c3");
    assert!(bench.origin.bodies.references.is_stored(&Digest([1; 32])), "`a` still has it");
}
