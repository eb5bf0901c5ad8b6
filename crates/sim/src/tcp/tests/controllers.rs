//! Senders with real controllers: how they react to their input.

use lull_cc::{Bbr, Reno};

use super::*;

#[test]
fn bbr_in_recovery_sends_no_more_than_is_delivered() {
    let mut bench = Bench::with(Parameters { pacing: false, ..PLAIN }, Bbr::new(1));
    bench.sender.write_without_end(Timestamp::ZERO);
    assert_eq!(bench.numbers().len(), 10);
    // Of the first ten, 0, 2, 4 and 6 are lost. The others arrive one by one.
    bench.at(100).ack(0, &[(1, 2)]);
    bench.ack(0, &[(3, 4), (1, 2)]);
    let blocks = [
        [(5, 6), (3, 4), (1, 2)],
        [(7, 8), (5, 6), (3, 4)],
        [(7, 9), (5, 6), (3, 4)],
        [(7, 10), (5, 6), (3, 4)],
    ];
    for (losses, blocks) in (1..).zip(blocks) {
        let sent = bench.ack(0, &blocks);
        assert_eq!(bench.sender.counters().losses, losses);
        // Each acknowledgement delivers one, and shows a loss.
        assert_eq!(sent.len(), 1, "{sent:?} at loss {losses}");
    }
    assert_eq!(bench.sender.counters().recoveries, 1);
}

/// RFC 6582 §3.2.
#[test]
fn partial_acks_of_one_recovery_make_one_reduction() {
    let parameters = Parameters { recovery: Recovery::NewReno, ..PLAIN };
    let mut bench = Bench::with(parameters, Reno::with_window(Window::from_packets(10)));
    bench.sender.write_without_end(Timestamp::ZERO);
    assert_eq!(bench.numbers().len(), 10);
    // 0, 3, 6 and 9 are lost, and each round trip shows one of them.
    bench.at(100);
    for _ in 0..6 {
        bench.ack(0, &[]);
    }
    let halved = bench.window();
    assert!(halved <= Window::from_packets(6), "{halved}");
    for (round, hole) in [(200, 3), (300, 6), (400, 9)] {
        assert_eq!(bench.at(round).ack(hole, &[])[0], hole);
        assert_eq!(bench.window(), halved, "at {hole}");
    }
    assert_eq!((bench.sender.counters().recoveries, bench.sender.counters().losses), (1, 4));
}

/// RFC 6675 §5.
#[test]
fn loss_found_a_round_later_belongs_to_its_recovery() {
    let mut bench = Bench::with(PLAIN, Reno::with_window(Window::from_packets(10)));
    bench.sender.write_without_end(Timestamp::ZERO);
    bench.numbers();
    bench.at(100);
    for end in 2..4 {
        bench.ack(0, &[(1, end)]);
    }
    // The first segment is lost, and the last that was sent before the loss was known.
    let until = bench.sender.counters().segments as u32;
    bench.ack(0, &[(1, 4)]);
    let halved = bench.window();
    bench.ack(0, &[(1, until - 1)]);
    // Three that were sent in the recovery show it.
    assert!(bench.sender.counters().segments as u32 >= until + 4);
    bench.at(200).ack(until - 1, &[]);
    let again = bench.ack(until - 1, &[(until, until + 3)]);
    assert_eq!(again[0], until - 1);
    assert_eq!((bench.sender.counters().recoveries, bench.sender.counters().losses), (1, 2));
    assert!(bench.window() >= halved, "{} after {halved}", bench.window());
}
