//! The work and the records for a background while a program runs in it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::PollTimeout;

use crate::background::{Background, Choice};
use crate::delegation::{Delegation, Reports};
use crate::error::Result;
use crate::existing_sockets::{self, SocketChanges, SocketSettings};
use crate::hooks::Requests;
use crate::process::cgroup_of;
use crate::sys;

/// Watches a background.
pub(crate) struct ProgramWatch<'run, 'obj> {
    background: &'run Background<'obj>,
    choice: &'run Choice,
    /// Requests of the hooks for work that they cannot do.
    requests: Requests<'run>,
    /// A program with thousands of sockets must not take all the time of this process.
    rest_until: Instant,
    /// The traffic of others for the program, as far as the kernel reports it.
    reports: Option<Reports<'run>>,
    /// Changed sockets from outside.
    done: BTreeSet<u64>,
    /// The sockets that the program got from other processes.
    received: SocketChanges,
    /// The processes with sockets that could not be marked, and why.
    unmarked: BTreeMap<i32, io::Error>,
}

impl<'run, 'obj> ProgramWatch<'run, 'obj> {
    /// `done` are the sockets that must not be checked.
    pub(crate) fn new(
        background: &'run Background<'obj>,
        choice: &'run Choice,
        delegation: Option<&'run Delegation<'_>>,
        done: BTreeSet<u64>,
    ) -> Result<Self> {
        Ok(ProgramWatch {
            background,
            choice,
            requests: background.hooks.requests()?,
            rest_until: Instant::now(),
            reports: delegation.and_then(Delegation::reports),
            done,
            received: SocketChanges::default(),
            unmarked: BTreeMap::new(),
        })
    }

    /// The descriptors that become readable when there is work.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let reports = self.reports.iter().map(|reports| sys::borrow(reports.raw_fd(), reports));
        let is_resting = Instant::now() < self.rest_until;
        let requests = (!is_resting).then(|| sys::borrow(self.requests.raw_fd(), &self.requests));
        reports.chain(requests).collect()
    }

    /// The time until the next check, in any case.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let now = Instant::now();
        let scan = self.reports.as_ref().map(Reports::next_scan);
        let rest = Some(self.rest_until).filter(|&until| until > now);
        scan.into_iter().chain(rest).min().map(|until| until.saturating_duration_since(now))
    }

    /// Reads the kernel's reports of others that send for the program, and changes the sockets that the
    /// program got from them. Does the work that the hooks cannot.
    pub(crate) fn process_reports(&mut self) {
        self.take_reports();
        let now = Instant::now();
        if now >= self.rest_until && self.requests.take() {
            self.mark_mapped();
            self.rest_until = Instant::now() + 10 * now.elapsed();
        }
    }

    fn take_reports(&mut self) {
        let Some(reports) = &mut self.reports else { return };
        reports.take(|pid| moved_to(self.background.cgroup.called(), pid));
        let wanted = SocketSettings { only_others: true, ..self.choice.wanted(None) };
        for pid in reports.scan(Instant::now()) {
            if let Ok(received) = existing_sockets::change_sockets_of(pid, wanted, &mut self.done) {
                self.received.add(received);
            }
        }
    }

    fn mark_mapped(&mut self) {
        let Some(class) = self.choice.dscp.traffic_class() else { return };
        for pid in self.background.cgroup.processes() {
            match existing_sockets::mark_mapped(pid, class) {
                Err(error) if !existing_sockets::has_ended(&error) => {
                    self.unmarked.insert(pid, error)
                }
                _ => self.unmarked.remove(&pid),
            };
        }
    }

    /// The connections in the foreground, one line each, without the move of `program` itself.
    pub(crate) fn foreground(&self, program: i32) -> Vec<String> {
        let unmarked = self.unmarked.iter().map(|(pid, error)| {
            format!("the DSCP of IPv4 connections of IPv6 sockets of process {pid}: {error}")
        });
        let reports = self.reports.iter().flat_map(|reports| reports.lines(program));
        unmarked.chain(self.received.foreground()).chain(reports).collect()
    }
}

/// The cgroup of a process, if its sockets are not in the background there.
pub(crate) fn moved_to(background: &Path, pid: i32) -> Option<String> {
    // The background of another `lull`, as after `lull exec --pid`, counts, too.
    let is_foreign =
        |cgroup: &String| !Path::new(cgroup).starts_with(background) && !is_background(cgroup);
    cgroup_of(pid).filter(is_foreign)
}

/// Whether a cgroup belongs to any `lull`, by its name, or is inside one.
fn is_background(cgroup: &str) -> bool {
    let ends_in_digit = |name: &str| name.ends_with(|last: char| last.is_ascii_digit());
    cgroup.split('/').any(|name| name.starts_with("lull.") && ends_in_digit(name))
}

/// In the form of poll(2), rounded up and bounded.
pub(crate) fn poll_timeout(pause: Option<Duration>) -> PollTimeout {
    pause.map_or(PollTimeout::NONE, |pause| {
        PollTimeout::from(pause.as_millis().clamp(1, 10_000) as u16)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_of_another_lull_is_in_the_background() {
        for background in ["/lull.nice.12.0", "/a.slice/lull.nice.12.0/its.own"] {
            assert!(is_background(background), "{background}");
        }
        for foreground in ["/", "/system.slice/lull.service", "/user.slice/session-12.scope"] {
            assert!(!is_background(foreground), "{foreground}");
        }
    }
}
