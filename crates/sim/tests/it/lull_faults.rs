//! Faults that background connections with a shared window must survive.

use std::fmt::Write as _;

use lull_cc::lull::SharedPath;
use lull_cc::{Cubic, Timestamp};
use lull_sim::link::{LinkParameters, Loss};
use lull_sim::queue::Limit;
use lull_sim::tcp::{DelayedAck, Parameters};
use lull_sim::topology::Topology;
use lull_sim::traffic::{ControllerFactory, Demand, Flow, Tcp};
use lull_sim::{Simulation, Trace};

use crate::common::{MS, mbit, path, seconds, seed};
use crate::lull::{GOODPUT, Test};

/// A link whose rate in Mbit/s changes: each part lasts this many seconds.
fn varying(parts: &[(u64, u64)]) -> Trace {
    let (mut times, mut start) = (String::new(), 0);
    for &(megabits, length) in parts {
        // Opportunities of 1500 bytes, each as soon as it is due.
        let due = |millis: u64| megabits * millis / 12;
        for millis in 0..length * 1000 {
            for _ in due(millis)..due(millis + 1) {
                writeln!(times, "{}", start + millis).expect("a string takes all");
            }
        }
        start += length * 1000;
    }
    writeln!(times, "{start}").expect("a string takes all");
    Trace::parse("varying", &times).expect("times ascend")
}

/// The used part of the link, with 10 Mbit/s as the whole.
fn used(test: &mut Test, from: u64, to: u64) -> f64 {
    let used = test.shares(from, to).0;
    println!("{from} s to {to} s: {used:.3}");
    used
}

#[test]
fn background_survives_receiver_that_stalls() {
    for count in [1, 8] {
        let mut test = Test::new(count, 40);
        let stall = varying(&[(10, 20), (0, 8), (10, 60)]);
        test.path.simulation.follow_trace(test.path.forward, stall);
        assert!(used(&mut test, 10, 20) > 0.85, "{count}");
        // The timeout of the retransmission timer has grown to some seconds by the end of the stall.
        assert!(used(&mut test, 45, 60) > 0.8, "{count}");
    }
}

#[test]
fn background_follows_link_that_becomes_ten_times_faster() {
    let mut test = Test::new(1, 40);
    test.path.simulation.follow_trace(test.path.forward, varying(&[(1, 40), (10, 100)]));
    assert!(used(&mut test, 20, 40) > 0.08);
    assert!(used(&mut test, 60, 90) > 0.8);
}

#[test]
fn background_follows_link_that_becomes_ten_times_slower() {
    let mut test = Test::new(1, 40);
    test.path.simulation.follow_trace(test.path.forward, varying(&[(10, 40), (1, 400)]));
    assert!(used(&mut test, 20, 40) > 0.85);
    // The higher rate is remembered for up to two minutes in which the path is used.
    let (slow, later) = (used(&mut test, 50, 170), used(&mut test, 300, 400));
    assert!(slow > 0.035 && later > 0.09, "{slow}, {later}");
}

/// Changes the round-trip time of a path without a queue.
fn set_rtt(test: &mut Test, millis: u32) {
    for link in [test.path.forward, test.path.back] {
        test.path.simulation.set_delay(link, millis * MS / 2);
    }
}

/// A route that becomes four times as long, and short again. The longer one looks like a queue of others, and while
/// packets of both arrive together the capacity looks too high.
#[test]
fn background_follows_path_that_becomes_longer_and_shorter() {
    for (count, buffer) in [(1, 40), (8, 40), (1, 160)] {
        let mut test = Test::new(count, buffer);
        assert!(used(&mut test, 10, 20) > 0.85);
        set_rtt(&mut test, 200);
        assert!(used(&mut test, 30, 70) > 0.8, "{count}, {buffer}");
        set_rtt(&mut test, 50);
        assert!(used(&mut test, 80, 120) > 0.8, "{count}, {buffer}");
    }
}

