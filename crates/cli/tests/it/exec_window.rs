//! `lull exec --between`: jobs that run within a time of day.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lull_testing::needs;
use serde_json::Value;

use crate::support::{Kept, eventually_within, finish, lull};

/// Seconds of the day in UTC.
#[allow(clippy::disallowed_methods, reason = "a window of today depends on the time of day")]
fn second_of_day() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() % 86_400
}

/// A window of local time, and the `TZ` in which it ends after some seconds. glibc takes names of time zones
/// with three letters or more.
pub(crate) fn window_that_ends_in(seconds: u64) -> (String, String) {
    let now = second_of_day();
    let shift = (60 - (now + seconds) % 60) % 60;
    let end = (now + seconds + shift) / 60 % 1440;
    let time = |minute: u64| format!("{:02}:{:02}", minute / 60, minute % 60);
    (format!("{}-{}", time((end + 1380) % 1440), time(end)), format!("LOC-00:00:{shift:02}"))
}

/// The state of a job, once it is there.
fn state(name: &str) -> Option<Value> {
    let jobs: Value =
        serde_json::from_str(&finish(&mut lull(&["jobs", "list", "--json"])).ok()).unwrap();
    jobs.as_array().unwrap().iter().find(|job| job["name"] == name).map(|job| job["state"].clone())
}

#[test]
fn job_is_paused_at_the_end_of_its_window() {
    needs!(lull_testing::bpf());
    let name = crate::support::unique_name();
    let (window, zone) = window_that_ends_in(8);
    let mut command = lull(&["exec", "--quiet", "--name", &name, "--between", &window]);
    command.args(["--", "sleep", "50"]).env("TZ", zone).stdout(Stdio::null());
    let mut job = Kept::spawn(&mut command);
    eventually_within(Duration::from_secs(120), "it runs, or is paused by now", || {
        state(&name).is_some()
    });
    eventually_within(Duration::from_secs(40), "it is paused", || {
        state(&name) == Some("paused".into())
    });
    // A user may let it go on all the same.
    finish(&mut lull(&["jobs", "resume", &name])).ok();
    thread::sleep(Duration::from_secs(1));
    assert_eq!(state(&name), Some("running".into()));
    let pid = job.pid();
    finish(std::process::Command::new("kill").arg(&pid)).ok();
    job.0.wait().unwrap();
}

#[test]
fn job_waits_for_its_window_and_can_be_interrupted() {
    needs!(lull_testing::bpf());
    let name = crate::support::unique_name();
    let hour = |ahead: u64| format!("{:02}:00", (second_of_day() / 3600 + ahead) % 24);
    let window = format!("{}-{}", hour(3), hour(4));
    let mut command = lull(&["exec", "--name", &name, "--between", &window, "--", "sleep", "50"]);
    let mut job = Kept::spawn(command.env("TZ", "UTC0"));
    thread::sleep(Duration::from_secs(2));
    assert_eq!(job.0.try_wait().unwrap(), None);
    assert_eq!(state(&name), None);
    finish(std::process::Command::new("kill").arg(job.pid())).ok();
    assert!(!job.0.wait().unwrap().success());
}

#[test]
fn bad_window_is_a_wrong_argument() {
    // The second is the option's earlier name.
    for option in ["--between", "--at-most"] {
        finish(&mut lull(&["exec", option, "2-6", "--", "true"])).fails(125, "such as 02:00-06:00");
    }
}
