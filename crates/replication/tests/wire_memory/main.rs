//! How much memory a peer can make a decoder take. It is a program of its own with one test, because its allocator counts
//! what all tests of the program allocate.

mod sys;

use lull_replication::lane::Lane;
use lull_replication::message::{Frame, FromAuthority, Session, ToAuthority, ToOrigin, ToReplica};
use lull_replication::path::Path;
use lull_replication::time::WallTime;
use lull_replication::types::{Change, Digest, Sequence};
use lull_replication::wire::{
    self, Attach, BodyPart, EXPANSION, Frames, FromSource, Message, ToSource,
};

/// The memory of decoding a frame of `bytes`, without its own bytes.
fn taken<M: Message>(bytes: &[u8]) -> usize {
    let mut frames = Frames::<M>::default();
    frames.extend(bytes);
    // The first frame is enough: its contents end before the next.
    sys::most_allocated(|| frames.next())
}

/// Frames with consistent lengths but arbitrary contents.
fn sealed(kind: u8, rest: &[u8]) -> Vec<u8> {
    let length = (21 + rest.len()) as u32;
    [&length.to_le_bytes()[..], &[kind], &[0; 20], rest].concat()
}

#[test]
fn decoding_memory_is_a_bounded_multiple_of_the_input() {
    let session = Session::default();
    let path = Path::new("a").expect("a path");
    let mut deletions = Vec::new();
    let message = ToReplica::Invalidation {
        sequence: Sequence(1),
        stamp: WallTime::default(),
        changes: vec![Change { path: path.clone(), content: None }; 1_000],
        more: false,
    };
    wire::encode(&Frame { session, message }, &mut deletions).expect("within the limits");
    let worst = taken::<ToReplica>(&deletions);
    assert!(worst > deletions.len(), "the allocator counts: {worst}");
    assert!(worst <= EXPANSION * deletions.len(), "{worst} of {}", deletions.len());

    let mut paths = Vec::new();
    let message = ToOrigin::Lacking(vec![path; 1_000]);
    wire::encode(&Frame { session, message }, &mut paths).expect("within the limits");
    assert!(taken::<ToOrigin>(&paths) <= EXPANSION * paths.len());

    let mut hashes = Vec::new();
    let lane = Lane::default();
    let message = BodyPart::Hashes { lane, hashes: vec![Digest::default(); 2_000] };
    wire::encode(&Frame { session, message }, &mut hashes).expect("within the limits");
    assert!(taken::<BodyPart>(&hashes) <= EXPANSION * hashes.len());

    // Lists with a large declared length, of every kind, with a few or many bytes after them.
    for kind in 0..=u8::MAX {
        for count in [0_u32, 1, 255, 1_000, 65_535, u32::MAX] {
            for filler in [0_u8, 1, b'a', 0xff] {
                for length in [0_usize, 3, 40, 3_000] {
                    for shift in 0..3_usize {
                        let mut rest = vec![filler; length + 17 * shift];
                        rest.extend(count.to_le_bytes());
                        rest.resize(rest.len() + length, filler);
                        let bytes = sealed(kind, &rest);
                        let most = EXPANSION * bytes.len();
                        assert!(taken::<ToOrigin>(&bytes) <= most, "{kind} {count} {length}");
                        assert!(taken::<ToReplica>(&bytes) <= most, "{kind} {count} {length}");
                        assert!(taken::<BodyPart>(&bytes) <= most, "{kind} {count} {length}");
                        assert!(taken::<Attach>(&bytes) <= most, "{kind} {count} {length}");
                        assert!(taken::<ToAuthority>(&bytes) <= most, "{kind} {count} {length}");
                        assert!(taken::<FromAuthority>(&bytes) <= most, "{kind} {count} {length}");
                        assert!(taken::<ToSource>(&bytes) <= most, "{kind} {count} {length}");
                        assert!(taken::<FromSource>(&bytes) <= most, "{kind} {count} {length}");
                    }
                }
            }
        }
    }

    // A length alone reserves no memory for the promised bytes.
    let most = sys::most_allocated(|| {
        let mut frames = Frames::<ToReplica>::default();
        frames.extend(&(5_u32 << 20).to_le_bytes());
        (frames.next(), frames)
    });
    assert!(most < 1_000, "{most}");
}
