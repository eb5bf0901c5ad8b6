//! How long an idle connection to the upstream is usable.
//!
//! An upstream closes idle connections after a time that it rarely states. A request sent just then is lost:
//! it is unknown whether the upstream has acted on it. A repeatable one is sent again over a new connection
//! (RFC 9110 §9.2.2). All others, such as a `POST`, use an idle connection only if requests were answered
//! over connections that had been idle for twice as long. An open connection proves nothing: an upstream may
//! close it when the next request comes.

use std::time::{Duration, Instant};

/// After the upstream has closed a connection earlier than ever before, nothing is known about it for this
/// long.
const DISTRUST: Duration = Duration::from_secs(60);

/// The observations of idle connections to one upstream.
#[derive(Debug, Default)]
pub(crate) struct KeepAlive {
    /// The longest idle time after which one still served a request, if it is shorter than any after which
    /// one was closed.
    proven: Duration,
    distrusted_until: Option<Instant>,
}

impl KeepAlive {
    /// A request was answered over a connection that had been idle for this long.
    pub(crate) fn was_good(&mut self, idle: Duration) {
        self.proven = self.proven.max(idle);
    }

    /// The upstream had closed a connection that was idle for this long or less.
    pub(crate) fn was_closed(&mut self, idle: Duration, now: Instant) {
        if idle <= self.proven {
            self.proven = idle;
            self.distrusted_until = Some(now + DISTRUST);
        }
    }

    /// Whether a request that must not be lost may use a connection that has been idle for this time.
    pub(crate) fn is_safe(&self, idle: Duration, now: Instant) -> bool {
        let is_trusted = self.distrusted_until.is_none_or(|until| now >= until);
        is_trusted && idle <= self.proven / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn connection_is_safe_for_half_of_its_proven_time() {
        let (mut known, now) = (KeepAlive::default(), Instant::now());
        assert!(!known.is_safe(MS, now));
        known.was_good(10 * MS);
        known.was_good(4 * MS);
        assert!(known.is_safe(5 * MS, now) && !known.is_safe(6 * MS, now));
        // Later than the proven time: no new information.
        known.was_closed(20 * MS, now);
        assert!(known.is_safe(5 * MS, now));
    }

    #[test]
    fn early_close_is_remembered_for_a_minute() {
        let (mut known, now) = (KeepAlive::default(), Instant::now());
        known.was_good(1000 * MS);
        known.was_closed(100 * MS, now);
        known.was_good(80 * MS);
        assert!(!known.is_safe(MS, now + DISTRUST - MS));
        assert!(known.is_safe(50 * MS, now + DISTRUST));
        assert!(!known.is_safe(51 * MS, now + DISTRUST));
    }
}
