//! Dependencies that no source of a crate names, as cargo-machete finds them.

use crate::manifest::{self, Kind};
use crate::{Finding, Tree};

/// Dependencies of crates under `crates/` that can be deleted.
pub(crate) fn unused_dependencies(tree: &Tree) -> Vec<Finding> {
    let workspace = manifest::workspace(tree);
    let mut findings = Vec::new();
    for one in manifest::crates(tree) {
        for (kind, package) in one.dependencies(&workspace) {
            let name = package.replace('-', "_");
            let folder = format!("crates/{}/", one.name);
            let is_used = tree
                .under(&folder, ".rs")
                .filter(|(path, _)| is_for(kind, &path[folder.len()..]))
                .any(|(_, text)| names(text, &name));
            if !is_used {
                let what = format!("`{package}` is not used: delete it");
                findings.push(Finding::in_file(one.manifest_path(), what));
            }
        }
    }
    findings
}

/// Whether a file of a crate may use a dependency of that kind.
fn is_for(kind: Kind, path: &str) -> bool {
    match kind {
        Kind::Normal => path.starts_with("src/"),
        Kind::Build => path == "build.rs",
        Kind::Dev => path != "build.rs",
    }
}

/// Whether a text has `name` as a whole word.
fn names(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(is_word) && !text[at + name.len()..].starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    fn found(manifest: &str, files: &[(&str, &str)]) -> Vec<String> {
        let manifest = format!("[package]\nname = 'lull-lab'\n{manifest}");
        let mut all = vec![("crates/lab/Cargo.toml", manifest.as_str())];
        all.extend(files);
        unused_dependencies(&made_up(&all)).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn dependency_without_a_use_is_found() {
        let both = "[dependencies]\nserde-json = '1'\nnix = '1'\n";
        let lib = ("crates/lab/src/lib.rs", "use serde_json::json; // phoenix, nix_more");
        assert_eq!(found(both, &[lib]), ["`nix` is not used: delete it"]);
    }

    #[test]
    fn dependency_counts_in_the_files_of_its_kind() {
        let (lib, test, build) =
            ("crates/lab/src/lib.rs", "crates/lab/tests/it/main.rs", "crates/lab/build.rs");
        for (kind, file, is_used) in [
            ("dependencies", lib, true),
            ("dependencies", test, false),
            ("dev-dependencies", test, true),
            ("dev-dependencies", lib, true),
            ("dev-dependencies", build, false),
            ("build-dependencies", build, true),
            ("build-dependencies", lib, false),
        ] {
            let findings = found(&format!("[{kind}]\nnix = '1'\n"), &[(file, "use nix::fcntl;")]);
            assert_eq!(findings.is_empty(), is_used, "{kind} in {file}");
        }
    }
}
