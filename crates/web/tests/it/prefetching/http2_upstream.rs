//! Prefetches at a server that speaks HTTP/2: an abort resets the stream, and the connection stays.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lull_web::proxy::UpstreamConfig;

use super::*;

type Answering = Pin<Box<dyn Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send>>;

/// Requests and connections of a server.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    /// Requests for `/ahead`.
    ahead: AtomicUsize,
}

/// Tells when it is dropped: hyper drops the answer to a stream that was reset.
struct Reset(Sender<()>);

impl Drop for Reset {
    fn drop(&mut self) {
        // The test may have ended.
        let _ = self.0.send(());
    }
}

/// The first request for `/ahead` is never answered, everything else at once.
fn answer(request: &Request<Incoming>, seen: &Seen, resets: &Sender<()>) -> Answering {
    let path = request.uri().path();
    if path == "/ahead" && seen.ahead.fetch_add(1, Ordering::Relaxed) == 0 {
        let reset = Reset(resets.clone());
        return Box::pin(async move {
            let _reset = reset;
            pending().await
        });
    }
    let status = if path == "/robots.txt" { 404 } else { 200 };
    let answer = Response::builder().status(status).header("content-type", "text/html");
    Box::pin(ready(Ok(answer.body(Full::from(PAGE)).unwrap())))
}

fn server(seen: &Arc<Seen>, resets: Sender<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let seen = Arc::clone(seen);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                seen.connections.fetch_add(1, Ordering::Relaxed);
                let (seen, resets) = (Arc::clone(&seen), resets.clone());
                let service = service_fn(move |request| answer(&request, &seen, &resets));
                let io = TokioIo::new(stream);
                tokio::spawn(Builder::new(TokioExecutor::new()).serve_connection(io, service));
            }
        });
    });
    address
}

#[test]
fn prefetch_over_http2_is_reset_for_demand() {
    let (resets, is_reset) = channel();
    let seen = Arc::new(Seen::default());
    let upstream = format!("h2c://{}", server(&seen, resets)).parse().unwrap();
    let change = |config: &mut lull_web::proxy::Config| {
        config.sites[0].upstream = UpstreamConfig::new(upstream);
        config.background = Options::new().carrier(Carrier::UserSpace);
    };
    let proxy =
        proxy_with(common::unused_address(), change, Some(Arc::new(nps(Settings::default()))));
    until(|| proxy.exchange(prefetch("/known", "1", "")).status() == 200);
    let mut ahead = proxy.connect();
    ahead.send(prefetch("/ahead", "1", ""));
    until(|| seen.ahead.load(Ordering::Relaxed) == 1);
    let connections = seen.connections.load(Ordering::Relaxed);
    assert_eq!(proxy.exchange(visit("/a", "")).status(), 200);
    is_reset.recv_timeout(LIMIT).unwrap();
    assert_eq!(ahead.rest().status(), 200, "its client has seen nothing of that");
    assert_eq!(seen.ahead.load(Ordering::Relaxed), 2);
    assert_eq!(seen.connections.load(Ordering::Relaxed), connections, "only the stream has ended");
}
