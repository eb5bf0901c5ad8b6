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

use super::connection::{Connection, CountGuard};
use super::error::Failure;
use super::http2_request::{to_http1, to_http2};
use super::link::{Link, failure_of, goes_on};
use super::multiplexed::StreamSlot;
use super::pool::Connector;
use super::request_body::{RequestBody, Upload};
use super::scheduler::UpstreamPermit;
use super::upstream_access::{InService, UpstreamAccess};
use super::upstream_group::Tried;
use crate::authentication;

/// A response whose body is still to come, and its connection.
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    pub(crate) carrier: Carrier,
    /// The server that answers.
    pub(crate) service: InService,
    /// When its request was sent on that connection.
    pub(crate) sent: Instant,
}

/// The carrier of an exchange.
pub(crate) enum Carrier {
    /// A connection that it has for itself.
    Link(Box<Link>),
    /// A stream of HTTP/2.
    Stream(Box<StreamSlot>),
}

/// An attempt that failed.
struct Attempt {
    failure: Failure,
    /// The request for another attempt, if there may be one.
    again: Option<Box<Request<RequestBody>>>,
    /// Whether the server could not be reached.
    is_unreachable: bool,
}

impl Attempt {
    fn unreachable(failure: Failure, request: Request<RequestBody>) -> Self {
        Attempt { failure, again: Some(Box::new(request)), is_unreachable: true }
    }
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
    let mut tried = Tried::default();
    let mut service = next_server(upstream, tried).ok_or(Failure::Unreachable)?;
    let mut is_first = true;
    loop {
        let server = service.server();
        let sending = Sending { upstream, server, upload, patience, may_use_kept: is_first };
        let attempt = match upstream.group.servers[server].connector.is_h2 {
            true => sending.over_stream(request).await,
            false => sending.over_link(request).await,
        };
        let failed = match attempt {
            Ok((response, carrier, sent)) => {
                return Ok(Answer { response, carrier, service, sent });
            }
            Err(failed) => failed,
        };
        request = *failed.again.ok_or(failed.failure)?;
        if failed.is_unreachable {
            upstream.group.avoid(server);
            tried.add(server);
            service = next_server(upstream, tried).ok_or(failed.failure)?;
            is_first = true;
        } else {
            upstream.counters.retries.increment();
            is_first = false;
        }
    }
}

/// One attempt with one server.
struct Sending<'a> {
    upstream: &'a Arc<UpstreamAccess>,
    server: usize,
    upload: Option<&'a Arc<Upload>>,
    patience: Duration,
    /// Whether a connection may be used that was idle.
    may_use_kept: bool,
}

type Sent = Result<(Response<Incoming>, Carrier, Instant), Attempt>;

impl Sending<'_> {
    fn connector(&self) -> &Connector {
        &self.upstream.group.servers[self.server].connector
    }

    async fn over_link(&self, mut request: Request<RequestBody>) -> Sent {
        if request.uri().authority().is_some() {
            let (mut head, body) = request.into_parts();
            to_http1(&mut head);
            request = Request::from_parts(head, body);
        }
        let pool = self.upstream.pool(self.server);
        let kept = match self.may_use_kept {
            true if may_be_repeated(&request) => pool.take(),
            true => pool.take_safe(),
            false => None,
        };
        let idle = kept.as_ref().map(|link| link.idle_since.elapsed());
        let mut link = match kept {
            Some(link) => link,
            None => match self.connector().connect(&self.upstream.counters).await {
                Ok(link) => link,
                Err(failure) => return Err(Attempt::unreachable(failure, request)),
            },
        };
        let spare = if idle.is_some() { copy(&request) } else { None };
        link.is_authenticated |= authentication::is_of_the_connection(request.headers());
        let sent = Instant::now();
        let broken = match link.exchange(request, self.upload, self.patience).await {
            Ok(response) => {
                idle.into_iter().for_each(|idle| pool.learn(idle, false));
                link.is_authenticated |= authentication::is_of_the_connection(response.headers());
                link.is_old = response.version() == Version::HTTP_10;
                return Ok((response, Carrier::Link(link), sent));
            }
            Err(broken) => broken,
        };
        if broken.unsent.is_some() || broken.is_untouched {
            idle.into_iter().for_each(|idle| pool.learn(idle, true));
        }
        let spare = spare.filter(|_| broken.is_untouched).map(Box::new);
        let again = broken.unsent.filter(|_| idle.is_some()).or(spare);
        Err(Attempt { failure: broken.failure, again, is_unreachable: false })
    }

    async fn over_stream(&self, request: Request<RequestBody>) -> Sent {
        let pool = self.upstream.multiplexed(self.server);
        let mut slot = match pool.take().filter(|_| self.may_use_kept) {
            Some(slot) => slot,
            None => match self.connector().client_h2(&self.upstream.counters).await {
                Ok(sender) => pool.add(sender),
                Err(failure) => return Err(Attempt::unreachable(failure, request)),
            },
        };
        let spare = if slot.is_fresh { None } else { copy(&request) };
        let server = &self.upstream.group.servers[self.server].config;
        let (mut head, body) = request.into_parts();
        to_http2(&mut head, server.secure, &server.authority);
        let (request, sent) = (Request::from_parts(head, body), Instant::now());
        let failed = match slot.exchange(request, self.upload, self.patience).await {
            Ok(response) => return Ok((response, Carrier::Stream(Box::new(slot)), sent)),
            Err(failed) => failed,
        };
        let is_closed = failed.failure == Failure::Reset;
        let spare = spare.filter(|_| is_closed).map(Box::new);
        let again = failed.unsent.filter(|_| !slot.is_fresh).or(spare);
        Err(Attempt { failure: failed.failure, again, is_unreachable: false })
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
    carrier: Option<Carrier>,
    service: InService,
    connection: Arc<Connection>,
    /// While it waits for the upstream.
    waiting: Option<CountGuard>,
    /// Until the answer has arrived and the request was sent, independently of the client.
    permit: Option<OwnedSemaphorePermit>,
    /// Its permit in the schedule of the upstream, if there is one. Boxed: bodies are stored in other types by
    /// value.
    upstream_permit: Option<Box<UpstreamPermit>>,
}

