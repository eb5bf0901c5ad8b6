//! Machines: clocks that are wrong, and disks that lose what they have not confirmed.

use std::collections::BTreeMap;
use std::sync::Arc;

use lull_cc::Bytes;
use lull_sim::random::Random;

use super::pool::Pool;
use crate::shelf::BodyEffect;
use crate::time::{LocalTime, Reading, WallTime};
use crate::types::{Digest, DiskFull, Payload};
use crate::{checker, origin, replica};

/// True time since the beginning of a run, in nanoseconds. No machine can see it.
pub(super) type True = u64;

/// The clocks of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// When the machine was booted, on its own clock.
    booted: i64,
    /// How fast its clocks run, in parts per million.
    drift: i64,
    /// How far its wall clock is ahead.
    ahead: i64,
}

const MILLION: i128 = 1_000_000;
/// Midnight before some day; what wall clocks show at the beginning.
const EPOCH: i64 = 1_700_000_000_000_000_000;

impl Clock {
    pub(super) fn new(random: &mut Random, drift: u32, ahead: i64) -> Self {
        let drift = i64::from(drift);
        Clock {
            booted: random.below(1 << 50) as i64,
            drift: random.below(2 * drift as u64 + 1) as i64 - drift,
            ahead,
        }
    }

    /// Somebody sets the wall clock.
    pub(super) fn step(&mut self, by: i64) {
        self.ahead += by;
    }

    fn passed(self, now: True) -> i64 {
        i64::try_from(i128::from(now) * (MILLION + i128::from(self.drift)) / MILLION)
            .unwrap_or(i64::MAX)
    }

    pub(super) fn read(self, now: True) -> Reading {
        let passed = self.passed(now);
        Reading {
            local: LocalTime::from_nanos(self.booted + passed),
            wall: WallTime::from_nanos(EPOCH + passed + self.ahead),
        }
    }

    /// The first moment at which the clock shows `local`, or now.
    pub(super) fn when(self, local: LocalTime, now: True) -> True {
        let passed = i128::from(local.as_nanos()) - i128::from(self.booted);
        let at = passed * MILLION / (MILLION + i128::from(self.drift));
        let mut at = u64::try_from(at.max(0)).unwrap_or(u64::MAX / 2);
        while self.read(at).local < local {
            at += 1;
        }
        at.max(now)
    }
}

/// A body: it tells its own number.
pub(super) type Body = checker::Body;

/// What a disk keeps beside bodies.
pub(super) trait Durable {
    type Step: Clone;

    /// Does a step; gives the bodies that it stores.
    fn apply(&mut self, step: &Self::Step) -> Vec<Payload<Body>>;
}

impl Durable for origin::Image {
    type Step = origin::Append<Body>;

    fn apply(&mut self, step: &Self::Step) -> Vec<Payload<Body>> {
        origin::Image::apply(self, step);
        step.inline.clone()
    }
}

impl Durable for replica::Image {
    type Step = Arc<replica::Step>;

    fn apply(&mut self, step: &Self::Step) -> Vec<Payload<Body>> {
        replica::Image::apply(self, step);
        Vec::new()
    }
}

/// Something that a disk was asked to do.
#[derive(Clone, Debug)]
pub(super) enum Operation<S> {
    Store(Payload<Body>),
    Drop(Digest),
    Step(S),
}

impl<S> From<BodyEffect<Body>> for Operation<S> {
    fn from(effect: BodyEffect<Body>) -> Self {
        match effect {
            BodyEffect::Store(payload) => Operation::Store(payload),
            BodyEffect::Drop(digest) => Operation::Drop(digest),
        }
    }
}

/// What a disk has confirmed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    Stored(Digest, Result<(), DiskFull>),
    Dropped(Digest),
    Step(Result<(), DiskFull>),
}

#[derive(Clone, Debug)]
struct Stored {
    payload: Payload<Body>,
    intact: bool,
}

