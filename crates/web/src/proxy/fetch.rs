//! The proxy's own requests: for robots.txt, and the monitor's objects.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::header::{ACCEPT, ACCEPT_ENCODING, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use tokio::time::timeout;

use super::error::Failure;
use super::headers::{X_FORWARDED_HOST, X_FORWARDED_PROTO};
use super::http2_request::to_http2;
use super::link::failure_of;
use super::pool::Connector;
use super::request_body::RequestBody;
use super::thread_counters::Counters;
use super::upstream_group::UpstreamServer;

/// Sends the proxy's own requests to the upstream over its own persistent connection. A clone has another
/// one.
///
/// Its requests have the host name and the scheme of visitors' requests. With others a site may redirect, or
/// be a different one.
pub struct Fetcher {
    connector: Arc<Connector>,
    counters: Arc<Counters>,
    /// The value of `Host`.
    host: HeaderValue,
    /// Whether that holds for any name of the site.
    is_host_fixed: bool,
    /// The site's name, as visitors send it.
    site: HeaderValue,
    is_secure: Arc<AtomicBool>,
    patience: Duration,
    kept: Option<Sender>,
}

/// Sends requests over one connection.
enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
}

impl Sender {
    fn is_closed(&self) -> bool {
        match self {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Sender::Http1(sender) => sender.ready().await,
            Sender::Http2(sender) => sender.ready().await,
        }
    }

    async fn send(&mut self, request: Request<RequestBody>) -> hyper::Result<Response<Incoming>> {
        match self {
            Sender::Http1(sender) => sender.send_request(request).await,
            Sender::Http2(sender) => sender.send_request(request).await,
        }
    }
}

/// For each answer, if nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Which codings an answer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codings {
    /// None: the proxy reads the answer.
    Identity,
    /// The codings of browsers. Only then a server that compresses its answers takes as long for them.
    OfBrowsers,
}

/// The upstream's answer.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, as far as it was read.
    pub body: Vec<u8>,
    /// From the request's last byte to the head of the answer.
    pub time_to_first_byte: Duration,
    /// The same up to the end of the bytes that were read.
    pub duration: Duration,
}

impl Fetcher {
    pub(crate) fn new(
        server: &UpstreamServer,
        host: Option<&HeaderValue>,
        is_secure: bool,
    ) -> Self {
        let fixed = host;
        let host = fixed.unwrap_or(&server.config.authority);
        Fetcher {
            connector: Arc::clone(&server.connector),
            // Not among those of the threads: these do not come from clients.
            counters: Arc::default(),
            host: host.clone(),
            is_host_fixed: fixed.is_some(),
            site: host.clone(),
            is_secure: Arc::new(AtomicBool::new(is_secure)),
            patience: TIMEOUT,
            kept: None,
        }
    }

    /// The same with this time for each answer.
    #[must_use]
    pub(crate) fn within(self, patience: Duration) -> Self {
        Fetcher { patience, ..self }
    }

    /// The `Host` of its requests.
    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// The host name of visitors' requests, if known: the value of `X-Forwarded-Host`.
    pub fn site(&self) -> &HeaderValue {
        &self.site
    }

