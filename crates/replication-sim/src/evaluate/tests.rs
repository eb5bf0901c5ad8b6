use lull_cc::Bytes;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use super::*;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Reads and writes by (second, replica, object) and (second, object), of objects of 1000 bytes.
fn workload(reads: &[(f64, u32, u32)], writes: &[(f64, u32)]) -> Workload {
    let read = |&(at, replica, object): &(f64, u32, u32)| Read { at: seconds(at), replica, object };
    let write = |&(at, object): &(f64, u32)| Write { at: seconds(at), object };
    Workload {
        objects: vec![Bytes(1000); 3],
        replicas: 2,
        reads: reads.iter().map(read).collect(),
        writes: writes.iter().map(write).collect(),
        length: seconds(200.0),
    }
}

/// Equal distances, so that times can be computed.
fn options(strategy: Strategy, bandwidth: f64) -> Options {
    Options { spread: 0.0, ..Options::new(strategy, bandwidth) }
}

#[test]
fn miss_takes_a_round_trip_and_the_time_on_the_link() {
    let workload = workload(&[(1.0, 0, 0), (3.0, 0, 0), (4.0, 0, 0), (4.0, 1, 1)], &[(2.0, 0)]);
    let outcome = run(&workload, options(Strategy::DemandOnly, 2_000.0));
    let Outcome { response, .. } = outcome;
    // 20 ms, and 200 ms and half a second for one of four.
    assert!((response.max - 0.72).abs() < 1e-6, "{response:?}");
    assert!((response.mean - (0.72 + 3.0 * 0.02) / 4.0).abs() < 1e-6, "{response:?}");
    assert_eq!((outcome.demanded_bytes, outcome.pushed_bytes), (1000, 0));
    assert_eq!(outcome.blocked, [0.25, 0.0, 0.0, 0.0]);
}

#[test]
fn pushed_object_is_read_at_once_in_any_order() {
    let workload = workload(&[(9.0, 0, 0), (9.5, 1, 0), (9.6, 1, 1)], &[(2.0, 0), (2.1, 1)]);
    for (strategy, pushed) in [(Strategy::PushAll, 4), (Strategy::Trip, 4)] {
        let outcome = run(&workload, options(strategy, 2_000.0));
        assert!((outcome.response.max - 0.02).abs() < 1e-9, "{strategy}: {outcome:?}");
        assert_eq!(outcome.pushed_bytes, pushed * 1000, "{strategy}");
        assert!(outcome.stale.abs() < 1e-9, "{strategy}: {outcome:?}");
    }
}

#[test]
fn slow_link_makes_push_all_stale_and_trip_slow() {
    let writes: Vec<(f64, u32)> = (0..150).map(|at| (f64::from(at), at % 3)).collect();
    let reads: Vec<(f64, u32, u32)> =
        (0..350).map(|at| (0.3 + f64::from(at) / 2.0, at % 2, at % 3)).collect();
    let workload = workload(&reads, &writes);
    // Two replicas and a write per second: 2000 bytes per second are needed while there are writes.
    let push_all = run(&workload, options(Strategy::PushAll, 500.0));
    assert!((push_all.response.max - 0.02).abs() < 1e-9, "{push_all:?}");
    assert!(push_all.staleness.max > 60.0, "{push_all:?}");
    let bound = Some(Duration::from_secs(60));
    let bounded = run(&workload, Options { delta: bound, ..options(Strategy::PushAll, 500.0) });
    assert!(bounded.staleness.max <= 60.0, "{bounded:?}");
    assert!(bounded.unavailable > 0.3, "it keeps Δ by answering nothing: {bounded:?}");
    let trip = run(&workload, options(Strategy::Trip, 500.0));
    assert!(trip.staleness.max <= 60.0, "{trip:?}");
    assert!(trip.response.mean > 0.02 && trip.unanswered == 0, "{trip:?}");
}

#[test]
fn overwritten_version_delays_nothing_if_overtaken() {
    // The first object is overwritten while its body waits for the link, and so never comes.
    let reads: Vec<(f64, u32, u32)> = (0..100).map(|at| (f64::from(at), 1, 0)).collect();
    let mut workload = workload(&reads, &[(1.0, 1), (1.1, 0), (1.2, 0)]);
    workload.objects[1] = Bytes(4_000);
    let usual = options(Strategy::Trip, 2_000.0);
    let [newer, letter] =
        [true, false].map(|overtake| run(&workload, Options { overtake, ..usual }));
    assert!(newer.staleness.max < 10.0 && newer.pushed_bytes == letter.pushed_bytes, "{newer:?}");
    assert!(letter.staleness.max > 50.0, "{letter:?}");
    for outcome in [newer, letter] {
        assert!((outcome.response.max - 0.02).abs() < 1e-9, "no read waits: {outcome:?}");
    }
}

