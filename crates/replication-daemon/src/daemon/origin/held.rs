//! Bodies that are in the store before the transaction that names them.

use std::collections::VecDeque;

use lull_replication::origin::{HoldId, Refused};
use lull_replication::types::Payload;

use super::core::Held;
use super::{OriginHandle, WriteError};
use crate::store::Body;

/// A body that is kept for a transaction to come. Dropped, it is kept no longer than others need it.
#[derive(Debug)]
pub struct HeldBody {
    origin: OriginHandle,
    id: HoldId,
    answer: Held,
}

impl HeldBody {
    pub(super) fn new(origin: OriginHandle, id: HoldId, answer: Held) -> Self {
        HeldBody { origin, id, answer }
    }

    /// Waits until the store has it.
    ///
    /// # Errors
    /// If there is no room for it, or the daemon ends.
    pub async fn stored(&mut self) -> Result<(), WriteError> {
        let answer = (&mut self.answer).await.map_err(|_| WriteError::Stopped)?;
        answer.map_err(|full| Refused::Disk(full).into())
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.origin.0.try_with(|core, _| core.machine.let_go(self.id));
    }
}

/// Bytes of bodies that are on their way to the disk at a time, at most.
const MOST_COMING_BYTES: u64 = 16 << 20;
/// And so many of them: each has a name, and waits for an answer of the store.
const MOST_COMING: usize = 4_096;

/// Bodies that are kept for one transaction to come.
#[derive(Debug)]
pub(crate) struct HeldBodies {
    origin: OriginHandle,
    stored: Vec<HeldBody>,
    /// Those that the store does not have yet, with their sizes, and the sum of these.
    coming: VecDeque<(HeldBody, u64)>,
    bytes_coming: u64,
}

impl HeldBodies {
    pub(crate) fn new(origin: OriginHandle) -> Self {
        HeldBodies { origin, stored: Vec::new(), coming: VecDeque::new(), bytes_coming: 0 }
    }

    /// Hands a body to the store, behind others that it has not done yet; waits until no more of them are
    /// on their way to the disk than may be.
    pub(crate) async fn take(&mut self, payload: Payload<Body>) -> Result<(), WriteError> {
        let size = payload.size.0;
        self.coming.push_back((self.origin.hold(payload)?, size));
        self.bytes_coming += size;
        while self.bytes_coming > MOST_COMING_BYTES || self.coming.len() > MOST_COMING {
            self.wait().await?;
        }
        Ok(())
    }

    /// Waits until the store has all of them.
    pub(crate) async fn stored(&mut self) -> Result<(), WriteError> {
        while !self.coming.is_empty() {
            self.wait().await?;
        }
        Ok(())
    }

    /// Waits for the first one that is coming.
    async fn wait(&mut self) -> Result<(), WriteError> {
        if let Some((mut body, size)) = self.coming.pop_front() {
            self.bytes_coming -= size;
            body.stored().await?;
            self.stored.push(body);
        }
        Ok(())
    }

    /// As what is kept until it is dropped.
    pub(crate) fn into_stored(self) -> Vec<HeldBody> {
        self.stored
    }

    /// How many bodies the store does not have yet, and of how many bytes.
    #[cfg(test)]
    pub(crate) fn coming(&self) -> (usize, u64) {
        (self.coming.len(), self.bytes_coming)
    }
}
