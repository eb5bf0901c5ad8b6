//! The filler paper, rule by rule.

use lull_cc::filler::{Decrease, Hundredths, Limit, PROTOCOLS, Protocol, Timeout};
use lull_cc::{Ack, Controller, Filler, Timestamp, Window};

/// A connection in congestion avoidance, and the packets that it has delivered.
struct Path {
    filler: Filler,
    delivered: u32,
}

impl Path {
    fn new(name: &str, window: f64) -> Self {
        let protocol = *Protocol::by_name(name).unwrap_or_else(|| panic!("no protocol {name}"));
        let window = Window::from_raw((window * 65536.0) as u64);
        let mut path =
            Path { filler: Filler::with_window(protocol, window, Window::TWO), delivered: 1000 };
        // The first acknowledgement of all opens the first round, and closes none.
        path.filler.handle_ack(&Ack { delivered: 1000, app_limited: true, ..Ack::default() });
        path
    }

    /// A new connection.
    fn fresh(name: &str) -> Self {
        let protocol = *Protocol::by_name(name).unwrap_or_else(|| panic!("no protocol {name}"));
        Path { filler: Filler::new(protocol), delivered: 1000 }
    }

    fn acknowledge(&mut self, acked: u32, prior_delivered: u32, lost: u32) {
        self.delivered += acked;
        self.filler.handle_ack(&Ack {
            delivered: self.delivered,
            prior_delivered,
            acked,
            lost,
            in_flight: 1000,
            ..Ack::default()
        });
    }

    /// A round: the whole window is acknowledged, packet by packet.
    fn round(&mut self) -> f64 {
        let packets = self.filler.packets(0);
        // All of it was sent after the last round but before this one.
        let sent = self.delivered;
        for i in 0..packets {
            let prior_delivered = if i + 1 == packets { sent } else { sent - 1 };
            self.acknowledge(1, prior_delivered, 0);
        }
        self.window()
    }

    /// An acknowledgement that reveals a drop in this window of data.
    fn drop(&mut self) -> f64 {
        self.acknowledge(1, self.delivered, 1);
        self.window()
    }

    /// The rest of the window of data with the drop.
    fn recover(&mut self) -> f64 {
        self.acknowledge(1, self.delivered, 0);
        self.window()
    }

    fn timeout(&mut self) -> f64 {
        self.filler.handle_timeout(Timestamp::ZERO, self.delivered);
        self.window()
    }

    fn window(&self) -> f64 {
        self.filler.window().as_f64()
    }

