//! Running a part of a program so that none of its children outlives it.
//!
//! [`contain`] forks. The child is the first process of a process namespace: when it ends, the kernel kills
//! all processes in the namespace. It ends with its parent, so a kill of either process with any signal has
//! the same effect. It also has its own mount namespace, so that mounts are removed with it. For an ordinary
//! user, it has a user namespace, in which that user may make networks.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, PipeReader, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, getgid, getuid};

use super::{Emulator, Error, sys};

/// `CAP_NET_ADMIN` and `CAP_SYS_ADMIN` of capabilities(7).
const NETWORK_CAPABILITIES: u64 = 1 << 12 | 1 << 21;

/// The exit code if the emulator itself fails; `env`, `timeout` and `nohup` use the same.
pub(super) const FAILED: u8 = 125;
/// A shell's exit code of a program that a signal ended: 128 and the signal's number.
const SIGNALLED: i32 = 128;

/// Proof that the caller runs inside [`contain`].
#[derive(Debug)]
pub struct Container {
    // Only `contain` makes one.
    _private: (),
}

/// How [`contain`] handles signals to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// They are passed on to the contained process, which handles them.
    Pass,
    /// A terminating signal ends the contained process at once; the exit code is 128 and its number, as in a
    /// shell.
    End,
}

/// Runs `body` in a process whose children all end with it, and returns its exit code. `signals` says how
/// signals to the caller are handled meanwhile. When it returns, later children of the caller are in its
/// original namespaces, as far as the machine allows.
///
/// As root, `body` runs as root. Otherwise it runs as root of a new user namespace, in which its only
/// additional right is to make networks.
///
/// # Errors
/// [`Error::Threads`] unless it is called before the first thread is started, [`Error::UserNamespaces`] or
/// [`Error::Permission`] if the machine refuses.
pub fn contain(signals: Signals, body: impl FnOnce(&Container) -> u8) -> Result<u8, Error> {
    let threads = sys::thread_count().map_err(|error| Error::system("counting threads", error))?;
    if threads != 1 {
        return Err(Error::Threads(threads));
    }
    // pid_namespaces(7): once the first process of a namespace has ended, no process can fork into it.
    let before = File::open("/proc/self/ns/pid_for_children");
    enter_namespaces()?;
    let supervisor = Supervisor::new()?;
    // The child waits at one end: when the parent is gone, the other end is closed.
    let (alive, parent) = io::pipe().map_err(|error| Error::system("making a pipe", error))?;
    // Buffered output would be written twice.
    let _ = io::stdout().flush();
    match sys::fork().map_err(|error| Error::system("forking", error))? {
        ForkResult::Parent { child } => {
            drop(alive);
            let code = supervisor.wait(child, signals);
            drop(parent);
            if let Ok(before) = before {
                // An ordinary user may not do this, and has no need to.
                let _ = setns(before, CloneFlags::CLONE_NEWPID);
            }
            code
        }
        ForkResult::Child => {
            drop(parent);
            drop(supervisor);
            let run = AssertUnwindSafe(|| match set_up_child(&alive) {
                Ok(()) => body(&Container { _private: () }),
                Err(error) => {
                    tracing::error!(target: "lull::emulator", "lull: {}", chain(&error));
                    FAILED
                }
            });
            // A panic has been printed; 101 is its exit code in an ordinary process.
            let code = catch_unwind(run).unwrap_or(101);
            let _ = io::stdout().flush();
            sys::exit_child(code)
        }
    }
}

/// An error and its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The caller's children will be in a new process namespace, and for an ordinary user the caller
/// itself in a new user namespace.
fn enter_namespaces() -> Result<(), Error> {
    if has_network_capabilities() {
        return unshare(CloneFlags::CLONE_NEWPID).map_err(|error| match error {
            Errno::EPERM => Error::Permission(error.into()),
            other => Error::system("making a process namespace", other),
        });
    }
    let (user, group) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID)
        .map_err(|error| Error::UserNamespaces(error.into()))?;
    // user_namespaces(7): without privileges only the user's own ids can be mapped, and the group only after
    // setgroups(2) is disabled.
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ] {
        fs::write(format!("/proc/self/{file}"), text).map_err(Error::UserNamespaces)?;
    }
    Ok(())
}

/// Whether this process may make networks already.
fn has_network_capabilities() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & NETWORK_CAPABILITIES == NETWORK_CAPABILITIES)
}

/// In the child: makes it end with the parent, and gives it its own mounts.
fn set_up_child(alive: &PipeReader) -> Result<(), Error> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| Error::system("asking to die with the parent", error))?;
    // The parent may have died before that.
    let mut end = [PollFd::new(alive.as_fd(), PollFlags::empty())];
    let closed = poll(&mut end, PollTimeout::ZERO).unwrap_or(0) > 0;
    if closed {
        sys::exit_child(1);
    }
    unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|error| Error::system("making a mount namespace", error))?;
    mount_at(None, "/", None, MsFlags::MS_REC | MsFlags::MS_PRIVATE)
        .map_err(|error| Error::system("making the mounts private", error))?;
    // /proc with the process numbers of the contained programs. A container may forbid it; most programs do
    // not need it.
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let _ = mount_at(Some("proc".as_ref()), "/proc", Some(c"proc"), flags);
    Ok(())
}

