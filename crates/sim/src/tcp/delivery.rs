//! How many segments were delivered, and how fast (the method of Linux, described in
//! draft-cheng-iccrg-delivery-rate-estimation).

use core::num::NonZeroU32;

use super::scoreboard::{Delivery, Stamp};

/// Counts deliveries of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeliveryRate {
    /// Segments delivered so far; wraps around.
    delivered: u32,
    /// When the latest delivery happened, in nanoseconds, and when its segment was sent.
    delivered_time: u64,
    first_sent: u64,
    /// The application is the limit until the count has passed this.
    app_limited_until: Option<u32>,
}

impl DeliveryRate {
    /// Segments delivered so far.
    pub(super) fn delivered(&self) -> u32 {
        self.delivered
    }

    /// The state that a segment sent at `now` stores.
    pub(super) fn stamp(&mut self, now: u64, in_flight: u32) -> Stamp {
        if in_flight == 0 {
            // Nothing is in flight: the rate is measured from here.
            self.first_sent = now;
            self.delivered_time = now;
        }
        Stamp {
            sent: now,
            delivered_time: self.delivered_time,
            first_sent: self.first_sent,
            delivered: self.delivered,
            app_limited: self.app_limited_until.is_some(),
        }
    }

    /// The sender may send but has no data, with `in_flight` segments in flight.
    pub(super) fn limit_by_application(&mut self, in_flight: u32) {
        self.app_limited_until = Some(self.delivered.wrapping_add(in_flight));
    }

    /// Counts the segments that an acknowledgement delivered. Returns the time in which the segments between
    /// the newest one's stamp and now were delivered, in microseconds.
    pub(super) fn deliver(&mut self, now: u64, delivery: &Delivery) -> Option<NonZeroU32> {
        self.delivered = self.delivered.wrapping_add(delivery.segments);
        let stamp = delivery.newest?.stamp;
        self.delivered_time = now;
        self.first_sent = stamp.sent;
        let has_passed = |mark: u32| self.delivered.wrapping_sub(mark) as i32 > 0;
        if self.app_limited_until.is_some_and(has_passed) {
            self.app_limited_until = None;
        }
        // The longer of the times of sending and of acknowledging: acknowledgements may arrive closer
        // together than the segments were sent.
        let sending = stamp.sent - stamp.first_sent;
        let acknowledging = now - stamp.delivered_time;
        NonZeroU32::new(super::micros(sending.max(acknowledging)))
    }
}
