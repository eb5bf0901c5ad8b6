//! Bodies that are in the store before the transaction that names them.

use std::sync::Arc;

use lull_replication::origin::{HoldId, Refused};

use super::core::HoldResult;
use super::{Shared, WriteError};

/// A body that is kept for a future transaction. When this value is dropped, the body is kept only as long as
/// other owners need it.
pub struct HeldBody {
    origin: Arc<Shared>,
    id: HoldId,
    answer: HoldResult,
}

impl ::core::fmt::Debug for HeldBody {
    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
        f.debug_struct("HeldBody").field("id", &self.id).finish_non_exhaustive()
    }
}

impl HeldBody {
    pub(super) fn new(origin: Arc<Shared>, id: HoldId, answer: HoldResult) -> Self {
        HeldBody { origin, id, answer }
    }

    /// Waits until the store has the body.
    ///
    /// # Errors
    /// If there is no room for it, or the daemon ends.
    pub async fn stored(&mut self) -> Result<(), WriteError> {
        let answer = (&mut self.answer).await.map_err(|_| WriteError::Stopped)?;
        answer.map_err(|full| {
            let why = Refused::Disk(full);
            let refused = self.origin.try_with(|core, _| core.refused(why));
            refused.unwrap_or(WriteError::Stopped)
        })
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.origin.try_with(|core, _| core.machine.release_hold(self.id));
    }
}
