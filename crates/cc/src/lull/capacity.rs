//! The capacity of a path for all background connections of a host together.

/// Fractional bits of a rate in packets per second.
const RATE_SHIFT: u32 = 8;
/// Rounds and microseconds that a rate must last to count as the capacity: a burst behind a pause of
/// the link arrives faster than the link can carry.
const PEAK_ROUNDS: u32 = 4;
const PEAK_MICROS: u64 = 100_000;
/// How long a peak is remembered, in microseconds in which the path was used. It counts from one to
/// two times as long. Time at the floor does not count: the way back needs the memory.
const MEMORY_MICROS: u64 = 60_000_000;

/// Beyond any path of today; they keep every product below 64 bits.
const PACKETS_LIMIT: u64 = 1 << 28;
const RATE_LIMIT: u64 = 1 << 38;
const WINDOW_LIMIT: u64 = 1 << 20;

/// Packets delivered in a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) packets: u64,
    pub(super) micros: u64,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.packets += other.packets;
        self.micros += other.micros;
    }

    /// Packets per second with [`RATE_SHIFT`] fractional bits.
    fn rate(self) -> u64 {
        let packets = self.packets.min(PACKETS_LIMIT);
        (((packets * 1_000_000) << RATE_SHIFT) / self.micros.max(1)).min(RATE_LIMIT)
    }
}

/// The current delivery rate of a path and the highest one, both in packets per second with
/// [`RATE_SHIFT`] fractional bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Capacity {
    current: u64,
    peak: u64,
    peak_before: u64,
    /// The peak at which a queue of the background's own was last seen: what the path carries, not what was asked of it.
    confirmed: u64,
    /// Microseconds of use in which `peak` was collected.
    used: u64,
    /// When the round began; 0 while there is none to measure.
    round_start: u64,
    /// Nothing is measured before this time.
    ignored_until: u64,
    /// Packets delivered in the round.
    packets: u64,
    /// The last measurement and the one under way.
    last: Count,
    measured: Count,
    /// The candidate for the peak, and its rounds.
    long: Count,
    long_rounds: u32,
}

impl Capacity {
    /// Packets were delivered to some connection of the path.
    pub(super) fn deliver(&mut self, packets: u32) {
        self.packets += u64::from(packets);
    }

    /// The connection that measures is another one, or begins again. The counts are useless.
    pub(super) fn restart(&mut self) {
        self.round_start = 0;
    }

    /// Others have what the path carries.
    pub(super) fn stop(&mut self) {
        self.current = 0;
        self.restart();
    }

    /// The path has changed. Packets of the old and the new path arrive together until `time`, faster
    /// than either can carry.
    pub(super) fn ignore_until(&mut self, time: u64) {
        self.ignored_until = time;
        self.restart();
    }

    /// The deliveries of the round that ends at `now`, in microseconds; nothing where they were not
    /// measured.
    pub(super) fn round(&self, now: u64) -> Count {
        match self.round_start {
            0 => Count::default(),
            start => Count { packets: self.packets, micros: now.saturating_sub(start) },
        }
    }

    /// A round ends at `now`, in microseconds. A measurement takes at least `shortest` microseconds.
    /// `is_first`: no peak is known yet, and each round may show one.
    pub(super) fn end_round(&mut self, now: u64, shortest: u64, is_first: bool) {
        if now < self.ignored_until {
            return;
        }
        if self.round_start == 0 {
            (self.last, self.measured, self.long) = Default::default();
            self.long_rounds = 0;
        } else {
            let round = self.round(now);
            self.measured.add(round);
            self.long.add(round);
            self.long_rounds += 1;
            self.used += round.micros;
            if self.measured.micros >= shortest {
                let mut both = self.measured;
                both.add(self.last);
                self.current = both.rate();
                self.last = self.measured;
                self.measured = Count::default();
            }
            if is_first {
                self.peak = self.peak.max(self.current);
            }
            self.update_peak();
        }
        self.round_start = now;
        self.packets = 0;
    }

    fn update_peak(&mut self) {
        if self.long_rounds < PEAK_ROUNDS || self.long.micros < PEAK_MICROS {
            return;
        }
        if self.used >= MEMORY_MICROS {
            self.used = 0;
            self.peak_before = self.peak;
            self.peak = 0;
        }
        self.peak = self.peak.max(self.long.rate());
        self.long = Count::default();
        self.long_rounds = 0;
    }

