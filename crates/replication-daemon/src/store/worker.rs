//! Threads that run the jobs of a store, so that its callers continue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};

use super::{Done, Job, PAUSE, State, Store, StoreError};

/// Jobs in one transaction, at most, so that later ones do not wait for long. An origin's append is one job,
/// of up to [`Config::batch`](lull_replication::origin::Config::batch) commits.
const TOGETHER: usize = 1_024;

/// Runs the jobs of a store on separate threads, and reports each result.
///
/// All waiting steps and small bodies go into one transaction, so a slower disk makes more durable at once.
/// The result of one job does not depend on others: a large body may be done after a step that was requested
/// later. That suits the state machines, which request a step when its bodies are done.
#[derive(Debug)]
pub struct Worker<T> {
    journal: Option<Sender<Job<T>>>,
    large: Option<Sender<Job<T>>>,
    threads: Vec<JoinHandle<()>>,
    pub(super) abandoned: Arc<AtomicBool>,
    is_small: Box<dyn IsSmall>,
}

/// Whether a body belongs in the database.
trait IsSmall: Fn(lull_cc::Bytes) -> bool + Send {}

impl<F: Fn(lull_cc::Bytes) -> bool + Send> IsSmall for F {}

impl core::fmt::Debug for Box<dyn IsSmall> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("IsSmall(…)")
    }
}

impl<T: Send + 'static> Worker<T> {
    /// Takes over a store. `on_event` is called on the threads, for each job, and for the failure after which no
    /// more is done.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn spawn<S: State<Step = T>>(
        mut store: Store<S>,
        on_done: impl Fn(Result<Done, StoreError>) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let on_done = Arc::new(on_done);
        let abandoned = store.abandoned();
        let bodies = store.bodies().clone();
        let is_small = Box::new(move |size| bodies.is_small(size));
        let mut threads = Vec::new();
        let (large, waiting) = channel::<Job<T>>();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..store.bodies().writers() {
            let (bodies, waiting, on_done) =
                (store.bodies().clone(), Arc::clone(&waiting), Arc::clone(&on_done));
            let abandoned = Arc::clone(&abandoned);
            let write = move || {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(Job::Store(payload)) = next else { return };
                    if abandoned.load(Ordering::Relaxed) {
                        return;
                    }
                    let mut stored = bodies.store(&payload);
                    while matches!(&stored, Err(error) if error.is_passing())
                        && !abandoned.load(Ordering::Relaxed)
                    {
                        sleep(PAUSE);
                        stored = bodies.store_again(&payload);
                    }
                    if abandoned.load(Ordering::Relaxed) {
                        return;
                    }
                    let failed = stored.is_err();
                    on_done(stored.map(|outcome| Done::Stored(payload.digest, outcome)));
                    if failed {
                        return;
                    }
                }
            };
            threads.push(Builder::new().name("lull-bodies".to_owned()).spawn(write)?);
        }
        let (journal, waiting) = channel();
        let gone = Arc::clone(&abandoned);
        let write = move || {
            while let Some(jobs) = next(&waiting) {
                if gone.load(Ordering::Relaxed) {
                    return;
                }
                match store.run(jobs) {
                    _ if gone.load(Ordering::Relaxed) => return,
                    Ok(done) => done.into_iter().for_each(|done| on_done(Ok(done))),
                    Err(error) => return on_done(Err(error)),
                }
            }
        };
        threads.push(Builder::new().name("lull-journal".to_owned()).spawn(write)?);
        Ok(Worker { journal: Some(journal), large: Some(large), threads, abandoned, is_small })
    }

    /// Submits a job.
    ///
    /// # Errors
    /// If the store has failed.
    pub fn ask(&self, job: Job<T>) -> Result<(), StoreError> {
        let large = matches!(&job, Job::Store(payload) if !(self.is_small)(payload.size));
        let to = if large { &self.large } else { &self.journal };
        let to = to.as_ref().ok_or(StoreError::Stopped)?;
        to.send(job).map_err(|_| StoreError::Stopped)
    }

    /// Ends as if the process had been killed: only the job that the disk is syncing is finished, and nothing
    /// is reported.
    pub fn abandon(self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

/// All waiting jobs, or the next one.
fn next<T>(waiting: &Receiver<Job<T>>) -> Option<Vec<Job<T>>> {
    let mut jobs = vec![waiting.recv().ok()?];
    while jobs.len() < TOGETHER {
        match waiting.try_recv() {
            Ok(job) => jobs.push(job),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
        }
    }
    Some(jobs)
}

impl<T> Drop for Worker<T> {
    /// Ends when all submitted jobs are done.
    fn drop(&mut self) {
        self.journal = None;
        self.large = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has not reported its job.
            let _ = thread.join();
        }
    }
}
