//! The disciplines against their papers and RFCs, and properties of all of them.

use core::time::Duration;
use std::collections::BTreeMap;

use lull_cc::{Bytes, Timestamp};
use proptest::prelude::*;

use super::*;

/// A packet with an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbered {
    number: u64,
    flow: u64,
    bytes: u64,
    dscp: u8,
    ecn: bool,
    marked: bool,
}

impl QueuedPacket for Numbered {
    fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }
    fn dscp(&self) -> u8 {
        self.dscp
    }
    fn ecn_capable(&self) -> bool {
        self.ecn
    }
    fn mark_ce(&mut self) {
        assert!(self.ecn, "only ECN-capable packets are marked");
        self.marked = true;
    }
    fn flow(&self) -> u64 {
        self.flow
    }
}

fn packet(number: u64) -> Numbered {
    Numbered { number, flow: 0, bytes: 1500, dscp: 0, ecn: false, marked: false }
}

fn millis(millis: u64) -> Timestamp {
    Timestamp::from_micros(millis * 1000)
}

/// Every discipline, RED and CoDel also with marks.
fn disciplines() -> Vec<Discipline> {
    let names = ["droptail", "priority", "red", "red-ecn", "codel", "fq-codel", "tins"];
    let mut all: Vec<Discipline> = names.iter().map(|name| name.parse().unwrap()).collect();
    all.push(Discipline::Codel(CodelParameters { ecn: true, ..CodelParameters::default() }));
    let single_queue = PriorityParameters { single_queue: true, ..PriorityParameters::default() };
    all.push(Discipline::Priority(single_queue));
    // Few queues, so that several flows share one.
    all.push(Discipline::FqCodel(FqCodelParameters { flows: 2, ..FqCodelParameters::default() }));
    all
}

#[test]
fn discipline_is_parsed_by_its_name() {
    for discipline in disciplines() {
        assert_eq!(discipline.name().parse::<Discipline>().unwrap().name(), discipline.name());
    }
    assert!("fifo".parse::<Discipline>().is_err());
}

#[test]
fn drop_tail_drops_only_packets_that_do_not_fit() {
    for (limit, fits) in [
        (Limit::Packets(3), 3),
        (Limit::Bytes(4500), 3),
        (Limit::Bytes(4499), 2),
        (Limit::Bytes(1499), 0),
    ] {
        let mut queue = Discipline::DropTail.queue(limit, 1);
        let mut effects = Effects::default();
        for number in 0..5 {
            let verdict = queue.enqueue(Timestamp::ZERO, packet(number), &mut effects);
            let expected = if number < fits { Verdict::Queued } else { Verdict::Dropped };
            assert_eq!(verdict, expected, "{limit:?}, packet {number}");
        }
        assert!(effects.dropped.iter().all(|dropped| dropped.cause == Cause::Overflow));
        assert_eq!(effects.dropped.len() as u64, 5 - fits);
    }
}

#[test]
fn lower_effort_is_low_and_cs1_only_on_request() {
    for (dscp, class_selector_1_is_low, low) in [
        (0, true, false),
        (DSCP_LOWER_EFFORT, false, true),
        (DSCP_LOWER_EFFORT, true, true),
        (DSCP_CLASS_SELECTOR_1, false, false),
        (DSCP_CLASS_SELECTOR_1, true, true),
        (46, true, false),
    ] {
        let parameters =
            PriorityParameters { class_selector_1_is_low, ..PriorityParameters::default() };
        let mut queue = Discipline::Priority(parameters).queue(Limit::Packets(2), 1);
        let mut effects = Effects::default();
        queue.enqueue(Timestamp::ZERO, Numbered { dscp, ..packet(1) }, &mut effects);
        queue.enqueue(Timestamp::ZERO, packet(2), &mut effects);
        let first = queue.dequeue(Timestamp::ZERO, &mut effects).unwrap().packet.number;
        assert_eq!(first == 2, low, "codepoint {dscp}");
    }
}

