//! Names that the kernel caches.
//!
//! A name leads to one version of an object. The kernel may cache it for as long as the replica would answer
//! from the same state. Two events end that: another state, and the end of the lease. The replica reports
//! both before it gives any read another answer. Then the kernel has to look up all names again. That also
//! covers a name on its way to the kernel, since the kernel counts these events and notes the count when it
//! asks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::device::forget_names;
use super::files::Files;

impl Files {
    /// Makes the replica report when names must be looked up again.
    pub(super) fn remember(self: &Arc<Self>) {
        if self.remembers {
            let files = Arc::downgrade(self);
            // After an unmount nothing is cached.
            self.replica.remember(move || {
                files.upgrade().is_some_and(|files| forget_names(files.device()).is_ok())
            });
        }
    }

    /// Whether the kernel caches names, and the number of its lookups.
    pub(super) fn lookups(&self) -> (bool, u64) {
        (self.remembers, self.lookups.load(Ordering::Relaxed))
    }
}
