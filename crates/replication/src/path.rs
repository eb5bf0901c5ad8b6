//! Names of objects: the rules that make a path mean the same file everywhere.
//!
//! A path is bytes, as on Linux. Where a text is needed, a path is written in one of two forms, and both
//! round-trip without loss:
//!
//! | form | use | escaped bytes |
//! |---|---|---|
//! | [`Display`](fmt::Display), [`Path::parse`] | JSON, command lines, logs | `\` as `\\`; control characters and bytes that are no UTF-8 as `\xff` |
//! | [`Path::key`], [`Path::of_key`] | keys of the store, which are UTF-8 | bytes that are no UTF-8, as a zero byte and two digits |

use std::borrow::{Borrow, Cow};
use std::fmt::{self, Write};
use std::sync::Arc;

use thiserror::Error;

/// The longest path in bytes: `PATH_MAX` of Linux without its zero.
pub const MAX_PATH_BYTES: usize = 4095;
/// The longest name within a path in bytes: `NAME_MAX` of Linux.
pub const MAX_NAME_BYTES: usize = 255;
/// The first name that is reserved by Lull: a mount shows its snapshots there.
pub const RESERVED: &str = ".lull";

/// The path of an object within the replicated tree: relative, with plain names, as bytes.
///
/// Clones share their bytes. Paths are ordered by their bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Arc<[u8]>);

/// Why a text is not a path of a replicated object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// The folder is empty.
    #[error("the path is empty: name a file")]
    Empty,
    /// It begins with a slash.
    #[error("the path is absolute: name it from the root of the tree, without the first slash")]
    Absolute,
    /// Two slashes follow each other, or one is the last character.
    #[error("the path has an empty name: write one slash between names, none at the end")]
    EmptyName,
    /// It leaves the tree, or has dots within it.
    #[error("the path contains `.` or `..`: write it without")]
    Dots,
    /// No file system has such a name.
    #[error("the path contains a zero byte: rename the file")]
    Zero,
    /// A name is too long for the file systems of replicas.
    #[error("a name of the path has over {MAX_NAME_BYTES} bytes: shorten it")]
    LongName,
    /// The whole is too long for the file systems of replicas.
    #[error("the path has over {MAX_PATH_BYTES} bytes: shorten it")]
    Long,
    /// A text has an invalid escape.
    #[error("the path has a backslash that escapes nothing: write it as `\\\\`")]
    Escape,
    /// Lull's own folder.
    #[error("`{RESERVED}` at the root is reserved for Lull: rename the file")]
    Reserved,
}

impl Path {
    /// The path with these bytes in UTF-8.
    ///
    /// # Errors
    /// If it breaks one of the rules.
    pub fn new(text: &str) -> Result<Self, PathError> {
        Path::from_bytes(text.as_bytes())
    }

    /// The path that these bytes of a file system name.
    ///
    /// # Errors
    /// If they break one of the rules.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PathError> {
        if bytes.is_empty() {
            return Err(PathError::Empty);
        }
        if bytes.len() > MAX_PATH_BYTES {
            return Err(PathError::Long);
        }
        if bytes.starts_with(b"/") {
            return Err(PathError::Absolute);
        }
        if bytes.contains(&0) {
            return Err(PathError::Zero);
        }
        for name in bytes.split(|byte| *byte == b'/') {
            match name {
                b"" => return Err(PathError::EmptyName),
                b"." | b".." => return Err(PathError::Dots),
                _ if name.len() > MAX_NAME_BYTES => return Err(PathError::LongName),
                _ => {}
            }
        }
        if bytes.split(|byte| *byte == b'/').next() == Some(RESERVED.as_bytes()) {
            return Err(PathError::Reserved);
        }
        Ok(Path(bytes.into()))
    }

    /// The path that is displayed as this text.
    ///
    /// # Errors
    /// If it breaks one of the rules, or has an invalid escape.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if !text.contains('\\') {
            return Path::new(text);
        }
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some((plain, escaped)) = rest.split_once('\\') {
            bytes.extend_from_slice(plain.as_bytes());
            if let Some(behind) = escaped.strip_prefix('\\') {
                bytes.push(b'\\');
                rest = behind;
                continue;
            }
            let digits = escaped.strip_prefix('x').and_then(|digits| digits.get(..2));
            bytes.push(digits.and_then(byte_of).ok_or(PathError::Escape)?);
            rest = &escaped[3..];
        }
        bytes.extend_from_slice(rest.as_bytes());
        Path::from_bytes(&bytes)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as UTF-8: itself if it is, otherwise with a zero byte and two hexadecimal digits for each byte
    /// that is not. No path has a zero byte, so no two paths have the same key.
    pub fn key(&self) -> Cow<'_, str> {
        if let Ok(text) = str::from_utf8(&self.0) {
            return text.into();
        }
        let mut key = String::with_capacity(self.0.len() + 2);
        for chunk in self.0.utf8_chunks() {
            key.push_str(chunk.valid());
            for byte in chunk.invalid() {
                // Writing to a string does not fail.
                let _ = write!(key, "\0{byte:02x}");
            }
        }
        key.into()
    }

    /// The path that has this key.
    ///
    /// # Errors
    /// If no path has this key.
    pub fn of_key(key: &str) -> Result<Self, PathError> {
        let mut parts = key.split('\0');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            bytes.push(part.get(..2).and_then(byte_of).ok_or(PathError::Zero)?);
            bytes.extend_from_slice(&part.as_bytes()[2..]);
        }
        Path::from_bytes(&bytes)
    }

    /// The folders above, from the innermost.
    pub fn parents(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let slashes = self.0.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        slashes.map(|(at, _)| &self.0[..at])
    }

    /// The parent folder; none if that is the root.
    pub fn parent(&self) -> Option<Path> {
        self.parents().next().map(|parent| Path(parent.into()))
    }

    /// How many folders are above.
    pub fn depth(&self) -> usize {
        self.0.iter().filter(|byte| **byte == b'/').count()
    }

    /// Whether the object is in `folder`, at any depth; the root is the empty name.
    pub fn is_within(&self, folder: &[u8]) -> bool {
        folder.is_empty() || self.0.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/"))
    }

    /// The common prefix of all paths in this folder.
    pub fn prefix(&self) -> Vec<u8> {
        prefix_of(&self.0)
    }

    /// The common form of paths that differ only in case. To upper case first: some letters have more than
    /// one lower-case form, and file systems treat these as equal, too.
    pub fn folded(&self) -> String {
        self.key().to_uppercase().to_lowercase()
    }
}