#[test]
fn single_queue_drops_lower_class_for_higher() {
    let parameters = PriorityParameters { single_queue: true, ..PriorityParameters::default() };
    let mut queue = Discipline::Priority(parameters).queue(Limit::Packets(3), 1);
    let mut effects = Effects::default();
    let low = |number| Numbered { dscp: DSCP_LOWER_EFFORT, ..packet(number) };
    for number in 0..3 {
        assert_eq!(queue.enqueue(millis(0), low(number), &mut effects), Verdict::Queued);
    }
    assert_eq!(queue.enqueue(millis(0), low(3), &mut effects), Verdict::Dropped);
    for number in 4..7 {
        assert_eq!(queue.enqueue(millis(0), packet(number), &mut effects), Verdict::Queued);
    }
    // Filler §4.4: packets that were already received are dropped, the youngest first, until there are none.
    assert_eq!(queue.enqueue(millis(0), packet(7), &mut effects), Verdict::Dropped);
    let dropped: Vec<_> = effects.dropped.iter().map(|one| one.packet.number).collect();
    assert_eq!(dropped, [3, 2, 1, 0, 7]);
    assert_eq!(queue.packets(), 3);
}

#[test]
fn full_lower_class_takes_no_room_from_the_higher() {
    let discipline = Discipline::Priority(PriorityParameters::default());
    let mut queue = discipline.queue(Limit::Packets(4), 1);
    let mut effects = Effects::default();
    for number in 0..10 {
        let low = Numbered { dscp: DSCP_LOWER_EFFORT, ..packet(number) };
        queue.enqueue(Timestamp::ZERO, low, &mut effects);
    }
    for number in 10..14 {
        let verdict = queue.enqueue(Timestamp::ZERO, packet(number), &mut effects);
        assert_eq!(verdict, Verdict::Queued);
    }
}

mod red {
    use super::*;

    const LIMIT: Limit = Limit::Packets(300);

    fn red(parameters: RedParameters) -> Red<Numbered> {
        Red::new(parameters, LIMIT, 7)
    }

    #[test]
    fn red_probability_follows_average_between_thresholds() {
        // Thresholds at 100 and 200 of 300 packets, max_p 0.1.
        let gentle = red(RedParameters::default());
        let abrupt = red(RedParameters { gentle: false, ..RedParameters::default() });
        for (average, gently, abruptly) in [
            (0.0, 0.0, 0.0),
            (99.9, 0.0, 0.0),
            (100.0, 0.0, 0.0),
            (150.0, 0.05, 0.05),
            (200.0, 0.1, 1.0),
            (300.0, 0.55, 1.0),
            (400.0, 1.0, 1.0),
        ] {
            assert!((gentle.probability(average) - gently).abs() < 1e-12, "{average}");
            assert!((abrupt.probability(average) - abruptly).abs() < 1e-12, "{average}");
        }
    }

    #[test]
    fn red_average_decays_while_the_queue_is_empty() {
        let parameters =
            RedParameters { weight: 0.5, packet_time_nanos: 1_000_000, ..RedParameters::default() };
        let mut red = red(parameters);
        let mut effects = Effects::default();
        let mut expected = 0.0;
        for length in 0..8 {
            red.enqueue(millis(0), packet(length), &mut effects);
            // The arriving packet finds `length` packets; the first finds the queue empty for no time.
            expected += 0.5 * (length as f64 - expected);
            assert!((red.average() - expected).abs() < 1e-12);
        }
        while red.dequeue(millis(10), &mut effects).is_some() {}
        // Empty for 4.5 ms: four packets could have been sent.
        red.enqueue(Timestamp::from_micros(14_500), packet(9), &mut effects);
        assert!((red.average() - expected / 16.0).abs() < 1e-12);
    }

    #[test]
    fn idle_link_is_counted_once() {
        let parameters =
            RedParameters { weight: 0.5, packet_time_nanos: 1_000_000, ..RedParameters::default() };
        // A buffer that drops everything keeps the queue empty.
        let mut red = Red::new(parameters, Limit::Bytes(1000), 1);
        let mut effects = Effects::default();
        red.average = 64.0;
        red.enqueue(millis(2), packet(0), &mut effects);
        red.enqueue(millis(4), packet(1), &mut effects);
        assert!((red.average() - 4.0).abs() < 1e-12, "{}", red.average());
    }

