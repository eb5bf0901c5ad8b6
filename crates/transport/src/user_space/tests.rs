//! The controller on simulated connections.

use std::time::Duration;

use lull_cc::{Controller, NiceParameters, Rate, Reno, Timestamp, Window};
use proptest::prelude::*;

use super::{MAX_INTERVAL, MAX_PAUSE_SECONDS, MIN_INTERVAL, UserSpaceNice, pace};
use crate::info::{Phase, TcpInfo};

/// A connection of 50 ms whose kernel's reports are set by the test.
struct Connection {
    nice: UserSpaceNice,
    now: Timestamp,
    info: TcpInfo,
}

impl Connection {
    fn new() -> Self {
        let info = TcpInfo {
            packet_bytes: 1448,
            cwnd: 100,
            srtt_micros: 50_000,
            min_rtt_micros: 50_000,
            rto_micros: 250_000,
            unacked: 10,
            unsent_bytes: 100_000,
            ..TcpInfo::default()
        };
        let mut nice = UserSpaceNice::new(NiceParameters::refined());
        nice.handle_sample(Timestamp::ZERO, &info);
        Connection { nice, now: Timestamp::ZERO, info }
    }

    /// Waits until the next sample is due, and passes it `change`.
    fn sample(&mut self, change: impl FnOnce(&mut TcpInfo)) {
        self.now = self.nice.poll_timeout();
        change(&mut self.info);
        self.nice.handle_sample(self.now, &self.info);
    }

    /// A round-trip time in which `packets` are acknowledged after `rtt_micros` each.
    fn round(&mut self, packets: u32, rtt_micros: u32) {
        let end = self.now + Duration::from_micros(rtt_micros.into());
        while self.now < end {
            self.sample(|info| {
                info.delivered += packets / 4;
                info.acks += (packets / 8).max(1);
                for _ in 0..(packets / 8).max(1) {
                    info.srtt_micros = (7 * u64::from(info.srtt_micros) + u64::from(rtt_micros))
                        .div_ceil(8) as u32;
                }
            });
        }
    }

    /// One whose window has fallen to the minimum in a queue of 50 ms.
    fn at_the_floor() -> Self {
        let mut connection = Connection::new();
        (0..10).for_each(|_| connection.round(16, 50_000));
        (0..60).for_each(|_| connection.round(16, 100_000));
        assert_eq!(connection.nice.window(), Window::ONE_48TH);
        connection
    }

    fn window(&self) -> f64 {
        self.nice.window().as_f64()
    }
}

#[test]
fn first_pace_is_initial_window_over_rtt() {
    let mut connection = Connection::new();
    // Two packets of 1448 bytes in 50 ms.
    assert_eq!(connection.nice.poll_rate(), Some(Rate::from_bytes_per_second(57_920)));
    assert_eq!(connection.nice.poll_rate(), None);
}

#[test]
fn pace_without_measured_rtt_is_slower() {
    assert_eq!(UserSpaceNice::initial_rate(), Rate::from_bytes_per_second(28_960));
    let mut nice = UserSpaceNice::new(NiceParameters::refined());
    nice.handle_sample(Timestamp::ZERO, &TcpInfo::default());
    assert_eq!(nice.poll_rate(), Some(UserSpaceNice::initial_rate()));
}

#[test]
fn socket_is_polled_four_times_an_rtt_up_to_every_5_ms() {
    for (srtt_micros, interval) in
        [(50_000, 12_500), (8000, 5000), (30, 5000), (9_000_000, 1_000_000)]
    {
        let mut nice = UserSpaceNice::new(NiceParameters::refined());
        nice.handle_sample(Timestamp::ZERO, &TcpInfo { srtt_micros, ..TcpInfo::default() });
        assert_eq!(nice.poll_timeout(), Timestamp::from_micros(interval), "{srtt_micros}");
    }
}

#[test]
fn window_grows_while_the_queue_is_empty_and_pace_is_used() {
    let mut connection = Connection::new();
    (0..10).for_each(|_| connection.round(16, 50_000));
    assert!(connection.window() > 10.0, "{}", connection.window());

    let mut limited = Connection::new();
    limited.info.unsent_bytes = 0;
    (0..10).for_each(|_| limited.round(16, 50_000));
    assert!(limited.window() <= 2.0, "{}", limited.window());
}

#[test]
fn kernel_and_receiver_windows_are_upper_bounds() {
    for limit in [
        |info: &mut TcpInfo| info.cwnd = info.unacked,
        |info: &mut TcpInfo| info.receiver_limited_micros += 12_000,
    ] {
        let mut connection = Connection::new();
        for _ in 0..40 {
            connection.sample(|info| {
                info.delivered += 4;
                info.acks += 2;
                limit(info);
            });
        }
        assert!(connection.window() <= 2.0, "{}", connection.window());
    }
}

