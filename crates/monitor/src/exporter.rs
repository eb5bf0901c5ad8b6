//! An HTTP server for metrics.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use lull_kernel::Snapshot;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::metrics::metrics;

/// A client that has not sent its request within this time is disconnected.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Connections at a time; further ones wait.
const MAX_CONNECTIONS: usize = 16;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Serves what `observe` reads as metrics at `/metrics`, until the process is killed. `ready` gets the address.
///
/// A request for which `observe` fails gets status 503 with the reason.
///
/// # Errors
/// If the address cannot be listened at.
pub fn export<E: std::fmt::Display>(
    listen: SocketAddr,
    observe: impl Fn() -> Result<Snapshot, E> + Send + Sync + 'static,
    ready: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        ready(listener.local_addr()?);
        let scrape: Scrape = Arc::new(move || answer(observe()));
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            let Ok((stream, _)) = listener.accept().await else {
                // Out of file descriptors, as a rule.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let scrape = Arc::clone(&scrape);
            tokio::spawn(async move {
                // Also a client that reads nothing gives its place back.
                let _ = tokio::time::timeout(3 * TIMEOUT, serve(stream, scrape)).await;
                drop(place);
            });
        }
    })
}

type Scrape = Arc<dyn Fn() -> Response<Full<Bytes>> + Send + Sync>;

async fn serve(stream: TcpStream, scrape: Scrape) {
    let service = service_fn(|request: Request<Incoming>| {
        let scrape = Arc::clone(&scrape);
        async move { Ok::<_, Infallible>(route(&request, scrape).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let _ = connection.await;
}

async fn route(request: &Request<Incoming>, scrape: Scrape) -> Response<Full<Bytes>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match request.uri().path() {
        "/metrics" if is_read => {
            let failed = |_| text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "the scrape failed\n");
            tokio::task::spawn_blocking(move || scrape()).await.unwrap_or_else(failed)
        }
        "/" if is_read => {
            text(StatusCode::OK, PLAIN, "lull exporter: the metrics are at /metrics\n")
        }
        "/metrics" | "/" => text(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "use GET\n"),
        _ => text(StatusCode::NOT_FOUND, PLAIN, "the metrics are at /metrics\n"),
    }
}

fn answer<E: std::fmt::Display>(snapshot: Result<Snapshot, E>) -> Response<Full<Bytes>> {
    match snapshot {
        Ok(snapshot) => text(StatusCode::OK, OPEN_METRICS, &metrics(&snapshot)),
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, PLAIN, &format!("{error}\n")),
    }
}

fn text(status: StatusCode, kind: &'static str, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
