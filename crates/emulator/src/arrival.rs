//! Arrival times of packets, which differ from the times of reading them.
//!
//! A queue behaves correctly only if it sees packets in the order and at the distances of their arrival. A
//! thread that wakes late finds several at once, from several hosts; the kernel's timestamps restore their
//! order and times.

use std::time::Duration;

use lull_cc::Timestamp;

/// An arrived packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrival<P> {
    /// Its assumed arrival time. Never before that of the previous packet.
    pub(super) at: Timestamp,
    /// How much later than the real arrival that is, as far as known.
    pub(super) late: Duration,
    pub(super) packet: P,
}

/// Packets that were read and have not entered the bottleneck.
#[derive(Debug)]
pub(super) struct Arrivals<P> {
    waiting: Vec<Arrival<P>>,
    /// All arrivals up to here were taken.
    taken_until: Timestamp,
}

impl<P> Arrivals<P> {
    pub(super) fn new() -> Self {
        Arrivals { waiting: Vec::new(), taken_until: Timestamp::ZERO }
    }

    /// A packet that arrived at `at`, or up to `late` before.
    pub(super) fn push(&mut self, at: Timestamp, late: Duration, packet: P) {
        self.waiting.push(Arrival { at, late, packet });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the time up to and including `until`, and returns its arrivals, in order. Older packets that
    /// are found later arrive at `until`.
    pub(super) fn take_until(&mut self, until: Timestamp) -> Vec<Arrival<P>> {
        // Stable: equal timestamps keep the order of reading.
        self.waiting.sort_by_key(|arrival| arrival.at);
        let taken = self.waiting.partition_point(|arrival| arrival.at <= until);
        let mut taken: Vec<_> = self.waiting.drain(..taken).collect();
        for Arrival { at, late, .. } in &mut taken {
            *late += self.taken_until.saturating_since(*at);
            *at = self.taken_until.max(*at);
        }
        self.taken_until = self.taken_until.max(until);
        taken
    }
}

/// Translates the kernel's timestamps, which are in calendar time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calendar {
    /// The calendar time in nanoseconds, less the emulator's time.
    ahead: i128,
}

impl Calendar {
    /// Both clocks' times at the same moment. Valid for nearby moments: the calendar clock is occasionally
    /// corrected.
    pub(super) fn new(calendar: Duration, now: Timestamp) -> Self {
        Calendar { ahead: calendar.as_nanos() as i128 - i128::from(now.as_nanos()) }
    }

    /// The emulator's time of a timestamp; its beginning for older ones.
    pub(super) fn time_of(&self, stamp: Duration) -> Timestamp {
        let nanos = stamp.as_nanos() as i128 - self.ahead;
        Timestamp::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    /// Pushes (stamp, name) pairs.
    fn push(arrivals: &mut Arrivals<char>, all: &[(u64, char)]) {
        for (at, name) in all {
            arrivals.push(micros(*at), Duration::ZERO, *name);
        }
    }

    /// Names, times and lateness in microseconds.
    fn take_until(arrivals: &mut Arrivals<char>, until: u64) -> Vec<(char, u64, u128)> {
        let all = arrivals.take_until(micros(until));
        all.iter().map(|one| (one.packet, one.at.as_micros(), one.late.as_micros())).collect()
    }

    #[test]
    fn packets_of_several_hosts_are_merged_in_order() {
        let mut arrivals = Arrivals::new();
        // Read host by host.
        push(&mut arrivals, &[(10, 'a'), (30, 'b'), (50, 'c'), (20, 'd'), (30, 'e')]);
        let taken = take_until(&mut arrivals, 40);
        assert_eq!(taken, [('a', 10, 0), ('d', 20, 0), ('b', 30, 0), ('e', 30, 0)]);
        // Packets that arrived while they were read wait for those that may have arrived earlier.
        assert!(!arrivals.is_empty());
        push(&mut arrivals, &[(45, 'f')]);
        assert_eq!(take_until(&mut arrivals, 60), [('f', 45, 0), ('c', 50, 0)]);
        assert!(arrivals.is_empty());
    }

    #[test]
    fn late_packet_is_taken_early_as_possible_and_reported() {
        let mut arrivals = Arrivals::new();
        assert_eq!(take_until(&mut arrivals, 100), []);
        push(&mut arrivals, &[(90, 'a'), (110, 'b')]);
        arrivals.push(micros(120), Duration::from_micros(7), 'c');
        assert_eq!(take_until(&mut arrivals, 200), [('a', 100, 10), ('b', 110, 0), ('c', 120, 7)]);
        // Time never decreases.
        assert_eq!(take_until(&mut arrivals, 50), []);
        push(&mut arrivals, &[(1, 'd')]);
        assert_eq!(take_until(&mut arrivals, 300), [('d', 200, 199)]);
    }

    #[test]
    fn calendar_stamps_become_emulator_time() {
        let calendar = Calendar::new(Duration::from_secs(1_700_000_000), micros(500));
        let stamp = Duration::from_secs(1_700_000_000);
        assert_eq!(calendar.time_of(stamp), micros(500));
        assert_eq!(calendar.time_of(stamp - Duration::from_micros(400)), micros(100));
        assert_eq!(calendar.time_of(stamp + Duration::from_micros(3)), micros(503));
        assert_eq!(calendar.time_of(Duration::ZERO), Timestamp::ZERO);
    }
}
