//! Properties of every trace, for any behaviour of the network.

use lull_cc::filler::PROTOCOLS;
use lull_cc::nice::fixed;
use lull_cc::{
    Ack, Base, Bbr, Controller, Cubic, Filler, Ledbat, LedbatPlusPlus, Nice, NiceParameters,
    Reaction, Refinements, Reno, TcpLp, Vegas, Window,
};
use lull_testing::trace::{Event, History, seed};

/// Of a history; `LULL_CC_EVENTS` sets another number.
fn number_of_events() -> usize {
    let number = std::env::var("LULL_CC_EVENTS").ok();
    number.map_or(30_000, |number| number.parse().expect("LULL_CC_EVENTS is a number"))
}

const SEEDS: u64 = 3;

/// All refinements, and the limits of users' and plans' settings.
fn parameter_sets() -> Vec<NiceParameters> {
    let prototype = NiceParameters::prototype();
    let refined = NiceParameters::refined();
    let mut sets = vec![
        NiceParameters::simulation(),
        NiceParameters::vegas(0, 0),
        NiceParameters::vegas(1, 3),
        NiceParameters::vegas(3, 6),
        NiceParameters { reaction: Reaction::Packet, ..NiceParameters::simulation() },
    ];
    for one in [prototype, refined] {
        for threshold in [1, fixed(1, 1) - 1] {
            sets.push(NiceParameters { threshold, ..one });
        }
        for fraction in [1, fixed(1, 1) - 1] {
            sets.push(NiceParameters { fraction, ..one });
        }
        for min_window in [Window::from_ratio(3, 4), Window::ONE] {
            sets.push(NiceParameters { min_window, ..one });
        }
    }
    for base in [Base::Vegas, Base::Reno] {
        // Each with noise floor and minimum progress, and without both: all 512 take a minute.
        let both = Refinements::ALL.bits() & !Refinements::RECORDED.bits();
        for bits in (0..=Refinements::RECORDED.bits()).flat_map(|bits| [bits, bits | both]) {
            let refinements = Refinements::from_bits(bits);
            assert_eq!(refinements.bits(), bits);
            sets.push(NiceParameters { refinements, base, ..prototype });
        }
    }
    sets
}

fn histories() -> impl Iterator<Item = (u64, Vec<Event>)> {
    (0..SEEDS).flat_map(|i| {
        let seed = seed().wrapping_add(i);
        [
            (seed, History::plausible(seed).take(number_of_events()).collect()),
            (seed, History::wild(seed).take(number_of_events()).collect()),
        ]
    })
}

/// Packets that a controller allows in a round-trip time of this many microseconds: its window, unless pacing
/// reduces it.
fn packets_per_round_trip(controller: &impl Controller, rtt_micros: u32) -> f64 {
    const BYTES: u32 = 1_448;
    let window = f64::from(controller.packets(0));
    controller.pacing(rtt_micros, BYTES).map_or(window, |pacing| {
        let bits = pacing.rate.bits_per_second() as f64 * f64::from(rtt_micros) / 1e6;
        window.min(bits / f64::from(8 * BYTES))
    })
}

