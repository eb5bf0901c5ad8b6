//! Messages round-trip, and no other bytes are decoded.

mod bodies;
mod exchange;
mod fetch;
mod preface;
mod vectors;

use core::time::Duration;

use lull_cc::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::lane::Lane;
use crate::message::{
    Ask, BelowReport, BodyHeader, Delivered, Enrol, Enrolled, FromAuthority, MAX_BELOW, MAX_PATHS,
    Neighbour, NotEnrolled, Refusal, Report, Start, Stock, ToAuthority, ToOrigin, ToReplica, Tree,
    Urgent, Vouch, Wanted,
};
use crate::path::{MAX_PATH_BYTES, Path};
use crate::subscription::{Pattern, Subscription};
use crate::time::{LocalTime, WallTime};
use crate::types::{
    Change, Content, Digest, Kind, MAX_BODY_BYTES, Metadata, Mode, Position, ReplicaId, Sequence,
    Version,
};

fn path() -> impl Strategy<Value = Path> {
    let short = "[a-zäß€ ]{1,9}(/[a-z.…]{3,60}){0,3}";
    let long = (1..=MAX_PATH_BYTES).prop_map(|length| {
        let names = "n".repeat(255) + "/";
        names.repeat(16)[..length].trim_end_matches('/').to_owned()
    });
    let bytes = vec(1..=u8::MAX, 1..40);
    let text = prop_oneof![9 => short.prop_map(|text| text), 1 => long];
    prop_oneof![2 => text.prop_map(String::into_bytes), 1 => bytes]
        .prop_filter_map("no path", |bytes| Path::from_bytes(&bytes).ok())
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest)
}

fn sequence() -> impl Strategy<Value = Sequence> {
    any::<u64>().prop_map(Sequence)
}

fn wall() -> impl Strategy<Value = WallTime> {
    any::<i64>().prop_map(WallTime::from_nanos)
}

fn local() -> impl Strategy<Value = LocalTime> {
    any::<i64>().prop_map(LocalTime::from_nanos)
}

fn position() -> impl Strategy<Value = Position> {
    (sequence(), digest()).prop_map(|(sequence, chain)| Position { sequence, chain })
}

fn content() -> impl Strategy<Value = Content> {
    let of =
        |kind, size: core::ops::RangeInclusive<u64>| {
            (digest(), size, wall(), mode()).prop_map(move |(digest, size, modified, mode)| {
                Content { digest, size: Bytes(size), metadata: Metadata { kind, modified, mode } }
            })
        };
    let link = of(Kind::Link, 1..=4_095).prop_map(|mut content| {
        content.metadata.mode = Mode::LINK;
        content
    });
    let folder = (wall(), mode()).prop_map(|(modified, mode)| Content::folder(modified, mode));
    prop_oneof![3 => of(Kind::File, 0..=MAX_BODY_BYTES.0), 1 => link, 1 => folder]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::PLAIN), Just(Mode::EXECUTABLE), any::<u32>().prop_map(Mode::new)]
}

fn version() -> impl Strategy<Value = Version> {
    (sequence(), content()).prop_map(|(sequence, content)| Version { sequence, content })
}

fn change() -> impl Strategy<Value = Change> {
    (path(), prop::option::of(content())).prop_map(|(path, content)| Change { path, content })
}

fn to_origin() -> impl Strategy<Value = ToOrigin> {
    let hello =
        (any::<u16>(), any::<u32>(), prop::option::of(position()), sequence(), subscription());
    prop_oneof![
        hello.prop_map(|(protocol, replica, position, committed, only)| ToOrigin::Hello {
            protocol,
            replica: ReplicaId(replica),
            position,
            committed,
            only,
        }),
        local().prop_map(|sent| ToOrigin::Ping { sent }),
        sequence().prop_map(ToOrigin::Ack),
        any::<u64>().prop_map(ToOrigin::Taken),
        any::<u64>().prop_map(ToOrigin::Fetched),
        vec((path(), any::<u32>()), 0..20).prop_map(ToOrigin::Reads),
        path().prop_map(ToOrigin::Demand),
        path().prop_map(ToOrigin::Withdraw),
        vec(path(), 0..20).prop_map(ToOrigin::Lacking),
        (sequence(), ask()).prop_map(|(of, part)| ToOrigin::Ask { of, part }),
        sequence().prop_map(ToOrigin::Resynced),
        report().prop_map(ToOrigin::Report),
        vec(any::<u32>().prop_map(ReplicaId), 0..20).prop_map(ToOrigin::Relays),
        vouch().prop_map(ToOrigin::Vouch),
        vec(below(), 0..5).prop_map(ToOrigin::Below),
        any::<u64>().prop_map(|bytes| ToOrigin::Price(Bytes(bytes))),
        vec((digest(), any::<u32>()), 0..20).prop_map(ToOrigin::Partial),
        (digest(), any::<[bool; 2]>(), any::<u64>(), vec(any::<(u32, u32)>(), 0..20)).prop_map(
            |(digest, [demand, more], number, ranges)| {
                ToOrigin::Wanted(Wanted { digest, demand, number, ranges, more })
            }
        ),
        exchange::address().prop_map(ToOrigin::Share),
    ]
}

