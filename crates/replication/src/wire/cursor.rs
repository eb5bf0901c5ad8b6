//! Fields: integers in little-endian order, lists and texts after their lengths. Stores use them as well.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use lull_cc::Bytes;

use super::WireError;
use crate::path::Path;
use crate::time::{LocalTime, WallTime};
use crate::types::{
    Content, Digest, MAX_BODY_BYTES, Metadata, Position, ReplicaId, Sequence, Version,
};

/// Appends fields.
pub struct Writer<'a>(&'a mut Vec<u8>);

impl<'a> Writer<'a> {
    /// A writer at the end of `to`.
    pub fn new(to: &'a mut Vec<u8>) -> Self {
        Writer(to)
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends eight bytes with a sign.
    pub fn i64(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a truth value in one byte.
    pub fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Appends bytes as they are, without their length.
    pub fn bytes(&mut self, value: &[u8]) {
        self.0.extend_from_slice(value);
    }

    /// Bytes after their length.
    pub fn blob(
        &mut self,
        (what, limit): (&'static str, usize),
        value: &[u8],
    ) -> Result<(), WireError> {
        let count = value.len();
        let short = u16::try_from(count).ok().filter(|_| count <= limit);
        self.u16(short.ok_or(WireError::Count { what, count, limit })?);
        self.bytes(value);
        Ok(())
    }

    /// Appends a hash.
    pub fn digest(&mut self, value: &Digest) {
        self.bytes(&value.0);
    }

    /// Appends a position in the log.
    pub fn sequence(&mut self, value: Sequence) {
        self.u64(value.0);
    }

    /// Appends a replica's number.
    pub fn replica(&mut self, value: ReplicaId) {
        self.u32(value.0);
    }

    /// Appends a time of a wall clock.
    pub fn wall(&mut self, value: WallTime) {
        self.i64(value.as_nanos());
    }

    /// Appends a time of an interval clock.
    pub fn local(&mut self, value: LocalTime) {
        self.i64(value.as_nanos());
    }

    /// Appends an address as one of IPv6, and a port.
    pub fn address(&mut self, value: &SocketAddr) {
        let ip = match value.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        self.bytes(&ip.octets());
        self.u16(value.port());
    }

    /// Appends a position with the hash of the log up to it.
    pub fn position(&mut self, value: &Position) {
        self.sequence(value.sequence);
        self.digest(&value.chain);
    }

    /// Appends a path behind its length.
    pub fn path(&mut self, value: &Path) {
        let text = value.as_bytes();
        // A path has 4095 bytes at most.
        self.u16(text.len() as u16);
        self.bytes(text);
    }

    /// Appends a hash, a size and metadata.
    pub fn content(&mut self, value: &Content) -> Result<(), WireError> {
        if value.size > MAX_BODY_BYTES {
            return Err(WireError::Value("size"));
        }
        if !value.is_possible() {
            return Err(WireError::Value("content"));
        }
        self.digest(&value.digest);
        self.u64(value.size.0);
        self.wall(value.metadata.modified);
        let (code, bits) = value.metadata.mode_code();
        self.u8(code);
        if let Some(bits) = bits {
            self.u16(bits);
        }
        Ok(())
    }

    /// Appends a sequence and its puts.
    pub fn version(&mut self, value: &Version) -> Result<(), WireError> {
        self.sequence(value.sequence);
        self.content(&value.content)
    }

    /// An optional value after a flag.
    pub fn option<T>(
        &mut self,
        value: Option<&T>,
        write: impl FnOnce(&mut Self, &T) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        self.flag(value.is_some());
        value.map_or(Ok(()), |value| write(self, value))
    }

    /// A list after its length.
    pub fn list<T>(
        &mut self,
        (what, limit): (&'static str, usize),
        items: &[T],
        mut write: impl FnMut(&mut Self, &T) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let count = items.len();
        let short = u32::try_from(count).ok().filter(|_| count <= limit);
        self.u32(short.ok_or(WireError::Count { what, count, limit })?);
        items.iter().try_for_each(|item| write(self, item))
    }
}

/// Takes fields from the front.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    /// Fails if there are bytes left.
    pub fn end(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Rest(self.0.len())) }
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(WireError::Short(what))?;
        self.0 = rest;
        Ok(*first)
    }

    /// Reads one byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, WireError> {
        self.array(what).map(|[byte]| byte)
    }

