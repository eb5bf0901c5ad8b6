//! Objects that move in the order, and the bodies that wait meanwhile.

use super::*;

#[test]
fn reordered_queue_pushes_each_body_once() {
    let mut bench = Bench::new(Config::default());
    bench.hello(Some(bench.origin.last()));
    bench.told();
    bench.committed("a1 b2 c3 d4 e5 f6");
    let read =
        |bench: &mut Bench, name, count| bench.say(ToOrigin::Reads(vec![(path(name), count)]));
    // Each leaves a slot, to which the last one of the same priority moves.
    read(&mut bench, "b", 9);
    bench.committed("c-");
    read(&mut bench, "a", 30);
    read(&mut bench, "f", 9);
    read(&mut bench, "b", 90);
    for (path, ranked) in bench.origin.ranking.objects() {
        assert_eq!(bench.origin.ranking.path(ranked.position), Some(path));
    }
    assert_eq!(bench.origin.waiting(REPLICA), 5);
    let mut pushed = bench.pushed();
    pushed[3..].sort_unstable();
    assert_eq!((pushed, bench.origin.waiting(REPLICA)), (vec![2, 1, 6, 4, 5], 0));
    bench.say(ToOrigin::Taken(5));
    bench.committed("d7");
    assert_eq!(bench.pushed(), [7]);
}
