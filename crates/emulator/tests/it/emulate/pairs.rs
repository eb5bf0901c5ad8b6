//! Windows below two packets, as seen on the wire.

use std::ffi::CString;
use std::time::Duration;

use lull_cc::{NiceParameters, Refinements, Window};
use lull_emulator::{Emulator, Topology};
use lull_testing::{bound, bpf, needs};

use super::bulk::Bulk;

/// The median of some times in seconds.
fn median(times: impl Iterator<Item = f64>) -> f64 {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    *times.get(times.len() / 2).expect("there are none")
}

/// When a flow of Nice sent its data packets, in seconds; over the idle link of 10 Mbit/s and 50 ms, after
/// the warm-up.
///
/// With a threshold near zero every packet counts as delayed. So the window stays at its floor of 1/4 without
/// other traffic on the link: the round trip is always 50 ms. Then a pair leaves every 2/W = 8 round trips,
/// and its second packet a quarter of one after the first.
fn departures(name: &str, duration: Duration, warm_up: Duration) -> Vec<f64> {
    departures_at(Window::from_ratio(1, 4), name, duration, warm_up)
}

fn departures_at(
    min_window: Window,
    name: &str,
    duration: Duration,
    warm_up: Duration,
) -> Vec<f64> {
    let parameters = NiceParameters {
        min_window,
        threshold: 1,
        fraction: 1,
        delay_floor_micros: 0,
        // Jitter of a busy machine would be learned as noise, so that packets no longer count as delayed.
        refinements: Refinements { noise: false, ..NiceParameters::default().refinements },
        ..NiceParameters::default()
    };
    let name = format!("{name}{}", std::process::id());
    let held = lull_kernel::register_control(&name, &parameters).unwrap();
    let topology = Topology { series: Some(Duration::from_millis(1)), ..Topology::default() };
    let emulator = Emulator::start(&topology).unwrap();
    let bulk = Bulk {
        duration,
        warm_up,
        ..Bulk::new(Box::leak(CString::new(held.name()).unwrap().into_boxed_c_str()))
    };
    bulk.run(emulator.left(0), emulator.right(0));
    let record = emulator.finish().unwrap();
    drop(held);

    // The link carries only this flow, so a sample of a millisecond holds one packet at most. A packet leaves
    // 1.2 ms after it was sent.
    let samples = record.series.unwrap().forward;
    let start = samples.first().unwrap().time_s + warm_up.as_secs_f64();
    let sent = samples.iter().filter(|sample| {
        sample.time_s >= start && sample.bytes.iter().any(|(_, bytes)| *bytes > 1000)
    });
    sent.map(|sample| sample.time_s).collect()
}

/// From each packet to the next.
fn gaps(sent: &[f64]) -> Vec<f64> {
    sent.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn window_below_two_sends_a_pair_every_two_over_w_rtts() {
    needs!(bpf());
    // Two packets, one, a half, a quarter: 15 round trips; and room for a late start.
    let sent = departures("pairs", Duration::from_secs(14), Duration::from_secs(4));
    let gaps = gaps(&sent);
    let is_within = |gap: &f64| *gap < 0.1;
    let within = median(gaps.iter().copied().filter(is_within));
    let apart = median(gaps.iter().copied().filter(|gap| !is_within(gap))) + within;
    // Gaps within a pair and between pairs alternate.
    let alternating =
        gaps.windows(2).filter(|two| is_within(&two[0]) != is_within(&two[1])).count();
    eprintln!(
        "{} packets, {:.1} ms within a pair, {:.0} ms from pair to pair, {alternating} of {} gaps \
         of the other kind",
        sent.len(),
        within * 1e3,
        apart * 1e3,
        gaps.len().saturating_sub(1),
    );
    // 10 s are 25 pairs.
    assert!((bound(15, 40)..=60).contains(&sent.len()), "{sent:?}");
    assert!((bound(0.005, 0.010)..bound(0.05, 0.016)).contains(&within), "{within}: {gaps:?}");
    assert!((0.36..bound(1.0, 0.48)).contains(&apart), "{apart}: {gaps:?}");
    assert!(alternating * 10 >= bound(6, 9) * (gaps.len() - 1), "{gaps:?}");
}

/// The kernel does not pace the first ten packets (docs/algorithm.md), even with a small window: they leave
/// in pairs, a round trip apart. How soon the window falls after that depends on the samples; then there are
/// pauses.
#[test]
fn first_ten_packets_wait_for_rtts_and_for_no_pause() {
    needs!(bpf());
    let sent = departures("first", Duration::from_secs(4), Duration::ZERO);
    let gaps = gaps(&sent);
    eprintln!("{gaps:.3?}");
    assert!(sent.len() >= 20, "{gaps:?}");
    // A round trip, and 40 ms of a receiver that waits for a second packet.
    assert!(gaps[..9].iter().all(|gap| *gap < bound(0.3, 0.1)), "{gaps:?}");
    let first_ten = sent[9] - sent[0];
    assert!((0.14..bound(1.0, 0.4)).contains(&first_ten), "{first_ten}: {gaps:?}");
    // Pauses of eight round trips, less the time within the pair. Occasionally a round trip is the shortest
    // so far and does not count as delayed: then the window is larger for three or four pairs.
    let is_pause = |gap: &&f64| (0.3..bound(1.0, 0.5)).contains(*gap);
    let pauses = gaps[9..].iter().filter(is_pause).count();
    assert!(pauses >= bound(2, 4), "{gaps:?}");
    let pauses = median(gaps[9..].iter().copied().filter(|gap| *gap > 0.1));
    assert!((bound(0.2, 0.3)..bound(1.0, 0.5)).contains(&pauses), "{gaps:?}");
}

/// A window of 1/48 would mean a pair in 4.8 s.
#[test]
fn smallest_window_sends_a_pair_a_second() {
    needs!(bpf());
    let duration = Duration::from_secs(14);
    let sent = departures_at(Window::ONE_48TH, "progress", duration, Duration::from_secs(4));
    let gaps = gaps(&sent);
    eprintln!("{} packets: {gaps:.3?}", sent.len());
    // 10 s are ten pairs.
    assert!((bound(8, 16)..=26).contains(&sent.len()), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap < bound(3.0, 1.3)), "{gaps:?}");
}
