//! The chunks of a body: parts whose boundaries depend on the bytes (FastCDC of 2020, normalization 1, seed 0).

use std::io::{self, Read};

use bytes::Bytes as Buffer;
use fastcdc::v2020::{Error, StreamCDC};
use lull_replication::types::{Content, Digest};
use lull_replication::wire::{Chunk, MIN_CHUNK_BYTES, PIECE};

use super::{BodyReader, StoreError};

/// Bytes of a chunk, on average and at most. Both sides of a connection must use the same.
const AVERAGE: usize = 32 * 1024;
const MOST: usize = 128 * 1024;

/// Reads a body piece by piece.
struct Pieces<'a> {
    reader: &'a BodyReader,
    content: &'a Content,
    number: u32,
    rest: Buffer,
    /// The store has failed.
    failed: Option<StoreError>,
}

impl Read for &mut Pieces<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() && u64::from(self.number) * (PIECE as u64) < self.content.size.0 {
            let Content { digest, size, .. } = self.content;
            let piece = self.reader.piece(digest, *size, self.number).map_err(|why| {
                self.failed = Some(why);
                io::Error::other("the store has failed")
            })?;
            self.rest = piece.ok_or(io::ErrorKind::NotFound)?;
            self.number += 1;
        }
        let count = self.rest.len().min(to.len());
        to[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }
}

impl BodyReader {
    /// The chunks of a body; none if it is missing. Reads all of it, and does not verify it.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn chunks(&self, content: &Content) -> Result<Option<Vec<Chunk>>, StoreError> {
        let (number, rest, failed) = (0, Buffer::new(), None);
        let mut pieces = Pieces { reader: self, content, number, rest, failed };
        let all = StreamCDC::new(&mut pieces, MIN_CHUNK_BYTES as usize, AVERAGE, MOST);
        let chunk = |chunk: Result<fastcdc::v2020::ChunkData, Error>| {
            let chunk = chunk?;
            let length = u32::try_from(chunk.length).unwrap_or(u32::MAX);
            Ok(Chunk { digest: Digest::of(&chunk.data), length })
        };
        let chunks: Result<Vec<Chunk>, Error> = all.map(chunk).collect();
        match (chunks, pieces.failed) {
            (Ok(chunks), _) => Ok(Some(chunks)),
            (Err(_), Some(why)) => Err(why),
            (Err(_), None) => Ok(None),
        }
    }
}
