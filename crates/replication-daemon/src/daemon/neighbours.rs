//! Names the neighbours of each replica that shares: the other ones that connect from the same network.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lull_replication::message::{MAX_NEIGHBOURS, Neighbour};

use super::LinkError;
use super::child::{Link, Source};

/// The network of an address: 24 bits of IPv4, 48 bits of IPv6.
fn network(ip: IpAddr) -> [u8; 6] {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            // No address of IPv6 begins so.
            [0, 0, 0, a, b, c]
        }
        IpAddr::V6(ip) => {
            let [a, b, c, d, e, f, ..] = ip.octets();
            [a, b, c, d, e, f]
        }
    }
}

/// Whether neighbours may be sent to this address: no replica is to make others connect to a machine elsewhere. Behind NAT
/// a replica has a private address.
fn is_plausible(source: IpAddr, ip: IpAddr) -> bool {
    let is_private = match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_private(),
        IpAddr::V6(ip) => ip.is_unique_local(),
    };
    is_private || network(source) == network(ip)
}

fn is_near(one: &Link, other: &Link) -> bool {
    let network = |link: &Link| link.source.get().map(|source| network(source.ip));
    network(one).is_some() && network(one) == network(other)
}

/// A replica shares: it gets the list of its neighbours, and they get new lists. It may say so once.
pub(super) fn share(
    links: &[Arc<Link>],
    link: &Link,
    address: SocketAddr,
) -> Result<(), LinkError> {
    let is_fine = |source: &&Source| is_plausible(source.ip, address.ip());
    if link.source.get().filter(is_fine).is_none() {
        // It waits for a list, which is empty.
        link.owes_neighbours.store(true, Ordering::Relaxed);
        link.control.notify_one();
        return Ok(());
    }
    link.share.set(address).map_err(|_| LinkError::Order)?;
    announce(links, link);
    Ok(())
}

/// A replica shares from now on, or no longer: the others of its network get new lists.
pub(super) fn announce(links: &[Arc<Link>], changed: &Link) {
    if changed.share.get().is_none() {
        return;
    }
    for link in links.iter().filter(|link| link.share.get().is_some() && is_near(link, changed)) {
        link.owes_neighbours.store(true, Ordering::Relaxed);
        link.control.notify_one();
    }
}

/// The neighbours of a replica. In a crowded network only the first replicas, by number, exchange pieces.
pub(super) fn of(links: &[Arc<Link>], link: &Link) -> Vec<Neighbour> {
    let neighbour = |one: &Arc<Link>| {
        let (source, address) = (one.source.get()?, *one.share.get()?);
        let certificate = source.certificate;
        is_near(one, link).then_some(Neighbour { replica: one.replica, certificate, address })
    };
    let mut all: Vec<Neighbour> = links.iter().filter_map(neighbour).collect();
    all.sort_by_key(|one| one.replica);
    all.truncate(MAX_NEIGHBOURS);
    let is_among = all.iter().any(|one| one.replica == link.replica);
    all.retain(|one| is_among && one.replica != link.replica);
    all
}

#[cfg(test)]
mod tests {
    use lull_replication::message::Session;
    use lull_replication::types::{Digest, ReplicaId};

    use super::*;

    fn link(number: u32, source: &str, address: &str) -> Arc<Link> {
        let link = Link::new(ReplicaId(number), Session::default(), Arc::default());
        let ip = source.parse().unwrap();
        link.source.set(Source { ip, certificate: Digest([number as u8; 32]) }).unwrap();
        let link = Arc::new(link);
        share(&[Arc::clone(&link)], &link, address.parse().unwrap()).unwrap();
        link
    }

    fn named(links: &[Arc<Link>], number: usize) -> Vec<u32> {
        of(links, &links[number]).iter().map(|one| one.replica.0).collect()
    }

    #[test]
    fn replicas_of_one_network_are_neighbours() {
        let links = [
            link(1, "192.0.2.1", "192.0.2.1:7000"),
            link(2, "::ffff:192.0.2.9", "192.0.2.9:7000"),
            link(3, "192.0.3.1", "192.0.3.1:7000"),
            link(4, "2001:db8:1::1", "[2001:db8:1:9::1]:7000"),
            link(5, "2001:db8:1:8::1", "[2001:db8:1:8::1]:7000"),
        ];
        assert_eq!(
            [0, 1, 2, 3, 4].map(|one| named(&links, one)),
            [vec![2], vec![1], vec![], vec![5], vec![4]]
        );
        assert!(links[0].owes_neighbours.load(Ordering::Relaxed));
    }

    #[test]
    fn addresses_in_other_networks_are_not_named() {
        let links = [
            link(1, "192.0.2.1", "192.0.2.1:7000"),
            // Behind the same NAT.
            link(2, "192.0.2.1", "10.0.0.2:7000"),
            link(3, "192.0.2.1", "198.51.100.1:7000"),
            link(4, "192.0.2.1", "127.0.0.1:7000"),
        ];
        assert_eq!(named(&links, 0), [2]);
        assert!(named(&links, 2).is_empty());
    }

    #[test]
    fn replica_says_once_where_it_shares() {
        let one = link(1, "192.0.2.1", "192.0.2.1:7000");
        let again = share(&[], &one, "192.0.2.1:7001".parse().unwrap());
        assert!(matches!(again, Err(LinkError::Order)));
    }

    #[test]
    fn crowded_network_exchanges_among_its_first_replicas() {
        let links: Vec<_> = (0..MAX_NEIGHBOURS as u32 + 2)
            .map(|number| link(number, "192.0.2.1", "192.0.2.1:7000"))
            .collect();
        assert_eq!(named(&links, 0).len(), MAX_NEIGHBOURS - 1);
        assert!(named(&links, MAX_NEIGHBOURS).is_empty());
    }
}
