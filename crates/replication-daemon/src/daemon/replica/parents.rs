//! The parents of a replica: the origin, or relays. If one does not answer, the next one is tried.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::identity::all_addresses;

/// How long one of several may take to accept a connection, until the next one is tried.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often a parent may send wrong bytes.
const MAX_WRONG: u32 = 3;
/// Pause before the first look whether a lost relay is back.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Longest such pause: a relay may accept connections and serve no replica.
const MAX_LOOK_AGAIN: Duration = Duration::from_mins(10);

/// A machine that a replica may get all from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) address: String,
    pub(super) is_relay: bool,
}

impl Parent {
    /// Whether it accepts connections. An origin that stands by accepts and closes them.
    async fn is_reachable(&self) -> bool {
        let connected = timeout(PATIENCE, TcpStream::connect(&self.address)).await;
        match connected {
            Ok(Ok(stream)) => !is_closed(stream).await,
            _ => false,
        }
    }
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
    /// The pause before the next look at the first one. It is longer after each return that failed.
    look_again: Mutex<Duration>,
    /// How often the current one has sent wrong bytes.
    wrong: AtomicU32,
}

impl Parents {
    pub(super) fn new(via: Vec<String>, or_origin: bool) -> Self {
        Parents {
            via,
            or_origin,
            current: Mutex::default(),
            look_again: Mutex::new(LOOK_AGAIN),
            wrong: AtomicU32::new(0),
        }
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

    /// The current one has sent bytes that do not have their hash, or were changed on their way. If that was too often, the
    /// next one is tried: returns the address of this one, and whether there is another one.
    pub(super) fn note_wrong_bytes(&self, origin: &str) -> Option<(String, bool)> {
        if self.wrong.fetch_add(1, Ordering::Relaxed) + 1 < MAX_WRONG {
            return None;
        }
        let Parent { address, .. } = self.current(origin);
        self.pass_over(origin);
        *self.pause() = MAX_LOOK_AGAIN;
        Some((address, self.are_several(origin)))
    }

    /// The relays before the current parent. A replica turns from one address of the origin to another only when it loses
    /// it.
    fn earlier(&self, origin: &str) -> Vec<Parent> {
        let current = self.current(origin);
        let all = self.all(origin).into_iter();
        all.take_while(|one| *one != current && one.is_relay).collect()
    }

    /// The current parent has served this replica. If it is the first one, a return to it has succeeded.
    pub(super) fn note_served(&self, origin: &str) {
        if self.earlier(origin).is_empty() {
            *self.pause() = LOOK_AGAIN;
        }
    }

    /// Waits until a relay before the current parent accepts connections again. It is the next one to be tried. Never ends
    /// below the first one.
    pub(super) async fn wait_for_earlier(&self, origin: &str) -> Parent {
        let earlier = self.earlier(origin);
        if earlier.is_empty() {
            return core::future::pending().await;
        }
        loop {
            let pause = *self.pause();
            tokio::time::sleep(pause).await;
            for parent in &earlier {
                if parent.is_reachable().await {
                    *self.pause() = (2 * pause).min(MAX_LOOK_AGAIN);
                    *self.lock() = Some(parent.clone());
                    return parent.clone();
                }
            }
        }
    }

    fn pause(&self) -> MutexGuard<'_, Duration> {
        self.look_again.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.wrong.store(0, Ordering::Relaxed);
    }

    /// One that accepts connections, from the current one on.
    /// Returns whether it is another one than the last.
    pub(super) async fn reach(&self, origin: &str) -> (Parent, bool) {
        let all = self.all(origin);
        let before = self.lock().clone();
        let mut parent = self.current(origin);
        for _ in 1..all.len() {
            if parent.is_reachable().await {
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

    #[test]
    fn parent_with_wrong_bytes_is_passed_over() {
        let parents = Parents::new(vec!["a:1".to_owned(), "b:2".to_owned()], false);
        let wrong = || parents.note_wrong_bytes(ORIGIN);
        assert_eq!([wrong(), wrong()], [None, None]);
        assert_eq!(wrong(), Some(("a:1".to_owned(), true)));
        assert_eq!(parents.current(ORIGIN).address, "b:2");
        // The next one begins at zero.
        assert_eq!(wrong(), None);
        parents.pass_over(ORIGIN);
        assert_eq!([wrong(), wrong()], [None, None]);
        let alone = Parents::new(Vec::new(), false);
        let all: Vec<_> = (0..3).map(|_| alone.note_wrong_bytes(ORIGIN)).collect();
        assert_eq!(all, [None, None, Some((ORIGIN.to_owned(), false))]);
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

    #[tokio::test]
    async fn earlier_relay_is_tried_when_it_is_back() {
        const SOON: Duration = Duration::from_millis(10);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let first = listener.local_addr().unwrap().to_string();
        drop(listener);
        let parents = Parents::new(vec![first.clone(), "b:2".to_owned()], true);
        let waits = || timeout(20 * SOON, parents.wait_for_earlier(ORIGIN));
        parents.pass_over(ORIGIN);
        *parents.pause() = SOON;
        assert!(waits().await.is_err(), "it is away");
        let listener = TcpListener::bind(&first).await.unwrap();
        let back = parents.wait_for_earlier(ORIGIN).await;
        assert_eq!(back, Parent { address: first, is_relay: true });
        assert_eq!(parents.current(ORIGIN), back);
        // If it accepts connections and serves no replica, the next look comes later.
        assert_eq!(*parents.pause(), 2 * SOON);
        drop(listener);
        parents.pass_over(ORIGIN);
        parents.pass_over(ORIGIN);
        assert!(!parents.current(ORIGIN).is_relay, "the origin is the last one");
        assert!(waits().await.is_err());
        parents.note_served(ORIGIN);
        assert_eq!(*parents.pause(), 2 * SOON);
        // Below the first one nothing is looked for. When it has served, the pause is short again.
        parents.pass_over(ORIGIN);
        assert!(waits().await.is_err());
        parents.note_served(ORIGIN);
        assert_eq!(*parents.pause(), LOOK_AGAIN);
    }
}