    #[test]
    fn red_notifications_are_spread_evenly() {
        // The queue is held at 150 packets, where p_b = 0.05. The gaps are then uniform from 1 to
        // 1 / p_b − 1 = 19 packets (section VII), 10 on average.
        let parameters = RedParameters { weight: 1.0, ..RedParameters::default() };
        let mut red = red(parameters);
        let mut effects = Effects::default();
        let mut gaps = BTreeMap::<u64, u64>::new();
        let mut since = 0;
        for number in 0..200_000 {
            since += 1;
            if red.enqueue(millis(number), packet(number), &mut effects) == Verdict::Dropped {
                *gaps.entry(since).or_default() += 1;
                since = 0;
            }
            if red.packets() > 150 {
                red.dequeue(millis(number), &mut effects);
            }
            // While it fills there are no drops below the threshold.
            assert!(red.packets() >= 100 || effects.dropped.is_empty());
        }
        let drops: u64 = gaps.values().sum();
        let mean = gaps.iter().map(|(gap, times)| gap * times).sum::<u64>() as f64 / drops as f64;
        assert!((mean - 10.0).abs() < 0.2, "{mean}");
        for gap in 1..=19 {
            let share = gaps[&gap] as f64 / drops as f64;
            assert!((share - 1.0 / 19.0).abs() < 0.008, "gap {gap}: {share}");
        }
    }

    #[test]
    fn ecn_packets_are_marked_to_the_upper_threshold() {
        // RFC 3168 §7, with thresholds at 100 and 200 of 300 packets.
        for (gentle, ecn, average, marks, drops) in [
            (true, true, 99.0, false, false),
            (true, true, 150.0, true, false),
            (true, true, 199.9, true, false),
            (true, true, 200.1, false, true),
            (true, true, 300.0, false, true),
            (false, true, 199.9, true, false),
            (false, true, 200.1, false, true),
            (true, false, 99.0, false, false),
            (true, false, 150.0, false, true),
            (true, false, 250.0, false, true),
        ] {
            // The average does not change.
            let parameters =
                RedParameters { weight: 0.0, ecn: true, gentle, ..RedParameters::default() };
            let mut red = red(parameters);
            red.average = average;
            let mut effects = Effects::default();
            for number in 0..2_000 {
                red.enqueue(millis(number), Numbered { ecn, ..packet(number) }, &mut effects);
                red.dequeue(millis(number), &mut effects);
            }
            let seen = (effects.marked > 0, !effects.dropped.is_empty());
            assert_eq!(seen, (marks, drops), "gentle {gentle}, ECN {ecn}, average {average}");
            assert!(effects.dropped.iter().all(|dropped| dropped.cause == Cause::Early));
        }
    }

    #[test]
    fn unresponsive_flow_cannot_keep_red_with_ecn_full() {
        // Three packets arrive where two can be sent: a third of them must be notified.
        let discipline: Discipline = "red-ecn".parse().unwrap();
        let mut queue = discipline.queue(LIMIT, 7);
        let mut effects = Effects::default();
        for time in 0..20_000 {
            for number in 0..3 {
                let packet = Numbered { ecn: true, ..packet(3 * time + number) };
                queue.enqueue(millis(time), packet, &mut effects);
            }
            for _ in 0..2 {
                queue.dequeue(millis(time), &mut effects);
            }
            if time == 10_000 {
                // The initial overshoot, which the average follows late.
                effects.dropped.clear();
            }
        }
        assert!(effects.dropped.len() > 9_000, "{}", effects.dropped.len());
        assert!(effects.dropped.iter().all(|dropped| dropped.cause == Cause::Early));
        assert!((150..300).contains(&queue.packets()), "{}", queue.packets());
    }

    #[test]
    fn equal_seeds_give_equal_drops() {
        let drops = |seed| {
            let parameters = RedParameters { weight: 1.0, ..RedParameters::default() };
            let mut red = Red::new(parameters, LIMIT, seed);
            let mut effects = Effects::default();
            for number in 0..500 {
                red.enqueue(Timestamp::ZERO, packet(number), &mut effects);
            }
            effects.dropped.iter().map(|dropped| dropped.packet.number).collect::<Vec<_>>()
        };
        assert_eq!(drops(1), drops(1));
        assert_ne!(drops(1), drops(2));
    }
}

mod codel {
    use super::*;

