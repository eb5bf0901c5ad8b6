//! `unsafe` is allowed only in modules named `sys`, so that a reviewer knows where to look.

use crate::rust::Source;
use crate::{Finding, Tree};

/// `unsafe` outside a `sys.rs` or a folder `sys/`, tests and build scripts included.
pub(crate) fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.under("", ".rs") {
        if path.split('/').any(|part| part == "sys" || part == "sys.rs") {
            continue;
        }
        let Some(source) = Source::parse(text) else {
            findings.push(Finding::in_file(path, "cannot be read as Rust"));
            continue;
        };
        for line in source.lines_of("unsafe") {
            let what = "`unsafe` outside `sys.rs` or `sys/`: wrap it there, safely";
            findings.push(Finding::at(path, line, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    #[test]
    fn unsafe_is_found_outside_sys() {
        let block = "//! Nothing `unsafe` here.\nfn f() { unsafe { g() } }\n";
        let tree = made_up(&[
            ("crates/kernel/src/lib.rs", block),
            ("crates/kernel/src/sys.rs", block),
            ("crates/kernel/src/sys/bpf.rs", block),
            ("crates/kernel/src/system.rs", "unsafe extern \"C\" { fn g(); }"),
            ("crates/cc/src/lib.rs", "#![forbid(unsafe_code)]\n// unsafe\n"),
        ]);
        let found = unsafe_code(&tree);
        let places: Vec<_> = found.iter().map(|f| (f.path.as_str(), f.line)).collect();
        assert_eq!(
            places,
            [("crates/kernel/src/lib.rs", Some(2)), ("crates/kernel/src/system.rs", Some(1))]
        );
    }

    #[test]
    fn invalid_rust_is_reported() {
        assert_eq!(unsafe_code(&made_up(&[("a.rs", "fn f( {")])).len(), 1);
    }
}
