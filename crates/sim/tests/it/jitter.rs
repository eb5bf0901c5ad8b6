//! Nice on links whose delay varies without a queue.

use std::time::Duration;

use crate::common::{MS, Path, mbit, path, seconds, seed};
use lull_cc::{Cubic, Nice, NiceParameters, Refinements, Timestamp};
use lull_sim::Trace;
use lull_sim::link::LinkParameters;
use lull_sim::queue::Limit;
use lull_sim::tcp::Parameters;
use lull_sim::traffic::{ControllerFactory, Demand};

const MEGABITS: u64 = 20;

/// A path of 20 Mbit/s and 30 ms whose service pauses for up to 4 ms in both directions.
fn pausing_path(seed: u64) -> Path {
    let rate = mbit(MEGABITS);
    let link = |packets| LinkParameters::drop_tail(rate, 15 * MS, Limit::Packets(packets));
    let mut path = path(link(200), link(1000), seed);
    let trace = |seed| Trace::pausing(rate, 4, 60, seed);
    path.simulation.follow_trace(path.forward, trace(seed));
    path.simulation.follow_trace(path.back, trace(seed + 1000));
    path
}

fn nice(refinements: Refinements) -> ControllerFactory {
    let parameters = NiceParameters { refinements, ..NiceParameters::refined() };
    ControllerFactory::new(move || Nice::new(parameters))
}

fn cubic() -> ControllerFactory {
    ControllerFactory::new(Cubic::new)
}

/// Goodput of the flows in Mbit/s from 20 to 60 s, each with its start in seconds.
fn goodputs(seed: u64, flows: &[(ControllerFactory, u64)]) -> Vec<f64> {
    let mut path = pausing_path(seed);
    let mut add = |(controller, start): &(ControllerFactory, u64)| {
        let controller = controller.clone();
        path.flow(Parameters::default(), controller, 0, seconds(*start), Demand::Backlogged)
    };
    let sources: Vec<_> = flows.iter().map(&mut add).collect();
    path.simulation.run_until(seconds(20));
    let bytes = |path: &Path| -> Vec<u64> {
        let of = |&source: &_| path.simulation.source(source).goodput_bytes();
        sources.iter().map(of).collect()
    };
    let before = bytes(&path);
    path.simulation.run_until(seconds(60));
    let after = bytes(&path);
    let rate = |(after, before): (&u64, &u64)| (after - before) as f64 * 8.0 / 40e6;
    after.iter().zip(&before).map(rate).collect()
}

#[test]
fn idle_link_with_jitter_is_used() {
    let (mut with, mut without, mut most) = (0.0, 0.0, 0.0);
    for seed in seed()..seed() + 5 {
        with += goodputs(seed, &[(nice(Refinements::ALL), 1)])[0];
        without += goodputs(seed, &[(nice(Refinements::RECORDED), 1)])[0];
        most += goodputs(seed, &[(cubic(), 1)])[0];
    }
    println!("{with:.1} with, {without:.1} without the noise floor, {most:.1} by CUBIC");
    assert!(with > 0.8 * most, "{with} of {most}");
    assert!(without < 0.3 * most, "{without} of {most}: the test shows nothing");
}

#[test]
fn foreground_on_a_link_with_jitter_is_kept() {
    for seed in seed()..seed() + 5 {
        let alone = goodputs(seed, &[(cubic(), 0)])[0];
        for start in [0, 10] {
            let beside = goodputs(seed, &[(cubic(), 10 - start), (nice(Refinements::ALL), start)]);
            println!("seed {seed}: {alone:.2} alone, {:.2} beside {:.2}", beside[0], beside[1]);
            assert!(beside[0] > 0.97 * alone, "{beside:?} of {alone}");
        }
    }
}

/// The bytes that a flow of Nice delivers in 180 s beside a foreground that fills a buffer of one second.
/// Also the longest time without a delivery.
fn progress(refinements: Refinements) -> (u64, Duration) {
    let mut path = crate::common::bottleneck(mbit(2), 30 * MS, 170, seed());
    path.flow(Parameters::default(), cubic(), 0, seconds(0), Demand::Backlogged);
    let flow = (Parameters::default(), nice(refinements));
    let flow = path.flow(flow.0, flow.1, 0, seconds(10), Demand::Backlogged);
    let mut longest = Duration::ZERO;
    let (mut seen, mut since) = (0, seconds(20));
    for tenth in 200..2000 {
        let now = Timestamp::from_micros(tenth * 100_000);
        path.simulation.run_until(now);
        let bytes = path.simulation.source(flow).goodput_bytes();
        if bytes > seen {
            (seen, since) = (bytes, now);
        }
        longest = longest.max(now.saturating_since(since));
    }
    println!("{seen} bytes, {longest:?} without any at the most");
    (seen, longest)
}

#[test]
fn foreground_never_stops_a_flow_of_nice() {
    let (bytes, longest) = progress(Refinements::ALL);
    assert!(longest < Duration::from_secs(8), "{longest:?}");
    // Apache's default is 500 bytes a second (RequestReadTimeout, MinRate).
    assert!(bytes > 180 * 700, "{bytes} bytes");
    let (_, longest) = progress(Refinements::RECORDED);
    assert!(longest > Duration::from_secs(30), "{longest:?}: the test shows nothing");
}
