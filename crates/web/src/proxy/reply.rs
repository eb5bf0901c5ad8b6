//! The client's answer, and its accounting.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode, Version, request};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::access_log::Line;
use super::body::{Body, BoxError};
use super::connection::{Connection, CountGuard, RequestGuard};
use super::error::Failure;
use super::hosted_site::HostedSite;
use super::site::{Exchange, Outcome};
use super::site_counters::Finished;
use super::streams::{Piece, Stream};
use super::traffic_thread::TrafficThread;

/// The status in the log for a client that went away before the answer, as in nginx.
const GONE: u16 = 499;

/// The data of an exchange until its end.
pub(crate) struct Account {
    worker: Arc<TrafficThread>,
    connection: Arc<Connection>,
    /// The site, once it is known.
    pub(crate) site: Option<Arc<HostedSite>>,
    /// Whether the client came by HTTPS, as far as is known.
    pub(crate) is_secure: bool,
    version: Version,
    is_head: bool,
    /// Whether it has the mark of a prefetch.
    pub(crate) is_marked: bool,
    started: Instant,
    time_to_first_byte: Option<Duration>,
    upstream_time: Option<Duration>,
    /// The status for the client; [`GONE`] until then.
    status: u16,
    bytes: u64,
    failure: Option<Failure>,
    pub(crate) exchange: Option<Box<dyn Exchange>>,
    line: Option<Box<Line>>,
    /// In HTTP/2.
    pub(crate) stream: Option<Arc<Stream>>,
    is_closed: bool,
    /// From when its kind of request is known.
    pub(crate) guard: Option<RequestGuard>,
    _ongoing: CountGuard,
}

impl Account {
    pub(crate) fn open(
        worker: &Arc<TrafficThread>,
        connection: &Arc<Connection>,
        head: &request::Parts,
        line: Option<Box<Line>>,
    ) -> Self {
        worker.counters.requests.increment();
        Account {
            worker: Arc::clone(worker),
            connection: Arc::clone(connection),
            site: None,
            is_secure: connection.is_secure(),
            version: head.version,
            is_head: head.method == Method::HEAD,
            is_marked: false,
            started: Instant::now(),
            time_to_first_byte: None,
            upstream_time: None,
            status: GONE,
            bytes: 0,
            failure: None,
            exchange: None,
            line,
            stream: (head.version == Version::HTTP_2).then(|| Stream::begin(&connection.streams)),
            is_closed: false,
            guard: None,
            _ongoing: CountGuard::request(connection),
        }
    }

    /// Whether it came over HTTP/2.
    pub(crate) fn is_h2(&self) -> bool {
        self.version == Version::HTTP_2
    }

    /// Sets the client for the access log; without one the line is left out.
    pub(crate) fn log_as(&mut self, client: Option<IpAddr>) {
        match client {
            Some(client) => {
                if let Some(line) = &mut self.line {
                    line.set_client(client);
                }
            }
            None => self.line = None,
        }
    }

    /// The upstream has begun to answer the request `sent` to it, if no part of that was sent later.
    pub(crate) fn note_first_byte(&mut self, sent: Option<Instant>) {
        self.time_to_first_byte = Some(self.started.elapsed());
        self.upstream_time = sent.map(|sent| sent.elapsed());
    }

    /// Sends this.
    pub(crate) fn reply(mut self, mut response: Response<Body>) -> Response<Reply> {
        self.status = response.status().as_u16();
        if let Some(site) = &self.site {
            site.add_hsts(response.headers_mut(), self.is_secure);
        }
        let (is_head, is_close_delimited) = (self.is_head, self.version == Version::HTTP_10);
        let stream = self.stream.take();
        response.map(|body| Reply {
            body,
            is_head,
            is_close_delimited,
            stream,
            account: Some(self),
        })
    }