    fn ssthresh(&self) -> f64 {
        self.filler.slow_start_threshold().as_f64()
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.001
}

/// The window after a drop at `cwnd`, in floating point, from the formulas as printed in the paper.
fn printed_decrease(name: &str, cwnd: f64) -> f64 {
    match name {
        "SACK" => cwnd / 2.0,
        "LowPri1" => cwnd - 2.0,
        "LowPri2" => cwnd - cwnd.powf(0.5),
        "LowPri2.1" => cwnd - cwnd.powf(0.33),
        "LowPri2.2" => cwnd - cwnd.powf(0.66),
        "LowPri2.3" => cwnd - cwnd.powf(0.25),
        "LowPri2.4" => cwnd - cwnd.powf(0.4),
        "LowPri2.5" => cwnd - cwnd.powf(0.6),
        "LowPri2.6" => cwnd - cwnd.powf(0.75),
        "LowPri4" => cwnd * 0.66,
        "LowPri4.1" => cwnd * 0.75,
        "LowPri4.2" => cwnd * 0.25,
        "LowPri5" => cwnd.powf(0.9),
        "LowPri5.1" => cwnd.powf(0.85),
        "LowPri5.2" => cwnd.powf(0.95),
        "LowPri6" => cwnd - 2.0 * cwnd.ln(),
        "LowPri6.1" => cwnd - cwnd.ln(),
        "LowPri6.2" => cwnd - 3.0 * cwnd.ln(),
        "LowPri3" | "LowPri3.1" | "LowPri3.2" | "LowPri3.3" => cwnd * 0.5,
        "LowPri3.4" | "LowPri3.5" | "TCP-Background" | "LowPri3.7" => cwnd * 0.75,
        _ => panic!("{name} is not in the paper"),
    }
}

/// TCP-Background §3.
#[test]
fn drop_leaves_the_share_of_each_protocol() {
    for protocol in &PROTOCOLS {
        for cwnd in [2.0, 3.0, 4.5, 10.0, 52.25, 100.0, 1000.0, 50_000.0] {
            let left = Path::new(protocol.name, cwnd).drop();
            let printed = printed_decrease(protocol.name, cwnd).max(2.0);
            // One part in 2^25 of the powers, three 65536ths of ln and of the shift.
            let tolerance = cwnd / f64::from(1 << 25) + 7.0 / 65536.0;
            assert!(
                (left - printed).abs() <= tolerance,
                "{} at {cwnd}: {left}, printed {printed}",
                protocol.name
            );
        }
    }
}

#[test]
fn table_5_slow_starts_of_low_pri_3_are_complete() {
    // (name, slow-start factor, limit)
    let rows = [
        ("LowPri3", 100, Limit::Linear(2)),
        ("LowPri3.1", 100, Limit::Power(Hundredths(95))),
        ("LowPri3.2", 100, Limit::Power(Hundredths(90))),
        ("LowPri3.3", 50, Limit::Power(Hundredths(95))),
        ("LowPri3.4", 50, Limit::Power(Hundredths(85))),
        ("LowPri3.5", 50, Limit::Power(Hundredths(90))),
        ("TCP-Background", 50, Limit::Power(Hundredths(95))),
        ("LowPri3.7", 50, Limit::Power(Hundredths(95))),
    ];
    for protocol in &PROTOCOLS {
        let row = rows.iter().find(|row| row.0 == protocol.name);
        let regrowth = protocol.regrowth.map(|r| (r.factor.0, r.limit));
        assert_eq!(regrowth, row.map(|row| (row.1, row.2)), "{}", protocol.name);
    }
}

#[test]
fn protocols_have_unique_names_and_a_place_in_the_paper() {
    for protocol in &PROTOCOLS {
        assert_eq!(Protocol::by_name(protocol.name), Some(protocol));
        assert!(protocol.place.starts_with('§'), "{}", protocol.name);
    }
    assert_eq!(Protocol::by_name("LowPri7"), None);
}

/// TCP-Background §2.
#[test]
fn new_connection_doubles_from_one_packet() {
    for protocol in &PROTOCOLS {
        let mut path = Path::fresh(protocol.name);
        assert_eq!(path.window(), 1.0, "{}", protocol.name);
        for doubled in [2.0, 4.0, 8.0, 16.0] {
            assert_eq!(path.round(), doubled, "{}", protocol.name);
        }
    }
}

/// TCP-Background §2.
#[test]
fn filler_congestion_avoidance_adds_a_packet_a_round() {
    for protocol in &PROTOCOLS {
        let mut path = Path::new(protocol.name, 20.0);
        for cwnd in [21.0, 22.0, 23.0] {
            assert_eq!(path.round(), cwnd, "{}", protocol.name);
        }
    }
}

/// TCP-Background §2.
#[test]
fn several_drops_of_one_window_are_one_reaction() {
    for protocol in &PROTOCOLS {
        let mut path = Path::new(protocol.name, 100.0);
        let sent_before = path.delivered;
        let left = path.drop();
        path.acknowledge(1, sent_before, 3);
        path.acknowledge(1, sent_before, 1);
        assert_eq!(path.window(), left, "{}", protocol.name);
        // A packet that was sent after the reaction reports again. Until then, nothing grows.
        assert_eq!(path.recover(), left, "{}", protocol.name);
        assert!(path.drop() < left, "{}", protocol.name);
    }
}

/// TCP-Background §3.6.
#[test]
fn slow_start_after_drop_adds_its_factor_per_packet() {
    // (name, growth for one acknowledged packet)
    for (name, factor) in [("LowPri3.1", 1.0), ("LowPri3.3", 0.5), ("TCP-Background", 0.5)] {
        let mut path = Path::new(name, 100.0);
        let left = path.drop();
        path.recover();
        let sent_before = path.delivered - 1;
        path.acknowledge(1, sent_before, 0);
        assert!(is_near(path.window(), left + factor), "{name}: {}", path.window());
        path.acknowledge(2, sent_before, 0);
        assert!(is_near(path.window(), left + 3.0 * factor), "{name}: {}", path.window());
    }
}

/// TCP-Background §3.6.
#[test]
fn slow_start_after_drop_ends_at_its_limit() {
    // (name, limit for a window of 100)
    let rows = [
        ("LowPri3", 98.0),
        ("LowPri3.1", 100f64.powf(0.95)),
        ("LowPri3.2", 100f64.powf(0.90)),
        ("LowPri3.3", 100f64.powf(0.95)),
        ("TCP-Background", 100f64.powf(0.95)),
    ];
    for (name, limit) in rows {
        let mut path = Path::new(name, 100.0);
        path.drop();
        assert!(is_near(path.ssthresh(), limit), "{name}: {}", path.ssthresh());
        path.recover();
        path.acknowledge(200, path.delivered - 1, 0);
        assert!(is_near(path.window(), limit), "{name}: {}", path.window());
        // From there on the increase is linear.
        path.round();
        assert!(is_near(path.round() - limit, 2.0), "{name}: {}", path.window());
    }
}

/// TCP-Background §3.6.
#[test]
fn slow_start_is_skipped_if_limit_is_below_the_window() {
    // cwnd^e = f · cwnd at f^(1/(e − 1)), which is 6.8, 17.8, 1024 and 315.3:
    // (name, a window with the slow start, one without)
    let rows = [
        ("LowPri3.4", 6.0, 7.0),
        ("LowPri3.5", 17.0, 18.0),
        ("LowPri3.2", 1023.0, 1025.0),
        ("TCP-Background", 315.0, 316.0),
    ];
    for (name, below, above) in rows {
        for (cwnd, is_regrowing) in [(below, true), (above, false)] {
            let mut path = Path::new(name, cwnd);
            let left = path.drop();
            assert_eq!(path.ssthresh() > left, is_regrowing, "{name} at {cwnd}");
            path.recover();
            let before = path.window();
            path.acknowledge(1, path.delivered - 1, 0);
            assert_eq!(path.window() > before, is_regrowing, "{name} at {cwnd}");
        }
    }
}

/// TCP-Background §2.
#[test]
fn timeout_restarts_from_one_packet_to_half_the_window() {
    for protocol in PROTOCOLS.iter().filter(|protocol| protocol.timeout == Timeout::Halve) {
        let mut path = Path::new(protocol.name, 100.0);
        assert_eq!(path.timeout(), 1.0, "{}", protocol.name);
        assert_eq!(path.ssthresh(), 50.0, "{}", protocol.name);
        // Algorithm 1's slow start, for any factor after a drop.
        assert_eq!(path.round(), 2.0, "{}", protocol.name);
        assert_eq!(path.round(), 4.0, "{}", protocol.name);
        // Again, before the window has recovered: less is left.
        path.timeout();
        assert_eq!(path.ssthresh(), 2.0, "{}", protocol.name);
    }
}

/// TCP-Background §4.4.
#[test]
fn low_pri_3_7_cuts_less_after_first_timeout_only() {
    let mut path = Path::new("LowPri3.7", 100.0);
    assert_eq!(path.timeout(), 1.0);
    let limit = path.ssthresh();
    assert!(is_near(limit, 100f64.powf(0.95)));
    for _ in 0..3 {
        path.timeout();
        assert_eq!(path.ssthresh(), limit);
    }
    path.round();
    path.timeout();
    assert_eq!(path.ssthresh(), limit);
    while path.window() < limit {
        path.round();
    }
    // After the window has recovered, the next timeout is a separate one.
    let window = path.window();
    path.timeout();
    assert!(is_near(path.ssthresh(), window.powf(0.95)));
}

#[test]
fn new_connection_of_low_pri_3_7_holds_no_threshold() {
    let mut path = Path::fresh("LowPri3.7");
    for _ in 0..5 {
        path.round();
    }
    assert_eq!(path.window(), 32.0);
    path.timeout();
    assert!(is_near(path.ssthresh(), 32f64.powf(0.95)));
}

#[test]
fn drop_after_timeout_does_not_raise_the_window() {
    for protocol in &PROTOCOLS {
        let mut path = Path::new(protocol.name, 100.0);
        path.timeout();
        path.filler.handle_loss(Timestamp::ZERO, path.delivered);
        assert_eq!(path.window(), 1.0, "{}", protocol.name);
    }
}

#[test]
fn app_limited_connection_does_not_grow_its_window() {
    for protocol in &PROTOCOLS {
        let mut path = Path::new(protocol.name, 20.0);
        for _ in 0..5 {
            path.delivered += 1;
            path.filler.handle_ack(&Ack {
                delivered: path.delivered,
                prior_delivered: path.delivered - 1,
                acked: 1,
                app_limited: true,
                ..Ack::default()
            });
        }
        assert_eq!(path.window(), 20.0, "{}", protocol.name);
    }
}

/// RFC 5681 §4.1.
#[test]
fn pause_leaves_at_most_the_initial_window() {
    let mut path = Path::new("TCP-Background", 100.0);
    path.drop();
    path.filler.handle_idle(Timestamp::ZERO);
    assert_eq!(path.window(), 1.0);
    assert!(is_near(path.ssthresh(), 100f64.powf(0.95)));
    // One with another initial window returns to that.
    let ten = Window::from_packets(10);
    let mut filler = Filler::with_window(Protocol::TCP_BACKGROUND, ten, Window::MAX);
    filler.handle_idle(Timestamp::ZERO);
    assert_eq!(filler.window(), ten);
}

#[test]
fn reference_decrease_is_the_one_named_sack() {
    let sack = Protocol::by_name("SACK").expect("the baseline");
    assert_eq!(sack.decrease, Decrease::Multiplicative(Hundredths(50)));
    assert_eq!(sack.regrowth, None);
}
