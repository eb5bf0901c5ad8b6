//! Runs a program in the background, in the place of this process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{io, process, thread};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::background::{Background, Choice};
use crate::error::{Error, Result};
use crate::hooks::Requests;
use crate::signals::{Received, Signals};
use crate::witness::{PATIENCE, Witness};
use crate::{cgroup, mend, sys, witness};

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an exit code.
    Exited(i32),
    /// By a signal.
    Killed(i32),
}

/// What the program sent, and how it yielded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// TCP connections that were opened or accepted.
    pub connections: u64,
    /// Those of them that did not take the congestion control.
    pub refused: u64,
    /// Payload sent over TCP, retransmissions included.
    pub tcp_bytes: u64,
    /// Payload sent over UDP, which was not slowed.
    pub udp_bytes: u64,
    /// How long the connections lived, all together.
    pub lived: Duration,
    /// The part of it that was spent yielding; None if the congestion control does not tell.
    pub yielded: Option<Duration>,
}

/// What is to be said of a program that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// From start to end.
    pub elapsed: Duration,
    /// What was counted, or why it cannot be told.
    pub traffic: Result<Traffic, String>,
    /// Processes of the program that go on in the background.
    pub survivors: usize,
    /// What stays in the foreground, one line each: of the sockets that it was given from outside,
    /// and of marks that only system calls can set.
    pub foreground: Vec<String>,
    /// That the program had to leave the cgroup of this process for the background.
    pub left_cgroup: Option<String>,
}

/// A program that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How.
    pub ending: Ending,
    /// What it did.
    pub summary: Summary,
}

/// Runs a program whose TCP connections, its children's included, get what is chosen.
///
/// Standard input and output, the terminal and the process group are ours. Signals to this
/// process go on to the program; those to the whole process group, or to all processes of a
/// service, it gets itself, once. What cannot be told from them is a signal by name to all that
/// are called `lull` or have its command line (`pkill -f`). Children of the program that outlive
/// it stay what they are.
///
/// # Errors
/// Whatever keeps the program from running, or us from waiting for its end, in which case it is
/// killed; no cgroup and nothing loaded is left behind then.
///
/// # Panics
/// If `program` is empty.
pub fn run(program: &[OsString], choice: &Choice) -> Result<Outcome> {
    let signals = Signals::block()?;
    let mut storage = MaybeUninit::uninit();
    let background = Background::set_up(choice, &mut storage)?;
    let result = run_in(&background, program, choice, &signals);
    background.tear_down();
    result
}

