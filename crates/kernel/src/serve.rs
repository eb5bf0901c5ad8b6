//! Backgrounds for users without the rights of root: a server makes them.
//!
//! The socket's permissions control access. A client asks for one thing: that its own process be moved into a
//! background. The server takes the process from the kernel (SO_PEERCRED, SO_PEERPIDFD), never from the
//! client. It stops the process meanwhile, so that no other one can take its number. The background is inside
//! the cgroup of the process, so its limits hold. Nice or Lull runs in it.
//!
//! The socket carries lines of text. `background 1 le lull` is a request, with the settings of [`request`]; the answer
//! is `ok 0 PATH` with the cgroup, or `no WHY`. `job pause JOB` changes a job of the same user. Later `counters` requests its numbers, and `foreground PID`
//! requests lines that end with an empty one, without moving that process. `snapshot` requests the background
//! of the machine as one line of JSON instead, without the data of other users that this user must not see.
//! The background ends when the client has disconnected and has no processes in it.

mod client;
mod paused_client;
mod request;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Group, chown};

pub use client::check_access;
pub(crate) use client::{Access, Served, access, ask_for_change, ask_for_snapshot};
pub(crate) use request::JobChange;

use crate::background::{Background, Choice};
use crate::constants::PathTable;
use crate::delegation::Delegation;
use crate::error::{Error, Result};
use crate::job_control::{pause, resume};
use crate::jobs::{self, Job};
use crate::parameters::Parameters;
use crate::program_watch::{ProgramWatch, poll_timeout};
use crate::schedule::{AllowedHours, PERIOD};
use crate::{machine, reaper, snapshot, sys};
use paused_client::{PausedClient, has_rights_of};

/// The default socket of the server.
pub const SOCKET: &str = "/run/lull.sock";

/// The version of the lines.
const VERSION: u32 = 1;

/// A congestion control by name, and its parameters.
type Offer = (&'static str, fn() -> Parameters);

/// The congestion controls that a client may choose; the first one is the default.
const CONGESTIONS: [Offer; 2] =
    [("nice", Parameters::default), ("lull", || Parameters::lull(PathTable::default(), false))];

/// The longest line of a client.
const MAX_LINE_BYTES: u64 = 256;

/// How long a client may take to send its first line.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks for the background of the machine.
const SNAPSHOT: &str = "snapshot 1";

/// How many concurrent backgrounds one user, and all users together, may have.
const MAX_PER_USER: usize = 32;
const MAX_BACKGROUNDS: usize = 256;

/// Serves the members of a group until it is killed. A socket from systemd is used unchanged.
///
/// # Errors
/// [`Error::NoGroup`], or the error that prevents listening.
pub fn serve(socket: &Path, group: &str) -> Result<()> {
    machine::check_privilege("lull kernel serve")?;
    machine::check_kernel()?;
    let listener = match sys::inherited_socket() {
        Some(listener) => UnixListener::from(listener),
        None => listen(socket, group)?,
    };
    let users = Arc::new(Mutex::new(HashMap::new()));
    for stream in listener.incoming() {
        let (Ok(stream), users) = (stream, Arc::clone(&users)) else { continue };
        thread::spawn(move || {
            let mut stream = stream;
            if let Err(error) = handle_client(&mut stream, &users) {
                let _ = writeln!(stream, "no {}", error.to_string().replace('\n', " "));
            }
        });
    }
    Ok(())
}

/// Makes the socket, for root and a group.
fn listen(socket: &Path, group: &str) -> Result<UnixListener> {
    let found = Group::from_name(group).map_err(Error::errno("read the groups"))?;
    let found = found.ok_or_else(|| Error::NoGroup { group: group.to_owned() })?;
    // A socket without a listener was left by a killed server.
    if UnixStream::connect(socket).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
        let _ = fs::remove_file(socket);
    }
    let what = || format!("listen at {}", socket.display());
    let before = umask(Mode::from_bits_truncate(0o177));
    let listener = UnixListener::bind(socket);
    umask(before);
    let listener = listener.map_err(Error::io(what()))?;
    chown(socket, None, Some(found.gid)).map_err(Error::errno(what()))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o660);
    fs::set_permissions(socket, mode).map_err(Error::io(what()))?;
    Ok(listener)
}

type Users = Mutex<HashMap<u32, usize>>;

/// One of the backgrounds of a user, returned when it is dropped.
struct UserSlot<'users> {
    users: &'users Users,
    uid: u32,
}

impl<'users> UserSlot<'users> {
    fn take(users: &'users Users, uid: u32) -> Result<Self, io::Error> {
        let mut counts = users.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let all: usize = counts.values().sum();
        let of_user = counts.entry(uid).or_default();
        if *of_user >= MAX_PER_USER || all >= MAX_BACKGROUNDS {
            let text = format!("{of_user} programs of this user and {all} of all are running");
            return Err(io::Error::other(format!("{text}: wait until some have ended")));
        }
        *of_user += 1;
        Ok(UserSlot { users, uid })
    }
}

impl Drop for UserSlot<'_> {
    fn drop(&mut self) {
        let mut counts = self.users.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.uid) {
            *count -= 1;
        }
        counts.retain(|_, &mut count| count > 0);
    }
}

