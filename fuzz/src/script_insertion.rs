//! Pages that the proxy sends to a browser.

use std::time::Duration;

use compression_codecs::brotli::params::EncoderParams;
use compression_codecs::flate::params::FlateEncoderParams;
use compression_codecs::{
    BrotliDecoder, BrotliEncoder, DecodeV2, EncodeV2, GzipDecoder, GzipEncoder, ZstdDecoder,
    ZstdEncoder,
};
use compression_core::Level;
use compression_core::util::{PartialBuffer, WriteBuffer};
use http::header::{CONTENT_ENCODING, CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue};
use lull_web::{script, script_insertion};

/// The largest part of a page that is checked: a few bytes may be the compressed form of gigabytes.
const MOST: usize = 1 << 24;
/// The bytes that are compressed or decompressed at a time.
const STEP: usize = 1 << 14;

const CODINGS: [&str; 4] = ["identity", "gzip", "br", "zstd"];
/// Policies of each kind: one that allows the script, one with a nonce, one that accepts a hash, one that
/// leaves no room. The first line of the page replaces the last one.
const POLICIES: [&str; 8] = [
    "",
    "script-src 'self'; connect-src 'self'",
    "script-src 'nonce-YWJj' 'strict-dynamic', default-src *",
    "default-src https://cdn.example; connect-src 'self' ; img-src *",
    "script-src 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=',script-src 'nonce-YWJj'",
    "script-src 'unsafe-inline'",
    "sandbox allow-scripts",
    "?",
];

/// Any page, in any pieces and any coding, under any policy: without the tag it is the same page. The two
/// lowest bits of the first byte choose the coding. The third one selects whether the page is compressed with
/// it, or only labelled so. The next three choose the policy. The last two choose the other contents of the
/// tag: whether it may have speculation rules, and for how long the script waits. The second byte is the
/// length of the pieces, and its highest bit means that the browser accepts zstd.
pub fn insert_script(bytes: &[u8]) {
    let [choices, length, page @ ..] = bytes else { return };
    let coding = CODINGS[usize::from(choices & 3)];
    let is_packed = choices & 4 != 0 || coding == "identity";
    let (policy, page) = match POLICIES[usize::from(choices >> 3 & 7)] {
        "?" => {
            let end = page.iter().position(|&byte| byte == b'\n').unwrap_or(page.len());
            let (line, page) = page.split_at(end);
            // Some bytes are not allowed in a header.
            let Ok(policy) = HeaderValue::from_bytes(line) else { return };
            (policy, page)
        }
        policy => (HeaderValue::from_static(policy), page),
    };
    let body = if is_packed { pack(coding, page) } else { page.to_vec() };
    let says = Says { rules: choices & 64 != 0, wait: choices & 128 != 0 };
    let (length, takes_zstd) = (usize::from(length & 127) + 1, length & 128 != 0);
    let Some((out, rewritten, is_placed)) =
        insert_in(coding, takes_zstd, &policy, says, &body, length)
    else {
        return;
    };
    if !is_packed {
        return;
    }
    let out = unpack(&rewritten, &out);
    let without = if is_placed { without_tag(&out, says) } else { out };
    assert!(without == page, "{coding} {policy:?} {}", String::from_utf8_lossy(&without));
}

/// The contents of the tag, besides its owner.
#[derive(Clone, Copy)]
struct Says {
    /// Whether the policies allow them.
    rules: bool,
    wait: bool,
}

/// Seconds for which the script waits, if it does.
const WAIT: u64 = 17;

/// The resulting body, its coding, and whether it contains the script. `None` if it is not a page that gets
/// the script, or broken.
fn insert_in(
    coding: &str,
    takes_zstd: bool,
    policy: &HeaderValue,
    says: Says,
    body: &[u8],
    length: usize,
) -> Option<(Vec<u8>, String, bool)> {
    let (request, ()) = http::Request::get("/")
        .header("host", "example.org")
        .header("sec-fetch-dest", "document")
        .header("accept-encoding", if takes_zstd { "gzip, br, zstd" } else { "gzip, br" })
        .body(())
        .expect("a request")
        .into_parts();
    let (mut response, ()) = http::Response::builder()
        .header("content-type", "text/html; charset=utf-8")
        .header("content-encoding", coding)
        .body(())
        .expect("a response")
        .into_parts();
    if !policy.is_empty() {
        response.headers.insert(CONTENT_SECURITY_POLICY, policy.clone());
    }
    let insertion = match script_insertion::decide(&request, "https", &response) {
        Ok(insertion) => insertion,
        Err(script_insertion::LeftAlone::Policy(_)) => return None,
        Err(why) => panic!("it is a page: {why}"),
    };
    let insertion =
        insertion.offering_rules(says.rules).waiting(says.wait.then(|| Duration::from_secs(WAIT)));
    insertion.rewrite_head(&mut response.headers);
    keeps_its_policy(&response.headers, policy);
    let rewritten = response.headers[CONTENT_ENCODING].to_str().expect("a coding").to_owned();
    let mut inserter = insertion.inserter();
    let mut out = Vec::new();
    for mut piece in body.chunks(length) {
        loop {
            match inserter.push(&mut piece, &mut out) {
                Ok(true) if out.len() <= MOST => {}
                Ok(false) => break,
                Ok(true) | Err(_) => return None,
            }
        }
    }
    inserter.finish(&mut out).ok()?;
    Some((out, rewritten, inserter.outcome() == script_insertion::Outcome::Placed))
}

