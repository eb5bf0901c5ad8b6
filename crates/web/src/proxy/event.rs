//! The events of the proxy for its operator: one line each, and never one for each request.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// An event for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Clients may come.
    Listening {
        /// The address.
        address: SocketAddr,
        /// Whether over TLS.
        secure: bool,
    },
    /// A new certificate is used from now on.
    CertificateLoaded,
    /// The files of the certificate have changed and are not usable: the old one stays.
    CertificateKept {
        /// The problem of the new one.
        why: String,
    },
    /// The certificate authority has issued no certificate for a site. It is tried again later.
    CertificateNotIssued {
        /// The first name of the site.
        name: String,
        /// Why.
        why: String,
    },
    /// Other sites are served from now on, after a reload of the configuration file.
    SitesReplaced {
        /// How many sites there are.
        sites: usize,
    },
    /// The configuration file is not used, or not all of it.
    ConfigKept {
        /// The problem.
        why: String,
    },
    /// The upstream cannot be reached from now on.
    UpstreamDown {
        /// The attempt and its result.
        why: String,
    },
    /// It can be reached again.
    UpstreamUp,
    /// A server fails its health checks, so the others of its group get its requests.
    ServerUnhealthy {
        /// The server.
        server: String,
        /// The result of the last check.
        why: String,
    },
    /// It passes them again.
    ServerHealthy {
        /// The server.
        server: String,
    },
    /// A connection could not be put in the background, or not be taken back. Reported once.
    NotSwitched {
        /// The error of the transport.
        why: String,
    },
    /// Lines of the access log were lost.
    LogLost {
        /// Why.
        why: String,
    },
    /// Connections cannot be accepted for now.
    CannotAccept {
        /// The error of the kernel.
        why: String,
    },
    /// An address has as many connections as one may have, so a further one was closed. Reported once.
    AddressRefused {
        /// The address.
        address: IpAddr,
    },
    /// A content delivery network or another shared cache is in front: its clients get no script and no
    /// hints. Reported once.
    BehindCdn {
        /// The header field that shows it, with its value if that is its name.
        name: String,
    },
    /// The dashboard is available: reported at the start, if the token was generated for this run.
    Figures {
        /// The URL, with the token.
        url: String,
    },
    /// There is no access to the figures, because clients connect to a public address and the owner has set
    /// no token. Reported at the start.
    FiguresOff {
        /// The address.
        address: SocketAddr,
    },
    /// The logs were learned, while the site was served.
    Learned {
        /// The requests in them that were learned: without those that the model knows already.
        requests: u64,
        /// The unreadable lines, for each log that has some; and logs that cover several sites.
        unread: Vec<String>,
    },
    /// A log is not learned, or not to its end.
    NotLearned {
        /// The problem.
        why: String,
    },
    /// The earlier model cannot be read, so learning starts over.
    ModelAside {
        /// The problem, and where the model is now.
        why: String,
    },
    /// The model cannot be saved; the earlier saved one still exists. It is retried each minute and at the
    /// end. Reported once until it works.
    ModelUnsaved {
        /// The problem, and its file.
        why: String,
    },
    /// Since the start no request named the site, for a minute at least. Reported once.
    NoneOfSite {
        /// The name in the last request.
        host: String,
    },
    /// `X-Forwarded-For` is trusted and cannot be read, so the proxy in front counts as the client. Reported
    /// once.
    ForwardedUnread {
        /// Its value.
        value: String,
    },
    /// Clients asked for hints, and for an hour there was no budget for one. Reported once until there is.
    NoBudget {
        /// The reason, and the remedy.
        why: String,
    },
    /// Prefetches by speculation rules do not yield. Reported at the start.
    NotInBackground,
    /// The site has its own service worker, so ours is removed. Reported when it is seen, and not again
    /// within a day.
    SiteHasWorker {
        /// The URL of its script.
        path: String,
    },
    /// The site's robots.txt cannot be read, so nothing is prefetched. Reported when that lasts, once
    /// until it can be read.
    RobotsUnknown {
        /// The unexpected answer.
        why: String,
    },
    /// The monitor's requests get no usable answers. Reported once until one comes: for all objects together,
    /// because there is no budget then, and for each single dropped one.
    ProbesFail {
        /// The requested path.
        path: String,
        /// The result.
        why: String,
    },
    /// Other proxies of the site cannot be reached, so this one continues alone. Reported once until they can.
    ShareDown {
        /// The problem.
        why: String,
    },
    /// They can be reached again.
    ShareUp,
    /// A message of another proxy is not used. Reported once.
    ShareUnreadable {
        /// The problem.
        why: String,
    },
    /// No new connections; waiting for requests in progress.
    Draining {
        /// Connections that are still open.
        connections: u64,
    },
    /// The end.
    Stopped {
        /// Connections that were closed early.
        cut: u64,
    },
}

