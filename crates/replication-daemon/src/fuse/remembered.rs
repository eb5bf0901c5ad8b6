//! Names that the kernel remembers, so that it need not ask for them again.
//!
//! A name leads to one version of an object. The kernel may use it for as long as the replica would answer by the
//! same state. There are two ends of that, and the replica reports both before it answers any read otherwise:
//! another state, and the end of the lease. Then the kernel is asked to look up all names again. A name
//! that is on its way to the kernel meanwhile is looked up again as well, since the kernel counts these times and
//! notes the count when it asks.

use std::fs::File as Device;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::abi;
use super::files::Files;

/// Has the kernel look up all names again.
///
/// # Errors
/// If the kernel knows no such notification, or nothing is mounted.
pub(super) fn forget_names(mut device: &Device) -> io::Result<()> {
    device.write(&abi::forget_names()).map(drop)
}

impl Files {
    /// Has the replica tell when names have to be looked up again.
    pub(super) fn remember(self: &Arc<Self>) {
        if self.remembers {
            let files = Arc::downgrade(self);
            // What is not mounted any more remembers nothing.
            self.replica.remember(move || {
                files.upgrade().is_some_and(|files| forget_names(files.device()).is_ok())
            });
        }
    }

    /// Whether the kernel remembers names, and how many it has asked for.
    pub(super) fn lookups(&self) -> (bool, u64) {
        (self.remembers, self.lookups.load(Ordering::Relaxed))
    }
}