fn below() -> impl Strategy<Value = BelowReport> {
    let delivered = (sequence(), vec(sequence(), 0..40));
    let aged = (any::<u64>().prop_map(Duration::from_nanos), report());
    let fields = (any::<[u32; 2]>(), any::<bool>(), any::<[u64; 2]>(), delivered);
    (fields, prop::option::of(aged)).prop_map(
        |(([replica, relay], connected, [more, waiting], (up_to, pending)), report)| {
            let (replica, relay) = (ReplicaId(replica), ReplicaId(relay));
            let committed = Sequence(up_to.0.saturating_add(more));
            let delivered = Delivered::new(up_to, pending);
            BelowReport { replica, relay, connected, committed, delivered, waiting, report }
        },
    )
}

fn urgent() -> impl Strategy<Value = Urgent> {
    let fields = (any::<u64>(), vec(any::<u8>(), 0..20), vec(any::<u32>(), 0..20));
    fields.prop_map(|(at, within, replicas)| Urgent {
        at: Sequence(at),
        within,
        replicas: replicas.into_iter().map(ReplicaId).collect(),
    })
}

fn vouch() -> impl Strategy<Value = Vouch> {
    let fields = (any::<u64>(), any::<u32>(), digest(), prop::option::of(position()));
    fields.prop_map(|(question, replica, certificate, position)| Vouch {
        question,
        replica: ReplicaId(replica),
        certificate,
        position,
    })
}

fn subscription() -> impl Strategy<Value = Subscription> {
    let pattern = "[a*]{1,9}(/[b*]{1,9}){0,3}";
    vec(pattern, 0..5).prop_map(|all| {
        let all = all.iter().map(|text| Pattern::new(text.as_bytes()).expect("a pattern"));
        Subscription::new(all.collect()).expect("a few")
    })
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        Just(Ask::Branches),
        vec(any::<u8>(), 0..=256).prop_map(Ask::Leaves),
        vec(any::<u16>(), 0..600).prop_map(Ask::Entries),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let reflects = prop::option::of(wall());
    let lasts = prop::option::of(any::<u64>().prop_map(Duration::from_nanos));
    let skew = prop::option::of(any::<(i64, i64)>());
    (reflects, lasts, skew, any::<[u64; 6]>()).prop_map(
        |(
            reflects,
            lasts,
            skew,
            [objects, valid_objects, unsubscribed_objects, bytes, valid, left],
        )| {
            let (bytes, valid_bytes) = (Bytes(bytes), Bytes(valid));
            let unsubscribed_bytes = Bytes(left);
            let stock = Stock {
                objects,
                valid_objects,
                bytes,
                valid_bytes,
                unsubscribed_objects,
                unsubscribed_bytes,
            };
            Report { reflects, lasts, skew, stock }
        },
    )
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        any::<u16>().prop_map(Refusal::Protocol),
        sequence().prop_map(Refusal::Ahead),
        Just(Refusal::Diverged),
        sequence().prop_map(Refusal::Forgotten),
        Just(Refusal::Revoked),
        Just(Refusal::Replaced),
        Just(Refusal::Unknown),
        Just(Refusal::Loop),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    prop_oneof![
        vec((any::<u8>(), digest()), 0..=256).prop_map(Tree::Branches),
        (any::<u8>(), vec((any::<u16>(), digest()), 0..=256))
            .prop_map(|(branch, leaves)| Tree::Leaves(branch, leaves)),
        (any::<u16>(), vec((path(), version()), 0..20), any::<bool>())
            .prop_map(|(leaf, entries, more)| Tree::Entries { leaf, entries, more }),
    ]
}

