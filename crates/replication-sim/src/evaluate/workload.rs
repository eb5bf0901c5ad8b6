//! The reads and writes, with their places and times.

use core::time::Duration;

use lull_cc::Bytes;
use lull_sim::random::Random;

/// A read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The time since the beginning.
    pub at: Duration,
    /// At which replica, from 0.
    pub replica: u32,
    /// The object, from 0.
    pub object: u32,
}

/// A write of a whole object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The time since the beginning.
    pub at: Duration,
    /// The object, from 0.
    pub object: u32,
}

/// All that happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The size of each object.
    pub objects: Vec<Bytes>,
    /// The number of replicas.
    pub replicas: u32,
    /// In order.
    pub reads: Vec<Read>,
    /// In order.
    pub writes: Vec<Write>,
    /// From the beginning to the end.
    pub length: Duration,
}

/// A model of writes for reads without recorded writes: a Poisson process. Each write is of the object of a
/// read drawn at random, or of any object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Updates {
    /// Writes for each read.
    pub per_read: f64,
    /// The share of writes that follow the popularity of reads.
    pub popular: f64,
}

impl Workload {
    /// Draws the writes.
    pub fn update(&mut self, model: Updates, seed: u64) {
        const WRITES: u64 = 1;
        let mut random = Random::of_part(seed, WRITES);
        self.writes.clear();
        let count = model.per_read * self.reads.len() as f64;
        if self.objects.is_empty() || count <= 0.0 {
            return;
        }
        let mean = self.length.div_f64(count);
        let mut at = random.exponential(mean);
        while at < self.length {
            let is_popular = random.uniform() < model.popular;
            let read = self.reads.get(random.below(self.reads.len() as u64) as usize);
            let any = random.below(self.objects.len() as u64) as u32;
            let object = read.filter(|_| is_popular).map_or(any, |read| read.object);
            self.writes.push(Write { at, object });
            at += random.exponential(mean).max(Duration::from_nanos(1));
        }
    }

    /// Bytes per second needed to push each body to each replica.
    pub fn need(&self) -> f64 {
        let size = |write: &Write| self.objects[write.object as usize].0 as f64;
        let bytes: f64 = self.writes.iter().map(size).sum();
        bytes * f64::from(self.replicas) / self.length.as_secs_f64()
    }
}
