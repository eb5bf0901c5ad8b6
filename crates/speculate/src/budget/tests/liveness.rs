//! Properties that must eventually hold.

use super::*;

proptest! {
    /// On an idle server the budget grows by one each half second.
    #[test]
    fn budget_grows_on_an_idle_server(usual in 0u32..9, epochs in 10u32..3_000) {
        let mut server = Server::new(paper(), |_, _| Some(usual * MS));
        server.run(epochs);
        prop_assert!(server.budget.budget() >= epochs / 5 - 1);
    }

    /// Single late answers don't stop it.
    #[test]
    fn single_late_answers_do_not_stop_growth(every in 2u32..50) {
        let mut count = 0;
        let mut server = Server::new(paper(), |_, _| {
            count += 1;
            Some(if count % every == 0 { 50 * MS } else { MS })
        });
        server.run(1_000);
        prop_assert!(server.budget.budget() >= 190);
    }

    /// After an overload it recovers, also with learned thresholds.
    #[test]
    fn budget_recovers_after_an_overload(begin in 100u32..1_000, length in 10u32..3_000) {
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

    /// A server whose answers become late above some budget is used up to about there.
    #[test]
    fn budget_finds_the_knee(knee in 20u32..200) {
        let mut server =
            Server::new(paper(), |budget, _| Some(if budget.budget() > knee { 50 * MS } else { MS }));
        server.run(6 * knee);
        let mut sum = 0;
        for _ in 0..500 {
            server.run(10);
            sum += server.budget.budget();
            prop_assert!(server.budget.budget() <= knee + 1);
        }
        // A sawtooth between half and all of it has an average of three quarters of it.
        let average = f64::from(sum) / 500.0 / f64::from(knee);
        prop_assert!((0.65..0.85).contains(&average), "{average}");
    }
}

#[test]
fn doubling_reaches_the_maximum_within_seconds() {
    let parameters = Parameters { growth: Growth::DoublingFirst, most: 1_000, ..paper() };
    let mut server = Server::new(parameters, |_, _| Some(MS));
    server.run(60);
    assert_eq!(server.budget.budget(), 1_000);
}

/// Files per second granted at a budget, if this many clients ask per second.
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
        if let Grant::List { length, .. } = server.budget.ask(now, FIRST, draw) {
            files += length;
        }
    }
    f64::from(files) / f64::from(seconds)
}

