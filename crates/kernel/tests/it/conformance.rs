//! One algorithm, two compilations: `bpf/nice.h` and `lull_cc::Nice`, `bpf/background.h` and
//! `lull_cc::Filler` compute the same windows.

use lull_cc::filler::{PROTOCOLS, Protocol};
use lull_cc::nice::fixed;
use lull_cc::{Base, Controller, Filler, Nice, NiceParameters, Reaction, Refinements, Window};
use lull_kernel::Constants;
use lull_testing::trace::{Event, History, seed};

use crate::mirror::{Mirror, compile};

const EVENTS: usize = 200_000;
/// Words in an answer of each mirror.
const NICE_ANSWER: usize = 11;
const BACKGROUND_ANSWER: usize = 3;

fn event_words(event: &Event) -> [u64; 11] {
    match *event {
        Event::Ack(ack) => [
            0,
            ack.now.as_micros(),
            ack.delivered.into(),
            ack.prior_delivered.into(),
            ack.acked.into(),
            ack.lost.into(),
            ack.in_flight.into(),
            ack.rtt_micros.map_or(0, |rtt| rtt.get().into()),
            ack.app_limited.into(),
            ack.maybe_delayed.into(),
            ack.is_small.into(),
        ],
        Event::Loss(now, delivered) => other(1, now.as_micros(), delivered),
        Event::Mark(now, delivered) => other(2, now.as_micros(), delivered),
        Event::Timeout(now, delivered) => other(3, now.as_micros(), delivered),
        Event::Idle(now) => other(4, now.as_micros(), 0),
    }
}

fn other(kind: u64, now: u64, delivered: u32) -> [u64; 11] {
    [kind, now, delivered.into(), 0, 0, 0, 0, 0, 0, 0, 0]
}

/// The count of delivered packets, as written by [`event_words`].
fn delivered(event: &Event) -> u32 {
    match *event {
        Event::Ack(ack) => ack.delivered,
        Event::Loss(_, delivered) | Event::Mark(_, delivered) | Event::Timeout(_, delivered) => {
            delivered
        }
        Event::Idle(_) => 0,
    }
}

fn background_answer(filler: &Filler) -> [u64; BACKGROUND_ANSWER] {
    [filler.window().raw(), filler.slow_start_threshold().raw(), filler.packets(0).into()]
}

fn nice_answer(nice: &Nice, event: &Event) -> [u64; NICE_ANSWER] {
    let (rtt, in_flight) = match event {
        Event::Ack(ack) => (ack.rtt_micros.map_or(0, |rtt| rtt.get()), ack.in_flight),
        _ => (0, 0),
    };
    let pacing = nice.pacing(rtt, 1448);
    [
        nice.window().raw(),
        nice.slow_start_threshold().raw(),
        nice.min_rtt_micros().into(),
        nice.max_rtt_micros().into(),
        nice.rounds().into(),
        nice.rounds_congested().into(),
        nice.yielded_micros(),
        nice.packets(in_flight).into(),
        pacing.map_or(0, |pacing| pacing.rate.bytes_per_second()),
        // Without a round trip there is no pace, but the pair has its spacing.
        nice.pacing(1, 1448).map_or(0, |pacing| pacing.spacing_micros).into(),
        (nice.min_rtt_micros() + nice.noise_micros()).into(),
    ]
}

fn run_in_c(mirror: &Mirror, constants: impl Into<Constants>, events: &[Event]) -> Vec<u64> {
    let mut words = constants.into().words();
    words.extend(events.iter().flat_map(event_words));
    mirror.run(&words)
}