    /// Answers with the proxy's own error, unless the observer of the response has another answer.
    pub(crate) fn fail(
        mut self,
        failure: Failure,
        status: StatusCode,
        why: &str,
    ) -> Response<Reply> {
        self.failure = Some(failure);
        let others = self.exchange.as_mut().and_then(|exchange| exchange.failed(failure));
        if let Some(response) = others {
            return self.reply(response);
        }
        let mut response = self.error_page(status, why);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(site) = &self.site {
            site.config.response_headers.apply(headers);
        }
        if failure == Failure::Refused && self.version != Version::HTTP_2 {
            // The beginning of the next request is in doubt.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.reply(response)
    }

    /// The site's page for an error, or the proxy's own words.
    fn error_page(&self, status: StatusCode, why: &str) -> Response<Body> {
        let page = self.site.as_ref().and_then(|site| site.config.error_page(status));
        let (kind, body) = match page {
            Some(page) => (page.kind.clone(), page.body.clone()),
            None => {
                let reason = status.canonical_reason().unwrap_or_default();
                let text = format!("{} {reason}: {why}\n", status.as_u16());
                (HeaderValue::from_static("text/plain; charset=utf-8"), text.into())
            }
        };
        let mut response = Response::new(Body::full(body));
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    fn close(mut self, failure: Option<Failure>) {
        self.failure = self.failure.or(failure);
        self.is_closed = true;
        self.report_outcome();
    }

    fn report_outcome(&mut self) {
        let read = self.connection.read.load(Ordering::Relaxed);
        self.connection.read_by_then.store(read, Ordering::Relaxed);
        if self.version == Version::HTTP_2 {
            self.connection.streams.ended(self.failure == Some(Failure::Client));
        }
        let counters = &self.worker.counters;
        counters.count_response(self.status);
        counters.bytes_sent.add(self.bytes);
        if let Some(failure) = self.failure {
            counters.count_failure(failure);
        }
        self.count_for_site();
        if let Some(exchange) = self.exchange.take() {
            exchange.ended(&Outcome {
                status: self.status,
                bytes: self.bytes,
                time_to_first_byte: self.time_to_first_byte,
                upstream_time: self.upstream_time,
                duration: self.started.elapsed(),
                failure: self.failure,
            });
        }
        if let (Some(line), Some(log)) = (self.line.take(), &self.worker.log) {
            log.write(line, self.status, self.bytes);
        }
    }
}

impl Account {
    /// Requests that name no site are those of the only one.
    fn count_for_site(&self) {
        let only = || self.worker.serving.get().sites.only().cloned();
        let Some(site) = self.site.clone().or_else(only) else { return };
        let finished = Finished {
            status: self.status,
            bytes: self.bytes,
            failure: self.failure,
            is_marked: self.is_marked,
        };
        site.counters.record(self.worker.number, &finished);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if !self.is_closed {
            self.failure = self.failure.or(Some(Failure::Client));
            self.report_outcome();
        }
    }
}

/// The client's body, whose end completes the accounting.
pub(crate) struct Reply {
    body: Body,
    is_head: bool,
    /// Whether the end of the connection may be the end of the body (HTTP/1.0).
    is_close_delimited: bool,
    /// Longer than the account: the last piece waits for the client, too.
    stream: Option<Arc<Stream>>,
    account: Option<Account>,
}

impl Reply {
    fn close(&mut self, failure: Option<Failure>) {
        if let Some(account) = self.account.take() {
            account.close(failure);
        }
    }
}

impl HttpBody for Reply {
    type Data = Piece;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, BoxError>>> {
        if let Some(guard) = self.account.as_ref().and_then(|account| account.guard.as_ref()) {
            guard.goes_on();
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(data), Some(account)) = (frame.data_ref(), &mut self.account) {
                    account.bytes += data.len() as u64;
                }
                if frame.is_trailers() || self.body.is_end_stream() {
                    self.close(None);
                }
            }
            Poll::Ready(None) => self.close(None),
            Poll::Ready(Some(Err(error))) => {
                if self.is_close_delimited
                    && let Some(account) = &self.account
                {
                    account.connection.reset.store(true, Ordering::Relaxed);
                }
                let failure = error.downcast_ref::<Failure>().copied();
                self.close(Some(failure.unwrap_or(Failure::Garbage)));
            }
        }
        let piece = |bytes| Piece::new(bytes, self.stream.as_ref());
        polled.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // hyper does not poll a body for an end that is known, or not to be sent.
        let is_whole = self.is_head || self.body.is_end_stream();
        let failure = if is_whole { None } else { Some(Failure::Client) };
        self.close(failure);
    }
}
