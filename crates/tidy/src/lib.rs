//! The house rules that no other tool checks.
//!
//! `tests/it/tree.rs` reads the whole tree and fails with a list of violations. Each rule has its own tests,
//! on small generated trees, that prove that it can fail.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! # let folder = tempfile::tempdir()?;
//! # let root = folder.path();
//! std::fs::write(root.join("README.md"), "This page was written anew.\n")?;
//! let findings = lull_tidy::check(&lull_tidy::Tree::read(root)?);
//! let expected = "README.md:1: \"anew\": write again";
//! assert!(findings.iter().any(|finding| finding.to_string() == expected));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod circles;
mod docs;
mod functions;
mod layers;
mod links;
mod manifest;
mod markdown;
mod prose;
mod purity;
mod ratchet;
mod rust;
mod rust_text;
mod test_names;
mod text;
mod tree;
mod unsafety;
mod unused;
mod volume;

use std::fmt;

pub use tree::Tree;

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the root of the tree.
    pub path: String,
    /// The line, from 1; `None` for the file as a whole.
    pub line: Option<usize>,
    /// The rule, and the remedy.
    pub what: String,
}

impl Finding {
    fn in_file(path: impl Into<String>, what: impl Into<String>) -> Self {
        Finding { path: path.into(), line: None, what: what.into() }
    }

    fn at(path: impl Into<String>, line: usize, what: impl Into<String>) -> Self {
        Finding { path: path.into(), line: Some(line), what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.what),
            None => write!(f, "{}: {}", self.path, self.what),
        }
    }
}

/// All violations in `tree`, by file and line.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let rules: [fn(&Tree) -> Vec<Finding>; 25] = [
        functions::long_functions,
        circles::circles,
        text::machine_paths,
        text::markers,
        text::settings,
        layers::imports,
        unused::unused_dependencies,
        purity::pure_crates,
        unsafety::unsafe_code,
        docs::missing_docs,
        docs::decisions,
        docs::plans,
        prose::long_sentences,
        prose::idioms,
        prose::idioms_in_code,
        prose::idioms_in_scripts,
        prose::relative_clauses,
        prose::plans,
        links::broken,
        links::mentions,
        links::places,
        links::summary,
        links::test_names,
        test_names::long_names,
        volume::too_many_words,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings.dedup();
    findings
}
