//! Groups of external programs.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use serde_json::Value;

use super::reported::without_folders;
use super::{Placed, TrafficError, Work};

/// How long a program may take to end after a termination request.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A started program, and its error output.
#[derive(Debug)]
struct Program {
    group: String,
    name: String,
    child: Child,
    errors: File,
    /// Its standard output, if that is its report.
    output: Option<File>,
    /// When it ended.
    ended: Arc<OnceLock<Instant>>,
}

/// The programs of a cell. Running ones end with this.
#[derive(Debug)]
pub struct Programs {
    groups: Vec<Placed>,
    running: Vec<(usize, Program)>,
    /// When each group started, if it has.
    began: Vec<Option<Instant>>,
    servers: Vec<Program>,
    environment: Vec<(String, String)>,
    lull: PathBuf,
}

impl Programs {
    /// Starts the servers of all groups; `lull` is the program that runs others in the background.
    pub fn start(
        groups: Vec<Placed>,
        environment: Vec<(String, String)>,
        lull: &Path,
    ) -> Result<Self, TrafficError> {
        let mut programs = Programs {
            began: vec![None; groups.len()],
            groups,
            running: Vec::new(),
            servers: Vec::new(),
            environment,
            lull: lull.to_owned(),
        };
        for placed in programs.groups.clone() {
            if let Work::Command { server, .. } = &placed.work
                && let Some((program, arguments)) = server.split_first()
            {
                let mut command = placed.to.command(program);
                command.args(arguments);
                placed.set_control_variable(&mut command);
                let server = programs.spawn(&placed, command, false)?;
                programs.servers.push(server);
            }
        }
        Ok(programs)
    }

    fn spawn(
        &self,
        placed: &Placed,
        mut command: Command,
        reports: bool,
    ) -> Result<Program, TrafficError> {
        let group = placed.name.clone();
        let name = command.get_program().to_string_lossy().into_owned();
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let file = |name| -> io::Result<File> {
            Ok(File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?))
        };
        let mut spawn = || -> io::Result<(Child, File, Option<File>)> {
            let errors = file(c"errors")?;
            let output = reports.then(|| file(c"output")).transpose()?;
            let stdout = match &output {
                Some(output) => output.try_clone()?.into(),
                None => Stdio::null(),
            };
            command.stdin(Stdio::null()).stdout(stdout).stderr(errors.try_clone()?);
            Ok((command.spawn()?, errors, output))
        };
        match spawn() {
            Ok((child, errors, output)) => {
                let ended = watched(Pid::from_raw(child.id() as i32));
                Ok(Program { group, name, child, errors, output, ended })
            }
            Err(source) => Err(TrafficError::Program { group, program: name, source }),
        }
    }

    /// Starts a group, by its number in the list given to [`Programs::start`].
    pub fn begin(&mut self, group: usize) -> Result<(), TrafficError> {
        let placed = self.groups[group].clone();
        let Work::Command { program, background, report, .. } = &placed.work else {
            return Ok(());
        };
        self.began[group] = Some(Instant::now());
        for _ in 0..placed.count {
            let mut command = if *background {
                let mut command = placed.from.command(&self.lull);
                command.args(["exec", "--quiet"]).args(choice(&placed.control.to_string_lossy()));
                command.arg("--").args(program);
                command
            } else {
                let (name, arguments) = program.split_first().expect("a group has a program");
                let mut command = placed.from.command(name);
                command.args(arguments);
                command
            };
            placed.set_control_variable(&mut command);
            let program = self.spawn(&placed, command, *report)?;
            self.running.push((group, program));
        }
        Ok(())
    }

    /// When the last program of an active group had ended, and how long after the group's start; none while
    /// one of them runs.
    pub fn completed(&self, group: usize) -> Option<(Instant, Duration)> {
        let own = self.running.iter().filter(|(other, _)| *other == group);
        let ends = own.map(|(_, program)| program.ended.get().copied());
        let last = ends.collect::<Option<Vec<Instant>>>()?.into_iter().max()?;
        Some((last, last.saturating_duration_since(self.began[group]?)))
    }

    /// The report of a group's last program, if it reports and has ended.
    pub fn report(&self, group: usize) -> Option<Value> {
        let (_, program) = self.running.iter().rfind(|(other, _)| *other == group)?;
        program.ended.get()?;
        Some(without_folders(program.report()?, &self.environment))
    }

    /// Ends a group.
    ///
    /// # Errors
    /// [`TrafficError::Failed`] if one of its programs, or one of the servers, had failed without being
    /// ended.
    pub fn end(&mut self, group: usize) -> Result<(), TrafficError> {
        let (mut ended, running): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.running).into_iter().partition(|(other, _)| *other == group);
        self.running = running;
        let own = ended.iter_mut().map(|(_, program)| program.check());
        let all = own.chain(self.servers.iter_mut().map(Program::check));
        let result = all.collect::<Result<(), TrafficError>>();
        for (_, program) in &mut ended {
            program.stop();
        }
        result
    }
}

