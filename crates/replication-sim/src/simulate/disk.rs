//! Disks that lose unconfirmed writes.

use std::collections::BTreeMap;

use lull_cc::Bytes;
use lull_replication::types::{Digest, DiskFull, Incarnation, Payload};
use lull_sim::random::Random;

use super::Storage;
use super::clock::TrueTime;
use super::durable::{Body, Durable, Operation};
use super::medium::Medium;
use crate::pool::Pool;

/// A confirmation of a disk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    Stored(Digest, Result<(), DiskFull>),
    Dropped(Digest),
    Step(Result<(), DiskFull>),
    /// None: the contents of the disk are unknown, and the machine has to restart.
    Failed,
}

#[derive(Clone, Debug)]
struct Stored {
    payload: Payload<Body>,
    intact: bool,
}

/// The effects of a crash on a disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Damage {
    pub(super) lost: bool,
    pub(super) torn: bool,
    pub(super) survived: bool,
}

/// A disk. Confirmed writes survive crashes; each part of the others may or may not.
#[derive(Clone)]
pub(super) struct Disk<I: Durable> {
    pub(super) image: I,
    bodies: BTreeMap<Digest, Stored>,
    under_way: Pool<Operation<I::Step>>,
    pub(super) full: bool,
    pub(super) slow: bool,
    /// The real store, which should have the contents above.
    medium: Option<Medium<I>>,
}

impl<I: Durable> Disk<I> {
    /// An empty disk.
    pub(super) fn new(image: I, storage: Storage, seed: u64) -> Self {
        Disk {
            medium: (storage == Storage::Database).then(|| Medium::new(&image, seed)),
            image,
            bodies: BTreeMap::new(),
            under_way: Pool::default(),
            full: false,
            slow: false,
        }
    }

    /// An incarnation starts: the contents of the disk, and its bodies.
    pub(super) fn start(&mut self) -> (I, Vec<(Digest, Bytes)>) {
        let life = Incarnation(self.image.incarnation().0 + 1);
        let bodies = match &mut self.medium {
            None => {
                *self.image.incarnation() = life;
                let intact = self.bodies.iter().filter(|(_, stored)| stored.intact);
                intact.map(|(digest, stored)| (*digest, stored.payload.size)).collect()
            }
            Some(medium) => {
                let (image, bodies) = medium.open(life);
                self.image = image;
                bodies
            }
        };
        (self.image.clone(), bodies)
    }

    pub(super) fn begin(&mut self, operation: Operation<I::Step>) -> u32 {
        self.under_way.insert(operation)
    }

    pub(super) fn latency(&self, random: &mut Random) -> TrueTime {
        let mean = if self.slow { 30_000_000 } else { 500_000 };
        50_000 + random.below(2 * mean)
    }

    /// The operation is over; returns the confirmations.
    pub(super) fn finish(&mut self, slot: u32) -> Option<Done> {
        let operation = self.under_way.take(slot)?;
        let outcome = match &mut self.medium {
            None if self.full && !matches!(operation, Operation::Drop(_)) => Err(DiskFull),
            None => Ok(()),
            Some(medium) => match medium.perform(&operation, self.full) {
                Ok(outcome) => outcome,
                Err(_) => {
                    // As if it had been running: the start finds out the contents of the disk.
                    self.under_way.insert(operation);
                    return Some(Done::Failed);
                }
            },
        };
        if outcome.is_ok() {
            self.perform(&operation);
        }
        Some(match &operation {
            Operation::Store(payload) => Done::Stored(payload.digest, outcome),
            Operation::Drop(digest) => Done::Dropped(*digest),
            Operation::Step(_) => Done::Step(outcome),
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

    /// The machine stops in the middle of its work.
    pub(super) fn crash(&mut self, random: &mut Random) -> Damage {
        let under_way = self.under_way.drain();
        if self.medium.is_some() {
            return self.lose_power(&under_way);
        }
        let mut damage = Damage::default();
        for operation in under_way {
            match (random.below(3), &operation) {
                (0, _) if !self.full => {
                    damage.survived |= matches!(operation, Operation::Step(_));
                    self.perform(&operation);
                }
                (1, Operation::Store(payload)) => {
                    damage.torn = true;
                    self.put(payload.clone(), false);
                }
                // A lost deletion is repeated by the next start.
                (_, Operation::Drop(_)) => {}
                _ => damage.lost = true,
            }
        }
        damage
    }

    /// The same for the real store. After it, the store has the confirmed contents, with or without the steps
    /// that were in progress.
    fn lose_power(&mut self, under_way: &[Operation<I::Step>]) -> Damage {
        let Some(medium) = &mut self.medium else { return Damage::default() };
        let torn = medium.lose_power(under_way, self.full);
        let life = *self.image.incarnation();
        let (mut found, bodies) = medium.open(life);
        let bodies = medium.read(&bodies);
        let lived = core::mem::replace(found.incarnation(), life);
        let before = self.image.clone();
        let mut after = before.clone();
        for operation in under_way {
            if let Operation::Step(step) = operation {
                after.apply(step);
            }
        }
        assert!(
            found == before || found == after,
            "a store came back with {found:?} after {before:?}, and {after:?} was under way"
        );
        let damage = Damage { lost: found != after, torn, survived: found != before };
        *found.incarnation() = lived;
        self.image = found;
        let was = core::mem::take(&mut self.bodies);
        for (payload, intact) in bodies {
            // A corrupted body stays so.
            let rotten = was.get(&payload.digest).is_some_and(|stored| !stored.intact);
            self.put(payload, intact && !rotten);
        }
        for (digest, stored) in &was {
            let dropped = under_way
                .iter()
                .any(|operation| matches!(operation, Operation::Drop(other) if other == digest));
            assert!(
                dropped || !stored.intact || self.bodies.contains_key(digest),
                "a store has lost {digest}, which it had confirmed: {stored:?}"
            );
        }
        damage
    }

    pub(super) fn body(&self, digest: &Digest) -> Option<&Payload<Body>> {
        self.bodies.get(digest).filter(|stored| stored.intact).map(|stored| &stored.payload)
    }

    /// Whether a body is stored, intact or not.
    pub(super) fn holds(&self, digest: &Digest) -> bool {
        self.bodies.contains_key(digest)
    }

    /// Corrupts a body, and returns which.
    pub(super) fn corrupt(&mut self, random: &mut Random) -> Option<Digest> {
        let at = random.below(self.bodies.len().max(1) as u64) as usize;
        let stored = self.bodies.values_mut().nth(at)?;
        stored.intact = false;
        if let Some(medium) = &self.medium {
            medium.corrupt(&stored.payload);
        }
        Some(stored.payload.digest)
    }
}
