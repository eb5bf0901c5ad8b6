//! Content codings: pages arrive and leave compressed, and are rewritten in between.

use std::io;

use compression_codecs::brotli::params::EncoderParams;
use compression_codecs::flate::params::FlateEncoderParams;
use compression_codecs::zstd::params::{CParameter, DParameter};
use compression_codecs::{
    BrotliDecoder, BrotliEncoder, DecodeV2, EncodeV2, GzipDecoder, GzipEncoder, ZstdDecoder,
    ZstdEncoder,
};
use compression_core::Level;
use compression_core::util::{PartialBuffer, WriteBuffer};
use http::HeaderMap;
use http::header::{ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderValue, VARY};

use crate::policy::fields;

/// A proxy compresses while a user waits: 100 kB of a page are decoded and encoded in a millisecond. Beyond
/// these levels more time gains little on HTML; only gzip's third level makes it 7 % smaller in twice the
/// time. This level gives smaller output than zlib's first one, which servers use by default.
const GZIP_LEVEL: i32 = 2;
const BROTLI_LEVEL: i32 = 3;
const ZSTD_LEVEL: i32 = 3;
/// 256 KiB: a page is rarely longer, and each page in progress keeps its window.
const WINDOW_LOG: u8 = 18;
/// RFC 9659: no window over 8 MiB in `Content-Encoding: zstd`.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;
/// The bytes decoded and encoded at a time.
const STEP: usize = 16 * 1024;

/// How a page is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// Not at all.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// The coding of a reply; `None` for several, and for an unsupported one. `deflate` is unsupported:
    /// servers disagree on its format.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut coding = Coding::Identity;
        for name in fields::list(headers, CONTENT_ENCODING)? {
            let name = name.to_ascii_lowercase();
            let one = match name.as_str() {
                "identity" => continue,
                "gzip" | "x-gzip" => Coding::Gzip,
                "br" => Coding::Brotli,
                "zstd" => Coding::Zstd,
                _ => return None,
            };
            if coding != Coding::Identity {
                return None;
            }
            coding = one;
        }
        Some(coding)
    }

    /// Its name in `Content-Encoding`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Coding::Identity => "identity",
            Coding::Gzip => "gzip",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }

    /// The coding for a client of what has none so far; `None` if it takes no compressed body.
    pub(crate) fn for_client(request: &HeaderMap) -> Option<Self> {
        [Coding::Zstd, Coding::Gzip].into_iter().find(|one| fields::takes(request, one.name()))
    }

    /// States in the headers of a response that its body has this coding because its client takes it.
    pub(crate) fn state(self, headers: &mut HeaderMap) {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(self.name()));
        vary_on_accept_encoding(headers);
    }

    /// The output coding of a page with this input coding: compressed pages are sent as zstd to clients that
    /// accept it, and those in Brotli otherwise as gzip. At levels with the same size of HTML, gzip takes a sixth
    /// longer than zstd, and Brotli three fifths.
    pub(crate) fn rewritten(self, request: &HeaderMap) -> Self {
        let cheaper: &[Coding] = match self {
            Coding::Identity | Coding::Zstd => &[],
            Coding::Gzip => &[Coding::Zstd],
            Coding::Brotli => &[Coding::Zstd, Coding::Gzip],
        };
        let taken = |coding: &&Coding| fields::takes(request, coding.name());
        cheaper.iter().find(taken).copied().unwrap_or(self)
    }

    /// Whether `byte` may begin a further member (RFC 1952 §2.2) or frame (RFC 8878 §3.1).
    fn may_begin_with(self, byte: u8) -> bool {
        match self {
            Coding::Gzip => byte == 0x1f,
            Coding::Zstd => byte == 0x28 || byte & 0xf0 == 0x50,
            Coding::Identity | Coding::Brotli => false,
        }
    }
}

/// Whether a request or a response forbids another coding (RFC 9111 §5.2.1.6, §5.2.2.6).
pub(crate) fn forbids_changes(headers: &HeaderMap) -> bool {
    fields::may_direct(headers, &["no-transform"])
}

/// Removes the headers of a response that are about exact bytes: its body will have others.
pub(crate) fn forget_bytes(headers: &mut HeaderMap) {
    for name in [CONTENT_LENGTH, ACCEPT_RANGES] {
        headers.remove(name);
    }
    for name in ["content-md5", "digest", "content-digest", "repr-digest"] {
        headers.remove(name);
    }
    weaken_etag(headers);
}

