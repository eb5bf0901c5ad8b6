//! Threads that read when a read is due, and one that writes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::{File, History, Load, Origin, Progress, Read, ReadersError, Seen, Written};
use crate::asking::{Asked, Client, block_on};
use crate::mounted::Root;
use crate::numbered::{self, NOBODYS};
use crate::replay::files::encoded;

/// How long mounts may take to be there, and to answer.
const GATHERING: Duration = Duration::from_secs(60);
/// How often is looked whether something has happened.
const STEP: Duration = Duration::from_millis(20);
/// Threads that are there at the beginning: one that has to be made takes some time of its read's.
const AT_ONCE: usize = 8;
/// How often a file is opened that is written faster than it comes.
const TRIES: usize = 8;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn system(what: &'static str) -> impl Fn(io::Error) -> ReadersError {
    move |source| ReadersError::System { what, source }
}

/// Mounts that answer.
#[derive(Debug)]
pub struct Readers {
    mounts: Vec<Mount>,
}

#[derive(Clone, Debug)]
struct Mount {
    folder: PathBuf,
    root: Arc<Root>,
}

impl Mount {
    /// Reads a whole file as any program does.
    fn read(&self, name: &str) -> Result<Vec<u8>, ReadersError> {
        let path = self.root.path(name);
        let mut read = fs::read(&path);
        for _ in 1..TRIES {
            // It was overwritten before its body had come: there is a newer one.
            let stale = read.as_ref().is_err_and(|error| {
                error.raw_os_error().map(Errno::from_raw) == Some(Errno::ESTALE)
            });
            if !stale {
                break;
            }
            read = fs::read(&path);
        }
        read.map_err(|source| ReadersError::Read {
            mount: self.folder.clone(),
            name: name.to_owned(),
            source,
        })
    }
}

impl Readers {
    /// Waits until each mount is there and has answered a read.
    ///
    /// # Errors
    /// If one does not within a minute.
    pub fn gather(mounts: &[PathBuf], load: &Load) -> Result<Self, ReadersError> {
        let until = Instant::now() + GATHERING;
        let mounts = mounts.iter().map(|folder| Self::mounted(folder, until));
        let mounts = mounts.collect::<Result<Vec<Mount>, ReadersError>>()?;
        for mount in &mounts {
            let Some(file) = load.files.first() else { continue };
            let (told, answered) = channel();
            let (reader, name) = (mount.clone(), file.name.clone());
            // A replica that has not heard of its origin lets reads wait.
            let look = move || drop(told.send(reader.read(&name)));
            thread::Builder::new().spawn(look).map_err(system("starting a thread"))?;
            match answered.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(read) => drop(read?),
                Err(_) => return Err(ReadersError::Silent(mount.folder.clone())),
            }
        }
        Ok(Readers { mounts })
    }

    fn mounted(folder: &Path, until: Instant) -> Result<Mount, ReadersError> {
        loop {
            match Root::open(folder) {
                Ok(root) => return Ok(Mount { folder: folder.to_owned(), root: Arc::new(root) }),
                Err(_) if Instant::now() < until => thread::sleep(STEP),
                Err(_) => return Err(ReadersError::NotMounted(folder.to_owned())),
            }
        }
    }

    /// Reads and writes. Reads without an answer so long after the last one was due are given up.
    ///
    /// # Errors
    /// If a file cannot be read, or the origin does not take a write.
    ///
    /// # Panics
    /// If a read is in a mount, or of a file, that is not there.
    pub fn run(
        self,
        load: &Arc<Load>,
        origin: Origin,
        patience: Duration,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<History, ReadersError> {
        let begun = Instant::now();
        let desk = Arc::new(Desk {
            load: Arc::clone(load),
            mounts: self.mounts,
            begun,
            idle: Mutex::default(),
            ledger: Mutex::default(),
        });
        for _ in 0..AT_ONCE {
            let reader = desk.hire()?;
            lock(&desk.idle).push(reader);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let writing = begin_to_write(begun, Arc::clone(load), origin, Arc::clone(&stop))?;
        for (number, read) in load.reads.iter().enumerate() {
            thread::sleep((begun + read.at).saturating_duration_since(Instant::now()));
            desk.hand_over(number)?;
            let answered = lock(&desk.ledger).done.len();
            tell(Progress { now: begun.elapsed(), due: number + 1, answered });
        }
        let last = load.reads.iter().map(|read| read.at);
        let last = last.chain(load.writes.iter().map(|write| write.at)).max().unwrap_or_default();
        let is_over = || lock(&desk.ledger).done.len() == load.reads.len() && writing.is_finished();
        while !is_over() && begun.elapsed() < last + patience {
            thread::sleep(STEP);
        }
        stop.store(true, Ordering::Relaxed);
        let length = begun.elapsed();
        let (reads, unanswered) = desk.close(length);
        let writes = writing.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))?;
        let mut reads = reads.into_iter().collect::<Result<Vec<Seen>, ReadersError>>()?;
        reads.sort_by_key(|one| one.read);
        Ok(History { reads, unanswered, writes, length })
    }
}

/// A thread that reads; none ends it.
type Reader = Sender<Option<usize>>;