/// Nice §2.2: if more than f of a round's packets exceed (1 − t)·min_rtt + t·max_rtt, the window is halved;
/// below one packet too.
#[test]
fn queue_halves_the_window_down_to_the_floor() {
    let mut connection = Connection::new();
    (0..10).for_each(|_| connection.round(16, 50_000));
    let before = connection.window();
    (0..3).for_each(|_| connection.round(16, 80_000));
    assert!(connection.window() <= before / 2.0, "{before} {}", connection.window());
    (0..60).for_each(|_| connection.round(16, 80_000));
    assert_eq!(connection.nice.window(), Window::ONE_48TH);
    // Two packets each 96 round-trip times.
    let expected = 2.0 * 1448.0 / (96.0 * f64::from(connection.info.srtt_micros) * 1e-6);
    let rate = connection.nice.rate().bytes_per_second() as f64;
    assert!((rate - expected).abs() <= 2.0, "{rate} {expected}");
}

/// Nice §2.3: pairs that are 2/W smoothed round trips apart; the smoothed one of eight pairs would be that of
/// a queue which has drained long ago.
#[test]
fn pace_below_two_packets_follows_the_last_rtt() {
    let mut connection = Connection::at_the_floor();
    connection.sample(|info| {
        info.delivered += 2;
        info.acks += 1;
        info.srtt_micros = (7 * info.srtt_micros + 50_000) / 8;
    });
    assert!(connection.info.srtt_micros > 90_000, "{}", connection.info.srtt_micros);
    let rate = connection.nice.rate().bytes_per_second() as f64;
    let expected = connection.window() * 1448.0 / 50_000e-6;
    assert!((rate / expected - 1.0).abs() < 0.01, "{rate} {expected}");
    // With two packets or more the window has to fill the actual round trip.
    (0..20).for_each(|_| connection.round(8, 50_000));
    assert!(connection.window() >= 2.0, "{}", connection.window());
    let srtt = f64::from(connection.info.srtt_micros) * 1e-6;
    let rate = connection.nice.rate().bytes_per_second() as f64;
    let expected = connection.window() * 1448.0 / srtt;
    assert!((rate / expected - 1.0).abs() < 0.01, "{rate} {expected}");
}

/// The kernel's handling of the limit: it applies a lower one at once, and a higher one with the next
/// acknowledgement.
struct KernelPace(Rate);

impl KernelPace {
    fn limit(&mut self, limit: Option<Rate>) -> Option<Rate> {
        self.0 = self.0.min(limit.unwrap_or(self.0));
        limit
    }
}

/// Each pair that finds the queue empty multiplies the window by four, and the pause after the next pair is
/// already correspondingly shorter. Pairs here leave when the kernel allows them.
#[test]
fn pair_from_the_least_window_uses_its_earned_pace() {
    let mut connection = Connection::at_the_floor();
    connection.sample(|info| info.unacked = 0);
    let mut limit = connection.nice.poll_rate().unwrap();
    let mut kernel = KernelPace(limit);
    let mut pauses = Vec::new();
    while connection.window() < 1.0 {
        assert!(pauses.len() < 12, "{pauses:?}");
        let pace = connection.nice.rate();
        // A pair is sent, with a pause after it at the kernel's pacing rate.
        pauses.push(kernel.0.bytes_per_second() as f64 / pace.bytes_per_second() as f64);
        for _ in 0..3 {
            connection.sample(|info| info.unacked = 2);
            limit = kernel.limit(connection.nice.poll_rate()).unwrap_or(limit);
        }
        // Its acknowledgement arrives; only then the kernel applies the new limit.
        kernel.0 = limit;
        connection.sample(|info| {
            info.unacked = 0;
            info.delivered += 2;
            info.acks += 1;
            info.srtt_micros = (7 * info.srtt_micros + 50_000) / 8;
        });
        limit = kernel.limit(connection.nice.poll_rate()).unwrap_or(limit);
        assert_eq!(limit, connection.nice.rate(), "nothing is out, so the limit is the pace");
        assert!(kernel.0 <= connection.nice.rate(), "{:?}", kernel.0);
    }
    assert!(pauses.iter().all(|earned| (earned - 1.0).abs() < 0.01), "{pauses:?}");
}

