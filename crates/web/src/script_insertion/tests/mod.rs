mod codings;
mod head;
mod inspecting;

use std::path::Path;
use std::process::Command;

use http::{Request, Response, request, response};
use proptest::prelude::*;

use super::*;
use crate::script::script;

fn asked(fields: &[(&str, &str)]) -> request::Parts {
    let mut request = Request::builder().uri("/page");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn answered(fields: &[(&str, &str)]) -> response::Parts {
    let mut response = Response::builder();
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

const GOES: &[(&str, &str)] = &[("host", "example.org"), ("sec-fetch-dest", "document")];
const HTML: (&str, &str) = ("content-type", "text/html; charset=utf-8");

fn insertion(fields: &[(&str, &str)]) -> ScriptInsertion {
    decide(&asked(GOES), "https", &answered(fields)).unwrap()
}

fn tag() -> String {
    let script = script();
    let (path, integrity) = (&script.path, &script.integrity);
    format!("<script async crossorigin src=\"{path}\" integrity=\"{integrity}\"></script>")
}

/// The resulting page if it arrives in these pieces.
fn insert_in_pieces(
    mut inserter: ScriptInserter,
    pieces: &[&[u8]],
) -> Result<(Vec<u8>, Outcome), Broken> {
    let mut out = Vec::new();
    for mut piece in pieces.iter().copied() {
        while inserter.push(&mut piece, &mut out)? {}
        assert!(piece.is_empty());
    }
    inserter.finish(&mut out)?;
    Ok((out, inserter.outcome()))
}

fn insert_into(page: &[u8]) -> (Vec<u8>, Outcome) {
    insert_in_pieces(insertion(&[HTML]).inserter(), &[page]).unwrap()
}

/// The same text in pieces with ends at `cuts`, in thousandths of its length.
fn cut<'a>(text: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| text.len() * cut / 1000).collect();
    ends.extend([0, text.len()]);
    ends.sort_unstable();
    ends.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect()
}

fn without_tag(page: &[u8]) -> Vec<u8> {
    let tag = tag();
    match page.windows(tag.len()).position(|window| window == tag.as_bytes()) {
        Some(at) => [&page[..at], &page[at + tag.len()..]].concat(),
        None => page.to_vec(),
    }
}

#[test]
fn script_is_placed_at_the_end_of_the_head() {
    // `@` marks the place of the script.
    for page in [
        "<!doctype html><html><head><title>a</title>@</head><body>b</body></html>",
        "<HTML><HEAD>@</HEAD><BODY>",
        "\u{feff}  <html><head>@</head>",
        "<head>@</head ><body>",
        "<head><!-- </head> --><title></head></title>@</head>",
        "<head><script>\"</head><body>\"</script><style></head></style>@</head>",
        "<head><script><!-- <script> </script> </head> --></script>@</head>",
        "<head><noscript><img src=x></noscript>@</head>",
        "<head><template><p></p><template><b></b></template></template>@</head><p>",
        "<head><meta content=\"</head>\"><link title='<body>'>@</head>",
        "<head><![CDATA[ x ]]>@</head>",
        "<head><title>a</title>\n@<body>b",
        // Without a head.
        "<!doctype html><title>a</title>@<p>b",
        "<!doctype html>@<p>b<p>c",
        "@<div>fragment</div>",
        "<html>@<frameset><frame src=a></frameset></html>",
        "<html><head><title>a</title>@<svg><title>b</title></svg>",
        "<!-- a -->@<plaintext></head><script>",
        "<title>a</title></head>@<body>",
        "<html><head>@</html><p>",
        "<link rel=x> text @<b>c</b>",
        // With only a head.
        "<html><head><title>a</title>@",
        "<!doctype html>@",
        "<title>a</title>text@",
    ] {
        let input = page.replace('@', "");
        let (out, outcome) = insert_into(input.as_bytes());
        assert_eq!(String::from_utf8(out).unwrap(), page.replace('@', &tag()), "{page}");
        assert_eq!(outcome, Outcome::Placed);
    }
}

#[test]
fn page_is_unchanged_where_a_tag_could_do_harm() {
    let huge = format!("<head><link href=\"data:{}\"></head>", "x".repeat(300 * 1024));
    for (page, why) in [
        ("", NoInsertionPoint::NoTag),
        ("  \n", NoInsertionPoint::NoTag),
        ("plain text", NoInsertionPoint::NoTag),
        ("{\"html\": \"<p>a</p>\"}", NoInsertionPoint::NoTag),
        ("\u{feff}x<p>", NoInsertionPoint::NoTag),
        ("<title>never closed", NoInsertionPoint::End),
        ("<script>never closed", NoInsertionPoint::End),
        ("<!-- never closed", NoInsertionPoint::End),
        ("<head><link never closed", NoInsertionPoint::End),
        ("<template><p>never closed", NoInsertionPoint::End),
        ("<head><meta name=lull content=off></head>", NoInsertionPoint::OptOut),
        ("<head><META NAME='Lull' CONTENT=' OFF '></head>", NoInsertionPoint::OptOut),
        // Other elements may precede it.
        (
            "<head><meta name=robots content=nofollow><meta name=lull content=off>",
            NoInsertionPoint::OptOut,
        ),
        ("<head><base href=//cdn.example/><meta name=lull content=off>", NoInsertionPoint::OptOut),
        (
            "<head><meta http-equiv=refresh content='0; URL=/b'><meta name=lull content=off>",
            NoInsertionPoint::OptOut,
        ),
        ("<head><title>\u{1b}$B</title><meta name=lull content=off>", NoInsertionPoint::OptOut),
        ("\u{feff}\u{feff}<head><meta name=lull content=off></head>", NoInsertionPoint::OptOut),
        (
            "<head><meta name=robots content=none></head><meta name=lull content=off>",
            NoInsertionPoint::NoFollow,
        ),
        (
            "<head><meta name=robots content=none><meta http-equiv=refresh content='0; URL=/b'></head>",
            NoInsertionPoint::Refresh,
        ),
        ("<head><meta name=robots content='noindex, nofollow'></head>", NoInsertionPoint::NoFollow),
        ("<head><meta name=robots content=none></head>", NoInsertionPoint::NoFollow),
        ("<head><meta name=lull content=nofollow></head>", NoInsertionPoint::NoFollow),
        ("<head><meta http-equiv=refresh content='0; URL=/b'></head>", NoInsertionPoint::Refresh),
        ("<head><meta http-equiv=refresh content='0;/b'></head>", NoInsertionPoint::Refresh),
        ("<head><meta http-equiv=Refresh content=' 1.5 /b'></head>", NoInsertionPoint::Refresh),
        ("<!doctype html><html amp lang=en><head><title>a</title></head>", NoInsertionPoint::Amp),
        ("<!doctype html>\n<HTML AMP=''><head></head>", NoInsertionPoint::Amp),
        ("<!doctype html><html ⚡><head></head>", NoInsertionPoint::Amp),
        ("<!doctype html><html ⚡4ads><head></head>", NoInsertionPoint::Amp),
        ("<html amp><head><meta name=lull content=off></head>", NoInsertionPoint::OptOut),
        ("<head><base href=https://cdn.example/></head>", NoInsertionPoint::Base),
        ("<head><base href=//cdn.example/></head>", NoInsertionPoint::Base),
        ("<head><meta charset=iso-2022-jp></head>", NoInsertionPoint::Encoding),
        ("<head><title>\u{1b}$B</title></head>", NoInsertionPoint::Encoding),
        (
            "<head><meta http-equiv=content-security-policy content=\"script-src 'none'\"></head>",
            NoInsertionPoint::Policy(Forbids::Meta),
        ),
        (
            "<head><meta http-equiv=Content-Security-Policy content='script-src &#39;none&#39;'>",
            NoInsertionPoint::End,
        ),
        (huge.as_str(), NoInsertionPoint::Parser),
    ] {
        let kind = [("content-type", "text/html")];
        // A tag that arrives as one piece is never held, however long it is.
        let pieces: Vec<_> = page.as_bytes().chunks(4096).collect();
        let (out, outcome) = insert_in_pieces(insertion(&kind).inserter(), &pieces).unwrap();
        assert!(out == page.as_bytes(), "{}", &page[..page.len().min(80)]);
        if why == NoInsertionPoint::End && page.contains("http-equiv") {
            assert!(
                matches!(outcome, Outcome::Left(NoInsertionPoint::Policy(Forbids::Meta))),
                "{outcome:?}"
            );
        } else {
            assert_eq!(outcome, Outcome::Left(why), "{}", &page[..page.len().min(80)]);
        }
    }
    for mark in ["'", "&#39;", "&#039;", "&#x27;", "&apos;"] {
        let source = format!("script-src {mark}self{mark}");
        let meta = format!("<meta http-equiv=Content-Security-Policy content=\"{source}\">");
        let page = format!("<!doctype html><html><head>{meta}</head><body></body></html>");
        assert_eq!(insert_into(page.as_bytes()).1, Outcome::Placed, "{mark}");
    }
    for page in [&b"\xff\xfe<\0h\0e\0a\0d\0>\0"[..], b"\xfe\xff\0<\0h"] {
        let (out, outcome) = insert_into(page);
        assert_eq!((out.as_slice(), outcome), (page, Outcome::Left(NoInsertionPoint::Encoding)));
    }
}

#[test]
fn escape_sequence_after_the_tag_has_no_effect() {
    let page = b"<head></head><pre>\x1b[1m</pre>";
    let inserter = insertion(&[("content-type", "text/html")]).inserter();
    let (out, outcome) = insert_in_pieces(inserter, &[page]).unwrap();
    assert_eq!((without_tag(&out).as_slice(), outcome), (&page[..], Outcome::Placed));
}

#[test]
fn harmless_head_elements_do_not_block_the_tag() {
    for page in [
        "<head><meta name=lull content=on>@</head>",
        "<head><meta name=robots content='index, follow'>@</head>",
        "<head><meta http-equiv=refresh content=300>@</head>",
        "<head><base href=/sub/>@</head>",
        "<head><base target=_top>@</head>",
        "<head><base href=https://example.org/x/>@</head>",
        "<head><meta charset=utf-8>@</head>",
        "<head><meta charset=utf-16>@</head>",
        "<head><meta charset=nonsense>@</head>",
        "<head><meta http-equiv=content-security-policy content=\"script-src 'self'\">@</head>",
        "<head><template><meta name=lull content=off></template>@</head>",
        "<head><noscript><meta http-equiv=refresh content='0;url=/b'></noscript>@</head>",
    ] {
        let (out, _) = insert_into(page.replace('@', "").as_bytes());
        assert_eq!(String::from_utf8(out).unwrap(), page.replace('@', &tag()));
    }
}

#[test]
fn tag_takes_the_nonce_of_the_page() {
    let csp = ("content-security-policy", "script-src 'nonce-abc'");
    let inserter = insertion(&[HTML, csp]).inserter();
    let (out, _) = insert_in_pieces(inserter, &[b"<head></head>"]).unwrap();
    let page = String::from_utf8(out).unwrap();
    assert!(page.ends_with(" nonce=\"abc\"></script></head>"), "{page}");
}

fn pack(coding: Coding, page: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    match Encoder::new(coding) {
        Some(mut encoder) => {
            encoder.write(page, &mut packed).unwrap();
            encoder.finish(&mut packed).unwrap();
        }
        None => packed.extend_from_slice(page),
    }
    packed
}

fn unpack(coding: Coding, mut packed: &[u8]) -> Vec<u8> {
    let Some(mut decoder) = Decoder::new(coding) else {
        return packed.to_vec();
    };
    let mut page = Vec::new();
    while let Some(plain) = decoder.step(&mut packed).unwrap() {
        page.extend_from_slice(plain);
    }
    assert!(decoder.is_complete() || page.is_empty());
    page
}

fn inserter_of(coding: Coding) -> ScriptInserter {
    insertion(&[HTML, ("content-encoding", coding.name())]).inserter()
}

const CODINGS: [Coding; 4] = [Coding::Identity, Coding::Gzip, Coding::Brotli, Coding::Zstd];

#[test]
fn real_site_is_unchanged_except_the_tag() {
    lull_testing::needs!(lull_testing::command("tar"), lull_testing::command("zstd"));
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/site");
    let archive = data.join("site-shell-novice.tar.zst");
    if !archive.exists() {
        lull_testing::skip("real_site_is_unchanged_except_the_tag", "no site beside the tree");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new("tar")
        .arg("--zstd")
        .arg("-xf")
        .arg(&archive)
        .arg("-C")
        .arg(folder.path())
        .status()
        .unwrap();
    assert!(status.success());
    let mut pages = 0;
    let mut folders = vec![folder.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "html") {
                let page = std::fs::read(&path).unwrap();
                for coding in CODINGS {
                    let packed = pack(coding, &page);
                    let pieces: Vec<_> = packed.chunks(1400).collect();
                    let (out, outcome) = insert_in_pieces(inserter_of(coding), &pieces).unwrap();
                    let out = unpack(coding, &out);
                    assert_eq!(without_tag(&out), page, "{}", path.display());
                    let left = matches!(
                        outcome,
                        Outcome::Left(NoInsertionPoint::Refresh | NoInsertionPoint::NoFollow)
                    );
                    assert!(outcome == Outcome::Placed || left, "{} {outcome:?}", path.display());
                }
                pages += 1;
            }
        }
    }
    assert!(pages >= 30, "{pages} pages");
}

