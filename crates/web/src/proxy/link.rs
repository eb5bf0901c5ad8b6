//! A connection to the upstream.
//!
//! It has no task of its own: it is driven by the exchange or the body that waits for it. That saves two
//! wake-ups per request. It only produces data while it is driven, so its channels are polled without a
//! waker.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::UPGRADE;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection as Driver, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::unconstrained;
use tokio::time::Sleep;

use super::error::Failure;
use super::io::UpstreamIo;
use super::request_body::{RequestBody, Upload};

/// How long a client that waits for `100 Continue` waits for the upstream's answer. Upstreams that do not
/// support it never send it (RFC 9110 §10.1.1).
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// A connection to the upstream.
pub(crate) struct Link {
    pub(super) sender: SendRequest<RequestBody>,
    /// `None` once it has ended.
    pub(super) driver: Option<Driver<TokioIo<UpstreamIo>, RequestBody>>,
    /// Whether the protocol may change, and the ended HTTP connection then.
    may_upgrade: bool,
    ended: Option<Driver<TokioIo<UpstreamIo>, RequestBody>>,
    pub(super) timer: Pin<Box<Sleep>>,
    /// Bytes received from the upstream.
    read: Arc<AtomicU64>,
    pub(super) upload: Option<Arc<Upload>>,
    /// Whether the upstream may attribute all requests on it to one client: it is used only for that client's
    /// exchange, and closed afterwards.
    pub(super) is_authenticated: bool,
    /// Whether the upstream answers with HTTP/1.0. hyper continues in that version then, in which a body
    /// without a length is impossible: it would be left out.
    pub(super) is_old: bool,
    pub(crate) idle_since: Instant,
}

/// A failed exchange.
pub(super) struct Broken {
    pub(super) failure: Failure,
    /// The request, if none of it was sent.
    pub(super) unsent: Option<Box<Request<RequestBody>>>,
    /// Whether the upstream closed the connection before the first byte of an answer.
    pub(super) is_untouched: bool,
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
            is_authenticated: false,
            is_old: false,
            idle_since: Instant::now(),
        })
    }

    /// Continues as far as it can.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && Pin::new(driver).poll(cx).is_ready()
        {
            // The failure was returned to the caller that waits for the response or its body.
            self.ended = self.driver.take().filter(|_| self.may_upgrade);
        }
    }

    /// Its stream after the protocol change, and the bytes that were read from it already.
    pub(crate) async fn into_stream(mut self: Box<Self>) -> Option<(UpstreamIo, Bytes)> {
        std::future::poll_fn(|cx| {
            self.drive(cx);
            if self.driver.is_none() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let parts = self.ended?.into_parts();
        Some((parts.io.into_inner(), parts.read_buf))
    }

    /// Whether the next request may use it.
    pub(super) fn is_reusable(&mut self) -> bool {
        if self.is_authenticated || self.is_old {
            return false;
        }
        // Without a waker: from now on it has no waiting caller, and its events are found when it is used
        // again.
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Whether it still sends a request that is answered already.
    pub(super) fn is_uploading(&self) -> bool {
        self.driver.is_some()
            && self.upload.as_ref().is_some_and(|upload| upload.is_open() && !upload.is_done())
    }

    pub(super) fn wait_until(&mut self, deadline: Instant) {
        self.timer.as_mut().reset(deadline.into());
    }

    /// Sends a request, and waits for the head of the response.
    pub(super) async fn exchange(
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
        // Ready only after the driver was polled. Outside the budget of Tokio's tasks, whose end would go to
        // a waker without a receiver.
        let mut answer = pin!(unconstrained(self.sender.try_send_request(request)));
        let mut sent = 0;
        let result = std::future::poll_fn(|cx| {
            self.drive(cx);
            let mut unheard = Context::from_waker(Waker::noop());
            let mut polled = answer.as_mut().poll(&mut unheard);
            if polled.is_pending() && self.driver.is_none() {
                // It still holds the request, and releases it when it is dropped.
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

/// Whether the time that has passed belongs to the client and not to the upstream. A held-back body is
/// released.
pub(super) fn goes_on(upload: &Upload, sent: &mut u64) -> bool {
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
        // The unreadable body is the client's.
        Failure::Client
    } else if error.is_parse() {
        Failure::Garbage
    } else {
        Failure::Reset
    }
}
