//! Clients that fetch objects, one after another, and their servers.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

/// Bytes of a request, about those of a short HTTP request.
const REQUEST: usize = 128;

/// The state of a socket after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketState {
    /// It waits.
    Waiting,
    /// The object has arrived completely.
    Answered,
    /// The connection has ended.
    Ended,
}

/// A client that has made a request.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: TcpStream,
    pub(super) asked: Instant,
    unsent: usize,
    missing: u64,
    /// Objects are this long.
    bytes: u64,
}

impl Client {
    /// A client whose connection is being made; the request follows when it is established.
    pub(super) fn new(stream: TcpStream, asked: Instant, bytes: u64) -> Self {
        Client { stream, asked, unsent: REQUEST, missing: bytes, bytes }
    }

    /// Makes the next request over the same connection.
    pub(super) fn ask(&mut self, now: Instant) -> io::Result<()> {
        self.asked = now;
        self.unsent = REQUEST;
        self.missing = self.bytes;
        self.send()
    }

    /// Whether a request has been made and is not answered yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.missing > 0
    }

    /// Whether a part of the request is still unsent.
    pub(super) fn is_asking(&self) -> bool {
        self.unsent > 0
    }

    fn send(&mut self) -> io::Result<()> {
        while self.unsent > 0 {
            match self.stream.write(&[0; REQUEST][..self.unsent]) {
                Ok(written) => self.unsent -= written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends and receives as much as possible; the received payload is added to `received`.
    pub(super) fn turn(&mut self, scratch: &mut [u8], received: &mut u64) -> SocketState {
        if let Some(Err(_)) = self.is_asking().then(|| self.send()) {
            return SocketState::Ended;
        }
        loop {
            match self.stream.read(scratch) {
                Ok(0) => return SocketState::Ended,
                Ok(read) => {
                    *received += read as u64;
                    let was_waiting = self.is_waiting();
                    self.missing = self.missing.saturating_sub(read as u64);
                    if was_waiting && self.missing == 0 {
                        return SocketState::Answered;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return SocketState::Waiting;
                }
                Err(_) => return SocketState::Ended,
            }
        }
    }
}

/// A server's end of a connection.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) stream: TcpStream,
    asked: usize,
    unsent: u64,
    bytes: u64,
    persistent: bool,
}

impl Server {
    pub(super) fn new(stream: TcpStream, bytes: u64, persistent: bool) -> Self {
        Server { stream, asked: 0, unsent: 0, bytes, persistent }
    }

    /// Whether it has data to send.
    pub(super) fn is_sending(&self) -> bool {
        self.unsent > 0
    }

    /// Reads requests, and sends as much as possible of the objects.
    pub(super) fn turn(&mut self, scratch: &mut [u8]) -> SocketState {
        loop {
            match self.stream.read(scratch) {
                Ok(0) => return SocketState::Ended,
                Ok(read) => {
                    self.asked += read;
                    while self.asked >= REQUEST {
                        self.asked -= REQUEST;
                        self.unsent += self.bytes;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return SocketState::Ended,
            }
        }
        while self.unsent > 0 {
            let length = scratch.len().min(usize::try_from(self.unsent).unwrap_or(usize::MAX));
            match self.stream.write(&scratch[..length]) {
                Ok(written) => {
                    self.unsent -= written as u64;
                    if self.unsent == 0 && !self.persistent {
                        // The client closes when it has read all.
                        let _ = self.stream.shutdown(Shutdown::Write);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return SocketState::Ended,
            }
        }
        SocketState::Waiting
    }
}
