//! The machines of a run: the origin and its replicas, each with its disk and its clock.

use core::time::Duration;
use std::collections::BTreeSet;

use lull_cc::Bytes;
use lull_replication::lane::Lanes;
use lull_replication::origin::{self, CaseClashes, Origin, Strategy};
use lull_replication::relay::Relay;
use lull_replication::replica::{self, Replica};
use lull_replication::types::{Commit, Digest, ReplicaId};
use lull_sim::random::Random;

use super::Options;
use super::clock::{Clock, MS, TrueTime};
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
    pub(super) timer: Option<TrueTime>,
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
    pub(super) timer: Option<TrueTime>,
    /// Bodies that may be missing although their arrival was reported: they found no room, were damaged on
    /// the way, or were corrupted here. Until they are stored.
    pub(super) excused: BTreeSet<Digest>,
    pub(super) connecting: bool,
    /// The relay that serves it; none if the origin does.
    pub(super) parent: Option<usize>,
    /// Parents to try when that one is lost: other relays, and the origin. None for one that has no choice.
    pub(super) parents: Vec<Option<usize>>,
    /// It has connected to another one than before, and was not welcomed there so far.
    pub(super) has_moved: bool,
    /// It has taken some names only, in this life or an earlier one.
    pub(super) took_some: bool,
    /// Whether it is a relay, and that part of its machine.
    pub(super) is_relay: bool,
    pub(super) relay: Option<Relay<Body>>,
    /// When the relay goes on with a large commit.
    pub(super) relay_timer: Option<TrueTime>,
}

/// Settings that all replicas of a run share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    pub(super) order: replica::Order,
    /// Whether staleness is bounded without a connection.
    pub(super) bounded: bool,
    pub(super) lanes: Lanes,
}

/// How far wall clocks may differ, in nanoseconds.
const MAX_SKEW: i64 = 100 * MS as i64;

impl OriginHost {
    /// An origin with settings from the seed. `bounds` draws the sizes of buffers and logs.
    pub(super) fn draw(options: &Options, random: &mut Random, bounds: &mut Random) -> Self {
        let config = Self::settings(options.seed, bounds);
        let identity = random.bits().to_le_bytes();
        let mut identity32 = [0; 32];
        identity32[..8].copy_from_slice(&identity);
        OriginHost {
            machine: None,
            disk: Disk::new(origin::Image::empty(identity32), options.storage, options.seed),
            clock: Clock::new(random, 200, 0),
            epoch: 0,
            config: origin::Config {
                log: 6 + random.below(40) as usize,
                under_way: 1 + random.below(3) as usize,
                ..config
            },
            timer: None,
            log: Vec::new(),
            backup: None,
        }
    }

    /// Settings with generators of their own, so that the rest of a run is the same with each of them.
    fn settings(seed: u64, bounds: &mut Random) -> origin::Config {
        let strategy = match Random::new(seed ^ 0x7374_7261).below(8) {
            0 => Strategy::DemandOnly,
            1 => Strategy::PushAll,
            2 => Strategy::Threshold(0.5),
            _ => Strategy::Trip,
        };
        let usual = origin::Config::default();
        // Most runs do not reach these bounds of the log.
        let log_bytes = match bounds.below(4) {
            0 => Bytes(40_000 + bounds.below(300_000)),
            _ => usual.log_bytes,
        };
        let log_changes = match bounds.below(8) {
            0 => 8 + bounds.below(60) as usize,
            _ => usual.log_changes,
        };
        // Some origins refuse paths that are equal without case.
        let case_clashes = match bounds.below(4) {
            0 => CaseClashes::Refuse,
            _ => CaseClashes::Allow,
        };
        // At some the hashes reach no further back than the log.
        let chain = match Random::new(seed ^ 0x6368_6169).below(4) {
            0 => 0,
            _ => 1_000_000,
        };
        // At some origins many small bodies are under way at a time.
        let under_way_bytes = match Random::new(seed ^ 0x7761_7900).below(4) {
            0 => Bytes(100_000),
            _ => Bytes(0),
        };
        // At some origins most transactions are large, so that other events come between their parts.
        let slice = match Random::new(seed ^ 0x736c_6963).below(4) {
            0 => 1,
            1 => 3,
            _ => usual.slice,
        };
        origin::Config {
            log_changes,
            log_bytes,
            chain,
            batch: 4,
            queue: 8,
            slice,
            part: 2,
            heartbeat: Duration::from_millis(60),
            strategy,
            under_way_bytes,
            half_life: Duration::from_secs(2),
            case_clashes,
            // Most bodies go in pieces.
            lanes: Lanes::of_pieces(Bytes(8_000)),
            ..usual
        }
    }
}

impl ReplicaHost {
    /// The replica of this number, with settings from the seed.
    pub(super) fn draw(
        at: usize,
        options: &Options,
        common: Common,
        random: &mut Random,
        bounds: &mut Random,
    ) -> Self {
        // Mostly within the largest skew, and often close to it.
        let ahead = match random.below(6) {
            0 => 0,
            1 | 2 => -(MAX_SKEW * 8 / 10),
            3 => MAX_SKEW / 2,
            4 => random.below(2 * MAX_SKEW as u64) as i64 - MAX_SKEW,
            _ => 30 * (random.below(2 * MAX_SKEW as u64) as i64 - MAX_SKEW),
        };
        let quota = (random.below(3) == 0).then(|| Bytes(60_000 + random.below(100_000)));
        let seed = options.seed ^ (at as u64 + 1);
        ReplicaHost {
            machine: None,
            disk: Disk::new(replica::Image::default(), options.storage, seed),
            clock: Clock::new(random, 200, ahead),
            epoch: 0,
            config: replica::Config {
                quota,
                ..Self::settings(at, options, common, random, bounds)
            },
            link: Link::new(random),
            before: None,
            timer: None,
            excused: BTreeSet::new(),
            connecting: false,
            parent: None,
            parents: Vec::new(),
            has_moved: false,
            took_some: false,
            is_relay: false,
            relay: None,
            relay_timer: None,
        }
    }

    fn settings(
        at: usize,
        options: &Options,
        common: Common,
        random: &mut Random,
        bounds: &mut Random,
    ) -> replica::Config {
        let Common { order, bounded, lanes } = common;
        let usual = replica::Config::default();
        replica::Config {
            replica: ReplicaId(at as u32),
            staleness: replica::Staleness {
                connected: Duration::from_millis(300),
                disconnected: bounded.then_some(Duration::from_millis(1_500)),
                max_skew: Duration::from_nanos(MAX_SKEW as u64),
                ..replica::Staleness::default()
            },
            // As sent by the origin.
            eager: None,
            overtake: !(options.seed + at as u64).is_multiple_of(4),
            order,
            ping: Duration::from_millis(60),
            silence: Duration::from_millis(700),
            grace: Duration::from_millis(random.below(2) * 100),
            retry: Duration::from_millis(50),
            demands: 64,
            demand_bytes: Bytes(80_000 << (2 * bounds.below(2))),
            buffer: match (options.seed + at as u64) % 8 {
                // The size of a few commits.
                1 => Bytes(1_500),
                _ => usual.buffer,
            },
            lanes,
            linger: Duration::from_millis(20 * bounds.below(2)),
            report: Some(Duration::from_secs(1)),
            slice: 1 + (options.seed % 4) as usize,
            step_slice: options.step_slice,
            quota: usual.quota,
            bytes_per_read: usual.bytes_per_read,
        }
    }
}
