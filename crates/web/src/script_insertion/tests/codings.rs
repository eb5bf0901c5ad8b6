use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, MultiGzDecoder};

use super::*;

#[test]
fn each_chunk_is_forwarded_on_arrival() {
    for coding in ["identity", "gzip", "br", "zstd"] {
        let insertion = insertion(&[HTML, ("content-encoding", coding)]);
        let coding = insertion.coding;
        let mut inserter = insertion.inserter();
        let (mut encoder, mut decoder) = (Encoder::new(coding), Decoder::new(coding));
        let mut arrived = Vec::new();
        let mut sent = Vec::new();
        for piece in ["<html><head><title>a</title>", "</head><body>", "<p>one", "<p>two"] {
            sent.extend_from_slice(piece.as_bytes());
            let mut packed = Vec::new();
            match &mut encoder {
                Some(encoder) => {
                    encoder.write(piece.as_bytes(), &mut packed).unwrap();
                    encoder.flush(&mut packed).unwrap();
                }
                None => packed.extend_from_slice(piece.as_bytes()),
            }
            let mut out = Vec::new();
            assert!(!inserter.push(&mut packed.as_slice(), &mut out).unwrap());
            match &mut decoder {
                Some(decoder) => {
                    let mut out = out.as_slice();
                    while let Some(plain) = decoder.step(&mut out).unwrap() {
                        arrived.extend_from_slice(plain);
                    }
                }
                None => arrived.extend_from_slice(&out),
            }
            assert_eq!(without_tag(&arrived), sent, "{coding:?}");
        }
        assert_eq!(inserter.outcome(), Outcome::Placed);
    }
}

#[test]
fn gzip_interoperates_in_both_directions() {
    let page = format!("<head></head>{}", "<p>text</p>".repeat(5000));
    let gzip = |text: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let (first, second) = page.as_bytes().split_at(20_000);
    for packed in [
        gzip(page.as_bytes()),
        // Several members, with garbage after the last one.
        [gzip(first), gzip(second)].concat(),
        [gzip(page.as_bytes()), b"\0\0\0".to_vec()].concat(),
        [gzip(page.as_bytes()), b"\x1f\x8bx".to_vec()].concat(),
    ] {
        for pieces in [cut(&packed, &[]), packed.chunks(7).collect()] {
            let (out, outcome) = insert_in_pieces(inserter_of(Coding::Gzip), &pieces).unwrap();
            assert_eq!(outcome, Outcome::Placed);
            let mut decoder = MultiGzDecoder::new(Vec::new());
            decoder.write_all(&out).unwrap();
            assert_eq!(without_tag(&decoder.finish().unwrap()), page.as_bytes());
        }
    }
}

#[test]
fn malformed_compressed_body_passes_unchanged() {
    let page = b"<html><head></head><body>not compressed</body></html>";
    for way in WAYS {
        for pieces in [cut(page, &[]), page.chunks(3).collect()] {
            let (out, outcome) = insert_in_pieces(inserter_between(way), &pieces).unwrap();
            // The header states the other coding by then.
            let out = if way.0 == way.1 { out } else { unpack(way.1, &out) };
            assert_eq!(out, page, "{way:?}");
            assert_eq!(outcome, Outcome::Left(NoInsertionPoint::Coding));
        }
    }
    // Later it is too late.
    for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd] {
        let text: String = (0..20_000).map(|n| format!("<p>{}", n * 7919 % 10_007)).collect();
        let mut packed = pack(coding, text.as_bytes());
        let middle = packed.len() / 2;
        for byte in &mut packed[middle..] {
            *byte ^= 0x55;
        }
        let pieces: Vec<_> = packed.chunks(1000).collect();
        if let Ok((out, _)) = insert_in_pieces(inserter_of(coding), &pieces) {
            // Not every coding has a checksum: its output may be anything but the page.
            let mut decoder = Decoder::new(coding).unwrap();
            let (mut rest, mut plain) = (out.as_slice(), Vec::new());
            while let Ok(Some(step)) = decoder.step(&mut rest) {
                plain.extend_from_slice(step);
            }
            assert_ne!(without_tag(&plain), text.as_bytes(), "{coding:?}");
        }
    }
}

