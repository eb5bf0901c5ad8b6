//! LEDBAT and LEDBAT++, rule by rule and on a bottleneck.

use core::num::NonZeroU32;
use core::time::Duration;

use lull_cc::{Ack, Controller, Ledbat, LedbatPlusPlus, Reno, Timestamp};
use lull_testing::pipe::Pipe;

/// A connection with delays set by the test: one way for LEDBAT, and the same number there and back for
/// LEDBAT++.
struct Path<C> {
    controller: C,
    now: u64,
    delivered: u32,
}

impl<C: Controller> Path<C> {
    fn new(controller: C) -> Self {
        Path { controller, now: 1_000_000, delivered: 0 }
    }

    fn ack(&mut self, acked: u32, lost: u32, delay: u32) -> f64 {
        self.ack_of(acked, lost, delay, self.delivered)
    }

    fn ack_of(&mut self, acked: u32, lost: u32, delay: u32, prior_delivered: u32) -> f64 {
        self.delivered += acked;
        self.controller.handle_ack(&Ack {
            now: Timestamp::from_micros(self.now),
            delivered: self.delivered,
            prior_delivered,
            acked,
            lost,
            in_flight: 1_000,
            rtt_micros: NonZeroU32::new(delay),
            // An offset that wraps must have no effect.
            one_way_micros: Some(delay.wrapping_sub(20_000)),
            ..Ack::default()
        });
        self.window()
    }

    /// Enough samples of one delay to make it the current one.
    fn measure_delay(&mut self, delay: u32) {
        for _ in 0..4 {
            self.ack(0, 0, delay);
        }
    }

    fn window(&self) -> f64 {
        self.controller.window().as_f64()
    }

