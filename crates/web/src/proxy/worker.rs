//! A thread that carries traffic: its connections, from their first byte to their last.
//!
//! Each thread has its own runtime, pool and counters, so that a request touches no data that another thread
//! writes.

use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{interval, sleep, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::connection::Connection;
use super::drive::IDLE_DRAIN_TIMEOUT;
use super::io::{ClientIo, ClientStream};
use super::limits::Permit;
use super::parked::Http1Connection;
use super::service;
use super::thread_counters::Opened;
use super::traffic_thread::{Phase, TrafficThread};

/// A connection that was just accepted.
pub(crate) struct Arrival {
    pub(crate) stream: StdTcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Whether it stays in the background.
    pub(crate) background: bool,
    pub(crate) opened: Opened,
    pub(crate) permit: Permit,
}

/// TCP keep-alive of clients: detects clients that disappeared silently, for example at the other end of a
/// WebSocket, within two minutes.
const TCP_KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const TCP_KEEPALIVE_PROBES: u32 = 4;

/// Free memory is returned to the system after so many connections have become idle, and not more often.
const RELEASE_AFTER: u32 = 256;
const RELEASE_INTERVAL: Duration = Duration::from_secs(5);

/// The interval of checks while draining.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(20);

impl TrafficThread {
    /// Serves arriving connections, until the end.
    pub(crate) async fn run(
        self: Arc<Self>,
        mut arrivals: mpsc::UnboundedReceiver<Arrival>,
        mut phase: watch::Receiver<Phase>,
    ) {
        let mut sweep = interval(
            self.config
                .timeouts
                .upstream_idle
                .clamp(Duration::from_millis(100), Duration::from_secs(1)),
        );
        let mut released = Instant::now();
        let mut is_draining = false;
        loop {
            tokio::select! {
                Some(arrival) = arrivals.recv() => {
                    tokio::spawn(Arc::clone(&self).serve(arrival));
                }
                _ = sweep.tick() => {
                    let now = Instant::now();
                    self.serving.get().upstreams.iter().for_each(|upstream| upstream.sweep(now));
                    let is_due = now.duration_since(released) >= RELEASE_INTERVAL;
                    if is_due && self.parked.load(Ordering::Relaxed) >= RELEASE_AFTER {
                        released = now;
                        self.parked.store(0, Ordering::Relaxed);
                        lull_transport::release_free_memory();
                    }
                }
                changed = phase.changed() => match *phase.borrow_and_update() {
                    Phase::Running if changed.is_ok() => {}
                    Phase::Draining if changed.is_ok() => {
                        is_draining = true;
                        self.is_draining.store(true, Ordering::Relaxed);
                        self.drain.notify_waiters();
                        self.serving.get().upstreams.iter().for_each(|upstream| upstream.clear());
                    }
                    _ => return,
                },
                () = sleep(DRAIN_CHECK_INTERVAL), if is_draining => {
                    if self.counters.open_connections() == 0 && arrivals.is_empty() {
                        return;
                    }
                }
            }
        }
    }

    async fn serve(self: Arc<Self>, arrival: Arrival) {
        let Arrival { stream, peer, tls, background, opened, permit } = arrival;
        let Ok(local) = stream.local_addr() else { return };
        let socket = SockRef::from(&stream);
        // Without either, the connection is slower or stays longer, but works.
        let _ = socket.set_tcp_nodelay(true);
        let _ = socket.set_tcp_keepalive(
            &TcpKeepalive::new()
                .with_time(TCP_KEEPALIVE_IDLE)
                .with_interval(TCP_KEEPALIVE_INTERVAL)
                .with_retries(TCP_KEEPALIVE_PROBES),
        );
        let Ok(tcp) = TcpStream::from_std(stream) else { return };
        let connection = Connection::new(peer, local, tls.is_some(), opened, permit);
        let connection =
            Arc::new(if background { connection.always_in_background() } else { connection });
        let patience = self.config.timeouts.client_head;
        let (stream, is_h2) = match tls {
            Some(acceptor) => {
                let deadline = tokio::time::Instant::now() + patience;
                let begins = timeout_at(deadline, tcp.readable());
                let Some(Ok(Ok(()))) = self.until_drain(begins).await else { return };
                // In memory of its own, so that the task of each connection has no room for a handshake.
                let accept = Box::pin(acceptor.accept(tcp));
                let accepted = timeout_at(deadline, accept).await;
                let Ok(Ok(stream)) = accepted else { return };
                let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                (ClientStream::Tls(Box::new(stream)), is_h2)
            }
            None => {
                let Some(is_h2) = self.speaks_h2(&tcp).await else { return };
                (ClientStream::Plain(tcp), is_h2)
            }
        };
        let switch = Arc::clone(&self.switch);
        let io = ClientIo::new(stream, Arc::clone(&connection), switch, is_h2);
        let (worker, of) = (Arc::clone(&self), Arc::clone(&connection));
        let service = service_fn(move |request: Request<Incoming>| {
            service::handle(Arc::clone(&worker), Arc::clone(&of), request)
        });
        if is_h2 {
            // Likewise: the state of HTTP/2 is ten times as large as that of an idle connection over HTTP/1.
            let served = Box::pin(self.http2.serve_connection(TokioIo::new(io), service));
            Box::pin(self.drive(served, &connection, true)).await;
        } else {
            let served = Http1Connection::new(&self, io, service);
            self.drive(served, &connection, false).await;
        }
    }

    /// Whether a client without TLS begins with HTTP/2 (RFC 9113 §3.3, prior knowledge). `None` if it sends
    /// nothing for the idle timeout of a connection, or for [`IDLE_DRAIN_TIMEOUT`] when the proxy drains.
    async fn speaks_h2(&self, tcp: &TcpStream) -> Option<bool> {
        const PREFACE: &[u8] = b"PRI ";
        let begin = async {
            let mut start = [0; PREFACE.len()];
            let mut since = None;
            loop {
                let count = tcp.peek(&mut start).await.ok().filter(|&count| count > 0)?;
                if start[..count] != PREFACE[..count] {
                    return Some(false);
                }
                if count == PREFACE.len() {
                    return Some(true);
                }
                // A method with the same beginning, in a packet that ends within it: the socket stays
                // readable.
                let since = *since.get_or_insert_with(Instant::now);
                if since.elapsed() >= self.config.timeouts.client_head {
                    return None;
                }
                sleep(DRAIN_CHECK_INTERVAL).await;
            }
        };
        self.until_drain(timeout(self.config.timeouts.client_idle, begin)).await?.ok()?
    }

    /// Waits for a client to begin, for at most [`IDLE_DRAIN_TIMEOUT`] when the proxy ends.
    async fn until_drain<T>(&self, begin: impl Future<Output = T>) -> Option<T> {
        let mut begin = pin!(begin);
        let mut drain = pin!(self.drain.notified());
        drain.as_mut().enable();
        if !self.is_draining.load(Ordering::Relaxed) {
            tokio::select! {
                biased;
                begun = &mut begin => return Some(begun),
                () = drain => {}
            }
        }
        timeout(IDLE_DRAIN_TIMEOUT, begin).await.ok()
    }
}
