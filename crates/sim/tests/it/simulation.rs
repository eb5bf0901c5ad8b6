//! Whole simulations: properties that hold for any traffic.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{MS, Path, bottleneck, mbit, path, reno, seconds, seed, without_delayed_acks};
use lull_cc::filler::{Filler, Protocol};
use lull_cc::{Bbr, Cubic, Ledbat, Nice, NiceParameters, Timestamp, Vegas, Window};
use lull_sim::link::{LinkParameters, Loss};
use lull_sim::queue::{DSCP_LOWER_EFFORT, Discipline, Limit, PriorityParameters, RedParameters};
use lull_sim::random::Random;
use lull_sim::tcp::{Parameters, Recovery};
use lull_sim::traffic::{
    Arrivals, Connections, ControllerFactory, Datagrams, Demand, Documents, Flow, Pattern, Request,
    Tcp,
};
use lull_sim::{Dumbbell, LinkId, Simulation, SourceId};

fn nice() -> ControllerFactory {
    ControllerFactory::new(|| Nice::new(NiceParameters::simulation()))
}

/// A dumbbell with all kinds of traffic, drawn from `seed`.
struct Anything {
    simulation: Simulation,
    bottleneck: LinkId,
    /// The smallest allowed window of a source's connections.
    floors: BTreeMap<SourceId, Window>,
}

fn anything(seed: u64) -> Anything {
    let mut random = Random::new(seed);
    let disciplines: [Discipline; 7] = [
        Discipline::DropTail,
        Discipline::Priority(PriorityParameters::default()),
        Discipline::Red(RedParameters::default()),
        Discipline::Red(RedParameters { ecn: true, ..RedParameters::default() }),
        "codel".parse().unwrap(),
        "fq-codel".parse().unwrap(),
        "tins".parse().unwrap(),
    ];
    let rate = mbit(1 + random.below(20));
    let loss = [Loss::None, Loss::EveryNth(97), Loss::Bernoulli(0.01)][random.below(3) as usize];
    let bottleneck = LinkParameters {
        discipline: disciplines[random.below(7) as usize],
        loss,
        ..LinkParameters::drop_tail(rate, 10 * MS, Limit::Packets(5 + random.below(60)))
    };
    let access = LinkParameters::drop_tail(mbit(100), MS, Limit::Packets(50));
    let built = Dumbbell { bottleneck, back: None, access: vec![access], pairs: 8 }.build();
    let mut simulation = Simulation::new(built.topology, seed);
    simulation.observe_link(built.bottleneck);
    simulation.sample_every(100 * MS);
    let mut floors = BTreeMap::new();
    for pair in 0..8 {
        let (from, to) = (built.left[pair], built.right[pair]);
        let parameters = Parameters {
            ecn: random.below(2) == 0,
            recovery: [Recovery::Sack, Recovery::NewReno, Recovery::Reno][random.below(3) as usize],
            limited_transmit: random.below(4) > 0,
            receive_window: [4, 40, 1 << 20][random.below(3) as usize],
            ..Parameters::default()
        };
        // After a timeout all except Nice have at least one packet (RFC 5681 §3.1); Nice §2.3: 1/48.
        let one = Window::ONE;
        let (controller, dscp, floor) = match random.below(10) {
            0 | 1 => (reno(), 0, one),
            2 | 3 => (ControllerFactory::new(|| Vegas::new(1, 3)), 0, one),
            4 => (ControllerFactory::new(Cubic::new), 0, one),
            5 => (ControllerFactory::new(|| Bbr::new(7)), 0, one),
            6 => (ControllerFactory::new(Ledbat::new), 0, one),
            7 => (
                ControllerFactory::new(|| Filler::new(Protocol::TCP_BACKGROUND)),
                DSCP_LOWER_EFFORT,
                one,
            ),
            _ => (nice(), DSCP_LOWER_EFFORT, Window::ONE_48TH),
        };
        let tcp = Tcp { parameters: parameters.into(), controller, dscp };
        let start = Timestamp::from_micros(random.below(1_000_000));
        let source = match random.below(4) {
            0 => {
                let demand = [
                    Demand::Backlogged,
                    Demand::Bytes(random.below(1_000_000)),
                    Demand::Periodic { bytes: 20_000, every_nanos: 300_000_000 },
                ][random.below(3) as usize];
                let stop = Some(start + Duration::from_secs(5));
                simulation.add_flow(Flow { from, to, tcp, start, stop, demand }).unwrap()
            }
            1 => {
                let requests = (0..200)
                    .map(|_| Request {
                        at_nanos: random.below(9_000_000_000),
                        client: random.below(10) as u32,
                        bytes: 1 + random.below(50_000),
                    })
                    .collect();
                let arrivals = if random.below(2) == 0 {
                    Arrivals::Logged(requests)
                } else {
                    Arrivals::Think(requests)
                };
                let connections =
                    [Connections::PerDocument, Connections::PerClient][random.below(2) as usize];
                let pairs = vec![(from, to)];
                let documents = Documents { pairs, tcp, connections, arrivals };
                simulation.add_documents(documents).unwrap()
            }
            2 => {
                let pattern = Pattern::OnOffPareto {
                    bits_per_second: rate.bits_per_second() / 2,
                    bytes: 1_000,
                    on_nanos: 100_000_000,
                    off_nanos: 300_000_000,
                    shape: 1.5,
                };
                let stop = None;
                let datagrams = Datagrams { from, to, dscp: 0, start, stop, pattern };
                simulation.add_datagrams(datagrams).unwrap()
            }
            _ => {
                let demand = Demand::Backlogged;
                simulation.add_flow(Flow { from, to, tcp, start, stop: None, demand }).unwrap()
            }
        };
        floors.insert(source, floor);
    }
    Anything { simulation, bottleneck: built.bottleneck, floors }
}

