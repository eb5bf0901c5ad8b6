//! Messages that the NATS server has not confirmed. They are saved beside the model, so that a proxy that restarts
//! while the server is away loses none.

use std::collections::VecDeque;

use super::Message;

/// The most bytes of messages. More stays in the model until there is room.
const MAX_BYTES: usize = 8 << 20;

/// Messages in the order in which they are sent. Receivers drop one that they have got before.
#[derive(Debug, Default)]
pub(in crate::nps) struct Unsent {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    /// A number that increases with each change.
    changes: u64,
}

impl Unsent {
    /// The first bytes of saved messages.
    pub(in crate::nps) const KEPT: &'static [u8] = b"lullunsent\x01";

    /// The message to send next.
    pub(in crate::nps) fn first(&self) -> Option<&[u8]> {
        self.messages.front().map(Vec::as_slice)
    }

    /// Whether another message should wait.
    pub(in crate::nps) fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES
    }

    pub(in crate::nps) fn changes(&self) -> u64 {
        self.changes
    }

    pub(in crate::nps) fn push(&mut self, message: &Message) {
        let message = message.encode();
        self.bytes += message.len();
        self.changes += 1;
        self.messages.push_back(message);
    }

    /// The server has confirmed the first message.
    pub(in crate::nps) fn confirm_first(&mut self) {
        if let Some(message) = self.messages.pop_front() {
            self.bytes -= message.len();
            self.changes += 1;
        }
    }

    pub(in crate::nps) fn encode(&self) -> Vec<u8> {
        let mut kept = Self::KEPT.to_vec();
        for message in &self.messages {
            kept.extend((message.len() as u64).to_le_bytes());
            kept.extend(message);
        }
        kept
    }

    /// Messages that an earlier process saved; none if they are damaged.
    pub(in crate::nps) fn decode(kept: &[u8]) -> Option<Self> {
        let mut rest = kept.strip_prefix(Self::KEPT)?;
        let mut unsent = Unsent::default();
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk::<8>()?;
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            let (message, after) = after.split_at_checked(length)?;
            unsent.push(&Message::decode(message)?);
            rest = after;
        }
        Some(unsent)
    }
}

#[cfg(test)]
mod tests {
    use lull_speculate::model::Sender;

    use super::*;

    fn delta(number: u64, length: usize) -> Message {
        Message::Delta { sender: Sender(7), number, bytes: vec![1; length] }
    }

    #[test]
    fn saved_messages_are_sent_in_their_order() {
        let mut before = Unsent::default();
        (1..4).for_each(|number| before.push(&delta(number, 10)));
        before.confirm_first();
        let saved = before.encode();
        let mut after = Unsent::decode(&saved).unwrap();
        for number in [2, 3] {
            assert_eq!(after.first().and_then(Message::decode), Some(delta(number, 10)));
            after.confirm_first();
        }
        assert_eq!(after.first(), None);
        for length in 0..saved.len() {
            let damaged = Unsent::decode(&saved[..length]);
            assert!(damaged.is_none_or(|some| some.encode().len() == length), "{length}");
        }
    }

    #[test]
    fn unsent_messages_are_bounded_in_bytes() {
        let mut unsent = Unsent::default();
        let mut number = 0;
        while !unsent.is_full() {
            number += 1;
            unsent.push(&delta(number, 256 << 10));
        }
        assert!((30..=33).contains(&number), "{number}");
        unsent.confirm_first();
        assert!(!unsent.is_full());
    }
}
