//! The sending end: window, recovery, timer, pace.
//!
//! ```text
//!            loss found           all until the recovery point acknowledged
//!   Open ───────────────▶ Recovery ──────────────────────────────▶ Open
//!    │                       │                                      ▲
//!    │ timeout               │ timeout                              │ the same
//!    ▼                       ▼                                      │
//!   Loss (everything not sacked is sent again, in slow start) ──────┘
//! ```

use core::num::NonZeroU32;
use core::time::Duration;

use lull_cc::{Ack, Controller, Pacing, Rate, Timestamp, Window};

use super::counters::SenderCounters;
use super::delivery::DeliveryRate;
use super::outbox::{Completed, Outbox};
use super::pacer::Pacer;
use super::rto::RetransmissionTimer;
use super::scoreboard::{DUP_THRESH, Delivery, Newest, Scoreboard};
use super::{Parameters, Recovery, micros, nanos};
use crate::packet::{AckHeader, DataHeader};

const NEVER: u64 = u64::MAX;

/// What a sender wants sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// A request for a connection.
    Syn,
    /// A segment.
    Data {
        /// Its header.
        header: DataHeader,
        /// It is to be sent as ECN-capable.
        ecn_capable: bool,
    },
}

/// The life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// A SYN is to be sent, for the first time or again.
    Opening {
        again: bool,
    },
    /// A SYN was sent, at this time if it was the first one.
    SynSent(Option<u64>),
    Established,
    /// All data and the end of it were acknowledged.
    Finished,
}

/// How far the mending of losses has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mending {
    Open,
    /// Until this segment is acknowledged (RecoveryPoint); whether the rescue was used.
    Recovery {
        until: u32,
        rescued: bool,
    },
    /// After a timeout.
    Loss {
        until: u32,
    },
}

/// The sending end of a connection.
///
/// Calling order: [`open`](Sender::open), then [`write`](Sender::write) and
/// [`close`](Sender::close) as the application likes, [`handle_syn_ack`](Sender::handle_syn_ack)
/// and [`handle_ack`](Sender::handle_ack) as packets arrive, and
/// [`handle_timeout`](Sender::handle_timeout) at the
/// [`retransmission_deadline`](Sender::retransmission_deadline). After each of them, and at the
/// [`pacing_deadline`](Sender::pacing_deadline), send what
/// [`poll_transmit`](Sender::poll_transmit) gives until it gives nothing, and take what
/// [`poll_completed`](Sender::poll_completed) gives. `now` never runs backwards.
pub struct Sender {
    controller: Box<dyn Controller + Send>,
    board: Scoreboard,
    pacer: Pacer,
    state: State,
    mending: Mending,
    /// Segments up to here may be sent: what was acknowledged and the advertised window.
    right_edge: u32,
    /// One segment goes out whatever the window says: RFC 6675 §5 step 4.3, RFC 6298 §5.4.
    forced: bool,
    /// The forced one does not wait for the pacer either: the timer has waited long enough.
    unpaced: bool,
    /// The next new segment says that the window was reduced (RFC 3168 §6.1.2).
    window_reduced: bool,
    /// Marks until this segment is acknowledged belong to a reduction that was made.
    mark_until: u32,
    /// RFC 6582 §3.2 step 2: duplicates up to here may come from segments sent again.
    recover: u32,
    rate: DeliveryRate,
    /// When a segment was sent last.
    last_sent: u64,
    /// When the retransmission timer fires.
    deadline: u64,
    timer: RetransmissionTimer,
    parameters: Parameters,
    outbox: Outbox,
    counters: SenderCounters,
}