fn to_replica() -> impl Strategy<Value = ToReplica> {
    let resync = (position(), wall(), digest()).prop_map(|(position, stamp, root)| Start::Resync {
        position,
        stamp,
        root,
    });
    let start = prop_oneof![Just(Start::Log), resync];
    let invalidation = (sequence(), wall(), vec(change(), 0..20), any::<bool>());
    let heartbeat = (wall(), sequence(), prop::option::of(local()));
    prop_oneof![
        (start, any::<bool>()).prop_map(|(start, eager)| ToReplica::Welcome { start, eager }),
        refusal().prop_map(ToReplica::Refused),
        invalidation.prop_map(|(sequence, stamp, changes, more)| ToReplica::Invalidation {
            sequence,
            stamp,
            changes,
            more
        }),
        heartbeat.prop_map(|(stamp, committed, echo)| ToReplica::Heartbeat {
            stamp,
            committed,
            echo
        }),
        (sequence(), tree()).prop_map(|(of, part)| ToReplica::Tree { of, part }),
        Just(ToReplica::Renew),
        path().prop_map(ToReplica::Withdrawn),
        (any::<u64>(), prop::option::of(refusal()))
            .prop_map(|(question, refusal)| ToReplica::Vouched { question, refusal }),
        vec(urgent(), 0..5).prop_map(ToReplica::Urgent),
        vec(exchange::neighbour(), 0..5).prop_map(ToReplica::Neighbours),
    ]
}

fn lane() -> impl Strategy<Value = Lane> {
    prop::sample::select(Lane::ALL.to_vec())
}

fn body_part() -> impl Strategy<Value = BodyPart> {
    let header = (path(), prop::option::of(version()), sequence(), any::<bool>(), any::<bool>());
    prop_oneof![
        header.prop_map(|(path, version, at, demand, lost)| {
            let lost = lost && version.is_some();
            BodyPart::Header(BodyHeader { path, version, at, demand, lost })
        }),
        (lane(), vec(digest(), 0..20)).prop_map(|(lane, hashes)| BodyPart::Hashes { lane, hashes }),
        (lane(), any::<u32>(), vec(any::<u8>(), 0..2_000))
            .prop_map(|(lane, number, bytes)| BodyPart::Piece { lane, number, bytes }),
        (lane(), vec((digest(), any::<u32>()), 0..20)).prop_map(|(lane, chunks)| {
            let chunk = |(digest, length)| Chunk { digest, length };
            BodyPart::Chunks { lane, chunks: chunks.into_iter().map(chunk).collect() }
        }),
        lane().prop_map(|lane| BodyPart::Broken { lane }),
    ]
}

fn blob() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..600)
}

fn to_authority() -> impl Strategy<Value = ToAuthority> {
    let enrol = (any::<u32>(), any::<[u8; 32]>(), blob());
    prop_oneof![
        enrol.prop_map(|(replica, secret, request)| {
            ToAuthority::Enrol(Enrol { replica: ReplicaId(replica), secret, request })
        }),
        blob().prop_map(ToAuthority::Renew),
    ]
}

fn from_authority() -> impl Strategy<Value = FromAuthority> {
    let keys = (any::<[u8; 32]>(), any::<Option<[u8; 32]>>());
    let enrolled = (any::<u32>(), keys, blob(), vec(blob(), 0..=4));
    let reasons = [
        NotEnrolled::Ticket,
        NotEnrolled::Expired,
        NotEnrolled::Revoked,
        NotEnrolled::Request,
        NotEnrolled::Failed,
    ];
    prop_oneof![
        enrolled.prop_map(|(replica, (token_key, other_token_key), certificate, authorities)| {
            FromAuthority::Enrolled(Enrolled {
                replica: ReplicaId(replica),
                certificate,
                authorities,
                token_key,
                other_token_key,
            })
        }),
        prop::sample::select(reasons.to_vec()).prop_map(FromAuthority::Refused),
    ]
}

