//! Publications that replicas are to have by a deadline.

use std::time::Duration;

use lull_replication::origin::{Arrival, Distribution, DistributionId};
use lull_replication::path::Path;
use lull_replication::subscription::Pattern;
use lull_replication::types::{ReplicaId, Sequence};
use serde::{Deserialize, Serialize};

use super::{OriginHandle, lock};
use crate::daemon::DaemonError;

/// How far a publication has arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DistributionStatus {
    /// The state.
    pub state: u64,
    /// Bytes of its bodies; none while they are counted.
    pub bytes: Option<u64>,
    /// Its files, links and folders.
    pub files: Option<u64>,
    /// The time until its deadline, in seconds; none without one.
    pub seconds_left: Option<f64>,
    /// The replicas that are to have it.
    pub hosts: Vec<HostStatus>,
}

/// A replica that is to have a publication.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// The phase: `away`, `background`, `urgent`, `done` or `revoked`.
    pub phase: String,
    /// The state that it answers reads with; none if it has not connected since the start of the origin.
    pub state: Option<u64>,
    /// Bytes of the bodies that it lacks; none while they are counted.
    pub missing_bytes: Option<u64>,
    /// Files that it lacks.
    pub missing_files: u64,
    /// Bytes that arrive in a second; none if that is not known.
    pub bytes_per_second: Option<f64>,
    /// By how many seconds the deadline would be missed at the best rate so far; none if it would be met.
    pub late_by_seconds: Option<f64>,
    /// When it had everything that is sent to it, in seconds since 1970.
    pub done_at: Option<f64>,
    /// Whether it has said since then that it lacks no file at all.
    pub has_all: bool,
}

impl OriginHandle {
    /// The names of the replicas that have joined, were not revoked, and match one of these names and patterns.
    ///
    /// # Errors
    /// If one of them matches none.
    pub fn matching(&self, patterns: &[String]) -> Result<Vec<String>, DaemonError> {
        let all: Vec<String> = {
            let identity = lock(&self.0.identity);
            let joined = identity.replicas().filter(|(_, _, joined)| *joined);
            joined.map(|(_, name, _)| name.to_owned()).collect()
        };
        let mut names = Vec::new();
        for text in patterns {
            if !text.contains('*') {
                self.joined(::core::slice::from_ref(text))?;
                names.push(text.clone());
                continue;
            }
            let before = names.len();
            if let Ok(pattern) = Pattern::new(text.as_bytes()) {
                let path = |name: &String| Path::from_bytes(name.as_bytes()).ok();
                let matches = |name: &&String| path(name).is_some_and(|it| pattern.matches(&it));
                names.extend(all.iter().filter(matches).cloned());
            }
            if names.len() == before {
                return Err(DaemonError::NoMatch(text.clone()));
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Observes how the state at `at` arrives at these replicas, with all files below `within`. If they would miss a
    /// deadline after this time, its bodies leave the background. Returns its number.
    ///
    /// # Errors
    /// If one of the names is not that of a replica, see [`joined`](OriginHandle::joined).
    pub fn distribute(
        &self,
        names: &[String],
        at: Sequence,
        within: Option<&Path>,
        limit: Option<Duration>,
    ) -> Result<u64, DaemonError> {
        let replicas = self.joined(names)?;
        let within = within.map_or_else(Vec::new, Path::prefix);
        Ok(self.0.with(|core, now| {
            let deadline = limit.map(|limit| now.local.plus(limit));
            let wanted = Distribution { at, within, deadline, replicas };
            core.machine.distribute(now, wanted).0
        }))
    }

    /// How far the publication with this number has arrived; none if the origin does not know it any more.
    pub fn distribution(&self, number: u64) -> Option<DistributionStatus> {
        let names: Vec<(ReplicaId, String, bool)> = {
            let identity = lock(&self.0.identity);
            let all = identity.replicas();
            all.map(|(id, name, joined)| (id, name.to_owned(), joined)).collect()
        };
        self.0.with(|core, now| {
            let progress = core.machine.distribution(now, DistributionId(number))?;
            let host = |arrival: &Arrival| {
                let known = names.iter().find(|(id, ..)| *id == arrival.replica);
                let done = arrival.done.map(|at| {
                    let wall = now.wall.minus(now.local.since(at)).as_nanos();
                    wall as f64 / 1e9
                });
                HostStatus {
                    name: known.map(|(_, name, _)| name.clone()).unwrap_or_default(),
                    phase: phase_of(arrival, known.is_some_and(|(_, _, joined)| *joined)).into(),
                    state: arrival.state.map(|state| state.0),
                    missing_bytes: arrival.missing.map(|bytes| bytes.0),
                    missing_files: arrival.files,
                    bytes_per_second: arrival.rate,
                    late_by_seconds: arrival.late_by.map(|time| time.as_secs_f64()),
                    done_at: done,
                    has_all: arrival.has_all,
                }
            };
            Some(DistributionStatus {
                state: progress.at.0,
                bytes: progress.all.map(|(bytes, _)| bytes.0),
                files: progress.all.map(|(_, files)| files),
                seconds_left: progress.deadline.map(|at| at.since(now.local).as_secs_f64()),
                hosts: progress.arrivals.iter().map(host).collect(),
            })
        })
    }
}

fn phase_of(arrival: &Arrival, is_joined: bool) -> &'static str {
    match arrival {
        Arrival { done: Some(_), .. } => "done",
        _ if !is_joined => "revoked",
        Arrival { is_connected: false, .. } => "away",
        Arrival { is_urgent: true, .. } => "urgent",
        _ => "background",
    }
}
