//! A real S3 server over a folder, `versitygw`, behind a proxy that injects faults.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lull_replication_daemon::store::{Patience, Remote};
use tempfile::TempDir;

use super::site::LIMIT;

pub(crate) const KEY: (&str, &str) = ("lull-test", "lull-test-secret");
pub(crate) const BUCKET: &str = "pages";

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is forwarded.
    None,
    /// The connection is closed.
    Closed,
    /// The answer is `503 SlowDown`, except to one of this many.
    SlowDown(u64),
    /// The answer is cut off in its middle, except for one of this many.
    Cut(u64),
    /// It is forwarded after this time.
    Slow(Duration),
    /// A listing is empty. It is the next one, if this is true.
    EmptyListing(bool),
    /// One byte at the end of a body of over 16 KiB is another one.
    OtherByte,
}

/// The server, with a bucket, and the proxy.
pub(crate) struct Server {
    folder: TempDir,
    child: Child,
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    fault: Mutex<Fault>,
    stop: AtomicBool,
    requests: AtomicU64,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        fs::create_dir_all(root.join(BUCKET)).expect("a bucket");
        fs::create_dir(folder.path().join("xattr")).expect("a folder");
        let port = lull_testing::free_port();
        let server = SocketAddr::from(([127, 0, 0, 1], port));
        let child = Command::new("versitygw")
            .args(["--access", KEY.0, "--secret", KEY.1, "--region", "us-east-1", "--quiet"])
            .args(["--port", &server.to_string(), "posix", "--sidecar"])
            .args([folder.path().join("xattr"), root])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("versitygw starts");
        let begun = Instant::now();
        while TcpStream::connect(server).is_err() {
            assert!(begun.elapsed() < LIMIT, "versitygw does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            server,
            fault: Mutex::new(Fault::None),
            stop: AtomicBool::new(false),
            requests: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Server { folder, child, address, shared }
    }

    pub(crate) fn inject(&self, fault: Fault) {
        *self.shared.fault.lock().expect("no panic") = fault;
    }

    /// The bucket with this prefix, behind the proxy.
    pub(crate) fn remote(&self, prefix: &str) -> Remote {
        self.remote_of(BUCKET, prefix)
    }

    pub(crate) fn remote_of(&self, bucket: &str, prefix: &str) -> Remote {
        let url = format!("s3://{bucket}/{prefix}?endpoint=http://{}", self.address);
        Remote {
            key: Some((KEY.0.to_owned(), KEY.1.to_owned())),
            patience: Patience {
                outage: Duration::from_secs(1),
                probe: Duration::from_millis(100),
            },
            ..Remote::new(url.parse().expect("an address"))
        }
    }

    /// The files of the bodies below a prefix.
    pub(crate) fn bodies(&self, prefix: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        collect(
            &self.folder.path().join("root").join(BUCKET).join(prefix).join("bodies"),
            &mut files,
        );
        files
    }
}

/// The files of a folder and of its subfolders.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    // The server deletes folders that have become empty.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}

const SLOW_DOWN: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>SlowDown</Code>\
     <Message>Please reduce your request rate.</Message></Error>";

const EMPTY: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>pages</Name>\
     <KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>";

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let (Ok(client), shared) = (client, Arc::clone(&self)) else { continue };
            // A connection that ends early is a fault like others.
            thread::spawn(move || drop(shared.serve(client)));
        }
    }

    /// One request of a connection.
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(LIMIT))?;
        let request = read_request(&mut client)?;
        let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let fault = *self.fault.lock().expect("no panic");
        let is_spared = |one_of: u64| number.is_multiple_of(one_of);
        match fault {
            Fault::Closed => return Ok(()),
            Fault::SlowDown(one_of) if !is_spared(one_of) => {
                let length = SLOW_DOWN.len();
                let head = format!(
                    "HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
                );
                client.write_all(head.as_bytes())?;
                return client.write_all(SLOW_DOWN.as_bytes());
            }
            _ => {}
        }
        let is_listing = line.windows(9).any(|part| part == b"list-type");
        if let Fault::EmptyListing(is_next) = fault
            && is_listing
        {
            if is_next {
                *self.fault.lock().expect("no panic") = Fault::None;
            }
            let length = EMPTY.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\n\
                 Content-Length: {length}\r\n\r\n"
            );
            client.write_all(head.as_bytes())?;
            return client.write_all(EMPTY.as_bytes());
        }
        if let Fault::Slow(time) = fault {
            thread::sleep(time);
        }
        let mut server = TcpStream::connect(self.server)?;
        server.set_read_timeout(Some(LIMIT))?;
        server.write_all(&request)?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer)?;
        match fault {
            Fault::Cut(one_of) if !is_spared(one_of) => answer.truncate(answer.len() / 2),
            Fault::OtherByte if line.starts_with(b"GET") && answer.len() > 17_000 => {
                *answer.last_mut().expect("it is long") ^= 1;
            }
            _ => {}
        }
        client.write_all(&answer)
    }
}

/// A request that asks for the end of the connection after it.
fn read_request(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    const END: &[u8] = b"\r\n\r\n";
    let mut bytes = Vec::new();
    let mut part = [0; 64 * 1024];
    let head = loop {
        let count = from.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&part[..count]);
        if let Some(at) = bytes.windows(END.len()).position(|four| four == END) {
            break at;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
    while bytes.len() < head + END.len() + length {
        let count = from.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&part[..count]);
    }
    bytes.splice(head..head, *b"\r\nConnection: close");
    Ok(bytes)
}
