//! The messages of one-off receivers.

use super::*;

fn to_source() -> impl Strategy<Value = ToSource> {
    prop_oneof![
        prop::option::of(path()).prop_map(ToSource::Find),
        (path(), digest(), any::<u32>()).prop_map(|(path, digest, pieces)| ToSource::Get {
            path,
            digest,
            pieces
        }),
    ]
}

fn from_source() -> impl Strategy<Value = FromSource> {
    prop_oneof![
        (vec((path(), version()), 0..20), any::<bool>())
            .prop_map(|(objects, more)| FromSource::Found { objects, more }),
        vec(path(), 0..=3).prop_map(FromSource::Unknown),
        body_part().prop_map(FromSource::Part),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_of_receivers_round_trip(
        questions in frames(to_source()),
        answers in frames(from_source()),
        parts in vec(1..3_000_usize, 1..5),
    ) {
        there_and_back(&questions, &parts)?;
        there_and_back(&answers, &parts)?;
    }
}
