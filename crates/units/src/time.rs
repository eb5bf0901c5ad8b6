//! Points in time that are passed in, never read from a clock.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time: nanoseconds since an epoch that the caller chooses.
///
/// The simulator counts from the start of the run, the emulator from its own start on the monotonic clock,
/// the kernel carrier from boot. Only timestamps of the same source can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The epoch itself.
    pub const ZERO: Timestamp = Timestamp(0);
    /// A time that no run reaches; means "never".
    pub const FAR_FUTURE: Timestamp = Timestamp(u64::MAX);

    /// The time `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Timestamp(nanos)
    }

    /// The time `micros` microseconds after the epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Timestamp(micros * 1_000)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Time from `earlier` to `self`, zero if `earlier` is the later one.
    pub const fn saturating_since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, by: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl Sub<Timestamp> for Timestamp {
    type Output = Duration;

    /// Time from `earlier` to `self`.
    ///
    /// # Panics
    /// If `earlier` is the later one: time never decreases within one source.
    fn sub(self, earlier: Timestamp) -> Duration {
        assert!(earlier.0 <= self.0, "time ran backwards: {earlier} is after {self}");
        Duration::from_nanos(self.0 - earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
