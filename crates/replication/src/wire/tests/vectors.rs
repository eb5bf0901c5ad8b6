//! Each kind of message as fixed bytes: a change of these bytes breaks peers of the same version.

use core::fmt::Write as _;

use super::*;

/// A frame as hexadecimal digits, after it was decoded again.
fn hex<M>(message: M) -> String
where
    M: Message + Clone + PartialEq + core::fmt::Debug,
{
    let session = Session { origin: Incarnation(1), replica: Incarnation(2), connection: 3 };
    let frame = Frame { session, message };
    let mut bytes = Vec::new();
    encode(&frame, &mut bytes).expect("it is short");
    let mut decoder = Frames::default();
    decoder.extend(&bytes);
    assert_eq!(decoder.next(), Ok(Some(frame)));
    digits(&bytes)
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Digits with spaces between groups, in which `05*32` is the byte 5 for 32 times.
fn written_out(message: &str) -> String {
    let group = |group: &str| match group.split_once('*') {
        Some((byte, times)) => byte.repeat(times.parse().expect("a number")),
        None => group.to_owned(),
    };
    message.split(' ').map(group).collect()
}

/// Compares all messages, so that one failure shows all changes. Every kind that decodes must be here.
fn check<M: Message>(messages: &[(String, &str)]) {
    let (header, mut kinds) = ("0100000000000000020000000000000003000000", Vec::new());
    let mut changed = String::new();
    for (found, message) in messages {
        // The length is known from the rest.
        let (kind, rest) = found[8..].split_at(2);
        assert_eq!(found[..8], digits(&(found.len() as u32 / 2 - 4).to_le_bytes()));
        let rest = rest.strip_prefix(header).expect("the session");
        kinds.push(u8::from_str_radix(kind, 16).expect("two digits"));
        if format!("{kind}{rest}") != written_out(message) {
            let _ = writeln!(changed, "\"{kind} {rest}\" instead of \"{message}\"");
        }
    }
    assert!(changed.is_empty(), "messages with other bytes:\n{changed}");
    for kind in 0..=u8::MAX {
        let is_known = !matches!(M::read(kind, &mut Reader::new(&[])), Err(WireError::Kind(_)));
        assert_eq!(is_known, kinds.contains(&kind), "kind {kind:#04x}");
    }
}

fn name(text: &str) -> Path {
    Path::new(text).expect("a path")
}

fn place() -> Position {
    Position { sequence: Sequence(4), chain: Digest([5; 32]) }
}

fn a_version() -> Version {
    let modified = WallTime::from_nanos(7);
    let metadata = Metadata { kind: Kind::File, modified, mode: Mode::new(0o640) };
    let content = Content { digest: Digest([6; 32]), size: Bytes(8), metadata };
    Version { sequence: Sequence(9), content }
}

fn a_report() -> Report {
    let stock = Stock {
        objects: 1,
        valid_objects: 2,
        bytes: Bytes(3),
        valid_bytes: Bytes(4),
        unsubscribed_objects: 5,
        unsubscribed_bytes: Bytes(6),
    };
    let (reflects, lasts) = (Some(WallTime::from_nanos(7)), Some(Duration::from_nanos(8)));
    Report { reflects, lasts, skew: Some((-1, 9)), stock }
}

#[test]
fn messages_to_the_origin_have_fixed_bytes() {
    let pattern = Pattern::new(b"a/*").expect("a pattern");
    let only = Subscription::new(vec![pattern]).expect("one");
    let hello = |position, only| ToOrigin::Hello {
        protocol: 13,
        replica: ReplicaId(1),
        position,
        committed: Sequence(3),
        only,
    };
    let ask = |part| ToOrigin::Ask { of: Sequence(4), part };
    let delivered = Delivered { up_to: Sequence(4), except: vec![Sequence(3)] };
    let below = BelowReport {
        replica: ReplicaId(1),
        relay: ReplicaId(2),
        connected: true,
        committed: Sequence(5),
        delivered,
        waiting: 6,
        report: Some((Duration::from_nanos(7), a_report())),
    };
    let (digest, certificate) = (Digest([1; 32]), Digest([2; 32]));
    let vouch = Vouch { question: 1, replica: ReplicaId(2), certificate, position: Some(place()) };
    let wanted = |more| {
        ToOrigin::Wanted(Wanted { digest, demand: true, number: 2, ranges: vec![(3, 4)], more })
    };
    check::<ToOrigin>(&[
        (hex(hello(None, Subscription::default())), "01 0d000100000003000000000000000000000000"),
        (
            hex(hello(Some(place()), only)),
            "01 0d00010000000300000000000000010400000000000000 05*32 010000000300612f2a",
        ),
        (hex(ToOrigin::Ping { sent: LocalTime::from_nanos(-2) }), "02 feffffffffffffff"),
        (hex(ToOrigin::Ack(Sequence(1))), "03 0100000000000000"),
        (hex(ToOrigin::Taken(2)), "04 0200000000000000"),
        (hex(ToOrigin::Fetched(3)), "0d 0300000000000000"),
        (hex(ToOrigin::Reads(vec![(name("a/b"), 4)])), "05 010000000300612f6204000000"),
        (hex(ToOrigin::Demand(name("a"))), "06 010061"),
        (hex(ToOrigin::Withdraw(name("a"))), "0e 010061"),
        (hex(ToOrigin::Lacking(vec![name("a")])), "07 01000000010061"),
        (hex(ask(Ask::Branches)), "08 0400000000000000"),
        (hex(ask(Ask::Leaves(vec![5]))), "09 04000000000000000100000005"),
        (hex(ask(Ask::Entries(vec![6]))), "0a 0400000000000000010000000600"),
        (hex(ToOrigin::Resynced(Sequence(7))), "0b 0700000000000000"),
        (
            hex(ToOrigin::Report(a_report())),
            "0c 01070000000000000001080000000000000001ffffffffffffffff0900000000000000010000000000000002000000000000000300000000000000040000000000000005000000000000000600000000000000",
        ),
        (hex(ToOrigin::Relays(vec![ReplicaId(8)])), "0f 0100000008000000"),
        (hex(ToOrigin::Vouch(vouch)), "10 010000000000000002000000 02*32 010400000000000000 05*32"),
        (
            hex(ToOrigin::Below(vec![below])),
            "11 0100000001000000020000000105000000000000000400000000000000010000000300000000000000060000000000000001070000000000000001070000000000000001080000000000000001ffffffffffffffff0900000000000000010000000000000002000000000000000300000000000000040000000000000005000000000000000600000000000000",
        ),
        (hex(ToOrigin::Price(Bytes(9))), "1a 0900000000000000"),
        (hex(ToOrigin::Partial(vec![(digest, 10)])), "1b 01000000 01*32 0a000000"),
        (hex(wanted(false)), "1c 01*33 0200000000000000010000000300000004000000"),
        (hex(wanted(true)), "1d 01*33 0200000000000000010000000300000004000000"),
        (
            hex(ToOrigin::Share("192.0.2.1:7000".parse().expect("an address"))),
            "1e 00*10 ff*2 c0000201581b",
        ),
    ]);
}

#[test]
fn messages_to_replicas_have_fixed_bytes() {
    let (stamp, sequence) = (WallTime::from_nanos(1), Sequence(2));
    let welcome = |start| ToReplica::Welcome { start, eager: true };
    let change = |content| Change { path: name("a"), content };
    let tree = |part| ToReplica::Tree { of: Sequence(4), part };
    let root = Digest([3; 32]);
    let mut link = a_version().content;
    link.metadata = Metadata { kind: Kind::Link, mode: Mode::LINK, ..link.metadata };
    let changes = vec![
        change(None),
        change(Some(a_version().content)),
        change(Some(link)),
        change(Some(Content::folder(stamp, Mode::PLAIN))),
    ];
    let refused = |why| hex(ToReplica::Refused(why));
    check::<ToReplica>(&[
        (hex(welcome(Start::Log)), "41 01"),
        (
            hex(welcome(Start::Resync { position: place(), stamp, root })),
            "42 010400000000000000 05*32 0100000000000000 03*32",
        ),
        (refused(Refusal::Protocol(13)), "43 000d00000000000000"),
        (refused(Refusal::Ahead(sequence)), "43 010200000000000000"),
        (refused(Refusal::Diverged), "43 020000000000000000"),
        (refused(Refusal::Forgotten(sequence)), "43 030200000000000000"),
        (refused(Refusal::Revoked), "43 040000000000000000"),
        (refused(Refusal::Replaced), "43 050000000000000000"),
        (refused(Refusal::Unknown), "43 060000000000000000"),
        (refused(Refusal::Loop), "43 070000000000000000"),
        (
            hex(ToReplica::Invalidation { sequence, stamp, changes, more: true }),
            "44 0200000000000000010000000000000001040000000100610001006101 06*32 0800000000000000070000000000000002a00101006101 06*32 080000000000000007000000000000000301006101af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f32620000000000000000010000000000000004a401",
        ),
        (
            hex(ToReplica::Heartbeat { stamp, committed: sequence, echo: None }),
            "45 0100000000000000020000000000000000",
        ),
        (
            hex(ToReplica::Heartbeat {
                stamp,
                committed: sequence,
                echo: Some(LocalTime::from_nanos(3)),
            }),
            "45 01000000000000000200000000000000010300000000000000",
        ),
        (hex(tree(Tree::Branches(vec![(1, root)]))), "46 04000000000000000100000001 03*32"),
        (hex(tree(Tree::Leaves(1, vec![(2, root)]))), "47 040000000000000001010000000200 03*32"),
        (
            hex(tree(Tree::Entries {
                leaf: 3,
                entries: vec![(name("a"), a_version())],
                more: false,
            })),
            "48 0400000000000000030000010000000100610900000000000000 06*32 0800000000000000070000000000000002a001",
        ),
        (hex(ToReplica::Renew), "49"),
        (hex(ToReplica::Withdrawn(name("a"))), "4a 010061"),
        (hex(ToReplica::Vouched { question: 1, refusal: None }), "4b 010000000000000000"),
        (
            hex(ToReplica::Vouched { question: 1, refusal: Some(Refusal::Revoked) }),
            "4b 010000000000000001040000000000000000",
        ),
        (
            hex(ToReplica::Urgent(vec![Urgent {
                at: sequence,
                within: b"a".to_vec(),
                replicas: vec![ReplicaId(7)],
            }])),
            "4c 0100000002000000000000000100610100000007000000",
        ),
        (
            hex(ToReplica::Neighbours(vec![Neighbour {
                replica: ReplicaId(7),
                certificate: root,
                address: "[2001:db8::1]:7000".parse().expect("an address"),
            }])),
            "4d 0100000007000000 03*32 20010db8 00*11 01581b",
        ),
    ]);
}

#[test]
fn body_parts_have_fixed_bytes() {
    let lane = Lane::ALL[1];
    let header = |version, lost| {
        BodyPart::Header(BodyHeader {
            path: name("a"),
            version,
            at: Sequence(1),
            demand: true,
            lost,
        })
    };
    let chunk = Chunk { digest: Digest([2; 32]), length: 8_192 };
    check::<Attach>(&[(hex(Attach), "21")]);
    check::<BodyPart>(&[
        (hex(header(None, false)), "61 0100610100000000000000010000"),
        (
            hex(header(Some(a_version()), true)),
            "61 01006101000000000000000101010900000000000000 06*32 0800000000000000070000000000000002a001",
        ),
        (hex(BodyPart::Hashes { lane, hashes: vec![Digest([1; 32])] }), "62 0101000000 01*32"),
        (hex(BodyPart::Chunks { lane, chunks: vec![chunk] }), "65 0101000000 02*32 00200000"),
        (
            hex(BodyPart::Piece { lane, number: 2, bytes: b"piece".to_vec() }),
            "63 01020000007069656365",
        ),
        (hex(BodyPart::Broken { lane }), "64 01"),
    ]);
}

#[test]
fn certificate_messages_have_fixed_bytes() {
    let (replica, secret, request) = (ReplicaId(1), [2; 32], b"request".to_vec());
    let enrolled = |other_token_key| Enrolled {
        replica,
        certificate: b"certificate".to_vec(),
        authorities: vec![b"authority".to_vec()],
        token_key: [3; 32],
        other_token_key,
    };
    let refused = |why| hex(FromAuthority::Refused(why));
    check::<ToAuthority>(&[
        (
            hex(ToAuthority::Enrol(Enrol { replica, secret, request: request.clone() })),
            "31 01000000 02*32 070072657175657374",
        ),
        (hex(ToAuthority::Renew(request)), "32 070072657175657374"),
    ]);
    check::<FromAuthority>(&[
        (
            hex(FromAuthority::Enrolled(enrolled(None))),
            "51 01000000 03*32 000b006365727469666963617465010000000900617574686f72697479",
        ),
        (
            hex(FromAuthority::Enrolled(enrolled(Some([4; 32])))),
            "51 01000000 03*32 01 04*32 0b006365727469666963617465010000000900617574686f72697479",
        ),
        (refused(NotEnrolled::Ticket), "52 00"),
        (refused(NotEnrolled::Expired), "52 01"),
        (refused(NotEnrolled::Revoked), "52 02"),
        (refused(NotEnrolled::Request), "52 03"),
        (refused(NotEnrolled::Failed), "52 04"),
    ]);
}

#[test]
fn messages_of_receivers_have_fixed_bytes() {
    let (path, digest) = (name("a"), Digest([1; 32]));
    let objects = vec![(path.clone(), a_version())];
    check::<ToSource>(&[
        (hex(ToSource::Find(None)), "26"),
        (hex(ToSource::Find(Some(path.clone()))), "25 010061"),
        (hex(ToSource::Get { path: path.clone(), digest, pieces: 2 }), "27 010061 01*32 02000000"),
    ]);
    let lane = Lane::ALL[0];
    let version = Some(a_version());
    let header =
        BodyHeader { path: path.clone(), version, at: Sequence(1), demand: false, lost: false };
    check::<FromSource>(&[
        (
            hex(FromSource::Found { objects, more: true }),
            "68 01010000000100610900000000000000 06*32 0800000000000000070000000000000002a001",
        ),
        (hex(FromSource::Unknown(vec![path])), "69 01000000010061"),
        (
            hex(FromSource::Part(BodyPart::Header(header))),
            "61 01006101000000000000000000010900000000000000 06*32 0800000000000000070000000000000002a001",
        ),
        (
            hex(FromSource::Part(BodyPart::Hashes { lane, hashes: vec![digest] })),
            "62 0001000000 01*32",
        ),
        (hex(FromSource::Part(BodyPart::Chunks { lane, chunks: Vec::new() })), "65 0000000000"),
        (
            hex(FromSource::Part(BodyPart::Piece { lane, number: 0, bytes: vec![7] })),
            "63 000000000007",
        ),
        (hex(FromSource::Part(BodyPart::Broken { lane })), "64 00"),
    ]);
}

#[test]
fn messages_of_neighbours_have_fixed_bytes() {
    let (digest, size) = (Digest([1; 32]), Bytes(9));
    check::<ToNeighbour>(&[(
        hex(ToNeighbour::Ask { digest, size, number: 2 }),
        "28 01*32 090000000000000002000000",
    )]);
    check::<FromNeighbour>(&[
        (
            hex(FromNeighbour::Piece { number: 2, bytes: b"piece".to_vec() }),
            "6a 020000007069656365",
        ),
        (hex(FromNeighbour::Absent), "6b"),
    ]);
}

#[test]
fn preface_has_fixed_bytes() {
    for (channel, number) in [
        (Channel::Control, "00"),
        (Channel::Demand, "01"),
        (Channel::Speculative, "02"),
        (Channel::Enrolment, "03"),
        (Channel::Fetch, "04"),
        (Channel::Exchange, "05"),
    ] {
        let preface = Preface { oldest: 12, newest: 13, channel };
        assert_eq!(digits(&preface.encode()), format!("4c554c4c0c000d00{number}000000"));
    }
}
