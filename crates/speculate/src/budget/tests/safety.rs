//! Properties that must always hold.

use super::*;

/// Samples, clients that ask, and elapsed time.
#[derive(Clone, Copy, Debug)]
enum Event {
    Sample(u64),
    Ask(Wanted, u64),
    Later(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => prop_oneof![3 => 0u64..10, 1 => 10u64..200].prop_map(Event::Sample),
        3 => (0u32..40, any::<bool>(), any::<bool>(), any::<u64>()).prop_map(
            |(files, pointed, first, draw)| Event::Ask(Wanted { files, pointed, first }, draw),
        ),
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

/// Runs events; after each it calls `see` with the budget, the time, and the grant.
fn play(
    parameters: Parameters,
    events: &[Event],
    mut see: impl FnMut(&Budget, Timestamp, Option<(Wanted, Grant)>),
) {
    let mut budget = Budget::new(parameters, Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    let mut probe = None;
    for event in events {
        let mut grant = None;
        match *event {
            Event::Later(by) => now += Duration::from_millis(by),
            Event::Ask(wanted, draw) => {
                let got = budget.ask(now, wanted, draw);
                if let Grant::List { length, .. } = got {
                    assert!(length <= wanted.files, "{length} of {wanted:?}");
                }
                grant = Some((wanted, got));
            }
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

proptest! {
    /// The rules of SSR §5.2.2 in the shortest form.
    #[test]
    fn budget_obeys_the_rules(above in prop::collection::vec(any::<bool>(), 0..300)) {
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

    /// In any time, at most the budget of that time and the saved earnings are given out.
    #[test]
    fn granted_requests_never_exceed_the_budget(parameters in parameters(), events in events()) {
        let document = f64::from(parameters.document);
        let saved = 2.0 * document + f64::from(parameters.most) * 0.1;
        // Before any grant since: the largest unused part of the earned budget.
        let (mut earned, mut handed) = (0.0, 0.0);
        let mut least = 0.0f64;
        let (mut before, mut rate) = (Timestamp::ZERO, 0);
        let mut worst = 0.0f64;
        play(parameters, &events, |budget, now, grant| {
            earned += f64::from(rate) * now.saturating_since(before).as_secs_f64();
            (before, rate) = (now, budget.budget());
            if let Some((wanted, Grant::List { length, after })) = grant {
                assert!(f64::from(length) <= document && after <= EPOCH);
                handed += f64::from(length + u32::from(wanted.pointed));
            }
            // The largest of handed − earned over all times that end now.
            let over = handed - earned;
            worst = worst.max(over - least);
            least = least.min(over);
        });
        prop_assert!(worst <= saved + 1e-6, "{} above the budget, {} may be saved", worst, saved);
    }

    /// In a pause, and at a budget of zero, no client gets a list.
    #[test]
    fn without_a_budget_lists_are_empty(parameters in parameters(), events in events()) {
        let most = parameters.most;
        play(parameters, &events, |budget, _, grant| {
            assert!(budget.budget() <= most);
            assert!(!budget.is_paused() || budget.budget() == 0);
            if budget.budget() == 0 {
                assert!(!matches!(grant, Some((_, Grant::List { .. }))), "{grant:?}");
            }
        });
    }

    /// No sequence of samples raises a threshold.
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

    /// A server gets one probe an epoch, and one more for each late one.
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
    // A probe in progress is the second one of its epoch.
    let probe = match budget.sent {
        Some(sent) => sent.probe,
        None => {
            *now += EPOCH;
            budget.poll(*now).unwrap()
        }
    };
    budget.handle_sample(*now, probe, Some(if above { 20 * MS } else { MS }));
}
