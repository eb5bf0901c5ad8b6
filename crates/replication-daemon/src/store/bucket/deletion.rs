//! Deletions of bodies that are not needed any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lull_replication::types::Digest;
use object_store::ObjectStoreExt;
use object_store::path::Path as Name;
use tokio::task::JoinSet;

use super::claim::NotClaimed;
use super::{Bucket, Failure, Shared, lock};

/// Deletions at a time.
const TOGETHER: usize = 16;
/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(2);
/// The marker is read again before a deletion if it was read longer ago.
const CHECK: Duration = Duration::from_secs(30);

impl Bucket {
    /// A body is not needed any more: it is deleted soon. What is not deleted before the end of the process
    /// is deleted after its next start.
    pub(in crate::store) fn discard(&self, digest: &Digest) {
        let removed = lock(&self.shared.catalog).remove(digest);
        let folder = self.shared.folder();
        self.shared.discard(removed.map(|object| object.name(&folder, digest)));
    }
}

impl Shared {
    pub(super) fn discard(&self, names: impl IntoIterator<Item = Name>) {
        let mut garbage = lock(&self.garbage);
        garbage.extend(names);
        if !garbage.is_empty() {
            self.more_garbage.notify_one();
        }
    }

    /// Deletes bodies until the process ends.
    pub(super) async fn delete_garbage(self: Arc<Self>) {
        loop {
            let mut some = {
                let mut garbage = lock(&self.garbage);
                let from = garbage.len().saturating_sub(TOGETHER);
                garbage.split_off(from)
            };
            if some.is_empty() {
                self.more_garbage.notified().await;
                continue;
            }
            if self.may_delete().await {
                some = self.delete(some).await;
            }
            if !some.is_empty() {
                lock(&self.garbage).append(&mut some);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Whether the bucket is still that of this process. If it is not, it counts as away.
    async fn may_delete(&self) -> bool {
        let now = Instant::now();
        if lock(&self.checked).is_some_and(|checked| now < checked + CHECK) {
            return true;
        }
        match self.is_claimed().await {
            Ok(()) => {
                *lock(&self.checked) = Some(now);
                true
            }
            Err(NotClaimed::Failed(_)) => false,
            Err(why) => {
                self.outage.give_up(now, &self.explain(&why));
                false
            }
        }
    }

    /// Deletes objects, and returns those that are left.
    async fn delete(self: &Arc<Self>, names: Vec<Name>) -> Vec<Name> {
        let mut deleting = JoinSet::new();
        for name in names {
            let shared = Arc::clone(self);
            deleting.spawn(async move {
                let deleted = shared.retried(|| shared.objects.delete(&name)).await;
                let is_gone = matches!(deleted, Ok(()) | Err(Failure::Missing));
                (!is_gone).then_some(name)
            });
        }
        let mut left = Vec::new();
        while let Some(ended) = deleting.join_next().await {
            left.extend(ended.ok().flatten());
        }
        left
    }
}
