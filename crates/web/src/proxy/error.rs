//! What can go wrong: before the proxy runs, and with a single request.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use http::StatusCode;

/// Why a proxy could not be started, or a certificate not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An upstream that is no address of a server.
    #[error(
        "'{given}' is no upstream: {why}; write http://HOST:PORT, https://HOST:PORT or unix:/PATH"
    )]
    Upstream {
        /// What was given.
        given: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A listener that is no address.
    #[error("'{given}' is no address to listen on: write HOST:PORT, http://… or https://…")]
    Listen {
        /// What was given.
        given: String,
    },
    /// An address that is not free, or not ours.
    #[error("cannot listen on {address} ({source}): {}", way_to_listen(source))]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// No address to listen on.
    #[error("nothing to listen on: give --listen ADDR")]
    NoListener,
    /// A socket that the process was started with, for no listener.
    #[error("the process was started with a socket at {address}: name it by --listen {address}")]
    Unnamed {
        /// Where it listens.
        address: SocketAddr,
    },
    /// The proxy would ask itself.
    #[error("the upstream {address} is this proxy itself: give the address of the site's server")]
    Loop {
        /// The address that is both.
        address: SocketAddr,
    },
    /// HTTPS is asked for, and there is no certificate.
    #[error("https on {address} needs a certificate: give --cert FILE and --key FILE")]
    NoCertificate {
        /// The address.
        address: SocketAddr,
    },
    /// A file that cannot be read.
    #[error("cannot read {path} ({source})")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that holds no certificate or no key.
    #[error("{path} holds no {what} in PEM: {why}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// What the parser said.
        why: String,
    },
    /// A certificate and a key that are not a pair, or that nobody can use.
    #[error("{certificates} and {key} cannot be used together: {why}")]
    Pair {
        /// The file of the certificate.
        certificates: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file that cannot be written.
    #[error("cannot write {path} ({source})")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No self-signed certificate could be made until one is issued.
    #[error("cannot make a self-signed certificate: {0}")]
    SelfSigned(String),
    /// A certificate that does not name a host of its site.
    #[error(
        "the certificate in {path} is not for {name}: take one that names it, or leave the name out"
    )]
    OtherName {
        /// The file.
        path: PathBuf,
        /// The host.
        name: String,
    },
    /// A system call failed.
    #[error("cannot {what} ({source})")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot set TLS up: {0}")]
    Tls(#[from] rustls::Error),
}

/// The result of functions of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// What can be done where an address cannot be listened on.
fn way_to_listen(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 are for root, or who has CAP_NET_BIND_SERVICE; choose another --listen, or \
             give the program that by setcap cap_net_bind_service+ep"
        }
        _ => "choose another --listen, or end who has it",
    }
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { what, source }
    }
}

/// Why one exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// The upstream could not be reached.
    Unreachable,
    /// The upstream did not take the connection in time.
    ConnectTimeout,
    /// The upstream did not begin to answer in time.
    HeadTimeout,
    /// The upstream stopped in the middle of its answer.
    BodyTimeout,
    /// The upstream closed or reset the connection before or within its answer.
    Reset,
    /// The upstream's answer is no HTTP, or not to be passed on.
    Garbage,
    /// As many requests as allowed are with the upstream already.
    Busy,
    /// A prefetch for which there was no room at the upstream for too long, or which was stopped because demand came.
    NotNow,
    /// The client's request is malformed or over a limit.
    Refused,
    /// The client went away, or stopped sending its request.
    Client,
}

impl Failure {
    /// All of them, in the order of [`index`](Self::index).
    pub const ALL: [Failure; 10] = [
        Failure::Unreachable,
        Failure::ConnectTimeout,
        Failure::HeadTimeout,
        Failure::BodyTimeout,
        Failure::Reset,
        Failure::Garbage,
        Failure::Busy,
        Failure::NotNow,
        Failure::Refused,
        Failure::Client,
    ];

    /// Its place among [`ALL`](Self::ALL).
    pub fn index(self) -> usize {
        self as usize
    }

    /// A name for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Unreachable => "unreachable",
            Failure::ConnectTimeout => "connect_timeout",
            Failure::HeadTimeout => "head_timeout",
            Failure::BodyTimeout => "body_timeout",
            Failure::Reset => "reset",
            Failure::Garbage => "garbage",
            Failure::Busy => "busy",
            Failure::NotNow => "not_now",
            Failure::Refused => "refused",
            Failure::Client => "client",
        }
    }

    /// What the client is answered, if nothing of an answer has been sent yet.
    pub fn status(self) -> StatusCode {
        match self {
            Failure::Unreachable | Failure::Reset | Failure::Garbage => StatusCode::BAD_GATEWAY,
            Failure::ConnectTimeout | Failure::HeadTimeout | Failure::BodyTimeout => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Failure::Busy | Failure::NotNow => StatusCode::SERVICE_UNAVAILABLE,
            Failure::Refused | Failure::Client => StatusCode::BAD_REQUEST,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Failure::Unreachable => "the site's server cannot be reached",
            Failure::ConnectTimeout => "the site's server did not take the connection in time",
            Failure::HeadTimeout => "the site's server did not answer in time",
            Failure::BodyTimeout => "the site's server stopped within its answer",
            Failure::Reset => "the site's server closed the connection",
            Failure::Garbage => "the site's server did not answer in HTTP",
            Failure::Busy => "too many requests are under way",
            Failure::NotNow => "the site's server has no room for prefetches now",
            Failure::Refused => "the request is malformed",
            Failure::Client => "the request broke off",
        })
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_place_and_a_name_of_its_own() {
        for (index, failure) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure.index(), index);
        }
        let names: std::collections::BTreeSet<_> =
            Failure::ALL.iter().map(|failure| failure.name()).collect();
        assert_eq!(names.len(), Failure::ALL.len());
    }
}
