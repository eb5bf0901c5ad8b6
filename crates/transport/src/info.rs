//! The kernel's report about a connection.

use std::os::fd::AsFd;

use crate::error::{Error, Result};
use crate::sys;

/// `TCP_CA_Loss` of linux/tcp.h: the retransmission timer has fired.
const CA_LOSS: u8 = 4;
/// States of linux/tcp_states.h.
mod state {
    pub(super) const SYN_SENT: u8 = 2;
    pub(super) const SYN_RECV: u8 = 3;
    pub(super) const FIN_WAIT2: u8 = 5;
    pub(super) const TIME_WAIT: u8 = 6;
    pub(super) const CLOSE: u8 = 7;
    pub(super) const LISTEN: u8 = 10;
}

/// The phase of a connection, from a sender's view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The handshake is not done.
    Opening,
    /// It may send.
    #[default]
    Open,
    /// No more data will be sent: never connected, reset, or our end acknowledged.
    Closed,
}

/// One sample of the kernel's `TCP_INFO` (tcp(7), linux/tcp.h): the input of the user-space controller.
/// Counts wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// The phase of the connection.
    pub phase: Phase,
    /// The kernel is recovering from a retransmission timeout.
    pub timed_out: bool,
    /// Payload of a packet in bytes (`tcpi_snd_mss`).
    pub packet_bytes: u32,
    /// The kernel's congestion window in packets (`tcpi_snd_cwnd`).
    pub cwnd: u32,
    /// Packets sent and not yet acknowledged cumulatively (`tcpi_unacked`).
    pub unacked: u32,
    /// Bytes that wait to be sent for the first time (`tcpi_notsent_bytes`).
    pub unsent_bytes: u32,
    /// Smoothed round-trip time in microseconds, a moving average that gives each sample 1/8
    /// (`tcpi_rtt`; RFC 6298 §2). 0 before the first sample.
    pub srtt_micros: u32,
    /// Lowest round-trip time of the last five minutes in microseconds (`tcpi_min_rtt`). 0 or
    /// `u32::MAX` before the first sample.
    pub min_rtt_micros: u32,
    /// Retransmission timeout in microseconds (`tcpi_rto`).
    pub rto_micros: u32,
    /// Packets delivered (`tcpi_delivered`).
    pub delivered: u32,
    /// Payload acknowledged cumulatively (`tcpi_bytes_acked`).
    pub acked_bytes: u64,
    /// Packets delivered with a mark of congestion (`tcpi_delivered_ce`).
    pub delivered_marked: u32,
    /// Retransmitted packets (`tcpi_total_retrans`).
    pub retransmitted: u32,
    /// Packets received without data, that is acknowledgements (`tcpi_segs_in − tcpi_data_segs_in`).
    pub acks: u32,
    /// Time in microseconds in which the receiver's window was the limit (`tcpi_rwnd_limited`).
    pub receiver_limited_micros: u64,
    /// The limit of the kernel's pacing in bytes per second (`tcpi_max_pacing_rate`), which the user-space
    /// carrier sets. `u64::MAX` without a limit.
    pub max_pacing_rate: u64,
}

impl TcpInfo {
    /// Reads it from the kernel.
    ///
    /// # Errors
    /// [`Error::NotTcp`], [`Error::OldKernel`].
    pub fn of(socket: impl AsFd) -> Result<Self> {
        let (info, length) = sys::tcp_info(socket.as_fd()).map_err(|error| {
            match error.raw_os_error() {
                // The errors of other kinds of sockets, and of other descriptors.
                Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT | libc::ENOTSOCK | libc::EINVAL) => {
                    Error::NotTcp
                }
                _ => Error::system("read TCP_INFO")(error),
            }
        })?;
        if !sys::has_delivered_count(length) {
            return Err(Error::OldKernel);
        }
        Ok(TcpInfo {
            phase: match info.tcpi_state {
                state::SYN_SENT | state::SYN_RECV => Phase::Opening,
                state::FIN_WAIT2 | state::TIME_WAIT | state::CLOSE | state::LISTEN => Phase::Closed,
                _ => Phase::Open,
            },
            timed_out: info.tcpi_ca_state == CA_LOSS,
            packet_bytes: info.tcpi_snd_mss,
            cwnd: info.tcpi_snd_cwnd,
            unacked: info.tcpi_unacked,
            unsent_bytes: info.tcpi_notsent_bytes,
            srtt_micros: info.tcpi_rtt,
            min_rtt_micros: info.tcpi_min_rtt,
            rto_micros: info.tcpi_rto,
            delivered: info.tcpi_delivered,
            acked_bytes: info.tcpi_bytes_acked,
            delivered_marked: info.tcpi_delivered_ce,
            retransmitted: info.tcpi_total_retrans,
            acks: info.tcpi_segs_in.wrapping_sub(info.tcpi_data_segs_in),
            receiver_limited_micros: info.tcpi_rwnd_limited,
            max_pacing_rate: info.tcpi_max_pacing_rate,
        })
    }

    /// Nothing is in flight and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.unacked == 0 && self.unsent_bytes == 0
    }
}
