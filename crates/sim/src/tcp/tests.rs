//! The sending end, with hand-made acknowledgements, against each statement of the RFCs.

use std::sync::{Arc, Mutex};

use core::time::Duration;

use lull_cc::{Ack, Controller, Pacing, Timestamp, Window};

use super::*;
use crate::packet::AckHeader;

mod controllers;
mod pacing;

/// An input of a controller.
#[derive(Clone, Debug, PartialEq)]
enum ControllerInput {
    Ack(Ack),
    Mark,
    Timeout,
    Idle,
}

/// A controller that keeps its window, records its input, and may pace.
struct Fixed {
    packets: u32,
    pacing: Option<Pacing>,
    told: Arc<Mutex<Vec<ControllerInput>>>,
}

impl Fixed {
    fn record(&self, told: ControllerInput) {
        self.told.lock().unwrap().push(told);
    }
}

impl Controller for Fixed {
    fn handle_ack(&mut self, ack: &Ack) {
        self.record(ControllerInput::Ack(*ack));
    }

    fn handle_loss(&mut self, _: Timestamp, _: u32) {
        panic!("losses are found by acknowledgements");
    }

    fn handle_mark(&mut self, _: Timestamp, _: u32) {
        self.record(ControllerInput::Mark);
    }

    fn handle_timeout(&mut self, _: Timestamp, _: u32) {
        self.record(ControllerInput::Timeout);
    }

    fn handle_idle(&mut self, _: Timestamp) {
        self.record(ControllerInput::Idle);
    }

    fn window(&self) -> Window {
        Window::from_packets(self.packets)
    }

    fn slow_start_threshold(&self) -> Window {
        Window::MAX
    }

    fn packets(&self, _: u32) -> u32 {
        self.packets
    }

    fn pacing(&self, _: u32, _: u32) -> Option<Pacing> {
        self.pacing
    }
}

/// A sender with a clock in milliseconds.
struct Bench {
    sender: Sender,
    now: Timestamp,
    told: Arc<Mutex<Vec<ControllerInput>>>,
}

const PLAIN: Parameters = Parameters {
    segment_bytes: 1_000,
    header_bytes: 40,
    receive_window: 1_000,
    recovery: Recovery::Sack,
    limited_transmit: true,
    ecn: false,
    handshake: false,
    pacing: true,
    max_pacing_bits_per_second: None,
    retransmission: RtoParameters::LINUX,
    delayed_ack: DelayedAck::OFF,
};

impl Bench {
    fn new(parameters: Parameters, packets: u32) -> Self {
        Self::paced(parameters, packets, None)
    }

    fn paced(parameters: Parameters, packets: u32, pacing: Option<Pacing>) -> Self {
        let told = Arc::default();
        let fixed = Fixed { packets, pacing, told: Arc::clone(&told) };
        Bench { told, ..Self::with(parameters, fixed) }
    }

    /// A sender with a controller other than [`Fixed`], so that no input is recorded.
    fn with(parameters: Parameters, controller: impl Controller + Send + 'static) -> Self {
        let mut sender = Sender::new(parameters, Box::new(controller));
        sender.open();
        Bench { sender, now: Timestamp::ZERO, told: Arc::default() }
    }

    /// A sender with endless data that has sent one window.
    fn running(parameters: Parameters, packets: u32) -> Self {
        let mut bench = Bench::new(parameters, packets);
        bench.sender.write_without_end(Timestamp::ZERO);
        assert_eq!(bench.numbers(), (0..packets).collect::<Vec<_>>());
        bench
    }

    fn at(&mut self, millis: u64) -> &mut Self {
        self.now = Timestamp::from_micros(millis * 1_000);
        self
    }

    /// Everything that must be sent now.
    fn transmits(&mut self) -> Vec<Transmit> {
        core::iter::from_fn(|| self.sender.poll_transmit(self.now)).collect()
    }

    /// The numbers of the segments that must be sent now.
    fn numbers(&mut self) -> Vec<u32> {
        self.transmits()
            .into_iter()
            .map(|transmit| match transmit {
                Transmit::Data { header, .. } => header.number,
                Transmit::Syn => panic!("a connection is opened once"),
            })
            .collect()
    }

