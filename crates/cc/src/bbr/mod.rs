//! BBR, version 1 (Cardwell, Cheng, Gunn, Hassas Yeganeh, Jacobson: BBR: Congestion-based congestion control,
//! 2016), with the constants and integers of Linux's module. Many hosts send with it today; here it is a
//! foreground for comparison.
//!
//! ```text
//!   new connection
//!        │
//!        ▼          bandwidth grew by less than
//!     Startup       a quarter in each of 3 rounds
//!   gain 2.89 ───────────────────────────────────▶ Drain
//!        ▲                                       gain 1/2.89
//!        │                                           │ in flight ≤ BDP
//!        │ pipe was not full yet                     ▼
//!     ProbeRTT  ◀────── no new min_rtt ───────── ProbeBW
//!   4 packets for       in 10 s (from any)     gains 5/4, 3/4, 1, 1, 1, 1, 1, 1,
//!   200 ms and a round ──────────────────────▶ each for about a min_rtt
//! ```
//!
//! Left out: the long-term sampling that detects token-bucket policers, and the correction for packets that
//! wait in the host's own qdisc. The reaction to a loss (one round of packet conservation, then back to the
//! previous window) is included. A controller sees no scoreboard. So recovery lasts until a packet that was
//! sent after its beginning is delivered, and after a timeout until a window of packets is.

mod aggregation;
mod bandwidth;

use aggregation::Aggregation;
use bandwidth::MaxFilter;

use crate::controller::{Ack, Controller, Pacing, reached};
use crate::rtt::Rounds;
use crate::{Rate, Timestamp, Window};

/// Fractional bits of a bandwidth in packets per microsecond.
const BANDWIDTH_SHIFT: u32 = 24;
/// Fractional bits of a gain.
const GAIN_SHIFT: u32 = 8;
const GAIN_ONE: u64 = 1 << GAIN_SHIFT;
/// 2/ln 2: the lowest gain that doubles the rate each round. Rounded up for that reason.
const STARTUP_GAIN: u64 = 2885 * GAIN_ONE / 1000 + 1;
/// Its inverse: drains in one round the queue that Startup has built in one.
const DRAIN_GAIN: u64 = 1000 * GAIN_ONE / 2885;
/// Twice the BDP in flight, for receivers that delay and aggregate acknowledgements.
const PROBE_WINDOW_GAIN: u64 = 2 * GAIN_ONE;
/// One phase to probe, one to drain the queue, and six at the bandwidth.
const CYCLE: [u64; 8] = [
    GAIN_ONE * 5 / 4,
    GAIN_ONE * 3 / 4,
    GAIN_ONE,
    GAIN_ONE,
    GAIN_ONE,
    GAIN_ONE,
    GAIN_ONE,
    GAIN_ONE,
];
/// Paced a hundredth below the bandwidth, against queues.
const PACING_MARGIN_PERCENT: u64 = 1;
/// The pipe is full when this many consecutive rounds bring less than a quarter more.
const FULL_ROUNDS: u32 = 3;
const MIN_RTT_WINDOW_MICROS: u64 = 10_000_000;
const PROBE_RTT_MICROS: u64 = 200_000;
/// Enough to keep acknowledgements coming.
const MIN_PACKETS: u64 = 4;
/// RFC 6928 §2.
const INITIAL_PACKETS: u64 = 10;
/// The assumed round-trip time for the first pacing rate.
const NOMINAL_RTT_MICROS: u64 = 1_000;
/// Below this rate one packet leaves at a time: 1.2 Mbit/s, in bytes per second.
const SLOW_BYTES_PER_SECOND: u64 = 150_000;
/// A burst contains the packets that pacing sends in a millisecond (2^-10 s), up to this.
const BURST_LIMIT_PACKETS: u64 = 127;
const BURST_LIMIT_BYTES: u64 = 65_535;
/// A window larger than any present path needs, in packets.
const LIMIT_PACKETS: u64 = 1 << 20;

/// The state of BBR; times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw {
        /// Index of [`CYCLE`].
        phase: usize,
        since: u64,
    },
    ProbeRtt {
        /// When the 200 ms end; `None` until only [`MIN_PACKETS`] are in flight.
        until: Option<u64>,
        round_done: bool,
    },
}

/// The state of the transport's loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    None,
    /// A loss was found without an acknowledgement; the next one begins the recovery.
    Due,
    Fast,
    /// Until that count of delivered packets, when all packets in flight have been retransmitted.
    Timeout {
        until: u32,
    },
}