impl core::fmt::Debug for Sender {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sender")
            .field("state", &self.state)
            .field("mending", &self.mending)
            .field("window", &self.controller.window())
            .field("in_flight", &self.board.in_flight())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Sender {
    /// A sender that has not been opened.
    pub fn new(parameters: Parameters, controller: Box<dyn Controller + Send>) -> Self {
        Sender {
            controller,
            board: Scoreboard::default(),
            pacer: Pacer::default(),
            state: State::Closed,
            mending: Mending::Open,
            right_edge: parameters.receive_window,
            forced: false,
            unpaced: false,
            window_reduced: false,
            mark_until: 0,
            recover: 0,
            rate: DeliveryRate::default(),
            last_sent: 0,
            deadline: NEVER,
            timer: RetransmissionTimer::new(parameters.retransmission),
            parameters,
            outbox: Outbox::new(parameters.segment_bytes),
            counters: SenderCounters::default(),
        }
    }

    /// Has the processor fetch what an acknowledgement will need.
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

    /// Begins the connection.
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
    /// If the connection was closed for writing, or its segments can't be numbered any more.
    pub fn write(&mut self, now: Timestamp, bytes: u64) {
        self.outbox.write(now, bytes);
    }

    /// The application has more to send than the run lasts.
    ///
    /// # Panics
    /// If the connection was closed for writing.
    pub fn write_without_end(&mut self, now: Timestamp) {
        self.outbox.write_without_end(now);
    }

    /// The application has written everything: the last segment carries the end of the
    /// connection. If it was sent already, or the data has no end, one without data does.
    pub fn close(&mut self, now: Timestamp) {
        self.outbox.close(now, self.board.next());
    }

    /// Whether everything, with the end of the connection, has been acknowledged.
    pub fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// The receiver has accepted the connection.
    pub fn handle_syn_ack(&mut self, now: Timestamp) {
        if let State::SynSent(first) = self.state {
            self.state = State::Established;
            self.deadline = NEVER;
            if let Some(sent) = first {
                self.timer.measure(Duration::from_nanos(now.as_nanos() - sent));
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

        let lost = self.mend(has_advanced, delivery.segments > 0);
        let ack = self.sample(now, header, &delivery, in_flight, lost);
        self.controller.handle_ack(&ack);
        self.hear_echo(now, header);
        if has_advanced {
            // RFC 6298 §5.2 and §5.3.
            self.deadline = NEVER;
            if self.board.outstanding() > 0 {
                self.restart_timer(now.as_nanos());
            }
            self.outbox.acknowledge(now, self.board.first());
            if self.outbox.is_closing() && self.board.first() == self.outbox.limit() {
                self.state = State::Finished;
            }
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
                    // RFC 5681 §2: nothing else is ever acknowledged twice here.
                    self.board.duplicate(&mut delivery);
                }
            }
        }
        delivery
    }

    /// Finds losses, begins and ends recoveries. Gives the number of losses that are news to the
    /// controller: what belongs to a recovery was told when it began (RFC 6675 §5 step 4, RFC
    /// 6582 §3.2 step 2: one reduction each).
    fn mend(&mut self, has_advanced: bool, has_delivered: bool) -> u32 {
        if let Mending::Recovery { until, .. } | Mending::Loss { until } = self.mending {
            // Reno's recovery ends with whatever is new (RFC 5681 §3.2 step 6).
            let ends_early = self.parameters.recovery == Recovery::Reno
                && matches!(self.mending, Mending::Recovery { .. });
            if self.board.first() >= until || (has_advanced && ends_early) {
                self.mending = Mending::Open;
                if ends_early {
                    self.board.forget_duplicates();
                }
            }
        }
        let told = match self.mending {
            Mending::Open => self.board.first(),
            Mending::Recovery { until, .. } | Mending::Loss { until } => until,
        };
        let before = self.board.lost();
        let news = match self.parameters.recovery {
            Recovery::Sack => self.board.detect(told),
            Recovery::NewReno | Recovery::Reno => self.detect_plain(has_advanced, has_delivered),
        };
        self.counters.losses += u64::from(self.board.lost() - before);
        if self.mending == Mending::Open && self.board.to_mend() > 0 {
            let until = self.board.next();
            self.mending = Mending::Recovery { until, rescued: false };
            self.recover = until;
            self.board.restart();
            self.forced = true;
            self.counters.recoveries += 1;
            // The controller reduces the window for the loss, which answers marks as well.
            self.mark_until = until;
            self.window_reduced |= self.parameters.ecn;
        }
        news
    }

    /// Without selective acknowledgements.
    fn detect_plain(&mut self, has_advanced: bool, has_delivered: bool) -> u32 {
        match self.mending {
            Mending::Open => {
                // RFC 5681 §3.2 step 2; RFC 6582 §3.2 step 2: not for duplicates that segments
                // sent again have caused.
                let is_loss = !has_advanced
                    && has_delivered
                    && self.board.sacked() as usize >= DUP_THRESH
                    && (self.board.first() >= self.recover
                        || self.parameters.recovery == Recovery::Reno);
                u32::from(is_loss && self.board.mark_lost(self.board.first()))
            }
            Mending::Recovery { .. } => {
                // RFC 6582 §3.2 step 3: a partial acknowledgement shows the next hole.
                if has_advanced && self.board.outstanding() > 0 {
                    let first = self.board.first();
                    self.forced |= self.board.mark_lost(first);
                }
                0
            }
            Mending::Loss { .. } => 0,
        }
    }

    /// What the controller is told, and what the connection remembers of it.
    fn sample(
        &mut self,
        now: Timestamp,
        header: &AckHeader,
        delivery: &Delivery,
        in_flight: u32,
        lost: u32,
    ) -> Ack {
        let interval_micros = self.rate.deliver(now.as_nanos(), delivery);
        let delivered = self.rate.delivered();
        let mut ack = Ack {
            now,
            delivered,
            prior_delivered: delivered,
            acked: delivery.segments,
            lost,
            in_flight,
            interval_micros,
            is_small: delivery.is_of_small(self.parameters.segment_bytes),
            ..Ack::default()
        };
        let Some(Newest { stamp, is_ambiguous }) = delivery.newest else {
            return ack;
        };
        ack.prior_delivered = stamp.delivered;
        // RFC 6582 §3.2 step 3: the window does not grow in a recovery, which without selective
        // acknowledgements may take many rounds. What a controller understands is that the window
        // was not the limit.
        ack.app_limited = stamp.app_limited
            || (self.parameters.recovery != Recovery::Sack
                && matches!(self.mending, Mending::Recovery { .. }));
        ack.one_way_micros = Some(header.one_way_micros);
        let rtt = now.as_nanos() - stamp.sent;
        // RFC 6298 §3: a segment sent twice tells nothing.
        if !is_ambiguous {
            self.timer.measure(Duration::from_nanos(rtt));
            ack.rtt_micros = NonZeroU32::new(micros(rtt).max(1));
            // As Linux guesses: a single segment, the last in flight, and not a full window of
            // company behind it.
            ack.maybe_delayed = self.parameters.delayed_ack.every > 1
                && delivery.segments == 1
                && self.board.outstanding() == 0;
        }
        ack
    }

    /// RFC 3168 §6.1.2: one reduction for each window of data, and none for what a recovery has
    /// reduced the window for.
    fn hear_echo(&mut self, now: Timestamp, header: &AckHeader) {
        if !header.echo || !self.parameters.ecn {
            return;
        }
        // Something sent after the reduction must have arrived: the first of it tells the receiver
        // to stop, and until then every acknowledgement echoes.
        if self.mending == Mending::Open && self.board.first() > self.mark_until {
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
        self.timer.back_off();
        match self.state {
            // RFC 6298 §5.7: the timer of the SYN.
            State::SynSent(_) => self.state = State::Opening { again: true },
            State::Established if self.board.outstanding() > 0 => {
                self.counters.timeouts += 1;
                let until = self.board.next();
                self.mending = Mending::Loss { until };
                self.recover = until;
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

    fn restart_timer(&mut self, now: u64) {
        self.deadline = now.saturating_add(nanos(self.timer.timeout()));
    }

    /// When [`handle_timeout`](Sender::handle_timeout) is to be called.
    pub fn retransmission_deadline(&self) -> Timestamp {
        Timestamp::from_nanos(self.deadline)
    }

    /// When [`poll_transmit`](Sender::poll_transmit) is to be asked again although nothing has
    /// happened; none if only the pace holds nothing back.
    pub fn pacing_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let due = self.pacer.due();
        let is_held = due > now.as_nanos()
            && self.state == State::Established
            && self.window_allows()
            && (self.has_new() || self.board.to_mend() > 0);
        is_held.then(|| Timestamp::from_nanos(due))
    }

    fn window_allows(&self) -> bool {
        let in_flight = self.board.in_flight();
        let mut counted = in_flight;
        if !self.parameters.limited_transmit
            && self.mending == Mending::Open
            && self.board.sacked() > 0
        {
            // RFC 5681 §3.2 step 1 without RFC 3042: duplicates send nothing new.
            counted += self.board.sacked();
        }
        // Nice §2.3: a pair that has begun is sent to its end, although with its first packet in
        // flight no other may begin.
        let is_within_pair = self.pacer.left() > 0 && self.controller.window() < Window::TWO;
        self.forced || is_within_pair || self.controller.packets(in_flight) > counted
    }

    fn has_new(&self) -> bool {
        let next = self.board.next();
        next < self.outbox.limit() && next < self.right_edge
    }

    /// What is to be sent now. To be asked until it gives nothing.
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
        if !self.window_allows() {
            return None;
        }
        let header = self.choose(now.as_nanos());
        self.forced = false;
        self.unpaced = false;
        let (header, is_new) = header?;
        self.sent(now.as_nanos());
        // RFC 3168 §6.1.5: segments that are sent again are not ECN-capable, so that a router
        // does not take the mark of an old segment for news.
        Some(Transmit::Data { header, ecn_capable: self.parameters.ecn && is_new })
    }

    /// RFC 5681 §4.1: after a silence of a retransmission timeout the window is not what it was.
    fn restart_after_idle(&mut self, now: Timestamp) {
        if self.board.outstanding() == 0
            && self.counters.segments > 0
            && self.has_new()
            && now.as_nanos() - self.last_sent > nanos(self.timer.timeout())
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
        // Not the window is the limit, but what the application has written or the receiver takes.
        if self.mending == Mending::Open {
            self.rate.limit_by_application(self.board.in_flight());
        }
        let Mending::Recovery { until, rescued } = self.mending else {
            return None;
        };
        if self.parameters.recovery != Recovery::Sack {
            return None;
        }
        // Rule 3.
        if let Some(number) = self.board.next_missing() {
            return Some((self.send_again(number, now), false));
        }
        // Rule 4: one segment in each recovery, whose acknowledgement tells of losses at the end.
        if rescued {
            return None;
        }
        self.mending = Mending::Recovery { until, rescued: true };
        let number = self.board.highest_missing()?;
        Some((self.send_again(number, now), false))
    }

    fn send_again(&mut self, number: u32, now: u64) -> DataHeader {
        let stamp = self.rate.stamp(now, self.board.in_flight());
        let (payload, last) = self.board.push_again(number, stamp);
        self.counters.retransmissions += 1;
        if number == self.board.first() {
            // RFC 6298 §5.4 and, for fast retransmissions, what Linux does as well: the timer
            // counts from the copy under way.
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

    /// The next message that was acknowledged to its end. To be asked until it gives nothing.
    pub fn poll_completed(&mut self) -> Option<Completed> {
        self.outbox.poll_completed()
    }

    /// The congestion controller.
    pub fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// Segments in the network, as far as the sender knows: RFC 6675 §4, `pipe`.
    pub fn in_flight(&self) -> u32 {
        self.board.in_flight()
    }

    /// The smoothed round-trip time; none before the first measurement.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.timer.smoothed_rtt()
    }

    /// Everything counted so far.
    pub fn counters(&self) -> &SenderCounters {
        &self.counters
    }
}
