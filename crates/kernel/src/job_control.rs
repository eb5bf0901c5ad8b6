//! Pauses, resumes and moves jobs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::adopt::Adopted;
use crate::cgroup::Hierarchy;
use crate::error::{Error, Result};
use crate::foreground::take_back;
use crate::jobs::{Job, find};
use crate::machine;

/// Freezes the processes of a job. Its connections stay open; the other side may close them.
///
/// # Errors
/// [`Error::NoJob`], or the kernel's error.
pub(crate) fn pause(job: &str) -> Result<Job> {
    freeze(job, true)
}

/// Resumes the processes of a job.
///
/// # Errors
/// [`Error::NoJob`], or the kernel's error.
pub(crate) fn resume(job: &str) -> Result<Job> {
    freeze(job, false)
}

/// Moves all processes of a job, and their connections, out of the background. A paused job is resumed.
///
/// # Errors
/// [`Error::NoJob`], or what the kernel reports. A slice cannot be moved: its units are where systemd put them.
pub fn job_to_foreground(job: &str) -> Result<Adopted> {
    machine::check_privilege("moving a job")?;
    let (hierarchy, job) = find(job)?;
    if job.is_slice {
        let what = format!("move the slice {} out of the background", job.id);
        let remedy = "start its units or containers in another slice or parent cgroup";
        return Err(Error::io(what)(io::Error::other(remedy)));
    }
    write(&hierarchy, &job.cgroup, false)?;
    let first = *job.processes.first().expect("a job has processes");
    take_back(&hierarchy, first, job.processes.iter().copied().collect::<BTreeSet<_>>())
}

fn freeze(job: &str, is_paused: bool) -> Result<Job> {
    let (hierarchy, job) = find(job)?;
    write(&hierarchy, &job.cgroup, is_paused)?;
    Ok(Job { is_paused, ..job })
}

fn write(hierarchy: &Hierarchy, cgroup: &Path, is_paused: bool) -> Result<()> {
    let text = if is_paused { "1" } else { "0" };
    fs::write(hierarchy.path_of(cgroup).join("cgroup.freeze"), text).map_err(|error| {
        match error.kind() {
            io::ErrorKind::PermissionDenied => {
                Error::permission("changing a job", "write access to its cgroup", false)
            }
            _ => Error::io("change the job")(error),
        }
    })
}
