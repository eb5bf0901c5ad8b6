//! The messages of a stream, read in their order: pure.
//!
//! A message that is missing, doubled or of a process that was replaced is found, because each writer numbers its
//! messages, and names the last one before it when it begins.

use std::collections::BTreeMap;

use lull_replication::types::Digest;
use lull_replication::wire::WireError;
use lull_replication::wire::cursor::{Reader, Writer};
use thiserror::Error;

use super::message::{
    Kind, Message, Node, NodeId, ProcessId, random_number, read_node, write_node,
};

/// The last message that a folder contains the effects of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// Its sequence in the stream.
    pub(super) sequence: u64,
    pub(super) writer: ProcessId,
    pub(super) number: u64,
}

/// The name of a stream.
const NAME: (&str, usize) = ("stream", 255);
/// Most standbys: more are an error.
const STANDBYS: (&str, usize) = ("standbys", 1_000);

/// The process that writes the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CurrentWriter {
    pub(super) process: ProcessId,
    pub(super) node: Node,
}

/// An effect of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A batch is complete.
    Batch(Vec<u8>),
    /// A new writer.
    Began(CurrentWriter),
    /// The identity of the origin has changed.
    Identity(Vec<u8>),
    /// The writer was alive.
    Alive,
    /// Something about a standby.
    Nothing,
}

/// Why the messages cannot be those after the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Broken {
    /// Some are missing.
    #[error("messages before {0} are missing")]
    Gap(u64),
    /// It is the log of another origin.
    #[error("message {0} is of another origin")]
    Other(u64),
    /// The message is not from Lull.
    #[error("message {0} is not from this version of Lull")]
    Unknown(u64),
}

/// Reads messages in their order.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    /// The name of the stream.
    stream: String,
    /// The identity of the log; none before the first message.
    log: Option<Digest>,
    /// The last message.
    last: Cursor,
    writer: Option<CurrentWriter>,
    /// The highest incarnation.
    life: u64,
    /// A batch that is not complete.
    batch: Option<Vec<u8>>,
    standbys: BTreeMap<ProcessId, Node>,
    /// Whether the log has a whole state, which later batches change.
    pub(super) has_state: bool,
}

impl Follower {
    /// At the beginning of a stream.
    pub(super) fn new(stream: &str) -> Self {
        let (log, last, writer, batch, standbys) = Default::default();
        let stream = stream.to_owned();
        Follower { stream, log, last, writer, life: 0, batch, standbys, has_state: false }
    }

    /// The last message.
    pub(super) fn last(&self) -> Cursor {
        self.last
    }

    /// The state, to be stored with the effects of the last message. To be called when a batch is complete.
    pub(super) fn encode(&self) -> Result<Vec<u8>, WireError> {
        let mut bytes = Vec::new();
        let mut to = Writer::new(&mut bytes);
        to.blob(NAME, self.stream.as_bytes())?;
        to.digest(&self.log.unwrap_or(Digest([0; 32])));
        to.u64(self.last.sequence);
        to.bytes(&self.last.writer.0);
        to.u64(self.last.number);
        to.u64(self.life);
        to.flag(self.has_state);
        to.option(self.writer.as_ref(), |to, writer| {
            to.bytes(&writer.process.0);
            write_node(to, &writer.node)
        })?;
        let standbys: Vec<_> = self.standbys.iter().collect();
        to.list(STANDBYS, &standbys, |to, (process, node)| {
            to.bytes(&process.0);
            write_node(to, node)
        })?;
        Ok(bytes)
    }

    /// The state that was stored; that of a new stream, if it was of another one.
    pub(super) fn decode(stream: &str, bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader::new(bytes);
        let mut follower = Follower::new(stream);
        if from.blob(NAME)? != stream.as_bytes() {
            return Ok(follower);
        }
        follower.log = Some(from.digest("log")?);
        let sequence = from.u64("sequence")?;
        let writer = ProcessId(random_number(&mut from)?);
        follower.last = Cursor { sequence, writer, number: from.u64("number")? };
        follower.life = from.u64("life")?;
        follower.has_state = from.flag("state")?;
        follower.writer = from.option("writer", |from| {
            Ok(CurrentWriter { process: ProcessId(random_number(from)?), node: read_node(from)? })
        })?;
        let standbys = from
            .list(STANDBYS, 34, |from| Ok((ProcessId(random_number(from)?), read_node(from)?)))?;
        from.end()?;
        follower.standbys = standbys.into_iter().collect();
        Ok(follower)
    }