/// The BBR controller. It needs [`Ack::interval_micros`], and pacing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bbr {
    mode: Mode,
    recovery: Recovery,
    /// The round after a loss: as many packets are sent as arrive.
    conserving: bool,
    packets: u64,
    /// The window before recovery or ProbeRTT.
    prior_packets: u64,
    ssthresh: u64,
    bandwidth: MaxFilter,
    /// The bandwidth at the end of the last round that grew, and the rounds since.
    full_bandwidth: u64,
    full_rounds: u32,
    rounds: Rounds,
    round: u32,
    min_rtt: Option<u32>,
    min_rtt_since: u64,
    /// Packets per microsecond; 0 until there is a round-trip time.
    pacing_rate: u64,
    aggregation: Aggregation,
    idle_restart: bool,
    /// Packets sent up to this count of delivered ones were limited by ProbeRTT.
    held_back_until: Option<u32>,
    /// Packets acknowledged so far.
    acked: u64,
    packet_bytes: u32,
    random: u64,
}

impl Bbr {
    /// The initial window of ten packets (RFC 6928 §2).
    pub const INITIAL_WINDOW: Window = Window::from_packets(INITIAL_PACKETS as u32);

    /// A controller for a new connection. The seed chooses where in the cycle of gains it begins each time,
    /// so that flows that start together do not probe together.
    pub fn new(seed: u64) -> Self {
        Bbr {
            mode: Mode::Startup,
            recovery: Recovery::None,
            conserving: false,
            packets: INITIAL_PACKETS,
            prior_packets: 0,
            ssthresh: Window::MAX.raw(),
            bandwidth: MaxFilter::default(),
            full_bandwidth: 0,
            full_rounds: 0,
            rounds: Rounds::default(),
            round: 0,
            min_rtt: None,
            min_rtt_since: 0,
            pacing_rate: 0,
            aggregation: Aggregation::default(),
            idle_restart: false,
            held_back_until: None,
            acked: 0,
            packet_bytes: 1448,
            random: seed,
        }
    }

    /// Payload of a packet in bytes, 1448 by default, which determines how many of them a burst is.
    ///
    /// # Panics
    /// If it is zero.
    #[must_use]
    pub fn with_packet_bytes(self, packet_bytes: u32) -> Self {
        assert!(packet_bytes > 0, "packets of 0 bytes");
        Bbr { packet_bytes, ..self }
    }

    /// The estimated bandwidth of the bottleneck, in packets per second.
    pub fn bandwidth_packets_per_second(&self) -> u64 {
        ((u128::from(self.bandwidth.max()) * 1_000_000) >> BANDWIDTH_SHIFT) as u64
    }

    /// The estimated round-trip time of the empty path, in microseconds.
    pub fn min_rtt_micros(&self) -> Option<u32> {
        self.min_rtt
    }

