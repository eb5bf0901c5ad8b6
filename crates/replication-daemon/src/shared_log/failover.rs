//! The start of an origin with a log: it reads the log, stands by while another origin writes, and takes over.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use lull_replication::time::LocalTime;
use lull_replication::types::{Digest, Incarnation};
use lull_replication::wire::WireError;

use super::client::Failure;
use super::follower::{Cursor, Follower, Read};
use super::message::{Kind, Message};
use super::record::random;
use super::records::{Batch, decode};
use super::writer::{Failed, SharedLog};
use super::{LogEvent, writer_lease};
use crate::identity::{self, IdentityError, OriginIdentity};
use crate::store::{OriginState, Settings, Store, StoreError};

/// The pause between two checks of a standby.
const STANDBY_PAUSE: Duration = Duration::from_millis(200);
/// The pause after a failure of the servers.
const PAUSE: Duration = Duration::from_millis(250);

/// How long the servers may reject an origin that starts, until it ends. One of several may be configured late.
const REJECTED: Duration = Duration::from_secs(3);

/// An opening of the store in a folder, with its log.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) log: &'a Arc<SharedLog>,
    pub(crate) folder: &'a FilePath,
    pub(crate) settings: Settings,
    pub(crate) key: [u8; 32],
    pub(crate) take_over: bool,
}

/// The purpose of reading the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The folder gets what they say.
    Apply,
    /// The folder has a state that is not in the log so far.
    Convert,
}

fn unreadable(error: WireError) -> StoreError {
    StoreError::Log(format!(
        "a batch of the log cannot be read ({error}): install the release of Lull that wrote it"
    ))
}

