//! Properties that must eventually hold.

use proptest::prelude::*;

use super::*;

/// Carries out the scheduler's actions, at their times, until nothing waits. The upstream answers prefetches
/// after `service` seconds.
fn run_to_the_end(scheduler: &mut Scheduler, from: f64, service: f64) -> (Vec<Action>, f64) {
    let (mut now, mut seen, mut running) = (from, Vec::new(), Vec::<(f64, Id)>::new());
    for _ in 0..100_000 {
        for action in actions(scheduler, at(now)) {
            match action {
                Action::Start(id) => running.push((now + service, id)),
                Action::Abort(id, _) => running.retain(|(_, one)| *one != id),
                Action::Refuse(..) => {}
            }
            seen.push(action);
        }
        let figures = scheduler.figures(at(now));
        if figures.waiting == 0 && running.is_empty() {
            return (seen, now);
        }
        running.sort_by(|a, b| a.0.total_cmp(&b.0));
        let poll = scheduler.next_poll(at(now)).map(|poll| poll.as_nanos() as f64 / 1e9 + 1e-9);
        let end = running.first().map(|(end, _)| *end);
        now = poll.into_iter().chain(end).fold(f64::INFINITY, f64::min);
        assert!(now.is_finite(), "it waits for nothing");
        if end.is_some_and(|end| end <= now) {
            let (_, id) = running.remove(0);
            scheduler.handle_prefetch_end(at(now), id, End::Served);
        }
    }
    panic!("it does not end");
}

proptest! {
    /// With endless or no demand, and with a server that answers or hangs, each prefetch is started or
    /// refused within its patience.
    #[test]
    fn nothing_waits_longer_than_its_patience(
        prefetches in 1u64..60, demand in 0u64..4, service in prop_oneof![0.001f64..1.0, Just(1e9)],
    ) {
        let mut scheduler = Scheduler::new(Parameters::default());
        for id in 0..demand {
            scheduler.handle_demand(at(0.0), 1_000 + id, 0);
        }
        for id in 0..prefetches {
            scheduler.handle_prefetch(at(0.0), prefetch(id, id, 1.0), Duration::ZERO);
        }
        let (seen, end) = run_to_the_end(&mut scheduler, 0.0, service);
        let is_answer = |action: &&Action| !matches!(action, Action::Abort(..));
        prop_assert_eq!(seen.iter().filter(is_answer).count() as u64, prefetches);
        prop_assert!(end <= 10.0 + 2.0 + service.min(10.0) + 0.1, "{end}");
    }
}

#[test]
fn idle_upstream_serves_prefetches_by_their_priority() {
    let mut scheduler = Scheduler::new(Parameters::default());
    for (id, priority) in [(1, 0.1), (2, 0.9), (3, 0.5)] {
        scheduler.handle_prefetch(at(0.0), prefetch(id, id, priority), Duration::ZERO);
    }
    let (seen, _) = run_to_the_end(&mut scheduler, 0.0, 0.01);
    assert_eq!(seen, [Action::Start(2), Action::Start(3), Action::Start(1)]);
}

#[test]
fn prefetch_is_aborted_for_demand_and_can_be_repeated() {
    let mut scheduler = Scheduler::new(Parameters::default());
    scheduler.handle_prefetch(at(0.0), prefetch(1, 1, 1.0), Duration::ZERO);
    assert_eq!(actions(&mut scheduler, at(0.0)), [Action::Start(1)]);
    scheduler.handle_demand(at(0.01), 2, 0);
    assert_eq!(actions(&mut scheduler, at(0.01)), [Action::Abort(1, Aborted::Demand)]);
    scheduler.handle_prefetch(at(0.01), prefetch(3, 1, 1.0), Duration::from_secs(9));
    scheduler.handle_demand_end(at(0.03), 2, End::Served);
    let (seen, end) = run_to_the_end(&mut scheduler, 0.03, 0.01);
    assert_eq!(seen, [Action::Start(3)]);
    assert!(end < 1.0);
    // With constant demand it has no more than the rest of its patience.
    scheduler.handle_demand(at(1.0), 4, 0);
    scheduler.handle_prefetch(at(1.0), prefetch(5, 1, 1.0), Duration::from_secs(9));
    let (seen, end) = run_to_the_end(&mut scheduler, 1.0, 0.01);
    assert_eq!(seen, [Action::Refuse(5, Refused::Waited)]);
    assert!((2.0..2.1).contains(&end), "{end}");
}

