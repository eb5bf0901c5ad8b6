use super::*;

/// The consequence of this many failures of one object in a row.
fn fails(state: &mut State, place: u32, path: &str) -> Failing {
    let mut last = Failing::Bearable;
    for _ in 0..MAX_FAILURES {
        assert_eq!(last, Failing::Bearable);
        last = state.failed(ObjectId(place), path);
    }
    last
}

#[test]
fn failure_is_blamed_on_an_object_if_others_answer() {
    let mut state = State { failures: vec![0; 2], ..State::default() };
    assert_eq!(fails(&mut state, 1, "/b"), Failing::Alone { is_new: true });
    assert_eq!(state.failed(ObjectId(1), "/b"), Failing::Alone { is_new: false });
    assert_eq!(state.given_up, ["/b"]);
    // Then all objects fail, which is reported once.
    assert_eq!(fails(&mut state, 0, "/a"), Failing::All { is_new: true });
    assert_eq!(state.failed(ObjectId(1), "/b"), Failing::All { is_new: false });
    // An answer in between resets the count of its own object.
    state.answered(ObjectId(1), "/b");
    assert!(state.given_up.is_empty());
    assert_eq!(state.failed(ObjectId(0), "/a"), Failing::Alone { is_new: true });
    state.answered(ObjectId(0), "/a");
    assert_eq!(fails(&mut state, 1, "/b"), Failing::Alone { is_new: true });
}

#[test]
fn list_of_dropped_objects_is_bounded() {
    for number in 0..3 * MAX_GIVEN_UP {
        let mut state = State { failures: vec![0; 2], ..State::default() };
        state.given_up = (0..number).map(|one| format!("/{one}")).collect();
        state.given_up.truncate(MAX_GIVEN_UP);
        fails(&mut state, 0, "/last");
        assert!(state.given_up.len() <= MAX_GIVEN_UP);
        assert_eq!(state.given_up.last().map(String::as_str), Some("/last"));
    }
}

const MS: Duration = Duration::from_millis(1);

