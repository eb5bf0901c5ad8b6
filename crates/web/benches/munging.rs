//! What putting the script into a page of 100 kB takes, by the page's coding: it is unpacked, rewritten and
//! packed again. It comes in pieces as a server sends them.
//!
//! ```text
//! cargo bench -p lull-web --bench munging
//! ```

use std::time::Instant;

use compression_codecs::brotli::params::EncoderParams;
use compression_codecs::flate::params::FlateEncoderParams;
use compression_codecs::{BrotliEncoder, EncodeV2, GzipEncoder, ZstdEncoder};
use compression_core::Level;
use compression_core::util::{PartialBuffer, WriteBuffer};
use lull_web::munge::{self, Outcome};

/// Bytes of the page.
const LENGTH: usize = 100_000;
/// Bytes that come at a time.
const PIECE: usize = 16 * 1024;
/// Each coding has its turn so often, so that a machine whose speed changes is the same for all.
const TRIALS: usize = 200;

fn main() {
    let page = page();
    let packed = ["identity", "gzip", "br", "zstd"].map(|coding| (coding, pack(coding, &page)));
    let mut times = packed.each_ref().map(|_| Vec::new());
    let mut sent = [0; 4];
    for _ in 0..TRIALS {
        for (place, (coding, body)) in packed.iter().enumerate() {
            let begin = Instant::now();
            sent[place] = munged(coding, body);
            times[place].push(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    println!(
        "{:>8}  {:>8}  {:>8}  {:>10}  {:>7}",
        "coding", "came, B", "sent, B", "median, ms", "p90, ms"
    );
    for (((coding, body), mut times), sent) in packed.iter().zip(times).zip(sent) {
        times.sort_unstable_by(f64::total_cmp);
        let (median, late) = (times[TRIALS / 2], times[TRIALS * 9 / 10]);
        println!("{coding:>8}  {:>8}  {sent:>8}  {median:>10.3}  {late:>7.3}", body.len());
    }
}

/// Bytes of what goes out.
fn munged(coding: &str, body: &[u8]) -> usize {
    let (request, ()) = http::Request::get("/")
        .header("host", "example.org")
        .header("sec-fetch-dest", "document")
        .body(())
        .expect("a request")
        .into_parts();
    let (mut response, ()) = http::Response::builder()
        .header("content-type", "text/html; charset=utf-8")
        .header("content-encoding", coding)
        .body(())
        .expect("a response")
        .into_parts();
    let munging = munge::decide(&request, "https", &response).expect("it is a page");
    munging.rewrite_head(&mut response.headers);
    let mut munger = munging.munger();
    let mut out = Vec::new();
    for mut piece in body.chunks(PIECE) {
        while munger.push(&mut piece, &mut out).expect("it is packed as it says") {}
    }
    munger.finish(&mut out).expect("it is whole");
    assert_eq!(munger.outcome(), Outcome::Placed);
    out.len()
}

/// Words, numbers and links, which pack to a fourth or so.
fn page() -> Vec<u8> {
    let words =
        ["launch", "orbit", "engine", "window", "weather", "station", "crew", "payload", "mission"];
    let mut random = lull_testing::trace::Random::new(1);
    let mut text = "<!doctype html><html><head><title>Page</title></head><body>\n".to_owned();
    while text.len() < LENGTH - 1_000 {
        text += "<p>";
        for _ in 0..60 {
            text += &format!("{}{} ", words[random.below(9) as usize], random.below(1_000));
        }
        text += &format!("<a href=/{}.html>more</a></p>\n", random.below(100));
    }
    let end = "</body></html>\n";
    text += &" ".repeat(LENGTH - text.len() - end.len());
    (text + end).into_bytes()
}

/// By the levels of servers that pack pages as they send them.
fn pack(coding: &str, page: &[u8]) -> Vec<u8> {
    let mut encoder: Box<dyn EncodeV2> = match coding {
        "gzip" => Box::new(GzipEncoder::new(FlateEncoderParams::from(Level::Precise(6)))),
        "br" => Box::new(BrotliEncoder::new(EncoderParams::default().quality(Level::Precise(5)))),
        "zstd" => Box::new(ZstdEncoder::new(3)),
        _ => return page.to_vec(),
    };
    // Longer than what comes out.
    let (mut input, mut buffer) = (PartialBuffer::new(page), vec![0; 2 * LENGTH]);
    let mut room = WriteBuffer::new_initialized(&mut buffer);
    encoder.encode(&mut input, &mut room).expect("every page can be packed");
    assert!(input.unwritten().is_empty() && encoder.finish(&mut room).expect("as above"));
    room.written().to_vec()
}
