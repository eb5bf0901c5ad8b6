//! System calls without a safe wrapper crate. All unsafe code of this crate is here.

use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use libbpf_rs::libbpf_sys::{self, bpf_attach_type};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::socket::{getsockopt, sockopt};

use crate::user::User;

/// Errno values are small. The child adds this to the errors of its own set-up, so that the parent can
/// distinguish them from those of `execve`.
const SETUP_FAILED: i32 = 1 << 20;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = check(c_int::try_from(result).expect("a descriptor fits into an int"))?;
    // SAFETY: the system call succeeded, so `fd` is open and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A descriptor for the process `pid`, which stays valid if its number is reused.
pub(crate) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes two integers and accesses no memory of this process.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
}

/// The process that connected a Unix socket. From Linux 6.5.
pub(crate) fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// Not in the libc crate for every architecture; include/uapi/asm-generic/socket.h.
    const SO_PEERPIDFD: c_int = 77;
    owned(int_option(socket, libc::SOL_SOCKET, SO_PEERPIDFD)?.into())
}

/// The first socket passed to this process by systemd (sd_listen_fds(3)), if any.
pub(crate) fn inherited_socket() -> Option<OwnedFd> {
    /// SD_LISTEN_FDS_START.
    const FIRST: c_int = 3;
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID")? != std::process::id() || number("LISTEN_FDS")? == 0 {
        return None;
    }
    // SAFETY: by that convention the descriptor is open, and owned by this process; this is called once.
    Some(unsafe { OwnedFd::from_raw_fd(FIRST) })
}

/// A duplicate of descriptor `fd` of another process.
pub(crate) fn pidfd_getfd(process: BorrowedFd<'_>, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes three integers and accesses no memory of this process.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })
}

/// Mounts cgroup v2 without a mount point; it disappears when the descriptor is closed.
pub(crate) fn detached_cgroup2() -> io::Result<OwnedFd> {
    detached_mount(c"cgroup2")
}

/// Mounts a new BPF file system likewise.
pub(crate) fn detached_bpffs() -> io::Result<OwnedFd> {
    detached_mount(c"bpf")
}

fn detached_mount(name: &CStr) -> io::Result<OwnedFd> {
    const FSOPEN_CLOEXEC: c_int = 1;
    const FSMOUNT_CLOEXEC: c_int = 1;
    const FSCONFIG_CMD_CREATE: c_int = 6;
    // SAFETY: `name` is a string that outlives the call.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), FSOPEN_CLOEXEC) })?;
    // SAFETY: this command of fsconfig reads neither key nor value.
    let created = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            std::ptr::null::<c_void>(),
            std::ptr::null::<c_void>(),
            0,
        )
    };
    check(created as c_int)?;
    // SAFETY: takes three integers and accesses no memory of this process.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })
}

/// Attaches a program to a cgroup while the cgroup exists, beside those of others.
pub(crate) fn attach_to_cgroup(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    kind: bpf_attach_type,
) -> io::Result<()> {
    // SAFETY: takes integers; both descriptors are open during the call.
    let result = unsafe {
        libbpf_sys::bpf_prog_attach(
            program.as_raw_fd(),
            cgroup.as_raw_fd(),
            kind,
            libbpf_sys::BPF_F_ALLOW_MULTI,
        )
    };
    // libbpf returns the negative errno and sets it, too.
    check(result).map(drop)
}

/// Takes a program off a cgroup.
pub(crate) fn detach_from_cgroup(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    kind: bpf_attach_type,
) -> io::Result<()> {
    // SAFETY: takes integers; both descriptors are open during the call.
    let result =
        unsafe { libbpf_sys::bpf_prog_detach2(program.as_raw_fd(), cgroup.as_raw_fd(), kind) };
    check(result).map(drop)
}

