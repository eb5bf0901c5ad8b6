//! The address of a log: `nats://HOST:PORT,HOST:PORT/STREAM`.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// The port of a NATS server without another one.
const PORT: u16 = 4222;
/// The longest name of a stream.
const LONGEST_NAME: usize = 100;

/// A stream of a NATS JetStream: the servers of one cluster, and the name of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogAddress {
    /// Whether connections must use TLS.
    pub(super) tls: bool,
    /// Servers, each `HOST:PORT`. One of them that answers is enough.
    pub(super) servers: Vec<String>,
    /// The stream, which has the log of one origin.
    pub(super) stream: String,
}

/// Why an address is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LogAddressError {
    /// It is of no known kind.
    #[error(
        "`{0}` is not a log: write nats://HOST:PORT/STREAM, or tls://HOST:PORT/STREAM; separate several servers \
         with commas"
    )]
    Kind(String),
    /// It contains a user or a password.
    #[error(
        "the address of a log must not contain a password: set NATS_USER and NATS_PASSWORD, or NATS_TOKEN, instead"
    )]
    Secret,
    /// No stream may have the name.
    #[error(
        "`{0}` is not a name of a stream: use 1 to {LONGEST_NAME} letters, digits, `-` and `_`"
    )]
    Stream(String),
    /// It is not a server.
    #[error("`{0}` is not a server: write HOST:PORT")]
    Server(String),
}

impl FromStr for LogAddress {
    type Err = LogAddressError;

    fn from_str(text: &str) -> Result<Self, LogAddressError> {
        let kind = || LogAddressError::Kind(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(kind)?;
        let tls = match scheme {
            "nats" => false,
            "tls" => true,
            _ => return Err(kind()),
        };
        let (servers, stream) = rest.split_once('/').ok_or_else(kind)?;
        if servers.contains('@') {
            return Err(LogAddressError::Secret);
        }
        let is_plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '_');
        if !(1..=LONGEST_NAME).contains(&stream.len()) || !stream.chars().all(is_plain) {
            return Err(LogAddressError::Stream(stream.to_owned()));
        }
        let servers: Result<Vec<_>, _> = servers.split(',').map(server).collect();
        Ok(LogAddress { tls, servers: servers?, stream: stream.to_owned() })
    }
}

/// A server with its port.
fn server(text: &str) -> Result<String, LogAddressError> {
    let wrong = || LogAddressError::Server(text.to_owned());
    // The end of an IPv6 address is behind its last bracket.
    let after = text.rfind(']').map_or(0, |at| at + 1);
    let host_is_valid = |host: &str| !host.is_empty() && !host.contains([' ', '?', '#']);
    match text[after..].rsplit_once(':') {
        Some((host, port)) => {
            let port = port.parse::<u16>().ok().filter(|port| *port != 0);
            let valid = port.is_some() && host_is_valid(&text[..after + host.len()]);
            valid.then(|| text.to_owned()).ok_or_else(wrong)
        }
        None if host_is_valid(text) => Ok(format!("{text}:{PORT}")),
        None => Err(wrong()),
    }
}

impl fmt::Display for LogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "tls" } else { "nats" };
        write!(f, "{scheme}://{}/{}", self.servers.join(","), self.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_address_is_parsed_and_shown() {
        for (text, shown) in [
            ("nats://a:4222/pages", "nats://a:4222/pages"),
            ("nats://a/pages", "nats://a:4222/pages"),
            ("tls://a:1,b:2,[::1]:3/my_log-2", "tls://a:1,b:2,[::1]:3/my_log-2"),
            ("nats://[::1]/x", "nats://[::1]:4222/x"),
        ] {
            let address: LogAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse(), Ok(address));
        }
    }

    #[test]
    fn log_address_that_leads_nowhere_is_rejected() {
        use LogAddressError::{Kind, Secret, Server, Stream};
        let kind = |text: &str| Kind(text.to_owned());
        for (text, error) in [
            ("pages", kind("pages")),
            ("s3://pages/x", kind("s3://pages/x")),
            ("nats://a:4222", kind("nats://a:4222")),
            ("nats://user:password@a:4222/x", Secret),
            ("nats://a:4222/", Stream(String::new())),
            ("nats://a:4222/a.b", Stream("a.b".to_owned())),
            ("nats://a:4222/x?y=1", Stream("x?y=1".to_owned())),
            ("nats://:4222/x", Server(":4222".to_owned())),
            ("nats://a:0/x", Server("a:0".to_owned())),
            ("nats://a,,b/x", Server(String::new())),
        ] {
            assert_eq!(text.parse::<LogAddress>(), Err(error), "{text}");
        }
    }
}
