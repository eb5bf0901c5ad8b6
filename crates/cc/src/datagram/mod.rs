//! UDP uploads in the background.
//!
//! The kernel cannot slow a UDP socket: its packets have no congestion window. A [`VirtualQueue`] at the host marks
//! or drops the packets that exceed an [`Allowance`], so that the congestion control of the program, such as that of
//! QUIC, slows down. The [`Uploads`] of a path compute the allowance. Their round-trip times and their delivery rate
//! come from *probes*: small packets that are sent to the same destination and echoed by it.
//!
//! `docs/adr/0021-udp-uploads-yield-by-a-virtual-queue.md` has the reasons.

mod uploads;
mod virtual_queue;

pub use uploads::{Counts, PACKET_BYTES, Uploads};
pub use virtual_queue::{Allowance, Packet, Verdict, VirtualQueue};
