//! Writes with a condition on the earlier version.

use super::*;

impl Bench {
    /// Writes if this condition holds.
    fn write_if(&mut self, name: &str, condition: Condition, text: &str) -> TransactionId {
        self.count += 1;
        let id = TransactionId(self.count);
        let conditions = vec![(path(name), condition)];
        self.origin.handle_conditional(reading(self.ms), id, conditions, transaction(text));
        id
    }
}

fn these(bodies: &[u8]) -> Named {
    Named::These(bodies.iter().map(|body| Digest([*body; 32])).collect())
}

#[test]
fn condition_compares_an_object_and_its_body() {
    let one = Digest([1; 32]);
    for (named, [present, absent]) in [
        (Named::Any, [true, false]),
        (these(&[1]), [true, false]),
        (these(&[2, 1]), [true, false]),
        (these(&[2]), [false, false]),
        (these(&[]), [false, false]),
    ] {
        let has = Condition::Has(named.clone());
        assert_eq!([has.holds(Some(&one)), has.holds(None)], [present, absent], "{has:?}");
        let has_not = Condition::HasNot(named);
        let held = [has_not.holds(Some(&one)), has_not.holds(None)];
        assert_eq!(held, [!present, !absent], "{has_not:?}");
    }
}

#[test]
fn one_of_two_writes_for_the_same_version_succeeds() {
    let mut bench = Bench::new(Config::default());
    bench.committed("a1");
    // All wait for the disk together: the first one is not in the state when the others come.
    let first = bench.write_if("a", Condition::Has(these(&[1])), "a2");
    let second = bench.write_if("a", Condition::Has(these(&[1])), "a3");
    let third = bench.write_if("a", Condition::Has(these(&[2])), "a4");
    let made = bench.write_if("b", Condition::HasNot(Named::Any), "b5");
    let again = bench.write_if("b", Condition::HasNot(Named::Any), "b6");
    let gone = bench.write_if("b", Condition::Has(Named::Any), "b-");
    let absent = bench.write_if("b", Condition::Has(Named::Any), "b7");
    bench.disk();
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for event in bench.events() {
        match event {
            Event::Acknowledged { transaction, .. } => done.push(transaction),
            Event::Refused { transaction, why } => refused.push((transaction, why)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(done, [first, third, made, gone]);
    let why = |name| Refused::Condition(path(name));
    assert_eq!(refused, [(second, why("a")), (again, why("b")), (absent, why("b"))]);
    assert_eq!(bench.origin.image().objects[&path("a")].content.digest, Digest([4; 32]));
}
