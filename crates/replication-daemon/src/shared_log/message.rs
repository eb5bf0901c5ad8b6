//! The messages in the stream of a log.
//!
//! | message | from | contents |
//! |---|---|---|
//! | `Begin` | a new writer | the writer and the number of the message before it, so that a gap is found |
//! | `Part` | the writer | a part of a batch of records; a batch counts when its last part is there |
//! | `Identity` | the writer | the encrypted identity of the origin, complete |
//! | `Alive` | the writer | nothing: it renews the writer's lease |
//! | `Joined`, `Left` | a standby | nothing |
//!
//! `Begin` has the number 0. Each `Part` and `Identity` has the next number. The other messages do not count.

use lull_replication::types::Digest;
use lull_replication::wire::WireError;
use lull_replication::wire::cursor::{Reader, Writer};

/// The bytes of a batch in one message, at most. A server accepts 1 MB, and sends a message back in base64.
pub(super) const PART: usize = 256 * 1024;
/// The version of the format.
const FORMAT: u8 = 1;
/// The longest address in a message.
const ADDRESS: (&str, usize) = ("an address", 1_000);

/// One process that writes the log or stands by, drawn at random at its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessId(pub(super) [u8; 16]);

/// The folder of an origin, drawn at random when it first uses the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(pub(super) [u8; 16]);

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) from: ProcessId,
    pub(super) number: u64,
    pub(super) kind: Kind,
}

/// An origin that writes or stands by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) id: NodeId,
    /// Where replicas connect to it.
    pub(super) address: String,
}

/// The contents of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Begin {
        /// The writer before, and the number of its last message. None in an empty stream.
        after: Option<(ProcessId, u64)>,
        /// The incarnation of the origin.
        life: u64,
        /// The identity of the log.
        log: Digest,
        node: Node,
    },
    Part {
        first: bool,
        last: bool,
        bytes: Vec<u8>,
    },
    Identity(Vec<u8>),
    Alive,
    Joined(Node),
    Left,
}

impl Message {
    /// The bytes of a message.
    pub(super) fn encode(&self) -> Result<Vec<u8>, WireError> {
        let mut bytes = Vec::new();
        let mut to = Writer::new(&mut bytes);
        to.u8(FORMAT);
        to.bytes(&self.from.0);
        to.u64(self.number);
        match &self.kind {
            Kind::Begin { after, life, log, node } => {
                to.u8(0);
                to.flag(after.is_some());
                let (process, number) = after.unwrap_or_default();
                to.bytes(&process.0);
                to.u64(number);
                to.u64(*life);
                to.digest(log);
                write_node(&mut to, node)?;
            }
            Kind::Part { first, last, bytes } => {
                to.u8(1);
                to.flag(*first);
                to.flag(*last);
                to.bytes(bytes);
            }
            Kind::Identity(bytes) => {
                to.u8(2);
                to.bytes(bytes);
            }
            Kind::Alive => to.u8(3),
            Kind::Joined(node) => {
                to.u8(4);
                write_node(&mut to, node)?;
            }
            Kind::Left => to.u8(5),
        }
        Ok(bytes)
    }

    /// The message of these bytes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader::new(bytes);
        let format = from.u8("format")?;
        if format != FORMAT {
            return Err(WireError::Value("the format of a log"));
        }
        let process = ProcessId(random_number(&mut from)?);
        let number = from.u64("number")?;
        let kind = match from.u8("kind")? {
            0 => {
                let known = from.flag("after")?;
                let after = (ProcessId(random_number(&mut from)?), from.u64("number")?);
                let life = from.u64("life")?;
                let log = from.digest("log")?;
                let node = read_node(&mut from)?;
                Kind::Begin { after: known.then_some(after), life, log, node }
            }
            1 => {
                let (first, last) = (from.flag("first")?, from.flag("last")?);
                Kind::Part { first, last, bytes: from.rest().to_vec() }
            }
            2 => Kind::Identity(from.rest().to_vec()),
            3 => Kind::Alive,
            4 => Kind::Joined(read_node(&mut from)?),
            5 => Kind::Left,
            kind => return Err(WireError::Kind(kind)),
        };
        from.end()?;
        Ok(Message { from: process, number, kind })
    }
}

pub(super) fn write_node(to: &mut Writer<'_>, node: &Node) -> Result<(), WireError> {
    to.bytes(&node.id.0);
    to.blob(ADDRESS, node.address.as_bytes())
}

pub(super) fn read_node(from: &mut Reader<'_>) -> Result<Node, WireError> {
    let id = NodeId(random_number(from)?);
    let address = String::from_utf8_lossy(&from.blob(ADDRESS)?).into_owned();
    Ok(Node { id, address })
}

pub(super) fn random_number(from: &mut Reader<'_>) -> Result<[u8; 16], WireError> {
    let (low, high) = (from.u64("number")?, from.u64("number")?);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&low.to_le_bytes());
    bytes[8..].copy_from_slice(&high.to_le_bytes());
    Ok(bytes)
}

/// A batch in messages of limited size.
pub(super) fn parts(batch: &[u8]) -> impl Iterator<Item = Kind> {
    let count = batch.len().div_ceil(PART).max(1);
    let mut chunks = batch.chunks(PART);
    (0..count).map(move |at| Kind::Part {
        first: at == 0,
        last: at + 1 == count,
        bytes: chunks.next().unwrap_or_default().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_messages_decode_to_what_was_encoded() {
        let node = Node { id: NodeId([7; 16]), address: "a:1".to_owned() };
        let after = Some((ProcessId([3; 16]), 9));
        let log = Digest([5; 32]);
        let kinds = [
            Kind::Begin { after, life: 8, log, node: node.clone() },
            Kind::Begin { after: None, life: 0, log, node: node.clone() },
            Kind::Part { first: true, last: false, bytes: vec![1, 2] },
            Kind::Identity(vec![4]),
            Kind::Alive,
            Kind::Joined(node),
            Kind::Left,
        ];
        for kind in kinds {
            let message = Message { from: ProcessId([1; 16]), number: 6, kind };
            let bytes = message.encode().unwrap();
            assert_eq!(Message::decode(&bytes), Ok(message));
            assert!(Message::decode(&bytes[..24]).is_err());
        }
        assert!(Message::decode(b"{\"someone\": \"else\"}").is_err());
    }

    #[test]
    fn batch_is_split_into_parts_that_a_server_accepts() {
        for length in [0, 1, PART, PART + 1, 3 * PART] {
            let batch: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let all: Vec<_> = parts(&batch).collect();
            assert_eq!(all.len(), length.div_ceil(PART).max(1));
            let mut joined = Vec::new();
            for (at, part) in all.iter().enumerate() {
                let Kind::Part { first, last, bytes } = part else { unreachable!() };
                assert_eq!((*first, *last), (at == 0, at + 1 == all.len()));
                assert!(bytes.len() <= PART);
                joined.extend_from_slice(bytes);
            }
            assert_eq!(joined, batch);
        }
    }
}
