//! Appending to the log, so that no other writer appends in between.

use std::path::Path as FilePath;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{Builder, sleep};
use std::time::Duration;

use bytes::Bytes as Buffer;
use lull_replication::origin::Append;
use lull_replication::time::LocalTime;
use lull_replication::wire::WireError;

use super::client::{Client, Extent, Failure};
use super::follower::{Broken, Follower, Read};
use super::message::{Kind, Message, Node, ProcessId, parts};
use super::record::{Record, random};
use super::records::{Batch, encode_jobs, encode_state};
use super::writer_lease::{self, LEASE};
use super::{LogAddress, LogEvent, LogOptions, LogSink, LogStatus, OUTAGE, RENEWAL};
use crate::store::{Body, Job, StoreError, Upstream};

/// The pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Receives the failure after which the log cannot be used any more.
pub(crate) type FailureSink = Box<dyn Fn(StoreError) + Send + Sync>;

/// The interval clock.
#[derive(Clone)]
pub(crate) struct LogClock(pub(crate) Arc<dyn Fn() -> LocalTime + Send + Sync>);

impl core::fmt::Debug for LogClock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("LogClock(…)")
    }
}

/// The log, as the process that writes it or stands by knows it.
#[derive(Debug)]
pub(crate) struct SharedLog {
    pub(super) client: Client,
    pub(super) address: LogAddress,
    clock: LogClock,
    pub(super) me: ProcessId,
    pub(super) node: Node,
    follower: Mutex<Follower>,
    /// When the last message that the stream has confirmed was sent, in nanoseconds of the interval clock.
    confirmed: AtomicI64,
    is_leased: AtomicBool,
    stop: AtomicBool,
    /// Since when the servers fail, and why.
    failing: Mutex<Option<(LocalTime, String)>>,
    is_away: AtomicBool,
    extent: Mutex<Option<Extent>>,
    /// For the status, while a message is being written.
    shown: Mutex<Shown>,
    failure: Mutex<FailureReport>,
    on_event: Sink,
}

/// The failure after which the log cannot be used any more, until it is reported.
#[derive(Default)]
struct FailureReport {
    error: Option<StoreError>,
    on_failure: Option<FailureSink>,
}

impl core::fmt::Debug for FailureReport {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "FailureReport({:?})", self.error)
    }
}

impl FailureReport {
    fn report(&mut self) {
        if let Some(on_failure) = &self.on_failure
            && let Some(error) = self.error.take()
        {
            on_failure(error);
        }
    }
}

/// The part of the messages that the status shows.
#[derive(Clone, Debug, Default)]
struct Shown {
    last: u64,
    writer: String,
    standbys: Vec<String>,
}

/// The receiver of events.
struct Sink(LogSink);

impl core::fmt::Debug for Sink {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Sink(…)")
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedLog {
    /// Connects to the log of the origin in `folder`, if it has one.
    pub(crate) fn connect(
        folder: &FilePath,
        options: &LogOptions,
        clock: LogClock,
        on_event: LogSink,
    ) -> Result<Option<Arc<Self>>, StoreError> {
        let Some(record) = Record::take(folder, options.address.clone())? else { return Ok(None) };
        let client = Client::connect(&record.address);
        let client = client.map_err(|why| StoreError::Log(format!("{}: {why}", record.address)))?;
        let node = Node { id: record.node, address: options.advertised.clone() };
        Ok(Some(Arc::new(SharedLog {
            client,
            clock,
            me: ProcessId(random()?),
            node,
            follower: Mutex::new(Follower::new(&record.address.stream)),
            confirmed: AtomicI64::new(-(LEASE.as_nanos() as i64)),
            is_leased: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            failing: Mutex::new(None),
            is_away: AtomicBool::new(false),
            extent: Mutex::new(None),
            shown: Mutex::default(),
            failure: Mutex::default(),
            on_event: Sink(on_event),
            address: record.address,
        })))
    }

    pub(super) fn report_event(&self, event: LogEvent) {
        (self.on_event.0)(event);
    }

    pub(super) fn now(&self) -> LocalTime {
        (self.clock.0)()
    }

    /// The messages read so far. To be held during each change.
    pub(super) fn follower(&self) -> MutexGuard<'_, Follower> {
        lock(&self.follower)
    }

