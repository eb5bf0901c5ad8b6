//! Processor time, including kernel time that belongs to no process.
//!
//! A packet costs time in four places: in the system calls of its sender and receiver; in interrupts that the
//! kernel handles while one of them runs; while something else runs; and while nothing runs, as is usual for
//! pacing timers. A process's own time includes the first two. On kernels that count interrupts separately,
//! it includes only the first. The rest appears only in the total time of the processors. So a cell that runs
//! alone counts
//!
//! > its process + (time not idle - time of all tasks)
//!
//! and subtracts the second term of a phase without traffic. The idle time of processors is exact on kernels
//! without a tick while idle, and otherwise in steps of 10 ms. The time of tasks is exact to nanoseconds
//! (`/proc/PID/schedstat`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sched::sched_getaffinity;
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;

use crate::record::{CpuRecord, rounded};

/// Ticks of `/proc/stat` per second: USER_HZ, which is 100 on all current Linux machines.
const TICKS: f64 = 100.0;

/// All tasks of the machine, also for processes in their own process namespace.
#[derive(Debug)]
pub(super) struct Tasks(File);

impl Tasks {
    /// Must be called before the process enters its own process namespace.
    pub(super) fn open() -> io::Result<Self> {
        File::open("/proc").map(Tasks)
    }

    fn folder(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    /// How long each task has run, by its number.
    fn times(&self) -> BTreeMap<u32, Duration> {
        let mut times = BTreeMap::new();
        for process in fs::read_dir(self.folder()).into_iter().flatten().flatten() {
            let name = process.file_name();
            if !name.to_string_lossy().starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            let tasks = fs::read_dir(process.path().join("task"));
            for task in tasks.into_iter().flatten().flatten() {
                let schedule = fs::read_to_string(task.path().join("schedstat"));
                let schedule = schedule.unwrap_or_default();
                let ran = schedule.split_whitespace().next().and_then(|text| text.parse().ok());
                let number = task.file_name().to_string_lossy().parse().ok();
                if let (Some(number), Some(nanos)) = (number, ran) {
                    times.insert(number, Duration::from_nanos(nanos));
                }
            }
        }
        times
    }
}

/// Processor time at one moment.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    at: Instant,
    process: Duration,
    ours: Option<AllowedProcessors>,
    machine: Option<Machine>,
}

/// The time of all tasks, and the time that processors did not work for this machine.
#[derive(Clone, Debug)]
struct Machine {
    tasks: BTreeMap<u32, Duration>,
    idle_s: f64,
    cores: usize,
}

impl Machine {
    /// Seconds that tasks ran since an earlier reading. The last moments of tasks that ended in between are
    /// missing.
    fn tasks_since(&self, earlier: &Machine) -> f64 {
        let ran = self.tasks.iter().map(|(number, time)| {
            time.saturating_sub(earlier.tasks.get(number).copied().unwrap_or_default())
        });
        ran.sum::<Duration>().as_secs_f64()
    }
}

impl Reading {
    /// Reads the process's time, and with tasks, the machine's.
    pub(super) fn now(tasks: Option<&Tasks>) -> Self {
        let processors = processors();
        Reading {
            at: Instant::now(),
            process: process_time(),
            ours: processors.map(|all| all.ours),
            machine: tasks.zip(processors).map(|(tasks, Processors { idle_s, cores, .. })| {
                Machine { tasks: tasks.times(), idle_s, cores }
            }),
        }
    }

    /// The use from an earlier reading until this one.
    pub(super) fn since(&self, earlier: &Reading) -> CpuRecord {
        let seconds = (self.at - earlier.at).as_secs_f64();
        let process_s = self.process.saturating_sub(earlier.process).as_secs_f64();
        let mut record = CpuRecord { process_s: rounded(process_s), ..CpuRecord::default() };
        if let (Some(now), Some(before)) = (self.ours, earlier.ours) {
            record.stolen_s = rounded(now.stolen_s - before.stolen_s);
            record.busy = now.busy_since(before).map(rounded);
        }
        if let (Some(machine), Some(before)) = (&self.machine, &earlier.machine) {
            let tasks_s = machine.tasks_since(before);
            let busy_s = seconds * machine.cores as f64 - (machine.idle_s - before.idle_s);
            record.interrupts_s = Some(rounded(busy_s - tasks_s));
            record.others_s = Some(rounded(tasks_s - process_s));
        }
        record
    }
}

/// Processor time of this process and of its children that have ended.
pub(super) fn process_time() -> Duration {
    let of = |who| {
        getrusage(who).map_or(Duration::ZERO, |usage| {
            let time = |value: nix::sys::time::TimeVal| {
                Duration::new(value.tv_sec() as u64, value.tv_usec() as u32 * 1000)
            };
            time(usage.user_time()) + time(usage.system_time())
        })
    };
    of(UsageWho::RUSAGE_SELF) + of(UsageWho::RUSAGE_CHILDREN)
}

