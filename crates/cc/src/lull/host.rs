//! The traffic of the host's own foreground on a path: known before any queue shows it.

use crate::Window;

/// An interval in which the foreground is measured, in round-trip times, and its bounds in microseconds.
const INTERVAL_RTTS: u64 = 4;
const MIN_INTERVAL_MICROS: u64 = 100_000;
const MAX_INTERVAL_MICROS: u64 = 2_000_000;
/// The foreground is busy if it sends this part of what the path carries, and so many bytes, in an interval.
const BUSY_PART: u64 = 16;
const BUSY_BYTES: u64 = 16_384;
/// Bytes of a full packet.
const PACKET_BYTES: u64 = 1_448;
/// A rate beyond this is cut, which keeps products below 64 bits.
const RATE_LIMIT: u64 = 1 << 26;
/// After a start that came to little, further ones are ignored for at least and at most so long.
const MIN_HOLDOFF_MICROS: u64 = 2_000_000;
const MAX_HOLDOFF_MICROS: u64 = 64_000_000;

/// In a round-trip time, slow start may send so many times what it sent in the last one.
const SLOW_START: u64 = 2;
/// The room for the first packets of a new connection (RFC 6928) and the ones after them, and how long it is kept, in
/// round-trip times.
const FIRST_ROOM: u64 = 20 * Window::ONE.raw();
const FIRST_ROOM_RTTS: u64 = 2;
/// More recent bytes than this count as so many.
const RECENT_LIMIT: u64 = 1 << 32;

/// Traffic of this host's foreground connections on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostTraffic {
    /// When the last one began to connect, in microseconds; 0: none has.
    pub connected_micros: u64,
    /// When the last packet with data left, in microseconds; 0: none has.
    pub sent_micros: u64,
    /// Bytes of data so far.
    pub bytes: u64,
}

/// A change of the host's foreground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForegroundChange {
    /// Nothing that matters.
    None,
    /// It connects, or sends after a pause.
    Begins,
    /// It was busy and sends nothing now.
    Ends,
}

/// Tells when the host's foreground begins and ends.
///
/// A connection that sends little now and then begins often. After a start that came to little, further
/// ones are ignored for a time that doubles each time. A busy foreground ends that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    last: HostTraffic,
    /// When it was looked at last.
    looked: u64,
    /// When the interval began, and the bytes sent before.
    since: u64,
    bytes: u64,
    is_busy: bool,
    /// The interval shows what a start comes to.
    is_judging: bool,
    /// When a start was heeded last, and how long further ones are ignored after that.
    heeded: u64,
    holdoff: u64,
    /// It has been busy: its bytes tell how much room it needs.
    is_known: bool,
    /// When the round began, and the bytes sent before it and before the last one.
    round_start: u64,
    round_bytes: u64,
    before_bytes: u64,
}

impl Host {
    /// The host's foreground at `now`; the path has the round-trip time `min_rtt` in microseconds, and carries
    /// so many packets per second.
    pub(super) fn handle(
        &mut self,
        now: u64,
        seen: HostTraffic,
        min_rtt: u32,
        packets_per_second: u64,
    ) -> ForegroundChange {
        let rtt = u64::from(min_rtt);
        let interval = (INTERVAL_RTTS * rtt).clamp(MIN_INTERVAL_MICROS, MAX_INTERVAL_MICROS);
        if now >= self.since + interval {
            self.end_interval(now, seen.bytes, packets_per_second);
        }
        self.end_round(now, seen.bytes, rtt);
        // Where the background was silent, a pause of the foreground looks the same.
        let is_seen = now < self.looked + interval;
        let starts = is_seen && seen.sent_micros >= self.last.sent_micros + interval;
        let connects = seen.connected_micros > self.last.connected_micros;
        self.last = seen;
        self.looked = now;
        let ignored = self.holdoff.max(INTERVAL_RTTS * rtt);
        if (starts || connects) && now >= self.heeded + ignored {
            self.heeded = now;
            self.is_judging = true;
            (self.since, self.bytes) = (now, seen.bytes);
            return ForegroundChange::Begins;
        }
        if self.is_busy && now >= seen.sent_micros + (2 * rtt).max(MIN_INTERVAL_MICROS) {
            self.is_busy = false;
            return ForegroundChange::Ends;
        }
        ForegroundChange::None
    }

    fn end_interval(&mut self, now: u64, bytes: u64, packets_per_second: u64) {
        let sent = bytes.saturating_sub(self.bytes);
        // A longer time than the longest interval is one in which the background was silent.
        let elapsed = now.saturating_sub(self.since).min(2 * MAX_INTERVAL_MICROS);
        // In bytes, by way of packets in 64 microseconds or so.
        let rate = packets_per_second.min(RATE_LIMIT) * PACKET_BYTES;
        let least = (rate * (elapsed >> 10) / (1_000_000 >> 10) / BUSY_PART).max(BUSY_BYTES);
        self.is_busy = sent >= least;
        self.is_known |= self.is_busy;
        if self.is_busy {
            self.holdoff = 0;
        } else if self.is_judging {
            self.holdoff = (2 * self.holdoff).clamp(MIN_HOLDOFF_MICROS, MAX_HOLDOFF_MICROS);
        }
        self.is_judging = false;
        (self.since, self.bytes) = (now, bytes);
    }

