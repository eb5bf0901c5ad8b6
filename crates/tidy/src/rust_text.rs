//! The comments and string literals of Rust source.

use std::ops::Range;
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};

/// A comment, or a string literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    /// Its first line, from 1.
    pub(crate) line: usize,
    /// A comment without its marks, or a literal without quotes.
    pub(crate) text: String,
    /// Whether it is a comment. Comments on successive lines are one.
    pub(crate) is_comment: bool,
    /// Its last line.
    last: usize,
}

/// The texts in a source file, in order; none if it is not Rust.
pub(crate) fn texts(source: &str) -> Vec<Text> {
    let Ok(stream) = TokenStream::from_str(source) else { return Vec::new() };
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    tokens.push((source.len()..source.len(), false));
    let ends: Vec<usize> = source.match_indices('\n').map(|(at, _)| at).collect();
    let line = |at: usize| ends.partition_point(|end| *end < at) + 1;
    let mut found: Vec<Text> = Vec::new();
    let mut end = 0;
    for (place, is_literal) in tokens {
        // Between two tokens are only comments and spaces.
        let mut at = end;
        for one in source.get(end..place.start).unwrap_or_default().split_inclusive('\n') {
            add_comment(&mut found, one, line(at));
            at += one.len();
        }
        let literal = &source[place.clone()];
        // A documentation comment is the literal of an attribute.
        if is_literal && literal.starts_with('/') {
            for (number, one) in literal.lines().enumerate() {
                add_comment(&mut found, one, line(place.start) + number);
            }
        } else if is_literal
            && !literal.trim_start_matches('b').starts_with('\'')
            && let Some((_, text)) = literal.split_once('"')
        {
            let text = text.rsplit_once('"').map_or(text, |(text, _)| text);
            let text = text.replace("\\n", " ").replace("\\\n", "");
            let (line, last) = (line(place.start), line(place.end));
            found.push(Text { line, text, is_comment: false, last });
        }
        end = end.max(place.end);
    }
    found
}

/// The place of each token, and whether it is a literal.
fn flatten(stream: TokenStream, into: &mut Vec<(Range<usize>, bool)>) {
    for tree in stream {
        match tree {
            TokenTree::Group(group) => {
                into.push((group.span_open().byte_range(), false));
                flatten(group.stream(), into);
                into.push((group.span_close().byte_range(), false));
            }
            TokenTree::Literal(literal) => into.push((literal.span().byte_range(), true)),
            other => into.push((other.span().byte_range(), false)),
        }
    }
}

/// Adds a line of a comment, to the comment on the line before if there is one.
fn add_comment(found: &mut Vec<Text>, source: &str, line: usize) {
    let source = source.trim();
    if source.is_empty() {
        return;
    }
    let text = source.trim_start_matches(['/', '*', '!']).trim_end_matches("*/");
    let text = text.strip_prefix(' ').unwrap_or(text);
    match found.last_mut() {
        Some(before) if before.is_comment && before.last + 1 == line => {
            before.text = format!("{}\n{text}", before.text);
            before.last = line;
        }
        _ => found.push(Text { line, text: text.to_owned(), is_comment: true, last: line }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<(usize, String, bool)> {
        texts(source).into_iter().map(|one| (one.line, one.text, one.is_comment)).collect()
    }

    #[test]
    fn comments_on_successive_lines_are_one() {
        let source = "//! A.\n//! B.\n\n/// C ä\n/// d.\nfn f() {\n    // E,\n    // f. \"g\"\n    g();\n    h(); // H.\n}\n// I.";
        let expected = [(1, "A.\nB."), (4, "C ä\nd."), (7, "E,\nf. \"g\""), (10, "H."), (12, "I.")];
        assert_eq!(found(source), expected.map(|(line, text)| (line, text.to_owned(), true)));
    }

    #[test]
    fn strings_have_the_text_between_their_quotes() {
        let source = "const A: &str = \"one\\n\\\n two // 3\";\nconst B: &[u8] = br#\"a \"b\" c\"#;\nconst C: char = '\"';";
        let strings: Vec<_> =
            found(source).into_iter().map(|(line, text, _)| (line, text)).collect();
        let expected = [(1, "one  two // 3"), (3, "a \"b\" c")];
        assert_eq!(strings, expected.map(|(line, text)| (line, text.to_owned())));
        assert!(texts("fn f( {").is_empty());
    }

    #[test]
    fn block_comments_are_found() {
        assert_eq!(found("/* A\n * B */ fn f() {}"), [(1, "A\nB ".to_owned(), true)]);
    }
}