    /// Whether another origin may take over without a request: then the writer needs a lease.
    pub(super) fn is_leased(&self) -> bool {
        !self.standbys.is_empty()
    }

    pub(super) fn life(&self) -> u64 {
        self.life
    }

    pub(super) fn log(&self) -> Option<Digest> {
        self.log
    }

    pub(super) fn writer(&self) -> Option<&CurrentWriter> {
        self.writer.as_ref()
    }

    /// The standbys of other folders.
    pub(super) fn standbys(&self, but: NodeId) -> impl Iterator<Item = &Node> {
        self.standbys.values().filter(move |node| node.id != but)
    }

    /// The message with this sequence in the stream.
    pub(super) fn read(&mut self, sequence: u64, bytes: &[u8]) -> Result<Read, Broken> {
        let message = Message::decode(bytes).map_err(|_| Broken::Unknown(sequence))?;
        let expected = (self.last.writer, self.last.number);
        let is_next = message.from == expected.0 && message.number == expected.1 + 1;
        let read = match message.kind {
            Kind::Begin { after, life, log, node } => {
                if self.log.is_some_and(|known| known != log) {
                    return Err(Broken::Other(sequence));
                }
                let known = (expected != Default::default()).then_some(expected);
                if after != known {
                    return Err(Broken::Gap(sequence));
                }
                self.log = Some(log);
                self.life = self.life.max(life);
                self.batch = None;
                // A standby that writes stands by no longer.
                self.standbys.remove(&message.from);
                let writer = CurrentWriter { process: message.from, node };
                self.writer = Some(writer.clone());
                (self.last.writer, self.last.number) = (message.from, 0);
                Read::Began(writer)
            }
            Kind::Part { first, last, bytes } if is_next => {
                self.last.number = message.number;
                self.part(first, last, bytes)
            }
            Kind::Identity(bytes) if is_next => {
                self.last.number = message.number;
                Read::Identity(bytes)
            }
            Kind::Part { .. } | Kind::Identity(_) => return Err(Broken::Gap(sequence)),
            Kind::Alive if (message.from, message.number) == expected => Read::Alive,
            Kind::Alive => return Err(Broken::Gap(sequence)),
            Kind::Joined(node) => {
                // An earlier process of the same folder has ended.
                self.standbys.retain(|_, other| other.id != node.id);
                self.standbys.insert(message.from, node);
                Read::Nothing
            }
            Kind::Left => {
                self.standbys.remove(&message.from);
                Read::Nothing
            }
        };
        self.last.sequence = sequence;
        Ok(read)
    }