    /// The times in ms of drops or marks in a standing queue of `packets` that is served once each ms.
    fn notified(parameters: CodelParameters, packets: u64, ecn: bool) -> Vec<u64> {
        let mut codel = Codel::new(parameters, Limit::Packets(packets));
        let mut effects = Effects::default();
        for number in 0..packets {
            codel.enqueue(Timestamp::ZERO, Numbered { ecn, ..packet(number) }, &mut effects);
        }
        let mut times = Vec::new();
        for time in 0.. {
            let before = effects.dropped.len() as u64 + effects.marked;
            if codel.dequeue(millis(time), &mut effects).is_none() {
                return times;
            }
            let after = effects.dropped.len() as u64 + effects.marked;
            times.extend((before..after).map(|_| time));
        }
        times
    }

    #[test]
    fn codel_drops_accelerate_with_the_square_root() {
        // RFC 8289 §3.3. The waiting time exceeds 5 ms at 5 ms; the first drop is an interval later.
        let mut expected = vec![105];
        let mut next = 105.0;
        for count in 1..20 {
            next += 100.0 / f64::from(count).sqrt();
            expected.push(f64::ceil(next) as u64);
        }
        let times = notified(CodelParameters::default(), 3000, false);
        assert_eq!(times[..20], expected);
    }

    #[test]
    fn codel_marks_by_the_same_law_with_ecn() {
        let parameters = CodelParameters { ecn: true, ..CodelParameters::default() };
        let marked = notified(parameters, 3000, true);
        let dropped = notified(parameters, 3000, false);
        assert_eq!(marked[..20], dropped[..20]);
    }

    #[test]
    fn codel_never_drops_below_its_target() {
        let mut codel = Codel::new(CodelParameters::default(), Limit::Packets(100));
        let mut effects = Effects::default();
        for time in 0..1000 {
            codel.enqueue(millis(time), packet(time), &mut effects);
            if time >= 4 {
                assert!(codel.dequeue(millis(time), &mut effects).is_some());
            }
        }
        assert!(effects.dropped.is_empty());
    }

    #[test]
    fn codel_never_drops_the_last_packet() {
        // RFC 8289 §5.3: with no more than one packet's bytes waiting, dropping would idle the
        // link.
        let mut codel = Codel::new(CodelParameters::default(), Limit::Packets(100));
        let mut effects = Effects::default();
        for time in 0..100 {
            codel.enqueue(millis(time * 1000), packet(time), &mut effects);
            codel.enqueue(millis(time * 1000), packet(time), &mut effects);
            for _ in 0..2 {
                assert!(codel.dequeue(millis(time * 1000 + 900), &mut effects).is_some());
            }
        }
        assert!(effects.dropped.is_empty());
    }

    #[test]
    fn codel_resumes_dropping_at_its_recent_rate() {
        // RFC 8289 §5.5: within 16 intervals the count starts where the last cycle had brought
        // it, so that gaps are short from the start.
        let mut codel = Codel::new(CodelParameters::default(), Limit::Packets(10_000));
        let mut effects = Effects::default();
        let mut number = 0;
        let mut overload = |codel: &mut Codel<Numbered>, from: u64, length: u64| {
            let mut times = Vec::new();
            for time in from..from + length {
                for _ in 0..2 {
                    number += 1;
                    codel.enqueue(millis(time), packet(number), &mut effects);
                }
                let before = effects.dropped.len();
                codel.dequeue(millis(time), &mut effects);
                times.extend((before..effects.dropped.len()).map(|_| time));
            }
            while codel.dequeue(millis(from + length), &mut effects).is_some() {}
            times
        };
        let first = overload(&mut codel, 0, 2000);
        let soon = overload(&mut codel, 2100, 600);
        let late = overload(&mut codel, 10_000, 600);
        assert!(first[1] - first[0] >= 99, "{first:?}");
        assert!(soon[1] - soon[0] < 50, "{soon:?}");
        assert!(late[1] - late[0] >= 99, "{late:?}");
    }
}

mod tins {
    use super::*;

    /// The bytes of both classes among the first packets that leave.
    fn shares(best_effort: u64, lower_effort: u64, leave: usize) -> (u64, u64) {
        let mut queue = Tins::new(TinsParameters::default(), Limit::Packets(10_000), 1);
        let mut effects = Effects::default();
        for (dscp, packets) in [(0, best_effort), (DSCP_LOWER_EFFORT, lower_effort)] {
            for number in 0..packets {
                let packet = Numbered { dscp, flow: number % 4, ..packet(number) };
                queue.enqueue(Timestamp::ZERO, packet, &mut effects);
            }
        }
        let mut bytes = (0, 0);
        for _ in 0..leave {
            let packet = queue.dequeue(Timestamp::ZERO, &mut effects).unwrap().packet;
            let class = if packet.dscp == 0 { &mut bytes.0 } else { &mut bytes.1 };
            *class += packet.bytes;
        }
        bytes
    }

