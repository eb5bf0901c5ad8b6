//! The common parts of the proxy's tests: a proxy, upstreams under the tests' control, and clients that send
//! arbitrary bytes. All over real sockets.
#![allow(dead_code)]

pub(crate) mod far;
pub(crate) mod nginx;
pub(crate) mod pages;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lull_cc::Bytes;
use lull_speculate::model::Model;
use lull_speculate::observe::ClientHasher;
use lull_web::proxy::{CertificateFiles, Config, Event, Inherited, Listener, Server, Site, Totals};
use socket2::{Domain, Socket, Type};

/// Longest single step of a test.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A running proxy, and its events.
pub(crate) struct Proxy {
    pub(crate) server: Server,
    pub(crate) events: Arc<Mutex<Vec<Event>>>,
}

impl Proxy {
    pub(crate) fn totals(&self) -> Totals {
        self.server.metrics().totals()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.addresses()[0].address
    }

    /// A client's connection.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// Sends bytes over a separate connection, and reads until its end.
    pub(crate) fn exchange(&self, request: impl AsRef<[u8]>) -> Answer {
        let mut client = self.connect();
        client.send(request);
        client.rest()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.exchange(get(path))
    }

    /// The same, and signals when this part of the body has arrived.
    pub(crate) fn until_it_breaks(
        &self,
        request: impl AsRef<[u8]>,
        until: &str,
        heard: &Sender<()>,
    ) -> Answer {
        let mut client = self.connect();
        client.send(request);
        let mut read = client.head().into_bytes();
        while !read.ends_with(until.as_bytes()) {
            read.extend(client.exactly(1));
        }
        // The receiver may have gone.
        let _ = heard.send(());
        let is_reset = client.0.read_to_end(&mut read).is_err();
        Answer::parse(&read, is_reset)
    }

    /// Waits until `holds` of the counters.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&Totals) -> bool) -> Totals {
        let started = Instant::now();
        loop {
            let totals = self.totals();
            if holds(&totals) {
                return totals;
            }
            assert!(started.elapsed() < LIMIT, "no {what}: {totals:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn told(&self, is_it: impl Fn(&Event) -> bool) -> usize {
        self.events.lock().unwrap().iter().filter(|event| is_it(event)).count()
    }
}

/// A last request on a connection.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n")
}

/// A proxy with one thread in front of `upstream`.
pub(crate) fn proxy(upstream: SocketAddr) -> Proxy {
    proxy_with(upstream, |_| {}, None)
}

pub(crate) fn proxy_with(
    upstream: SocketAddr,
    change: impl FnOnce(&mut Config),
    site: Option<Arc<dyn Site>>,
) -> Proxy {
    proxy_with_hooks(upstream, change, vec![site])
}

/// The same with a hook for each site.
pub(crate) fn proxy_with_hooks(
    upstream: SocketAddr,
    change: impl FnOnce(&mut Config),
    hooks: Vec<Option<Arc<dyn Site>>>,
) -> Proxy {
    let mut config = Config::new(format!("http://{upstream}").parse().unwrap());
    config.listen.push("127.0.0.1:0".parse().unwrap());
    config.threads = NonZeroUsize::new(1);
    change(&mut config);
    let events = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&events);
    let listener = Listener::new(move |event| kept.lock().unwrap().push(event.clone()));
    let server = Server::start_on(Inherited::default(), config, hooks, listener).unwrap();
    Proxy { server, events }
}

/// The model that was saved in this form.
pub(crate) fn kept_model(kept: &[u8]) -> Model {
    Model::read(kept, ClientHasher::new([7; 16]), Bytes(1 << 30)).unwrap()
}

/// A certificate for `localhost` in a folder.
pub(crate) fn certificate(folder: &Path) -> CertificateFiles {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files =
        CertificateFiles { certificates: folder.join("cert.pem"), key: folder.join("key.pem") };
    fs::write(&files.certificates, pair.cert.pem()).unwrap();
    fs::write(&files.key, pair.signing_key.serialize_pem()).unwrap();
    files
}

/// An upstream's side of a connection, one request at a time.
pub(crate) struct Peer {
    pub(crate) stream: BufReader<TcpStream>,
    /// The number of this connection, from 0.
    pub(crate) number: usize,
}

