//! What holds on every trace, whatever the network does.

use lull_cc::{Base, Controller, Cubic, Nice, NiceParameters, Refinements, Reno, Vegas, Window};
use lull_testing::trace::{Event, History, seed};

const EVENTS: usize = 100_000;
const SEEDS: u64 = 3;

/// Every parameter set that a user can reach.
fn parameter_sets() -> Vec<NiceParameters> {
    let prototype = NiceParameters::prototype();
    let mut sets = vec![NiceParameters::simulation(), NiceParameters::vegas(1, 3)];
    for base in [Base::Vegas, Base::Reno] {
        for bits in 0..=Refinements::ALL.bits() {
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
            (seed, History::plausible(seed).take(EVENTS).collect()),
            (seed, History::wild(seed).take(EVENTS).collect()),
        ]
    })
}

/// Nice §7: always less aggressive than AIMD TCP.
#[test]
fn nice_never_has_a_larger_window_than_reno() {
    for (seed, events) in histories() {
        for parameters in parameter_sets() {
            let mut nice = Nice::new(parameters);
            let mut reno = Reno::new();
            for (i, event) in events.iter().enumerate() {
                event.feed(&mut nice);
                event.feed(&mut reno);
                assert!(
                    nice.window() <= reno.window(),
                    "LULL_SEED={seed} event {i} {event:?}: Nice {} above Reno {}\n{parameters:?}",
                    nice.window(),
                    reno.window()
                );
            }
        }
    }
}

/// Nice §2.3: 1/48 is the floor; only a timeout's min(W, 1) is a floor of its own for Vegas.
#[test]
fn the_window_never_falls_below_its_floor() {
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

#[test]
fn no_congestion_event_raises_the_window() {
    for (seed, events) in histories() {
        for parameters in parameter_sets() {
            let mut nice = Nice::new(parameters);
            for event in &events {
                let before = nice.window();
                event.feed(&mut nice);
                match event {
                    Event::Ack(ack) if ack.lost == 0 => {}
                    Event::Ack(ack) if nice.window() > before => {
                        // A loss that belongs to the last reaction; the round may still grow.
                        assert!(
                            nice.window().raw() - before.raw() <= u64::from(ack.acked.max(1)) << 16
                        );
                    }
                    _ => assert!(nice.window() <= before, "LULL_SEED={seed} {event:?}"),
                }
            }
        }
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
fn the_same_trace_gives_the_same_state() {
    for (_, events) in histories().take(2) {
        let run = || {
            let mut nice = Nice::new(NiceParameters::prototype());
            events.iter().for_each(|event| event.feed(&mut nice));
            nice
        };
        assert_eq!(run(), run());
    }
}

#[test]
fn every_controller_may_always_send_something() {
    for (seed, events) in histories() {
        let (mut reno, mut cubic, mut vegas) = (Reno::new(), Cubic::new(), Vegas::new(1, 3));
        for event in &events {
            event.feed(&mut reno);
            event.feed(&mut cubic);
            event.feed(&mut vegas);
            assert!(reno.packets(0) >= 1, "LULL_SEED={seed} {event:?}");
            assert!(cubic.packets(0) >= 1, "LULL_SEED={seed} {event:?}");
            assert!(vegas.packets(0) >= 2, "LULL_SEED={seed} {event:?}");
            let pace = vegas.pacing(50_000, 1448);
            assert!(pace.is_none_or(|pace| pace.rate.bits_per_second() > 0));
        }
    }
}
