//! The upstream's side: a request goes out, a response comes back, and its connection is kept.
//!
//! A connection to the upstream has no task of its own: whoever waits for something from it drives
//! it. That spares two wake-ups a request. What comes of it can only come while it is driven, so
//! the channels between it and us are looked at without a waker.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::UPGRADE;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection as Driver, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::unconstrained;
use tokio::time::Sleep;

use super::body::{RequestBody, Upload};
use super::connection::{Connection, Counted};
use super::error::Failure;
use super::io::UpstreamIo;
use super::scheduler::Place;
use super::worker::Worker;
use crate::authentication;

/// How long a client that waits for `100 Continue` waits for the upstream's word. Upstreams that
/// know nothing of it never say it (RFC 9110 §10.1.1).
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// A connection to the upstream.
pub(crate) struct Link {
    sender: SendRequest<RequestBody>,
    /// `None` once it has ended.
    driver: Option<Driver<TokioIo<UpstreamIo>, RequestBody>>,
    /// Whether it may become something else than HTTP, and what has ended then.
    may_upgrade: bool,
    ended: Option<Driver<TokioIo<UpstreamIo>, RequestBody>>,
    timer: Pin<Box<Sleep>>,
    /// Bytes that have come from the upstream.
    read: Arc<AtomicU64>,
    upload: Option<Arc<Upload>>,
    /// Whether the upstream may take all that comes over it for one client's: it goes with that
    /// client's exchange, and nobody else's request ever goes over it.
    is_somebodys: bool,
    /// Whether the upstream answers by HTTP/1.0. hyper goes on in that version then, in which a body without a length
    /// cannot be said: it would leave it out.
    is_old: bool,
    pub(crate) idle_since: Instant,
}

/// An exchange that came to nothing.
struct Broken {
    failure: Failure,
    /// The request, if nothing of it was sent.
    unsent: Option<Box<Request<RequestBody>>>,
    /// Whether the upstream closed the connection and had not answered a byte.
    is_untouched: bool,
}

impl Link {
    pub(crate) fn new(
        sender: SendRequest<RequestBody>,
        driver: Driver<TokioIo<UpstreamIo>, RequestBody>,
        read: Arc<AtomicU64>,
    ) -> Box<Self> {
        Box::new(Link {
            sender,
            driver: Some(driver),
            may_upgrade: false,
            ended: None,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            read,
            upload: None,
            is_somebodys: false,
            is_old: false,
            idle_since: Instant::now(),
        })
    }

