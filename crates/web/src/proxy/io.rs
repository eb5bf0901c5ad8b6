//! The bytes of both sides: counted, and on the client's side sent in the requested class.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lull_transport::{Guard, Options, TcpInfo};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, sleep};
use tokio_rustls::{client, server};

use super::connection::{Connection, TrafficClass};
use super::event::{Event, Listener};
use super::target_escape::TargetEscape;

/// Polls the inner stream of either kind.
macro_rules! each {
    ($stream:expr, $kind:ident, $inner:ident => $what:expr) => {
        match $stream {
            $kind::Plain($inner) => $what,
            $kind::Tls($inner) => $what,
        }
    };
}

/// A client's stream.
#[derive(Debug)]
pub(crate) enum ClientStream {
    Plain(TcpStream),
    Tls(Box<server::TlsStream<TcpStream>>),
}

/// Moves connections into the background.
#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) options: Options,
    pub(crate) listener: Listener,
    /// So that the operator gets one report.
    pub(crate) told: std::sync::atomic::AtomicBool,
}

/// A client's stream with its connection.
pub(crate) struct ClientIo {
    stream: ClientStream,
    connection: Arc<Connection>,
    switch: Arc<Switch>,
    class: TrafficClass,
    guard: Option<Guard>,
    /// Whether the client was informed that nothing more comes.
    is_shut: bool,
    is_h2: bool,
    linger: Option<Linger>,
    escape: TargetEscape,
    /// Bytes that were read and did not fit.
    unread: Bytes,
}

/// The rest of a request that was answered before its end is discarded for a while. After an immediate close
/// the kernel answers later bytes with a reset, and the client may lose the answer (RFC 9112 §9.6).
struct Linger {
    /// The end, if there are no more bytes.
    pause: Pin<Box<Sleep>>,
    /// The end in any case.
    until: Instant,
}

/// Longest pause without a byte, and longest time in total.
const LINGER_PAUSE: Duration = Duration::from_secs(2);
const LINGER: Duration = Duration::from_secs(10);

impl ClientIo {
    pub(crate) fn new(
        stream: ClientStream,
        connection: Arc<Connection>,
        switch: Arc<Switch>,
        is_h2: bool,
    ) -> Self {
        ClientIo {
            stream,
            connection,
            switch,
            class: TrafficClass::Demand,
            guard: None,
            is_shut: false,
            is_h2,
            linger: None,
            escape: TargetEscape::default(),
            unread: Bytes::new(),
        }
    }

    fn tcp(&self) -> &TcpStream {
        match &self.stream {
            ClientStream::Plain(tcp) => tcp,
            ClientStream::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Moves to the requested class, and makes the requested checks. Called by each poll, because only the
    /// owner of the socket may touch it.
    fn follow(&mut self, cx: &Context<'_>) {
        if [self.class, self.connection.wanted()].contains(&TrafficClass::Background) {
            // Before the check that counts: a later request for another class finds a waker.
            self.connection.set_owner(cx.waker());
        }
        if self.connection.is_acked_count_requested()
            && let Ok(info) = TcpInfo::of(self.tcp())
        {
            self.connection.set_acked(info.acked_bytes);
        }
        let wanted = self.connection.wanted();
        if wanted == self.class {
            return;
        }
        self.class = wanted;
        let result = match (wanted, self.guard.take()) {
            (TrafficClass::Background, _) => self.switch.options.guard(self.tcp()).map(Some),
            (TrafficClass::Demand, Some(guard)) => guard.into_foreground(self.tcp()).map(|()| None),
            (TrafficClass::Demand, None) => Ok(None),
        };
        match result {
            Ok(guard) => {
                self.connection.set_carrier(guard.as_ref().map(Guard::carrier));
                self.guard = guard;
                if wanted == TrafficClass::Demand {
                    // The option is set already. Setting it again sends at once the bytes that the kernel was
                    // still holding back for pacing.
                    let _ = self.tcp().set_nodelay(true);
                }
            }
            Err(error) => {
                self.connection.set_stuck();
                if !self.switch.told.swap(true, Ordering::Relaxed) {
                    self.switch.listener.report(&Event::NotSwitched { why: error.to_string() });
                }
            }
        }
    }

    /// Ready when there is something to read. Only while all read bytes were taken from TLS.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.follow(cx);
        if !self.unread.is_empty() {
            return Poll::Ready(());
        }
        // A failure is found by reading.
        self.tcp().poll_read_ready(cx).map(|_| ())
    }

    /// Puts back bytes that were read.
    pub(crate) fn unread(&mut self, bytes: Bytes) {
        if self.unread.is_empty() {
            self.unread = bytes;
        } else if !bytes.is_empty() {
            self.unread = [bytes, std::mem::take(&mut self.unread)].concat().into();
        }
    }

    /// Whether the client may be sending bytes that are not read. Either a body was answered before its end,
    /// or hyper has rejected a head by itself, and has read more than the answered requests. Streams of
    /// HTTP/2 are reset separately.
    fn may_still_send(&self) -> bool {
        let connection = &*self.connection;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let is_http1 = !self.is_h2 && !connection.is_tunnel.load(Ordering::Relaxed);
        let is_refused = of(&connection.read) > of(&connection.read_by_then);
        is_http1 && (is_refused || connection.left_unread.load(Ordering::Relaxed))
    }

    /// Reads and discards bytes, until the client ends too.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let linger = self.linger.get_or_insert_with(|| Linger {
            pause: Box::pin(sleep(LINGER_PAUSE)),
            until: now + LINGER,
        });
        let tcp = match &self.stream {
            ClientStream::Plain(tcp) => tcp,
            ClientStream::Tls(tls) => tls.get_ref().0,
        };
        let mut dropped = [0; 16 * 1024];
        while tcp.poll_read_ready(cx).is_ready() {
            match tcp.try_read(&mut dropped) {
                // Not counted as read: otherwise `client_timeouts` would see a head that arrives byte by byte.
                Ok(count) if count > 0 => {
                    let next = (Instant::now() + LINGER_PAUSE).min(linger.until);
                    linger.pause.as_mut().reset(next.into());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It has ended, or disconnected.
                _ => return Poll::Ready(()),
            }
            if Instant::now() >= linger.until {
                return Poll::Ready(());
            }
        }
        linger.pause.as_mut().poll(cx)
    }

    /// Escapes invalid URL characters in the bytes that were read from `before` on.
    fn escape(&mut self, before: usize, buffer: &mut ReadBuf<'_>) {
        let handled = self.connection.bodiless.load(Ordering::Relaxed);
        let is_simple = !self.connection.has_had_body.load(Ordering::Relaxed);
        let read = self.escape.take(&buffer.filled()[before..], handled, is_simple);
        if let Some(read) = read {
            buffer.set_filled(before);
            let (now, later) = read.split_at(read.len().min(buffer.remaining()));
            buffer.put_slice(now);
            self.unread = Bytes::copy_from_slice(later);
        }
    }

    fn wrote(&self, result: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = result {
            self.connection.written.fetch_add(*count as u64, Ordering::Relaxed);
        }
        self.note_blocked(result.is_pending());
    }

    fn note_blocked(&self, is_blocked: bool) {
        if self.connection.write_blocked.load(Ordering::Relaxed) != is_blocked {
            self.connection.write_blocked.store(is_blocked, Ordering::Relaxed);
        }
    }
}