    /// The name of the state: `Startup`, `Drain`, `ProbeBW` or `ProbeRTT`.
    pub fn mode_name(&self) -> &'static str {
        match self.mode {
            Mode::Startup => "Startup",
            Mode::Drain => "Drain",
            Mode::ProbeBw { .. } => "ProbeBW",
            Mode::ProbeRtt { .. } => "ProbeRTT",
        }
    }

    fn is_pipe_full(&self) -> bool {
        self.full_rounds >= FULL_ROUNDS
    }

    fn pacing_gain(&self) -> u64 {
        match self.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::ProbeBw { phase, .. } => CYCLE[phase],
            Mode::ProbeRtt { .. } => GAIN_ONE,
        }
    }

    fn window_gain(&self) -> u64 {
        match self.mode {
            // Drain keeps Startup's: the pacing rate drains the queue.
            Mode::Startup | Mode::Drain => STARTUP_GAIN,
            Mode::ProbeBw { .. } => PROBE_WINDOW_GAIN,
            Mode::ProbeRtt { .. } => GAIN_ONE,
        }
    }

    /// Bandwidth times min_rtt times gain, rounded up.
    fn bdp(&self, gain: u64) -> u64 {
        let Some(min_rtt) = self.min_rtt else {
            return INITIAL_PACKETS;
        };
        let product = u128::from(self.bandwidth.max()) * u128::from(min_rtt) * u128::from(gain);
        let packets = (product >> GAIN_SHIFT).div_ceil(1 << BANDWIDTH_SHIFT);
        packets.min(u128::from(LIMIT_PACKETS)) as u64
    }

    /// Room in addition to the BDP for the bursts of sender and receiver: three bursts, an even number
    /// against delayed acknowledgements, and two packets so that small windows can probe.
    fn with_bursts(&self, packets: u64) -> u64 {
        let rate = bytes_per_second(self.pacing_rate, self.packet_bytes);
        let packets = packets + 3 * burst(rate, self.packet_bytes);
        let is_probing = matches!(self.mode, Mode::ProbeBw { phase: 0, .. });
        packets.next_multiple_of(2) + if is_probing { 2 } else { 0 }
    }

    fn target_in_flight(&self, gain: u64) -> u64 {
        self.with_bursts(self.bdp(gain))
    }

    /// Counts rounds and measures the delivery rate. Returns `true` at the beginning of a round.
    fn update_bandwidth(&mut self, ack: &Ack, is_app_limited: bool) -> bool {
        let Some(interval) = ack.interval_micros else {
            return false;
        };
        let delivered = ack.delivered.wrapping_sub(ack.prior_delivered);
        let starts = self.rounds.pass(ack.delivered, ack.prior_delivered);
        if starts {
            self.round = self.round.wrapping_add(1);
            self.conserving = false;
        }
        let sample = (u64::from(delivered) << BANDWIDTH_SHIFT) / u64::from(interval.get());
        // A rate limited by the application is below the bandwidth, unless it exceeds all earlier ones.
        if !is_app_limited || sample >= self.bandwidth.max() {
            self.bandwidth.update(self.round, sample);
        }
        starts
    }

    /// Packets in flight beyond the BDP for aggregated acknowledgements.
    fn aggregation_packets(&self) -> u64 {
        if self.is_pipe_full() { self.aggregation.packets(self.bandwidth.max()) } else { 0 }
    }

    /// The cycle of ProbeBW: a phase lasts a min_rtt; the first one until it has reached its target, the
    /// second one only until the queue is drained.
    fn update_cycle(&mut self, ack: &Ack) {
        let Mode::ProbeBw { phase, since } = self.mode else {
            return;
        };
        let now = ack.now.as_micros();
        let in_flight = u64::from(ack.in_flight);
        let is_full_length = now.saturating_sub(since) > self.min_rtt.map_or(0, u64::from);
        let gain = CYCLE[phase];
        let is_over = if gain > GAIN_ONE {
            is_full_length && (ack.all_lost() > 0 || in_flight >= self.target_in_flight(gain))
        } else if gain < GAIN_ONE {
            is_full_length || in_flight <= self.target_in_flight(GAIN_ONE)
        } else {
            is_full_length
        };
        if is_over {
            self.mode = Mode::ProbeBw { phase: (phase + 1) % CYCLE.len(), since: now };
        }
    }

    /// The pipe is full when the bandwidth no longer grows.
    fn check_full(&mut self, starts_round: bool, is_app_limited: bool) {
        if self.is_pipe_full() || !starts_round || is_app_limited {
            return;
        }
        let bandwidth = self.bandwidth.max();
        if u128::from(bandwidth) * 4 >= u128::from(self.full_bandwidth) * 5 {
            self.full_bandwidth = bandwidth;
            self.full_rounds = 0;
        } else {
            self.full_rounds += 1;
        }
    }

    fn check_drain(&mut self, ack: &Ack) {
        if self.mode == Mode::Startup && self.is_pipe_full() {
            self.mode = Mode::Drain;
            self.ssthresh = Window::from_packets(self.target_in_flight(GAIN_ONE) as u32).raw();
        }
        if self.mode == Mode::Drain && in_flight_after(ack) <= self.target_in_flight(GAIN_ONE) {
            self.enter_probe_bw(ack.now.as_micros());
        }
    }

    /// Begins the cycle at a random phase, but not with the draining one: there is no queue to drain.
    fn enter_probe_bw(&mut self, now: u64) {
        // The multiplier and the increment of Knuth's MMIX generator.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let phases = CYCLE.len() as u64;
        let phase = (phases - (self.random >> 33) % (phases - 1)) % phases;
        self.mode = Mode::ProbeBw { phase: phase as usize, since: now };
    }

    fn leave_probe_rtt(&mut self, now: u64) {
        self.min_rtt_since = now;
        self.packets = self.packets.max(self.prior_packets);
        if self.is_pipe_full() {
            self.enter_probe_bw(now);
        } else {
            self.mode = Mode::Startup;
        }
    }

    /// Saves the window for the end of recovery or ProbeRTT.
    fn save_window(&mut self) {
        let is_cut_already =
            self.recovery != Recovery::None || matches!(self.mode, Mode::ProbeRtt { .. });
        let least = if is_cut_already { self.prior_packets } else { 0 };
        self.prior_packets = self.packets.max(least);
    }

    fn update_min_rtt(&mut self, ack: &Ack, starts_round: bool) {
        let now = ack.now.as_micros();
        let is_expired = self.min_rtt.is_some() && now > self.min_rtt_since + MIN_RTT_WINDOW_MICROS;
        if let Some(rtt) = ack.rtt_micros {
            let is_lower = self.min_rtt.is_none_or(|min_rtt| rtt.get() < min_rtt);
            if is_lower || (is_expired && !ack.maybe_delayed) {
                self.min_rtt = Some(rtt.get());
                self.min_rtt_since = now;
            }
        }
        let is_probing = matches!(self.mode, Mode::ProbeRtt { .. });
        if is_expired && !self.idle_restart && !is_probing {
            self.save_window();
            self.mode = Mode::ProbeRtt { until: None, round_done: false };
        }
        if let Mode::ProbeRtt { until, round_done } = self.mode {
            let in_flight = in_flight_after(ack);
            let mark = ack.delivered.wrapping_add(in_flight as u32);
            self.held_back_until = Some(mark);
            match until {
                None if in_flight <= MIN_PACKETS => {
                    let until = Some(now + PROBE_RTT_MICROS);
                    self.mode = Mode::ProbeRtt { until, round_done: false };
                    self.rounds.round_end = ack.delivered;
                }
                None => {}
                Some(end) => {
                    let round_done = round_done || starts_round;
                    self.mode = Mode::ProbeRtt { until, round_done };
                    if round_done && now > end {
                        self.leave_probe_rtt(now);
                    }
                }
            }
        }
        if ack.acked > 0 {
            self.idle_restart = false;
        }
    }

    fn rate_for(&self, gain: u64) -> u64 {
        let rate = (u128::from(self.bandwidth.max()) * u128::from(gain)) >> GAIN_SHIFT;
        (rate * u128::from(100 - PACING_MARGIN_PERCENT) / 100) as u64
    }

    fn update_pacing_rate(&mut self, ack: &Ack) {
        if let (0, Some(rtt)) = (self.pacing_rate, ack.rtt_micros) {
            self.pacing_rate = initial_rate(self.packets, u64::from(rtt.get()));
        }
        let rate = self.rate_for(self.pacing_gain());
        // In Startup, a low sample has no meaning yet.
        if self.is_pipe_full() || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// Enters and leaves recovery. Returns `true` while conservation sets the window.
    fn recover(&mut self, ack: &Ack, is_past_recovery: bool) -> bool {
        let is_over = match self.recovery {
            Recovery::None | Recovery::Due => false,
            Recovery::Fast => is_past_recovery,
            Recovery::Timeout { until } => reached(ack.delivered, until),
        };
        if is_over {
            self.packets = self.packets.max(self.prior_packets);
            self.recovery = Recovery::None;
            self.conserving = false;
        }
        if ack.lost > 0 && self.recovery == Recovery::None {
            self.save_window();
            self.recovery = Recovery::Due;
        }
        if ack.acked == 0 {
            return true;
        }
        self.packets = self.packets.saturating_sub(u64::from(ack.all_lost())).max(1);
        let in_flight = in_flight_after(ack) + u64::from(ack.acked);
        if self.recovery == Recovery::Due {
            self.recovery = Recovery::Fast;
            self.conserving = true;
            self.rounds.close_round(ack.delivered);
            self.packets = in_flight;
        }
        if self.conserving {
            self.packets = self.packets.max(in_flight);
        }
        self.conserving
    }

    fn update_window(&mut self, ack: &Ack, is_past_recovery: bool) {
        let acked = u64::from(ack.acked);
        self.acked = self.acked.saturating_add(acked);
        if !self.recover(ack, is_past_recovery) {
            let target = self.bdp(self.window_gain()) + self.aggregation_packets();
            let target = self.with_bursts(target);
            if self.is_pipe_full() {
                self.packets = (self.packets + acked).min(target);
            } else if self.packets < target || self.acked < INITIAL_PACKETS {
                self.packets += acked;
            }
            self.packets = self.packets.max(MIN_PACKETS);
        }
        if let Mode::ProbeRtt { .. } = self.mode {
            self.packets = self.packets.min(MIN_PACKETS);
        }
        self.packets = self.packets.clamp(1, LIMIT_PACKETS);
    }
}

