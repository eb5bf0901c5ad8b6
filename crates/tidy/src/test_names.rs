//! Test names fit into a line of a report. Old ones may be longer, but their number only falls.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::{Finding, Tree};

/// The longest name of a test.
const LONGEST: usize = 60;
/// How many longer names each crate may have.
use crate::ratchet::PATH as RATCHET;
/// The limit of a crate is lowered when it has this many fewer longer names. With no tolerance at all, two
/// changes that shorten names could never be merged.
const ROOM: usize = 5;

/// Crates with more long test names than the ratchet allows, or so many fewer that it has to be tightened.
pub(crate) fn long_names(tree: &Tree) -> Vec<Finding> {
    let allowed =
        tree.file(RATCHET).and_then(|text| text.parse::<Table>().ok()).unwrap_or_default();
    let allowed = |name: &str| {
        let number = allowed.get("long_test_names").and_then(|table| table.get(name));
        number.and_then(Value::as_integer).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
    };
    let mut findings = Vec::new();
    for (name, long) in by_crate(tree) {
        let allowed = allowed(name);
        if long.len() > allowed {
            let what = format!(
                "{name} has {} test names of more than {LONGEST} characters, and {RATCHET} allows {allowed}: \
                 shorten the new one, which `git diff` shows, to subject, behaviour and condition",
                long.len()
            );
            findings.push(Finding::in_file(format!("crates/{name}"), what));
        } else if long.len() + ROOM < allowed {
            let what = format!("{name} has {} long test names left: write that", long.len());
            findings.push(Finding::in_file(RATCHET, what));
        }
    }
    findings
}

/// The long names of each crate.
fn by_crate(tree: &Tree) -> BTreeMap<&str, Vec<&str>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (path, text) in tree.under("crates/", ".rs") {
        let Some(name) = path.split('/').nth(1) else {
            continue;
        };
        let long = found.entry(name).or_default();
        long.extend(test_names(text).into_iter().filter(|test| test.len() > LONGEST));
    }
    found
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
    fn number_of_long_names_only_falls() {
        let long = format!("#[test]\nfn {}() {{}}\n", "x".repeat(LONGEST + 1));
        let found = |count: usize, allowed: usize| {
            let ratchet = format!("[long_test_names]\na = {allowed}\n");
            long_names(&made_up(&[
                ("crates/a/src/lib.rs", &long.repeat(count)),
                (RATCHET, &ratchet),
            ]))
            .len()
        };
        assert_eq!(found(2, 2), 0);
        assert_eq!(found(2, 1), 1);
        assert_eq!(found(2, 2 + ROOM), 0);
        assert_eq!(found(2, 3 + ROOM), 1, "the number has to be lowered");
        let short = format!("#[test]\nfn {}() {{}}\n", "x".repeat(LONGEST));
        assert_eq!(long_names(&made_up(&[("crates/a/src/lib.rs", &short)])), []);
    }
}
