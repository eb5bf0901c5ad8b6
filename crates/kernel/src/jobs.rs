//! Programs in the background, by the name from `lull exec --name`, or by their id; and slices, by the name of their
//! cgroup.
//!
//! All facts about a job are in its cgroup, so they disappear with the job.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use libbpf_rs::query::{MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapHandle, ProgramAttachType};
use lull_cc::Timestamp;
use nix::time::{ClockId, clock_gettime};

use crate::cgroup::{Background, Hierarchy};
use crate::error::{Error, Result};
use crate::hooks::{Counters, read_counters};
use crate::machine;
use crate::slice_mark::slices;
use crate::sys;
use crate::udp::{UdpSample, samples};

/// The attribute of a cgroup that holds the name of its job.
const NAME: &std::ffi::CStr = c"user.lull.name";

/// A background with at least one process, or a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The process id of the `lull` that made it, and a count: `1234.0`. A slice has the name of its cgroup in
    /// `/proc/PID/cgroup`.
    pub id: String,
    /// Its given name; for a slice the last part of the name of its cgroup.
    pub name: Option<String>,
    /// Whether it is a cgroup of others that [`prepare_slice`](crate::prepare_slice) has put into the background.
    pub is_slice: bool,
    /// The congestion control of its connections.
    pub congestion: String,
    /// Its cgroup, by its name in `/proc/PID/cgroup`.
    pub cgroup: PathBuf,
    /// Its processes; the oldest comes first. A slice may have none.
    pub processes: Vec<i32>,
    /// The command line of the first process; empty without one.
    pub command: String,
    /// How long the first process has been running.
    pub age: Duration,
    /// Whether its processes are frozen.
    pub is_paused: bool,
    /// The bytes that it has sent over TCP so far; None for a user without the permission to ask.
    pub tcp_bytes: Option<u64>,
    /// Bytes received over TCP so far.
    pub tcp_received: Option<u64>,
    /// Bytes sent over UDP so far.
    pub udp_bytes: Option<u64>,
    /// UDP by network, if it yields, likewise.
    pub udp: Vec<UdpSample>,
    /// Time that closed connections have spent yielding.
    pub yielded: Option<Duration>,
}

/// All visible jobs, in the order of their start, with slices. Processes of a job that runs inside a slice belong to
/// both.
///
/// # Errors
/// If the cgroups cannot be read.
pub fn jobs() -> Result<Vec<Job>> {
    let hierarchy = Hierarchy::open()?;
    let mut jobs: Vec<Job> = hierarchy
        .backgrounds()
        .into_iter()
        .filter_map(|found| examine(&hierarchy, found))
        .collect();
    jobs.extend(
        slices(&hierarchy).into_iter().filter_map(|found| examine_slice(&hierarchy, found)),
    );
    jobs.sort_by_key(|job| std::cmp::Reverse(job.age));
    Ok(jobs)
}

/// Names a new background.
pub(crate) fn set_name(cgroup: &File, name: &str) -> Result<()> {
    sys::set_attribute(cgroup.as_fd(), NAME, name.as_bytes())
        .map_err(Error::io("write the name of the job to its cgroup"))
}

/// Checks that a name is valid for a job, and not in use by another one.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !(1..=63).contains(&name.len()) || !name.chars().all(is_good) {
        return Err(Error::BadJobName { name: name.to_owned() });
    }
    match find(name) {
        Ok((_, job)) => Err(Error::JobRuns {
            name: name.to_owned(),
            pid: job.processes.first().copied().unwrap_or(0),
        }),
        Err(_) => Ok(()),
    }
}

/// The job with an id or a name.
pub(crate) fn find(wanted: &str) -> Result<(Hierarchy, Job)> {
    let mut all = jobs()?;
    let is_it = |job: &Job| job.id == wanted || job.name.as_deref() == Some(wanted);
    match all.iter().position(is_it) {
        Some(index) => Ok((Hierarchy::open()?, all.swap_remove(index))),
        None => Err(Error::NoJob { job: wanted.to_owned() }),
    }
}

/// A background that has processes.
fn examine(hierarchy: &Hierarchy, found: Background) -> Option<Job> {
    let job = describe(hierarchy, found)?;
    (!job.processes.is_empty()).then_some(job)
}

