//! Nice, rule by rule. The doc comment of each test names the section of its rule. Rules on which the papers
//! are silent are in the table of that name in `docs/algorithm.md`.

use core::num::NonZeroU32;

use lull_cc::{Ack, Base, Controller, Nice, NiceParameters, Timestamp, Window};

use crate::path::Path;

fn prototype() -> NiceParameters {
    NiceParameters::prototype()
}

/// TCP Nice §2.2.
#[test]
fn packet_above_weighted_rtt_is_congested() {
    // (1 − t)·100 ms + t·200 ms for the thresholds of §2.3 and §4.1, and others.
    for (numerator, denominator, trigger) in [(1, 5, 120_000), (1, 10, 110_000), (1, 2, 150_000)] {
        let threshold = lull_cc::nice::fixed(numerator, denominator);
        let mut path = Path::new(NiceParameters { threshold, ..prototype() }, 10.0);
        path.round(&[100_000; 10]);
        assert!(
            path.nice.trigger_rtt_micros().abs_diff(trigger) <= 2,
            "t = {numerator}/{denominator}"
        );
    }
}

/// TCP Nice §2.2.
#[test]
fn window_is_halved_when_fraction_f_is_congested() {
    // (congested packets of ten, halved?) at f = 0.5: not at exactly half.
    for (congested, is_halved) in [(0, false), (4, false), (5, false), (6, true), (10, true)] {
        let mut path = Path::new(prototype(), 10.0);
        path.round(&[100_000; 10]);
        let before = path.window();
        let mut rtts = [105_000; 10];
        rtts[10 - congested..].fill(150_000);
        path.round(&rtts);
        assert_eq!(path.nice.rounds_congested() == 1, is_halved, "{congested} of 10");
        if is_halved {
            assert_eq!(path.window(), before / 2.0, "{congested} of 10");
        }
    }
}

/// TCP Nice §2.2.
/// Nice §2.2 counts packets, and does not mention acknowledgements of several.
#[test]
fn sample_counts_for_all_packets_of_its_ack() {
    let mut path = Path::new(prototype(), 10.0);
    path.round(&[100_000; 10]);
    // Nine packets under one late sample, one early one: nine tenths are congested.
    let sent_before = path.delivered - 1;
    path.acknowledge(1, sent_before, Some(100_000));
    path.acknowledge(9, sent_before, Some(150_000));
    path.acknowledge(1, path.delivered, None);
    assert_eq!(path.nice.rounds_congested(), 1);
}

/// RFC 1122 §4.2.3.2.
#[test]
fn possibly_delayed_ack_sample_is_not_congestion() {
    let mut path = Path::new(prototype(), 4.0);
    path.round(&[100_000; 4]);
    for _ in 0..10 {
        path.now += 140_000;
        path.delivered += 1;
        path.nice.handle_ack(&Ack {
            now: Timestamp::from_micros(path.now),
            delivered: path.delivered,
            prior_delivered: path.delivered - 1,
            acked: 1,
            in_flight: 1,
            rtt_micros: NonZeroU32::new(140_000),
            maybe_delayed: true,
            ..Ack::default()
        });
    }
    assert_eq!(path.nice.rounds_congested(), 0);
    assert_eq!(path.nice.max_rtt_micros(), 200_000);
}

/// RFC 1122 §4.2.3.2.
#[test]
fn delayed_ack_of_single_packet_is_not_congestion() {
    // Four packets in flight: two are acknowledged at once, one after the receiver's 40 ms.
    let mut path = Path::new(prototype(), 4.0);
    path.round(&[100_000; 4]);
    for _ in 0..10 {
        let sent_before = path.delivered - 1;
        for (acked, rtt) in [(2, 100_000), (1, 140_000)] {
            path.delivered += acked;
            path.now += u64::from(rtt) / 2;
            path.nice.handle_ack(&Ack {
                now: Timestamp::from_micros(path.now),
                delivered: path.delivered,
                prior_delivered: sent_before,
                acked,
                in_flight: 4,
                rtt_micros: NonZeroU32::new(rtt),
                ..Ack::default()
            });
        }
        path.acknowledge(1, path.delivered, None);
    }
    assert_eq!(path.nice.rounds_congested(), 0);
    // An immediate acknowledgement of each packet is accepted.
    let mut path = Path::new(prototype(), 4.0);
    path.round(&[100_000; 4]);
    let sent_before = path.delivered - 1;
    for in_flight in [4, 3, 2] {
        path.delivered += 1;
        path.nice.handle_ack(&Ack {
            now: Timestamp::from_micros(path.now),
            delivered: path.delivered,
            prior_delivered: sent_before,
            acked: 1,
            in_flight,
            rtt_micros: NonZeroU32::new(140_000),
            ..Ack::default()
        });
    }
    path.acknowledge(1, path.delivered, None);
    assert_eq!(path.nice.rounds_congested(), 1);
}

