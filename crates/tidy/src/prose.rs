//! Rules on the words of the documentation and of plans: short sentences, and plain ones.

use toml::{Table, Value};

use crate::markdown::Page;
use crate::{Finding, Tree};

/// A sentence of more words than this is long.
const LONG: usize = 30;
/// One in this many sentences of a page may be long, and one in any case.
const ONE_OF: usize = 20;
/// No sentence of a plan may have more words: its texts appear in tables and figures.
const LONG_IN_PLANS: usize = 25;
/// Generated pages contain this in their first line.
pub(crate) const GENERATED: &str = "<!-- generated";

/// Idioms that confuse readers, and their replacements. They are compared without regard to case, as whole
/// words. A new one is added here with its replacement.
const IDIOMS: &[(&str, &str)] = &[
    ("whoever", "the subject: a user, a client, a replica"),
    ("whosever", "the subject's"),
    ("whereupon", "then"),
    ("whereof", "of which"),
    ("thereof", "of it"),
    ("anew", "again"),
    ("afresh", "again"),
    ("somebody", "the subject: a user, a client, another flow"),
    ("somebody's", "the subject's: another flow's"),
    ("anybody", "any user, any client"),
    ("everybody", "all users, all clients"),
    ("nobody", "no user, no client"),
    ("is told", "is notified, is reported"),
    ("are told", "are notified, are reported"),
    ("was told", "was notified, was reported"),
    ("tells of", "reports"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("by the letter", "as published"),
    ("to the letter", "exactly"),
    ("has to go", "is dropped"),
    ("has gone for good", "has ended"),
    ("stands before", "is in front of"),
    ("stand before", "are in front of"),
    ("not to be had", "not available"),
    ("cannot be had", "is not available"),
    ("of ours", "of Lull's"),
    ("of yours", "your"),
    ("who is signed in", "signed-in users"),
    ("who has signed in", "users who have signed in"),
    ("and be it", "split the sentence"),
    ("be it that", "if"),
    ("as ever", "as before"),
    ("of before", "previous"),
    ("says nothing of", "does not specify"),
    ("nothing but", "only"),
    ("for want of", "without"),
    ("ere", "before"),
    ("thrice", "three times"),
    ("comes to nothing", "fails"),
    ("go by the", "follow the"),
    ("goes by the", "follows the"),
    ("fetched ahead", "prefetched"),
    ("fetch ahead", "prefetch"),
];

/// The texts of a plan that readers see: the tables by their path, and their keys.
const PLAN_TEXTS: &[(&str, &[&str])] = &[
    ("", &["title", "about", "why"]),
    ("paper", &["statement", "value"]),
    ("axes", &["title"]),
    ("metrics", &["title", "unit"]),
    ("checks", &["name", "source", "why"]),
    ("plots", &["title", "x_title", "y_title", "level_title", "alone_title"]),
    ("plots.entries", &["name"]),
];

/// The pages that the rules on words apply to.
fn pages(tree: &Tree) -> impl Iterator<Item = (&str, Page)> {
    tree.files()
        .filter(|(path, text)| {
            let is_page = path.starts_with("docs/") || matches!(*path, "README.md");
            is_page && path.ends_with(".md") && !text.starts_with(GENERATED)
        })
        .map(|(path, text)| (path, Page::parse(text)))
}

/// Pages in which more than one sentence in [`ONE_OF`] is longer than [`LONG`] words.
pub(crate) fn long_sentences(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, page) in pages(tree) {
        let mut count = 0;
        let mut long = Vec::new();
        for block in &page.blocks {
            let sentences = sentences(&block.text);
            count += sentences.len();
            let too_long = sentences.into_iter().filter_map(|sentence| too_long(sentence, LONG));
            long.extend(too_long.map(|what| Finding::at(path, block.line, what)));
        }
        if long.len() > (count / ONE_OF).max(1) {
            let what = format!(
                "{} of {count} sentences are longer than {LONG} words, at most one in {ONE_OF} may be",
                long.len()
            );
            findings.push(Finding::in_file(path, what));
            findings.append(&mut long);
        }
    }
    findings
}