/// The packets in flight after this acknowledgement is processed.
fn in_flight_after(ack: &Ack) -> u64 {
    u64::from(ack.in_flight.saturating_sub(ack.acked).saturating_sub(ack.all_lost()))
}

/// A rate in packets per microsecond as bytes per second.
fn bytes_per_second(rate: u64, packet_bytes: u32) -> u64 {
    let bytes = (u128::from(rate) * u128::from(packet_bytes) * 1_000_000) >> BANDWIDTH_SHIFT;
    // Bits per second still fit.
    bytes.min(u128::from(u64::MAX / 8)) as u64
}

/// Packets that may leave together: a millisecond at the pacing rate.
fn burst(bytes_per_second: u64, packet_bytes: u32) -> u64 {
    let least = if bytes_per_second < SLOW_BYTES_PER_SECOND { 1 } else { 2 };
    let bytes = (bytes_per_second >> 10).min(BURST_LIMIT_BYTES);
    (bytes / u64::from(packet_bytes.max(1))).clamp(least, BURST_LIMIT_PACKETS)
}

/// `true` if a wrapping count `a` is beyond `b`.
fn is_after(a: u32, b: u32) -> bool {
    !reached(b, a)
}

/// The pacing rate before the first delivery rate.
fn initial_rate(packets: u64, rtt_micros: u64) -> u64 {
    ((packets * STARTUP_GAIN) << (BANDWIDTH_SHIFT - GAIN_SHIFT)) / rtt_micros
}

