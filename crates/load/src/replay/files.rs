//! The documents of a log as files, for a server that gets a replay.
//!
//! A log may have `/a` and `/a/b`, which is impossible for files. So each path is a folder, which contains
//! its document: `=.html` for a page of HTML, otherwise `=.bin`. nginx serves that by
//! `try_files $uri/=.html $uri/=.bin =404;`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lull_speculate::observe::Kind;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::trace::{Document, Documents};
use lull_emulator::random::Random;

/// The written files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Documents whose paths are invalid for folders.
    pub left_out: u64,
}

/// Why a document could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written", path.display())]
pub struct FileError {
    path: PathBuf,
    source: io::Error,
}

/// Writes all documents below a folder, each with its length in the log. Their contents are generated, and
/// always the same: words, which compress like text.
///
/// # Errors
/// If a file cannot be written.
pub fn write(documents: &Documents, folder: &Path) -> Result<Written, FileError> {
    let mut written = Written::default();
    for document in documents.all() {
        let Some(inside) = place(document) else {
            written.left_out += 1;
            continue;
        };
        let path = folder.join(inside);
        let length = document.bytes.unwrap_or(0);
        // All queries of one path are in one file, which is as long as the longest.
        let before = fs::metadata(&path).ok().map(|metadata| metadata.len());
        if before.is_some_and(|before| before >= length) {
            continue;
        }
        let error = |source| FileError { path: path.clone(), source };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(error)?;
        }
        fs::write(&path, contents(length, is_html(document))).map_err(error)?;
        written.files += u64::from(before.is_none());
        written.bytes += length - before.unwrap_or(0);
    }
    Ok(written)
}

/// Endings of pages that are written as HTML, even if a program has made them.
const HTML: &[&str] = &["html", "htm", "shtml", "php", "cgi", "pl", "asp", "jsp"];
/// No common file system has longer names.
const MAX_NAME_BYTES: usize = 255;

fn is_html(document: &Document) -> bool {
    let path = document.target.split('?').next().unwrap_or("");
    let name = path.rsplit('/').next().unwrap_or("");
    let is = |ending: &str| HTML.iter().any(|one| ending.eq_ignore_ascii_case(one));
    document.kind == Kind::Page && name.rsplit_once('.').is_none_or(|(_, ending)| is(ending))
}

/// The path of a document, below the folder; none if it is invalid.
fn place(document: &Document) -> Option<PathBuf> {
    let path = document.target.split('?').next().unwrap_or("");
    let decoded = decoded(path)?;
    let mut place: Vec<&str> = Vec::new();
    for name in decoded.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(place.pop()?),
            name if name.len() > MAX_NAME_BYTES || name.contains('\0') => return None,
            name => place.push(name),
        }
    }
    let name = if is_html(document) { "=.html" } else { "=.bin" };
    Some(place.into_iter().chain([name]).collect())
}

/// A separate place of a document, below the folder: in the same folder, by a number. Documents that only
/// differ in their query have one each.
pub(crate) fn own_place(document: &Document, number: usize) -> String {
    let place = place(document).unwrap_or_default().with_file_name(format!("={number}"));
    place.to_string_lossy().into_owned()
}

/// The characters that are not escaped in a path.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path in requests: [`decoded`] is the inverse.
pub(crate) fn encoded(path: &str) -> String {
    utf8_percent_encode(path, PLAIN).to_string()
}

/// A path as understood by a server; none if it is not text.
fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [byte, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let value = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, value) {
            (b'%', Some(value)) => {
                bytes.push(value);
                rest = &tail[2..];
            }
            // A server rejects an invalid code.
            (b'%', None) => return None,
            _ => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

const HEAD: &str = "<!DOCTYPE html>\n<html><head><title>A document</title></head><body><p>\n";
const WORDS: &[&str] = &[
    "launch",
    "orbit",
    "shuttle",
    "engine",
    "window",
    "weather",
    "station",
    "crew",
    "payload",
    "mission",
    "tank",
    "pad",
    "countdown",
    "landing",
    "the",
    "of",
    "and",
    "to",
    "in",
    "at",
];

fn contents(length: u64, is_html: bool) -> Vec<u8> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let mut text = String::with_capacity(length + HEAD.len() + 64);
    if is_html {
        text += HEAD;
    }
    let mut random = Random::new(length as u64);
    while text.len() < length {
        text += WORDS[random.below(WORDS.len())];
        // Numbers, so that it does not compress better than text.
        text += &format!(" {} ", random.below(1000));
    }
    text.truncate(length);
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_is_stored_under_its_path_only() {
        let mut documents = Documents::default();
        for (target, expected) in [
            ("/", Some("=.html")),
            ("/a", Some("a/=.html")),
            ("/a/b.html?c=/d", Some("a/b.html/=.html")),
            ("/a//./b%20c.gif", Some("a/b c.gif/=.bin")),
            ("/a/../b.mpg", Some("b.mpg/=.bin")),
            ("/..", None),
            ("/a/%2e%2e/%2e%2e/b", None),
            ("/%zz", None),
            ("/%", None),
            ("/%ff", None),
            ("/a%00", None),
        ] {
            let id = documents.number(target);
            let found = place(documents.get(id));
            assert_eq!(found.as_deref(), expected.map(Path::new), "{target}");
        }
    }

    #[test]
    fn path_is_escaped_for_the_request() {
        for path in ["", "a/=1", "a b/%41?#", "ä/~x-y_z.html", "a\nb\\"] {
            let asked = encoded(path);
            assert!(format!("/{asked}").parse::<http::Uri>().is_ok(), "{asked}");
            assert_eq!(decoded(&asked).as_deref(), Some(path), "{asked}");
        }
        assert_eq!(encoded("a/=1.gif"), "a/%3D1.gif");
    }

    #[test]
    fn files_have_the_lengths_of_the_log() {
        use super::super::trace::{Reading, Section};
        use lull_cc::{Bytes, Timestamp};
        use lull_speculate::log::Entry;

        let mut reading = Reading::new(Section::default());
        for (target, bytes) in [("/a", 5), ("/a/b", 1000), ("/a?c", 300), ("/..", 9), ("/d.gif", 0)]
        {
            let page = Entry::page(Timestamp::ZERO, "192.0.2.1", target);
            reading.take(&Entry { bytes: Bytes(bytes), ..page });
        }
        let folder = tempfile::tempdir().unwrap();
        let written = write(reading.documents(), folder.path()).unwrap();
        assert_eq!(written, Written { files: 3, bytes: 1300, left_out: 1 });
        for (path, bytes) in [("a/=.html", 300), ("a/b/=.html", 1000), ("d.gif/=.bin", 0)] {
            let file = fs::read(folder.path().join(path)).unwrap();
            assert_eq!(file.len(), bytes, "{path}");
            assert_eq!(bytes > 100, file.starts_with(b"<!DOCTYPE html>"), "{path}");
        }
        assert_eq!(write(reading.documents(), folder.path()).unwrap().files, 0, "a second time");
    }
}
