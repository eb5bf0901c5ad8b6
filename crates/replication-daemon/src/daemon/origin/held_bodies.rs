//! The bodies of one future transaction, stored one after the other.

use std::collections::VecDeque;

use lull_replication::types::Payload;

use super::{HeldBody, OriginHandle, WriteError};
use crate::store::Body;

/// Bytes of bodies on their way to the disk at a time, at most.
const MAX_INCOMING_BYTES: u64 = 16 << 20;
/// Number of these bodies, at most: each has a name, and waits for an answer of the store.
const MAX_INCOMING: usize = 4_096;

/// Bodies that are kept for one future transaction.
#[derive(Debug)]
pub(crate) struct HeldBodies {
    origin: OriginHandle,
    stored: Vec<HeldBody>,
    /// Bodies that the store does not have so far, with their sizes, and the sum of these.
    coming: VecDeque<(HeldBody, u64)>,
    bytes_coming: u64,
}

impl HeldBodies {
    pub(crate) fn new(origin: OriginHandle) -> Self {
        HeldBodies { origin, stored: Vec::new(), coming: VecDeque::new(), bytes_coming: 0 }
    }

    /// Hands a body to the store, behind others that are not done; waits until the bodies on their way to the
    /// disk are within the limit.
    pub(crate) async fn take(&mut self, payload: Payload<Body>) -> Result<(), WriteError> {
        let size = payload.size.0;
        self.coming.push_back((self.origin.hold(payload)?, size));
        self.bytes_coming += size;
        while self.bytes_coming > MAX_INCOMING_BYTES || self.coming.len() > MAX_INCOMING {
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

    /// Waits for the first missing one.
    async fn wait(&mut self) -> Result<(), WriteError> {
        if let Some((mut body, size)) = self.coming.pop_front() {
            self.bytes_coming -= size;
            body.stored().await?;
            self.stored.push(body);
        }
        Ok(())
    }

    /// As bodies that are kept until they are dropped.
    pub(crate) fn into_stored(self) -> Vec<HeldBody> {
        self.stored
    }

    /// The number and bytes of the bodies that the store does not have so far.
    #[cfg(test)]
    pub(crate) fn coming(&self) -> (usize, u64) {
        (self.coming.len(), self.bytes_coming)
    }
}
