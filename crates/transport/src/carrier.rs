//! The carriers of background connections.

use std::fmt;

/// The carrier of a background connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// The kernel's congestion control, which evaluates each acknowledgement. Only if the socket reports that
    /// it runs it: under `lull exec`, the cgroup's congestion control runs instead, regardless of this
    /// setting.
    Kernel,
    /// The same controller in a thread of this process, a few times a round-trip time.
    UserSpace,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Carrier::Kernel => "kernel",
            Carrier::UserSpace => "user space",
        })
    }
}
