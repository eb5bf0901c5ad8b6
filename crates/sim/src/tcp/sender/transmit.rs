//! The part of the sender that decides which segment is sent, and when.

use lull_cc::{Pacing, Rate, Timestamp, Window};

use super::{NEVER, RecoveryState, Sender, State, Transmit};
use crate::packet::DataHeader;
use crate::tcp::{Recovery, nanos};

impl Sender {
    /// When to call [`poll_transmit`](Sender::poll_transmit) again although nothing has happened; none unless
    /// only pacing holds a segment back.
    pub fn pacing_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let due = self.pacer.due();
        let is_held = due > now.as_nanos()
            && self.state == State::Established
            && self.window_allows()
            && (self.board.unrepaired() > 0 || self.has_new() || self.may_rescue());
        is_held.then(|| Timestamp::from_nanos(due))
    }

    fn window_allows(&self) -> bool {
        let in_flight = self.board.in_flight();
        let mut counted = in_flight;
        if !self.parameters.limited_transmit
            && self.recovery_state == RecoveryState::Open
            && self.board.sacked() > 0
        {
            // RFC 5681 §3.2 step 1 without RFC 3042: duplicates trigger no new segments.
            counted += self.board.sacked();
        }
        // Nice §2.3: a pair that has begun is sent completely, although no other may begin with its first
        // packet in flight.
        let is_within_pair = self.pacer.left() > 0 && self.controller.window() < Window::TWO;
        self.forced || is_within_pair || self.controller.packets(in_flight) > counted
    }

    fn has_new(&self) -> bool {
        let next = self.board.next();
        next < self.outbox.limit() && next < self.right_edge
    }

    /// Whether rules 3 and 4 of [`choose`](Sender::choose) have a segment to send.
    fn may_rescue(&self) -> bool {
        let RecoveryState::Recovery { rescued, .. } = self.recovery_state else { return false };
        self.parameters.recovery == Recovery::Sack
            && (self.board.has_missing() || (!rescued && self.board.highest_missing().is_some()))
    }

    /// The packet that must be sent now. Call it until it returns none.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Transmit> {
        match self.state {
            State::Opening { again } => {
                self.state = State::SynSent((!again).then_some(now.as_nanos()));
                self.restart_timer(now.as_nanos());
                return Some(Transmit::Syn);
            }
            State::Established => {}
            State::Closed | State::SynSent(_) | State::Finished => return None,
        }
        if self.pacer.due() > now.as_nanos() && !self.unpaced {
            return None;
        }
        self.restart_after_idle(now);
        if self.board.in_flight() == 0 && (self.has_new() || self.board.unrepaired() > 0) {
            self.controller.handle_send(now, self.rate.delivered());
        }
        if !self.window_allows() {
            return None;
        }
        let header = self.choose(now.as_nanos());
        self.forced = false;
        self.unpaced = false;
        let (header, is_new) = header?;
        self.sent(now.as_nanos());
        // RFC 3168 §6.1.5: retransmitted segments are not ECN-capable, so that the mark of an old segment
        // does not count as a new one.
        Some(Transmit::Data { header, ecn_capable: self.parameters.ecn && is_new })
    }

    /// RFC 5681 §4.1: after a silence of a retransmission timeout the window is no longer valid.
    ///
    /// A delay by pacing is not a silence: pairs of a small window are further apart than any timeout (Nice
    /// §2.3). So it counts from the time when the next segment could have left.
    fn restart_after_idle(&mut self, now: Timestamp) {
        let silent_since = self.last_sent.max(self.pacer.due());
        if self.board.outstanding() == 0
            && self.counters.segments > 0
            && self.has_new()
            && now.as_nanos().saturating_sub(silent_since) > nanos(self.timer.timeout())
        {
            self.controller.handle_idle(now);
            self.last_sent = now.as_nanos();
        }
    }

    /// RFC 6675 §4, `NextSeg`.
    fn choose(&mut self, now: u64) -> Option<(DataHeader, bool)> {
        // Rule 1.
        if let Some(number) = self.board.next_lost() {
            return Some((self.send_again(number, now), false));
        }
        // Rule 2.
        if self.has_new() {
            return Some((self.send_new(now), true));
        }
        // The limit is not the window, but the application's data or the receiver's window.
        if self.recovery_state == RecoveryState::Open {
            self.rate.limit_by_application(self.board.in_flight());
        }
        let RecoveryState::Recovery { rescued, .. } = &mut self.recovery_state else {
            return None;
        };
        if self.parameters.recovery != Recovery::Sack {
            return None;
        }
        // Rule 3.
        if let Some(number) = self.board.next_missing() {
            return Some((self.send_again(number, now), false));
        }
        // Rule 4: one segment in each recovery, whose acknowledgement reveals losses at the end.
        if core::mem::replace(rescued, true) {
            return None;
        }
        let number = self.board.highest_missing()?;
        Some((self.send_again(number, now), false))
    }

    fn send_again(&mut self, number: u32, now: u64) -> DataHeader {
        let stamp = self.rate.stamp(now, self.board.in_flight());
        let (payload, last) = self.board.push_again(number, stamp);
        self.counters.retransmissions += 1;
        if number == self.board.first() && !self.leaves_timer_running() {
            // RFC 6298 §5.4 and, for fast retransmissions, as in Linux: the timer counts from the copy in
            // flight.
            self.restart_timer(now);
        }
        DataHeader { number, payload, window_reduced: false, last }
    }

    fn send_new(&mut self, now: u64) -> DataHeader {
        let stamp = self.rate.stamp(now, self.board.in_flight());
        let (payload, last) = self.outbox.take(Timestamp::from_nanos(now), self.board.next());
        let number = self.board.push(stamp, payload, last);
        let window_reduced = core::mem::take(&mut self.window_reduced);
        DataHeader { number, payload, window_reduced, last }
    }

    fn sent(&mut self, now: u64) {
        self.counters.segments += 1;
        self.last_sent = now;
        if self.deadline == NEVER {
            // RFC 6298 §5.1.
            self.restart_timer(now);
        }
        let bytes = u32::from(self.parameters.segment_bytes);
        let mut pacing = None;
        if self.parameters.pacing {
            pacing = self.controller.pacing(self.timer.smoothed_rtt_micros(), bytes);
        }
        if let Some(limit) = self.parameters.max_pacing_bits_per_second {
            let limit = Rate::from_bits_per_second(limit);
            pacing = match pacing {
                Some(pacing) => Some(Pacing { rate: pacing.rate.min(limit), ..pacing }),
                None => Some(Pacing { rate: limit, burst: 1, spacing_micros: 0 }),
            };
        }
        self.pacer.send(now, bytes, pacing);
    }
}
