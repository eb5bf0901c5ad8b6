//! The files of a checkout.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// Folders with generated files, anywhere in the tree.
const MADE_BY_TOOLS: &[&str] = &[".git", "target", "node_modules", "__pycache__", "artifacts"];
/// The same, only at the root: records and plots of the lab.
const OUTPUT: &str = "out";

/// The text files of a checkout, by their path from its root, in order.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the tree under `root`: all files that are UTF-8, without generated ones. Links are not followed.
    ///
    /// # Errors
    /// If a folder or a file cannot be read.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                let output = prefix.is_empty() && name == OUTPUT;
                if !output && !MADE_BY_TOOLS.contains(&name.as_str()) {
                    self.read_folder(&entry.path(), &format!("{prefix}{name}/"))?;
                }
            } else if kind.is_file()
                // In a Git worktree `.git` is a file.
                && name != ".git"
                && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
            {
                self.files.insert(format!("{prefix}{name}"), text);
            }
        }
        Ok(())
    }

    /// All files, as path and text.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of one file.
    pub fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// The files below `folder` (which ends in `/`) whose name ends in `ending`.
    pub(crate) fn under(&self, folder: &str, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(move |(path, _)| path.starts_with(folder) && path.ends_with(ending))
    }
}

/// Writes `files` into a new folder and reads that as a tree.
#[cfg(test)]
pub(crate) fn made_up(files: &[(&str, &str)]) -> Tree {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Tree::read(root.path()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_files_are_skipped() {
        let tree = made_up(&[
            ("src/lib.rs", "fn f() {}"),
            ("target/debug/x.rs", ""),
            ("fuzz/target/x.rs", ""),
            ("out/run.json", ""),
            ("docs/out/kept.md", ""),
            (".git/HEAD", ""),
        ]);
        let paths: Vec<_> = tree.files().map(|(path, _)| path).collect();
        assert_eq!(paths, ["docs/out/kept.md", "src/lib.rs"]);
        assert_eq!(tree.file("src/lib.rs"), Some("fn f() {}"));
    }

    #[test]
    fn binary_files_are_skipped() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("plot.png"), [0x89, b'P', 0xff, 0xfe]).unwrap();
        assert_eq!(Tree::read(root.path()).unwrap().files().count(), 0);
    }
}
