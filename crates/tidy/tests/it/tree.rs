//! Checks the whole tree against the house rules.
use std::path::Path;

use lull_tidy::{Tree, check};

#[test]
fn tree_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = Tree::read(&root).expect("the tree can be read");
    assert!(tree.file("Cargo.toml").is_some(), "{} is not the root", root.display());
    let findings = check(&tree);
    for finding in &findings {
        eprintln!("{finding}");
    }
    assert!(findings.is_empty(), "{} against the house rules, listed above", findings.len());
}
