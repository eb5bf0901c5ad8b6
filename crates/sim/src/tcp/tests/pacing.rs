//! Senders that pace their packets.

use lull_cc::Rate;

use super::*;

/// TCP Nice §2.3.
#[test]
fn pairs_leave_together_and_the_next_waits() {
    // W = 1/2 at 100 ms: two packets of 1000 bytes each 400 ms.
    let pacing = Pacing { rate: Rate::from_bytes_per_second(5_000), burst: 2, spacing_micros: 0 };
    let mut bench = Bench::paced(PLAIN, 2, Some(pacing));
    bench.sender.write_without_end(Timestamp::ZERO);
    assert_eq!(bench.numbers(), [0, 1]);
    assert_eq!(bench.at(100).ack(2, &[]), []);
    let due = bench.sender.pacing_deadline(bench.now);
    assert_eq!(due, Some(Timestamp::from_micros(400_000)));
    assert_eq!(bench.at(399).numbers(), []);
    assert_eq!(bench.at(400).numbers(), [2, 3]);
}

#[test]
fn paced_window_leaves_packet_by_packet() {
    let pacing =
        Pacing { rate: Rate::from_bytes_per_second(1_000_000), burst: 1, spacing_micros: 0 };
    let mut bench = Bench::paced(PLAIN, 3, Some(pacing));
    bench.sender.write_without_end(Timestamp::ZERO);
    for (millis, number) in [(0, 0), (1, 1), (2, 2)] {
        assert_eq!(bench.at(millis).numbers(), [number]);
    }
    assert_eq!(bench.sender.pacing_deadline(bench.now), None, "now the window is the limit");
}

#[test]
fn rate_limit_paces_an_unpaced_controller() {
    let parameters = Parameters { max_pacing_bits_per_second: Some(8_000_000), ..PLAIN };
    let mut bench = Bench::new(parameters, 3);
    bench.sender.write_without_end(Timestamp::ZERO);
    assert_eq!(bench.numbers(), [0]);
    assert_eq!(bench.at(1).numbers(), [1]);
}

/// RFC 5681 §4.1.
#[test]
fn pause_caused_by_pacing_is_no_idle_period() {
    // W = 1/10 at 100 ms: two packets of 1000 bytes each 2 s, where a timeout is 300 ms.
    let pacing = Pacing { rate: Rate::from_bytes_per_second(1_000), burst: 2, spacing_micros: 0 };
    let mut bench = Bench::paced(PLAIN, 2, Some(pacing));
    bench.sender.write(Timestamp::ZERO, 6_000);
    assert_eq!(bench.numbers(), [0, 1]);
    for (millis, cumulative) in [(2_000, 2), (4_000, 4)] {
        assert_eq!(bench.at(millis - 1_900).ack(cumulative, &[]), []);
        assert_eq!(bench.at(millis - 1).numbers(), []);
        assert_eq!(bench.at(millis).numbers(), [cumulative, cumulative + 1]);
    }
    assert!(!bench.told().contains(&ControllerInput::Idle), "{:?}", bench.told());
    // Pacing would have let the next pair leave at 6 s. The application writes it at 6.2 s, and the following
    // one, which could have left at 8.2 s, at 8.6 s.
    bench.at(4_100).ack(6, &[]);
    for (millis, is_silence) in [(6_200, false), (8_600, true)] {
        bench.at(millis).sender.write(Timestamp::from_micros(millis * 1_000), 2_000);
        assert_eq!(bench.numbers().len(), 2);
        assert_eq!(bench.told().contains(&ControllerInput::Idle), is_silence, "at {millis} ms");
        let sent = bench.sender.counters().segments as u32;
        bench.at(millis + 100).ack(sent, &[]);
    }
}

/// A sender of eight segments, a millisecond apart, of which it has sent all.
fn spread() -> Bench {
    let pacing =
        Pacing { rate: Rate::from_bytes_per_second(1_000_000), burst: 1, spacing_micros: 0 };
    let mut bench = Bench::paced(PLAIN, 10, Some(pacing));
    bench.sender.write(Timestamp::ZERO, 8_000);
    for millis in 0..8 {
        assert_eq!(bench.at(millis).numbers().len(), 1);
    }
    bench
}

/// RFC 6675 §4.
#[test]
fn rule_3_wakes_a_paced_sender() {
    let mut bench = spread();
    // 0 is lost; 5 may be.
    assert_eq!(bench.at(100).ack(0, &[(6, 8), (1, 5)]), [0]);
    assert_eq!(bench.sender.pacing_deadline(bench.now), Some(Timestamp::from_micros(101_000)));
    assert_eq!(bench.at(101).numbers(), [5]);
    assert_eq!(bench.sender.pacing_deadline(bench.now), None, "nothing is left to be sent");
}

/// RFC 6675 §4.
#[test]
fn rule_4_wakes_a_paced_sender_once() {
    let mut bench = spread();
    // 0 is lost, and so are the last two, which no segment above shows.
    assert_eq!(bench.at(100).ack(0, &[(1, 6)]), [0]);
    assert_eq!(bench.sender.pacing_deadline(bench.now), Some(Timestamp::from_micros(101_000)));
    assert_eq!(bench.at(101).numbers(), [7]);
    assert_eq!(bench.sender.pacing_deadline(bench.now), None, "there is one rescue");
}
