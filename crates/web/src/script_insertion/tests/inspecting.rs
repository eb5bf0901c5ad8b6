use super::*;

/// The result for a page in chunks of this many bytes.
fn read(coding: Coding, body: &[u8], length: usize) -> Option<Result<(), NoInsertionPoint>> {
    let response = answered(&[HTML, ("content-encoding", coding.name())]);
    let mut inspector = inspect(&response.headers).unwrap().expect("a page");
    body.chunks(length).find_map(|piece| inspector.push(piece))
}

#[test]
fn opt_out_is_read_in_every_coding_and_chunking() {
    for (page, expected) in [
        ("<head><meta name=lull content=off></head>", Some(Err(NoInsertionPoint::OptOut))),
        (
            "<head><base href=//cdn.example/><meta name=lull content=off>",
            Some(Err(NoInsertionPoint::OptOut)),
        ),
        ("text <meta name=lull content=off>", Some(Err(NoInsertionPoint::OptOut))),
        (
            "<head><meta http-equiv=refresh content='0; url=/b'></head>",
            Some(Err(NoInsertionPoint::Refresh)),
        ),
        ("<head><base href=//cdn.example/></head><meta name=lull content=off>", Some(Ok(()))),
        ("<head><title>a</title>", None),
        ("", None),
    ] {
        for coding in CODINGS {
            let packed = pack(coding, page.as_bytes());
            for length in [1, 7, 4096] {
                assert_eq!(read(coding, &packed, length), expected, "{page} {coding:?} {length}");
            }
        }
    }
}

#[test]
fn unreadable_page_is_reported() {
    for fields in [
        &[HTML, ("content-encoding", "deflate")][..],
        &[HTML, ("content-encoding", "gzip, br")],
        &[("content-type", "text/html; charset=utf-16")],
        &[("content-type", "text/html; charset=klingon")],
        &[("content-type", "application/xhtml+xml")],
        &[HTML, HTML],
    ] {
        assert!(inspect(&answered(fields).headers).is_err(), "{fields:?}");
    }
    assert_eq!(read(Coding::Gzip, b"<head></head>", 4), Some(Err(NoInsertionPoint::Coding)));
    let marked = b"\xff\xfe<\0h\0e\0a\0d\0>\0";
    assert_eq!(read(Coding::Identity, marked, 4), Some(Err(NoInsertionPoint::Encoding)));
    // A longer head is not searched.
    let long = format!("<head>{}<meta name=lull content=off>", " ".repeat(2 << 20));
    for coding in CODINGS {
        let found = read(coding, &pack(coding, long.as_bytes()), 4096);
        assert_eq!(found, Some(Err(NoInsertionPoint::Parser)), "{coding:?}");
    }
}

#[test]
fn other_content_types_are_not_inspected() {
    for kind in ["text/css", "image/png", "text/plain; charset=utf-16"] {
        let found = inspect(&answered(&[("content-type", kind)]).headers);
        assert!(matches!(found, Ok(None)), "{kind}");
    }
    // Browsers detect its type themselves.
    assert!(matches!(inspect(&answered(&[]).headers), Ok(Some(_))));
}
