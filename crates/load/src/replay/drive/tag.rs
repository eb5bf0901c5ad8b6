//! The tag of `lull web` in a page: `docs/reference/web-protocol.md`.

use std::time::Duration;

use flate2::{Decompress, FlushDecompress};

/// How the tag's URL begins, unlike any other script's.
const SOURCE: &[u8] = b" src=\"/.lull/lull-";
/// The attribute with the script's wait, in seconds.
const WAIT: &[u8] = b" data-wait=\"";
/// The tag is in the head; a page with a longer head counts as one without a tag.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// The bytes decompressed in one step: the tag is near the beginning, and the rest is not needed.
const STEP: usize = 2 << 10;
/// The length of a gzip header as servers write it on the fly: without a name (RFC 1952 §2.3).
const GZIP_HEAD: usize = 10;

/// Searches the tag in a page that arrives in pieces.
#[derive(Debug)]
pub(super) struct Tag {
    /// Decompresses the page after the gzip header, of which this many bytes are still to come.
    packed: Option<(Decompress, usize)>,
    /// The page, until the tag has arrived.
    page: Vec<u8>,
    /// Whether no more information is to come.
    is_over: bool,
    wait: Option<Duration>,
}

impl Tag {
    /// For a page that is compressed by gzip, or is not.
    pub(super) fn new(is_packed: bool) -> Self {
        let packed = is_packed.then(|| (Decompress::new(false), GZIP_HEAD));
        Tag { packed, page: Vec::new(), is_over: false, wait: None }
    }

    /// The next piece has arrived.
    pub(super) fn push(&mut self, mut piece: &[u8]) {
        while !self.is_over && self.step(&mut piece) {
            if let Some(tag) = tag(&self.page) {
                (self.wait, self.is_over) = (wait(tag), true);
            }
            self.is_over |= self.page.len() > MAX_HEAD_BYTES;
        }
        if self.is_over {
            (self.page, self.packed) = (Vec::new(), None);
        }
    }

    /// Takes some of the piece; returns whether there was any.
    fn step(&mut self, piece: &mut &[u8]) -> bool {
        let Some((unpacking, head)) = &mut self.packed else {
            let (now, later) = piece.split_at(piece.len().min(STEP));
            self.page.extend_from_slice(now);
            *piece = later;
            return !now.is_empty();
        };
        let skipped = piece.len().min(*head);
        (*head, *piece) = (*head - skipped, &piece[skipped..]);
        let (taken, given) = (unpacking.total_in(), unpacking.total_out());
        let mut plain = [0; STEP];
        let unpacked = unpacking.decompress(piece, &mut plain, FlushDecompress::None);
        let taken = (unpacking.total_in() - taken) as usize;
        let given = (unpacking.total_out() - given) as usize;
        *piece = &piece[taken..];
        self.page.extend_from_slice(&plain[..given]);
        self.is_over = unpacked.is_err();
        taken + given > 0
    }

    /// How long the script has to wait before it asks for hints, if the tag says so.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.wait
    }
}

/// The tag, from the beginning of its URL to its end, once all of it has arrived.
fn tag(page: &[u8]) -> Option<&[u8]> {
    let begin = find(page, SOURCE)?;
    let rest = &page[begin..];
    let end = rest.iter().position(|byte| *byte == b'>')?;
    Some(&rest[..end])
}

fn wait(tag: &[u8]) -> Option<Duration> {
    let digits = &tag[find(tag, WAIT)? + WAIT.len()..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    let seconds = std::str::from_utf8(&digits[..end]).ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// The wait in the tag of this page, with any compression and any chunks.
    fn read(page: &[u8]) -> Option<Duration> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(page).unwrap();
        let packed = packed.finish().unwrap();
        let mut found = Vec::new();
        for (is_packed, bytes) in [(false, page), (true, &packed)] {
            for length in [1, 7, bytes.len()] {
                let mut tag = Tag::new(is_packed);
                bytes.chunks(length).for_each(|piece| tag.push(piece));
                found.push(tag.wait());
            }
        }
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
        found[0]
    }

    #[test]
    fn tag_is_found_anywhere_in_the_head() {
        let tag = |more: &str| {
            format!(
                "<script async src=\"/.lull/lull-0a.js\" integrity=\"sha256-x\"{more}></script>"
            )
        };
        let page =
            |tag: &str| format!("<html><head><title>a</title>{tag}</head><p>text</p></html>");
        let seconds = |text: &str| read(page(&tag(text)).as_bytes()).map(|wait| wait.as_secs());
        assert_eq!(seconds(" data-wait=\"17\""), Some(17));
        assert_eq!(seconds(" nonce=\"a\" data-rules data-wait=\"1\""), Some(1));
        assert_eq!(seconds(""), None);
        assert_eq!(seconds(" data-wait=\"\""), None);
        assert_eq!(seconds(" data-wait=\"soon\""), None);
        // Other tags are ignored.
        let other = "<script src=\"/a.js\" data-wait=\"9\"></script>";
        assert_eq!(read(page(other).as_bytes()), None);
        assert_eq!(
            read(page(&(other.to_owned() + &tag(" data-wait=\"3\""))).as_bytes())
                .unwrap()
                .as_secs(),
            3
        );
        let far = "<style>".to_owned() + &"a ".repeat(5000) + "</style>" + &tag(" data-wait=\"4\"");
        assert_eq!(read(page(&far).as_bytes()).unwrap().as_secs(), 4);
    }

    #[test]
    fn non_page_response_is_not_kept() {
        for is_packed in [false, true] {
            let mut tag = Tag::new(is_packed);
            for _ in 0..100 {
                tag.push(&[b'x'; 4096]);
            }
            assert_eq!(tag.wait(), None);
            assert!(tag.page.is_empty());
        }
    }
}
