//! Changes beyond the published algorithms (docs/algorithm.md), one refinement at a time.
//!
//! The path is empty at 100 ms, so max_rtt starts at 200 ms, and the trigger of t = 0.2 is 120 ms.

use lull_cc::{Controller, NiceParameters, Refinements};

use crate::path::Path;

const EMPTY: u32 = 100_000;

/// A connection with some refinements. It has measured the empty path for one round in which the application
/// was the limit, so that its window is still this one.
fn path(refinements: Refinements, window: f64, empty: u32) -> Path {
    let parameters = NiceParameters { refinements, ..NiceParameters::prototype() };
    let mut path = Path::new(parameters, window);
    path.app_limited = true;
    path.round(&[empty; 2]);
    path.app_limited = false;
    path
}

fn assert_near(value: f64, wanted: f64, case: &str) {
    assert!((value - wanted).abs() < 0.003, "{case}: {value}, not {wanted}");
}

#[test]
fn headroom_is_a_quarter_of_the_way_at_half_the_trigger() {
    // Half way is 110 ms. (observed ms, step of a window of 20 as published, with headroom)
    for (observed, literal, step) in [(100, 1.0, 0.5), (102, 1.0, 0.392), (104, 1.0, 0.288)] {
        for (headroom, wanted) in [(false, literal), (true, step)] {
            let mut path = path(Refinements { headroom, ..Refinements::NONE }, 20.0, EMPTY);
            let window = path.round(&[observed * 1000; 20]);
            assert_near(window, 20.0 + wanted, &format!("{observed} ms"));
        }
    }
}

#[test]
fn headroom_doubles_every_eight_rounds_to_one_packet() {
    let headroom = Refinements { headroom: true, ..Refinements::NONE };
    let mut path = path(headroom, 4.0, EMPTY);
    // The round that measured the path was empty, too. A tenth of the window is the room, so:
    let mut window = path.window();
    let mut steps = Vec::new();
    for _ in 0..40 {
        let after = path.round(&[EMPTY; 4]);
        steps.push(after - window);
        window = after;
    }
    let ratio = |round: usize| steps[round] / (steps[0] * 2.0);
    assert!(steps[0] < 0.11, "{steps:?}");
    assert!((1.0..1.3).contains(&ratio(8)) && steps[39] == 1.0, "{steps:?}");
    // One round with a queue, and the step is small again.
    path.round(&[106_000; 4]);
    let before = path.window();
    assert!(path.round(&[EMPTY; 4]) - before < 1.0);
}

#[test]
fn gentle_grows_small_windows_by_half_or_fourfold() {
    // Nearly empty is up to 105 ms. (window, observed ms, as published, gentle)
    for (window, observed, literal, gentle) in [
        (0.5, 110, 1.5, 0.75),
        (0.5, 102, 1.5, 1.5),
        (0.125, 110, 1.125, 0.1875),
        (0.125, 102, 1.125, 0.5),
        (1.0, 110, 2.0, 1.5),
    ] {
        for (is_gentle, wanted) in [(false, literal), (true, gentle)] {
            let mut path =
                path(Refinements { gentle: is_gentle, ..Refinements::NONE }, window, EMPTY);
            let case = format!("W = {window} at {observed} ms");
            assert_near(path.round(&[observed * 1000; 2]), wanted, &case);
        }
    }
}

#[test]
fn probation_raises_threshold_within_64_rounds() {
    let mut path = path(Refinements { probation: true, ..Refinements::NONE }, 10.0, EMPTY);
    // The round that measured the path was one without congestion.
    for (rounds, trigger) in [(0, 105_234), (31, 112_500), (32, 120_000), (32, 120_000)] {
        for _ in 0..rounds {
            path.round(&[EMPTY; 4]);
        }
        let is = path.nice.trigger_rtt_micros();
        assert!(is.abs_diff(trigger) <= 2, "{is} µs, not {trigger}, {rounds} rounds later");
    }
}

#[test]
fn spaced_separates_pairs_by_quarter_rtt_up_to_20_ms() {
    // (window, min_rtt in µs, spacing)
    for (window, min_rtt, spacing) in
        [(1.0, 20_000, 5_000), (0.1, 60_000, 15_000), (1.0, 200_000, 20_000), (2.0, 20_000, 0)]
    {
        for is_spaced in [false, true] {
            let refinements = Refinements { spaced: is_spaced, ..Refinements::NONE };
            let path = path(refinements, window, min_rtt);
            let pacing = path.nice.pacing(min_rtt, 1448).expect("a paced window");
            let wanted = if is_spaced { spacing } else { 0 };
            assert_eq!(pacing.spacing_micros, wanted, "W = {window}, {min_rtt} µs");
            assert_eq!(pacing.burst, if window < 2.0 { 2 } else { 1 });
        }
    }
}

#[test]
fn recall_slow_starts_to_half_of_the_earlier_window() {
    for recall in [false, true] {
        let mut path = path(Refinements { recall, ..Refinements::NONE }, 40.0, EMPTY);
        for window in [20.0, 10.0, 5.0, 2.5, 1.25] {
            assert_eq!(path.round(&[2 * EMPTY; 40]), window);
        }
        assert_eq!(path.round(&[EMPTY; 2]), 2.25, "the foreground has gone");
        assert_eq!(path.nice.slow_start_threshold().as_f64(), if recall { 20.0 } else { 1.25 });
        // Eight packets: half of each in slow start, otherwise one for the round.
        let after = path.round(&[EMPTY; 8]);
        assert_eq!(after, if recall { 6.75 } else { 3.25 });
    }
}

#[test]
fn least_hides_bursts_from_vegas_of_a_fast_flow() {
    const SHORT: u32 = 10_000;
    let burst = |empty, more| [empty, empty + more, empty + more, empty + more];
    let standing = [SHORT + 1_500; 4];
    // (the empty path, round-trip times of a round, the window after it as published, with `least`)
    let cases = [
        (SHORT, burst(SHORT, 1_800), 39.0, 41.0),
        (SHORT, standing, 39.0, 39.0),
        // Forty packets in 20 ms are two in a millisecond: no more than allowed.
        (20_000, burst(20_000, 3_600), 39.0, 39.0),
        (19_999, burst(19_999, 3_600), 39.0, 41.0),
        (EMPTY, burst(EMPTY, 18_000), 39.0, 39.0),
    ];
    for (empty, samples, mean, least) in cases {
        for (is_least, wanted) in [(false, mean), (true, least)] {
            let refinements = Refinements { least: is_least, ..Refinements::NONE };
            let mut path = path(refinements, 40.0, empty);
            assert_near(path.round(&samples), wanted, &format!("{samples:?}, least: {is_least}"));
        }
    }
}

#[test]
fn recall_ends_with_a_loss() {
    let mut path = path(Refinements { recall: true, ..Refinements::NONE }, 40.0, EMPTY);
    path.round(&[2 * EMPTY; 40]);
    path.round(&[2 * EMPTY; 20]);
    path.app_limited = true;
    path.round(&[EMPTY; 10]);
    path.app_limited = false;
    assert_eq!(path.nice.slow_start_threshold().as_f64(), 20.0);
    assert_eq!(path.lossy_round(10, 1, EMPTY), 5.0);
    assert_eq!(path.nice.slow_start_threshold().as_f64(), 5.0);
}
