//! How long a disconnection is masked (SSR §6.3.2.3).
//!
//! At the moment of the cut each replica is copied, and its copy receives nothing more from the origin. That
//! alone freezes its buffers: without Δ nothing becomes due, and no body arrives. Reads continue until the
//! first one, at any replica, that has to wait. Reads that wait for the origin at the cut fail; only reads
//! that arrive after it count.

use core::time::Duration;

use lull_replication::replica::{ReadId, Replica};

use super::Workload;
use super::clock::{due, reading};
use super::measure::Tally;
use super::objects::request;

/// How long a cut at `now` is masked, and whether that reaches the end.
pub(super) fn mask<'a>(
    workload: &Workload,
    tally: &Tally,
    machines: impl Iterator<Item = &'a Replica<()>>,
    now: u64,
) -> (Duration, bool) {
    let mut replicas: Vec<Replica<()>> = machines.cloned().collect();
    for read in tally.waiting() {
        let replica = workload.reads[read].replica as usize;
        replicas[replica].cancel_read(reading(now), ReadId(read as u64));
    }
    for replica in &mut replicas {
        replica.handle_disconnected(reading(now));
        while replica.poll_answer().is_some() {}
    }
    let first = workload.reads.partition_point(|read| due(read.at) <= now);
    for (number, read) in workload.reads.iter().enumerate().skip(first) {
        let replica = &mut replicas[read.replica as usize];
        let at = due(read.at);
        if replica.handle_read(reading(at), ReadId(number as u64), request(read.object)).is_some() {
            return (Duration::from_nanos(at - now), false);
        }
        while replica.poll_answer().is_some() {}
    }
    (Duration::from_nanos(due(workload.length).saturating_sub(now)), true)
}
