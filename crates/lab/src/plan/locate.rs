//! The position of a key in a file.

use toml::de::{DeTable, DeValue};

/// An error in a plan, and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Fault {
    /// The path of the wrong key. Elements of lists are named by their number, from 0.
    pub(super) path: Vec<String>,
    /// One line: the key, what is wrong with its value, and the allowed values.
    text: String,
}

/// A fault at the end of a path.
pub(super) fn fault(path: &[&str], text: impl ToString) -> Fault {
    let path = path.iter().map(|name| (*name).to_owned()).collect();
    Fault { path, text: text.to_string() }
}

/// The line, counted from 1, of the byte at `offset`.
pub(super) fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The line of the value at `path`, or of the nearest one around it. Elements of lists are named by their
/// number, from 0.
pub(super) fn line_of(text: &str, path: &[&str]) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let mut offset = None;
    let mut here: Option<&DeValue<'_>> = None;
    for (depth, name) in path.iter().enumerate() {
        let next = if depth == 0 {
            table.get_ref().get(*name)
        } else {
            match here {
                Some(DeValue::Table(table)) => table.get(*name),
                Some(DeValue::Array(list)) => name.parse().ok().and_then(|at: usize| list.get(at)),
                _ => None,
            }
        };
        let Some(next) = next else { break };
        offset = Some(next.span().start);
        here = Some(next.get_ref());
    }
    offset.map(|offset| line_at(text, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_found_on_its_line() {
        let text = "id = 'a'\n[topology]\nrate = '1mbit'\nrtt = '5ms'\n[[groups]]\nname = 'a'\n\
                    [[groups]]\nname = 'b'\ncount = 3\n";
        assert_eq!(line_of(text, &["topology", "rtt"]), Some(4));
        assert_eq!(line_of(text, &["groups", "1", "count"]), Some(9));
        assert_eq!(line_of(text, &["groups", "1", "nothing"]), Some(7));
        assert_eq!(line_of(text, &["nothing"]), None);
        assert_eq!(line_of("= broken", &["id"]), None);
    }
}
