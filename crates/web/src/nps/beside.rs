//! What is found out beside the model is kept with it, beyond the end of the process: what is barred for a
//! day, and from when on the server's answers are late.

use std::io;
use std::sync::Arc;

use super::{Shared, desk, lock, wall};
use crate::proxy::Event;

/// Keeps what is barred, as [`Policy::keep_bars`](crate::policy::Policy::keep_bars) says it, or the server's
/// times, as they begin with [`KEPT_TIMES`](super::KEPT_TIMES), beyond the end of the program. Where it cannot, the
/// error says in one line what is wrong, and with what.
pub type SaveBeside = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

/// How something is kept, and how far.
#[derive(Default)]
pub(super) struct Beside {
    save: Option<SaveBeside>,
    /// The number of the last change that is kept.
    kept: u64,
    is_told: bool,
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beside").field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl Beside {
    /// By `save`, which has what there is by now.
    pub(super) fn by(save: SaveBeside) -> Self {
        Beside { save: Some(save), kept: 0, is_told: false }
    }

    /// Keeps what has changed since the last time. What fails is tried again the next time; the error is
    /// given once until it works.
    fn keep(&mut self, changes: u64, what: impl FnOnce() -> Vec<u8>) -> Option<io::Error> {
        let save = self.save.as_mut().filter(|_| changes != self.kept)?;
        let saved = save(&what());
        if saved.is_ok() {
            self.kept = changes;
        }
        let was_told = std::mem::replace(&mut self.is_told, saved.is_err());
        saved.err().filter(|_| !was_told)
    }
}

/// Keeps what was found out every minute, from the start on: the model may take longer than that to read. A disk
/// may take its time, for which nobody here waits.
pub(super) async fn keep(shared: &Arc<Shared>) {
    loop {
        tokio::time::sleep(desk::EVERY).await;
        let shared = Arc::clone(shared);
        // One that panicked has said so.
        let _ = tokio::task::spawn_blocking(move || shared.keep_beside()).await;
    }
}

impl Shared {
    /// Keeps what was found out since the last time.
    pub(super) fn keep_beside(&self) {
        // What changes in between is kept, and once more the next time.
        let changes = self.policy().bar_changes();
        let bars = || self.policy().keep_bars(self.now(), wall());
        let unkept = lock(&self.barred).keep(changes, bars);
        let times =
            lock(&self.times).keep(self.monitor.time_changes(), || self.monitor.keep_times());
        for error in [unkept, times].into_iter().flatten() {
            self.tell(&Event::ModelUnsaved { why: error.to_string() });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn what_cannot_be_kept_is_told_once_and_tried_until_it_is() {
        let (is_full, kept): (Arc<Mutex<bool>>, Arc<Mutex<Vec<u8>>>) = Default::default();
        let (full, disk) = (Arc::clone(&is_full), Arc::clone(&kept));
        let mut beside = Beside::by(Box::new(move |what| {
            if *full.lock().unwrap() {
                return Err(io::Error::other("no room"));
            }
            *disk.lock().unwrap() = what.to_vec();
            Ok(())
        }));
        for (change, fills, tells, keeps) in [
            (0u8, false, false, 0),
            (1, true, true, 0),
            (2, true, false, 0),
            (2, false, false, 2),
            (3, true, true, 2),
            (3, false, false, 3),
        ] {
            *is_full.lock().unwrap() = fills;
            let told = beside.keep(change.into(), || vec![change]);
            let last = kept.lock().unwrap().last().copied().unwrap_or(0);
            assert_eq!((told.is_some(), last), (tells, keeps), "{change} {fills}");
        }
    }
}