    /// Goes on as far as it can.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && Pin::new(driver).poll(cx).is_ready()
        {
            // What went wrong is told to who waits for the response or its body.
            self.ended = self.driver.take().filter(|_| self.may_upgrade);
        }
    }

    /// Its stream, once it is HTTP no more, and what was read of it already.
    pub(crate) async fn into_stream(mut self: Box<Self>) -> Option<(UpstreamIo, Bytes)> {
        std::future::poll_fn(|cx| {
            self.drive(cx);
            if self.driver.is_none() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let parts = self.ended?.into_parts();
        Some((parts.io.into_inner(), parts.read_buf))
    }

    /// Whether the next request may go over it.
    pub(super) fn is_reusable(&mut self) -> bool {
        if self.is_somebodys || self.is_old {
            return false;
        }
        // Without a waker: from now on nobody waits for it, and what it finds out meanwhile is
        // found when it is used again.
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Whether it still sends a request that is answered already.
    fn is_uploading(&self) -> bool {
        self.driver.is_some()
            && self.upload.as_ref().is_some_and(|upload| upload.is_open() && !upload.is_done())
    }

    fn wait_until(&mut self, deadline: Instant) {
        self.timer.as_mut().reset(deadline.into());
    }

    /// Sends a request, and waits for the head of the response.
    async fn exchange(
        &mut self,
        request: Request<RequestBody>,
        upload: Option<&Arc<Upload>>,
        patience: Duration,
    ) -> Result<Response<Incoming>, Broken> {
        let before = self.read.load(Ordering::Relaxed);
        self.upload = upload.cloned();
        self.may_upgrade = request.headers().contains_key(UPGRADE);
        let is_held = upload.is_some_and(|upload| !upload.is_open());
        let first_wait = if is_held { CONTINUE_WAIT.min(patience) } else { patience };
        self.wait_until(Instant::now() + first_wait);
        // Ready only after the driver was polled. Outside the budget of Tokio's tasks, whose end
        // would be told to a waker that nobody hears.
        let mut answer = pin!(unconstrained(self.sender.try_send_request(request)));
        let mut sent = 0;
        let result = std::future::poll_fn(|cx| {
            self.drive(cx);
            let mut unheard = Context::from_waker(Waker::noop());
            let mut polled = answer.as_mut().poll(&mut unheard);
            if polled.is_pending() && self.driver.is_none() {
                // It holds the request still, and lets go of it when it is dropped.
                self.ended = None;
                polled = answer.as_mut().poll(&mut unheard);
            }
            if let Poll::Ready(result) = polled {
                return Poll::Ready(result.map_err(Some));
            }
            while self.timer.as_mut().poll(cx).is_ready() {
                if !upload.is_some_and(|upload| goes_on(upload, &mut sent)) {
                    return Poll::Ready(Err(None));
                }
                self.wait_until(Instant::now() + patience);
            }
            Poll::Pending
        })
        .await;
        result.map_err(|error| match error {
            Some(error) => Broken::new(error, self.read.load(Ordering::Relaxed) == before),
            None => Broken { failure: Failure::HeadTimeout, unsent: None, is_untouched: false },
        })
    }
}

/// Whether the time that has passed belongs to the client and not to the upstream. A body that was
/// held back is let go.
fn goes_on(upload: &Upload, sent: &mut u64) -> bool {
    if !upload.is_open() {
        upload.open();
        return true;
    }
    let before = std::mem::replace(sent, upload.bytes());
    upload.is_waiting() || upload.bytes() != before
}

impl Broken {
    fn new(mut error: TrySendError<Request<RequestBody>>, is_untouched: bool) -> Self {
        let unsent = error.take_message().map(Box::new);
        let failure = failure_of(error.error());
        Broken { failure, unsent, is_untouched: is_untouched && failure == Failure::Reset }
    }
}

pub(super) fn failure_of(error: &hyper::Error) -> Failure {
    if error.is_user() {
        // The body that it could not read is the client's.
        Failure::Client
    } else if error.is_parse() {
        Failure::Garbage
    } else {
        Failure::Reset
    }
}

/// A response whose body is still to come, and the connection that it comes over.
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    pub(crate) link: Box<Link>,
    /// When its request went over that connection.
    pub(crate) sent: Instant,
}

/// Sends a request over a connection that is kept, or a new one. A request that an idle connection
/// was closed under is sent once more over a new one: if nothing of it had left, or if it may be
/// repeated (RFC 9110 §9.2.2), has no body, and not a byte of an answer had come (RFC 9112 §9.3.1). One that may not be
/// repeated takes a connection that is kept only where the upstream is known not to close it just then.
pub(crate) async fn send(
    worker: &Worker,
    mut request: Request<RequestBody>,
    upload: Option<&Arc<Upload>>,
    patience: Duration,
) -> Result<Answer, Failure> {
    let may_be_repeated = may_be_repeated(&request);
    let mut kept = if may_be_repeated { worker.pool.take() } else { worker.pool.take_safe() };
    loop {
        let was_kept = kept.is_some();
        let idle = kept.as_ref().map(|link| link.idle_since.elapsed());
        let mut link = match kept.take() {
            Some(link) => link,
            None => worker.connector.connect(&worker.counters).await?,
        };
        let spare = if was_kept { copy(&request) } else { None };
        link.is_somebodys |= authentication::is_of_the_connection(request.headers());
        let sent = Instant::now();
        let broken = match link.exchange(request, upload, patience).await {
            Ok(response) => {
                idle.into_iter().for_each(|idle| worker.pool.learn(idle, false));
                link.is_somebodys |= authentication::is_of_the_connection(response.headers());
                link.is_old = response.version() == Version::HTTP_10;
                return Ok(Answer { response, link, sent });
            }
            Err(broken) => broken,
        };
        if broken.unsent.is_some() || broken.is_untouched {
            idle.into_iter().for_each(|idle| worker.pool.learn(idle, true));
        }
        request = match (broken.unsent, spare) {
            (Some(unsent), _) if was_kept => *unsent,
            (_, Some(spare)) if broken.is_untouched => spare,
            _ => return Err(broken.failure),
        };
        worker.counters.retries.increment();
    }
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

/// Whether a response means that the protocol changes.
pub(crate) fn is_upgrade(response: &Response<Incoming>) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS
}

/// The body of a response, which drives the connection that it comes over.
pub(crate) struct UpstreamBody {
    incoming: Incoming,
    link: Option<Box<Link>>,
    worker: Arc<Worker>,
    connection: Arc<Connection>,
    /// While the upstream is waited for.
    waiting: Option<Counted>,
    /// Until the answer is here, whenever its client takes the last of it, and the request has gone.
    permit: Option<OwnedSemaphorePermit>,
    /// Its place in the schedule of the upstream, if there is one. Boxed: bodies lie in other types by value.
    place: Option<Box<Place>>,
}

impl UpstreamBody {
    pub(crate) fn new(
        incoming: Incoming,
        link: Box<Link>,
        worker: &Arc<Worker>,
        connection: &Arc<Connection>,
        permit: OwnedSemaphorePermit,
        place: Option<Box<Place>>,
    ) -> Self {
        let mut body = UpstreamBody {
            incoming,
            link: Some(link),
            worker: Arc::clone(worker),
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

    /// The response is here: keeps the connection if it can be used again.
    fn settle(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        if let Some(place) = self.place.take() {
            place.finish();
        }
        if link.is_reusable() {
            self.worker.pool.put(link);
        } else if link.is_uploading()
            && let Some(upload) = link.upload.clone()
        {
            let (worker, permit) = (Arc::clone(&self.worker), self.permit.take());
            let task = tokio::spawn(upload_the_rest(link, worker, permit));
            upload.goes_on_in(task.abort_handle());
        }
        self.permit = None;
    }

    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        let Some(link) = &mut self.link else { return Poll::Pending };
        if self.waiting.is_none() {
            self.waiting = Some(Counted::waiting_for_upstream(&self.connection));
            link.wait_until(Instant::now() + self.worker.config.timeouts.body);
        }
        link.timer.as_mut().poll(cx).map(|()| Failure::BodyTimeout)
    }
}

/// Goes on sending a request that was answered before its end, for as long as that goes on. It has the upstream's
/// connection meanwhile, and so the place of one.
async fn upload_the_rest(
    mut link: Box<Link>,
    worker: Arc<Worker>,
    _permit: Option<OwnedSemaphorePermit>,
) {
    let Some(upload) = link.upload.clone() else { return };
    let mut sent = upload.bytes();
    let mut step = std::future::poll_fn(|cx| {
        link.drive(cx);
        let is_over = link.driver.is_none() || link.sender.is_ready();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    });
    while tokio::time::timeout(worker.config.timeouts.body, &mut step).await.is_err() {
        if !goes_on(&upload, &mut sent) {
            return;
        }
    }
    if link.is_reusable() {
        worker.pool.put(link);
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
        // First what has come already: only when it is taken is there room for more.
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
                // Nobody asks for more after trailers, or after the last of a known length.
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
