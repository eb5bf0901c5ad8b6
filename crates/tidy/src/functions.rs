//! Functions that can be read without scrolling. Old ones may be longer, but their list only shrinks.
//!
//! Tests do not count: a test may hold a long table of cases.

use crate::rust::Source;
use crate::{Finding, Tree, ratchet};

/// The longest function, in lines from `fn` to its closing brace.
const MAX_LINES: usize = 70;

/// Functions of more than [`MAX_LINES`] lines, and exceptions for functions that are now short.
pub(crate) fn long_functions(tree: &Tree) -> Vec<Finding> {
    let allowed = ratchet::list(tree, "long_functions");
    let mut findings = Vec::new();
    let mut used = Vec::new();
    for (path, text) in tree.under("", ".rs").filter(|(path, _)| !is_test(path)) {
        let source = Source::parse(text).map(Source::without_tests);
        let functions = source.map(|source| source.functions()).unwrap_or_default();
        for function in functions.into_iter().filter(|function| function.lines > MAX_LINES) {
            let name = format!("{path}:{}", function.name);
            if allowed.contains(&name) {
                used.push(name);
            } else {
                let what = format!(
                    "`{}` has {} lines: split it, at most {MAX_LINES} are allowed",
                    function.name, function.lines
                );
                findings.push(Finding::at(path, function.line, what));
            }
        }
    }
    let unused = allowed.into_iter().filter(|name| !used.contains(name));
    findings.extend(unused.map(|name| ratchet::unused("long_functions", &name)));
    findings
}

/// Whether the file contains only tests.
pub(crate) fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.starts_with("crates/testing/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    fn found(lines: usize, exceptions: &str) -> Vec<Finding> {
        let text = format!("// top\nfn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
        let ratchet = format!("long_functions = [{exceptions}]\n");
        long_functions(&made_up(&[("crates/a/src/lib.rs", &text), (ratchet::PATH, &ratchet)]))
    }

    #[test]
    fn long_function_is_found() {
        assert_eq!(found(MAX_LINES, ""), []);
        let findings = found(MAX_LINES + 1, "");
        assert_eq!((findings.len(), findings[0].line), (1, Some(2)), "{findings:?}");
        assert!(findings[0].what.contains("71 lines"), "{}", findings[0]);
    }

    #[test]
    fn long_test_is_fine() {
        let long = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(MAX_LINES));
        let module = format!("#[cfg(test)]\nmod tests {{ {long} }}");
        let tree = made_up(&[
            ("crates/a/src/lib.rs", &module),
            ("crates/a/src/tests.rs", &long),
            ("crates/a/tests/it/main.rs", &long),
        ]);
        assert_eq!(long_functions(&tree), []);
    }

    #[test]
    fn exception_holds_while_function_is_long() {
        assert_eq!(found(MAX_LINES + 1, "'crates/a/src/lib.rs:f'"), []);
        let findings = found(MAX_LINES, "'crates/a/src/lib.rs:f'");
        assert_eq!((findings.len(), findings[0].path.as_str()), (1, ratchet::PATH));
    }
}
