//! The "munger" of SSR §5.1: puts one script into the pages of a site that knows nothing of it.
//!
//! It does no I/O. [`decide`] checks the heads of a request and its reply. [`ScriptInsertion`] changes the reply's
//! head, and its [`ScriptInserter`] takes the body in chunks and returns it in chunks, one of them with the tag.
//! Nothing else of the page changes: without the tag it is the original page, byte for byte. If anything
//! prevents the tag, the page passes unchanged.
//!
//! ```
//! use lull_web::script_insertion;
//!
//! let (request, ()) = http::Request::get("/")
//!     .header("host", "example.org")
//!     .header("sec-fetch-dest", "document")
//!     .body(())?
//!     .into_parts();
//! let (mut response, ()) = http::Response::builder()
//!     .header("content-type", "text/html; charset=utf-8")
//!     .header("content-length", "38")
//!     .body(())?
//!     .into_parts();
//!
//! let insertion = script_insertion::decide(&request, "https", &response)?;
//! insertion.rewrite_head(&mut response.headers);
//! assert!(!response.headers.contains_key("content-length"));
//!
//! let mut inserter = insertion.inserter();
//! let mut page = Vec::new();
//! let mut piece = &b"<html><head><title>a</title></head>"[..];
//! while inserter.push(&mut piece, &mut page)? { /* send what `page` has, and go on */ }
//! inserter.finish(&mut page)?;
//! assert!(page.starts_with(b"<html><head><title>a</title><script async crossorigin src=\"/.lull/lull-"));
//! assert!(page.ends_with(b"></script></head>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod csp;
mod head;
mod inspector;
mod place;

use std::io;

use place::Injector;

use crate::content_coding::{Decoder, Encoder};

pub use crate::content_coding::Coding;
pub use csp::Forbids;
pub use head::{
    LeftAlone, ScriptInsertion, decide, decide_for, inspect, is_document, revalidated,
    widen_if_none_match,
};
pub use inspector::Inspector;
pub use place::{NoInsertionPoint, Outcome};

/// Bytes decoded in one call, at most: a small piece may decode to a very long page, and others wait.
const MAX_AT_ONCE: usize = 1 << 20;

/// Bytes kept in case a body is not compressed after all. A body that decodes to nothing for longer is
/// broken.
const MAX_UNDECIDED_BYTES: usize = 64 * 1024;

/// The body cannot be read any further. The visitor's part is as truncated as the input: end the connection.
#[derive(Debug, thiserror::Error)]
#[error("the upstream server's compressed body is broken: {0}")]
pub struct Broken(#[source] io::Error);

/// Rewrites the body of one page.
///
/// It keeps the bytes that the parser has not passed, at most 256 KiB, and the windows of the codecs.
pub struct ScriptInserter {
    injector: Injector,
    codecs: Option<Codecs>,
    taken: u64,
}

struct Codecs {
    /// `None` if it turned out not to be compressed as stated in its header.
    decoder: Option<Decoder>,
    encoder: Encoder,
    /// Its outgoing coding, if that differs from the incoming one.
    other: Option<Coding>,
    /// The input, until the first output: if it turns out not to be compressed as its header says, it passes
    /// unchanged.
    unsure: Option<Vec<u8>>,
    /// Whether there was any input.
    anything: bool,
    with_script: Vec<u8>,
}

impl core::fmt::Debug for ScriptInserter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ScriptInserter").field("outcome", &self.outcome()).finish_non_exhaustive()
    }
}

impl ScriptInserter {
    fn new(coding: Coding, rewritten: Coding, injector: Injector) -> Self {
        let codecs =
            Decoder::new(coding).zip(Encoder::new(rewritten)).map(|(decoder, encoder)| Codecs {
                decoder: Some(decoder),
                encoder,
                other: (coding != rewritten).then_some(rewritten),
                unsure: Some(Vec::new()),
                anything: false,
                with_script: Vec::new(),
            });
        ScriptInserter { injector, codecs, taken: 0 }
    }

    /// The result for the page so far.
    pub fn outcome(&self) -> Outcome {
        self.injector.outcome()
    }

    /// Bytes of the page so far, without content coding, and without the script's tag.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes as much of `input` as it can, and appends the output to `out`: everything that the browser can
    /// use without further input. If it returns `true`, there is more output: send the present one, and call
    /// again with the rest of `input`, even if that is empty.
    ///
    /// # Errors
    /// If the body is not compressed as its header says. Further calls are useless then.
    pub fn push(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<bool, Broken> {
        let Some(codecs) = &mut self.codecs else {
            self.taken += input.len() as u64;
            self.injector.push(input, out);
            *input = &[];
            return Ok(false);
        };
        let (before, whole) = (out.len(), *input);
        codecs.anything |= !whole.is_empty();
        match codecs.push(&mut self.injector, input, out, &mut self.taken) {
            Ok(more) => {
                if out.len() > before {
                    codecs.unsure = None;
                } else if let Some(unsure) = &mut codecs.unsure {
                    unsure.extend_from_slice(&whole[..whole.len() - input.len()]);
                    if unsure.len() > MAX_UNDECIDED_BYTES {
                        codecs.unsure = None;
                    }
                }
                Ok(more)
            }
            Err(error) => {
                let Some(raw) = codecs.unsure.take() else {
                    return Err(Broken(error));
                };
                out.truncate(before);
                *input = &[];
                self.injector = Injector::none();
                let Some(encoder) = codecs.other.and_then(Encoder::new) else {
                    out.extend_from_slice(&raw);
                    out.extend_from_slice(whole);
                    self.codecs = None;
                    return Ok(false);
                };
                // Its header states the other coding by now.
                codecs.decoder = None;
                codecs.encoder = encoder;
                codecs.pass(&raw, out).and_then(|()| codecs.pass(whole, out)).map_err(Broken)?;
                Ok(false)
            }
        }
    }

    /// Takes the end of the body. A truncated body stays truncated.
    ///
    /// # Errors
    /// If the codec fails.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        match &mut self.codecs {
            None => {
                self.injector.finish(out);
                Ok(())
            }
            Some(codecs) => codecs.finish(&mut self.injector, out).map_err(Broken),
        }
    }
}

impl Codecs {
    fn push(
        &mut self,
        injector: &mut Injector,
        input: &mut &[u8],
        out: &mut Vec<u8>,
        taken: &mut u64,
    ) -> io::Result<bool> {
        let Some(decoder) = &mut self.decoder else {
            self.pass(input, out)?;
            *taken += input.len() as u64;
            *input = &[];
            return Ok(false);
        };
        let mut decoded = 0;
        while let Some(plain) = decoder.step(input)? {
            decoded += plain.len();
            *taken += plain.len() as u64;
            self.with_script.clear();
            injector.push(plain, &mut self.with_script);
            self.encoder.write(&self.with_script, out)?;
            if decoded >= MAX_AT_ONCE {
                return Ok(true);
            }
        }
        self.encoder.flush(out)?;
        Ok(false)
    }

    /// A body that is not compressed as its header says passes unchanged, except for the coding.
    fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.encoder.write(bytes, out)?;
        self.encoder.flush(out)
    }

    fn finish(&mut self, injector: &mut Injector, out: &mut Vec<u8>) -> io::Result<()> {
        if !self.anything {
            return Ok(());
        }
        self.with_script.clear();
        injector.finish(&mut self.with_script);
        self.encoder.write(&self.with_script, out)?;
        let is_whole = self.decoder.as_ref().is_none_or(Decoder::is_complete);
        if is_whole { self.encoder.finish(out) } else { self.encoder.flush(out) }
    }
}

#[cfg(test)]
mod tests;
