//! Replies whose first bytes arrive, and the rest on request of a test.

use std::io::{Error, ErrorKind, Read as _};
use std::sync::mpsc::Sender;

use super::*;

/// Bytes of the body that are sent first.
const FIRST: usize = 40;

/// Sends the first bytes of a page of the given type, and the rest on request, with the returned sender.
pub(super) fn in_halves(
    kind: &'static str,
) -> (impl Fn(&mut Peer) + Send + Sync + 'static, Sender<()>) {
    let (go, gone) = channel();
    let gone: Mutex<Receiver<()>> = Mutex::new(gone);
    let serve = move |peer: &mut Peer| {
        let (first, rest) = PAGE.split_at(FIRST);
        peer.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{first}",
            PAGE.len()
        ));
        gone.lock().unwrap().recv_timeout(LIMIT).unwrap();
        peer.send(rest);
    };
    (serve, go)
}

/// Sends pages whose path has this prefix like that, and all others at once.
pub(super) fn slow_upstream(slow: &'static str) -> (SocketAddr, Sender<()>) {
    let (in_halves, go) = in_halves("text/html");
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            match head.split(' ').nth(1).unwrap_or_default() {
                "/robots.txt" => peer.send(NO_ROBOTS),
                path if path.starts_with(slow) => in_halves(&mut peer),
                _ => peer.send(page("", PAGE)),
            }
        }
    });
    (address, go)
}

/// A prefetch of such a page, of plain text. The first bytes have arrived.
pub(super) struct UnderWay(common::Client);

impl UnderWay {
    pub(super) fn begin(site: &Fronted, path: &str, mark: &str, more: &str) -> Self {
        let mut client = site.proxy.connect();
        client.send(prefetch(path, mark, more));
        assert!(client.head().starts_with("HTTP/1.1 200"));
        client.exactly(FIRST);
        UnderWay(client)
    }

    /// The rest never arrives.
    pub(super) fn assert_cut_off(mut self) {
        let mut rest = Vec::new();
        // It does end, even if by a reset. A pause is no evidence.
        let ended = self.0.0.read_to_end(&mut rest);
        let is_reset = |error: &Error| error.kind() == ErrorKind::ConnectionReset;
        assert!(ended.as_ref().map_or_else(is_reset, |_| true), "{ended:?}");
        assert!(rest.len() < PAGE.len() - FIRST, "{:?}", String::from_utf8_lossy(&rest));
    }
}
