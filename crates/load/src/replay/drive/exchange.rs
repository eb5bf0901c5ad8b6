//! One request over a connection, and the connections of a client.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::Read as _;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName,
    PRAGMA, USER_AGENT,
};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::tag::Tag;

/// The user agent of clients: a browser that uses hints.
const AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/156.0.0.0 Safari/537.36";
/// The field by which proxies that trust the client's address distinguish clients.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The mark of a request that yields: `docs/reference/web-protocol.md`.
const MARK: HeaderName = HeaderName::from_static("x-lull");
/// The mark of a probe for a cache in front.
const PROBE: HeaderValue = HeaderValue::from_static("0");
/// A value unknown to caches in front, instead of one that would bypass them.
const NOTHING: HeaderValue = HeaderValue::from_static("0");

pub(super) type Connection = SendRequest<Full<Bytes>>;

/// A server that was found.
#[derive(Clone, Debug)]
pub(super) struct ServerAddress {
    pub(super) address: SocketAddr,
    pub(super) authority: HeaderValue,
    /// The accepted codings of a request.
    pub(super) codings: HeaderValue,
}

/// A request, which may be written more than once.
#[derive(Clone, Debug)]
pub(super) struct PlannedRequest {
    pub(super) target: String,
    /// `text/html` for pages.
    pub(super) is_page: bool,
    /// The value of `X-Lull`.
    pub(super) mark: Option<HeaderValue>,
    /// The posted message, in JSON.
    pub(super) message: Option<Bytes>,
    /// Whether it only probes for a cache in front.
    pub(super) is_server_check: bool,
    /// Whether the tag of `lull web` is parsed.
    pub(super) reads_tag: bool,
}

impl PlannedRequest {
    pub(super) fn get(target: &str, is_page: bool) -> Self {
        PlannedRequest {
            target: target.to_owned(),
            is_page,
            mark: None,
            message: None,
            is_server_check: false,
            reads_tag: false,
        }
    }

    pub(super) fn post(target: &str, message: Bytes) -> Self {
        PlannedRequest { message: Some(message), ..PlannedRequest::get(target, false) }
    }

    pub(super) fn server_check(page: &str) -> Self {
        PlannedRequest {
            mark: Some(PROBE),
            is_server_check: true,
            ..PlannedRequest::get(page, true)
        }
    }

    fn request(&self, server: &ServerAddress, client: u32) -> http::Result<Request<Full<Bytes>>> {
        let [_, a, b, c] = client.to_be_bytes();
        let accept = if self.is_page { "text/html" } else { "*/*" };
        let mut request = Request::builder()
            .uri(self.target.as_str())
            .header(HOST, &server.authority)
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, accept)
            .header(ACCEPT_ENCODING, &server.codings)
            .header(FORWARDED_FOR, format!("10.{a}.{b}.{c}"));
        if let Some(mark) = &self.mark {
            request = request.header(MARK, mark);
        }
        if self.is_server_check {
            request = request.method("HEAD").header(CACHE_CONTROL, NOTHING).header(PRAGMA, NOTHING);
        }
        match &self.message {
            Some(message) => request
                .method("POST")
                .header(CONTENT_TYPE, "application/json")
                .body(Full::new(message.clone())),
            None => request.body(Full::default()),
        }
    }
}

/// A complete answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Whether it has `X-Lull`.
    pub(super) is_marked: bool,
    pub(super) bytes: u64,
    /// The answer to a post, which is short, without its content coding.
    pub(super) body: Vec<u8>,
    /// How long its script has to wait before it asks for hints.
    pub(super) wait: Option<Duration>,
    /// When its last byte arrived.
    pub(super) at: Instant,
}

