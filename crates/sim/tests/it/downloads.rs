//! Downloads whose receivers yield by their advertised window. Their senders are ordinary.

use crate::common::{MS, Path, bottleneck, mbit, seconds, seed};
use lull_cc::receive::SharedPath;
use lull_cc::{Bbr, Cubic, Reno};
use lull_sim::SourceId;
use lull_sim::tcp::Parameters;
use lull_sim::traffic::{ControllerFactory, Demand, Flow, Tcp};

/// A path of 10 Mbit/s and 50 ms: 41 packets fill it.
const MEGABITS: u64 = 10;
const RTT_MILLIS: u32 = 50;
const BDP_PACKETS: u64 = 41;
/// The payload rate of the whole link, in bytes per second.
const GOODPUT: f64 = 10e6 / 8.0 * 1448.0 / 1500.0;

/// The congestion controls of senders.
fn senders() -> [(&'static str, ControllerFactory); 3] {
    [
        ("cubic", ControllerFactory::new(Cubic::new)),
        ("reno", ControllerFactory::new(Reno::new)),
        ("bbr", ControllerFactory::new(|| Bbr::new(1))),
    ]
}

struct Test {
    path: Path,
    background: Vec<SourceId>,
    foreground: Vec<SourceId>,
}

impl Test {
    /// `count` downloads in the background, and a buffer of this many packets.
    fn new(sender: &ControllerFactory, count: usize, buffer: u64) -> Self {
        let mut path = bottleneck(mbit(MEGABITS), RTT_MILLIS / 2 * MS, buffer, seed());
        let shared = SharedPath::default();
        let mut background = Vec::new();
        for _ in 0..count {
            let demand = Demand::Backlogged;
            let source = path.flow(Parameters::default(), sender.clone(), 1, seconds(0), demand);
            path.simulation.steer(source, &shared);
            background.push(source);
        }
        Test { path, background, foreground: vec![] }
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

    /// The shares of background and foreground in the link between two times, in seconds.
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
fn downloads_use_an_idle_link() {
    for (name, sender) in senders() {
        for count in [1, 8] {
            let (used, _) = Test::new(&sender, count, BDP_PACKETS).shares(10, 40);
            println!("{count} {name}: {used:.3}");
            assert!(used > 0.85, "{used} by {count} {name}");
        }
    }
}

#[test]
fn foreground_is_kept_beside_downloads() {
    for (name, sender) in senders() {
        for count in [1, 8] {
            for buffer in [BDP_PACKETS, 4 * BDP_PACKETS] {
                let mut test = Test::new(&sender, count, buffer);
                test.add_foreground(20, 60);
                let (background, foreground) = test.shares(25, 60);
                println!("{count} {name}, {buffer} packets: {foreground:.3} + {background:.3}");
                assert!(foreground > 0.9, "{foreground} beside {count} {name} with {buffer}");
            }
        }
    }
}

/// Without a yielding window, eight connections leave the foreground a ninth.
#[test]
fn downloads_that_do_not_yield_take_their_share() {
    let (_, sender) = &senders()[0];
    let mut test = Test::new(sender, 0, BDP_PACKETS);
    for _ in 0..8 {
        let (start, demand) = (seconds(0), Demand::Backlogged);
        test.path.flow(Parameters::default(), sender.clone(), 0, start, demand);
    }
    test.add_foreground(20, 60);
    assert!(test.shares(25, 60).1 < 0.3);
}

#[test]
fn download_uses_the_link_again_after_the_foreground() {
    for (name, sender) in senders() {
        let mut test = Test::new(&sender, 8, BDP_PACKETS);
        test.add_foreground(20, 30);
        let (used, _) = test.shares(36, 46);
        println!("{name}: {used:.3}");
        assert!(used > 0.7, "{used} by {name}");
    }
}

#[test]
fn downloads_share_a_link_by_their_weights() {
    for (name, sender) in senders() {
        for count in [1, 3] {
            let mut test = Test::new(&sender, 0, BDP_PACKETS);
            let shared = SharedPath::default();
            let groups = [10, 40].map(|weight| {
                let flow = |_| {
                    let (start, demand) = (seconds(0), Demand::Backlogged);
                    let sender = sender.clone();
                    let source = test.path.flow(Parameters::default(), sender, 1, start, demand);
                    test.path.simulation.steer_with_weight(source, &shared, weight);
                    source
                };
                (0..count).map(flow).collect::<Vec<SourceId>>()
            });
            test.path.simulation.run_until(seconds(10));
            let before = groups.each_ref().map(|group| test.bytes(group));
            test.path.simulation.run_until(seconds(70));
            let [light, heavy] =
                [0, 1].map(|group: usize| test.bytes(&groups[group]) - before[group]);
            println!("{count} {name}: {:.2}", heavy / light);
            // A light one of six has two or three packets of the window, and each counts.
            assert!((3.0..6.0).contains(&(heavy / light)), "{heavy} to {light} of {name}");
        }
    }
}

/// A download ends if its connection is kept busy: no window stays closed.
#[test]
fn downloads_end_beside_a_foreground_that_stays() {
    let (_, sender) = &senders()[0];
    let mut test = Test::new(sender, 0, BDP_PACKETS);
    let shared = SharedPath::default();
    test.add_foreground(0, 100);
    for _ in 0..4 {
        let demand = Demand::Bytes(50_000);
        let source = test.path.flow(Parameters::default(), sender.clone(), 1, seconds(10), demand);
        test.path.simulation.steer(source, &shared);
        test.background.push(source);
    }
    test.path.simulation.run_until(seconds(100));
    let ended = |&source: &SourceId| test.path.simulation.source(source).finished;
    assert_eq!(test.background.iter().map(ended).sum::<u64>(), 4);
}
