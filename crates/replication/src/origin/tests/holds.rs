//! Bodies that are kept for transactions to come.

use super::*;

fn put(body: u8) -> Transaction<()> {
    let content =
        Content { digest: Digest([body; 32]), size: Bytes(10), metadata: Metadata::default() };
    Transaction { changes: [(path("a"), Put::Stored(content))].into() }
}

#[test]
fn held_body_is_kept_for_its_transaction() {
    let mut bench = Bench::new(Config { log: 1, ..Config::default() });
    let (one, other) = (HoldId(1), HoldId(2));
    bench.origin.handle_hold(one, payload(1, 10));
    bench.origin.handle_hold(other, payload(1, 10));
    assert_eq!(bench.events(), [], "it is on its way");
    bench.disk();
    let held = |id| Event::Held { id, outcome: Ok(()) };
    assert_eq!(bench.events(), [held(one), held(other)]);
    bench.origin.release_hold(one);
    bench.disk();
    let transaction = bench.submit(put(1));
    bench.disk();
    bench.origin.release_hold(other);
    bench.origin.release_hold(other);
    bench.disk();
    assert_eq!(bench.events(), [Event::Acknowledged { transaction, sequence: Sequence(1) }]);
    assert!(bench.origin.has_body(&Digest([1; 32])), "`a` has it");
    // A stored body is held at once.
    bench.origin.handle_hold(HoldId(3), payload(1, 10));
    assert_eq!(bench.events(), [held(HoldId(3))]);
    bench.committed("a2");
    bench.committed("b3");
    assert!(bench.origin.has_body(&Digest([1; 32])), "it is held");
    bench.origin.release_hold(HoldId(3));
    bench.disk();
    assert!(!bench.origin.has_body(&Digest([1; 32])));
    assert_eq!(bench.origin.bodies.references.bytes(), Bytes(20));
}

#[test]
fn body_without_space_is_not_held() {
    let mut bench = Bench::new(Config::default());
    let digest = Digest([1; 32]);
    bench.origin.handle_hold(HoldId(1), payload(1, 10));
    bench.origin.handle_hold(HoldId(2), payload(1, 10));
    // The writer of the second one has gone.
    bench.origin.release_hold(HoldId(2));
    bench.origin.handle_stored(reading(0), &digest, Err(DiskFull));
    let full = |id| Event::Held { id, outcome: Err(DiskFull) };
    assert_eq!(bench.events(), [full(HoldId(1)), full(HoldId(2))]);
    let _ = bench.origin.poll_effect();
    // A later one is not released by those that got none.
    bench.origin.handle_hold(HoldId(3), payload(1, 10));
    bench.disk();
    bench.origin.release_hold(HoldId(1));
    bench.origin.release_hold(HoldId(2));
    bench.disk();
    assert!(bench.origin.has_body(&digest));
}

#[test]
fn lost_body_is_restored_by_a_hold() {
    let mut bench = Bench::new(Config::default());
    bench.committed("a1");
    bench.origin.handle_missing(reading(0), &Digest([1; 32]));
    bench.events();
    bench.origin.handle_hold(HoldId(1), payload(1, 10));
    bench.origin.handle_stored(reading(0), &Digest([1; 32]), Err(DiskFull));
    assert_eq!(bench.events(), [Event::Held { id: HoldId(1), outcome: Err(DiskFull) }]);
    assert!(bench.origin.bodies.references.lost().next().is_some());
    let _ = bench.origin.poll_effect();
    bench.origin.handle_hold(HoldId(2), payload(1, 10));
    bench.disk();
    bench.origin.release_hold(HoldId(2));
    bench.disk();
    assert!(bench.origin.has_body(&Digest([1; 32])), "`a` has it");
}

/// `D` is on its way for a hold, and in the log for a write. Each of them may fail, in both orders.
#[test]
fn body_of_a_hold_and_a_write_exists_if_either_succeeds() {
    let digest = Digest([1; 32]);
    for (log_first, held, written) in [
        (false, Err(DiskFull), Ok(())),
        (true, Err(DiskFull), Ok(())),
        (false, Ok(()), Err(DiskFull)),
        (true, Ok(()), Err(DiskFull)),
        (false, Err(DiskFull), Err(DiskFull)),
        (true, Err(DiskFull), Err(DiskFull)),
    ] {
        let case = format!("{log_first} {held:?} {written:?}");
        let mut bench = Bench::new(Config::default());
        bench.hello(Some(Position::beginning([7; 32])));
        bench.origin.handle_hold(HoldId(1), payload(1, 10));
        bench.write("a1");
        while bench.origin.poll_effect().is_some() {}
        if log_first {
            bench.origin.handle_appended(reading(0), written);
        }
        bench.origin.handle_stored(reading(0), &digest, held);
        if !log_first {
            bench.origin.handle_appended(reading(0), written);
        }
        let either = held.or(written);
        assert_eq!(bench.origin.has_body(&digest), either.is_ok(), "{case}");
        let told = bench.events();
        assert!(told.contains(&Event::Held { id: HoldId(1), outcome: either }), "{case}: {told:?}");
        bench.told();
        let pushed = if written.is_ok() { vec![1] } else { vec![] };
        assert_eq!(bench.pushed(), pushed, "{case}");
        bench.origin.release_hold(HoldId(1));
        bench.disk();
        assert_eq!(bench.origin.has_body(&digest), written.is_ok(), "{case}: `a` has it");
    }
}
