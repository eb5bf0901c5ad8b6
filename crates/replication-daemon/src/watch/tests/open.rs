//! Files that stay open, or change all the time.

use super::*;

#[test]
fn restless_file_is_retried_with_backoff() {
    let mut plan = Plan::default();
    let all: Names = [(Name::new(), Depth::Whole)].into();
    let restless = ScanResult { restless: [Name::from("a")].into(), ..ScanResult::default() };
    let mut waits = Vec::new();
    let mut now = 0;
    for _ in 0..6 {
        plan.handle_scan(at(now), &all, &restless);
        let next = plan.poll_timeout().expect("it is looked at again").as_nanos() / 1_000_000;
        waits.push(next - now);
        now = next;
        assert_eq!(names(plan.take(at(now))), ["a"]);
    }
    assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 8_000, 8_000]);
    plan.handle_scan(at(now), &all, &ScanResult::default());
    plan.handle_scan(at(now), &all, &restless);
    assert_eq!(plan.poll_timeout(), Some(at(now + 1_000)), "it was at rest in between");
}

#[test]
fn open_file_is_scanned_when_quiet() {
    let mut plan = Plan::default();
    plan.handle(at(0), written("log"));
    plan.handle(at(9_000), written("log"));
    assert_eq!(plan.poll_timeout(), Some(at(19_000)));
    assert!(plan.awaits(&"log".into()));
    assert_eq!(plan.take(at(18_999)), None);
    assert_eq!(names(plan.take(at(19_000))), ["log"]);
    assert_eq!(plan.poll_timeout(), None);
    // Once closed, it is scanned immediately, and not again.
    plan.handle(at(20_000), written("log"));
    plan.handle(at(20_000), changed("log"));
    assert_eq!(names(plan.take(at(20_050))), ["log"]);
    assert_eq!(plan.poll_timeout(), None);
    // Another program still has it open.
    plan.handle(at(21_000), changed("log"));
    plan.handle(at(21_000), written("log"));
    assert_eq!(names(plan.take(at(21_050))), ["log"]);
    assert_eq!(plan.poll_timeout(), Some(at(31_000)));
}

#[test]
fn open_file_that_is_never_quiet_is_scanned_each_minute() {
    let mut plan = Plan::default();
    let mut looks = Vec::new();
    for second in 0..200 {
        plan.handle(at(second * 1_000), written("log"));
        if plan.take(at(second * 1_000)).is_some() {
            looks.push(second);
            // The second one takes long.
            let took = if looks.len() == 2 { 7 } else { 0 };
            plan.took(at(second * 1_000), std::time::Duration::from_secs(took));
        }
    }
    assert_eq!(looks, [60, 121, 191], "a tenth of the time at most");
}

#[test]
fn file_written_during_a_mode_change_is_taken_later() {
    let version = Version { sequence: Sequence(1), content: content(1, false) };
    let committed = [("same", version), ("other", version)];
    let committed: BTreeMap<_, _> = committed.map(|(name, version)| (path(name), version)).into();
    let files = [("same", 1), ("other", 2), ("new", 3), ("whole", 4)];
    let files = files.map(|(name, body)| (path(name), content(body, true))).into();
    let seen = ScanResult { files, ..ScanResult::default() };
    let mode = |name: &str| (Name::from(name), Depth::Mode);
    let names: Names = [mode("same"), mode("other"), mode("new"), mode("gone")].into();
    let behind: Vec<_> = seen.behind(&names, &committed).collect();
    assert_eq!(behind, [Name::from("new"), Name::from("other")]);
}
