use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const EPOCH: Duration = Duration::from_millis(100);

/// A budget with a server that answers each probe after the time that a function says.
struct Server<F> {
    budget: Budget,
    now: Timestamp,
    answers: F,
    under_way: Option<(Probe, Timestamp, Option<Duration>)>,
    probes: u32,
}

impl<F: FnMut(&Budget, Timestamp) -> Option<Duration>> Server<F> {
    fn new(parameters: Parameters, answers: F) -> Self {
        let budget = Budget::new(parameters, Timestamp::ZERO);
        Server { budget, now: Timestamp::ZERO, answers, under_way: None, probes: 0 }
    }

    fn run(&mut self, epochs: u32) {
        let end = self.now + epochs * EPOCH;
        loop {
            let poll = self.budget.next_poll().max(self.now);
            let answer = self.under_way.map_or(Timestamp::FAR_FUTURE, |(_, at, _)| at);
            if poll.min(answer) >= end {
                break;
            }
            self.now = poll.min(answer);
            let again = if answer <= poll {
                let (probe, _, time) = self.under_way.take().unwrap();
                match self.budget.handle_sample(self.now, probe, time) {
                    Outcome::Again(probe) => Some(probe),
                    _ => None,
                }
            } else {
                self.budget.poll(self.now)
            };
            if let Some(probe) = again {
                self.probes += 1;
                let time = (self.answers)(&self.budget, self.now);
                let at = time.map_or(Timestamp::FAR_FUTURE, |time| self.now + time);
                self.under_way = Some((probe, at, time));
            }
        }
        self.now = end;
    }
}

fn paper() -> Parameters {
    Parameters::paper([10 * MS])
}

fn learned() -> Parameters {
    let learning = Learning { every: Duration::from_secs(60), ..Learning::default() };
    Parameters {
        thresholds: Thresholds::Learned { objects: 2, learning },
        ..Parameters::shipped(2)
    }
}

/// Feeds samples one an epoch, and gives what each led to.
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

mod rules {
    use super::*;

    #[test]
    fn five_samples_below_let_the_budget_grow_by_one() {
        let mut budget = Budget::new(paper(), Timestamp::ZERO);
        let mut now = Timestamp::ZERO;
        let outcomes = feed(&mut budget, &mut now, &[false; 10]);
        assert_eq!(outcomes[..5], ["below", "below", "below", "below", "grown"]);
        assert_eq!((outcomes[9], budget.budget()), ("grown", 2));
    }

    #[test]
    fn an_outlier_is_probed_again_at_once_and_two_above_halve() {
        let mut budget = Budget::new(paper(), Timestamp::ZERO);
        let mut now = Timestamp::ZERO;
        feed(&mut budget, &mut now, &[false; 45]);
        assert_eq!(budget.budget(), 9);
        // The second sample of the same epoch takes the place of the outlier.
        let outcomes = feed(&mut budget, &mut now, &[false, true, false, false, false, false]);
        assert_eq!(outcomes, ["below", "again", "below", "below", "below", "grown"]);
        assert_eq!(budget.budget(), 10);
        let outcomes = feed(&mut budget, &mut now, &[false, false, false, false, true, true]);
        assert_eq!((outcomes[5], budget.budget()), ("halved", 5));
        // The five begin anew.
        let outcomes = feed(&mut budget, &mut now, &[false; 5]);
        assert_eq!((outcomes[3], outcomes[4], budget.budget()), ("below", "grown", 6));
    }

