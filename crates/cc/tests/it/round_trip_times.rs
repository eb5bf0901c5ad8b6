//! Nice's estimates for the empty and for the full queue, `min_rtt` and `max_rtt` (Nice §2.3, SSR §4.1.2).
//! The doc comment of each test names the section of its rule. Rules on which the papers are silent are in
//! the table of that name in `docs/algorithm.md`.

use lull_cc::{NiceParameters, Refinements};

use crate::path::Path;

fn prototype() -> NiceParameters {
    NiceParameters::prototype()
}

/// TCP Nice §2.3.
#[test]
fn max_rtt_starts_at_twice_min_rtt() {
    let mut path = Path::new(prototype(), 10.0);
    path.round(&[100_000; 10]);
    assert_eq!(path.nice.min_rtt_micros(), 100_000);
    assert_eq!(path.nice.max_rtt_micros(), 200_000);
}

/// With the refinement that uses losses.
fn believing() -> NiceParameters {
    NiceParameters { refinements: Refinements { full: true, ..Refinements::NONE }, ..prototype() }
}

/// SSR §4.1.2's maxRTT is that of the full queue, which in a short buffer no percentile shows.
#[test]
fn loss_measures_the_rtt_of_the_full_queue() {
    // A buffer of a quarter of the BDP: 2 · min_rtt never occurs.
    for (parameters, max_rtt, trigger) in
        [(prototype(), 200_000, 120_000), (believing(), 125_000, 105_000)]
    {
        let mut path = Path::new(parameters, 16.0);
        path.round(&[100_000; 16]);
        assert_eq!(path.nice.max_rtt_micros(), 200_000);
        path.round(&[118_000; 8]);
        path.lossy_round(8, 1, 125_000);
        assert_eq!(path.nice.max_rtt_micros(), max_rtt);
        assert!(path.nice.trigger_rtt_micros().abs_diff(trigger) <= 2);
    }
}

/// SSR §4.1.2 ignores outliers. (means of rounds, and how many seconds pass before each; max_rtt)
#[test]
fn max_rtt_needs_two_rounds() {
    for (rounds, max_rtt) in [
        // One late packet, at first and later.
        (&[(900, 0), (100, 0), (100, 0)][..], 200),
        (&[(100, 0), (100, 0), (900, 0), (100, 0)], 200),
        (&[(100, 0), (900, 10), (100, 10), (100, 10)], 200),
        // A queue that is there for two rounds, consecutive or not, of one slot or of two.
        (&[(100, 0), (900, 0), (700, 0)], 700),
        (&[(100, 0), (700, 1), (100, 1), (900, 1)], 700),
        (&[(100, 0), (700, 9), (900, 9)], 700),
        // Two late packets with more than a slot between them.
        (&[(100, 0), (900, 10), (100, 10), (900, 10)], 200),
        // Later values do not remove earlier ones.
        (&[(100, 0), (900, 0), (900, 0), (100, 10), (100, 10), (100, 10)], 900),
    ] {
        // No cut, so that each is a separate round.
        let mut path = Path::new(NiceParameters { detector: false, ..prototype() }, 4.0);
        // The first packet of all finds the path empty.
        path.round(&[100_000; 4]);
        for &(milliseconds, seconds) in rounds {
            path.now += seconds * 1_000_000;
            path.round(&[milliseconds * 1_000; 4]);
        }
        assert_eq!(path.nice.max_rtt_micros(), max_rtt * 1_000, "{rounds:?}");
    }
}

/// SSR §4.1.2.
/// RFC 1122 §4.2.3.2 again: the first sample of all may have been delayed by the receiver.
#[test]
fn first_sample_does_not_set_max_rtt() {
    let mut path = Path::new(prototype(), 2.0);
    path.round(&[140_000]);
    path.round(&[100_000; 2]);
    path.round(&[100_000; 2]);
    assert_eq!((path.nice.min_rtt_micros(), path.nice.max_rtt_micros()), (100_000, 200_000));
}

/// SSR §4.1.2 does not mention very small buffers.
#[test]
fn max_rtt_is_at_least_nine_eighths_of_min_rtt() {
    for (full, max_rtt) in [(102_000, 112_500), (112_000, 112_500), (115_000, 115_000)] {
        let mut path = Path::new(believing(), 16.0);
        path.round(&[100_000; 16]);
        path.lossy_round(8, 1, full);
        assert_eq!(path.nice.max_rtt_micros(), max_rtt, "a loss at {full} µs");
    }
}

/// SSR §4.1.2.
#[test]
fn single_outlier_in_twenty_slots_is_dropped() {
    let mut path = Path::new(prototype(), 2.0);
    // Twenty slots of ten seconds; one holds a low outlier, one a high one of two rounds.
    for slot in 0..20u32 {
        path.now += 10_000_000;
        let rtt = match slot {
            7 => 60_000,
            13 => 900_000,
            _ => 100_000,
        };
        path.round(&[rtt; 2]);
        path.round(&[rtt; 2]);
    }
    assert_eq!(path.nice.min_rtt_micros(), 100_000);
    assert_eq!(path.nice.max_rtt_micros(), 200_000);
}

/// SSR §4.1.2.
#[test]
fn longer_route_is_accepted_after_the_window() {
    let mut path = Path::new(prototype(), 2.0);
    path.round(&[50_000; 2]);
    path.round(&[50_000; 2]);
    for _ in 0..22 {
        path.now += 10_000_000;
        path.round(&[180_000; 2]);
    }
    assert_eq!(path.nice.min_rtt_micros(), 180_000);
    let before = path.window();
    path.round(&[180_000; 2]);
    assert!(path.window() > before, "the window grows again on the new route");
}

/// TCP Nice §2.2.
#[test]
fn much_shorter_route_is_accepted_at_once() {
    let mut path = Path::new(prototype(), 8.0);
    path.round(&[200_000; 8]);
    path.round(&[50_000; 8]);
    path.round(&[50_000; 8]);
    assert_eq!(path.nice.min_rtt_micros(), 50_000);
    assert_eq!(path.nice.max_rtt_micros(), 100_000);
}
