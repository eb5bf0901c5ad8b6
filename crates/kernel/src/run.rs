//! Runs a program in the background, in the place of this process.

mod cgroup_access;
mod environment;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{env, io, process, thread};

use cgroup_access::CgroupAccess;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgid, getpgrp};

use crate::background::{Background, Choice};
use crate::error::{Error, Result};
use crate::group_signals::{GroupSignalDetector, TIMEOUT};
use crate::process::descends;
use crate::program_watch::{ProgramWatch, moved_to, poll_timeout};
use crate::schedule::keep_to_allowed_hours;
use crate::serve::Served;
use crate::signals::{Received, Signals};
use crate::udp::UdpTraffic;
use crate::user::{self, User};
use crate::{existing_sockets, group_signals, machine, reaper, sys};

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an exit code.
    Exited(i32),
    /// By a signal.
    Killed(i32),
}

/// The traffic of the program, and how it yielded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Opened or accepted TCP connections.
    pub connections: u64,
    /// Connections that did not take the congestion control.
    pub refused: u64,
    /// Payload sent over TCP, including retransmissions.
    pub tcp_bytes: u64,
    /// Payload received over TCP, including retransmissions.
    pub tcp_received: u64,
    /// Whether TCP downloads have yielded.
    pub slows_received: bool,
    /// Connections that could only be established without the mark, since their SYN with it got no answer.
    pub unmarked: u64,
    /// Payload sent over UDP, dropped packets included.
    pub udp_bytes: u64,
    /// The traffic over UDP; `None` if it was not slowed.
    pub udp: Option<UdpTraffic>,
    /// The total lifetime of the connections.
    pub lived: Duration,
    /// The share of it that was spent yielding; None if the congestion control does not report it.
    pub yielded: Option<Duration>,
}

/// The summary of a program that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// From start to end.
    pub elapsed: Duration,
    /// The counters, or why they are unknown.
    pub traffic: Result<Traffic, String>,
    /// Processes of the program that continue in the background.
    pub survivors: usize,
    /// The connections that stay in the foreground, one line each: sockets inherited from outside, marks that
    /// only system calls can set, and the program itself if it was moved elsewhere.
    pub foreground: Vec<String>,
    /// That the program had to leave the cgroup of this process for the background.
    pub left_cgroup: Option<String>,
    /// Requested features that the kernel lacks, one line each.
    pub shortfalls: Vec<String>,
}

/// A program that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How.
    pub ending: Ending,
    /// The summary.
    pub summary: Summary,
}

/// Runs a program with the chosen settings for its TCP connections, and those of its children.
///
/// The program runs as `user`, or as the user of this process. Standard input and output, the terminal and
/// the process group are ours. So is the environment, except for variables that name the user, and variables
/// such as systemd's `LISTEN_PID`, which name the program's number instead of this process's. Signals to this process
/// are passed on to the program. It gets those to the whole process group, or to all processes of a service,
/// itself, once. A signal by name to all processes called `lull`, or with its command line (`pkill -f`),
/// cannot be distinguished from them. Children of the program that outlive it keep their settings.
///
/// # Errors
/// If the program cannot run, or its end cannot be awaited, in which case it is killed; no cgroup and nothing
/// loaded is left behind then.
///
/// # Panics
/// If `program` is empty.
pub fn run(program: &[OsString], choice: &Choice, user: Option<&User>) -> Result<Outcome> {
    user::check(user)?;
    choice.check_words()?;
    let signals = Signals::block()?;
    let program = Program { words: program, user, choice, signals: &signals };
    let result = match machine::check_privilege("lull exec") {
        Ok(()) => run_as_root(&program),
        Err(error) => run_served(&program, error),
    };
    if result.is_ok() {
        // To die of one now would look as if the program had.
        signals.discard();
    }
    result
}

fn run_as_root(program: &Program<'_>) -> Result<Outcome> {
    let mut storage = MaybeUninit::uninit();
    let background = Background::set_up(program.choice, &mut storage)?;
    let kept = program.choice.hours.map_or(Ok(()), keep_to_allowed_hours);
    let result = kept.and_then(|()| run_in(&CgroupAccess::Own(&background), program));
    let cgroup = background.cgroup.called().to_owned();
    let is_gone = background.tear_down();
    if !is_gone {
        reaper::start_reaper(vec![cgroup], Vec::new(), program.signals);
    }
    result
}