/// Nice §7: always less aggressive than AIMD TCP. This holds for the packets that it may send at one moment,
/// with one exception. Below two packets it is still a pair, which pacing compensates, and none begins while
/// anything is in flight.
#[test]
fn nice_window_never_exceeds_that_of_reno() {
    for (seed, events) in histories() {
        for parameters in parameter_sets() {
            let mut nice = Nice::new(parameters);
            let mut reno = Reno::with_window(Nice::INITIAL_WINDOW);
            let mut rtt = 0;
            for (i, event) in events.iter().enumerate() {
                event.feed(&mut nice);
                event.feed(&mut reno);
                assert!(
                    nice.window() <= reno.window(),
                    "LULL_SEED={seed} event {i} {event:?}: Nice {} above Reno {}\n{parameters:?}",
                    nice.window(),
                    reno.window()
                );
                for in_flight in [1, 2, 10] {
                    let (nice, reno) = (nice.packets(in_flight), reno.packets(in_flight));
                    assert!(nice <= reno.max(in_flight), "LULL_SEED={seed} event {i} {event:?}");
                }
                if let Event::Ack(Ack { acked: 1.., rtt_micros: Some(sample), .. }) = event {
                    // Nice limits longer ones.
                    rtt = sample.get().min((1 << 24) - 1);
                }
                if rtt > 0 {
                    let of_nice = packets_per_round_trip(&nice, rtt);
                    let of_reno = packets_per_round_trip(&reno, rtt);
                    assert!(
                        of_nice <= of_reno,
                        "LULL_SEED={seed} event {i} {event:?}: {of_nice} packets above {of_reno}"
                    );
                }
            }
        }
    }
}

/// Nice §2.3: 1/48 is the floor; only a timeout's min(W, 1) is a separate floor for Vegas.
#[test]
fn window_never_falls_below_its_floor() {
    for (seed, events) in histories() {
        for parameters in parameter_sets() {
            let floor = parameters.min_window.min(Window::ONE);
            let mut nice = Nice::new(parameters);
            for event in &events {
                event.feed(&mut nice);
                assert!(nice.window() >= floor, "LULL_SEED={seed} {event:?}: {}", nice.window());
                assert!(nice.packets(0) >= 2, "LULL_SEED={seed} {event:?}");
            }
        }
    }
}

/// A new controller of every kind except Nice, by its name.
fn peers() -> Vec<(String, Box<dyn Controller>)> {
    let mut peers: Vec<(String, Box<dyn Controller>)> = vec![
        ("Reno".into(), Box::new(Reno::new())),
        ("CUBIC".into(), Box::new(Cubic::new())),
        ("Vegas".into(), Box::new(Vegas::new(1, 3))),
        ("LEDBAT".into(), Box::new(Ledbat::new())),
        ("LEDBAT++".into(), Box::new(LedbatPlusPlus::new())),
        ("TCP-LP".into(), Box::new(TcpLp::default())),
        ("BBR".into(), Box::new(Bbr::new(1))),
    ];
    for protocol in PROTOCOLS {
        let filler = Box::new(Filler::new(protocol));
        peers.push((protocol.name.into(), filler));
    }
    peers
}

/// Checks that a congestion event has left no larger window.
fn assert_not_raised(before: Window, event: &Event, after: Window, seed: u64, name: &str) {
    match event {
        Event::Ack(ack) if ack.lost == 0 => {}
        Event::Ack(ack) if after > before => {
            // A loss that belongs to the last reaction; the round may still grow.
            assert!(
                after.raw() - before.raw() <= u64::from(ack.acked.max(1)) << Window::SHIFT,
                "LULL_SEED={seed} {name} {event:?}: from {before} to {after}"
            );
        }
        _ => {
            assert!(after <= before, "LULL_SEED={seed} {name} {event:?}: from {before} to {after}")
        }
    }
}

#[test]
fn congestion_event_never_raises_the_window() {
    for (seed, events) in histories() {
        for parameters in parameter_sets() {
            let mut nice = Nice::new(parameters);
            for event in &events {
                let before = nice.window();
                event.feed(&mut nice);
                assert_not_raised(before, event, nice.window(), seed, "Nice");
            }
        }
    }
}

/// The filler paper's decreases are decreases (§3), and so are those of the other peers. Reno and CUBIC raise
/// a window of one packet to two (RFC 5681 §3.1 equation 4), and BBR conserves the packets in flight for any
/// window.
#[test]
fn congestion_event_never_raises_a_peer_window() {
    for (seed, events) in histories() {
        for (name, mut peer) in peers() {
            if ["Reno", "CUBIC", "BBR"].contains(&name.as_str()) {
                continue;
            }
            for event in &events {
                let before = peer.window();
                event.feed(&mut peer);
                assert_not_raised(before, event, peer.window(), seed, &name);
            }
        }
    }
}

