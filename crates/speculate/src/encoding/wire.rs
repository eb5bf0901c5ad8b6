//! Numbers as bytes, the same on every machine, and their checksum.

use core::hash::Hasher as _;
use core::time::Duration;
use std::io::{self, ErrorKind, Read, Write};

use siphasher::sip::SipHasher24;

use super::format::{ReadError, VERSION};

/// Bytes passed on at a time.
const CHUNK: usize = 64 * 1024;

/// Writes numbers in little-endian order.
#[derive(Debug)]
pub(crate) struct Sink<W> {
    to: W,
    chunk: Vec<u8>,
    checksum: SipHasher24,
}

impl<W: Write> Sink<W> {
    pub(crate) fn new(to: W) -> Self {
        Sink { to, chunk: Vec::with_capacity(CHUNK), checksum: SipHasher24::new() }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.chunk.len() + bytes.len() > CHUNK {
            self.hand_on()?;
        }
        self.chunk.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn u8(&mut self, number: u8) -> io::Result<()> {
        self.bytes(&[number])
    }

    pub(crate) fn u16(&mut self, number: u16) -> io::Result<()> {
        self.bytes(&number.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, number: u32) -> io::Result<()> {
        self.bytes(&number.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, number: u64) -> io::Result<()> {
        self.bytes(&number.to_le_bytes())
    }

    pub(crate) fn f32(&mut self, number: f32) -> io::Result<()> {
        self.u32(number.to_bits())
    }

    pub(crate) fn f64(&mut self, number: f64) -> io::Result<()> {
        self.u64(number.to_bits())
    }

    /// A length or a limit that is below 2^32, as all are that [`crate::model::Model::new`] takes.
    pub(crate) fn count(&mut self, count: usize) -> io::Result<()> {
        self.u32(u32::try_from(count).map_err(io::Error::other)?)
    }

    pub(crate) fn duration(&mut self, duration: Duration) -> io::Result<()> {
        self.u64(u64::try_from(duration.as_nanos()).map_err(io::Error::other)?)
    }

    fn hand_on(&mut self) -> io::Result<()> {
        self.checksum.write(&self.chunk);
        self.to.write_all(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }

    /// Writes the checksum of all written data; nothing may follow.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.hand_on()?;
        self.to.write_all(&self.checksum.finish().to_le_bytes())?;
        self.to.flush()
    }
}

/// Reads the output of a [`Sink`], and trusts none of it.
#[derive(Debug)]
pub(crate) struct Source<R> {
    from: io::BufReader<R>,
    checksum: SipHasher24,
    version: u16,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(from: R) -> Self {
        let from = io::BufReader::with_capacity(CHUNK, from);
        Source { from, checksum: SipHasher24::new(), version: VERSION }
    }

    /// The version of the input.
    pub(crate) fn version(&self) -> u16 {
        self.version
    }

    pub(crate) fn set_version(&mut self, version: u16) {
        self.version = version;
    }

    /// Fills `bytes`, without including them in the checksum.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ReadError> {
        self.from.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => ReadError::Truncated,
            _ => ReadError::Io(error),
        })
    }

    pub(crate) fn bytes(&mut self, bytes: &mut [u8]) -> Result<(), ReadError> {
        self.fill(bytes)?;
        self.checksum.write(bytes);
        Ok(())
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        self.bytes(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ReadError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ReadError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ReadError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ReadError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn f32(&mut self) -> Result<f32, ReadError> {
        Ok(f32::from_bits(self.u32()?))
    }

    /// A decayed count: a number that is not below 0.
    pub(crate) fn weight(&mut self) -> Result<f32, ReadError> {
        let weight = self.f32()?;
        if weight.is_finite() && weight >= 0.0 {
            Ok(weight)
        } else {
            Err(ReadError::Invalid("weight"))
        }
    }

    /// The same for one that exceeds the resolution of smaller numbers.
    pub(crate) fn large_weight(&mut self) -> Result<f64, ReadError> {
        let weight = f64::from_bits(self.u64()?);
        if weight.is_finite() && weight >= 0.0 {
            Ok(weight)
        } else {
            Err(ReadError::Invalid("weight"))
        }
    }

    pub(crate) fn count(&mut self) -> Result<usize, ReadError> {
        usize::try_from(self.u32()?).map_err(|_| ReadError::Invalid("count"))
    }

    pub(crate) fn duration(&mut self) -> Result<Duration, ReadError> {
        Ok(Duration::from_nanos(self.u64()?))
    }

    /// Reads the checksum, and verifies that it is correct and last.
    pub(crate) fn finish(mut self) -> Result<(), ReadError> {
        let expected = self.checksum.finish();
        let mut checksum = [0; 8];
        self.fill(&mut checksum)?;
        if u64::from_le_bytes(checksum) != expected {
            return Err(ReadError::Checksum);
        }
        match self.fill(&mut [0]) {
            Err(ReadError::Truncated) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => Err(ReadError::Invalid("end")),
        }
    }
}
