//! Drives a client's connection to its end, which is early if its client holds it up or the proxy ends.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Response;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use tokio::time::{Sleep, sleep};

use super::client_timeouts::{ClientTimeouts, Verdict};
use super::connection::{Connection, Snapshot};
use super::io::ClientIo;
use super::reply::Reply;
use super::streams::{Patience, Tasks};
use super::traffic_thread::TrafficThread;

/// How long an idle connection is kept when the drain begins: a request may be in flight, above all from a
/// client that has just connected.
pub(super) const IDLE_DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// The interval of checks of a connection that may become idle: then its buffers are freed.
const PARK_CHECK: Duration = Duration::from_millis(500);
/// HTTP/2 announces the end and waits for an acknowledgement (RFC 9113 §6.8). A suspended client never sends
/// it, and behind the queued bytes of a background connection it is late.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1);

impl TrafficThread {
    /// Drives a connection to its end.
    pub(super) async fn drive<C: Drive>(&self, served: C, connection: &Connection, is_h2: bool) {
        let (timeouts, limits) = (&self.config.timeouts, &self.config.limits);
        let client_timeouts = ClientTimeouts::new(timeouts, limits, is_h2, Instant::now());
        let every = client_timeouts.interval();
        let mut drain = pin!(self.drain.notified());
        let mut driven = Driven {
            thread: self,
            connection,
            is_h2,
            served: pin!(served),
            check_timer: pin!(sleep(every.min(PARK_CHECK))),
            client_timeouts,
            patience: Patience::new(timeouts, limits),
            every,
            is_closing: false,
            draining_since: None,
            silent: None,
            before: Snapshot::default(),
        };
        let mut is_armed = false;
        // The timer and the notice of the end are polled only after a change: most polls are for a request.
        poll_fn(|cx| {
            if connection.streams.resets_too_often(limits.h2_streams) {
                return Poll::Ready(());
            }
            if !is_armed {
                is_armed = true;
                drain.as_mut().enable();
                let _ = drain.as_mut().poll(cx);
                let _ = driven.check_timer.as_mut().poll(cx);
            }
            driven.poll(cx)
        })
        .await;
    }
}

/// A connection while it is driven.
struct Driven<'a, C> {
    thread: &'a TrafficThread,
    connection: &'a Connection,
    is_h2: bool,
    served: Pin<&'a mut C>,
    /// Until the next check of the client.
    check_timer: Pin<&'a mut Sleep>,
    client_timeouts: ClientTimeouts,
    patience: Patience,
    every: Duration,
    is_closing: bool,
    draining_since: Option<Instant>,
    /// Since when nothing has left or was acknowledged, and the counts at that time.
    silent: Option<(Instant, (u64, Option<u64>))>,
    /// At the last check.
    before: Snapshot,
}

