//! The upstream's side: sends requests, and receives responses over kept connections.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;

use super::connection::{Connection, Counted};
use super::error::Failure;
use super::link::{Link, failure_of, goes_on};
use super::request_body::{RequestBody, Upload};
use super::scheduler::Place;
use super::upstream_access::{InService, UpstreamAccess};
use super::upstream_group::Tried;
use crate::authentication;

/// A response whose body is still to come, and its connection.
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    pub(crate) link: Box<Link>,
    /// The server that answers.
    pub(crate) service: InService,
    /// When its request was sent on that connection.
    pub(crate) sent: Instant,
}

/// Sends a request over a connection that is kept, or a new one. A request that an idle connection
/// was closed under is sent once more over a new one: if nothing of it had left, or if it may be
/// repeated (RFC 9110 §9.2.2), has no body, and not a byte of an answer had come (RFC 9112 §9.3.1). One that may not be
/// repeated takes a connection that is kept only where the upstream is known not to close it just then. If a server
/// cannot be reached, the next one of its group is tried.
pub(crate) async fn send(
    upstream: &Arc<UpstreamAccess>,
    mut request: Request<RequestBody>,
    upload: Option<&Arc<Upload>>,
    patience: Duration,
) -> Result<Answer, Failure> {
    let may_be_repeated = may_be_repeated(&request);
    let mut tried = Tried::default();
    let mut service = next_server(upstream, tried).ok_or(Failure::Unreachable)?;
    let take = |server| {
        let pool = upstream.pool(server);
        if may_be_repeated { pool.take() } else { pool.take_safe() }
    };
    let mut kept = take(service.server());
    loop {
        let server = service.server();
        let was_kept = kept.is_some();
        let idle = kept.as_ref().map(|link| link.idle_since.elapsed());
        let connector = &upstream.group.servers[server].connector;
        let mut link = match kept.take() {
            Some(link) => link,
            None => match connector.connect(&upstream.counters).await {
                Ok(link) => link,
                Err(failure) => {
                    upstream.group.avoid(server);
                    tried.add(server);
                    service = next_server(upstream, tried).ok_or(failure)?;
                    kept = take(service.server());
                    continue;
                }
            },
        };
        let spare = if was_kept { copy(&request) } else { None };
        link.is_somebodys |= authentication::is_of_the_connection(request.headers());
        let sent = Instant::now();
        let broken = match link.exchange(request, upload, patience).await {
            Ok(response) => {
                idle.into_iter().for_each(|idle| upstream.pool(server).learn(idle, false));
                link.is_somebodys |= authentication::is_of_the_connection(response.headers());
                link.is_old = response.version() == Version::HTTP_10;
                return Ok(Answer { response, link, service, sent });
            }
            Err(broken) => broken,
        };
        if broken.unsent.is_some() || broken.is_untouched {
            idle.into_iter().for_each(|idle| upstream.pool(server).learn(idle, true));
        }
        request = match (broken.unsent, spare) {
            (Some(unsent), _) if was_kept => *unsent,
            (_, Some(spare)) if broken.is_untouched => spare,
            _ => return Err(broken.failure),
        };
        upstream.counters.retries.increment();
    }
}

fn next_server(upstream: &Arc<UpstreamAccess>, tried: Tried) -> Option<InService> {
    let server = upstream.group.choose(tried)?;
    Some(InService::begin(upstream, server))
}

/// The same request, if it may be sent twice.
pub(crate) fn copy(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    may_be_repeated(request).then(|| {
        let mut copy = Request::new(RequestBody::empty());
        *copy.method_mut() = Method::clone(request.method());
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        copy
    })
}

fn may_be_repeated(request: &Request<RequestBody>) -> bool {
    request.method().is_idempotent() && request.body().is_end_stream()
}

/// Whether a response changes the protocol.
pub(crate) fn is_upgrade(response: &Response<Incoming>) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS
}

