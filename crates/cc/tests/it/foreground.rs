//! The foregrounds for comparison, rule by rule: Reno (RFC 5681, with the recoveries of RFC 6582 and RFC
//! 6675) and CUBIC (RFC 9438).

use core::num::NonZeroU32;
use core::time::Duration;

use lull_cc::{Ack, Controller, Cubic, Reno, Timestamp, Window};

/// A connection with acknowledgements made by the test.
struct Connection<C> {
    control: C,
    now: Timestamp,
    rtt: Duration,
    delivered: u32,
    app_limited: bool,
}

impl<C: Controller> Connection<C> {
    fn new(control: C, rtt_millis: u64) -> Self {
        let rtt = Duration::from_millis(rtt_millis);
        let now = Timestamp::ZERO + Duration::from_secs(1);
        Connection { control, now, rtt, delivered: 1_000, app_limited: false }
    }

    /// `acked` packets, the newest of which was sent at the count `sent_at`.
    fn acknowledge(&mut self, acked: u32, lost: u32, sent_at: u32) -> f64 {
        self.delivered += acked;
        self.control.handle_ack(&Ack {
            now: self.now,
            delivered: self.delivered,
            prior_delivered: sent_at,
            acked,
            lost,
            in_flight: 10_000,
            rtt_micros: NonZeroU32::new(self.rtt.as_micros() as u32),
            app_limited: self.app_limited,
            ..Ack::default()
        });
        self.window()
    }

    /// One window of packets, acknowledged one by one in a round-trip time.
    fn round(&mut self) -> f64 {
        let packets = self.control.packets(0);
        let sent_at = self.delivered;
        for _ in 0..packets {
            self.now += self.rtt / packets;
            self.acknowledge(1, 0, sent_at);
        }
        self.window()
    }

    /// Slow start up to this many packets, by one acknowledgement.
    fn grow_to(mut self, packets: u32) -> Self {
        let window = self.control.packets(0);
        self.acknowledge(packets - window, 0, self.delivered);
        assert_eq!(self.window(), f64::from(packets));
        self
    }

    /// A loss of a packet that was sent recently.
    fn lose(&mut self) -> f64 {
        self.acknowledge(0, 1, self.delivered)
    }

    fn mark(&mut self) -> f64 {
        self.control.handle_mark(self.now, self.delivered);
        self.window()
    }

    fn time_out(&mut self) -> f64 {
        self.control.handle_timeout(self.now, self.delivered);
        self.window()
    }

    fn window(&self) -> f64 {
        self.control.window().as_f64()
    }

    fn ssthresh(&self) -> f64 {
        self.control.slow_start_threshold().as_f64()
    }
}

/// A Reno of this many packets in congestion avoidance, or nearly so: its next round adds one.
fn reno_in_avoidance(packets: f64) -> Connection<Reno> {
    let window = Window::from_raw((2.0 * packets * 65_536.0) as u64);
    let mut reno = Connection::new(Reno::with_window(window), 100);
    assert_eq!(reno.lose(), packets);
    // Packets sent before the loss are acknowledged: that round adds nothing.
    reno.acknowledge(1, 0, reno.delivered - 1);
    assert_eq!(reno.acknowledge(1, 0, reno.delivered), packets);
    reno
}

fn is_near(value: f64, expected: f64, share: f64) -> bool {
    (value / expected - 1.0).abs() < share
}

/// RFC 6928 §2.
#[test]
fn connection_begins_with_ten_packets() {
    assert_eq!(Reno::new().window(), Window::from_packets(10));
    assert_eq!(Cubic::new().window(), Window::from_packets(10));
}

/// RFC 5681 §3.1.
#[test]
fn slow_start_adds_a_packet_per_acked_packet() {
    for (acked, window) in [(1, 11.0), (2, 12.0), (10, 20.0), (90, 100.0)] {
        let mut reno = Connection::new(Reno::new(), 100);
        assert_eq!(reno.acknowledge(acked, 0, reno.delivered), window, "Reno, {acked}");
        // RFC 9438 4.10: the same.
        let mut cubic = Connection::new(Cubic::new(), 100);
        assert_eq!(cubic.acknowledge(acked, 0, cubic.delivered), window, "CUBIC, {acked}");
    }
}

