//! What can go wrong, with the way out.

use std::io;
use std::path::PathBuf;

/// Why an emulator could not be started or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not create network namespaces.
    #[error(
        "network namespaces need CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root, or inside a user \
         namespace (`unshare --user --map-root-user`; programs call `emulate::contain`)"
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
        "the process has {0} threads already: call `emulate::contain` first thing in main, before \
         threads are started"
    )]
    Threads(usize),
    /// `/dev/net/tun` is not there, or not for this user.
    #[error(
        "/dev/net/tun cannot be opened: load the module (`modprobe tun`), run as root, or take \
         the back end `packet`, which needs neither"
    )]
    Tun(#[source] io::Error),
    /// The topology asks for something that does not exist.
    #[error("{0}")]
    Topology(String),
    /// A trace file could not be read.
    #[error("the trace {path} cannot be read: {why}")]
    Trace {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A setting of a network namespace could not be made.
    #[error("sysctl {name} = '{value}' was refused in the emulated host")]
    Sysctl {
        /// Its name, with dots.
        name: String,
        /// The value.
        value: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel refused the hosts' default congestion control. Only the machine's own network
    /// namespace may make an algorithm the default that is not open to all users.
    #[error(
        "'{name}' cannot be the hosts' default congestion control: see that the kernel has it \
         (net.ipv4.tcp_available_congestion_control) and opens it to all users (as root: sysctl \
         net.ipv4.tcp_allowed_congestion_control='{allowed} {name}'), or set it socket by socket"
    )]
    CongestionControl {
        /// The algorithm.
        name: String,
        /// What is open to all users now.
        allowed: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A system call failed that never should.
    #[error("{what} failed")]
    System {
        /// What was being done.
        what: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The thread that moves the packets is gone.
    #[error("the emulator's thread has ended early; its error is told by `Emulator::finish`")]
    Stopped,
}

impl Error {
    /// Wraps a failed system call; `what` completes "… failed".
    pub(super) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Error::System { what: what.into(), source: source.into() }
    }
}
