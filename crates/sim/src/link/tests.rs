//! A link on its own.

use super::*;
use crate::events::EventQueue;
use crate::packet::{Body, Ecn, Owner, TrafficClass};
use crate::queue::{CodelParameters, PriorityParameters};

fn packet(owner: u32, bytes: u16, dscp: u8) -> Packet {
    let body = Body::Datagram(Timestamp::ZERO.into());
    Packet {
        owner: Owner::new(owner, 0),
        hop: 0,
        generation: 0,
        bytes,
        class: TrafficClass::new(dscp, Ecn::NotCapable),
        body,
    }
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// A link of a byte a microsecond and a delay of 5 ms.
fn link(discipline: Discipline, buffer: Limit) -> LinkParameters {
    let rate = Rate::from_bits_per_second(8_000_000);
    LinkParameters {
        discipline,
        ..LinkParameters::drop_tail(rate, Duration::from_millis(5), buffer)
    }
}

/// A wire that stores its packets.
#[derive(Default)]
struct RecordingWire(EventQueue<Packet>);

impl Wire for RecordingWire {
    fn carry(&mut self, arrives: Timestamp, packet: &Packet) {
        self.0.insert(arrives, *packet);
    }
}

/// Sends packets of 1000 bytes at these times, in microseconds, with these codepoints; returns the number of
/// each that arrives, and when.
fn arrivals(parameters: &LinkParameters, sent: &[(u64, u8)]) -> Vec<(u32, u64)> {
    let mut links = Links::default();
    links.add(parameters, 1);
    let mut wire = RecordingWire::default();
    let mut arrived = Vec::new();
    let mut deliver = |links: &mut Links, wire: &mut RecordingWire, until: Timestamp| {
        while let Some((time, packet)) = wire.0.pop(until) {
            links.deliver(wire, 0, time);
            arrived.push((packet.owner.slot(), time.as_micros()));
        }
    };
    for (number, &(micros, dscp)) in sent.iter().enumerate() {
        deliver(&mut links, &mut wire, at(micros));
        links.arrive(&mut wire, 0, at(micros), &packet(number as u32, 1_000, dscp));
        let counters = links.counters(0, at(micros));
        assert!(counters.is_conserved());
        assert_eq!(counters.in_flight, wire.0.len() as u64);
    }
    deliver(&mut links, &mut wire, Timestamp::FAR_FUTURE);
    let end = links.counters(0, at(1_000_000_000));
    assert!(end.is_conserved() && end.queued == 0 && end.in_flight == 0, "{end:?}");
    arrived
}

#[test]
fn packets_are_serialised_and_arrive_a_delay_later() {
    let link = link(Discipline::DropTail, Limit::Packets(10));
    let expected = [(0, 6_000), (1, 7_000), (2, 8_000), (3, 56_000)];
    assert_eq!(arrivals(&link, &[(0, 0), (0, 0), (300, 0), (50_000, 0)]), expected);
}

#[test]
fn packet_in_transmission_does_not_fill_the_buffer() {
    let link = link(Discipline::DropTail, Limit::Packets(2));
    let expected = [(0, 6_000), (1, 7_000), (2, 8_000)];
    assert_eq!(arrivals(&link, &[(0, 0), (1, 0), (2, 0), (3, 0), (999, 0)]), expected);
    // In the nanosecond in which the link becomes free, there is room again.
    assert_eq!(arrivals(&link, &[(0, 0), (1, 0), (2, 0), (1_000, 0)]).len(), 4);
}

#[test]
fn link_without_rate_only_delays() {
    let link = LinkParameters::delay(Duration::from_millis(3));
    assert_eq!(arrivals(&link, &[(0, 0), (0, 0), (7, 0)]), [(0, 3_000), (1, 3_000), (2, 3_007)]);
}

#[test]
fn lower_class_waits_but_is_not_preempted() {
    let link = link(Discipline::Priority(PriorityParameters::default()), Limit::Packets(10));
    // Two low ones, of which one is being sent when two high ones arrive.
    let sent = [(0, 1), (1, 1), (2, 0), (1_500, 0)];
    assert_eq!(arrivals(&link, &sent), [(0, 6_000), (2, 7_000), (3, 8_000), (1, 9_000)]);
}

#[test]
fn deterministic_losses_drop_every_nth_packet() {
    let link = LinkParameters {
        loss: Loss::EveryNth(3),
        ..LinkParameters::delay(Duration::from_millis(3))
    };
    let arrived = arrivals(&link, &[(0, 0); 9]);
    assert_eq!(arrived.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 1, 3, 4, 6, 7]);
}

#[test]
fn random_losses_have_their_probability() {
    let link = LinkParameters {
        loss: Loss::Bernoulli(0.1),
        ..LinkParameters::delay(Duration::from_millis(3))
    };
    let arrived = arrivals(&link, &[(0, 0); 20_000]).len() as f64;
    assert!((arrived / 18_000.0 - 1.0).abs() < 0.01, "{arrived}");
}

