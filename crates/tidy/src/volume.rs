//! A limit for the number of words in the documentation.

use crate::prose::GENERATED;
use crate::{Finding, Tree};

/// README.md, ARCHITECTURE.md and docs/ have at most this many words, as `wc -w` counts. Left out are docs/reference/,
/// docs/SUMMARY.md, which has titles only, and what the code or the records generate.
const MOST: usize = 47_500;
/// The line above a table that `scripts/tables.py` writes.
const TABLE: &str = "<!-- table: ";

/// Whether the documentation has more than [`MOST`] words.
pub(crate) fn too_many_words(tree: &Tree) -> Vec<Finding> {
    let words: usize =
        tree.files().filter(|(path, _)| counts(path)).map(|(_, text)| words(text)).sum();
    if words <= MOST {
        return Vec::new();
    }
    let what = format!(
        "README.md, ARCHITECTURE.md and docs/ without reference have {words} words, at most {MOST}: cut what \
         repeats another page"
    );
    vec![Finding::in_file("docs/", what)]
}

fn counts(path: &str) -> bool {
    let is_left_out = path.starts_with("docs/reference/") || path == "docs/SUMMARY.md";
    let is_page = path.starts_with("docs/") && path.ends_with(".md") && !is_left_out;
    is_page || matches!(path, "README.md" | "ARCHITECTURE.md")
}

/// The words of a page without its generated tables.
fn words(text: &str) -> usize {
    if text.starts_with(GENERATED) {
        return 0;
    }
    let mut is_generated = false;
    let mut count = 0;
    for line in text.lines() {
        is_generated = line.starts_with(TABLE) || is_generated && line.starts_with('|');
        if !is_generated {
            count += line.split_whitespace().count();
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    #[test]
    fn words_above_the_limit_are_found() {
        let half = "word ".repeat(MOST / 2);
        let tree = |more: &str| {
            let page = format!("{half}{more}");
            made_up(&[("README.md", &half), ("docs/how-to/a.md", &page)])
        };
        assert_eq!(too_many_words(&tree("")), []);
        let found = too_many_words(&tree("more"));
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("47501 words, at most 47500"), "{found:?}");
    }

    #[test]
    fn generated_and_other_text_does_not_count() {
        let many = "word ".repeat(2 * MOST);
        let table = format!("A page.\n\n{TABLE}a -->\n| {many}|\n| {many}|\n");
        let generated = format!("{GENERATED} by a test -->\n{many}\n");
        let tree = |page: &str| {
            made_up(&[
                ("docs/a.md", page),
                ("docs/b.md", &generated),
                ("docs/reference/c.md", &many),
                ("docs/SUMMARY.md", &many),
                ("CHANGELOG.md", &many),
                ("docs/d.py", &many),
            ])
        };
        assert_eq!(too_many_words(&tree(&table)), []);
        assert_eq!(too_many_words(&tree(&format!("{table}{many}"))).len(), 1);
    }
}
