//! The sending end: window, recovery, timer, pacing.
//!
//! ```text
//!            loss found           all until the recovery point acknowledged
//!   Open ───────────────▶ Recovery ──────────────────────────────▶ Open
//!    │                       │                                      ▲
//!    │ timeout               │ timeout                              │ the same
//!    ▼                       ▼                                      │
//!   Loss (everything not sacked is sent again, in slow start) ──────┘
//! ```

use std::sync::Arc;

use core::num::NonZeroU32;
use core::time::Duration;

use lull_cc::{Ack, Controller, Timestamp};

use super::counters::SenderCounters;
use super::delivery::DeliveryRate;
use super::outbox::{Completed, Outbox};
use super::pacer::Pacer;
use super::rto::RetransmissionTimer;
use super::scoreboard::{DUP_THRESH, Delivery, Newest, Scoreboard};
use super::{Parameters, Recovery, micros, nanos};
use crate::packet::{AckHeader, DataHeader};

mod transmit;

const NEVER: u64 = u64::MAX;

/// A packet that a sender sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// A request for a connection.
    Syn,
    /// A segment.
    Data {
        /// Its header.
        header: DataHeader,
        /// Whether it is sent as ECN-capable.
        ecn_capable: bool,
    },
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// A SYN must be sent, for the first time or again.
    Opening {
        again: bool,
    },
    /// A SYN was sent, at this time if it was the first one.
    SynSent(Option<u64>),
    Established,
    /// All data and the end of the connection were acknowledged.
    Finished,
}

/// The state of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecoveryState {
    Open,
    /// Until this segment is acknowledged (RecoveryPoint); whether the rescue was used, and whether
    /// NewReno's timer was restarted.
    Recovery {
        until: u32,
        rescued: bool,
        restarted: bool,
    },
    /// After a timeout.
    Loss {
        until: u32,
    },
}

/// Losses that an acknowledgement revealed: those that begin a recovery or are beyond the recovery point, and
/// those of the current recovery.
#[derive(Clone, Copy, Debug)]
struct Losses {
    news: u32,
    in_recovery: u32,
}

/// The sending end of a connection.
///
/// Calling order: [`open`](Sender::open), then [`write`](Sender::write) and [`close`](Sender::close) as the
/// application needs, [`handle_syn_ack`](Sender::handle_syn_ack) and [`handle_ack`](Sender::handle_ack) as
/// packets arrive, and [`handle_timeout`](Sender::handle_timeout) at the
/// [`retransmission_deadline`](Sender::retransmission_deadline). After each of them, and at the
/// [`pacing_deadline`](Sender::pacing_deadline), send the packets from
/// [`poll_transmit`](Sender::poll_transmit) until it returns none, and take the messages from
/// [`poll_completed`](Sender::poll_completed). `now` never decreases.
pub struct Sender {
    controller: Box<dyn Controller + Send>,
    board: Scoreboard,
    pacer: Pacer,
    state: State,
    recovery_state: RecoveryState,
    /// Segments up to here may be sent: the acknowledged ones and the advertised window.
    right_edge: u32,
    /// One segment is sent regardless of the window: RFC 6675 §5 step 4.3, RFC 6298 §5.4.
    forced: bool,
    /// The forced one does not wait for the pacer either: the timer has waited long enough.
    unpaced: bool,
    /// The next new segment says that the window was reduced (RFC 3168 §6.1.2).
    window_reduced: bool,
    /// Marks until this segment is acknowledged belong to a reduction that was made.
    mark_until: u32,
    /// RFC 6582 §3.2 step 2, without selective acknowledgements: duplicates that do not acknowledge more than
    /// this may come from retransmitted segments.
    recover: Option<u32>,
    rate: DeliveryRate,
    /// When a segment was sent last.
    last_sent: u64,
    /// When the retransmission timer fires.
    deadline: u64,
    timer: RetransmissionTimer,
    /// Shared by many senders, to save memory.
    parameters: Arc<Parameters>,
    outbox: Outbox,
    counters: SenderCounters,
}

