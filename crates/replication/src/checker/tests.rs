use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A log in which a digit is a body, `-` a deletion: `"a1 b2"` is one commit of two changes.
fn log(commits: &[&str]) -> Log {
    Log::new(commits.iter().map(|commit| changes(commit)).collect())
}

fn changes(commit: &str) -> Changes {
    commit.split(' ').map(|change| (name(change), body(change))).collect()
}

fn name(change: &str) -> Name {
    Name(u32::from(change.as_bytes()[0]))
}

fn body(change: &str) -> Option<Body> {
    change[1..].parse().ok().map(Body)
}

/// A read that lasts a second: `"a1"` saw a body, `"a-"` nothing, `"a+"` something.
fn read(session: u64, replica: u64, began: u64, seen: &str) -> Read {
    let one = |seen: &str| {
        let what = match &seen[1..] {
            "-" => Observation::Absent,
            "+" => Observation::Present,
            _ => Observation::Body(body(seen).expect("a number")),
        };
        (name(seen), what)
    };
    let seen = seen.split(' ').map(one).collect();
    Read { session, replica, began: at(began), ended: at(began + 1), bound: None, seen }
}

#[test]
fn reads_never_go_back() {
    let log = log(&["a1", "b2", "a3", "b-", "a5"]);
    // Session, replica, beginning, observations; and which read is the violation.
    for (reads, expected, what) in [
        (vec![(1, 1, 0, "a1"), (1, 1, 2, "a3")], None, "forwards"),
        (vec![(1, 1, 0, "a3"), (1, 1, 2, "a1")], Some((1, 3)), "a session back on one object"),
        (vec![(1, 1, 0, "b2"), (1, 1, 2, "a1")], None, "another object, still current"),
        (vec![(1, 1, 0, "a3"), (1, 1, 2, "b2")], None, "b2 is current up to 4"),
        (vec![(1, 1, 0, "a5"), (1, 1, 2, "b2")], Some((1, 5)), "a session back on another object"),
        (vec![(1, 1, 0, "a3"), (2, 2, 2, "a1")], None, "others elsewhere may be behind"),
        (vec![(1, 1, 0, "a3"), (2, 1, 2, "a1")], Some((1, 3)), "a replica goes back"),
        (vec![(1, 1, 0, "a3"), (1, 2, 2, "a1")], Some((1, 3)), "a session that changes replicas"),
        (vec![(1, 1, 0, "a3"), (2, 1, 0, "a1")], None, "at the same time"),
        (vec![(1, 1, 0, "a3"), (2, 1, 1, "a1")], None, "one begins when the other ends"),
        (vec![(1, 1, 0, "b-"), (1, 1, 2, "a1")], None, "b did not exist before 2 either"),
        (vec![(1, 1, 0, "b2"), (1, 1, 2, "b-"), (1, 1, 4, "a3")], None, "deleted at 4"),
        (vec![(1, 1, 0, "b2"), (1, 1, 2, "b-"), (1, 1, 4, "a1")], Some((2, 4)), "deleted at 4"),
        (
            vec![(1, 1, 0, "b-"), (1, 1, 2, "b2"), (1, 1, 4, "b-"), (1, 1, 6, "b+")],
            Some((3, 4)),
            "",
        ),
    ] {
        let reads: Vec<Read> = reads
            .iter()
            .map(|(session, replica, began, seen)| read(*session, *replica, *began, seen))
            .collect();
        let expected: Vec<_> =
            expected.map(|(read, floor)| Violation::Back { read, floor }).into_iter().collect();
        assert_eq!(check(&log, &[], &reads), expected, "{what}: {reads:?}");
    }
}

#[test]
fn read_of_several_names_reflects_one_state() {
    let log = log(&["a1 b1", "a2 b2", "a3", "b4", "a- b-"]);
    for (seen, expected) in [
        ("a1 b1", None),
        ("a3 b2", None),
        ("a+ b+", None),
        ("a- b-", None),
        ("a2 b1", Some(Violation::Torn { read: 0 })),
        ("a1 b4", Some(Violation::Torn { read: 0 })),
        ("a2 b4", Some(Violation::Torn { read: 0 })),
        ("a+ b-", Some(Violation::Torn { read: 0 })),
        ("a9", Some(Violation::Phantom { read: 0 })),
        ("b3", Some(Violation::Phantom { read: 0 })),
        ("c+", Some(Violation::Phantom { read: 0 })),
        ("c-", None),
    ] {
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(check(&log, &[], &[read(1, 1, 0, seen)]), expected, "{seen}");
    }
}

