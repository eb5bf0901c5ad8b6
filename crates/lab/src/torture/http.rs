//! HTTP/1.1 as the harness speaks it: one connection to each daemon, one request at a time.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, HOST, HeaderName};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use crate::emulate::Host;

/// What a client that changes replicas has seen.
const SESSION: HeaderName = HeaderName::from_static("lull-session");
/// The state that a write has made.
const SEQUENCE: HeaderName = HeaderName::from_static("lull-sequence");
/// No answer takes longer: daemons are told to give up sooner.
const PATIENCE: Duration = Duration::from_secs(30);
/// For a connection on the daemon's own machine.
const CONNECTING: Duration = Duration::from_secs(2);

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) method: &'static str,
    pub(super) path: &'a str,
    /// The operator's token.
    pub(super) bearer: Option<&'a str>,
    /// The session's.
    pub(super) session: Option<&'a str>,
    pub(super) body: &'a [u8],
}

impl<'a> Asked<'a> {
    pub(super) fn get(path: &'a str) -> Self {
        Asked { method: "GET", path, bearer: None, session: None, body: &[] }
    }
}

/// An answer that has come in full.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) session: Option<String>,
    pub(super) sequence: Option<u64>,
    pub(super) body: Bytes,
}

/// Talks to a daemon, from the daemon's own machine.
#[derive(Debug)]
pub(super) struct Client {
    host: Host,
    port: u16,
    kept: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    pub(super) fn new(host: &Host, port: u16) -> Self {
        Client { host: host.clone(), port, kept: None }
    }

    /// Asks, inside a runtime; none if there is no whole answer. Then nobody knows whether anything has
    /// come of it.
    pub(super) async fn ask(&mut self, asked: Asked<'_>) -> Option<Answer> {
        let mut connection = match self.kept.take() {
            Some(kept) if !kept.is_closed() => kept,
            _ => self.connect().await?,
        };
        let all = async {
            connection.ready().await.ok()?;
            let response = connection.send_request(request(asked)?).await.ok()?;
            let text = |name| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
            let (session, sequence) = (text(SESSION), text(SEQUENCE));
            let (head, body) = response.into_parts();
            let body = body.collect().await.ok()?.to_bytes();
            let sequence = sequence.and_then(|sequence| sequence.parse().ok());
            Some(Answer { status: head.status.as_u16(), session, sequence, body })
        };
        let answer = tokio::time::timeout(PATIENCE, all).await.ok().flatten()?;
        self.kept = Some(connection);
        Some(answer)
    }

    async fn connect(&self) -> Option<SendRequest<Full<Bytes>>> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        // A socket is of the network in which it was made.
        let stream = self.host.enter(|| TcpStream::connect_timeout(&address, CONNECTING));
        let stream = stream.ok()?.ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_nonblocking(true).ok()?;
        let stream = tokio::net::TcpStream::from_std(stream).ok()?;
        let (connection, driver) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        // It ends with the connection, and has nothing to say that its requests do not.
        tokio::spawn(async move { drop(driver.await) });
        Some(connection)
    }
}

fn request(asked: Asked<'_>) -> Option<Request<Full<Bytes>>> {
    let mut request =
        Request::builder().method(asked.method).uri(asked.path).header(HOST, "lull.lab");
    if let Some(token) = asked.bearer {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    if let Some(token) = asked.session {
        request = request.header(SESSION, token);
    }
    request.body(Full::new(Bytes::copy_from_slice(asked.body))).ok()
}