    #[test]
    fn lower_class_has_a_sixteenth_beside_the_other() {
        let (high, low) = shares(2000, 2000, 1600);
        let part = low as f64 / (high + low) as f64;
        assert!((part - 1.0 / 16.0).abs() < 0.005, "{part}");
    }

    #[test]
    fn class_alone_has_the_whole_link() {
        assert_eq!(shares(0, 200, 200).1, 200 * 1500);
        assert_eq!(shares(200, 0, 200).0, 200 * 1500);
    }
}

mod fq_codel {
    use super::*;

    fn fq_codel(limit: Limit) -> FqCodel<Numbered> {
        FqCodel::new(FqCodelParameters::default(), limit, 1)
    }

    #[test]
    fn backlogged_flows_get_equal_bytes_at_any_packet_size() {
        let mut queue = fq_codel(Limit::Packets(10_000));
        let mut effects = Effects::default();
        for (flow, bytes, packets) in [(1, 1500, 1000), (2, 300, 3000), (3, 1500, 200)] {
            for number in 0..packets {
                let packet = Numbered { flow, bytes, ..packet(number) };
                queue.enqueue(Timestamp::ZERO, packet, &mut effects);
            }
        }
        let mut sent = BTreeMap::<u64, u64>::new();
        for _ in 0..1000 {
            let packet = queue.dequeue(millis(1), &mut effects).unwrap().packet;
            *sent.entry(packet.flow).or_default() += packet.bytes;
        }
        let (least, most) = (sent.values().min().unwrap(), sent.values().max().unwrap());
        assert_eq!(sent.len(), 3);
        // RFC 8290 §4.2: they differ by at most a quantum and a packet.
        assert!(most - least <= 1514 + 1500, "{sent:?}");
    }

    #[test]
    fn sparse_flow_goes_before_backlogged_ones() {
        // RFC 8290 §3: a flow whose queue runs empty each round is served at once.
        let mut queue = fq_codel(Limit::Packets(10_000));
        let mut effects = Effects::default();
        for number in 0..2000 {
            let bulk = Numbered { flow: number % 4, ..packet(number) };
            queue.enqueue(Timestamp::ZERO, bulk, &mut effects);
        }
        // Until then the bulk flows are new themselves.
        for _ in 0..20 {
            queue.dequeue(Timestamp::ZERO, &mut effects);
        }
        for round in 0..50 {
            let sparse = Numbered { flow: 99, bytes: 100, ..packet(round) };
            queue.enqueue(millis(round), sparse, &mut effects);
            let next = queue.dequeue(millis(round), &mut effects).unwrap().packet;
            assert_eq!(next.flow, 99, "round {round}");
            for _ in 0..20 {
                let next = queue.dequeue(millis(round), &mut effects).unwrap().packet;
                assert_ne!(next.flow, 99);
            }
        }
    }