/// The ids of the programs that run for a cgroup: its own and those of the outer cgroups.
pub(crate) fn effective_programs(
    cgroup: BorrowedFd<'_>,
    kind: bpf_attach_type,
) -> io::Result<Vec<u32>> {
    /// The kernel's limit for a cgroup (BPF_CGROUP_MAX_PROGS).
    const MAX_PROGRAMS: usize = 64;
    let mut numbers = vec![0u32; MAX_PROGRAMS];
    let mut count = MAX_PROGRAMS as u32;
    // SAFETY: `numbers` has room for `count` of them, and both are valid during the call.
    let result = unsafe {
        libbpf_sys::bpf_prog_query(
            cgroup.as_raw_fd(),
            kind,
            libbpf_sys::BPF_F_QUERY_EFFECTIVE,
            std::ptr::null_mut(),
            numbers.as_mut_ptr(),
            &raw mut count,
        )
    };
    check(result)?;
    numbers.truncate(count as usize);
    Ok(numbers)
}

/// A descriptor of a program by its id.
pub(crate) fn program(number: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes an integer and accesses no memory of this process.
    owned(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(number) }.into())
}

/// Reads an integer option of a socket.
pub(crate) fn int_option(socket: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: `value` and `length` are valid during the call, and `length` is the size of `value`.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    })?;
    Ok(value)
}

/// The cookie of a socket's network namespace. From Linux 5.14.
pub(crate) fn network_namespace(socket: BorrowedFd<'_>) -> io::Result<u64> {
    /// Not in the libc crate for every architecture; include/uapi/asm-generic/socket.h.
    const SO_NETNS_COOKIE: c_int = 71;
    let mut value: u64 = 0;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: `value` and `length` are valid during the call, and `length` is the size of `value`.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(value)
}

/// The congestion control of a socket.
pub(crate) fn congestion(socket: BorrowedFd<'_>) -> io::Result<String> {
    getsockopt(&socket, sockopt::TcpCongestion)
        .map(|name| name.to_string_lossy().trim_end_matches('\0').to_owned())
        .map_err(io::Error::from)
}

/// Sets an option of a socket.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: `value` is valid during the call, and its length is passed with it.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Sets an extended attribute of a file.
pub(crate) fn set_attribute(file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: `name` and `value` are valid during the call, and the length is that of `value`.
    check(unsafe {
        libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    })
    .map(drop)
}

