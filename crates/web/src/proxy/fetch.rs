//! Requests of the proxy's own: for robots.txt, and what a monitor asks for.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::header::{ACCEPT, ACCEPT_ENCODING, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body::Body as _;
use hyper::client::conn::http1::SendRequest;
use tokio::time::timeout;

use super::error::Failure;
use super::headers::{X_FORWARDED_HOST, X_FORWARDED_PROTO};
use super::link::failure_of;
use super::metrics::Counters;
use super::pool::Connector;
use super::request_body::RequestBody;
use super::upstream_group::UpstreamServer;

/// Asks the upstream on nobody's behalf, over a connection of its own that it keeps. A clone has
/// another one.
///
/// It says what visitors' requests say: by which name they came, and whether by HTTPS. A site that is
/// told otherwise leads elsewhere, or is another one.
pub struct Fetcher {
    connector: Arc<Connector>,
    counters: Arc<Counters>,
    /// What stands in `Host`.
    host: HeaderValue,
    /// Whether that is so whatever the site is called.
    is_host_fixed: bool,
    /// The site's name, as visitors say it.
    site: HeaderValue,
    is_secure: Arc<AtomicBool>,
    patience: Duration,
    kept: Option<SendRequest<RequestBody>>,
}

/// For each answer, if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which codings an answer may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codings {
    /// None: it is to be read.
    Identity,
    /// Those that browsers take. A server that packs its answers takes as long for them only then.
    OfBrowsers,
}

/// What the upstream answered.
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
    /// The same to the end of what was read.
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
            // Not among those of the threads: nobody's request is counted there.
            counters: Arc::default(),
            host: host.clone(),
            is_host_fixed: fixed.is_some(),
            site: host.clone(),
            is_secure: Arc::new(AtomicBool::new(is_secure)),
            patience: PATIENCE,
            kept: None,
        }
    }

    /// The same with this time for each answer.
    #[must_use]
    pub(crate) fn within(self, patience: Duration) -> Self {
        Fetcher { patience, ..self }
    }

    /// The `Host` by which it asks.
    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// The name by which visitors ask, as far as it is known: what it says in `X-Forwarded-Host`.
    pub fn site(&self) -> &HeaderValue {
        &self.site
    }

    /// Whether it says that it came by HTTPS: for it and all its clones, and to be set by who finds out
    /// that visitors do. At first it says so where the proxy listens for TLS.
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

    /// Asks for a path, as `agent`, and reads `most` bytes of the answer, as they come: packed, where that
    /// may be. Redirects are not followed.
    ///
    /// # Errors
    /// If nothing came, or it broke off; [`Failure::Refused`] if the path is none.
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
                // The upstream may have closed it just then.
                Err(Failure::Reset) => {}
                result => return result,
            }
        }
        let fresh = self.open().await?;
        self.ask(fresh, &uri, agent, codings, most).await
    }

    /// Has a connection at hand, for whoever wants to know how long the answer takes and not the way to it;
    /// whether it is a new one.
    ///
    /// # Errors
    /// If there is none to be had.
    pub async fn connect(&mut self) -> Result<bool, Failure> {
        let is_new = self.kept.as_ref().is_none_or(SendRequest::is_closed);
        if is_new {
            self.kept = Some(self.open().await?);
        }
        Ok(is_new)
    }

    async fn open(&self) -> Result<SendRequest<RequestBody>, Failure> {
        let (fresh, driver, _) = self.connector.client(&self.counters).await?;
        // It ends with the sender.
        tokio::spawn(driver);
        Ok(fresh)
    }

    async fn ask(
        &mut self,
        mut sender: SendRequest<RequestBody>,
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
            // They take Brotli and Zstandard from who speaks TLS only.
            Codings::OfBrowsers if scheme == "https" => "gzip, deflate, br, zstd",
            Codings::OfBrowsers => "gzip, deflate",
        };
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(codings));
        sender.ready().await.map_err(|_| Failure::Reset)?;
        let begun = Instant::now();
        let response = match timeout(self.patience, sender.send_request(request)).await {
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
        // What is left unread would stand in the way of the next answer.
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
