//! A thread that carries traffic: its connections, from their first byte to their last.
//!
//! Each thread has its own runtime, pool and counters, so that a request touches no data that another thread
//! writes.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{interval, sleep, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::connection::Connection;
use super::io::{ClientIo, ClientStream};
use super::limits::Permit;
use super::metrics::Opened;
use super::reply::Reply;
use super::service;
use super::streams::{Patience, Tasks};
use super::traffic_thread::{Phase, TrafficThread};
use super::watch::{Verdict, Watch};

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

/// How long an idle connection is kept when the drain begins: a request may be in flight, above all from a
/// client that has just connected.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// HTTP/2 announces the end and waits for an acknowledgement (RFC 9113 §6.8). A suspended client never sends
/// it, and behind the queued bytes of a background connection it is late.
const GOODBYE: Duration = Duration::from_secs(1);
/// The interval of checks while draining.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

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
        let mut is_draining = false;
        loop {
            tokio::select! {
                Some(arrival) = arrivals.recv() => {
                    tokio::spawn(Arc::clone(&self).serve(arrival));
                }
                _ = sweep.tick() => {
                    let now = Instant::now();
                    self.upstreams.iter().for_each(|upstream| upstream.sweep(now));
                }
                changed = phase.changed() => match *phase.borrow_and_update() {
                    Phase::Running if changed.is_ok() => {}
                    Phase::Draining if changed.is_ok() => {
                        is_draining = true;
                        self.is_draining.store(true, Ordering::Relaxed);
                        self.drain.notify_waiters();
                        self.upstreams.iter().for_each(|upstream| upstream.clear());
                    }
                    _ => return,
                },
                () = sleep(DRAIN_LOOK), if is_draining => {
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
                let Some(Ok(Ok(()))) = self.unless_it_ends(begins).await else { return };
                let accepted = timeout_at(deadline, acceptor.accept(tcp)).await;
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
        let io = TokioIo::new(io);
        let (worker, of) = (Arc::clone(&self), Arc::clone(&connection));
        let service = service_fn(move |request: Request<Incoming>| {
            service::handle(Arc::clone(&worker), Arc::clone(&of), request)
        });
        if is_h2 {
            self.drive(self.http2.serve_connection(io, service), &connection, true).await;
        } else {
            let served = self.http1.serve_connection(io, service).with_upgrades();
            self.drive(served, &connection, false).await;
        }
    }

    /// Whether a client without TLS begins with HTTP/2 (RFC 9113 §3.3, prior knowledge). `None` if it sends
    /// nothing for the idle timeout of a connection, or for [`LAST_WORDS`] when the proxy drains.
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
                sleep(DRAIN_LOOK).await;
            }
        };
        self.unless_it_ends(timeout(self.config.timeouts.client_idle, begin)).await?.ok()?
    }

    /// Waits for a client to begin, for at most [`LAST_WORDS`] when the proxy ends.
    async fn unless_it_ends<T>(&self, begin: impl Future<Output = T>) -> Option<T> {
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
        timeout(LAST_WORDS, begin).await.ok()
    }

    /// Drives a connection to its end, which is early if its client holds it up or the proxy ends.
    async fn drive<C: Drive>(&self, served: C, connection: &Connection, is_h2: bool) {
        let mut served = pin!(served);
        let (timeouts, limits) = (&self.config.timeouts, &self.config.limits);
        let mut watch = Watch::new(timeouts, limits, is_h2, Instant::now());
        let patience = Patience::new(timeouts, limits);
        let every = watch.interval();
        let mut look = pin!(sleep(every));
        let mut drain = pin!(self.drain.notified());
        let mut is_closing = false;
        let mut is_armed = false;
        let mut draining_since = None;
        // Since when nothing has left or was acknowledged, and the counts at that time.
        let mut silent = None;
        // The timer and the notice of the end are polled only after a change: most polls are for a request.
        poll_fn(|cx| {
            if connection.streams.takes_back_too_much(limits.h2_streams) {
                return Poll::Ready(());
            }
            if !is_armed {
                is_armed = true;
                drain.as_mut().enable();
                let _ = drain.as_mut().poll(cx);
                let _ = look.as_mut().poll(cx);
            }
            if !is_closing && self.is_draining.load(Ordering::Relaxed) {
                // A request that has already arrived must not be lost.
                if served.as_mut().poll_end(cx).is_ready() {
                    return Poll::Ready(());
                }
                let since = *draining_since.get_or_insert_with(Instant::now);
                // HTTP/2 accepts requests until its client knows of the end.
                let is_busy = is_h2 || connection.under_way.load(Ordering::Relaxed) > 0;
                if is_busy || since.elapsed() >= LAST_WORDS {
                    is_closing = true;
                    served.as_mut().close();
                    if is_h2 {
                        connection.look_at_acked();
                        look.as_mut().reset((since + GOODBYE).into());
                        let _ = look.as_mut().poll(cx);
                    }
                } else {
                    look.as_mut().reset((since + LAST_WORDS).into());
                    let _ = look.as_mut().poll(cx);
                }
            }
            while look.is_elapsed() {
                let (now, seen) = (Instant::now(), connection.snapshot());
                if seen.write_blocked || seen.has_unacked() {
                    connection.look_at_acked();
                }
                let verdict = watch.look(now, seen);
                if is_h2 {
                    let streams = &connection.streams;
                    streams.look(now, seen.write_blocked, watch.taken(), &patience);
                    streams.passed(every);
                }
                // If a connection with an announced end is idle, and its kernel has all bytes, the client is
                // suspended. Otherwise the kernel may be unreachable for a while.
                if is_h2 && is_closing && draining_since.is_some() {
                    connection.look_at_acked();
                    // Which looks.
                    if served.as_mut().poll_end(cx).is_ready() {
                        return Poll::Ready(());
                    }
                    let seen = connection.snapshot();
                    let had = (seen.left, seen.acked);
                    let (since, before) = *silent.get_or_insert((now, had));
                    let is_left = seen.under_way > 0 || connection.streams.are_waiting();
                    let is_all_taken = watch.is_all_taken(seen);
                    let stalled = timeouts.client_stalled.max(GOODBYE);
                    let patience = if is_all_taken { GOODBYE } else { stalled };
                    if is_left || before != had {
                        silent = Some((now, had));
                    } else if now.duration_since(since) >= patience {
                        return Poll::Ready(());
                    }
                }
                match verdict {
                    Verdict::Keep => {}
                    Verdict::Close if is_closing => return Poll::Ready(()),
                    Verdict::Close => {
                        is_closing = true;
                        served.as_mut().close();
                    }
                    Verdict::Cut => return Poll::Ready(()),
                }
                let next = if draining_since.is_some() { every.min(GOODBYE) } else { every };
                look.as_mut().reset(tokio::time::Instant::now() + next);
                let _ = look.as_mut().poll(cx);
            }
            served.as_mut().poll_end(cx)
        })
        .await;
    }
}

/// A connection that is served, of any version.
trait Drive {
    /// Ready when it has ended.
    fn poll_end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()>;
    /// Ends it as soon as it is idle.
    fn close(self: Pin<&mut Self>);
}

macro_rules! drive {
    ($connection:ty) => {
        impl<S, F> Drive for $connection
        where
            S: hyper::service::HttpService<
                    Incoming,
                    ResBody = Reply,
                    Error = Infallible,
                    Future = F,
                >,
            F: Future<Output = Result<Response<Reply>, Infallible>> + Send + 'static,
        {
            fn poll_end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
                // Errors are the client's, or were returned to the waiting caller.
                self.poll(cx).map(|_| ())
            }

            fn close(self: Pin<&mut Self>) {
                self.graceful_shutdown();
            }
        }
    };
}

drive!(http1::UpgradeableConnection<TokioIo<ClientIo>, S>);
drive!(http2::Connection<TokioIo<ClientIo>, S, Tasks>);