fn names(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

/// A monitor that has learned that answers for these objects take this long.
fn known(paths: &[&str], time: Duration) -> (Monitor, Timestamp) {
    let monitor = Monitor::new(MonitorSettings::default());
    monitor.watch_objects(names(paths), Timestamp::ZERO);
    let now = learn(&monitor, Timestamp::ZERO, time);
    (monitor, now)
}

/// Simulates the time in which the thresholds are learned.
fn learn(monitor: &Monitor, mut now: Timestamp, time: Duration) -> Timestamp {
    for _ in 0..200 {
        now += 100 * MS;
        let probe = monitor.state().poll(now, true);
        if let Some(probe) = probe {
            monitor.handle_sample(now, probe, Some(time));
        }
        if !monitor.figures().paused {
            return now;
        }
    }
    panic!("{:?} are not learned", monitor.figures());
}

fn one(path: &str, threshold: Option<u128>) -> (String, Option<u128>) {
    (path.to_owned(), threshold)
}

/// The objects with their thresholds, in milliseconds.
fn shown(monitor: &Monitor) -> Vec<(String, Option<u128>)> {
    let objects = monitor.figures().objects.into_iter();
    objects.map(|(path, threshold)| (path, threshold.map(|time| time.as_millis()))).collect()
}

#[test]
fn epoch_needs_a_sample_while_learning_and_after_a_request() {
    let learning = Monitor::new(MonitorSettings::default());
    learning.watch_objects(names(&["/a"]), Timestamp::ZERO);
    assert!(learning.state().is_busy(Timestamp::ZERO));
    let (monitor, now) = known(&["/a"], 10 * MS);
    assert!(!monitor.state().is_busy(now));
    monitor.ask(now, Wanted { files: 1, pointed: false, first: true });
    assert!(monitor.state().is_busy(now + (RECENT_REQUEST - MS)));
    assert!(!monitor.state().is_busy(now + RECENT_REQUEST));
}

#[test]
fn objects_change_in_a_pause_and_kept_ones_keep_thresholds() {
    let (monitor, mut now) = known(&["/a", "/b"], 10 * MS);
    assert_eq!(shown(&monitor), [one("/a", Some(21)), one("/b", Some(21))]);
    assert!(!monitor.state().chooses);
    while !monitor.figures().paused {
        now += 100 * MS;
        let probe = monitor.state().poll(now, true);
        if let Some(probe) = probe {
            monitor.handle_sample(now, probe, Some(10 * MS));
        }
    }
    assert!(std::mem::take(&mut monitor.state().chooses));
    monitor.go_on_with(names(&["/c", "/a"]), now);
    assert_eq!(shown(&monitor), [one("/c", None), one("/a", Some(21))]);
    // Samples of visitors' requests belong to the new ones.
    monitor.answered("/c", now, 5 * MS);
    monitor.answered("/b", now, 7 * MS);
    assert_eq!(monitor.state().seen, [Some((now, 5 * MS)), None]);
    now = learn(&monitor, now, 30 * MS);
    assert_eq!(shown(&monitor), [one("/c", Some(61)), one("/a", Some(21))]);
    // The same ones, or none that are known: nothing changes.
    for same in [&["/c", "/a"][..], &[]] {
        monitor.go_on_with(names(same), now);
        assert_eq!(shown(&monitor)[1], one("/a", Some(21)));
        assert!(!monitor.figures().paused);
    }
}

#[test]
fn relearn_forgets_all_thresholds() {
    for after in [&["/a", "/b"][..], &["/b", "/c"], &[]] {
        let (monitor, now) = known(&["/a", "/b"], 10 * MS);
        monitor.state().given_up = names(&["/gone"]);
        monitor.relearn();
        assert!(monitor.state().chooses);
        assert!(monitor.state().given_up.is_empty());
        monitor.go_on_with(names(after), now);
        let after = if after.is_empty() { &["/a", "/b"][..] } else { after };
        let all = |threshold| -> Vec<_> { after.iter().map(|path| one(path, threshold)).collect() };
        assert_eq!(shown(&monitor), all(None));
        learn(&monitor, now, 30 * MS);
        assert_eq!(shown(&monitor), all(Some(61)));
        assert!(!monitor.state().forgets);
    }
}

#[test]
fn visitor_samples_count_while_a_probe_is_due() {
    let (monitor, mut now) = known(&["/slow", "/fast"], 10 * MS);
    for _ in 0..21 {
        now += 100 * MS;
        let probe = monitor.state().poll(now, true).unwrap();
        monitor.handle_sample(now, probe, Some(10 * MS));
    }
    let before = monitor.figures().budget;
    assert!(before >= 8 && monitor.state().turn == 0, "{before}");
    // The monitor may not probe now, and there are no samples so far.
    assert_eq!(monitor.state().poll(now + 100 * MS, false), None);
    for _ in 0..20 {
        now += 50 * MS;
        monitor.answered("/fast", now, 300 * MS);
        let Some(probe) = monitor.state().poll(now, false) else { continue };
        assert_eq!(probe.object, ObjectId(1));
        let time = monitor.state().take_seen(probe.object, now);
        if let Some(Outcome::Again(again)) = monitor.handle_sample(now, probe, time) {
            // There is no second sample.
            monitor.handle_sample(now, again, None);
        }
    }
    assert!(monitor.figures().budget <= before / 2, "{:?}", monitor.figures());
    // It has not lost its turn.
    now += 100 * MS;
    assert_eq!(monitor.state().poll(now, true).unwrap().object, ObjectId(0));
}

#[test]
fn log_rotation_raises_no_threshold() {
    let (monitor, now) = known(&["/a", "/b"], 10 * MS);
    monitor.state().given_up = names(&["/gone"]);
    monitor.choose();
    assert!(monitor.state().given_up.is_empty());
    choose(&monitor, &["/b", "/c"], now);
    assert_eq!(shown(&monitor), [one("/b", Some(21)), one("/c", None)]);
    learn(&monitor, now, 30 * MS);
    assert_eq!(shown(&monitor), [one("/b", Some(21)), one("/c", Some(61))]);
}

#[test]
fn thresholds_survive_a_restart() {
    let (monitor, now) = known(&["/a"], 10 * MS);
    assert_eq!(monitor.time_changes(), 1);
    let kept = monitor.encode_times();
    let after = Monitor::new(MonitorSettings::default());
    after.take_times(&kept);
    after.watch_objects(names(&["/a", "/b"]), Timestamp::ZERO);
    assert_eq!(shown(&after), [one("/a", Some(21)), one("/b", None)]);
    learn(&after, Timestamp::ZERO, 300 * MS);
    assert_eq!(shown(&after), [one("/a", Some(21)), one("/b", Some(601))]);
    // Until the owner reports a change of the server, which has effect at once.
    monitor.relearn();
    assert_eq!(monitor.encode_times(), KEPT_TIMES);
    choose(&monitor, &["/a"], now);
    assert_eq!(shown(&monitor), [one("/a", None)]);
}

/// Chooses objects again, as `run` does when that is due.
fn choose(monitor: &Monitor, objects: &[&str], now: Timestamp) {
    assert!(monitor.state().chooses, "nothing is to be chosen");
    monitor.go_on_with(names(objects), now);
}

/// One answer per object is unusable, repeated until this has an effect.
fn fall(monitor: &Monitor, paths: &[&str], mut now: Timestamp) -> Timestamp {
    for _ in 0..MAX_FAILURES {
        for (place, path) in (0..).zip(paths) {
            now += 100 * MS;
            let probe = monitor.state().poll(now, true);
            if let Some(probe) = probe {
                monitor.handle_sample(now, probe, None);
            }
            monitor.failed(now, ObjectId(place), path);
        }
    }
    now
}

#[test]
fn overload_after_an_outage_does_not_raise_thresholds() {
    let objects = &["/a", "/b"];
    let (monitor, now) = known(objects, 10 * MS);
    let now = fall(&monitor, objects, now);
    // Others are requested most meanwhile, and then the same ones again.
    choose(&monitor, &["/c", "/d"], now);
    let now = fall(&monitor, &["/c", "/d"], now);
    choose(&monitor, objects, now);
    assert_eq!(shown(&monitor), [one("/a", Some(21)), one("/b", Some(21))]);
    let mut now = learn(&monitor, now, 300 * MS);
    assert_eq!(shown(&monitor), [one("/a", Some(21)), one("/b", Some(21))]);
    // So its answers are late, and there is no budget.
    for _ in 0..50 {
        now += 100 * MS;
        let probe = monitor.state().poll(now, true);
        if let Some(probe) = probe {
            monitor.handle_sample(now, probe, Some(300 * MS));
        }
        assert_eq!(monitor.figures().budget, 0);
    }
}

#[test]
fn budget_does_not_double_again_after_an_outage() {
    let objects = &["/a"];
    let (monitor, now) = known(objects, 10 * MS);
    // The worth of two documents: until then it doubles, whether it is used or not.
    let grow = |mut now: Timestamp, samples: u32| {
        for _ in 0..samples {
            now += 100 * MS;
            let probe = monitor.state().poll(now, true).unwrap();
            monitor.handle_sample(now, probe, Some(10 * MS));
        }
        (now, monitor.figures().budget)
    };
    let (now, before) = grow(now, 20);
    assert_eq!(before, 8);
    let now = fall(&monitor, objects, now);
    choose(&monitor, objects, now);
    assert_eq!(monitor.figures().budget, 0);
    let (_, after) = grow(now, 20);
    assert_eq!(after, 4);
}

#[test]
fn answering_objects_keep_thresholds_when_another_is_dropped() {
    let (monitor, now) = known(&["/a", "/b"], 10 * MS);
    for _ in 0..MAX_FAILURES {
        monitor.state().answered(ObjectId(0), "/a");
        monitor.failed(now, ObjectId(1), "/b");
    }
    choose(&monitor, &["/a"], now);
    assert_eq!(shown(&monitor), [one("/a", Some(21))]);
    learn(&monitor, now, 300 * MS);
    assert_eq!(shown(&monitor), [one("/a", Some(21))]);
}

#[test]
fn configured_thresholds_are_not_learned_again() {
    let parameters = Some(Parameters::paper([20 * MS]));
    let monitor = Monitor::new(MonitorSettings { objects: names(&["/a"]), parameters });
    monitor.watch_objects(names(&["/a"]), Timestamp::ZERO);
    monitor.relearn();
    monitor.go_on_with(names(&["/b"]), Timestamp::ZERO);
    assert_eq!(shown(&monitor), [one("/a", Some(20))]);
}

#[test]
fn refusals_halve_the_budget_once_a_second() {
    let parameters = Some(Parameters::paper([20 * MS]));
    let monitor = Monitor::new(MonitorSettings { objects: names(&["/a"]), parameters });
    monitor.refused(Timestamp::ZERO);
    let mut now = Timestamp::ZERO + Duration::from_secs(10);
    monitor.watch_objects(names(&["/a"]), now);
    for _ in 0..40 {
        now += 100 * MS;
        let probe = monitor.state().poll(now, true).unwrap();
        monitor.handle_sample(now, probe, Some(MS));
    }
    assert_eq!(monitor.figures().budget, 8);
    for (later, expected) in [(0u32, 4), (1, 4), (999, 4), (1_000, 2), (2_000, 1), (3_000, 0)] {
        monitor.refused(now + later * MS);
        assert_eq!(monitor.figures().budget, expected, "{later} ms later");
    }
}

#[test]
fn missing_budget_is_explained_after_an_hour() {
    let hour = Duration::from_secs(3_600);
    let (monitor, now) = known(&["/a"], 10 * MS);
    let check = |now| monitor.state().check_starvation(now, true);
    assert_eq!((check(now), check(now + hour)), (None, Some(LATE)));
    let learning = Monitor::new(MonitorSettings::default());
    let check = |now| learning.state().check_starvation(now, true);
    assert_eq!((check(now), check(now + hour)), (None, Some(UNKNOWN)));
}

/// Makes the server late until there is no budget, as seen by the monitor.
fn overload(monitor: &Monitor, mut now: Timestamp) -> Timestamp {
    for _ in 0..20 {
        now += 100 * MS;
        let probe = monitor.state().poll(now, true);
        let mut next = probe;
        while let Some(probe) = next {
            next = monitor.take_sample(now, probe, Some(300 * MS));
        }
    }
    assert_eq!(monitor.figures().budget, 0);
    now
}

#[test]
fn loaded_server_is_not_probed_while_visitors_give_samples() {
    let (monitor, now) = known(&["/a"], 10 * MS);
    monitor.answered("/a", now, 10 * MS);
    assert!(!monitor.state().has_visitor_samples(now), "it is not loaded, as far as is known");
    let now = overload(&monitor, now);
    assert!(!monitor.state().has_visitor_samples(now), "no recent samples");
    monitor.answered("/other", now, 10 * MS);
    assert!(!monitor.state().has_visitor_samples(now), "nor does another object");
    monitor.answered("/a", now, 300 * MS);
    assert!(monitor.state().has_visitor_samples(now + 999 * MS));
    assert!(!monitor.state().has_visitor_samples(now + 1_000 * MS), "they are gone");
    // A late answer some seconds ago does not describe the present.
    let later = now + 5_000 * MS;
    monitor.answered("/a", later, 10 * MS);
    assert!(!monitor.state().has_visitor_samples(later));
}

#[test]
fn pages_of_a_loaded_server_wait_before_they_ask() {
    let (monitor, now) = known(&["/a"], 10 * MS);
    assert_eq!(monitor.wait(now), None, "there is no budget yet, and nothing was late");
    let now = overload(&monitor, now);
    let waits: Vec<Duration> = (0..100).filter_map(|_| monitor.wait(now)).collect();
    assert_eq!(waits.len(), 100);
    assert!(waits.iter().all(|wait| (1..30).contains(&wait.as_secs())), "{waits:?}");
    let early = waits.iter().filter(|wait| wait.as_secs() < 15).count();
    assert!((20..80).contains(&early), "they come in step: {waits:?}");
    assert_eq!(monitor.wait(now + 5_000 * MS), None);
    // As soon as there is a budget no client waits.
    let mut later = now;
    while monitor.figures().budget == 0 {
        assert!(later < now + 4_000 * MS, "{:?}", monitor.figures());
        later += 100 * MS;
        let probe = monitor.state().poll(later, true).unwrap();
        monitor.take_sample(later, probe, Some(10 * MS));
    }
    assert_eq!(monitor.wait(later), None);
}

#[test]
fn pages_never_wait_with_the_budget_of_the_paper() {
    let parameters = Some(Parameters::paper([20 * MS]));
    let monitor = Monitor::new(MonitorSettings { objects: names(&["/a"]), parameters });
    monitor.watch_objects(names(&["/a"]), Timestamp::ZERO);
    let now = overload(&monitor, Timestamp::ZERO);
    assert_eq!(monitor.wait(now), None);
}
