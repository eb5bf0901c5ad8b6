//! Congestion controllers, without a clock, a socket or an allocation per ACK.
//!
//! Everything here is integer arithmetic on arguments. So the same controller runs in the kernel (through C
//! mirrors in `bpf/`), in the simulator and over user-space sockets. A trace of events always gives the same
//! windows.
//!
//! ```
//! use core::num::NonZeroU32;
//! use lull_cc::{Ack, Controller, Nice, NiceParameters, Timestamp, Window};
//!
//! let mut nice = Nice::new(NiceParameters::default());
//! // One round: each of two packets is acknowledged after 50 ms. Slow start adds a packet for each.
//! for packet in 1..=2 {
//!     nice.handle_ack(&Ack {
//!         now: Timestamp::from_micros(50_000 + 100 * u64::from(packet)),
//!         delivered: packet,
//!         acked: 1,
//!         in_flight: 2,
//!         rtt_micros: NonZeroU32::new(50_000),
//!         ..Ack::default()
//!     });
//! }
//! let before = nice.window();
//! assert!(before > Window::TWO);
//! // A mark of the network halves the window.
//! nice.handle_mark(Timestamp::from_micros(60_000), 2);
//! assert!(nice.window() < before);
//! ```
#![forbid(unsafe_code)]

pub mod bbr;
pub mod controller;
pub mod cubic;
pub mod datagram;
mod delay;
pub mod filler;
mod fixed;
pub mod ledbat;
pub mod ledbat_plus_plus;
pub mod lull;
pub mod nice;
pub mod noise_floor;
pub mod receive;
pub mod reno;
mod rtt;
pub mod tcp_lp;
pub mod vegas;

pub use bbr::Bbr;
pub use controller::{Ack, Controller, Pacing};
pub use cubic::Cubic;
pub use filler::Filler;
pub use ledbat::Ledbat;
pub use ledbat_plus_plus::LedbatPlusPlus;
pub use lull_units::{Bytes, Rate, Timestamp, Window};
pub use nice::{Base, Nice, NiceParameters, Reaction, Refinements};
pub use reno::Reno;
pub use tcp_lp::{TcpLp, TcpLpParameters};
pub use vegas::Vegas;
