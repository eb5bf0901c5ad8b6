//! Whatever is written into a plan, reading it gives a plan or one line that says where it is wrong.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use lull_lab::judge::judge;
use lull_lab::plan::{Library, Plan, PlanError, Selection};
use lull_lab::record::CellRecord;
use proptest::prelude::*;
use proptest::sample::Index;

/// The plans that Lull comes with.
static SHIPPED: LazyLock<Vec<String>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
});

/// What a typo, a slip of the editor or a half-written file does to bytes.
#[derive(Clone, Debug)]
enum ByteChange {
    Replace(Index, u8),
    Insert(Index, u8),
    Remove(Index, usize),
    Copy(Index, Index, usize),
    Truncate(Index),
}

/// What somebody does who has misunderstood something.
#[derive(Clone, Debug)]
enum TokenChange {
    Remove(Index),
    Repeat(Index),
    Swap(Index, Index),
    Replace(Index, &'static str),
    ReplaceByAnother(Index, Index),
    RemoveLine(Index),
    RepeatLine(Index),
}

/// Words of plans, at the edge of what they may be, or beyond it.
const WORDS: &[&str] = &[
    "0",
    "1",
    "-1",
    "1e308",
    "nan",
    "inf",
    "9223372036854775807",
    "18446744073709551616",
    "'10000000000000000000s'",
    "0.5",
    "''",
    "\"\"",
    "'é'",
    "\"\\u0000\"",
    "true",
    "[]",
    "[1]",
    "[[]]",
    "{}",
    "{ value = 1 }",
    "1979-05-27",
    "\"0s\"",
    "\"1s\"",
    "\"99999999999s\"",
    "\"-5ms\"",
    "\"0mbit\"",
    "\"1e30mbit\"",
    "\"99999999999gbit\"",
    "\"0bdp\"",
    "\"1e300bdp\"",
    "\"0p\"",
    "\"$flows\"",
    "\"${flows}\"",
    "\"$\"",
    "\"${\"",
    "\"$queue\"",
    "\"nice\"",
    "\"priority\"",
    "\"left0\"",
    "\"left99999999999\"",
    "\"right2\"",
    "\"1 / 0\"",
    "\"1 +\"",
    "\"((((((((((((((((\"",
    "\"x.y.z\"",
    "\"2 ** 9999\"",
    "\"1/0\"",
    "axes",
    "name",
    "values",
    "when",
    "[[groups]]",
    "[topology]",
    "[[axes]]",
    "=",
    "#",
];

fn byte_change() -> impl Strategy<Value = ByteChange> {
    use ByteChange::*;

    // Mostly what plans are made of, and anything else at times.
    let byte = || prop_oneof![4 => b' '..=b'~', 1 => any::<u8>(), 1 => Just(b'\n')];
    prop_oneof![
        4 => (any::<Index>(), byte()).prop_map(|(at, byte)| Replace(at, byte)),
        4 => (any::<Index>(), byte()).prop_map(|(at, byte)| Insert(at, byte)),
        4 => (any::<Index>(), 1..30usize).prop_map(|(at, length)| Remove(at, length)),
        2 => (any::<Index>(), any::<Index>(), 1..200usize)
            .prop_map(|(from, to, length)| Copy(from, to, length)),
        1 => any::<Index>().prop_map(Truncate),
    ]
}

fn token_change() -> impl Strategy<Value = TokenChange> {
    use TokenChange::*;

    prop_oneof![
        2 => any::<Index>().prop_map(Remove),
        1 => any::<Index>().prop_map(Repeat),
        2 => any::<(Index, Index)>().prop_map(|(a, b)| Swap(a, b)),
        6 => (any::<Index>(), prop::sample::select(WORDS)).prop_map(|(at, word)| Replace(at, word)),
        3 => any::<(Index, Index)>().prop_map(|(at, from)| ReplaceByAnother(at, from)),
        2 => any::<Index>().prop_map(RemoveLine),
        1 => any::<Index>().prop_map(RepeatLine),
    ]
}

fn change_bytes(text: &str, changes: &[ByteChange]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for change in changes {
        if bytes.is_empty() {
            break;
        }
        let length = bytes.len();
        match change {
            ByteChange::Replace(at, byte) => bytes[at.index(length)] = *byte,
            ByteChange::Insert(at, byte) => bytes.insert(at.index(length), *byte),
            ByteChange::Remove(at, count) => {
                let at = at.index(length);
                bytes.drain(at..length.min(at + count));
            }
            ByteChange::Copy(from, to, count) => {
                let from = from.index(length);
                let copied = bytes[from..length.min(from + count)].to_vec();
                let to = to.index(length);
                bytes.splice(to..to, copied);
            }
            ByteChange::Truncate(at) => bytes.truncate(at.index(length)),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A text in pieces: words with their quotes, and single characters between them.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut quote = None;
    for character in text.chars() {
        let is_word = |c: char| c.is_alphanumeric() || "_.$-".contains(c);
        let goes_on = quote.is_some()
            || tokens.last().is_some_and(|last| last.ends_with(is_word)) && is_word(character);
        match tokens.last_mut() {
            Some(last) if goes_on => last.push(character),
            _ => tokens.push(character.to_string()),
        }
        quote = match quote {
            Some(open) if open == character || character == '\n' => None,
            None if "'\"".contains(character) => Some(character),
            unchanged => unchanged,
        };
    }
    tokens
}

fn change_tokens(text: &str, changes: &[TokenChange]) -> String {
    let mut all = tokens(text);
    for change in changes {
        // What is not blank.
        let places: Vec<usize> = (0..all.len()).filter(|&at| !all[at].trim().is_empty()).collect();
        if places.is_empty() {
            break;
        }
        let place = |index: &Index| places[index.index(places.len())];
        let line = |index: &Index| {
            let at = place(index);
            let begins = all[..at].iter().rposition(|token| token == "\n").map_or(0, |at| at + 1);
            let ends = all[at..].iter().position(|token| token == "\n");
            begins..ends.map_or(all.len(), |ends| at + ends + 1)
        };
        match change {
            TokenChange::Remove(at) => drop(all.remove(place(at))),
            TokenChange::Repeat(at) => all.insert(place(at), all[place(at)].clone()),
            TokenChange::Swap(a, b) => all.swap(place(a), place(b)),
            TokenChange::Replace(at, word) => all[place(at)] = (*word).to_owned(),
            TokenChange::ReplaceByAnother(at, from) => all[place(at)] = all[place(from)].clone(),
            TokenChange::RemoveLine(at) => drop(all.drain(line(at))),
            TokenChange::RepeatLine(at) => {
                let line = line(at);
                let copied = all[line.clone()].to_vec();
                all.splice(line.start..line.start, copied);
            }
        }
    }
    all.concat()
}

/// Reads it in full and as its subset: a plan, or one line with the file, a line that the text has,
/// and what is wrong.
fn read(text: &str) -> Result<(), TestCaseError> {
    let lines = text.lines().count().max(1);
    for quick in [false, true] {
        // It is read only if all of its cells can be.
        let Err(error) = Plan::parse("plan.toml", text, quick) else { continue };
        let said = error.to_string();
        let PlanError::File { line, text: what, .. } = error else {
            return Err(TestCaseError::fail(said));
        };
        prop_assert!(!said.contains('\n') && !what.is_empty(), "{said:?}");
        let Some(line) = line else { return Err(TestCaseError::fail(format!("no line: {said}"))) };
        prop_assert!((1..=lines + 1).contains(&line), "{lines} lines: {said}");
        prop_assert!(said.starts_with(&format!("plan.toml:{line}: ")), "{said}");
    }
    Ok(())
}

fn cases() -> ProptestConfig {
    // A case that fails is printed whole; it belongs into a test of its own, not into a file.
    ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_plan_with_other_bytes_is_read_or_told_with_its_line(
        plan in any::<Index>(),
        changes in prop::collection::vec(byte_change(), 1..4),
    ) {
        read(&change_bytes(&SHIPPED[plan.index(SHIPPED.len())], &changes))?;
    }

    #[test]
    fn a_plan_with_other_words_is_read_or_told_with_its_line(
        plan in any::<Index>(),
        changes in prop::collection::vec(token_change(), 1..4),
    ) {
        read(&change_tokens(&SHIPPED[plan.index(SHIPPED.len())], &changes))?;
    }

    #[test]
    fn whatever_is_no_plan_at_all_is_told_with_its_line(text in "\\PC*") {
        read(&text)?;
    }
}

#[test]
fn the_shipped_plans_are_read_and_their_words_make_them_up() {
    assert!(SHIPPED.len() >= 5, "{}", SHIPPED.len());
    for text in SHIPPED.iter() {
        read(text).unwrap();
        assert_eq!(tokens(text).concat(), *text);
    }
}

#[test]
fn what_a_paper_prints_stands_in_its_plan_for_every_cell_that_is_held_against_it() {
    let mut held = 0;
    let shipped = |quick| Library::built_in().find(&["*".to_owned()], quick).unwrap();
    for plan in [false, true].into_iter().flat_map(shipped) {
        // Nothing was measured: what has a value has it from the plan.
        let cell = |cell: lull_lab::plan::Cell| CellRecord {
            key: cell.key,
            values: cell.values,
            repetition: cell.repetition,
            ..CellRecord::default()
        };
        let cells = plan.cells(&Selection::default(), 1).unwrap().into_iter().map(cell);
        let cells: Vec<CellRecord> = cells.collect();
        let results = judge(&plan, &cells);
        for (at, metric) in plan.metrics.iter().enumerate() {
            if !metric.name.starts_with("printed") {
                continue;
            }
            for row in &results.rows {
                let values = serde_json::Value::Object(row.values.clone());
                let is_held = metric.only.as_ref().is_none_or(|only| only.holds(&values).unwrap());
                let value = row.metrics[at];
                assert_eq!(value.is_some(), is_held, "{}: {} of {values}", plan.id, metric.name);
                held += usize::from(is_held);
            }
        }
    }
    assert!(held > 100, "{held}");
}