/// What a crash has done to a disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Damage {
    pub(super) lost: bool,
    pub(super) torn: bool,
    pub(super) survived: bool,
}

/// A disk. What it has confirmed survives crashes; of the rest each part may or may not.
#[derive(Clone)]
pub(super) struct Disk<I: Durable> {
    pub(super) image: I,
    bodies: BTreeMap<Digest, Stored>,
    under_way: Pool<Operation<I::Step>>,
    pub(super) full: bool,
    pub(super) slow: bool,
}

impl<I: Durable> Disk<I> {
    pub(super) fn new(image: I) -> Self {
        Disk {
            image,
            bodies: BTreeMap::new(),
            under_way: Pool::default(),
            full: false,
            slow: false,
        }
    }

    pub(super) fn begin(&mut self, operation: Operation<I::Step>) -> u32 {
        self.under_way.insert(operation)
    }

    pub(super) fn latency(&self, random: &mut Random) -> True {
        let mean = if self.slow { 30_000_000 } else { 500_000 };
        50_000 + random.below(2 * mean)
    }

    /// The operation is over; gives what is confirmed.
    pub(super) fn finish(&mut self, slot: u32) -> Option<Done> {
        let operation = self.under_way.take(slot)?;
        let outcome = if self.full { Err(DiskFull) } else { Ok(()) };
        Some(match &operation {
            Operation::Store(payload) => {
                let digest = payload.digest;
                if outcome.is_ok() {
                    self.perform(&operation);
                }
                Done::Stored(digest, outcome)
            }
            Operation::Drop(digest) => {
                self.perform(&operation);
                Done::Dropped(*digest)
            }
            Operation::Step(_) => {
                if outcome.is_ok() {
                    self.perform(&operation);
                }
                Done::Step(outcome)
            }
        })
    }

    fn perform(&mut self, operation: &Operation<I::Step>) {
        match operation {
            Operation::Store(payload) => self.put(payload.clone(), true),
            Operation::Drop(digest) => {
                self.bodies.remove(digest);
            }
            Operation::Step(step) => {
                for payload in self.image.apply(step) {
                    self.put(payload, true);
                }
            }
        }
    }

    fn put(&mut self, payload: Payload<Body>, intact: bool) {
        self.bodies.insert(payload.digest, Stored { payload, intact });
    }

    /// The machine stops in the middle of what it was doing.
    pub(super) fn crash(&mut self, random: &mut Random) -> Damage {
        let mut damage = Damage::default();
        for operation in self.under_way.drain() {
            match (random.below(3), &operation) {
                (0, _) if !self.full => {
                    damage.survived |= matches!(operation, Operation::Step(_));
                    self.perform(&operation);
                }
                (1, Operation::Store(payload)) => {
                    damage.torn = true;
                    self.put(payload.clone(), false);
                }
                // A deletion that is lost is done again by the next start.
                (_, Operation::Drop(_)) => {}
                _ => damage.lost = true,
            }
        }
        damage
    }

    /// The bodies that a start finds intact.
    pub(super) fn intact(&self) -> Vec<(Digest, Bytes)> {
        let intact = self.bodies.iter().filter(|(_, stored)| stored.intact);
        intact.map(|(digest, stored)| (*digest, stored.payload.size)).collect()
    }

    pub(super) fn body(&self, digest: &Digest) -> Option<&Payload<Body>> {
        self.bodies.get(digest).filter(|stored| stored.intact).map(|stored| &stored.payload)
    }

    /// Whether a body is there, intact or not.
    pub(super) fn holds(&self, digest: &Digest) -> bool {
        self.bodies.contains_key(digest)
    }

    /// A body goes bad.
    pub(super) fn rot(&mut self, random: &mut Random) {
        let at = random.below(self.bodies.len().max(1) as u64) as usize;
        if let Some(stored) = self.bodies.values_mut().nth(at) {
            stored.intact = false;
        }
    }
}
