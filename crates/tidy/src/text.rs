//! Rules on the text of a file in any language.

use crate::{Finding, Tree};

/// Texts from other sources, or written by a tool.
fn is_verbatim(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("LICENSE") || name == "Cargo.lock"
}

/// Unreadable settings: otherwise a tool that is not installed everywhere, such as cargo-deny, would be the
/// first to report them.
pub(crate) fn settings(tree: &Tree) -> Vec<Finding> {
    tree.files()
        .filter(|(path, _)| path.ends_with(".toml"))
        .filter_map(|(path, text)| {
            let error = text.parse::<toml::Table>().err()?;
            let before = text.get(..error.span()?.start)?;
            let line = before.matches('\n').count() + 1;
            Some(Finding::at(path, line, format!("no TOML: {}", error.message())))
        })
        .collect()
}

/// Folders of a person's machine. Spelled in halves, so that this file passes its own rule.
const HOMES: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

/// Paths that exist on one machine only.
pub(crate) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| !is_verbatim(path)) {
        for (number, line) in text.lines().enumerate() {
            if let Some(home) = HOMES.iter().find(|home| has_absolute(line, home)) {
                let what = format!("`{home}…` is a path of one machine: write `~` or a variable");
                findings.push(Finding::at(path, number + 1, what));
            }
        }
    }
    findings
}

/// Whether `line` has `folder` as the beginning of an absolute path, not inside a longer one or after a
/// variable.
fn has_absolute(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~})/*".contains(c))
    })
}

/// Marks that mean "later". Spelled in halves, so that this file passes its own rule.
const MARKERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Marks that mean "later": open work goes to the tracker, where it can be found.
pub(crate) fn markers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| !is_verbatim(path)) {
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(marker) = words.find(|word| MARKERS.contains(word)) {
                let what = format!("`{marker}`: do it, or open an issue that says it");
                findings.push(Finding::at(path, number + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    #[test]
    fn settings_are_parsed() {
        let tree = made_up(&[("deny.toml", "[a]\nb = 1\nc = 2\nb = 3\n")]);
        let findings = settings(&tree);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].line, Some(4));
        assert_eq!(settings(&made_up(&[("deny.toml", "[a]\nb = 1\n")])), []);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for home in HOMES {
            let text = format!("fine\nDATA = \"{home}me/data\"\n");
            let findings = machine_paths(&made_up(&[("plan.toml", &text)]));
            assert_eq!(findings.len(), 1, "{home}");
            assert_eq!(findings[0].line, Some(2));
        }
    }

    #[test]
    fn machine_names_inside_a_path_are_allowed() {
        let mut text = String::new();
        for home in HOMES {
            text +=
                &format!("..{home} ~{home} $HOME{home} ${{X}}{home} docs{home} https:/{home}\n");
        }
        let tree = made_up(&[("a.md", &text), ("LICENSE", concat!("/ho", "me/x"))]);
        assert_eq!(machine_paths(&tree), []);
    }

    #[test]
    fn markers_are_whole_words() {
        for marker in MARKERS {
            let text = format!("fn f() {{}} // {marker}: later\n");
            assert_eq!(markers(&made_up(&[("a.rs", &text)])).len(), 1, "{marker}");
        }
        let tree = made_up(&[("a.sh", "mktemp -d /tmp/lull.XXXXXX # MASTODON")]);
        assert_eq!(markers(&tree), []);
    }
}
