//! TCP Vegas (Nice §2.1): one to three of its own packets in the queue.

use crate::controller::{Ack, Controller, Pacing};
use crate::nice::{Nice, NiceParameters};
use crate::{Timestamp, Window};

/// Vegas(α, β): Nice without its detector and without windows below two packets.
///
/// Its `observedRTT` is the mean of the round, and its slow start adds half a packet for each acknowledged
/// one. The Vegas that Nice falls back on is the same code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vegas(Nice);

impl Vegas {
    /// Keeps between `alpha` and `beta` packets in the queue; the usual values are 1 and 3.
    pub fn new(alpha: u32, beta: u32) -> Self {
        Vegas(Nice::new(NiceParameters::vegas(alpha, beta)))
    }
}

impl Controller for Vegas {
    fn handle_ack(&mut self, ack: &Ack) {
        self.0.handle_ack(ack);
    }

    fn handle_loss(&mut self, now: Timestamp, delivered: u32) {
        self.0.handle_loss(now, delivered);
    }

    fn handle_mark(&mut self, now: Timestamp, delivered: u32) {
        self.0.handle_mark(now, delivered);
    }

    fn handle_timeout(&mut self, now: Timestamp, delivered: u32) {
        self.0.handle_timeout(now, delivered);
    }

    fn handle_idle(&mut self, now: Timestamp) {
        self.0.handle_idle(now);
    }

    fn window(&self) -> Window {
        self.0.window()
    }

    fn slow_start_threshold(&self) -> Window {
        self.0.slow_start_threshold()
    }

    fn packets(&self, in_flight: u32) -> u32 {
        self.0.packets(in_flight)
    }

    fn pacing(&self, smoothed_rtt_micros: u32, packet_bytes: u32) -> Option<Pacing> {
        self.0.pacing(smoothed_rtt_micros, packet_bytes)
    }
}
