//! A simulated path under a Nice controller, for tests rule by rule.

// Each test binary uses a part of it.
#![allow(dead_code)]

use core::num::NonZeroU32;

use lull_cc::{Ack, Controller, Nice, NiceParameters, Timestamp, Window};

/// A connection over a path with a round-trip time set by the test.
pub(crate) struct Path {
    pub(crate) nice: Nice,
    pub(crate) now: u64,
    pub(crate) delivered: u32,
    /// The application sends less than the window allows.
    pub(crate) app_limited: bool,
    /// It sends small packets.
    pub(crate) is_small: bool,
}

impl Path {
    pub(crate) fn new(parameters: NiceParameters, window: f64) -> Self {
        let window = Window::from_raw((window * 65536.0) as u64);
        let mut nice = Nice::with_window(parameters, window, window);
        // The first acknowledgement of all opens the first round, and closes none.
        nice.handle_ack(&Ack {
            delivered: 1000,
            prior_delivered: 999,
            app_limited: true,
            ..Ack::default()
        });
        Path { nice, now: 1_000_000, delivered: 1000, app_limited: false, is_small: false }
    }

    pub(crate) fn window(&self) -> f64 {
        self.nice.window().as_f64()
    }

    /// One whole round: packets are acknowledged one by one after the given round-trip times in µs. The first
    /// packet that was sent after the round began ends it.
    pub(crate) fn round(&mut self, rtts: &[u32]) -> f64 {
        let sent_before = self.delivered.wrapping_sub(1);
        for &rtt in rtts {
            self.now += u64::from(rtt) / rtts.len() as u64;
            self.acknowledge(1, sent_before, Some(rtt));
        }
        self.acknowledge(1, self.delivered, None);
        self.window()
    }

    pub(crate) fn acknowledge(&mut self, acked: u32, prior_delivered: u32, rtt: Option<u32>) {
        self.delivered += acked;
        self.nice.handle_ack(&Ack {
            now: Timestamp::from_micros(self.now),
            delivered: self.delivered,
            prior_delivered,
            acked,
            in_flight: if rtt.is_some() { 100 } else { acked },
            app_limited: self.app_limited,
            is_small: self.is_small,
            rtt_micros: rtt.and_then(NonZeroU32::new),
            ..Ack::default()
        });
    }

    /// A round of `packets` whose first acknowledgement reveals `lost` losses.
    pub(crate) fn lossy_round(&mut self, packets: u32, lost: u32, rtt: u32) -> f64 {
        self.now += u64::from(rtt);
        let sent_at = self.delivered;
        self.delivered += packets;
        self.nice.handle_ack(&Ack {
            now: Timestamp::from_micros(self.now),
            delivered: self.delivered,
            prior_delivered: sent_at,
            acked: packets,
            lost,
            in_flight: packets + lost,
            rtt_micros: NonZeroU32::new(rtt),
            ..Ack::default()
        });
        self.window()
    }

    /// Measures the path's empty queue. Returns the window after it.
    pub(crate) fn see_min_rtt(&mut self, rtt: u32) -> f64 {
        self.round(&[rtt])
    }
}