/// TCP Nice §2.3.
#[test]
fn next_pair_waits_for_the_last_one() {
    let path = Path::new(prototype(), 1.5);
    assert_eq!([0, 1, 2].map(|in_flight| path.nice.packets(in_flight)), [2, 1, 2]);
    let path = Path::new(prototype(), 2.0);
    assert_eq!([0, 1, 2].map(|in_flight| path.nice.packets(in_flight)), [2, 2, 2]);
}

/// TCP Nice §2.2.
/// In Nice §2.2 any delay above the threshold counts, and jitter is not mentioned.
#[test]
fn microseconds_of_jitter_are_not_congestion() {
    let mut path = Path::new(prototype(), 10.0);
    path.round(&[50; 10]);
    // Ten times min_rtt, but below the floor of 500 µs.
    path.round(&[540; 10]);
    path.round(&[540; 10]);
    assert_eq!(path.nice.rounds_congested(), 0);
    path.round(&[560; 10]);
    path.round(&[560; 10]);
    assert!(path.nice.rounds_congested() > 0);
}

/// TCP Nice §2.1.
/// Nor a queued packet for Nice §2.1, which has no detector.
#[test]
fn microseconds_of_jitter_are_not_queued_packets() {
    // W = 20, min 100 µs; the floor is at 600 µs.
    for (observed, window) in [(580, 21.0), (620, 19.0)] {
        let parameters = NiceParameters { detector: false, ..prototype() };
        let mut path = Path::new(parameters, 19.0);
        assert_eq!(path.see_min_rtt(100), 20.0);
        assert_eq!(path.round(&[observed; 20]), window, "{observed} µs");
    }
}

/// TCP Nice §2.1.
#[test]
fn vegas_keeps_between_alpha_and_beta_packets_queued() {
    // W = 20, min 100 ms; observed, change; packets queued are 20·(o − min)/o.
    for (observed, change) in [(100_000, 1.0), (105_000, 1.0), (107_000, 0.0), (115_000, 0.0)] {
        let mut path = Path::new(prototype(), 19.0);
        assert_eq!(path.see_min_rtt(100_000), 20.0);
        assert_eq!(path.round(&[observed; 20]) - 20.0, change, "observed {observed} µs");
    }
    // Above β: 20·20/120 = 3.3; the detector must not react first.
    let mut path = Path::new(NiceParameters { threshold: 65_535, ..prototype() }, 19.0);
    path.see_min_rtt(100_000);
    assert_eq!(path.round(&[120_000; 20]), 19.0);
}

/// SSR §4.1.2.
#[test]
fn reno_below_the_detector_adds_one_a_round() {
    let mut path = Path::new(NiceParameters { base: Base::Reno, ..prototype() }, 19.0);
    path.see_min_rtt(100_000);
    assert_eq!(path.round(&[115_000; 20]), 21.0);
}

/// TCP Nice §2.2.
#[test]
fn loss_halves_the_window_once_a_round() {
    let mut path = Path::new(prototype(), 16.0);
    path.round(&[100_000; 16]);
    let before = path.window();
    let sent_at = path.delivered;
    // Three acknowledgements of one flight, each with a loss.
    let sent_at = sent_at - 1;
    for _ in 0..3 {
        path.delivered += 2;
        path.nice.handle_ack(&Ack {
            now: Timestamp::from_micros(path.now),
            delivered: path.delivered,
            prior_delivered: sent_at,
            acked: 2,
            lost: 1,
            in_flight: 16,
            rtt_micros: NonZeroU32::new(100_000),
            ..Ack::default()
        });
    }
    assert_eq!(path.window(), before / 2.0);
    // The next flight may be halved again.
    path.lossy_round(4, 1, 100_000);
    assert_eq!(path.window(), before / 4.0);
}