/// Idioms of the list above, and sentences that begin with "Else".
pub(crate) fn idioms(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, page) in pages(tree) {
        for block in &page.blocks {
            let found = idioms_of(&block.text).into_iter();
            findings.extend(found.map(|what| Finding::at(path, block.line, what)));
        }
    }
    findings
}

/// Texts of plans with idioms, or with sentences of more than [`LONG_IN_PLANS`] words.
pub(crate) fn plans(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.under("plans/", ".toml") {
        // Files that are no TOML are reported by another rule.
        let Ok(plan) = text.parse::<Table>() else { continue };
        for (key, text) in plan_texts(&plan) {
            for block in Page::parse(text).blocks {
                let sentences = sentences(&block.text).into_iter();
                let mut found = idioms_of(&block.text);
                found.extend(sentences.filter_map(|sentence| too_long(sentence, LONG_IN_PLANS)));
                for what in found {
                    findings.push(Finding::in_file(path, format!("{key}: {what}")));
                }
            }
        }
    }
    findings
}

/// The texts of a plan that readers see, with their keys.
fn plan_texts(plan: &Table) -> Vec<(String, &str)> {
    let mut texts = Vec::new();
    for (path, keys) in PLAN_TEXTS {
        for table in tables_at(plan, path) {
            for key in *keys {
                if let Some(text) = table.get(*key).and_then(Value::as_str) {
                    let key = format!("{path}.{key}").trim_start_matches('.').to_owned();
                    texts.push((key, text));
                }
            }
        }
    }
    texts
}

/// The tables at a path of names with dots between them, and those in lists.
fn tables_at<'a>(plan: &'a Table, path: &str) -> Vec<&'a Table> {
    let mut tables = vec![plan];
    for name in path.split('.').filter(|name| !name.is_empty()) {
        let values = tables.into_iter().filter_map(|table| table.get(name));
        tables = values
            .flat_map(|value| match value {
                Value::Array(list) => list.iter().collect(),
                other => vec![other],
            })
            .filter_map(Value::as_table)
            .collect();
    }
    tables
}

/// The idioms of a block with their replacements, and whether a sentence begins with "Else".
fn idioms_of(block: &str) -> Vec<String> {
    let mut found = Vec::new();
    if sentences(block).iter().any(|sentence| sentence.trim().starts_with("Else ")) {
        found.push("\"Else …\": write Otherwise".to_owned());
    }
    let text = plain(block);
    let idioms = IDIOMS.iter().filter(|(idiom, _)| text.contains(&format!(" {idiom} ")));
    found.extend(idioms.map(|(idiom, instead)| format!("\"{idiom}\": write {instead}")));
    found
}

/// The finding for a sentence of more than `most` words.
fn too_long(sentence: &str, most: usize) -> Option<String> {
    let words = words(sentence);
    (words > most).then(|| {
        let first: Vec<_> = sentence.split_whitespace().take(6).collect();
        format!("{words} words, at most {most}: \"{} …\"", first.join(" "))
    })
}

/// The words of a text in lower case, with one space around each.
fn plain(text: &str) -> String {
    let kept = |c: char| if c.is_alphanumeric() || "'’-".contains(c) { c } else { ' ' };
    let text: String = text.to_lowercase().chars().map(kept).collect();
    let words: Vec<_> = text.split_whitespace().collect();
    format!(" {} ", words.join(" "))
}

/// The sentences of a block: they end with a full stop, a question or exclamation mark or a colon, if
/// white space follows, and with the block. Clauses behind a semicolon count as the same sentence.
fn sentences(block: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut begin = 0;
    let mut chars = block.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let is_end =
            ".?!:".contains(c) && chars.peek().is_none_or(|(_, next)| next.is_whitespace());
        if is_end && !is_abbreviation(&block[begin..=at]) {
            found.push(&block[begin..=at]);
            begin = at + c.len_utf8();
        }
    }
    found.push(&block[begin..]);
    found.retain(|sentence| words(sentence) > 0);
    found
}

