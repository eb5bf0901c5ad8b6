//! Sockets made outside a background cgroup, turned into background ones by system calls.
//!
//! A socket runs the hooks of the cgroup in which it was made. For older ones `pidfd_getfd` fetches a
//! duplicate, and setsockopt does the rest. This reaches sockets in other network namespaces, and MPTCP ones
//! with all their subflows, which a BPF iterator does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::hooks::LOWER_EFFORT;
use crate::owners::socket_inode;
use crate::receive::ADOPT;
use crate::release::Releases;
use crate::sys;

const PROTOCOL_MPTCP: i32 = 262;

/// How many sockets are listed with their addresses if more have the same problem.
const MAX_LISTED: usize = 3;

/// The settings for the sockets of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketSettings<'a> {
    /// The congestion control.
    pub(crate) congestion: &'a str,
    /// The class of their packets; None leaves it as it is.
    pub(crate) class: Option<u8>,
    /// How another background releases them.
    pub(crate) releases: Option<&'a Releases>,
    /// Only sockets that use one of these are changed, and lose the mark of a background.
    pub(crate) leaving: Option<&'a BTreeSet<String>>,
    /// Sockets that use it already are left unchanged.
    pub(crate) only_others: bool,
    /// Sent traffic is changed.
    pub(crate) sends: bool,
    /// Received traffic yields from now on.
    pub(crate) receives: bool,
}

/// The changed sockets of processes, and the unchanged ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketChanges {
    pub(crate) connections: usize,
    pub(crate) listeners: usize,
    /// Connections that wait in a listener's queue, where they cannot be changed before they are accepted.
    pub(crate) waiting: usize,
    /// The sockets by process that are not in the background.
    exceptions: BTreeMap<(Exception, i32), Sockets>,
}

/// Why a socket stays in the foreground.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Exception {
    /// All of it, for the kernel's reason.
    Unchanged(String),
    /// All of it, if it is a TCP socket: it could not be fetched, for the kernel's reason.
    Unseen(String),
    /// The class of its packets.
    Unmarked(&'static str),
    /// Its received traffic.
    Receiving,
}

/// Sockets of a process with the same result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sockets {
    count: usize,
    /// The peers of the first of them, as far as they have addresses.
    addresses: Vec<String>,
}

impl Sockets {
    /// One line that reports what stays in the foreground.
    fn message(&self, exception: &Exception, process: i32) -> String {
        // Inherited descriptors will be the program's: our own number has no meaning.
        let whose = if process == std::process::id() as i32 {
            String::new()
        } else {
            format!(" of process {process}")
        };
        let sockets = match self.count {
            1 => "1 socket".to_owned(),
            more => format!("{more} sockets"),
        };
        let mut which = self.addresses.join(", ");
        if !which.is_empty() {
            let others = match self.count - self.addresses.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            which = format!(" ({which}{others})");
        }
        match exception {
            Exception::Unchanged(why) => format!("{sockets}{whose}{which}: {why}"),
            Exception::Unseen(why) => format!("{sockets}{whose} that cannot be fetched: {why}"),
            Exception::Unmarked(what) if self.count == 1 => format!("{what}{whose}{which}"),
            Exception::Unmarked(what) => format!("{what} of {sockets}{whose}{which}"),
            Exception::Receiving => {
                format!("what {sockets}{whose}{which} may receive, from before")
            }
        }
    }
}

impl SocketChanges {
    pub(crate) fn add(&mut self, other: SocketChanges) {
        self.connections += other.connections;
        self.listeners += other.listeners;
        self.waiting += other.waiting;
        for (key, sockets) in other.exceptions {
            let all = self.exceptions.entry(key).or_default();
            all.count += sockets.count;
            all.addresses.extend(sockets.addresses);
            all.addresses.truncate(MAX_LISTED);
        }
    }

    fn except(&mut self, exception: Exception, process: i32, address: Option<String>) {
        let sockets = self.exceptions.entry((exception, process)).or_default();
        sockets.count += 1;
        if sockets.addresses.len() < MAX_LISTED {
            sockets.addresses.extend(address);
        }
    }

    /// The connections that stay in the foreground, one line each.
    pub(crate) fn foreground(&self) -> Vec<String> {
        let waiting = match self.waiting {
            0 => None,
            1 => Some("1 connection".to_owned()),
            more => Some(format!("{more} connections")),
        };
        let waiting = waiting.map(|what| format!("{what} that a listener has not accepted yet"));
        let exceptions = self.exceptions.iter();
        let exceptions =
            exceptions.map(|((exception, process), sockets)| sockets.message(exception, *process));
        waiting.into_iter().chain(exceptions).collect()
    }
}