/// An extended attribute of a file, up to 256 bytes.
pub(crate) fn attribute(file: BorrowedFd<'_>, name: &CStr) -> io::Result<Vec<u8>> {
    let mut value = vec![0u8; 256];
    // SAFETY: `name` and `value` are valid during the call, and the length is that of `value`.
    let length = unsafe {
        libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    value.truncate(usize::try_from(length).map_err(|_| io::Error::last_os_error())?);
    Ok(value)
}

/// How many connections wait to be accepted from a listener.
pub(crate) fn accept_queue(listener: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` and `length` are valid during the call, and `length` is the size of `info`; a tcp_info
    // consists of integers, for which all zeroes is a valid value.
    let info = unsafe {
        check(libc::getsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        ))?;
        info.assume_init()
    };
    // For a listener the kernel stores the length of its queue here.
    Ok(info.tcpi_unacked)
}

/// A descriptor that `owner` keeps open, for which its library only returns the number.
pub(crate) fn borrow<T>(fd: i32, _owner: &T) -> BorrowedFd<'_> {
    // SAFETY: `_owner` is borrowed for as long as the result, and closes `fd` only when dropped.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Forks a process with this name that holds no descriptor and does nothing. The caller has all signals
/// blocked, and so has that process: it ends by SIGKILL alone, and at the end of the caller.
pub(crate) fn fork_idle(name: &'static CStr) -> io::Result<c_int> {
    let parent = std::process::id() as c_int;
    // SAFETY: the child only makes system calls, allocates nothing and never returns from here.
    let pid = check(unsafe { libc::fork() })?;
    if pid == 0 {
        // SAFETY: `name` is static; all other arguments are integers. No descriptor is used afterwards.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::prctl(libc::PR_SET_NAME, name.as_ptr());
            libc::syscall(libc::SYS_close_range, 0, c_uint::MAX, 0);
            // The parent may have ended before the child asked to be notified.
            while libc::getppid() == parent {
                libc::pause();
            }
            libc::_exit(0);
        }
    }
    Ok(pid)
}

/// Forks a named process that runs the action and ends. It outlives the caller, who need not wait for it, and
/// has no descriptor, terminal or folder of the caller.
pub(crate) fn fork_detached(name: &'static CStr, what: impl FnOnce()) -> io::Result<()> {
    // SAFETY: this process has one thread, so the child may do everything that it may.
    let pid = check(unsafe { libc::fork() })?;
    if pid != 0 {
        // The child between the two ends at once.
        // SAFETY: takes integers, and a null pointer, so nothing is written.
        return check(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }).map(drop);
    }
    // SAFETY: `name` and the paths live for ever; everything else is an integer. Owners of descriptors are
    // never dropped here: `_exit` runs no destructors of the caller.
    unsafe {
        libc::setsid();
        if libc::fork() != 0 {
            libc::_exit(0);
        }
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::syscall(libc::SYS_close_range, 0, c_uint::MAX, 0);
        for _ in 0..3 {
            libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        }
        libc::chdir(c"/".as_ptr());
        what();
        libc::_exit(0);
    }
}

/// The foreground process group of a terminal.
pub(crate) fn foreground_group(terminal: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: takes an integer and accesses no memory of this process.
    check(unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) })
}

/// Sets the foreground process group of a terminal.
pub(crate) fn set_foreground_group(terminal: BorrowedFd<'_>, group: i32) -> io::Result<()> {
    // SAFETY: takes two integers and accesses no memory of this process.
    check(unsafe { libc::tcsetpgrp(terminal.as_raw_fd(), group) }).map(drop)
}

/// Sends any signal, including real-time ones. A process group is its id below zero.
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes two integers and accesses no memory of this process.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// The time in UTC in seconds, and how far local time is ahead of it.
pub(crate) fn utc_and_offset() -> (i64, i64) {
    let mut local = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: `time` takes a null pointer, and `localtime_r` gets two valid ones; zeros are a valid `tm`, should it
    // fail.
    let (now, local) = unsafe {
        let now = libc::time(std::ptr::null_mut());
        libc::localtime_r(&now, local.as_mut_ptr());
        (now, local.assume_init())
    };
    (now, local.tm_gmtoff)
}

/// The disposition of a signal before this process changed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disposition(libc::sighandler_t);

/// Gives a signal its default action and returns the previous one.
pub(crate) fn default_action(signal: i32) -> Disposition {
    // SAFETY: SIG_DFL is a valid action; no handler is replaced, for this process sets none.
    Disposition(unsafe { libc::signal(signal, libc::SIG_DFL) })
}

/// Whether this process ignores a signal.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `action` is writable, and all zeros are a valid value of it.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Whether SIGPIPE was ignored when this process began. The standard library ignores it before `main`, and
/// gives children the default action in any case.
static IGNORES_SIGPIPE: AtomicBool = AtomicBool::new(false);

extern "C" fn record_sigpipe_disposition() {
    IGNORES_SIGPIPE.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

// SAFETY: the C library calls the functions of this section before `main`, with arguments that the calling
// convention permits to ignore. It makes a system call and stores a bool.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = record_sigpipe_disposition;

/// Ends this process by `signal`, as if it had come from outside, and without a core file.
///
/// Returns if the signal does not end processes, or not this one.
pub(crate) fn die_by(signal: i32) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `none` is valid during the call.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    default_action(signal);
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that the other calls read.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::raise(signal);
    }
}

/// An environment with the id of the process that gets it, which is only known after the fork.
pub(crate) struct Environment {
    /// `NAME=VALUE`, each with the final zero.
    entries: Vec<Vec<u8>>,
    /// The entries that get the id, and the position in them.
    numbers: Vec<(usize, usize)>,
    /// The form of the C library: one pointer per entry, and null at the end.
    pointers: Vec<*mut c_char>,
}

// SAFETY: until `take_effect` all pointers are null, and from then on they point into `entries`, which moves
// with them.
unsafe impl Send for Environment {}
// SAFETY: no part of it can be reached by a shared reference.
unsafe impl Sync for Environment {}

impl Environment {
    /// A variable without a value gets the id.
    pub(crate) fn new(variables: Vec<(OsString, Option<OsString>)>) -> Self {
        /// The longest process id.
        const DIGITS: usize = 10;
        let (mut entries, mut numbers) = (Vec::new(), Vec::new());
        for (name, value) in variables {
            let mut entry = name.into_vec();
            entry.push(b'=');
            match value {
                Some(value) => entry.extend(value.into_vec()),
                None => {
                    numbers.push((entries.len(), entry.len()));
                    entry.extend([0; DIGITS]);
                }
            }
            entry.push(0);
            entries.push(entry);
        }
        let pointers = vec![std::ptr::null_mut(); entries.len() + 1];
        Environment { entries, numbers, pointers }
    }

    /// Inserts the id of this process, the child of a fork, which is about to become the program. It
    /// allocates nothing.
    fn take_effect(&mut self) {
        for &(entry, start) in &self.numbers {
            // The memory suffices.
            let _ = write!(&mut self.entries[entry][start..], "{}", std::process::id());
        }
        for (pointer, entry) in self.pointers.iter_mut().zip(&mut self.entries) {
            *pointer = entry.as_mut_ptr().cast();
        }
        // SAFETY: the child has one thread, so there is no concurrent reader. The pointers end with null and
        // point to strings that end with zero. All of them live in the closure of the command, and so until
        // the child has become the program or has ended.
        unsafe { libc::environ = self.pointers.as_mut_ptr() };
    }
}

/// The work of a child before it becomes the program.
pub(crate) struct Entry {
    /// The `cgroup.procs` of the cgroup to enter, if the process is not in it, open for writing.
    pub(crate) procs: Option<OwnedFd>,
    /// The signal mask of the program.
    pub(crate) mask: SigSet,
    /// The action of SIGCHLD in the program.
    pub(crate) child: Disposition,
    /// The environment of the program.
    pub(crate) environment: Environment,
    /// The user of the program, if it is not the current one.
    pub(crate) user: Option<User>,
}

impl Entry {
    /// Executes this in the child of a fork. Allocates nothing.
    fn take(&mut self) -> nix::Result<()> {
        // Only root may enter, so the rights are dropped afterwards.
        if let Some(procs) = &self.procs {
            nix::unistd::write(procs, c"0".to_bytes())?;
        }
        // SAFETY: restores actions from the start of this process.
        unsafe {
            libc::signal(libc::SIGCHLD, self.child.0);
            if IGNORES_SIGPIPE.load(Ordering::Relaxed) {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
        }
        nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None)?;
        if let Some(user) = &self.user {
            user.switch_user()?;
        }
        self.environment.take_effect();
        Ok(())
    }
}

/// Makes the child of a command do that before it becomes the program. SIGPIPE is as this process found it.
/// The command must not set an environment or a user.
pub(crate) fn enter_before_exec(command: &mut Command, mut entry: Entry) {
    let enter = move || {
        entry.take().map_err(|errno| io::Error::from_raw_os_error(errno as i32 + SETUP_FAILED))
    };
    // SAFETY: between fork and exec the closure makes some system calls and allocates nothing.
    unsafe { command.pre_exec(enter) };
}

/// Distinguishes an error of the child's set-up, which it returns, from one of `execve`.
pub(crate) fn setup_error(error: &io::Error) -> Option<io::Error> {
    let errno = error.raw_os_error()?;
    (errno >= SETUP_FAILED).then(|| io::Error::from_raw_os_error(errno - SETUP_FAILED))
}