#[test]
fn demand_read_overtakes_a_background_body() {
    // A megabyte takes 100 s, and another replica's read needs the link.
    let mut workload = workload(&[(20.0, 1, 1)], &[(2.0, 0), (10.0, 1)]);
    workload.objects[0] = Bytes(1_000_000);
    let delta = Some(Duration::from_secs(5));
    let outcome = run(&workload, Options { delta, ..options(Strategy::Trip, 10_000.0) });
    // 20 ms, 200 ms, and a tenth of a second.
    assert!((outcome.response.max - 0.32).abs() < 1e-6, "{outcome:?}");
    assert!((outcome.utilisation - 1.0).abs() < 0.1, "and then it goes on: {outcome:?}");
}

#[test]
fn outage_is_masked_until_the_first_miss() {
    // Both objects are written before any cut, and read after all of them.
    let reads = [(150.0, 0, 2), (160.0, 1, 0), (170.0, 0, 0)];
    let workload = workload(&reads, &[(0.01, 0)]);
    let cut = |strategy| run(&workload, Options { cuts: 20, ..options(strategy, 100.0) });
    let masked = |outcome: &Outcome| {
        let until_read = |masked: &&Duration| **masked > seconds(60.0);
        outcome.masked.iter().filter(until_read).count()
    };
    let demand = cut(Strategy::DemandOnly);
    assert_eq!((masked(&demand), demand.masked_to_the_end), (20, 0), "{demand:?}");
    assert!(demand.masked.iter().all(|masked| *masked < seconds(160.0)), "{demand:?}");
    // Of the drawn moments all but those of the first 20 s are after the push.
    let trip = cut(Strategy::Trip);
    assert!(trip.masked_to_the_end >= 15, "{trip:?}");
    let sum = |outcome: &Outcome| outcome.masked.iter().sum::<Duration>();
    assert!(sum(&trip) > sum(&demand), "{trip:?}");
}

#[test]
fn updates_match_the_model_in_number_and_target() {
    let reads: Vec<(f64, u32, u32)> = (0..2_000).map(|at| (f64::from(at) / 10.0, 0, 1)).collect();
    let mut workload = workload(&reads, &[]);
    for (per_read, popular, expected, of_read) in
        [(0.5, 1.0, 1_000.0, 1.0), (0.5, 0.0, 1_000.0, 1.0 / 3.0), (2.0, 0.5, 4_000.0, 2.0 / 3.0)]
    {
        workload.update(Updates { per_read, popular }, 7);
        let count = workload.writes.len() as f64;
        assert!((count / expected - 1.0).abs() < 0.1, "{count} of {expected}");
        let read = workload.writes.iter().filter(|write| write.object == 1).count() as f64;
        assert!((read / count - of_read).abs() < 0.05, "{read} of {count}");
        assert!(workload.writes.is_sorted_by_key(|write| write.at));
        let need = count * 1000.0 * 2.0 / 200.0;
        assert!((workload.need() / need - 1.0).abs() < 1e-9);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Properties of every strategy, for any reads and writes.
    #[test]
    fn reads_are_within_delta_and_runs_are_repeatable(
        seed in 0_u64..1_000,
        strategy in 0_usize..5,
        bandwidth in 200.0_f64..20_000.0,
        flags in (any::<bool>(), any::<bool>()),
    ) {
        let strategies = [
            Strategy::DemandOnly,
            Strategy::PushAll,
            Strategy::Threshold(0.01),
            Strategy::Threshold(0.5),
            Strategy::Trip,
        ];
        let reads: Vec<(f64, u32, u32)> =
            (0..300).map(|at| (0.3 + f64::from(at) / 2.0, at % 2, (at * 7 / 5) % 3)).collect();
        let mut workload = workload(&reads, &[]);
        workload.update(Updates { per_read: 0.4, popular: 0.5 }, seed);
        let delta = Duration::from_secs(15);
        let usual = Options::new(strategies[strategy], bandwidth);
        let options = Options {
            eager: flags.0 || usual.eager,
            order: if flags.1 { Order::Aggressive } else { Order::Conservative },
            delta: Some(delta),
            seed,
            ..usual
        };
        let outcome = run(&workload, options);
        prop_assert!(outcome.staleness.max <= delta.as_secs_f64(), "{outcome:?}");
        prop_assert_eq!(outcome.unanswered, 0, "{:?}", outcome);
        prop_assert_eq!(&outcome, &run(&workload, options));
    }
}
