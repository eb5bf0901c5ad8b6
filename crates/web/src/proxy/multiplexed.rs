//! Connections to a server that speaks HTTP/2: each carries many requests at a time.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use tokio::time::{Sleep, sleep};

use super::error::Failure;
use super::link::{failure_of, goes_on};
use super::request_body::{RequestBody, Upload};

/// Requests of a connection at a time: what servers allow at least (RFC 9113 §6.5.2).
const MAX_STREAMS: usize = 100;

/// A connection.
struct Shared {
    sender: SendRequest<RequestBody>,
    in_service: AtomicUsize,
    idle_since: Mutex<Instant>,
}

impl Shared {
    fn idle_since(&self) -> MutexGuard<'_, Instant> {
        self.idle_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections of one thread to one server.
pub(crate) struct MultiplexedPool {
    connections: Mutex<Vec<Arc<Shared>>>,
    timeout: Duration,
}

impl MultiplexedPool {
    /// Connections are closed when they were idle for `timeout`.
    pub(crate) fn new(timeout: Duration) -> Self {
        MultiplexedPool { connections: Mutex::default(), timeout }
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Arc<Shared>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place on an open connection, if one has room.
    pub(crate) fn take(&self) -> Option<StreamSlot> {
        let mut connections = self.connections();
        connections.retain(|one| !one.sender.is_closed());
        let has_room = |one: &&Arc<Shared>| one.in_service.load(Ordering::Relaxed) < MAX_STREAMS;
        connections.iter().find(has_room).map(|one| StreamSlot::on(one, false))
    }

    /// A place on a new connection.
    pub(crate) fn add(&self, sender: SendRequest<RequestBody>) -> StreamSlot {
        let idle_since = Mutex::new(Instant::now());
        let shared = Arc::new(Shared { sender, in_service: AtomicUsize::new(0), idle_since });
        let slot = StreamSlot::on(&shared, true);
        self.connections().push(shared);
        slot
    }

    /// Closes connections that have been idle for too long: that is when their last sender is dropped.
    pub(crate) fn sweep(&self, now: Instant) {
        self.connections().retain(|one| {
            let is_busy = one.in_service.load(Ordering::Relaxed) > 0;
            is_busy || now.saturating_duration_since(*one.idle_since()) < self.timeout
        });
    }

    /// Closes all connections as soon as they are idle.
    pub(crate) fn clear(&self) {
        self.connections().clear();
    }
}

/// A request's place on a connection.
pub(crate) struct StreamSlot {
    shared: Arc<Shared>,
    /// Whether it is the first one there.
    pub(crate) is_fresh: bool,
    /// For the next piece of a response.
    timer: Pin<Box<Sleep>>,
}

/// A request that got no response.
pub(crate) struct NotAnswered {
    pub(crate) failure: Failure,
    /// The request, if the server has not processed it.
    pub(crate) unsent: Option<Box<Request<RequestBody>>>,
}

impl StreamSlot {
    fn on(shared: &Arc<Shared>, is_fresh: bool) -> Self {
        shared.in_service.fetch_add(1, Ordering::Relaxed);
        let timer = Box::pin(sleep(Duration::ZERO));
        StreamSlot { shared: Arc::clone(shared), is_fresh, timer }
    }

    /// Sends a request, and waits for the head of its response. Dropping this resets the stream.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<RequestBody>,
        upload: Option<&Arc<Upload>>,
        patience: Duration,
    ) -> Result<Response<Incoming>, NotAnswered> {
        if let Some(upload) = upload {
            upload.open();
        }
        let mut sender = self.shared.sender.clone();
        let mut response = pin!(sender.try_send_request(request));
        let mut sent = 0;
        loop {
            self.timer.as_mut().reset((Instant::now() + patience).into());
            tokio::select! {
                biased;
                response = &mut response => return response.map_err(|mut error| NotAnswered {
                    unsent: error.take_message().map(Box::new),
                    failure: failure_of(error.error()),
                }),
                () = &mut self.timer => {
                    if !upload.is_some_and(|upload| goes_on(upload, &mut sent)) {
                        return Err(NotAnswered { failure: Failure::HeadTimeout, unsent: None });
                    }
                }
            }
        }
    }

    /// Sets the end of the wait.
    pub(crate) fn wait_until(&mut self, deadline: Instant) {
        self.timer.as_mut().reset(deadline.into());
    }

    /// Ready when that has come.
    pub(crate) fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(cx)
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        *self.shared.idle_since() = Instant::now();
        self.shared.in_service.fetch_sub(1, Ordering::Relaxed);
    }
}
