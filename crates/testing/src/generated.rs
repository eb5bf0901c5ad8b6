//! Files that tests generate.

use std::fs;
use std::path::Path;

/// Compares a generated file with `text`. With `LULL_WRITE_REFERENCE` in the environment it writes the file instead.
/// `path` is relative to the root of the tree.
///
/// # Panics
/// If the file differs, or cannot be written.
pub fn assert_generated(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("LULL_WRITE_REFERENCE").is_some() {
        fs::write(&file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    let current = fs::read_to_string(&file).unwrap_or_default();
    assert!(current == text, "{path} is not current: run `scripts/docs.sh --write`");
}