/// Without the rights to make a background: a server may make one.
fn run_served(program: &Program<'_>, missing: Error) -> Result<Outcome> {
    let served = Served::ask(program.choice, missing)?;
    run_in(&CgroupAccess::Served(&served), program)
}

/// The program, and its settings.
struct Program<'run> {
    words: &'run [OsString],
    user: Option<&'run User>,
    choice: &'run Choice,
    signals: &'run Signals,
}

fn run_in(cgroup_access: &CgroupAccess<'_, '_>, program: &Program<'_>) -> Result<Outcome> {
    // Sockets inherited by the program, from inetd or systemd, were made outside.
    let mut done = BTreeSet::new();
    let inherited =
        existing_sockets::change_sockets_of(own_id(), program.choice.wanted(None), &mut done)
            .map_err(Error::io("look through inherited sockets"))?;
    let started = Instant::now();
    let (ending, foreground) = supervise(cgroup_access, program, done)?;
    let summary = Summary {
        elapsed: started.elapsed(),
        // The ending of the program is more important to the caller than an error here.
        traffic: cgroup_access.traffic().map_err(|error| error.to_string()),
        survivors: cgroup_access.processes().len(),
        foreground: inherited.foreground().into_iter().chain(foreground).collect(),
        left_cgroup: cgroup_access.left_cgroup(),
        shortfalls: cgroup_access.shortfalls(),
    };
    Ok(Outcome { ending, summary })
}

/// Starts the program and waits for its end. Returns also its foreground connections.
fn supervise(
    cgroup_access: &CgroupAccess<'_, '_>,
    program: &Program<'_>,
    done: BTreeSet<u64>,
) -> Result<(Ending, Vec<String>)> {
    let signals = program.signals;
    let mut storage = [const { MaybeUninit::uninit() }; 2];
    let delegation = cgroup_access.delegation(&mut storage);
    let watch = cgroup_access.watch(program.choice, delegation.as_ref(), done)?;
    let early = signals.early()?;
    // Before the program, so that it gets no signal that the detector has missed.
    let detector = GroupSignalDetector::start().ok();
    let mut child = spawn(cgroup_access, program)?;
    let supervised = sys::pidfd_open(child.id() as i32)
        .map_err(Error::io("watch over the program"))
        .and_then(|process| {
            let mut supervisor =
                Supervisor { cgroup_access, signals, watch, process, detector, moved: None };
            let ending = supervisor.wait_for_end(&mut child, early)?;
            Ok((ending, supervisor.foreground(child.id() as i32)))
        });
    if supervised.is_err() {
        // Otherwise its signals would not be passed on, and its exit status would be lost.
        let _ = child.kill();
        let _ = child.wait();
    }
    supervised
}

fn spawn(cgroup_access: &CgroupAccess<'_, '_>, program: &Program<'_>) -> Result<Child> {
    let (name, arguments) = program.words.split_first().expect("a program has a name");
    let mut command = Command::new(name);
    command.args(arguments);
    let ours = env::vars_os().collect();
    let variables = program.user.map_or_else(|| env::vars_os().collect(), |u| u.environment(ours));
    let environment = environment::in_place_of(process::id(), variables);
    let entry = sys::Entry {
        procs: cgroup_access.procs()?,
        mask: program.signals.mask,
        child: program.signals.child,
        environment: sys::Environment::new(environment),
        user: program.user.cloned(),
    };
    sys::enter_before_exec(&mut command, entry);
    command.spawn().map_err(|source| {
        let program = name.to_string_lossy().into_owned();
        if let Some(source) = sys::setup_error(&source) {
            return Error::Io { what: "put the program into its cgroup".to_owned(), source };
        }
        if source.kind() == io::ErrorKind::NotFound {
            return Error::ProgramNotFound { program };
        }
        if is_shortage(&source) {
            return Error::Io { what: format!("start '{program}'"), source };
        }
        Error::ProgramNotExecutable { program, source }
    })
}

/// Whether the machine lacks a resource, mostly for another process. The same errors of `execve` look equal
/// from here.
fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    matches!(errno, Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE))
}

/// Is between the program and its parent.
struct Supervisor<'run, 'obj> {
    cgroup_access: &'run CgroupAccess<'run, 'obj>,
    signals: &'run Signals,
    /// A server watches its own background.
    watch: Option<ProgramWatch<'run, 'obj>>,
    /// Readable when the program has ended.
    process: OwnedFd,
    detector: Option<GroupSignalDetector>,
    /// The program and its cgroup, if it was moved out of Lull's.
    moved: Option<(i32, String)>,
}

