//! Results of network theory, compared with the simulator.

use std::time::Duration;

use crate::common::{MS, bottleneck, mbit, path, reno, seconds, seed, without_delayed_acks};
use lull_cc::Timestamp;
use lull_sim::link::{LinkParameters, Loss};
use lull_sim::queue::Limit;
use lull_sim::tcp::{Parameters, Recovery};
use lull_sim::traffic::{Datagrams, Pattern};

/// The steady state of a Reno flow on a path without a queue, after slow start.
struct Steady {
    /// Segments delivered in a round-trip time of 100 ms.
    segments_per_rtt: f64,
    /// Fast recoveries and timeouts for each segment sent.
    indications: f64,
    /// Timeouts.
    timeouts: u64,
}

fn steady(loss: Loss, parameters: Parameters, duration: u64) -> Steady {
    let delay = LinkParameters::delay(50 * MS);
    let mut path = path(LinkParameters { loss, ..delay }, delay, seed());
    let flow = path.backlogged(parameters, reno());
    path.simulation.run_until(seconds(100));
    let before = path.simulation.source(flow);
    path.simulation.run_until(seconds(100 + duration));
    let after = path.simulation.source(flow);
    let timeouts = after.sent.timeouts - before.sent.timeouts;
    let recoveries = after.sent.recoveries - before.sent.recoveries;
    let delivered = (after.received.segments - before.received.segments) as f64;
    let sent = (after.sent.segments - before.sent.segments) as f64;
    Steady {
        segments_per_rtt: delivered / (duration as f64 / 0.1),
        indications: (timeouts + recoveries) as f64 / sent,
        timeouts,
    }
}

#[test]
fn sack_reno_keeps_the_square_root_law_within_5_percent() {
    for every in [1_000, 2_000, 5_000, 10_000] {
        let Steady { segments_per_rtt: measured, timeouts, .. } =
            steady(Loss::EveryNth(every), without_delayed_acks(), 2_000);
        // Mathis, Semke, Mahdavi and Ott 1997: C/√p, with C = √(3/2) if every packet is acknowledged.
        let expected = 1.22 * (every as f64).sqrt();
        println!("1/p = {every}: {measured:.2} of {expected:.2} segments per RTT");
        assert!((measured / expected - 1.0).abs() < 0.05, "{measured} of {expected}");
        assert_eq!(timeouts, 0, "SACK repairs single losses without timeouts");
    }
}

#[test]
fn reno_keeps_the_pftk_formula() {
    for probability in [1e-3, 3e-3, 1e-2] {
        let Steady { segments_per_rtt: measured, indications: p, timeouts } =
            steady(Loss::Bernoulli(probability), without_delayed_acks(), 20_000);
        // Padhye and others 2000, equation 31, in round-trip times, with b = 1 and the timeout for a constant
        // round-trip time of 100 ms. Its p counts indications of loss, as in their section III, where several
        // losses in a window are one.
        let timeout = 3.0;
        let expected = 1.0
            / ((2.0 * p / 3.0).sqrt()
                + timeout * (3.0 * (3.0 * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p));
        println!(
            "p = {p:.6}: {measured:.2} of {expected:.2} segments per RTT, {timeouts} timeouts"
        );
        assert!((measured / expected - 1.0).abs() < 0.05, "{measured} of {expected}");
        assert!(timeouts > 0 || p < 1e-3, "losses by chance cause timeouts");
    }
}

#[test]
fn flow_fills_its_link_with_one_bdp_of_buffer() {
    for recovery in [Recovery::Sack, Recovery::NewReno] {
        // 10 Mbit/s times 50 ms are 41.7 packets of 1500 bytes.
        let mut path = bottleneck(mbit(10), 25 * MS, 42, seed());
        let parameters = Parameters { recovery, ..Parameters::default() };
        path.backlogged(parameters, reno());
        path.simulation.run_until(seconds(10));
        let before = path.simulation.link(path.forward);
        path.simulation.run_until(seconds(70));
        let after = path.simulation.link(path.forward);
        let used = after.utilisation(&before, 10_000_000, 60_000_000_000);
        println!("{recovery:?}: {used}");
        assert!(used > 0.99, "{recovery:?}: {used}");
    }
}

#[test]
fn m_d_1_waiting_time_is_right_within_1_percent() {
    for load in [30, 50, 80] {
        let link = LinkParameters::drop_tail(mbit(10), Duration::ZERO, Limit::Packets(1 << 20));
        let mut path = path(link, LinkParameters::delay(Duration::ZERO), seed());
        path.simulation.observe_link(path.forward);
        let (from, to) = (path.from, path.to);
        let pattern = Pattern::Poisson { bits_per_second: 100_000 * load, bytes: 1_250 };
        let (start, stop) = (Timestamp::ZERO, None);
        let datagrams = Datagrams { from, to, dscp: 0, start, stop, pattern };
        path.simulation.add_datagrams(datagrams).unwrap();
        path.simulation.run_until(seconds(4_000));
        // Pollaczek and Khinchine: ρ/(2(1 − ρ)) service times of 1 ms.
        let rho = load as f64 / 100.0;
        let expected = rho / (2.0 * (1.0 - rho)) * 1e6;
        let measured = path.simulation.delays(path.forward).unwrap().classes()[0].mean_nanos();
        println!("load {rho}: {measured:.0} of {expected:.0} ns");
        assert!((measured / expected - 1.0).abs() < 0.01, "load {rho}: {measured} of {expected}");
    }
}
