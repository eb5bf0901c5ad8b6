//! The protocol of origin and replicas.

use lull_replicate::message::{Channel, Frame, FromAuthority, ToAuthority, ToOrigin, ToReplica};
use lull_replicate::wire::{
    Assembly, Attach, BodyPart, Delivery, Frames, Message, PREFACE, Preface, encode,
};

/// What a connection of any channel and direction brings: it is refused, or it is what the same
/// frames would have been sent as; and parts of bodies are put together or refused.
pub fn wire(bytes: &[u8]) {
    stream::<ToOrigin>(bytes);
    stream::<ToReplica>(bytes);
    stream::<Attach>(bytes);
    stream::<ToAuthority>(bytes);
    stream::<FromAuthority>(bytes);
    let mut assembly = Assembly::default();
    for frame in stream::<BodyPart>(bytes) {
        match assembly.handle(frame.message) {
            Err(_) => break,
            Ok(Delivery::More) => assert!(assembly.header().is_some()),
            Ok(Delivery::Bytes(bytes)) => assert!(!bytes.is_empty()),
            Ok(Delivery::Complete { .. }) => assert!(assembly.header().is_none()),
        }
    }
    if let Some(first) = bytes.first_chunk::<PREFACE>()
        && let Ok(theirs) = Preface::decode(*first)
    {
        let again = Preface::decode(theirs.encode());
        assert_eq!(again, Ok(theirs));
        if let Ok(version) = Preface::ours(Channel::Control).agree(theirs) {
            assert!((theirs.oldest..=theirs.newest).contains(&version));
        }
    }
}

/// The frames of a stream, as far as it is one.
fn stream<M: Message>(bytes: &[u8]) -> Vec<Frame<M>> {
    let mut frames = Frames::<M>::default();
    let mut got = Vec::new();
    let mut again = Vec::new();
    // In two parts, of which the second one begins anywhere.
    let cut = bytes.len() / 3;
    for part in [&bytes[..cut], &bytes[cut..]] {
        frames.extend(part);
        loop {
            match frames.next() {
                Ok(Some(frame)) => {
                    encode(&frame, &mut again).expect("what has come can be sent");
                    assert!(bytes.starts_with(&again), "each value has one way to be written");
                    got.push(frame);
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.to_string().contains('\n'));
                    return got;
                }
            }
        }
    }
    assert_eq!(again.len() + frames.pending(), bytes.len());
    got
}