/// The coding depends on this: a cache must not send it to clients that do not accept it.
fn vary_on_accept_encoding(headers: &mut HeaderMap) {
    let is_said = |name: &&str| *name == "*" || name.eq_ignore_ascii_case("accept-encoding");
    if !fields::list(headers, VARY).is_some_and(|names| names.iter().any(is_said)) {
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

/// Equal bytes are no longer guaranteed, an equal page is (RFC 9110 §8.8.1).
pub(crate) fn weaken_etag(headers: &mut HeaderMap) {
    let Some(tag) = headers.get(ETAG) else {
        return;
    };
    if !tag.as_bytes().starts_with(b"W/") {
        match HeaderValue::from_bytes(&[&b"W/"[..], tag.as_bytes()].concat()) {
            Ok(weak) => headers.insert(ETAG, weak),
            Err(_) => headers.remove(ETAG),
        };
    }
}

/// Decodes a page in steps of bounded size.
pub(crate) struct Decoder {
    coding: Coding,
    codec: Box<dyn DecodeV2 + Send>,
    /// At the end of a member, with nothing after it so far.
    ended: bool,
    /// A member was read to its end. The bytes after it may be garbage, which browsers skip.
    first_is_whole: bool,
    has_trailing_garbage: bool,
    /// The decoder may have further output without input.
    full: bool,
    buffer: Vec<u8>,
}

impl Decoder {
    /// `None` for uncompressed bodies.
    pub(crate) fn new(coding: Coding) -> Option<Self> {
        let codec: Box<dyn DecodeV2 + Send> = match coding {
            Coding::Identity => return None,
            Coding::Gzip => Box::new(GzipDecoder::new()),
            Coding::Brotli => Box::new(BrotliDecoder::new()),
            Coding::Zstd => {
                let limit = DParameter::window_log_max(MAX_ZSTD_WINDOW_LOG);
                Box::new(ZstdDecoder::new_with_params(&[limit]))
            }
        };
        Some(Decoder {
            coding,
            codec,
            ended: false,
            first_is_whole: false,
            has_trailing_garbage: false,
            full: false,
            buffer: vec![0; STEP],
        })
    }

    /// Whether the page came to its end.
    pub(crate) fn is_complete(&self) -> bool {
        self.ended || self.first_is_whole
    }

    /// Decodes one step. `None` once there is no further output without more input.
    pub(crate) fn step(&mut self, input: &mut &[u8]) -> io::Result<Option<&[u8]>> {
        let decoded = self.decode(input);
        match decoded {
            Ok(length) => Ok(length.map(|length| &self.buffer[..length])),
            Err(_) if self.first_is_whole => {
                self.has_trailing_garbage = true;
                *input = &[];
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn decode(&mut self, input: &mut &[u8]) -> io::Result<Option<usize>> {
        if self.ended && !self.has_trailing_garbage && !input.is_empty() {
            if self.coding.may_begin_with(input[0]) {
                self.codec.reinit()?;
                self.ended = false;
            } else {
                self.has_trailing_garbage = true;
            }
        }
        if self.has_trailing_garbage {
            *input = &[];
            return Ok(None);
        }
        if input.is_empty() && !self.full {
            return Ok(None);
        }
        let mut output = WriteBuffer::new_initialized(&mut self.buffer);
        let mut taken = PartialBuffer::new(*input);
        if input.is_empty() && self.coding == Coding::Gzip {
            // Its end is in its footer, which cannot be output without input.
            self.codec.flush(&mut output)?;
        } else {
            self.ended = self.codec.decode(&mut taken, &mut output)?;
            self.first_is_whole |= self.ended;
        }
        *input = &input[taken.written_len()..];
        let length = output.written_len();
        // The last input may have more output, however little it gave so far.
        self.full = !self.ended && (length == STEP || taken.written_len() > 0);
        Ok(Some(length))
    }
}

/// Encodes it again.
pub(crate) struct Encoder {
    codec: Box<dyn EncodeV2 + Send>,
    buffer: Vec<u8>,
    dirty: bool,
}

impl Encoder {
    /// `None` for uncompressed bodies.
    pub(crate) fn new(coding: Coding) -> Option<Self> {
        let codec: Box<dyn EncodeV2 + Send> = match coding {
            Coding::Identity => return None,
            Coding::Gzip => {
                Box::new(GzipEncoder::new(FlateEncoderParams::from(Level::Precise(GZIP_LEVEL))))
            }
            Coding::Brotli => {
                let params = EncoderParams::default()
                    .quality(Level::Precise(BROTLI_LEVEL))
                    .window_size(WINDOW_LOG.into())
                    .text_mode();
                Box::new(BrotliEncoder::new(params))
            }
            Coding::Zstd => {
                let window = CParameter::window_log(WINDOW_LOG.into());
                Box::new(ZstdEncoder::new_with_params(ZSTD_LEVEL, &[window]))
            }
        };
        Some(Encoder { codec, buffer: vec![0; STEP], dirty: false })
    }

    pub(crate) fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let mut input = PartialBuffer::new(bytes);
        while !input.unwritten().is_empty() {
            self.dirty = true;
            self.with_buffer(out, |codec, buffer| codec.encode(&mut input, buffer))?;
        }
        Ok(())
    }

    /// Flushes all written bytes: their reader need not wait for more.
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while core::mem::take(&mut self.dirty) {
            self.dirty = !self.with_buffer(out, |codec, buffer| codec.flush(buffer))?;
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while !self.with_buffer(out, |codec, buffer| codec.finish(buffer))? {}
        Ok(())
    }

    fn with_buffer<T>(
        &mut self,
        out: &mut Vec<u8>,
        step: impl FnOnce(&mut dyn EncodeV2, &mut WriteBuffer<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut buffer = WriteBuffer::new_initialized(&mut self.buffer);
        let result = step(self.codec.as_mut(), &mut buffer)?;
        out.extend_from_slice(buffer.written());
        Ok(result)
    }
}
