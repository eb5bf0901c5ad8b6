//! Links with a price: bodies that are not worth it are not pushed (SSR §6.3.1 and §8).

use lull_cc::Bytes;

use super::Origin;
use super::priority::Demand;
use super::strategy::likelihood;
use crate::types::ReplicaId;

/// The price of a link: the bytes that one read is worth there; none if bytes cost nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Price(Option<Bytes>);

impl Price {
    /// A read is worth this many bytes.
    pub(super) fn new(bytes_per_read: Bytes) -> Self {
        Price(Some(bytes_per_read))
    }

    /// Whether a body is worth its price: the chance that it is read at the replica before it is overwritten, by its
    /// size. Reads are those at all replicas, of which each has its share.
    pub(super) fn permits(self, demand: Demand, replicas: usize) -> bool {
        self.0.is_none_or(|bytes| {
            demand.size.0 as f64 <= likelihood(demand, replicas) * bytes.0 as f64
        })
    }
}

impl<P: Clone> Origin<P> {
    /// A replica has named the bytes that one read is worth on its link. Returns whether that is allowed.
    pub(super) fn handle_price(&mut self, replica: ReplicaId, bytes_per_read: Bytes) -> bool {
        self.peers.entry(replica).or_default().price = Price::new(bytes_per_read);
        true
    }

    /// The bytes that one read is worth on the link of a replica; none if that has no price, or has not named it in its
    /// last connection.
    pub fn bytes_per_read(&self, replica: ReplicaId) -> Option<Bytes> {
        self.peers.get(&replica)?.price.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_worth_its_price_by_reads_writes_and_size() {
        // A read of 1 MB.
        let price = Price::new(Bytes(1_000_000));
        for (reads, writes, size, replicas, expected) in [
            (1, 1, 1_000_000, 1, true),
            (1, 1, 1_000_001, 1, false),
            (1, 2, 500_000, 1, true),
            (1, 2, 500_001, 1, false),
            (10, 5, 1_000_000, 2, true),
            (10, 5, 1_000_000, 4, false),
            // It is read from the disk from the second time on.
            (1_000, 1, 1_000_001, 1, false),
            (0, 1, 1, 1, false),
            (0, 1, 0, 1, true),
        ] {
            let demand = Demand { reads, writes, size: Bytes(size) };
            let what = format!("{reads} reads, {writes} writes, {size} bytes, {replicas} replicas");
            assert_eq!(price.permits(demand, replicas), expected, "{what}");
            assert!(Price::default().permits(demand, replicas), "{what}");
        }
    }
}