    fn acknowledge(&mut self, header: AckHeader) -> Vec<u32> {
        self.sender.handle_ack(self.now, &header);
        self.numbers()
    }

    /// Acknowledges everything before `cumulative`, and these blocks.
    fn ack(&mut self, cumulative: u32, sack: &[(u32, u32)]) -> Vec<u32> {
        let mut header = AckHeader { cumulative, window: 1_000, ..AckHeader::default() };
        header.sack[..sack.len()].copy_from_slice(sack);
        header.blocks = sack.len() as u8;
        self.acknowledge(header)
    }

    fn time_out(&mut self) -> Vec<u32> {
        self.now = self.sender.retransmission_deadline();
        self.sender.handle_timeout(self.now);
        self.numbers()
    }

    fn told(&self) -> Vec<ControllerInput> {
        self.told.lock().unwrap().clone()
    }

    /// A sum over the acknowledgements that the controller received.
    fn sum(&self, of: impl Fn(&Ack) -> u32) -> u32 {
        self.told()
            .iter()
            .map(|told| if let ControllerInput::Ack(ack) = told { of(ack) } else { 0 })
            .sum()
    }

    /// Losses that the controller received as new.
    fn losses(&self) -> u32 {
        self.sum(|ack| ack.lost)
    }

    fn window(&self) -> Window {
        self.sender.controller().window()
    }

    fn last_ack(&self) -> Ack {
        match self.told().pop() {
            Some(ControllerInput::Ack(ack)) => ack,
            other => panic!("the controller got {other:?}"),
        }
    }
}

#[test]
fn window_is_filled_and_kept_full() {
    let mut bench = Bench::running(PLAIN, 4);
    assert_eq!(bench.at(100).ack(1, &[]), [4]);
    assert_eq!(bench.ack(3, &[]), [5, 6]);
    assert_eq!(bench.sender.in_flight(), 4);
}

#[test]
fn advertised_window_limits_the_congestion_window() {
    let mut bench = Bench::new(Parameters { receive_window: 3, ..PLAIN }, 10);
    bench.sender.write_without_end(Timestamp::ZERO);
    assert_eq!(bench.numbers(), [0, 1, 2]);
    let header = AckHeader { cumulative: 2, window: 3, ..AckHeader::default() };
    assert_eq!(bench.at(100).acknowledge(header), [3, 4]);
    assert_eq!(bench.acknowledge(AckHeader { cumulative: 3, window: 3, ..header }), [5]);
    // When the last one was sent, neither the window nor the data was the limit, but the receiver.
    bench.at(200).acknowledge(AckHeader { cumulative: 6, window: 3, ..header });
    assert!(bench.last_ack().app_limited);
}

/// RFC 6675 §4.
#[test]
fn three_sacked_segments_above_make_a_loss() {
    let mut bench = Bench::running(PLAIN, 10);
    // RFC 3042: the first two duplicates send new segments, which the window allows.
    assert_eq!(bench.at(100).ack(0, &[(1, 2)]), [10]);
    assert_eq!(bench.ack(0, &[(1, 3)]), [11]);
    assert_eq!(bench.losses(), 0);
    // The third shows the loss; it is repaired at once, and its place in the window is free.
    assert_eq!(bench.ack(0, &[(1, 4)]), [0, 12]);
    assert_eq!(bench.losses(), 1);
    assert_eq!(bench.sender.counters().recoveries, 1);
}

/// RFC 3042.
#[test]
fn first_duplicates_send_nothing_without_limited_transmit() {
    let parameters = Parameters { limited_transmit: false, ..PLAIN };
    let mut bench = Bench::running(parameters, 10);
    assert_eq!(bench.at(100).ack(0, &[(1, 2)]), []);
    assert_eq!(bench.ack(0, &[(1, 3)]), []);
    assert_eq!(bench.ack(0, &[(1, 4)])[0], 0);
}