#[test]
fn background_follows_route_of_other_rate_and_length() {
    for (rates, before, after) in [((5, 20), 40, 120), ((20, 5), 120, 40)] {
        let mut test = Test::on((20, before), 1, 200);
        test.path
            .simulation
            .follow_trace(test.path.forward, varying(&[(rates.0, 20), (rates.1, 100)]));
        used(&mut test, 10, 20);
        set_rtt(&mut test, after);
        let part = used(&mut test, 40, 110) * 10.0 / rates.1 as f64;
        assert!(part > 0.7, "{part} of {} Mbit/s", rates.1);
    }
}

/// A download that its receive window limits holds a queue of constant length. That is no longer path.
#[test]
fn constant_queue_of_a_download_is_no_longer_path() {
    for count in [1, 8] {
        let mut test = Test::new(count, 320);
        let limited = Parameters { receive_window: 3 * 41 * 1448, ..Parameters::default() };
        let cubic = ControllerFactory::new(Cubic::new);
        let foreground = test.path.flow(limited, cubic, 0, seconds(10), Demand::Backlogged);
        test.foreground.push(foreground);
        let (background, foreground) = test.shares(20, 120);
        println!("{count}: {background:.4} beside {foreground:.3}");
        assert!(foreground > 0.97, "{foreground} beside {count}");
    }
}

/// About every second packet takes a route that is 2 ms longer.
#[test]
fn idle_link_is_used_beside_reordering() {
    let mut test = Test::new(1, 80);
    for milli in 0..40_000 {
        let delay = (25 + 2 * (milli % 2)) as u32 * MS;
        test.path.simulation.set_delay(test.path.forward, delay);
        test.path.simulation.run_until(Timestamp::from_micros(milli * 1_000));
    }
    let used = test.bytes(&test.background) / (GOODPUT * 40.0);
    println!("{used:.3} of the link");
    assert!(used > 0.5, "{used}");
}

#[test]
fn background_progresses_beside_random_losses() {
    let delay = 25 * MS;
    let link = LinkParameters {
        loss: Loss::Bernoulli(0.05),
        ..LinkParameters::drop_tail(mbit(10), delay, Limit::Packets(40))
    };
    for count in [1, 8] {
        let mut test = Test::over(path(link, LinkParameters::delay(delay), seed()), count);
        // Each loss reduces it to the floor: a loss in twenty packets looks like a full buffer.
        let used = used(&mut test, 10, 70);
        assert!(used > 0.008, "{used} by {count}");
    }
}

#[test]
fn idle_link_is_used_behind_thinned_acknowledgements() {
    let thinned = DelayedAck { every: 16, timeout_nanos: 40_000_000, quick: 0 };
    let parameters = Parameters { delayed_ack: thinned, ..Parameters::default() };
    let mut test = Test::new(0, 80);
    test.add_connection(seconds(0), Demand::Backlogged, &SharedPath::default(), parameters);
    let used = used(&mut test, 10, 40);
    assert!(used > 0.8, "{used}");
}

/// Such a receiver holds the acknowledgement of each pair at the floor back: no pair shows that the foreground has left.
#[test]
fn link_is_used_again_behind_delayed_acknowledgements() {
    for (every, counts) in [(4, &[1, 8][..]), (16, &[1])] {
        for &count in counts {
            let delayed = DelayedAck { every, timeout_nanos: 40_000_000, quick: 0 };
            let parameters = Parameters { delayed_ack: delayed, ..Parameters::default() };
            let mut test = Test::new(0, 40);
            let shared = SharedPath::default();
            for _ in 0..count {
                test.add_connection(seconds(0), Demand::Backlogged, &shared, parameters);
            }
            test.add_foreground(20, 40);
            let (background, foreground) = test.shares(22, 40);
            println!("every {every}, {count}: {background:.3} beside {foreground:.3}");
            let later = used(&mut test, 45, 60);
            assert!(
                foreground > 0.9 && later > 0.8,
                "every {every}, {count}: {foreground}, {later}"
            );
        }
    }
}

#[test]
fn persistent_foreground_leaves_one_percent() {
    for count in [1, 8, 64] {
        let mut test = Test::new(count, 40);
        test.add_foreground(10, 200);
        let (background, foreground) = test.shares(30, 200);
        println!("{count}: {background:.4} beside {foreground:.3}");
        assert!(background > 0.0095 && foreground > 0.9, "{background}, {foreground}, {count}");
    }
}

