//! Background sockets for applications: TCP that yields to all other traffic.
//!
//! A socket or listener is put in the background by the best available carrier:
//!
//! - [`Carrier::Kernel`]: the congestion control `lull`, if `lull kernel load` has registered it. It takes
//!   some system calls; no code of this crate runs afterwards.
//! - [`Carrier::UserSpace`]: TCP Nice in a thread of this process, which reads `TCP_INFO` and sets
//!   `SO_MAX_PACING_RATE`. It needs no privilege and no module, on Linux 4.18 and later. It sees only
//!   smoothed round-trip times ([`UserSpaceNice`] describes the cost of that).
//!
//! Packets are also marked as lower effort (RFC 8622), unless [`Options::dscp`] says otherwise.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let stream = std::net::TcpStream::connect("192.0.2.1:873")?;
//! let mut stream = lull_transport::background(stream)?;
//! std::io::copy(&mut std::fs::File::open("backup.tar")?, &mut stream)?;
//! # Ok(())
//! # }
//! ```
//!
//! The user-space thread belongs to the process. After a `fork` it continues in the parent, for the sockets
//! that both have then. The child starts its own thread with the first socket that it puts in the background
//! itself. A fork copies a lock that is held at that moment, and it is never released in the copy. So a child
//! that does not `exec` must use this crate only if no other thread was in it at the fork. For the user-space
//! thread this is unknown while sockets are under control, so fork before that. A child that was started by
//! `exec` may be put in the background by `lull exec`.

#[cfg(feature = "tokio")]
mod asynchronous;
mod background;
mod carrier;
mod class;
mod control;
mod descriptors;
mod disk;
mod error;
mod guard;
mod info;
mod listener;
mod memory;
mod options;
mod recover;
mod socket_options;
mod sys;
mod user_space;

use std::os::fd::AsFd;

pub use background::Background;
pub use carrier::Carrier;
pub use control::controlled_sockets;
pub use descriptors::{descriptors, raise_descriptors};
pub use disk::set_low_disk_priority;
pub use error::{Error, Result};
pub use guard::Guard;
pub use info::{Phase, TcpInfo};
pub use listener::BackgroundListener;
pub use memory::release_free_memory;
pub use options::{Dscp, Options, Prepared};
pub use recover::mean_rtt_micros;
pub use user_space::UserSpaceNice;

/// Makes a connected stream a background one, by the best carrier, marked as lower effort.
///
/// # Errors
/// The errors of [`Options::guard`].
pub fn background<S: AsFd>(stream: S) -> Result<Background<S>> {
    Options::new().stream(stream)
}

/// Makes a listener a background one, by the best carrier, marked as lower effort.
///
/// # Errors
/// The errors of [`Options::prepare`].
pub fn background_listener<L: AsFd>(listener: L) -> Result<BackgroundListener<L>> {
    Options::new().listener(listener)
}
