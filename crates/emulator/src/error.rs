//! Errors, each with a remedy.

use std::io;
use std::path::PathBuf;

/// Why an emulator failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not create network namespaces.
    #[error(
        "network namespaces need CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root, or inside a user \
         namespace (`unshare --user --map-root-user`; programs call `lull_emulator::contain`)"
    )]
    Permission(#[source] io::Error),
    /// The kernel refused a user namespace.
    #[error(
        "this machine refuses user namespaces: run as root, or allow them (sysctls \
         user.max_user_namespaces, kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns)"
    )]
    UserNamespaces(#[source] io::Error),
    /// A user or process namespace can only be entered before the first thread is started.
    #[error(
        "the process has {0} threads already: call `lull_emulator::contain` at the start of main, \
         before threads are started"
    )]
    Threads(usize),
    /// `/dev/net/tun` does not exist, or this user may not open it.
    #[error(
        "/dev/net/tun cannot be opened: load the module (`modprobe tun`), run as root, or take \
         the back end `packet`, which needs neither"
    )]
    Tun(#[source] io::Error),
    /// The topology is invalid.
    #[error("{0}")]
    Topology(String),
    /// A trace file could not be read.
    #[error("the trace {path} cannot be read: {why}")]
    Trace {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A sysctl of a network namespace could not be set.
    #[error("sysctl {name} = '{value}' was rejected in the emulated host")]
    Sysctl {
        /// Its name, with dots.
        name: String,
        /// The value.
        value: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel rejected the hosts' default congestion control. A restricted algorithm can become the
    /// default only in the machine's own network namespace.
    #[error(
        "'{name}' cannot be the hosts' default congestion control: see that the kernel has it \
         (net.ipv4.tcp_available_congestion_control) and opens it to all users (as root: sysctl \
         net.ipv4.tcp_allowed_congestion_control='{allowed} {name}'), or set it socket by socket"
    )]
    CongestionControl {
        /// The algorithm.
        name: String,
        /// The algorithms that all users may use now.
        allowed: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A system call failed unexpectedly.
    #[error("{what} failed")]
    System {
        /// The failed action.
        what: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The thread that moves the packets has ended.
    #[error("the emulator's thread has ended early; `Emulator::finish` returns its error")]
    Stopped,
}

impl Error {
    /// Wraps a failed system call; `what` completes "… failed".
    pub(super) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Error::System { what: what.into(), source: source.into() }
    }
}