/// TCP Nice §2.2.
/// Nice §2.2 treats all packets alike. On a link that takes 8 ms for a full packet and almost nothing for a
/// small one.
#[test]
fn small_packet_rtts_end_with_first_full_packet() {
    let mut path = Path::new(prototype(), 4.0);
    path.is_small = true;
    path.round(&[25_000; 4]);
    assert_eq!(path.nice.min_rtt_micros(), 25_000);
    path.is_small = false;
    path.round(&[33_000; 4]);
    assert_eq!(path.nice.min_rtt_micros(), 33_000);
    assert_eq!(path.nice.rounds_congested(), 0);
    // Occasional small ones do not undo that, and a queue that they met counts.
    path.is_small = true;
    path.round(&[25_000; 4]);
    assert_eq!(path.nice.min_rtt_micros(), 33_000);
    path.round(&[60_000; 4]);
    assert_eq!(path.nice.rounds_congested(), 1);
}

/// TCP Nice §2.2.
/// While only small packets were sent, they are the only measurements. A connection of them begins beside a
/// queue, which drains and returns.
#[test]
fn small_packets_alone_find_the_path_when_it_empties() {
    let mut path = Path::new(prototype(), 4.0);
    path.is_small = true;
    for rtt in [110_000, 60_000, 50_000] {
        path.round(&[rtt; 4]);
        assert_eq!(path.nice.min_rtt_micros(), rtt);
    }
    path.round(&[110_000; 4]);
    assert_eq!(path.nice.rounds_congested(), 1);
}

/// TCP Nice §2.2.
/// Nice §2.2 has two reasons to halve, and one reaction a round.
#[test]
fn round_with_loss_and_queue_is_halved_once() {
    let mut path = Path::new(prototype(), 16.0);
    path.round(&[100_000; 16]);
    let before = path.window();
    let sent_before = path.delivered - 1;
    let queue = |path: &mut Path, packets: u32| {
        (0..packets).for_each(|_| path.acknowledge(1, sent_before, Some(190_000)));
    };
    queue(&mut path, 6);
    path.nice.handle_ack(&Ack {
        now: Timestamp::from_micros(path.now),
        delivered: path.delivered,
        prior_delivered: sent_before,
        lost: 1,
        in_flight: 10,
        ..Ack::default()
    });
    assert_eq!(path.window(), before / 2.0);
    queue(&mut path, 10);
    path.acknowledge(1, path.delivered, None);
    assert_eq!(path.window(), before / 2.0);
    // Packets sent after the cut are judged again.
    path.round(&[190_000; 8]);
    assert_eq!(path.window(), before / 4.0);
}

/// RFC 3168 §6.1.2.
#[test]
fn ecn_mark_is_answered_like_a_loss() {
    let mut path = Path::new(prototype(), 16.0);
    path.round(&[100_000; 16]);
    let before = path.window();
    path.nice.handle_mark(Timestamp::from_micros(path.now), path.delivered);
    assert_eq!(path.window(), before / 2.0);
}

/// RFC 5681 §3.1's loss window is one packet, more than a window that Nice §2.3 has brought below.
#[test]
fn timeout_leaves_at_most_one_packet_and_never_raises() {
    for (before, after) in [(16.0, 1.0), (1.5, 1.0), (1.0, 1.0), (0.25, 0.25)] {
        let mut path = Path::new(prototype(), before);
        path.nice.handle_timeout(Timestamp::from_micros(path.now), 0);
        assert_eq!(path.window(), after, "from {before}");
    }
}

/// TCP Nice §2.3.
#[test]
fn window_halves_down_to_one_48th() {
    let mut path = Path::new(prototype(), 4.0);
    path.see_min_rtt(100_000);
    for _ in 0..20 {
        path.round(&[190_000; 2]);
    }
    assert_eq!(path.nice.window(), Window::ONE_48TH);
}

