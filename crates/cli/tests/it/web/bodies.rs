//! Bodies larger than any memory pass through it.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::*;

/// 5 GB: more than fit into 32 bits.
const BODY: u64 = 5_000_000_000;
/// The size of a page without content coding.
const PAGE: u64 = 300_000_000;
/// The permitted growth of the process's memory: buffers of sockets and codecs, and the allocator's overhead.
const MORE: u64 = 16 << 20;
/// The bytes of one write.
const PIECE: usize = 1 << 20;

const HEAD: &[u8] = b"<!doctype html><html><head><title>long</title></head><body>";
/// It is never closed.
const TAG: &[u8] = b"<!doctype html><html><head><link rel=icon href=\"";

/// The peak memory of the process.
fn peak(web: &Web) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", web.process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// An upstream that answers the only request of each connection by `serve`, with its head; except for
/// robots.txt, which it does not have.
fn long_upstream(
    serve: impl Fn(&str, &mut BufReader<TcpStream>) + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, serve) = (BufReader::new(stream.unwrap()), Arc::clone(&serve));
            thread::spawn(move || {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if stream.read_line(&mut head).unwrap_or(0) == 0 {
                        return;
                    }
                }
                if head.starts_with("GET /robots.txt ") {
                    let none = b"HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n";
                    let _ = stream.get_mut().write_all(none);
                } else {
                    serve(&head, &mut stream);
                }
                let _ = stream.get_ref().shutdown(Shutdown::Write);
            });
        }
    });
    format!("http://{address}")
}

/// Writes `first` and then `filling`, repeatedly, up to a length; in chunks if configured. The other side
/// reports a connection that is not read.
fn send(to: &mut TcpStream, first: &[u8], filling: u8, length: u64, in_chunks: bool) {
    let piece = vec![filling; PIECE];
    let mut send = |bytes: &[u8]| -> io::Result<()> {
        if in_chunks {
            write!(to, "{:x}\r\n", bytes.len())?;
            to.write_all(bytes)?;
            return to.write_all(b"\r\n");
        }
        to.write_all(bytes)
    };
    let mut is_taken = first.is_empty() || send(first).is_ok();
    let mut left = length - first.len() as u64;
    while is_taken && left > 0 {
        let next = left.min(PIECE as u64);
        is_taken = send(&piece[..next as usize]).is_ok();
        left -= next;
    }
    if in_chunks {
        let _ = to.write_all(b"0\r\n\r\n");
    }
}

/// A body as it arrives, with a given length or in chunks.
struct Arriving {
    stream: BufReader<TcpStream>,
    /// Bytes of the body, or of the current chunk.
    left: u64,
    in_chunks: bool,
}

impl Arriving {
    /// Sends a request, and returns the head of the answer.
    fn ask(web: &Web, request: &str) -> (String, Self) {
        let mut stream = BufReader::new(web.connect());
        write!(stream.get_mut(), "{request}Host: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).unwrap(), 0, "the end after {head}");
        }
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let in_chunks = head.contains("transfer-encoding: chunked");
        assert_ne!(in_chunks, length.is_some(), "{head}");
        let left = length.map_or(0, |length| length.parse().unwrap());
        (head, Arriving { stream, left, in_chunks })
    }
}

impl Read for Arriving {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && self.in_chunks {
            let mut size = String::new();
            self.stream.read_line(&mut size)?;
            self.left = u64::from_str_radix(size.trim(), 16).expect("the size of a chunk");
            self.in_chunks = self.left > 0;
        }
        let most = to.len().min(usize::try_from(self.left).unwrap());
        let read = self.stream.read(&mut to[..most])?;
        assert!(read > 0 || most == 0, "it breaks off with {} bytes to come", self.left);
        self.left -= read as u64;
        if self.left == 0 && self.in_chunks {
            let mut end = [0; 2];
            self.stream.read_exact(&mut end)?;
            assert_eq!(&end, b"\r\n");
        }
        Ok(read)
    }
}

/// Reads to the end: returns the number of bytes, and the first ones. All others are `filling`.
#[track_caller]
fn take(mut from: impl Read, first: usize, filling: u8) -> (u64, Vec<u8>) {
    let mut begun = vec![0; first];
    from.read_exact(&mut begun).unwrap();
    let (expected, mut piece) = (vec![filling; PIECE], vec![0; PIECE]);
    let mut length = first as u64;
    loop {
        let read = from.read(&mut piece).unwrap();
        if read == 0 {
            return (length, begun);
        }
        // All together: comparing single bytes takes long.
        assert!(piece[..read] == expected[..read], "other bytes after {length}");
        length += read as u64;
    }
}