    /// Reads two bytes.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, WireError> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Reads four bytes.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, WireError> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Reads eight bytes.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, WireError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Reads eight bytes with a sign.
    pub fn i64(&mut self, what: &'static str) -> Result<i64, WireError> {
        self.array(what).map(i64::from_le_bytes)
    }

    /// Zero or one: each value has exactly one encoding.
    pub fn flag(&mut self, what: &'static str) -> Result<bool, WireError> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Value(what)),
        }
    }

    /// Reads bytes behind their length.
    pub fn blob(&mut self, (what, limit): (&'static str, usize)) -> Result<Vec<u8>, WireError> {
        let count = usize::from(self.u16(what)?);
        if count > limit {
            return Err(WireError::Count { what, count, limit });
        }
        let bytes = self.0.get(..count).ok_or(WireError::Short(what))?;
        self.0 = &self.0[count..];
        Ok(bytes.to_vec())
    }

    /// Reads a hash.
    pub fn digest(&mut self, what: &'static str) -> Result<Digest, WireError> {
        self.array(what).map(Digest)
    }

    /// Reads a position in the log.
    pub fn sequence(&mut self, what: &'static str) -> Result<Sequence, WireError> {
        self.u64(what).map(Sequence)
    }

    /// Reads a replica's number.
    pub fn replica(&mut self, what: &'static str) -> Result<ReplicaId, WireError> {
        self.u32(what).map(ReplicaId)
    }

    /// Reads a time of a wall clock.
    pub fn wall(&mut self, what: &'static str) -> Result<WallTime, WireError> {
        self.i64(what).map(WallTime::from_nanos)
    }

    /// Reads a time of an interval clock.
    pub fn local(&mut self, what: &'static str) -> Result<LocalTime, WireError> {
        self.i64(what).map(LocalTime::from_nanos)
    }

    /// Reads an address and a port.
    pub fn address(&mut self, what: &'static str) -> Result<SocketAddr, WireError> {
        let ip = Ipv6Addr::from(self.array::<16>(what)?).to_canonical();
        let port = self.u16(what)?;
        if port == 0 || ip.is_unspecified() || ip.is_multicast() {
            return Err(WireError::Value(what));
        }
        Ok(SocketAddr::new(ip, port))
    }

    /// Reads a position with the hash of the log up to it.
    pub fn position(&mut self) -> Result<Position, WireError> {
        Ok(Position { sequence: self.sequence("position")?, chain: self.digest("chain")? })
    }

    /// Reads a path behind its length.
    pub fn path(&mut self) -> Result<Path, WireError> {
        let length = usize::from(self.u16("path")?);
        let text = self.0.get(..length).ok_or(WireError::Short("path"))?;
        self.0 = &self.0[length..];
        Ok(Path::from_bytes(text)?)
    }

    /// Reads a hash, a size and metadata.
    pub fn content(&mut self) -> Result<Content, WireError> {
        let digest = self.digest("digest")?;
        let size = Bytes(self.u64("size")?);
        if size > MAX_BODY_BYTES {
            return Err(WireError::Value("size"));
        }
        let modified = self.wall("modified")?;
        let code = self.u8("mode")?;
        let bits = if Metadata::has_bits(code) { Some(self.u16("mode")?) } else { None };
        let metadata = Metadata::of_mode_code((code, bits), modified);
        let metadata = metadata.ok_or(WireError::Value("mode"))?;
        let content = Content { digest, size, metadata };
        content.is_possible().then_some(content).ok_or(WireError::Value("content"))
    }

    /// Reads a sequence and its puts.
    pub fn version(&mut self) -> Result<Version, WireError> {
        Ok(Version { sequence: self.sequence("version")?, content: self.content()? })
    }

    /// Reads a flag, and a value if it is set.
    pub fn option<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<Option<T>, WireError> {
        if self.flag(what)? { read(self).map(Some) } else { Ok(None) }
    }

    /// A list of items that take at least `least` bytes: memory is reserved for as many as the received bytes
    /// can contain, independently of the length field.
    pub fn list<T>(
        &mut self,
        (what, limit): (&'static str, usize),
        least: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = usize::try_from(self.u32(what)?).unwrap_or(usize::MAX);
        if count > limit {
            return Err(WireError::Count { what, count, limit });
        }
        if count > self.0.len() / least {
            return Err(WireError::Short(what));
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }
}
