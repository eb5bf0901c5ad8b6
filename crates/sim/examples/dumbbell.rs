//! How fast the simulator is: a dumbbell of Vegas and Reno flows, four of them Vegas for each Reno.
//!
//! ```text
//! cargo run --release -p lull-sim --example dumbbell -- [FLOWS [SECONDS]]
//! ```
//!
//! With 20 flows this is 16 Vegas and 4 Reno over 10 Mbit/s with a round-trip time of 100 ms,
//! packets of 512 bytes and a buffer of one bandwidth-delay product. With more or fewer flows the
//! bottleneck grows or shrinks with them, so that each flow does the same.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use lull_cc::{Rate, Reno, Timestamp, Vegas, Window};
use lull_sim::link::LinkParameters;
use lull_sim::queue::Limit;
use lull_sim::tcp::Parameters;
use lull_sim::traffic::{ControllerFactory, Demand, Flow, Tcp};
use lull_sim::{Dumbbell, Simulation};

/// Packets on links; 40 bytes of them are headers.
const PACKET: u16 = 512;
const HEADER: u16 = 40;

fn main() -> ExitCode {
    let Some((flows, seconds)) = asked() else {
        eprintln!("usage: dumbbell [FLOWS [SECONDS]], at least one of each");
        return ExitCode::from(2);
    };
    let resident = resident_bytes();
    let mut simulation = build(flows as u32);
    let (start, cpu_before) = (Instant::now(), cpu_seconds());
    simulation.run_until(Timestamp::from_micros(seconds * 1_000_000));
    let wall = start.elapsed().as_secs_f64();

    let segments: u64 =
        simulation.sources().map(|source| simulation.source(source).received.segments).sum();
    println!("flows                      {flows}");
    println!("simulated                  {seconds} s");
    println!("wall                       {wall:.3} s");
    // On a machine that does other things as well, this is what the run itself has taken.
    let busy = cpu_seconds().zip(cpu_before).map_or(wall, |(after, before)| after - before);
    println!("processor                  {busy:.3} s");
    println!("delivered data packets     {segments}");
    println!("delivered per second       {:.0}", segments as f64 / busy);
    println!("events                     {}", simulation.events());
    println!("events per second          {:.0}", simulation.events() as f64 / busy);
    println!("per delivered packet       {:.0} ns", busy * 1e9 / segments as f64);
    if let (Some(before), Some(after)) = (resident, resident_bytes()) {
        println!("memory per flow            {} B", (after - before) / flows);
    }
    assert!(simulation.conservation().holds(), "packets were made or have vanished");
    ExitCode::SUCCESS
}

/// Flows and seconds; none if the arguments are something else.
fn asked() -> Option<(u64, u64)> {
    let numbers = std::env::args_os().skip(1).map(|word| word.to_str()?.parse().ok());
    let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
    let (flows, seconds) = match numbers[..] {
        [] => (20, 120),
        [flows] => (flows, 120),
        [flows, seconds] => (flows, seconds),
        _ => return None,
    };
    (flows > 0 && flows <= u64::from(u32::MAX) && seconds > 0).then_some((flows, seconds))
}

fn build(flows: u32) -> Simulation {
    let rate = Rate::from_bits_per_second(10_000_000 * u64::from(flows) / 20);
    let bdp = rate.bytes_in(Duration::from_millis(100)).0 / u64::from(PACKET);
    let access = LinkParameters::drop_tail(
        Rate::from_bits_per_second(100_000_000),
        Duration::from_millis(5),
        Limit::Packets(1_000),
    );
    let built = Dumbbell {
        bottleneck: LinkParameters::drop_tail(rate, Duration::from_millis(40), Limit::Packets(bdp)),
        back: None,
        access: vec![access],
        pairs: flows,
    }
    .build();
    let mut simulation = Simulation::new(built.topology, 1);
    simulation.observe_link(built.bottleneck);
    for (at, (&from, &to)) in built.left.iter().zip(&built.right).enumerate() {
        let controller = if at % 5 == 4 {
            ControllerFactory::new(|| Reno::with_window(Window::TWO))
        } else {
            ControllerFactory::new(|| Vegas::new(1, 3))
        };
        let parameters = Parameters {
            segment_bytes: PACKET - HEADER,
            header_bytes: HEADER,
            ..Parameters::default()
        };
        let flow = Flow {
            from,
            to,
            tcp: Tcp { parameters, controller, dscp: 0 },
            // Apart from each other, within the first second.
            start: Timestamp::from_micros(at as u64 * 1_000_000 / u64::from(flows)),
            stop: None,
            demand: Demand::Backlogged,
        };
        simulation.add_flow(flow).expect("a dumbbell connects its pairs");
    }
    simulation
}

/// Time for which this process has had a processor, where the system tells.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let nanos: f64 = text.split(' ').next()?.parse().ok()?;
    Some(nanos / 1e9)
}

/// Memory of this process that is resident, where the system tells.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}
