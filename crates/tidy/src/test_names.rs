//! Test names fit into a line of a report.

use crate::{Finding, Tree};

/// The longest name of a test.
const MAX_LENGTH: usize = 60;

/// Test names that are too long.
pub(crate) fn long_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.under("crates/", ".rs") {
        for name in test_names(text).into_iter().filter(|name| name.len() > MAX_LENGTH) {
            let what = format!(
                "`{name}` has {} characters: shorten it to subject, behaviour and condition, {MAX_LENGTH} at most",
                name.len()
            );
            findings.push(Finding::in_file(path, what));
        }
    }
    findings
}

/// The functions after an attribute `#[test]` or `#[…::test…]`.
fn test_names(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if let Some(attribute) = line.strip_prefix("#[") {
            let path = attribute.split(['(', ']']).next().unwrap_or("");
            is_test |= path.rsplit("::").next() == Some("test");
        } else if let Some(name) = function(line) {
            if is_test {
                found.push(name);
            }
            is_test = false;
        }
    }
    found
}

fn function(line: &str) -> Option<&str> {
    let behind = line.strip_prefix("fn ").or_else(|| line.split_once(" fn ").map(|(_, b)| b))?;
    let is_code = !line.starts_with("//") && !line.contains('"');
    is_code.then(|| behind.split(['(', '<', ' ']).next().unwrap_or(behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    #[test]
    fn test_names_are_parsed() {
        let text = "#[test]\nfn a() {}\nfn b() {}\n#[tokio::test(flavor = \"x\")]\n#[ignore]\nasync fn c() {}\n\
                    #[cfg(test)]\nmod d { fn e() {} }\n";
        assert_eq!(test_names(text), ["a", "c"]);
    }

    #[test]
    fn name_of_more_than_60_characters_is_found() {
        let found = |length: usize| {
            let text = format!("#[test]\nfn {}() {{}}\n", "x".repeat(length));
            long_names(&made_up(&[("crates/a/src/lib.rs", &text)])).len()
        };
        assert_eq!((found(MAX_LENGTH), found(MAX_LENGTH + 1)), (0, 1));
    }
}
