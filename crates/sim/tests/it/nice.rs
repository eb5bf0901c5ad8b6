//! Nice's packets, and their times, in whole simulations.

use std::time::Duration;

use crate::common::{MS, bottleneck, mbit, reno, seconds, seed, without_delayed_acks};
use lull_cc::{Bytes, Nice, NiceParameters, Refinements, Timestamp, Window};
use lull_sim::random::Random;
use lull_sim::tcp::Sender;
use lull_sim::traffic::{ControllerFactory, Datagrams, Demand, Pattern};

fn nice(parameters: NiceParameters) -> ControllerFactory {
    ControllerFactory::new(move || Nice::new(parameters))
}

/// The number of packets that have left in a millisecond, and the state of the sender.
struct Departure {
    millis: u64,
    packets: u64,
    window: Window,
    /// The pacing time of two packets.
    pair: Duration,
    /// Timeouts and retransmissions until then.
    troubles: u64,
}

impl Departure {
    fn see(millis: u64, packets: u64, sender: &Sender) -> Self {
        let controller = sender.controller();
        let smoothed = sender.smoothed_rtt().unwrap().as_nanos().div_ceil(1_000) as u32;
        let pacing = controller.pacing(smoothed, 1_448).unwrap();
        let counters = sender.counters();
        Departure {
            millis,
            packets,
            window: controller.window(),
            pair: pacing.rate.time_for(Bytes(2 * 1_448)),
            troubles: counters.timeouts + counters.retransmissions,
        }
    }
}

#[test]
fn small_window_of_nice_spaces_its_pairs() {
    // A foreground that uses all of the link keeps Nice between its floor of 1/48 and one packet.
    let mut path = bottleneck(mbit(1), 25 * MS, 10, seed());
    let (from, to, start, stop) = (path.from, path.to, Timestamp::ZERO, None);
    let pattern = Pattern::Constant { bits_per_second: 990_000, bytes: 500 };
    path.simulation.add_datagrams(Datagrams { from, to, dscp: 0, start, stop, pattern }).unwrap();
    let nice = nice(NiceParameters::simulation());
    let flow = path.flow(without_delayed_acks(), nice, 0, seconds(1), Demand::Backlogged);
    let mut departures: Vec<Departure> = Vec::new();
    let mut sent = 0;
    for millis in 100_000..600_000 {
        path.simulation.run_until(Timestamp::from_micros(millis * 1_000));
        let sender = path.simulation.senders(flow).next().unwrap();
        let segments = sender.counters().segments;
        if sent > 0 && segments > sent {
            departures.push(Departure::see(millis, segments - sent, sender));
        }
        sent = segments;
    }
    // 2/W round trips from one pair to the next (Nice §2.3), regardless of changes of the window meanwhile.
    let mut longest = Duration::ZERO;
    let mut checked = 0;
    for three in departures.windows(3) {
        let [before, this, next] = three else { unreachable!("three at a time") };
        // Retransmissions after a loss are not paced.
        if next.troubles > before.troubles || this.window >= Window::ONE {
            continue;
        }
        assert_eq!((this.packets, next.packets), (2, 2), "at {} ms", next.millis);
        let apart = Duration::from_millis(next.millis - this.millis);
        assert!(apart.abs_diff(this.pair) <= 2 * MS, "{apart:?}, not {:?}", this.pair);
        longest = longest.max(apart);
        checked += 1;
    }
    println!("{checked} of {} pairs, {longest:?} apart at most", departures.len());
    assert!(checked > 30 && longest > Duration::from_secs(2), "{checked}, {longest:?}");
}

/// Segments that a backlogged flow sends in a minute beside datagrams without congestion control. Path and
/// datagrams are drawn from the seed.
fn sent_beside_datagrams(seed: u64, controller: ControllerFactory) -> u64 {
    let mut random = Random::new(seed);
    let rate = mbit(1 + random.below(10));
    let delay = MS * (5 + random.below(50)) as u32;
    let mut path = bottleneck(rate, delay, 5 + random.below(80), seed);
    let (from, to, start, stop) = (path.from, path.to, Timestamp::ZERO, None);
    let pattern = Pattern::OnOffPareto {
        bits_per_second: rate.bits_per_second() * (1 + random.below(4)) / 4,
        bytes: 1_000,
        on_nanos: 500_000_000,
        off_nanos: 500_000_000,
        shape: 1.5,
    };
    path.simulation.add_datagrams(Datagrams { from, to, dscp: 0, start, stop, pattern }).unwrap();
    let start = seconds(1);
    let flow = path.flow(without_delayed_acks(), controller, 0, start, Demand::Backlogged);
    path.simulation.run_until(seconds(61));
    path.simulation.source(flow).sent.segments
}

/// Nice §7: always less aggressive than AIMD TCP. In the first seconds it may be ahead: Reno overshoots in
/// slow start, which causes losses that Nice does not have. As published, without `full`, it may be ahead for
/// longer. In a buffer below one BDP it is Vegas, and Reno loses more than that to traffic that does not
/// yield.
#[test]
fn nice_sends_no_more_in_a_minute_than_reno() {
    let letter = NiceParameters::simulation();
    let full = Refinements { full: true, ..Refinements::NONE };
    let first = seed();
    for seed in first..first + 40 {
        let reno = sent_beside_datagrams(seed, reno());
        for (parameters, most) in [
            (NiceParameters { refinements: full, ..letter }, reno),
            (NiceParameters::refined(), reno),
            (letter, reno * 5 / 4),
        ] {
            let nice = sent_beside_datagrams(seed, nice(parameters));
            println!("seed {seed}: {nice} by Nice, {reno} by Reno");
            assert!((1..=most).contains(&nice), "seed {seed}: {nice} by Nice, {reno} by Reno");
        }
    }
}
