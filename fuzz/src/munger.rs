//! Pages on their way to a browser.

use lull_web::{munge, script};

/// As much of a page as is looked at: a few bytes may be the compressed form of gigabytes.
const MOST: usize = 1 << 24;

/// Any page, in any pieces and any coding: without the tag it is the same page. The first byte
/// chooses the coding, the second the length of the pieces.
pub fn munger(bytes: &[u8]) {
    let [coding, length, body @ ..] = bytes else { return };
    let coding = ["identity", "gzip", "br", "zstd"][usize::from(coding % 4)];
    let (request, ()) = http::Request::get("/")
        .header("host", "example.org")
        .header("sec-fetch-dest", "document")
        .body(())
        .expect("a request")
        .into_parts();
    let (response, ()) = http::Response::builder()
        .header("content-type", "text/html; charset=utf-8")
        .header("content-encoding", coding)
        .body(())
        .expect("a response")
        .into_parts();
    let mut munger = munge::decide(&request, "https", &response).expect("a page").munger();
    let mut out = Vec::new();
    for mut piece in body.chunks(usize::from(*length) + 1) {
        loop {
            match munger.push(&mut piece, &mut out) {
                Ok(true) if out.len() <= MOST => {}
                Ok(false) => break,
                Ok(true) | Err(_) => return,
            }
        }
    }
    if munger.finish(&mut out).is_err() || coding != "identity" {
        return;
    }
    let script = script::script();
    let tag = format!(
        "<script async src=\"{}\" integrity=\"{}\"></script>",
        script.path, script.integrity
    );
    let page = match out.windows(tag.len()).position(|window| window == tag.as_bytes()) {
        Some(at) if munger.outcome() == munge::Outcome::Placed => {
            [&out[..at], &out[at + tag.len()..]].concat()
        }
        _ => out,
    };
    assert!(page == body, "{}", String::from_utf8_lossy(&page));
}
