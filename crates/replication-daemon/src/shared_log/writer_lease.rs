//! How long a writer speaks to replicas, and when a standby may begin to write.
//!
//! A writer speaks for [`LEASE`] after it *sent* a message that the stream confirmed. A standby begins when [`SILENCE`]
//! has passed since it *read* the last one, which was later. So the two do not overlap, as long as the rates of the two
//! clocks differ by less than 12 %.

use std::time::Duration;

use lull_replication::time::LocalTime;

/// How long the writer may speak to replicas after a confirmed message, if there is a standby.
pub(super) const LEASE: Duration = Duration::from_secs(4);
/// How long a standby waits for a message.
pub(super) const SILENCE: Duration = Duration::from_millis(4_500);

/// Whether a writer may speak, after its last confirmed message was sent.
pub(super) fn may_speak(sent: LocalTime, now: LocalTime) -> bool {
    now < sent.plus(LEASE)
}

/// Whether a writer whose last message was read at `read` may speak no longer.
pub(super) fn is_over(read: LocalTime, now: LocalTime) -> bool {
    now.since(read) >= SILENCE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The reading of a clock at a time in seconds, with an error of its rate and another zero.
    fn reading(rate: f64, zero: f64, seconds: f64) -> LocalTime {
        LocalTime::from_nanos(((zero + seconds * rate) * 1e9) as i64)
    }

    proptest! {
        #[test]
        fn writer_is_silent_when_a_standby_begins(
            writer in (0.945f64..1.055, 0.0f64..1e6),
            standby in (0.945f64..1.055, 0.0f64..1e6),
            sent in 0.0f64..1e3,
            delay in 0.0f64..10.0,
            later in 0.0f64..10.0,
        ) {
            let at = |(rate, zero): (f64, f64), seconds| reading(rate, zero, seconds);
            let read = at(standby, sent + delay);
            let now = sent + delay + later;
            if is_over(read, at(standby, now)) {
                prop_assert!(!may_speak(at(writer, sent), at(writer, now)));
            }
        }
    }

    #[test]
    fn writer_may_speak_until_its_lease_ends() {
        let sent = LocalTime::from_nanos(5);
        assert!(may_speak(sent, sent.plus(LEASE).minus(Duration::from_nanos(1))));
        assert!(!may_speak(sent, sent.plus(LEASE)));
        assert!(!is_over(sent, sent.plus(LEASE)));
    }
}