impl Controller for Bbr {
    fn handle_ack(&mut self, ack: &Ack) {
        self.rounds.start(ack.delivered, ack.acked);
        let is_past_recovery = self.rounds.is_new_loss(ack.prior_delivered);
        let is_held_back =
            self.held_back_until.is_some_and(|mark| !is_after(ack.prior_delivered, mark));
        if !is_held_back {
            self.held_back_until = None;
        }
        let is_app_limited = ack.app_limited || is_held_back;
        let starts_round = self.update_bandwidth(ack, is_app_limited);
        if ack.acked > 0 && ack.interval_micros.is_some() {
            let (now, bandwidth) = (ack.now.as_micros(), self.bandwidth.max());
            self.aggregation.update(now, ack.acked, bandwidth, self.packets, starts_round);
        }
        self.update_cycle(ack);
        self.check_full(starts_round, is_app_limited);
        self.check_drain(ack);
        self.update_min_rtt(ack, starts_round);
        self.update_pacing_rate(ack);
        self.update_window(ack, is_past_recovery);
    }

    fn handle_loss(&mut self, _now: Timestamp, delivered: u32) {
        if self.recovery == Recovery::None {
            self.save_window();
            self.recovery = Recovery::Due;
            self.rounds.close_round(delivered);
        }
    }

    /// Version 1 ignores marks.
    fn handle_mark(&mut self, _now: Timestamp, _delivered: u32) {}

    /// One packet, as for every flow (RFC 5681 §3.1), then one more for each acknowledged packet. The
    /// previous window is restored when the packets in flight have been retransmitted. Growth that Startup
    /// has seen before is discarded.
    fn handle_timeout(&mut self, _now: Timestamp, delivered: u32) {
        let in_flight_at_most = match self.recovery {
            // Repeated: the first packets in flight are still expected.
            Recovery::Timeout { until } => until.wrapping_sub(delivered),
            _ => self.packets as u32,
        };
        self.save_window();
        self.recovery = Recovery::Timeout { until: delivered.wrapping_add(in_flight_at_most) };
        self.conserving = false;
        self.full_bandwidth = 0;
        self.packets = 1;
        self.rounds.close_round(delivered);
    }

    /// The pacing rate is that of the bandwidth at once: there is no queue to drain or probe.
    fn handle_idle(&mut self, now: Timestamp) {
        let now = now.as_micros();
        self.idle_restart = true;
        self.aggregation.restart(now);
        match self.mode {
            Mode::ProbeBw { .. } => self.pacing_rate = self.rate_for(GAIN_ONE),
            Mode::ProbeRtt { until: Some(end), .. } if now > end => self.leave_probe_rtt(now),
            _ => {}
        }
    }

    fn window(&self) -> Window {
        Window::from_raw(self.packets << Window::SHIFT)
    }

    fn slow_start_threshold(&self) -> Window {
        Window::from_raw(self.ssthresh)
    }

    fn packets(&self, _in_flight: u32) -> u32 {
        self.packets as u32
    }

    fn pacing(&self, smoothed_rtt_micros: u32, packet_bytes: u32) -> Option<Pacing> {
        let micros = match smoothed_rtt_micros {
            0 => NOMINAL_RTT_MICROS,
            rtt => u64::from(rtt),
        };
        let rate = match self.pacing_rate {
            0 => initial_rate(self.packets, micros),
            rate => rate,
        };
        let bytes = bytes_per_second(rate, packet_bytes).max(1);
        let burst = burst(bytes, packet_bytes) as u32;
        Some(Pacing { spacing_micros: 0, rate: Rate::from_bytes_per_second(bytes), burst })
    }
}
