//! The machines of a run: the origin and its replicas, each with its disk and its clock.

use std::collections::BTreeSet;

use lull_replication::origin::{self, Origin};
use lull_replication::replica::{self, Replica};
use lull_replication::types::{Commit, Digest};

use super::clock::{Clock, True};
use super::disk::Disk;
use super::durable::Body;
use super::network::Link;

/// The machine of the origin.
pub(super) struct OriginHost {
    pub(super) machine: Option<Origin<Body>>,
    pub(super) disk: Disk<origin::Image>,
    pub(super) clock: Clock,
    pub(super) epoch: u32,
    pub(super) config: origin::Config,
    pub(super) timer: Option<True>,
    /// All commits that were ever on stable storage.
    pub(super) log: Vec<Commit>,
    /// An earlier copy of the disk.
    pub(super) backup: Option<Disk<origin::Image>>,
}

/// The machine of a replica.
pub(super) struct ReplicaHost {
    pub(super) machine: Option<Replica<Body>>,
    pub(super) disk: Disk<replica::Image>,
    pub(super) clock: Clock,
    pub(super) epoch: u32,
    pub(super) config: replica::Config,
    pub(super) link: Link,
    /// Its life before the last crash.
    pub(super) before: Option<Box<Replica<Body>>>,
    pub(super) timer: Option<True>,
    /// Bodies that may be missing although their arrival was reported: they found no room, were damaged on
    /// the way, or were corrupted here. Until they are stored.
    pub(super) excused: BTreeSet<Digest>,
    pub(super) connecting: bool,
}
