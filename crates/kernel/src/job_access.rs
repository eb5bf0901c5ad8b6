//! Pauses and resumes jobs by the rights of this process, or by the server of `lull kernel serve`.

use crate::error::{Error, Result};
use crate::job_control;
use crate::jobs::{Job, find};
use crate::serve::{JobChange, ask_for_change};

/// Freezes the processes of a job. Its connections stay open; the other side may close them.
///
/// # Errors
/// [`Error::NoJob`]; [`Error::Refused`] by the server, as for a job of another user; or the kernel's error.
pub fn pause(job: &str) -> Result<Job> {
    or_by_server(job_control::pause(job), JobChange::Pause, job)
}

/// Resumes the processes of a job.
///
/// # Errors
/// [`Error::NoJob`]; [`Error::Refused`] by the server, as for a job of another user; or the kernel's error.
pub fn resume(job: &str) -> Result<Job> {
    or_by_server(job_control::resume(job), JobChange::Resume, job)
}

fn or_by_server(result: Result<Job>, change: JobChange, job: &str) -> Result<Job> {
    match result {
        Err(missing @ Error::Permission { .. }) => match ask_for_change(change, job) {
            Some(changed) => changed.and_then(|()| find(job)).map(|(_, job)| job),
            None => Err(missing),
        },
        result => result,
    }
}
