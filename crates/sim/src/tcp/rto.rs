//! The retransmission timeout (RFC 6298).

use core::time::Duration;

use super::{RtoParameters, nanos};

/// RFC 6298 §5.7: the timeout of data after a SYN that timed out.
const AFTER_LOST_SYN: u64 = 3_000_000_000;

/// Estimates the timeout from round-trip times, and backs off.
#[derive(Clone, Debug)]
pub struct RetransmissionTimer {
    parameters: RtoParameters,
    /// SRTT and RTTVAR in nanoseconds; none before the first measurement.
    estimate: Option<(u64, u64)>,
    /// The timeout without its back-off.
    timeout: u64,
    /// How often it was doubled.
    doublings: u32,
}

impl RetransmissionTimer {
    /// A timer that has seen no round-trip time: RFC 6298 §2.1.
    pub fn new(parameters: RtoParameters) -> Self {
        let timeout = parameters.initial_nanos;
        RetransmissionTimer { parameters, estimate: None, timeout, doublings: 0 }
    }

    /// Takes the round-trip time of a segment that was sent once (§3, Karn's algorithm).
    pub fn measure(&mut self, rtt: Duration) {
        let rtt = nanos(rtt);
        let (smoothed, variation) = match self.estimate {
            // §2.2.
            None => (rtt, rtt / 2),
            // §2.3: RTTVAR ← 3/4 RTTVAR + 1/4 |SRTT − R'|, then SRTT ← 7/8 SRTT + 1/8 R'.
            Some((smoothed, variation)) => (
                smoothed - smoothed / 8 + rtt / 8,
                variation - variation / 4 + smoothed.abs_diff(rtt) / 4,
            ),
        };
        self.estimate = Some((smoothed, variation));
        let RtoParameters { minimum_nanos, maximum_nanos, granularity_nanos, .. } = self.parameters;
        // §2.3: RTO ← SRTT + max(G, 4·RTTVAR); §2.4: at least one second, or the configured minimum; §2.5: a
        // maximum is allowed.
        self.timeout = (smoothed + (4 * variation).max(granularity_nanos))
            .max(minimum_nanos)
            .min(maximum_nanos);
        // §5, last paragraph: a new measurement ends the back-off.
        self.doublings = 0;
    }

    /// The connection is open, and its SYN had timed out (§5.7). If the initial timeout is below three
    /// seconds, it may have been too short. Nothing was measured, because it is unknown which SYN was
    /// answered.
    pub fn restart_after_lost_syn(&mut self) {
        if self.parameters.initial_nanos < AFTER_LOST_SYN {
            self.timeout = AFTER_LOST_SYN;
            self.doublings = 0;
        }
    }

    /// The timer has fired (§5.5).
    pub fn back_off(&mut self) {
        self.doublings = (self.doublings + 1).min(32);
    }

    /// The timeout, including the back-off.
    pub fn timeout(&self) -> Duration {
        let doubled = u128::from(self.timeout) << self.doublings;
        let limited = doubled.min(u128::from(self.parameters.maximum_nanos.max(self.timeout)));
        Duration::from_nanos(limited as u64)
    }

    /// The smoothed round-trip time, if there has been a measurement.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.estimate.map(|(smoothed, _)| Duration::from_nanos(smoothed))
    }

    /// The same in microseconds; 0 before the first measurement.
    pub(super) fn smoothed_rtt_micros(&self) -> u32 {
        self.estimate
            .map_or(0, |(smoothed, _)| u32::try_from(smoothed.div_ceil(1_000)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rfc() -> RetransmissionTimer {
        RetransmissionTimer::new(RtoParameters::RFC_6298)
    }

    /// RFC 6298 §2.1.
    #[test]
    fn rto_before_any_measurement_is_one_second() {
        assert_eq!(rfc().timeout(), Duration::from_secs(1));
    }

    /// RFC 6298 §2.2.
    #[test]
    fn first_measurement_sets_rto_to_three_times_itself() {
        let mut timer = rfc();
        timer.measure(800 * MS);
        assert_eq!(timer.smoothed_rtt(), Some(800 * MS));
        assert_eq!(timer.timeout(), 2_400 * MS);
    }

    /// RFC 6298 §2.3.
    #[test]
    fn later_measurements_weigh_an_eighth_and_a_quarter() {
        let mut timer = rfc();
        timer.measure(800 * MS);
        timer.measure(1_600 * MS);
        // RTTVAR = 3/4 · 400 + 1/4 · 800 = 500; SRTT = 7/8 · 800 + 1/8 · 1600 = 900.
        assert_eq!(timer.timeout(), (900 + 4 * 500) * MS);
    }

    /// RFC 6298 §2.4.
    #[test]
    fn rto_is_at_least_one_second() {
        let mut timer = rfc();
        timer.measure(10 * MS);
        assert_eq!(timer.timeout(), Duration::from_secs(1));
    }

    /// RFC 6298 §5.7.
    #[test]
    fn rto_after_lost_syn_is_three_seconds_until_measured() {
        for lost in 1..5 {
            let mut timer = rfc();
            (0..lost).for_each(|_| timer.back_off());
            timer.restart_after_lost_syn();
            assert_eq!(timer.timeout(), Duration::from_secs(3), "{lost} lost");
            timer.back_off();
            assert_eq!(timer.timeout(), Duration::from_secs(6));
            timer.measure(400 * MS);
            assert_eq!(timer.timeout(), 1_200 * MS);
        }
        // An initial timeout that is already longer is kept.
        let initial_nanos = 6_000_000_000;
        let parameters = RtoParameters { initial_nanos, ..RtoParameters::RFC_6298 };
        let mut timer = RetransmissionTimer::new(parameters);
        timer.back_off();
        timer.restart_after_lost_syn();
        assert_eq!(timer.timeout(), Duration::from_secs(12));
    }

    #[test]
    fn linux_rto_is_at_least_200_ms_above_srtt() {
        let mut timer = RetransmissionTimer::new(RtoParameters::LINUX);
        for _ in 0..100 {
            timer.measure(100 * MS);
        }
        assert_eq!(timer.timeout(), 300 * MS);
    }

    /// RFC 6298 §5.5.
    #[test]
    fn timeout_doubles_rto_up_to_the_maximum() {
        let mut timer = rfc();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(timer.timeout(), Duration::from_secs(seconds));
            timer.back_off();
        }
        timer.measure(400 * MS);
        assert_eq!(timer.timeout(), 1_200 * MS, "a measurement ends the back-off");
    }
}
