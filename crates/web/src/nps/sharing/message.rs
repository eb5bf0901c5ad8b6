//! The messages between proxies of a site.

use lull_speculate::model::Sender;

/// A message, before it is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nps) enum Message {
    /// A numbered delta of the sender's model: [`lull_speculate::model::Delta`].
    Delta { sender: Sender, number: u64, bytes: Vec<u8> },
    /// Bars of the sender: [`Policy::take_new_bars`](crate::policy::Policy::take_new_bars).
    Bars { sender: Sender, bytes: Vec<u8> },
    /// The sender runs, and has sent so many bytes ahead in its day.
    Presence { sender: Sender, spent: u64 },
}

const DELTA: u8 = 1;
const BARS: u8 = 2;
const PRESENCE: u8 = 3;

impl Message {
    pub(in crate::nps) fn encode(&self) -> Vec<u8> {
        let (kind, sender, number, rest) = match self {
            Message::Delta { sender, number, bytes } => (DELTA, sender, *number, &bytes[..]),
            Message::Bars { sender, bytes } => (BARS, sender, 0, &bytes[..]),
            Message::Presence { sender, spent } => (PRESENCE, sender, *spent, &[][..]),
        };
        let mut bytes = vec![kind];
        bytes.extend(sender.0.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend(rest);
        bytes
    }

    /// None if it is malformed, or of a kind that a later version has.
    pub(in crate::nps) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (sender, rest) = rest.split_first_chunk::<8>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (sender, number) = (Sender(u64::from_le_bytes(*sender)), u64::from_le_bytes(*number));
        match *kind {
            DELTA => Some(Message::Delta { sender, number, bytes: rest.to_vec() }),
            BARS => Some(Message::Bars { sender, bytes: rest.to_vec() }),
            PRESENCE => Some(Message::Presence { sender, spent: number }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_message_is_decoded_to_itself() {
        let sender = Sender(7);
        for message in [
            Message::Delta { sender, number: 3, bytes: vec![1, 2] },
            Message::Bars { sender, bytes: vec![1, 2] },
            Message::Presence { sender, spent: 9 },
        ] {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Some(message));
            assert_eq!(Message::decode(&bytes[..16]), None);
        }
        assert_eq!(Message::decode(&[9; 30]), None);
    }
}
