//! Threads that read when a read is due.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::mount::{Mount, STEP, system};
use super::write::begin_to_write;
use super::{AnsweredRead, File, History, Load, Progress, Read, ReadersError, Source};
use crate::mounted::Root;
use crate::numbered::{self, UNKNOWN_BODY};

/// How long mounts may take to appear, and to answer.
const GATHERING: Duration = Duration::from_secs(60);
/// Number of threads started at the beginning: to start one takes some time of its read.
const AT_ONCE: usize = 8;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Mounts, or a folder, that answer.
#[derive(Debug)]
pub struct Readers {
    mounts: Vec<Mount>,
    /// Whether all files were there: then a missing one is an observation.
    all_there: bool,
}

impl Readers {
    /// Waits until each mount exists and has answered a read.
    ///
    /// # Errors
    /// If one does not within a minute.
    pub fn gather(mounts: &[PathBuf], load: &Load) -> Result<Self, ReadersError> {
        let until = Instant::now() + GATHERING;
        let mounts = mounts.iter().map(|folder| Self::mounted(folder, until));
        let mounts = mounts.collect::<Result<Vec<Mount>, ReadersError>>()?;
        for mount in &mounts {
            let Some(file) = load.files.first() else { continue };
            mount.read_until(&file.name, until)?;
        }
        Ok(Readers { mounts, all_there: false })
    }

