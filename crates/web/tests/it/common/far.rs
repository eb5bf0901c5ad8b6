//! A slow network path to a server.

use std::io::{ErrorKind, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// The delay of opening a connection, and its lifetime.
pub(crate) const WAY: Duration = Duration::from_millis(80);
pub(crate) const LIFE: Duration = Duration::from_millis(1_500);

/// Forwards to `to`, like a slow path with many hops.
pub(crate) fn way_to(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((here, _)) = listener.accept() {
            thread::spawn(move || {
                thread::sleep(WAY);
                // The test may have ended.
                let Ok(there) = TcpStream::connect(to) else { return };
                let pipe = |from: &TcpStream, to: &TcpStream| {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        // It ends when its life does.
                        let ended = copy(&mut from, &mut to);
                        assert!(!matches!(ended, Err(error) if error.kind() == ErrorKind::Other));
                    });
                };
                pipe(&here, &there);
                pipe(&there, &here);
                thread::sleep(LIFE);
                for stream in [here, there] {
                    let _ = stream.shutdown(Shutdown::Both);
                }
            });
        }
    });
    address
}