impl Opening<'_> {
    /// Makes this origin the writer of the log. Its store in the folder is closed again, and has all of the log.
    /// Returns the number of its life. Waits while another origin writes.
    pub(crate) fn become_writer(&self, least: Incarnation) -> Result<Incarnation, StoreError> {
        self.make_store()?;
        let mut store = Store::<OriginState>::open_to_replay(self.folder, self.settings)?;
        let stream = &self.log.address.stream;
        let mut follower = match store.cursor()? {
            Some(bytes) => Follower::decode(stream, &bytes).map_err(unreadable)?,
            None => Follower::new(stream),
        };
        let known = follower.last();
        let purpose = match known.sequence {
            0 if !store.is_new() => Purpose::Convert,
            _ => Purpose::Apply,
        };
        self.find_stream(known)?;
        self.log.show(&follower);
        self.catch_up(&mut store, &mut follower, purpose)?;
        let life = self.become_writer_when_allowed(&mut store, &mut follower, purpose, least)?;
        if !follower.has_state {
            self.write_state(&mut store, &mut follower)?;
        }
        *self.log.follower() = follower;
        // The rest of the start may take longer than the lease.
        let kept = self.log.start_renewals();
        kept.map_err(|error| StoreError::Log(format!("the system gives no thread: {error}")))?;
        self.log.report_event(LogEvent::Writing(self.log.address.to_string()));
        Ok(life)
    }

    /// Makes an empty store in a folder that has an identity only, if the log has a state for it.
    fn make_store(&self) -> Result<(), StoreError> {
        match Store::<OriginState>::open_to_replay(self.folder, self.settings) {
            Err(StoreError::Nothing(_)) => {}
            opened => return opened.map(drop),
        }
        let begun = self.log.now();
        loop {
            match self.log.extent() {
                Ok(extent) if extent.last > 0 => break,
                Ok(_) | Err(Failure::NoStream) => {
                    return Err(StoreError::Log(format!(
                        "the log {} is empty, and so is this folder: first start the origin that has the files, with \
                         the same --log",
                        self.log.address
                    )));
                }
                Err(why) => self.await_servers(begun, &why)?,
            }
        }
        let (low, high) = (random()?, random()?);
        // The state in the log has the identity of its chain.
        let identity = core::array::from_fn(|at| if at < 16 { low[at] } else { high[at - 16] });
        Store::<OriginState>::create_origin(self.folder, self.settings, identity)
    }

    fn pause(&self, length: Duration) -> Result<(), StoreError> {
        sleep(length);
        if self.log.is_stopped() { Err(StoreError::Stopped) } else { Ok(()) }
    }

    /// Waits before the next attempt. Fails if an operator has to change something first.
    fn await_servers(&self, begun: LocalTime, why: &Failure) -> Result<(), StoreError> {
        if why.is_misconfiguration() && self.log.now().since(begun) >= REJECTED {
            return Err(StoreError::Log(format!(
                "the log {} cannot be used: {why}",
                self.log.address
            )));
        }
        self.pause(PAUSE)
    }

    /// Finds the stream, or makes it if the folder has never used it.
    fn find_stream(&self, known: Cursor) -> Result<(), StoreError> {
        let begun = self.log.now();
        loop {
            match self.log.check_extent(known.sequence) {
                Ok(_) => return self.check_last(known),
                Err(Failed::Fatal(error)) if known.sequence > 0 => return Err(error),
                Err(Failed::Fatal(_)) => {
                    let made = self.log.client.create();
                    self.log.record_outcome(&made);
                    if made.is_err() {
                        self.pause(PAUSE)?;
                    }
                }
                Err(Failed::Passing(why)) => self.await_servers(begun, &why)?,
            }
        }
    }

    /// The stream has the last message that the folder knows, unless its beginning was deleted.
    fn check_last(&self, known: Cursor) -> Result<(), StoreError> {
        if known.sequence == 0 {
            return Ok(());
        }
        loop {
            let next = self.log.client.next(known.sequence - 1);
            self.log.record_outcome(&next);
            match next {
                Ok(Some((sequence, bytes))) if sequence == known.sequence => {
                    let found = Message::decode(&bytes).ok();
                    let found = found.map(|message| (message.from, message.number));
                    if found == Some((known.writer, known.number)) {
                        return Ok(());
                    }
                    return Err(self.log.truncated(&format!("message {sequence} is another one")));
                }
                // The numbers of later messages show whether they follow.
                Ok(_) => return Ok(()),
                Err(Failure::NoStream) => return Err(self.log.deleted()),
                Err(_) => self.pause(PAUSE)?,
            }
        }
    }

    /// Reads to the end of the stream. Returns whether there was a message of the writer.
    fn catch_up(
        &self,
        store: &mut Store<OriginState>,
        follower: &mut Follower,
        purpose: Purpose,
    ) -> Result<bool, StoreError> {
        let mut has_heard = false;
        loop {
            match self.log.read(follower) {
                Ok(None) => return Ok(has_heard),
                Ok(Some(read)) => {
                    has_heard |= read != Read::Nothing;
                    self.apply(store, follower, purpose, read)?;
                }
                Err(Failed::Fatal(error)) => return Err(error),
                Err(Failed::Passing(Failure::NoStream)) => return Err(self.log.deleted()),
                Err(Failed::Passing(_)) => self.pause(PAUSE)?,
            }
            if self.log.is_stopped() {
                return Err(StoreError::Stopped);
            }
        }
    }

    fn apply(
        &self,
        store: &mut Store<OriginState>,
        follower: &mut Follower,
        purpose: Purpose,
        read: Read,
    ) -> Result<(), StoreError> {
        let batch = match read {
            Read::Batch(batch) => decode(&batch).map_err(unreadable)?,
            Read::Identity(encrypted) => {
                return OriginIdentity::receive(self.folder, &self.key, &encrypted)
                    .map_err(|error| self.not_received(&error));
            }
            Read::Began(_) | Read::Alive | Read::Nothing => return Ok(()),
        };
        match &batch {
            Batch::StateBegins => follower.has_state = false,
            Batch::StateEnds(_) => follower.has_state = true,
            Batch::Jobs(_) | Batch::Rows(_) => {}
        }
        if purpose == Purpose::Convert {
            return if follower.has_state { Err(self.two_states()) } else { Ok(()) };
        }
        let cursor = follower.encode().map_err(unreadable)?;
        match batch {
            Batch::Jobs(jobs) => store.replay(&jobs, cursor),
            Batch::StateBegins => store.clear(cursor),
            Batch::Rows(rows) => store.insert(&rows, cursor),
            Batch::StateEnds(head) => store.finish(&head, cursor),
        }
    }

    fn not_received(&self, error: &IdentityError) -> StoreError {
        StoreError::Log(format!(
            "the identity in the log {} cannot be used ({error}): copy identity.json again from the origin that writes \
             the log; if this is a new origin, name another stream",
            self.log.address
        ))
    }

    fn two_states(&self) -> StoreError {
        StoreError::Log(format!(
            "the log {} has files already, and this folder has others: name another stream; or, to stand by, use a new \
             folder that has only identity.json of the origin that writes the log",
            self.log.address
        ))
    }

    /// Begins to write: at once, if no other origin can be writing; otherwise when it is silent.
    fn become_writer_when_allowed(
        &self,
        store: &mut Store<OriginState>,
        follower: &mut Follower,
        purpose: Purpose,
        least: Incarnation,
    ) -> Result<Incarnation, StoreError> {
        let mut standby = Standby::default();
        loop {
            let other = follower.writer().filter(|writer| writer.node.id != self.log.node.id);
            let other = other.map(|writer| writer.node.address.clone());
            // Until the log has the whole state, only its first writer can complete it.
            let may_begin = follower.has_state
                && (self.take_over || standby.is_over(self.log, other.as_deref()));
            if other.is_none() || may_begin {
                let log = match follower.log() {
                    Some(log) => log,
                    None => Digest(identity::random().map_err(|error| self.not_received(&error))?),
                };
                let life = least.max(Incarnation(follower.life() + 1));
                if self.try_become_writer(follower, log, life)? {
                    if other.is_some() && self.take_over {
                        self.outlast_lease(follower)?;
                    }
                    return Ok(life);
                }
            } else if !standby.has_joined {
                standby.has_joined =
                    self.try_append(follower, Kind::Joined(self.log.node.clone()))?;
                if standby.has_joined {
                    let address = other.clone().unwrap_or_default();
                    self.log.report_event(LogEvent::Standby(address));
                    continue;
                }
            } else if let Err(stopped) = self.pause(STANDBY_PAUSE) {
                let _ = self.try_append(follower, Kind::Left);
                return Err(stopped);
            }
            let has_heard = self.catch_up(store, follower, purpose)?;
            standby.record_message(self.log, has_heard);
        }
    }

    /// Waits until the writer before, which may not have seen its end, no longer speaks to replicas.
    fn outlast_lease(&self, follower: &mut Follower) -> Result<(), StoreError> {
        let begun = self.log.now();
        while !writer_lease::is_over(begun, self.log.now()) {
            self.pause(PAUSE)?;
            self.log.append(follower, &Kind::Alive, None)?;
        }
        Ok(())
    }

    fn try_become_writer(
        &self,
        follower: &mut Follower,
        log: Digest,
        life: Incarnation,
    ) -> Result<bool, StoreError> {
        let last = follower.last();
        let after = (last.writer, last.number);
        let after = (after != Default::default()).then_some(after);
        let node = self.log.node.clone();
        self.try_append(follower, Kind::Begin { after, life: life.0, log, node })
    }

    /// Appends a message if the last one that was read is still the last one.
    fn try_append(&self, follower: &mut Follower, kind: Kind) -> Result<bool, StoreError> {
        match self.log.append_once(follower, &kind) {
            Ok(done) => Ok(done),
            Err(Failed::Fatal(error)) => Err(error),
            Err(Failed::Passing(Failure::Moved)) => Ok(false),
            Err(Failed::Passing(_)) => self.pause(PAUSE).map(|()| false),
        }
    }

    /// Copies the whole state of the folder into the log.
    fn write_state(
        &self,
        store: &mut Store<OriginState>,
        follower: &mut Follower,
    ) -> Result<(), StoreError> {
        self.log.append_state(follower, &Batch::StateBegins)?;
        let head = store.rows(&mut |rows| self.log.append_state(follower, &Batch::Rows(rows)))?;
        self.log.append_state(follower, &Batch::StateEnds(head))?;
        follower.has_state = true;
        let cursor = follower.encode().map_err(unreadable)?;
        store.replay(&[], cursor)
    }
}

/// An origin that waits until another one is silent.
#[derive(Debug, Default)]
struct Standby {
    has_joined: bool,
    /// The writer has written since then, so it knows of this standby.
    is_known: bool,
    /// When the last message of the writer was read.
    heard: Option<LocalTime>,
    has_warned: bool,
}

impl Standby {
    fn record_message(&mut self, log: &SharedLog, has_heard: bool) {
        // The time after the reading is later than that of each message.
        if has_heard || self.heard.is_none() {
            self.heard = Some(log.now());
            self.is_known |= has_heard && self.has_joined;
        }
    }

    /// Whether the writer has been silent for so long that its lease has ended.
    fn is_over(&mut self, log: &SharedLog, writer: Option<&str>) -> bool {
        let silent = self.heard.is_some_and(|heard| writer_lease::is_over(heard, log.now()));
        if silent && !self.is_known && self.has_joined && !self.has_warned {
            self.has_warned = true;
            log.report_event(LogEvent::Unconfirmed(writer.unwrap_or_default().to_owned()));
        }
        silent && self.is_known
    }
}