    /// The highest rate that is remembered.
    pub(super) fn peak(&self) -> u64 {
        self.peak.max(self.peak_before)
    }

    /// The background itself has filled the path at this rate.
    pub(super) fn confirm(&mut self) {
        self.confirmed = self.peak();
    }

    /// The measurements of the path so far are doubtful.
    pub(super) fn doubt(&mut self) {
        self.confirmed = 0;
    }

    /// The peak is what the path carries. A path that the background has never filled may carry more.
    pub(super) fn is_confirmed(&self) -> bool {
        self.peak() * 8 <= self.confirmed * 9
    }

    /// The background itself sends at nine tenths of what the path can carry: a queue is its own.
    pub(super) fn is_reached(&self) -> bool {
        self.current * 10 >= self.peak() * 9
    }

    /// The time in microseconds that the path takes for a packet; 0 while the capacity is unknown.
    pub(super) fn packet_micros(&self) -> u64 {
        match self.peak() {
            0 => 0,
            peak => (1_000_000 << RATE_SHIFT) / peak,
        }
    }

    /// The same, where a path that the background has never filled is taken to carry twice what was seen.
    pub(super) fn likely_packet_micros(&self) -> u64 {
        match self.is_confirmed() {
            true => self.packet_micros(),
            false => self.packet_micros() / 2,
        }
    }

    /// The window that fills the path without a queue, with `shift` fractional bits.
    pub(super) fn window(&self, min_rtt: u32, shift: u32) -> u64 {
        window_of(self.peak(), min_rtt, shift)
    }

    /// The window that gives the current rate without a queue.
    pub(super) fn current_window(&self, min_rtt: u32, shift: u32) -> u64 {
        window_of(self.current, min_rtt, shift)
    }

    /// The capacity in packets per second.
    pub(super) fn packets_per_second(&self) -> u64 {
        self.peak() >> RATE_SHIFT
    }
}

/// The packets of `rate` in `min_rtt` microseconds, with `shift` fractional bits.
fn window_of(rate: u64, min_rtt: u32, shift: u32) -> u64 {
    let packets = rate * u64::from(min_rtt) / 1_000_000;
    packets.min(WINDOW_LIMIT << RATE_SHIFT) << (shift - RATE_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of 50 ms with so many packets each.
    fn measure(capacity: &mut Capacity, start: u64, rounds: &[u32]) -> u64 {
        let mut now = start;
        for &packets in rounds {
            now += 50_000;
            capacity.deliver(packets);
            capacity.end_round(now, 0, false);
        }
        now
    }

    #[test]
    fn peak_is_the_rate_of_four_rounds() {
        let mut capacity = Capacity::default();
        measure(&mut capacity, 1_000_000, &[50; 5]);
        assert_eq!(capacity.packets_per_second(), 1_000);
        assert_eq!(capacity.packet_micros(), 1_000);
        assert_eq!(capacity.window(50_000, 16), 50 << 16);
    }

    #[test]
    fn burst_within_a_round_does_not_raise_the_peak() {
        let mut capacity = Capacity::default();
        measure(&mut capacity, 1_000_000, &[50, 50, 100, 0, 50]);
        assert_eq!(capacity.packets_per_second(), 1_000);
    }

    #[test]
    fn lower_rate_is_noticed_within_two_rounds() {
        let mut capacity = Capacity::default();
        let now = measure(&mut capacity, 1_000_000, &[50; 9]);
        assert!(capacity.is_reached());
        measure(&mut capacity, now, &[40, 40]);
        assert!(!capacity.is_reached());
        assert_eq!(capacity.current_window(50_000, 16), 40 << 16);
    }

    #[test]
    fn peak_is_forgotten_after_two_minutes_of_use() {
        let mut capacity = Capacity::default();
        let now = measure(&mut capacity, 1_000_000, &[50; 9]);
        measure(&mut capacity, now, &[5; 1190]);
        assert_eq!(capacity.packets_per_second(), 1_000);
        measure(&mut capacity, now + 1190 * 50_000, &[5; 1300]);
        assert_eq!(capacity.packets_per_second(), 100);
    }

    #[test]
    fn time_at_the_floor_does_not_age_the_peak() {
        let mut capacity = Capacity::default();
        measure(&mut capacity, 1_000_000, &[50; 9]);
        capacity.restart();
        measure(&mut capacity, 3_600_000_000, &[5; 9]);
        assert_eq!(capacity.packets_per_second(), 1_000);
    }
}