    /// Whether it declares HTTPS: shared by all its clones, and set once visitors are known to use it.
    /// Initially it is set if the proxy listens for TLS.
    pub fn secure(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_secure)
    }

    /// The same for a site of this name. That is what it says in `Host`, too, where visitors' requests
    /// do: without [`UpstreamConfig::host`](super::UpstreamConfig::host).
    #[must_use]
    pub fn of_site(mut self, site: HeaderValue) -> Self {
        if !self.is_host_fixed {
            self.host = site.clone();
        }
        self.site = site;
        self
    }

    /// Requests a path, as `agent`, and reads `most` bytes of the answer, as they arrive: compressed, where
    /// that is permitted. Redirects are not followed.
    ///
    /// # Errors
    /// If no answer came, or it was cut off; [`Failure::Refused`] if the path is invalid.
    pub async fn get(
        &mut self,
        path: &str,
        agent: &'static str,
        codings: Codings,
        most: usize,
    ) -> Result<Fetched, Failure> {
        let uri: Uri = path.parse().map_err(|_| Failure::Refused)?;
        if let Some(kept) = self.kept.take()
            && !kept.is_closed()
        {
            match self.ask(kept, &uri, agent, codings, most).await {
                // The upstream may have just closed it.
                Err(Failure::Reset) => {}
                result => return result,
            }
        }
        let fresh = self.open().await?;
        self.ask(fresh, &uri, agent, codings, most).await
    }

    /// Opens a connection in advance, for measurements of the answer without the connection setup; returns
    /// whether it is a new one.
    ///
    /// # Errors
    /// If there is no connection.
    pub async fn connect(&mut self) -> Result<bool, Failure> {
        let is_new = self.kept.as_ref().is_none_or(Sender::is_closed);
        if is_new {
            self.kept = Some(self.open().await?);
        }
        Ok(is_new)
    }

    async fn open(&self) -> Result<Sender, Failure> {
        if self.connector.is_h2 {
            return Ok(Sender::Http2(self.connector.client_h2(&self.counters).await?));
        }
        let (fresh, driver, _) = self.connector.client(&self.counters).await?;
        // It ends with the sender.
        tokio::spawn(driver);
        Ok(Sender::Http1(fresh))
    }

    async fn ask(
        &mut self,
        mut sender: Sender,
        uri: &Uri,
        agent: &'static str,
        codings: Codings,
        most: usize,
    ) -> Result<Fetched, Failure> {
        let mut request = Request::new(RequestBody::empty());
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(X_FORWARDED_HOST, self.site.clone());
        let scheme = if self.is_secure.load(Ordering::Relaxed) { "https" } else { "http" };
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let codings = match codings {
            Codings::Identity => "identity",
            // Browsers accept Brotli and Zstandard only over TLS.
            Codings::OfBrowsers if scheme == "https" => "gzip, deflate, br, zstd",
            Codings::OfBrowsers => "gzip, deflate",
        };
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(codings));
        if self.connector.is_h2 {
            let (mut head, body) = request.into_parts();
            to_http2(&mut head, self.connector.is_secure(), &self.host);
            request = Request::from_parts(head, body);
        }
        sender.ready().await.map_err(|_| Failure::Reset)?;
        let begun = Instant::now();
        let response = match timeout(self.patience, sender.send(request)).await {
            Ok(result) => result.map_err(|error| failure_of(&error))?,
            Err(_) => return Err(Failure::HeadTimeout),
        };
        let time_to_first_byte = begun.elapsed();
        let (head, mut incoming) = response.into_parts();
        let mut body = Vec::new();
        let mut is_whole = true;
        while is_whole {
            let next = poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx));
            let frame = match timeout(self.patience, next).await {
                Ok(None) => break,
                Ok(Some(frame)) => frame.map_err(|error| failure_of(&error))?,
                Err(_) => return Err(Failure::BodyTimeout),
            };
            let data = frame.into_data().unwrap_or_default();
            is_whole = body.len() + data.len() <= most;
            body.extend_from_slice(&data[..data.len().min(most - body.len())]);
        }
        // Unread bytes would precede the next answer.
        self.kept = is_whole.then_some(sender);
        Ok(Fetched {
            status: head.status,
            headers: head.headers,
            body,
            time_to_first_byte,
            duration: begun.elapsed(),
        })
    }
}

impl Clone for Fetcher {
    fn clone(&self) -> Self {
        Fetcher {
            connector: Arc::clone(&self.connector),
            counters: Arc::clone(&self.counters),
            host: self.host.clone(),
            is_host_fixed: self.is_host_fixed,
            site: self.site.clone(),
            is_secure: Arc::clone(&self.is_secure),
            patience: self.patience,
            kept: None,
        }
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher")
            .field("host", &self.host)
            .field("site", &self.site)
            .finish_non_exhaustive()
    }
}
