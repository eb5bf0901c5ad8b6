//! Bodies are assembled from their parts, and from nothing else.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn body_in_pieces_is_intact_unless_changed(
        size in prop_oneof![0..300_usize, (0..6 * PIECE), (0..6_usize).prop_map(|n| n * PIECE)],
        seed in any::<u8>(),
        damage in any::<prop::sample::Index>(),
    ) {
        let body: Vec<u8> = (0..size).map(|at| (at / 251) as u8 ^ at as u8 ^ seed).collect();
        let (parts, digest) = sent(&body);
        prop_assert_eq!(digest, Digest(*blake3::hash(&body).as_bytes()));
        let (received, intact) = received(&parts).expect("in order");
        prop_assert!(intact);
        prop_assert_eq!(&received, &body);

        let mut damaged = parts;
        let at = damage.index(damaged.len());
        let changed = match &mut damaged[at] {
            BodyPart::Hashes { hashes, .. } => {
                hashes[0].0[31] ^= 1;
                true
            }
            BodyPart::Piece { bytes, .. } => {
                let at = damage.index(bytes.len());
                bytes[at] ^= 0x10;
                true
            }
            _ => false,
        };
        let (received, intact) = self::received(&damaged).expect("in order");
        prop_assert_eq!(intact, !changed);
        // Bytes returned before the damage was found belong to the body.
        prop_assert!(body.starts_with(&received));
    }

}

proptest! {
    // Of some megabytes each.
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn interleaved_bodies_of_several_lanes_are_intact(
        turns in vec(0..3_usize, 0..40),
        broken in any::<bool>(),
    ) {
        let bodies = [vec![1; 300], vec![2; 3 * PIECE + 1], vec![3; 65 * PIECE]];
        let mut left = bodies.clone().map(|body| sent(&body).0.into_iter());
        let lanes = left.clone().map(|mut parts| parts.next().expect("a header").lane());
        prop_assert_eq!(lanes.map(Lane::number), [0, 1, 2]);
        let (mut assembly, mut got) = (Assembly::default(), [Vec::new(), Vec::new(), Vec::new()]);
        let rest = (0..3).flat_map(|at| [at; 70]);
        let mut whole = [false; 3];
        for (number, at) in turns.into_iter().chain(rest).enumerate() {
            let part = match left[at].next() {
                // The longest one is cut off at the end.
                Some(_) if broken && number > 40 && at == 2 && assembly.header(lanes[2]).is_some() => {
                    left[2] = Vec::new().into_iter();
                    BodyPart::Broken { lane: lanes[2] }
                }
                Some(part) => part,
                None => continue,
            };
            let (lane, delivery) = assembly.handle(part).expect("in order");
            prop_assert_eq!(lane, lanes[at]);
            match delivery {
                Delivery::More | Delivery::Chunks(..) => {}
                Delivery::Bytes(bytes) => got[at].extend(bytes),
                Delivery::Complete { last, intact, .. } => {
                    got[at].extend(last);
                    whole[at] = intact;
                    prop_assert!(assembly.header(lane).is_none());
                }
            }
        }
        prop_assert_eq!(whole, [true, true, !broken]);
        prop_assert!(got == bodies || broken && got[..2] == bodies[..2]);
    }
}

/// A body as its parts, and its hash.
fn sent(body: &[u8]) -> (Vec<BodyPart>, Digest) {
    let digest = Digest::of(body);
    let content = Content { digest, size: Bytes(body.len() as u64), metadata: Metadata::default() };
    let version = Some(Version { sequence: Sequence(7), content });
    let path = Path::new("a").expect("a path");
    let header = BodyHeader { path, version, at: Sequence(9), demand: false, lost: false };
    let header = BodyPart::Header(header);
    let lane = header.lane();
    let mut parts = vec![header];
    parts.extend(Outline::of(body.chunks(PIECE)).parts(lane));
    let pieces = (0..).zip(body.chunks(PIECE));
    parts.extend(pieces.map(|(number, bytes)| BodyPart::Piece {
        lane,
        number,
        bytes: bytes.to_vec(),
    }));
    (parts, digest)
}

/// The bytes returned from the parts of a body, and whether it is intact.
fn received(parts: &[BodyPart]) -> Result<(Vec<u8>, bool), Unexpected> {
    let (mut assembly, mut got) = (Assembly::default(), Vec::new());
    for (at, part) in parts.iter().enumerate() {
        match assembly.handle(part.clone())?.1 {
            Delivery::More | Delivery::Chunks(..) => {}
            Delivery::Bytes(bytes) => got.extend(bytes),
            Delivery::Complete { last, intact, .. } => {
                assert_eq!(at + 1, parts.len(), "complete before the last part");
                got.extend(last);
                return Ok((got, intact));
            }
        }
    }
    panic!("never complete");
}