    /// Waits until the first versions of all files can be read in a folder, with or without a mount there.
    ///
    /// # Errors
    /// If one cannot within a minute.
    pub fn in_folder(folder: &Path, load: &Load) -> Result<Self, ReadersError> {
        let until = Instant::now() + GATHERING;
        loop {
            // Opened again each time: a new mount replaces the earlier one.
            let mount = Mount::hold(folder)?;
            match (0..load.files.len()).try_for_each(|file| mount.has_first(load, file, until)) {
                Ok(()) => return Ok(Readers { mounts: vec![mount], all_there: true }),
                Err(ReadersError::Read { .. } | ReadersError::Version { .. })
                    if Instant::now() < until =>
                {
                    thread::sleep(STEP);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn mounted(folder: &Path, until: Instant) -> Result<Mount, ReadersError> {
        loop {
            match Root::open(folder) {
                Ok(root) => return Ok(Mount::new(folder, root)),
                Err(_) if Instant::now() < until => thread::sleep(STEP),
                Err(_) => return Err(ReadersError::NotMounted(folder.to_owned())),
            }
        }
    }

    /// Reads and writes. Reads still without an answer this long after the last one was due are cancelled.
    ///
    /// # Errors
    /// If a file cannot be read, or a write is rejected.
    ///
    /// # Panics
    /// If a read is in a mount, or of a file, that does not exist.
    pub fn run(
        self,
        load: &Arc<Load>,
        source: Source,
        patience: Duration,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<History, ReadersError> {
        let begun = Instant::now();
        let queue = Arc::new(ReadQueue {
            load: Arc::clone(load),
            mounts: self.mounts,
            all_there: self.all_there,
            begun,
            idle: Mutex::default(),
            ledger: Mutex::default(),
        });
        for _ in 0..AT_ONCE {
            let reader = queue.start_thread()?;
            lock(&queue.idle).push(reader);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let writing = begin_to_write(begun, Arc::clone(load), source, Arc::clone(&stop))?;
        for (number, read) in load.reads.iter().enumerate() {
            thread::sleep((begun + read.at).saturating_duration_since(Instant::now()));
            queue.dispatch(number)?;
            let answered = lock(&queue.ledger).done.len();
            on_progress(Progress { now: begun.elapsed(), due: number + 1, answered });
        }
        let last = load.reads.iter().map(|read| read.at);
        let last = last.chain(load.writes.iter().map(|write| write.at)).max().unwrap_or_default();
        let is_over =
            || lock(&queue.ledger).done.len() == load.reads.len() && writing.is_finished();
        while !is_over() && begun.elapsed() < last + patience {
            thread::sleep(STEP);
        }
        stop.store(true, Ordering::Relaxed);
        let length = begun.elapsed();
        let (reads, unanswered) = queue.close(length);
        let writes = writing.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))?;
        let mut reads = reads.into_iter().collect::<Result<Vec<AnsweredRead>, ReadersError>>()?;
        reads.sort_by_key(|one| one.read);
        Ok(History { reads, unanswered, writes, length })
    }
}

/// A thread that reads; none ends it.
type Reader = Sender<Option<usize>>;

/// The state of the due reads. Both parts are behind one lock: otherwise a read that ends just then would be
/// in both, or in neither.
#[derive(Debug, Default)]
struct Ledger {
    /// Reads, and since when they wait.
    under_way: BTreeMap<usize, Duration>,
    done: Vec<Result<AnsweredRead, ReadersError>>,
}

/// The observations; and the reads without an answer, with their waiting time.
type Closed = (Vec<Result<AnsweredRead, ReadersError>>, Vec<(usize, Duration)>);

impl Ledger {
    /// It is due, or has begun.
    fn begin(&mut self, number: usize, at: Duration) {
        self.under_way.insert(number, at);
    }

    fn end(&mut self, number: usize, seen: Result<AnsweredRead, ReadersError>) {
        self.under_way.remove(&number);
        self.done.push(seen);
    }

    /// The state at this moment. A read that ends later counts as unanswered.
    fn close(&mut self, now: Duration) -> Closed {
        let Ledger { under_way, done } = core::mem::take(self);
        let waited = |(number, began): (usize, Duration)| (number, now.saturating_sub(began));
        (done, under_way.into_iter().map(waited).collect())
    }
}

/// The queue of reads and the idle readers.
struct ReadQueue {
    load: Arc<Load>,
    mounts: Vec<Mount>,
    all_there: bool,
    begun: Instant,
    /// Idle threads.
    idle: Mutex<Vec<Reader>>,
    ledger: Mutex<Ledger>,
}

impl ReadQueue {
    /// One more thread.
    fn start_thread(self: &Arc<Self>) -> Result<Reader, ReadersError> {
        let (reader, given) = channel();
        let (queue, own) = (Arc::clone(self), Sender::clone(&reader));
        let work = move || {
            while let Ok(Some(number)) = given.recv() {
                let seen = queue.perform_read(number);
                // First: when all reads are done, all readers must be found idle.
                lock(&queue.idle).push(own.clone());
                lock(&queue.ledger).end(number, seen);
            }
        };
        let thread = thread::Builder::new().name("reader".to_owned()).spawn(work);
        // It ends when it is stopped; one whose read has no answer ends with the process.
        thread.map_err(system("starting a thread")).map(drop)?;
        Ok(reader)
    }

    /// A read is due.
    fn dispatch(self: &Arc<Self>, number: usize) -> Result<(), ReadersError> {
        let idle = lock(&self.idle).pop();
        let reader = match idle {
            Some(reader) => reader,
            None => self.start_thread()?,
        };
        lock(&self.ledger).begin(number, self.begun.elapsed());
        // The thread exists, since it waits for this message.
        let _ = reader.send(Some(number));
        Ok(())
    }

    fn perform_read(&self, number: usize) -> Result<AnsweredRead, ReadersError> {
        let Read { replica, file, .. } = self.load.reads[number];
        let File { name, bytes } = &self.load.files[file];
        let began = self.begun.elapsed();
        lock(&self.ledger).begin(number, began);
        let read = self.mounts[replica].read(name);
        let ended = self.begun.elapsed();
        let body = match read {
            Ok(read) => numbered::number_of(&read, |_| *bytes).unwrap_or(UNKNOWN_BODY),
            Err(ReadersError::Read { source, .. })
                if self.all_there && source.kind() == io::ErrorKind::NotFound =>
            {
                UNKNOWN_BODY
            }
            Err(error) => return Err(error),
        };
        Ok(AnsweredRead { read: number, began, ended, body })
    }

    /// The state of the ledger; idle threads end.
    fn close(&self, now: Duration) -> Closed {
        for reader in lock(&self.idle).drain(..) {
            let _ = reader.send(None);
        }
        lock(&self.ledger).close(now)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn reader_waits_for_the_first_versions() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str| File { name: name.to_owned(), bytes: 20 };
        let load = Load { files: vec![file("a"), file("b")], ..Load::default() };
        let mount = Mount::hold(home.path()).unwrap();
        let soon = Instant::now() + Duration::from_secs(10);
        let missing = mount.has_first(&load, 0, soon).unwrap_err();
        assert!(matches!(missing, ReadersError::Read { .. }), "{missing}");
        load.write_first(home.path()).unwrap();
        assert!(Readers::in_folder(home.path(), &load).is_ok_and(|readers| readers.all_there));
        fs::write(home.path().join("b"), numbered::body(load.written_body(0), 20)).unwrap();
        let other = mount.has_first(&load, 1, soon).unwrap_err();
        assert!(matches!(other, ReadersError::Version { .. }), "{other}");
        let nowhere = Readers::in_folder(&home.path().join("c"), &load).unwrap_err();
        assert!(matches!(nowhere, ReadersError::Folder { .. }), "{nowhere}");
    }

    #[test]
    fn each_read_is_counted_once() {
        const READS: usize = 4_000;
        for round in 0..20 {
            let ledger = Arc::new(Mutex::new(Ledger::default()));
            for number in 0..READS {
                lock(&ledger).begin(number, Duration::from_secs(1));
            }
            let own = Arc::clone(&ledger);
            let reading = thread::spawn(move || {
                for read in 0..READS {
                    let (began, ended) = (Duration::ZERO, Duration::ZERO);
                    lock(&own).begin(read, Duration::from_secs(2));
                    lock(&own).end(read, Ok(AnsweredRead { read, began, ended, body: 0 }));
                }
            });
            thread::sleep(Duration::from_micros(20 * round));
            let (done, unanswered) = lock(&ledger).close(Duration::from_secs(3));
            reading.join().unwrap();
            let seen = done.into_iter().map(|one| one.unwrap().read);
            let mut all: Vec<usize> =
                seen.chain(unanswered.iter().map(|(number, _)| *number)).collect();
            all.sort_unstable();
            assert!(all == (0..READS).collect::<Vec<_>>(), "{} of {READS}", all.len());
            let waited = unanswered.iter().map(|(_, waited)| waited.as_secs());
            assert!(waited.into_iter().all(|waited| (1..=2).contains(&waited)));
        }
    }
}