/// What has become of the reads that were due. Both are looked at together: else one that ends just
/// then is in both, or in neither.
#[derive(Debug, Default)]
struct Ledger {
    /// Reads, and since when they wait.
    under_way: BTreeMap<usize, Duration>,
    done: Vec<Result<Seen, ReadersError>>,
}

/// What was seen; and what has no answer, and for how long it has waited.
type Closed = (Vec<Result<Seen, ReadersError>>, Vec<(usize, Duration)>);

impl Ledger {
    /// It is due, or has begun.
    fn begin(&mut self, number: usize, at: Duration) {
        self.under_way.insert(number, at);
    }

    fn end(&mut self, number: usize, seen: Result<Seen, ReadersError>) {
        self.under_way.remove(&number);
        self.done.push(seen);
    }

    /// What there is at this moment. A read that ends later has had no answer.
    fn close(&mut self, now: Duration) -> Closed {
        let Ledger { under_way, done } = core::mem::take(self);
        let waited = |(number, began): (usize, Duration)| (number, now.saturating_sub(began));
        (done, under_way.into_iter().map(waited).collect())
    }
}

/// Who reads what.
struct Desk {
    load: Arc<Load>,
    mounts: Vec<Mount>,
    begun: Instant,
    /// Threads that have nothing to read.
    idle: Mutex<Vec<Reader>>,
    ledger: Mutex<Ledger>,
}

impl Desk {
    /// One more thread.
    fn hire(self: &Arc<Self>) -> Result<Reader, ReadersError> {
        let (reader, given) = channel();
        let (desk, own) = (Arc::clone(self), Sender::clone(&reader));
        let work = move || {
            while let Ok(Some(number)) = given.recv() {
                let seen = desk.look(number);
                // First: whoever sees that all is done finds all of them idle.
                lock(&desk.idle).push(own.clone());
                lock(&desk.ledger).end(number, seen);
            }
        };
        let thread = thread::Builder::new().name("reader".to_owned()).spawn(work);
        // It ends when it is told to; one whose read has no answer ends with the process.
        thread.map_err(system("starting a thread")).map(drop)?;
        Ok(reader)
    }

    /// A read is due.
    fn hand_over(self: &Arc<Self>, number: usize) -> Result<(), ReadersError> {
        let idle = lock(&self.idle).pop();
        let reader = match idle {
            Some(reader) => reader,
            None => self.hire()?,
        };
        lock(&self.ledger).begin(number, self.begun.elapsed());
        // It is there: it waits for that.
        let _ = reader.send(Some(number));
        Ok(())
    }

    fn look(&self, number: usize) -> Result<Seen, ReadersError> {
        let Read { replica, file, .. } = self.load.reads[number];
        let File { name, bytes } = &self.load.files[file];
        let began = self.begun.elapsed();
        lock(&self.ledger).begin(number, began);
        let read = self.mounts[replica].read(name);
        let ended = self.begun.elapsed();
        let body = numbered::number_of(&read?, |_| *bytes).unwrap_or(NOBODYS);
        Ok(Seen { read: number, began, ended, body })
    }

    /// What the ledger says; the threads that have nothing to read end.
    fn close(&self, now: Duration) -> Closed {
        for reader in lock(&self.idle).drain(..) {
            let _ = reader.send(None);
        }
        lock(&self.ledger).close(now)
    }
}

/// A thread that writes.
type Writing = JoinHandle<Result<Vec<Written>, ReadersError>>;

fn begin_to_write(
    begun: Instant,
    load: Arc<Load>,
    origin: Origin,
    stop: Arc<AtomicBool>,
) -> Result<Writing, ReadersError> {
    let work = move || {
        let written = block_on(write(begun, &load, &origin, &stop));
        written.map_err(system("starting the writer"))?
    };
    let thread = thread::Builder::new().name("writer".to_owned()).spawn(work);
    thread.map_err(system("starting a thread"))
}

/// Writes one file after the other, none before it is due.
async fn write(
    begun: Instant,
    load: &Load,
    origin: &Origin,
    stop: &AtomicBool,
) -> Result<Vec<Written>, ReadersError> {
    let mut client = Client::to(origin.address);
    let mut written = Vec::with_capacity(load.writes.len());
    for (number, write) in load.writes.iter().enumerate() {
        let due = begun + write.at;
        tokio::time::sleep(due.saturating_duration_since(Instant::now())).await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let File { name, bytes } = &load.files[write.file];
        let body = numbered::body(load.written_body(number), *bytes);
        let path = format!("/{}", encoded(name));
        let bearer = Some(&*origin.token);
        let asked = Asked { method: "PUT", path: &path, bearer, session: None, body: &body };
        let refused = |why: String| ReadersError::Write { name: name.clone(), why };
        let Some(answer) = client.ask(asked).await else {
            return Err(refused(format!("nobody answers at {}", origin.address)));
        };
        let position = answer.sequence.filter(|_| answer.status == 200);
        let position = position.ok_or_else(|| refused(format!("it says {}", answer.status)))?;
        written.push(Written { write: number, position, at: begun.elapsed() });
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_read_is_counted_once_whenever_it_ends() {
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
                    lock(&own).end(read, Ok(Seen { read, began, ended, body: 0 }));
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
