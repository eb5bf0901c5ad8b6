//! Clients that get no lists for a while, because the server has refused what they fetched ahead.
//!
//! Many servers count requests by address. What is refused of a prefetch then is next refused of the
//! visitor's own click.

use std::sync::Mutex;
use std::time::Duration;

use lull_cc::Timestamp;

use super::lock;
use crate::policy::Client;

/// For so long.
const REST: Duration = Duration::from_secs(60);
/// Clients that are told apart; of two that share a place the later one rests.
const PLACES: usize = 1 << 12;

/// Who rests, and until when.
#[derive(Debug)]
pub(super) struct Rests(Mutex<Box<[(Client, Timestamp)]>>);

impl Default for Rests {
    fn default() -> Self {
        Rests(Mutex::new(vec![(Client(0), Timestamp::ZERO); PLACES].into()))
    }
}

impl Rests {
    /// From now on.
    pub(super) fn begin(&self, client: Client, now: Timestamp) {
        lock(&self.0)[client.0 as usize % PLACES] = (client, now + REST);
    }

    /// How long a client still rests, if it does.
    pub(super) fn left(&self, client: Client, now: Timestamp) -> Option<Duration> {
        let (who, until) = lock(&self.0)[client.0 as usize % PLACES];
        let left = until.saturating_since(now);
        (who == client && !left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_refused_rests_for_a_minute_and_nobody_else() {
        let rests = Rests::default();
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        assert_eq!(rests.left(Client(0), at(0)), None);
        rests.begin(Client(1), at(10));
        assert_eq!(rests.left(Client(1), at(30)), Some(Duration::from_secs(40)));
        assert_eq!(rests.left(Client(2), at(30)), None);
        assert_eq!(rests.left(Client(1 + PLACES as u64), at(30)), None);
        assert_eq!(rests.left(Client(1), at(70)), None);
    }
}
