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

enum State<S: HttpService<Incoming, ResBody = Reply>> {
    Served(Served<S>),
    Parked(Box<(ClientIo, S)>),
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

    /// The connection in hyper.
    fn resume(&mut self) -> Option<&mut Served<S>> {
        if let State::Parked(_) = self.state
            && let State::Parked(parked) = std::mem::replace(&mut self.state, State::Gone)
        {
            let (io, service) = *parked;
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
        if let State::Parked(parked) = &mut self.state {
            ready!(parked.0.poll_readable(cx));
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
            self.state = State::Parked(Box::new((io, parts.service)));
        }
    }

    fn is_parked(&self) -> bool {
        matches!(self.state, State::Parked(_))
    }
}
