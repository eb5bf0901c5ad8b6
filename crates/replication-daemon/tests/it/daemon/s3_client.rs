//! The S3 client of `object_store`, over HTTP without TLS.

use core::pin::{Pin, pin};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use futures_core::Stream;
use hyper_util::client::legacy::{self, connect::HttpConnector as Tcp};
use hyper_util::rt::TokioExecutor;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientOptions, RetryConfig};

#[derive(Debug)]
struct Connector;

#[derive(Debug)]
struct Client(legacy::Client<Tcp, HttpRequestBody>);

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = legacy::Client::builder(TokioExecutor::new()).build(Tcp::new());
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
        Box::pin(async move {
            let failed = |error| HttpError::new(HttpErrorKind::Interrupted, error);
            let (head, body) = self.0.request(request).await.map_err(failed)?.into_parts();
            Ok(HttpResponse::from_parts(head, HttpResponseBody::new(Body(body))))
        })
    }
}

/// A body with errors as `object_store` wants them.
struct Body(hyper::body::Incoming);

impl http_body::Body for Body {
    type Data = bytes::Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, HttpError>>> {
        let failed = |error| HttpError::new(HttpErrorKind::Interrupted, error);
        let frame = Pin::new(&mut self.0).poll_frame(context);
        frame.map(|frame| frame.map(|frame| frame.map_err(failed)))
    }
}

/// A client of a bucket at an address: it signs its requests if it has a key.
pub(crate) fn client(address: SocketAddr, bucket: &str, key: Option<(&str, &str)>) -> AmazonS3 {
    let retry = RetryConfig {
        max_retries: 20,
        retry_timeout: Duration::from_secs(20),
        ..RetryConfig::default()
    };
    let builder = AmazonS3Builder::new()
        .with_endpoint(format!("http://{address}"))
        .with_bucket_name(bucket)
        .with_region("us-east-1")
        .with_allow_http(true)
        .with_http_connector(Connector)
        .with_retry(retry);
    let builder = match key {
        Some((key, secret)) => builder.with_access_key_id(key).with_secret_access_key(secret),
        None => builder.with_skip_signature(true),
    };
    builder.build().expect("a client")
}

/// All items of a stream.
pub(crate) async fn all<T, E: std::fmt::Debug>(stream: impl Stream<Item = Result<T, E>>) -> Vec<T> {
    let mut stream = pin!(stream);
    let mut items = Vec::new();
    while let Some(item) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        items.push(item.expect("an answer"));
    }
    items
}
