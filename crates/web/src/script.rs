//! The browser's scripts, as they are served: those in `script/` without their comments, and with shorter
//! names.

use std::io::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use crate::protocol::WORKER_PATH;

/// As they were written: that of pages, less how a page is fetched ahead; the two ways of that; and
/// the service worker.
const SOURCE: &str = include_str!("../script/lull.js");
const BY_FETCH: &str = include_str!("../script/by-fetch.js");
const BY_WORKER: &str = include_str!("../script/by-worker.js");
const WORKER: &str = include_str!("../script/worker.js");
/// The line of the first in whose place one of the two comes.
const HERE: &str = "// Here by-fetch.js or by-worker.js comes in: how a page is fetched ahead.\n";

/// What the scripts call some things of their own where they are served. Members of objects have none of
/// these names, nor has anything that a browser or the proxy knows. Which letter is whose was tried out: gzip packs some
/// choices better, by 27 bytes.
const SHORTER: &[(&str, &str)] = &[
    ("again", "k"),
    ("ask", "F"),
    ("bare", "e"),
    ("isBarred", "D"),
    ("begin", "R"),
    ("denied", "W"),
    ("doc", "p"),
    ("drop", "w"),
    ("end", "B"),
    ("entry", "g"),
    ("event", "r"),
    ("fresh", "z"),
    ("send", "h"),
    ("here", "O"),
    ("hint", "t"),
    ("idle", "K"),
    ("isHit", "x"),
    ("known", "b"),
    ("later", "i"),
    ("leave", "I"),
    ("leaving", "n"),
    ("list", "o"),
    ("look", "V"),
    ("looked", "f"),
    ("net", "y"),
    ("news", "U"),
    ("off", "a"),
    ("one", "J"),
    ("over", "C"),
    ("point", "E"),
    ("post", "u"),
    ("power", "m"),
    ("pull", "$"),
    ("reply", "S"),
    ("resting", "G"),
    ("rounds", "T"),
    ("running", "s"),
    ("said", "Z"),
    ("say", "q"),
    ("seconds", "j"),
    ("since", "v"),
    ("stay", "P"),
    ("stop", "L"),
    ("tell", "H"),
    ("time", "A"),
    ("timer", "c"),
    ("told", "M"),
    ("tried", "N"),
    ("until", "Y"),
    ("target", "Q"),
    ("what", "d"),
    ("whole", "l"),
];

/// Its name says its contents, so it may be kept for ever.
pub const CACHE_CONTROL: &str = "public, max-age=31536000, immutable";
/// The service worker's does not: browsers ask for it again after each navigation.
pub const WORKER_CACHE_CONTROL: &str = "no-cache";
/// What it is.
pub const CONTENT_TYPE: &str = "text/javascript; charset=utf-8";

/// The script and what its tag says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// What is served.
    pub body: String,
    /// The same, packed by gzip.
    pub packed: Bytes,
    /// Where: a path that no other version has.
    pub path: String,
    /// `sha256-…`, as in the tag's `integrity` and, in quotes, in a content security policy.
    pub integrity: String,
    /// Whether it has a service worker do the rest.
    pub by_worker: bool,
}

impl Script {
    fn of(source: &str) -> Self {
        let body = served(source);
        let digest: [u8; 32] = Sha256::digest(body.as_bytes()).into();
        let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Script {
            packed: packed(body.as_bytes(), Compression::best()),
            body,
            path: format!("/.lull/lull-{name}.js"),
            integrity: format!("sha256-{}", base64(&digest)),
            by_worker: false,
        }
    }
}

/// The same in gzip.
pub(crate) fn packed(body: &[u8], level: Compression) -> Bytes {
    let mut packed = GzEncoder::new(Vec::new(), level);
    packed.write_all(body).expect("a vector takes everything");
    packed.finish().expect("a vector takes everything").into()
}

/// The script of this version.
pub fn script() -> &'static Script {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::of(&SOURCE.replace(HERE, BY_FETCH)));
    &SCRIPT
}

/// The one for browsers that need a service worker.
pub fn script_by_worker() -> &'static Script {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script {
        by_worker: true,
        ..Script::of(&SOURCE.replace(HERE, BY_WORKER))
    });
    &SCRIPT
}

/// The service worker, which fetches from `port`, and stays for `life` without a word from a page.
/// Without a port it goes as soon as it comes, and takes along what there is.
pub fn service_worker(port: Option<u16>, life: Duration) -> Script {
    let (port, life) = (port.unwrap_or(0), life.as_millis());
    let source = format!("const PORT = {port}, LIFE = {life};\n{WORKER}");
    Script { path: WORKER_PATH.into(), ..Script::of(&source) }
}

