//! Several proxies of one site: each tells the others what it has learned, through a NATS server.
//!
//! | what | how it is shared |
//! |---|---|
//! | the model | deltas of counts, every two seconds ([`lull_speculate::model`]) |
//! | bars | as they are made, for the rest of their day |
//! | the budget | each proxy may cause its part of the harm to demand, and all have one limit of bytes a day |
//! | the control group | by the key that all proxies have: a visitor is in the same group everywhere |
//!
//! Deltas and bars go to a stream that the server keeps for a day, so a proxy that was away or has started
//! again gets them later. Nothing here delays a request: without the server each proxy continues alone, and saves
//! what it could not send beside its model.

mod message;
mod peers;
mod seal;
mod unsent;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::USER_AGENT;
use lull_cc::Timestamp;
use lull_speculate::model::Sender;
use sha2::{Digest, Sha256};

use super::lock::lock;
use super::settings::ShareSettings;
use peers::Peers;
use seal::Sealer;
use unsent::Unsent;

pub(super) use message::Message;
pub(super) use peers::PRESENCE_INTERVAL;

/// The state of sharing.
#[derive(Debug)]
pub(super) struct Sharing {
    pub(super) settings: ShareSettings,
    pub(super) sealer: Sealer,
    /// This proxy.
    pub(super) sender: Sender,
    pub(super) peers: Mutex<Peers>,
    pub(super) unsent: Mutex<Unsent>,
    pub(super) is_connected: AtomicBool,
    pub(super) troubles: Mutex<Troubles>,
    /// The requests that the server rejects.
    pub(super) refusals: Arc<Mutex<Refusals>>,
    pub(super) sent: AtomicU64,
    pub(super) merged: AtomicU64,
    pub(super) has_reported_unreadable: AtomicBool,
}

/// Why messages do not pass although there is a connection.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    pub(super) sending: Option<String>,
    pub(super) receiving: Option<String>,
}

/// How long a rejected request counts. All that fail are repeated within that time.
const DENIED: Duration = Duration::from_secs(120);

/// The requests that the server rejects.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Why the last attempt to connect failed.
    pub(super) connecting: Option<String>,
    /// Something that the user may not do, and until when that counts; without an end if it is not repeated before
    /// the next connection.
    denied: Option<(String, Option<Instant>)>,
}

impl Refusals {
    /// There is a new connection.
    pub(super) fn clear(&mut self) {
        *self = Refusals::default();
    }

    /// The server has sent an error on a connection.
    pub(super) fn note(&mut self, error: String) {
        // Such an error has no answer: the request fails later, without its cause.
        if error.contains("Permissions Violation") {
            let is_repeated = !error.contains("Subscription");
            self.denied = Some((error, is_repeated.then(|| Instant::now() + DENIED)));
        } else {
            self.connecting = Some(format!("the NATS server says: {error}"));
        }
    }

    fn denied(&self) -> Option<String> {
        let (error, until) = self.denied.as_ref()?;
        until.is_none_or(|until| Instant::now() < until).then(|| {
            format!(
                "the NATS server rejects a request of this proxy ({error}): permit its user to publish and subscribe to \
                 `lull.web.>`, `$JS.API.>` and `_INBOX.>`"
            )
        })
    }
}

/// The state for the owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharingFigures {
    /// Whether messages pass.
    pub(super) is_connected: bool,
    /// Other proxies that run.
    pub(super) proxies: usize,
    /// Messages to and from other proxies, without those that only say that a proxy runs.
    pub(super) sent: u64,
    pub(super) merged: u64,
}

impl Sharing {
    /// None if no messages can be encrypted.
    pub(super) fn new(settings: ShareSettings) -> Option<Self> {
        let sealer = Sealer::new(&settings.key)?;
        Some(Sharing {
            settings,
            sealer,
            sender: Sender(RandomState::new().hash_one(0)),
            peers: Mutex::default(),
            unsent: Mutex::default(),
            is_connected: AtomicBool::new(false),
            troubles: Mutex::default(),
            refusals: Arc::default(),
            sent: AtomicU64::new(0),
            merged: AtomicU64::new(0),
            has_reported_unreadable: AtomicBool::new(false),
        })
    }

    /// The first bytes of saved messages.
    pub(super) const KEPT_UNSENT: &'static [u8] = Unsent::KEPT;

    /// Continues with the messages that an earlier process could not send. Damaged ones are ignored.
    pub(super) fn continue_unsent(&self, kept: &[u8]) {
        if let Some(before) = Unsent::decode(kept) {
            *lock(&self.unsent) = before;
        }
    }

    /// This proxy, for its model.
    pub(super) fn sender(&self) -> Sender {
        self.sender
    }

    /// The key by which all proxies compute the hashes of barred URLs.
    pub(super) fn bars_key(&self) -> [u8; 16] {
        let hash = self.hash(b"bars");
        let mut key = [0; 16];
        key.iter_mut().zip(hash).for_each(|(to, byte)| *to = byte);
        key
    }

    fn hash(&self, what: &[u8]) -> [u8; 32] {
        let hash = Sha256::new().chain_update(b"lull web share, ").chain_update(what);
        hash.chain_update(self.settings.key).finalize().into()
    }

    /// A draw from 0 to 2^64 for a visitor, which is the same at all proxies.
    pub(super) fn draw(&self, network: &[u8], headers: &HeaderMap) -> u64 {
        let mut hash = Sha256::new().chain_update(b"lull web share, held back");
        hash.update(self.settings.key);
        hash.update([network.len() as u8]);
        hash.update(network);
        hash.update(headers.get(USER_AGENT).map_or(&b""[..], |agent| agent.as_bytes()));
        let hash: [u8; 32] = hash.finalize().into();
        hash.first_chunk().copied().map_or(0, u64::from_le_bytes)
    }

    /// Why messages do not pass, if they do not.
    pub(super) fn trouble(&self) -> Option<String> {
        if self.is_connected.load(Ordering::Relaxed) {
            let denied = lock(&self.refusals).denied();
            let troubles = lock(&self.troubles);
            return denied
                .or_else(|| troubles.sending.clone())
                .or_else(|| troubles.receiving.clone());
        }
        let why = lock(&self.refusals).connecting.clone();
        Some(why.unwrap_or_else(|| "there is no connection to the NATS server".to_owned()))
    }

    /// The current values.
    pub(super) fn figures(&self) -> SharingFigures {
        SharingFigures {
            is_connected: self.is_connected.load(Ordering::Relaxed),
            proxies: lock(&self.peers).running(),
            sent: self.sent.load(Ordering::Relaxed),
            merged: self.merged.load(Ordering::Relaxed),
        }
    }

    /// Takes note of time: proxies without a message have ended. Returns how many others run, and their
    /// bytes.
    pub(super) fn others(&self, now: Timestamp) -> (usize, u64) {
        let mut peers = lock(&self.peers);
        if self.is_connected.load(Ordering::Relaxed) {
            peers.forget(now);
        }
        (peers.running(), peers.spent())
    }
}
