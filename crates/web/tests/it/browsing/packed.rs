//! Pages that their server compresses.

use compression_codecs::brotli::params::EncoderParams;
use compression_codecs::{BrotliEncoder, EncodeV2};
use compression_core::util::{PartialBuffer, WriteBuffer};

use super::*;

fn brotli(page: &[u8]) -> Vec<u8> {
    let mut encoder = BrotliEncoder::new(EncoderParams::default());
    let (mut input, mut buffer) = (PartialBuffer::new(page), vec![0; 2 * page.len()]);
    let mut output = WriteBuffer::new_initialized(&mut buffer);
    encoder.encode(&mut input, &mut output).unwrap();
    assert!(encoder.finish(&mut output).unwrap(), "it has no room");
    output.written().to_vec()
}

#[test]
fn brotli_page_is_shown_and_prefetched_as_zstd() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let nginx = Pages::with("location ~ ^/[ab]$ { add_header Content-Encoding br; }");
    for name in ["a", "b"] {
        let page = std::fs::read(nginx.0.folder().join(name)).unwrap();
        nginx.0.put(name, brotli(&page));
    }
    let folder = tempfile::tempdir().unwrap();
    let certificate = crate::common::certificate(folder.path());
    let mut chromium = Chromium::trusting(&certificate.certificates);
    let nps = Nps::new(settings(Access::Nobody), model_of(["/b", "/b"]), None);
    let change = |config: &mut lull_web::proxy::Config| {
        config.background = Options::new().carrier(Carrier::UserSpace);
        config.sites[0].certificate = Some(certificate);
        config.listen = vec!["https://127.0.0.1:0".parse().unwrap()];
    };
    let proxy = proxy_with(nginx.0.address, change, Some(Arc::new(nps)));
    let url = |path: &str| format!("https://{}{path}", proxy.address());
    // The coding of the page, as the browser decoded it.
    let coding = "performance.getEntriesByType('navigation')[0].contentEncoding";

    chromium.goto(&url("/a"));
    assert_eq!(chromium.run(coding), "zstd");
    assert_eq!(chromium.run("document.querySelector('p').innerText"), "one");
    // By its script, which runs.
    nginx.wait_for_prefetch("/b", &mut chromium, &url("/a"));
    chromium.wait_for_copy("/b");
    chromium.click("#b", &url("/b"));
    assert_eq!(chromium.run(DELIVERY), "cache");
    assert_eq!(chromium.run(coding), "zstd");
    assert_eq!(chromium.run("document.querySelector('p').innerText"), "two");
    assert_eq!(nginx.asked("/b").len(), 1);
}
