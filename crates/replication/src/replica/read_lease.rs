//! How long a replica may answer (SSR §6.1 Δ-coherence, §6.2.1 C2, §6.2.2).
//!
//! Each message of the origin carries its time T. A replica needs the opposite: a moment on its own interval
//! clock *before which the message cannot have been sent*. Everything that follows from a message then holds
//! until Δ after that moment, less drift. There are two such moments:
//!
//! - when the last ping was sent that the origin had received by then. Its echo comes with heartbeats. This
//!   needs no wall clock at all;
//! - when this machine's wall clock showed T − maxSkew, if it is certain that the two wall clocks are
//!   within maxSkew of each other. This gives the paper's deadline T + Δ − maxSkew.
//!
//! Both are valid, so the later one counts. The time of arrival is neither.
//!
//! The skew is also measured with heartbeats. T was read between the sending of the ping and now. So the
//! difference of the clocks is between the differences to these two.

use core::time::Duration;

use crate::faults::{Fault, Faults};
use crate::time::{Drift, LocalTime, Reading, SlewedClock, WallTime};

/// The staleness bounds of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Staleness {
    /// Δ while connected: a read reflects all writes acknowledged longer ago.
    pub connected: Duration,
    /// Δ while disconnected: larger, so that more reads are answered (SSR §6.2.2). None for no bound.
    pub disconnected: Option<Duration>,
    /// The largest difference of the wall clocks for which the paper's deadline is used.
    pub max_skew: Duration,
    /// The largest error of any clock's rate, including slewing.
    pub drift: Drift,
    /// How fast the slewed clock follows the replica's wall clock.
    pub slew: Drift,
}

impl Default for Staleness {
    fn default() -> Self {
        Staleness {
            // SSR §6.3.1: Δ = 60 s.
            connected: Duration::from_secs(60),
            disconnected: Some(Duration::from_secs(3_600)),
            max_skew: Duration::from_millis(500),
            // 500 ppm of slewing and 500 ppm of a bad oscillator.
            drift: Drift(1_000),
            slew: Drift(500),
        }
    }
}

/// Bounds of how far this machine's wall clock is ahead of the origin's, in nanoseconds; negative if
/// it is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Skew {
    /// The lower bound.
    pub least: i64,
    /// The upper bound.
    pub most: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Certificate {
    measured: LocalTime,
    skew: Skew,
}

/// The conclusions from the times in the origin's messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    staleness: Staleness,
    clock: SlewedClock,
    /// The latest moment before which no future message can have been sent. Messages arrive in order, so it
    /// only moves forward.
    horizon: Option<LocalTime>,
    certificate: Option<Certificate>,
    /// When the last heartbeat was sent, at the earliest.
    covered: Option<LocalTime>,
    /// When the last heartbeat was sent, by the origin's clock.
    stamp: Option<WallTime>,
}

impl Lease {
    pub(super) fn new(now: Reading, staleness: Staleness) -> Self {
        let clock = SlewedClock::new(now, WallTime::default(), staleness.slew);
        let (horizon, certificate, covered, stamp) = Default::default();
        Lease { staleness, clock, horizon, certificate, covered, stamp }
    }

    /// The origin has restarted: its clock may have been set while it was not running.
    pub(super) fn forget_skew(&mut self) {
        (self.certificate, self.stamp) = (None, None);
    }

    /// Nothing is promised until the next heartbeat.
    pub(super) fn revoke(&mut self) {
        (self.covered, self.stamp) = (None, None);
    }

    /// A commit stamped `stamp` was announced: returns the earliest time at which it can have been made.
    pub(super) fn said(
        &mut self,
        now: Reading,
        stamp: WallTime,
        faults: Faults,
    ) -> Option<LocalTime> {
        let by_wall = self.by_wall_clock(now, stamp, faults);
        self.horizon = self.horizon.max(by_wall);
        self.horizon
    }

    /// All commits acknowledged by `said`, which was `stamp` at the origin, were announced.
    pub(super) fn cover(&mut self, said: Option<LocalTime>, stamp: WallTime) {
        self.covered = self.covered.max(said);
        self.stamp = self.stamp.max(Some(stamp));
    }

    /// A heartbeat has arrived.
    pub(super) fn heartbeat(
        &mut self,
        now: Reading,
        stamp: WallTime,
        echo: Option<LocalTime>,
        faults: Faults,
    ) {
        if let Some(sent) = echo.filter(|sent| *sent <= now.local) {
            self.measure(now, stamp, sent);
            self.horizon = self.horizon.max(Some(sent));
        }
        self.covered = self.said(now, stamp, faults);
        self.stamp = self.stamp.max(Some(stamp));
        if faults.has(Fault::ArrivalTimeLease) {
            self.covered = Some(now.local);
        }
    }

