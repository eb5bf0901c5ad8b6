//! The HTTP/1.1 services of origin and replica (feature `http`).
//!
//! | user | address | purpose |
//! |---|---|---|
//! | replica | `GET`, `HEAD /PATH` | an object, with `ETag`, `Age`, conditions, ranges and the session's token |
//! | origin | `PUT`, `DELETE /PATH` | a write of one object, with a token of the operator's, and conditions |
//! | replica | `GET`, `HEAD /lull/KEY` | the same for clients of S3, on a port of its own, see [`ReplicaS3`] |
//! | both | `GET /.lull/status`, `/.lull/metrics` | JSON, for Prometheus |
//! | origin | `GET /.lull/` | the same for people |
//! | origin | `/.lull/tree`, `/.lull/transactions` and others | what [`client`] speaks, see there: all but the tree by a socket in the origin's folder only |
//!
//! `.lull` at the root is not a valid name of an object, so it hides nothing.

pub mod client;
mod conditions;
mod content;
mod figures;
mod origin;
mod page;
mod replica;
mod s3;
mod transaction;
mod watched;

use core::convert::Infallible;
use core::fmt;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use lull_replication::path::RESERVED as OWN;
use lull_transport::descriptors;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use content::Content;
pub use origin::OriginHttp;
pub use replica::{Blocked, ReplicaHttp};
pub use s3::{BUCKET, ReplicaS3};
use watched::watched;

/// The header with a session token, in both directions.
const SESSION: HeaderName = HeaderName::from_static("lull-session");
/// The name of an origin's socket in its folder.
const SOCKET: &str = "control.sock";
/// Descriptors for uses other than connections of a service: the database, bodies that are read and written,
/// and connections to the origin or to replicas. Otherwise clients could end the daemon by connecting.
const RESERVED: u64 = 256;
/// Maximum connections of one service, with any number of descriptors: each takes memory, too.
const MAX_CONNECTIONS: u64 = 16_384;
/// For the head of a request.
const HEAD: Duration = Duration::from_secs(10);
/// A client that reads nothing of an answer for this long is disconnected: other clients may need its place.
const UNTAKEN: Duration = Duration::from_secs(600);
/// The time for requests in progress when the service is closed.
const DRAIN: Duration = Duration::from_secs(5);

/// Answers requests.
pub(crate) trait HttpService: Send + Sync + 'static {
    /// The response to a request.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Content>> + Send;
}

/// Serves the connections of a listener.
pub(crate) trait ConnectionService: Send + Sync + 'static {
    /// Serves a connection until it ends, or until `stop` becomes true.
    fn serve(
        &self,
        stream: Box<dyn Stream>,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send;
}

impl<S: HttpService> ConnectionService for S {
    async fn serve(&self, stream: Box<dyn Stream>, stop: watch::Receiver<bool>) {
        serve(stream, self, stop).await;
    }
}

/// The source of requests.
pub(crate) enum Listener {
    Tcp {
        listener: TcpListener,
        /// A client that takes nothing for this long is disconnected.
        untaken: Duration,
    },
    Unix(UnixListener),
}

/// A connection of either kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Listener {
    pub(crate) fn tcp(listener: TcpListener) -> Self {
        Listener::Tcp { listener, untaken: UNTAKEN }
    }

    /// Concurrent connections of a process that may have this many descriptors; further ones wait. A port and
    /// a socket together leave about a third.
    fn places(&self, descriptors: u64) -> usize {
        let free = descriptors.saturating_sub(RESERVED).max(64);
        let share = match self {
            Listener::Tcp { .. } => free / 2,
            Listener::Unix(_) => free / 8,
        };
        share.min(MAX_CONNECTIONS) as usize
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Listener::Tcp { listener, untaken } => {
                let (tcp, _) = listener.accept().await?;
                tcp.set_nodelay(true)?;
                Ok(Box::new(watched(tcp, *untaken)?))
            }
            Listener::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

/// An open service. It closes at once when it is dropped.
pub struct Serving {
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Serving(…)")
    }
}

impl Serving {
    pub(crate) fn open(listener: Listener, service: Arc<impl ConnectionService>) -> Self {
        let stop = watch::Sender::new(false);
        let accepting = tokio::spawn(accept(listener, service, stop.subscribe()));
        Serving { stop, accepting }
    }

