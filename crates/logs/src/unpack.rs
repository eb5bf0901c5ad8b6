//! The contents of a file, with any compression: gzip, zstd, xz, bzip2, and UTF-16 within.

use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

use bzip2::bufread::MultiBzDecoder;
use encoding_rs::{Decoder, UTF_16BE, UTF_16LE};
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;

/// The first bytes of packed files.
const MAGIC: [(&[u8], Packing); 4] = [
    (&[0x1f, 0x8b], Packing::Gzip),
    (&[0x28, 0xb5, 0x2f, 0xfd], Packing::Zstd),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], Packing::Xz),
    (b"BZh", Packing::Bzip2),
];
/// The first bytes of files that contain other files, or have unsupported compressions, and the program that
/// unpacks them.
const OTHERS: [(&[u8], &str, &str); 4] = [
    (b"PK\x03\x04", "a zip archive", "unzip -p"),
    (&[0x04, 0x22, 0x4d, 0x18], "packed by lz4", "lz4cat"),
    (&[0x1f, 0x9d], "packed by compress", "zcat"),
    (&[b'7', b'z', 0xbc, 0xaf], "a 7z archive", "7z e -so"),
];
/// The bytes that tar archives have after the header of their first file, and their offset (POSIX.1-2017,
/// `pax`, ustar header).
const TAR: (usize, &[u8]) = (257, b"ustar");
/// Bytes of a file that are inspected.
const HEAD: usize = 512;

/// A packed file of a log is a tenth or a hundredth of the log. A file beyond this many bytes, and this many
/// times the packed ones, is not a log. It is made to fill memory or to unpack without an end.
const MAX_FREE: u64 = 256 << 20;
const MAX_RATIO: u64 = 1_000;
/// The largest window of zstd, as a power of two: the one of `zstd --long`. It is held in memory.
const ZSTD_WINDOW: u32 = 27;

/// The most memory for a file of xz': twice what `xz -9` needs.
const XZ_MEMORY_KIB: u32 = 128 << 10;

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

/// The contents of a file.
pub(super) enum Unpacked<'a> {
    Text(Text<'a>),
    /// Another one: its name, and the command that unpacks it.
    Other(&'static str, &'static str),
}

/// A text, as far as it can be unpacked.
pub(super) struct Text<'a> {
    pub(super) from: Box<dyn BufRead + 'a>,
    pub(super) damage: Damage,
}

/// Why the rest of a packed file cannot be read, once that is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Damage(Rc<RefCell<Option<String>>>);

impl Damage {
    pub(super) fn reason(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    pub(super) fn is_there(&self) -> bool {
        self.0.borrow().is_some()
    }

    fn set(&self, reason: String) {
        self.0.borrow_mut().get_or_insert(reason);
    }
}

/// Opens a file's bytes.
///
/// # Errors
/// If they cannot be read.
pub(super) fn open<'a>(from: impl Read + 'a) -> io::Result<Unpacked<'a>> {
    let read = Rc::new(Cell::new(0));
    let counted = CountingReader { from, count: Rc::clone(&read) };
    let (first, whole) = peek(BufReader::with_capacity(1 << 16, counted))?;
    if let Some((_, what, command)) = OTHERS.iter().find(|(magic, ..)| first.starts_with(magic)) {
        return Ok(Unpacked::Other(what, command));
    }
    let damage = Damage::default();
    let packing =
        MAGIC.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, packing)| *packing);
    let Some(packing) = packing else {
        return text(whole, &first, damage);
    };
    let unpacker: Box<dyn Read + 'a> = match packing {
        Packing::Gzip => Box::new(MultiGzDecoder::new(whole)),
        Packing::Bzip2 => Box::new(MultiBzDecoder::new(whole)),
        Packing::Xz => Box::new(XzReader::new_mem_limit(whole, true, XZ_MEMORY_KIB)),
        Packing::Zstd => {
            let mut unpacker = zstd::stream::read::Decoder::with_buffer(whole)?;
            unpacker.window_log_max(ZSTD_WINDOW)?;
            Box::new(unpacker)
        }
    };
    let tolerant = PartialReader { from: unpacker, read, written: 0, damage: damage.clone() };
    let (first, whole) = peek(BufReader::with_capacity(1 << 16, tolerant))?;
    text(whole, &first, damage)
}

