//! TCP-LP, rule by rule and on a bottleneck.

use core::num::NonZeroU32;
use core::time::Duration;

use lull_cc::{Ack, Controller, Reno, TcpLp, TcpLpParameters, Timestamp};
use lull_testing::pipe::Pipe;
use lull_testing::trace::{Event, History, seed};

const RTT: u32 = 100_000;

/// A connection with one-way delays set by the test. It has seen a range of 10 to 110 ms, its window has
/// grown to 64 packets, and it is not inferring.
struct Path {
    lp: TcpLp,
    now: u64,
    delivered: u32,
}

impl Path {
    fn new() -> Self {
        let mut path = Path { lp: TcpLp::default(), now: 1_000_000, delivered: 0 };
        path.ack(1, 0, 10_000);
        path.ack(53, 0, 10_000);
        assert_eq!(path.window(), 64.0);
        path
    }

    /// With the range known: the delays were at their maximum once, and that was long ago.
    fn with_range() -> Self {
        let mut path = Path::new();
        path.ack(0, 0, 110_000);
        for _ in 0..200 {
            path.ack(0, 0, 10_000);
        }
        assert_eq!(path.window(), 64.0);
        path
    }

    /// Acknowledgements of packets that were sent after all earlier ones.
    fn ack(&mut self, acked: u32, lost: u32, one_way: u32) {
        self.ack_of(acked, lost, one_way, self.delivered);
    }

    fn ack_of(&mut self, acked: u32, lost: u32, one_way: u32, prior_delivered: u32) {
        self.delivered += acked;
        self.lp.handle_ack(&Ack {
            now: Timestamp::from_micros(self.now),
            delivered: self.delivered,
            prior_delivered,
            acked,
            lost,
            in_flight: 1_000,
            rtt_micros: NonZeroU32::new(RTT),
            one_way_micros: Some(one_way.wrapping_sub(50_000)),
            ..Ack::default()
        });
    }

    /// This many samples of a delay, of packets that were sent before any decision.
    fn smooth_to(&mut self, one_way: u32) {
        let sent_before = self.delivered.wrapping_sub(1_000);
        for _ in 0..200 {
            self.ack_of(0, 0, one_way, sent_before);
        }
    }

    fn window(&self) -> f64 {
        self.lp.window().as_f64()
    }
}

#[test]
fn congestion_begins_at_fifteen_percent_of_delay_range() {
    // The range is 10 to 110 ms.
    for (one_way, is_early) in [(10_000, false), (24_900, false), (25_100, true), (60_000, true)] {
        let mut path = Path::with_range();
        path.smooth_to(one_way);
        path.ack(1, 0, one_way);
        assert_eq!(path.lp.is_inferring(), is_early, "{one_way} µs");
        assert_eq!(path.window() < 64.0, is_early, "{one_way} µs");
    }
}

#[test]
fn delay_is_smoothed_with_one_eighth() {
    // From 10 ms one sample of 110 ms moves the mean by 12.5 ms, which is below 25 ms; two more of them
    // exceed it.
    let mut path = Path::new();
    path.ack(1, 0, 110_000);
    assert!(!path.lp.is_inferring());
    path.ack(1, 0, 110_000);
    assert!(path.lp.is_inferring());
}

#[test]
fn first_indication_halves_and_second_leaves_one_packet() {
    let mut path = Path::with_range();
    path.smooth_to(60_000);
    path.ack(1, 0, 60_000);
    assert_eq!(path.window(), 32.0);
    path.now += u64::from(RTT);
    path.ack(1, 0, 60_000);
    assert_eq!(path.window(), 1.0);
}

#[test]
fn indication_sent_before_the_cut_is_not_a_second_one() {
    let mut path = Path::with_range();
    path.smooth_to(60_000);
    let sent_before = path.delivered;
    path.ack(1, 0, 60_000);
    for _ in 0..31 {
        path.ack_of(1, 0, 60_000, sent_before);
    }
    assert_eq!(path.window(), 32.0);
}

#[test]
fn window_rests_ten_rtts_after_inference_then_grows() {
    let mut path = Path::with_range();
    path.smooth_to(60_000);
    path.ack(1, 0, 60_000);
    path.smooth_to(10_000);
    // The rest of the round with the cut.
    path.ack(1, 0, 10_000);
    for round in 1..10 {
        path.now += u64::from(RTT);
        path.ack(32, 0, 10_000);
        assert_eq!(path.window(), 32.0, "round {round}");
        assert!(path.lp.is_inferring(), "round {round}");
    }
    for window in [33.0, 34.0, 35.0] {
        path.now += u64::from(RTT);
        path.ack(32, 0, 10_000);
        assert!(!path.lp.is_inferring());
        assert_eq!(path.window(), window);
    }
}

/// RFC 5681 §3.1.
#[test]
fn loss_halves_the_window_once_a_round() {
    let mut path = Path::new();
    let sent_before = path.delivered;
    path.ack(1, 3, 10_000);
    path.ack_of(1, 1, 10_000, sent_before);
    assert_eq!(path.window(), 32.0);
    assert!(!path.lp.is_inferring());
}

#[test]
#[should_panic(expected = "101")]
fn threshold_above_the_range_is_rejected() {
    TcpLp::new(TcpLpParameters { threshold_percent: 101, ..TcpLpParameters::default() });
}

#[test]
fn missing_one_way_delays_make_it_reno() {
    let seed = seed();
    let (mut lp, mut reno) = (TcpLp::default(), Reno::new());
    let mut compared = 0;
    for event in History::plausible(seed).take(50_000) {
        // Reno raises a window of one packet to two at a loss; TCP-LP here does not.
        let is_loss = !matches!(event, Event::Ack(ack) if ack.lost == 0);
        if is_loss && reno.packets(0) < 2 {
            continue;
        }
        let event = match event {
            Event::Ack(ack) => Event::Ack(Ack { one_way_micros: None, ..ack }),
            other => other,
        };
        event.feed(&mut lp);
        event.feed(&mut reno);
        assert_eq!(lp.window(), reno.window(), "LULL_SEED={seed} {event:?}");
        compared += 1;
    }
    assert!(compared > 40_000, "{compared}");
}

/// A bottleneck of 1000 packets a second and a BDP of 50, with TCP-LP and Reno on it.
fn beside_reno() -> (Pipe<Box<dyn Controller>>, [usize; 2]) {
    let mut pipe: Pipe<Box<dyn Controller>> = Pipe::new(1_000, Duration::from_millis(49), 50);
    let lp = pipe.add(Box::new(TcpLp::default()));
    let reno = pipe.add(Box::new(Reno::new()));
    (pipe, [lp, reno])
}

#[test]
fn tcp_lp_yields_to_reno() {
    let (mut pipe, ids) = beside_reno();
    pipe.run_until(Duration::from_secs(30));
    let before = ids.map(|id| pipe.delivered(id));
    pipe.run_until(Duration::from_secs(150));
    let [lp, reno] = [0, 1].map(|i| pipe.delivered(ids[i]) - before[i]);
    let share = f64::from(lp) / f64::from(lp + reno);
    assert!(share < 0.05, "{share}");
}

#[test]
fn tcp_lp_alone_uses_half_of_the_link() {
    let mut pipe = Pipe::new(1_000, Duration::from_millis(49), 50);
    pipe.add(TcpLp::default());
    pipe.run_until(Duration::from_secs(60));
    let before = pipe.delivered(0);
    pipe.run_until(Duration::from_secs(120));
    let share = f64::from(pipe.delivered(0) - before) / 60_000.0;
    assert!((0.4..0.6).contains(&share), "{share}");
}