/// Nice §2.2: a lost packet triggers Reno's rule.
#[test]
fn loss_halves_and_timeout_leaves_one_packet() {
    let mut connection = Connection::new();
    (0..10).for_each(|_| connection.round(16, 50_000));
    let before = connection.window();
    connection.sample(|info| {
        info.retransmitted += 1;
        info.delivered += 4;
        info.acks += 2;
    });
    assert!(connection.window() <= before / 2.0, "{before} {}", connection.window());
    connection.sample(|info| {
        info.timed_out = true;
        info.retransmitted += 1;
    });
    assert!(connection.window() <= 1.0, "{}", connection.window());
    // The same timeout, still in recovery.
    let before = connection.nice.window();
    connection.sample(|info| info.retransmitted += 1);
    assert_eq!(connection.nice.window(), before);
}

/// At 8 Mbit/s a full packet takes 1.5 ms. On a path of 20 ms without any packet, a single one is
/// acknowledged after 21.7 ms. The first of a pair, with which the second is acknowledged, takes 23.2 ms.
#[test]
fn single_packet_does_not_look_like_a_queued_pair() {
    let mut connection = Connection::new();
    (connection.info.srtt_micros, connection.info.min_rtt_micros) = (21_700, 20_300);
    let pairs = |connection: &mut Connection, rounds: u32| {
        for _ in 0..4 * rounds {
            connection.sample(|info| {
                info.delivered += 2;
                info.acks += 1;
                info.acked_bytes += 2 * 1448;
                info.srtt_micros = (7 * info.srtt_micros + 23_200).div_ceil(8);
            });
        }
    };
    let alone = |connection: &mut Connection, rtt: u32| {
        connection.sample(|info| {
            info.delivered += 1;
            info.acks += 1;
            info.acked_bytes += 1448;
            info.srtt_micros = (7 * info.srtt_micros + rtt) / 8;
        });
    };
    // The end of a handshake.
    (0..8).for_each(|_| alone(&mut connection, 21_700));
    pairs(&mut connection, 20);
    assert!(connection.nice.nice().min_rtt_micros() > 23_000);
    // Retransmissions are acknowledged one by one; and the loss has shown a queue that was nearly empty.
    connection.sample(|info| info.retransmitted += 3);
    (0..3).for_each(|_| alone(&mut connection, 21_700));
    let after = connection.window();
    pairs(&mut connection, 60);
    assert!(connection.nice.nice().min_rtt_micros() > 23_000);
    assert!(connection.window() > after + 1.0, "{after} {}", connection.window());
    assert_eq!(connection.nice.nice().rounds_congested(), 0);
}

/// RFC 3168 §6.1.2: like a loss.
#[test]
fn ecn_mark_halves_the_window() {
    let mut connection = Connection::new();
    (0..10).for_each(|_| connection.round(16, 50_000));
    let before = connection.window();
    connection.sample(|info| info.delivered_marked += 1);
    assert!(connection.window() <= before / 2.0, "{before} {}", connection.window());
}

/// RFC 3168 §6.1.3: the receiver repeats it until it sees the reaction, a round trip later.
#[test]
fn marks_within_one_rtt_halve_once() {
    let mut connection = Connection::new();
    (0..10).for_each(|_| connection.round(16, 50_000));
    let before = connection.window();
    let mark = |connection: &mut Connection| {
        connection.sample(|info| {
            info.delivered += 4;
            info.acks += 2;
            info.delivered_marked += 4;
        });
        connection.window()
    };
    let halved = mark(&mut connection);
    assert!((halved - before / 2.0).abs() < 1e-4, "{before} {halved}");
    assert_eq!([(); 3].map(|()| mark(&mut connection)), [halved; 3]);
    // A round trip later it is a new one.
    (0..4).for_each(|_| connection.round(16, 50_000));
    let before = connection.window();
    assert!((mark(&mut connection) - before / 2.0).abs() < 1e-4, "{before}");
}

/// Linux retransmits for the whole recovery, and may send no new data meanwhile.
#[test]
fn losses_without_an_ack_halve_once_a_window() {
    let mut connection = Connection::new();
    (0..10).for_each(|_| connection.round(16, 50_000));
    let before = connection.window();
    for _ in 0..5 {
        connection.sample(|info| info.retransmitted += 2);
        assert!((connection.window() - before / 2.0).abs() < 1e-4, "{before}");
    }
}

#[test]
fn idle_connection_falls_to_two_packets_and_slow_polling() {
    let mut connection = Connection::new();
    (0..10).for_each(|_| connection.round(16, 50_000));
    assert!(connection.window() > 2.0);
    let start = connection.now;
    let mut looks = 0;
    while connection.now.saturating_since(start) < Duration::from_secs(60) {
        connection.sample(|info| (info.unacked, info.unsent_bytes) = (0, 0));
        looks += 1;
    }
    assert!(connection.window() <= 2.0, "{}", connection.window());
    assert!(looks < 90, "{looks} looks in a minute");
    connection.sample(|info| info.unsent_bytes = 1000);
    let interval = connection.nice.poll_timeout().saturating_since(connection.now);
    assert!(interval < Duration::from_millis(20), "{interval:?}");
}

