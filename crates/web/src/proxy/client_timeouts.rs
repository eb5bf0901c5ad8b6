//! Clients that make no progress. They are checked at intervals, so that no request pays for a timer.

use std::time::{Duration, Instant};

use super::config::{Limits, Timeouts};
use super::connection::Snapshot;

/// The action for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    /// It has been idle for too long.
    Close,
    /// Its client holds it up.
    Cut,
}

/// A connection's history as far as its timeouts need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientTimeouts {
    head: Duration,
    stalled: Duration,
    idle: Duration,
    body_rate: u64,
    /// HTTP/2 sends its own settings and pings: bytes there are not the beginning of a head.
    is_h2: bool,
    last: Snapshot,
    idle_since: Instant,
    /// Bytes read when the connection became idle, and when more were first seen.
    idle_read: u64,
    head_since: Option<Instant>,
    progress_since: Instant,
    /// Number of bytes acknowledged once all answers have arrived.
    answers_end: u64,
    /// Since when each check has found it waiting for a body, and the bytes read then.
    body_since: Option<(Instant, u64)>,
}

impl ClientTimeouts {
    pub(crate) fn new(timeouts: &Timeouts, limits: &Limits, is_h2: bool, now: Instant) -> Self {
        ClientTimeouts {
            head: timeouts.client_head,
            stalled: timeouts.client_stalled,
            idle: timeouts.client_idle,
            body_rate: limits.body_rate,
            is_h2,
            last: Snapshot::default(),
            idle_since: now,
            idle_read: 0,
            head_since: None,
            progress_since: now,
            answers_end: 0,
            body_since: None,
        }
    }

    /// Time to the next check: a quarter of the shortest timeout, which bounds its error.
    pub(crate) fn interval(&self) -> Duration {
        let shortest = self.head.min(self.stalled).min(self.idle);
        (shortest / 4).clamp(Duration::from_millis(20), Duration::from_secs(15))
    }

    /// The usual time that an idle connection may stay.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// Judges the events since the last look. An idle connection may stay for `idle`.
    pub(crate) fn check(&mut self, now: Instant, seen: Snapshot, idle: Duration) -> Verdict {
        let last = std::mem::replace(&mut self.last, seen);
        if (seen.read, seen.written, seen.acked) != (last.read, last.written, last.acked) {
            self.progress_since = now;
        }
        // Other frames of HTTP/2, such as answers to pings, do not belong to an answer.
        if seen.left != last.left || !self.is_h2 {
            self.answers_end = seen.written;
        }
        if seen.under_way == 0 {
            self.check_idle(now, seen, last, idle)
        } else {
            self.check_busy(now, seen)
        }
    }

    /// Bytes of answers that the client's kernel has acknowledged, at the last check.
    pub(crate) fn taken(&self) -> Option<u64> {
        self.last.acked.map(|acked| acked.min(self.answers_end))
    }

    /// Whether, by the present counters, the client's kernel has all answers that had left by the last look.
    pub(crate) fn is_all_taken(&self, seen: Snapshot) -> bool {
        seen.acked.unwrap_or(0) >= self.answers_end
    }

    fn check_idle(
        &mut self,
        now: Instant,
        seen: Snapshot,
        last: Snapshot,
        idle: Duration,
    ) -> Verdict {
        self.body_since = None;
        // The rest of answers may still leave, from here or from the kernel, as fast as the client reads.
        let is_taken = seen.acked != last.acked && last.acked.unwrap_or(0) < self.answers_end;
        let is_leaving = seen.left != last.left || is_taken;
        if seen.began != last.began || last.under_way > 0 || is_leaving {
            self.idle_since = now;
            self.idle_read = seen.read;
            self.head_since = None;
        } else if seen.read != self.idle_read && !self.is_h2 {
            let since = *self.head_since.get_or_insert(now);
            if now.duration_since(since) >= self.head {
                return Verdict::Cut;
            }
        }
        if now.duration_since(self.idle_since) >= idle { Verdict::Close } else { Verdict::Keep }
    }

