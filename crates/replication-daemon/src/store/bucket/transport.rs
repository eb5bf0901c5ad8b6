//! HTTP for `object_store`, with the crates that Lull links anyway: its own client would bring `reqwest`.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes as Buffer;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{self, connect::HttpConnector as Tcp};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take beside the time to send the request, and each part of the answer.
const ANSWER: Duration = Duration::from_secs(20);
/// The rate of an upload that is still waited for, in bytes per second.
const SLOWEST: u64 = 32 * 1024;
/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(20);

/// Makes the client.
#[derive(Debug)]
pub(super) struct Connector;

#[derive(Debug)]
struct Client(legacy::Client<HttpsConnector<Tcp>, HttpRequestBody>);

/// The server does not answer in time.
#[derive(Debug, Error)]
#[error("no answer within {} s", .0.as_secs())]
struct Late(Duration);

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let failed = |source: rustls::Error| object_store::Error::Generic {
            store: "S3",
            source: Box::new(source),
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Ok(HttpClient::new(Client(client)))
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Client {
    fn call<'s, 'a>(&'s self, request: HttpRequest) -> Answer<'a>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(self.answer(request))
    }
}

impl Client {
    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let bytes = request.body().content_length() as u64;
        let patience = ANSWER + Duration::from_secs(bytes / SLOWEST);
        let answer = timeout(patience, self.0.request(request)).await;
        let answer = answer.map_err(|_| HttpError::new(HttpErrorKind::Timeout, Late(patience)))?;
        let (head, body) = answer.map_err(failed_request)?.into_parts();
        let body = Timed { body, late: Box::pin(sleep(ANSWER)) };
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}

fn failed_request(error: legacy::Error) -> HttpError {
    let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted };
    HttpError::new(kind, error)
}

/// An answer whose parts must arrive in time.
struct Timed {
    body: Incoming,
    late: Pin<Box<Sleep>>,
}

impl Body for Timed {
    type Data = Buffer;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Buffer>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.late.as_mut().reset(Instant::now() + ANSWER);
            let failed = |error| HttpError::new(HttpErrorKind::Interrupted, error);
            return Poll::Ready(frame.map(|frame| frame.map_err(failed)));
        }
        let late = self.late.as_mut().poll(context);
        late.map(|()| Some(Err(HttpError::new(HttpErrorKind::Timeout, Late(ANSWER)))))
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