/// RFC 5681 §3.1.
#[test]
fn congestion_avoidance_adds_a_packet_a_round() {
    for packets in [2.0, 5.0, 10.0, 100.0] {
        let mut reno = reno_in_avoidance(packets);
        let rounds: Vec<f64> = (0..3).map(|_| reno.round()).collect();
        assert_eq!(rounds, [packets + 1.0, packets + 2.0, packets + 3.0]);
    }
}

/// RFC 5681 §3.1.
#[test]
fn loss_leaves_half_and_at_least_two() {
    for (before, after) in [(100, 50.0), (20, 10.0), (7, 3.5), (4, 2.0), (3, 2.0), (2, 2.0)] {
        let reno = || Connection::new(Reno::with_window(Window::from_packets(before)), 100);
        let mut lossy = reno();
        assert_eq!((lossy.lose(), lossy.ssthresh()), (after, after), "a loss at {before}");
        // RFC 3168 6.1.2: a mark like a loss.
        let mut marked = reno();
        assert_eq!((marked.mark(), marked.ssthresh()), (after, after), "a mark at {before}");
    }
}

/// RFC 6582 3.2 by its variable "recover", RFC 6675 5 by RecoveryPoint: packets sent before the reaction
/// belong to it.
#[test]
fn losses_of_one_window_are_one_reaction() {
    // When the lost packets were sent, counted from the reaction; the halvings that follow.
    for (sent_at, halvings) in
        [(&[-10, -1][..], 0), (&[-100, -50, -1], 0), (&[0], 1), (&[-1, 5], 1), (&[3, 2, 1], 1)]
    {
        let mut reno = Connection::new(Reno::with_window(Window::from_packets(64)), 100);
        assert_eq!(reno.lose(), 32.0);
        let reaction = reno.delivered;
        reno.acknowledge(50, 0, reaction - 1);
        for &sent_at in sent_at {
            let sent_at = reaction.checked_add_signed(sent_at).unwrap();
            reno.acknowledge(0, 3, sent_at);
        }
        assert_eq!(reno.window(), 32.0 / f64::from(1 << halvings), "{sent_at:?}");
    }
    let mut cubic = Connection::new(Cubic::new(), 100).grow_to(100);
    assert_eq!(cubic.lose(), 70.0);
    assert_eq!(cubic.acknowledge(0, 3, cubic.delivered - 1), 70.0, "RFC 9438 4.6, once");
}

/// RFC 6675 §5.
#[test]
fn recovery_does_not_grow_the_window() {
    let mut reno = Connection::new(Reno::with_window(Window::from_packets(64)), 100);
    assert_eq!(reno.lose(), 32.0);
    let reaction = reno.delivered;
    for _ in 0..32 {
        assert_eq!(reno.acknowledge(1, 0, reaction - 1), 32.0);
    }
}

/// RFC 5681 §3.1.
#[test]
fn timeout_leaves_one_packet_and_slow_starts_to_half() {
    for (before, ssthresh) in [(100, 50.0), (20, 10.0), (3, 2.0), (1, 2.0)] {
        let mut reno = Connection::new(Reno::with_window(Window::from_packets(before)), 100);
        assert_eq!((reno.time_out(), reno.ssthresh()), (1.0, ssthresh), "{before}");
        // 1, 2, 4 … with the acknowledgements of retransmissions.
        assert_eq!(reno.round(), 2.0, "{before}");
    }
    let mut reno = Connection::new(Reno::with_window(Window::from_packets(32)), 100);
    reno.time_out();
    let rounds: Vec<f64> = (0..6).map(|_| reno.round()).collect();
    assert_eq!(rounds, [2.0, 4.0, 8.0, 16.0, 17.0, 18.0]);
}