impl core::fmt::Debug for Sender {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sender")
            .field("state", &self.state)
            .field("mending", &self.recovery_state)
            .field("window", &self.controller.window())
            .field("in_flight", &self.board.in_flight())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Sender {
    /// A sender that has not been opened.
    pub fn new(
        parameters: impl Into<Arc<Parameters>>,
        controller: Box<dyn Controller + Send>,
    ) -> Self {
        let parameters = parameters.into();
        Sender {
            controller,
            board: Scoreboard::default(),
            pacer: Pacer::default(),
            state: State::Closed,
            recovery_state: RecoveryState::Open,
            right_edge: parameters.receive_window,
            forced: false,
            unpaced: false,
            window_reduced: false,
            mark_until: 0,
            recover: None,
            rate: DeliveryRate::default(),
            last_sent: 0,
            deadline: NEVER,
            timer: RetransmissionTimer::new(parameters.retransmission),
            outbox: Outbox::new(parameters.segment_bytes),
            parameters,
            counters: SenderCounters::default(),
        }
    }

    /// Prefetches the memory that an acknowledgement will need.
    pub(crate) fn touch(&self) {
        self.board.touch();
        core::hint::black_box((
            self.controller.window(),
            self.outbox.limit(),
            self.rate.delivered(),
            self.deadline,
            self.counters.segments,
            self.mark_until,
        ));
    }

    /// Its heap memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let controller = size_of_val(&*self.controller) as u64;
        controller + self.board.memory_bytes() + self.outbox.memory_bytes()
    }

    /// The receiver has room for this many segments until its first acknowledgement.
    pub(crate) fn limit_window(&mut self, segments: u32) {
        self.right_edge = segments;
    }

    /// Starts the connection.
    pub fn open(&mut self) {
        assert_eq!(self.state, State::Closed, "a connection is opened once");
        self.state = if self.parameters.handshake {
            State::Opening { again: false }
        } else {
            State::Established
        };
    }

    /// The application writes a message of `bytes` bytes.
    ///
    /// # Panics
    /// If the connection was closed for writing, or the segment numbers are exhausted.
    pub fn write(&mut self, now: Timestamp, bytes: u64) {
        self.outbox.write(now, bytes);
    }

    /// The application has more data than it can send during the run.
    ///
    /// # Panics
    /// If the connection was closed for writing.
    pub fn write_without_end(&mut self, now: Timestamp) {
        self.outbox.write_without_end(now);
    }

    /// The application has written everything: the last segment carries the end of the connection. If that
    /// was already sent, or the data has no end, an empty segment carries it.
    pub fn close(&mut self, now: Timestamp) {
        self.outbox.close(now, self.board.next());
    }

    /// Whether everything, including the end of the connection, has been acknowledged.
    pub fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// The receiver has accepted the connection.
    pub fn handle_syn_ack(&mut self, now: Timestamp) {
        if let State::SynSent(first) = self.state {
            self.state = State::Established;
            self.deadline = NEVER;
            match first {
                Some(sent) => self.timer.measure(Duration::from_nanos(now.as_nanos() - sent)),
                None => self.timer.restart_after_lost_syn(),
            }
        }
    }

    /// An acknowledgement arrives.
    pub fn handle_ack(&mut self, now: Timestamp, header: &AckHeader) {
        if self.state != State::Established {
            return;
        }
        let in_flight = self.board.in_flight();
        let first = self.board.first();
        let delivery = self.update(header);
        let has_advanced = self.board.first() > first;
        self.right_edge = self.right_edge.max(header.cumulative.saturating_add(header.window));
        self.counters.acknowledged_bytes += delivery.bytes;

        let lost = self.recover(has_advanced, delivery.segments > 0);
        let ack = self.sample(now, header, &delivery, in_flight, lost);
        self.controller.handle_ack(&ack);
        self.handle_ecn_echo(now, header);
        if has_advanced {
            // RFC 6298 §5.2 and §5.3.
            if self.board.outstanding() == 0 {
                self.deadline = NEVER;
            } else if !self.leaves_timer_running() {
                self.restart_timer(now.as_nanos());
                if let RecoveryState::Recovery { restarted, .. } = &mut self.recovery_state {
                    *restarted = true;
                }
            }
            self.outbox.acknowledge(now, self.board.first());
            if self.outbox.is_closing() && self.board.first() == self.outbox.limit() {
                self.state = State::Finished;
            }
        }
        if self.deadline == NEVER && self.is_shut_out() {
            self.restart_timer(now.as_nanos());
        }
    }

