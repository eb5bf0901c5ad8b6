//! Copies out of the parent, and completion.

use super::*;

fn with(faults: &[(u32, Fault)]) -> Outcome {
    let outcome = run(&Options { faults: faults.to_vec(), ..Options::default() });
    println!(
        "{faults:?}: {:.3} copies, last {:?} of {:?}",
        outcome.copies,
        outcome.last(),
        outcome.link
    );
    assert_eq!(outcome.wrong, 0, "{faults:?}");
    assert!(outcome.last().is_some(), "{faults:?}: {:?}", outcome.completed);
    outcome
}

#[test]
fn lan_of_50_receivers_costs_about_one_copy() {
    let outcome = with(&[]);
    assert!(outcome.copies < 1.1, "{}", outcome.copies);
    // Parts are not equally long, and the longest one is sent alone at the end: but that takes no longer.
    assert!(outcome.last().unwrap() < outcome.link * 11 / 10, "{:?}", outcome.last());
}

#[test]
fn receivers_without_exchange_cost_a_copy_each() {
    let options = Options { receivers: 5, exchange: false, ..Options::default() };
    let outcome = run(&options);
    assert!((outcome.copies - 5.0).abs() < 0.01, "{}", outcome.copies);
    assert!(outcome.last().unwrap() > outcome.link * 49 / 10);
}

#[test]
fn faulty_neighbours_only_delay() {
    let slow = Fault::Slow(Rate::from_bits_per_second(1_000_000));
    let half = Fault::Dies(Duration::from_secs(20));
    for faults in [
        vec![(7, Fault::Lies)],
        vec![(7, half)],
        vec![(7, Fault::Dies(Duration::ZERO)), (8, half)],
        vec![(7, slow)],
        vec![(7, Fault::Selfish)],
        vec![(1, Fault::Lies), (2, half), (3, slow), (4, Fault::Selfish)],
    ] {
        let outcome = with(&faults);
        assert!(outcome.copies < 1.6, "{faults:?}: {}", outcome.copies);
        let most = outcome.link * 3 / 2 + Duration::from_secs(60);
        assert!(outcome.last().unwrap() < most, "{faults:?}: {:?}", outcome.last());
    }
}

/// Each of two honest ones in the middle of others completes.
#[test]
fn majority_of_faulty_neighbours_does_not_prevent_completion() {
    let faulty = |number| (number, if number % 2 == 0 { Fault::Lies } else { Fault::Selfish });
    let faults: Vec<_> = (3..=10).map(faulty).collect();
    let options = Options { receivers: 10, faults, ..Options::default() };
    let outcome = run(&options);
    assert_eq!((outcome.completed.len(), outcome.wrong), (2, 0));
    assert!(outcome.last().is_some(), "{:?}", outcome.completed);
}
