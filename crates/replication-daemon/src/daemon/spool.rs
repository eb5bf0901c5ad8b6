//! A body that a relay passes on while it still receives it.
//!
//! Its pieces were verified on arrival. They are written to a file without a name, from which the connections of children
//! read. If the rest does not come, these cut the body off as well.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use lull_cc::Bytes;
use lull_replication::types::Content;
use lull_replication::wire::{Outline, PIECE};

use super::child::Link;
use super::chunk_lists::Chunks;

/// Shorter bodies are passed on when they are stored: that is soon.
pub(super) const SHORTEST: Bytes = Bytes(1 << 20);

/// A piece that is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SpooledPiece {
    Here(Vec<u8>),
    /// It has not arrived so far.
    Waits,
    /// It does not come.
    Cut,
}

/// The pieces of a body, as far as they have arrived.
#[derive(Debug)]
pub(super) struct Spool {
    content: Content,
    outline: Arc<Outline>,
    file: File,
    /// Its chunks, once it is known whether the sender says them.
    chunks: OnceLock<Chunks>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many are in the file.
    pieces: u32,
    is_cut: bool,
    /// The connections that have begun to send it.
    links: Vec<Weak<Link>>,
}

impl Spool {
    /// Without a piece, on the disk of `folder`.
    pub(super) fn new(folder: &Path, content: Content, outline: Outline) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        let (outline, chunks) = (Arc::new(outline), OnceLock::new());
        Ok(Spool { content, outline, file, chunks, state: Mutex::default() })
    }

    /// The hashes of all pieces.
    pub(super) fn outline(&self) -> &Arc<Outline> {
        &self.outline
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    /// The chunks of the body. An empty list says that they are unknown here.
    pub(super) fn set_chunks(&self, chunks: Chunks) {
        if self.chunks.set(chunks).is_ok() {
            self.wake();
        }
    }

    /// The same, once that is known.
    pub(super) fn chunks(&self) -> Option<Chunks> {
        self.chunks.get().cloned()
    }

    /// How many of its pieces are here.
    pub(super) fn pieces(&self) -> u32 {
        self.lock().pieces
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is a single step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This connection sends the body, and is woken when there is more of it.
    pub(super) fn watch(&self, link: &Arc<Link>) {
        let mut state = self.lock();
        state.links.retain(|other| other.strong_count() > 0);
        if !state.links.iter().any(|other| core::ptr::eq(other.as_ptr(), &**link)) {
            state.links.push(Arc::downgrade(link));
        }
    }

    /// The next piece has arrived, and is correct. Blocks.
    ///
    /// # Errors
    /// If it cannot be written: then the body has to be [`cut`](Spool::cut).
    pub(super) fn add(&self, bytes: &[u8]) -> io::Result<()> {
        let at = u64::from(self.lock().pieces) * PIECE as u64;
        self.file.write_all_at(bytes, at)?;
        self.lock().pieces += 1;
        self.wake();
        Ok(())
    }

    /// The rest does not come. Returns whether a connection had begun to send it.
    pub(super) fn cut(&self) -> bool {
        self.lock().is_cut = true;
        self.wake()
    }

    fn wake(&self) -> bool {
        let state = self.lock();
        let links = state.links.iter().filter_map(Weak::upgrade);
        links.inspect(|link| link.wake_bodies()).count() > 0
    }

    /// A piece, counted from zero. Blocks.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn piece(&self, number: u32) -> io::Result<SpooledPiece> {
        let (pieces, is_cut) = {
            let state = self.lock();
            (state.pieces, state.is_cut)
        };
        if number >= pieces {
            return Ok(if is_cut { SpooledPiece::Cut } else { SpooledPiece::Waits });
        }
        let begin = u64::from(number) * PIECE as u64;
        let length = self.content.size.0.saturating_sub(begin).min(PIECE as u64);
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, begin)?;
        Ok(SpooledPiece::Here(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lull_replication::types::{Digest, Metadata};

    #[test]
    fn pieces_are_read_before_all_have_arrived() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..2 * PIECE + 5).map(|at| (at % 251) as u8).collect();
        let (digest, size) = (Digest::of(&bytes), Bytes(bytes.len() as u64));
        let content = Content { digest, size, metadata: Metadata::default() };
        let outline = Outline::of(bytes.chunks(PIECE));
        let spool = Spool::new(folder.path(), content, outline).unwrap();
        assert_eq!(spool.piece(0).unwrap(), SpooledPiece::Waits);
        for (number, piece) in (0..).zip(bytes.chunks(PIECE)) {
            spool.add(piece).unwrap();
            assert_eq!(spool.piece(number).unwrap(), SpooledPiece::Here(piece.to_vec()));
            assert_eq!(spool.piece(number + 1).unwrap(), SpooledPiece::Waits);
        }
        assert!(!spool.cut(), "no connection sends it");
        assert_eq!(spool.piece(2).unwrap(), SpooledPiece::Here(bytes[2 * PIECE..].to_vec()));
        assert_eq!(spool.piece(3).unwrap(), SpooledPiece::Cut);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
    }
}