impl Event {
    /// A name for machines.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Listening { .. } => "listening",
            Event::CertificateLoaded => "certificate-loaded",
            Event::CertificateKept { .. } => "certificate-kept",
            Event::CertificateNotIssued { .. } => "certificate-not-issued",
            Event::SitesReplaced { .. } => "sites-replaced",
            Event::ConfigKept { .. } => "config-kept",
            Event::UpstreamDown { .. } => "upstream-down",
            Event::UpstreamUp => "upstream-up",
            Event::ServerUnhealthy { .. } => "server-unhealthy",
            Event::ServerHealthy { .. } => "server-healthy",
            Event::NotSwitched { .. } => "not-switched",
            Event::LogLost { .. } => "log-lost",
            Event::CannotAccept { .. } => "cannot-accept",
            Event::AddressRefused { .. } => "address-refused",
            Event::BehindCdn { .. } => "behind-cdn",
            Event::Figures { .. } => "figures",
            Event::FiguresOff { .. } => "figures-off",
            Event::Learned { .. } => "learned",
            Event::NotLearned { .. } => "not-learned",
            Event::ModelAside { .. } => "model-aside",
            Event::ModelUnsaved { .. } => "model-unsaved",
            Event::NoneOfSite { .. } => "none-of-site",
            Event::ForwardedUnread { .. } => "forwarded-unread",
            Event::NoBudget { .. } => "no-budget",
            Event::NotInBackground => "not-in-background",
            Event::SiteHasWorker { .. } => "site-has-worker",
            Event::RobotsUnknown { .. } => "robots-unknown",
            Event::ProbesFail { .. } => "probes-fail",
            Event::ShareDown { .. } => "share-down",
            Event::ShareUp => "share-up",
            Event::ShareUnreadable { .. } => "share-unreadable",
            Event::Draining { .. } => "draining",
            Event::Stopped { .. } => "stopped",
        }
    }

    /// Whether it is a warning.
    pub fn is_warning(&self) -> bool {
        matches!(
            self,
            Event::CertificateKept { .. }
                | Event::CertificateNotIssued { .. }
                | Event::ConfigKept { .. }
                | Event::UpstreamDown { .. }
                | Event::ServerUnhealthy { .. }
                | Event::NotSwitched { .. }
                | Event::LogLost { .. }
                | Event::CannotAccept { .. }
                | Event::AddressRefused { .. }
                | Event::BehindCdn { .. }
                | Event::NotLearned { .. }
                | Event::ModelAside { .. }
                | Event::ModelUnsaved { .. }
                | Event::NoneOfSite { .. }
                | Event::ForwardedUnread { .. }
                | Event::NoBudget { .. }
                | Event::NotInBackground
                | Event::SiteHasWorker { .. }
                | Event::RobotsUnknown { .. }
                | Event::ProbesFail { .. }
                | Event::ShareDown { .. }
                | Event::ShareUnreadable { .. }
        )
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Listening { address, secure: false } => {
                write!(f, "listening on http://{address}")
            }
            Event::Listening { address, secure: true } => {
                write!(f, "listening on https://{address}")
            }
            Event::CertificateLoaded => f.write_str("the new certificate is in use"),
            Event::CertificateKept { why } => {
                write!(f, "the current certificate stays in use: {why}")
            }
            Event::CertificateNotIssued { name, why } => {
                write!(f, "no certificate was issued for {name}, Lull retries later: {why}")
            }
            Event::SitesReplaced { sites: 1 } => {
                f.write_str("the configuration is reloaded: 1 site")
            }
            Event::SitesReplaced { sites } => {
                write!(f, "the configuration is reloaded: {sites} sites")
            }
            Event::ConfigKept { why } => write!(f, "the configuration stays as it was: {why}"),
            Event::UpstreamDown { why } => write!(f, "the upstream is down: {why}"),
            Event::UpstreamUp => f.write_str("the upstream is up again"),
            Event::ServerUnhealthy { server, why } => {
                write!(f, "{server} fails its health check ({why}): other servers get its requests")
            }
            Event::ServerHealthy { server } => write!(f, "{server} passes its health check again"),
            Event::NotSwitched { why } => {
                write!(f, "a connection keeps its congestion control: {why}")
            }
            Event::LogLost { why } => write!(f, "lines of the access log are lost: {why}"),
            Event::CannotAccept { why } => write!(
                f,
                "cannot accept connections: {why}. If too many files are open, raise the limit \
                 (LimitNOFILE), or lower --max-connections"
            ),
            Event::AddressRefused { address } => write!(
                f,
                "{address} has too many connections, and the next one was closed: raise \
                 --max-connections-per-address, or use --trust-forwarded if it is a proxy in \
                 front"
            ),
            Event::Draining { connections } => {
                write!(f, "ending: waiting for {connections} connections")
            }
            Event::Stopped { cut: 0 } => f.write_str("ended"),
            Event::Stopped { cut } => write!(f, "ended; {cut} connections were cut"),
            _ => self.fmt_of_prefetching(f),
        }
    }
}