    fn part(&mut self, first: bool, last: bool, bytes: Vec<u8>) -> Read {
        let mut batch = match self.batch.take() {
            Some(batch) if !first => batch,
            // The rest of a batch whose beginning was read before a restart cannot occur: the cursor is before it.
            None if !first => return Read::Alive,
            _ => Vec::new(),
        };
        batch.extend(bytes);
        if last {
            return Read::Batch(batch);
        }
        self.batch = Some(batch);
        Read::Alive
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shared_log::message::parts;

    const LOG: Digest = Digest([9; 32]);

    fn process(number: u8) -> ProcessId {
        ProcessId([number; 16])
    }

    fn node(number: u8) -> Node {
        Node { id: NodeId([number; 16]), address: format!("n{number}:1") }
    }

    /// Messages of some writers, each of which takes over from the one before, with the batches that count.
    fn history(plan: &[(u8, usize, bool)]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let (mut messages, mut batches) = (Vec::new(), Vec::new());
        let mut after = None;
        for (at, (batch, length, dies)) in plan.iter().enumerate() {
            let from = process(at as u8 + 1);
            let begin = Kind::Begin { after, life: at as u64, log: LOG, node: node(1) };
            let mut all = vec![begin, Kind::Alive];
            let bytes = vec![*batch; *length];
            all.extend(parts(&bytes));
            if *dies {
                all.pop();
            } else {
                batches.push(bytes);
            }
            let mut number = 0;
            for kind in all {
                number += u64::from(matches!(kind, Kind::Part { .. }));
                messages.push(Message { from, number, kind }.encode().unwrap());
            }
            after = Some((from, number));
        }
        (messages, batches)
    }

    fn plan() -> impl Strategy<Value = Vec<(u8, usize, bool)>> {
        prop::collection::vec((any::<u8>(), 1usize..700_000, any::<bool>()), 1..5)
    }

    fn read_all(messages: &[(u64, &Vec<u8>)]) -> Result<Vec<Vec<u8>>, Broken> {
        let mut follower = Follower::new("pages");
        let mut batches = Vec::new();
        for (sequence, bytes) in messages {
            if let Read::Batch(batch) = follower.read(*sequence, bytes)? {
                batches.push(batch);
            }
        }
        Ok(batches)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Batches of a writer that ended in the middle do not count.
        #[test]
        fn followers_read_the_complete_batches_in_order(plan in plan()) {
            let (messages, batches) = history(&plan);
            let all: Vec<_> = messages.iter().enumerate().map(|(at, one)| (at as u64 + 1, one)).collect();
            prop_assert_eq!(read_all(&all).unwrap(), batches);
        }

        /// Without one message that counts, the next one is refused; lost last messages show at the cursor only.
        #[test]
        fn followers_find_a_missing_message(plan in plan(), lost in any::<prop::sample::Index>()) {
            let (messages, _) = history(&plan);
            let mut all: Vec<_> = messages.iter().enumerate().map(|(at, one)| (at as u64 + 1, one)).collect();
            let (at, lost) = all.remove(lost.index(messages.len()));
            let counts = !matches!(Message::decode(lost).unwrap().kind, Kind::Alive);
            let has_later = all.iter().any(|(later, _)| *later > at);
            prop_assert_eq!(read_all(&all).is_err(), counts && has_later);
        }
    }

    #[test]
    fn follower_refuses_messages_of_a_replaced_writer() {
        let (messages, _) = history(&[(1, 1, false), (2, 1, false)]);
        let late = Message { from: process(1), number: 2, kind: Kind::Identity(Vec::new()) };
        let late = late.encode().unwrap();
        let mut all: Vec<_> = messages.iter().collect();
        all.push(&late);
        let all: Vec<_> =
            all.into_iter().enumerate().map(|(at, one)| (at as u64 + 1, one)).collect();
        assert_eq!(read_all(&all), Err(Broken::Gap(all.len() as u64)));
    }

    #[test]
    fn log_of_another_origin_is_refused() {
        let (messages, _) = history(&[(1, 1, false)]);
        let mut follower = Follower { log: Some(Digest([8; 32])), ..Follower::new("pages") };
        assert_eq!(follower.read(1, &messages[0]), Err(Broken::Other(1)));
        assert_eq!(follower.read(1, b"hello"), Err(Broken::Unknown(1)));
    }

    #[test]
    fn standby_makes_a_lease_necessary_until_it_leaves() {
        let mut follower = Follower { log: Some(LOG), ..Follower::new("pages") };
        let message = |kind| Message { from: process(5), number: 0, kind }.encode().unwrap();
        follower.read(1, &message(Kind::Joined(node(2)))).unwrap();
        assert!(follower.is_leased());
        let bytes = follower.encode().unwrap();
        assert_eq!(Follower::decode("new", &bytes).unwrap().last(), Cursor::default());
        let mut follower = Follower::decode("pages", &bytes).unwrap();
        assert_eq!(follower.last().sequence, 1);
        assert_eq!(follower.standbys(NodeId([1; 16])).count(), 1);
        follower.read(2, &message(Kind::Left)).unwrap();
        assert!(!follower.is_leased());
    }
}
