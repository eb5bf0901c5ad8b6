//! Exceptions for code that is older than a rule: their number only falls.

use toml::{Table, Value};

use crate::{Finding, Tree};

/// The file with all exceptions.
pub(crate) const PATH: &str = "crates/tidy/ratchet.toml";

/// The exceptions under `key`.
pub(crate) fn list(tree: &Tree, key: &str) -> Vec<String> {
    let table = tree.file(PATH).and_then(|text| text.parse::<Table>().ok()).unwrap_or_default();
    let list = table.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// An exception that is no longer needed.
pub(crate) fn unused(key: &str, name: &str) -> Finding {
    Finding::in_file(PATH, format!("`{name}` keeps the rule: delete it from `{key}`"))
}