/// The common prefix of all paths in `folder`; the root is the empty name.
pub fn prefix_of(folder: &[u8]) -> Vec<u8> {
    if folder.is_empty() { Vec::new() } else { [folder, b"/"].concat() }
}

/// The byte that two lower-case hexadecimal digits stand for.
fn byte_of(digits: &str) -> Option<u8> {
    let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    let all = digits.bytes().all(is_digit);
    all.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// A name as a text for people, in one line: see the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if character == '\\' {
                    f.write_str("\\\\")?;
                } else if character.is_control() {
                    let mut bytes = [0; 4];
                    for byte in character.encode_utf8(&mut bytes).bytes() {
                        write!(f, "\\x{byte:02x}")?;
                    }
                } else {
                    f.write_char(character)?;
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl Borrow<[u8]> for Path {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(&self.0).fmt(f)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn path_obeys_the_rules() {
        let long_name = "n".repeat(MAX_NAME_BYTES + 1);
        let long = ["d"; MAX_PATH_BYTES].join("/");
        for (text, expected) in [
            ("a", None),
            ("a/b.html", None),
            ("Straße/…", None),
            ("a/.lull", None),
            (".lullaby", None),
            ("...", None),
            ("a\nb", None),
            ("Icon\r", None),
            ("", Some(PathError::Empty)),
            ("/etc/passwd", Some(PathError::Absolute)),
            ("a//b", Some(PathError::EmptyName)),
            ("a/", Some(PathError::EmptyName)),
            ("..", Some(PathError::Dots)),
            ("a/../b", Some(PathError::Dots)),
            ("./a", Some(PathError::Dots)),
            ("a\0b", Some(PathError::Zero)),
            (".lull", Some(PathError::Reserved)),
            (".lull/@7/a", Some(PathError::Reserved)),
            (long_name.as_str(), Some(PathError::LongName)),
            (long.as_str(), Some(PathError::Long)),
        ] {
            assert_eq!(Path::new(text).err(), expected, "{text:.40?}");
        }
        assert_eq!(Path::from_bytes(&[0xff; 5_000]).err(), Some(PathError::Long));
        assert_eq!(Path::from_bytes(b"a/b").map(|path| path.to_string()), Ok("a/b".to_owned()));
    }

    #[test]
    fn path_has_its_parent_folders() {
        let path = Path::new("a/b/c").expect("a path");
        assert_eq!(path.parents().collect::<Vec<_>>(), [&b"a/b"[..], b"a"]);
        assert_eq!(path.parent(), Path::new("a/b").ok());
        for (folder, expected) in
            [("", true), ("a", true), ("a/b", true), ("a/b/c", false), ("a/", false)]
        {
            assert_eq!(path.is_within(folder.as_bytes()), expected, "{folder:?}");
        }
        assert!(!Path::new("ab/c").expect("a path").is_within(b"a"));
    }

    #[test]
    fn non_text_bytes_are_escaped() {
        for (bytes, shown, key) in [
            (&b"plain"[..], "plain", "plain"),
            ("Straße".as_bytes(), "Straße", "Straße"),
            (b"a\xffb", "a\\xffb", "a\0ffb"),
            (b"a\\xffb", "a\\\\xffb", "a\\xffb"),
            (b"a\nb", "a\\x0ab", "a\nb"),
            ("a\u{85}".as_bytes(), "a\\xc2\\x85", "a\u{85}"),
            (b"\xe2\x82/x", "\\xe2\\x82/x", "\0e2\082/x"),
        ] {
            let path = Path::from_bytes(bytes).expect("a path");
            assert_eq!((&*path.to_string(), &*path.key()), (shown, key));
        }
        for text in ["a\\", "a\\y", "a\\x", "a\\xf", "a\\xFF", "a\\x+1", "a\\xß"] {
            assert_eq!(Path::parse(text).err(), Some(PathError::Escape), "{text}");
        }
        for key in ["a\0", "a\0f", "a\0fg", "a\0+1"] {
            assert_eq!(Path::of_key(key).err(), Some(PathError::Zero), "{key}");
        }
    }

    proptest! {
        #[test]
        fn both_texts_of_a_path_round_trip(bytes in vec(any::<u8>(), 1..40)) {
            let Ok(path) = Path::from_bytes(&bytes) else { return Ok(()) };
            prop_assert_eq!(Path::parse(&path.to_string()), Ok(path.clone()));
            prop_assert_eq!(Path::of_key(&path.key()), Ok(path.clone()));
            prop_assert!(!path.to_string().contains(char::is_control));
        }
    }
}
