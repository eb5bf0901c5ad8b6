//! Bodies that have arrived in part, and the versions that they belong to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lull_replication::path::Path;
use lull_replication::types::{Digest, Sequence};

use super::{Core, Shared, lock};
use crate::daemon::{LinkError, blocking};

/// How often superseded ones are looked for.
const PAUSE: Duration = Duration::from_secs(10);

/// Versions that are remembered, also of bodies that were deleted meanwhile.
const MOST: usize = 1_000;

/// The versions of the bodies that came in this life.
#[derive(Debug, Default)]
pub(super) struct PartialVersions {
    all: Mutex<BTreeMap<Digest, (Path, Sequence)>>,
    /// Whether bodies of earlier lives were compared with the state.
    is_compared: AtomicBool,
}

impl PartialVersions {
    /// A body of several pieces begins to arrive.
    pub(super) fn begin(&self, digest: Digest, path: &Path, sequence: Sequence) {
        lock(&self.all).insert(digest, (path.clone(), sequence));
    }

    /// Deletes those that were superseded, now and then.
    pub(super) async fn sweep(&self, shared: &Shared) -> Result<(), LinkError> {
        loop {
            tokio::time::sleep(PAUSE).await;
            let all = shared.bodies.partials();
            shared.older.retain(|path| self.has(path, &all));
            if all.is_empty() {
                continue;
            }
            let kept = shared.with(|core, _| self.kept(core, &all));
            if kept.len() < all.len() {
                let bodies = shared.bodies.clone();
                let delete = move || bodies.retain_partials(|digest| kept.contains(digest));
                let _ = blocking(delete).await;
                let left = shared.bodies.partials();
                shared.with(|core, _| core.machine.set_partial(left));
            }
        }
    }

    /// Whether one of these is a body of the object.
    fn has(&self, path: &Path, all: &[(Digest, u32)]) -> bool {
        let versions = lock(&self.all);
        all.iter().any(|(digest, _)| versions.get(digest).is_some_and(|(of, _)| of == path))
    }

    /// The bodies that are still of use.
    fn kept(&self, core: &Core, all: &[(Digest, u32)]) -> BTreeSet<Digest> {
        // Otherwise there may be commits of which it does not know.
        let is_known = core.machine.has_lease();
        let mut versions = lock(&self.all);
        if versions.len() > MOST {
            versions.retain(|digest, _| all.iter().any(|(other, _)| other == digest));
        }
        let is_kept = |digest: &Digest| {
            !is_known
                || versions.get(digest).map_or_else(
                    || self.is_compared.load(Ordering::Relaxed) || core.machine.lacks_body(digest),
                    |(path, sequence)| core.machine.awaits(path, *sequence),
                )
        };
        let kept = all.iter().map(|(digest, _)| *digest).filter(is_kept).collect();
        if is_known {
            self.is_compared.store(true, Ordering::Relaxed);
        }
        kept
    }

    /// Forgets the versions of bodies that are whole or deleted.
    pub(super) fn forget(&self, digest: &Digest) {
        lock(&self.all).remove(digest);
    }
}