fn is_abbreviation(text: &str) -> bool {
    ["e.g.", "i.e.", "etc.", "vs.", "al."].iter().any(|short| text.ends_with(short))
}

/// The number of words of a sentence: only parts with a letter count, not figures and symbols.
fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    #[test]
    fn sentences_end_with_punctuation_or_block() {
        assert_eq!(
            sentences("One, e.g. 1.5 s. Two? Three: four"),
            ["One, e.g. 1.5 s.", " Two?", " Three:", " four"]
        );
        assert_eq!(words("12 % of 3 links, `x`."), 3);
    }

    #[test]
    fn page_with_many_long_sentences_is_found() {
        let long = format!("{}end.\n\n", "word ".repeat(LONG));
        let text = |count: usize| format!("# A\n\n{}", long.repeat(count));
        assert_eq!(long_sentences(&made_up(&[("docs/a.md", &text(1))])), []);
        let found = long_sentences(&made_up(&[("docs/a.md", &text(2))]));
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[1].line, Some(3));
        let many_short = format!("{}{}", text(2), "Short one. ".repeat(38));
        assert_eq!(long_sentences(&made_up(&[("docs/a.md", &many_short)])), []);
    }

    #[test]
    fn code_and_generated_pages_are_left_out() {
        let long = "word ".repeat(3 * LONG);
        let code = format!("```sh\n{long}\n```\n\n```sh\n{long} whoever\n```\n");
        let generated = format!("{GENERATED} by a test -->\n{long}\n\n{long} whoever\n");
        let tree = made_up(&[
            ("docs/a.md", &code),
            ("docs/b.md", &generated),
            ("crates/a/README.md", &generated[20..]),
        ]);
        assert_eq!(long_sentences(&tree), []);
        assert_eq!(idioms(&tree), []);
    }

    #[test]
    fn plan_texts_are_checked_in_all_parts() {
        let most = "word ".repeat(LONG_IN_PLANS);
        let long = format!("{most}end");
        for (plan, expected) in [
            (format!("id = 'nobody'\ntitle = '{most}'\n# nobody\n"), vec![]),
            ("title = 'As ever'\nabout = 'Else it fails.'\n".to_owned(), vec!["about", "title"]),
            (format!("about = \"\"\"\nShort.\n\n- {most}\n- {long}\n\"\"\"\n"), vec!["about"]),
            (
                format!("[paper]\nsource = 'ere'\nstatement = '{long}'\nvalue = 'ere'\n"),
                vec!["paper.statement", "paper.value"],
            ),
            (
                format!("[[checks]]\nname = 'a'\n[[checks]]\nname = 'ere'\nvalue = '{long}'\n"),
                vec!["checks.name"],
            ),
            (
                "[[plots]]\nentries = [{ name = 'ere', y = 'ere' }]\n".to_owned(),
                vec!["plots.entries.name"],
            ),
            ("title = \n".to_owned(), vec![]),
        ] {
            let tree = made_up(&[("plans/a.toml", &plan), ("plans/a.txt", &long)]);
            let found = plans(&tree);
            let mut keys: Vec<_> =
                found.iter().filter_map(|one| Some(one.what.split_once(": ")?.0)).collect();
            keys.sort_unstable();
            assert_eq!(keys, expected, "{plan}: {found:?}");
        }
    }

    #[test]
    fn every_idiom_is_found_as_whole_words() {
        for (idiom, instead) in IDIOMS {
            let text = format!("# A\n\nIt {}, then.\n", idiom.to_uppercase());
            let found = idioms(&made_up(&[("README.md", &text)]));
            assert_eq!(found.len(), 1, "{idiom}: {found:?}");
            assert!(found[0].what.contains(instead));
        }
        assert_eq!(idioms(&made_up(&[("README.md", "Anewly, here and there.\n")])), []);
        assert_eq!(
            idioms(&made_up(&[("README.md", "It is, or else. Else it is not.\n")])).len(),
            1
        );
    }
}
