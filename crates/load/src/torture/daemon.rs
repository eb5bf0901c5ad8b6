//! An origin or a replica as a process, and its events.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::TortureError;
use super::history::Connections;
use lull_emulator::Host;

/// The longest start of a daemon.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The number of its last lines that are kept.
const LINES: usize = 4;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The events of one machine's daemons.
#[derive(Debug, Default)]
struct DaemonEvents {
    connections: Connections,
    last: VecDeque<String>,
    /// The origin rejects it.
    refused: bool,
    /// How often the wall clocks were too far apart.
    skews: u64,
    /// All its interfaces are open: an origin that stands by has none.
    is_open: bool,
}

/// The folder of programs, and the name of Lull in it.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) file: PathBuf,
}

impl Program {
    /// Lull on a host.
    pub(super) fn on(&self, host: &Host, arguments: &[&str]) -> Command {
        let mut command = host.command(&self.file);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs it to its end; returns its output.
    pub(super) fn finish(&self, host: &Host, arguments: &[&str]) -> Result<String, TortureError> {
        let words = || format!("lull {}", arguments[..2.min(arguments.len())].join(" "));
        let output = self.on(host, arguments).output();
        let output = output.map_err(|source| TortureError::Program { what: words(), source })?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(TortureError::Refused { what: words(), why });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A daemon on its machine: it is started, killed, and started again.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) name: &'static str,
    pub(super) host: Host,
    arguments: Vec<String>,
    /// Variables of its environment.
    environment: Vec<(&'static str, &'static str)>,
    child: Option<Child>,
    begun: Instant,
    told: Arc<Mutex<DaemonEvents>>,
}

impl Daemon {
    /// A daemon that does not run so far. `begun` is when the harness' clock began.
    pub(super) fn new(
        name: &'static str,
        host: &Host,
        arguments: Vec<String>,
        begun: Instant,
    ) -> Self {
        let host = host.clone();
        let environment = Vec::new();
        Daemon { name, host, arguments, environment, child: None, begun, told: Arc::default() }
    }

    /// With these variables in its environment.
    pub(super) fn with(mut self, environment: &[(&'static str, &'static str)]) -> Self {
        self.environment = environment.to_vec();
        self
    }

    /// Starts it, and waits until it answers, or stands by.
    pub(super) fn start(&mut self, program: &Program) -> Result<(), TortureError> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let mut command = program.on(&self.host, &arguments);
        command.envs(self.environment.iter().copied());
        lock(&self.told).is_open = false;
        let spawned = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let what = || format!("lull {}", arguments[..2].join(" "));
        let mut child = spawned.map_err(|source| TortureError::Program { what: what(), source })?;
        let answers = child.stderr.take().map(|stderr| self.listen(stderr));
        self.child = Some(child);
        match answers.map(|answers| answers.recv_timeout(TIMEOUT)) {
            Some(Ok(())) => Ok(()),
            Some(Err(RecvTimeoutError::Timeout)) => {
                let why = format!("does not answer after {} s", TIMEOUT.as_secs());
                Err(TortureError::Daemon { name: self.name, why })
            }
            _ => Err(TortureError::Daemon { name: self.name, why: self.ended() }),
        }
    }

    /// Reads its events; the receiver reports when it answers.
    fn listen(&self, stderr: impl Read + Send + 'static) -> Receiver<()> {
        let (answers, answered) = channel();
        let (told, begun) = (Arc::clone(&self.told), self.begun);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let event = serde_json::from_str::<Value>(&line).ok();
                let event = event.as_ref().and_then(|event| event["event"].as_str());
                let mut told = lock(&told);
                match event {
                    // The last interface to open.
                    Some("http") => {
                        told.is_open = true;
                        let _ = answers.send(());
                    }
                    Some("standby") => drop(answers.send(())),
                    Some("connected") => {
                        told.connections.push((begun.elapsed(), true));
                        told.refused = false;
                    }
                    Some("disconnected") => told.connections.push((begun.elapsed(), false)),
                    Some("refused") => {
                        told.connections.push((begun.elapsed(), false));
                        told.refused = true;
                    }
                    Some("skew") => told.skews += 1,
                    _ => {}
                }
                told.last.push_back(line);
                if told.last.len() > LINES {
                    told.last.pop_front();
                }
            }
        });
        answered
    }

    /// Waits until an origin writes that may have to stand by first.
    pub(super) fn wait_until_open(&mut self) -> Result<(), TortureError> {
        let begun = Instant::now();
        while !lock(&self.told).is_open {
            let why = self.ended_by_itself();
            let is_late = begun.elapsed() > TIMEOUT;
            if let Some(why) = why.or(is_late.then(|| "still stands by".to_owned())) {
                return Err(TortureError::Daemon { name: self.name, why });
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Kills it with -9, and waits until it has ended.
    pub(super) fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        lock(&self.told).connections.push((self.begun.elapsed(), false));
        // It may have just ended.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Whether it has ended without being killed: then its last message.
    pub(super) fn ended_by_itself(&mut self) -> Option<String> {
        let ended = self.child.as_mut()?.try_wait().ok()?.is_some();
        ended.then(|| self.ended())
    }

    fn ended(&self) -> String {
        let told = lock(&self.told);
        let last: Vec<&str> = told.last.iter().map(String::as_str).collect();
        format!("has ended; its last lines: {}", last.join(" "))
    }

    /// Whether the origin rejects it.
    pub(super) fn is_refused(&self) -> bool {
        lock(&self.told).refused
    }

    /// How often it reported that the wall clocks are too far apart.
    pub(super) fn skews(&self) -> u64 {
        lock(&self.told).skews
    }

    /// When it was connected.
    pub(super) fn connections(&self) -> Connections {
        lock(&self.told).connections.clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The file that bends a daemon's clocks.
#[derive(Debug)]
pub(super) struct Clock {
    path: PathBuf,
    parts_per_million: i64,
}

impl Clock {
    /// Clocks that run fast by this much.
    pub(super) fn new(path: &Path, parts_per_million: i64) -> Result<Self, TortureError> {
        let clock = Clock { path: path.to_owned(), parts_per_million };
        clock.set(0)?;
        Ok(clock)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The wall clock is ahead by this many nanoseconds from now on.
    pub(super) fn set(&self, ahead: i64) -> Result<(), TortureError> {
        use std::os::unix::fs::FileExt;
        let said = [ahead.to_le_bytes(), self.parts_per_million.to_le_bytes()].concat();
        // In one write: a daemon that reads it meanwhile sees one or the other.
        let written = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.path)
            .and_then(|file| file.write_all_at(&said, 0));
        written.map_err(|source| TortureError::System { what: "setting a clock", source })
    }
}