/// RFC 5681 §4.1.
#[test]
fn pause_leaves_at_most_the_initial_window() {
    for (initial, before, after) in
        [(10, 100, 10.0), (10, 11, 10.0), (2, 100, 2.0), (3, 4, 3.0), (100, 200, 100.0)]
    {
        let reno = Reno::with_window(Window::from_packets(initial));
        let mut reno = Connection::new(reno, 100).grow_to(before);
        reno.control.handle_idle(reno.now);
        assert_eq!(reno.window(), after, "Reno, from {initial} to {before}");
    }
    let mut reno = Reno::with_window(Window::from_packets(10));
    reno.handle_timeout(Timestamp::ZERO, 0);
    reno.handle_idle(Timestamp::ZERO);
    assert_eq!(reno.window(), Window::ONE, "a pause raises no window");
    let mut cubic = Connection::new(Cubic::new(), 100).grow_to(100);
    cubic.control.handle_idle(cubic.now);
    assert_eq!(cubic.window(), 10.0, "CUBIC");
}

/// The reason of RFC 7661, and RFC 9438 5.8: an unused window says nothing about the path.
#[test]
fn app_limited_window_does_not_grow() {
    let mut starting = Connection::new(Reno::new(), 100);
    starting.app_limited = true;
    assert_eq!((starting.round(), starting.round()), (10.0, 10.0), "Reno, slow start");
    let mut avoiding = reno_in_avoidance(10.0);
    avoiding.app_limited = true;
    // A round is limited only if all of its packets were.
    avoiding.round();
    assert_eq!(avoiding.round(), avoiding.round(), "Reno, avoidance");
    for losses in [0, 1] {
        let mut cubic = Connection::new(Cubic::new(), 100).grow_to(100);
        (0..losses).for_each(|_| {
            cubic.lose();
        });
        cubic.app_limited = true;
        let before = cubic.window();
        assert_eq!((cubic.round(), cubic.round()), (before, before), "CUBIC, {losses}");
    }
}

/// RFC 9438 §4.6.
#[test]
fn loss_leaves_seven_tenths_and_at_least_two() {
    for (before, after) in [(1_000, 700.0), (100, 70.0), (20, 14.0), (11, 7.7)] {
        let cubic = || Connection::new(Cubic::new(), 100).grow_to(before);
        let mut lossy = cubic();
        assert!(is_near(lossy.lose(), after, 1e-4), "a loss at {before}: {}", lossy.window());
        assert_eq!(lossy.ssthresh(), lossy.window());
        let mut marked = cubic();
        assert!(is_near(marked.mark(), after, 1e-4), "a mark at {before}: {}", marked.window());
    }
    let mut cubic = Connection::new(Cubic::new(), 100);
    let cuts: Vec<f64> = (0..8).map(|_| cubic.mark()).collect();
    assert_eq!(cuts.last(), Some(&2.0), "{cuts:?}");
}

/// RFC 9438 §4.2.
/// In the region of the cubic function: a long round trip and a large window, so that Reno would be far
/// behind. The times are parts of K.
#[test]
fn window_follows_the_cubic_function() {
    const W_MAX: f64 = 1_000.0;
    // Equation 2: K = cbrt(W_max (1 - beta) / C).
    let k = (W_MAX * 0.3 / 0.4f64).cbrt();
    for part in [0.25, 0.5, 0.75, 1.0, 1.25, 1.5] {
        let mut cubic = Connection::new(Cubic::new(), 100).grow_to(W_MAX as u32);
        cubic.lose();
        let start = cubic.now;
        while cubic.now.saturating_since(start).as_secs_f64() < part * k {
            cubic.round();
        }
        // Equation 1, at the end of the round trip of the window.
        let time = cubic.now.saturating_since(start).as_secs_f64();
        let expected = 0.4 * (time - k).powi(3) + W_MAX;
        assert!(is_near(cubic.window(), expected, 0.02), "{part}: {} {expected}", cubic.window());
    }
}

/// RFC 9438 §4.2.
/// Far beyond the plateau the function is steep; the window grows by at most a half per round.
#[test]
fn cubic_round_adds_at_most_half_the_window() {
    let mut cubic = Connection::new(Cubic::new(), 100).grow_to(100);
    cubic.lose();
    // The epoch begins with the first acknowledgement; then no other arrives for a minute.
    cubic.acknowledge(1, 0, cubic.delivered);
    cubic.now += Duration::from_secs(60);
    for _ in 0..5 {
        let before = cubic.window();
        let growth = cubic.round() / before;
        assert!((1.3..1.7).contains(&growth), "{growth}");
    }
}

