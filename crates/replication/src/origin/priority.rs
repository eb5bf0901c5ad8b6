//! Which body has the highest worth for a replica.

use core::fmt::Debug;

use lull_cc::Bytes;

use crate::path::Path;

/// The counts of an object when its body is put into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Recent reads at all replicas.
    pub reads: u32,
    /// Recent writes, including the newest.
    pub writes: u32,
    /// The size of the body.
    pub size: Bytes,
}

/// The value of a body, in steps of a quarter of a power of two. Closer values are equal, and served in the
/// order in which there was space.
///
/// Coarse, because one order serves all replicas, and each move within it costs a step at every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u8);

impl Priority {
    /// The priority for this benefit per cost, in any unit; it distinguishes 2⁻³² … 2³².
    pub fn from_benefit(benefit: f64) -> Self {
        // Exponent and the two bits after the point: the logarithm to the base 2 in quarters. Only its
        // monotonicity matters. It uses integers only, so it is the same everywhere.
        const QUARTERS: u32 = 50;
        const MIN_BITS: u64 = (1023 - 32) << 2;
        if benefit.is_nan() || benefit <= 0.0 {
            return Priority(0);
        }
        let quarters = (benefit.to_bits() >> QUARTERS).saturating_sub(MIN_BITS);
        Priority(u8::try_from(quarters).unwrap_or(u8::MAX))
    }
}

/// A policy for the value of bodies. The paper leaves it open and has a default.
pub trait Prioritise: Debug + Send {
    /// The priority of an object.
    fn priority(&self, path: &Path, demand: Demand) -> Priority;
}

/// The paper's default: the chance that the version is read before it is overwritten, by the frequencies of
/// both, over its size (SSR §6.3.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadsPerWriteAndByte;

impl Prioritise for ReadsPerWriteAndByte {
    fn priority(&self, _: &Path, demand: Demand) -> Priority {
        // One read more than was seen: an object that was never read is pushed last, but it is pushed.
        let reads = f64::from(demand.reads) + 1.0;
        let writes = f64::from(demand.writes.max(1));
        Priority::from_benefit(reads / writes / (demand.size.0.max(1) as f64) * SCALE)
    }
}

/// Puts benefits into the middle of the range of priorities: a read a write of 64 kB is 1.
const SCALE: f64 = 65_536.0;

/// A count that is halved at the end of each period, so that it follows the current load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decayed {
    value: u32,
    period: u32,
}

impl Decayed {
    pub(crate) fn at(self, period: u32) -> u32 {
        self.value.checked_shr(period.saturating_sub(self.period)).unwrap_or(0)
    }

    /// This count and another one, at the time of the later change: their ratio needs no clock.
    pub(crate) fn together(self, other: Decayed) -> (u32, u32) {
        let period = self.period.max(other.period);
        (self.at(period), other.at(period))
    }

    pub(crate) fn add(&mut self, count: u32, period: u32) {
        *self = Decayed { value: self.at(period).saturating_add(count), period };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority(reads: u32, writes: u32, size: u64) -> Priority {
        let path = Path::new("a").expect("a path");
        ReadsPerWriteAndByte.priority(&path, Demand { reads, writes, size: Bytes(size) })
    }

    #[test]
    fn small_often_read_rarely_written_objects_go_first() {
        let usual = priority(10, 2, 10_000);
        for (higher, what) in [
            (priority(30, 2, 10_000), "reads"),
            (priority(10, 1, 10_000), "writes"),
            (priority(10, 2, 3_000), "size"),
        ] {
            assert!(higher > usual, "{what}: {higher:?} over {usual:?}");
        }
        assert_eq!(priority(10, 2, 10_000), priority(10, 2, 10_001), "no need to move it");
    }

    #[test]
    fn priorities_are_monotonic_and_bounded() {
        let benefits = [f64::NAN, -1.0, 0.0, 1e-300, 1e-9, 0.5, 0.6, 0.9, 1.0, 1e9, f64::INFINITY];
        let all: Vec<_> = benefits.into_iter().map(Priority::from_benefit).collect();
        assert!(all.is_sorted(), "{all:?}");
        assert_eq!((all[0], all[10]), (Priority(0), Priority(255)));
    }

    #[test]
    fn counts_are_halved_each_period() {
        let mut count = Decayed::default();
        count.add(8, 0);
        for (period, expected) in [(0, 8), (1, 4), (3, 1), (4, 0), (40, 0), (u32::MAX, 0)] {
            assert_eq!(count.at(period), expected, "period {period}");
        }
        count.add(1, 2);
        assert_eq!(count.at(2), 3);
    }
}
