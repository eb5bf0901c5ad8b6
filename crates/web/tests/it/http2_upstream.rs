//! Upstreams over HTTP/2, and WebSocket over HTTP/2, with real clients and servers.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::ext::Protocol;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lull_testing::needs;
use lull_web::proxy::{Config, UpstreamConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::browser::chromium::{self, Chromium};
use crate::common::nginx::Nginx;
use crate::common::{LIMIT, Proxy, certificate, header, proxy_with, unused_address, upstream};

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, future).await.unwrap() });
}

/// Sends back what it gets, with trailers, and says what it has seen.
async fn echo(
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, hyper::Error>>, Infallible> {
    let te = request.headers().get("te").map_or("none", |te| te.to_str().unwrap());
    let said = format!("{:?} {} te={te}", request.version(), request.uri());
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = request.into_body().with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(body.boxed());
    response.headers_mut().insert("x-said", HeaderValue::from_str(&said).unwrap());
    Ok(response)
}

/// A server that speaks HTTP/2 only. Each of its connections ends after `most` requests.
fn http2_server(most: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let count = Arc::new(AtomicUsize::new(0));
                    let seen = Arc::clone(&count);
                    let service = service_fn(move |request| {
                        seen.fetch_add(1, Ordering::Relaxed);
                        echo(request)
                    });
                    let io = TokioIo::new(stream);
                    let served = Builder::new(TokioExecutor::new()).serve_connection(io, service);
                    let mut served = std::pin::pin!(served);
                    std::future::poll_fn(|cx| {
                        let polled = served.as_mut().poll(cx);
                        if count.load(Ordering::Relaxed) >= most {
                            served.as_mut().graceful_shutdown();
                        }
                        polled
                    })
                    .await
                });
            }
        });
    });
    address
}

fn proxy_to(upstream: &str) -> Proxy {
    let upstream = UpstreamConfig::new(upstream.parse().unwrap());
    proxy_with(unused_address(), |config: &mut Config| config.sites[0].upstream = upstream, None)
}

async fn http2_client(proxy: &Proxy) -> SendRequest<TestBody> {
    let stream = TcpStream::connect(proxy.address()).await.unwrap();
    let (sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    sender
}

/// A body whose pieces a test sends one by one.
struct TestBody(mpsc::UnboundedReceiver<Bytes>);

impl TestBody {
    fn empty() -> Self {
        TestBody(mpsc::unbounded_channel().1)
    }
}

impl http_body::Body for TestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

#[test]
fn grpc_stream_passes_messages_both_ways_and_trailers() {
    let proxy = proxy_to(&format!("h2c://{}", http2_server(usize::MAX)));
    block_on(async {
        let mut client = http2_client(&proxy).await;
        let (to_server, pieces) = mpsc::unbounded_channel();
        let request = Request::post("http://site.example/echo.Echo/Chat?x")
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let response = client.send_request(request.body(TestBody(pieces)).unwrap());
        to_server.send(Bytes::from_static(b"one")).unwrap();
        let mut response = response.await.unwrap();
        let said = response.headers()["x-said"].to_str().unwrap();
        assert_eq!(said, "HTTP/2.0 http://site.example/echo.Echo/Chat?x te=trailers");
        // The server answers each message before the next one is sent.
        for next in [Some("two"), Some("three"), None] {
            let frame = response.body_mut().frame().await.unwrap().unwrap();
            assert!(frame.is_data());
            next.into_iter().for_each(|next| to_server.send(next.into()).unwrap());
        }
        drop(to_server);
        let trailers = response.into_body().collect().await.unwrap().trailers().cloned().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
    });
}

#[test]
fn requests_share_a_connection_to_an_http2_server() {
    let proxy = proxy_to(&format!("h2c://{}", http2_server(usize::MAX)));
    assert_eq!(proxy.get("/").status(), 200);
    let mut clients: Vec<_> = (0..20).map(|_| proxy.connect()).collect();
    let post = "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\n";
    clients.iter_mut().for_each(|client| client.send(post));
    proxy.wait("all requests", |totals| totals.requests == 21);
    for client in &mut clients {
        client.send("echo");
        let head = client.head();
        assert_eq!(header(&head, "x-said"), Some("HTTP/2.0 http://a.example/a te=none"));
    }
    assert_eq!(proxy.totals().upstream_connections, 1);
}

#[test]
fn closed_http2_connection_is_replaced() {
    let proxy = proxy_to(&format!("h2c://{}", http2_server(1)));
    for _ in 0..5 {
        assert_eq!(proxy.get("/").status(), 200);
    }
    let missing = proxy_to(&format!("h2c://{}", unused_address()));
    assert_eq!(missing.get("/").status(), 502);
}

#[test]
fn nginx_is_an_upstream_over_http2_and_tls() {
    needs!(lull_testing::command("nginx"));
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let files = certificate(folder.path());
    let (plain, secure) = (free(), free());
    let http = format!(
        "server {{
             listen 127.0.0.1:{plain} http2; listen 127.0.0.1:{secure} ssl http2;
             ssl_certificate {}; ssl_certificate_key {};
             location / {{ return 200 '$server_protocol $scheme $host $request_method'; }}
         }}",
        files.certificates.display(),
        files.key.display()
    );
    let _nginx = Nginx::start(&http, "");
    for (upstream, scheme) in [
        (format!("h2c://127.0.0.1:{plain}"), "http"),
        (format!("h2://localhost:{secure}"), "https"),
    ] {
        let mut upstream = UpstreamConfig::new(upstream.parse().unwrap());
        upstream.roots = Some(files.certificates.clone());
        let change = |config: &mut Config| config.sites[0].upstream = upstream;
        let proxy = proxy_with(unused_address(), change, None);
        assert_eq!(proxy.get("/a").text(), format!("HTTP/2.0 {scheme} site.example GET"));
        let answer = proxy.exchange(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
             5\r\nhello\r\n0\r\n\r\n",
        );
        assert_eq!(answer.text(), format!("HTTP/2.0 {scheme} a POST"));
    }
}