/// The field of browsers over TLS.
const TAKES_ZSTD: (&str, &str) = ("accept-encoding", "gzip, deflate, br, zstd");

#[test]
fn compressed_page_is_sent_as_zstd_if_accepted() {
    for (takes, came, expected) in [
        ("gzip, deflate, br, zstd", "br", "zstd"),
        ("gzip, deflate, br, zstd", "gzip", "zstd"),
        ("gzip, deflate, br, zstd", "zstd", "zstd"),
        ("br;q=1.0, ZSTD ; q=0.5", "br", "zstd"),
        ("gzip, deflate, br", "br", "gzip"),
        ("gzip;q=0, br", "br", "br"),
        ("gzip, deflate", "gzip", "gzip"),
        ("br, zstd;q=0", "br", "br"),
        ("br, gzip, zstd;q=0", "br", "gzip"),
        ("br, zstd; Q=0.000", "br", "br"),
        ("br, xzstd, *", "br", "br"),
    ] {
        let mut head = answered(&[HTML, ("content-encoding", came), ("vary", "Origin")]);
        let request = asked(&[GOES, &[("accept-encoding", takes)]].concat());
        let insertion = decide(&request, "https", &head).unwrap();
        insertion.rewrite_head(&mut head.headers);
        assert_eq!(head.headers["content-encoding"], expected, "{came} to {takes}");
        let varies: Vec<_> = head.headers.get_all("vary").iter().collect();
        let by_coding = ["Origin", "Accept-Encoding"];
        let is_other = came != expected;
        assert_eq!(varies, by_coding[..1 + usize::from(is_other)], "{came} to {takes}");
    }
    // Without a given coding nothing is compressed: text of an attacker beside a secret in a page would
    // reveal it by the length.
    let mut head = answered(&[HTML, ("vary", "Origin")]);
    let request = asked(&[GOES, &[TAKES_ZSTD]].concat());
    decide(&request, "https", &head).unwrap().rewrite_head(&mut head.headers);
    assert!(!head.headers.contains_key("content-encoding"));
    // One entry is enough.
    for varies in ["*", "accept-encoding, Cookie"] {
        let mut head = answered(&[HTML, ("content-encoding", "br"), ("vary", varies)]);
        decide(&request, "https", &head).unwrap().rewrite_head(&mut head.headers);
        let found: Vec<_> = head.headers.get_all("vary").iter().collect();
        assert_eq!(found, [varies]);
    }
}

/// The input coding of a page, and its output coding.
const WAYS: [(Coding, Coding); 6] = [
    (Coding::Gzip, Coding::Gzip),
    (Coding::Brotli, Coding::Brotli),
    (Coding::Zstd, Coding::Zstd),
    (Coding::Gzip, Coding::Zstd),
    (Coding::Brotli, Coding::Zstd),
    (Coding::Brotli, Coding::Gzip),
];

fn inserter_between((came, goes): (Coding, Coding)) -> ScriptInserter {
    let head = answered(&[HTML, ("content-encoding", came.name())]);
    let takes = [("accept-encoding", goes.name())];
    decide(&asked(&[GOES, &takes].concat()), "https", &head).unwrap().inserter()
}

#[test]
fn page_is_the_same_in_every_output_coding() {
    let page = format!("<head></head>{}", "<p>text</p>".repeat(5000));
    for way in WAYS {
        let packed = pack(way.0, page.as_bytes());
        for pieces in [cut(&packed, &[]), packed.chunks(7).collect()] {
            let (out, outcome) = insert_in_pieces(inserter_between(way), &pieces).unwrap();
            assert_eq!(outcome, Outcome::Placed);
            assert_eq!(without_tag(&unpack(way.1, &out)), page.as_bytes(), "{way:?}");
        }
    }
}

#[test]
fn truncated_body_stays_truncated() {
    let page = "<head></head>".to_owned() + &"text ".repeat(1000);
    for way in WAYS {
        let packed = pack(way.0, page.as_bytes());
        let cut_off = &packed[..packed.len() - 4];
        let (out, _) = insert_in_pieces(inserter_between(way), &[cut_off]).unwrap();
        let mut decoder = Decoder::new(way.1).unwrap();
        let (mut rest, mut plain) = (out.as_slice(), Vec::new());
        while let Some(step) = decoder.step(&mut rest).unwrap() {
            plain.extend_from_slice(step);
        }
        assert!(!decoder.is_complete(), "{way:?}");
        assert!(page.as_bytes().starts_with(&without_tag(&plain)));
    }
}