#[test]
fn closed_connection_is_not_polled_again() {
    let mut connection = Connection::new();
    connection.sample(|info| info.phase = Phase::Closed);
    assert_eq!(connection.nice.poll_timeout(), Timestamp::FAR_FUTURE);
}

/// Nice §2.3 pauses for 96 round trips at the smallest window; fq drops packets that are due later than in 10
/// s.
#[test]
fn pauses_stay_below_the_horizon_of_fq() {
    let pause = |packet_bytes: u32, rtt_micros: u32| {
        let rate = pace(Window::ONE_48TH, packet_bytes, rtt_micros).bytes_per_second();
        f64::from(2 * packet_bytes) / rate as f64
    };
    assert!((pause(1448, 90_000) - 8.64).abs() < 0.05, "{}", pause(1448, 90_000));
    for packet_bytes in [48, 536, 1448, 8948] {
        for rtt_micros in [100_000, 600_000, 60_000_000] {
            let pause = pause(packet_bytes, rtt_micros);
            assert!((8.0..=9.0).contains(&pause), "{packet_bytes} {rtt_micros}: {pause}");
        }
    }
}

/// The changes of a connection between two samples.
#[derive(Clone, Copy, Debug)]
struct Step {
    delivered: u32,
    acks: u32,
    srtt_micros: u32,
    retransmitted: u32,
    marked: bool,
    timed_out: bool,
    unacked: u32,
    unsent_bytes: u32,
    late_micros: u64,
}

prop_compose! {
    fn step()(
        delivered in prop_oneof![Just(0u32), 0..4u32, 0..200u32],
        acks in 0..300u32,
        srtt_micros in prop_oneof![10..1000u32, 10_000..200_000u32, 1..5_000_000u32],
        retransmitted in prop_oneof![9 => Just(0u32), 1 => 0..20u32],
        marked in prop::bool::weighted(0.02),
        timed_out in prop::bool::weighted(0.05),
        unacked in 0..100u32,
        unsent_bytes in prop_oneof![Just(0u32), 0..1_000_000u32],
        late_micros in prop_oneof![Just(0u64), 0..2_000_000u64],
    ) -> Step {
        Step {
            delivered, acks, srtt_micros, retransmitted, marked, timed_out, unacked, unsent_bytes,
            late_micros,
        }
    }
}

proptest! {
    /// For every history, the pacing rate is never above that of Reno's window. It is never 0, which would
    /// mean no limit. The next sample is neither in the past nor far away.
    #[test]
    fn rate_is_finite_and_never_above_reno(steps in prop::collection::vec(step(), 1..200)) {
        let mut nice = UserSpaceNice::new(NiceParameters::refined());
        let mut reno = Reno::with_window(Window::TWO);
        let mut info = TcpInfo { packet_bytes: 1448, cwnd: 80, srtt_micros: 40_000, ..TcpInfo::default() };
        let mut now = Timestamp::from_micros(1);
        nice.handle_sample(now, &info);
        for step in steps {
            let last = info;
            now = nice.poll_timeout() + Duration::from_micros(step.late_micros);
            info.delivered = info.delivered.wrapping_add(step.delivered);
            info.acks = info.acks.wrapping_add(step.acks);
            info.srtt_micros = step.srtt_micros;
            info.retransmitted += step.retransmitted;
            info.delivered_marked += u32::from(step.marked);
            info.timed_out = step.timed_out;
            (info.unacked, info.unsent_bytes) = (step.unacked, step.unsent_bytes);

            // The same events for Reno, except for pauses, which only lower a window.
            let ack = nice.acknowledgement(now, &last, &info);
            if let Some(congestion) = nice.congestion(&last, &info, ack.as_ref()) {
                congestion.feed(&mut reno, now, info.delivered);
            }
            if let Some(ack) = ack {
                prop_assert!(ack.rtt_micros.is_some());
                reno.handle_ack(&ack);
            }
            nice.handle_sample(now, &info);

            prop_assert!(nice.window() <= reno.window(), "{} {}", nice.window(), reno.window());
            // At the same round-trip time.
            let rtt = nice.pacing_rtt_micros(info.srtt_micros);
            prop_assert!(nice.rate() <= pace(reno.window(), 1448, rtt));
            let least = 2 * 1448 / MAX_PAUSE_SECONDS;
            prop_assert!(nice.rate().bytes_per_second() >= least);
            let interval = nice.poll_timeout().saturating_since(now);
            prop_assert!((MIN_INTERVAL..=MAX_INTERVAL).contains(&interval));
        }
    }
}
