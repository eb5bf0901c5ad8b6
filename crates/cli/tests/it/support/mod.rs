//! The common parts of the command's tests.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The binary under test.
pub(crate) const LULL: &str = env!("CARGO_BIN_EXE_lull");

/// The longest single command of a test.
const LIMIT: Duration = Duration::from_secs(120);

/// A program beside the tests.
pub(crate) fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// A file of sample data beside the tests.
pub(crate) fn sample(folder: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(folder).join(name)
}

/// `lull` with arguments.
pub(crate) fn lull(arguments: &[&str]) -> Command {
    let mut command = Command::new(LULL);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A shell script, in which `$LULL` is the binary and `$1` and so on are the arguments.
pub(crate) fn shell(script: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).args(arguments).env("LULL", LULL).stdin(Stdio::null());
    command
}

/// The same in separate mount and process namespaces, where it is the first process and may mount and unmount
/// freely.
pub(crate) fn private_shell(script: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["sh", "-c", script, "sh"])
        .args(arguments)
        .env("LULL", LULL)
        .stdin(Stdio::null());
    command
}

/// A name for a congestion control that is unique among tests.
pub(crate) fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("t{}_{count}", std::process::id())
}

/// Whether a test made this name by [`unique_name`].
pub(crate) fn is_unique_name(name: &str) -> bool {
    let parts = name.strip_prefix('t').and_then(|rest| rest.split_once('_'));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.is_some_and(|(id, count)| is_number(id) && is_number(count))
}

/// Runs a command to its end, which must come soon.
pub(crate) fn finish(command: &mut Command) -> Said {
    finish_within(command, LIMIT)
}

/// Runs a command to its end, which must come within a time.
pub(crate) fn finish_within(command: &mut Command, limit: Duration) -> Said {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let pid = child.id().to_string();
    let started = Instant::now();
    let waiting = thread::spawn(move || child.wait_with_output());
    while !waiting.is_finished() {
        if started.elapsed() > limit {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
            panic!("{command:?} took longer than {limit:?}");
        }
        thread::sleep(Duration::from_millis(2));
    }
    Said::new(waiting.join().unwrap().unwrap())
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    fn new(output: Output) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Said { status: output.status, out: text(&output.stdout), err: text(&output.stderr) }
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Asserts success and returns the output.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert!(self.status.success(), "{self:?}");
        self.out
    }

    /// Asserts failure with a code and one line of explanation that contains `words`.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, words: &str) {
        assert_eq!(self.code(), Some(code), "{self:?}");
        assert_eq!(self.err.trim_end().lines().count(), 1, "{self:?}");
        assert!(self.err.starts_with("lull: "), "{self:?}");
        assert!(self.err.contains(words), "no '{words}' in {self:?}");
    }
}

/// A congestion control of Lull with a unique name, unloaded at the end.
#[derive(Debug)]
pub(crate) struct Variant(pub(crate) String);

impl Variant {
    pub(crate) fn load(arguments: &[&str]) -> Self {
        let name = unique_name();
        finish(lull(&["kernel", "load", "--name", &name]).args(arguments)).ok();
        Variant(name)
    }

    /// A name that is not loaded; if it gets loaded, it is unloaded at the end.
    pub(crate) fn unloaded() -> Self {
        Variant(unique_name())
    }

    /// Whether the kernel has it.
    pub(crate) fn is_loaded(&self) -> bool {
        fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
            .unwrap()
            .split_whitespace()
            .any(|name| name == self.0)
    }

    /// Its entry in `lull kernel status --json`.
    pub(crate) fn status(&self) -> Option<serde_json::Value> {
        let text = finish(&mut lull(&["kernel", "status", "--json"])).ok();
        let all: serde_json::Value = serde_json::from_str(&text).unwrap();
        all.as_array().unwrap().iter().find(|status| status["name"] == self.0.as_str()).cloned()
    }

    /// The cgroups with its name.
    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        cgroups(&format!("lull.{}.", self.0))
    }
}

impl Drop for Variant {
    fn drop(&mut self) {
        let _ = lull(&["kernel", "unload", "--force", "--name", &self.0])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// The mount point of cgroup v2.
pub(crate) fn cgroup_root() -> PathBuf {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let root = mountinfo
        .lines()
        .find(|line| line.contains(" - cgroup2 "))
        .and_then(|line| line.split(' ').nth(4))
        .expect("cgroup v2 is mounted");
    PathBuf::from(root)
}

/// The cgroups whose names have this prefix.
pub(crate) fn cgroups(prefix: &str) -> Vec<PathBuf> {
    fn walk(directory: &Path, prefix: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)) {
                    found.push(entry.path());
                }
                walk(&entry.path(), prefix, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(&cgroup_root(), prefix, &mut found);
    found
}

/// A cgroup like one of systemd's, removed at the end.
#[derive(Debug)]
pub(crate) struct Service(pub(crate) PathBuf);

impl Service {
    pub(crate) fn make() -> Self {
        let service = Service(cgroup_root().join(unique_name()));
        fs::create_dir(&service.0).unwrap();
        service
    }

    pub(crate) fn name(&self) -> String {
        format!("/{}", self.0.file_name().unwrap().to_str().unwrap())
    }

    /// Attaches a BPF program that returns a value; see `attach.py`.
    pub(crate) fn attach(&self, kind: u32, attachment: u32, flags: u32, value: u32) {
        let mut command = Command::new("python3");
        command.arg(program("attach.py")).arg(&self.0);
        let numbers = [kind, attachment, flags, value].map(|number| number.to_string());
        finish(command.args(numbers)).ok();
    }

    pub(crate) fn take(&self, pid: &str) {
        fs::write(self.0.join("cgroup.procs"), pid).unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        for inside in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(inside.path());
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// The cgroup of a process, below its mount point.
pub(crate) fn cgroup_of(pid: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned()
}

/// A child that is killed at the end of the test in any case.
#[derive(Debug)]
pub(crate) struct Kept(pub(crate) Child);

impl Kept {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Kept(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// A Python program that reads its standard input and has printed "ready"; with its further output.
    pub(crate) fn ready(script: &str) -> (Self, Lines<BufReader<ChildStdout>>) {
        let mut command = Command::new("python3");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut kept = Kept::spawn(&mut command);
        let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        (kept, lines)
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a condition holds, with the usual limit.
#[track_caller]
pub(crate) fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    eventually_within(Duration::from_secs(120), what, is_so);
}

/// Waits until a condition holds, within a time.
#[track_caller]
pub(crate) fn eventually_within(time: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < time, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs.
pub(crate) fn runs(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")))
}
