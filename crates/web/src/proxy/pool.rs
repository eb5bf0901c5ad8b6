//! Connections to the upstream: made, and kept while they are idle.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::client::conn::http1::{self, Connection as Driver, SendRequest};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::config::{Target, Upstream};
use super::error::{Error, Failure, Result};
use super::event::{Event, Listener};
use super::io::{UpstreamIo, UpstreamStream};
use super::keep_alive::KeepAlive;
use super::link::Link;
use super::proxy_config::Config;
use super::request_body::RequestBody;
use super::thread_counters::Counters;
use super::tls;

/// Idle connections of one thread. The most recently used one is used next, so that the others age and are
/// closed.
pub(crate) struct Pool {
    idle: Mutex<VecDeque<Box<Link>>>,
    known: Mutex<KeepAlive>,
    most: usize,
    timeout: Duration,
}

impl Pool {
    pub(crate) fn new(most: usize, timeout: Duration) -> Self {
        Pool { idle: Mutex::default(), known: Mutex::default(), most, timeout }
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Box<Link>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, KeepAlive> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that was idle for the shortest time.
    pub(crate) fn take(&self) -> Option<Box<Link>> {
        let link = self.idle().pop_back()?;
        (link.idle_since.elapsed() < self.timeout).then_some(link)
    }

    /// The same for a request that must not be lost: only if the upstream is known not to close connections
    /// that soon.
    pub(crate) fn take_safe(&self) -> Option<Box<Link>> {
        let mut idle = self.idle();
        // The upstream closes the longest idle one first.
        if let Some(oldest) = idle.front_mut()
            && !oldest.is_reusable()
        {
            self.known().was_closed(oldest.idle_since.elapsed(), Instant::now());
            let closed = idle.pop_front();
            drop(idle);
            drop(closed);
            return None;
        }
        let latest = idle.back()?.idle_since.elapsed();
        let is_safe = latest < self.timeout && self.known().is_safe(latest, Instant::now());
        if is_safe { idle.pop_back() } else { None }
    }

    /// The result of a request over a connection that had been idle for this time.
    pub(crate) fn learn(&self, idle: Duration, was_closed: bool) {
        if was_closed {
            self.known().was_closed(idle, Instant::now());
        } else {
            self.known().was_good(idle);
        }
    }

    pub(crate) fn put(&self, mut link: Box<Link>) {
        if self.most == 0 {
            return;
        }
        link.idle_since = Instant::now();
        let mut idle = self.idle();
        let oldest = if idle.len() >= self.most { idle.pop_front() } else { None };
        idle.push_back(link);
        // Closing it takes a system call: not while others wait.
        drop(idle);
        drop(oldest);
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut idle = self.idle();
        let old = idle.partition_point(|link| now.duration_since(link.idle_since) >= self.timeout);
        let old: Vec<_> = idle.drain(..old).collect();
        drop(idle);
        drop(old);
    }

    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.idle());
        drop(all);
    }
}

/// Makes connections to the upstream; shared by all threads.
pub(crate) struct Connector {
    target: Target,
    /// As the operator wrote it.
    shown: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Whether the server speaks HTTP/2.
    pub(crate) is_h2: bool,
    patience: Duration,
    http: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    listener: Listener,
    is_down: AtomicBool,
    /// Whether the last connection went to an address of this machine or of a private network.
    is_near: AtomicBool,
}

impl Connector {
    /// # Errors
    /// [`Error::Tls`], [`Error::Read`] and [`Error::Pem`] if an `https` upstream cannot be judged.
    pub(crate) fn new(
        upstream: &Upstream,
        roots: Option<&Path>,
        config: &Config,
        listener: Listener,
    ) -> Result<Self> {
        let tls = match (&upstream.target, upstream.secure) {
            (Target::Tcp { host, .. }, true) => {
                let roots = match roots {
                    Some(path) => tls::roots_of(path)?,
                    None => system_roots(),
                };
                let name = ServerName::try_from(host.clone()).map_err(|_| Error::Upstream {
                    given: upstream.to_string(),
                    why: "no certificate can name its host",
                })?;
                Some((TlsConnector::from(Arc::new(tls::client(roots, upstream.is_h2)?)), name))
            }
            _ => None,
        };
        let mut http = http1::Builder::new();
        let header_bytes = config.limits.header_bytes.max(MIN_HEADER_BYTES);
        http.max_header_size(header_bytes).max_buf_size(header_bytes.max(BUFFER_BYTES));
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
            .initial_stream_window_size(H2_WINDOW)
            .initial_connection_window_size(4 * H2_WINDOW)
            .max_send_buf_size(BUFFER_BYTES);
        Ok(Connector {
            target: upstream.target.clone(),
            shown: upstream.to_string(),
            tls,
            is_h2: upstream.is_h2,
            patience: config.timeouts.connect,
            http,
            http2,
            listener,
            is_down: AtomicBool::new(false),
            is_near: AtomicBool::new(false),
        })
    }

