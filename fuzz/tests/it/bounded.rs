//! Each target for some seconds, on valid input with changed bytes.

use lull_fuzz::seeds;
use proptest::prelude::*;
use proptest::sample::Index;

/// A change of some bytes.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    /// Four bytes of a number that often causes errors.
    Number(Index, u32),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// The bytes at one position are repeated at another.
    Repeat(Index, Index, usize),
    Cut(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let numbers = prop_oneof![
        Just(0u32),
        Just(1),
        Just(u32::MAX),
        Just(f32::NAN.to_bits()),
        Just(f32::INFINITY.to_bits()),
        Just(f32::MAX.to_bits()),
        Just((-1.0f32).to_bits()),
        any::<u32>(),
    ];
    let at = any::<Index>;
    let some = prop::collection::vec(any::<u8>(), 1..20);
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        4 => (at(), numbers).prop_map(|(at, number)| Change::Number(at, number)),
        2 => (at(), some).prop_map(|(at, all)| Change::Insert(at, all)),
        2 => (at(), 1usize..40).prop_map(|(at, count)| Change::Remove(at, count)),
        2 => (at(), at(), 1usize..80).prop_map(|(to, from, count)| Change::Repeat(to, from, count)),
        1 => at().prop_map(Change::Cut),
    ]
}

fn changed(good: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for change in changes {
        if bytes.is_empty() {
            break;
        }
        let count = bytes.len();
        let up_to = |at: usize, more: usize| at..(at + more).min(count);
        match change {
            Change::Set(at, byte) => bytes[at.index(count)] = *byte,
            Change::Number(at, number) => {
                let place = up_to(at.index(count), 4);
                let number = number.to_le_bytes();
                bytes[place.clone()].copy_from_slice(&number[..place.len()]);
            }
            Change::Insert(at, all) => {
                let at = at.index(count);
                bytes.splice(at..at, all.iter().copied());
            }
            Change::Remove(at, more) => drop(bytes.drain(up_to(at.index(count), *more))),
            Change::Repeat(to, from, more) => {
                let (to, part) = (to.index(count), bytes[up_to(from.index(count), *more)].to_vec());
                bytes.splice(to..to, part);
            }
            Change::Cut(at) => bytes.truncate(at.index(count)),
        }
    }
    bytes
}

fn cases(cases: u32) -> ProptestConfig {
    // A failing case is printed completely; it belongs in a separate test, not in a file.
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn corrupted_log_is_read_or_its_lines_are_bad(
        which in 0..seeds::LOGS.len(),
        changes in prop::collection::vec(change(), 0..6),
    ) {
        lull_fuzz::log(&changed(seeds::LOGS[which].as_bytes(), &changes));
    }

    #[test]
    fn random_bytes_are_bad_log_lines(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        lull_fuzz::log(&bytes);
    }

    #[test]
    fn random_bytes_are_rejected_as_frames(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        lull_fuzz::wire(&bytes);
    }

    #[test]
    fn corrupted_frames_are_rejected_or_unchanged(
        which in any::<Index>(),
        changes in prop::collection::vec(change(), 0..4),
    ) {
        let streams = seeds::streams();
        lull_fuzz::wire(&changed(&streams[which.index(streams.len())], &changes));
    }

    #[test]
    fn corrupted_page_is_unchanged_except_for_the_tag(
        which in 0..seeds::PAGES.len(),
        choices in any::<u8>(),
        changes in prop::collection::vec(change(), 0..6),
    ) {
        let mut page = seeds::PAGES[which].to_vec();
        page[0] = choices;
        lull_fuzz::insert_script(&changed(&page, &changes));
    }

    #[test]
    fn random_bytes_pass_as_a_page_unchanged(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        lull_fuzz::insert_script(&bytes);
    }

    #[test]
    fn random_bytes_are_rejected_as_a_model(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        lull_fuzz::model(&bytes);
    }
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn corrupted_plan_is_read_or_rejected_with_its_line(
        which in any::<Index>(),
        changes in prop::collection::vec(change(), 1..4),
    ) {
        let plans = seeds::plans();
        lull_fuzz::plan(&changed(plans[which.index(plans.len())].as_bytes(), &changes));
    }

    #[test]
    fn corrupted_model_is_rejected_or_works(
        which in any::<Index>(),
        changes in prop::collection::vec(change(), 0..4),
    ) {
        let models = seeds::models();
        let good = lull_fuzz::body(&models[which.index(models.len())]);
        lull_fuzz::model(&changed(&good, &changes));
    }
}

#[test]
fn seeds_of_the_fuzz_targets_are_valid() {
    for log in seeds::LOGS {
        let reader = lull_speculate::log::Reader::detect(log.split('\n').map(str::as_bytes));
        let mut reader = reader.expect(log);
        let entries = log.split('\n').filter_map(|line| reader.read(line.as_bytes())).count();
        assert!(entries > 0 && reader.bad().is_empty(), "{log}");
        lull_fuzz::log(log.as_bytes());
    }
    for page in seeds::PAGES {
        lull_fuzz::insert_script(page);
    }
    for stream in seeds::streams() {
        lull_fuzz::wire(&stream);
    }
    for model in seeds::models() {
        assert!(model.predictor().contexts() > 1 && model.observer().urls().public() > 1);
        let sealed = lull_fuzz::sealed(&lull_fuzz::body(&model));
        let mut written = Vec::new();
        model.write(&mut written).unwrap();
        assert_eq!(sealed, written);
        lull_fuzz::model(&sealed);
    }
}