impl UpstreamBody {
    pub(crate) fn new(
        incoming: Incoming,
        (carrier, service): (Carrier, InService),
        connection: &Arc<Connection>,
        permit: OwnedSemaphorePermit,
        upstream_permit: Option<Box<UpstreamPermit>>,
    ) -> Self {
        let mut body = UpstreamBody {
            incoming,
            carrier: Some(carrier),
            service,
            connection: Arc::clone(connection),
            waiting: None,
            permit: Some(permit),
            upstream_permit,
        };
        if body.incoming.is_end_stream() {
            body.finish_exchange();
        }
        body
    }

    /// The response has arrived: keeps the connection if it can be reused.
    fn finish_exchange(&mut self) {
        let Some(carrier) = self.carrier.take() else { return };
        if let Some(upstream_permit) = self.upstream_permit.take() {
            upstream_permit.finish();
        }
        // The rest of a request over HTTP/2 needs nothing from here.
        let Carrier::Link(mut link) = carrier else {
            self.permit = None;
            return;
        };
        if link.is_reusable() {
            self.service.put(link);
        } else if link.is_uploading()
            && let Some(upload) = link.upload.clone()
        {
            let permit = self.permit.take();
            let service = InService::begin(self.service.upstream(), self.service.server());
            let task = tokio::spawn(finish_upload(link, service, permit));
            upload.goes_on_in(task.abort_handle());
        }
        self.permit = None;
    }

    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        let Some(carrier) = &mut self.carrier else { return Poll::Pending };
        if self.waiting.is_none() {
            self.waiting = Some(CountGuard::waiting_for_upstream(&self.connection));
            let deadline = Instant::now() + self.service.upstream().body_patience;
            match carrier {
                Carrier::Link(link) => link.wait_until(deadline),
                Carrier::Stream(slot) => slot.wait_until(deadline),
            }
        }
        let is_over = match carrier {
            Carrier::Link(link) => link.timer.as_mut().poll(cx),
            Carrier::Stream(slot) => slot.poll_wait(cx),
        };
        is_over.map(|()| Failure::BodyTimeout)
    }

    /// The next frame, as far as it has come.
    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(Carrier::Link(link)) = &mut self.carrier else {
            return Pin::new(&mut self.incoming).poll_frame(cx);
        };
        let mut unheard = Context::from_waker(Waker::noop());
        // First the bytes that have arrived: taking them makes space for more.
        let polled = Pin::new(&mut self.incoming).poll_frame(&mut unheard);
        if polled.is_ready() {
            return polled;
        }
        link.drive(cx);
        Pin::new(&mut self.incoming).poll_frame(&mut unheard)
    }
}

/// Continues sending a request that was answered before its end, as long as the client continues. Meanwhile
/// it occupies the upstream's connection, and so one place.
async fn finish_upload(
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
        if self
            .upstream_permit
            .as_ref()
            .is_some_and(|upstream_permit| upstream_permit.is_aborted(cx))
        {
            // The upstream sees that its connection is closed, or its stream.
            (self.carrier, self.upstream_permit, self.permit) = (None, None, None);
            return Poll::Ready(Some(Err(Failure::NotNow)));
        }
        match self.poll_incoming(cx) {
            Poll::Pending => self.poll_wait(cx).map(|failure| {
                self.carrier = None;
                Some(Err(failure))
            }),
            Poll::Ready(Some(Ok(frame))) => {
                self.waiting = None;
                // The body is not polled again after trailers, or after the last frame of a known length.
                if frame.is_trailers() || self.incoming.is_end_stream() {
                    self.finish_exchange();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.waiting = None;
                self.finish_exchange();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                self.waiting = None;
                self.carrier = None;
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