/// RFC 6675 §5.
#[test]
fn losses_of_one_window_are_repaired_in_one_recovery() {
    let mut bench = Bench::running(PLAIN, 10);
    // 0, 2 and 4 are lost.
    assert_eq!(bench.at(100).ack(0, &[(1, 2)]), [10]);
    assert_eq!(bench.ack(0, &[(3, 4), (1, 2)]), [11]);
    assert_eq!(bench.ack(0, &[(5, 6), (3, 4), (1, 2)]), [0, 12]);
    assert_eq!(bench.ack(0, &[(5, 7), (3, 4), (1, 2)]), [2, 13]);
    assert_eq!(bench.ack(0, &[(5, 8), (3, 4), (1, 2)]), [4, 14]);
    // The controller is notified of the loss that began it, and of the others as part of it.
    assert_eq!((bench.losses(), bench.sum(|ack| ack.lost_in_recovery)), (1, 2));
    assert_eq!(bench.sender.counters().losses, 3);
    // The recovery point is the last segment that had been sent when it began.
    bench.at(200).ack(12, &[]);
    assert_eq!(bench.sender.counters().recoveries, 1);
}

/// RFC 6675 §5.
#[test]
fn loss_beyond_the_recovery_point_is_new() {
    let mut bench = Bench::running(PLAIN, 10);
    bench.at(100).ack(0, &[(1, 4)]);
    assert_eq!(bench.losses(), 1);
    // 10 to 13 were sent meanwhile; the recovery ends, and 12 is lost.
    bench.at(200).ack(10, &[]);
    bench.ack(12, &[]);
    bench.ack(12, &[(13, 16)]);
    assert_eq!((bench.losses(), bench.sender.counters().recoveries), (2, 2));
}

/// RFC 6675 §4.
#[test]
fn rule_3_sends_possible_losses_when_nothing_is_new() {
    let mut bench = Bench::new(PLAIN, 10);
    bench.sender.write(Timestamp::ZERO, 8_000);
    assert_eq!(bench.numbers().len(), 8);
    // 0 and 5 have not arrived; 5 has two sacked segments above it, which is one short of a loss.
    let sent = bench.at(100).ack(0, &[(6, 8), (1, 5)]);
    assert_eq!(sent, [0, 5]);
    assert_eq!(bench.sender.counters().losses, 1);
}

/// RFC 6675 §4.
#[test]
fn rule_4_rescues_the_last_segment_once() {
    let mut bench = Bench::new(PLAIN, 10);
    bench.sender.write(Timestamp::ZERO, 8_000);
    bench.numbers();
    // 0 and the last two are lost: no segment above shows their loss.
    assert_eq!(bench.at(100).ack(0, &[(1, 6)]), [0, 7]);
    assert_eq!(bench.ack(0, &[(1, 6)]), []);
    // The rescued one arrives, and shows the last hole.
    assert_eq!(bench.at(200).ack(6, &[(7, 8)]), [6]);
    assert_eq!(bench.sender.counters().timeouts, 0);
}

/// RFC 6582 §3.2.
#[test]
fn partial_ack_reveals_the_next_hole() {
    let parameters = Parameters { recovery: Recovery::NewReno, ..PLAIN };
    let mut bench = Bench::running(parameters, 10);
    // 0 and 4 are lost.
    assert_eq!(bench.at(100).ack(0, &[]), [10]);
    assert_eq!(bench.ack(0, &[]), [11]);
    assert_eq!(bench.ack(0, &[])[0], 0);
    for _ in 0..5 {
        bench.ack(0, &[]);
    }
    assert_eq!(bench.at(200).ack(4, &[])[0], 4);
    assert!(bench.last_ack().app_limited, "the window does not grow in a recovery");
    assert_eq!((bench.losses(), bench.last_ack().lost_in_recovery), (1, 1));
    let next = bench.sender.counters().segments as u32 - 2;
    bench.at(300).ack(next, &[]);
    let counters = bench.sender.counters();
    assert_eq!((counters.recoveries, counters.timeouts, counters.losses), (1, 0, 2));
}