impl Event {
    /// The events of prefetching.
    fn fmt_of_prefetching(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::BehindCdn { name } => write!(
                f,
                "clients come through a CDN or another shared cache ({name}). They get no script and no hints, \
                 because a cache answers prefetches itself. If the cache can pass prefetches on, use --behind-cdn: \
                 docs/how-to/cdn.md"
            ),
            Event::Figures { url } => write!(f, "the dashboard is at {url}"),
            Event::FiguresOff { address } => write!(
                f,
                "the dashboard is disabled, because {address} may be public: use --token-file to \
                 protect it by a token"
            ),
            Event::Learned { requests, unread } => {
                write!(f, "learned {requests} requests from the logs")?;
                unread.iter().try_for_each(|what| write!(f, "; {what}"))
            }
            Event::NotLearned { why } => write!(f, "some logs are not learned: {why}"),
            Event::ModelAside { why } => write!(f, "learning starts with an empty model: {why}"),
            Event::ModelUnsaved { why } => write!(f, "the model is not saved: {why}"),
            Event::NoneOfSite { host } => write!(
                f,
                "no request was for the site, the last was for {host}: such requests pass \
                 unchanged; name the site by --site as in the address bar"
            ),
            Event::ForwardedUnread { value } => write!(
                f,
                "X-Forwarded-For is '{value}', which is not an address: its visitors count as one \
                 client, so little is learned; let the proxy in front write addresses"
            ),
            Event::NoBudget { why } => {
                write!(f, "nothing was prefetched for an hour, because there was no budget: {why}")
            }
            Event::NotInBackground => f.write_str(
                "speculation rules: browsers prefetch over connections with other requests, so \
                 these prefetches are not in the background",
            ),
            Event::SiteHasWorker { path } => {
                write!(
                    f,
                    "the site has its own service worker ({path}): Lull's is removed; leave out \
                     --service-worker"
                )
            }
            Event::RobotsUnknown { why } => {
                write!(f, "prefetching is disabled, because robots.txt is unknown: {why}")
            }
            Event::ProbesFail { path, why } => write!(
                f,
                "the monitor cannot measure the server's load with {path} ({why}): name another \
                 object by --probe"
            ),
            Event::ShareDown { why } => write!(
                f,
                "nothing is shared with other proxies of the site: {why}. This proxy continues alone, and sends later \
                 what it learns now"
            ),
            Event::ShareUp => f.write_str("other proxies of the site can be reached again"),
            Event::ShareUnreadable { why } => {
                write!(f, "{why}: copy the file of --model-key to all proxies of the site")
            }
            _ => Ok(()),
        }
    }
}

/// The receiver of events.
#[derive(Clone)]
pub struct Listener(Arc<dyn Fn(&Event) + Send + Sync>);

impl Listener {
    /// Calls `report` for each event, from any thread.
    pub fn new(on_event: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Listener(Arc::new(on_event))
    }

    /// Reports an event.
    pub fn report(&self, event: &Event) {
        (self.0)(event);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}
