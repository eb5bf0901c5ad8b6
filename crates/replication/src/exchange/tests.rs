//! A replica in an exchange. `crates/replication-sim/src/neighbours` has many at a time.

use proptest::prelude::*;

use super::*;

const OWN: ReplicaId = ReplicaId(1);

fn at(seconds: u64) -> LocalTime {
    LocalTime::default().plus(Duration::from_secs(seconds))
}

fn exchange(neighbours: u32, count: u32) -> Exchange {
    Exchange::new(at(0), OWN, (1..=neighbours + 1).map(ReplicaId), count, |_| false)
}

fn asks(exchange: &mut Exchange, now: LocalTime) -> Vec<(ReplicaId, u32)> {
    core::iter::from_fn(|| exchange.poll_ask(now)).collect()
}

/// How many pieces are wanted from the parent.
fn wanted(exchange: &mut Exchange) -> u32 {
    exchange.poll_wanted().iter().map(|(_, count)| count).sum()
}

#[test]
fn each_replica_is_the_source_of_a_similar_part() {
    let count = 200 * 16;
    let mut all = 0;
    for own in 1..=10 {
        let mut one =
            Exchange::new(at(0), ReplicaId(own), (1..=10).map(ReplicaId), count, |_| false);
        let part = wanted(&mut one);
        assert!((count / 20..count / 5).contains(&part), "{part} of {count} at {own}");
        all += part;
    }
    assert_eq!(all, count, "each piece has one source");
}

#[test]
fn replica_without_neighbours_wants_all_from_its_parent() {
    let mut alone = exchange(0, 100);
    assert_eq!(alone.poll_wanted(), [(0, 100)]);
    let mut resumed = Exchange::new(at(0), OWN, [], 10, |number| number < 4);
    assert_eq!(resumed.poll_wanted(), [(4, 6)]);
    (4..10).for_each(|number| assert!(resumed.handle_from_parent(at(1), number)));
    assert!(resumed.is_complete() && resumed.poll_timeout().is_none());
}

#[test]
fn dropped_neighbour_gives_its_part_to_all_others() {
    let mut one = exchange(4, 400 * 16);
    let before = wanted(&mut one);
    let part = one.neighbours[&ReplicaId(3)].waiting.len() as u32;
    one.drop_neighbour(ReplicaId(3));
    let more = wanted(&mut one);
    // A quarter of that part, roughly.
    assert!((part / 8..part / 2).contains(&more), "{more} of {part}, after {before}");
    assert!(asks(&mut one, at(0)).iter().all(|(from, _)| *from != ReplicaId(3)));
}

#[test]
fn wrong_piece_ends_the_exchange_with_its_sender() {
    let mut one = exchange(2, 40 * 16);
    let (from, number) = asks(&mut one, at(0))[0];
    assert_eq!(one.handle_from_neighbour(at(1), from, (number, false)), Taken::Wrong);
    assert!(!one.has(number));
    assert_eq!(one.handle_from_neighbour(at(1), from, (number, true)), Taken::Ignored);
    let mut strange = exchange(2, 40);
    assert_eq!(strange.handle_from_neighbour(at(1), ReplicaId(2), (40, true)), Taken::Wrong);
}

#[test]
fn dropped_neighbour_still_gets_pieces_unless_it_lied() {
    let mut one = exchange(2, 40 * 16);
    one.handle_from_parent(at(0), 3);
    one.drop_neighbour(ReplicaId(2));
    one.handle_asked(ReplicaId(2), 3);
    assert_eq!(one.poll_answer(ReplicaId(2)), Some(3));
    one.handle_from_neighbour(at(1), ReplicaId(3), (5, false));
    one.handle_asked(ReplicaId(3), 3);
    assert_eq!(one.poll_answer(ReplicaId(3)), None);
}

#[test]
fn parent_owes_the_pieces_that_were_wanted() {
    let mut one = exchange(0, 2);
    assert!(!one.parent_owes());
    one.poll_wanted();
    one.handle_from_parent(at(0), 0);
    assert!(one.parent_owes());
    one.handle_from_parent(at(0), 1);
    assert!(!one.parent_owes() && one.left() == 0);
}

