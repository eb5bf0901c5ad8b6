//! The crates of the workspace, from their manifests.

use toml::{Table, Value};

use crate::Tree;

/// A crate under `crates/`.
pub(crate) struct Crate {
    /// Its folder under `crates/`.
    pub(crate) name: String,
    /// The name of its package.
    pub(crate) package: String,
    /// Its `Cargo.toml`.
    pub(crate) manifest: Table,
}

/// Where a dependency is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In the crate itself.
    Normal,
    /// In its build script.
    Build,
    /// In its tests, examples and benches.
    Dev,
}

impl Crate {
    /// The path of its manifest.
    pub(crate) fn manifest_path(&self) -> String {
        format!("crates/{}/Cargo.toml", self.name)
    }

    /// The packages that it depends on, of every kind and for every target.
    pub(crate) fn dependencies(&self, workspace: &Table) -> Vec<(Kind, String)> {
        let mut found = Vec::new();
        let of_targets = self.manifest.get("target").and_then(Value::as_table);
        let tables = of_targets.into_iter().flatten().filter_map(|(_, table)| table.as_table());
        for table in tables.chain([&self.manifest]) {
            for (key, kind) in [
                ("dependencies", Kind::Normal),
                ("build-dependencies", Kind::Build),
                ("dev-dependencies", Kind::Dev),
            ] {
                let dependencies = table.get(key).and_then(Value::as_table);
                for (name, value) in dependencies.into_iter().flatten() {
                    found.push((kind, package_of(name, value, workspace)));
                }
            }
        }
        found
    }
}

/// The package of the dependency `name`, which may be a new name given here or in the workspace.
fn package_of(name: &str, value: &Value, workspace: &Table) -> String {
    let inherited = value.get("workspace").and_then(Value::as_bool) == Some(true);
    let value = if inherited {
        workspace
            .get("workspace")
            .and_then(|table| table.get("dependencies")?.get(name))
            .unwrap_or(value)
    } else {
        value
    };
    value.get("package").and_then(Value::as_str).unwrap_or(name).to_owned()
}

/// The manifest of the workspace; empty if there is none or it is invalid TOML (cargo reports that itself).
pub(crate) fn workspace(tree: &Tree) -> Table {
    tree.file("Cargo.toml").and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// All crates under `crates/`.
pub(crate) fn crates(tree: &Tree) -> Vec<Crate> {
    tree.under("crates/", "/Cargo.toml")
        .filter_map(|(path, text)| {
            let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            let manifest: Table = text.parse().ok()?;
            let package = manifest.get("package")?.get("name")?.as_str()?.to_owned();
            Some(Crate { name: name.to_owned(), package, manifest })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::made_up;

    #[test]
    fn every_kind_of_dependency_is_parsed() {
        let tree = made_up(&[
            ("Cargo.toml", "[workspace.dependencies]\ncc = { package = 'lull-cc', path = 'x' }\n"),
            (
                "crates/lab/Cargo.toml",
                "[package]\nname = 'lull-lab'\n[dependencies]\ncc.workspace = true\n\
                 [dev-dependencies]\nproptest = '1'\n\
                 [build-dependencies]\nclang = { package = 'cc', version = '1' }\n\
                 [target.'cfg(unix)'.dependencies]\nlibc = '0.2'\n",
            ),
        ]);
        let lab = crates(&tree).remove(0);
        assert_eq!((lab.name.as_str(), lab.package.as_str()), ("lab", "lull-lab"));
        let mut found = lab.dependencies(&workspace(&tree));
        found.sort_by(|a, b| a.1.cmp(&b.1));
        let expected = [
            (Kind::Build, "cc"),
            (Kind::Normal, "libc"),
            (Kind::Normal, "lull-cc"),
            (Kind::Dev, "proptest"),
        ];
        assert_eq!(found, expected.map(|(kind, name)| (kind, name.to_owned())));
    }
}
