//! Replays an access log against a server, as the papers do with httperf (SSR §5.2.3, §5.3): clients with
//! caches send the log's requests at its times, and prefetch hinted documents.
//!
//! | module | what |
//! |---|---|
//! | [`trace`] | the requests, with their clients and times |
//! | [`client`] | a client with its cache, which carries out hints |
//! | [`advice`] | the hints, by a predictor that learned from the log |
//! | [`files`] | the log's documents, for a server to serve |
//! | `tally` | the result |
//! | `drive` | connections to the server, and the clock |
//!
//! All but `drive` are pure. The loop is open: requests are sent when they are due, independently of earlier
//! ones, and their times count from then on. So a stalled server does not get fewer requests, and requests
//! during a stall are not left out ("coordinated omission").

pub mod advice;
pub mod client;
mod drive;
pub mod files;
mod tally;
pub mod trace;

use std::io;
use std::time::Duration;

use http::HeaderValue;

pub use drive::{Progress, run};
pub(crate) use tally::Times;
pub use tally::{Demand, Fetched, Monitored, Report};

use advice::Listed;
use client::HintUse;

/// A server: `http://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    host: String,
    port: u16,
}

impl Server {
    /// The server as in `Host`.
    pub fn authority(&self) -> String {
        if self.port == 80 { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

/// A text that is not a server for a replay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// It is not a URL of a server.
    #[error("'{0}' is not a server: write http://HOST or http://HOST:PORT")]
    Form(String),
    /// It needs TLS.
    #[error("'{0}': only http:// is replayed; name the port behind TLS")]
    Tls(String),
}

impl std::str::FromStr for Server {
    type Err = ServerError;

    fn from_str(text: &str) -> Result<Self, ServerError> {
        let wrong = || ServerError::Form(text.to_owned());
        let uri: http::Uri = text.parse().map_err(|_| wrong())?;
        if uri.scheme_str() == Some("https") {
            return Err(ServerError::Tls(text.to_owned()));
        }
        let is_bare = uri.path() == "/" && uri.query().is_none();
        match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(host)) if is_bare && !host.is_empty() => {
                Ok(Server { host: host.to_owned(), port: uri.port_u16().unwrap_or(80) })
            }
            _ => Err(wrong()),
        }
    }
}

/// The prefetches, and their trigger.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Nothing is.
    None,
    /// This many files for each page, despite any effect on others (SSR §5.2.3, "No-Avoidance"; to a separate
    /// server at a lower priority, "Scheduler").
    NoAvoidance {
        /// The papers' pfrate.
        files: usize,
    },
    /// Lists come with pages (Nice §6.1).
    WithPage {
        /// The longest list.
        files: usize,
        /// See [`HintUse::WithPage`].
        pause: Duration,
    },
    /// As many as a monitor's budget permits (SSR §5.2.2).
    Monitor {
        /// The time from which on a probe is late; learned if none is given.
        threshold: Option<Duration>,
        /// The probed target.
        probe: String,
    },
    /// The hints of `lull web`, at its times.
    Hinted,
}

impl Mode {
    fn hint_use(&self) -> HintUse {
        match self {
            Mode::None => HintUse::Never,
            Mode::NoAvoidance { .. } => HintUse::OncePerPage,
            Mode::WithPage { pause, .. } => HintUse::WithPage { pause: *pause },
            Mode::Monitor { .. } => HintUse::AgainAndAgain { scripted: false },
            Mode::Hinted => HintUse::AgainAndAgain { scripted: true },
        }
    }
}

/// How a trace is replayed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The server for demand.
    pub to: Server,
    /// The server for everything else: another port, to have separate connections in the background (SSR
    /// §5.1).
    pub ahead_to: Server,
    /// The kind of prefetches.
    pub mode: Mode,
    /// The contents of lists, if the replay makes them itself.
    pub listed: Listed,
    /// Whether fetches have `X-Lull: 1`, for a `lull web` that schedules them.
    pub marked: bool,
    /// The target of dummies.
    pub dummy: String,
    /// Connections that a client has for demand; browsers have six.
    pub connections: usize,
    /// The content codings that clients accept, as in `Accept-Encoding`. The replay reads the tag and the
    /// lists of `lull web` in gzip or uncompressed.
    pub codings: HeaderValue,
    /// A request fails after this time; one that fails sooner counts as if it had taken that long.
    pub patience: Duration,
    /// Requests due earlier, and earlier fetches, are not counted. Less than the section's length.
    pub settle: Duration,
    /// The seed of random draws.
    pub seed: u64,
}

impl Settings {
    /// Whether a request due then is counted.
    fn counts(&self, due: Duration) -> bool {
        due >= self.settle
    }
}

/// Why a replay has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// There are no requests.
    #[error("this section has no requests: choose another one, or a longer one")]
    Empty,
    /// A server's name cannot be resolved.
    #[error("{server} cannot be found: name a host that is known")]
    Unknown {
        /// The server.
        server: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A server cannot be reached.
    #[error("{server} accepts no connection: start the server first")]
    Unreachable {
        /// The server.
        server: String,
        /// The system's reason.
        source: io::Error,
    },
    /// There is no server for hints.
    #[error("{server} gives no hints ({why}): name the address of a 'lull web'")]
    NoHints {
        /// The server.
        server: String,
        /// Its answer.
        why: String,
    },
    /// A system call failed.
    #[error("{what} failed")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_an_address_only() {
        for (text, authority) in [
            ("http://127.0.0.1:8080", Some("127.0.0.1:8080")),
            ("http://site.example/", Some("site.example")),
            ("http://[::1]:81", Some("[::1]:81")),
            ("https://site.example", None),
            ("http://site.example/shop", None),
            ("http://site.example/?a", None),
            ("127.0.0.1:8080", None),
            ("site", None),
            ("", None),
        ] {
            let server: Result<Server, ServerError> = text.parse();
            let found = server.as_ref().ok().map(Server::authority);
            assert_eq!(found.as_deref(), authority, "{text}: {server:?}");
        }
    }
}