    fn end_round(&mut self, now: u64, bytes: u64, rtt: u64) {
        if now < self.round_start + rtt {
            return;
        }
        let is_next = now < self.round_start + 2 * rtt;
        self.before_bytes = if is_next { self.round_bytes } else { self.last.bytes };
        self.round_bytes = bytes;
        self.round_start = now;
    }

    /// The foreground has been busy before: [`room`](Host::room) is enough at its start.
    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    /// The part of the window that the foreground needs, in packets with [`Window::SHIFT`] fractional bits: twice
    /// what it has sent in the last one to two round-trip times, and the first packets of a new connection.
    pub(super) fn room(&self, now: u64, min_rtt: u32) -> u64 {
        let recent = self.last.bytes.saturating_sub(self.before_bytes).min(RECENT_LIMIT);
        let room = ((SLOW_START * recent) << Window::SHIFT) / PACKET_BYTES;
        let is_new = self.is_heeded_within(now, FIRST_ROOM_RTTS * u64::from(min_rtt));
        if self.is_known && is_new { room.max(FIRST_ROOM) } else { room }
    }

    fn is_heeded_within(&self, now: u64, micros: u64) -> bool {
        self.heeded > 0 && now < self.heeded + micros
    }

    /// The window must not grow: a start of a foreground that is not known was heeded less than four round-trip times
    /// ago.
    pub(super) fn is_beginning(&self, now: u64, min_rtt: u32) -> bool {
        !self.is_known && self.is_heeded_within(now, INTERVAL_RTTS * u64::from(min_rtt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks each 10 ms for `millis`, at a foreground that sends `bytes` every `every` milliseconds.
    fn watch(
        host: &mut Host,
        seen: &mut HostTraffic,
        now: &mut u64,
        millis: u64,
        sends: (u64, u64),
    ) -> (u32, u32) {
        let (mut begins, mut ends) = (0, 0);
        for step in 1..=millis / 10 {
            *now += 10_000;
            if sends.0 > 0 && (step * 10) % sends.1 == 0 {
                seen.sent_micros = *now;
                seen.bytes += sends.0;
            }
            match host.handle(*now, *seen, 50_000, 833) {
                ForegroundChange::Begins => begins += 1,
                ForegroundChange::Ends => ends += 1,
                ForegroundChange::None => {}
            }
        }
        (begins, ends)
    }

    fn idle() -> (Host, HostTraffic, u64) {
        let (mut host, mut seen, mut now) = Default::default();
        now += 1_000_000;
        assert_eq!(watch(&mut host, &mut seen, &mut now, 1_000, (0, 1)), (0, 0));
        (host, seen, now)
    }

    #[test]
    fn busy_foreground_begins_and_ends_once() {
        let (mut host, mut seen, mut now) = idle();
        // 1.2 Mbit/s of 10.
        assert_eq!(watch(&mut host, &mut seen, &mut now, 5_000, (1_500, 10)), (1, 0));
        assert_eq!(watch(&mut host, &mut seen, &mut now, 100, (0, 1)), (0, 1));
        assert_eq!(watch(&mut host, &mut seen, &mut now, 5_000, (0, 1)), (0, 0));
        assert_eq!(watch(&mut host, &mut seen, &mut now, 1_000, (1_500, 10)), (1, 0));
    }

    #[test]
    fn room_is_twice_what_the_foreground_sends_in_a_round() {
        let (mut host, mut seen, mut now) = idle();
        watch(&mut host, &mut seen, &mut now, 5_000, (1_500, 10));
        let round = ((5 * 1_500) << Window::SHIFT) / PACKET_BYTES;
        let room = host.room(now, 50_000);
        assert!((2 * round..=4 * round + 1).contains(&room), "{room} for {round}");
        watch(&mut host, &mut seen, &mut now, 110, (0, 1));
        assert_eq!(host.room(now, 50_000), 0);
        // A known foreground has room for its first packets before it sends them.
        watch(&mut host, &mut seen, &mut now, 1_000, (0, 1));
        seen.connected_micros = now;
        watch(&mut host, &mut seen, &mut now, 10, (0, 1));
        assert_eq!(host.room(now, 50_000), FIRST_ROOM);
        assert_eq!(host.room(now + 100_000, 50_000), 0);
    }

    #[test]
    fn chatty_connection_is_ignored_ever_longer() {
        let (mut host, mut seen, mut now) = idle();
        let (begins, ends) = watch(&mut host, &mut seen, &mut now, 600_000, (100, 500));
        // After 2, 4, ..., 64 s, and each 64 s from then on.
        assert!((8..=15).contains(&begins), "{begins}");
        assert_eq!(ends, 0);
        // Data in bulk restores attention: the next start is heeded.
        watch(&mut host, &mut seen, &mut now, 2_000, (15_000, 10));
        watch(&mut host, &mut seen, &mut now, 1_000, (0, 1));
        assert_eq!(watch(&mut host, &mut seen, &mut now, 10, (100, 10)), (1, 0));
    }

    #[test]
    fn connections_that_open_together_are_one_start() {
        let (mut host, mut seen, mut now) = idle();
        let mut begins = 0;
        for _ in 0..6 {
            now += 10_000;
            seen.connected_micros = now;
            begins += u32::from(host.handle(now, seen, 50_000, 833) == ForegroundChange::Begins);
        }
        assert_eq!(begins, 1);
        assert!(host.is_beginning(now, 50_000));
        assert!(!host.is_beginning(now + 200_000, 50_000));
    }
}
