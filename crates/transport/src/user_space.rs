//! The user-space carrier without its socket: samples of `TCP_INFO` in, a pacing rate out.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use lull_cc::{Ack, Controller, Nice, NiceParameters, Rate, Timestamp, Window};

use crate::info::{Phase, TcpInfo};
use crate::recover::mean_rtt_micros;

/// Samples of the connection in a round-trip time. The paper counts packets (Nice §2.2); several samples
/// replace them: f of a round's packets is judged by the mean of each quarter.
const SAMPLES_PER_ROUND: u32 = 4;
/// The shortest time between two samples: possible for a thread with some hundred sockets.
const MIN_INTERVAL: Duration = Duration::from_millis(5);
/// The longest time between two samples of a silent connection.
const MAX_INTERVAL: Duration = Duration::from_secs(1);
/// The assumed round-trip time of a connection before its first measurement.
const UNKNOWN_RTT_MICROS: u32 = 100_000;
/// The payload of a packet before the handshake has negotiated one: Ethernet's 1500 bytes less headers and
/// timestamps.
const UNKNOWN_PACKET_BYTES: u32 = 1448;
/// Two packets are sent at least this often, for any window. The queue discipline fq does the pacing, and
/// drops packets that are due more than ten seconds later (its horizon). It matters for round-trip times
/// above 93 ms, of which the 96 of Nice §2.3 take longer.
const MAX_PAUSE_SECONDS: u64 = 9;
/// The largest factor of a window in a round below a packet (docs/algorithm.md, *gentle*).
const MAX_STEP: u64 = 4;
/// Stored samples, which separate rounds.
const REMEMBERED: usize = 32;

/// TCP Nice over a connection of the kernel, from outside: samples its state several times a round-trip time,
/// and limits its rate.
///
/// Calling order: [`handle_sample`](Self::handle_sample) with the state of the connection, first at once,
/// then at [`poll_timeout`](Self::poll_timeout); after each call, [`poll_rate`](Self::poll_rate) for the
/// value of `SO_MAX_PACING_RATE`. It has no clock: the time is passed in, and only differences matter.
///
/// Differences from `nice` in the kernel (`docs/sockets.md` has measurements):
///
/// - Round-trip times are computed from the smoothed one as means of about a quarter of a round, see
///   [`mean_rtt_micros`]. Such a quarter counts as congested or not as a whole.
/// - The window acts through the pacing rate, window / smoothed RTT, not through acknowledgements; it is at
///   most a quarter of a round late. The kernel's own window remains an upper bound.
/// - Below two packets the kernel still sends pairs (its smallest burst), each 2/W round trips, as in Nice
///   §2.3. They are at most nine seconds apart. The kernel does not pace the first ten packets of a
///   connection.
#[derive(Clone, Debug)]
pub struct UserSpaceNice {
    nice: Nice,
    last: Option<TcpInfo>,
    /// The times of samples and their counts of delivered packets, oldest first.
    past: VecDeque<(Timestamp, u32)>,
    /// When a packet was last in flight or waiting.
    active: Timestamp,
    /// Samples since then, once the pause is longer than a retransmission timeout.
    pauses: u32,
    /// The count of delivered packets at the last reaction to a loss, a mark or a timeout.
    reacted: Option<u32>,
    rate: Rate,
    /// The present limit: the pacing rate, or more while a pair is in flight.
    limit: Rate,
    told: Option<Rate>,
    due: Timestamp,
    mean_rtt_micros: u32,
}

/// A reason to react.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Congestion {
    Timeout,
    Mark,
    /// A loss without a new acknowledgement.
    Loss,
    /// A loss that the acknowledgement reports.
    Acknowledged,
}

impl Congestion {
    fn feed(self, control: &mut impl Controller, now: Timestamp, delivered: u32) {
        match self {
            Congestion::Timeout => control.handle_timeout(now, delivered),
            Congestion::Mark => control.handle_mark(now, delivered),
            Congestion::Loss => control.handle_loss(now, delivered),
            Congestion::Acknowledged => {}
        }
    }
}

impl UserSpaceNice {
    /// A controller for a connection, new or old: it starts with a window of two packets.
    pub fn new(parameters: NiceParameters) -> Self {
        UserSpaceNice {
            nice: Nice::new(parameters),
            last: None,
            past: VecDeque::with_capacity(REMEMBERED),
            active: Timestamp::ZERO,
            pauses: 0,
            reacted: None,
            rate: Self::initial_rate(),
            limit: Self::initial_rate(),
            told: None,
            due: Timestamp::ZERO,
            mean_rtt_micros: 0,
        }
    }

    /// The rate for a connection without measurements: the initial window over a round-trip time of 100 ms.
    pub fn initial_rate() -> Rate {
        pace(Nice::INITIAL_WINDOW, UNKNOWN_PACKET_BYTES, UNKNOWN_RTT_MICROS)
    }