impl Drop for ClientIo {
    fn drop(&mut self) {
        if self.connection.reset.load(Ordering::Relaxed) {
            let _ = SockRef::from(self.tcp()).set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.follow(cx);
        if !self.unread.is_empty() {
            let count = self.unread.len().min(buffer.remaining());
            buffer.put_slice(&self.unread.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let ClientIo { stream, connection, .. } = &mut *self;
        ready!(counted(
            &connection.read,
            buffer,
            |buffer| each!(stream, ClientStream, inner => Pin::new(inner).poll_read(cx, buffer)),
        ))?;
        if !self.is_h2 {
            self.escape(before, buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.follow(cx);
        let result =
            each!(&mut self.stream, ClientStream, inner => Pin::new(inner).poll_write(cx, bytes));
        self.wrote(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.follow(cx);
        let result = each!(&mut self.stream, ClientStream, inner => {
            Pin::new(inner).poll_write_vectored(cx, slices)
        });
        self.wrote(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        each!(&self.stream, ClientStream, inner => inner.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.follow(cx);
        // Plain TCP has nothing to flush. TLS may have records that have not left so far.
        if let ClientStream::Tls(tls) = &mut self.stream {
            let result = Pin::new(tls).poll_flush(cx);
            self.note_blocked(result.is_pending());
            return result;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.is_shut.store(true, Ordering::Relaxed);
        if self.connection.reset.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        if !self.is_shut {
            ready!(
                each!(&mut self.stream, ClientStream, inner => Pin::new(inner).poll_shutdown(cx))
            )?;
            self.is_shut = true;
        }
        if self.linger.is_some() || self.may_still_send() {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads into `buffer`, and adds up the bytes.
fn counted(
    total: &AtomicU64,
    buffer: &mut ReadBuf<'_>,
    read: impl FnOnce(&mut ReadBuf<'_>) -> Poll<io::Result<()>>,
) -> Poll<io::Result<()>> {
    let before = buffer.filled().len();
    let result = read(buffer);
    let count = buffer.filled().len() - before;
    if count > 0 {
        total.fetch_add(count as u64, Ordering::Relaxed);
    }
    result
}

/// A stream to the upstream, which counts the received bytes.
pub(crate) struct UpstreamIo {
    pub(crate) stream: UpstreamStream,
    pub(crate) read: Arc<AtomicU64>,
}

pub(crate) enum UpstreamStream {
    Plain(TcpStream),
    Tls(Box<client::TlsStream<TcpStream>>),
    Unix(UnixStream),
}

macro_rules! upstream {
    ($stream:expr, $inner:ident => $what:expr) => {
        match $stream {
            UpstreamStream::Plain($inner) => $what,
            UpstreamStream::Tls($inner) => $what,
            UpstreamStream::Unix($inner) => $what,
        }
    };
}

impl AsyncRead for UpstreamIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let UpstreamIo { stream, read } = &mut *self;
        counted(
            read,
            buffer,
            |buffer| upstream!(stream, inner => Pin::new(inner).poll_read(cx, buffer)),
        )
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        upstream!(&mut self.stream, inner => Pin::new(inner).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        upstream!(&mut self.stream, inner => Pin::new(inner).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        upstream!(&self.stream, inner => inner.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        upstream!(&mut self.stream, inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        upstream!(&mut self.stream, inner => Pin::new(inner).poll_shutdown(cx))
    }
}