/// RFC 6582 §3.2.
#[test]
fn only_first_partial_ack_restarts_the_timer() {
    let parameters = Parameters { recovery: Recovery::NewReno, ..PLAIN };
    let mut bench = Bench::running(parameters, 10);
    // 0, 3, 6 and 9 are lost.
    bench.at(100);
    for _ in 0..6 {
        bench.ack(0, &[]);
    }
    let recovery = bench.sender.retransmission_deadline();
    assert_eq!(bench.at(200).ack(3, &[])[0], 3);
    let first = bench.sender.retransmission_deadline();
    assert_eq!(
        (recovery, first),
        (Timestamp::from_micros(400_000), Timestamp::from_micros(500_000))
    );
    for (millis, hole) in [(300, 6), (400, 9)] {
        assert_eq!(bench.at(millis).ack(hole, &[])[0], hole);
        assert_eq!(bench.sender.retransmission_deadline(), first);
    }
    // The acknowledgement that ends the recovery restarts it as usual.
    let counters = *bench.sender.counters();
    let next = (counters.segments - counters.retransmissions) as u32;
    bench.at(450).ack(next - 1, &[]);
    assert!(bench.sender.retransmission_deadline() > first);
}

/// RFC 6582 §3.2.
#[test]
fn duplicates_of_retransmissions_show_no_loss() {
    for recovery in [Recovery::NewReno, Recovery::Reno] {
        let mut bench = Bench::running(Parameters { recovery, ..PLAIN }, 10);
        // All have arrived, but no acknowledgement has. Each of the copies causes one.
        assert_eq!(bench.time_out().len(), 10);
        for _ in 0..10 {
            bench.ack(10, &[]);
        }
        let counters = *bench.sender.counters();
        assert_eq!((counters.recoveries, counters.retransmissions), (0, 10), "{recovery:?}");
        // Once a later segment has arrived, duplicates are caused by that.
        bench.ack(11, &[]);
        for _ in 0..3 {
            bench.ack(11, &[]);
        }
        let counters = *bench.sender.counters();
        assert_eq!((counters.recoveries, counters.retransmissions), (1, 11), "{recovery:?}");
    }
}

/// RFC 5681 §3.2.
#[test]
fn reno_recovery_ends_with_any_new_ack() {
    let parameters = Parameters { recovery: Recovery::Reno, ..PLAIN };
    let mut bench = Bench::running(parameters, 10);
    bench.at(100);
    for _ in 0..8 {
        bench.ack(0, &[]);
    }
    assert_eq!(bench.sender.counters().recoveries, 1);
    bench.at(200).ack(4, &[]);
    // The next hole needs three separate duplicates.
    assert_eq!(bench.sender.counters().retransmissions, 1);
    for _ in 0..3 {
        bench.ack(4, &[]);
    }
    assert_eq!(bench.sender.counters().retransmissions, 2);
    assert_eq!((bench.losses(), bench.sender.counters().recoveries), (2, 2));
}

/// RFC 6298 §5.
#[test]
fn timeout_retransmits_everything_and_doubles_rto() {
    let mut bench = Bench::running(PLAIN, 4);
    // §2.1: a second before the first measurement.
    assert_eq!(bench.sender.retransmission_deadline(), Timestamp::from_micros(1_000_000));
    assert_eq!(bench.time_out(), [0, 1, 2, 3]);
    assert_eq!(bench.told(), [ControllerInput::Timeout]);
    // §5.5 and §5.6: two seconds from then.
    assert_eq!(bench.sender.retransmission_deadline(), Timestamp::from_micros(3_000_000));
    assert_eq!(bench.time_out(), [0, 1, 2, 3]);
    assert_eq!(bench.sender.retransmission_deadline(), Timestamp::from_micros(7_000_000));
    // §5.2: acknowledging everything stops the timer. §3: a segment that was sent twice gives no measurement.
    let mut bench = Bench::new(PLAIN, 4);
    bench.sender.write(Timestamp::ZERO, 1_000);
    bench.numbers();
    bench.time_out();
    bench.at(1_100).ack(1, &[]);
    assert_eq!(bench.sender.retransmission_deadline(), Timestamp::FAR_FUTURE);
    assert_eq!(bench.last_ack().rtt_micros, None);
}

