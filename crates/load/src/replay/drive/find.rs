//! The requirements of a replay: listening servers, and descriptors for its connections.

use std::net::{TcpStream, ToSocketAddrs};
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::exchange::ServerAddress;
use crate::replay::{ReplayError, Server};

/// How long a server may take until it listens: it may have just been started.
const STARTING: Duration = Duration::from_secs(10);

/// Raises this process's limit of connections to the maximum: each client has some.
pub(super) fn raise_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If that is not permitted, connections fail, and count as failed.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Finds a server, and waits until it listens.
pub(super) fn find(
    server: &Server,
    codings: &HeaderValue,
) -> Result<Rc<ServerAddress>, ReplayError> {
    let host = server.host.trim_start_matches('[').trim_end_matches(']');
    let unknown = |source| ReplayError::Unknown { server: server.to_string(), source };
    let addresses: Vec<_> = (host, server.port).to_socket_addrs().map_err(unknown)?.collect();
    let began = Instant::now();
    loop {
        let mut why = std::io::Error::from(std::io::ErrorKind::NotFound);
        for address in &addresses {
            match TcpStream::connect_timeout(address, STARTING) {
                Ok(_) => {
                    let authority = HeaderValue::from_str(&server.authority())
                        .unwrap_or_else(|_| HeaderValue::from_static("localhost"));
                    let codings = codings.clone();
                    return Ok(Rc::new(ServerAddress { address: *address, authority, codings }));
                }
                Err(error) => why = error,
            }
        }
        if began.elapsed() > STARTING {
            return Err(ReplayError::Unreachable { server: server.to_string(), source: why });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
