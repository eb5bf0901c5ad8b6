//! Sockets that were made outside a background cgroup, made background ones by system calls.
//!
//! A socket runs the hooks of the cgroup it was made in, so for older ones `pidfd_getfd` fetches
//! a duplicate and setsockopt does the rest. It reaches sockets in other network namespaces, and
//! MPTCP ones with all their subflows, which a BPF iterator does not.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::hooks::Dscp;
use crate::status::socket_inode;
use crate::sys;

const PROTOCOL_MPTCP: i32 = 262;

/// What was mended of one process, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mended {
    pub(crate) connections: usize,
    pub(crate) listeners: usize,
    /// Connections that wait in a listener's queue, out of reach until they are accepted.
    pub(crate) waiting: usize,
    /// What the kernel said of those that stay in the foreground.
    pub(crate) refused: Vec<String>,
}

impl Mended {
    pub(crate) fn add(&mut self, other: Mended) {
        self.connections += other.connections;
        self.listeners += other.listeners;
        self.waiting += other.waiting;
        self.refused.extend(other.refused);
    }

    /// What stays in the foreground, one line each.
    pub(crate) fn foreground(&self) -> Vec<String> {
        let waiting = match self.waiting {
            0 => None,
            1 => Some("1 connection".to_owned()),
            more => Some(format!("{more} connections")),
        };
        let waiting = waiting.map(|what| format!("{what} that a listener has not accepted yet"));
        waiting.into_iter().chain(self.refused.iter().cloned()).collect()
    }
}

/// The sockets of a process, each with its number, as duplicates of ours. Each is fetched when its
/// turn comes: a busy server has more of them than we may have open.
fn sockets(pid: i32) -> io::Result<impl Iterator<Item = io::Result<(u64, OwnedFd)>>> {
    let process = sys::pidfd_open(pid)?;
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    Ok(entries.filter_map(move |entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let inode = socket_inode(&fs::read_link(entry.path()).ok()?)?;
        match sys::pidfd_getfd(process.as_fd(), number) {
            // Closed meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => None,
            other => Some(other.map(|socket| (inode, socket))),
        }
    }))
}

/// Whether an error says that the process has ended meanwhile.
pub(crate) fn has_ended(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT))
}

/// Makes every TCP and MPTCP socket of a process a background one, but those whose numbers are in
/// `done`: several processes may have one, as a server's workers have its listener.
pub(crate) fn mend_process(
    pid: i32,
    congestion: &str,
    dscp: Dscp,
    done: &mut BTreeSet<u64>,
) -> io::Result<Mended> {
    let mut mended = Mended::default();
    for socket in sockets(pid)? {
        let (inode, socket) = socket?;
        if !done.insert(inode) {
            continue;
        }
        let socket = socket.as_fd();
        let Some(family) = tcp_family(socket) else { continue };
        match mend(socket, family, congestion, dscp) {
            Ok(unmarked) => mended.refused.extend(unmarked.map(str::to_owned)),
            Err(error) => {
                mended.refused.push(error.to_string());
                continue;
            }
        }
        if sys::int_option(socket, libc::SOL_SOCKET, libc::SO_ACCEPTCONN)? == 1 {
            mended.listeners += 1;
            mended.waiting += sys::accept_queue(socket).unwrap_or(0) as usize;
        } else {
            mended.connections += 1;
        }
    }
    Ok(mended)
}

/// Marks the IPv4 traffic of a process's IPv6 sockets.
pub(crate) fn mark_mapped(pid: i32, class: u8) -> io::Result<()> {
    let mut result = Ok(());
    for socket in sockets(pid)? {
        let (_, socket) = socket?;
        let socket = socket.as_fd();
        if tcp_family(socket) == Some(libc::AF_INET6) {
            // One that cannot be marked must not keep the others from it.
            result = result.and(set_int(socket, libc::IPPROTO_IP, libc::IP_TOS, class));
        }
    }
    result
}

/// The address family of a TCP or MPTCP socket; None for any other.
fn tcp_family(socket: BorrowedFd<'_>) -> Option<i32> {
    let option = |name| sys::int_option(socket, libc::SOL_SOCKET, name).ok();
    let protocol = option(libc::SO_PROTOCOL)?;
    if protocol != libc::IPPROTO_TCP && protocol != PROTOCOL_MPTCP {
        return None;
    }
    option(libc::SO_DOMAIN).filter(|&family| family == libc::AF_INET || family == libc::AF_INET6)
}

/// Says what of it stays as it was.
fn mend(
    socket: BorrowedFd<'_>,
    family: i32,
    congestion: &str,
    dscp: Dscp,
) -> io::Result<Option<&'static str>> {
    sys::set_option(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, congestion.as_bytes())?;
    let Some(class) = dscp.traffic_class() else { return Ok(None) };
    // For an IPv6 socket it is what its IPv4 traffic carries.
    set_int(socket, libc::IPPROTO_IP, libc::IP_TOS, class)?;
    if family == libc::AF_INET6 {
        match set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class) {
            // MPTCP has no such option; its IPv6 subflows keep their class.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return Ok(Some("the DSCP of MPTCP over IPv6"));
            }
            other => other?,
        }
    }
    Ok(None)
}

fn set_int(socket: BorrowedFd<'_>, level: i32, name: i32, value: u8) -> io::Result<()> {
    sys::set_option(socket, level, name, &i32::from(value).to_ne_bytes())
}