/// RFC 6675 §5.1.
#[test]
fn sacked_segments_are_not_resent_after_a_timeout() {
    let mut bench = Bench::running(PLAIN, 4);
    bench.at(100).ack(0, &[(2, 4)]);
    assert_eq!(bench.time_out()[..2], [0, 1]);
    assert_eq!(bench.losses(), 0, "the timeout was reported as such");
}

/// RFC 6298 §5.3.
#[test]
fn ack_of_new_data_restarts_the_timer() {
    let mut bench = Bench::running(PLAIN, 4);
    bench.at(100).ack(1, &[]);
    let first = bench.sender.retransmission_deadline();
    // 100 ms, plus at least 200 ms.
    assert_eq!(first, Timestamp::from_micros(400_000));
    bench.at(150).ack(2, &[]);
    assert!(bench.sender.retransmission_deadline() > first);
    let second = bench.sender.retransmission_deadline();
    bench.at(160).ack(2, &[(3, 4)]);
    assert_eq!(bench.sender.retransmission_deadline(), second);
}

/// RFC 3168 §6.1.2.
#[test]
fn window_is_reduced_once_per_window_of_data() {
    let mut bench = Bench::new(Parameters { ecn: true, ..PLAIN }, 4);
    bench.sender.write_without_end(Timestamp::ZERO);
    let sent = bench.transmits();
    assert!(sent.iter().all(|one| matches!(one, Transmit::Data { ecn_capable: true, .. })));
    let echo =
        |cumulative| AckHeader { cumulative, window: 99, echo: true, ..AckHeader::default() };
    let now = bench.at(100).now;
    bench.sender.handle_ack(now, &echo(1));
    let reduced: Vec<_> = bench
        .transmits()
        .iter()
        .map(|one| matches!(one, Transmit::Data { header, .. } if header.window_reduced))
        .collect();
    assert_eq!(reduced, [true], "the next new segment says so");
    // 4 is the segment that reports it: until it has arrived, the receiver must echo.
    for cumulative in 2..=4 {
        bench.acknowledge(echo(cumulative));
    }
    assert_eq!(bench.sender.counters().marks, 1);
    bench.acknowledge(echo(5));
    assert_eq!(bench.sender.counters().marks, 2, "this is another window of data");
}

/// RFC 3168 §6.1.5.
#[test]
fn retransmitted_segments_are_not_ecn_capable() {
    let mut bench = Bench::running(Parameters { ecn: true, ..PLAIN }, 10);
    let header = AckHeader { window: 99, sack: [(1, 4), (0, 0), (0, 0)], ..AckHeader::default() };
    bench.sender.handle_ack(bench.now, &AckHeader { blocks: 1, ..header });
    let again = bench.transmits()[0];
    assert!(matches!(again, Transmit::Data { header, ecn_capable: false } if header.number == 0));
}

/// RFC 5681 §4.1.
#[test]
fn controller_learns_of_a_pause_before_the_next_segment() {
    let mut bench = Bench::new(PLAIN, 4);
    bench.sender.write(Timestamp::ZERO, 1_000);
    bench.numbers();
    bench.at(100).ack(1, &[]);
    bench.at(200);
    bench.sender.write(bench.now, 1_000);
    bench.numbers();
    bench.at(300).ack(2, &[]);
    assert!(!bench.told().contains(&ControllerInput::Idle));
    bench.at(900);
    bench.sender.write(bench.now, 1_000);
    assert_eq!(bench.numbers(), [2]);
    assert_eq!(bench.told().last(), Some(&ControllerInput::Idle));
}

