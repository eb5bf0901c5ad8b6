//! The same over HTTP/2 and over TLS, and for an upgraded connection.

use bytes::Bytes;
use common::{Proxy, certificate};
use http::Request;
use http_body_util::{BodyExt as _, Empty as NoBody};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lull_web::proxy::CertificateFiles;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::*;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A proxy before an upstream that answers at once, except for `/slow`, whose second half comes on request of
/// the test. With TLS, if there is a certificate.
struct Halves {
    proxy: Proxy,
    go_on: Sender<()>,
    certificate: Option<CertificateFiles>,
    _folder: TempDir,
}

impl Halves {
    fn start(secure: bool) -> Self {
        let (go_on, wait) = channel::<()>();
        let wait = Mutex::new(wait);
        let upstream = upstream(move |mut peer| {
            while let Some(head) = peer.head() {
                if head.starts_with("GET /slow ") {
                    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst");
                    wait.lock().unwrap().recv_timeout(common::LIMIT).unwrap();
                    peer.send("later");
                } else {
                    peer.ok("other");
                }
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let certificate = secure.then(|| certificate(folder.path()));
        let change = |config: &mut Config| config.sites[0].certificate.clone_from(&certificate);
        let proxy = proxy_with(upstream, change, None);
        Halves { proxy, go_on, certificate, _folder: folder }
    }

    /// A connection with this protocol.
    async fn connect(&self, protocol: &str) -> TokioIo<Box<dyn Stream>> {
        let tcp = tokio::net::TcpStream::connect(self.proxy.address()).await.unwrap();
        let Some(files) = &self.certificate else {
            let plain: Box<dyn Stream> = Box::new(tcp);
            return TokioIo::new(plain);
        };
        let mut roots = RootCertStore::empty();
        for trusted in CertificateDer::pem_file_iter(&files.certificates).unwrap() {
            roots.add(trusted.unwrap()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![protocol.into()];
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let tls: Box<dyn Stream> = Box::new(connector.connect(name, tcp).await.unwrap());
        TokioIo::new(tls)
    }

    /// After all answers no connection is left to be closed early.
    fn assert_ends(self) {
        wait_until("it does not end", || self.proxy.server.is_drained());
        self.proxy.server.stop();
        assert_eq!(self.proxy.events.lock().unwrap().last(), Some(&Event::Stopped { cut: 0 }));
    }
}

fn get(path: &str) -> Request<NoBody<Bytes>> {
    let uri = format!("http://localhost{path}");
    Request::get(uri).header("host", "localhost").body(NoBody::new()).unwrap()
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(common::LIMIT, future).await.unwrap() });
}

#[test]
fn drain_finishes_http2_streams_and_accepts_no_new_ones() {
    for secure in [false, true] {
        let site = Halves::start(secure);
        block_on(async {
            let stream = site.connect("h2").await;
            let (mut sender, driver) =
                http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            let driver = tokio::spawn(driver);
            let mut slow = sender.send_request(get("/slow")).await.unwrap();
            let first = slow.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(first.into_data().unwrap(), "first");
            site.proxy.server.drain();
            // Until the client has received GOAWAY, its requests are answered.
            while let Ok(answer) = sender.send_request(get("/other")).await {
                assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "other");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(!site.proxy.server.is_drained());
            site.go_on.send(()).unwrap();
            assert_eq!(slow.into_body().collect().await.unwrap().to_bytes(), "later", "{secure}");
            // The proxy closes it, and not in the middle of a message.
            driver.await.unwrap().unwrap();
        });
        site.assert_ends();
    }
}

#[test]
fn sleeping_client_does_not_block_the_drain() {
    // It has begun with HTTP/2, and receives nothing any more; or has not even begun with TLS.
    let http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for (secure, said) in [(false, &http2[..]), (true, b"")] {
        let halves = Halves::start(secure);
        let mut silent = halves.proxy.connect();
        silent.send(said);
        halves.proxy.wait("the connection", |totals| totals.open_connections == 1);
        // Until it is read.
        thread::sleep(Duration::from_millis(200));
        let begun = Instant::now();
        halves.proxy.server.drain();
        wait_until("it does not end", || halves.proxy.server.is_drained());
        // Out of the ten seconds of a handshake, and the half minute in total.
        assert!(begun.elapsed() < Duration::from_secs(9), "{secure}: {:?}", begun.elapsed());
    }
}

#[test]
fn slow_http2_client_gets_the_whole_answer_before_the_drain() {
    takes_all_before_the_end(1 << 20, Duration::ZERO);
}

#[test]
fn paused_http2_client_gets_the_whole_answer_before_the_drain() {
    // Longer than the wait for one that has everything.
    takes_all_before_the_end(200 << 10, Duration::from_millis(3_500));
}

/// Takes an answer of this length slowly, after a pause, while the proxy ends.
#[track_caller]
fn takes_all_before_the_end(length: usize, pause: Duration) {
    let address = upstream(move |mut peer| {
        peer.head().unwrap();
        peer.ok(&"x".repeat(length));
    });
    let proxy = proxy_with(address, |_| {}, None);
    let mut client = proxy.connect();
    socket2::SockRef::from(client.0.get_ref()).set_recv_buffer_size(8 << 10).unwrap();
    // Windows for all of it, and the request: `:method: GET`, `:scheme: http`, `:path: /`, `:authority: a`.
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff");
    client.send(b"\0\0\x04\x08\0\0\0\0\0\x7f\xff\0\0");
    client.send(b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a");
    proxy.wait("the answer", |totals| totals.responses[2] == 1);
    proxy.server.drain();
    thread::sleep(pause);
    let mut taken = 0;
    let begun = Instant::now();
    while taken < length {
        assert!(begun.elapsed() < common::LIMIT, "{taken}");
        let head = client.exactly(9);
        let payload = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        client.exactly(payload);
        if head[3] == 0 {
            taken += payload;
            // Three seconds in total, with single bytes at intervals.
            thread::sleep(Duration::from_millis(45));
            client.send(b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01");
        }
    }
    wait_until("it does not end", || proxy.server.is_drained());
}

#[test]
fn drain_over_tls_answers_requests_in_flight() {
    assert!((0..20).any(|_| ends_over_tls()), "this machine is too busy to tell");
}

/// Whether the request in flight arrived while the proxy was still listening.
fn ends_over_tls() -> bool {
    let site = Halves::start(true);
    let mut was_there = true;
    block_on(async {
        let (mut busy, driver) = http1::handshake(site.connect("http/1.1").await).await.unwrap();
        let (mut fresh, other) = http1::handshake(site.connect("http/1.1").await).await.unwrap();
        let drivers = [tokio::spawn(driver), tokio::spawn(other)];
        let mut slow = busy.send_request(get("/slow")).await.unwrap();
        let first = slow.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "first");
        let begun = Instant::now();
        site.proxy.server.drain();
        let answer = fresh.send_request(get("/other")).await;
        // Of 100 ms.
        if answer.is_err() && begun.elapsed() > Duration::from_millis(50) {
            was_there = false;
            return;
        }
        assert_eq!(answer.unwrap().into_body().collect().await.unwrap().to_bytes(), "other");
        assert!(!site.proxy.server.is_drained());
        site.go_on.send(()).unwrap();
        assert_eq!(slow.into_body().collect().await.unwrap().to_bytes(), "later");
        for driver in drivers {
            driver.await.unwrap().unwrap();
        }
    });
    if was_there {
        site.assert_ends();
    }
    was_there
}

#[test]
fn upgraded_connection_lives_until_the_drain_cuts_it() {
    let proxy = proxy(upstream(|mut peer| {
        peer.head().unwrap();
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        );
        loop {
            let heard = peer.body(5);
            peer.send(heard);
        }
    }));
    let mut client = proxy.connect();
    client
        .send("GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    let address = proxy.address();
    proxy.server.drain();
    wait_until("it still accepts", || TcpStream::connect(address).is_err());
    // Longer than idle connections are kept.
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(150));
        client.send("hello");
        assert_eq!(client.exactly(5), b"hello");
    }
    assert!(!proxy.server.is_drained());
    proxy.server.stop();
    assert!(client.is_closed_within(common::LIMIT));
    assert_eq!(proxy.events.lock().unwrap().last(), Some(&Event::Stopped { cut: 1 }));
}