    /// Takes the state of the connection at the time `now`, which never decreases.
    pub fn handle_sample(&mut self, now: Timestamp, info: &TcpInfo) {
        let Some(last) = self.last.replace(*info) else {
            self.active = now;
            return self.finish(now, info);
        };
        let acked = info.delivered.wrapping_sub(last.delivered);
        let lost = info.retransmitted.wrapping_sub(last.retransmitted);
        if acked > 0 || lost > 0 || !info.is_idle() {
            self.active = now;
            self.pauses = 0;
        } else if now.saturating_since(self.active) > silence(info) {
            // RFC 5681 §4.1: after a pause the network may have changed.
            if self.pauses == 0 {
                self.nice.handle_idle(now);
            }
            self.pauses += 1;
        }
        let ack = self.acknowledgement(now, &last, info);
        let congestion = self.congestion(&last, info, ack.as_ref());
        if let Some(congestion) = congestion {
            self.reacted = Some(info.delivered);
            congestion.feed(&mut self.nice, now, info.delivered);
        }
        if let Some(ack) = ack {
            self.mean_rtt_micros = ack.rtt_micros.map_or(0, NonZeroU32::get);
            self.nice.handle_ack(&ack);
        }
        self.finish(now, info);
    }

    /// New congestion since the last sample, if any: a window of data has one reaction. After a reaction,
    /// further losses belong to the same congestion (RFC 6582 §3.2) until a later packet is acknowledged. The
    /// receiver also repeats its mark (RFC 3168 §6.1.3).
    fn congestion(&self, last: &TcpInfo, info: &TcpInfo, ack: Option<&Ack>) -> Option<Congestion> {
        if info.timed_out {
            // Packets retransmitted from here on are retransmitted because of the timeout.
            return (!last.timed_out).then_some(Congestion::Timeout);
        }
        // If nothing was acknowledged, the lost packets were sent a window ago.
        let sent_at =
            ack.map_or(info.delivered.wrapping_sub(info.unacked), |ack| ack.prior_delivered);
        if self.reacted.is_some_and(|at| sent_at.wrapping_sub(at).cast_signed() < 0) {
            None
        } else if info.delivered_marked != last.delivered_marked {
            Some(Congestion::Mark)
        } else if info.retransmitted != last.retransmitted {
            Some(if ack.is_some() { Congestion::Acknowledged } else { Congestion::Loss })
        } else {
            None
        }
    }

    /// The acknowledgement that represents all since the last sample; none if there was none.
    fn acknowledgement(&self, now: Timestamp, last: &TcpInfo, info: &TcpInfo) -> Option<Ack> {
        let acked = info.delivered.wrapping_sub(last.delivered);
        if acked == 0 {
            return None;
        }
        let lost = info.retransmitted.wrapping_sub(last.retransmitted);
        // A timeout has been reported already.
        let lost = if info.timed_out { 0 } else { lost };
        let samples = info.acks.wrapping_sub(last.acks).clamp(1, acked);
        let lowest = if is_known(info.min_rtt_micros) { info.min_rtt_micros } else { 1 };
        let rtt = mean_rtt_micros(last.srtt_micros, info.srtt_micros, samples).max(lowest);
        Some(Ack {
            now,
            delivered: info.delivered,
            prior_delivered: self.delivered_before(now, rtt, info.delivered),
            acked,
            lost,
            lost_in_recovery: 0,
            in_flight: info.unacked.saturating_add(acked).saturating_add(lost),
            rtt_micros: NonZeroU32::new(rtt),
            one_way_micros: None,
            interval_micros: None,
            app_limited: !is_limited_by_pace(last, info),
            // A single packet waits for the receiver's timer.
            maybe_delayed: acked == 1,
            is_small: is_small(last, info, acked),
        })
    }

    /// The count of delivered packets when the packets acknowledged now were sent.
    fn delivered_before(&self, now: Timestamp, rtt_micros: u32, delivered: u32) -> u32 {
        // Half the distance of two samples, so that a round is not late by a whole one.
        let rtt = rtt_micros - rtt_micros / (2 * SAMPLES_PER_ROUND);
        let sent = now.as_micros().saturating_sub(u64::from(rtt));
        let before = |past: &&(Timestamp, u32)| past.0.as_micros() <= sent;
        let found = self.past.iter().rev().find(before).or(self.past.front());
        found.map_or(delivered, |past| past.1)
    }

    fn finish(&mut self, now: Timestamp, info: &TcpInfo) {
        if self.past.len() == REMEMBERED {
            self.past.pop_front();
        }
        self.past.push_back((now, info.delivered));
        let srtt = if info.srtt_micros > 0 { info.srtt_micros } else { UNKNOWN_RTT_MICROS };
        let packet = if info.packet_bytes > 0 { info.packet_bytes } else { UNKNOWN_PACKET_BYTES };
        let rtt = self.pacing_rtt_micros(srtt);
        self.rate = pace(self.nice.window(), packet, rtt);
        self.limit = if self.nice.window() < Window::ONE && info.unacked > 0 {
            self.most_after_a_pair(packet, rtt)
        } else {
            self.rate
        };
        let interval = Duration::from_micros(u64::from(srtt / SAMPLES_PER_ROUND));
        let interval = (interval * (1 << self.pauses.min(16))).max(MIN_INTERVAL);
        self.due = now + interval.min(MAX_INTERVAL);
    }

