//! Reading a page that passes as it is.

use encoding_rs::Encoding;

use super::coding::Decoder;
use super::place::{Head, NoPlace};
use super::{Coding, MOST_AT_ONCE};

/// Reads the head of a page that is left as it is, for what the page says of itself.
///
/// It keeps what the parser has not passed, 256 KiB at most, and the window of the codec.
pub struct Inspector {
    head: Box<Head>,
    decoder: Option<Decoder>,
    /// Bytes of the page so far, without content coding.
    read: usize,
    /// What the parser is past, which is of no use.
    passed: Vec<u8>,
}

impl core::fmt::Debug for Inspector {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Inspector").field("read", &self.read).finish_non_exhaustive()
    }
}

impl Inspector {
    /// `None` where the encoding does not contain ASCII.
    pub(super) fn new(
        coding: Coding,
        encoding: &'static Encoding,
        encoding_is_stated: bool,
    ) -> Option<Self> {
        let head = Box::new(Head::new(None, encoding, encoding_is_stated)?);
        Some(Inspector { head, decoder: Decoder::new(coding), read: 0, passed: Vec::new() })
    }

    /// Takes a piece of the body. Once the head has ended, gives what the page says that would keep
    /// the script out, if anything; a head of more than a MiB counts as one that cannot be read. No
    /// further call is of use then.
    pub fn push(&mut self, mut input: &[u8]) -> Option<Result<(), NoPlace>> {
        let Inspector { head, decoder, read, passed } = self;
        let mut take = |plain: &[u8]| {
            *read += plain.len();
            passed.clear();
            match head.push(plain, passed) {
                Some(found) => Some(found.map(|_| ())),
                // A small piece may hold a very long page, and others wait.
                None if *read > MOST_AT_ONCE => Some(Err(NoPlace::Parser)),
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
                Err(_) => return Some(Err(NoPlace::Coding)),
            }
        }
    }
}
