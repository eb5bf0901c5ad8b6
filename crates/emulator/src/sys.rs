//! The system calls that the emulator needs and that no safe crate wraps. Unsafe code of this crate is here
//! and in `traffic/sys.rs`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{ForkResult, Pid};

/// `TUNSETIFF` of linux/if_tun.h.
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
/// `PACKET_IGNORE_OUTGOING` of linux/if_packet.h.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// An `ifreq` with a device's name in it.
fn interface_request(name: &str) -> libc::ifreq {
    assert!(name.len() < libc::IFNAMSIZ, "device names have at most 15 characters");
    // SAFETY: `ifreq` is a plain C structure of integers, arrays and a pointer: all zeros is a
    // value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// Makes a TUN device called `name` in the calling thread's network namespace. It lives as long
/// as the descriptor, through which IP packets without any header are read and written.
pub(super) fn open_tun(name: &str) -> io::Result<OwnedFd> {
    let device = nix::fcntl::open(
        c"/dev/net/tun",
        nix::fcntl::OFlag::O_RDWR | nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK,
        nix::sys::stat::Mode::empty(),
    )?;
    let mut request = interface_request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`; `request` is one and outlives the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), TUNSETIFF as _, &raw mut request) };
    Errno::result(result)?;
    Ok(device)
}

fn set_option(
    socket: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    Errno::result(result)?;
    Ok(())
}

/// Opens a socket for the Ethernet frames that arrive at the device `index` of the calling
/// thread's network namespace; frames written to it leave there.
pub(super) fn open_packet_socket(index: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers. Protocol 0 receives nothing until the socket is bound.
    let socket = Errno::result(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the descriptor was opened just now and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    set_option(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
    // Room for a long burst: forced if allowed, otherwise up to the machine's limit.
    let bytes = 32 << 20;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
        .or_else(|_| set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))?;
    // SAFETY: `sockaddr_ll` is a plain C structure of integers: all zeros is a value of it.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as libc::c_int;
    // SAFETY: pointer and length describe `address`, which outlives the call.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    Errno::result(result)?;
    Ok(socket)
}

/// Frames that the packet socket had no room for, since the last call.
pub(super) fn packet_socket_drops(socket: &OwnedFd) -> io::Result<u64> {
    // SAFETY: `tpacket_stats` is two integers: all zeros is a value of it.
    let mut statistics: libc::tpacket_stats = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `statistics`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    Ok(u64::from(statistics.tp_drops))
}

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Switches off a device's offloads to hardware that does not exist: checksums, segmentation, merging.
/// Without this, packet sockets see segments of 64 kB with no checksum.
pub(super) fn disable_offloads(socket: &OwnedFd, name: &str) -> io::Result<()> {
    // ETHTOOL_STXCSUM, _STSO, _SGSO, _SGRO of linux/ethtool.h.
    for command in [0x17, 0x1f, 0x24, 0x2c] {
        let mut value = EthtoolValue { command, data: 0 };
        let mut request = interface_request(name);
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: SIOCETHTOOL reads one `ifreq` and, through its pointer, one `ethtool_value`;
        // both outlive the call.
        let result =
            unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        Errno::result(result)?;
    }
    Ok(())
}

/// The soft limit of open files before [`raise_open_files`].
static OPEN_FILES: OnceLock<u64> = OnceLock::new();

/// Raises the limit of open files for this process to the maximum. Each host and each connection needs two,
/// and the usual limit of 1024 is for programs that still call `select`.
pub(super) fn raise_open_files() {
    // If it cannot be raised, opening too many files reports an error.
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok()
    {
        let _ = OPEN_FILES.set(soft);
    }
}

/// Makes `command` run in a network namespace, with no signal blocked and the original limits of this
/// process.
pub(super) fn enter_on_exec(command: &mut Command, namespace: Arc<OwnedFd>) {
    let enter = move || {
        setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        if let Some(&soft) = OPEN_FILES.get() {
            let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls, allocates nothing and takes no lock:
    // reading a `OnceLock` is reading an atomic.
    unsafe { command.pre_exec(enter) };
}

/// Makes `command` end when the thread that starts it does.
pub fn end_with_parent(command: &mut Command) {
    let end = || Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?);
    // SAFETY: between fork and exec the closure makes a system call, and allocates nothing.
    unsafe { command.pre_exec(end) };
}

/// The shortest scheduler slice (`sched_attr` of sched_setattr(2), kernel 6.12).
const SLICE: Duration = Duration::from_micros(100);

/// Requests short scheduler slices, which start sooner. The thread gets as much processor time as any other,
/// but does not wait for a thread with a slice of several milliseconds. It needs no privilege. Kernels before
/// 6.12 ignore it.
///
/// Not a priority such as `SCHED_RR`: packets would be delivered in time while the kernel's own threads and
/// the traffic are delayed unnoticed.
pub(super) fn set_short_slice() {
    // SAFETY: `sched_attr` is a plain C structure of integers: all zeros is a value of it.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the kernel writes at most `size` bytes, the size of `attributes`; 0 is the calling
    // thread, and there are no flags.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if got != 0 || attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.sched_flags = 0;
    attributes.sched_runtime = SLICE.as_nanos() as u64;
    // SAFETY: the pointer is to a `sched_attr` that outlives the call and contains its size; 0 is the calling
    // thread, and there are no flags.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Forks a process that has one thread.
///
/// # Panics
/// If there is more than one: the child would inherit locks that are never released.
pub(super) fn fork() -> io::Result<ForkResult> {
    assert_eq!(thread_count()?, 1, "only a process of one thread may fork");
    // SAFETY: there is one thread, so no lock is held by another one in the child.
    Ok(unsafe { nix::unistd::fork() }?)
}

/// Threads of this process.
pub(super) fn thread_count() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Ends a forked child at once, without running the parent's exit handlers.
pub(super) fn exit_child(code: u8) -> ! {
    // SAFETY: `_exit` has no precondition.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Whether a process with this id exists, including one that has ended and was not waited for.
pub fn process_exists(id: u32) -> bool {
    nix::sys::signal::kill(Pid::from_raw(id as i32), None) != Err(Errno::ESRCH)
}
