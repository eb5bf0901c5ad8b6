//! The inputs and outputs of a congestion controller.

use crate::{Rate, Timestamp, Window};

/// One acknowledgement, as seen by the transport.
///
/// `delivered` counts packets, wraps around, and separates rounds. A packet stores the count at its sending,
/// and once it is delivered every packet that was in flight before it has left the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// When the acknowledgement arrived.
    pub now: Timestamp,
    /// Packets delivered so far, including those of this acknowledgement.
    pub delivered: u32,
    /// The same count at the time when the newest packet of this acknowledgement was sent.
    pub prior_delivered: u32,
    /// Packets newly acknowledged or selectively acknowledged.
    pub acked: u32,
    /// Packets newly marked lost, without those of [`lost_in_recovery`](Ack::lost_in_recovery).
    pub lost: u32,
    /// Packets newly marked lost that belong to a recovery whose beginning was reported to the controller:
    /// there is one reduction for all of them (RFC 6675 §5 step 4, RFC 6582 §3.2 step 2). A transport that
    /// cannot separate them counts them in [`lost`](Ack::lost). Controllers treat packets that were sent
    /// before their last reaction as part of it. That is not enough if a recovery lasts longer than a round.
    pub lost_in_recovery: u32,
    /// Packets in flight before this acknowledgement.
    pub in_flight: u32,
    /// Round-trip time of the newest packet in microseconds; `None` without a valid sample.
    pub rtt_micros: Option<core::num::NonZeroU32>,
    /// The one-way delay of the newest packet, in microseconds. It includes an offset between the two clocks
    /// that is constant for the whole connection (RFC 7323 §3). `None` if the transport has no time stamps.
    pub one_way_micros: Option<u32>,
    /// The time in which `delivered - prior_delivered` packets were delivered, in microseconds. It is the
    /// longer of the times in which they were sent and acknowledged, so that their quotient is a delivery
    /// rate. `None` without a valid sample.
    pub interval_micros: Option<core::num::NonZeroU32>,
    /// The newest packet was sent when the application, not the window, was the limit.
    pub app_limited: bool,
    /// The transport knows that the receiver may have delayed this acknowledgement (RFC 1122 §4.2.3.2).
    pub maybe_delayed: bool,
    /// The round-trip time does not include the transmission time of full packets. Either the acknowledged
    /// packets were on average smaller than three quarters of a full one. Or, if the transport sends pairs
    /// back to back, a single one arrived that waited for no other.
    pub is_small: bool,
}

impl Ack {
    /// Packets newly marked lost.
    pub const fn all_lost(&self) -> u32 {
        self.lost.saturating_add(self.lost_in_recovery)
    }
}

/// The rate and the bursts in which the window is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// The rate to spread packets by.
    pub rate: Rate,
    /// Packets that are sent as one; the pause for `rate` follows the last of them.
    pub burst: u32,
    /// The time from one packet of a burst to the next, in microseconds; within that pause.
    pub spacing_micros: u32,
}

/// A congestion controller: its inputs are acknowledgements, losses, marks, timeouts and pauses; its outputs
/// are window and pacing rate.
///
/// Calling order: `handle_ack` for each acknowledgement, in order of arrival, with the losses
/// that it revealed; `handle_loss` for losses found otherwise; `handle_mark` at most
/// once a window of data (RFC 3168 §6.1.2); `handle_timeout` when the retransmission timer fires;
/// `handle_idle` before sending again after more than a retransmission timeout of silence;
/// `handle_send` before sending with nothing in flight. After each of them, read [`window`](Controller::window), [`packets`](Controller::packets) and
/// [`pacing`](Controller::pacing), which change at no other time.
pub trait Controller {
    /// An acknowledgement has arrived.
    fn handle_ack(&mut self, ack: &Ack);

    /// The transport has found a loss without an acknowledgement (a reordering timer, RFC 8985 §6.3) or
    /// enters recovery. `delivered` is the count of [`Ack::delivered`].
    fn handle_loss(&mut self, now: Timestamp, delivered: u32);

    /// The network has marked a packet (ECN echo) or the host's own queue has rejected one. `delivered` is
    /// the count of [`Ack::delivered`].
    fn handle_mark(&mut self, now: Timestamp, delivered: u32);

    /// The retransmission timer has fired. `delivered` is the count of [`Ack::delivered`].
    fn handle_timeout(&mut self, now: Timestamp, delivered: u32);

    /// The connection was silent for more than a retransmission timeout and is about to send.
    fn handle_idle(&mut self, now: Timestamp);

    /// The connection has data to send, nothing in flight, and pacing allows it now. `delivered` is the count
    /// of [`Ack::delivered`]. Window and pacing may change.
    fn handle_send(&mut self, _now: Timestamp, _delivered: u32) {}

    /// The congestion window.
    fn window(&self) -> Window;

    /// The slow-start threshold.
    fn slow_start_threshold(&self) -> Window;

    /// Whole packets that may be in flight, with `in_flight` of them in flight now. Never zero when nothing
    /// is in flight. By default those of the window.
    fn packets(&self, _in_flight: u32) -> u32 {
        (self.window().raw() >> Window::SHIFT) as u32
    }

    /// The pacing for a smoothed round-trip time in microseconds and packets of `packet_bytes` payload;
    /// `None`, the default, means as fast as acknowledgements allow.
    fn pacing(&self, _smoothed_rtt_micros: u32, _packet_bytes: u32) -> Option<Pacing> {
        None
    }
}

/// Allows connections with different controllers in one collection.
impl<C: Controller + ?Sized> Controller for Box<C> {
    fn handle_ack(&mut self, ack: &Ack) {
        (**self).handle_ack(ack);
    }

    fn handle_loss(&mut self, now: Timestamp, delivered: u32) {
        (**self).handle_loss(now, delivered);
    }

    fn handle_mark(&mut self, now: Timestamp, delivered: u32) {
        (**self).handle_mark(now, delivered);
    }

    fn handle_timeout(&mut self, now: Timestamp, delivered: u32) {
        (**self).handle_timeout(now, delivered);
    }

    fn handle_idle(&mut self, now: Timestamp) {
        (**self).handle_idle(now);
    }

    fn handle_send(&mut self, now: Timestamp, delivered: u32) {
        (**self).handle_send(now, delivered);
    }

    fn window(&self) -> Window {
        (**self).window()
    }

    fn slow_start_threshold(&self) -> Window {
        (**self).slow_start_threshold()
    }

    fn packets(&self, in_flight: u32) -> u32 {
        (**self).packets(in_flight)
    }

    fn pacing(&self, smoothed_rtt_micros: u32, packet_bytes: u32) -> Option<Pacing> {
        (**self).pacing(smoothed_rtt_micros, packet_bytes)
    }
}

/// `true` if a wrapping count `a` has reached `b`.
pub(crate) const fn reached(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 >= 0
}