/// A host with this many destinations has as many paths, and all of them share a bottleneck. Each path must
/// yield on its own. A single download depends on when it starts: its share is from 0.06 to 0.5.
#[test]
fn thousand_paths_over_one_link_leave_part_to_one_download() {
    let mut shares = 0.0;
    for start in [7, 8, 9] {
        let mut test = Test::on((1000, 20), 0, 1666);
        for number in 0..1000 {
            let start = Timestamp::from_micros(number * 1_000);
            test.add_background(10, start, Demand::Backlogged, &SharedPath::default());
        }
        test.add_foreground(start, start + 8);
        // In units of 10 Mbit/s; the link has a hundred.
        let alone = test.shares(5, start).0 / 100.0;
        let (background, foreground) = test.shares(start + 3, start + 8);
        let (background, foreground) = (background / 100.0, foreground / 100.0);
        let bytes = |&one: &_| test.bytes(&[one]);
        let least = test.background.iter().map(bytes).fold(f64::INFINITY, f64::min);
        println!(
            "{alone:.3} alone, {background:.3} beside {foreground:.3}; at least {least} bytes"
        );
        assert!(alone > 0.9 && least > 0.0, "{alone}; at least {least} bytes");
        shares += foreground / 3.0;
    }
    assert!(shares > 0.15, "{shares}");
}

/// Two hosts of one network behind bottlenecks of their own: to the background they are one path.
#[test]
fn connections_behind_two_bottlenecks_do_not_starve() {
    for rtts in [(50, 50), (50, 20), (20, 100)] {
        let mut topology = Topology::new();
        let here = topology.add_router();
        let ends = [(10, rtts.0), (1, rtts.1)].map(|(megabits, rtt)| {
            let there = topology.add_router();
            let link = LinkParameters::drop_tail(mbit(megabits), rtt / 2 * MS, Limit::Packets(40));
            topology.add_links(here, there, link);
            there
        });
        let mut simulation = Simulation::new(topology, seed());
        let shared = SharedPath::default();
        let flows = ends.map(|to| {
            let path = shared.clone();
            let controller = ControllerFactory::new(move || path.join());
            let tcp = Tcp { parameters: Parameters::default().into(), controller, dscp: 1 };
            let (start, stop, demand) = (seconds(0), None, Demand::Backlogged);
            simulation.add_flow(Flow { from: here, to, tcp, start, stop, demand }).expect("a route")
        });
        let bytes = |simulation: &Simulation| {
            flows.map(|flow| simulation.source(flow).goodput_bytes() as f64)
        };
        simulation.run_until(seconds(20));
        let before = bytes(&simulation);
        simulation.run_until(seconds(140));
        let after = bytes(&simulation);
        let used = |at: usize, parts: f64| (after[at] - before[at]) / (GOODPUT * 120.0 * parts);
        let (fast, slow) = (used(0, 1.0), used(1, 0.1));
        println!("{rtts:?}: {fast:.3} of 10 Mbit/s, {slow:.3} of 1 Mbit/s");
        assert!(fast > 0.2 && slow > 0.2, "{rtts:?}: {fast}, {slow}");
    }
}

/// Queues of others come and go. Some pairs meet one, and others none: all are of one path.
#[test]
fn bursts_of_others_do_not_split_a_path() {
    for (path, buffer) in [((10, 50), 10), ((10, 50), 40), ((10, 50), 160), ((200, 10), 41)] {
        for count in [2, 8, 64] {
            let shared = SharedPath::default();
            let mut test = Test::on(path, 0, buffer);
            test.add_background(count, seconds(0), Demand::Backlogged, &shared);
            for start in 0..10 {
                test.add_foreground(10 + 7 * start, 13 + 7 * start);
            }
            test.add_foreground(90, 130);
            test.path.simulation.run_until(seconds(150));
            let members = shared.lock().members() as usize;
            assert_eq!(members, count, "{path:?}, {buffer} packets");
        }
    }
}
