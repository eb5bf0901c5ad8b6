//! Clients that did something within a given time.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use lull_cc::Timestamp;

/// Number of clients that are kept. When there is no room, every client counts as recent until there is.
const MAX_CLIENTS: usize = 1 << 16;

/// A client, as the proxy distinguishes them: a keyed hash of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client(pub u64);

/// Clients noted within the last `kept_for`. Its memory is bounded.
#[derive(Debug)]
pub(super) struct RecentClients {
    kept_for: Duration,
    last: HashMap<Client, Timestamp>,
    /// Each of these once, by its first note.
    order: VecDeque<(Timestamp, Client)>,
    /// Until then a client may be missing here.
    full_until: Timestamp,
}

impl RecentClients {
    /// Clients are remembered for this long.
    pub(super) fn kept_for(kept_for: Duration) -> Self {
        RecentClients {
            kept_for,
            last: HashMap::new(),
            order: VecDeque::new(),
            full_until: Timestamp::ZERO,
        }
    }

    /// Notes a client.
    pub(super) fn record(&mut self, client: Client, now: Timestamp) {
        if !self.has_room_for(client, now) {
            self.full_until = now + self.kept_for;
        } else if self.last.insert(client, now).is_none() {
            self.order.push_back((now, client));
        }
    }

    fn has_room_for(&mut self, client: Client, now: Timestamp) -> bool {
        while let Some(&(at, client)) = self.order.front() {
            if now.saturating_since(at) < self.kept_for {
                break;
            }
            self.order.pop_front();
            match self.last.get(&client) {
                // It was noted again since: it is checked again when that time is over.
                Some(&at) if now.saturating_since(at) < self.kept_for => {
                    self.order.push_back((at, client));
                }
                _ => {
                    self.last.remove(&client);
                }
            }
        }
        self.last.contains_key(&client) || self.order.len() < MAX_CLIENTS
    }

    /// When `client` was last noted, if that was within the time. `now` while a client may be missing.
    pub(super) fn last(&self, client: Client, now: Timestamp) -> Option<Timestamp> {
        if now < self.full_until {
            return Some(now);
        }
        let noted = self.last.get(&client).copied();
        noted.filter(|at| now.saturating_since(*at) < self.kept_for)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn recent() -> RecentClients {
        RecentClients::kept_for(Duration::from_secs(120))
    }

    #[test]
    fn client_is_recent_until_the_time_is_over() {
        let mut clients = recent();
        clients.record(Client(1), at(10));
        for (client, now, expected) in
            [(1, 10, true), (1, 129, true), (1, 130, false), (2, 11, false)]
        {
            assert_eq!(clients.last(Client(client), at(now)).is_some(), expected, "{client} {now}");
        }
        clients.record(Client(1), at(100));
        clients.record(Client(2), at(140));
        assert_eq!(clients.last(Client(1), at(219)), Some(at(100)));
    }

    #[test]
    fn client_takes_one_place_however_often_it_is_noted() {
        let mut clients = recent();
        for second in 0..1000 {
            for client in 0..3 {
                clients.record(Client(client), at(second));
            }
            assert_eq!((clients.order.len(), clients.last.len()), (3, 3));
        }
        assert!(clients.last(Client(2), at(1118)).is_some());
        assert!(clients.last(Client(2), at(1119)).is_none());
    }

    #[test]
    fn every_client_is_recent_when_memory_is_full() {
        let mut clients = recent();
        for client in 0..=MAX_CLIENTS as u64 {
            clients.record(Client(client), at(1));
        }
        assert!(clients.order.len() <= MAX_CLIENTS);
        assert_eq!(clients.last(Client(u64::MAX), at(2)), Some(at(2)));
        clients.record(Client(1), at(300));
        assert!(clients.last(Client(u64::MAX), at(300)).is_none());
        assert_eq!(clients.order.len(), 1);
    }
}
