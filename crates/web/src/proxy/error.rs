//! Errors: before the proxy runs, and of a single request.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use http::StatusCode;

/// Why a proxy could not be started, or a certificate could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An upstream that is not an address of a server.
    #[error(
        "'{given}' is no upstream: {why}; write http://HOST:PORT, https://HOST:PORT, h2c://HOST:PORT, h2://HOST:PORT or unix:/PATH"
    )]
    Upstream {
        /// The given value.
        given: String,
        /// The problem.
        why: &'static str,
    },
    /// A listener that is not an address.
    #[error("'{given}' is not an address: write HOST:PORT, http://… or https://…")]
    Listen {
        /// The given value.
        given: String,
    },
    /// An address that is in use, or belongs to another machine.
    #[error("cannot listen on {address} ({source}): {}", listen_remedy(source))]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// No address to listen on.
    #[error("nothing to listen on: give --listen ADDR")]
    NoListener,
    /// A socket that the process was started with, without a listener.
    #[error("the process was started with a socket at {address}: name it by --listen {address}")]
    Unnamed {
        /// The listening address.
        address: SocketAddr,
    },
    /// The proxy would send requests to itself.
    #[error("the upstream {address} is this proxy itself: give the address of the site's server")]
    Loop {
        /// The address of both.
        address: SocketAddr,
    },
    /// HTTPS is requested, and there is no certificate.
    #[error("https on {address} needs a certificate: give --cert FILE and --key FILE")]
    NoCertificate {
        /// The address.
        address: SocketAddr,
    },
    /// The proxy listens for HTTPS, and no site has a certificate any more.
    #[error(
        "no site has a certificate, but the proxy listens for https: give one site cert and key"
    )]
    NoCertificateLeft,
    /// A file that cannot be read.
    #[error("cannot read {path} ({source})")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file without a certificate or a key.
    #[error("{path} contains no {what} in PEM: {why}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// The expected item.
        what: &'static str,
        /// The error of the parser.
        why: String,
    },
    /// A certificate and a key that do not belong together, or are unusable.
    #[error("{certificates} and {key} cannot be used together: {why}")]
    Pair {
        /// The file of the certificate.
        certificates: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The problem.
        why: String,
    },
    /// A file that cannot be written.
    #[error("cannot write {path} ({source})")]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// No self-signed certificate could be made until one is issued.
    #[error("cannot make a self-signed certificate: {0}")]
    SelfSigned(String),
    /// A certificate that does not name a host of its site.
    #[error(
        "the certificate in {path} is not for {name}: use one that names it, or leave the name \
         out"
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
        /// The attempted operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot set TLS up: {0}")]
    Tls(#[from] rustls::Error),
}

/// The result of functions of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// The remedy if the proxy cannot listen on an address.
fn listen_remedy(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose another --listen, or \
             grant it with setcap cap_net_bind_service+ep"
        }
        _ => "choose another --listen, or end the program that uses it",
    }
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { what, source }
    }
}

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// The upstream could not be reached.
    Unreachable,
    /// The upstream did not accept the connection in time.
    ConnectTimeout,
    /// The upstream did not begin to answer in time.
    HeadTimeout,
    /// The upstream stopped in the middle of its answer.
    BodyTimeout,
    /// The upstream closed or reset the connection before or within its answer.
    Reset,
    /// The upstream's answer is not HTTP, or must not be passed on.
    Garbage,
    /// The upstream already has as many requests as permitted.
    Busy,
    /// A prefetch for which the upstream had no room for too long, or which was stopped because demand came.
    NotNow,
    /// The client's request is malformed or exceeds a limit.
    Refused,
    /// The client disconnected, or stopped sending its request.
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

    /// Its index in [`ALL`](Self::ALL).
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

    /// The status for the client, if nothing of an answer has been sent so far.
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
            Failure::ConnectTimeout => "the site's server did not accept the connection in time",
            Failure::HeadTimeout => "the site's server did not answer in time",
            Failure::BodyTimeout => "the site's server stopped during its response",
            Failure::Reset => "the site's server closed the connection",
            Failure::Garbage => "the site's server did not answer in HTTP",
            Failure::Busy => "too many requests are in service",
            Failure::NotNow => "the site's server has no capacity for prefetches now",
            Failure::Refused => "the request is malformed",
            Failure::Client => "the request was truncated",
        })
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_index_and_a_unique_name() {
        for (index, failure) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure.index(), index);
        }
        let names: std::collections::BTreeSet<_> =
            Failure::ALL.iter().map(|failure| failure.name()).collect();
        assert_eq!(names.len(), Failure::ALL.len());
    }
}