/// Pieces of pages that are hard for parsers.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(
        &[
            "<html>",
            "<head>",
            "</head>",
            "<body>",
            "</html>",
            "<title>",
            "</title>",
            "<script>",
            "</script>",
            "<!--",
            "-->",
            "<template>",
            "</template>",
            "<noscript>",
            "</noscript>",
            "<svg>",
            "</svg>",
            "<select>",
            "<frameset>",
            "<plaintext>",
            "<![CDATA[",
            "]]>",
            "<p",
            " a=\"",
            "\"",
            "'",
            ">",
            "<",
            "</",
            "/>",
            "<meta name=x content=y>",
            "<base href=/>",
            "<style>",
            "</style>",
            "\0",
            "&amp;",
            " ",
            "text",
            "<math><mi>",
            "<table><tr>",
            "<!doctype html>",
            "\u{feff}",
            "é",
            "<noframes>",
            "</noframes>",
            "<textarea>",
        ][..],
    );
    prop_oneof![
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..300),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| [
            b"<html><head>".as_slice(),
            &bytes,
            b"</head><body>"
        ]
        .concat()),
    ]
}

proptest! {
    #[test]
    fn any_page_in_any_chunks_is_unchanged_except_the_tag(
        page in soup(), cuts in prop::collection::vec(0..1000_usize, 0..8), coding in 0..4_usize,
    ) {
        let coding = CODINGS[coding];
        let packed = pack(coding, &page);
        let (out, outcome) = insert_in_pieces(inserter_of(coding), &cut(&packed, &cuts)).unwrap();
        let out = unpack(coding, &out);
        prop_assert_eq!(&without_tag(&out), &page);
        let length = if outcome == Outcome::Placed { tag().len() } else { 0 };
        prop_assert_eq!(out.len(), page.len() + length);
    }

    /// Chunk boundaries change nothing.
    #[test]
    fn tag_place_does_not_depend_on_chunks(
        page in soup(), cuts in prop::collection::vec(0..1000_usize, 0..8),
    ) {
        let whole = insert_into(&page);
        let pieces = insert_in_pieces(inserter_of(Coding::Identity), &cut(&page, &cuts)).unwrap();
        // The end of a document is derived from the open elements, which the parser may have passed or not.
        if whole.1 == Outcome::Placed || pieces.1 == Outcome::Placed {
            prop_assert_eq!(without_tag(&whole.0), without_tag(&pieces.0));
        } else {
            prop_assert_eq!(whole, pieces);
        }
    }

    #[test]
    fn arbitrary_bytes_in_any_coding_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..400), coding in 0..4_usize,
        cuts in prop::collection::vec(0..1000_usize, 0..4),
    ) {
        let _ = insert_in_pieces(inserter_of(CODINGS[coding]), &cut(&bytes, &cuts));
    }
}