/// The first bytes, and all of them again.
fn peek<'a>(mut from: impl BufRead + 'a) -> io::Result<(Vec<u8>, impl BufRead + 'a)> {
    let mut first = Vec::new();
    (&mut from).take(HEAD as u64).read_to_end(&mut first)?;
    Ok((first.clone(), Cursor::new(first).chain(from)))
}

/// Text with these first bytes, which determine its encoding.
fn text<'a>(from: impl BufRead + 'a, first: &[u8], damage: Damage) -> io::Result<Unpacked<'a>> {
    if first.get(TAR.0..).is_some_and(|rest| rest.starts_with(TAR.1)) {
        return Ok(Unpacked::Other("a tar archive", "tar -xOf"));
    }
    // A byte order mark, or the second byte of an ASCII character.
    let coding = match first {
        [0xff, 0xfe, ..] => Some(UTF_16LE),
        [0xfe, 0xff, ..] => Some(UTF_16BE),
        [first, 0, second, 0, ..] if *first > 0 && *second > 0 => Some(UTF_16LE),
        [0, first, 0, second, ..] if *first > 0 && *second > 0 => Some(UTF_16BE),
        _ => None,
    };
    let from: Box<dyn BufRead + 'a> = match coding {
        Some(coding) => {
            let decoder = coding.new_decoder_with_bom_removal();
            Box::new(BufReader::new(Decoded::new(from, decoder)))
        }
        None => Box::new(from),
    };
    Ok(Unpacked::Text(Text { from, damage }))
}

/// Counts the bytes that are read.
struct CountingReader<R> {
    from: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(to)?;
        self.count.set(self.count.get() + count as u64);
        Ok(count)
    }
}

/// Ends where an unpacker fails, and keeps its error.
struct PartialReader<'a> {
    from: Box<dyn Read + 'a>,
    /// Bytes of the packed file.
    read: Rc<Cell<u64>>,
    written: u64,
    damage: Damage,
}

impl Read for PartialReader<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.damage.is_there() {
            return Ok(0);
        }
        let count = match self.from.read(to) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            // A system error says nothing about the file.
            Err(error) if error.raw_os_error().is_some() => return Err(error),
            Err(error) => {
                self.damage.set(error.to_string());
                return Ok(0);
            }
        };
        self.written += count as u64;
        if self.written > MAX_FREE.max(self.read.get().saturating_mul(MAX_RATIO)) {
            self.damage.set(format!("it unpacks to more than {MAX_RATIO} times its size"));
            return Ok(0);
        }
        Ok(count)
    }
}

/// Turns text of another coding into UTF-8.
struct Decoded<R> {
    from: R,
    decoder: Decoder,
    /// Decoded bytes that were not read, from this offset on.
    ready: Vec<u8>,
    at: usize,
    is_ended: bool,
}

impl<R> Decoded<R> {
    fn new(from: R, decoder: Decoder) -> Self {
        Decoded { from, decoder, ready: Vec::new(), at: 0, is_ended: false }
    }
}

