//! The number of connections, in total and per client.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) use lull_transport::raise_descriptors;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::Limits;

/// Descriptors for everything except connections: listeners, logs, the runtime's own.
const RESERVED: u64 = 64;
/// Descriptors beyond this number are not used for limits.
const MAX_DESCRIPTORS: u64 = 1 << 18;

/// Limits as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) connections: usize,
    pub(crate) per_address: usize,
    pub(crate) upstream_requests: usize,
}

impl Bounds {
    /// A client takes a descriptor, and so does each of its requests while the upstream has it; HTTP/2 has
    /// many of those on one connection. Half for clients and a quarter for the upstream leave the rest for
    /// idle upstream connections and for files.
    pub(crate) fn new(limits: &Limits, descriptors: u64) -> Self {
        let free = descriptors.min(MAX_DESCRIPTORS).saturating_sub(RESERVED).max(32) as usize;
        let connections = limits.connections.map_or(free / 2, |given| given.get());
        Bounds {
            connections,
            per_address: limits
                .connections_per_address
                .map_or((connections / 8).max(16), |given| given.get())
                .min(connections),
            upstream_requests: limits.upstream_requests.map_or(free / 4, |given| given.get()),
        }
    }
}

/// While fewer than one of this many places is free, idle connections are closed earlier.
const CROWDED: usize = 8;
/// But not earlier than this: a request may be under way.
const MIN_IDLE: Duration = Duration::from_secs(1);

/// Lets connections in.
#[derive(Debug)]
pub(crate) struct Gate {
    all: Arc<Semaphore>,
    total: usize,
    per_address: usize,
    addresses: Mutex<HashMap<IpAddr, usize>>,
}

impl Gate {
    pub(crate) fn new(bounds: &Bounds) -> Arc<Self> {
        let total = bounds.connections.min(Semaphore::MAX_PERMITS);
        Arc::new(Gate {
            all: Arc::new(Semaphore::new(total)),
            total,
            per_address: bounds.per_address,
            addresses: Mutex::default(),
        })
    }

    /// Waits until there is room for one more.
    pub(crate) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).acquire_owned().await.ok()
    }

    /// How long an idle connection may stay, which is `usual` as long as there is room for others. Without room,
    /// a visitor who comes would wait until one has been idle for that long.
    pub(crate) fn idle_timeout(&self, usual: Duration) -> Duration {
        let free = self.all.available_permits().saturating_mul(CROWDED);
        if free >= self.total {
            return usual;
        }
        usual.mul_f64(free as f64 / self.total as f64).max(MIN_IDLE.min(usual))
    }

    /// Uses that room for a connection from `address`, unless that has too many.
    pub(crate) fn admit(
        self: &Arc<Self>,
        room: OwnedSemaphorePermit,
        address: IpAddr,
    ) -> Option<Permit> {
        let address = site_of(address);
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let count = addresses.entry(address).or_default();
        if *count >= self.per_address {
            return None;
        }
        *count += 1;
        Some(Permit(Some((Arc::clone(self), address, room))))
    }
}

/// The site of an address: one host of IPv6 has a /64.
fn site_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

/// A connection's share of the limits, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Option<(Arc<Gate>, IpAddr, OwnedSemaphorePermit)>);

impl Permit {
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Permit(None)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some((gate, address, _room)) = self.0.take() else { return };
        let mut addresses = gate.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = addresses.entry(address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(gate: &Arc<Gate>, address: &str) -> Option<Permit> {
        let room = Arc::clone(&gate.all).try_acquire_owned().ok()?;
        gate.admit(room, address.parse().unwrap())
    }

    fn gate(connections: usize, per_address: usize) -> Arc<Gate> {
        Gate::new(&Bounds { connections, per_address, upstream_requests: 1 })
    }

    #[test]
    fn idle_connections_close_earlier_while_few_places_are_free() {
        let usual = Duration::from_secs(80);
        let gate = gate(80, 80);
        let mut permits = Vec::new();
        let mut before = usual;
        for number in 1..=80 {
            permits.push(admit(&gate, "10.0.0.1").unwrap());
            let idle = gate.idle_timeout(usual);
            assert!(idle <= before && (number > 70 || idle == usual), "{number}: {idle:?}");
            before = idle;
        }
        assert_eq!(before, MIN_IDLE);
        assert_eq!(gate.idle_timeout(MIN_IDLE / 2), MIN_IDLE / 2);
        permits.clear();
        assert_eq!(gate.idle_timeout(usual), usual);
    }

    #[test]
    fn limits_leave_descriptors_for_the_upstream() {
        for descriptors in [64, 256, 1024, 65_536, u64::MAX] {
            let bounds = Bounds::new(&Limits::default(), descriptors);
            assert!(bounds.connections >= 16 && bounds.upstream_requests >= 8, "{bounds:?}");
            assert!(bounds.per_address <= bounds.connections);
            if descriptors >= 256 {
                let sum = (bounds.connections + bounds.upstream_requests) as u64;
                assert!(sum < descriptors, "{bounds:?}");
            }
        }
    }

    #[test]
    fn one_address_cannot_take_all_connections() {
        let gate = gate(10, 2);
        let first = admit(&gate, "192.0.2.1");
        let second = admit(&gate, "::ffff:192.0.2.1");
        assert!(first.is_some() && second.is_some());
        assert!(admit(&gate, "192.0.2.1").is_none());
        assert!(admit(&gate, "192.0.2.2").is_some());
        drop(first);
        assert!(admit(&gate, "192.0.2.1").is_some());
    }

    #[test]
    fn ipv6_network_counts_as_one_address() {
        let gate = gate(10, 1);
        let first = admit(&gate, "2001:db8:1:1::1");
        assert!(first.is_some());
        assert!(admit(&gate, "2001:db8:1:1:ffff::2").is_none());
        assert!(admit(&gate, "2001:db8:1:2::1").is_some());
    }

    #[test]
    fn addresses_are_dropped_with_their_last_connection() {
        let gate = gate(2, 2);
        let both = (admit(&gate, "192.0.2.1"), admit(&gate, "192.0.2.2"));
        assert!(admit(&gate, "192.0.2.3").is_none());
        drop(both);
        assert!(gate.addresses.lock().unwrap().is_empty());
        assert_eq!(gate.all.available_permits(), 2);
    }
}