    /// Closes it: requests in progress may end first, within a few seconds.
    pub async fn close(mut self) {
        self.stop.send_replace(true);
        let _ = timeout(DRAIN, &mut self.accepting).await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: Listener,
    service: Arc<impl ConnectionService>,
    stop: watch::Receiver<bool>,
) {
    let mut tasks = JoinSet::new();
    let places = Arc::new(Semaphore::new(listener.places(descriptors())));
    let mut ending = stop.clone();
    loop {
        let next = async {
            // Never closed.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            _ = stopped(&mut ending) => break,
            Some(_) = tasks.join_next() => continue,
            next = next => next,
        };
        match accepted {
            Ok(stream) => {
                let (service, stop) = (Arc::clone(&service), stop.clone());
                tasks.spawn(async move {
                    service.serve(stream, stop).await;
                    drop(place);
                });
            }
            // No descriptors, most likely: some will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that no caller is left.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn serve(
    stream: Box<dyn Stream>,
    service: &impl HttpService,
    mut stop: watch::Receiver<bool>,
) {
    let answer = async |request| Ok::<_, Infallible>(service.answer(request).await);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let connection = http.serve_connection(TokioIo::new(stream), service_fn(answer));
    tokio::pin!(connection);
    // A client's way of ending its connection is of no interest here.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stopped(&mut stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// A response of one line.
fn line(status: StatusCode, text: impl fmt::Display) -> Response<Content> {
    let mut response = Response::new(Content::of(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A document that is current only now.
fn document(kind: &'static str, text: String) -> Response<Content> {
    let mut response = Response::new(Content::of(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The name that a request is for: its path without the first slash, decoded.
fn name_of(request: &Request<impl Sized>) -> Vec<u8> {
    let path = request.uri().path();
    let path = path.strip_prefix('/').unwrap_or(path);
    percent_encoding::percent_decode_str(path).collect()
}

/// The name below Lull's own folder that a request is for, if any.
fn own_of(name: &[u8]) -> Option<&str> {
    let own = name.strip_prefix(OWN.as_bytes())?.strip_prefix(b"/")?;
    Some(str::from_utf8(own).unwrap_or("?"))
}

/// Rounded up, because the value is a bound.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// The socket for orders to an origin, for users with access to its folder.
fn socket(folder: &FilePath) -> PathBuf {
    folder.join(SOCKET)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn connections_leave_descriptors_for_other_uses() {
        let folder = tempfile::tempdir().unwrap();
        let tcp = Listener::tcp(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let unix = Listener::Unix(UnixListener::bind(folder.path().join("socket")).unwrap());
        for descriptors in [256, 1_024, 4_096, 65_536, u64::MAX] {
            let (port, socket) = (tcp.places(descriptors), unix.places(descriptors));
            assert!(port >= 32 && socket >= 8, "{descriptors}: {port} and {socket}");
            let left = descriptors - (port + socket) as u64;
            assert!(left >= 200_u64.min(descriptors / 3), "{descriptors}: {left} are left");
        }
        assert_eq!(tcp.places(u64::MAX) as u64, MAX_CONNECTIONS);
    }

    /// Answers as fast as the client reads; reports when it no longer does.
    struct Endless(mpsc::Sender<()>);

    impl HttpService for Endless {
        async fn answer(&self, _: Request<Incoming>) -> Response<Content> {
            let (sender, pieces) = mpsc::channel(2);
            let ended = self.0.clone();
            tokio::spawn(async move {
                while sender.send(Ok(vec![7; 65_536].into())).await.is_ok() {}
                let _ = ended.send(()).await;
            });
            Response::new(Content::Pieces { pieces, left: None })
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn client_that_reads_no_answer_loses_its_place() {
        let untaken = Duration::from_secs(4);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ended, mut ends) = mpsc::channel(2);
        let service = Arc::new(Endless(ended));
        let serving = Serving::open(Listener::Tcp { listener, untaken }, service);
        let ask = async || {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
            client
        };
        let _takes_nothing = ask().await;
        // This one takes a few bytes at intervals.
        let mut slow = ask().await;
        let slowly = tokio::spawn(async move {
            let mut bytes = vec![0; 1 << 20];
            while slow.read_exact(&mut bytes).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let end = timeout(Duration::from_secs(30), ends.recv()).await;
        assert_eq!(end.expect("it keeps its place"), Some(()));
        let other = timeout(2 * untaken, ends.recv()).await;
        assert!(other.is_err() && !slowly.is_finished(), "who takes something keeps it");
        slowly.abort();
        drop(serving);
    }
}