/// A straightforward link with an event for every departure.
fn departures_one_by_one(parameters: &LinkParameters, sent: &[(u64, u8)]) -> Vec<(u32, u64)> {
    let mut random = Random::new(1);
    let mut queue: Queue<Packet> = parameters.discipline.queue(parameters.buffer, random.bits());
    let mut effects = Effects::default();
    let mut sent = sent.iter().enumerate().peekable();
    let (mut free_at, mut is_busy) = (0, false);
    let mut arrived = Vec::new();
    loop {
        let next = sent.peek().map(|(_, (micros, _))| *micros);
        // Departures come before arrivals of the same moment.
        if is_busy && next.is_none_or(|next| free_at <= next) {
            match queue.dequeue(at(free_at), &mut effects) {
                Some(Dequeued { packet, .. }) => {
                    free_at += 1_000;
                    arrived.push((packet.owner.slot(), free_at + 5_000));
                }
                None => is_busy = false,
            }
            continue;
        }
        let Some((number, &(micros, dscp))) = sent.next() else { break };
        queue.enqueue(at(micros), packet(number as u32, 1_000, dscp), &mut effects);
        if !is_busy {
            (is_busy, free_at) = (true, micros);
        }
    }
    arrived
}

#[test]
fn late_catch_up_equals_an_event_per_departure() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut micros = 0;
        let sent: Vec<_> = (0..3_000)
            .map(|_| {
                // Bursts and pauses around the capacity of a packet a millisecond.
                micros +=
                    if random.below(50) == 0 { random.below(30_000) } else { random.below(900) };
                (micros, random.below(2) as u8)
            })
            .collect();
        for discipline in [
            Discipline::DropTail,
            Discipline::Priority(PriorityParameters::default()),
            "red".parse().unwrap(),
            Discipline::Codel(CodelParameters::default()),
            "fq-codel".parse().unwrap(),
        ] {
            let link = link(discipline, Limit::Packets(30));
            let expected = departures_one_by_one(&link, &sent);
            assert_eq!(arrivals(&link, &sent), expected, "{} {seed}", discipline.name());
        }
    }
}

#[test]
fn groups_of_one_codepoint_are_counted_separately() {
    let mut links = Links::default();
    links.add(&link(Discipline::DropTail, Limit::Packets(1)), 1);
    links.observe(0);
    let mut wire = RecordingWire::default();
    for (number, group) in [(0, 1), (1, 2), (2, 2)] {
        let packet = Packet { owner: Owner::new(number, group), ..packet(0, 1_000, 0) };
        links.arrive(&mut wire, 0, at(0), &packet);
    }
    let delays = links.delays(0, at(0)).unwrap();
    let told: Vec<_> =
        delays.classes().iter().map(|class| (class.group, class.packets, class.dropped)).collect();
    assert_eq!(told, [(1, 1, 0), (2, 0, 1)]);
}

#[test]
fn percentiles_cover_the_longest_wait() {
    let mut links = Links::default();
    links.add(&link(Discipline::DropTail, Limit::Packets(9)), 1);
    links.observe(0);
    let mut wire = RecordingWire::default();
    for number in 0..10 {
        links.arrive(&mut wire, 0, at(0), &packet(number, 1_000, 0));
    }
    // A millisecond each: the last one waits for nine.
    let class = &links.delays(0, at(10_000)).unwrap().classes()[0];
    let longest = class.waiting.value_at_quantile(1.0) as f64;
    assert!((longest / 9e6 - 1.0).abs() < 0.001, "{longest}");
    assert_eq!(class.mean_nanos(), 4.5e6);
}

#[test]
fn drops_close_together_are_one_overflow() {
    let overflows = |lasts_micros: u64, drops: &[u64]| {
        let mut links = Links::default();
        links.add(&link(Discipline::DropTail, Limit::Packets(1)), 1);
        links.observe(0);
        links.set_overflow(0, lasts_micros * 1_000);
        let mut wire = RecordingWire::default();
        for (number, &micros) in (0u32..).zip(drops) {
            // The link is busy for a millisecond, another packet waits, and the third is dropped.
            for group in [1, 1, number as u8] {
                let packet = Packet { owner: Owner::new(number, group), ..packet(0, 1_000, 0) };
                links.arrive(&mut wire, 0, at(micros), &packet);
            }
        }
        let delays = links.delays(0, at(1_000_000)).unwrap();
        let dropped: u64 = delays.classes().iter().map(|class| class.dropped).sum();
        assert_eq!(dropped, drops.len() as u64);
        delays.overflows()
    };
    let drops = [0, 10_000, 19_000, 22_000, 30_000, 60_000];
    assert_eq!(overflows(20_000, &drops), 3);
    // It lasts from the first of them on: continuous drops are several overflows in sequence.
    assert_eq!(overflows(10_000, &[0, 5_000, 10_000, 15_000, 20_000]), 3);
    assert_eq!(overflows(0, &drops), 6);
}