fn run_in(
    background: &Background<'_>,
    program: &[OsString],
    choice: &Choice,
    signals: &Signals,
) -> Result<Outcome> {
    // Sockets that the program inherits, from inetd or systemd, were made outside.
    let own = process::id() as i32;
    let inherited = mend::mend_process(own, &choice.congestion, choice.dscp, &mut BTreeSet::new())
        .map_err(Error::io("look through inherited sockets"))?;
    let requests = background.hooks.requests()?;
    if let Some(signal) = signals.ended_early() {
        return Err(Error::Interrupted { signal });
    }
    // Before the program, so that it gets no signal that the witness has missed.
    let witness = Witness::start().ok();
    let started = Instant::now();
    let mut child = spawn(background, program, signals)?;
    let supervised = sys::pidfd_open(child.id() as i32)
        .map_err(Error::io("watch over the program"))
        .and_then(|process| {
            let unmarked = BTreeMap::new();
            let mut supervisor =
                Supervisor { background, choice, signals, requests, process, witness, unmarked };
            let ending = supervisor.attend(&mut child)?;
            Ok((ending, supervisor.unmarked))
        });
    let (ending, unmarked) = match supervised {
        Ok(supervised) => supervised,
        Err(error) => {
            // Nobody would hand its signals on, nor learn how it ended.
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
    };
    let elapsed = started.elapsed();
    let unmarked = unmarked.into_iter().map(|(pid, error)| {
        format!("the DSCP of IPv4 connections of IPv6 sockets of process {pid}: {error}")
    });
    let left_cgroup = background
        .why_outside
        .as_ref()
        .map(|why| cgroup::left("the program", &background.hierarchy.own(), why));
    let summary = Summary {
        elapsed,
        // Whoever runs a program through us wants to know first how it ended.
        traffic: traffic(background).map_err(|error| error.to_string()),
        survivors: background.cgroup.processes().len(),
        foreground: inherited.foreground().into_iter().chain(unmarked).collect(),
        left_cgroup,
    };
    Ok(Outcome { ending, summary })
}

fn traffic(background: &Background<'_>) -> Result<Traffic> {
    let counters = background.hooks.counters()?;
    Ok(Traffic {
        connections: counters.connections,
        refused: counters.refused,
        tcp_bytes: counters.tcp_bytes,
        udp_bytes: counters.udp_bytes,
        lived: counters.lived,
        yielded: background.hooks.knows_yielding.then_some(counters.yielded),
    })
}

fn spawn(background: &Background<'_>, program: &[OsString], signals: &Signals) -> Result<Child> {
    let (name, arguments) = program.split_first().expect("a program has a name");
    let mut command = Command::new(name);
    command.args(arguments);
    let procs = background.cgroup.procs()?;
    sys::enter_before_exec(&mut command, procs, signals.mask, signals.child);
    command.spawn().map_err(|source| {
        let program = name.to_string_lossy().into_owned();
        if let Some(source) = sys::setup_error(&source) {
            return Error::Io { what: "put the program into its cgroup".to_owned(), source };
        }
        if source.kind() == io::ErrorKind::NotFound {
            return Error::ProgramNotFound { program };
        }
        Error::ProgramNotExecutable { program, source }
    })
}

/// Stands between the program and those who started it.
struct Supervisor<'run, 'obj> {
    background: &'run Background<'obj>,
    choice: &'run Choice,
    signals: &'run Signals,
    requests: Requests<'run>,
    /// Readable when the program has ended.
    process: OwnedFd,
    witness: Option<Witness>,
    /// The processes with sockets that could not be marked, and why.
    unmarked: BTreeMap<i32, io::Error>,
}

impl Supervisor<'_, '_> {
    /// Waits for the program's end.
    fn attend(&mut self, child: &mut Child) -> Result<Ending> {
        let pid = child.id() as i32;
        // A program with thousands of sockets must not keep us busy with them alone.
        let mut rest_until = Instant::now();
        loop {
            self.relay(pid);
            if let Some(status) = child.try_wait().map_err(Error::io("wait for the program"))? {
                return Ok(match (status.code(), status.signal()) {
                    (Some(code), _) => Ending::Exited(code),
                    (None, signal) => Ending::Killed(signal.unwrap_or(libc::SIGKILL)),
                });
            }
            stop_with(pid);
            let now = Instant::now();
            if now >= rest_until && self.requests.take() {
                self.mark_mapped();
                rest_until = Instant::now() + 10 * now.elapsed();
            }
            self.wait(rest_until);
        }
    }

    /// Hands signals on to the program that it has not got itself.
    fn relay(&mut self, pid: i32) {
        let mut received: Vec<Received> = self.signals.queued().collect();
        if received.is_empty() {
            return;
        }
        thread::sleep(PATIENCE);
        received.extend(self.signals.queued());
        for number in witness::for_us_alone(&mut self.witness, &received, pid) {
            let _ = sys::kill(pid, number);
        }
    }

    /// Until there is a signal, the end, or a request.
    fn wait(&self, rest_until: Instant) {
        let rest = rest_until.saturating_duration_since(Instant::now());
        let requests = sys::borrow(self.requests.raw_fd(), &self.requests);
        let mut descriptors = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.process.as_fd(), PollFlags::POLLIN),
        ];
        let timeout = if rest.is_zero() {
            descriptors.push(PollFd::new(requests, PollFlags::POLLIN));
            PollTimeout::NONE
        } else {
            let milliseconds = rest.as_millis().clamp(1, 1000);
            PollTimeout::from(milliseconds as u16)
        };
        let _ = poll(&mut descriptors, timeout);
    }

    fn mark_mapped(&mut self) {
        let Some(class) = self.choice.dscp.traffic_class() else { return };
        for pid in self.background.cgroup.processes() {
            match mend::mark_mapped(pid, class) {
                Err(error) if !mend::has_ended(&error) => self.unmarked.insert(pid, error),
                _ => self.unmarked.remove(&pid),
            };
        }
    }
}

/// When the terminal stops the program, stops us too, so that the shell sees it.
fn stop_with(pid: i32) {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
    let Ok(WaitStatus::Stopped(_, signal)) = waitid(Id::Pid(Pid::from_raw(pid)), flags) else {
        return;
    };
    if matches!(signal, Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU) {
        let _ = sys::kill(process::id() as i32, libc::SIGSTOP);
        // Here we have been continued, and the program with us unless we alone were.
        let _ = sys::kill(pid, libc::SIGCONT);
    }
}