    fn check_busy(&mut self, now: Instant, seen: Snapshot) -> Verdict {
        self.head_since = None;
        let is_the_clients_turn =
            seen.write_blocked || seen.waiting_for_body > 0 || seen.waiting_for_upstream == 0;
        if !is_the_clients_turn {
            // Bytes sent meanwhile are at the upstream now, whichever side was slow before.
            self.progress_since = now;
        } else if now.duration_since(self.progress_since) >= self.stalled {
            return Verdict::Cut;
        }
        // In HTTP/2 each stream is judged separately: see `streams`.
        if seen.waiting_for_body == 0 || self.is_h2 {
            self.body_since = None;
            return Verdict::Keep;
        }
        let (since, read) = *self.body_since.get_or_insert((now, seen.read));
        let waited = now.duration_since(since);
        if waited < self.stalled {
            return Verdict::Keep;
        }
        self.body_since = Some((now, seen.read));
        let expected = self.body_rate.saturating_mul(waited.as_millis() as u64) / 1000;
        if seen.read - read < expected { Verdict::Cut } else { Verdict::Keep }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn client_timeouts(is_h2: bool) -> (ClientTimeouts, Instant) {
        let start = Instant::now();
        (ClientTimeouts::new(&Timeouts::default(), &Limits::default(), is_h2, start), start)
    }

    /// Checks once per second while `at(second)` is seen, and returns the second and the verdict of the first
    /// check that does not keep the connection.
    fn run(is_h2: bool, at: impl Fn(u64) -> Snapshot) -> Option<(u64, Verdict)> {
        let (mut client_timeouts, start) = client_timeouts(is_h2);
        (1..=300).find_map(|second| {
            let verdict = client_timeouts.check(
                start + SECOND * second as u32,
                at(second),
                client_timeouts.idle(),
            );
            (verdict != Verdict::Keep).then_some((second, verdict))
        })
    }

    #[test]
    fn idle_connection_is_closed() {
        assert_eq!(run(false, |_| Snapshot::default()), Some((75, Verdict::Close)));
        assert_eq!(run(true, |_| Snapshot::default()), Some((75, Verdict::Close)));
        let once = |second| Snapshot { began: u32::from(second >= 10), ..Snapshot::default() };
        assert_eq!(run(false, once), Some((85, Verdict::Close)));
    }

    #[test]
    fn connection_with_answers_in_flight_is_not_idle() {
        for (left, acked, written, expected) in [
            // Bytes that wait here leave, in HTTP/2.
            (1, 0, 0, [175, 175]),
            // The kernel has it, and the client takes it.
            (0, 1, 0, [175, 175]),
            // The client does not take it.
            (0, 0, 0, [77, 77]),
            // The answers to pings, in HTTP/2. In HTTP/1.1 written bytes are an answer.
            (0, 1, 1, [175, 77]),
        ] {
            for (is_h2, expected) in [false, true].into_iter().zip(expected) {
                let tail = |second: u64| Snapshot {
                    began: 1,
                    under_way: u32::from(second == 1),
                    // In HTTP/2 all of it has left at once, except in the first row.
                    left: 1 + left * second.min(100),
                    acked: Some(acked * second.min(100)),
                    // 200 bytes of the answer are in the kernel, except in the rows with pings.
                    written: written * second + (1 - written) * acked * 200,
                    waiting_for_upstream: u32::from(second == 1),
                    ..Snapshot::default()
                };
                assert_eq!(run(is_h2, tail), Some((expected, Verdict::Close)), "{left} {acked}");
            }
        }
    }

    #[test]
    fn head_sent_byte_by_byte_is_cut() {
        let dribble = |second| Snapshot { read: second, ..Snapshot::default() };
        assert_eq!(run(false, dribble), Some((11, Verdict::Cut)));
        assert_eq!(run(true, dribble), Some((75, Verdict::Close)), "pings are no heads");
    }

    #[test]
    fn client_waiting_for_the_upstream_is_not_cut() {
        let waiting =
            |_| Snapshot { began: 1, under_way: 1, waiting_for_upstream: 1, ..Snapshot::default() };
        assert_eq!(run(false, waiting), None);
    }

    #[test]
    fn client_that_does_not_read_the_answer_is_cut() {
        let blocked = |second: u64| Snapshot {
            began: 1,
            under_way: 1,
            written: second.min(100),
            write_blocked: true,
            waiting_for_upstream: 1,
            ..Snapshot::default()
        };
        assert_eq!(run(false, blocked), Some((130, Verdict::Cut)));
        // A client whose socket takes no more for minutes, because it yields to others, is reading all the
        // same.
        let yielding = |second| Snapshot { acked: Some(second), written: 0, ..blocked(second) };
        assert_eq!(run(false, yielding), None);
    }

    #[test]
    fn client_that_stops_within_the_body_is_cut() {
        let stopped = |second: u64| Snapshot {
            began: 1,
            under_way: 1,
            read: (second * 10_000).min(50_000),
            waiting_for_body: 1,
            waiting_for_upstream: 1,
            ..Snapshot::default()
        };
        assert_eq!(run(false, stopped), Some((35, Verdict::Cut)));
    }

    #[test]
    fn body_sent_byte_by_byte_is_cut_and_a_slow_one_is_not() {
        let sent = |rate: u64| {
            move |second: u64| Snapshot {
                began: 1,
                under_way: 1,
                read: second * rate,
                waiting_for_body: 1,
                ..Snapshot::default()
            }
        };
        assert_eq!(run(false, sent(1)), Some((31, Verdict::Cut)));
        assert_eq!(run(false, sent(200)), None);
        assert_eq!(run(true, sent(1)), None, "one stream takes no others with it");
    }
}