/// The sockets of a process, each with its number, as duplicates in this process, or the error. Each is
/// fetched at its turn: a busy server has more of them than we may have open.
fn sockets(pid: i32) -> io::Result<impl Iterator<Item = (u64, io::Result<OwnedFd>)>> {
    let process = sys::pidfd_open(pid)?;
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).map_err(|error| {
        // For a process that has ended, `/proc` returns particular errors.
        match error.raw_os_error() {
            Some(libc::ENOENT) => io::Error::from_raw_os_error(libc::ESRCH),
            _ => error,
        }
    })?;
    Ok(entries.flatten().filter_map(move |entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let inode = socket_inode(&fs::read_link(entry.path()).ok()?)?;
        match sys::pidfd_getfd(process.as_fd(), number) {
            // Closed meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => None,
            other => Some((inode, other)),
        }
    }))
}

/// Whether an error of a whole process means that it has ended meanwhile.
pub(crate) fn has_ended(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Applies the settings to every TCP and MPTCP socket of a process, except those whose numbers are in `done`:
/// several processes may share one, as a server's workers share its listener.
pub(crate) fn change_sockets_of(
    pid: i32,
    wanted: SocketSettings<'_>,
    done: &mut BTreeSet<u64>,
) -> io::Result<SocketChanges> {
    let mut socket_changes = SocketChanges::default();
    // One socket may have several descriptors.
    let mut unseen = BTreeSet::new();
    for (inode, socket) in sockets(pid)? {
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) if has_ended(&error) => return Err(error),
            Err(error) => {
                // Another process may have passed it on.
                if !done.contains(&inode) && unseen.insert(inode) {
                    socket_changes.except(Exception::Unseen(error.to_string()), pid, None);
                }
                continue;
            }
        };
        if !done.insert(inode) {
            continue;
        }
        let Some(family) = tcp_family(socket.as_fd()) else { continue };
        let socket = TcpStream::from(socket);
        if let Some(leaving) = wanted.leaving
            && !sys::congestion(socket.as_fd()).is_ok_and(|name| leaving.contains(&name))
        {
            // Its window may yield (`--direction receive`).
            wanted.releases.inspect(|releases| releases.release(socket.as_fd()));
            continue;
        }
        if wanted.only_others
            && sys::congestion(socket.as_fd()).is_ok_and(|name| name == wanted.congestion)
        {
            continue;
        }
        let changed = match wanted.sends {
            true => change_socket(socket.as_fd(), family, wanted),
            false => Ok(None),
        };
        if wanted.receives && !adopt_window(socket.as_fd()) {
            socket_changes.except(Exception::Receiving, pid, address(&socket));
        }
        match changed {
            Ok(None) => {}
            Ok(Some(unmarked)) => {
                socket_changes.except(Exception::Unmarked(unmarked), pid, address(&socket));
            }
            Err(error) => {
                socket_changes.except(
                    Exception::Unchanged(error.to_string()),
                    pid,
                    address(&socket),
                );
                continue;
            }
        }
        let accepts = sys::int_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_ACCEPTCONN);
        if accepts.is_ok_and(|accepts| accepts == 1) {
            socket_changes.listeners += 1;
            socket_changes.waiting += sys::accept_queue(socket.as_fd()).unwrap_or(0) as usize;
        } else {
            socket_changes.connections += 1;
        }
    }
    Ok(socket_changes)
}

/// Both ends of a connection, or the address of a listener; empty for a socket without a port.
fn address(socket: &TcpStream) -> Option<String> {
    let local = socket.local_addr().ok().filter(|local| local.port() != 0)?;
    Some(match socket.peer_addr() {
        Ok(remote) => format!("{local} -> {remote}"),
        Err(_) => local.to_string(),
    })
}

