//! For any text of a plan, reading it gives a plan or one line with the position of an error.

use std::sync::LazyLock;

use lull_fuzz::seeds;
use proptest::prelude::*;
use proptest::sample::Index;

/// The plans that Lull comes with.
static SHIPPED: LazyLock<Vec<String>> = LazyLock::new(seeds::plans);

/// Plausible mistakes of a user.
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

/// Words of plans, at the limits of valid values, or beyond.
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
        // Tokens that are not blank.
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

fn cases() -> ProptestConfig {
    // A failing case is printed completely; it belongs in a separate test, not in a file.
    ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn plan_with_other_words_is_read_or_rejected_by_line(
        plan in any::<Index>(),
        changes in prop::collection::vec(token_change(), 1..4),
    ) {
        lull_fuzz::plan(change_tokens(&SHIPPED[plan.index(SHIPPED.len())], &changes).as_bytes());
    }

    #[test]
    fn random_words_are_rejected_as_a_plan_with_the_line(text in "\\PC*") {
        lull_fuzz::plan(text.as_bytes());
    }
}

#[test]
fn shipped_plans_are_read_and_give_the_dictionary() {
    assert!(SHIPPED.len() >= 5, "{}", SHIPPED.len());
    for text in SHIPPED.iter() {
        lull_fuzz::plan(text.as_bytes());
        assert_eq!(tokens(text).concat(), *text);
    }
}