impl Peer {
    /// The head of the next request; `None` at the end of the connection.
    pub(crate) fn head(&mut self) -> Option<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match self.stream.read_line(&mut head) {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
        Some(head)
    }

    /// This many bytes of a body.
    pub(crate) fn body(&mut self, length: usize) -> Vec<u8> {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        body
    }

    /// Reads until `end` has come.
    pub(crate) fn until(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            if self.stream.read_line(&mut text).unwrap() == 0 {
                break;
            }
        }
        text
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The other end may have disconnected, which some tests are about.
        let _ = self.stream.get_mut().write_all(bytes.as_ref());
    }

    pub(crate) fn ok(&mut self, body: &str) {
        self.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    }

    /// Closes the connection by a reset.
    pub(crate) fn reset(self) {
        let socket = socket2::SockRef::from(self.stream.get_ref());
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// Serves each connection in a separate thread, for as long as the test runs.
pub(crate) fn upstream(serve: impl Fn(Peer) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    let count = AtomicUsize::new(0);
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let peer = Peer {
                stream: BufReader::new(stream),
                number: count.fetch_add(1, Ordering::Relaxed),
            };
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(peer));
        }
    });
    address
}

/// Answers each request's head by `answer`.
pub(crate) fn answering(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> SocketAddr {
    upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            let answer = answer(&head);
            peer.send(answer);
        }
    })
}

/// Answers with the unchanged request.
pub(crate) fn mirror() -> SocketAddr {
    answering(|head| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()))
}

/// An address without a listener, now and later.
pub(crate) fn unused_address() -> SocketAddr {
    let Away { address, socket } = Away::new();
    // Until the process ends, so that no other process takes the port.
    let _ = socket.into_raw_fd();
    address
}

/// A server that does not listen so far. Its port is reserved.
pub(crate) struct Away {
    pub(crate) address: SocketAddr,
    socket: Socket,
}

impl Away {
    pub(crate) fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        Away { address, socket }
    }

    /// From now on it does.
    pub(crate) fn come(self) -> TcpListener {
        self.socket.listen(128).unwrap();
        self.socket.into()
    }
}

/// A client's connection.
pub(crate) struct Client(pub(crate) BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        Client(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.get_mut().write_all(bytes.as_ref());
    }

    /// The head of the next answer.
    #[track_caller]
    pub(crate) fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.0.read_line(&mut head).unwrap(), 0, "the end after {head:?}");
        }
        head
    }

    pub(crate) fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The next answer, which has a length.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        let head = self.head();
        let length = header(&head, "content-length").and_then(|length| length.parse().ok());
        let body = self.exactly(length.unwrap_or(0));
        Answer { head, body, is_whole: true, is_reset: false }
    }

    /// Reads until the end of the connection.
    pub(crate) fn rest(mut self) -> Answer {
        let mut bytes = Vec::new();
        let is_reset = self.0.read_to_end(&mut bytes).is_err();
        Answer::parse(&bytes, is_reset)
    }

    /// Whether the other side closes within `time`, with or without sending before.
    pub(crate) fn is_closed_within(&mut self, time: Duration) -> bool {
        self.0.get_ref().set_read_timeout(Some(time)).unwrap();
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// The answer that a client got.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether the body ended as its framing says.
    pub(crate) is_whole: bool,
    /// Whether the connection ended by a reset, or did not end.
    pub(crate) is_reset: bool,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8], is_reset: bool) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let rest = &bytes[end..];
        let (body, is_whole) = if head.is_empty() {
            (rest.to_vec(), false)
        } else if header(&head, "transfer-encoding").is_some() {
            dechunk(rest)
        } else if let Some(length) = header(&head, "content-length") {
            (rest.to_vec(), length.parse() == Ok(rest.len()))
        } else {
            (rest.to_vec(), !is_reset)
        };
        Answer { head, body, is_whole, is_reset }
    }

    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The first header of that name.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn dechunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
            return (body, false);
        };
        let size = std::str::from_utf8(&rest[..end])
            .ok()
            .and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        let Some(size) = size else { return (body, false) };
        rest = &rest[end + 2..];
        if size == 0 {
            return (body, rest.ends_with(b"\r\n"));
        }
        if rest.len() < size + 2 {
            body.extend_from_slice(&rest[..size.min(rest.len())]);
            return (body, false);
        }
        body.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
}
