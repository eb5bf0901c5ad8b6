//! Reading a page that passes unchanged.

use encoding_rs::Encoding;

use super::place::{Head, NoInsertionPoint};
use super::{Coding, MAX_AT_ONCE};
use crate::content_coding::Decoder;

/// Reads the head of an unmodified page for an opt-out.
///
/// It keeps the bytes that the parser has not passed, at most 256 KiB, and the window of the codec.
pub struct Inspector {
    head: Box<Head>,
    decoder: Option<Decoder>,
    /// Bytes of the page so far, without content coding.
    read: usize,
    /// The bytes that the parser is past, which are of no use.
    passed: Vec<u8>,
}

impl core::fmt::Debug for Inspector {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Inspector").field("read", &self.read).finish_non_exhaustive()
    }
}

impl Inspector {
    /// `None` if the encoding does not contain ASCII.
    pub(super) fn new(
        coding: Coding,
        encoding: &'static Encoding,
        encoding_is_stated: bool,
    ) -> Option<Self> {
        let head = Box::new(Head::new(None, encoding, encoding_is_stated)?);
        Some(Inspector { head, decoder: Decoder::new(coding), read: 0, passed: Vec::new() })
    }

    /// Takes a chunk of the body. Once the head has ended, returns the page's reason to keep the script out,
    /// if any; a head of more than a MiB counts as unreadable. Further calls have no use.
    pub fn push(&mut self, mut input: &[u8]) -> Option<Result<(), NoInsertionPoint>> {
        let Inspector { head, decoder, read, passed } = self;
        let mut take = |plain: &[u8]| {
            *read += plain.len();
            passed.clear();
            match head.push(plain, passed) {
                Some(found) => Some(found.map(|_| ())),
                // A small piece may hold a very long page, and others wait.
                None if *read > MAX_AT_ONCE => Some(Err(NoInsertionPoint::Parser)),
                None => None,
            }
        };
        let Some(decoder) = decoder else { return take(input) };
        loop {
            match decoder.step(&mut input) {
                Ok(None) => return None,
                Ok(Some(plain)) => {
                    if let Some(found) = take(plain) {
                        return Some(found);
                    }
                }
                Err(_) => return Some(Err(NoInsertionPoint::Coding)),
            }
        }
    }
}