#[test]
fn cancelled_body_is_not_intact() {
    let (parts, _) = sent(&vec![7; 3 * PIECE]);
    for cut in 1..parts.len() {
        let broken = BodyPart::Broken { lane: parts[0].lane() };
        let broken: Vec<_> = parts[..cut].iter().cloned().chain([broken]).collect();
        assert!(!received(&broken).expect("in order").1, "behind part {cut}");
    }
}

#[test]
fn bodies_of_one_lane_arrive_in_sequence() {
    let (short, _) = sent(&[7; 100]);
    let (long, _) = sent(&vec![7; 3 * PIECE]);
    let mut assembly = Assembly::default();
    for part in [&long[0], &long[1], &short[0], &long[2]] {
        assembly.handle(part.clone()).expect("in order");
    }
    for out_of_order in [&short[0], &long[0]] {
        assert_eq!(assembly.clone().handle(out_of_order.clone()), Err(Unexpected));
    }
    // A part of the right kind, of a body that is not in transfer.
    let BodyPart::Piece { number, bytes, .. } = long[3].clone() else { panic!("{:?}", long[3]) };
    let piece = |lane| BodyPart::Piece { lane, number, bytes: bytes.clone() };
    for lane in Lane::ALL {
        let taken = assembly.clone().handle(piece(lane)).is_ok();
        assert_eq!(taken, lane == long[0].lane(), "{lane:?}");
    }
    let mut bytes = Vec::new();
    let frame = Frame { session: Session::default(), message: piece(Lane::default()) };
    encode(&frame, &mut bytes).expect("it is a piece");
    bytes[HEADER] = Lane::COUNT as u8;
    let mut decoder = Frames::<BodyPart>::default();
    decoder.extend(&bytes);
    assert_eq!(decoder.next(), Err(WireError::Value("lane")));
}

#[test]
fn transfer_may_begin_behind_the_pieces_of_an_earlier_one() {
    let body: Vec<u8> = (0..4 * PIECE + 9).map(|at| (at / 251) as u8 ^ at as u8).collect();
    let (parts, _) = sent(&body);
    for first in 0..5 {
        let some: Vec<_> = parts[..2].iter().chain(&parts[2 + first..]).cloned().collect();
        let (got, intact) = received(&some).expect("in order");
        assert!(intact && got == body[first * PIECE..], "from piece {first} on");
        // Each is verified.
        let mut damaged = some;
        let BodyPart::Piece { bytes, .. } = &mut damaged[2] else { panic!("a piece") };
        bytes[5] ^= 1;
        assert!(!received(&damaged).expect("in order").1);
    }
    let lane = parts[0].lane();
    for number in [5, u32::MAX] {
        let mut assembly = Assembly::default();
        parts[..2].iter().for_each(|part| drop(assembly.handle(part.clone()).expect("in order")));
        let beyond = BodyPart::Piece { lane, number, bytes: vec![0; 9] };
        assert_eq!(assembly.handle(beyond), Err(Unexpected), "{number}");
    }
}

#[test]
fn header_of_a_lost_body_has_no_parts() {
    let (parts, _) = sent(&vec![7; 3 * PIECE]);
    let BodyPart::Header(header) = &parts[0] else { panic!("{:?}", parts[0]) };
    let header = BodyHeader { lost: true, ..header.clone() };
    let mut assembly = Assembly::default();
    let complete = assembly.handle(BodyPart::Header(header.clone()));
    let expected = Delivery::Complete { header: header.clone(), last: Vec::new(), intact: false };
    let lane = Lane::default();
    assert_eq!((complete, assembly.header(lane)), (Ok((lane, expected)), None));
    assert_eq!(assembly.handle(parts[1].clone()), Err(Unexpected));
    // Without a version, no body can be lost.
    let none = BodyPart::Header(BodyHeader { version: None, ..header });
    let frame = Frame { session: Session::default(), message: none };
    assert_eq!(encode(&frame, &mut Vec::new()), Err(WireError::Value("lost")));
}

#[test]
fn parts_out_of_order_are_rejected() {
    let (parts, _) = sent(&vec![7; 3 * PIECE]);
    for order in [&[1][..], &[2], &[0, 0], &[0, 2], &[0, 1, 1], &[0, 1, 2, 4], &[0, 1, 3, 2]] {
        let mut assembly = Assembly::default();
        let last = order.iter().map(|at| assembly.handle(parts[*at].clone())).last();
        assert_eq!(last, Some(Err(Unexpected)), "{order:?}");
    }
    let mut assembly = Assembly::default();
    for lane in Lane::ALL {
        assert_eq!(assembly.handle(BodyPart::Broken { lane }), Err(Unexpected));
    }
}

