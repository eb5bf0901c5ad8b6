//! Background connections that share the window of their path.

use crate::common::{MS, Path, bottleneck, mbit, path, seconds, seed};
use lull_cc::lull::{HostTraffic, SharedPath};
use lull_cc::{Cubic, Timestamp};
use lull_sim::link::LinkParameters;
use lull_sim::queue::{Discipline, Limit};
use lull_sim::tcp::Parameters;
use lull_sim::traffic::{
    Arrivals, Connections, ControllerFactory, Demand, Documents, Flow, Request, Tcp,
};
use lull_sim::{SourceId, Trace};

/// A path of 10 Mbit/s and 50 ms: 41 packets fill it.
const MEGABITS: u64 = 10;
const RTT_MILLIS: u32 = 50;
const BDP_PACKETS: u64 = 41;
/// The payload rate of the whole link, in bytes per second.
pub(crate) const GOODPUT: f64 = 10e6 / 8.0 * 1448.0 / 1500.0;

pub(crate) struct Test {
    pub(crate) path: Path,
    pub(crate) background: Vec<SourceId>,
    pub(crate) foreground: Vec<SourceId>,
}

impl Test {
    /// `count` connections of one host in the background, and a buffer of this many packets.
    pub(crate) fn new(count: usize, buffer: u64) -> Self {
        Test::on((MEGABITS, RTT_MILLIS), count, buffer)
    }

    /// The same on another path, with a rate in Mbit/s and a round-trip time in ms.
    pub(crate) fn on((megabits, rtt_millis): (u64, u32), count: usize, buffer: u64) -> Self {
        Test::over(bottleneck(mbit(megabits), rtt_millis / 2 * MS, buffer, seed()), count)
    }

    /// The same over this path.
    pub(crate) fn over(path: Path, count: usize) -> Self {
        let mut test = Test { path, background: vec![], foreground: vec![] };
        test.add_background(count, seconds(0), Demand::Backlogged, &SharedPath::default());
        test
    }

    pub(crate) fn add_background(
        &mut self,
        count: usize,
        at: Timestamp,
        demand: Demand,
        path: &SharedPath,
    ) {
        for _ in 0..count {
            self.add_connection(at, demand, path, Parameters::default());
        }
    }

    pub(crate) fn add_connection(
        &mut self,
        at: Timestamp,
        demand: Demand,
        path: &SharedPath,
        parameters: Parameters,
    ) {
        let shared = path.clone();
        let lull = ControllerFactory::new(move || shared.join());
        self.background.push(self.path.flow(parameters, lull, 1, at, demand));
    }

    /// A foreground of CUBIC from one second to another.
    pub(crate) fn add_foreground(&mut self, start: u64, stop: u64) {
        let controller = ControllerFactory::new(Cubic::new);
        let tcp = Tcp { parameters: Parameters::default().into(), controller, dscp: 0 };
        let (from, to) = (self.path.from, self.path.to);
        let (start, stop) = (seconds(start), Some(seconds(stop)));
        let flow = Flow { from, to, tcp, start, stop, demand: Demand::Backlogged };
        self.foreground.push(self.path.simulation.add_flow(flow).expect("there is a route"));
    }

    pub(crate) fn bytes(&self, sources: &[SourceId]) -> f64 {
        let bytes = |&source: &_| self.path.simulation.source(source).goodput_bytes();
        sources.iter().map(bytes).sum::<u64>() as f64
    }

    /// The shares of background and foreground in the link between two times, in seconds.
    pub(crate) fn shares(&mut self, from: u64, to: u64) -> (f64, f64) {
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
            // In a buffer of ten packets, 64 pairs at once lose most of their packets for a while.
            let least = if count as u64 > buffer { 0.5 } else { 0.9 };
            assert!(used > least, "{used} by {count} with {buffer}");
        }
    }
}

/// Hosts know nothing of each other: each takes the queue of all for others', and leaves.
#[test]
fn hosts_that_share_a_bottleneck_use_it_together() {
    for count in [1, 16] {
        let mut test = Test::on((50, 80), 0, 333);
        for start in 0..4 {
            test.add_background(count, seconds(start), Demand::Backlogged, &SharedPath::default());
        }
        let used = test.shares(20, 80).0 * 10.0 / 50.0;
        println!("{count} connections each: {used:.3}");
        assert!(used > 0.75, "{used} by 4 x {count}");
    }
}