/// The body of a response, which drives its connection.
pub(crate) struct UpstreamBody {
    incoming: Incoming,
    link: Option<Box<Link>>,
    service: InService,
    connection: Arc<Connection>,
    /// While it waits for the upstream.
    waiting: Option<Counted>,
    /// Until the answer has arrived and the request was sent, independently of the client.
    permit: Option<OwnedSemaphorePermit>,
    /// Its place in the schedule of the upstream, if there is one. Boxed: bodies are stored in other types by
    /// value.
    place: Option<Box<Place>>,
}

impl UpstreamBody {
    pub(crate) fn new(
        incoming: Incoming,
        (link, service): (Box<Link>, InService),
        connection: &Arc<Connection>,
        permit: OwnedSemaphorePermit,
        place: Option<Box<Place>>,
    ) -> Self {
        let mut body = UpstreamBody {
            incoming,
            link: Some(link),
            service,
            connection: Arc::clone(connection),
            waiting: None,
            permit: Some(permit),
            place,
        };
        if body.incoming.is_end_stream() {
            body.settle();
        }
        body
    }

    /// The response has arrived: keeps the connection if it can be reused.
    fn settle(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        if let Some(place) = self.place.take() {
            place.finish();
        }
        if link.is_reusable() {
            self.service.put(link);
        } else if link.is_uploading()
            && let Some(upload) = link.upload.clone()
        {
            let permit = self.permit.take();
            let service = InService::begin(self.service.upstream(), self.service.server());
            let task = tokio::spawn(upload_the_rest(link, service, permit));
            upload.goes_on_in(task.abort_handle());
        }
        self.permit = None;
    }

    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        let Some(link) = &mut self.link else { return Poll::Pending };
        if self.waiting.is_none() {
            self.waiting = Some(Counted::waiting_for_upstream(&self.connection));
            link.wait_until(Instant::now() + self.service.upstream().body_patience);
        }
        link.timer.as_mut().poll(cx).map(|()| Failure::BodyTimeout)
    }
}

/// Continues sending a request that was answered before its end, as long as the client continues. Meanwhile
/// it occupies the upstream's connection, and so one place.
async fn upload_the_rest(
    mut link: Box<Link>,
    service: InService,
    _permit: Option<OwnedSemaphorePermit>,
) {
    let Some(upload) = link.upload.clone() else { return };
    let mut sent = upload.bytes();
    let mut step = std::future::poll_fn(|cx| {
        link.drive(cx);
        let is_over = link.driver.is_none() || link.sender.is_ready();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    });
    while tokio::time::timeout(service.upstream().body_patience, &mut step).await.is_err() {
        if !goes_on(&upload, &mut sent) {
            return;
        }
    }
    if link.is_reusable() {
        service.put(link);
    }
}

impl HttpBody for UpstreamBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let mut unheard = Context::from_waker(Waker::noop());
        if self.place.as_ref().is_some_and(|place| place.is_aborted(cx)) {
            // The upstream sees that its connection is closed.
            (self.link, self.place, self.permit) = (None, None, None);
            return Poll::Ready(Some(Err(Failure::NotNow)));
        }
        // First the bytes that have arrived: taking them makes space for more.
        let mut polled = Pin::new(&mut self.incoming).poll_frame(&mut unheard);
        if polled.is_pending()
            && let Some(link) = &mut self.link
        {
            link.drive(cx);
            polled = Pin::new(&mut self.incoming).poll_frame(&mut unheard);
        }
        match polled {
            Poll::Pending => self.poll_wait(cx).map(|failure| {
                self.link = None;
                Some(Err(failure))
            }),
            Poll::Ready(Some(Ok(frame))) => {
                self.waiting = None;
                // The body is not polled again after trailers, or after the last frame of a known length.
                if frame.is_trailers() || self.incoming.is_end_stream() {
                    self.settle();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.waiting = None;
                self.settle();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                self.waiting = None;
                self.link = None;
                Poll::Ready(Some(Err(failure_of(&error))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