#[test]
fn most_of_the_budget_is_used_if_enough_clients_ask() {
    for (rationing, budget, clients, least) in [
        // One client per second, at a budget of a document per second.
        (Rationing::shipped(), 10, 1, 0.95),
        (Rationing::shipped(), 10, 50, 0.95),
        (Rationing::shipped(), 500, 200, 0.95),
        // By the paper's rule chance leaves a part unused, and with few clients most of it.
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
fn clients_without_a_list_retry_at_different_times() {
    let mut budget =
        Budget::new(Parameters { rationing: Rationing::shipped(), ..paper() }, Timestamp::ZERO);
    let mut waits: Vec<Duration> = (0..100u64)
        .map(|client| match budget.ask(Timestamp::ZERO, FIRST, crate::table::mix(client)) {
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
    let grant = paper.ask(Timestamp::ZERO + 130 * MS, FIRST, 7);
    assert_eq!(grant, Grant::Empty { again: 70 * MS }, "until the next epoch");
}

/// A budget of this many requests per second, which is used up.
fn spent(
    rationing: Rationing,
    budget: u32,
) -> Server<impl FnMut(&Budget, Timestamp) -> Option<Duration>> {
    let parameters = Parameters { rationing, most: budget, ..paper() };
    let mut server = Server::new(parameters, |_, _| Some(MS));
    server.run(5 * budget + 10);
    for _ in 0..100 {
        let _ = server.budget.ask(server.now, FIRST, 0);
    }
    server
}

#[test]
fn list_costs_its_number_of_files() {
    // Saved earnings of two documents, and those of one epoch.
    for (files, pointed, lists) in [
        (1, false, 21),
        (4, false, 5),
        (10, false, 2),
        (32, false, 2),
        // Hover hints cost one, for any length of the list.
        (0, true, 21),
        (4, true, 4),
        (10, true, 1),
        (32, true, 1),
    ] {
        let mut server = spent(Rationing::shipped(), 10);
        server.run(20);
        let wanted = Wanted { files, pointed, ..FIRST };
        let granted = (0..100)
            .filter(|_| matches!(server.budget.ask(server.now, wanted, 0), Grant::List { .. }));
        assert_eq!(granted.count(), lists, "of {files} files, pointed: {pointed}");
    }
}

#[test]
fn later_lists_leave_a_document_for_new_clients() {
    let again = Wanted { first: false, ..FIRST };
    for (rationing, is_left) in [(Rationing::shipped(), true), (Rationing::Paper, false)] {
        let mut server = spent(rationing, 100);
        // By the paper's rule, the first client of an epoch in which none was expected.
        server.run(1);
        let grant = server.budget.ask(server.now, again, 0);
        assert_eq!(matches!(grant, Grant::Empty { .. }), is_left, "{rationing:?}");
        if is_left {
            let grant = server.budget.ask(server.now, FIRST, 0);
            assert!(matches!(grant, Grant::List { length: 10, .. }), "{grant:?}");
            server.run(2);
            let grant = server.budget.ask(server.now, again, 0);
            assert!(matches!(grant, Grant::List { .. }), "of two documents: {grant:?}");
        }
    }
}

#[test]
fn small_budget_reaches_clients_that_had_a_list() {
    let again = Wanted { files: 32, pointed: true, first: false };
    for budget in 1..=9 {
        let mut server = spent(Rationing::shipped(), budget);
        // The time to earn two documents, at this many requests a second.
        server.run(200 / budget + 10);
        let grant = server.budget.ask(server.now, again, 0);
        assert!(matches!(grant, Grant::List { length: 10, .. }), "{budget}: {grant:?}");
    }
}

#[test]
fn deferred_client_retries_when_the_budget_suffices() {
    let longest = |server: &mut Server<_>| {
        let waits = (0..50u64).filter_map(|draw| match ask(server, draw) {
            Grant::Empty { again } => Some(again),
            Grant::List { .. } => None,
        });
        waits.max().unwrap()
    };
    fn ask<F: FnMut(&Budget, Timestamp) -> Option<Duration>>(
        server: &mut Server<F>,
        draw: u64,
    ) -> Grant {
        server.budget.ask(server.now, FIRST, crate::table::mix(draw))
    }
    // One hundred clients have come already, so ten documents per second are enough for them in ten.
    let second = Duration::from_secs(1);
    for (budget, least, most) in [(1, 20, 30), (100, 10, 16), (1_000, 1, 3)] {
        let mut server = spent(Rationing::shipped(), budget);
        let longest = longest(&mut server);
        assert!((least * second..=most * second).contains(&longest), "{budget}: {longest:?}");
    }
    // Once they have been served, or never come, the next client waits only for its own list.
    for served in [true, false] {
        let mut server = spent(Rationing::shipped(), 100);
        for _ in 0..if served { 300 } else { 3_000 } {
            server.run(1);
            let _ = served.then(|| ask(&mut server, 0));
        }
        // Two documents and those of an epoch are saved up.
        let grants = [(); 4].map(|()| ask(&mut server, u64::MAX));
        let Grant::Empty { again } = grants[3] else { panic!("{grants:?}") };
        assert!(again <= 2 * second, "{again:?}");
    }
}

#[test]
fn pauses_take_a_twentieth_of_the_time_at_any_server_speed() {
    for usual in [1, 100, 1_000] {
        let mut server = Server::new(Parameters::shipped(2), |_, _| Some(usual * MS));
        let (mut paused, mut at_first) = (0u32, true);
        let mut pauses = 0;
        for _ in 0..100_000 {
            let before = server.budget.is_paused();
            server.run(1);
            pauses += u32::from(!before && server.budget.is_paused());
            at_first &= server.budget.is_paused();
            paused += u32::from(server.budget.is_paused() && !at_first);
        }
        assert!(pauses >= 8, "{usual} ms: {pauses}");
        assert!(paused <= 100_000 / 20, "{usual} ms: {paused}");
    }
}

#[test]
fn progress_is_that_of_the_least_sampled_object() {
    let mut server = Server::new(Parameters::shipped(2), |_, _| Some(MS));
    let mut seen = Vec::new();
    for _ in 0..100 {
        server.run(1);
        seen.extend(server.budget.progress());
    }
    assert_eq!((seen.first(), seen.last()), (Some(&(0, 20)), Some(&(19, 20))));
    assert!(seen.is_sorted());
    assert_eq!(server.budget.progress(), None);
}

#[test]
fn first_visitor_of_a_quiet_site_meets_no_pause() {
    let mut server = Server::new(Parameters::shipped(2), |_, _| Some(MS));
    server.run(100);
    let mut met = 0;
    for _ in 0..100 {
        // No client for an hour, and then one for ten seconds.
        server.now += Duration::from_secs(3_600);
        server.run(1);
        met += u32::from(server.budget.is_paused());
        server.run(99);
    }
    assert!(met <= 15, "{met} of 100");
}

/// The default, with known thresholds, after this many seconds in which this many clients a second ask for a
/// list.
fn after_asking(seconds: u32, clients: u32) -> u32 {
    let thresholds = Thresholds::Given(vec![10 * MS]);
    let parameters = Parameters { thresholds, ..Parameters::shipped(1) };
    let mut server = Server::new(parameters, |_, _| Some(MS));
    for epoch in 0..seconds * 10 {
        server.run(1);
        for client in 0..clients / 10 {
            let draw = crate::table::mix(u64::from(epoch * clients + client));
            let _ = server.budget.ask(server.now, FIRST, draw);
        }
    }
    server.budget.budget()
}

#[test]
fn unused_budget_stays_at_two_documents() {
    let budget = after_asking(600, 0);
    assert!((20..40).contains(&budget), "{budget}");
}

#[test]
fn used_budget_grows() {
    for (clients, expected) in [(10, 100..400), (100, 1_000..4_000)] {
        let budget = after_asking(10, clients);
        assert!(expected.contains(&budget), "{clients} clients a second: {budget}");
    }
}