    /// Ends all waiting calls.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether this origin may speak to replicas: no other origin can have acknowledged a write.
    pub(crate) fn may_speak(&self, now: LocalTime) -> bool {
        let confirmed = LocalTime::from_nanos(self.confirmed.load(Ordering::Acquire));
        !self.is_leased.load(Ordering::Acquire) || writer_lease::may_speak(confirmed, now)
    }

    /// Why writes have to be refused now.
    pub(crate) fn away(&self) -> Option<String> {
        if !self.is_away.load(Ordering::Relaxed) {
            return None;
        }
        let failing = lock(&self.failing);
        let why = failing.as_ref().map_or("no answer", |(_, why)| why);
        Some(format!("the log {} does not answer ({why})", self.address))
    }

    pub(crate) fn status(&self) -> LogStatus {
        let Shown { last, writer, standbys } = lock(&self.shown).clone();
        let replicas = lock(&self.extent).map_or(0, |extent| extent.replicas);
        let log = self.address.to_string();
        LogStatus { log, last, replicas, writer, standbys, away: self.away() }
    }

    /// The outcome of a request, for [`away`](SharedLog::away).
    pub(super) fn record_outcome<T>(&self, outcome: &Result<T, Failure>) {
        let mut failing = lock(&self.failing);
        match outcome {
            Err(why) if why.is_away() => {
                let why = why.to_string();
                let now = self.now();
                let since = failing.as_ref().map_or(now, |(since, _)| *since);
                *failing = Some((since, why.clone()));
                if now.since(since) >= OUTAGE && !self.is_away.swap(true, Ordering::Relaxed) {
                    let (log, why) = (self.address.to_string(), why.clone());
                    drop(failing);
                    self.report_event(LogEvent::Away { log, why });
                }
            }
            _ => {
                *failing = None;
                drop(failing);
                if self.is_away.swap(false, Ordering::Relaxed) {
                    self.report_event(LogEvent::Back);
                }
            }
        }
    }

    /// The extent of the stream.
    pub(super) fn extent(&self) -> Result<Extent, Failure> {
        let extent = self.client.extent();
        self.record_outcome(&extent);
        if let Ok(extent) = &extent {
            *lock(&self.extent) = Some(*extent);
        }
        extent
    }

    /// Reads the next message, and checks it; none if there is none.
    pub(super) fn read(&self, follower: &mut Follower) -> Result<Option<Read>, Failed> {
        let next = self.client.next(follower.last().sequence);
        self.record_outcome(&next);
        let Some((sequence, bytes)) = next? else { return Ok(None) };
        Ok(Some(self.check(follower, sequence, &bytes)?))
    }

    fn check(&self, follower: &mut Follower, sequence: u64, bytes: &[u8]) -> Result<Read, Failed> {
        let read = follower.read(sequence, bytes).map_err(|why| Failed::Fatal(self.broken(why)))?;
        self.show(follower);
        Ok(read)
    }

    /// Updates the lease and the status from the messages that were read.
    pub(super) fn show(&self, follower: &Follower) {
        self.is_leased.store(follower.is_leased(), Ordering::Release);
        let address = |node: &Node| node.address.clone();
        *lock(&self.shown) = Shown {
            last: follower.last().sequence,
            writer: follower.writer().map_or_else(String::new, |one| address(&one.node)),
            standbys: follower.standbys(self.node.id).map(address).collect(),
        };
    }

