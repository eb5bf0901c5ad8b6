//! What is barred for a day is kept beyond the end of the process, beside the model.

use std::io;

use super::{Shared, lock, wall};
use crate::proxy::Event;

/// Keeps what is barred, as [`Policy::keep_bars`](crate::policy::Policy::keep_bars) says it, beyond the
/// end of the program. Where it cannot, the error says in one line what is wrong, and with what.
pub type SaveBars = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

/// How it is kept, and how far.
#[derive(Default)]
pub(super) struct Barred {
    save: Option<SaveBars>,
    /// [`Policy::bar_changes`](crate::policy::Policy::bar_changes) of what is kept.
    kept: u64,
    is_told: bool,
}

impl std::fmt::Debug for Barred {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Barred").field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl Barred {
    /// By `save`, which has what is barred by now.
    pub(super) fn by(save: SaveBars) -> Self {
        Barred { save: Some(save), kept: 0, is_told: false }
    }
}

impl Shared {
    /// Keeps what was barred since the last time. What fails is tried again the next time, and told once
    /// until it works.
    pub(super) fn keep_bars(&self) {
        let mut barred = lock(&self.barred);
        let Barred { save: Some(save), kept, is_told } = &mut *barred else { return };
        let policy = self.policy();
        let changes = policy.bar_changes();
        if changes == *kept {
            return;
        }
        let bars = policy.keep_bars(self.now(), wall());
        drop(policy);
        let saved = save(&bars);
        if saved.is_ok() {
            *kept = changes;
        }
        let was_told = std::mem::replace(is_told, saved.is_err());
        if let Err(error) = saved
            && !was_told
        {
            self.tell(&Event::ModelUnsaved { why: error.to_string() });
        }
    }
}