    /// Narrows the bounds of the skew by a ping sent at `sent` and the heartbeat that answers it now.
    fn measure(&mut self, now: Reading, stamp: WallTime, sent: LocalTime) {
        let wall = self.clock.read(now);
        let round = self.staleness.drift.of_two().lengthen(now.local.since(sent));
        let mut skew = Skew {
            least: wall.minus(round).as_nanos() - stamp.as_nanos(),
            most: wall.as_nanos() - stamp.as_nanos(),
        };
        if let Some(known) = self.skew(now.local)
            && known.least.max(skew.least) <= known.most.min(skew.most)
        {
            skew = Skew { least: known.least.max(skew.least), most: known.most.min(skew.most) };
        }
        self.certificate = Some(Certificate { measured: now.local, skew });
    }

    /// The bounds of the skew, which allow for the drift of both clocks since the measurement.
    pub(super) fn skew(&self, now: LocalTime) -> Option<Skew> {
        let Certificate { measured, skew } = self.certificate?;
        let apart = self.staleness.drift.of_two().max_error(now.since(measured));
        let apart = i64::try_from(apart.as_nanos()).unwrap_or(i64::MAX);
        Some(Skew {
            least: skew.least.saturating_sub(apart),
            most: skew.most.saturating_add(apart),
        })
    }

    fn max_skew(&self) -> i64 {
        i64::try_from(self.staleness.max_skew.as_nanos()).unwrap_or(i64::MAX)
    }

    /// Whether the clocks are certain to be within maxSkew of each other.
    pub(super) fn certified(&self, now: LocalTime) -> bool {
        let most = self.max_skew();
        self.skew(now).is_some_and(|skew| skew.least >= -most && skew.most <= most)
    }

    /// Whether the clocks are certain to be further apart.
    pub(super) fn exceeded(&self, now: LocalTime) -> Option<Skew> {
        let most = self.max_skew();
        self.skew(now).filter(|skew| skew.least > most || skew.most < -most)
    }

    /// When this machine's wall clock showed T − maxSkew (SSR §6.2.1, C2: deadlines are
    /// "timestamp + Δ − maxSkew").
    fn by_wall_clock(
        &mut self,
        now: Reading,
        stamp: WallTime,
        faults: Faults,
    ) -> Option<LocalTime> {
        let wall = self.clock.read(now);
        if !self.certified(now.local) {
            return None;
        }
        let said = if faults.has(Fault::SkewWithTheWrongSign) {
            stamp.plus(self.staleness.max_skew)
        } else {
            stamp.minus(self.staleness.max_skew)
        };
        // A moment in the future proves that the certificate is wrong.
        if said > wall && !faults.has(Fault::SkewWithTheWrongSign) {
            self.certificate = None;
            return None;
        }
        let ago = self.staleness.drift.of_two().lengthen(wall.since(said));
        Some(now.local.minus(ago).plus(said.since(wall)))
    }

    /// Until when a message sent at `said` or later may be ignored (C2), or relied upon; none for ever.
    pub(super) fn deadline(&self, said: LocalTime, connected: bool) -> Option<LocalTime> {
        let bound =
            if connected { Some(self.staleness.connected) } else { self.staleness.disconnected };
        bound.map(|bound| said.plus(self.staleness.drift.shorten(bound)))
    }

    /// Whether reads may be answered now (SSR §6.2.2: "a replica must block all reads if it has not
    /// communicated with the origin server for Δ").
    pub(super) fn holds(&self, now: LocalTime, connected: bool) -> bool {
        self.covered.is_some_and(|said| {
            self.deadline(said, connected).is_none_or(|deadline| now < deadline)
        })
    }

    /// When the last heartbeat was sent, at the earliest.
    pub(super) fn covered(&self) -> Option<LocalTime> {
        self.covered
    }

