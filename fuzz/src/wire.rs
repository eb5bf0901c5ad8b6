//! The protocol of origin and replicas.

use lull_replication::lane::Lane;
use lull_replication::message::{
    BodyHeader, Channel, Frame, FromAuthority, ToAuthority, ToOrigin, ToReplica,
};
use lull_replication::wire::{
    Assembly, Attach, BodyPart, Delivery, Frames, FromSource, Message, PREFACE, Preface, ToSource,
    encode,
};

/// The input of a connection of any channel and direction: it is rejected, or equal to the frames as they
/// would have been sent. Parts of bodies are joined or rejected.
pub fn wire(bytes: &[u8]) {
    stream::<ToOrigin>(bytes);
    stream::<ToReplica>(bytes);
    stream::<Attach>(bytes);
    stream::<ToAuthority>(bytes);
    stream::<FromAuthority>(bytes);
    stream::<ToSource>(bytes);
    stream::<FromSource>(bytes);
    let mut assembly = Assembly::default();
    for frame in stream::<BodyPart>(bytes) {
        let lane = frame.message.lane();
        let before: Vec<_> = others(&assembly, lane).collect();
        match assembly.handle(frame.message) {
            Err(_) => break,
            Ok((by, delivery)) => {
                assert_eq!(by, lane);
                let header = assembly.header(lane);
                match delivery {
                    Delivery::More | Delivery::Chunks(..) => assert!(header.is_some()),
                    Delivery::Bytes(bytes) => assert!(header.is_some() && !bytes.is_empty()),
                    Delivery::Complete { .. } => assert!(header.is_none()),
                }
            }
        }
        assert!(others(&assembly, lane).eq(before), "a part is one of its own lane's body");
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

/// Bodies in transit on other lanes than this one.
fn others(assembly: &Assembly, than: Lane) -> impl Iterator<Item = Option<BodyHeader>> {
    let others = Lane::ALL.into_iter().filter(move |lane| *lane != than);
    others.map(|lane| assembly.header(lane).cloned())
}

/// The frames of a stream, up to the first error.
fn stream<M: Message>(bytes: &[u8]) -> Vec<Frame<M>> {
    let mut frames = Frames::<M>::default();
    let mut got = Vec::new();
    let mut again = Vec::new();
    // In two parts, of which the second one may begin at any byte.
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