    /// Appends a message of the current writer, or fails if there is another one. Waits while the servers do not
    /// answer, for at most `patience` if that is given: then the message may be appended later.
    pub(super) fn append(
        &self,
        follower: &mut Follower,
        kind: &Kind,
        patience: Option<Duration>,
    ) -> Result<(), StoreError> {
        let begun = self.now();
        let mut pause = FIRST_PAUSE;
        loop {
            if self.is_stopped() {
                return Err(StoreError::Stopped);
            }
            match self.append_once(follower, kind) {
                Ok(true) => return Ok(()),
                // Messages of standbys were in between.
                Ok(false) => continue,
                Err(Failed::Fatal(error)) => return Err(error),
                Err(Failed::Passing(why)) => {
                    if patience.is_some_and(|most| self.now().since(begun) >= most) {
                        return Err(StoreError::Away(format!("{}: {why}", self.address)));
                    }
                }
            }
            sleep(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// One attempt. False if another message was in between, which is no obstacle.
    pub(super) fn append_once(&self, follower: &mut Follower, kind: &Kind) -> Result<bool, Failed> {
        let last = follower.last();
        let counts = matches!(kind, Kind::Part { .. } | Kind::Identity(_));
        let number = last.number + u64::from(counts);
        let message = Message { from: self.me, number, kind: kind.clone() }.encode();
        let message = Buffer::from(message.map_err(unwritable)?);
        let sent = self.now();
        let is_short_lived = matches!(kind, Kind::Alive);
        let published = self.client.publish(last.sequence, message.clone(), is_short_lived);
        self.record_outcome(&published);
        let why = match published {
            Ok(sequence) => {
                self.check(follower, sequence, &message)?;
                self.confirm(sent);
                return Ok(true);
            }
            Err(why) => why,
        };
        // It may be there all the same.
        let next = self.client.next(last.sequence);
        self.record_outcome(&next);
        match next {
            Ok(Some((sequence, bytes))) => {
                let is_mine = bytes == message;
                let is_writer = follower.writer().is_some_and(|one| one.process == self.me);
                if !is_mine && !is_writer {
                    // The caller has to read it, because it may have a batch for the folder.
                    return Ok(false);
                }
                let read = self.check(follower, sequence, &bytes)?;
                if is_mine {
                    self.confirm(sent);
                } else if let Read::Began(writer) = &read
                    && writer.process != self.me
                {
                    return Err(Failed::Fatal(self.replaced(&writer.node)));
                }
                Ok(is_mine)
            }
            Ok(None) => {
                self.check_extent(last.sequence)?;
                Err(Failed::Passing(why))
            }
            Err(Failure::NoStream) => Err(Failed::Fatal(self.deleted())),
            Err(why) => Err(Failed::Passing(why)),
        }
    }

    /// Fails if the stream does not have the message `last` and no later one, but is older, or was made again.
    pub(super) fn check_extent(&self, last: u64) -> Result<Extent, Failed> {
        match self.extent() {
            Ok(extent) if extent.last < last => Err(Failed::Fatal(self.truncated(&format!(
                "it ends at message {}, and this folder has message {last}",
                extent.last
            )))),
            Ok(extent) => Ok(extent),
            Err(Failure::NoStream) => Err(Failed::Fatal(self.deleted())),
            Err(why) => Err(Failed::Passing(why)),
        }
    }

    fn confirm(&self, sent: LocalTime) {
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    /// Appends a batch.
    pub(super) fn append_batch(
        &self,
        follower: &mut Follower,
        batch: &[u8],
    ) -> Result<(), StoreError> {
        parts(batch).try_for_each(|part| self.append(follower, &part, None))
    }

    /// Appends a piece of the whole state.
    pub(super) fn append_state(
        &self,
        follower: &mut Follower,
        batch: &Batch,
    ) -> Result<(), StoreError> {
        let bytes = encode_state(batch).map_err(unwritable_error)?;
        self.append_batch(follower, &bytes)
    }

    /// Appends the identity of the origin, encrypted.
    ///
    /// # Errors
    /// If the servers do not answer within some seconds, or another origin writes.
    pub(crate) fn append_identity(&self, encrypted: Vec<u8>) -> Result<(), StoreError> {
        const PATIENCE: Duration = Duration::from_secs(5);
        const PAUSE: Duration = Duration::from_millis(5);
        if let Some(why) = self.away() {
            return Err(StoreError::Away(why));
        }
        let begun = self.now();
        // The writer of a step holds it for as long as the servers do not answer.
        let mut follower = loop {
            match self.follower.try_lock() {
                Ok(follower) => break follower,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if self.now().since(begun) < PATIENCE => sleep(PAUSE),
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::Away(format!(
                        "the log {} does not answer",
                        self.address
                    )));
                }
            }
        };
        self.append(&mut follower, &Kind::Identity(encrypted), Some(PATIENCE))
    }

    /// Renews the lease, and finds out whether another origin writes, until the log is stopped or fails.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn start_renewals(self: &Arc<Self>) -> std::io::Result<()> {
        let log = Arc::downgrade(self);
        let renew = move || {
            while let Some(log) = log.upgrade().filter(|log| !log.is_stopped()) {
                if let Err(error) = log.renew() {
                    let mut failure = lock(&log.failure);
                    failure.error = Some(error);
                    return failure.report();
                }
                drop(log);
                sleep(RENEWAL / 4);
            }
        };
        Builder::new().name("lull-log-lease".to_owned()).spawn(renew).map(drop)
    }

    /// Calls `on_failure` when the log cannot be used any more; at once, if that is so already.
    pub(crate) fn on_failure(&self, on_failure: FailureSink) {
        let mut failure = lock(&self.failure);
        failure.on_failure = Some(on_failure);
        failure.report();
    }

    fn renew(&self) -> Result<(), StoreError> {
        let mut follower = match self.follower.try_lock() {
            Ok(follower) => follower,
            // A message is being written.
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        let confirmed = LocalTime::from_nanos(self.confirmed.load(Ordering::Acquire));
        if self.now().since(confirmed) < RENEWAL {
            return Ok(());
        }
        let passed = |error| match error {
            StoreError::Away(_) => Ok(()),
            error => Err(error),
        };
        if follower.is_leased() {
            return self.append(&mut follower, &Kind::Alive, Some(Duration::ZERO)).or_else(passed);
        }
        match self.read(&mut follower) {
            Ok(Some(Read::Began(writer))) if writer.process != self.me => {
                Err(self.replaced(&writer.node))
            }
            Ok(Some(_)) => Ok(()),
            Ok(None) => match self.check_extent(follower.last().sequence) {
                Err(Failed::Fatal(error)) => Err(error),
                _ => {
                    self.confirm(self.now());
                    Ok(())
                }
            },
            Err(Failed::Fatal(error)) => Err(error),
            Err(Failed::Passing(Failure::NoStream)) => Err(self.deleted()),
            Err(Failed::Passing(_)) => Ok(()),
        }
    }

    fn replaced(&self, by: &Node) -> StoreError {
        StoreError::Replaced(format!(
            "the origin at {} has taken over the log {}: this one writes no longer; start it again, and it stands by",
            by.address, self.address
        ))
    }

    pub(super) fn deleted(&self) -> StoreError {
        StoreError::Log(format!(
            "the log {0} was deleted: restore the stream from a backup. To continue with what this folder has, set \
             --log with the name of a new stream, and start all other origins with empty folders",
            self.address
        ))
    }

    pub(super) fn truncated(&self, how: &str) -> StoreError {
        StoreError::Log(format!(
            "the log {} was truncated or replaced: {how}. Restore the stream from a backup. To continue with what this \
             folder has, set --log with the name of a new stream, and start all other origins with empty folders",
            self.address
        ))
    }

    fn broken(&self, why: Broken) -> StoreError {
        match why {
            Broken::Gap(_) => self.truncated(&why.to_string()),
            Broken::Other(_) => StoreError::Log(format!(
                "the log {} belongs to another origin: name another stream",
                self.address
            )),
            Broken::Unknown(_) => StoreError::Log(format!(
                "{why}: something else writes to the stream of {}, or a newer release; name another stream, or \
                 install that release",
                self.address
            )),
        }
    }
}

/// Why a step of the log failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// It may be repeated.
    Passing(Failure),
    /// The log cannot be used any more.
    Fatal(StoreError),
}

impl From<Failure> for Failed {
    fn from(why: Failure) -> Self {
        Failed::Passing(why)
    }
}

fn unwritable_error(error: WireError) -> StoreError {
    StoreError::Damaged(format!("a step for the log ({error})"))
}

fn unwritable(error: WireError) -> Failed {
    Failed::Fatal(unwritable_error(error))
}

impl Upstream<Append<Body>> for SharedLog {
    fn append(&self, jobs: &[Job<Append<Body>>]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(batch) = encode_jobs(jobs).map_err(unwritable_error)? else { return Ok(None) };
        let mut follower = self.follower();
        self.append_batch(&mut follower, &batch)?;
        follower.encode().map(Some).map_err(unwritable_error)
    }
}