impl<R: BufRead> Read for Decoded<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.at == self.ready.len() && !self.is_ended {
            let bytes = self.from.fill_buf()?;
            self.is_ended = bytes.is_empty();
            // Room for the longest possible output.
            let room = self.decoder.max_utf8_buffer_length(bytes.len());
            self.ready.resize(room.ok_or(io::ErrorKind::OutOfMemory)?, 0);
            let (_, read, written, _) =
                self.decoder.decode_to_utf8(bytes, &mut self.ready, self.is_ended);
            self.from.consume(read);
            self.ready.truncate(written);
            self.at = 0;
        }
        let count = to.len().min(self.ready.len() - self.at);
        to[..count].copy_from_slice(&self.ready[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn unpacked(bytes: &[u8]) -> (Vec<u8>, Option<String>) {
        let Unpacked::Text(mut text) = open(bytes).unwrap() else { panic!("it is a text") };
        let mut all = Vec::new();
        text.from.read_to_end(&mut all).unwrap();
        (all, text.damage.reason())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut packer = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        let options = lzma_rust2::XzOptions::with_preset(1);
        let mut packer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    fn packings(text: &[u8]) -> [(&'static str, Vec<u8>); 4] {
        let zstd = zstd::stream::encode_all(text, 3).unwrap();
        [("gzip", gzip(text)), ("zstd", zstd), ("bzip2", bzip2(text)), ("xz", xz(text))]
    }

    #[test]
    fn compressed_files_are_recognised_by_content() {
        assert_eq!(unpacked(b""), (Vec::new(), None));
        assert_eq!(unpacked(b"1"), (b"1".to_vec(), None));
        let text = b"one\ntwo\n".repeat(1_000);
        for (name, packed) in packings(&text) {
            assert_eq!(unpacked(&packed), (text.clone(), None), "{name}");
            // Rotation may concatenate them.
            let two = unpacked(&[&packed[..], &packed].concat());
            assert_eq!(two, (text.repeat(2), None), "{name}");
        }
    }

    #[test]
    fn damaged_files_are_read_as_far_as_possible() {
        // Without patterns, so that all compressions have more than one block.
        let mut number = 1u64;
        let mut text = Vec::new();
        while text.len() < 2_000_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let _ = writeln!(text, "{number}");
        }
        for (name, packed) in packings(&text) {
            let (part, damage) = unpacked(&packed[..packed.len() * 3 / 4]);
            assert!(
                part.len() > text.len() / 4 && text.starts_with(&part),
                "{name}: {}",
                part.len()
            );
            assert!(damage.is_some(), "{name}");
            let (all, damage) = unpacked(&[&packed[..], b"garbage behind it"].concat());
            assert!(all == text && damage.is_some(), "{name}: {}", all.len());
        }
    }

    #[test]
    fn decompression_bombs_end_before_memory_is_full() {
        let zeros = io::repeat(0).take(MAX_FREE + (1 << 20));
        let packed = zstd::stream::encode_all(zeros, 1).unwrap();
        let Unpacked::Text(mut text) = open(&packed[..]).unwrap() else { panic!("it is a text") };
        let count = io::copy(&mut text.from, &mut io::sink()).unwrap();
        assert!(count <= MAX_FREE, "{count}");
        assert!(text.damage.reason().unwrap().contains("1000 times its size"));
    }

    #[test]
    fn utf16_becomes_utf8() {
        let text = "GET /é\u{1f600}\n".repeat(3_000);
        for (is_little, mark) in [(true, true), (true, false), (false, true), (false, false)] {
            let mark = mark.then_some(0xfeff);
            let units = mark.into_iter().chain(text.encode_utf16());
            let bytes: Vec<u8> = units
                .flat_map(|unit| if is_little { unit.to_le_bytes() } else { unit.to_be_bytes() })
                .collect();
            assert_eq!(unpacked(&bytes), (text.clone().into_bytes(), None));
            assert_eq!(unpacked(&gzip(&bytes)).0, text.as_bytes());
        }
    }

    #[test]
    fn archives_are_reported_with_the_command_to_unpack() {
        let mut tar = vec![b'a'; 1_024];
        tar[257..262].copy_from_slice(b"ustar");
        for (bytes, expected) in [
            (tar.clone(), ("a tar archive", "tar -xOf")),
            (gzip(&tar), ("a tar archive", "tar -xOf")),
            (b"PK\x03\x04rest".to_vec(), ("a zip archive", "unzip -p")),
        ] {
            match open(&bytes[..]).unwrap() {
                Unpacked::Other(what, command) => assert_eq!((what, command), expected),
                Unpacked::Text(_) => panic!("{expected:?} is no text"),
            }
        }
    }
}