#[test]
fn packets_are_conserved_and_windows_keep_their_floor() {
    let first = seed();
    let mut narrowest = Window::ONE;
    for seed in first..first + 150 {
        let Anything { mut simulation, bottleneck, floors } = anything(seed);
        let mut random = Random::new(seed);
        for _ in 0..10 {
            let step = Duration::from_micros(random.below(2_000_000));
            simulation.run_until(simulation.now() + step);
            let conservation = simulation.conservation();
            assert!(conservation.holds(), "seed {seed}: {conservation:?}");
            assert!(simulation.link(bottleneck).is_conserved(), "seed {seed}");
            for source in simulation.sources() {
                for sender in simulation.senders(source) {
                    let window = sender.controller().window();
                    assert!(window >= floors[&source], "seed {seed}: {sender:?}");
                    narrowest = narrowest.min(window);
                    // A negative count of 32 bits would be above this.
                    assert!(sender.in_flight() < 1 << 31, "seed {seed}: {sender:?}");
                }
            }
        }
    }
    // Some did go below Reno's floor.
    assert!(narrowest < Window::ONE);
}

#[test]
fn received_bytes_were_sent_and_acked_bytes_received() {
    let first = seed();
    for seed in first..first + 50 {
        let Anything { mut simulation, .. } = anything(seed);
        simulation.run_until(seconds(10));
        for source in simulation.sources() {
            let counters = simulation.source(source);
            let (sent, received) = (counters.sent, counters.received);
            assert!(received.segments + received.duplicates <= sent.segments, "seed {seed}");
            assert!(sent.acknowledged_bytes <= received.bytes, "seed {seed}: {counters:?}");
            assert!(counters.datagrams_received <= counters.datagrams_sent, "seed {seed}");
            assert!(counters.finished <= counters.opened, "seed {seed}");
        }
    }
}