#[test]
fn repeated_body_counts_at_each_of_its_positions() {
    let log = log(&["a1", "a2", "a1"]);
    let reads =
        [read(1, 1, 0, "a1"), read(1, 1, 2, "a2"), read(1, 1, 4, "a1"), read(1, 1, 6, "a2")];
    assert_eq!(check(&log, &[], &reads), [Violation::Back { read: 3, floor: 3 }]);
}

#[test]
fn staleness_counts_from_acknowledgement_to_start_of_the_read() {
    let log = log(&["a1", "a2", "b3"]);
    let acknowledged = |position, commit, seconds| Acknowledged {
        position,
        changes: changes(commit),
        at: at(seconds),
    };
    let writes = [acknowledged(1, "a1", 1), acknowledged(2, "a2", 10), acknowledged(3, "b3", 20)];
    for (began, bound, seen, expected) in [
        (15, Some(5), "a1", None),
        (16, Some(5), "a1", Some(2)),
        (16, Some(7), "a1", None),
        (16, None, "a1", None),
        (16, Some(5), "a2", None),
        (25, Some(5), "b-", None),
        (26, Some(5), "b-", Some(3)),
        (26, Some(5), "a2", None),
    ] {
        let read = Read { bound: bound.map(at), ..read(1, 1, began, seen) };
        let expected: Vec<_> =
            expected.map(|required| Violation::Stale { read: 0, required }).into_iter().collect();
        assert_eq!(check(&log, &writes, &[read]), expected, "{seen} at {began}, Δ {bound:?}");
    }
}

#[test]
fn bound_of_one_read_also_binds_the_next() {
    let log = log(&["a1", "b1", "b2"]);
    let writes: Vec<_> = (1..)
        .zip(["a1", "b1", "b2"])
        .map(|(position, commit)| Acknowledged { position, changes: changes(commit), at: at(1) })
        .collect();
    let connected = |read: Read| Read { bound: Some(at(5)), ..read };
    let cut = |read: Read| Read { bound: Some(at(3_600)), ..read };
    // The body a1 was the newest of a at all positions, but within the bound its reader was at 3.
    for (reads, expected) in [
        ([connected(read(1, 1, 20, "a1")), cut(read(1, 1, 22, "b1"))], true),
        ([connected(read(1, 1, 20, "a1")), cut(read(1, 2, 22, "b1"))], true),
        ([connected(read(1, 1, 20, "a1")), cut(read(2, 1, 22, "b1"))], true),
        ([connected(read(1, 1, 20, "a1")), cut(read(2, 2, 22, "b1"))], false),
        ([connected(read(1, 1, 20, "a1")), cut(read(1, 1, 22, "b2"))], false),
        ([cut(read(1, 1, 20, "a1")), cut(read(1, 1, 22, "b1"))], false),
        // Too stale by itself: only its observations bind.
        ([connected(read(1, 1, 20, "b1")), cut(read(1, 1, 22, "b1"))], false),
    ] {
        let backs: Vec<_> = check(&log, &writes, &reads)
            .into_iter()
            .filter(|violation| matches!(violation, Violation::Back { .. }))
            .collect();
        let expected: Vec<_> =
            expected.then_some(Violation::Back { read: 1, floor: 3 }).into_iter().collect();
        assert_eq!(backs, expected, "{reads:?}");
    }
}

#[test]
fn acknowledged_write_is_in_the_log_at_its_position() {
    let log = log(&["a1", "a2"]);
    for (position, commit, lost) in
        [(1, "a1", false), (2, "a2", false), (1, "a2", true), (3, "a3", true), (0, "a1", true)]
    {
        let one = Acknowledged { position, changes: changes(commit), at: at(1) };
        let expected: Vec<_> = lost.then_some(Violation::Lost { position }).into_iter().collect();
        assert_eq!(check(&log, &[one], &[]), expected, "{commit} at {position}");
    }
}
