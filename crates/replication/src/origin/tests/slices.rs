//! Large transactions and trees, which are handled in slices.

use proptest::prelude::{Just, any, prop, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as _;

use super::*;
use crate::merkle::MerkleTree;

/// Runs until nothing is left to do.
fn finish(bench: &mut Bench) {
    loop {
        bench.disk();
        if !bench.origin.has_more() {
            return;
        }
        bench.origin.go_on(reading(bench.ms));
    }
}

/// The order of the messages about different transactions is that of the transactions.
fn outcome(bench: &mut Bench) -> (Vec<Event>, Image) {
    (bench.events(), bench.origin.image().clone())
}

fn changes() -> impl proptest::strategy::Strategy<Value = String> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c"), Just("a/x"), Just("a/y"), Just("A")];
    let change = (name, prop_oneof![Just("1"), Just("2"), Just("3"), Just("-"), Just("/")]);
    let change = change.prop_map(|(name, body)| format!("{name}{body}"));
    prop::collection::vec(change, 1..6).prop_map(|all| all.join(" "))
}

proptest! {
    #[test]
    fn commits_in_slices_equal_those_in_one_call(
        steps in prop::collection::vec((changes(), any::<bool>()), 1..20),
        refuse in any::<bool>(),
        inline in any::<bool>(),
    ) {
        let case_clashes = if refuse { CaseClashes::Refuse } else { CaseClashes::Allow };
        let inline = Bytes(if inline { 100 } else { 0 });
        let config = Config { case_clashes, inline, log: 5, ..Config::default() };
        let mut whole = Bench::new(config);
        let mut sliced = Bench::new(Config { slice: 1, ..config });
        for (text, pause) in steps {
            for bench in [&mut whole, &mut sliced] {
                bench.write(&text);
                if pause {
                    finish(bench);
                }
            }
        }
        finish(&mut whole);
        finish(&mut sliced);
        let (expected, found) = (outcome(&mut whole), outcome(&mut sliced));
        prop_assert_eq!(&found.1.objects, &expected.1.objects);
        prop_assert_eq!(&found.1, &expected.1);
        prop_assert_eq!(found.0.len(), expected.0.len());
        prop_assert_eq!(sliced.origin.bytes(), whole.origin.bytes());
    }

    #[test]
    fn tree_made_during_writes_is_that_of_its_state(
        before in prop::collection::vec(changes(), 0..20),
        during in prop::collection::vec((changes(), 0..4_usize), 0..6),
    ) {
        let mut bench = Bench::new(Config { slice: 1, ..Config::default() });
        for text in &before {
            bench.write(text);
        }
        finish(&mut bench);
        bench.hello(None);
        for (text, calls) in during {
            bench.write(&text);
            for _ in 0..calls {
                bench.disk();
                bench.origin.go_on(reading(0));
            }
        }
        finish(&mut bench);
        let told = bench.told();
        let [ToReplica::Welcome { start: Start::Resync { position, root, .. }, .. }] = told[..] else {
            panic!("{told:?}");
        };
        bench.say(ToOrigin::Resynced(position.sequence));
        let mut image = bench.origin.image().clone();
        for change in image.changed_since(position.sequence).expect("it is in the log") {
            match image.overwritten_after(&change.0, position.sequence).expect("it was changed") {
                Some(version) => image.objects.insert(change.0, version),
                None => image.objects.remove(&change.0),
            };
        }
        let tree = MerkleTree::new(image.objects.iter().map(|(path, one)| (path, *one)));
        prop_assert_eq!(tree.root(), root);
        let later: Vec<u64> = (position.sequence.0 + 1..=bench.origin.last().sequence.0).collect();
        let mut told = sequences(&bench.told());
        told.dedup();
        prop_assert_eq!(told, later);
    }
}

#[test]
fn large_transaction_lets_others_in_between_its_slices() {
    let mut bench = Bench::new(Config { slice: 2, ..Config::default() });
    let names = (0..50).map(|at| format!("file-{at}-1")).collect::<Vec<_>>().join(" ");
    let large = bench.write(&names);
    let mut calls = 0;
    loop {
        bench.disk();
        let last = bench.origin.last().sequence;
        assert_eq!(last.0 > 0, !bench.origin.has_more() && calls > 0, "after {calls} calls");
        if !bench.origin.has_more() {
            break;
        }
        bench.origin.go_on(reading(0));
        calls += 1;
    }
    assert!(calls > 60, "{calls}");
    let expected = Event::Acknowledged { transaction: large, sequence: Sequence(1) };
    assert_eq!(bench.events(), [expected]);
}

#[test]
fn invalid_change_of_a_large_transaction_leaves_nothing_behind() {
    let mut bench = Bench::new(Config { slice: 2, inline: Bytes(0), ..Config::default() });
    let mut large = transaction("a1 b2 c3 d4");
    let missing =
        Content { digest: Digest([7; 32]), size: Bytes(9), metadata: Metadata::default() };
    large.changes.insert(path("e"), Put::Stored(missing));
    let refused = bench.submit(large);
    let behind = bench.write("x5");
    finish(&mut bench);
    let expected = [
        Event::Refused { transaction: refused, why: Refused::NotStored(missing.digest) },
        Event::Acknowledged { transaction: behind, sequence: Sequence(1) },
    ];
    assert_eq!(bench.events(), expected);
    let kept = (1..=5).filter(|body| bench.origin.has_body(&Digest([*body; 32])));
    assert_eq!(kept.collect::<Vec<_>>(), [5]);
}
