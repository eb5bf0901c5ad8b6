//! Rules on links: each has a target, and the book contains every page.

use std::collections::BTreeMap;

use crate::markdown::Page;
use crate::prose::GENERATED;
use crate::rust::Source;
use crate::{Finding, Tree};

/// The table of contents of the book.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Links in Markdown files without a target file or heading. A page of the book may not link to files outside
/// of it, because the built book contains only its own.
pub(crate) fn broken(tree: &Tree) -> Vec<Finding> {
    let pages: BTreeMap<_, _> =
        tree.under("", ".md").map(|(path, text)| (path, Page::parse(text))).collect();
    let mut findings = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            if link.to.contains("://") || link.to.starts_with("mailto:") {
                continue;
            }
            if let Some(what) = problem(tree, &pages, path, &link.to) {
                let what = format!("link to {}: {what}", link.to);
                findings.push(Finding::at(*path, link.line, what));
            }
        }
    }
    findings
}

/// The problem of a link from the page `path`, if any.
fn problem(tree: &Tree, pages: &BTreeMap<&str, Page>, path: &str, to: &str) -> Option<String> {
    let (file, heading) = to.split_once('#').unwrap_or((to, ""));
    let file = if file.is_empty() { path.to_owned() } else { resolve(path, file)? };
    let is_folder = tree.under(&format!("{}/", file.trim_end_matches('/')), "").next().is_some();
    if path.starts_with("docs/") && (is_folder || !file.starts_with("docs/")) {
        return Some(format!("{file} is not a page of the book: write `{file}` as code"));
    }
    if is_folder {
        return None;
    }
    if tree.file(&file).is_none() {
        return Some(format!("there is no file {file}"));
    }
    let anchors = pages.get(file.as_str()).map(|page| &page.anchors);
    let has_heading =
        heading.is_empty() || anchors.is_some_and(|all| all.iter().any(|a| a == heading));
    (!has_heading).then(|| format!("{file} has no heading with the anchor {heading}"))
}

/// The path from the root of the tree for `file` in `page`.
fn resolve(page: &str, file: &str) -> Option<String> {
    let mut parts: Vec<_> = page.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Mentions of missing pages, such as `docs/web.md`, outside of the documentation.
pub(crate) fn mentions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        if path.starts_with("docs/") || path == "CHANGELOG.md" || path.starts_with("crates/tidy/") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            for page in mentioned(line) {
                if tree.file(page).is_none() {
                    let what = format!("there is no page {page}");
                    findings.push(Finding::at(path, number + 1, what));
                }
            }
        }
    }
    findings
}

/// The paths of pages in a line.
fn mentioned(line: &str) -> Vec<&str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    line.split(|c| !is_path(c))
        .filter_map(|word| {
            let page = word.trim_start_matches("../").trim_start_matches("./");
            let end = page.find(".md")? + ".md".len();
            page.starts_with("docs/").then(|| &page[..end])
        })
        .collect()
}

/// Mentions of missing source files, such as `crates/a/src/b.rs`, and of missing functions in them, such as
/// `crates/a/src/b.rs:f`.
pub(crate) fn places(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.under("", ".md").filter(|(path, _)| *path != "CHANGELOG.md") {
        for (line, code) in Page::parse(text).code {
            let (file, function) = code.split_once(':').unwrap_or((&code, ""));
            let is_place = !file.contains('*')
                && (file.starts_with("crates/") || file.starts_with("bpf/"))
                && [".rs", ".c", ".h"].iter().any(|ending| file.ends_with(ending));
            if !is_place {
                continue;
            }
            match tree.file(file) {
                None => findings.push(Finding::at(path, line, format!("there is no file {file}"))),
                Some(source) if !has_function(file, source, function) => {
                    let what = format!("{file} has no function {function}");
                    findings.push(Finding::at(path, line, what));
                }
                Some(_) => {}
            }
        }
    }
    findings
}

/// Whether the source has a function of this name, with a body; every source has the empty name.
fn has_function(file: &str, source: &str, name: &str) -> bool {
    if name.is_empty() {
        return true;
    }
    if file.ends_with(".rs") {
        let functions = Source::parse(source).map(|source| source.functions()).unwrap_or_default();
        return functions.iter().any(|function| function.name == name);
    }
    // In C the body starts on the line after the head.
    let call = format!("{name}(");
    source.lines().any(|line| {
        let begins = line.starts_with(|c: char| c.is_ascii_alphabetic());
        begins && !line.ends_with(';') && line.contains(&call)
    })
}

