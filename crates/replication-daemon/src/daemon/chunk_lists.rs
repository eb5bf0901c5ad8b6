//! The chunks of bodies that are sent to replicas with older versions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use lull_replication::types::{Content, Digest};
use lull_replication::wire::Chunk;
use tokio::sync::OnceCell;

use super::read_with_retries;
use crate::store::{BodyReader, StoreError};

/// Lists that are kept: those of the last bodies. One of 16 GiB takes 19 MB.
const MOST: usize = 4;

/// The chunks of a body; empty if they are unknown.
pub(super) type Chunks = Arc<[Chunk]>;

type Cell = Arc<OnceCell<Chunks>>;

/// The chunks of the bodies that were asked about last. Each body is read once for all replicas.
#[derive(Clone, Debug, Default)]
pub(super) struct ChunkLists(Arc<Mutex<VecDeque<(Digest, Cell)>>>);

impl ChunkLists {
    /// The chunks of a body; none if it is missing.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) async fn get_or_read(
        &self,
        reader: &BodyReader,
        content: Content,
    ) -> Result<Chunks, StoreError> {
        let cell = self.cell(&content.digest);
        let read = async || {
            let read = move |reader: &BodyReader| reader.chunks(&content);
            let chunks = read_with_retries(reader, None, read).await?;
            Ok(chunks.unwrap_or_default().into())
        };
        cell.get_or_try_init(read).await.cloned()
    }

    fn cell(&self, digest: &Digest) -> Cell {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|(other, _)| other == digest);
        let (_, cell) = at.and_then(|at| all.remove(at)).unwrap_or_default();
        all.push_back((*digest, Arc::clone(&cell)));
        if all.len() > MOST {
            all.pop_front();
        }
        cell
    }
}
