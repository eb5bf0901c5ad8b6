//! The model against the statements of Nice §3, its differential equations and its own limits.

mod ode;

use proptest::prelude::*;

use super::*;

/// 100 packets in the path, 60 in the buffer, t = 0.1, γ = ½.
fn network(reno_flows: u32, nice_flows: u32) -> FluidParameters {
    FluidParameters {
        buffer: 60.0,
        reno_flows,
        nice_flows,
        threshold: 0.1,
        decrease: 0.5,
        service_rate: 1000.0,
        round_trip: 0.1,
        nice: NiceRules::default(),
    }
}

fn per_period(parameters: &FluidParameters) -> f64 {
    interference(parameters).unwrap().per_period
}

fn per_second(parameters: &FluidParameters) -> f64 {
    interference(parameters).unwrap().per_second
}

/// Uniform over the orders of magnitude.
fn magnitude(low: f64, high: f64) -> impl Strategy<Value = f64> {
    (low.ln()..high.ln()).prop_map(f64::exp)
}

/// Networks in which a loss empties the queue, as in Nice §3; all else is free.
fn emptied_networks() -> impl Strategy<Value = FluidParameters> {
    let network = (magnitude(1.0, 1e5), 0.01..0.99_f64, magnitude(1.0, 1e6), 0.0..1.0_f64);
    let flows = (magnitude(1.0, 1e3), magnitude(0.5, 1e5));
    (network, flows, 0.05..0.95_f64).prop_map(
        |((path, share, service_rate, threshold), (reno, nice), decrease)| FluidParameters {
            buffer: share * path * (1.0 - decrease) / decrease,
            reno_flows: reno as u32,
            nice_flows: nice as u32,
            threshold,
            decrease,
            service_rate,
            round_trip: path / service_rate,
            nice: NiceRules::default(),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn theorem_bounds_interference_of_any_number_of_flows(p in emptied_networks()) {
        let Interference { per_period, .. } = interference(&p).unwrap();
        prop_assert!(per_period >= 0.0);
        prop_assert!(per_period <= bound(&p), "{} > {}", per_period, bound(&p));
    }

    /// The reconstruction leaves a factor of two to equation 1, apart from rounding.
    #[test]
    fn theorem_1_leaves_a_factor_of_two(p in emptied_networks()) {
        prop_assert!(per_period(&p) <= bound(&p) / 2.0 * (1.0 + 1e-9) + 1e-290);
    }

    #[test]
    fn interference_per_second_keeps_the_bound_with_queueing(p in emptied_networks()) {
        let (measured, bound) = (per_second(&p), throughput_bound(&p));
        prop_assert!(measured <= bound * (1.0 + 1e-9) + 1e-12, "{} > {}", measured, bound);
        prop_assert!(measured >= -1e-12, "{}", measured);
    }

    /// TCP Nice §3.
    #[test]
    fn period_repeats(p in emptied_networks()) {
        let state = steady_state(&p).unwrap();
        let period = Period { segments: Vec::new(), end: state.at_loss };
        let next = Period::run(&p, period.after_loss(&p));
        let change = (next.end.nice - state.at_loss.nice).abs();
        prop_assert!(change <= 1e-11 * state.at_loss.nice, "{}", change);
        // W_r rises by m a round, from γ of its final value.
        let rise = (1.0 - p.decrease) * state.at_loss.reno;
        prop_assert!((f64::from(p.reno_flows) * state.rounds / rise - 1.0).abs() < 1e-9);
        // The link carries at most μ.
        let carried = (state.reno_packets + state.nice_packets) / state.duration;
        prop_assert!(carried <= p.service_rate * (1.0 + 1e-9));
    }

    /// TCP Nice §3.
    #[test]
    fn nice_vanishes_where_a_loss_leaves_a_queue(
        p in emptied_networks(), above in 1.0..10.0_f64
    ) {
        let p = FluidParameters { buffer: above * p.path() * (1.0 / p.decrease - 1.0) * 1.001, ..p };
        prop_assert_eq!(per_period(&p), 0.0);
        prop_assert!(per_second(&p).abs() < 1e-12);
        // Also before that, from any number of flows: no period lets W_n grow.
        let mut nice = first(&p).nice;
        for loss in trajectory(&p, 4).unwrap().windows(2).filter(|pair| pair[0].time == pair[1].time) {
            prop_assert!(loss[1].windows.nice <= nice);
            nice = loss[1].windows.nice;
        }
    }

    #[test]
    fn trajectory_is_continuous_except_at_losses(p in emptied_networks()) {
        let samples = trajectory(&p, 3).unwrap();
        let mut losses = 0;
        for pair in samples.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            prop_assert!(b.time >= a.time);
            prop_assert!(a.queue <= p.buffer && a.windows.nice >= 0.0 && a.windows.reno > 0.0);
            if a.interval == Interval::MultiplicativeDecrease && b.windows.reno < a.windows.reno {
                losses += 1;
                prop_assert!((a.windows.total() / p.capacity() - 1.0).abs() < 1e-9);
                prop_assert!((b.windows.total() / p.capacity() / p.decrease - 1.0).abs() < 1e-9);
            } else {
                let rounds = (b.windows.reno - a.windows.reno) / f64::from(p.reno_flows);
                let most = f64::from(p.nice_flows).max(p.decrease * a.windows.nice).max(1.0);
                let change = (b.windows.nice - a.windows.nice).abs();
                prop_assert!(change <= most * rounds * (1.0 + 1e-9) + 1e-9 * p.capacity());
            }
        }
        prop_assert_eq!(losses, 2);
    }
}

/// Each path through the diagram of `period`, against the differential equations.
#[test]
fn closed_form_agrees_with_the_differential_equations() {
    let rules = NiceRules::default();
    let cases = [
        ("more Reno flows", network(4, 2)),
        ("as many", network(4, 4)),
        ("held at the empty queue and at the trigger", network(2, 16)),
        ("held at the trigger alone", network(4, 64)),
        ("trigger at zero", FluidParameters { threshold: 0.0, ..network(3, 8) }),
        ("trigger never", FluidParameters { threshold: 1.0, ..network(3, 8) }),
        ("other γ", FluidParameters { decrease: 0.3, buffer: 200.0, ..network(5, 9) }),
        (
            "no end of the additive decrease",
            FluidParameters { nice: NiceRules { vegas_minimum: 0.0, ..rules }, ..network(8, 3) },
        ),
        (
            "a floor of 1/48",
            FluidParameters {
                nice: NiceRules { minimum_window: 1.0 / 48.0, ..rules },
                ..network(2, 64)
            },
        ),
        (
            "a floor of 1",
            FluidParameters { nice: NiceRules { minimum_window: 1.0, ..rules }, ..network(2, 20) },
        ),
        (
            "a queue above the trigger after the loss, which falls",
            FluidParameters { buffer: 250.0, decrease: 0.7, ..network(1, 30) },
        ),
        (
            "a queue above the trigger after the loss, which falls below it",
            FluidParameters { buffer: 250.0, decrease: 0.7, threshold: 0.5, ..network(1, 30) },
        ),
        (
            "a queue below the trigger after the loss",
            FluidParameters { buffer: 250.0, decrease: 0.5, threshold: 0.4, ..network(5, 30) },
        ),
    ];
    for (name, p) in cases {
        let mut start = first(&p);
        // The first two periods start far away, the third is close to the one that repeats.
        for _ in 0..3 {
            let closed = Period::run(&p, start);
            let found = measure(&p, &closed);
            let numeric = ode::period(&p, start);
            for (what, closed, numeric, tolerance) in [
                ("W_n", found.at_loss.nice, numeric.at_loss.nice, 2e-3),
                ("W_r", found.at_loss.reno, numeric.at_loss.reno, 1e-4),
                ("duration", found.duration, numeric.duration, 1e-4),
                ("Reno", found.reno_packets, numeric.reno_packets, 1e-4),
                ("Nice", found.nice_packets, numeric.nice_packets, 1e-3),
            ] {
                let error = (closed - numeric).abs();
                assert!(error <= tolerance * numeric, "{name}, {what}: {closed}, ODE {numeric}");
            }
            start = closed.after_loss(&p);
        }
    }
}

/// TCP Nice §3.
#[test]
fn intervals_join_at_their_boundaries() {
    let p = network(4, 3);
    let samples = trajectory(&p, 2).unwrap();
    // W(t₀) = (μτ + B)γ, W(t₁) = μτ, W(t₂) = μτ + q_t, W(t₃) = μτ + B.
    let boundaries = [
        (Interval::AdditiveIncrease, 80.0),
        (Interval::AdditiveDecrease, 100.0),
        (Interval::MultiplicativeDecrease, 106.0),
    ];
    let mut starts = vec![samples[0]];
    for pair in samples.windows(2) {
        if pair[0].interval != pair[1].interval {
            starts.push(pair[1]);
        }
    }
    for (sample, (interval, total)) in starts.iter().zip(boundaries.iter().cycle()) {
        assert_eq!(sample.interval, *interval);
        assert!((sample.windows.total() - total).abs() < 1e-9, "{sample:?}");
    }
    assert_eq!(starts.len(), 6);
    let end = samples.last().unwrap();
    assert!((end.queue - 60.0).abs() < 1e-9);
}

/// TCP Nice §3.
#[test]
fn windows_stabilise_after_several_losses() {
    // Nice holds nothing here, so that each period depends on the one before. That dependence shrinks by γ
    // and more from loss to loss.
    let p = FluidParameters { threshold: 0.5, ..network(20, 3) };
    let settled = steady_state(&p).unwrap().at_loss.nice;
    let mut period = Period { segments: Vec::new(), end: Windows { reno: 90.0, nice: 70.0 } };
    let mut distance = 70.0 - settled;
    for loss in 0..8 {
        period = Period::run(&p, period.after_loss(&p));
        let now = (period.end.nice - settled).abs();
        assert!(now <= p.decrease * distance, "loss {loss}: {now} after {distance}");
        distance = now.max(1e-12);
    }
    assert!(distance < 1e-3 * settled);
}

/// TCP Nice §3.
#[test]
fn interference_falls_exponentially_with_the_buffer() {
    // The path grows too, so that μτ + B and Nice's conditions are the same.
    let with_room = |buffer: f64| {
        let path = 400.0 - buffer;
        FluidParameters { buffer, service_rate: path / 0.1, ..network(4, 64) }
    };
    for buffer in [40.0, 80.0, 120.0] {
        let (near, far) = (per_period(&with_room(buffer)), per_period(&with_room(buffer + 20.0)));
        let folds = 20.0 * 0.9 * 0.5 / 4.0;
        let found = (near / far).ln();
        assert!((found / folds - 1.0).abs() < 1e-2, "{buffer}: {found} for {folds}");
    }
}

/// TCP Nice §3.
#[test]
fn interference_does_not_depend_on_the_number_of_flows() {
    // If there are enough flows to hold the queue at the trigger.
    let reference = per_period(&network(4, 32));
    assert!(reference > 0.0);
    for nice_flows in [64, 100, 1_000, 1_000_000] {
        let found = per_period(&network(4, nice_flows));
        assert!((found / reference - 1.0).abs() < 1e-9, "{nice_flows}: {found}");
    }
    for nice_flows in 1..32 {
        assert!(per_period(&network(4, nice_flows)) <= reference * (1.0 + 1e-9), "{nice_flows}");
    }
}

/// TCP Nice §3.
#[test]
fn threshold_hardly_matters_in_large_buffers() {
    for threshold in [0.0, 0.03, 0.1, 0.2, 0.5, 0.8] {
        let p = FluidParameters { threshold, buffer: 80.0, ..network(1, 16) };
        assert!(per_period(&p) < 1e-3, "{threshold}: {}", per_period(&p));
    }
    // As t → 1 only the additive decrease remains.
    let p = FluidParameters { threshold: 1.0, buffer: 80.0, ..network(1, 16) };
    assert!(per_period(&p) > 0.05, "{}", per_period(&p));
}

/// TCP Nice §3.
#[test]
fn bound_is_void_for_small_buffers() {
    // B/m from 60 down to 0.3: the interference rises from nothing to a few percent. The bound, which always
    // holds, exceeds 1.
    let mut before = 0.0;
    for reno_flows in [1, 4, 16, 50, 200] {
        let p = network(reno_flows, 1_000);
        let found = per_period(&p);
        assert!(found > before && found <= bound(&p), "{reno_flows}: {found}");
        let is_broken = p.broken_assumptions().contains(&Assumption::BufferHoldsBackoff);
        assert_eq!(is_broken, reno_flows > 27, "{reno_flows}");
        before = found;
    }
    assert!(bound(&network(1, 1_000)) < 1e-12);
    assert!(bound(&network(50, 1_000)) > 1.0);
    assert!(before > 0.2, "{before}");
    let p = network(200, 1_000);
    assert!(p.broken_assumptions().contains(&Assumption::RenoKeepsWindows));
}

/// TCP Nice §3.
#[test]
fn windows_below_one_are_crucial() {
    let floored = |nice_flows, minimum_window| FluidParameters {
        nice: NiceRules { minimum_window, ..NiceRules::default() },
        ..network(2, nice_flows)
    };
    let mut before = 0.0;
    for nice_flows in [4, 16, 64] {
        let p = floored(nice_flows, 1.0);
        // Each flow has a packet in the queue of every loss: 1 − (1 − l/(μτ + B))².
        let share = f64::from(nice_flows) / 160.0;
        let found = per_period(&p);
        assert!((found / (share * (2.0 - share)) - 1.0).abs() < 1e-9);
        assert!(found > before && found > 1e4 * bound(&p), "{nice_flows}: {found}");
        assert_eq!(p.broken_assumptions(), [Assumption::NiceHasNoFloor]);
        before = found;
    }
    // The prototype's 1/48 leaves correspondingly less.
    assert!(per_period(&floored(64, 1.0 / 48.0)) < before / 30.0);
}

/// TCP Nice §3.
#[test]
fn additive_decrease_alone_is_not_enough() {
    // t = 1 is Vegas with α = β = 0: the interference grows with the number of flows.
    let vegas = |nice_flows| FluidParameters { threshold: 1.0, ..network(2, nice_flows) };
    let found: Vec<f64> = [4, 16, 64].map(|flows| per_period(&vegas(flows))).to_vec();
    assert!(found.is_sorted() && found[0] > 0.02, "{found:?}");
    // At t = 1, nothing remains of equation 1.
    assert!(found[2] > 4.0 * bound(&vegas(64)), "{found:?}");
}

#[test]
fn theorem_1_counts_no_queueing_delay() {
    // Four Reno flows beside sixty-four of Nice: 4 · 10⁻⁵ of the packets of a period, but each round trip in
    // which Nice holds the queue at q_t is 6 % longer.
    let p = network(4, 64);
    let Interference { per_period, per_second } = interference(&p).unwrap();
    assert!(per_period < 1e-4 && per_second > 0.01, "{per_period}, {per_second}");
    assert!(per_second > bound(&p) && per_second < throughput_bound(&p));
    // It is the cost of a threshold: with t → 0 it vanishes, except for the remainder of the decrease.
    let gentle = FluidParameters { threshold: 0.01, ..p };
    assert!(interference(&gentle).unwrap().per_second < per_second / 2.0);
}

#[test]
fn theorem_1_needs_a_decrease_as_fast_as_its_exponent() {
    let read = |decrease: f64, backoff| FluidParameters {
        decrease,
        buffer: 0.9 * 1000.0 * (1.0 / decrease - 1.0),
        service_rate: 10_000.0,
        nice: NiceRules { backoff, ..NiceRules::default() },
        ..network(10, 200)
    };
    let keeps = |p: FluidParameters| per_period(&p) <= bound(&p);
    for backoff in [Backoff::Gamma, Backoff::OneMinusGamma, Backoff::Logarithm] {
        assert!(keeps(read(0.5, backoff)), "{backoff:?}");
        assert!(keeps(read(0.4, backoff)), "{backoff:?}");
    }
    // W ← γW removes less than γW for γ > ½.
    assert!(keeps(read(0.7, Backoff::Gamma)));
    assert!(!keeps(read(0.7, Backoff::OneMinusGamma)));
    assert!(!keeps(read(0.7, Backoff::Logarithm)));
    assert!(per_period(&read(0.5, Backoff::Logarithm)) < per_period(&read(0.5, Backoff::Gamma)));
}

#[test]
fn equation_1_reads_as_printed() {
    // m = 5, B(1 − t)γ/m = 100 · 0.8 · 0.25 / 5 = 4, (μτ + B)γ = (300 + 100)/4 = 100.
    let p = FluidParameters {
        buffer: 100.0,
        threshold: 0.2,
        decrease: 0.25,
        service_rate: 6000.0,
        round_trip: 0.05,
        ..network(5, 7)
    };
    assert!((bound(&p) - 0.2 * (-4.0_f64).exp()).abs() < 1e-15);
}

#[test]
fn reno_alone_loses_nothing() {
    let p = network(4, 0);
    assert_eq!(interference(&p).unwrap(), Interference { per_period: 0.0, per_second: 0.0 });
    // 80 packets' rise in 20 rounds; 20 packets of it without a queue: 5 · τ, then ∫ W/μ ds.
    let state = steady_state(&p).unwrap();
    assert!((state.rounds - 20.0).abs() < 1e-12);
    assert!((state.duration - (0.5 + 15.0 * 0.130)).abs() < 1e-12, "{}", state.duration);
    assert!((state.reno_packets - 20.0 * 120.0).abs() < 1e-9);
}

#[test]
fn invalid_parameters_are_rejected_with_their_field() {
    let good = network(4, 4);
    let field = |p: FluidParameters| match interference(&p) {
        Err(ParameterError::OutOfRange { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(FluidParameters { buffer: 0.0, ..good }), "buffer");
    assert_eq!(field(FluidParameters { reno_flows: 0, ..good }), "reno_flows");
    assert_eq!(field(FluidParameters { threshold: 1.1, ..good }), "threshold");
    assert_eq!(field(FluidParameters { decrease: 1.0, ..good }), "decrease");
    assert_eq!(field(FluidParameters { service_rate: f64::NAN, ..good }), "service_rate");
    assert_eq!(field(FluidParameters { round_trip: f64::INFINITY, ..good }), "round_trip");
    let crowd = NiceRules { minimum_window: 40.0, ..NiceRules::default() };
    let error = trajectory(&FluidParameters { nice: crowd, ..good }, 1).unwrap_err();
    assert_eq!(error, ParameterError::FloorFillsBuffer { packets: 160.0 });
    assert_eq!(error.to_string(), "Nice's smallest windows, 160 packets, fill path and buffer");
}