/// A WebSocket server that sends back the first bytes, and reports the head of the request.
fn websocket_server(reports: mpsc::UnboundedSender<String>) -> SocketAddr {
    upstream(move |mut peer| {
        let head = peer.head().unwrap_or_default();
        if header(&head, "upgrade") != Some("websocket") {
            return peer.ok("<!doctype html><title>chat</title>");
        }
        let _ = reports.send(head);
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: x\r\n\r\n",
        );
        // A text of one byte, masked by the client (RFC 6455 §5.2), and the same unmasked.
        let mut frame = [0; 7];
        if peer.stream.read_exact(&mut frame).is_ok() {
            assert_eq!(frame[..2], [0x81, 0x81]);
            peer.send([0x81, 1, frame[6] ^ frame[2]]);
        }
        let _ = peer.stream.get_mut().flush();
        let _ = peer.stream.read_to_end(&mut Vec::new());
    })
}

#[test]
fn websocket_over_http2_becomes_an_upgrade_for_the_upstream() {
    let (reports, mut heads) = mpsc::unbounded_channel();
    let proxy = proxy_with(websocket_server(reports), |_| {}, None);
    block_on(async {
        let mut client = http2_client(&proxy).await;
        let page = Request::get("http://site.example/").body(TestBody::empty()).unwrap();
        // The settings of the server say that it takes WebSockets.
        let response = client.send_request(page).await.unwrap();
        response.into_body().collect().await.unwrap();
        let request = Request::builder()
            .method(Method::CONNECT)
            .version(Version::HTTP_2)
            .uri("http://site.example/chat?room=1")
            .extension(Protocol::from_static("websocket"))
            .header("sec-websocket-version", "13")
            .header("sec-websocket-protocol", "talk")
            .header("cookie", "session=1");
        let response = client.send_request(request.body(TestBody::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert!(!response.headers().contains_key("sec-websocket-accept"));
        let head = heads.recv().await.unwrap();
        assert!(head.starts_with("GET /chat?room=1 HTTP/1.1\r\n"), "{head}");
        assert_eq!(header(&head, "host"), Some("site.example"));
        assert_eq!(header(&head, "connection"), Some("upgrade"));
        assert_eq!(header(&head, "sec-websocket-protocol"), Some("talk"));
        assert_eq!(header(&head, "cookie"), Some("session=1"));
        assert_eq!(header(&head, "sec-websocket-key").map(str::len), Some(24));
        let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        stream.write_all(&[0x81, 0x81, 1, 2, 3, 4, b'h' ^ 1]).await.unwrap();
        let mut frame = [0; 3];
        stream.read_exact(&mut frame).await.unwrap();
        assert_eq!(frame, [0x81, 1, b'h']);
        // Other requests share the connection meanwhile.
        let page = Request::get("http://site.example/").body(TestBody::empty()).unwrap();
        assert_eq!(client.send_request(page).await.unwrap().status(), StatusCode::OK);
        // Other protocols are rejected.
        let request = Request::builder()
            .method(Method::CONNECT)
            .version(Version::HTTP_2)
            .uri("http://site.example/")
            .extension(Protocol::from_static("connect-udp"));
        let response = client.send_request(request.body(TestBody::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED);
    });
}

#[test]
fn browsers_websocket_works_over_http2() {
    needs!(chromium::installed());
    let folder = tempfile::tempdir().unwrap();
    let files = certificate(folder.path());
    let mut chromium = Chromium::trusting(&files.certificates);
    let (reports, _heads) = mpsc::unbounded_channel();
    let change = |config: &mut Config| {
        config.sites[0].certificate = Some(files);
        config.listen = vec!["https://127.0.0.1:0".parse().unwrap()];
    };
    let proxy = proxy_with(websocket_server(reports), change, None);
    chromium.goto(&format!("https://{}/", proxy.address()));
    let said = chromium.run(
        "new Promise((done, failed) => {
             const socket = new WebSocket('wss://' + location.host + '/chat');
             socket.onopen = () => socket.send('h');
             socket.onmessage = event => done(event.data);
             socket.onerror = () => failed(new Error('no WebSocket'));
         })",
    );
    assert_eq!(said, "h");
    let protocol = "performance.getEntriesByType('navigation')[0].nextHopProtocol";
    assert_eq!(chromium.run(protocol), "h2");
}
