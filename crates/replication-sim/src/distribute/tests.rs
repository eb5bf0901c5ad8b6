use super::*;

/// The time that a link needs for this many copies.
fn copies(options: &Options, count: u32) -> f64 {
    let bytes = options.size.0 * u64::from(options.files);
    f64::from(count) * options.rate.time_for(Bytes(bytes)).as_secs_f64()
}

#[test]
fn origin_sends_one_copy_to_each_machine_it_serves() {
    for (receivers, levels) in [(1, 1), (10, 1), (10, 2), (30, 3), (64, 3)] {
        for files in [1, 7] {
            let size = Bytes(10_000_000);
            let options = Options { receivers, levels, files, size, ..Options::default() };
            let outcome = run(options);
            let copy = size.0 * u64::from(files);
            assert_eq!(outcome.body_bytes, u64::from(outcome.served) * copy, "{options:?}");
            // Each level adds a turn of each child, and round trips.
            let expected = copies(&options, outcome.served);
            let last = outcome.last.as_secs_f64();
            assert!(last >= expected, "{options:?}: {last} s instead of {expected} s");
            assert!(last < expected * 1.15 + 1.0, "{options:?}: {last} s instead of {expected} s");
            assert!(outcome.first <= outcome.mean && outcome.mean <= outcome.last);
            assert!(outcome.known >= outcome.last);
        }
    }
}

#[test]
fn relays_shorten_a_distribution() {
    let size = Bytes(5_000_000);
    let options = Options { receivers: 64, size, ..Options::default() };
    let last = |levels| run(Options { levels, ..options }).last;
    let (star, tree) = (last(1), last(3));
    // 64 copies leave the origin, and 4.
    assert!(star > 10 * tree, "{star:?}, {tree:?}");
}

#[test]
fn equal_options_give_equal_runs() {
    let options = Options { receivers: 20, size: Bytes(1_000_000), ..Options::default() };
    assert_eq!(run(options), run(options));
    assert_ne!(run(options).steps, run(Options { seed: 2, ..options }).steps);
}
