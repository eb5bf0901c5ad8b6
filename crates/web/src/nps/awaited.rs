//! Prefetches that somebody waits for by now.
//!
//! Who clicks on a page that is still being fetched ahead may be given the rest of that prefetch by
//! the browser, whether or not the script could still end it. So the proxy is told, and the
//! connection competes like any other from then on.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, Weak};

use super::lock;
use crate::policy::Client;
use crate::proxy::Connection;

/// Prefetches that are remembered. Of two that share a place the later one counts, so memory is
/// bounded; the other one stays in the background.
const PLACES: usize = 1 << 12;

/// The key of a prefetch, and its connection.
type Prefetch = (u64, Weak<Connection>);

/// On which connection the last prefetches came.
#[derive(Debug)]
pub(super) struct Awaited {
    key: RandomState,
    places: Mutex<Box<[Prefetch]>>,
}

impl Default for Awaited {
    fn default() -> Self {
        let places = vec![(0, Weak::new()); PLACES].into();
        Awaited { key: RandomState::new(), places: Mutex::new(places) }
    }
}

impl Awaited {
    /// Remembers a prefetch of `target`.
    pub(super) fn began(&self, client: Client, target: &str, connection: &Arc<Connection>) {
        let (key, place) = self.place(client, target);
        lock(&self.places)[place] = (key, Arc::downgrade(connection));
    }

    /// Takes the connection of that prefetch out of the background, if it is still there.
    pub(super) fn is_wanted(&self, client: Client, target: &str) {
        let (key, place) = self.place(client, target);
        let (found, connection) = std::mem::take(&mut lock(&self.places)[place]);
        if let Some(connection) = connection.upgrade().filter(|_| found == key) {
            connection.hurry();
        }
    }

    fn place(&self, client: Client, target: &str) -> (u64, usize) {
        let key = self.key.hash_one((client, target));
        (key, key as usize % PLACES)
    }
}