#[test]
fn kernel_nice_gives_same_windows_bit_for_bit() {
    let mirror = compile("nice");
    let prototype = NiceParameters::prototype();
    let refined = NiceParameters::refined();
    let headroom = Refinements { headroom: true, ..Refinements::NONE };
    let gentle = Refinements { gentle: true, ..Refinements::NONE };
    // Each refinement alone, and all except one.
    let bits = Refinements::ALL.bits();
    let one_by_one = (0..bits.count_ones())
        .flat_map(|one| [1 << one, bits & !(1 << one)])
        .map(|bits| NiceParameters { refinements: Refinements::from_bits(bits), ..prototype });
    let mut sets = vec![
        prototype,
        refined,
        NiceParameters::simulation(),
        NiceParameters::vegas(1, 3),
        NiceParameters::vegas(0, 0),
        NiceParameters { refinements: headroom, base: Base::Reno, ..prototype },
        NiceParameters { refinements: gentle, base: Base::Reno, ..prototype },
        NiceParameters { min_window: Window::ONE, ..refined },
        NiceParameters { threshold: 1, fraction: fixed(1, 1) - 1, ..refined },
        NiceParameters { threshold: fixed(1, 1) - 1, fraction: 1, ..refined },
        NiceParameters { reaction: Reaction::Packet, ..NiceParameters::simulation() },
    ];
    sets.extend(one_by_one);
    let seed = seed();
    for parameters in &sets {
        let histories = [("plausible", History::plausible(seed)), ("wild", History::wild(seed))];
        for (kind, history) in histories {
            let events: Vec<Event> = history.take(EVENTS).collect();
            let in_c = run_in_c(&mirror, parameters, &events);
            assert_eq!(in_c.len(), EVENTS * NICE_ANSWER, "the mirror answers every event");
            let mut nice = Nice::new(*parameters);
            for (i, event) in events.iter().enumerate() {
                nice.share_progress(delivered(event) % 100);
                event.feed(&mut nice);
                assert_eq!(
                    in_c[i * NICE_ANSWER..(i + 1) * NICE_ANSWER],
                    nice_answer(&nice, event),
                    "LULL_SEED={seed} {kind} event {i} {event:?}\n{parameters:?}"
                );
            }
            // A trace on which the algorithm never acts would prove nothing.
            assert!(nice.rounds() > 1_000, "{kind}: {} rounds", nice.rounds());
            if parameters.detector {
                assert!(nice.rounds_congested() > 100, "{kind}: {}", nice.rounds_congested());
            }
        }
    }
}

#[test]
fn kernel_background_gives_same_windows_bit_for_bit() {
    let mirror = compile("background");
    let seed = seed();
    for protocol in PROTOCOLS {
        let histories = [("plausible", History::plausible(seed)), ("wild", History::wild(seed))];
        for (kind, history) in histories {
            let events: Vec<Event> = history.take(EVENTS).collect();
            let in_c = run_in_c(&mirror, &protocol, &events);
            assert_eq!(in_c.len(), EVENTS * BACKGROUND_ANSWER, "the mirror answers every event");
            let mut filler = Filler::new(protocol);
            let mut cuts = 0;
            for (i, event) in events.iter().enumerate() {
                let before = filler.window();
                event.feed(&mut filler);
                cuts += usize::from(filler.window() < before);
                assert_eq!(
                    in_c[i * BACKGROUND_ANSWER..(i + 1) * BACKGROUND_ANSWER],
                    background_answer(&filler),
                    "LULL_SEED={seed} {kind} event {i} {event:?}\n{protocol:?}"
                );
            }
            // A trace on which the algorithm never acts would prove nothing.
            assert!(cuts > 500, "{} {kind}: {cuts} cuts", protocol.name);
        }
    }
}

/// The defaults of `background.bpf.c`, which the kernel uses by default.
#[test]
fn kernel_background_is_tcp_background() {
    let source = include_str!("../../../../bpf/background.bpf.c");
    let words = Constants::from(&Protocol::TCP_BACKGROUND).words();
    let [decrease, amount, limit, limit_amount, factor, hold] = words[..] else {
        panic!("{words:?} are not those of struct background_params");
    };
    assert_eq!((decrease, limit), (2, 2), "multiplicative, up to a power");
    for line in [
        "const volatile struct background_params params = {".to_owned(),
        ".decrease = BACKGROUND_MULTIPLICATIVE,".to_owned(),
        format!(".amount = {amount},"),
        ".limit = BACKGROUND_LIMIT_POWER,".to_owned(),
        format!(".limit_amount = {limit_amount},"),
        format!(".factor = {factor},"),
        format!(".hold = {hold},"),
    ] {
        assert!(source.contains(&line), "bpf/background.bpf.c lacks {line}");
    }
}