    /// The origin's time up to which all acknowledged commits were announced, if known.
    pub(super) fn stamp(&self) -> Option<WallTime> {
        self.stamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn at(local_ms: i64, wall_ms: i64) -> Reading {
        Reading {
            local: LocalTime::from_nanos(local_ms * MS),
            wall: WallTime::from_nanos(wall_ms * MS),
        }
    }

    fn lease() -> Lease {
        let staleness = Staleness {
            connected: Duration::from_secs(10),
            disconnected: None,
            max_skew: Duration::from_millis(500),
            drift: Drift(0),
            slew: Drift(0),
        };
        Lease::new(at(0, 1_000_000), staleness)
    }

    /// A heartbeat sent at `stamp_ms`, received at `now_ms` by both clocks of the replica, which are
    /// 1,000,000 ms apart.
    fn beat(lease: &mut Lease, now_ms: i64, stamp_ms: i64, echo_ms: Option<i64>) {
        let echo = echo_ms.map(|echo| LocalTime::from_nanos(echo * MS));
        let stamp = WallTime::from_nanos((1_000_000 + stamp_ms) * MS);
        lease.heartbeat(at(now_ms, 1_000_000 + now_ms), stamp, echo, Faults::default());
    }

    #[test]
    fn lease_starts_when_a_heartbeat_was_sent_not_received() {
        // (received, sent by the origin's clock, echo) → covered from.
        for (now, stamp, echo, expected, what) in [
            (100, 50, None, None, "no echo, no certificate: nothing is known"),
            (100, 50, Some(20), Some(20), "certified, but the echo is later than T − maxSkew"),
            (9_000, 8_950, Some(20), Some(20), "a round trip too long to certify anything"),
            (100, 100_000, Some(20), Some(20), "the origin's clock is far ahead: the echo alone"),
            (100, -100_000, Some(20), Some(20), "far behind: the echo alone"),
            (9_000, 50, Some(20), Some(20), "a heartbeat that was on its way for 9 s"),
        ] {
            let mut lease = lease();
            beat(&mut lease, now, stamp, echo);
            let expected = expected.map(|ms: i64| LocalTime::from_nanos(ms * MS));
            assert_eq!(lease.covered(), expected, "{what}");
        }
    }

    #[test]
    fn certified_skew_makes_heartbeats_count_by_the_wall_clock() {
        let mut lease = lease();
        beat(&mut lease, 100, 50, Some(20));
        // The next ping is lost on the way, so the echo stays.
        beat(&mut lease, 2_100, 2_050, Some(20));
        let covered = lease.covered().expect("covered");
        assert_eq!(covered, LocalTime::from_nanos((2_050 - 500) * MS));
        assert!(lease.holds(LocalTime::from_nanos((11_550 * MS) - 1), true));
        assert!(!lease.holds(LocalTime::from_nanos(11_550 * MS), true));
        assert!(lease.holds(LocalTime::from_nanos(i64::MAX), false));
    }

    #[test]
    fn skew_is_measured_and_reported() {
        for (stamp, certified, exceeded) in [
            (60, true, false),
            (460, true, false),
            (-440, false, false),
            (900, false, true),
            (-900, false, true),
        ] {
            let mut lease = lease();
            beat(&mut lease, 100, stamp, Some(20));
            let now = LocalTime::from_nanos(100 * MS);
            assert_eq!(lease.certified(now), certified, "stamped {stamp}");
            assert_eq!(lease.exceeded(now).is_some(), exceeded, "stamped {stamp}");
        }
    }

    /// Clocks that may each be wrong by one part in a thousand.
    fn drifting() -> Lease {
        let mut lease = lease();
        lease.staleness.drift = Drift(1_000);
        lease
    }

    #[test]
    fn lease_is_shortened_by_clock_drift() {
        let mut lease = drifting();
        beat(&mut lease, 100, 50, Some(20));
        assert_eq!(lease.covered(), Some(LocalTime::from_nanos(20 * MS)));
        // 10 s by a slow clock may be 10 ms more.
        let end = (20 + 9_990) * MS;
        assert!(lease.holds(LocalTime::from_nanos(end - 1), true));
        assert!(!lease.holds(LocalTime::from_nanos(end), true));
    }

    #[test]
    fn round_trip_is_lengthened_by_clock_drift() {
        let mut lease = drifting();
        beat(&mut lease, 1_100, 1_050, Some(100));
        let skew = lease.skew(LocalTime::from_nanos(1_100 * MS)).expect("measured");
        assert_eq!((skew.least, skew.most), ((50 - 1_002) * MS, 50 * MS));
    }

    #[test]
    fn age_of_a_stamp_is_lengthened_by_clock_drift() {
        let mut lease = drifting();
        beat(&mut lease, 100, 50, Some(20));
        beat(&mut lease, 2_100, 1_050, Some(20));
        // T − maxSkew was 1,550 ms ago by the wall clock.
        let ago = 1_550 * MS + 1_550 * MS / 500;
        assert_eq!(lease.covered(), Some(LocalTime::from_nanos(2_100 * MS - ago)));
    }

    #[test]
    fn skew_certificate_expires_with_drift() {
        let mut lease = drifting();
        beat(&mut lease, 100, 60, Some(20));
        assert!(lease.certified(LocalTime::from_nanos(1_000 * MS)));
        // 460 ms are left, and two clocks drift apart by 2 ms per second.
        assert!(!lease.certified(LocalTime::from_nanos(240_000 * MS)));
    }
}