    #[test]
    fn an_answer_that_is_overdue_is_late_before_it_comes() {
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
    fn no_answer_is_a_late_one() {
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
    fn without_a_budget_a_late_sample_is_not_looked_at_again() {
        let parameters = Parameters {
            growth: Growth::DoublingFirst,
            second_look: SecondLook::WithBudget,
            ..paper()
        };
        let mut budget = Budget::new(parameters, Timestamp::ZERO);
        let mut now = Timestamp::ZERO;
        let below = [false; 4];
        assert_eq!(feed(&mut budget, &mut now, &below), ["below"; 4]);
        // The five begin anew, and it doubles all the same.
        assert_eq!(feed(&mut budget, &mut now, &[true, true]), ["halved", "halved"]);
        assert_eq!(feed(&mut budget, &mut now, &below), ["below"; 4]);
        assert_eq!(feed(&mut budget, &mut now, &[false; 11])[0], "grown");
        assert_eq!(budget.budget(), 4);
        // From now on it has something to lose.
        assert_eq!(feed(&mut budget, &mut now, &[true, true]), ["again", "halved"]);
        assert_eq!(budget.budget(), 2);
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
            // One of five is slow, as it happens to every server.
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
    fn a_start_under_load_is_mended_by_the_first_pause_at_low_load() {
        let mut server = Server::new(learned(), |_, now| {
            Some(if now < Timestamp::ZERO + 300 * EPOCH { 80 * MS } else { 4 * MS })
        });
        server.run(100);
        assert_eq!(server.budget.threshold(ObjectId(0)), Some(161 * MS));
        server.run(700);
        assert_eq!(server.budget.threshold(ObjectId(0)), Some(9 * MS));
    }

    #[test]
    fn only_who_knows_better_lets_thresholds_rise() {
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
    fn an_object_that_stays_keeps_its_threshold_and_a_new_one_has_none() {
        let mut server = Server::new(learned(), |_, now| {
            Some(if now < Timestamp::ZERO + 300 * EPOCH { 4 * MS } else { 8 * MS })
        });
        server.run(300);
        let budget = server.budget.budget();
        assert!(budget > 0);
        // The second one is the first now; two others are new.
        assert!(server.budget.relearn(server.now, &[Some(ObjectId(1)), None, Some(ObjectId(7))]));
        server.under_way = None;
        let thresholds = |budget: &Budget| [0, 1, 2].map(|place| budget.threshold(ObjectId(place)));
        assert_eq!(thresholds(&server.budget), [Some(9 * MS), None, None]);
        assert_eq!((server.budget.is_paused(), server.budget.budget()), (true, 0));
        server.run(71);
        assert_eq!(thresholds(&server.budget), [Some(9 * MS), Some(17 * MS), Some(17 * MS)]);
        // And it goes on with what it had.
        assert!(!server.budget.is_paused());
        assert_eq!(server.budget.budget(), budget);
    }

    #[test]
    fn a_refusal_halves_the_budget_and_the_five_begin_anew() {
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
}

/// Samples, clients that ask, and time that goes by.
#[derive(Clone, Copy, Debug)]
enum Event {
    Sample(u64),
    Ask(u64),
    Later(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => prop_oneof![3 => 0u64..10, 1 => 10u64..200].prop_map(Event::Sample),
        3 => any::<u64>().prop_map(Event::Ask),
        2 => (0u64..400).prop_map(Event::Later),
    ];
    prop::collection::vec(event, 0..400)
}

fn parameters() -> impl Strategy<Value = Parameters> {
    (any::<bool>(), any::<bool>(), any::<bool>(), 1u32..30, 1u32..60).prop_map(
        |(learns, doubles, first_come, document, most)| Parameters {
            growth: if doubles { Growth::DoublingFirst } else { Growth::Additive },
            rationing: if first_come { Rationing::shipped() } else { Rationing::Paper },
            document,
            most,
            ..if learns { learned() } else { paper() }
        },
    )
}

/// Runs events; after each it calls `see` with the budget, the time, and what was granted.
fn play(
    parameters: Parameters,
    events: &[Event],
    mut see: impl FnMut(&Budget, Timestamp, Option<Grant>),
) {
    let mut budget = Budget::new(parameters, Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    let mut probe = None;
    for event in events {
        let mut grant = None;
        match *event {
            Event::Later(by) => now += Duration::from_millis(by),
            Event::Ask(draw) => grant = Some(budget.ask(now, draw)),
            Event::Sample(time) => {
                let one = probe.take().or_else(|| {
                    now = now.max(budget.next_poll());
                    budget.poll(now)
                });
                if let Some(one) = one {
                    let time = Duration::from_millis(time);
                    if let Outcome::Again(again) = budget.handle_sample(now, one, Some(time)) {
                        probe = Some(again);
                    }
                }
            }
        }
        see(&budget, now, grant);
    }
}

mod safety {
    use super::*;

    proptest! {
        /// The rules of SSR §5.2.2 in as few words as they can be said.
        #[test]
        fn the_budget_is_that_of_the_rules(above in prop::collection::vec(any::<bool>(), 0..300)) {
            let mut budget = Budget::new(paper(), Timestamp::ZERO);
            let mut now = Timestamp::ZERO;
            let (mut expected, mut below, mut suspect) = (0u32, 0, false);
            for above in above {
                feed_one(&mut budget, &mut now, above);
                match (above, suspect) {
                    (true, true) => (expected, below, suspect) = (expected / 2, 0, false),
                    (true, false) => suspect = true,
                    (false, _) => {
                        suspect = false;
                        below += 1;
                        if below == 5 {
                            (expected, below) = (expected + 1, 0);
                        }
                    }
                }
                prop_assert_eq!(budget.budget(), expected);
            }
        }

        /// In any time, no more is handed out than the budget of that time, and what may be saved up.
        #[test]
        fn no_more_is_handed_out_than_the_budget(parameters in parameters(), events in events()) {
            let document = f64::from(parameters.document);
            let saved = 2.0 * document + f64::from(parameters.most) * 0.1;
            // Before any grant since: the most that was left over of what had been earned.
            let (mut earned, mut handed) = (0.0, 0.0);
            let mut least = 0.0f64;
            let (mut before, mut rate) = (Timestamp::ZERO, 0);
            let mut worst = 0.0f64;
            play(parameters, &events, |budget, now, grant| {
                earned += f64::from(rate) * now.saturating_since(before).as_secs_f64();
                (before, rate) = (now, budget.budget());
                if let Some(Grant::List { length, after }) = grant {
                    assert!(f64::from(length) <= document && after <= EPOCH);
                    handed += f64::from(length);
                }
                // The largest of handed − earned over all times that end now.
                let over = handed - earned;
                worst = worst.max(over - least);
                least = least.min(over);
            });
            prop_assert!(worst <= saved + 1e-6, "{} above the budget, {} may be saved", worst, saved);
        }

        /// In a pause, and at a budget of nothing, nobody gets anything.
        #[test]
        fn without_a_budget_lists_are_empty(parameters in parameters(), events in events()) {
            let most = parameters.most;
            play(parameters, &events, |budget, _, grant| {
                assert!(budget.budget() <= most);
                assert!(!budget.is_paused() || budget.budget() == 0);
                if budget.budget() == 0 {
                    assert!(!matches!(grant, Some(Grant::List { .. })), "{grant:?}");
                }
            });
        }

        /// Whatever samples come, no threshold ever rises.
        #[test]
        fn no_sample_raises_a_threshold(events in events()) {
            let learning = Learning {
                window: 3,
                every: Duration::from_secs(2),
                drain: EPOCH,
                ..Learning::default()
            };
            let thresholds = Thresholds::Learned { objects: 2, learning };
            let mut before = [None, None];
            let parameters = Parameters { thresholds, ..Parameters::shipped(2) };
            play(parameters, &events, |budget, _, _| {
                for (object, before) in before.iter_mut().enumerate() {
                    let threshold = budget.threshold(ObjectId(object as u32));
                    if let (Some(before), Some(threshold)) = (*before, threshold) {
                        assert!(threshold <= before);
                    }
                    assert!(threshold.is_some() || before.is_none());
                    *before = threshold;
                }
            });
        }

        /// An overload that lasts an hour after a quiet start: thresholds stay, prefetching ends.
        #[test]
        fn lasting_overload_never_becomes_normal(
            usual in 1u32..50, times in 3u32..40, begin in 60u32..2_000
        ) {
            let mut server = Server::new(learned(), |_, now| {
                let overloaded = now >= Timestamp::ZERO + begin * EPOCH;
                Some(usual * MS * if overloaded { times } else { 1 })
            });
            server.run(begin);
            let threshold = server.budget.threshold(ObjectId(0)).unwrap();
            prop_assert_eq!(threshold, 2 * usual * MS + MS);
            prop_assert!(server.budget.budget() > 0 || server.budget.is_paused());
            server.run(1_000);
            prop_assert_eq!(server.budget.budget(), 0);
            for _ in 0..35 {
                server.run(1_000);
                prop_assert_eq!(server.budget.budget(), 0);
                prop_assert_eq!(server.budget.threshold(ObjectId(0)), Some(threshold));
            }
        }

        /// A server gets one probe an epoch, and one more for each that was late.
        #[test]
        fn probes_are_few(time in 0u64..5_000, epochs in 1u32..300) {
            let time = Duration::from_millis(time);
            let mut server = Server::new(paper(), |_, _| Some(time));
            server.run(epochs);
            prop_assert!(server.probes <= 2 * epochs + 1);
            if time < 10 * MS {
                prop_assert!(server.probes <= epochs + 1);
            }
        }
    }

    fn feed_one(budget: &mut Budget, now: &mut Timestamp, above: bool) {
        // A probe that is under way is the second one of its epoch.
        let probe = match budget.sent {
            Some(sent) => sent.probe,
            None => {
                *now += EPOCH;
                budget.poll(*now).unwrap()
            }
        };
        budget.handle_sample(*now, probe, Some(if above { 20 * MS } else { MS }));
    }
}

mod liveness {
    use super::*;

    proptest! {
        /// On an idle server the budget grows by one each half second.
        #[test]
        fn an_idle_server_lets_the_budget_grow(usual in 0u32..9, epochs in 10u32..3_000) {
            let mut server = Server::new(paper(), |_, _| Some(usual * MS));
            server.run(epochs);
            prop_assert!(server.budget.budget() >= epochs / 5 - 1);
        }

        /// Single late answers don't stop it.
        #[test]
        fn outliers_do_not_stop_it(every in 2u32..50) {
            let mut count = 0;
            let mut server = Server::new(paper(), |_, _| {
                count += 1;
                Some(if count % every == 0 { 50 * MS } else { MS })
            });
            server.run(1_000);
            prop_assert!(server.budget.budget() >= 190);
        }

        /// When an overload is over it comes back, with thresholds that were learned too.
        #[test]
        fn it_comes_back_after_an_overload(begin in 100u32..1_000, length in 10u32..3_000) {
            let mut server = Server::new(learned(), |_, now| {
                let (begin, end) = (begin * EPOCH, (begin + length) * EPOCH);
                let overloaded = (Timestamp::ZERO + begin..Timestamp::ZERO + end).contains(&now);
                Some(if overloaded { 500 * MS } else { 5 * MS })
            });
            server.run(begin + length);
            server.run(700);
            // A pause takes 50 epochs of 700.
            prop_assert!(server.budget.budget() >= 100 || server.budget.is_paused());
        }

        /// A server whose answers get late above some budget is used up to about there.
        #[test]
        fn it_finds_the_knee(knee in 20u32..200) {
            let mut server =
                Server::new(paper(), |budget, _| Some(if budget.budget() > knee { 50 * MS } else { MS }));
            server.run(6 * knee);
            let mut sum = 0;
            for _ in 0..500 {
                server.run(10);
                sum += server.budget.budget();
                prop_assert!(server.budget.budget() <= knee + 1);
            }
            // A sawtooth between half and all of it has three quarters of it on average.
            let average = f64::from(sum) / 500.0 / f64::from(knee);
            prop_assert!((0.65..0.85).contains(&average), "{average}");
        }
    }

    #[test]
    fn doubling_is_at_the_most_within_seconds() {
        let parameters = Parameters { growth: Growth::DoublingFirst, most: 1_000, ..paper() };
        let mut server = Server::new(parameters, |_, _| Some(MS));
        server.run(60);
        assert_eq!(server.budget.budget(), 1_000);
    }

    /// Files a second that are handed out at a budget, if so many clients ask each second.
    fn handed_out(rationing: Rationing, budget: u32, clients: u32) -> f64 {
        let parameters = Parameters { rationing, most: budget, ..paper() };
        let mut server = Server::new(parameters, |_, _| Some(MS));
        server.run(5 * budget + 10);
        assert_eq!(server.budget.budget(), budget);
        let seconds = 400;
        let mut draw = 1u64;
        let mut files = 0;
        for ask in 0..seconds * clients {
            let now = server.now + ask * (Duration::from_secs(1) / clients);
            draw = crate::table::mix(draw.wrapping_add(0x9e37_79b9_7f4a_7c15));
            if let Grant::List { length, .. } = server.budget.ask(now, draw) {
                files += length;
            }
        }
        f64::from(files) / f64::from(seconds)
    }

    #[test]
    fn most_of_the_budget_is_handed_out_where_enough_clients_ask() {
        for (rationing, budget, clients, least) in [
            // One client a second, at a budget of a document a second.
            (Rationing::shipped(), 10, 1, 0.95),
            (Rationing::shipped(), 10, 50, 0.95),
            (Rationing::shipped(), 500, 200, 0.95),
            // By the paper's rule chance leaves a part over, and few clients most of it.
            (Rationing::Paper, 500, 200, 0.7),
            (Rationing::Paper, 50, 100, 0.6),
        ] {
            let handed = handed_out(rationing, budget, clients);
            let share = handed / f64::from(budget);
            assert!(
                (least..=1.01).contains(&share),
                "{rationing:?}, budget {budget}, {clients} clients a second: {share}"
            );
        }
    }

    #[test]
    fn who_gets_nothing_comes_again_at_a_time_of_its_own() {
        let mut budget =
            Budget::new(Parameters { rationing: Rationing::shipped(), ..paper() }, Timestamp::ZERO);
        let mut waits: Vec<Duration> = (0..100u64)
            .map(|client| match budget.ask(Timestamp::ZERO, crate::table::mix(client)) {
                Grant::Empty { again } => again,
                grant @ Grant::List { .. } => panic!("{grant:?} without a budget"),
            })
            .collect();
        waits.sort_unstable();
        assert!(waits[0] >= Duration::from_secs(1) && waits[99] <= Duration::from_secs(30));
        assert!(waits[99] - waits[0] > Duration::from_secs(20));
        waits.dedup();
        assert!(waits.len() > 90);
        let mut paper = Budget::new(paper(), Timestamp::ZERO);
        let grant = paper.ask(Timestamp::ZERO + 130 * MS, 7);
        assert_eq!(grant, Grant::Empty { again: 70 * MS }, "until the next epoch");
    }
}
