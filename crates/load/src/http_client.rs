//! HTTP/1.1 as spoken by clients of origins and replicas: one connection to each daemon, one request at a
//! time.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, HOST, HeaderName};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use lull_emulator::Host;

/// The state that a client has seen when it changes replicas.
const SESSION: HeaderName = HeaderName::from_static("lull-session");
/// The state that a write has made.
const SEQUENCE: HeaderName = HeaderName::from_static("lull-sequence");
/// The limit of every answer: daemons are configured to give up sooner.
const TIMEOUT: Duration = Duration::from_secs(30);
/// For a connection on the daemon's own machine.
const CONNECTING: Duration = Duration::from_secs(2);

/// Runs futures that wait for connections on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work))
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedRequest<'a> {
    pub(crate) method: &'static str,
    pub(crate) path: &'a str,
    /// The operator's token.
    pub(crate) bearer: Option<&'a str>,
    /// The session's.
    pub(crate) session: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

impl<'a> PlannedRequest<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        PlannedRequest { method: "GET", path, bearer: None, session: None, body: &[] }
    }
}

/// A complete answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) sequence: Option<u64>,
    pub(crate) body: Bytes,
}

/// Sends requests to a daemon.
#[derive(Debug)]
pub(crate) struct Client {
    /// The host that it runs on, if that is not this one.
    host: Option<Host>,
    address: SocketAddr,
    kept: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// From the daemon's own machine.
    pub(crate) fn new(host: &Host, port: u16) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Client { host: Some(host.clone()), address, kept: None }
    }

    /// From this process's network.
    pub(crate) fn to(address: SocketAddr) -> Self {
        Client { host: None, address, kept: None }
    }

    /// Sends a request, inside a runtime; none without a complete answer. Then it is unknown whether it had
    /// an effect.
    pub(crate) async fn ask(&mut self, asked: PlannedRequest<'_>) -> Option<Answer> {
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
        let answer = tokio::time::timeout(TIMEOUT, all).await.ok().flatten()?;
        self.kept = Some(connection);
        Some(answer)
    }

    async fn connect(&self) -> Option<SendRequest<Full<Bytes>>> {
        let connect = || TcpStream::connect_timeout(&self.address, CONNECTING);
        // A socket belongs to the network in which it was made.
        let stream = match &self.host {
            Some(host) => host.enter(connect).ok()?,
            None => connect(),
        };
        let stream = stream.ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_nonblocking(true).ok()?;
        let stream = tokio::net::TcpStream::from_std(stream).ok()?;
        let (connection, driver) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        // It ends with the connection, and its requests report all errors.
        tokio::spawn(async move { drop(driver.await) });
        Some(connection)
    }
}

fn request(asked: PlannedRequest<'_>) -> Option<Request<Full<Bytes>>> {
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