/// TCP Nice §2.3.
#[test]
fn window_below_two_sends_a_pair_every_two_over_w_rtts() {
    // Window, seconds between pairs of 1448-byte packets at a smoothed RTT of 50 ms.
    for (window, interval) in [(1.0, 0.1), (0.5, 0.2), (1.0 / 16.0, 1.6), (1.0 / 48.0, 4.8)] {
        let path = Path::new(prototype(), window);
        let pace = path.nice.pacing(50_000, 1448).expect("paced");
        assert_eq!(path.nice.packets(0), 2);
        assert_eq!(pace.burst, 2);
        let seconds = 2.0 * 1448.0 / pace.rate.bytes_per_second() as f64;
        assert!((seconds / interval - 1.0).abs() < 0.01, "W = {window}: {seconds} s");
    }
}

/// TCP Nice §2.3.
#[test]
fn window_below_two_makes_the_pair_the_round() {
    let mut path = Path::new(prototype(), 0.25);
    // One acknowledgement of two does not end a round yet; with the second the published +1 is added.
    let sent_at = path.delivered;
    for (in_flight, window) in [(2, 0.25), (1, 1.25)] {
        path.delivered += 1;
        path.nice.handle_ack(&Ack {
            now: Timestamp::from_micros(path.now),
            delivered: path.delivered,
            prior_delivered: sent_at,
            acked: 1,
            in_flight,
            rtt_micros: NonZeroU32::new(100_000),
            ..Ack::default()
        });
        assert_eq!(path.window(), window, "{in_flight} in flight");
    }
}

/// RFC 1122 §4.2.3.2.
/// Nice §2.3 plans pacing.
#[test]
fn packets_leave_before_the_delayed_ack_timer() {
    // (window, smoothed RTT in ms, ms from packet to packet): a quarter more than the window needs, and at
    // most half of the 40 ms that a receiver waits for a second packet.
    for (window, rtt, gap) in
        [(2.0, 200, 20.0), (4.0, 400, 20.0), (2.0, 25, 10.0), (10.0, 200, 16.0), (40.0, 50, 1.0)]
    {
        let path = Path::new(prototype(), window);
        let pace = path.nice.pacing(rtt * 1000, 1448).expect("paced");
        let is = 1448.0 * 1e3 / pace.rate.bytes_per_second() as f64;
        assert!((is / gap - 1.0).abs() < 0.01, "W = {window} at {rtt} ms: {is} ms");
    }
}

/// TCP Nice §2.3.
/// Nice §2.3 plans pacing.
#[test]
fn slow_start_is_paced_at_twice_then_five_quarters() {
    for (ssthresh, factor) in [(Window::MAX, 2.0), (Window::from_packets(10), 1.25)] {
        let nice = Nice::with_window(prototype(), Window::from_packets(10), ssthresh);
        let pace = nice.pacing(50_000, 1448).expect("paced");
        let expected = factor * 10.0 * 1448.0 / 0.05;
        let is = pace.rate.bytes_per_second() as f64;
        assert!((is / expected - 1.0).abs() < 0.001, "{factor}: {is}, not {expected}");
    }
}

/// TCP Nice §2.3.
/// Nice §2.3 uses smoothed round-trip times; over eight pairs far apart, they are outdated.
#[test]
fn pair_interval_uses_the_last_rtt_if_shorter() {
    // (window, smoothed RTT, last RTT, the one that pacing uses), in ms
    for (window, smoothed, last, paced_by) in
        [(0.25, 200, 50, 50), (0.25, 50, 200, 50), (4.0, 200, 50, 200)]
    {
        let mut path = Path::new(prototype(), window);
        path.app_limited = true;
        path.round(&[last * 1000]);
        assert_eq!(path.window(), window);
        let fresh = Path::new(prototype(), window);
        assert_eq!(
            path.nice.pacing(smoothed * 1000, 1448).map(|pace| pace.rate),
            fresh.nice.pacing(paced_by * 1000, 1448).map(|pace| pace.rate),
            "W = {window}, {smoothed} and {last} ms"
        );
    }
}

