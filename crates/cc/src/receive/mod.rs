//! Lull at the receiver: the background yields by the window that it advertises.
//!
//! The sender needs nothing and knows nothing. The receiver steers how many packets it may have in flight.
//! All downloads of a host on one path share the state and the window of [`lull`](crate::lull), as
//! connections that send do. What differs is where its inputs come from, when an acknowledgement leaves:
//!
//! | input of `lull` | at the sender | here |
//! |---|---|---|
//! | round-trip time | acknowledgement of a packet | first packet that echoes a time stamp of this host (RFC 7323 §3), or that only our last window allowed |
//! | delivered packets | acknowledged | arrived |
//! | round | a packet sent in it is acknowledged | a packet arrives that an acknowledgement of the round allowed |
//! | loss | retransmission | a hole that three packets have not filled |
//! | limited by the application | nothing to send | less arrived in a round-trip time than the window allowed |
//!
//! RFC 9840 (rLEDBAT) has the same inputs: "Measuring Delays", and "Detecting Packet Losses and Retransmissions".
//! There each connection has a window of its own.
//!
//! A window only shrinks as bytes arrive (RFC 9293 §3.8.6.2.1, and "Avoiding Window Shrinking" of RFC 9840). So it never exceeds twice what arrived in the last
//! round-trip time, and four packets.
//!
//! A connection that does not use the path gets a window below one packet. Its sender is then held back by
//! its persist timer (RFC 9293 §3.8.6.1), and sends one small segment in 200 ms or more. At its turn it is
//! allowed a pair of packets, whose round-trip time shows whether there is a queue.

mod accounts;
mod download;
mod flow;
mod marks;

pub use accounts::Downloads;
pub use download::{Arrival, Download};
pub use flow::{Flow, SharedPath};