impl Placed {
    /// Passes the kernel's name of the group's congestion control to a program, if there is one.
    fn set_control_variable(&self, command: &mut Command) {
        if !self.control.is_empty() {
            command.env("LULL_CONTROL", &*self.control.to_string_lossy());
        }
    }
}

/// The options of `lull exec` for a congestion control.
fn choice(control: &str) -> Vec<&str> {
    match control {
        // The setting of `lull exec` in the plans of the paper on TCP Nice.
        "" => vec!["--cc", "nice"],
        // Such plans test whether the network honours its mark.
        "background" => vec!["--cc", control, "--network-honours-le"],
        _ => vec!["--cc", control],
    }
}

impl Program {
    /// Checks that it runs, or has done its work.
    fn check(&mut self) -> Result<(), TrafficError> {
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => Err(self.failure(status)),
            Ok(Some(_)) if self.output.is_some() && self.report().is_none() => {
                Err(TrafficError::Failed {
                    group: self.group.clone(),
                    program: self.name.clone(),
                    why: "its output is not a JSON object".to_owned(),
                })
            }
            _ => Ok(()),
        }
    }

    /// The JSON object from its output.
    fn report(&self) -> Option<Value> {
        let mut output = self.output.as_ref()?;
        let mut text = String::new();
        output.rewind().and_then(|()| output.read_to_string(&mut text)).ok()?;
        serde_json::from_str(&text).ok().filter(Value::is_object)
    }

    fn failure(&mut self, status: ExitStatus) -> TrafficError {
        let mut said = String::new();
        // Unreadable output is not quoted.
        let _ = self.errors.rewind().and_then(|()| self.errors.read_to_string(&mut said));
        let last =
            said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
        TrafficError::Failed {
            group: self.group.clone(),
            program: self.name.clone(),
            why: format!("{status}: {last}"),
        }
    }

    /// Ends and reaps it.
    fn stop(&mut self) {
        // `lull exec` passes it on to its program; SIGKILL would leave that behind.
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let step = Duration::from_millis(10);
        for _ in 0..TIMEOUT.as_millis() / step.as_millis() {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(step);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a child in a separate thread, without reaping it, which is left to its parent.
fn watched(child: Pid) -> Arc<OnceLock<Instant>> {
    let ended = Arc::new(OnceLock::new());
    let to_be_set = Arc::clone(&ended);
    let wait = move || {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while waitid(Id::Pid(child), flags) == Err(nix::errno::Errno::EINTR) {}
        // It is not set elsewhere.
        let _ = to_be_set.set(Instant::now());
    };
    // Without the thread its end is unknown; it still produces traffic.
    let _ = thread::Builder::new().name("child".to_owned()).spawn(wait);
    ended
}

impl Drop for Programs {
    fn drop(&mut self) {
        let running = self.running.iter_mut().map(|(_, program)| program);
        running.chain(&mut self.servers).for_each(Program::stop);
    }
}