/// Time of all processors that belongs to no process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Processors {
    /// Seconds that they were idle, waited for disks or were taken by a hypervisor.
    idle_s: f64,
    /// Their number.
    cores: usize,
    /// The processors that this process may run on.
    ours: AllowedProcessors,
}

/// The processors that this process may run on, in total, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct AllowedProcessors {
    /// They were idle, or waited for disks.
    idle_s: f64,
    /// A hypervisor had them.
    stolen_s: f64,
    /// Their total time.
    all_s: f64,
}

impl AllowedProcessors {
    /// The part of the time since an earlier reading in which they were not idle; none if no time passed.
    fn busy_since(self, earlier: AllowedProcessors) -> Option<f64> {
        let all = self.all_s - earlier.all_s;
        (all > 0.0).then(|| 1.0 - ((self.idle_s - earlier.idle_s) / all).clamp(0.0, 1.0))
    }
}

fn processors() -> Option<Processors> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).ok();
    let is_ours = |processor| allowed.is_none_or(|set| set.is_set(processor).unwrap_or(false));
    parse_processors(&fs::read_to_string("/proc/stat").ok()?, is_ours)
}

fn parse_processors(stat: &str, is_ours: impl Fn(usize) -> bool) -> Option<Processors> {
    let mut all = Processors { idle_s: 0.0, cores: 0, ours: AllowedProcessors::default() };
    for line in stat.lines().filter_map(|line| line.strip_prefix("cpu")) {
        let mut words = line.split_ascii_whitespace();
        // The first line is the sum of the others, and has no number.
        let Some(number) = words.next().filter(|_| !line.starts_with(' ')) else { continue };
        // proc(5): user, nice, system, idle, iowait, irq, softirq, steal. The later fields are included in
        // the first.
        let ticks: Vec<f64> = words.take(8).filter_map(|text| text.parse().ok()).collect();
        let (idle, waiting, stolen) = (ticks.get(3)?, ticks.get(4)?, ticks.get(7)?);
        all.idle_s += (idle + waiting + stolen) / TICKS;
        if is_ours(number.parse().ok()?) {
            all.ours.idle_s += (idle + waiting) / TICKS;
            all.ours.stolen_s += stolen / TICKS;
            all.ours.all_s += ticks.iter().sum::<f64>() / TICKS;
        }
        all.cores += 1;
    }
    (all.cores > 0).then_some(all)
}

#[cfg(test)]
mod tests {
    use nix::sys::time::TimeValLike as _;

    use super::*;

    #[test]
    fn idle_time_includes_waiting_and_stolen_time() {
        let stat = "cpu  2 4 6 500 60 12 14 20 0 0\ncpu0 1 2 3 400 50 6 7 8 0 0\n\
                    cpu1 1 2 3 100 10 6 7 12 0 0\nintr 5\n";
        let seen = parse_processors(stat, |processor| processor == 1).unwrap();
        assert!((seen.idle_s - 5.8).abs() < 1e-9, "{seen:?}");
        assert_eq!(seen.cores, 2);
        assert_eq!(seen.ours, AllowedProcessors { idle_s: 1.1, stolen_s: 0.12, all_s: 1.41 });
        assert_eq!(parse_processors("intr 5", |_| true), None);
    }

    #[test]
    fn time_of_other_processes_counts_as_busy() {
        let at = |idle_s, stolen_s, all_s| AllowedProcessors { idle_s, stolen_s, all_s };
        let earlier = at(10.0, 1.0, 20.0);
        for (later, expected) in [
            (at(14.0, 1.0, 24.0), Some(0.0)),
            (at(11.0, 1.0, 24.0), Some(0.75)),
            (at(10.0, 5.0, 24.0), Some(1.0)),
            (at(10.0, 1.0, 20.0), None),
        ] {
            assert_eq!(later.busy_since(earlier), expected, "{later:?}");
        }
    }

    /// Counts the time that this process used, not elapsed time: other processes may use the processors
    /// meanwhile.
    #[test]
    fn processor_record_has_the_time_that_was_used() {
        let used_by_us = || {
            let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
            let [user, system] = [usage.user_time(), usage.system_time()];
            user.num_microseconds() + system.num_microseconds()
        };
        let tasks = Tasks::open().unwrap();
        let before = Reading::now(Some(&tasks));
        let (start, end) = (used_by_us(), Instant::now() + Duration::from_secs(30));
        while used_by_us() < start + 200_000 && Instant::now() < end {}
        let used = Reading::now(Some(&tasks)).since(&before);
        assert!(used.process_s > 0.15, "{used:?}");
        assert!(used.others_s.is_some() && used.interrupts_s.is_some(), "{used:?}");
        assert!(used.busy.is_some_and(|busy| busy > 0.0), "{used:?}");
    }
}