#[test]
fn pieces_that_were_not_asked_for_may_be_left_out() {
    let body: Vec<u8> = (0..4 * PIECE + 9).map(|at| (at / 251) as u8 ^ at as u8).collect();
    let (parts, _) = sent(&body);
    let lane = parts[0].lane();
    let begun = |expects: bool| {
        let mut assembly = Assembly::default();
        parts[..2].iter().for_each(|part| drop(assembly.handle(part.clone()).expect("in order")));
        if expects {
            assembly.expect_gaps(lane);
        }
        assembly
    };
    let mut assembly = begun(true);
    for (at, bytes) in [(3, PIECE), (5, PIECE), (6, 9)] {
        let (_, delivery) = assembly.handle(parts[at].clone()).expect("in order");
        match delivery {
            Delivery::Bytes(got) => assert_eq!((at < 6, got.len()), (true, bytes)),
            Delivery::Complete { last, intact, .. } => {
                assert_eq!((at, last.len(), intact), (6, bytes, true));
            }
            other => panic!("{other:?}"),
        }
    }
    let mut assembly = begun(true);
    assembly.handle(parts[4].clone()).expect("in order");
    assert_eq!(assembly.handle(parts[3].clone()), Err(Unexpected), "backwards");
    let mut assembly = begun(false);
    assembly.handle(parts[2].clone()).expect("in order");
    assert_eq!(assembly.handle(parts[4].clone()), Err(Unexpected), "not asked for");
}

#[test]
fn pieces_of_an_exchange_come_in_any_order() {
    let body: Vec<u8> = (0..4 * PIECE + 9).map(|at| (at / 251) as u8 ^ at as u8).collect();
    let (parts, _) = sent(&body);
    let lane = parts[0].lane();
    let mut assembly = Assembly::default();
    parts[..2].iter().for_each(|part| drop(assembly.handle(part.clone()).expect("in order")));
    assembly.expect_any_order(lane);
    for at in [4, 2, 5] {
        let (_, delivery) = assembly.handle(parts[at].clone()).expect("in any order");
        assert_eq!(delivery, Delivery::Bytes(body[(at - 2) * PIECE..][..PIECE].to_vec()));
    }
    let beyond = BodyPart::Piece { lane, number: 5, bytes: vec![1; PIECE] };
    assert_eq!(assembly.clone().handle(beyond), Err(Unexpected));
    let (_, delivery) = assembly.handle(parts[6].clone()).expect("the end");
    assert!(matches!(delivery, Delivery::Complete { last, intact: true, .. } if last.len() == 9));
    assert_eq!(assembly.header(lane), None);
}

#[test]
fn chunks_come_only_if_asked_for_and_fit_the_body() {
    let size = 2 * PIECE as u32;
    let (parts, _) = sent(&vec![7; size as usize]);
    let lane = parts[0].lane();
    let chunks = |lengths: &[u32]| {
        let chunk = |length: &u32| Chunk { digest: Digest::default(), length: *length };
        BodyPart::Chunks { lane, chunks: lengths.iter().map(chunk).collect() }
    };
    let deliver = |expects: bool, lists: &[&[u32]]| {
        let mut assembly = Assembly::default();
        parts[..2].iter().for_each(|part| drop(assembly.handle(part.clone()).expect("in order")));
        if expects {
            assembly.expect_chunks(lane);
        }
        let ends = lists.iter().map(|lengths| match assembly.handle(chunks(lengths))?.1 {
            Delivery::Chunks(_, is_end) => Ok(is_end),
            other => panic!("{other:?}"),
        });
        ends.collect::<Result<Vec<bool>, Unexpected>>()
    };
    let short = MIN_CHUNK_BYTES;
    assert_eq!(deliver(true, &[&[size]]), Ok(vec![true]));
    assert_eq!(deliver(true, &[&[]]), Ok(vec![true]));
    assert_eq!(deliver(true, &[&[short], &[size - short - 1, 1]]), Ok(vec![false, true]));
    for wrong in [
        &[&[size + 1][..]][..],
        &[&[short - 1]],
        &[&[0]],
        &[&[u32::MAX]],
        &[&[short], &[]],
        &[&[size], &[size]],
    ] {
        assert_eq!(deliver(true, wrong), Err(Unexpected), "{wrong:?}");
    }
    assert_eq!(deliver(false, &[&[size]]), Err(Unexpected));
}
