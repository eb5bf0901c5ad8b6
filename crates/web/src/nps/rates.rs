//! Limits how often one client may ask.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lull_cc::Timestamp;

use crate::policy::Client;

/// Messages at once: an address may stand for a whole office that comes back from lunch.
const BURST: u32 = 50;
/// Pause between messages after that.
const EACH: Duration = Duration::from_millis(200);
/// The number of distinguished clients. Of two with the same slot the later one starts over, so that memory
/// is bounded and no client is delayed by another. A client with thousands of addresses gains by that, and
/// still gets no more than the budget.
const SLOTS: usize = 1 << 14;

#[derive(Clone, Copy, Debug)]
struct Slot {
    client: Client,
    /// Until when its requests are paid.
    paid: Timestamp,
}

/// The rates of all clients.
#[derive(Debug)]
pub(super) struct Rates(Mutex<Box<[Slot]>>);

impl Default for Rates {
    fn default() -> Self {
        let unused = Slot { client: Client(0), paid: Timestamp::ZERO };
        Rates(Mutex::new(vec![unused; SLOTS].into()))
    }
}

impl Rates {
    /// Whether `client` may send a request now.
    pub(super) fn admit(&self, client: Client, now: Timestamp) -> bool {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut slots[client.0 as usize % SLOTS];
        if slot.client != client {
            *slot = Slot { client, paid: now };
        }
        let paid = slot.paid.max(now);
        if paid.saturating_since(now) > EACH * (BURST - 1) {
            return false;
        }
        slot.paid = paid + EACH;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_client_over_its_rate_is_throttled() {
        let rates = Rates::default();
        let at = |millis| Timestamp::ZERO + Duration::from_millis(millis);
        let admitted = (0..100).filter(|_| rates.admit(Client(1), at(0))).count();
        assert_eq!(admitted, 50);
        assert!(rates.admit(Client(2), at(0)));
        assert!(rates.admit(Client(1), at(200)) && !rates.admit(Client(1), at(201)));
        assert_eq!((0..100).filter(|_| rates.admit(Client(1), at(60_000))).count(), 50);
    }

    #[test]
    fn clients_beyond_capacity_start_over() {
        let rates = Rates::default();
        for client in 0..1 << 18 {
            assert!(rates.admit(Client(client), Timestamp::ZERO));
        }
        assert_eq!(rates.0.lock().unwrap().len(), SLOTS);
    }
}