#[test]
fn same_seed_gives_same_records() {
    let first = seed();
    for seed in first..first + 20 {
        let run = |steps: &[u64]| {
            let Anything { mut simulation, bottleneck, .. } = anything(seed);
            for &step in steps {
                simulation.run_until(Timestamp::from_micros(step));
                // Reading the state changes nothing.
                assert!(simulation.conservation().holds());
                assert!(simulation.link(bottleneck).is_conserved());
                assert!(simulation.delays(bottleneck).is_some());
            }
            let counters: Vec<_> =
                simulation.sources().map(|source| simulation.source(source)).collect();
            let delays = simulation.delays(bottleneck).unwrap().classes().to_vec();
            let delays: Vec<_> = delays
                .iter()
                .map(|class| (class.dscp, class.packets, class.waited_nanos, class.dropped))
                .collect();
            let transfers = simulation.take_transfers();
            (simulation.samples().to_vec(), counters, delays, transfers, simulation.events())
        };
        let often: Vec<u64> = (1..=10_000).map(|millis| millis * 1_000).collect();
        assert_eq!(run(&[10_000_000]), run(&often), "seed {seed}");
    }
}

#[test]
fn observing_a_link_keeps_the_order_of_events() {
    let run = |looks: bool| {
        // A packet of 1000 bytes takes a millisecond on each link.
        let link =
            |delay, buffer| LinkParameters::drop_tail(mbit(8), delay, Limit::Packets(buffer));
        let (bottleneck, access) = (link(MS, 1), vec![link(5 * MS, 10)]);
        let built = Dumbbell { bottleneck, back: None, access, pairs: 2 }.build();
        // After the bottleneck, the link back, and the links of the first host.
        let (second_access, _) = built.topology.links().nth(4).unwrap();
        let mut simulation = Simulation::new(built.topology, 1);
        let sources: Vec<SourceId> = built
            .left
            .iter()
            .zip(&built.right)
            .map(|(&from, &to)| {
                let (start, stop) = (Timestamp::ZERO, None);
                let pattern = Pattern::Trace(vec![(0, 1_000), (0, 1_000)]);
                let datagrams = Datagrams { from, to, dscp: 0, start, stop, pattern };
                simulation.add_datagrams(datagrams).unwrap()
            })
            .collect();
        simulation.run_until(Timestamp::from_micros(2_000));
        if looks {
            let counters = simulation.link(second_access);
            assert_eq!((counters.arrived, counters.queued, counters.in_flight), (2, 0, 2));
        }
        simulation.run_until(seconds(1));
        sources
            .iter()
            .map(|source| simulation.source(*source).datagrams_received)
            .collect::<Vec<_>>()
    };
    // The second packets of both reach the bottleneck in the same nanosecond, and only one finds room.
    assert_eq!(run(false), [2, 1]);
    assert_eq!(run(true), run(false));
}

#[test]
fn simulation_runs_on_any_thread() {
    let Anything { mut simulation, .. } = anything(seed());
    let Anything { simulation: mut same, .. } = anything(seed());
    let there = std::thread::spawn(move || {
        simulation.run_until(seconds(5));
        simulation.samples().to_vec()
    });
    same.run_until(seconds(5));
    assert_eq!(there.join().unwrap(), same.samples());
}

/// Periodic packets of the higher class at three quarters of the link, beside `background` backlogged flows
/// of the lower class. Returns how many were sent, how many have arrived, and for each class its packets and
/// its longest waiting time.
fn foreground_beside(background: u32) -> (u64, u64, Vec<(u64, u64)>) {
    let link = LinkParameters {
        discipline: Discipline::Priority(PriorityParameters::default()),
        ..LinkParameters::drop_tail(mbit(10), 20 * MS, Limit::Packets(40))
    };
    let mut path = path(link, LinkParameters::delay(20 * MS), seed());
    path.simulation.observe_link(path.forward);
    let pattern = Pattern::Constant { bits_per_second: 7_500_000, bytes: 1_500 };
    let (from, to) = (path.from, path.to);
    let (start, stop) = (Timestamp::ZERO, None);
    let foreground = path
        .simulation
        .add_datagrams(Datagrams { from, to, dscp: 0, start, stop, pattern })
        .unwrap();
    for _ in 0..background {
        let start = Timestamp::from_micros(500_000);
        path.flow(Parameters::default(), reno(), DSCP_LOWER_EFFORT, start, Demand::Backlogged);
    }
    path.simulation.run_until(seconds(30));
    let counters = path.simulation.source(foreground);
    let delays = path.simulation.delays(path.forward).unwrap();
    let waits = delays.classes().iter().map(|class| (class.packets, class.waiting.max())).collect();
    (counters.datagrams_sent, counters.datagrams_received, waits)
}

