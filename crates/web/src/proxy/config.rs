//! The configuration of a proxy: its upstream, its listeners, and its limits.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderValue;
use http::uri::Authority;

use super::error::{Error, Result};

/// The server behind the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    pub(crate) target: Target,
    /// Whether it uses TLS.
    pub(crate) secure: bool,
    /// Whether it speaks HTTP/2.
    pub(crate) is_h2: bool,
    /// The `Host` for requests without one.
    pub(crate) authority: HeaderValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Upstream {
    /// Its addresses, if it has this port: its name is resolved then.
    pub(crate) fn addresses_of(&self, of: u16) -> Vec<SocketAddr> {
        match &self.target {
            Target::Tcp { host, port } if *port == of => {
                let found = (host.as_str(), of).to_socket_addrs();
                found.map(Iterator::collect).unwrap_or_default()
            }
            Target::Tcp { .. } | Target::Unix(_) => Vec::new(),
        }
    }
}

impl FromStr for Upstream {
    type Err = Error;

    fn from_str(given: &str) -> Result<Self> {
        let error = |why| Error::Upstream { given: given.to_owned(), why };
        if let Some(path) = given.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(error("the path of a unix socket begins with /"));
            }
            return Ok(Upstream {
                target: Target::Unix(path.into()),
                secure: false,
                is_h2: false,
                authority: HeaderValue::from_static("localhost"),
            });
        }
        let (scheme, rest) = given.split_once("://").ok_or(error("it has no scheme"))?;
        let (secure, is_h2) = match scheme {
            "http" => (false, false),
            "https" => (true, false),
            "h2c" => (false, true),
            "h2" => (true, true),
            _ => return Err(error("its scheme is unknown")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(error("it has a path: end it after the port"));
        }
        if rest.contains('@') {
            return Err(error("it contains a user name"));
        }
        let authority: Authority = rest.parse().map_err(|_| error("its host or port is wrong"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let has_port = authority.as_str().len() > authority.host().len();
        let port = authority.port_u16();
        if host.is_empty() || (has_port && port.is_none()) {
            return Err(error("its host or port is wrong"));
        }
        Ok(Upstream {
            target: Target::Tcp {
                host: host.to_owned(),
                port: port.unwrap_or(if secure { 443 } else { 80 }),
            },
            secure,
            is_h2,
            authority: HeaderValue::from_str(rest).map_err(|_| error("its host is wrong"))?,
        })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
            Target::Tcp { .. } => {
                let scheme = match (self.secure, self.is_h2) {
                    (false, false) => "http",
                    (true, false) => "https",
                    (false, true) => "h2c",
                    (true, true) => "h2",
                };
                write!(f, "{scheme}://{}", self.authority.to_str().unwrap_or_default())
            }
        }
    }
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address; port 0 lets the kernel choose.
    pub address: SocketAddr,
    /// Whether clients use TLS there. `None`: if there is a certificate.
    pub secure: Option<bool>,
}

impl FromStr for Listen {
    type Err = Error;

    fn from_str(given: &str) -> Result<Self> {
        let (secure, rest) = if let Some(rest) = given.strip_prefix("http://") {
            (Some(false), rest)
        } else if let Some(rest) = given.strip_prefix("https://") {
            (Some(true), rest)
        } else {
            (None, given)
        };
        let address = rest
            .to_socket_addrs()
            .ok()
            .and_then(|mut addresses| addresses.next())
            .ok_or_else(|| Error::Listen { given: given.to_owned() })?;
        Ok(Listen { address, secure })
    }
}

/// The files of the certificate for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain in PEM, the server's own certificate first.
    pub certificates: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
}