#[test]
fn long_poll_and_slow_download_stop_counting_as_demand() {
    let mut scheduler = Scheduler::new(Parameters::default());
    scheduler.handle_demand(at(0.0), 1, 0);
    scheduler.handle_demand(at(0.0), 2, 0);
    scheduler.handle_head(at(1.0), 2);
    scheduler.handle_prefetch(at(5.0), prefetch(3, 1, 1.0), Duration::ZERO);
    assert_eq!(scheduler.figures(at(5.0)).demand, 1);
    let (seen, end) = run_to_the_end(&mut scheduler, 5.0, 0.01);
    assert_eq!(seen, [Action::Start(3)]);
    assert!((10.0..10.1).contains(&end), "{end}");
}

#[test]
fn server_that_hangs_for_prefetches_is_tried_ever_more_rarely() {
    let mut scheduler = Scheduler::new(Parameters::default());
    let (mut now, mut starts) = (0.0, Vec::new());
    let mut next_id = 0;
    while now < 600.0 {
        if scheduler.figures(at(now)).waiting == 0 {
            next_id += 1;
            scheduler.handle_prefetch(at(now), prefetch(next_id, next_id, 1.0), Duration::ZERO);
        }
        let done = actions(&mut scheduler, at(now));
        starts.extend(done.iter().filter(|one| matches!(one, Action::Start(_))).map(|_| now));
        now += 0.25;
    }
    assert!((6..=16).contains(&starts.len()), "{starts:?}");
    assert!(scheduler.figures(at(now)).is_backing_off || starts.len() < 16);
    assert!(matches!(scheduler.room(at(now), 10), Room::Later(_)) || starts.len() < 16);
}

#[test]
fn hint_lists_are_limited_by_queue_drain() {
    let mut scheduler = Scheduler::new(Parameters::default());
    assert_eq!(scheduler.room(at(0.0), 10), Room::Hints(10));
    // They were given, and no prefetch has come.
    let mut hints: u32 = 10;
    for _ in 0..50 {
        if let Room::Hints(more) = scheduler.room(at(0.0), 10) {
            hints += more;
        }
    }
    assert!(hints <= 40, "{hints}");
    // So none is expected; half a minute later the next client gets a list.
    assert_eq!(scheduler.room(at(30.0), 10), Room::Hints(10));
    // A server that serves ten per second has longer lists than one that serves one.
    let lists = |each: f64| {
        let mut scheduler = Scheduler::new(Parameters::default());
        for id in 0..200 {
            let now = id as f64 * each;
            scheduler.handle_prefetch(at(now), prefetch(id, id, 1.0), Duration::ZERO);
            if let Some(Action::Start(id)) = scheduler.poll(at(now)) {
                scheduler.handle_prefetch_end(at(now + each / 2.0), id, End::Served);
            }
        }
        let now = 200.0 * each;
        scheduler.handle_demand(at(now), 10_000, 0);
        for id in 1_000..1_011 {
            scheduler.handle_prefetch(at(now), prefetch(id, id, 1.0), Duration::ZERO);
        }
        match scheduler.room(at(now), 10) {
            Room::Hints(hints) => hints,
            Room::Later(_) => 0,
        }
    };
    assert!(lists(0.1) >= 5 && lists(1.0) == 0, "{} {}", lists(0.1), lists(1.0));
}