impl Supervisor<'_, '_> {
    /// Waits for the program's end, after passing on the signals that arrived before its beginning.
    fn wait_for_end(&mut self, child: &mut Child, early: Vec<i32>) -> Result<Ending> {
        let pid = child.id() as i32;
        self.relay_early(pid, early);
        loop {
            self.relay(pid);
            // Its cgroup is visible until it has been waited for.
            self.moved = moved_to(self.cgroup_access.called(), pid).map(|cgroup| (pid, cgroup));
            if let Some(status) = child.try_wait().map_err(Error::io("wait for the program"))? {
                self.watch.iter_mut().for_each(ProgramWatch::process_reports);
                return Ok(match (status.code(), status.signal()) {
                    (Some(code), _) => Ending::Exited(code),
                    (None, signal) => Ending::Killed(signal.unwrap_or(libc::SIGKILL)),
                });
            }
            stop_with(pid);
            self.watch.iter_mut().for_each(ProgramWatch::process_reports);
            self.wait();
        }
    }

    /// The connections that stayed in the foreground, one line each.
    fn foreground(&self, program: i32) -> Vec<String> {
        let moved = self.moved.iter().map(|(program, cgroup)| {
            format!("process {program}, which was moved to cgroup {cgroup}")
        });
        let rest = match &self.watch {
            Some(watch) => watch.foreground(program),
            None => self.cgroup_access.served_foreground(program),
        };
        moved.chain(rest).collect()
    }

    /// Passes on the signals that came before the program could get them. For signals during the start it is
    /// unknown whether the program got them itself: twice is better than never.
    fn relay_early(&mut self, pid: i32, mut early: Vec<i32>) {
        early.extend(self.signals.queued().map(|received| received.number));
        for number in early {
            let _ = sys::kill(pid, number);
        }
        group_signals::renew(&mut self.detector);
    }

    /// Passes on signals that the program has not received itself.
    fn relay(&mut self, pid: i32) {
        let mut received: Vec<Received> = self.signals.queued().collect();
        if received.is_empty() {
            return;
        }
        thread::sleep(TIMEOUT);
        received.extend(self.signals.queued());
        for number in group_signals::sent_to_us_only(&mut self.detector, &received, pid) {
            let _ = sys::kill(pid, number);
        }
    }

    /// Waits for a signal, the end, or an event.
    fn wait(&self) {
        let mut descriptors = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.process.as_fd(), PollFlags::POLLIN),
        ];
        let watched = self.watch.iter().flat_map(ProgramWatch::descriptors);
        descriptors.extend(watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let _ =
            poll(&mut descriptors, poll_timeout(self.watch.as_ref().and_then(ProgramWatch::pause)));
    }
}

/// When the program is stopped and a shell has to see that, stops this process too, and resumes the program
/// when this process is resumed.
fn stop_with(pid: i32) {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
    let Ok(WaitStatus::Stopped(_, signal)) = waitid(Id::Pid(Pid::from_raw(pid)), flags) else {
        return;
    };
    let own_group = getpgrp();
    let terminal = File::options().read(true).write(true).open("/dev/tty").ok();
    let listening = || sys::foreground_group(terminal.as_ref()?.as_fd()).ok();
    // Like a shell below this process, for itself or for its job.
    let below =
        listening().filter(|&group| group != own_group.as_raw() && descends(group, own_id()));
    let stops = match signal {
        Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => true,
        // bash's `suspend`: the terminal has no owner until a shell above us takes it. Another sender of this
        // signal lets the program continue without informing us.
        Signal::SIGSTOP => below.is_some(),
        _ => false,
    };
    if !stops {
        return;
    }
    let _ = sys::kill(own_id(), libc::SIGSTOP);
    // Here we have been continued, and the program with us unless we alone were, or it has its own group: the
    // shell above us knows only ours.
    if let (Some(terminal), Some(group)) = (&terminal, below)
        && listening() == Some(own_group.as_raw())
    {
        let _ = sys::set_foreground_group(terminal.as_fd(), group);
    }
    let group = getpgid(Some(Pid::from_raw(pid))).ok().filter(|&group| group != own_group);
    let _ = sys::kill(group.map_or(pid, |group| -group.as_raw()), libc::SIGCONT);
}

fn own_id() -> i32 {
    process::id() as i32
}
