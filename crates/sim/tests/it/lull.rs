//! Background connections that share the window of their path.

use crate::common::{MS, Path, bottleneck, mbit, seconds, seed};
use lull_cc::lull::SharedPath;
use lull_cc::{Cubic, Timestamp};
use lull_sim::tcp::Parameters;
use lull_sim::traffic::{ControllerFactory, Demand, Flow, Tcp};
use lull_sim::{SourceId, Trace};

/// A path of 10 Mbit/s and 50 ms: 41 packets fill it.
const MEGABITS: u64 = 10;
const RTT_MILLIS: u32 = 50;
const BDP_PACKETS: u64 = 41;
/// What all payload of the link can be, in bytes per second.
const GOODPUT: f64 = 10e6 / 8.0 * 1448.0 / 1500.0;

struct Test {
    path: Path,
    background: Vec<SourceId>,
    foreground: Vec<SourceId>,
}

impl Test {
    /// `count` connections of one host in the background, and a buffer of so many packets.
    fn new(count: usize, buffer: u64) -> Self {
        let path = bottleneck(mbit(MEGABITS), RTT_MILLIS / 2 * MS, buffer, seed());
        let mut test = Test { path, background: vec![], foreground: vec![] };
        test.add_background(count, seconds(0), Demand::Backlogged, &SharedPath::default());
        test
    }

    fn add_background(&mut self, count: usize, at: Timestamp, demand: Demand, path: &SharedPath) {
        for _ in 0..count {
            let shared = path.clone();
            let lull = ControllerFactory::new(move || shared.join());
            self.background.push(self.path.flow(Parameters::default(), lull, 1, at, demand));
        }
    }

    /// A foreground of CUBIC from one second to another.
    fn add_foreground(&mut self, start: u64, stop: u64) {
        let controller = ControllerFactory::new(Cubic::new);
        let tcp = Tcp { parameters: Parameters::default().into(), controller, dscp: 0 };
        let (from, to) = (self.path.from, self.path.to);
        let (start, stop) = (seconds(start), Some(seconds(stop)));
        let flow = Flow { from, to, tcp, start, stop, demand: Demand::Backlogged };
        self.foreground.push(self.path.simulation.add_flow(flow).expect("there is a route"));
    }

    fn bytes(&self, sources: &[SourceId]) -> f64 {
        let bytes = |&source: &_| self.path.simulation.source(source).goodput_bytes();
        sources.iter().map(bytes).sum::<u64>() as f64
    }

    /// The parts of the link that background and foreground had between two times, in seconds.
    fn shares(&mut self, from: u64, to: u64) -> (f64, f64) {
        self.path.simulation.run_until(seconds(from));
        let before = (self.bytes(&self.background), self.bytes(&self.foreground));
        self.path.simulation.run_until(seconds(to));
        let all = GOODPUT * (to - from) as f64;
        let background = self.bytes(&self.background) - before.0;
        (background / all, (self.bytes(&self.foreground) - before.1) / all)
    }
}

#[test]
fn idle_link_is_used_by_any_number_of_connections() {
    for count in [1, 8, 64] {
        for buffer in [BDP_PACKETS / 4, BDP_PACKETS, 4 * BDP_PACKETS] {
            let (used, _) = Test::new(count, buffer).shares(10, 40);
            println!("{count} connections, {buffer} packets: {used:.3}");
            // In a buffer of ten packets, 64 pairs at once lose most of themselves for a while.
            let least = if count as u64 > buffer { 0.5 } else { 0.9 };
            assert!(used > least, "{used} by {count} with {buffer}");
        }
    }
}

#[test]
fn foreground_is_kept_beside_any_number_of_connections() {
    for count in [1, 8, 64] {
        for buffer in [BDP_PACKETS, 4 * BDP_PACKETS] {
            let mut test = Test::new(count, buffer);
            test.add_foreground(20, 60);
            let (background, foreground) = test.shares(25, 60);
            println!("{count}, {buffer} packets: {foreground:.3} beside {background:.3}");
            assert!(foreground > 0.95, "{foreground} beside {count} with {buffer}");
        }
    }
}

#[test]
fn link_is_used_again_soon_after_the_foreground() {
    for count in [1, 8, 64] {
        let mut test = Test::new(count, 4 * BDP_PACKETS);
        test.add_foreground(20, 50);
        // Nice needs ten seconds and more.
        let (used, _) = test.shares(52, 55);
        println!("{count}: {used:.3}");
        assert!(used > 0.8, "{used} by {count}");
    }
}

#[test]
fn crowd_that_comes_late_leaves_the_link_to_the_foreground() {
    for buffer in [BDP_PACKETS, 4 * BDP_PACKETS] {
        let mut test = Test::new(0, buffer);
        test.add_foreground(0, 40);
        test.add_background(64, seconds(20), Demand::Backlogged, &SharedPath::default());
        let (_, foreground) = test.shares(20, 30);
        println!("{buffer} packets: {foreground:.3}");
        assert!(foreground > 0.9, "{foreground} with {buffer}");
    }
}

#[test]
fn slow_application_leaves_the_window_to_others() {
    let mut test = Test::new(0, BDP_PACKETS);
    let path = SharedPath::default();
    // 0.8 Mbit/s, and it comes first.
    let slow = Demand::Periodic { bytes: 10_000, every_nanos: 100_000_000 };
    test.add_background(1, seconds(0), slow, &path);
    test.add_background(3, seconds(1), Demand::Backlogged, &path);
    let (used, _) = test.shares(10, 40);
    println!("{used:.3}");
    assert!(used > 0.85, "{used}");
}

#[test]
fn idle_link_with_jitter_is_used_by_shared_window() {
    let mut test = Test::new(1, 4 * BDP_PACKETS);
    let trace = Trace::pausing(mbit(MEGABITS), 4, 60, seed());
    test.path.simulation.follow_trace(test.path.forward, trace);
    let (used, _) = test.shares(20, 60);
    println!("{used:.3}");
    assert!(used > 0.7, "{used}");
}

#[test]
fn persistent_foreground_leaves_minimum_progress() {
    let mut test = Test::new(8, 8 * BDP_PACKETS);
    test.add_foreground(10, 400);
    test.path.simulation.run_until(seconds(60));
    let mut before: Vec<f64> = test.background.iter().map(|&one| test.bytes(&[one])).collect();
    for time in [90, 120, 150, 180, 210, 240] {
        test.path.simulation.run_until(seconds(time));
        for (&source, before) in test.background.iter().zip(&mut before) {
            let bytes = test.bytes(&[source]);
            assert!(bytes > *before, "a connection got nothing in the 30 s before {time} s");
            *before = bytes;
        }
    }
}