/// The lead changes every five seconds, and the window with it.
#[test]
fn two_connections_take_turns_on_an_idle_link() {
    let mut test = Test::new(2, BDP_PACKETS);
    test.path.simulation.run_until(seconds(130));
    let bytes: Vec<f64> = test.background.iter().map(|&one| test.bytes(&[one])).collect();
    println!("{bytes:?}");
    let all: f64 = bytes.iter().sum();
    assert!(bytes.iter().all(|&one| one > all / 3.0), "{bytes:?}");
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

/// Each flow has its own queue there (RFC 8290), so that a pair never meets the foreground's.
#[test]
fn download_behind_fair_queueing_keeps_its_goodput() {
    let goodput = |count| {
        let (rate, delay) = (mbit(20), 15 * MS);
        let link = LinkParameters {
            discipline: Discipline::FqCodel(Default::default()),
            ..LinkParameters::drop_tail(rate, delay, Limit::Packets(200))
        };
        let mut test = Test::over(path(link, LinkParameters::delay(delay), seed()), count);
        test.add_foreground(20, 50);
        test.add_foreground(65, 80);
        let downloads = test.shares(20, 50).1 + test.shares(65, 80).1;
        (downloads, test.shares(82, 90).0 / 2.0)
    };
    let alone = goodput(0).0;
    for count in [1, 8] {
        let (beside, used) = goodput(count);
        println!("{count}: {:.3}, then {used:.3}", beside / alone);
        assert!(beside > 0.88 * alone, "{beside} of {alone} beside {count}");
        assert!(used > 0.8, "{used} by {count}");
    }
}

/// 50 Mbit/s and 80 ms with a quarter of the BDP: 333 packets, 83 in the buffer.
const SHALLOW: ((u64, u32), u64) = ((50, 80), 83);

#[test]
fn lone_background_loses_nothing_in_shallow_buffer() {
    let mut test = Test::on(SHALLOW.0, 1, SHALLOW.1);
    let losses = |test: &Test| -> u64 {
        test.path.simulation.senders(test.background[0]).map(|one| one.counters().losses).sum()
    };
    test.path.simulation.run_until(seconds(10));
    let first = losses(&test);
    test.path.simulation.run_until(seconds(60));
    assert_eq!(losses(&test) - first, 0);
}

#[test]
fn download_in_shallow_buffer_keeps_its_goodput() {
    for count in [1, 8] {
        // A single download depends on when the background probes; four of them do not.
        let goodput = |count| -> f64 {
            let download = |start| {
                let mut test = Test::on(SHALLOW.0, count, SHALLOW.1);
                test.add_foreground(start, start + 30);
                test.shares(start, start + 30).1
            };
            (20..24).map(download).sum()
        };
        let kept = goodput(count) / goodput(0);
        println!("{count}: {kept:.3}");
        assert!(kept > 0.9, "{kept} beside {count}");
    }
}

#[test]
fn link_is_used_again_soon_after_the_foreground() {
    for count in [1, 8, 64] {
        let mut test = Test::new(count, 4 * BDP_PACKETS);
        test.add_foreground(20, 50);
        // Nice needs ten seconds or more.
        let (used, _) = test.shares(52, 55);
        println!("{count}: {used:.3}");
        assert!(used > 0.8, "{used} by {count}");
    }
}

/// All that such a background has seen of the path is what the download left.
#[test]
fn link_first_met_beside_a_download_is_filled_after_it() {
    for count in [1, 8] {
        for buffer in [BDP_PACKETS, 4 * BDP_PACKETS] {
            let mut test = Test::new(0, buffer);
            test.add_foreground(0, 30);
            test.add_background(count, seconds(10), Demand::Backlogged, &SharedPath::default());
            let (used, _) = test.shares(33, 36);
            println!("{count}, {buffer} packets: {used:.3}");
            assert!(used > 0.8, "{used} by {count} with {buffer}");
        }
    }
}

/// A host whose background knows the rate of its foreground, or does not.
struct Host {
    test: Test,
    shared: SharedPath,
    is_watched: bool,
    seen: HostTraffic,
}

impl Host {
    fn new(is_watched: bool) -> Self {
        let (mut test, shared) = (Test::new(0, 2 * BDP_PACKETS), SharedPath::default());
        test.add_background(1, seconds(0), Demand::Backlogged, &shared);
        Host { test, shared, is_watched, seen: HostTraffic::default() }
    }

    /// Runs for milliseconds, and reads the foreground's state every two of them.
    fn run(&mut self, from: u64, to: u64) {
        for millis in (from..to).step_by(2) {
            let now = Timestamp::from_micros((millis + 2) * 1_000);
            self.test.path.simulation.run_until(now);
            let sources = self.test.foreground.iter();
            let sent: u64 =
                sources.map(|&one| self.test.path.simulation.source(one).goodput_bytes()).sum();
            if sent > self.seen.bytes {
                self.seen.sent_micros = now.as_micros();
                self.seen.bytes = sent;
            }
            if self.is_watched {
                self.shared.lock().handle_foreground(now, self.seen);
            }
        }
    }

    /// The background's share of the link between two times in milliseconds.
    fn background(&mut self, from: u64, to: u64) -> f64 {
        let before = self.test.bytes(&self.test.background);
        self.run(from, to);
        let all = GOODPUT * (to - from) as f64 / 1e3;
        (self.test.bytes(&self.test.background) - before) / all
    }
}

/// The host sees its own connection before any queue shows it.
#[test]
fn window_shrinks_when_the_host_connects() {
    let [unaware, aware] = [false, true].map(|is_watched| {
        let mut host = Host::new(is_watched);
        host.run(0, 20_000);
        host.seen.connected_micros = 20_000_000;
        host.background(20_000, 20_300)
    });
    println!("{aware:.3}, {unaware:.3} unaware");
    assert!(unaware > 0.9 && aware < 0.5, "{aware} {unaware}");
}

/// Several ends, because the moment of the next pair is chance.
#[test]
fn background_returns_when_the_host_is_quiet() {
    let [unaware, aware] = [false, true].map(|is_watched| {
        let after = |end: u64| {
            let mut host = Host::new(is_watched);
            host.test.add_foreground(20, end);
            host.run(0, end * 1_000);
            // The queue of two bandwidth-delay products drains within 100 ms.
            host.background(end * 1_000, end * 1_000 + 2_000)
        };
        [37, 38, 39, 40].map(after).iter().sum::<f64>() / 4.0
    });
    println!("{aware:.3}, {unaware:.3} unaware");
    assert!(aware > 0.6 && aware > unaware - 0.05, "{aware} {unaware}");
}

/// Requests of 100 kB twice a second, from the host of the background or from another one: the background's share of
/// the link, and the mean response time in seconds.
fn beside_requests(count: usize, is_of_host: bool) -> (f64, f64) {
    let (mut test, shared) = (Test::new(0, 2 * BDP_PACKETS), SharedPath::default());
    test.add_background(count, seconds(0), Demand::Backlogged, &shared);
    let request = |number: u32| Request {
        at_nanos: 10_000_000_000 + u64::from(number) * 500_000_000,
        client: number,
        bytes: 100_000,
    };
    let controller = ControllerFactory::new(Cubic::new);
    let documents = Documents {
        pairs: vec![(test.path.from, test.path.to)],
        tcp: Tcp { parameters: Parameters::default().into(), controller, dscp: 0 },
        connections: Connections::PerDocument,
        arrivals: Arrivals::Logged((0..100).map(request).collect()),
    };
    let source = test.path.simulation.add_documents(documents).expect("there is a route");
    if is_of_host {
        test.path.simulation.share_host(source, &shared);
    }
    let used = test.shares(12, 60).0;
    let own = test.path.simulation.transfers().iter().filter(|one| one.source == source);
    let times: Vec<f64> = own.map(|one| (one.acknowledged - one.requested).as_secs_f64()).collect();
    (used, times.iter().sum::<f64>() / times.len() as f64)
}

/// The host knows the bytes of its own requests: it leaves room for them, so they are faster than beside a background
/// that does not know them, and takes it back at once.
#[test]
fn requests_of_the_host_leave_their_gaps_to_background() {
    let alone = beside_requests(0, false).1;
    for count in [1, 8] {
        let [unaware, aware] = [false, true].map(|is_of_host| beside_requests(count, is_of_host));
        println!("{count}: {aware:.3?}, {unaware:.3?} unaware, {alone:.3} s alone");
        assert!(aware.0 > 0.45, "{aware:?} {unaware:?}");
        assert!(aware.1 < unaware.1.min(1.1 * alone), "{aware:?} {unaware:?} {alone}");
    }
}

/// A shell, a chat, a monitor: they occasionally send a little, and are no reason to yield.
#[test]
fn chatty_connections_of_the_host_do_not_starve_it() {
    for every in [200, 1_000, 5_000] {
        let mut host = Host::new(true);
        host.run(0, 10_000);
        let mut bytes = 0.0;
        for start in (10_000..130_000).step_by(every as usize) {
            host.seen.sent_micros = (start as u64) * 1_000;
            host.seen.connected_micros = host.seen.sent_micros;
            host.seen.bytes += 200;
            bytes += host.background(start as u64, start as u64 + every) * every as f64;
        }
        let used = bytes / 120_000.0;
        println!("each {every} ms: {used:.3}");
        assert!(used > 0.9, "{used} beside one that sends each {every} ms");
    }
}

/// Shares of two connections with different weights, alone on the link.
#[test]
fn connections_share_by_weight_and_fill_the_link() {
    for (light, heavy) in [(10, 10), (5, 20), (2, 40)] {
        let (mut test, shared) = (Test::new(0, BDP_PACKETS), SharedPath::default());
        for weight in [light, heavy] {
            let shared = shared.clone();
            let lull = ControllerFactory::new(move || shared.join_with_weight(weight));
            let flow = (Parameters::default(), seconds(0));
            test.background.push(test.path.flow(flow.0, lull, 1, flow.1, Demand::Backlogged));
        }
        test.path.simulation.run_until(seconds(600));
        let [slow, fast] = [0, 1].map(|at| test.bytes(&[test.background[at]]));
        let (ratio, expected) = (fast / slow, f64::from(heavy) / f64::from(light));
        let used = (slow + fast) / (GOODPUT * 600.0);
        println!("{light} and {heavy}: {ratio:.2} times, {used:.3} used");
        assert!((0.6..1.6).contains(&(ratio / expected)), "{ratio}, not {expected}");
        assert!(used > 0.9, "{used}");
    }
}

/// A job that starts later gets its share, too.
#[test]
fn later_connection_has_its_part_of_the_link() {
    for count in [1, 4] {
        let (mut test, shared) = (Test::new(0, BDP_PACKETS), SharedPath::default());
        test.add_background(count, seconds(0), Demand::Backlogged, &shared);
        test.path.simulation.run_until(seconds(20));
        let before = test.bytes(&test.background);
        test.add_background(1, seconds(20), Demand::Backlogged, &shared);
        test.path.simulation.run_until(seconds(320));
        let all = test.bytes(&test.background) - before;
        let late = test.bytes(&test.background[count..]) / all;
        println!("beside {count}: {late:.3}, {:.3} used", all / (GOODPUT * 300.0));
        let fair = 1.0 / (count + 1) as f64;
        assert!((0.5 * fair..2.0 * fair).contains(&late), "{late} beside {count}");
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
    // 0.8 Mbit/s, and it starts first.
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
    let trace = Trace::pausing(mbit(MEGABITS), 12, 60, seed());
    test.path.simulation.follow_trace(test.path.forward, trace);
    let (used, _) = test.shares(20, 60);
    println!("{used:.3}");
    assert!(used > 0.85, "{used}");
}

/// Like a cellular link: 10 and 3 Mbit/s in turn, a second each, with pauses.
fn varying_link() -> Trace {
    let mut times = String::new();
    for second in 0..60 {
        let millis = if second % 2 == 0 { 6 } else { 20 };
        for turn in 0..1000 / millis {
            let pause = if turn % 3 == 0 { millis / 2 } else { 0 };
            let time = second * 1000 + turn * millis + pause;
            // 5 packets in 6 ms are 10 Mbit/s, and in 20 ms 3 Mbit/s.
            times.push_str(&format!("{time}\n").repeat(5));
        }
    }
    Trace::parse("varying", &times).expect("times ascend")
}

#[test]
fn link_of_varying_capacity_is_used_by_shared_window() {
    let mut test = Test::new(1, 10 * BDP_PACKETS);
    let trace = varying_link();
    let part = trace.mean_rate().bits_per_second() as f64 / mbit(MEGABITS).bits_per_second() as f64;
    test.path.simulation.follow_trace(test.path.forward, trace);
    let (used, _) = test.shares(20, 60);
    println!("{:.3}", used / part);
    assert!(used / part > 0.8, "{used} of {part}");
}

/// The queue of its slow start has drained when its loss is found: it must not be mistaken for a shallow
/// buffer.
#[test]
fn loss_on_idle_link_with_jitter_does_not_end_its_use() {
    let mut test = Test::on((20, 30), 1, 200);
    let trace = Trace::pausing(mbit(20), 16, 60, seed());
    test.path.simulation.follow_trace(test.path.forward, trace);
    let (used, _) = test.shares(20, 60);
    println!("{:.3}", used / 2.0);
    assert!(used / 2.0 > 0.8, "{used}");
}

#[test]
fn background_leaves_a_slow_link_to_a_lasting_foreground() {
    let mut test = Test::on((2, 60), 1, 10);
    test.add_foreground(10, 200);
    let (background, foreground) = test.shares(30, 180);
    println!("{background:.3} {foreground:.3}");
    assert!(background < 0.1 * foreground, "{background} beside {foreground}");
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
