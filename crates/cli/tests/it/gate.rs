//! A gate in front of a server, behind which transfers wait.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// An address with a port that is free at the moment.
pub(crate) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Passes connections on to an address; each carries so many bytes from there, and then waits until it may carry more.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) address: String,
    pub(crate) each: Arc<AtomicU64>,
    pub(crate) carried: Arc<AtomicU64>,
    /// From this byte of a connection on, each read has one wrong byte.
    pub(crate) wrong_from: Arc<AtomicU64>,
}

impl Gate {
    pub(crate) fn open(to: &str, each: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate = Gate {
            address,
            each: Arc::new(AtomicU64::new(each)),
            carried: Arc::default(),
            wrong_from: Arc::new(AtomicU64::new(u64::MAX)),
        };
        let (passing, to) = (gate.clone(), to.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&to) else { continue };
                passing.clone().pass(client, server);
            }
        });
        gate
    }

    fn pass(self, client: TcpStream, server: TcpStream) {
        let (mut asks, mut asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut asks, &mut asked);
            let _ = asked.shutdown(Shutdown::Both);
        });
        let (mut from, mut to) = (server, client);
        thread::spawn(move || {
            let (mut bytes, mut carried) = (vec![0; 64 * 1024], 0);
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                while carried >= self.each.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
                if carried >= self.wrong_from.load(Ordering::Relaxed) {
                    bytes[count / 2] ^= 1;
                }
                carried += count as u64;
                self.carried.fetch_add(count as u64, Ordering::Relaxed);
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}