/// RFC 6298 §5.7.
#[test]
fn resent_syn_measures_nothing_and_sets_rto_to_3_s() {
    let mut bench = Bench::new(Parameters { handshake: true, ..PLAIN }, 4);
    bench.sender.write_without_end(Timestamp::ZERO);
    assert_eq!(bench.transmits(), [Transmit::Syn]);
    bench.now = bench.sender.retransmission_deadline();
    assert_eq!(bench.now, Timestamp::from_micros(1_000_000));
    bench.sender.handle_timeout(bench.now);
    assert_eq!(bench.transmits(), [Transmit::Syn]);
    assert_eq!(bench.sender.retransmission_deadline(), Timestamp::from_micros(3_000_000));
    bench.at(1_100).sender.handle_syn_ack(Timestamp::from_micros(1_100_000));
    assert_eq!(bench.sender.smoothed_rtt(), None);
    // The window is the controller's, which is not notified of it (docs/simulations.md).
    assert_eq!(bench.numbers(), [0, 1, 2, 3]);
    assert_eq!(bench.sender.retransmission_deadline(), Timestamp::from_micros(4_100_000));
    bench.at(1_200).ack(1, &[]);
    assert_eq!(bench.sender.retransmission_deadline(), Timestamp::from_micros(1_500_000));
}

#[test]
fn handshake_measures_the_first_rtt() {
    let mut bench = Bench::new(Parameters { handshake: true, ..PLAIN }, 4);
    bench.sender.write_without_end(Timestamp::ZERO);
    bench.transmits();
    bench.at(80).sender.handle_syn_ack(Timestamp::from_micros(80_000));
    assert_eq!(bench.sender.smoothed_rtt(), Some(Duration::from_millis(80)));
}

#[test]
fn controller_receives_rtt_one_way_delay_and_rate() {
    let mut bench = Bench::running(PLAIN, 4);
    let header = AckHeader { window: 99, one_way_micros: 30_000, ..AckHeader::default() };
    bench.at(100).acknowledge(AckHeader { cumulative: 2, ..header });
    let ack = bench.last_ack();
    assert_eq!((ack.acked, ack.delivered, ack.prior_delivered, ack.in_flight), (2, 2, 0, 4));
    assert_eq!(ack.rtt_micros.map(u32::from), Some(100_000));
    assert_eq!(ack.one_way_micros, Some(30_000));
    assert_eq!(ack.interval_micros.map(u32::from), Some(100_000));
    // 4 and 5 were sent at 100 ms, with two delivered before.
    bench.at(110).acknowledge(AckHeader { cumulative: 4, ..header });
    bench.at(200).acknowledge(AckHeader { cumulative: 6, ..header });
    let ack = bench.last_ack();
    assert_eq!((ack.delivered, ack.prior_delivered), (6, 2));
    assert_eq!(ack.interval_micros.map(u32::from), Some(100_000));
    assert!(!ack.app_limited);
}

#[test]
fn app_limited_sender_is_recognised() {
    let mut bench = Bench::new(PLAIN, 10);
    bench.sender.write(Timestamp::ZERO, 2_000);
    assert_eq!(bench.numbers(), [0, 1]);
    bench.sender.write(Timestamp::ZERO, 2_000);
    assert_eq!(bench.numbers(), [2, 3]);
    bench.at(100).ack(2, &[]);
    assert!(!bench.last_ack().app_limited, "these were sent before it ran out of data");
    bench.ack(4, &[]);
    assert!(bench.last_ack().app_limited);
}

#[test]
fn transfer_completes_when_its_last_segment_is_acked() {
    let mut bench = Bench::new(PLAIN, 2);
    bench.at(5);
    bench.sender.write(bench.now, 2_500);
    bench.sender.close(bench.now);
    let sent = bench.at(10).transmits();
    assert_eq!(sent.len(), 2);
    let last = bench.at(60).ack(2, &[]);
    assert_eq!((last, bench.sender.is_finished()), (vec![2], false));
    bench.at(120).ack(3, &[]);
    assert!(bench.sender.is_finished());
    let at = |millis: u64| Timestamp::from_micros(millis * 1_000);
    assert_eq!(
        bench.sender.poll_completed(),
        Some(Completed { bytes: 2_500, written: at(5), first_sent: at(10), acknowledged: at(120) })
    );
    assert_eq!(bench.sender.poll_completed(), None);
    assert_eq!(bench.sender.counters().acknowledged_bytes, 2_500);
    assert_eq!(bench.sender.retransmission_deadline(), Timestamp::FAR_FUTURE);
}