fn mount_at(
    source: Option<&Path>,
    target: impl AsRef<Path>,
    kind: Option<&CStr>,
    flags: MsFlags,
) -> io::Result<()> {
    mount(source, target.as_ref(), kind, flags, None::<&CStr>)?;
    Ok(())
}

impl Container {
    /// Gives the hosts of `emulator` names for the programs in the container: `ip netns exec right1 …` runs a
    /// program on the first host on the right.
    ///
    /// # Errors
    /// [`Error::System`] if `/run/netns` cannot be covered.
    pub fn name_hosts(&self, emulator: &Emulator) -> Result<(), Error> {
        let folder = cover_names().map_err(|error| Error::system("covering /run/netns", error))?;
        for host in emulator.hosts() {
            let target = folder.join(host.name());
            let source = format!("/proc/self/fd/{}", host.namespace().as_raw_fd());
            File::create(&target)
                .and_then(|_| mount_at(Some(source.as_ref()), &target, None, MsFlags::MS_BIND))
                .map_err(|error| {
                    Error::system(format!("naming the host {}", host.name()), error)
                })?;
        }
        Ok(())
    }
}

/// An empty `/run/netns` that only this mount namespace sees.
fn cover_names() -> io::Result<&'static Path> {
    let names = Path::new("/run/netns");
    let tmpfs =
        |target: &Path| mount_at(Some("lull".as_ref()), target, Some(c"tmpfs"), MsFlags::MS_NOSUID);
    if names.is_dir() {
        tmpfs(names)?;
        return Ok(names);
    }
    // The directory does not exist, and creating it would leave it behind on the machine. So this covers
    // /run, and shows its former contents in there.
    let run = Path::new("/run");
    let before = File::open(run)?;
    let inside = format!("/proc/self/fd/{}", before.as_raw_fd());
    tmpfs(run)?;
    for entry in fs::read_dir(&inside)? {
        let entry = entry?;
        let (source, target) = (entry.path(), run.join(entry.file_name()));
        let kind = entry.file_type()?;
        // An entry that cannot be shown is missing from /run, without other effects.
        let _ = if kind.is_symlink() {
            fs::read_link(&source).and_then(|to| symlink(to, &target))
        } else {
            let made = if kind.is_dir() {
                fs::create_dir(&target)
            } else {
                File::create(&target).map(drop)
            };
            let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
            made.and_then(|()| mount_at(Some(&source), &target, None, flags))
        };
    }
    fs::create_dir(names)?;
    Ok(names)
}

/// Waits for a child while passing on this process's signals.
#[derive(Debug)]
pub(super) struct Supervisor {
    signals: SignalFd,
}

impl Supervisor {
    /// From now on this process gets these signals only through [`Supervisor::wait`]; so do
    /// threads started later.
    pub(super) fn new() -> Result<Self, Error> {
        let mut set = SigSet::empty();
        for signal in [
            Signal::SIGCHLD,
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
        ] {
            set.add(signal);
        }
        let error = |error| Error::system("waiting for signals", error);
        set.thread_block().map_err(error)?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).map_err(error)?;
        Ok(Supervisor { signals })
    }

    /// Waits until `child` has ended and returns its exit code, as a shell would. Other children that have
    /// ended are reaped.
    pub(super) fn wait(&self, child: Pid, signals: Signals) -> Result<u8, Error> {
        let mut ended_by = None;
        loop {
            if let Some(code) = reap(child)? {
                return Ok(ended_by.map_or(code, |signal| (SIGNALLED + signal as i32) as u8));
            }
            let received = match self.signals.read_signal() {
                Ok(received) => received,
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(Error::system("waiting for signals", error)),
            };
            let Some(received) = received else { continue };
            // The terminal sends its signals to the child as well.
            let by_a_process = received.ssi_code <= 0;
            let signal = Signal::try_from(received.ssi_signo as i32);
            // The child may have ended at this moment.
            let _ = match (signals, signal) {
                (_, Ok(Signal::SIGCHLD) | Err(_)) => continue,
                (Signals::Pass, Ok(signal)) if by_a_process => kill(child, signal),
                (Signals::Pass, _) | (Signals::End, Ok(Signal::SIGUSR1 | Signal::SIGUSR2)) => {
                    continue;
                }
                (Signals::End, Ok(signal)) => {
                    ended_by = Some(signal);
                    kill(child, Signal::SIGKILL)
                }
            };
        }
    }
}

/// Reaps all children that have ended; returns the exit code of `child` if it is among them.
fn reap(child: Pid) -> Result<Option<u8>, Error> {
    let mut code = None;
    loop {
        let (process, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(process, status)) => (process, status),
            Ok(WaitStatus::Signaled(process, signal, _)) => (process, SIGNALLED + signal as i32),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(code),
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(error) => return Err(Error::system("waiting for a child", error)),
        };
        if process == child {
            code = Some(status as u8);
        }
    }
}