    /// Whether it uses TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the last attempt failed.
    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Whether it is on this machine or in a private network, so that bytes cost little. Unknown before the first
    /// connection.
    pub(crate) fn is_near(&self) -> bool {
        self.is_near.load(Ordering::Relaxed)
    }

    /// Opens a connection, and reports when the upstream goes down and comes back.
    pub(crate) async fn connect(
        &self,
        counters: &Counters,
    ) -> std::result::Result<Box<Link>, Failure> {
        let (sender, driver, read) = self.client(counters).await?;
        Ok(Link::new(sender, driver, read))
    }

    /// The same in its parts: the sender of requests, the driver that must be polled, and the counter of
    /// received bytes.
    pub(crate) async fn client(&self, counters: &Counters) -> std::result::Result<Parts, Failure> {
        let stream = self.stream(counters).await?;
        self.handshake(stream).await
    }

    /// The same over HTTP/2. The connection ends with its last sender.
    pub(crate) async fn client_h2(
        &self,
        counters: &Counters,
    ) -> std::result::Result<http2::SendRequest<RequestBody>, Failure> {
        let stream = self.stream(counters).await?;
        let io = TokioIo::new(UpstreamIo { stream, read: Arc::default() });
        let handshake = tokio::time::timeout(self.patience, self.http2.handshake(io)).await;
        let handshake = handshake.map_err(|_| Failure::ConnectTimeout)?;
        let (sender, driver) = handshake.map_err(|_| Failure::Unreachable)?;
        // Its failures are those of its requests.
        tokio::spawn(async move { drop(driver.await) });
        Ok(sender)
    }

    async fn stream(&self, counters: &Counters) -> std::result::Result<UpstreamStream, Failure> {
        counters.upstream_connections.increment();
        let (failure, why) = match tokio::time::timeout(self.patience, self.open()).await {
            Ok(Ok(stream)) => {
                if self.is_down.load(Ordering::Relaxed)
                    && self.is_down.swap(false, Ordering::Relaxed)
                {
                    self.listener.report(&Event::UpstreamUp);
                }
                return Ok(stream);
            }
            Ok(Err(error)) => (Failure::Unreachable, error.to_string()),
            Err(_) => (Failure::ConnectTimeout, format!("no answer in {:?}", self.patience)),
        };
        if !self.is_down.swap(true, Ordering::Relaxed) {
            let why = format!("connecting to {}: {why}", self.shown);
            self.listener.report(&Event::UpstreamDown { why });
        }
        Err(failure)
    }

    async fn open(&self) -> io::Result<UpstreamStream> {
        let tcp = match &self.target {
            Target::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                self.is_near.store(true, Ordering::Relaxed);
                return Ok(UpstreamStream::Unix(stream));
            }
            Target::Tcp { host, port } => TcpStream::connect((host.as_str(), *port)).await?,
        };
        tcp.set_nodelay(true)?;
        self.is_near.store(is_private(tcp.peer_addr()?.ip()), Ordering::Relaxed);
        Ok(match &self.tls {
            None => UpstreamStream::Plain(tcp),
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), tcp).await?;
                if self.is_h2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                    return Err(io::Error::other("the server does not offer HTTP/2 (ALPN)"));
                }
                UpstreamStream::Tls(Box::new(stream))
            }
        })
    }

    async fn handshake(&self, stream: UpstreamStream) -> std::result::Result<Parts, Failure> {
        let read = Arc::new(AtomicU64::new(0));
        let io = TokioIo::new(UpstreamIo { stream, read: Arc::clone(&read) });
        let (sender, driver) = self.http.handshake(io).await.map_err(|_| Failure::Unreachable)?;
        Ok((sender, driver, read))
    }
}

/// A connection in its parts.
type Parts = (SendRequest<RequestBody>, Driver<TokioIo<UpstreamIo>, RequestBody>, Arc<AtomicU64>);

/// The minimum that hyper needs.
pub(crate) const MIN_HEADER_BYTES: usize = 8 << 10;
/// Bytes of a body read or written at a time. Below the size from which on the allocator of glibc asks the
/// kernel for each buffer (128 KiB), and returns it.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;

/// Bytes of a response that an HTTP/2 server may send before they are taken.
const H2_WINDOW: u32 = 256 << 10;

/// Whether an address is of this machine or of a private network (RFC 1918, 4193, 3927), where bytes cost nothing.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_loopback() || address.is_private() || address.is_link_local()
        }
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Unreadable ones are missing when a certificate is verified.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}