#[test]
fn silent_neighbour_is_dropped_and_a_slow_link_is_not() {
    let mut one = exchange(1, 20 * 16);
    let (from, number) = asks(&mut one, at(0))[0];
    assert_eq!(one.poll_timeout(), Some(at(10)));
    assert_eq!(one.handle_from_neighbour(at(8), from, (number, true)), Taken::New);
    assert_eq!(one.handle_timeout(at(17)), []);
    assert_eq!(one.handle_timeout(at(18)), [from]);
    wanted(&mut one);
    assert!(asks(&mut one, at(18)).is_empty());
    // Each piece takes the parent four seconds.
    let mut slow = exchange(1, 20 * 16);
    let parts: Vec<u32> = slow.poll_wanted().iter().map(|(first, _)| *first).collect();
    let (from, _) = asks(&mut slow, at(0))[0];
    for second in 0..9 {
        slow.handle_from_parent(at(4 * second), parts[0] + second as u32);
    }
    assert_eq!(slow.handle_timeout(at(30)), []);
    assert_eq!(slow.handle_timeout(at(100)), [from]);
}

#[test]
fn neighbour_gets_what_it_asked_for_when_it_is_here() {
    let mut one = exchange(1, 40);
    let other = ReplicaId(2);
    for number in [5, 3, 3, 99] {
        one.handle_asked(other, number);
    }
    one.handle_asked(ReplicaId(7), 3);
    assert_eq!(one.poll_answer(other), None);
    one.handle_from_parent(at(0), 3);
    assert_eq!((one.poll_answer(other), one.poll_answer(other)), (Some(3), None));
    assert_eq!(one.poll_answer(ReplicaId(7)), None);
    // The parent has named it since, and it is no source.
    one.admit(ReplicaId(7));
    one.handle_asked(ReplicaId(7), 3);
    assert_eq!(one.poll_answer(ReplicaId(7)), Some(3));
    // One that asks for all takes no more memory.
    let mut long = exchange(1, 20 * MOST_OWED as u32);
    (0..20 * MOST_OWED as u32).for_each(|number| long.handle_asked(other, number));
    assert_eq!(long.owed[&other].len(), MOST_OWED);
}

proptest! {
    /// Whatever neighbours do, each missing piece is asked for or wanted, so the parent alone is enough.
    #[test]
    fn no_piece_is_forgotten(
        steps in proptest::collection::vec((2..6_u32, 0..96_u32, 0..6_u8), 0..200),
    ) {
        let mut one = exchange(4, 6 * 16);
        let mut from_parent = BTreeSet::new();
        let mut now = 0;
        for (neighbour, number, what) in steps {
            let from = ReplicaId(neighbour);
            match what {
                0 => drop(asks(&mut one, at(now))),
                1 => drop(one.handle_from_neighbour(at(now), from, (number, true))),
                2 if number % 7 == 0 => drop(one.handle_from_neighbour(at(now), from, (number, false))),
                3 => one.handle_asked(from, number),
                4 => {
                    now += u64::from(number % 12);
                    one.handle_timeout(at(now));
                }
                _ => {
                    let wanted = one.poll_wanted();
                    from_parent.extend(wanted.iter().flat_map(|(first, count)| *first..first + count));
                    if let Some(next) = from_parent.pop_first() {
                        one.handle_from_parent(at(now), next);
                    }
                }
            }
        }
        // All neighbours are silent from now on.
        for _ in 0..10 {
            asks(&mut one, at(now));
            now += 1_000;
            one.handle_timeout(at(now));
            let wanted = one.poll_wanted();
            from_parent.extend(wanted.iter().flat_map(|(first, count)| *first..first + count));
            while let Some(next) = from_parent.pop_first() {
                one.handle_from_parent(at(now), next);
            }
        }
        prop_assert!(one.is_complete(), "{} pieces are left", one.left);
    }
}