    #[test]
    fn full_buffer_drops_half_of_the_longest_queue() {
        // RFC 8290 §4.1, at most 64 at once.
        for (limit, batch) in [(100, 45), (400, 64)] {
            let mut queue = fq_codel(Limit::Packets(limit));
            let mut effects = Effects::default();
            for number in 0..10 {
                let small = Numbered { flow: 1, ..packet(number) };
                queue.enqueue(Timestamp::ZERO, small, &mut effects);
            }
            for number in 0..=limit - 10 {
                let fat = Numbered { flow: 2, ..packet(number) };
                let verdict = queue.enqueue(Timestamp::ZERO, fat, &mut effects);
                assert_eq!(verdict, Verdict::Queued);
            }
            let dropped: Vec<_> = effects.dropped.iter().map(|d| d.packet.number).collect();
            let fattest = limit - 10 + 1;
            assert_eq!(dropped.len() as u64, fattest.div_ceil(2).min(64));
            assert!(dropped.len().abs_diff(batch) <= 1);
            assert!(effects.dropped.iter().all(|d| d.packet.flow == 2));
            assert_eq!(dropped, (0..dropped.len() as u64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn seed_perturbs_the_hash() {
        let queues = |seed| {
            let queue: FqCodel<Numbered> =
                FqCodel::new(FqCodelParameters::default(), Limit::Packets(1), seed);
            (0..32).map(|flow| queue.flow_queue(flow)).collect::<Vec<_>>()
        };
        assert_eq!(queues(1), queues(1));
        assert_ne!(queues(1), queues(2));
    }
}

/// One step of a random run.
#[derive(Clone, Debug)]
enum Step {
    Arrive { flow: u64, bytes: u64, dscp: u8, ecn: bool },
    Serve,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let dscp = prop_oneof![Just(0), Just(DSCP_LOWER_EFFORT), Just(DSCP_CLASS_SELECTOR_1)];
    prop_oneof![
        4 => (0..6u64, 40..=1500u64, dscp, any::<bool>())
            .prop_map(|(flow, bytes, dscp, ecn)| Step::Arrive { flow, bytes, dscp, ecn }),
        3 => Just(Step::Serve),
        1 => (0..40_000u64).prop_map(Step::Wait),
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![(1..40u64).prop_map(Limit::Packets), (1500..40_000u64).prop_map(Limit::Bytes)]
}

proptest! {
    #[test]
    fn packets_are_conserved_in_order_and_within_limits(
        steps in proptest::collection::vec(step(), 1..400),
        limit in limit(),
        seed in any::<u64>(),
    ) {
        for discipline in disciplines() {
            let has_classes = matches!(discipline, Discipline::Priority(p) if !p.single_queue);
            let separate = has_classes || matches!(discipline, Discipline::Tins(_));
            let classes = if separate { 2 } else { 1 };
            let mut queue = discipline.queue(limit, seed);
            let mut effects = Effects::default();
            let mut now = Timestamp::ZERO;
            let (mut arrived, mut arrived_bytes) = (0u64, 0u64);
            let (mut served, mut served_bytes) = (0u64, 0u64);
            let mut last_of_flow = BTreeMap::new();
            let mut waiting_high = 0i64;
            for step in &steps {
                let dropped_before = effects.dropped.len();
                match *step {
                    Step::Wait(micros) => now += Duration::from_micros(micros),
                    Step::Arrive { flow, bytes, dscp, ecn } => {
                        arrived += 1;
                        arrived_bytes += bytes;
                        // Under priority a flow belongs to one class: otherwise its packets have no order.
                        let flow = flow * 64 + u64::from(dscp);
                        let packet =
                            Numbered { number: arrived, flow, bytes, dscp, ecn, marked: false };
                        let verdict = queue.enqueue(now, packet, &mut effects);
                        waiting_high += i64::from(dscp != DSCP_LOWER_EFFORT);
                        let last_dropped =
                            effects.dropped[dropped_before..].last().map(|d| d.packet.number);
                        prop_assert_eq!(
                            verdict == Verdict::Dropped,
                            last_dropped == Some(arrived),
                            "{:?}", discipline
                        );
                    }
                    Step::Serve => {
                        if let Some(Dequeued { packet, .. }) = queue.dequeue(now, &mut effects) {
                            served += 1;
                            served_bytes += packet.bytes;
                            let low = packet.dscp == DSCP_LOWER_EFFORT;
                            if matches!(discipline, Discipline::Priority(_)) {
                                prop_assert!(!low || waiting_high == 0);
                            }
                            waiting_high -= i64::from(!low);
                            let last = last_of_flow.insert(packet.flow, packet.number);
                            prop_assert!(last < Some(packet.number), "{:?}", discipline);
                        } else {
                            prop_assert!(queue.is_empty());
                        }
                    }
                }
                for dropped in &effects.dropped[dropped_before..] {
                    waiting_high -= i64::from(dropped.packet.dscp != DSCP_LOWER_EFFORT);
                }
                let dropped = effects.dropped.len() as u64;
                let dropped_bytes: u64 = effects.dropped.iter().map(|d| d.packet.bytes).sum();
                prop_assert_eq!(arrived, served + dropped + queue.packets(), "{:?}", discipline);
                prop_assert_eq!(arrived_bytes, served_bytes + dropped_bytes + queue.bytes().0);
                let most = classes * limit.amount();
                let waiting = limit.measure(queue.packets(), queue.bytes().0);
                prop_assert!(waiting <= most, "{:?}: {} of {}", discipline, waiting, most);
            }
        }
    }
}
