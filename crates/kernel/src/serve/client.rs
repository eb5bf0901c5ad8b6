//! The user's side.

use std::cell::RefCell;
use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use super::request::{self, JobChange};
use super::{SNAPSHOT, SOCKET, TIMEOUT};
use crate::background::Choice;
use crate::cgroup::Hierarchy;
use crate::error::{Error, Result};
use crate::hooks::Counters;
use crate::jobs::check_name;
use crate::machine;
use crate::snapshot::Snapshot;

/// The background that a server has moved this process into. It exists at least as long as this value.
pub(crate) struct Served {
    stream: RefCell<BufReader<UnixStream>>,
    socket: PathBuf,
    cgroup: PathBuf,
    knows_yielding: bool,
    slows_received: bool,
}

impl Served {
    /// Asks the server for a background.
    ///
    /// # Errors
    /// `missing`, the rights that a background without a server needs, if there is no server;
    /// [`Error::NotInGroup`], [`Error::Refused`].
    pub(crate) fn ask(choice: &Choice, missing: Error) -> Result<Self> {
        let socket = socket();
        let stream = match UnixStream::connect(&socket) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Error::NotInGroup { socket });
            }
            Err(_) => return Err(with_server(missing)),
        };
        let refused = |why: &str| Error::Refused { socket: socket.clone(), why: why.to_owned() };
        let request = request::to_line(choice).map_err(refused)?;
        if let Some(name) = &choice.name {
            check_name(name)?;
        }
        let stream = RefCell::new(BufReader::new(stream));
        let answer = exchange(&stream, &request).map_err(|error| refused(&error.to_string()))?;
        let Some((knows, cgroup)) = answer.strip_prefix("ok ").and_then(|ok| ok.split_once(' '))
        else {
            return Err(refused(answer.strip_prefix("no ").unwrap_or("it does not answer")));
        };
        let knows: u8 = knows.parse().unwrap_or(0);
        let (knows_yielding, slows_received) = (knows & 1 != 0, knows & 2 != 0);
        let cgroup = PathBuf::from(cgroup);
        Ok(Served { stream, socket, cgroup, knows_yielding, slows_received })
    }

    /// The cgroup, by its name in `/proc/PID/cgroup`.
    pub(crate) fn called(&self) -> &Path {
        &self.cgroup
    }

    /// Its processes except this one.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let own = std::process::id() as i32;
        let mut processes = Hierarchy::open()
            .map(|hierarchy| hierarchy.processes_of(&self.cgroup))
            .unwrap_or_default();
        processes.retain(|&pid| pid != own);
        processes
    }

    /// The foreground connections that the server has seen, without the move of `program` itself.
    pub(crate) fn foreground(&self, program: i32) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = exchange(&self.stream, &format!("foreground {program}"));
        while let Ok(text) = line
            && !text.is_empty()
        {
            lines.push(text);
            line = next_line(&mut self.stream.borrow_mut());
        }
        lines
    }

    /// Whether received traffic yields.
    pub(crate) fn slows_received(&self) -> bool {
        self.slows_received
    }

    /// The counters of the hooks, and whether they measure yielding.
    pub(crate) fn counters(&self) -> Result<(Counters, bool)> {
        let lost = |why: &str| Error::Refused { socket: self.socket.clone(), why: why.to_owned() };
        let line = exchange(&self.stream, "counters").map_err(|error| lost(&error.to_string()))?;
        let words: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let words = words.try_into().map_err(|_| lost("it gives no counters"))?;
        Ok((Counters::from_words(words), self.knows_yielding))
    }
}

/// The socket of a server: the path in the environment variable LULL_SOCKET, or the default.
fn socket() -> PathBuf {
    env::var_os("LULL_SOCKET").map_or_else(|| PathBuf::from(SOCKET), PathBuf::from)
}

/// Whether this user may use a server.
#[derive(Debug)]
pub(crate) enum Access {
    /// It listens at this socket.
    Granted(PathBuf),
    /// It is for other users.
    Denied(PathBuf),
    /// None listens.
    NoServer,
}

/// Asks the server to change a job of this user. `None` if there is no server that this user may use.
///
/// # Errors
/// [`Error::Refused`], as for jobs of other users.
pub(crate) fn ask_for_change(change: JobChange, job: &str) -> Option<Result<()>> {
    let Access::Granted(socket) = access() else { return None };
    let refused = |why: &str| Error::Refused { socket: socket.clone(), why: why.to_owned() };
    let ask = || -> io::Result<String> {
        let stream = UnixStream::connect(&socket)?;
        stream.set_read_timeout(Some(2 * TIMEOUT))?;
        exchange(&RefCell::new(BufReader::new(stream)), &change.to_line(job))
    };
    Some(match ask() {
        Ok(answer) if answer == "ok" => Ok(()),
        Ok(answer) => Err(refused(answer.strip_prefix("no ").unwrap_or("it does not answer"))),
        Err(error) => Err(refused(&error.to_string())),
    })
}

/// Checks that this process can put programs into the background: by its own rights, or by a server.
///
/// # Errors
/// If both are missing; the error names the missing right.
pub fn check_access() -> Result<()> {
    let Err(missing) = machine::check_privilege("lull exec") else { return Ok(()) };
    match access() {
        Access::Granted(_) => Ok(()),
        Access::Denied(socket) => Err(Error::NotInGroup { socket }),
        Access::NoServer => Err(with_server(missing)),
    }
}

/// Tries to connect to a server.
pub(crate) fn access() -> Access {
    let socket = socket();
    match UnixStream::connect(&socket) {
        Ok(_) => Access::Granted(socket),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Access::Denied(socket),
        Err(_) => Access::NoServer,
    }
}

/// The background of this machine as the server shows it; `None` if no server can be reached.
///
/// # Errors
/// [`Error::Refused`], as by a server of an older version.
pub(crate) fn ask_for_snapshot() -> Result<Option<Snapshot>> {
    let Access::Granted(socket) = access() else { return Ok(None) };
    let refused = |why: &str| Error::Refused { socket: socket.clone(), why: why.to_owned() };
    let ask = || -> io::Result<String> {
        let stream = UnixStream::connect(&socket)?;
        stream.set_read_timeout(Some(2 * TIMEOUT))?;
        exchange(&RefCell::new(BufReader::new(stream)), SNAPSHOT)
    };
    let answer = ask().map_err(|error| refused(&error.to_string()))?;
    let Some(text) = answer.strip_prefix("ok ") else {
        return Err(refused(answer.strip_prefix("no ").unwrap_or("it does not answer")));
    };
    serde_json::from_str(text).map(Some).map_err(|error| refused(&error.to_string()))
}

/// A lack of rights, with the server as another remedy.
fn with_server(mut missing: Error) -> Error {
    if let Error::Permission { remedy, .. } = &mut missing
        && !Uid::effective().is_root()
    {
        *remedy = "run it as root, or have an administrator start 'lull kernel serve'";
    }
    missing
}

fn exchange(stream: &RefCell<BufReader<UnixStream>>, question: &str) -> io::Result<String> {
    let mut stream = stream.borrow_mut();
    writeln!(stream.get_mut(), "{question}")?;
    next_line(&mut stream)
}

fn next_line(stream: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}