/// Test names in the documentation that no source has, because the test was renamed.
pub(crate) fn test_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.under("docs/", ".md").filter(|(_, text)| !text.starts_with(GENERATED))
    {
        for (line, name) in Page::parse(text).code {
            let is_known =
                || tree.under("crates/", ".rs").any(|(_, source)| source.contains(&name));
            if is_test_name(&name) && !is_known() {
                findings.push(Finding::at(path, line, format!("there is no test {name}")));
            }
        }
    }
    findings
}

/// Whether this may be a test name: words in lower case, at least five of them. Metrics have fewer, or begin
/// with `lull_`.
fn is_test_name(code: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let words: Vec<_> = code.split('_').collect();
    words.len() >= 5 && words[0] != "lull" && words.into_iter().all(is_word)
}

/// Pages that the table of contents of the book leaves out.
pub(crate) fn summary(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.file(SUMMARY) else {
        return Vec::new();
    };
    let listed: Vec<_> =
        Page::parse(text).links.iter().filter_map(|link| resolve(SUMMARY, &link.to)).collect();
    tree.under("docs/", ".md")
        .filter(|(path, _)| *path != SUMMARY && !listed.iter().any(|page| page == path))
        .map(|(path, _)| Finding::in_file(path, format!("{SUMMARY} does not list this page")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    #[test]
    fn links_lead_to_files_and_headings() {
        for (to, is_fine) in [
            ("b.md", true),
            ("b.md#a-heading", true),
            ("#here", true),
            ("adr/c.md", true),
            ("https://example.org/x", true),
            ("none.md", false),
            ("b.md#other", false),
            ("#there", false),
            ("../README.md", false),
            ("../crates/a.rs", false),
            ("adr/", false),
        ] {
            let page = format!("# Here\n\n[x]({to})\n");
            let tree = made_up(&[
                ("docs/a.md", &page),
                ("docs/b.md", "## A heading\n"),
                ("docs/adr/c.md", "[x](../b.md)\n"),
                ("README.md", "[x](docs/a.md) [y](docs/adr/)\n"),
                ("crates/a.rs", ""),
            ]);
            assert_eq!(broken(&tree).is_empty(), is_fine, "{to}: {:?}", broken(&tree));
        }
    }

    #[test]
    fn mentioned_pages_exist() {
        let tree = made_up(&[
            ("docs/a.md", "see docs/none.md\n"),
            ("crates/a.rs", "// docs/a.md, `docs/b.md`.\n//! (../../docs/a.md#x)\n"),
        ]);
        let found = mentions(&tree);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].path.as_str(), found[0].line), ("crates/a.rs", Some(1)));
    }

    #[test]
    fn functions_that_pages_name_exist() {
        let page = "`crates/a/src/lib.rs:f` `crates/a/src/lib.rs:g`\n`crates/a/src/gone.rs`\n\
                    `bpf/a.h:on_ack` `bpf/a.h:on_loss` `bpf/a.h` `a.rs:1` `src/x.rs`\n";
        let tree = made_up(&[
            ("A.md", page),
            ("crates/a/src/lib.rs", "impl A { fn f() {} } // fn g() {}\n"),
            ("bpf/a.h", "static void on_ack(struct s *s)\n{\n\ton_loss(s);\n}\n"),
        ]);
        let found: Vec<String> = places(&tree).into_iter().map(|one| one.what).collect();
        assert_eq!(
            found,
            [
                "crates/a/src/lib.rs has no function g",
                "there is no file crates/a/src/gone.rs",
                "bpf/a.h has no function on_loss",
            ]
        );
    }

    #[test]
    fn tests_that_pages_name_exist() {
        let page =
            "`a_test_that_is_there`, `a_test_that_is_gone`, `lull_web_hint_lists_total`, `a_b`\n";
        let tree = made_up(&[
            ("docs/a.md", page),
            ("crates/a/src/lib.rs", "#[test]\nfn a_test_that_is_there() {}\n"),
        ]);
        let found = test_names(&tree);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains("is_gone"));
    }

    #[test]
    fn every_page_is_in_the_book() {
        let tree = made_up(&[
            ("docs/SUMMARY.md", "- [A](a.md)\n- [B](adr/b.md)\n"),
            ("docs/a.md", ""),
            ("docs/adr/b.md", ""),
            ("docs/c.md", ""),
        ]);
        let found = summary(&tree);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].path, "docs/c.md");
    }
}