fn session() -> impl Strategy<Value = Session> {
    (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(origin, replica, connection)| Session {
        origin: Incarnation(origin),
        replica: Incarnation(replica),
        connection,
    })
}

fn frames<M: core::fmt::Debug>(
    message: impl Strategy<Value = M>,
) -> impl Strategy<Value = Vec<Frame<M>>> {
    let frame = (session(), message).prop_map(|(session, message)| Frame { session, message });
    vec(frame, 0..6)
}

/// Sends frames, and decodes them from parts of these lengths.
fn there_and_back<M>(frames: &[Frame<M>], parts: &[usize]) -> Result<(), TestCaseError>
where
    M: Message + Clone + PartialEq + core::fmt::Debug,
{
    let mut bytes = Vec::new();
    for frame in frames {
        encode(frame, &mut bytes).expect("it is within the limits");
    }
    let (mut decoder, mut got, mut rest) = (Frames::<M>::default(), Vec::new(), &bytes[..]);
    let mut parts = parts.iter().cycle();
    while !rest.is_empty() {
        let (some, later) = rest.split_at(rest.len().min(*parts.next().unwrap_or(&7)));
        rest = later;
        decoder.extend(some);
        while let Some(frame) = decoder.next().expect("it was just encoded") {
            got.push(frame);
        }
    }
    prop_assert_eq!(&got[..], frames);
    prop_assert_eq!(decoder.pending(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_of_replicas_round_trip(
        frames in frames(to_origin()),
        parts in vec(1..3_000_usize, 1..5),
    ) {
        there_and_back(&frames, &parts)?;
    }

    #[test]
    fn messages_of_the_origin_round_trip(
        frames in frames(to_replica()),
        parts in vec(1..3_000_usize, 1..5),
    ) {
        there_and_back(&frames, &parts)?;
    }

    #[test]
    fn body_parts_round_trip(
        frames in frames(body_part()),
        parts in vec(1..3_000_usize, 1..5),
    ) {
        there_and_back(&frames, &parts)?;
    }

    #[test]
    fn certificate_messages_round_trip(
        questions in frames(to_authority()),
        answers in frames(from_authority()),
        parts in vec(1..3_000_usize, 1..5),
    ) {
        there_and_back(&questions, &parts)?;
        there_and_back(&answers, &parts)?;
    }
}

fn of(message: ToOrigin) -> Frame<ToOrigin> {
    Frame { session: Session::default(), message }
}

#[test]
fn message_over_a_limit_is_not_encoded() {
    let paths = |count| vec![Path::new("a").expect("a path"); count];
    let mut bytes = vec![7];
    assert_eq!(encode(&of(ToOrigin::Lacking(paths(MAX_PATHS))), &mut bytes), Ok(()));
    bytes.truncate(1);
    let error = encode(&of(ToOrigin::Lacking(paths(MAX_PATHS + 1))), &mut bytes);
    let expected = WireError::Count { what: "paths", count: MAX_PATHS + 1, limit: MAX_PATHS };
    assert_eq!((error, &bytes[..]), (Err(expected), &[7][..]));
    let lane = Lane::default();
    let piece = BodyPart::Piece { lane, number: 0, bytes: vec![0; PIECE + 1] };
    let frame = Frame { session: Session::default(), message: piece };
    assert!(matches!(encode(&frame, &mut bytes), Err(WireError::Long { .. })));
    let content = Content {
        digest: Digest::default(),
        size: Bytes(MAX_BODY_BYTES.0 + 1),
        metadata: Metadata::default(),
    };
    let changes = vec![Change { path: paths(1)[0].clone(), content: Some(content) }];
    let (sequence, stamp) = (Sequence(1), WallTime::default());
    let message = ToReplica::Invalidation { sequence, stamp, changes, more: false };
    let error = encode(&Frame { session: Session::default(), message }, &mut bytes);
    assert_eq!((error, &bytes[..]), (Err(WireError::Value("size")), &[7][..]));
}

#[test]
fn message_with_the_longest_paths_fits_its_frame() {
    let longest = Path::new(&("n".repeat(255) + "/").repeat(16)[..MAX_PATH_BYTES]).expect("a path");
    let reads = ToOrigin::Reads(vec![(longest.clone(), u32::MAX); MAX_PATHS]);
    assert_eq!(encode(&of(reads), &mut Vec::new()), Ok(()));
    let content =
        Content { digest: Digest::default(), size: MAX_BODY_BYTES, metadata: Metadata::default() };
    let version = Version { sequence: Sequence(1), content };
    let entries = vec![(longest.clone(), version); crate::message::MAX_ENTRIES];
    let part = Tree::Entries { leaf: 1, entries, more: true };
    let message = ToReplica::Tree { of: Sequence(1), part };
    let frame = Frame { session: Session::default(), message };
    assert_eq!(encode(&frame, &mut Vec::new()), Ok(()));
    let change = Change { path: longest, content: Some(content) };
    let message = ToReplica::Invalidation {
        sequence: Sequence(1),
        stamp: WallTime::default(),
        changes: vec![change; crate::message::MAX_CHANGES],
        more: false,
    };
    let frame = Frame { session: Session::default(), message };
    assert_eq!(encode(&frame, &mut Vec::new()), Ok(()));
}

#[test]
fn length_of_changes_and_entries_is_exact() {
    let path = |length: usize| Path::new(&"n".repeat(length)).expect("a path");
    let content =
        Content { digest: Digest::default(), size: MAX_BODY_BYTES, metadata: Metadata::default() };
    let frame = |changes: &[Change]| {
        let (sequence, stamp, changes) = (Sequence(1), WallTime::default(), changes.to_vec());
        let message = ToReplica::Invalidation { sequence, stamp, changes, more: false };
        let mut bytes = Vec::new();
        encode(&Frame { session: Session::default(), message }, &mut bytes).expect("it is short");
        bytes.len()
    };
    for change in [
        Change { path: path(1), content: None },
        Change { path: path(200), content: Some(content) },
    ] {
        assert_eq!(frame(&[]) + length_of(&change), frame(core::slice::from_ref(&change)));
    }
    let entry = (path(200), Version { sequence: Sequence(1), content });
    let leaf = |entries: &[(Path, Version)]| {
        let part = Tree::Entries { leaf: 1, entries: entries.to_vec(), more: false };
        let message = ToReplica::Tree { of: Sequence(1), part };
        let mut bytes = Vec::new();
        encode(&Frame { session: Session::default(), message }, &mut bytes).expect("it is short");
        bytes.len()
    };
    assert_eq!(leaf(&[]) + length_of_entry(&entry), leaf(core::slice::from_ref(&entry)));
}

/// Where the first path of a frame with one begins, after the number of paths.
const FIRST: usize = HEADER + 4;

#[test]
fn invalid_frame_is_rejected_with_its_rule() {
    let mut good = Vec::new();
    let path = Path::new("abc").expect("a path");
    encode(&of(ToOrigin::Reads(vec![(path, 5)])), &mut good).expect("it is short");
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let limit = 5 << 20;
    for (what, bytes, expected) in [
        ("a length", with(3, 0xff), WireError::Long { length: 0xff00_0022, limit }),
        ("a length too short", with(0, 20), WireError::Short("session")),
        ("a kind", with(4, 0x41), WireError::Kind(0x41)),
        ("a number of paths", with(HEADER + 1, 1), WireError::Short("paths")),
        ("a limit", with(HEADER + 3, 1), {
            WireError::Count { what: "paths", count: (1 << 24) + 1, limit: MAX_PATHS }
        }),
        ("a shorter path", with(FIRST, 2), WireError::Rest(1)),
        ("a longer path", with(FIRST, 9), WireError::Short("path")),
        ("an empty path", with(FIRST, 0), WireError::Path(PathError::Empty)),
        ("an absolute path", with(FIRST + 2, b'/'), WireError::Path(PathError::Absolute)),
        ("a zero byte", with(FIRST + 2, 0), WireError::Path(PathError::Zero)),
    ] {
        let mut decoder = Frames::<ToOrigin>::default();
        decoder.extend(&bytes);
        assert_eq!(decoder.next(), Err(expected), "{what}");
    }
    let mut decoder = Frames::<ToOrigin>::default();
    decoder.extend(&good[..good.len() - 1]);
    assert_eq!(decoder.next(), Ok(None), "a frame that has not come in full");
}

/// A relay may lie, but not so that a report contradicts itself.
#[test]
fn impossible_report_of_a_relay_is_rejected() {
    let report = |committed, up_to, except: &[u64]| {
        let except = except.iter().copied().map(Sequence).collect();
        let delivered = Delivered { up_to: Sequence(up_to), except };
        let (replica, relay, committed) = (ReplicaId(1), ReplicaId(2), Sequence(committed));
        let (connected, waiting, report) = (true, 0, None);
        BelowReport { replica, relay, connected, committed, delivered, waiting, report }
    };
    let decode = |all: Vec<BelowReport>, cut: usize| {
        let mut bytes = Vec::new();
        encode(&of(ToOrigin::Below(all)), &mut bytes).expect("it is short");
        let length = bytes.len() - cut;
        let field = u32::try_from(length - 4).expect("it is short").to_le_bytes();
        bytes[..4].copy_from_slice(&field);
        let mut decoder = Frames::<ToOrigin>::default();
        decoder.extend(&bytes[..length]);
        decoder.next().map(|frame| frame.is_some())
    };
    assert_eq!(decode(vec![report(5, 5, &[2, 4])], 0), Ok(true));
    for (what, one, expected) in [
        ("more than it shows", report(5, 6, &[]), WireError::Value("up to")),
        ("an exception behind", report(5, 4, &[5]), WireError::Value("except")),
        ("one twice", report(5, 5, &[3, 3]), WireError::Value("except")),
        ("no order", report(5, 5, &[4, 3]), WireError::Value("except")),
    ] {
        assert_eq!(decode(vec![one], 0), Err(expected), "{what}");
    }
    for cut in 1..60 {
        assert!(decode(vec![report(5, 5, &[2, 4])], cut).is_err(), "{cut} bytes less");
    }
    let many = vec![report(1, 1, &[]); MAX_BELOW + 1];
    let expected = WireError::Count { what: "replicas", count: MAX_BELOW + 1, limit: MAX_BELOW };
    assert_eq!(encode(&of(ToOrigin::Below(many)), &mut Vec::new()), Err(expected));
}

#[test]
fn newest_common_version_is_negotiated() {
    let speaks = |oldest, newest| Preface { oldest, newest, channel: Channel::Control };
    for (ours, theirs, expected) in [
        ((1, 1), (1, 1), Some(1)),
        ((1, 4), (2, 3), Some(3)),
        ((2, 3), (1, 4), Some(3)),
        ((1, 2), (2, 9), Some(2)),
        ((1, 2), (3, 9), None),
        ((3, 9), (1, 2), None),
    ] {
        let (ours, theirs) = (speaks(ours.0, ours.1), speaks(theirs.0, theirs.1));
        assert_eq!(ours.agree(theirs).ok(), expected, "{ours:?} {theirs:?}");
    }
}

/// Version 7 had a flag in the place of the mode. Stores have these bytes, too.
#[test]
fn version_7_contents_are_decoded() {
    let bytes = |code: &[u8]| {
        let mut bytes = vec![7; 32];
        bytes.extend(3_u64.to_le_bytes());
        bytes.extend(5_i64.to_le_bytes());
        bytes.extend(code);
        bytes
    };
    let read = |code: &[u8]| {
        let bytes = bytes(code);
        let mut reader = Reader::new(&bytes);
        let content = reader.content()?;
        reader.end()?;
        let mut written = Vec::new();
        Writer::new(&mut written).content(&content)?;
        assert_eq!(written, bytes, "each value is written in one way");
        Ok((content.size, content.metadata.modified.as_nanos(), content.metadata.mode))
    };
    assert_eq!(read(&[0]), Ok((Bytes(3), 5, Mode::PLAIN)));
    assert_eq!(read(&[1]), Ok((Bytes(3), 5, Mode::EXECUTABLE)));
    assert_eq!(read(&[2, 0o50, 1]), Ok((Bytes(3), 5, Mode::new(0o450))));
    assert_eq!(read(&[3]), Ok((Bytes(3), 5, Mode::LINK)));
    for other in [&[5][..], &[2, 0xa4, 1], &[2, 0xed, 1], &[2, 0, 2]] {
        assert_eq!(read(other), Err(WireError::Value("mode")), "{other:?}");
    }
    assert_eq!(read(&[2, 0]), Err(WireError::Short("mode")));
}
