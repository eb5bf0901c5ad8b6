//! What the proxy tells its operator: one line each, and never one for each request.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Something that the operator wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Clients may come.
    Listening {
        /// Where.
        address: SocketAddr,
        /// Whether over TLS.
        secure: bool,
    },
    /// A new certificate is used from now on.
    CertificateLoaded,
    /// The files of the certificate have changed and cannot be used: the old one stays.
    CertificateKept {
        /// What is wrong with the new one.
        why: String,
    },
    /// The upstream cannot be reached, since now.
    UpstreamDown {
        /// What was tried, and what came of it.
        why: String,
    },
    /// It can be reached again.
    UpstreamUp,
    /// A connection could not be put in the background, or not be taken back. Told once.
    NotSwitched {
        /// What the transport said.
        why: String,
    },
    /// Lines of the access log were lost.
    LogLost {
        /// Why.
        why: String,
    },
    /// Connections cannot be accepted for now.
    CannotAccept {
        /// What the kernel said.
        why: String,
    },
    /// A content delivery network stands in front. Told once.
    BehindCdn {
        /// What it calls itself.
        name: String,
    },
    /// What browsers fetch ahead by speculation rules yields to nobody. Told at the start.
    NotInBackground,
    /// The site has a service worker of its own, so ours goes. Told when it is seen, and not again
    /// within a day.
    SiteHasWorker {
        /// Where its script is.
        path: String,
    },
    /// The site's robots.txt cannot be read, so nothing is fetched ahead. Told when that lasts, and once
    /// until it can be.
    RobotsUnknown {
        /// What came in its place.
        why: String,
    },
    /// What the monitor asks for gives no answer of use. Told once until one comes: of all objects
    /// together, as there is no budget then, and of each that alone is given up.
    ProbesFail {
        /// What is asked for.
        path: String,
        /// What came of it.
        why: String,
    },
    /// No new connections; waiting for what is under way.
    Draining {
        /// Connections that are still open.
        connections: u64,
    },
    /// The end.
    Stopped {
        /// Connections that were cut.
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
            Event::UpstreamDown { .. } => "upstream-down",
            Event::UpstreamUp => "upstream-up",
            Event::NotSwitched { .. } => "not-switched",
            Event::LogLost { .. } => "log-lost",
            Event::CannotAccept { .. } => "cannot-accept",
            Event::BehindCdn { .. } => "behind-cdn",
            Event::NotInBackground => "not-in-background",
            Event::SiteHasWorker { .. } => "site-has-worker",
            Event::RobotsUnknown { .. } => "robots-unknown",
            Event::ProbesFail { .. } => "probes-fail",
            Event::Draining { .. } => "draining",
            Event::Stopped { .. } => "stopped",
        }
    }

    /// Whether it is bad news.
    pub fn is_warning(&self) -> bool {
        matches!(
            self,
            Event::CertificateKept { .. }
                | Event::UpstreamDown { .. }
                | Event::NotSwitched { .. }
                | Event::LogLost { .. }
                | Event::CannotAccept { .. }
                | Event::BehindCdn { .. }
                | Event::NotInBackground
                | Event::SiteHasWorker { .. }
                | Event::RobotsUnknown { .. }
                | Event::ProbesFail { .. }
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
                write!(f, "the certificate in use stays, because {why}")
            }
            Event::UpstreamDown { why } => write!(f, "the upstream is down: {why}"),
            Event::UpstreamUp => f.write_str("the upstream is up again"),
            Event::NotSwitched { why } => {
                write!(f, "a connection keeps its congestion control: {why}")
            }
            Event::LogLost { why } => write!(f, "lines of the access log are lost: {why}"),
            Event::CannotAccept { why } => write!(f, "cannot accept connections: {why}"),
            Event::BehindCdn { name } => write!(
                f,
                "a CDN stands in front ({name}): from there on prefetches yield to nobody"
            ),
            Event::NotInBackground => f.write_str(
                "speculation rules: browsers fetch pages ahead over the connections of demand, so \
                 these prefetches are not in the background",
            ),
            Event::SiteHasWorker { path } => {
                write!(f, "the site has a service worker of its own ({path}): that of lull goes")
            }
            Event::RobotsUnknown { why } => {
                write!(f, "nothing is fetched ahead, because robots.txt is not known: {why}")
            }
            Event::ProbesFail { path, why } => write!(
                f,
                "how loaded the server is cannot be told by asking for {path}, which gives {why}: name \
                 what the monitor may ask for by --probe"
            ),
            Event::Draining { connections } => {
                write!(f, "ending: waiting for {connections} connections")
            }
            Event::Stopped { cut: 0 } => f.write_str("ended"),
            Event::Stopped { cut } => write!(f, "ended; {cut} connections were cut"),
        }
    }
}

/// Who is told.
#[derive(Clone)]
pub struct Listener(Arc<dyn Fn(&Event) + Send + Sync>);

impl Listener {
    /// Calls `tell` for each event, from any thread.
    pub fn new(tell: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Listener(Arc::new(tell))
    }

    pub(crate) fn tell(&self, event: &Event) {
        (self.0)(event);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}