#[test]
fn strict_priority_is_never_inverted() {
    let (sent, received, waits) = foreground_beside(8);
    // The higher class loses only the packets in flight at the end, and waits at most for the rest of one
    // lower packet: 1.2 ms. The lower class gets the remaining capacity.
    assert!(sent - received < 20, "{sent} sent, {received} received");
    assert!(waits[0].1 <= 1_200_000 + 1_200, "waited {} ns", waits[0].1);
    assert!(waits[1].0 > 5_000, "the lower class sent {} packets", waits[1].0);
}

/// Goodput of a Reno flow and of `count` others beside it.
fn shares(controller: &ControllerFactory, count: u32) -> (u64, u64) {
    let mut path = bottleneck(mbit(10), 25 * MS, 42, seed());
    let foreground = path.backlogged(Parameters::default(), reno());
    let others: Vec<SourceId> = (1..=count)
        .map(|at| {
            let start = Timestamp::from_micros(u64::from(at) * 100_000);
            let (parameters, controller) = (Parameters::default(), controller.clone());
            path.flow(parameters, controller, 0, start, Demand::Backlogged)
        })
        .collect();
    path.simulation.run_until(seconds(60));
    let simulation = &path.simulation;
    let goodput = |source| simulation.source(source).goodput_bytes();
    (goodput(foreground), others.into_iter().map(goodput).sum())
}

#[test]
fn nice_yields_to_reno_where_reno_shares() {
    let (alone, _) = shares(&reno(), 0);
    let (beside_nice, nice_bytes) = shares(&nice(), 8);
    let (beside_reno, reno_bytes) = shares(&reno(), 8);
    println!(
        "alone {alone}, beside Nice {beside_nice} + {nice_bytes}, beside Reno {beside_reno} + {reno_bytes}"
    );
    assert!(beside_nice * 10 > alone * 9);
    assert!(beside_reno * 3 < alone);
    assert!(nice_bytes > 0 && nice_bytes < reno_bytes);
}

#[test]
fn lost_syn_is_resent_a_second_later() {
    let delay = LinkParameters::delay(10 * MS);
    // Each packet is lost on its first link.
    let mut path = path(LinkParameters { loss: Loss::EveryNth(1), ..delay }, delay, seed());
    let flow = path.backlogged(Parameters::default(), reno());
    path.simulation.run_until(Timestamp::from_micros(3_500_000));
    assert_eq!(path.simulation.link(path.forward).lost, 3, "at 0, 1 and 3 s");
    assert_eq!(path.simulation.source(flow).sent.segments, 0);
}

/// Documents of 1, 10 and 100 segments over a path of 100 ms and 10 Mbit/s.
fn documents(connections: Connections) -> Path {
    let mut path = bottleneck(mbit(10), 50 * MS, 84, seed());
    let request = |seconds: u64, client, segments: u64| Request {
        at_nanos: seconds * 1_000_000_000,
        client,
        bytes: segments * 1_448,
    };
    let requests = vec![request(1, 0, 1), request(2, 0, 10), request(3, 1, 100)];
    let documents = Documents {
        pairs: vec![(path.from, path.to)],
        tcp: Tcp { parameters: without_delayed_acks().into(), controller: reno(), dscp: 0 },
        connections,
        arrivals: Arrivals::Logged(requests),
    };
    path.simulation.add_documents(documents).unwrap();
    path.simulation.run_until(seconds(20));
    path
}