    fn update(&mut self, header: &AckHeader) -> Delivery {
        let mut delivery = Delivery::default();
        let is_new = header.cumulative > self.board.first();
        match self.parameters.recovery {
            Recovery::Sack => {
                if is_new {
                    self.board.acknowledge(header.cumulative, &mut delivery);
                }
                if header.blocks > 0 {
                    self.board.select(header.sack_blocks(), &mut delivery);
                }
            }
            Recovery::NewReno | Recovery::Reno => {
                if is_new {
                    self.board.acknowledge_plain(header.cumulative, &mut delivery);
                } else if header.cumulative == self.board.first() {
                    // RFC 5681 §2: other packets are never acknowledged twice here.
                    self.board.duplicate(&mut delivery);
                }
            }
        }
        delivery
    }

    /// Finds losses, and begins and ends recoveries.
    fn recover(&mut self, has_advanced: bool, has_delivered: bool) -> Losses {
        if let RecoveryState::Recovery { until, .. } | RecoveryState::Loss { until } =
            self.recovery_state
        {
            // Reno's recovery ends with any new acknowledgement (RFC 5681 §3.2 step 6).
            let ends_early = self.parameters.recovery == Recovery::Reno
                && matches!(self.recovery_state, RecoveryState::Recovery { .. });
            if self.board.first() >= until || (has_advanced && ends_early) {
                self.recovery_state = RecoveryState::Open;
                if ends_early {
                    self.board.forget_duplicates();
                }
            }
        }
        let told = match self.recovery_state {
            RecoveryState::Open => self.board.first(),
            RecoveryState::Recovery { until, .. } | RecoveryState::Loss { until } => until,
        };
        let before = self.board.lost();
        let news = match self.parameters.recovery {
            Recovery::Sack => self.board.detect(told),
            Recovery::NewReno | Recovery::Reno => self.detect_plain(has_advanced, has_delivered),
        };
        let found = self.board.lost() - before;
        self.counters.losses += u64::from(found);
        if self.recovery_state == RecoveryState::Open && self.board.unrepaired() > 0 {
            let until = self.board.next();
            self.recovery_state =
                RecoveryState::Recovery { until, rescued: false, restarted: false };
            if self.parameters.recovery != Recovery::Reno {
                self.recover = Some(until);
            }
            self.board.restart();
            self.forced = true;
            self.counters.recoveries += 1;
            // The controller reduces the window for the loss, which covers marks as well.
            self.mark_until = until;
            self.window_reduced |= self.parameters.ecn;
        }
        Losses { news, in_recovery: found - news }
    }

    /// Without selective acknowledgements. Returns the number of new losses.
    fn detect_plain(&mut self, has_advanced: bool, has_delivered: bool) -> u32 {
        match self.recovery_state {
            RecoveryState::Open => {
                // RFC 5681 §3.2 step 2; RFC 6582 §3.2 step 2: not for duplicates that retransmitted segments
                // caused. If no later segment has arrived, the cause is unknown.
                let is_loss = !has_advanced
                    && has_delivered
                    && self.board.sacked() as usize >= DUP_THRESH
                    && self.recover.is_none_or(|recover| self.board.first() > recover);
                u32::from(is_loss && self.board.mark_lost(self.board.first()))
            }
            RecoveryState::Recovery { .. } => {
                // RFC 6582 §3.2 step 3: a partial acknowledgement shows the next hole.
                if has_advanced && self.board.outstanding() > 0 {
                    let first = self.board.first();
                    self.forced |= self.board.mark_lost(first);
                }
                0
            }
            RecoveryState::Loss { .. } => 0,
        }
    }

    /// The controller's input, and the connection's record of it.
    fn sample(
        &mut self,
        now: Timestamp,
        header: &AckHeader,
        delivery: &Delivery,
        in_flight: u32,
        lost: Losses,
    ) -> Ack {
        let interval_micros = self.rate.deliver(now.as_nanos(), delivery);
        let delivered = self.rate.delivered();
        let mut ack = Ack {
            now,
            delivered,
            prior_delivered: delivered,
            acked: delivery.segments,
            lost: lost.news,
            lost_in_recovery: lost.in_recovery,
            in_flight,
            interval_micros,
            is_small: delivery.is_of_small(self.parameters.segment_bytes),
            ..Ack::default()
        };
        let Some(Newest { stamp, is_ambiguous }) = delivery.newest else {
            return ack;
        };
        ack.prior_delivered = stamp.delivered;
        // RFC 6582 §3.2 step 3: the window does not grow in a recovery, which may take many rounds without
        // selective acknowledgements. A controller needs to know that the window was not the limit.
        ack.app_limited = stamp.app_limited
            || (self.parameters.recovery != Recovery::Sack
                && matches!(self.recovery_state, RecoveryState::Recovery { .. }));
        ack.one_way_micros = Some(header.one_way_micros);
        let rtt = now.as_nanos() - stamp.sent;
        // RFC 6298 §3: a segment that was sent twice gives no measurement.
        if !is_ambiguous {
            self.timer.measure(Duration::from_nanos(rtt));
            ack.rtt_micros = NonZeroU32::new(micros(rtt).max(1));
            // Linux's estimate: a single segment, the last in flight, without a full window of others behind
            // it.
            ack.maybe_delayed = self.parameters.delayed_ack.every > 1
                && delivery.segments == 1
                && self.board.outstanding() == 0;
        }
        ack
    }

