//! Requests of the proxy's own: for robots.txt, and what a monitor asks for.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body::Body as _;
use hyper::client::conn::http1::SendRequest;
use tokio::time::timeout;

use super::body::RequestBody;
use super::error::Failure;
use super::metrics::Counters;
use super::pool::Connector;
use super::upstream::failure_of;

/// Asks the upstream on nobody's behalf, over a connection of its own that it keeps. A clone has
/// another one.
pub struct Fetcher {
    connector: Arc<Connector>,
    counters: Arc<Counters>,
    host: HeaderValue,
    patience: Duration,
    kept: Option<SendRequest<RequestBody>>,
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
    pub(crate) fn new(connector: Arc<Connector>, host: HeaderValue, patience: Duration) -> Self {
        // Not among those of the threads: nobody's request is counted there.
        Fetcher { connector, counters: Arc::default(), host, patience, kept: None }
    }

    /// The same, which says another `Host`.
    #[must_use]
    pub fn with_host(mut self, host: HeaderValue) -> Self {
        self.host = host;
        self
    }

    /// Asks for a path, as `agent`, and reads `most` bytes of the answer. Redirects are not
    /// followed.
    ///
    /// # Errors
    /// If nothing came, or it broke off; [`Failure::Refused`] if the path is none.
    pub async fn get(
        &mut self,
        path: &str,
        agent: &'static str,
        most: usize,
    ) -> Result<Fetched, Failure> {
        let uri: Uri = path.parse().map_err(|_| Failure::Refused)?;
        if let Some(kept) = self.kept.take()
            && !kept.is_closed()
        {
            match self.ask(kept, &uri, agent, most).await {
                // The upstream may have closed it just then.
                Err(Failure::Reset) => {}
                result => return result,
            }
        }
        let (fresh, driver, _) = self.connector.client(&self.counters).await?;
        // It ends with the sender.
        tokio::spawn(driver);
        self.ask(fresh, &uri, agent, most).await
    }

    async fn ask(
        &mut self,
        mut sender: SendRequest<RequestBody>,
        uri: &Uri,
        agent: &'static str,
        most: usize,
    ) -> Result<Fetched, Failure> {
        let mut request = Request::new(RequestBody::empty());
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
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
            patience: self.patience,
            kept: None,
        }
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("host", &self.host).finish_non_exhaustive()
    }
}