/// Marks the IPv4 traffic of a process's IPv6 sockets.
pub(crate) fn mark_mapped(pid: i32, class: u8) -> io::Result<()> {
    let mut result = Ok(());
    for (_, socket) in sockets(pid)? {
        // One that cannot be fetched or marked must not prevent the marking of the others.
        let marked = match socket {
            Err(error) if has_ended(&error) => return Err(error),
            Err(error) => Err(error),
            Ok(socket) if tcp_family(socket.as_fd()) == Some(libc::AF_INET6) => {
                set_int(socket.as_fd(), libc::IPPROTO_IP, libc::IP_TOS, class)
            }
            Ok(_) => Ok(()),
        };
        result = result.and(marked);
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

/// Returns what of it stays unchanged.
fn change_socket(
    socket: BorrowedFd<'_>,
    family: i32,
    wanted: SocketSettings<'_>,
) -> io::Result<Option<&'static str>> {
    let mut class = wanted.class;
    if let (Some(releases), Some(_)) = (wanted.releases, wanted.leaving) {
        releases.release(socket);
    }
    if !takes(socket, wanted.congestion)? {
        // The hooks of another background replaced it by theirs, and let the call succeed.
        if let Some(releases) = wanted.releases {
            releases.release(socket);
            class = class.or(Some(0));
        }
        if !takes(socket, wanted.congestion)? {
            let runs = sys::congestion(socket)?;
            let why = format!("another 'lull exec' has set it to '{runs}'");
            return Err(io::Error::other(why));
        }
    }
    match class {
        // Only the mark of a background is removed: another one belongs to the program.
        Some(0) if class_of(socket, family)? != LOWER_EFFORT => Ok(None),
        Some(class) => mark(socket, family, class),
        None => Ok(None),
    }
}

/// Makes what the sockets of a process receive stop yielding, where [`adopt_window`] did.
pub(crate) fn release_windows_of(pid: i32) {
    for (_, socket) in sockets(pid).into_iter().flatten() {
        let Ok(socket) = socket else { continue };
        if tcp_family(socket.as_fd()).is_some() {
            // Others know no such option.
            let none = 0u32.to_ne_bytes();
            let _ = sys::set_option(socket.as_fd(), libc::IPPROTO_TCP, ADOPT, &none);
        }
    }
}

/// Makes what a socket receives yield; returns whether it does.
fn adopt_window(socket: BorrowedFd<'_>) -> bool {
    sys::set_option(socket, libc::IPPROTO_TCP, ADOPT, &1u32.to_ne_bytes()).is_ok()
}

/// Chooses a congestion control for a socket. Returns whether the socket uses it then.
fn takes(socket: BorrowedFd<'_>, congestion: &str) -> io::Result<bool> {
    sys::set_option(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, congestion.as_bytes())?;
    Ok(sys::congestion(socket)? == congestion)
}

/// The class of a socket's packets, without the bits for ECN.
fn class_of(socket: BorrowedFd<'_>, family: i32) -> io::Result<u8> {
    let class = match family {
        libc::AF_INET6 => sys::int_option(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
            .or_else(|_| sys::int_option(socket, libc::IPPROTO_IP, libc::IP_TOS))?,
        _ => sys::int_option(socket, libc::IPPROTO_IP, libc::IP_TOS)?,
    };
    Ok(class as u8 & 0xfc)
}

/// Marks a socket's packets. Returns what of it stays unchanged.
fn mark(socket: BorrowedFd<'_>, family: i32, class: u8) -> io::Result<Option<&'static str>> {
    // On an IPv6 socket this applies to its IPv4 traffic.
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// No process has this id.
    const PROCESS: i32 = 0;

    #[test]
    fn sockets_left_for_one_reason_are_reported_once() {
        let mut socket_changes = SocketChanges { waiting: 2, ..SocketChanges::default() };
        for port in 1..=5 {
            let locked = Exception::Unchanged("locked".to_owned());
            socket_changes.except(locked, PROCESS, Some(format!("a:{port} -> b:80")));
        }
        let mut other = SocketChanges::default();
        for _ in 0..2 {
            other.except(Exception::Unseen("denied".to_owned()), PROCESS, None);
        }
        other.except(Exception::Unmarked("the DSCP"), PROCESS, Some("c:1".to_owned()));
        other.except(Exception::Unmarked("the DSCP"), std::process::id() as i32, None);
        other.except(Exception::Receiving, PROCESS, Some("d:1".to_owned()));
        socket_changes.add(other);
        let expected = [
            "2 connections that a listener has not accepted yet",
            "5 sockets of process 0 (a:1 -> b:80, a:2 -> b:80, a:3 -> b:80 and 2 more): locked",
            "2 sockets of process 0 that cannot be fetched: denied",
            "the DSCP of process 0 (c:1)",
            "the DSCP",
            "what 1 socket of process 0 (d:1) may receive, from before",
        ];
        assert_eq!(socket_changes.foreground(), expected);
    }

    #[test]
    fn socket_is_named_by_its_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let client = TcpStream::connect(here).unwrap();
        let there = client.local_addr().unwrap();
        assert_eq!(address(&client), Some(format!("{there} -> {here}")));
        assert_eq!(address(&TcpStream::from(OwnedFd::from(listener))), Some(here.to_string()));
    }

    #[test]
    fn only_a_missing_process_has_ended() {
        assert!(has_ended(&io::Error::from_raw_os_error(libc::ESRCH)));
        // The error of pidfd_open for a thread.
        assert!(!has_ended(&io::Error::from_raw_os_error(libc::ENOENT)));
    }
}