/// A slice, also without processes.
fn examine_slice(hierarchy: &Hierarchy, found: Background) -> Option<Job> {
    let name = found.called.file_name().map(|name| name.to_string_lossy().into_owned());
    Some(Job { is_slice: true, name, ..describe(hierarchy, found)? })
}

fn describe(hierarchy: &Hierarchy, found: Background) -> Option<Job> {
    let path = hierarchy.path_of(&found.called);
    let mut processes = hierarchy.processes_of(&found.called);
    processes.sort_by_key(|&pid| (started(pid), pid));
    let first = processes.first();
    let directory = File::open(&path).ok()?;
    let name = sys::attribute(directory.as_fd(), NAME).ok();
    let counters = counters(&directory);
    let frozen = fs::read_to_string(path.join("cgroup.freeze")).unwrap_or_default();
    Some(Job {
        id: found.id,
        name: name.and_then(|name| String::from_utf8(name).ok()),
        is_slice: false,
        congestion: found.congestion,
        command: first.map(|&first| command(first)).unwrap_or_default(),
        age: first.map(|&first| age(first)).unwrap_or_default(),
        is_paused: frozen.trim() == "1",
        tcp_bytes: counters.map(|counters| counters.tcp_bytes),
        tcp_received: counters.map(|counters| counters.tcp_received),
        udp_bytes: counters.map(|counters| counters.udp_bytes),
        udp: udp(&directory).unwrap_or_default(),
        yielded: counters.map(|counters| counters.yielded),
        cgroup: found.called,
        processes,
    })
}

/// When a process started, in ticks since the boot (field 22 of proc_pid_stat(5)).
fn started(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_whitespace().nth(19).and_then(|ticks| ticks.parse().ok()).unwrap_or(u64::MAX)
}

fn age(pid: i32) -> Duration {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime: f64 = uptime.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    // User space sees 100 ticks per second on every architecture that Lull runs on (USER_HZ).
    let start = started(pid) as f64 / 100.0;
    Duration::try_from_secs_f64(uptime - start).unwrap_or_default()
}

fn command(pid: i32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = words.strip_suffix(&[0]).unwrap_or(&words);
    let text = String::from_utf8_lossy(words).replace('\0', " ");
    // It must not change the terminal's display.
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The counters of a cgroup's hooks, through the program that counts sent bytes.
fn counters(cgroup: &File) -> Option<Counters> {
    let [counters] = maps(cgroup, "lull_egress", ["counters"])?;
    read_counters(&counters).ok()
}

/// UDP of a cgroup whose UDP yields, by network.
fn udp(cgroup: &File) -> Option<Vec<UdpSample>> {
    let [paths, allowances] = maps(cgroup, "lull_udp", ["udp_paths", "udp_allowances"])?;
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).ok()?;
    let now = now.tv_sec().unsigned_abs() * 1_000_000 + now.tv_nsec().unsigned_abs() / 1_000;
    Some(samples(&paths, &allowances, Timestamp::from_micros(now)))
}

/// Maps of the egress program with that name.
fn maps<const N: usize>(cgroup: &File, program: &str, names: [&str; N]) -> Option<[MapHandle; N]> {
    machine::check_privilege("").ok()?;
    let kind = ProgramAttachType::CgroupInetEgress as u32;
    let programs = sys::effective_programs(cgroup.as_fd(), kind).ok()?;
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    // Programs of the cgroup itself come before those of a slice around it.
    let ours = ProgInfoIter::with_query_opts(options)
        .filter(|one| one.name == program)
        .filter_map(|one| Some((programs.iter().position(|&number| number == one.id)?, one)))
        .min_by_key(|&(place, _)| place)?
        .1;
    let map = |name| {
        let map = MapInfoIter::default()
            .find(|map| map.name == name && ours.map_ids.contains(&map.id))?;
        MapHandle::from_map_id(map.id).ok()
    };
    let found: Vec<_> = names.into_iter().map(map).collect::<Option<_>>()?;
    found.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_names_are_plain() {
        for name in ["", "a b", "a/b", "ä", &"x".repeat(64)] {
            assert!(matches!(check_name(name), Err(Error::BadJobName { .. })), "{name}");
        }
    }

    #[test]
    fn own_process_has_command_and_age() {
        let own = std::process::id() as i32;
        assert!(!command(own).is_empty());
        assert!(age(own) < Duration::from_secs(3600));
        assert_eq!(age(-1), Duration::ZERO);
    }
}