/// What is served of a source: no lines that are comments, no white space that parts nothing, and shorter
/// names. The source keeps no text that spans lines, so that nothing else can be meant.
fn served(source: &str) -> String {
    let mut body = String::with_capacity(source.len());
    for line in source.lines().map(str::trim) {
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        // Behind these something has ended, or goes on.
        if !body.is_empty() && !body.ends_with([';', '{', ',', '(']) {
            body.push('\n');
        }
        let mut rest = line;
        while let Some((piece, behind)) = first_piece(rest) {
            rest = behind;
            if piece != " " || (body.ends_with(is_word) && behind.starts_with(is_word)) {
                let shorter = SHORTER.iter().find(|(name, _)| *name == piece);
                body.push_str(shorter.map_or(piece, |(_, short)| *short));
            }
        }
    }
    body.push('\n');
    body
}

/// The first piece of a line, and what is behind it: a text in quotation marks, a word, or a character.
fn first_piece(line: &str) -> Option<(&str, &str)> {
    let first = line.chars().next()?;
    let end = match first {
        '\'' | '"' => line[1..].find(first).map_or(line.len(), |at| at + 2),
        _ if is_word(first) => line.find(|c: char| !is_word(c)).unwrap_or(line.len()),
        _ => first.len_utf8(),
    };
    Some(line.split_at(end))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// RFC 4648 §4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            if digit <= group.len() {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
    }

    #[test]
    fn scripts_weigh_no_more_than_documented() {
        let worker = service_worker(Some(8443), Duration::from_secs(3600));
        for script in [script(), script_by_worker(), &worker] {
            let bytes = script.packed.len();
            assert!(bytes <= 2176, "{bytes} bytes gzipped: {}", script.path);
        }
    }

    #[test]
    fn worker_keeps_as_many_copies_as_are_hinted() {
        let kept = format!("const MOST = {};", crate::protocol::MOST_COPIES);
        assert!(WORKER.contains(&kept), "{kept}");
    }

    #[test]
    fn each_way_has_a_script_of_its_own() {
        let of = |script: &Script, word: &str| script.body.contains(word);
        assert!(of(script(), "X-Lull") && !of(script(), "worker.js"));
        assert!(of(script_by_worker(), "worker.js") && !of(script_by_worker(), "X-Lull"));
        assert!(service_worker(None, Duration::ZERO).body.starts_with("const PORT=0,LIFE=0;"));
    }

    #[test]
    fn its_path_changes_with_its_contents() {
        let (one, other) = (Script::of("a()"), Script::of("b()"));
        assert_ne!(one.path, other.path);
        assert_eq!(one, Script::of("  a()\n\n  // a comment\n"));
        assert!(script().path.starts_with("/.lull/lull-"));
    }

    #[test]
    fn it_keeps_no_text_that_spans_lines() {
        for source in [SOURCE, BY_FETCH, BY_WORKER, WORKER] {
            assert!(!source.contains('`'), "a template could hold what looks like a comment");
            assert!(!source.contains('\\'), "a text could hold its own quotation mark");
        }
    }

    #[test]
    fn what_is_served_says_the_same_with_fewer_letters() {
        for (source, expected) in [
            ("  a + b\n\n// later\nc = 'a  + later';", "a+b\nc='a  + later';\n"),
            ("if (a) {\n  b(x,\n    y);\n}\nd", "if(a){b(x,y);}\nd\n"),
            ("const later = async () => new URL(x);", "const i=async()=>new URL(x);\n"),
            ("throw 0", "throw 0\n"),
            ("x in {y: [...news, 1]}", "x in{y:[...U,1]}\n"),
            ("laters + $later", "laters+$later\n"),
        ] {
            assert_eq!(served(source), expected);
        }
    }

    #[test]
    fn what_is_called_otherwise_is_known_to_the_scripts_only() {
        let is = |of: fn(&(&'static str, &'static str)) -> &'static str, piece: &str| {
            SHORTER.iter().any(|one| of(one) == piece)
        };
        let sources = [SOURCE, BY_FETCH, BY_WORKER, WORKER];
        let lines = sources.iter().flat_map(|source| source.lines().map(str::trim));
        for line in lines.filter(|line| !line.starts_with("//")) {
            // What was opened on this line.
            let (mut open, mut rest) = (Vec::new(), line);
            while let Some((piece, behind)) = first_piece(rest) {
                let before = &line[..line.len() - rest.len()];
                let next = behind.trim_start();
                match piece {
                    "(" | "[" | "{" => open.push(piece),
                    ")" | "]" | "}" => {
                        open.pop();
                    }
                    _ => {}
                }
                let is_key = next.starts_with(':');
                if is(|one| one.0, piece) {
                    let is_spread = before.ends_with("...");
                    let is_member = before.ends_with('.') && !is_spread;
                    let is_both =
                        !is_spread && open.last() == Some(&"{") && next.starts_with([',', '}']);
                    assert!(!is_member && !is_key && !is_both, "{piece} in {line}");
                }
                assert!(is_key || !is(|one| one.1, piece), "{piece} in {line}");
                let parts_signs =
                    ["+", "-"].iter().any(|sign| before.ends_with(sign) && next.starts_with(sign));
                assert!(piece != " " || !parts_signs, "they would become one: {line}");
                rest = behind;
            }
        }
        let mut short: Vec<_> = SHORTER.iter().map(|one| one.1).collect();
        short.sort_unstable();
        short.dedup();
        assert_eq!(short.len(), SHORTER.len());
    }
}
