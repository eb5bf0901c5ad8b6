//! The parents of a replica: the origin, or relays. If one does not answer, the next one is tried.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::identity::all_addresses;

/// How long one of several may take to accept a connection, until the next one is tried.
const PATIENCE: Duration = Duration::from_secs(3);

/// A machine that a replica may get all from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) address: String,
    pub(super) is_relay: bool,
}

/// All of them, and the one whose turn it is.
#[derive(Debug)]
pub(super) struct Parents {
    /// The addresses of relays; none: the origin's.
    via: Vec<String>,
    /// The origin is the last one, behind the relays.
    or_origin: bool,
    /// The one that the last connection led to, or that is tried next.
    current: Mutex<Option<Parent>>,
}

impl Parents {
    pub(super) fn new(via: Vec<String>, or_origin: bool) -> Self {
        Parents { via, or_origin, current: Mutex::default() }
    }

    /// In the order in which they are tried; `origin` is the origin's address.
    fn all(&self, origin: &str) -> Vec<Parent> {
        let of = |addresses: &str, is_relay| -> Vec<Parent> {
            let all = all_addresses(addresses).map(str::to_owned);
            all.map(|address| Parent { address, is_relay }).collect()
        };
        let relays = self.via.iter().flat_map(|address| of(address, true));
        let is_last = self.via.is_empty() || self.or_origin;
        relays.chain(of(origin, false).into_iter().filter(|_| is_last)).collect()
    }

    /// Whether there is more than one.
    pub(super) fn are_several(&self, origin: &str) -> bool {
        self.all(origin).len() > 1
    }

    fn lock(&self) -> MutexGuard<'_, Option<Parent>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one whose turn it is.
    pub(super) fn current(&self, origin: &str) -> Parent {
        let all = self.all(origin);
        let current = self.lock().clone().filter(|one| all.contains(one));
        let first = || all.first().cloned();
        current
            .or_else(first)
            .unwrap_or_else(|| Parent { address: origin.to_owned(), is_relay: false })
    }

    /// This one has not accepted the replica: the next attempt begins with the one behind it.
    pub(super) fn pass_over(&self, origin: &str) {
        let current = self.current(origin);
        let next = after(&self.all(origin), &current);
        *self.lock() = next;
    }

    /// One that accepts connections, from the current one on. An origin that stands by accepts and closes them.
    /// Returns whether it is another one than the last.
    pub(super) async fn reach(&self, origin: &str) -> (Parent, bool) {
        let all = self.all(origin);
        let before = self.lock().clone();
        let mut parent = self.current(origin);
        for _ in 1..all.len() {
            let connected = timeout(PATIENCE, TcpStream::connect(&parent.address)).await;
            if let Ok(Ok(stream)) = connected
                && !is_closed(stream).await
            {
                break;
            }
            parent = after(&all, &parent).unwrap_or(parent);
        }
        *self.lock() = Some(parent.clone());
        let is_new = all.len() > 1 && before.as_ref() != Some(&parent);
        (parent, is_new)
    }
}

/// The one behind another, in turns.
fn after(all: &[Parent], parent: &Parent) -> Option<Parent> {
    let at = all.iter().position(|one| one == parent)?;
    all.get((at + 1) % all.len()).cloned()
}

/// Whether the other side closes a connection at once: an origin waits for the client's first message.
async fn is_closed(mut stream: TcpStream) -> bool {
    const MOMENT: Duration = Duration::from_millis(200);
    timeout(MOMENT, stream.read_u8()).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const ORIGIN: &str = "origin:7070";

    #[test]
    fn parents_are_tried_in_turns() {
        let turns = |via: &[&str], or_origin| {
            let via = via.iter().map(|&one| one.to_owned()).collect();
            let parents = Parents::new(via, or_origin);
            let next = || {
                let Parent { address, is_relay } = parents.current(ORIGIN);
                parents.pass_over(ORIGIN);
                (address, is_relay)
            };
            let turns: Vec<_> = core::iter::repeat_with(next).take(4).collect();
            turns
        };
        let origin = || (ORIGIN.to_owned(), false);
        let relay = |name: &str| (name.to_owned(), true);
        assert_eq!(turns(&[], false), [origin(), origin(), origin(), origin()]);
        assert_eq!(
            turns(&["a:1"], false),
            [relay("a:1"), relay("a:1"), relay("a:1"), relay("a:1")]
        );
        let both = [relay("a:1"), relay("b:2"), relay("a:1"), relay("b:2")];
        assert_eq!(turns(&["a:1", "b:2"], false), both);
        let all = [relay("a:1"), relay("b:2"), origin(), relay("a:1")];
        assert_eq!(turns(&["a:1", "b:2"], true), all);
    }

    #[tokio::test]
    async fn unreachable_parent_is_passed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().to_string();
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let away = gone.local_addr().unwrap().to_string();
        drop(gone);
        let parents = Parents::new(vec![away, here.clone()], true);
        let expected = Parent { address: here, is_relay: true };
        assert_eq!(parents.reach(ORIGIN).await, (expected.clone(), true));
        assert_eq!(parents.reach(ORIGIN).await, (expected.clone(), false));
        assert_eq!(parents.current(ORIGIN), expected);
    }
}