#[test]
fn empty_body_stays_empty() {
    for coding in CODINGS {
        let (out, _) = insert_in_pieces(inserter_of(coding), &[b""]).unwrap();
        assert!(out.is_empty(), "{coding:?}");
        let (out, _) = insert_in_pieces(inserter_of(coding), &[&pack(coding, b"")]).unwrap();
        assert_eq!(unpack(coding, &out), b"", "{coding:?}");
    }
}

#[test]
fn small_chunk_that_unpacks_to_a_long_page_is_split() {
    const LENGTH: usize = 64 << 20;
    for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd] {
        let mut packed = Vec::new();
        let mut encoder = Encoder::new(coding).unwrap();
        encoder.write(b"<head></head>", &mut packed).unwrap();
        for _ in 0..LENGTH >> 20 {
            encoder.write(&vec![b' '; 1 << 20], &mut packed).unwrap();
        }
        encoder.finish(&mut packed).unwrap();

        let mut inserter = inserter_of(coding);
        let (mut input, mut steps, mut longest) = (packed.as_slice(), 0, 0);
        let mut decoder = Decoder::new(coding).unwrap();
        let mut plain = 0;
        loop {
            let mut out = Vec::new();
            let more = inserter.push(&mut input, &mut out).unwrap();
            if !more {
                inserter.finish(&mut out).unwrap();
            }
            longest = longest.max(out.len());
            steps += 1;
            let mut out = out.as_slice();
            while let Some(step) = decoder.step(&mut out).unwrap() {
                plain += step.len();
            }
            if !more {
                break;
            }
        }
        assert_eq!(plain, LENGTH + b"<head></head>".len() + tag().len(), "{coding:?}");
        assert!(steps >= LENGTH / (2 << 20), "{steps} steps");
        assert!(longest < 256 * 1024, "{longest} bytes at once");
    }
}

/// A page as servers compress it: each part in a separate member or frame, if the coding has these, or
/// flushed separately.
fn pack_parts(coding: Coding, parts: &[&[u8]], level: u32, in_members: bool) -> Vec<u8> {
    let gzip = |text: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    match (coding, in_members) {
        (Coding::Gzip, true) => parts.iter().flat_map(|part| gzip(part)).collect(),
        (Coding::Gzip, false) => gzip(&parts.concat()),
        (Coding::Zstd, true) => parts.iter().flat_map(|part| pack(coding, part)).collect(),
        _ => {
            let mut packed = Vec::new();
            let mut encoder = Encoder::new(coding).unwrap();
            for part in parts {
                encoder.write(part, &mut packed).unwrap();
                encoder.flush(&mut packed).unwrap();
            }
            encoder.finish(&mut packed).unwrap();
            packed
        }
    }
}

proptest! {
    #[test]
    fn page_is_unchanged_except_the_tag_in_every_coding(
        page in soup(), parts in prop::collection::vec(0..1000_usize, 0..6),
        cuts in prop::collection::vec(0..1000_usize, 0..8),
        coding in 1..4_usize, level in 0..10_u32, in_members in any::<bool>(),
    ) {
        let coding = CODINGS[coding];
        let packed = pack_parts(coding, &cut(&page, &parts), level, in_members);
        let (out, outcome) = insert_in_pieces(inserter_of(coding), &cut(&packed, &cuts)).unwrap();
        // As another decoder reads it, where there is one.
        let out = if coding == Coding::Gzip {
            let mut decoder = MultiGzDecoder::new(Vec::new());
            decoder.write_all(&out).unwrap();
            decoder.finish().unwrap()
        } else {
            unpack(coding, &out)
        };
        prop_assert_eq!(&without_tag(&out), &page);
        let length = if outcome == Outcome::Placed { tag().len() } else { 0 };
        prop_assert_eq!(out.len(), page.len() + length);
    }
}