/// A policy is unchanged, except for the script's hash, and possibly white space before that.
fn keeps_its_policy(headers: &HeaderMap, policy: &HeaderValue) {
    let bare = |value: &HeaderValue| {
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let text = text.replace(&format!(" '{}'", script::script().integrity), "");
        text.replace([' ', '\t'], "")
    };
    let found = headers.get(CONTENT_SECURITY_POLICY).map(bare);
    assert_eq!(found, (!policy.is_empty()).then(|| bare(policy)));
}

/// The page without the script's tag, which has a nonce and at most these contents.
fn without_tag(page: &[u8], says: Says) -> Vec<u8> {
    let find = |text: &[u8], from: usize| {
        let at = page[from..].windows(text.len()).position(|window| window == text);
        from + at.expect("the tag is in the page")
    };
    let script = script::script();
    let start = format!(
        "<script async crossorigin src=\"{}\" integrity=\"{}\"",
        script.path, script.integrity
    );
    let end: &[u8] = b"></script>";
    let at = find(start.as_bytes(), 0);
    let nonce_at = at + start.len();
    let end_at = find(end, nonce_at);
    let attributes = String::from_utf8_lossy(&page[nonce_at..end_at]);
    let mut nonce = &*attributes;
    if says.wait {
        let wait = format!(" data-wait=\"{WAIT}\"");
        nonce = nonce.strip_suffix(&wait).expect("the tag says how long the script waits");
    }
    if says.rules {
        nonce = nonce.strip_suffix(" data-rules").unwrap_or(nonce);
    }
    let is_plain = |nonce: &str| nonce.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
    let nonce = nonce.strip_prefix(" nonce=\"").map_or(Some(nonce), |rest| rest.strip_suffix('"'));
    assert!(nonce.is_some_and(is_plain), "{}", String::from_utf8_lossy(&page[at..end_at]));
    [&page[..at], &page[end_at + end.len()..]].concat()
}

fn pack(coding: &str, page: &[u8]) -> Vec<u8> {
    let mut encoder: Box<dyn EncodeV2> = match coding {
        "gzip" => Box::new(GzipEncoder::new(FlateEncoderParams::from(Level::Fastest))),
        "br" => {
            let params = EncoderParams::default().quality(Level::Fastest).window_size(16);
            Box::new(BrotliEncoder::new(params))
        }
        "zstd" => Box::new(ZstdEncoder::new(1)),
        _ => return page.to_vec(),
    };
    let (mut input, mut buffer, mut out) = (PartialBuffer::new(page), vec![0; STEP], Vec::new());
    loop {
        let mut room = WriteBuffer::new_initialized(&mut buffer);
        let is_done = if input.unwritten().is_empty() {
            encoder.finish(&mut room)
        } else {
            encoder.encode(&mut input, &mut room).map(|()| false)
        };
        out.extend_from_slice(room.written());
        if is_done.expect("every page can be packed") {
            return out;
        }
    }
}

fn unpack(coding: &str, packed: &[u8]) -> Vec<u8> {
    let mut decoder: Box<dyn DecodeV2> = match coding {
        "gzip" => Box::new(GzipDecoder::new()),
        "br" => Box::new(BrotliDecoder::new()),
        "zstd" => Box::new(ZstdDecoder::new()),
        _ => return packed.to_vec(),
    };
    let (mut input, mut buffer, mut out) = (PartialBuffer::new(packed), vec![0; STEP], Vec::new());
    loop {
        let before = input.written_len();
        let mut room = WriteBuffer::new_initialized(&mut buffer);
        let is_done = decoder.decode(&mut input, &mut room).expect("what goes out can be read");
        out.extend_from_slice(room.written());
        if is_done {
            assert!(input.unwritten().is_empty(), "something is behind the end");
            return out;
        }
        let goes_on = input.written_len() > before || room.written_len() > 0;
        assert!(goes_on, "the end is missing after {} bytes", out.len());
    }
}