    /// RFC 3168 §6.1.2: one reduction for each window of data, and none if a recovery has already reduced the
    /// window for it.
    fn handle_ecn_echo(&mut self, now: Timestamp, header: &AckHeader) {
        if !header.echo || !self.parameters.ecn {
            return;
        }
        // A segment sent after the reduction must have arrived. The first such segment stops the receiver's
        // echo; until then, every acknowledgement echoes.
        if self.recovery_state == RecoveryState::Open && self.board.first() > self.mark_until {
            self.controller.handle_mark(now, self.rate.delivered());
            self.mark_until = self.board.next();
            self.window_reduced = true;
            self.counters.marks += 1;
        }
    }

    /// The retransmission timer fires, if `now` has reached it.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if now.as_nanos() < self.deadline {
            return;
        }
        self.deadline = NEVER;
        if self.is_shut_out() {
            // RFC 9293 §3.8.6.1, the persist timer: one segment is sent. It will be answered, so the next one
            // waits no longer.
            self.right_edge = self.board.next() + 1;
            self.unpaced = true;
            // Linux treats a sender as idle only if its application had nothing to send.
            self.last_sent = now.as_nanos();
            return;
        }
        self.timer.back_off();
        match self.state {
            // RFC 6298 §5.7: the timer of the SYN.
            State::SynSent(_) => self.state = State::Opening { again: true },
            State::Established if self.board.outstanding() > 0 => {
                self.counters.timeouts += 1;
                let until = self.board.next();
                self.recovery_state = RecoveryState::Loss { until };
                self.recover = Some(until);
                self.board.mark_all_lost(self.parameters.recovery == Recovery::Sack);
                self.controller.handle_timeout(now, self.rate.delivered());
                self.forced = true;
                self.unpaced = true;
                // RFC 6298 §5.6.
                self.restart_timer(now.as_nanos());
            }
            State::Closed | State::Opening { .. } | State::Established | State::Finished => {}
        }
    }

    /// RFC 6582 §3.2 step 3: only the first partial acknowledgement of a recovery restarts the timer, so that
    /// it fires if there are many holes.
    fn leaves_timer_running(&self) -> bool {
        self.parameters.recovery == Recovery::NewReno
            && matches!(self.recovery_state, RecoveryState::Recovery { restarted: true, .. })
    }

    fn restart_timer(&mut self, now: u64) {
        self.deadline = now.saturating_add(nanos(self.timer.timeout()));
    }

    /// The advertised window has no room for a segment, and no segment is in flight whose acknowledgement
    /// could open it.
    fn is_shut_out(&self) -> bool {
        self.state == State::Established
            && self.board.outstanding() == 0
            && self.board.next() >= self.right_edge
            && self.board.next() < self.outbox.limit()
    }

    /// When to call [`handle_timeout`](Sender::handle_timeout).
    pub fn retransmission_deadline(&self) -> Timestamp {
        Timestamp::from_nanos(self.deadline)
    }

    /// The next message that was acknowledged to its end. Call it until it returns none.
    pub fn poll_completed(&mut self) -> Option<Completed> {
        self.outbox.poll_completed()
    }

    /// The congestion controller.
    pub fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// Segments in the network, from the sender's view: RFC 6675 §4, `pipe`.
    pub fn in_flight(&self) -> u32 {
        self.board.in_flight()
    }

    /// The smoothed round-trip time; none before the first measurement.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.timer.smoothed_rtt()
    }

    /// All counters so far.
    pub fn counters(&self) -> &SenderCounters {
        &self.counters
    }
}
