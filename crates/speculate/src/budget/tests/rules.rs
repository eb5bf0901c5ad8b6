//! The rules, one by one.

use super::*;

/// Feeds one sample per epoch, and returns the outcome of each.
fn feed(budget: &mut Budget, now: &mut Timestamp, above: &[bool]) -> Vec<&'static str> {
    let mut outcomes = Vec::new();
    let mut probe = None;
    for above in above {
        let one = probe.take().or_else(|| {
            *now += EPOCH;
            budget.poll(*now)
        });
        let time = if *above { 20 * MS } else { MS };
        outcomes.push(match budget.handle_sample(*now, one.unwrap(), Some(time)) {
            Outcome::Below => "below",
            Outcome::Grown => "grown",
            Outcome::Again(again) => {
                probe = Some(again);
                "again"
            }
            Outcome::Halved => "halved",
            Outcome::Learned => "learned",
            Outcome::Stale => "stale",
        });
    }
    outcomes
}

#[test]
fn five_samples_below_grow_the_budget_by_one() {
    let mut budget = Budget::new(paper(), Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    let outcomes = feed(&mut budget, &mut now, &[false; 10]);
    assert_eq!(outcomes[..5], ["below", "below", "below", "below", "grown"]);
    assert_eq!((outcomes[9], budget.budget()), ("grown", 2));
}

#[test]
fn late_sample_is_repeated_and_two_halve_the_budget() {
    let mut budget = Budget::new(paper(), Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    feed(&mut budget, &mut now, &[false; 45]);
    assert_eq!(budget.budget(), 9);
    // The second sample of the same epoch replaces the outlier.
    let outcomes = feed(&mut budget, &mut now, &[false, true, false, false, false, false]);
    assert_eq!(outcomes, ["below", "again", "below", "below", "below", "grown"]);
    assert_eq!(budget.budget(), 10);
    let outcomes = feed(&mut budget, &mut now, &[false, false, false, false, true, true]);
    assert_eq!((outcomes[5], budget.budget()), ("halved", 5));
    // The count of five restarts.
    let outcomes = feed(&mut budget, &mut now, &[false; 5]);
    assert_eq!((outcomes[3], outcomes[4], budget.budget()), ("below", "grown", 6));
}

#[test]
fn overdue_answer_counts_as_late_before_it_arrives() {
    let mut budget = Budget::new(paper(), Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    feed(&mut budget, &mut now, &[false; 40]);
    let first = budget.poll(now + EPOCH).unwrap();
    let sent = now + EPOCH;
    assert_eq!(budget.next_poll(), sent + 10 * MS);
    assert_eq!(budget.poll(sent + 9 * MS), None);
    let second = budget.poll(sent + 10 * MS).unwrap();
    assert_eq!(second.object, first.object);
    assert_eq!(budget.handle_sample(sent + 15 * MS, first, Some(15 * MS)), Outcome::Stale);
    assert_eq!(budget.poll(sent + 20 * MS), None, "halved; the next epoch is not yet");
    assert_eq!(budget.budget(), 4);
    assert!(budget.poll(sent + EPOCH).is_some());
}

#[test]
fn missing_answer_counts_as_late() {
    let mut budget = Budget::new(paper(), Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    feed(&mut budget, &mut now, &[false; 10]);
    let probe = budget.poll(now + EPOCH).unwrap();
    let Outcome::Again(probe) = budget.handle_sample(now + EPOCH, probe, None) else {
        panic!("it is to be probed again");
    };
    assert_eq!(budget.handle_sample(now + EPOCH, probe, None), Outcome::Halved);
    assert_eq!(budget.budget(), 1);
}

#[test]
fn doubling_ends_with_the_first_decrease() {
    let parameters = Parameters { growth: Growth::DoublingFirst, ..paper() };
    let mut budget = Budget::new(parameters, Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    let mut budgets = Vec::new();
    for above in [false, false, false, false, false, true, false] {
        let samples: &[bool] = if above { &[true, true] } else { &[false; 5] };
        feed(&mut budget, &mut now, samples);
        budgets.push(budget.budget());
    }
    assert_eq!(budgets, [1, 2, 4, 8, 16, 8, 9]);
}

#[test]
fn late_sample_without_a_budget_is_not_repeated() {
    let parameters = Parameters {
        growth: Growth::DoublingFirst,
        second_look: SecondLook::WithBudget,
        ..paper()
    };
    let mut budget = Budget::new(parameters, Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    let below = [false; 4];
    assert_eq!(feed(&mut budget, &mut now, &below), ["below"; 4]);
    // The count of five restarts, and it doubles all the same.
    assert_eq!(feed(&mut budget, &mut now, &[true, true]), ["halved", "halved"]);
    assert_eq!(feed(&mut budget, &mut now, &below), ["below"; 4]);
    assert_eq!(feed(&mut budget, &mut now, &[false; 11])[0], "grown");
    assert_eq!(budget.budget(), 4);
    // From now on it has a budget to lose.
    assert_eq!(feed(&mut budget, &mut now, &[true, true]), ["again", "halved"]);
    assert_eq!(budget.budget(), 2);
}

/// A budget by the paper's rule that stays at this many requests per second, at the beginning of an epoch.
fn steady(budget: u32) -> Server<impl FnMut(&Budget, Timestamp) -> Option<Duration>> {
    let parameters = Parameters { most: budget, ..paper() };
    let mut server = Server::new(parameters, |_, _| Some(MS));
    server.run(5 * budget + 10);
    assert_eq!(server.budget.budget(), budget);
    server
}

/// Whether a client that comes now gets a list, with this random draw out of 1.
fn is_served<F: FnMut(&Budget, Timestamp) -> Option<Duration>>(
    server: &mut Server<F>,
    chance: f64,
) -> bool {
    let draw = ((chance * f64::from(u32::MAX)) as u64) << 32;
    matches!(server.budget.ask(server.now, FIRST, draw), Grant::List { .. })
}

/// p = min(1, B·τ / (N·D)), where N is the number of clients in the previous epoch.
#[test]
fn client_gets_a_document_with_the_probability_of_the_paper() {
    for (budget, before, p) in [
        // Ten requests per epoch are one document.
        (100, 2, 0.5),
        (100, 5, 0.2),
        (50, 2, 0.25),
        (200, 8, 0.25),
        // With enough budget, every client does.
        (400, 2, 1.0),
        // No client came: one is expected.
        (50, 0, 0.5),
    ] {
        for (chance, expected) in [(p - 0.01, true), (p + 0.01, false)] {
            if chance > 1.0 {
                continue;
            }
            let mut server = steady(budget);
            for _ in 0..before {
                is_served(&mut server, 1.0);
            }
            server.run(1);
            let case = format!("B {budget}, N {before}, chance {chance}");
            assert_eq!(is_served(&mut server, chance), expected, "{case}");
            // N is of the previous epoch, and of no earlier one.
            server.run(2);
            let alone = f64::from(budget) / 100.0;
            assert!(is_served(&mut server, alone.min(1.0) - 0.01), "{case}");
        }
    }
}

#[test]
fn clients_beyond_those_of_the_last_epoch_get_empty_lists() {
    for before in 1..6 {
        let mut server = steady(10_000);
        for _ in 0..before {
            is_served(&mut server, 0.0);
        }
        server.run(1);
        // There is budget for a hundred.
        let served = [(); 20].map(|()| is_served(&mut server, 0.0));
        let expected: Vec<bool> = (0..20).map(|client| client < before).collect();
        assert_eq!(served.to_vec(), expected, "{before} clients in the epoch before");
    }
}

#[test]
fn load_is_spread_over_the_rest_of_the_epoch() {
    for into in [0, 30, 90] {
        let mut server = steady(100);
        server.now += into * MS;
        let left = EPOCH - into * MS;
        let begins = [0.0, 0.25, 0.5, 0.999].map(|place| {
            let mut budget = server.budget.clone();
            let draw = (place * f64::from(u32::MAX)) as u64;
            match budget.ask(server.now, FIRST, draw) {
                Grant::List { after, .. } => after.as_secs_f64() / left.as_secs_f64(),
                grant @ Grant::Empty { .. } => panic!("{grant:?}"),
            }
        });
        for (begin, expected) in begins.into_iter().zip([0.0, 0.25, 0.5, 0.999]) {
            assert!((begin - expected).abs() < 1e-3, "{begin} of {left:?}, not {expected}");
        }
    }
}

#[test]
fn objects_are_probed_in_turn() {
    let mut budget = Budget::new(Parameters::paper([10 * MS, 20 * MS]), Timestamp::ZERO);
    let mut objects = Vec::new();
    for epoch in 1..5 {
        let now = Timestamp::ZERO + epoch * EPOCH;
        let probe = budget.poll(now).unwrap();
        objects.push(probe.object.0);
        // Late for the first object, in time for the second.
        let outcome = budget.handle_sample(now, probe, Some(15 * MS));
        assert_eq!(matches!(outcome, Outcome::Again(_)), probe.object.0 == 0, "{outcome:?}");
        if let Outcome::Again(again) = outcome {
            assert_eq!(again.object, probe.object);
            budget.handle_sample(now, again, Some(MS));
        }
    }
    assert_eq!(objects, [0, 1, 0, 1]);
}

#[test]
fn thresholds_are_learned_from_the_median_of_a_pause() {
    let mut samples = 0;
    let mut server = Server::new(learned(), |_, _| {
        samples += 1;
        // One of five is slow, as at every server.
        Some(if samples % 5 == 0 { 90 * MS } else { 4 * MS })
    });
    assert!(server.budget.is_paused());
    server.run(9);
    assert_eq!(server.budget.threshold(ObjectId(0)), None);
    // The pause takes a second to drain, and twenty samples of each of the two.
    server.run(45);
    assert!(!server.budget.is_paused());
    for object in [ObjectId(0), ObjectId(1)] {
        assert_eq!(server.budget.threshold(object), Some(9 * MS));
    }
}

#[test]
fn start_under_load_is_corrected_by_a_pause_at_low_load() {
    let mut server = Server::new(learned(), |_, now| {
        Some(if now < Timestamp::ZERO + 300 * EPOCH { 80 * MS } else { 4 * MS })
    });
    server.run(100);
    assert_eq!(server.budget.threshold(ObjectId(0)), Some(161 * MS));
    server.run(700);
    assert_eq!(server.budget.threshold(ObjectId(0)), Some(9 * MS));
}

#[test]
fn next_object_follows_one_probed_out_of_turn() {
    let mut budget = Budget::new(Parameters::paper([10 * MS; 3]), Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    let mut probed = |wanted: Option<u32>| {
        now += EPOCH;
        let probe = match wanted {
            Some(object) => budget.poll_for(now, ObjectId(object)),
            None => budget.poll(now),
        };
        let probe = probe.unwrap();
        // An epoch has one sample, even if thresholds are known.
        assert_eq!(budget.poll_for(now, ObjectId(0)), None);
        budget.handle_sample(now, probe, Some(MS));
        assert_eq!(budget.poll_for(now, ObjectId(0)), None);
        probe.object.0
    };
    let objects = [None, Some(2), None, None, Some(1), Some(1), None].map(&mut probed);
    assert_eq!(objects, [0, 2, 0, 1, 1, 1, 2]);
}

#[test]
fn only_a_relearn_raises_thresholds() {
    let mut server = Server::new(learned(), |_, now| {
        Some(if now < Timestamp::ZERO + 300 * EPOCH { 4 * MS } else { 8 * MS })
    });
    server.run(2_000);
    assert_eq!(server.budget.threshold(ObjectId(0)), Some(9 * MS));
    assert!(server.budget.relearn(server.now, &[None, None]));
    server.under_way = None;
    assert_eq!((server.budget.is_paused(), server.budget.budget()), (true, 0));
    server.run(100);
    assert_eq!(server.budget.threshold(ObjectId(0)), Some(17 * MS));
    let mut given = Budget::new(paper(), Timestamp::ZERO);
    assert!(!given.relearn(Timestamp::ZERO, &[None]), "there is nothing to learn");
    assert!(!given.is_paused());
}

#[test]
fn kept_object_keeps_its_threshold_and_a_new_one_has_none() {
    let mut server = Server::new(learned(), |_, now| {
        Some(if now < Timestamp::ZERO + 300 * EPOCH { 4 * MS } else { 8 * MS })
    });
    server.run(300);
    let budget = server.budget.budget();
    assert!(budget > 0);
    // The second one is the first now; two others are new.
    let known = [server.budget.threshold(ObjectId(1)), None, None];
    assert!(server.budget.relearn(server.now, &known));
    server.under_way = None;
    let thresholds = |budget: &Budget| [0, 1, 2].map(|place| budget.threshold(ObjectId(place)));
    assert_eq!(thresholds(&server.budget), [Some(9 * MS), None, None]);
    assert_eq!((server.budget.is_paused(), server.budget.budget()), (true, 0));
    server.run(71);
    assert_eq!(thresholds(&server.budget), [Some(9 * MS), Some(17 * MS), Some(17 * MS)]);
    // And it continues with its earlier budget.
    assert!(!server.budget.is_paused());
    assert_eq!(server.budget.budget(), budget);
}

#[test]
fn recovered_server_starts_with_no_budget_and_linear_growth() {
    let mut budget =
        Budget::new(Parameters { growth: Growth::DoublingFirst, ..paper() }, Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    feed(&mut budget, &mut now, &[false; 33]);
    assert_eq!(budget.budget(), 32);
    budget.fall(now);
    assert_eq!(budget.budget(), 0);
    feed(&mut budget, &mut now, &[false; 24]);
    assert_eq!(budget.budget(), 4);
}

#[test]
fn rejection_halves_the_budget_and_restarts_the_count_of_five() {
    let mut budget = Budget::new(paper(), Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    feed(&mut budget, &mut now, &[false; 49]);
    assert_eq!(budget.budget(), 9);
    budget.back_off(now);
    assert_eq!(budget.budget(), 4);
    let outcomes = feed(&mut budget, &mut now, &[false; 5]);
    assert_eq!((outcomes[0], outcomes[4], budget.budget()), ("below", "grown", 5));
    budget.back_off(now);
    budget.back_off(now);
    budget.back_off(now);
    assert_eq!(budget.budget(), 0);
}

#[test]
fn rejection_between_two_samples_restarts_the_count_of_five() {
    let mut budget = Budget::new(paper(), Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    feed(&mut budget, &mut now, &[false; 49]);
    now += EPOCH;
    let probe = budget.poll(now).unwrap();
    let outcome = budget.handle_sample(now, probe, Some(20 * MS));
    let Outcome::Again(again) = outcome else { panic!("one look was enough: {outcome:?}") };
    budget.back_off(now);
    assert!(matches!(budget.handle_sample(now, again, Some(MS)), Outcome::Below));
    assert_eq!(budget.budget(), 4);
}
