//! Names of objects: what a path must be to mean the same file everywhere.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The longest path in bytes: `PATH_MAX` of Linux without its zero.
pub const LONGEST_PATH: usize = 4095;
/// The longest name within a path in bytes: `NAME_MAX` of Linux.
pub const LONGEST_NAME: usize = 255;
/// The first name that belongs to Lull itself: a mount shows its snapshots there.
pub const RESERVED: &str = ".lull";

/// The path of a file within the replicated tree: relative, of plain names, in UTF-8.
///
/// Clones share their text. Paths are ordered by their bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Arc<str>);

/// Why something is no path of a replicated file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// There is nothing in it.
    #[error("the path is empty: name a file")]
    Empty,
    /// It begins with a slash.
    #[error("the path is absolute: name it from the root of the tree, without the first slash")]
    Absolute,
    /// Two slashes follow each other, or one is the last character.
    #[error("the path has an empty name: write one slash between names, none at the end")]
    EmptyName,
    /// It leads out of the tree, or around within it.
    #[error("the path has `.` or `..` in it: write it without")]
    Dots,
    /// It has a character that ends lines, texts or terminals' patience.
    #[error("the path has a control character in it: rename the file")]
    Control,
    /// A name is too long for the file systems of replicas.
    #[error("a name of the path has over {LONGEST_NAME} bytes: shorten it")]
    LongName,
    /// The whole is too long for the file systems of replicas.
    #[error("the path has over {LONGEST_PATH} bytes: shorten it")]
    Long,
    /// It is no text.
    #[error("the path is no UTF-8: rename the file")]
    Encoding,
    /// Lull's own folder.
    #[error("`{RESERVED}` at the root is Lull's own: rename the file")]
    Reserved,
}

impl Path {
    /// The path that `text` names.
    ///
    /// # Errors
    /// If it breaks one of the rules.
    pub fn new(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.len() > LONGEST_PATH {
            return Err(PathError::Long);
        }
        if text.starts_with('/') {
            return Err(PathError::Absolute);
        }
        if text.chars().any(char::is_control) {
            return Err(PathError::Control);
        }
        for name in text.split('/') {
            match name {
                "" => return Err(PathError::EmptyName),
                "." | ".." => return Err(PathError::Dots),
                _ if name.len() > LONGEST_NAME => return Err(PathError::LongName),
                _ => {}
            }
        }
        if text.split('/').next() == Some(RESERVED) {
            return Err(PathError::Reserved);
        }
        Ok(Path(text.into()))
    }

    /// The path that these bytes of a file system name.
    ///
    /// # Errors
    /// If they break one of the rules.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PathError> {
        // The rules on bytes first: a path of 4 kB of nonsense is too long before it is no text.
        if bytes.len() > LONGEST_PATH {
            return Err(PathError::Long);
        }
        core::str::from_utf8(bytes).map_err(|_| PathError::Encoding).and_then(Path::new)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folders above, from the innermost.
    pub fn parents(&self) -> impl Iterator<Item = &str> {
        self.0.rmatch_indices('/').map(|(at, _)| &self.0[..at])
    }

    /// Whether the file lies in `folder`, at any depth; the root is the empty text.
    pub fn is_within(&self, folder: &str) -> bool {
        folder.is_empty() || self.0.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    }

    /// What paths have in common that differ only in their case. To upper case first: some letters have
    /// more than one small form, and file systems take these for one, too.
    pub fn folded(&self) -> String {
        self.0.to_uppercase().to_lowercase()
    }
}

impl Borrow<str> for Path {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_to_the_rules() {
        let long_name = "n".repeat(LONGEST_NAME + 1);
        let long = ["d"; LONGEST_PATH].join("/");
        for (text, expected) in [
            ("a", None),
            ("a/b.html", None),
            ("Straße/…", None),
            ("a/.lull", None),
            (".lullaby", None),
            ("...", None),
            ("", Some(PathError::Empty)),
            ("/etc/passwd", Some(PathError::Absolute)),
            ("a//b", Some(PathError::EmptyName)),
            ("a/", Some(PathError::EmptyName)),
            ("..", Some(PathError::Dots)),
            ("a/../b", Some(PathError::Dots)),
            ("./a", Some(PathError::Dots)),
            ("a\0b", Some(PathError::Control)),
            ("a\nb", Some(PathError::Control)),
            (".lull", Some(PathError::Reserved)),
            (".lull/@7/a", Some(PathError::Reserved)),
            (long_name.as_str(), Some(PathError::LongName)),
            (long.as_str(), Some(PathError::Long)),
        ] {
            assert_eq!(Path::new(text).err(), expected, "{text:.40?}");
        }
        assert_eq!(Path::from_bytes(b"a\xff").err(), Some(PathError::Encoding));
        assert_eq!(Path::from_bytes(&[0xff; 5_000]).err(), Some(PathError::Long));
        assert_eq!(Path::from_bytes(b"a/b").map(|path| path.to_string()), Ok("a/b".to_owned()));
    }

    #[test]
    fn a_path_knows_the_folders_above() {
        let path = Path::new("a/b/c").expect("a path");
        assert_eq!(path.parents().collect::<Vec<_>>(), ["a/b", "a"]);
        for (folder, expected) in
            [("", true), ("a", true), ("a/b", true), ("a/b/c", false), ("a/", false)]
        {
            assert_eq!(path.is_within(folder), expected, "{folder:?}");
        }
        assert!(!Path::new("ab/c").expect("a path").is_within("a"));
    }
}
