//! Findings are saved across restarts: learned data, bars for a day, and the thresholds of late answers. The
//! disk may be full, or slow, or not answer at all, which delays neither hints nor the shutdown.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::proxy::Event;

/// Saves data across restarts: a model, as [`Model::write`](lull_speculate::model::Model::write) writes it;
/// bars, as [`Policy::encode_bars`](crate::policy::Policy::encode_bars) returns them; or the server's times,
/// which begin with [`KEPT_TIMES`](super::KEPT_TIMES). After a failure the earlier data must still exist, and
/// the error describes the problem and its file in one line. It is called on a separate thread.
pub type Save = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

/// How often changes are saved: a power cut loses no more than that.
pub(super) const SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// Longest wait at the end for a disk, and the pause between checks.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
const SHUTDOWN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// How one item is saved, and up to which change.
#[derive(Default)]
pub(super) struct Persistence {
    /// Until there is something to save.
    save: Option<Save>,
    disk: Option<Disk>,
    /// The number of the last change that was handed over.
    handed: u64,
}

/// A thread that waits for the disk, so that no other has to.
struct Disk {
    to: SyncSender<Vec<u8>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Whether a write is in progress.
    is_busy: AtomicBool,
    has_failed: AtomicBool,
}

impl std::fmt::Debug for Persistence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Persistence").field("handed", &self.handed).finish_non_exhaustive()
    }
}

impl Persistence {
    /// With `save`; without it nothing is saved.
    pub(super) fn new(save: Option<Save>) -> Self {
        Persistence { save, ..Persistence::default() }
    }

    /// Saves the changes since the last time, unless the disk is still busy with that: then they are saved
    /// next time. A failure is retried next time, with or without more changes, and `on_event` gets it once until
    /// it works.
    fn save(
        &mut self,
        changes: u64,
        what: impl FnOnce() -> Vec<u8>,
        on_event: impl Fn(&Event) + Send + 'static,
    ) {
        if let Some(save) = self.save.take() {
            self.disk = Disk::start(save, on_event);
        }
        let Some(disk) = &self.disk else { return };
        let is_kept = changes == self.handed && !disk.state.has_failed.load(Ordering::Acquire);
        if is_kept || disk.is_busy() {
            return;
        }
        disk.state.is_busy.store(true, Ordering::Relaxed);
        if disk.to.try_send(what()).is_ok() {
            self.handed = changes;
        }
    }

    /// Saves the changes since, waits for that, and ends. `on_event` is called if that takes too long.
    fn end(
        &mut self,
        changes: u64,
        what: impl FnOnce() -> Vec<u8>,
        on_event: impl Fn(&Event) + Clone + Send + 'static,
    ) {
        let begun = Instant::now();
        let is_through = |persistence: &Persistence| {
            while persistence.disk.as_ref().is_some_and(Disk::is_busy) {
                if begun.elapsed() > SHUTDOWN_TIMEOUT {
                    return false;
                }
                thread::sleep(SHUTDOWN_CHECK_INTERVAL);
            }
            true
        };
        let is_kept = is_through(self) && {
            self.save(changes, what, on_event.clone());
            is_through(self)
        };
        if !is_kept {
            let why =
                format!("the disk or pipe accepted nothing for {SHUTDOWN_TIMEOUT:?} at shutdown");
            on_event(&Event::ModelUnsaved { why });
        }
        self.disk = None;
    }

    /// Saves changes; at the end it waits for that.
    pub(super) fn save_or_end(
        &mut self,
        is_end: bool,
        changes: u64,
        what: impl FnOnce() -> Vec<u8>,
        on_event: impl Fn(&Event) + Clone + Send + 'static,
    ) {
        if is_end {
            self.end(changes, what, on_event);
        } else {
            self.save(changes, what, on_event);
        }
    }
}

impl Disk {
    /// None if no thread can be started.
    fn start(save: Save, on_event: impl Fn(&Event) + Send + 'static) -> Option<Self> {
        // Nothing is handed over during a write.
        let (to, what) = sync_channel(1);
        let state = Arc::new(State::default());
        let of_thread = Arc::clone(&state);
        let writes = move || write(save, &what, &of_thread, on_event);
        thread::Builder::new().name("lull-web-disk".to_owned()).spawn(writes).ok()?;
        Some(Disk { to, state })
    }