#[test]
fn document_latencies_follow_from_slow_start() {
    let path = documents(Connections::PerDocument);
    let transfers = path.simulation.transfers();
    let rtts: Vec<u64> =
        transfers.iter().map(|transfer| transfer.latency_nanos() / 100_000_000).collect();
    // From a window of two: 2, 4, 8, 16, 32, 64; the handshake is not counted.
    assert_eq!(rtts, [1, 3, 6]);
    // It is part of the time since the request.
    let waited = (transfers[0].first_sent - transfers[0].requested).as_millis();
    assert_eq!(waited, 100);
    let counters = path.simulation.source(path.simulation.sources().next().unwrap());
    assert_eq!((counters.opened, counters.finished, counters.completed), (3, 3, 3));
}

#[test]
fn documents_of_a_client_share_its_connection() {
    let path = documents(Connections::PerClient);
    let transfers = path.simulation.transfers();
    let counters = path.simulation.source(path.simulation.sources().next().unwrap());
    assert_eq!((counters.opened, counters.finished, counters.completed), (2, 0, 3));
    // After a silence its window is the initial one (RFC 5681 §4.1). The first round trip after it, limited
    // by the application, adds nothing: 2, 2, 4, 8.
    let second = transfers[1].latency_nanos() / 100_000_000;
    assert_eq!((transfers[1].bytes, second), (14_480, 4));
    assert_eq!(transfers[1].requested, seconds(2));
}

#[test]
fn ecn_signals_congestion_without_losing_a_packet() {
    let link = LinkParameters {
        // 1500 bytes at 10 Mbit/s.
        discipline: Discipline::Red(RedParameters {
            ecn: true,
            packet_time_nanos: 1_200_000,
            ..RedParameters::default()
        }),
        ..LinkParameters::drop_tail(mbit(10), 25 * MS, Limit::Packets(120))
    };
    let mut path = path(link, LinkParameters::delay(25 * MS), seed());
    let flow = path.backlogged(Parameters { ecn: true, ..Parameters::default() }, reno());
    // The overshoot of slow start fills any buffer, and its drops take 13 s to recover; after that, marks
    // control the flow.
    path.simulation.run_until(seconds(20));
    let before = (path.simulation.link(path.forward), path.simulation.source(flow));
    path.simulation.run_until(seconds(70));
    let after = (path.simulation.link(path.forward), path.simulation.source(flow));
    assert!(after.0.marked > before.0.marked);
    assert!(after.1.sent.marks > before.1.sent.marks);
    assert_eq!(after.0.dropped, before.0.dropped);
    assert_eq!(after.1.sent.retransmissions, before.1.sent.retransmissions);
    // RED's average falls slower than a single flow's queue, which is marked once too often.
    let used = after.0.utilisation(&before.0, 10_000_000, 50_000_000_000);
    println!(
        "{used}, {} marks, {} reductions",
        after.0.marked - before.0.marked,
        after.1.sent.marks - before.1.sent.marks
    );
    assert!(used > 0.8, "{used}");
}

#[test]
fn samples_are_taken_at_their_interval() {
    let mut path = bottleneck(mbit(10), 25 * MS, 42, seed());
    path.simulation.observe_link(path.forward);
    path.simulation.sample_every(250 * MS);
    path.backlogged(Parameters::default(), reno());
    path.simulation.run_until(seconds(10));
    let samples = path.simulation.samples();
    assert_eq!(samples.len(), 40);
    assert_eq!(samples[39].at, seconds(10));
    assert!(
        samples
            .windows(2)
            .all(|pair| { pair[0].sources[0].goodput_bytes <= pair[1].sources[0].goodput_bytes })
    );
    assert!(samples.iter().any(|sample| sample.links[0].counters.queued > 30));
}

#[test]
fn rate_limited_flow_keeps_to_its_rate() {
    let mut path = bottleneck(mbit(10), 25 * MS, 42, seed());
    let parameters =
        Parameters { max_pacing_bits_per_second: Some(1_000_000), ..Parameters::default() };
    let flow = path.backlogged(parameters, reno());
    path.simulation.run_until(seconds(100));
    let rate = path.simulation.source(flow).goodput_bytes() * 8 / 100;
    assert!((980_000..=1_000_000).contains(&rate), "{rate} bit/s");
}