/// Limits of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections of clients. `None`: half of the descriptors that the limit leaves.
    pub connections: Option<NonZeroUsize>,
    /// The connections of one address (IPv6: of one /64). `None`: an eighth of all.
    pub connections_per_address: Option<NonZeroUsize>,
    /// Concurrent requests to the upstream. `None`: a quarter of the descriptors.
    pub upstream_requests: Option<NonZeroUsize>,
    /// Idle connections kept to the upstream, over all threads.
    pub upstream_idle: usize,
    /// Bytes of a request's or response's header section, at least 8 KiB.
    pub header_bytes: usize,
    /// Bytes of a request's target.
    pub uri_bytes: usize,
    /// Concurrent requests on one HTTP/2 connection.
    pub h2_streams: u32,
    /// Number of streams that an HTTP/2 client may reset before the proxy sees them. More is an attack
    /// (CVE-2023-44487), and ends the connection.
    pub h2_resets: usize,
    /// Minimum rate of a request's body, in bytes per second, so that no client occupies a connection with a
    /// byte now and then. Zero: none.
    pub body_rate: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: None,
            connections_per_address: None,
            upstream_requests: None,
            upstream_idle: 128,
            header_bytes: 64 << 10,
            uri_bytes: 16 << 10,
            h2_streams: 128,
            h2_resets: 20,
            body_rate: 128,
        }
    }
}

/// Time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the upstream to accept a connection.
    pub connect: Duration,
    /// For the head of the upstream's answer, once the request is sent.
    pub head: Duration,
    /// For the next piece of the upstream's answer.
    pub body: Duration,
    /// How long a connection to the upstream is kept idle: less than common servers keep it (5 s by Node and
    /// Apache), so that they rarely close one that is about to be used.
    pub upstream_idle: Duration,
    /// For a client's request head, from its first byte, and for its TLS handshake.
    pub client_head: Duration,
    /// For a client that neither sends its announced body nor takes its answer.
    pub client_stalled: Duration,
    /// How long a client's connection is kept idle.
    pub client_idle: Duration,
    /// How long requests in progress may last once the proxy drains.
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(5),
            head: Duration::from_secs(60),
            body: Duration::from_secs(60),
            upstream_idle: Duration::from_secs(4),
            client_head: Duration::from_secs(10),
            client_stalled: Duration::from_secs(30),
            client_idle: Duration::from_secs(75),
            drain: Duration::from_secs(30),
        }
    }
}

/// The destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// To standard output.
    Stdout,
    /// Appended to a file, which is reopened on a reload, for log rotation.
    File(PathBuf),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_is_parsed_with_scheme_and_port() {
        for (given, host, port, secure) in [
            ("http://127.0.0.1:8080", "127.0.0.1", 8080, false),
            ("http://site.example", "site.example", 80, false),
            ("http://site.example/", "site.example", 80, false),
            ("https://site.example", "site.example", 443, true),
            ("https://[::1]:8443", "::1", 8443, true),
            ("http://[2001:db8::1]", "2001:db8::1", 80, false),
        ] {
            let upstream: Upstream = given.parse().unwrap();
            let expected = Target::Tcp { host: host.to_owned(), port };
            assert_eq!((upstream.target, upstream.secure), (expected, secure), "{given}");
        }
        let upstream: Upstream = "unix:/run/app.sock".parse().unwrap();
        assert_eq!(upstream.target, Target::Unix("/run/app.sock".into()));
    }

    #[test]
    fn invalid_upstream_error_says_how_to_fix_it() {
        for given in [
            "127.0.0.1:8080",
            "ftp://site.example",
            "http://",
            "http://site.example/app",
            "http://site.example?x",
            "http://user@site.example",
            "http://site.example:70000",
            "http://site.example:",
            "http://a b",
            "unix:app.sock",
        ] {
            let error = given.parse::<Upstream>().unwrap_err().to_string();
            assert!(error.contains("write http://HOST:PORT"), "{error}");
            assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn listener_may_declare_whether_it_is_secure() {
        for (given, secure) in [
            ("127.0.0.1:0", None),
            ("http://127.0.0.1:0", Some(false)),
            ("https://127.0.0.1:0", Some(true)),
            ("https://[::]:0", Some(true)),
        ] {
            assert_eq!(given.parse::<Listen>().unwrap().secure, secure, "{given}");
        }
        assert!("127.0.0.1".parse::<Listen>().is_err());
        assert!("https://127.0.0.1:99999".parse::<Listen>().is_err());
    }
}