fn handle_client(stream: &mut UnixStream, users: &Users) -> Result<()> {
    let asking = || Error::io("ask the kernel for the client");
    let peer = getsockopt(stream, sockopt::PeerCredentials).map_err(|e| asking()(e.into()))?;
    let process = sys::peer_pidfd(stream.as_fd()).map_err(asking())?;
    let _slot = UserSlot::take(users, peer.uid()).map_err(Error::io("serve another program"))?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(asking())?;
    let copy = stream.try_clone().map_err(asking())?;
    let mut lines = Lines(BufReader::new(copy));
    let request = lines.next().unwrap_or_default();
    if request == SNAPSHOT {
        return send_snapshot(stream, peer.uid());
    }
    if let Some((change, job)) = JobChange::parse(&request) {
        change_job(peer.uid(), change, job)?;
        return writeln!(stream, "ok").map_err(Error::io("answer the client"));
    }
    let Some(choice) = request::parse(&request) else {
        let text = "its protocol has another version: install the same release of lull";
        return Err(asking()(io::Error::other(text)));
    };
    // The process keeps its id while this value exists.
    let paused = PausedClient::pause(peer.pid(), peer.uid(), process.as_fd())?;
    let mut storage = MaybeUninit::uninit();
    let background = Background::set_up_around(&choice, &mut storage, peer.pid())?;
    let moved = background.cgroup.admit(peer.pid());
    drop(paused);
    let mut hours = choice.hours.map(AllowedHours::new);
    let result = moved.and_then(|()| answer(&background, &choice, stream, lines, &mut hours));
    wait_until_empty(&background, hours);
    background.tear_down();
    result
}

/// Waits for processes that go on after their client, within their allowed hours.
fn wait_until_empty(background: &Background<'_>, hours: Option<AllowedHours>) {
    let called = background.cgroup.called();
    if let Some(mut hours) = hours {
        while !background.hierarchy.processes_of(called).is_empty() {
            hours.check(|job| job.cgroup == called);
            thread::sleep(PERIOD);
        }
    }
    if let Some(events) = background.hierarchy.events_of(called) {
        reaper::wait_until_empty(events);
    }
}

/// Pauses or resumes a job whose processes all have the rights of this user.
fn change_job(uid: u32, change: JobChange, job: &str) -> Result<()> {
    let (_, found) = jobs::find(job)?;
    let is_of_user = |job: &Job| job.processes.iter().all(|&pid| has_rights_of(pid, uid));
    if found.is_slice || found.processes.is_empty() || !is_of_user(&found) {
        return Err(Error::JobOfOther { job: job.to_owned() });
    }
    match change {
        JobChange::Resume => resume(&found.id).map(|_| ()),
        JobChange::Pause => {
            pause(&found.id)?;
            // A process may have got other rights since they were read. Frozen ones get none.
            let (_, frozen) = jobs::find(&found.id)?;
            if is_of_user(&frozen) {
                return Ok(());
            }
            resume(&found.id)?;
            Err(Error::JobOfOther { job: job.to_owned() })
        }
    }
}

/// Sends the background of the machine, as far as a user may see it.
fn send_snapshot(stream: &mut UnixStream, uid: u32) -> Result<()> {
    let snapshot = snapshot::read_all()?.for_user(uid);
    let text =
        serde_json::to_string(&snapshot).map_err(|error| Error::io("write JSON")(error.into()))?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(Error::io("answer the client"))?;
    writeln!(stream, "ok {text}").map_err(Error::io("answer the client"))
}

/// Answers a client in the background until it disconnects, and watches the background.
fn answer(
    background: &Background<'_>,
    choice: &Choice,
    stream: &mut UnixStream,
    mut lines: Lines,
    hours: &mut Option<AllowedHours>,
) -> Result<()> {
    let answering = || Error::io("answer the client");
    let cgroup = &background.cgroup;
    let mut storage = [const { MaybeUninit::uninit() }; 2];
    let delegation = Delegation::watch(&mut storage, cgroup.as_fd(), cgroup.id());
    let mut watch = ProgramWatch::new(background, choice, delegation.as_ref(), BTreeSet::new())?;
    let hooks = &background.hooks;
    let knows = u8::from(hooks.knows_yielding) | u8::from(hooks.slows_received()) << 1;
    writeln!(stream, "ok {knows} {}", cgroup.called().display()).map_err(answering())?;
    loop {
        let mut descriptors = vec![PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
        let watched = watch.descriptors().into_iter();
        descriptors.extend(watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let pause = watch.pause();
        let pause =
            if hours.is_some() { Some(pause.map_or(PERIOD, |it| it.min(PERIOD))) } else { pause };
        let _ = poll(&mut descriptors, poll_timeout(pause));
        let is_asked = descriptors[0].any().unwrap_or(true);
        drop(descriptors);
        watch.process_reports();
        if let Some(hours) = hours {
            hours.check(|job| job.cgroup == cgroup.called());
        }
        if !is_asked {
            continue;
        }
        let Some(line) = lines.next() else { return Ok(()) };
        let text = match line.strip_prefix("foreground ").map(str::parse) {
            Some(Ok(program)) => {
                watch.foreground(program).into_iter().map(|line| line + "\n").collect()
            }
            _ if line == "counters" => {
                background.hooks.counters()?.to_words().map(|word| word.to_string()).join(" ")
            }
            _ => return Ok(()),
        };
        writeln!(stream, "{text}").map_err(answering())?;
    }
}

/// The lines of a client, up to its end or one that is too long.
struct Lines(BufReader<UnixStream>);

impl Lines {
    fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        io::Read::take(&mut self.0, MAX_LINE_BYTES).read_line(&mut line).ok()?;
        line.strip_suffix('\n').map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_has_a_limited_number_of_backgrounds() {
        let users = Users::default();
        let slots: Vec<_> = (0..MAX_PER_USER).map(|_| UserSlot::take(&users, 1).unwrap()).collect();
        assert!(UserSlot::take(&users, 1).is_err());
        assert!(UserSlot::take(&users, 2).is_ok());
        drop(slots);
        assert!(users.lock().unwrap().is_empty());
        assert!(UserSlot::take(&users, 1).is_ok());
    }
}
