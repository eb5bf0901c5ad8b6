//! Connections without a known peer or channel: their number is limited, and none excludes the others.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lull_replication::time::LocalTime;
use tokio::sync::oneshot;

/// Unidentified connections, at most.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// The minimum time between reports of an overflow.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The connections that are open, and those that were closed.
#[derive(Debug, Default)]
pub(super) struct UnidentifiedConnections {
    inside: Arc<Mutex<Inside>>,
    /// Connections closed since the last report.
    closed: u64,
    told: Option<LocalTime>,
}

/// By the order in which they came.
#[derive(Debug, Default)]
struct Inside {
    last: u64,
    all: BTreeMap<u64, UnidentifiedConnection>,
}

#[derive(Debug)]
struct UnidentifiedConnection {
    from: IpAddr,
    /// Dropped when the connection is identified; used if it has to be closed.
    close: oneshot::Sender<()>,
}

/// The slot of a connection, until its purpose is known.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    number: u64,
    inside: Arc<Mutex<Inside>>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        lock(&self.inside).all.remove(&self.number);
    }
}

/// Reports that a slot was given to another connection.
#[derive(Debug)]
pub(super) struct Notice(oneshot::Receiver<()>);

impl Notice {
    /// Waits until that happens: forever, if the connection is identified.
    pub(super) async fn given(self) {
        if self.0.await.is_err() {
            pending::<()>().await;
        }
    }
}

/// All slots were in use when a connection arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotsExhausted {
    /// The network of most open connections.
    pub(super) from: IpAddr,
    /// Connections closed since the last report.
    pub(super) closed: u64,
}

/// The network that counts as one: the owner of an IPv6 address usually has its whole prefix.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(all) => IpAddr::V6(Ipv6Addr::from_bits(all.to_bits() >> 64 << 64)),
        one @ IpAddr::V4(_) => one,
    }
}

fn lock(inside: &Mutex<Inside>) -> MutexGuard<'_, Inside> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UnidentifiedConnections {
    /// A new connection gets a slot. If there is none, the oldest connection of the largest network is
    /// closed: it had the most time to identify itself. That is reported now and then.
    pub(super) fn admit(
        &mut self,
        from: IpAddr,
        now: LocalTime,
    ) -> (ConnectionSlot, Notice, Option<SlotsExhausted>) {
        let from = neighbourhood(from);
        let (close, notice) = oneshot::channel();
        let mut inside = lock(&self.inside);
        inside.last += 1;
        let number = inside.last;
        inside.all.insert(number, UnidentifiedConnection { from, close });
        let crowd = inside.make_room();
        drop(inside);
        let told = crowd.and_then(|from| {
            self.closed += 1;
            let quiet = self.told.is_some_and(|told| now < told.plus(REPORT_INTERVAL));
            (!quiet).then(|| {
                self.told = Some(now);
                SlotsExhausted { from, closed: core::mem::take(&mut self.closed) }
            })
        });
        (ConnectionSlot { number, inside: Arc::clone(&self.inside) }, Notice(notice), told)
    }
}

impl Inside {
    /// Closes one if there are too many; returns the address with the most.
    fn make_room(&mut self) -> Option<IpAddr> {
        if self.all.len() <= MAX_CONNECTIONS {
            return None;
        }
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for stranger in self.all.values() {
            *counts.entry(stranger.from).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let (number, from) = self
            .all
            .iter()
            .map(|(number, stranger)| (*number, stranger.from))
            .find(|(_, from)| counts.get(from) == Some(&most))?;
        let stranger = self.all.remove(&number)?;
        // It may just have ended.
        let _ = stranger.close.send(());
        Some(from)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn at(seconds: i64) -> LocalTime {
        LocalTime::from_nanos(seconds * 1_000_000_000)
    }

    fn four(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    /// Whether it must close.
    fn is_closed(notice: &mut Notice) -> bool {
        notice.0.try_recv().is_ok()
    }

    #[test]
    fn oldest_connection_of_the_largest_crowd_is_closed() {
        let mut unidentified = UnidentifiedConnections::default();
        let mut admit = |from| unidentified.admit(from, at(0));
        let first = admit(four(1));
        let mut crowd: Vec<_> = (1..MAX_CONNECTIONS).map(|_| admit(four(2))).collect();
        assert!(crowd.iter().all(|(.., told)| told.is_none()));
        let (_slot, mut notice, told) = admit(four(3));
        assert_eq!(told, Some(SlotsExhausted { from: four(2), closed: 1 }));
        let closed: Vec<_> = crowd.iter_mut().map(|(_, notice, _)| is_closed(notice)).collect();
        assert_eq!(closed.iter().position(|closed| *closed), Some(0));
        assert_eq!(closed.iter().filter(|closed| **closed).count(), 1);
        assert!(!is_closed(&mut notice));
        // A new one from there closes only one of its own network.
        let (_other, mut notice, _) = admit(four(2));
        assert!(is_closed(&mut crowd[1].1) && !is_closed(&mut notice));
        let (_, mut notice, _) = first;
        assert!(!is_closed(&mut notice));
    }

    #[test]
    fn oldest_connection_is_closed_when_all_networks_have_one() {
        let mut unidentified = UnidentifiedConnections::default();
        let mut all: Vec<_> = (0..MAX_CONNECTIONS as u8 + 1)
            .map(|last| unidentified.admit(four(last), at(0)))
            .collect();
        let closed = all.iter_mut().position(|(_, notice, _)| is_closed(notice));
        assert_eq!(closed, Some(0));
    }

    #[test]
    fn identified_replica_frees_its_slot() {
        let mut unidentified = UnidentifiedConnections::default();
        let mut all: Vec<_> =
            (0..MAX_CONNECTIONS).map(|_| unidentified.admit(four(1), at(0))).collect();
        let (slot, mut known, _) = all.remove(0);
        drop(slot);
        let (.., told) = unidentified.admit(four(1), at(0));
        assert_eq!(told, None);
        assert!(!is_closed(&mut known));
        assert!(!all.iter_mut().any(|(_, notice, _)| is_closed(notice)));
    }

    #[test]
    fn one_network_counts_as_one_and_crowds_are_reported_rarely() {
        let mut unidentified = UnidentifiedConnections::default();
        let six = |last: u16| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, last));
        let network = six(0);
        let _one = unidentified.admit(four(1), at(0));
        let mut all: Vec<_> =
            (1..MAX_CONNECTIONS).map(|last| unidentified.admit(six(last as u16), at(0))).collect();
        let mut told = Vec::new();
        for seconds in [0, 1, 59, 60, 61] {
            all.push(unidentified.admit(six(9), at(seconds)));
            told.extend(all.last().and_then(|(.., told)| *told));
        }
        let crowd = |closed| SlotsExhausted { from: network, closed };
        assert_eq!(told, [crowd(1), crowd(3)]);
    }
}