#[test]
fn peer_windows_stay_between_one_packet_and_the_path() {
    for (seed, events) in histories() {
        for (name, mut peer) in peers() {
            for event in &events {
                event.feed(&mut peer);
                let window = peer.window();
                assert!(
                    (Window::ONE..=Window::from_packets(1 << 20)).contains(&window),
                    "LULL_SEED={seed} {name} {event:?}: {window}"
                );
            }
        }
    }
}

/// With SACK's constants the filler's engine is Reno, except that Reno raises a window of one packet to two
/// at a loss.
#[test]
fn filler_with_constants_of_sack_equals_reno() {
    let sack = PROTOCOLS[0];
    assert_eq!(sack.name, "SACK");
    for (seed, events) in histories() {
        let mut reno = Reno::new();
        let mut filler = Filler::with_window(sack, Reno::INITIAL_WINDOW, Window::MAX);
        let mut compared = 0;
        for event in &events {
            let is_loss = !matches!(event, Event::Ack(ack) if ack.lost == 0);
            if is_loss && reno.window() < Window::TWO {
                continue;
            }
            event.feed(&mut reno);
            event.feed(&mut filler);
            assert_eq!(filler.window(), reno.window(), "LULL_SEED={seed} {event:?}");
            assert_eq!(
                filler.slow_start_threshold(),
                reno.slow_start_threshold(),
                "LULL_SEED={seed} {event:?}"
            );
            compared += 1;
        }
        assert!(compared > number_of_events() / 2, "LULL_SEED={seed}: {compared}");
    }
}

#[test]
fn min_rtt_stays_below_max_rtt() {
    for (seed, events) in histories() {
        let mut nice = Nice::new(NiceParameters::prototype());
        for event in &events {
            event.feed(&mut nice);
            assert!(nice.min_rtt_micros() <= nice.max_rtt_micros(), "LULL_SEED={seed} {event:?}");
            assert!(nice.rounds_congested() <= nice.rounds(), "LULL_SEED={seed} {event:?}");
        }
    }
}

#[test]
fn same_trace_gives_same_state() {
    fn run<C: Controller>(mut controller: C, events: &[Event]) -> C {
        events.iter().for_each(|event| event.feed(&mut controller));
        controller
    }
    for (_, events) in histories().take(2) {
        let nice = || run(Nice::new(NiceParameters::prototype()), &events);
        assert_eq!(nice(), nice());
        for protocol in PROTOCOLS {
            let filler = || run(Filler::new(protocol), &events);
            assert_eq!(filler(), filler(), "{}", protocol.name);
        }
        let ledbat = || run(Ledbat::new(), &events);
        assert_eq!(ledbat(), ledbat());
        let ledbat_plus_plus = || run(LedbatPlusPlus::new(), &events);
        assert_eq!(ledbat_plus_plus(), ledbat_plus_plus());
        let tcp_lp = || run(TcpLp::default(), &events);
        assert_eq!(tcp_lp(), tcp_lp());
        let bbr = || run(Bbr::new(7), &events);
        assert_eq!(bbr(), bbr());
    }
}

#[test]
fn controller_may_always_send_something() {
    for (seed, events) in histories() {
        for (name, mut peer) in peers() {
            for event in &events {
                event.feed(&mut peer);
                assert!(peer.packets(0) >= 1, "LULL_SEED={seed} {name} {event:?}");
                for smoothed_rtt in [0, 50_000, u32::MAX] {
                    let pace = peer.pacing(smoothed_rtt, 1448);
                    assert!(
                        pace.is_none_or(|pace| pace.rate.bits_per_second() > 0 && pace.burst > 0),
                        "LULL_SEED={seed} {name} {event:?}: {pace:?}"
                    );
                }
            }
        }
    }
}