/// RFC 9438 §4.3.
/// In the region where Reno would be faster: a short round trip and a small window.
#[test]
fn window_follows_reno_estimate_where_reno_is_faster() {
    for before in [20u32, 40, 60] {
        let mut cubic = Connection::new(Cubic::new(), 1).grow_to(before);
        let start = cubic.lose();
        // alpha = 3 (1 - beta)/(1 + beta) a round, until the window has recovered …
        for round in 1..=8 {
            let expected = start + f64::from(round) * 9.0 / 17.0;
            let window = cubic.round();
            assert!(is_near(window, expected, 0.03), "{before}, {round}: {window} {expected}");
        }
        while cubic.window() < f64::from(before) + 1.0 {
            cubic.round();
        }
        // … and one packet from there.
        let there = cubic.window();
        let later = (0..5).map(|_| cubic.round()).last().unwrap();
        assert!(is_near(later - there, 5.0, 0.15), "{before}: {there} {later}");
    }
}

/// RFC 9438 §4.7.
/// A flow that lost before it had recovered its last maximum takes 0.85 of its window for the next one. So it
/// reaches its plateau sooner.
#[test]
fn lower_maximum_is_lowered_further() {
    // The plateau: where the window has almost stopped growing.
    let plateau = |reductions: u32| {
        let mut cubic = Connection::new(Cubic::new(), 100).grow_to(1_000);
        (0..reductions).for_each(|_| {
            cubic.mark();
        });
        let mut last = cubic.round();
        loop {
            let window = cubic.round();
            if window - last < 0.2 {
                return window;
            }
            last = window;
        }
    };
    for (reductions, w_max) in [(1, 1_000.0), (2, 0.85 * 700.0)] {
        let reached = plateau(reductions);
        assert!(is_near(reached, w_max, 0.04), "{reductions}: {reached} {w_max}");
    }
}

/// RFC 9438 §4.8.
#[test]
fn timeout_leaves_one_packet_then_seven_tenths() {
    for before in [1_000, 100, 20] {
        let mut cubic = Connection::new(Cubic::new(), 100).grow_to(before);
        assert_eq!(cubic.time_out(), 1.0, "{before}");
        assert!(is_near(cubic.ssthresh(), 0.7 * f64::from(before), 1e-3), "{before}");
        let rounds: Vec<f64> = (0..3).map(|_| cubic.round()).collect();
        assert_eq!(rounds, [2.0, 4.0, 8.0], "{before}");
    }
}

/// RFC 9438 §4.8.
/// The state of the path before a timeout is outdated when the window has recovered: no plateau is left.
#[test]
fn plateau_after_timeout_is_start_of_avoidance() {
    let mut cubic = Connection::new(Cubic::new(), 100).grow_to(1_000);
    cubic.time_out();
    while cubic.window() < cubic.ssthresh() {
        cubic.round();
    }
    let (begin, reached) = (cubic.now, cubic.window());
    assert!(is_near(reached, 700.0, 1e-3), "{reached}");
    // Equation 1 with K = 0, and a round ahead. The concave climb back to 1000 would be at 880 by now.
    while cubic.now.saturating_since(begin) < Duration::from_secs(3) {
        cubic.round();
    }
    let expected = 700.0 + 0.4 * 3.1f64.powi(3);
    assert!(is_near(cubic.window(), expected, 0.02), "{} {expected}", cubic.window());
}

/// RFC 9438 §4.2.
/// The time in which the application limited the window is not part of the cubic function's time.
#[test]
fn app_limited_time_does_not_advance_the_cubic_clock() {
    let grown = |pause: u32| {
        let mut cubic = Connection::new(Cubic::new(), 100).grow_to(1_000);
        cubic.lose();
        (0..10).for_each(|_| {
            cubic.round();
        });
        cubic.app_limited = true;
        (0..pause).for_each(|_| {
            cubic.round();
        });
        cubic.app_limited = false;
        (0..10).for_each(|_| {
            cubic.round();
        });
        cubic.window()
    };
    let (straight, paused) = (grown(0), grown(200));
    assert!(is_near(paused, straight, 0.01), "{paused} {straight}");
}