/// TCP Nice §2.3.
/// A round that waits for the rest of its pair does not wait forever.
#[test]
fn overlapping_pairs_end_the_round_before() {
    let mut path = Path::new(prototype(), 0.25);
    for window in [0.25, 1.25] {
        let prior_delivered = path.delivered;
        path.delivered += 1;
        path.nice.handle_ack(&Ack {
            now: Timestamp::from_micros(path.now),
            delivered: path.delivered,
            prior_delivered,
            acked: 1,
            in_flight: 4,
            rtt_micros: NonZeroU32::new(100_000),
            ..Ack::default()
        });
        assert_eq!(path.window(), window);
    }
}

/// TCP Nice §2.3.
#[test]
fn pacing_rate_is_never_zero() {
    let path = Path::new(prototype(), 1.0 / 48.0);
    let pace = path.nice.pacing(u32::MAX, 1).expect("paced");
    assert!(pace.rate.bytes_per_second() >= 1);
}

/// RFC 7661.
#[test]
fn unused_window_does_not_grow() {
    let mut path = Path::new(prototype(), 10.0);
    for _ in 0..5 {
        path.delivered += 2;
        path.now += 100_000;
        // A window update, or data of the other side: it acknowledges nothing, and so has no information.
        path.nice.handle_ack(&Ack {
            now: Timestamp::from_micros(path.now),
            delivered: path.delivered,
            prior_delivered: path.delivered - 2,
            in_flight: 2,
            ..Ack::default()
        });
        path.nice.handle_ack(&Ack {
            now: Timestamp::from_micros(path.now),
            delivered: path.delivered,
            prior_delivered: path.delivered - 2,
            acked: 2,
            in_flight: 2,
            rtt_micros: NonZeroU32::new(100_000),
            app_limited: true,
            ..Ack::default()
        });
    }
    assert_eq!(path.window(), 10.0);
}

/// RFC 5681 §4.1.
#[test]
fn pause_restarts_the_connection_like_a_new_one() {
    let mut path = Path::new(prototype(), 40.0);
    path.nice.handle_idle(Timestamp::from_micros(path.now));
    assert_eq!(path.nice.window(), Nice::INITIAL_WINDOW);
    let mut path = Path::new(prototype(), 0.25);
    path.nice.handle_idle(Timestamp::from_micros(path.now));
    assert_eq!(path.window(), 0.25);
}

/// The report of `lull exec` at its end: how long its program could have sent, but did not.
#[test]
fn idle_connection_does_not_yield() {
    for (app_limited, is_idle, yielded) in
        [(false, false, true), (true, false, false), (false, true, false)]
    {
        let mut path = Path::new(prototype(), 0.25);
        path.round(&[100_000; 2]);
        let before = path.nice.yielded_micros();
        path.app_limited = app_limited;
        path.now += 600_000_000;
        if is_idle {
            path.nice.handle_idle(Timestamp::from_micros(path.now));
        }
        path.round(&[100_000; 2]);
        let after = path.nice.yielded_micros() - before;
        assert_eq!(after > 0, yielded, "{app_limited} {is_idle}: {after} µs");
    }
}

/// TCP Nice §2.1.
/// Nice §2.1 does not mention slow start; it ends where Vegas would stop growing.
#[test]
fn slow_start_ends_when_a_packet_is_queued() {
    let mut nice = Nice::new(prototype());
    assert!(nice.window() < nice.slow_start_threshold());
    let mut delivered = 0u32;
    let mut rounds = 0u32;
    // A path with a queue for every packet beyond 20 in flight, 5 ms each.
    while nice.window() < nice.slow_start_threshold() {
        rounds += 1;
        assert!(rounds < 20, "slow start must end");
        let sent_at = delivered;
        let window = nice.packets(0);
        let rtt = 100_000 + window.saturating_sub(20) * 5_000;
        for i in 0..window {
            delivered += 1;
            nice.handle_ack(&Ack {
                now: Timestamp::from_micros(u64::from(rounds) * 200_000 + u64::from(i)),
                delivered,
                prior_delivered: sent_at,
                acked: 1,
                in_flight: window - i,
                rtt_micros: NonZeroU32::new(rtt),
                ..Ack::default()
            });
        }
    }
    assert!(nice.window() <= Window::from_packets(40), "{}", nice.window());
    assert!(rounds > 4, "it grows by half a round, not by double");
}
