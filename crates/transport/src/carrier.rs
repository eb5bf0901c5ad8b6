//! What carries a background connection.

use std::fmt;

/// What carries a background connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// The kernel's congestion control, which judges each acknowledgement. Only where the socket says that it
    /// runs it: under `lull exec`, what the cgroup has been given runs instead, whatever is set.
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