impl<C: Drive> Driven<'_, C> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_draining = self.thread.is_draining.load(Ordering::Relaxed);
        if !self.is_closing && is_draining && self.drain(cx).is_ready() {
            return Poll::Ready(());
        }
        while self.check_timer.is_elapsed() {
            if self.check_client(cx).is_ready() {
                return Poll::Ready(());
            }
            let next = if self.draining_since.is_some() {
                self.every.min(GOAWAY_TIMEOUT)
            } else if self.served.is_parked() {
                self.every
            } else {
                self.every.min(PARK_CHECK)
            };
            self.schedule_check(Instant::now() + next, cx);
        }
        self.served.as_mut().poll_end(cx)
    }

    fn schedule_check(&mut self, at: Instant, cx: &mut Context<'_>) {
        self.check_timer.as_mut().reset(at.into());
        let _ = self.check_timer.as_mut().poll(cx);
    }

    /// Announces the end of the connection, once no request can be in flight.
    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A request that has already arrived must not be lost.
        if self.served.as_mut().poll_end(cx).is_ready() {
            return Poll::Ready(());
        }
        let since = *self.draining_since.get_or_insert_with(Instant::now);
        // HTTP/2 accepts requests until its client knows of the end.
        let is_busy = self.is_h2 || self.connection.under_way.load(Ordering::Relaxed) > 0;
        if !is_busy && since.elapsed() < IDLE_DRAIN_TIMEOUT {
            self.schedule_check(since + IDLE_DRAIN_TIMEOUT, cx);
            return Poll::Pending;
        }
        self.is_closing = true;
        self.served.as_mut().close();
        if self.is_h2 {
            self.connection.request_acked_count();
            self.schedule_check(since + GOAWAY_TIMEOUT, cx);
        }
        Poll::Pending
    }

    /// Checks what has happened since the last check. Ready if the connection must end.
    fn check_client(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (now, seen) = (Instant::now(), self.connection.snapshot());
        if seen.write_blocked || seen.has_unacked() {
            self.connection.request_acked_count();
        }
        let idle = self.thread.gate.idle_timeout(self.client_timeouts.idle());
        let verdict = self.client_timeouts.check(now, seen, idle);
        if self.is_h2 {
            let streams = &self.connection.streams;
            streams.end_stalled(
                now,
                seen.write_blocked,
                self.client_timeouts.taken(),
                &self.patience,
            );
            streams.passed(self.every);
            let is_announced = self.is_closing && self.draining_since.is_some();
            if is_announced && self.check_after_goodbye(now, cx).is_ready() {
                return Poll::Ready(());
            }
        }
        match verdict {
            Verdict::Keep if self.is_at_rest(seen) => self.served.as_mut().park(),
            Verdict::Keep => {}
            Verdict::Close if self.is_closing => return Poll::Ready(()),
            Verdict::Close => {
                self.is_closing = true;
                self.served.as_mut().close();
            }
            Verdict::Cut => return Poll::Ready(()),
        }
        Poll::Pending
    }

    /// If a connection with an announced end is idle, and its kernel has all bytes, the client is suspended.
    /// Otherwise the kernel may be unreachable for a while.
    fn check_after_goodbye(&mut self, now: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.request_acked_count();
        // Which looks.
        if self.served.as_mut().poll_end(cx).is_ready() {
            return Poll::Ready(());
        }
        let seen = self.connection.snapshot();
        let had = (seen.left, seen.acked);
        let (since, before) = *self.silent.get_or_insert((now, had));
        if self.is_left(seen) || before != had {
            self.silent = Some((now, had));
            return Poll::Pending;
        }
        let stalled = self.thread.config.timeouts.client_stalled.max(GOAWAY_TIMEOUT);
        let patience =
            if self.client_timeouts.is_all_taken(seen) { GOAWAY_TIMEOUT } else { stalled };
        if now.duration_since(since) >= patience { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether nothing of a request or a response is in the buffers: not in those of a client that may still send the
    /// rest of a body.
    fn is_at_rest(&mut self, seen: Snapshot) -> bool {
        let before = std::mem::replace(&mut self.before, seen);
        let of = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let connection = self.connection;
        let is_busy = seen.under_way > 0 || seen.write_blocked || seen.read != before.read;
        let is_ending = self.is_closing || of(&connection.is_shut) || of(&connection.is_tunnel);
        !is_busy && !is_ending && !of(&connection.has_had_body)
    }

    fn is_left(&self, seen: Snapshot) -> bool {
        seen.under_way > 0 || self.connection.streams.are_waiting()
    }
}

/// A connection that is served, of any version.
pub(super) trait Drive {
    /// Ready when it has ended.
    fn poll_end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()>;
    /// Ends it as soon as it is idle.
    fn close(self: Pin<&mut Self>);
    /// Frees its buffers, if it can: it is idle, and nothing of a request or a response is in them.
    fn park(self: Pin<&mut Self>) {}
    /// Whether it has none.
    fn is_parked(&self) -> bool {
        true
    }
}

impl<S, F> Drive for Pin<Box<http2::Connection<TokioIo<ClientIo>, S, Tasks>>>
where
    S: HttpService<Incoming, ResBody = Reply, Error = Infallible, Future = F>,
    F: Future<Output = Result<Response<Reply>, Infallible>> + Send + 'static,
{
    fn poll_end(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Errors are the client's, or were returned to the waiting caller.
        self.as_mut().get_mut().as_mut().poll(cx).map(|_| ())
    }

    fn close(mut self: Pin<&mut Self>) {
        self.as_mut().get_mut().as_mut().graceful_shutdown();
    }
}