    /// The round-trip time for pacing.
    fn pacing_rtt_micros(&self, srtt_micros: u32) -> u32 {
        // Pairs are far apart, and the mean over eight of them still includes a queue that has drained.
        if self.nice.window() < Window::TWO && self.mean_rtt_micros > 0 {
            srtt_micros.min(self.mean_rtt_micros)
        } else {
            srtt_micros
        }
    }

    /// The highest possible pacing rate after the pair in flight has been acknowledged: that of a window four
    /// times as large, over the shortest round trip.
    ///
    /// The kernel applies a lower limit at once, but a higher one only with the next acknowledgement (Linux:
    /// `sk_setsockopt`, `tcp_update_pacing_rate`). If the limit were raised after that, it would count only
    /// for the pair after the next one. Each step up from 1/48 would take an additional pause of up to 96
    /// round trips. So while a pair is in flight, the limit allows for any result, and the actual result is
    /// set as soon as it is known. Below one packet the pause after the pair delays the next one until then.
    fn most_after_a_pair(&self, packet_bytes: u32, rtt_micros: u32) -> Rate {
        let window = Window::from_raw(self.nice.window().raw() * MAX_STEP).min(Window::TWO);
        let shortest = match self.nice.min_rtt_micros() {
            0 => rtt_micros,
            least => least.min(rtt_micros),
        };
        pace(window, packet_bytes, shortest)
    }

    /// The rate to set, if it differs from the last one that was returned: the pacing rate, or more while a
    /// pair is in flight.
    pub fn poll_rate(&mut self) -> Option<Rate> {
        let is_new = self.told != Some(self.limit);
        self.told = Some(self.limit);
        is_new.then_some(self.limit)
    }

    /// When to call [`handle_sample`](Self::handle_sample) again: at once before the first sample, never when
    /// the connection is closed.
    pub fn poll_timeout(&self) -> Timestamp {
        let is_closed = self.last.is_some_and(|info| info.phase == Phase::Closed);
        if is_closed { Timestamp::FAR_FUTURE } else { self.due }
    }

    /// The window in packets.
    pub fn window(&self) -> Window {
        self.nice.window()
    }

    /// The pacing rate for this window. While a pair is in flight, the limit is higher.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The mean round-trip time that the last acknowledgements showed, in microseconds. 0 before
    /// the first.
    pub fn mean_rtt_micros(&self) -> u32 {
        self.mean_rtt_micros
    }

    /// The controller: its thresholds and counts.
    pub fn nice(&self) -> &Nice {
        &self.nice
    }
}

fn is_known(rtt_micros: u32) -> bool {
    rtt_micros != 0 && rtt_micros != u32::MAX
}

/// The acknowledged packets needed less time on the link than the sent ones, which are at least pairs. Either
/// they were smaller than three quarters of a full one, as far as known; selectively acknowledged ones are
/// not counted in bytes. Or they were a single packet. The kernel's round-trip time of a pair ends with its
/// second packet. So it includes the transmission time of that one, 1.5 ms at 8 Mbit/s. A single packet,
/// after a loss or at the end of a message, would make that time look like a queue that never drains.
fn is_small(last: &TcpInfo, info: &TcpInfo, acked: u32) -> bool {
    let bytes = info.acked_bytes.saturating_sub(last.acked_bytes);
    acked == 1 || bytes > 0 && bytes < u64::from(acked) * u64::from(info.packet_bytes) * 3 / 4
}

/// A pause after which a window is no longer valid.
fn silence(info: &TcpInfo) -> Duration {
    Duration::from_micros(u64::from(info.rto_micros.max(200_000)))
}

/// Only our pacing kept the connection from sending more: it had data, and room in the kernel's and in the
/// receiver's window.
fn is_limited_by_pace(last: &TcpInfo, info: &TcpInfo) -> bool {
    let waited = info.receiver_limited_micros.saturating_sub(last.receiver_limited_micros);
    info.unsent_bytes > 0
        && info.unacked < info.cwnd
        && waited <= u64::from(info.srtt_micros / SAMPLES_PER_ROUND / 2)
}

/// Window over round-trip time: Nice §2.3's pair each 2/W round trips, and for larger windows the pacing that
/// it plans. Never 0, which means no limit to the kernel.
fn pace(window: Window, packet_bytes: u32, srtt_micros: u32) -> Rate {
    // The largest window has 36 bits, a packet 16, a million 20.
    let bytes = u128::from(window.raw()) * u128::from(packet_bytes) * 1_000_000;
    let rate = (bytes / u128::from(srtt_micros.max(1))) >> Window::SHIFT;
    let floor = (2 * u64::from(packet_bytes)).div_ceil(MAX_PAUSE_SECONDS);
    Rate::from_bytes_per_second(u64::try_from(rate).unwrap_or(u64::MAX / 8).max(floor).max(1))
}

#[cfg(test)]
mod tests;
