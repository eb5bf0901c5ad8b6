//! Rollbacks to earlier states.

use super::*;

#[test]
fn rollback_is_a_new_transaction() {
    let mut bench = Bench::new(Config::default());
    bench.committed("a1 b2");
    bench.committed("a3 c4");
    bench.committed("b-");
    bench.roll_back(1);
    bench.disk();
    bench.events();
    let objects = &bench.origin.image().objects;
    let bodies: Vec<_> = objects
        .iter()
        .map(|(path, version)| (path.to_string(), version.content.digest.0[0], version.sequence.0))
        .collect();
    assert_eq!(bodies, [("a".into(), 1, 4), ("b".into(), 2, 4)]);
    assert_eq!(bench.no_way_back(4), RollbackError::Nothing(Sequence(4)));
    assert_eq!(bench.no_way_back(9), RollbackError::NotYet(Sequence(4)));
    bench.origin.handle_missing(reading(0), &Digest([4; 32]));
    bench.events();
    assert_eq!(bench.no_way_back(3), RollbackError::Lost(Sequence(3)));
    let mut bench = Bench::new(Config { log: 1, ..Config::default() });
    bench.committed("a1");
    bench.committed("a2");
    assert_eq!(bench.no_way_back(0), RollbackError::TooOld(Sequence(1)));
}

#[test]
fn rollback_equals_the_old_state_despite_concurrent_writes() {
    let mut bench = Bench::new(Config::default());
    bench.committed("a1 x1");
    bench.committed("a2");
    // One on its way to the disk, one that waits behind it, and a later one.
    bench.write("x3");
    bench.write("y4");
    bench.roll_back(1);
    bench.write("z5");
    bench.disk();
    let sequences = bench.events().into_iter().map(|event| match event {
        Event::Acknowledged { sequence, .. } => sequence.0,
        other => panic!("{other:?}"),
    });
    assert_eq!(sequences.collect::<Vec<_>>(), [3, 4, 5, 6]);
    let objects = bench.origin.image().objects.iter();
    let bodies: Vec<_> = objects
        .map(|(path, version)| (path.to_string(), version.content.digest.0[0], version.sequence.0))
        .collect();
    assert_eq!(bodies, [("a".into(), 1, 5), ("x".into(), 1, 5), ("z".into(), 5, 6)]);
}