/// A longer answer to a post is rejected.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Sends a request, over the given connection or a new one, and reads the answer. `count` grows with its
/// body. Returns the connection if it can be reused.
///
/// The server may just have closed a kept connection. Then the request, which changes nothing there, is sent
/// again over a new one.
pub(super) async fn exchange(
    server: Rc<ServerAddress>,
    kept: Option<Connection>,
    asked: PlannedRequest,
    client: u32,
    patience: Duration,
    count: Rc<Cell<u64>>,
) -> (Option<Connection>, Option<Answer>) {
    let all = async {
        if let Some(mut connection) = kept
            && connection.ready().await.is_ok()
            && let Ok(answer) = over(&mut connection, &server, &asked, client, &count).await
        {
            return Some((connection, answer));
        }
        let mut connection = connect(&server).await?;
        let answer = over(&mut connection, &server, &asked, client, &count).await.ok()?;
        Some((connection, answer))
    };
    match tokio::time::timeout(patience, all).await {
        Ok(Some((connection, answer))) => {
            ((!connection.is_closed()).then_some(connection), Some(answer))
        }
        Ok(None) | Err(_) => (None, None),
    }
}

async fn connect(server: &ServerAddress) -> Option<Connection> {
    let stream = TcpStream::connect(server.address).await.ok()?;
    stream.set_nodelay(true).ok()?;
    let (connection, driver) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    // It ends with the connection, and its requests report all errors.
    tokio::task::spawn_local(async move { drop(driver.await) });
    Some(connection)
}

async fn over(
    connection: &mut Connection,
    server: &ServerAddress,
    asked: &PlannedRequest,
    client: u32,
    count: &Cell<u64>,
) -> Result<Answer, ()> {
    let request = asked.request(server, client).map_err(drop)?;
    let response = connection.send_request(request).await.map_err(drop)?;
    let status = response.status().as_u16();
    let is_marked = response.headers().contains_key(MARK);
    let mut bytes = 0;
    let mut kept = Vec::new();
    let is_packed = response.headers().get(CONTENT_ENCODING).is_some_and(|coding| coding == "gzip");
    let mut tag = asked.reads_tag.then(|| Tag::new(is_packed));
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(drop)?.into_data() else { continue };
        bytes += data.len() as u64;
        count.set(count.get() + data.len() as u64);
        if let Some(tag) = &mut tag {
            tag.push(&data);
        }
        if asked.message.is_some() && kept.len() + data.len() <= MAX_BODY_BYTES {
            kept.extend_from_slice(&data);
        }
    }
    let wait = tag.and_then(|tag| tag.wait());
    if is_packed && asked.message.is_some() {
        kept = unpacked(&kept).ok_or(())?;
    }
    Ok(Answer { status, is_marked, bytes, body: kept, wait, at: Instant::now() })
}

/// Decompresses gzip; none if it is malformed, or longer than the limit of an answer.
fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    GzDecoder::new(packed).take(MAX_BODY_BYTES as u64 + 1).read_to_end(&mut plain).ok()?;
    (plain.len() <= MAX_BODY_BYTES).then_some(plain)
}

/// The connections that a client has for one purpose, and the work that waits for one.
#[derive(Debug)]
pub(super) struct Lane<T> {
    idle: Vec<Connection>,
    busy: usize,
    most: usize,
    queue: VecDeque<T>,
}

impl<T> Lane<T> {
    pub(super) fn new(most: usize) -> Self {
        Lane { idle: Vec::new(), busy: 0, most, queue: VecDeque::new() }
    }

    pub(super) fn push(&mut self, work: T) {
        self.queue.push_back(work);
    }

    /// Work that may begin, with its connection; if there is none, it needs a new one.
    pub(super) fn next(&mut self) -> Option<(T, Option<Connection>)> {
        if self.busy >= self.most {
            return None;
        }
        let work = self.queue.pop_front()?;
        self.busy += 1;
        Some((work, self.idle.pop()))
    }

    /// Work has ended, and returned its connection, if that can be reused.
    pub(super) fn end(&mut self, connection: Option<Connection>) {
        self.busy -= 1;
        self.idle.extend(connection);
    }
}