#[test]
fn response_of_5_gb_passes_in_constant_memory() {
    let upstream = long_upstream(|head, stream| {
        let in_chunks = head.starts_with("GET /chunks ");
        let framing = if in_chunks {
            "Transfer-Encoding: chunked".to_owned()
        } else {
            format!("Content-Length: {BODY}")
        };
        let _ = write!(stream.get_mut(), "HTTP/1.1 200 OK\r\n{framing}\r\n\r\n");
        send(stream.get_mut(), b"", 0, BODY, in_chunks);
    });
    let web = Web::start(&upstream, &[]);
    let before = peak(&web);
    for path in ["/length", "/chunks"] {
        let (head, body) = Arriving::ask(&web, &format!("GET {path} HTTP/1.1\r\n"));
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        assert_eq!(take(body, 0, 0).0, BODY, "{path}");
        let most = peak(&web);
        assert!(most < before + MORE, "{path}: {most} bytes, and {before} before");
    }
}

#[test]
fn upload_of_5_gb_passes_in_constant_memory() {
    let upstream = long_upstream(|head, stream| {
        assert!(head.to_ascii_lowercase().contains(&format!("content-length: {BODY}\r\n")));
        let (mut left, mut piece) = (BODY, vec![1; PIECE]);
        while left > 0 {
            let read = stream.read(&mut piece).unwrap() as u64;
            assert_ne!(read, 0, "it breaks off with {left} bytes to come");
            left -= read;
        }
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nall of it";
        stream.get_mut().write_all(ok.as_bytes()).unwrap();
    });
    let web = Web::start(&upstream, &[]);
    let before = peak(&web);
    let mut stream = web.connect();
    let head =
        format!("PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {BODY}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    send(&mut stream, b"", 0, BODY, false);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("all of it"), "{answer}");
    let most = peak(&web);
    assert!(most < before + MORE, "{most} bytes, and {before} before");
}

/// A page in gzip, almost without content.
fn packed() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(HEAD).unwrap();
    let mut rest = io::repeat(b' ').take(PAGE - HEAD.len() as u64);
    io::copy(&mut rest, &mut encoder).unwrap();
    encoder.finish().unwrap()
}

/// The beginning of a page without the script's tag, and the tag's length.
fn without_script(begun: &str) -> (String, u64) {
    let Some((before, rest)) = begun.split_once("<script async crossorigin src=\"/.lull/") else {
        return (begun.to_owned(), 0);
    };
    let without = before.to_owned() + rest.split_once("</script>").unwrap().1;
    let length = begun.len() - without.len();
    (without, length as u64)
}

#[test]
fn page_of_300_mb_gets_the_script_in_constant_memory() {
    let packed = packed();
    let upstream = long_upstream(move |head, stream| {
        let to = stream.get_mut();
        let start = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";
        if head.starts_with("GET /packed ") {
            let _ = write!(
                to,
                "{start}Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
                packed.len()
            );
            let _ = to.write_all(&packed);
            return;
        }
        let first = if head.starts_with("GET /tag ") { TAG } else { HEAD };
        let _ = write!(to, "{start}Transfer-Encoding: chunked\r\n\r\n");
        send(to, first, b' ', PAGE, true);
    });
    let web = Web::start(&upstream, &[]);
    // The proxy compresses for a server nearby, and knows from its first connection that this one is.
    drop(Arriving::ask(&web, "GET /packed HTTP/1.1\r\n"));
    let before = peak(&web);
    for (path, first, has_script) in
        [("/plain", HEAD, true), ("/packed", HEAD, true), ("/tag", TAG, false)]
    {
        let (head, body) = Arriving::ask(
            &web,
            &format!(
                "GET {path} HTTP/1.1\r\nUser-Agent: Mozilla/5.0 Chrome/156.0.0.0\r\n\
                 Accept: text/html\r\nAccept-Encoding: gzip\r\n"
            ),
        );
        assert!(head.contains("content-encoding: gzip"), "{head}");
        let (length, begun) = take(MultiGzDecoder::new(body), 1_000, b' ');
        let (begun, script) = without_script(&String::from_utf8(begun).unwrap());
        assert!(begun.as_bytes().starts_with(first) && begun[first.len()..].trim().is_empty());
        assert_eq!((length, script > 0), (PAGE + script, has_script), "{path}");
        let most = peak(&web);
        assert!(most < before + MORE, "{path}: {most} bytes, and {before} before");
    }
}
