//! Backoff of clients whose prefetches the server rejected: they get no lists for a while.
//!
//! Many servers limit requests by address. If they reject a prefetch, they would next reject the visitor's own
//! click.

use std::sync::Mutex;
use std::time::Duration;

use lull_cc::Timestamp;

use super::lock::lock;
use crate::policy::Client;

/// How long it rests.
const BACKOFF: Duration = Duration::from_secs(60);
/// Number of clients that are distinguished. If two share a slot, the later one counts.
const SLOTS: usize = 1 << 12;

/// Clients, and until when each waits.
#[derive(Debug)]
pub(super) struct Backoff(Mutex<Box<[(Client, Timestamp)]>>);

impl Default for Backoff {
    fn default() -> Self {
        Backoff(Mutex::new(vec![(Client(0), Timestamp::ZERO); SLOTS].into()))
    }
}

impl Backoff {
    /// From now on.
    pub(super) fn start(&self, client: Client, now: Timestamp) {
        lock(&self.0)[client.0 as usize % SLOTS] = (client, now + BACKOFF);
    }

    /// How long a client still waits, if it does.
    pub(super) fn left(&self, client: Client, now: Timestamp) -> Option<Duration> {
        let (of, until) = lock(&self.0)[client.0 as usize % SLOTS];
        let left = until.saturating_since(now);
        (of == client && !left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_client_waits_for_a_minute() {
        let backoff = Backoff::default();
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        assert_eq!(backoff.left(Client(0), at(0)), None);
        backoff.start(Client(1), at(10));
        assert_eq!(backoff.left(Client(1), at(30)), Some(Duration::from_secs(40)));
        assert_eq!(backoff.left(Client(2), at(30)), None);
        assert_eq!(backoff.left(Client(1 + SLOTS as u64), at(30)), None);
        assert_eq!(backoff.left(Client(1), at(70)), None);
    }
}