    fn is_busy(&self) -> bool {
        self.state.is_busy.load(Ordering::Acquire)
    }
}

/// Writes until all senders are gone.
fn write(mut save: Save, what: &Receiver<Vec<u8>>, state: &State, on_event: impl Fn(&Event)) {
    let mut is_told = false;
    for what in what {
        let saved = save(&what);
        state.has_failed.store(saved.is_err(), Ordering::Release);
        let was_told = std::mem::replace(&mut is_told, saved.is_err());
        if let Err(error) = saved
            && !was_told
        {
            on_event(&Event::ModelUnsaved { why: error.to_string() });
        }
        drop(what);
        state.is_busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;

    /// Waits until the disk has it.
    fn through(persistence: &Persistence) {
        let begun = Instant::now();
        while persistence.disk.as_ref().is_some_and(Disk::is_busy) {
            assert!(begun.elapsed() < Duration::from_secs(120));
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn failed_save_is_reported_once_and_retried() {
        // The saved data, the number of attempts, and whether the disk is full.
        let disk: Arc<Mutex<(Vec<u8>, u32, bool)>> = Arc::default();
        let there = Arc::clone(&disk);
        let mut persistence = Persistence::new(Some(Box::new(move |what| {
            let (kept, tried, is_full) = &mut *there.lock().unwrap();
            *tried += 1;
            if *is_full {
                return Err(io::Error::other("no room"));
            }
            *kept = what.to_vec();
            Ok(())
        })));
        let (tells, told) = channel();
        for (change, fills, tried, tells_now, kept) in [
            (0u8, false, 0, 0, 0),
            (1, true, 1, 1, 0),
            (1, true, 2, 0, 0),
            (2, true, 3, 0, 0),
            (2, false, 4, 0, 2),
            (2, false, 4, 0, 2),
            (2, true, 4, 0, 2),
            (3, true, 5, 1, 2),
            (3, false, 6, 0, 3),
            (4, false, 7, 0, 4),
        ] {
            disk.lock().unwrap().2 = fills;
            let tells = tells.clone();
            let on_event = move |event: &Event| tells.send(event.clone()).unwrap();
            persistence.save(change.into(), || vec![change], on_event);
            through(&persistence);
            let of_disk = disk.lock().unwrap();
            let last = of_disk.0.last().copied().unwrap_or(0);
            let events: Vec<Event> = told.try_iter().collect();
            assert_eq!(
                (of_disk.1, events.len(), last),
                (tried, tells_now, kept),
                "{change} {fills}"
            );
            let expected = Event::ModelUnsaved { why: "no room".to_owned() };
            assert!(events.iter().all(|event| *event == expected));
        }
    }

    #[test]
    fn slow_disk_blocks_no_caller_and_gets_the_latest_state() {
        let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (goes_on, waits) = channel::<()>();
        let there = Arc::clone(&kept);
        let mut persistence = Persistence::new(Some(Box::new(move |what| {
            waits.recv().unwrap();
            there.lock().unwrap().extend(what);
            Ok(())
        })));
        let none = |_: &Event| panic!("nothing is to be told");
        persistence.save(1, || vec![1], none);
        for change in 2..5 {
            persistence.save(change, || unreachable!("the disk is busy"), none);
        }
        assert!(kept.lock().unwrap().is_empty());
        for _ in 0..2 {
            goes_on.send(()).unwrap();
        }
        persistence.end(5, || vec![5], none);
        assert_eq!(*kept.lock().unwrap(), [1, 5]);
        // It was the last one.
        persistence.save(6, || unreachable!(), none);
    }

    #[test]
    fn unchanged_state_is_not_written_at_the_end() {
        let mut persistence = Persistence::new(Some(Box::new(|_| panic!("nothing has changed"))));
        persistence.end(0, || unreachable!(), |_: &Event| panic!("nothing is to be told"));
    }
}
