//! The other proxies of the site, by the messages in which they say that they run.

use std::collections::BTreeMap;
use std::time::Duration;

use lull_cc::Timestamp;
use lull_speculate::model::Sender;

/// Interval of these messages.
pub(in crate::nps) const PRESENCE_INTERVAL: Duration = Duration::from_secs(5);
/// A proxy without a message for this long has ended.
const GONE: Duration = Duration::from_secs(20);
/// The bytes of one that has ended count for the rest of its day.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Proxies that are remembered; each start is one.
const MAX_PEERS: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Peer {
    seen: Timestamp,
    spent: u64,
    is_running: bool,
}

/// The other proxies.
#[derive(Debug, Default)]
pub(in crate::nps) struct Peers(BTreeMap<Sender, Peer>);

impl Peers {
    /// A proxy says that it runs.
    pub(in crate::nps) fn record(&mut self, sender: Sender, spent: u64, now: Timestamp) {
        if self.0.len() < MAX_PEERS || self.0.contains_key(&sender) {
            self.0.insert(sender, Peer { seen: now, spent, is_running: true });
        }
    }

    /// Forgets proxies that have ended. Not to be called while messages cannot arrive: then the others are
    /// assumed to run on.
    pub(in crate::nps) fn forget(&mut self, now: Timestamp) {
        self.0.retain(|_, peer| now.saturating_since(peer.seen) < DAY);
        for peer in self.0.values_mut() {
            peer.is_running = now.saturating_since(peer.seen) < GONE;
        }
    }

    /// Messages arrive again: the others have the time of [`GONE`] to send one.
    pub(in crate::nps) fn resume(&mut self, now: Timestamp) {
        self.0.values_mut().filter(|peer| peer.is_running).for_each(|peer| peer.seen = now);
    }

    /// How many run.
    pub(in crate::nps) fn running(&self) -> usize {
        self.0.values().filter(|peer| peer.is_running).count()
    }

    /// The bytes that they have sent ahead in their day.
    pub(in crate::nps) fn spent(&self) -> u64 {
        self.0.values().fold(0, |sum, peer| sum.saturating_add(peer.spent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_nanos(second * 1_000_000_000)
    }

    #[test]
    fn ended_proxy_has_no_share_and_its_bytes_count_for_a_day() {
        let mut peers = Peers::default();
        peers.record(Sender(1), 100, at(0));
        peers.record(Sender(2), 50, at(0));
        peers.record(Sender(2), 70, at(15));
        peers.forget(at(25));
        assert_eq!((peers.running(), peers.spent()), (1, 170));
        peers.forget(at(86_401));
        assert_eq!((peers.running(), peers.spent()), (0, 70));
    }

    #[test]
    fn others_run_on_while_no_message_can_arrive() {
        let mut peers = Peers::default();
        peers.record(Sender(1), 100, at(0));
        // An hour without NATS.
        assert_eq!(peers.running(), 1);
        peers.resume(at(3_600));
        peers.forget(at(3_605));
        assert_eq!(peers.running(), 1);
        peers.forget(at(3_625));
        assert_eq!(peers.running(), 0);
    }
}