    /// Grows the window on an empty path to at least this many packets.
    fn grow_to(&mut self, packets: f64, delay: u32) {
        for _ in 0..100_000 {
            if self.ack(1, 0, delay) >= packets {
                return;
            }
        }
        panic!("stuck at {}", self.window());
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.002
}

/// RFC 6817 §2.4.2.
#[test]
fn ack_moves_window_by_off_target_over_window() {
    // (queueing delay in ms, off_target)
    for (queueing, off_target) in
        [(0, 1.0), (25, 0.75), (50, 0.5), (100, 0.0), (150, -0.5), (300, -2.0)]
    {
        let mut path = Path::new(Ledbat::new());
        path.grow_to(20.0, 10_000);
        path.measure_delay(10_000 + queueing * 1_000);
        let before = path.window();
        for acked in [1, 3] {
            let before = path.window();
            let after = path.ack(acked, 0, 10_000 + queueing * 1_000);
            let step = off_target * f64::from(acked) / before;
            assert!(is_near(after, before + step), "{queueing} ms: {before} to {after}");
        }
        assert_eq!(path.controller.queueing_micros(), Some(u64::from(queueing) * 1_000));
        assert_eq!(path.window() > before, queueing < 100);
    }
}

/// RFC 6817 §2.4.2.
#[test]
fn window_exceeds_flight_by_at_most_one_packet() {
    let mut path = Path::new(Ledbat::new());
    path.grow_to(20.0, 10_000);
    path.delivered += 1;
    path.controller.handle_ack(&Ack {
        delivered: path.delivered,
        prior_delivered: path.delivered - 1,
        acked: 1,
        in_flight: 5,
        one_way_micros: Some(10_000u32.wrapping_sub(20_000)),
        ..Ack::default()
    });
    assert_eq!(path.window(), 6.0);
}

/// RFC 6817 §2.4.2.
#[test]
fn ledbat_loss_halves_once_a_round_and_not_below_two() {
    let mut path = Path::new(Ledbat::new());
    path.grow_to(20.0, 10_000);
    let (sent_before, before) = (path.delivered, path.window());
    assert!(is_near(path.ack(1, 2, 10_000), before / 2.0));
    let halved = path.window();
    assert!(path.ack_of(1, 1, 10_000, sent_before) >= halved);
    for _ in 0..10 {
        path.ack(1, 1, 10_000);
    }
    assert_eq!(path.window(), 2.0);
}

/// RFC 6817 §2.4.2.
#[test]
fn ledbat_timeout_leaves_one_packet() {
    let mut path = Path::new(Ledbat::new());
    path.grow_to(20.0, 10_000);
    path.controller.handle_timeout(Timestamp::from_micros(path.now), path.delivered);
    assert_eq!(path.window(), 1.0);
    assert_eq!(path.ack(1, 0, 10_000), 2.0);
}

#[test]
fn ack_without_delay_sample_leaves_the_window() {
    let mut path = Path::new(Ledbat::new());
    path.grow_to(20.0, 10_000);
    let before = path.window();
    path.controller.handle_ack(&Ack { acked: 5, in_flight: 1_000, ..Ack::default() });
    assert_eq!(path.window(), before);
}

/// RFC 6817 §2.5.
#[test]
#[should_panic(expected = "target")]
fn target_above_100_ms_is_rejected() {
    Ledbat::with_target(100_001);
}

#[test]
fn ledbat_alone_fills_the_link_at_its_target() {
    // 1000 packets a second: 100 ms are 100 packets.
    let mut pipe = Pipe::new(1_000, Duration::from_millis(49), 400);
    pipe.add(Ledbat::new());
    pipe.run_until(Duration::from_secs(60));
    let (before, _) = (pipe.delivered(0), pipe.mean_queue());
    pipe.run_until(Duration::from_secs(120));
    assert!(pipe.delivered(0) - before > 59_500);
    let queue = pipe.mean_queue();
    assert!((queue - 100.0).abs() < 5.0, "{queue}");
}

/// The share of the link that a controller takes beside a Reno flow, over 120 s.
fn share_beside_reno(peer: impl Controller + 'static, buffer: usize) -> f64 {
    let mut pipe: Pipe<Box<dyn Controller>> = Pipe::new(1_000, Duration::from_millis(49), buffer);
    let reno = pipe.add(Box::new(Reno::new()));
    pipe.run_until(Duration::from_secs(5));
    let peer = pipe.add(Box::new(peer));
    pipe.run_until(Duration::from_secs(65));
    let before = [reno, peer].map(|id| pipe.delivered(id));
    pipe.run_until(Duration::from_secs(185));
    let [reno, peer] = [pipe.delivered(reno) - before[0], pipe.delivered(peer) - before[1]];
    assert!(reno + peer > 110_000, "{reno} and {peer}");
    f64::from(peer) / f64::from(reno + peer)
}

#[test]
fn ledbat_yields_to_reno_in_buffer_above_its_target() {
    let share = share_beside_reno(Ledbat::new(), 400);
    assert!(share < 0.1, "{share}");
    // With a shorter one it cannot see Reno, and shares like it.
    let share = share_beside_reno(Ledbat::new(), 50);
    assert!(share > 0.3, "{share}");
}

/// LEDBAT++ draft §4.2.
#[test]
fn gain_falls_with_the_rtt() {
    // 1 / min(16, ceil(120 ms / base)): (base in µs, divisor)
    let rows = [
        (1_000, 16),
        (7_500, 16),
        (8_000, 15),
        (20_000, 6),
        (59_000, 3),
        (60_000, 2),
        (120_000, 1),
    ];
    for (base, divisor) in rows {
        let mut path = Path::new(LedbatPlusPlus::new());
        let before = path.window();
        let after = path.ack(4, 0, base);
        assert!(is_near(after - before, 4.0 / f64::from(divisor)), "{base} µs: {after}");
    }
}

/// LEDBAT++ draft §4.1.
#[test]
fn first_slow_start_ends_at_three_quarters_of_target() {
    for (queueing, is_growing) in [(44_000, true), (45_000, true), (46_000, false)] {
        let mut path = Path::new(LedbatPlusPlus::new());
        path.grow_to(30.0, 100_000);
        path.measure_delay(100_000 + queueing);
        let before = path.window();
        let after = path.ack(2, 0, 100_000 + queueing);
        assert_eq!(after > before, is_growing, "{queueing} µs");
        assert_eq!(path.controller.slow_start_threshold() == path.controller.window(), !is_growing);
    }
}

/// A LEDBAT++ in congestion avoidance, some seconds before the next slowdown, on a path of 120 ms, where GAIN
/// is one.
fn in_avoidance(packets: f64) -> Path<LedbatPlusPlus> {
    let mut path = Path::new(LedbatPlusPlus::new());
    path.measure_delay(120_000);
    path.grow_to(packets, 120_000);
    path.controller.handle_timeout(Timestamp::from_micros(path.now), path.delivered);
    path.now += 10_000_000;
    path.grow_to(packets / 2.0, 120_000);
    path
}

/// LEDBAT++ draft §4.2.
#[test]
fn round_below_target_adds_the_gain() {
    for queueing in [0, 30_000, 59_999, 60_000] {
        let mut path = in_avoidance(40.0);
        path.measure_delay(120_000 + queueing);
        let before = path.window();
        let after = path.ack(1, 0, 120_000 + queueing);
        assert!(is_near(after, before + 1.0 / before), "{queueing} µs: {before} to {after}");
    }
}

/// LEDBAT++ draft §4.3.
#[test]
fn round_above_target_removes_a_share_of_the_window() {
    // W += max(GAIN − W · (delay/target − 1), −W/2): (queueing delay in µs, delay/target − 1)
    for (queueing, excess) in [(66_000, 0.1), (75_000, 0.25), (87_000, 0.45), (600_000, 9.0)] {
        let mut path = in_avoidance(40.0);
        path.measure_delay(120_000 + queueing);
        let before = path.window();
        let after = path.ack(1, 0, 120_000 + queueing);
        let step = (1.0 - before * excess).max(-before / 2.0);
        assert!(is_near(after, before + step / before), "{queueing} µs: {before} to {after}");
    }
}

/// LEDBAT++ draft §4.4.
#[test]
fn slowdown_holds_two_packets_for_two_rtts_then_ramps() {
    let mut path = Path::new(LedbatPlusPlus::new());
    path.measure_delay(120_000);
    path.grow_to(40.0, 120_000);
    // The end of the first slow start; the first slowdown follows two round trips later.
    path.measure_delay(170_000);
    path.ack(1, 0, 170_000);
    let before = path.window();
    path.now += 339_000;
    assert!(path.ack(1, 0, 120_000) > 2.0);
    path.now += 1_000;
    let frozen_since = path.now;
    assert_eq!(path.ack(1, 0, 120_000), 2.0);
    assert!(path.controller.is_frozen());
    assert!(is_near(path.controller.slow_start_threshold().as_f64(), before + 1.0 / before));
    path.now += 239_000;
    assert_eq!(path.ack(1, 0, 120_000), 2.0);
    path.now += 1_000;
    path.ack(1, 0, 120_000);
    assert!(!path.controller.is_frozen());
    // GAIN is one: it doubles each round, up to its previous window.
    path.now += 260_000;
    assert_eq!(path.ack(10, 0, 120_000), 12.0);
    path.ack(100, 0, 120_000);
    let length = path.now - frozen_since;
    assert_eq!(length, 500_000);
    assert_eq!(path.controller.window(), path.controller.slow_start_threshold());
    // The next one after nine times as long.
    path.now += 9 * length - 1;
    path.ack(1, 0, 120_000);
    assert!(!path.controller.is_frozen());
    path.now += 1;
    path.ack(1, 0, 120_000);
    assert!(path.controller.is_frozen());
}

/// RFC 6817 §2.4.2.
#[test]
fn ledbat_plus_plus_loss_halves_the_window() {
    let mut path = in_avoidance(40.0);
    let before = path.window();
    assert!(is_near(path.ack(1, 1, 120_000), before / 2.0));
    for _ in 0..10 {
        path.ack(1, 1, 120_000);
    }
    assert_eq!(path.window(), 2.0);
}

#[test]
fn ledbat_plus_plus_alone_uses_nine_tenths_of_the_link() {
    let mut pipe = Pipe::new(1_000, Duration::from_millis(49), 400);
    pipe.add(LedbatPlusPlus::new());
    pipe.run_until(Duration::from_secs(60));
    let before = pipe.delivered(0);
    let _ = pipe.mean_queue();
    pipe.run_until(Duration::from_secs(180));
    let share = f64::from(pipe.delivered(0) - before) / 120_000.0;
    assert!(share > 0.9, "{share}");
    // 60 ms are 60 packets.
    let queue = pipe.mean_queue();
    assert!(queue < 62.0, "{queue}");
}

#[test]
fn ledbat_plus_plus_yields_to_reno() {
    let share = share_beside_reno(LedbatPlusPlus::new(), 400);
    assert!(share < 0.1, "{share}");
}

#[test]
fn late_ledbat_plus_plus_flow_gets_only_its_share() {
    fn late_share<C: Controller>(new: impl Fn() -> C) -> f64 {
        let mut pipe = Pipe::new(1_000, Duration::from_millis(49), 400);
        pipe.add(new());
        pipe.run_until(Duration::from_secs(40));
        pipe.add(new());
        pipe.run_until(Duration::from_secs(100));
        let before = [0, 1].map(|id| pipe.delivered(id));
        pipe.run_until(Duration::from_secs(400));
        let [first, late] = [0, 1].map(|id| f64::from(pipe.delivered(id) - before[id]));
        late / (first + late)
    }
    let share = late_share(Ledbat::new);
    assert!(share > 0.8, "LEDBAT: {share}");
    let share = late_share(LedbatPlusPlus::new);
    assert!((0.4..0.6).contains(&share), "LEDBAT++: {share}");
}
