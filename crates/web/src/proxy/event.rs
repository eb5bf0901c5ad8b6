//! What the proxy tells its operator: one line each, and never one for each request.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
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
    /// The certificate authority has issued no certificate for a site. It is tried again later.
    CertificateNotIssued {
        /// The first name of the site.
        name: String,
        /// Why.
        why: String,
    },
    /// The upstream cannot be reached, since now.
    UpstreamDown {
        /// What was tried, and what came of it.
        why: String,
    },
    /// It can be reached again.
    UpstreamUp,
    /// A server fails its health checks, so the others of its group get its requests.
    ServerUnhealthy {
        /// The server.
        server: String,
        /// What came of the last check.
        why: String,
    },
    /// It passes them again.
    ServerHealthy {
        /// The server.
        server: String,
    },
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
    /// An address has as many connections as one may have, so another one was closed. Told once.
    AddressRefused {
        /// The address.
        address: IpAddr,
    },
    /// A content delivery network or another shared cache stands in front: who comes by way of it
    /// gets no script and no hints. Told once.
    BehindCdn {
        /// The header field that says so, with what it says if that is its name.
        name: String,
    },
    /// The figures can be looked at: told at the start, if the token was made for this run.
    Figures {
        /// Where, with the token.
        url: String,
    },
    /// Nobody can look at the figures, because clients come in at a public address and the owner has set no
    /// token. Told at the start.
    FiguresOff {
        /// The address.
        address: SocketAddr,
    },
    /// The logs were learned from, while the site was served.
    Learned {
        /// The requests in them that something was learned from: none that the model knows already.
        requests: u64,
        /// What could not be read, of each log of which that is so; and of which several sites one is.
        unread: Vec<String>,
    },
    /// A log is not learned from, or not to its end.
    NotLearned {
        /// What is wrong with it.
        why: String,
    },
    /// The model of before cannot be read, so learning begins anew.
    ModelAside {
        /// What is wrong with it, and where it is now.
        why: String,
    },
    /// What was learned cannot be kept, and what was kept before is there still. It is tried again
    /// each minute and at the end. Told once until it works.
    ModelUnsaved {
        /// What is wrong, and with what.
        why: String,
    },
    /// Since the start no request was for the site by one of its names, for a minute at least. Told
    /// once.
    NoneOfSite {
        /// By which name there was one last.
        host: String,
    },
    /// `X-Forwarded-For` is believed and cannot be read, so the proxy in front is taken for the
    /// client. Told once.
    ForwardedUnread {
        /// What it says.
        value: String,
    },
    /// Hints were asked for, and for an hour there was no budget for one. Told once until there is.
    NoBudget {
        /// Why, and what can be done.
        why: String,
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
            Event::CertificateNotIssued { .. } => "certificate-not-issued",
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
            Event::Draining { .. } => "draining",
            Event::Stopped { .. } => "stopped",
        }
    }

    /// Whether it is bad news.
    pub fn is_warning(&self) -> bool {
        matches!(
            self,
            Event::CertificateKept { .. }
                | Event::CertificateNotIssued { .. }
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
            Event::CertificateNotIssued { name, why } => {
                write!(f, "no certificate was issued for {name}, it is tried again later: {why}")
            }
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
                "cannot accept connections: {why}. If these are too many open files, raise the limit \
                 (LimitNOFILE), or lower --max-connections"
            ),
            Event::AddressRefused { address } => write!(
                f,
                "{address} has too many connections, and the next one was closed: allow more by \
                 --max-connections-per-address, or say --trust-forwarded if it is a proxy in front"
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
                "a CDN or another cache stands in front ({name}): who comes that way gets no script \
                 and no hints, because a cache answers prefetches by itself, with copies that \
                 outlive a sign-in. Have the pages pass it uncached, and without these headers, or do \
                 without"
            ),
            Event::Figures { url } => write!(f, "what is done is shown at {url}"),
            Event::FiguresOff { address } => write!(
                f,
                "what is done is shown to nobody, because {address} may be public: show it below /.lull/ to who knows \
                 a token, by --token-file"
            ),
            Event::Learned { requests, unread } => {
                write!(f, "the logs are learned from: {requests} requests")?;
                unread.iter().try_for_each(|what| write!(f, "; {what}"))
            }
            Event::NotLearned { why } => write!(f, "not all is learned that should be: {why}"),
            Event::ModelAside { why } => write!(f, "learning begins anew: {why}"),
            Event::ModelUnsaved { why } => write!(f, "what was learned is not kept: {why}"),
            Event::NoneOfSite { host } => write!(
                f,
                "no request was for the site, the last was for {host}: these pass as they are; name \
                 the site by --site as it stands in the address bar"
            ),
            Event::ForwardedUnread { value } => write!(
                f,
                "X-Forwarded-For says '{value}', which is no address: who comes that way is taken \
                 for one client, so that little is learned; have the proxy in front write addresses"
            ),
            Event::NoBudget { why } => {
                write!(f, "for an hour nothing was fetched ahead, for want of budget: {why}")
            }
            Event::NotInBackground => f.write_str(
                "speculation rules: browsers fetch pages ahead over the connections of demand, so \
                 these prefetches are not in the background",
            ),
            Event::SiteHasWorker { path } => {
                write!(
                    f,
                    "the site has a service worker of its own ({path}): that of lull goes; leave out \
                     --service-worker"
                )
            }
            Event::RobotsUnknown { why } => {
                write!(f, "nothing is fetched ahead, because robots.txt is not known: {why}")
            }
            Event::ProbesFail { path, why } => write!(
                f,
                "how loaded the server is cannot be told by asking for {path}, which gives {why}: name \
                 what the monitor may ask for by --probe"
            ),
            _ => Ok(()),
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
