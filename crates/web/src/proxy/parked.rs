//! A connection over HTTP/1 without buffers while its client is idle.
//!
//! hyper keeps 16 kB of buffers for a connection, and the memory of a request in progress. An idle connection is taken
//! out of it, and put into a new one when bytes arrive.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use http::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1::UpgradeableConnection;
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;

use super::drive::Drive;
use super::io::ClientIo;
use super::reply::Reply;
use super::traffic_thread::TrafficThread;

/// A connection of hyper.
type Served<S> = Pin<Box<UpgradeableConnection<TokioIo<ClientIo>, S>>>;

/// A connection over HTTP/1.
pub(super) struct Http1Connection<S: HttpService<Incoming, ResBody = Reply>> {
    thread: Arc<TrafficThread>,
    state: State<S>,
}

#[allow(clippy::large_enum_variant, reason = "a parked connection needs no other allocation")]
enum State<S: HttpService<Incoming, ResBody = Reply>> {
    Served(Served<S>),
    /// In place of the pointer: another allocation would keep one more page of freed memory.
    Parked(ClientIo, S),
    /// Its protocol has changed.
    Gone,
}

impl<S, F> Http1Connection<S>
where
    S: HttpService<Incoming, ResBody = Reply, Error = Infallible, Future = F> + Unpin,
    F: Future<Output = Result<Response<Reply>, Infallible>> + Send + 'static,
{
    pub(super) fn new(thread: &Arc<TrafficThread>, io: ClientIo, service: S) -> Self {
        let state = State::Served(serve(thread, io, service));
        Http1Connection { thread: Arc::clone(thread), state }
    }

    fn is_in_parked_state(&self) -> bool {
        matches!(self.state, State::Parked(..))
    }

    /// The connection in hyper.
    fn resume(&mut self) -> Option<&mut Served<S>> {
        if self.is_in_parked_state()
            && let State::Parked(io, service) = std::mem::replace(&mut self.state, State::Gone)
        {
            self.state = State::Served(serve(&self.thread, io, service));
        }
        match &mut self.state {
            State::Served(served) => Some(served),
            _ => None,
        }
    }
}

fn serve<S>(thread: &TrafficThread, io: ClientIo, service: S) -> Served<S>
where
    S: HttpService<Incoming, ResBody = Reply, Error = Infallible>,
{
    Box::pin(thread.http1.serve_connection(TokioIo::new(io), service).with_upgrades())
}

impl<S, F> Drive for Http1Connection<S>
where
    S: HttpService<Incoming, ResBody = Reply, Error = Infallible, Future = F> + Unpin,
    F: Future<Output = Result<Response<Reply>, Infallible>> + Send + 'static,
{
    fn poll_end(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let State::Parked(io, _) = &mut self.state {
            ready!(io.poll_readable(cx));
        }
        match self.resume() {
            // Errors are the client's, or were returned to the waiting caller.
            Some(served) => served.as_mut().poll(cx).map(|_| ()),
            None => Poll::Ready(()),
        }
    }

    fn close(mut self: Pin<&mut Self>) {
        if let Some(served) = self.resume() {
            served.as_mut().graceful_shutdown();
        }
    }

    fn park(mut self: Pin<&mut Self>) {
        if self.is_parked() {
            return;
        }
        if let State::Served(served) = std::mem::replace(&mut self.state, State::Gone)
            && let Some(parts) = Pin::into_inner(served).into_parts()
        {
            let mut io = parts.io.into_inner();
            io.unread(parts.read_buf);
            self.thread.parked.fetch_add(1, Ordering::Relaxed);
            self.state = State::Parked(io, parts.service);
        }
    }

    fn is_parked(&self) -> bool {
        self.is_in_parked_state()
    }
}
