//! BBR, on a bottleneck of 1000 packets a second, 49 ms away: with the packet's own millisecond, a BDP of 50
//! packets.

use core::num::NonZeroU32;
use core::time::Duration;

use lull_cc::{Ack, Bbr, Controller, Timestamp};
use lull_testing::pipe::Pipe;

const BANDWIDTH: u64 = 1_000;
const MIN_RTT_MICROS: u32 = 50_000;

fn pipe(buffer: usize) -> Pipe<Bbr> {
    let mut pipe = Pipe::new(BANDWIDTH, Duration::from_millis(49), buffer);
    pipe.add(Bbr::new(1));
    pipe
}

/// The modes of a connection in this many milliseconds, without repetitions.
fn modes(pipe: &mut Pipe<Bbr>, millis: core::ops::Range<u64>) -> Vec<(u64, &'static str)> {
    let mut modes: Vec<(u64, &'static str)> = Vec::new();
    for now in millis {
        pipe.run_until(Duration::from_millis(now));
        let mode = pipe.controller(0).mode_name();
        if modes.last().is_none_or(|last| last.1 != mode) {
            modes.push((now, mode));
        }
    }
    modes
}

/// A controller with hand-made input.
struct Hand {
    bbr: Bbr,
    now: u64,
    delivered: u32,
}

impl Hand {
    fn new() -> Self {
        Hand { bbr: Bbr::new(1), now: 1_000_000, delivered: 0 }
    }

    /// A round of `packets` in one acknowledgement, delivered in `rtt` microseconds.
    fn round(&mut self, packets: u32, rtt: u32) {
        self.now += u64::from(rtt);
        self.ack(packets, 0, packets, rtt);
    }

    fn ack(&mut self, acked: u32, lost: u32, in_flight: u32, rtt: u32) {
        let prior_delivered = self.delivered;
        self.delivered += acked;
        self.bbr.handle_ack(&Ack {
            now: Timestamp::from_micros(self.now),
            delivered: self.delivered,
            prior_delivered,
            acked,
            lost,
            in_flight,
            rtt_micros: NonZeroU32::new(rtt),
            interval_micros: NonZeroU32::new(rtt),
            ..Ack::default()
        });
    }
}

#[test]
fn startup_finds_the_bandwidth_and_the_empty_path() {
    let mut pipe = pipe(200);
    pipe.run_until(Duration::from_secs(3));
    let bbr = pipe.controller(0);
    assert!(
        bbr.bandwidth_packets_per_second().abs_diff(BANDWIDTH) <= 10,
        "{}",
        bbr.bandwidth_packets_per_second()
    );
    assert_eq!(bbr.min_rtt_micros(), Some(MIN_RTT_MICROS));
}

#[test]
fn startup_ends_after_three_rounds_without_growth() {
    // (delivered in each round, rounds in Startup)
    let cases: [(&[u32], usize); 4] = [
        (&[100, 100, 100, 100, 100], 4),
        (&[100, 124, 124, 124, 124], 4),
        (&[100, 126, 126, 126, 126], 5),
        (&[10, 20, 40, 80, 80, 80, 80, 80], 7),
    ];
    for (rounds, expected) in cases {
        let mut hand = Hand::new();
        // The first acknowledgement begins the first round.
        hand.round(1, MIN_RTT_MICROS);
        let mut in_startup = 0;
        for &packets in rounds {
            hand.round(packets, MIN_RTT_MICROS);
            in_startup += usize::from(hand.bbr.mode_name() == "Startup");
        }
        assert_eq!(in_startup + 1, expected, "{rounds:?}");
    }
}

#[test]
fn startup_is_followed_by_drain_and_cycle() {
    let mut pipe = pipe(200);
    let modes = modes(&mut pipe, 1..5_000);
    let names: Vec<_> = modes.iter().map(|mode| mode.1).collect();
    assert_eq!(names, ["Startup", "Drain", "ProbeBW"], "{modes:?}");
    // Ten packets with a BDP of fifty, and three rounds, which are longer by then, to detect it.
    assert!(modes[1].0 < 800, "{modes:?}");
}

#[test]
fn cycle_uses_the_link_and_keeps_the_queue_short() {
    let mut pipe = pipe(200);
    pipe.run_until(Duration::from_secs(2));
    let (before, _) = (pipe.delivered(0), pipe.mean_queue());
    pipe.run_until(Duration::from_secs(9));
    let share = f64::from(pipe.delivered(0) - before) / (7.0 * BANDWIDTH as f64);
    let queue = pipe.mean_queue();
    assert!(share > 0.97, "{share}");
    // The packet that is being sent, three bursts of two, and occasionally a quarter of the BDP.
    assert!((1.0..12.5).contains(&queue), "{queue}");
    assert_eq!(pipe.lost(0), 0);
}

#[test]
fn cycle_paces_at_five_quarters_three_quarters_and_one() {
    let mut pipe = pipe(200);
    pipe.run_until(Duration::from_secs(2));
    let mut seen = [0u32; 3];
    for now in 2_000..9_000 {
        pipe.run_until(Duration::from_millis(now));
        let rate = pipe.controller(0).pacing(0, 1448).expect("it is paced").rate;
        let packets = rate.bytes_per_second() as f64 / 1448.0;
        let gains = [1.25, 0.75, 1.0].map(|gain| gain * 0.99 * BANDWIDTH as f64);
        let gain = gains.iter().position(|gain| (packets / gain - 1.0).abs() < 0.02);
        seen[gain.unwrap_or_else(|| panic!("{packets} packets/s"))] += 1;
    }
    // One phase of eight each, and six; the second one ends when the queue is drained.
    let total = f64::from(seen.iter().sum::<u32>());
    let [more, less, even] = seen.map(|count| f64::from(count) / total);
    assert!((0.09..0.25).contains(&more) && (0.01..0.16).contains(&less) && even > 0.6, "{seen:?}");
}

#[test]
fn probe_rtt_follows_ten_seconds_without_a_lower_rtt() {
    let mut pipe = pipe(200);
    let modes = modes(&mut pipe, 1..25_000);
    let probes: Vec<_> = modes
        .windows(2)
        .filter(|pair| pair[0].1 == "ProbeRTT")
        .map(|pair| (pair[0].0, pair[1].0))
        .collect();
    assert_eq!(probes.len(), 2, "{modes:?}");
    for (begin, end) in probes {
        // 200 ms from the time when only four are in flight, one round trip later.
        assert!((200..350).contains(&(end - begin)), "{modes:?}");
    }
    assert!(modes.iter().any(|&(at, mode)| mode == "ProbeRTT" && at.abs_diff(10_050) < 300));
}

#[test]
fn window_is_four_packets_during_probe_rtt_only() {
    let mut pipe = pipe(200);
    let mut before = 0;
    let mut in_probe_rtt = false;
    for now in 1..15_000 {
        pipe.run_until(Duration::from_millis(now));
        let bbr = pipe.controller(0);
        let window = bbr.window().packets();
        match (bbr.mode_name(), in_probe_rtt) {
            ("ProbeRTT", _) => {
                in_probe_rtt = true;
                assert_eq!(window, 4);
            }
            (_, true) => {
                assert_eq!(window, before);
                return;
            }
            (_, false) => before = window,
        }
    }
    panic!("there was no ProbeRTT");
}

#[test]
fn probe_rtt_keeps_the_bandwidth() {
    let mut pipe = pipe(200);
    for now in (3..40).map(Duration::from_secs) {
        pipe.run_until(now);
        let bandwidth = pipe.controller(0).bandwidth_packets_per_second();
        assert!(bandwidth.abs_diff(BANDWIDTH) <= 20, "{bandwidth} at {now:?}");
    }
}

#[test]
fn shallow_buffer_costs_bbr_packets_but_no_throughput() {
    let mut pipe = pipe(5);
    pipe.run_until(Duration::from_secs(2));
    let before = pipe.delivered(0);
    pipe.run_until(Duration::from_secs(9));
    let share = f64::from(pipe.delivered(0) - before) / (7.0 * BANDWIDTH as f64);
    assert!(share > 0.9, "{share}");
    assert!(pipe.lost(0) > 0);
}

#[test]
fn two_flows_fill_the_link_together() {
    let mut pipe = Pipe::new(BANDWIDTH, Duration::from_millis(49), 200);
    for seed in [1, 2] {
        pipe.add(Bbr::new(seed));
    }
    pipe.run_until(Duration::from_secs(30));
    let shares = [0, 1].map(|id| f64::from(pipe.delivered(id)) / (30.0 * BANDWIDTH as f64));
    assert!(shares[0] + shares[1] > 0.95, "{shares:?}");
    assert!(shares[0] > 0.2 && shares[1] > 0.2, "{shares:?}");
}

#[test]
fn round_after_loss_sends_what_arrives_then_recovers() {
    let mut hand = Hand::new();
    for _ in 0..12 {
        hand.round(100, MIN_RTT_MICROS);
    }
    let before = hand.bbr.packets(0);
    assert!(before > 100, "{before}");
    let sent_before = hand.delivered;
    hand.ack(2, 1, 100, MIN_RTT_MICROS);
    // 97 are still in flight, and two may follow the two that arrived.
    assert_eq!(hand.bbr.packets(0), 99);
    // The next one was sent after the loss was found: recovery has ended.
    assert!(hand.delivered > sent_before);
    hand.round(97, MIN_RTT_MICROS);
    assert!(hand.bbr.packets(0) >= before, "{}", hand.bbr.packets(0));
}

/// RFC 5681 §3.1.
#[test]
fn timeout_leaves_one_packet_until_as_many_arrive() {
    let mut hand = Hand::new();
    for _ in 0..12 {
        hand.round(100, MIN_RTT_MICROS);
    }
    let before = hand.bbr.packets(0);
    let at = hand.delivered;
    let timeout = |hand: &mut Hand| {
        hand.bbr.handle_timeout(Timestamp::from_micros(hand.now), hand.delivered);
        assert_eq!(hand.bbr.packets(0), 1);
    };
    timeout(&mut hand);
    hand.round(1, MIN_RTT_MICROS);
    // A second one does not extend the recovery.
    timeout(&mut hand);
    // So few rounds that the bandwidth sample does not expire.
    while hand.delivered + 60 < at + before {
        hand.round(60, MIN_RTT_MICROS);
        assert!(hand.bbr.packets(0) < before);
    }
    hand.round(60, MIN_RTT_MICROS);
    assert!(hand.bbr.packets(0) >= before, "{}", hand.bbr.packets(0));
}

#[test]
fn app_limited_sample_counts_only_if_higher() {
    let mut hand = Hand::new();
    for _ in 0..12 {
        hand.round(100, MIN_RTT_MICROS);
    }
    for (packets, expected) in [(10, 2_000), (100, 2_000), (150, 3_000)] {
        // Long after all other samples have left the window.
        for _ in 0..20 {
            hand.now += u64::from(MIN_RTT_MICROS);
            let prior_delivered = hand.delivered;
            hand.delivered += packets;
            hand.bbr.handle_ack(&Ack {
                now: Timestamp::from_micros(hand.now),
                delivered: hand.delivered,
                prior_delivered,
                acked: packets,
                in_flight: packets,
                rtt_micros: NonZeroU32::new(MIN_RTT_MICROS),
                interval_micros: NonZeroU32::new(MIN_RTT_MICROS),
                app_limited: true,
                ..Ack::default()
            });
        }
        assert!(
            hand.bbr.bandwidth_packets_per_second().abs_diff(expected) <= 1,
            "{packets}: {}",
            hand.bbr.bandwidth_packets_per_second()
        );
    }
}

#[test]
fn version_1_ignores_ecn_marks() {
    let mut hand = Hand::new();
    hand.round(100, MIN_RTT_MICROS);
    let before = hand.bbr.clone();
    hand.bbr.handle_mark(Timestamp::from_micros(hand.now), hand.delivered);
    assert_eq!(hand.bbr, before);
}

#[test]
fn pace_before_first_rtt_assumes_one_millisecond() {
    let pace = Bbr::new(1).pacing(0, 1_000).expect("it is paced");
    // Ten packets at 2.89 in a millisecond.
    assert_eq!(pace.rate.bytes_per_second() / 100_000, 288);
    assert!(pace.burst >= 1);
}
